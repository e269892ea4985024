"""Warnings on the lexical gate: where it tells nothing apart, and where the tokenizer misreads a script's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.distinct import distinct
from secid.measure.blocks import Triplets
from secid.plan import Plan, sample_order
from secid.settings import Settings
from secid.study.bench import subset
from secid.study.coverage import CoverageBench
from secid.study.finish import Measured
from secid.study.misread import BETTER, NOTICED_MISREAD, misread

INACTIVE_COVERAGE = 0.05
"""Mean coverage of the labelled positives below which coverage says nothing about negatives either."""
SAMPLE_QUERIES = 200
"""Queries of a source that other tokenizers are tried on: a mean coverage has a standard error of at most 0.02."""
SHOWN_SOURCES = 2


def lexical(
    plan: Plan, items: Sequence[Measured], coverages: CoverageBench, settings: Settings, folder: Path
) -> tuple[str, ...]:
    """Warnings on the lexical gate: where it is inactive, and where the tokenizer misreads the words of a script.

    folder: where the token sets of a sample are spooled.
    """
    means = {item.name: float(np.average(item.positive_coverage, weights=item.triplets.share)) for item in items}
    inactive = [item for item in items if means[item.name] < INACTIVE_COVERAGE]
    others = _under_others(plan, inactive, coverages, settings, folder) if inactive else {}
    told = [_inactive(name, means[name], best, reached, settings.tokenizer) for name, (best, reached) in others.items()]
    return (*told, *_misread(plan, [item for item in items if item.name not in others], settings))


def _inactive(name: str, mean: float, best: str, reached: float, tokenizer: str) -> str:
    """With one token for a whole query (unsegmented Chinese) every residual is 1, and the score has two gates, not
    three. Only where no offered tokenizer helps is that a property of the texts.
    """
    advice = (
        f"use --tokenizer {best} for {name}, it lifts the coverage of positives to about {reached:.2f}"
        if reached >= INACTIVE_COVERAGE
        else f"{name}: no offered tokenizer lifts the coverage of positives to {INACTIVE_COVERAGE:g} "
        f"(most: {best}, about {reached:.3f})"
    )
    return (
        f"{advice}: the lexical gate is inactive, under {tokenizer} the labelled positives "
        f"cover {mean:.3f} of their queries on average"
    )


def _under_others(
    plan: Plan, items: Sequence[Measured], coverages: CoverageBench, settings: Settings, folder: Path
) -> dict[str, tuple[str, float]]:
    """By source the tokenizer that covers most of its positives, and how much, on a sample of their queries."""
    sets = [subset(item.triplets, _sampled(plan, item.triplets, settings.seed)) for item in items]
    queries = distinct(np.concatenate([rows.query for rows in sets]))
    passages = distinct(np.concatenate([ids for rows in sets for ids in (rows.positive, rows.negative)]))
    part = replace(plan, queries=plan.queries.only(queries), passages=plan.passages.only(passages))
    sets = [
        replace(
            rows,
            query=np.searchsorted(queries, rows.query),
            positive=np.searchsorted(passages, rows.positive),
            negative=np.searchsorted(passages, rows.negative),
        )
        for rows in sets
    ]
    folder.mkdir(exist_ok=True)
    bench = coverages.over(part, sets, folder)
    names = [name for name in coverages.tokenizers() if name != settings.tokenizer]
    found = {}
    try:
        for item, rows in zip(items, sets, strict=True):
            reached = {
                name: float(np.average(bench.positives(rows, name, settings.idf), weights=rows.share)) for name in names
            }
            best = max(names, key=lambda name: reached[name])
            found[item.name] = best, reached[best]
    finally:
        part.close()
    return found


def _sampled(plan: Plan, rows: Triplets, seed: int) -> npt.NDArray[np.int64]:
    """Rising places of the triplets of the queries that come first in the seeded order."""
    queries = distinct(rows.query)
    order = np.argsort(sample_order(plan.queries.keys[queries], seed), kind="stable")
    return np.flatnonzero(np.isin(rows.query, queries[order[:SAMPLE_QUERIES]]))


def _misread(plan: Plan, items: Sequence[Measured], settings: Settings) -> list[str]:
    """One warning for all sources in which the tokenizer does the same to words."""
    by_what: dict[str, list[tuple[float, str]]] = {}
    for item in items:
        if item.planned is not None:
            seen = misread(plan, item.planned, settings.tokenizer, settings.seed)
            if seen.fraction >= NOTICED_MISREAD:
                by_what.setdefault(seen.told(), []).append((seen.fraction, item.name))
    return [
        f"use --tokenizer {BETTER}: {settings.tokenizer} {what} ({_shares(sorted(sources, reverse=True))})"
        for what, sources in by_what.items()
    ]


def _shares(sources: Sequence[tuple[float, str]]) -> str:
    """The first sources with their shares, and how many more there are."""
    shown = [f"{100 * fraction:.0f} % of the texts of {name}" for fraction, name in sources[:SHOWN_SOURCES]]
    n_more = len(sources) - len(shown)
    return ", ".join([*shown, *([f"and of {n_more} more {'source' if n_more == 1 else 'sources'}"] if n_more else [])])
