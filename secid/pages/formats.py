"""Formats of a result: a page, JSON or metrics, by the name of a file, and the verdict in one line for scripts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar, get_args

from secid.analyses.registry import to_json
from secid.pages import html, markdown
from secid.pages.page import Page
from secid.pages.sections import page_of
from secid.pages.text import inert, plain
from secid.records import encodable
from secid.results import Run, Status
from secid.results.check import Audit, Check
from secid.results.gate import GateVerdict, Outcome
from secid.results.probe import Probe

# Formats of a result by the name of its file: its page as HTML or Markdown, the result as JSON, or its metrics.

Result = TypeVar("Result")


def formats(page: Callable[[Result], Page], document: Callable[[Result], str]) -> Mapping[str, Callable[[Result], str]]:
    """The formats of one kind of result, from its page and its JSON document."""
    return {
        ".html": lambda result: html.render(page(result)),
        ".json": document,
        ".md": lambda result: markdown.render(page(result)),
    }


METRICS = "metrics.json"
"""Name of a file of metrics, or its end after a dot."""


def format_of(path: Path) -> str:
    """The format that the name of a file picks: its suffix, or METRICS."""
    return METRICS if f".{path.name}".endswith(f".{METRICS}") else path.suffix


def run_formats(probe: Probe | None) -> Mapping[str, Callable[[Run], str]]:
    """Those of a run, with its probe on the pages; the JSON document is the run's alone."""
    return formats(lambda run: page_of(run, probe), to_json)


FORMATS = run_formats(None)
"""Those of a run without a probe, which its folder has."""
OF_METRICS: Mapping[str, Callable[[Run], str]] = {
    METRICS: lambda run: encodable(json.dumps(run.metrics(), indent=2, ensure_ascii=False)) + "\n"
}


# The verdict of a command in one line for scripts, made from the fields that its JSON has.

Judged = Run | Check | GateVerdict | Audit | Probe


def verdict_line(result: Judged) -> str:
    """ "VERDICT: WORD key=value …", quoted as a shell's words, so that shlex.split takes it apart. docs/agents.md lists
    words and keys. The names are untrusted: characters that no line shows become U+FFFD.
    """
    word, facts = _verdict(result)
    values = (plain(f"{name}={value}") for name, value in facts.items() if value is not None)
    return f"VERDICT: {inert(f'{word} {shlex.join(values)}')}"


def _verdict(result: Judged) -> tuple[str, dict[str, object]]:
    facts: dict[str, object] = {"n_sources": len(result.sources)}
    if isinstance(result, Run | Check):
        statuses = [source.status for source in result.sources]
        facts |= _counts(statuses, get_args(Status))
        word = next(status for status in reversed(get_args(Status)) if status in statuses)
        if isinstance(result, Run):
            return word, {"command": "score", **facts, "run": result.folder}
        return "fail" if result.failed else word, {"command": "check", **facts, "n_failed": len(result.failed)}
    if isinstance(result, GateVerdict):
        outcomes = [source.outcome for source in result.sources]
        return result.outcome, {"command": "gate", **facts, **_counts(outcomes, get_args(Outcome))}
    if isinstance(result, Audit):
        relevant = sum(source.n_labelled_relevant for source in result.sources)
        judged = relevant + sum(source.n_labelled_non_relevant for source in result.sources)
        word = "relevant" if relevant else "none_relevant" if judged else "unjudged"
        return word, {"command": "audit", **facts, "n_labelled_relevant": relevant, "n_judged": judged}
    if result.abstained:
        return "abstained", {"command": "probe", **facts, "reason": result.abstained}
    n_best = 1 + len(result.tied_with_first)
    word = "gain" if len(result.sources) == 1 else "best" if n_best == 1 else "tied"
    caution = ",".join(result.doubts) or None
    return word, {"command": "probe", **facts, "n_best": n_best, "first": result.sources[0].name, "caution": caution}


def _counts(items: Collection[str], kinds: Collection[str]) -> dict[str, object]:
    """How many are of each kind, by n_KIND."""
    return {f"n_{kind}": sum(item == kind for item in items) for kind in kinds}
