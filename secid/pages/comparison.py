"""Several runs side by side: what changed in settings, encoder, IDF table, sources, scores and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from secid.analyses.budgets import BUDGETS
from secid.errors import UsageError
from secid.pages.glossary import score_point
from secid.pages.numbers import plural
from secid.records import encodable
from secid.results import SCHEMA_VERSION, Run, SourceResult, Status
from secid.results.shown import Shown
from secid.settings import value_text

UNLIKE = (
    "temperature",
    "positives",
    "first_k",
    "pooling",
    "query_prefix",
    "passage_prefix",
    "query_prompt",
    "passage_prompt",
    "normalize",
    "truncate_dim",
    "budget",
)
"""Settings under which a score is another number."""
HARMLESS = frozenset(
    {
        *("on_bad", "max_bad_fraction"),  # they refuse a source, or leave it as it is
        *("batch_tokens", "cache", "cache_dir", "cache_gb", "threads"),
        *("controls", "control_queries", "high_coverage", "valid", "far", "examples"),
        *("ablate", "objectives", "encode_corpus", "by", "block"),
        *("guide", "guide_reranker", "guide_sample", "guide_query_prefix", "guide_passage_prefix"),
    }
)
"""Settings that change no score of a source; pages list them apart."""
SAME_ENCODER = frozenset({"name", "device"})
"""Fields in which one encoder may differ between runs: another encoder has another fingerprint."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something that is not the same in all runs. values: one a run, as text.

    what: "setting", "encoder", "idf", "secid", "numbers" (queries and negatives that the runs' common sources are
    compared on). Which sources and files differ, SourceAcross says.
    """

    what: str
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceAcross:
    """One source in all runs; None where a run lacks it.

    same_files: content hashes agree wherever it was read; None where fewer than two runs read it from files.
    findings: shares of its negatives by finding, where any run found one; None for a run that did not evaluate it.
    """

    name: str
    ranks: tuple[int | None, ...]
    scores_nats: tuple[float | None, ...]
    intervals_95: tuple[tuple[float, float] | None, ...]
    same_files: bool | None
    statuses: tuple[Status | None, ...] = ()
    hardness: tuple[float | None, ...] = ()
    findings: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reversal:
    """Two sources that the first run orders otherwise than another. established: in both runs."""

    run: str
    first: str
    second: str
    established: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class RunComparison(Shown):
    """Runs compared with the first. budgets: the B that each ranks at. unlike: why scores are not the same number in
    all runs.
    """

    schema_version: str
    runs: tuple[str, ...]
    budgets: tuple[float, ...]
    changes: tuple[Change, ...]
    sources: tuple[SourceAcross, ...]
    reversals: tuple[Reversal, ...]
    unlike: tuple[str, ...]


def compare(runs: Sequence[tuple[str, Run]]) -> RunComparison:
    """What changed between runs, each with the name it is shown by. Raises UsageError for fewer than two."""
    if len(runs) < 2:
        raise UsageError("one run has nothing to be compared with", remedy="name two run folders")
    changes = _changes([run for _, run in runs])
    budgets = tuple(run.budget for _, run in runs)
    reversals = tuple(item for label, run in runs[1:] for item in _reversals(label, runs[0][1], run))
    return RunComparison(
        schema_version=SCHEMA_VERSION,
        runs=tuple(label for label, _ in runs),
        budgets=budgets,
        changes=changes,
        sources=_sources([run for _, run in runs]),
        reversals=reversals,
        unlike=tuple(
            dict.fromkeys(
                change.name
                for change in changes
                if change.what == "idf"
                or (change.what == "encoder" and change.name not in SAME_ENCODER)
                or (change.what == "setting" and change.name in UNLIKE)
                or (change.what == "numbers" and max(budgets) > 1.0)
            )
        ),
    )


def _changes(runs: Sequence[Run]) -> tuple[Change, ...]:
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    rows = [("setting", name, [_value(run.settings.get(name)) for run in runs]) for name in names]
    encoder = ("name", "fingerprint", "pooling", "max_length", "dtype", "device", "dim")
    rows += [("encoder", field, [str(getattr(run.encoder, field)) for run in runs]) for field in encoder]
    rows += [
        ("idf", "IDF table", [run.idf.sha256 for run in runs]),
        ("secid", "version", [run.secid_version for run in runs]),
        ("numbers", "number of negatives compared", _numbers(runs)),
    ]
    return tuple(
        Change(what=what, name=name, values=tuple(values)) for what, name, values in rows if len(set(values)) > 1
    )


def _numbers(runs: Sequence[Run]) -> list[str]:
    """On how many queries and negatives each run compares the sources that all runs have at budgets beyond 1."""
    tables = [_by_name(run) for run in runs]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    texts = []
    for run, table in zip(runs, tables, strict=True):
        budgets = BUDGETS.of(run)
        equal = None if budgets is None else budgets.equal_numbers
        numbers = {name: equal or table[name] for name in common}
        counts = {
            name: f"{plural(item.n_queries, 'query', 'queries')}, {plural(item.n_triplets, 'negative')}"
            for name, item in numbers.items()
        }
        alike = len(set(counts.values())) == 1
        texts.append("; ".join(dict.fromkeys(text if alike else f"{name}: {text}" for name, text in counts.items())))
    return texts


def _value(entry: Any) -> str:
    return "absent" if entry is None else value_text(entry.get("value") if isinstance(entry, Mapping) else entry)


def _by_name(run: Run) -> dict[str, SourceResult]:
    return {source.name: source for source in run.sources}


def _sources(runs: Sequence[Run]) -> tuple[SourceAcross, ...]:
    tables = [_by_name(run) for run in runs]
    across = []
    for name in dict.fromkeys(name for table in tables for name in table):
        items = [table.get(name) for table in tables]
        points = [
            None if item is None else score_point(item, run.budget) for item, run in zip(items, runs, strict=True)
        ]
        across.append(
            SourceAcross(
                name=name,
                ranks=tuple(None if item is None else item.rank for item in items),
                scores_nats=tuple(None if point is None else point.nats for point in points),
                intervals_95=tuple(None if point is None else point.interval_95 for point in points),
                same_files=_same_files(items),
                statuses=tuple(None if item is None else item.status for item in items),
                hardness=tuple(
                    None if item is None else item.in_table(run.budget).hardness
                    for item, run in zip(items, runs, strict=True)
                ),
                findings=_shares(items),
            )
        )
    return tuple(across)


def _shares(items: Sequence[SourceResult | None]) -> dict[str, tuple[float | None, ...]]:
    """Shares of one source by finding, of findings that it has in any run."""
    every = [{} if item is None else {finding.name: finding.share for finding in item.findings} for item in items]
    names = dict.fromkeys(name for shares in every for name, share in shares.items() if share > 0)
    return {name: tuple(shares.get(name) for shares in every) for name in names}


def _same_files(items: Sequence[SourceResult | None]) -> bool | None:
    contents = [tuple(file.sha256 for file in item.paths) for item in items if item is not None and item.paths]
    return len(set(contents)) == 1 if len(contents) > 1 else None


def _reversals(label: str, first: Run, other: Run) -> list[Reversal]:
    ranks = {name: source.rank for name, source in _by_name(other).items()}
    common = [source.name for source in first.sources if source.name in ranks]
    return [
        Reversal(run=label, first=a, second=b, established=_established(first, a, b) and _established(other, a, b))
        for a, b in combinations(common, 2)
        if ranks[a] > ranks[b]
    ]


def _established(run: Run, a: str, b: str) -> bool:
    return any({pair.first, pair.second} == {a, b} and pair.established for pair in run.comparisons)


def labels(paths: Sequence[Path]) -> list[str]:
    """Names to tell runs apart by: the folder's own, or the whole path where two have the same.

    Bytes of a path that are no UTF-8 become U+FFFD. Raises UsageError where two paths are one run.
    """
    for first, second in combinations((path.parent if path.name == "report.json" else path for path in paths), 2):
        if first == second or (first.exists() and second.exists() and first.samefile(second)):
            raise UsageError("this run is named twice", where=str(second), remedy="name each run once")
    own = [path.parent.name if path.name == "report.json" else path.name for path in paths]
    return [
        encodable(name if name and own.count(name) == 1 else str(path)) for name, path in zip(own, paths, strict=True)
    ]
