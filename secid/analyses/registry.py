"""All analyses of a run, in the order in which they run and stand in report.json. A new one is one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass, replace
from typing import Any

from secid.analyses.ablations import ABLATIONS
from secid.analyses.analysis import Analysis, Context
from secid.analyses.budgets import BUDGETS
from secid.analyses.cost import COST
from secid.analyses.guide import GUIDE, MARGINS
from secid.analyses.in_batch import IN_BATCH
from secid.analyses.objectives import OBJECTIVE_LENS
from secid.analyses.overlap import OVERLAP
from secid.analyses.separation import SEPARATION
from secid.analyses.slices import SLICES

ANALYSES: tuple[Analysis[Any], ...] = (
    ABLATIONS,
    BUDGETS,
    SLICES,
    GUIDE,
    MARGINS,
    OBJECTIVE_LENS,
    SEPARATION,
    IN_BATCH,
    OVERLAP,
    COST,
)


def analyse(
    context: Context, stage: Callable[[str], AbstractContextManager[object]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the results by name, without analyses that were not asked for, and what was not evaluated.

    stage : times the analysis of this name.
    """
    results: dict[str, Any] = {}
    missing = dict(context.not_evaluated)
    for analysis in ANALYSES:
        with stage(analysis.name):
            found = analysis.compute(context)
        if found.result is not None:
            results[analysis.name] = found.result
        missing |= found.not_evaluated
    return results, missing


def in_rank_order(result: Any, names: Sequence[str]) -> Any:
    """A result with its parts that name a source in the order of `names`."""
    if isinstance(result, tuple):
        return tuple(sorted(result, key=lambda part: names.index(part.source))) if _of_sources(result) else result
    if is_dataclass(result) and not isinstance(result, type):
        parts = {field.name: getattr(result, field.name) for field in fields(result)}
        return replace(
            result, **{name: in_rank_order(part, names) for name, part in parts.items() if _of_sources(part)}
        )
    return result


def _of_sources(parts: Any) -> bool:
    return isinstance(parts, tuple) and all(hasattr(part, "source") for part in parts)


def reordered(results: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """All results in rank order. names : the sources in that order."""
    return {name: in_rank_order(result, names) for name, result in results.items()}
