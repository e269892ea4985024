"""Compare several runs: settings, scores, statuses, findings and ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from secid.analyses.budgets import BUDGETS
from secid.errors import UsageError
from secid.pages.formats import formats
from secid.pages.glossary import SCORE_CAUTION, terms
from secid.pages.page import Column, Page, Section, Table, foreign, number, status, text
from secid.pages.statuses import NOT_RANKED, STATUS
from secid.pages.text import fraction, listed, named, percent, plain, plural, points, score_text, short, signed
from secid.records import encodable
from secid.results import SCHEMA_VERSION, Run, SourceReport, Status
from secid.results.catalogue import FINDINGS
from secid.results.document import json_of
from secid.results.inputs import Displayable
from secid.results.sources import TableNumbers
from secid.settings import value_text

# The comparison as a result.

SCORE_CHANGING_SETTINGS = (
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
"""Settings that change the meaning of a score."""
NEUTRAL_SETTINGS = frozenset(
    {
        *("on_bad", "max_bad_fraction"),  # these refuse a source or leave it unchanged
        *("batch_tokens", "cache", "cache_dir", "cache_gb", "threads"),
        *("controls", "control_queries", "high_coverage", "valid", "far", "examples"),
        *("ablate", "objectives", "encode_corpus", "by", "block"),
        *("guide", "guide_reranker", "guide_sample", "guide_query_prefix", "guide_passage_prefix"),
    }
)
"""Settings that do not change the score of a source. Pages list them separately."""
SAME_ENCODER = frozenset({"name", "device"})
"""Fields that may differ between runs with the same encoder. Another encoder has another fingerprint."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between runs. For sources and files see `SourceAcross`.

    what   : "setting", "encoder", "idf", "secid" or "numbers". "numbers" is the number of queries and negatives that
             the common sources are compared on.
    values : one value for each run, as text.
    """

    what: str
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceAcross:
    """One source in all runs. Each tuple has a value for each run, None if the run lacks the source.

    ranks      : None also if a run does not rank it.
    numbers    : its numbers in the table, at the budget of each run.
    same_files : True if all runs that read it had the same files; None if fewer than two runs read it from files.
    findings   : shares of its negatives by finding, for findings that any run found; None if a run did not evaluate it.
    """

    name: str
    ranks: tuple[int | None, ...]
    statuses: tuple[Status | None, ...]
    numbers: tuple[TableNumbers | None, ...]
    same_files: bool | None
    findings: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reversal:
    """Two sources that are in another order in `run` than in the first run.

    established : True if the order is significant in both runs.
    """

    run: str
    first: str
    second: str
    established: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class RunComparison(Displayable):
    """Runs compared with the first run.

    budgets : budget B that each run ranks at.   unlike : differences that change the meaning of a score.
    """

    schema_version: str
    runs: tuple[str, ...]
    budgets: tuple[float, ...]
    changes: tuple[Change, ...]
    sources: tuple[SourceAcross, ...]
    reversals: tuple[Reversal, ...]
    unlike: tuple[str, ...]


def compare(runs: Sequence[tuple[str, Run]]) -> RunComparison:
    """Compare runs. runs: (name to show, run).   Raises UsageError for fewer than two runs."""
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs", remedy="name two run folders")
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
                or (change.what == "setting" and change.name in SCORE_CHANGING_SETTINGS)
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
    """Return the number of queries and negatives on which each run compares the common sources at budgets above 1."""
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


def _by_name(run: Run) -> dict[str, SourceReport]:
    return {source.name: source for source in run.sources}


def _sources(runs: Sequence[Run]) -> tuple[SourceAcross, ...]:
    tables = [_by_name(run) for run in runs]
    across = []
    for name in dict.fromkeys(name for table in tables for name in table):
        items = [table.get(name) for table in tables]
        shown = [None if item is None else item.in_table(run.budget) for item, run in zip(items, runs, strict=True)]
        across.append(
            SourceAcross(
                name=name,
                ranks=tuple(None if item is None else item.scored.rank for item in items),
                statuses=tuple(None if item is None else item.status for item in items),
                numbers=tuple(shown),
                same_files=_same_files(items),
                findings=_shares(items),
            )
        )
    return tuple(across)


def _shares(items: Sequence[SourceReport | None]) -> dict[str, tuple[float | None, ...]]:
    """Return the shares of one source by finding, for the findings that it has in any run."""
    every = [{} if item is None else {finding.name: finding.share for finding in item.findings} for item in items]
    names = dict.fromkeys(name for shares in every for name, share in shares.items() if share > 0)
    return {name: tuple(shares.get(name) for shares in every) for name in names}


def _same_files(items: Sequence[SourceReport | None]) -> bool | None:
    contents = [tuple(file.sha256 for file in item.files) for item in items if item is not None and item.files]
    return len(set(contents)) == 1 if len(contents) > 1 else None


def _reversals(label: str, first: Run, other: Run) -> list[Reversal]:
    ranks = {name: rank for name, source in _by_name(other).items() if (rank := source.scored.rank) is not None}
    common = [source.name for source in first.sources if source.scored.rank is not None and source.name in ranks]
    return [
        Reversal(run=label, first=a, second=b, established=_established(first, a, b) and _established(other, a, b))
        for a, b in combinations(common, 2)
        if ranks[a] > ranks[b]
    ]


def _established(run: Run, a: str, b: str) -> bool:
    return any({pair.first, pair.second} == {a, b} and pair.established for pair in run.comparisons)


def labels(paths: Sequence[Path]) -> list[str]:
    """Return a distinct name for each run: the name of its folder, or the whole path if two folders have that name.

    Bytes of a path that are not UTF-8 become U+FFFD. Raises UsageError if two paths are the same run.
    """
    for first, second in combinations((path.parent if path.name == "report.json" else path for path in paths), 2):
        if first == second or (first.exists() and second.exists() and first.samefile(second)):
            raise UsageError("this run is named twice", where=str(second), remedy="name each run once")
    names = [path.parent.name if path.name == "report.json" else path.name for path in paths]
    return [
        encodable(name if name and names.count(name) == 1 else str(path))
        for name, path in zip(names, paths, strict=True)
    ]


# The comparison as a page.

LABEL_CHARACTERS = 30
"""Maximum length of a run's name in the heading of a column."""
FULL_HASH = re.compile(r"\b[0-9a-f]{32,}\b")
SHOWN_DIGITS = 6
"""Digits of a hash that are shown; report.json has all of them."""
MAX_CHANGED_PAIRS = 3
CHANGE_KINDS = {
    "setting": "settings",
    "harmless": "settings that do not change scores",
    "encoder": "encoder",
    "idf": "IDF",
    "secid": "secid",
    "numbers": "numbers",
}
"""Words for the kinds of differences."""
MIN_SHOWN_CHANGE = 0.01
"""Minimum difference between two shares at which a finding below its limit is shown."""


def page_of_comparison(runs: RunComparison) -> Page:
    return Page(
        title="Runs compared",
        subtitle=f"{plural(len(runs.runs), 'run')}: {listed([named(label) for label in runs.runs], 8)}",
        verdict=(" ".join((_statuses(runs), *_order(runs))), _changed(runs), _comparable(runs), SCORE_CAUTION),
        answer=_scores(runs),
        heat=_findings(runs),
        details=(_differences(runs),),
        footer="Made by secid.",
    )


def _statuses(runs: RunComparison) -> str:
    """Return a sentence on sources whose status differs from the first run, with the defect that changed most."""
    changes = []
    for item in runs.sources:
        before = item.statuses[0]
        for label, place, after in zip(runs.runs, range(len(runs.runs)), item.statuses, strict=True):
            if before is None or after is None or after == before:
                continue
            shares = {name: (values[0] or 0.0, values[place] or 0.0) for name, values in item.findings.items()}
            defects = [(abs(new - old), name) for name, (old, new) in shares.items() if FINDINGS[name].counted]
            notes = [f"in {named(label)}"] if len(runs.runs) > 2 else []
            notes += [f"{plain(name)} {' → '.join(map(percent, shares[name]))}" for _, name in sorted(defects)[-1:]]
            note = f" ({', '.join(notes)})" if notes else ""
            changes.append(f"{named(item.name)} from “{STATUS[before]}” to “{STATUS[after]}”{note}")
    return f"Status changes: {listed(changes)}." if changes else "Every shared source keeps its status."


def _order(runs: RunComparison) -> list[str]:
    """Return sentences on pairs of sources in another order than in the first run, significant pairs first."""
    if sum(None not in item.ranks for item in runs.sources) < 2:
        return ["The runs share fewer than two ranked sources, so there is no order to compare."]
    sure = {(item.first, item.second) for item in runs.reversals if item.established}
    every = dict.fromkeys((item.first, item.second) for item in runs.reversals)
    sentences = []
    for label, established in (("significant in both runs", True), ("not significant in both runs", False)):
        pairs = [" and ".join(map(named, pair)) for pair in every if (pair in sure) == established]
        more = f"; {len(pairs) - MAX_CHANGED_PAIRS} more" if len(pairs) > MAX_CHANGED_PAIRS else ""
        sentences += [f"Changes of order, {label}: {'; '.join(pairs[:MAX_CHANGED_PAIRS])}{more}."] if pairs else []
    return sentences or ["The order is the same."]


def _changed(runs: RunComparison) -> str:
    kinds: dict[str, list[str]] = {}
    for change in runs.changes:
        kind = (
            CHANGE_KINDS["harmless"]
            if change.name in NEUTRAL_SETTINGS and change.what == "setting"
            else CHANGE_KINDS[change.what]
        )
        kinds.setdefault(kind, []).append(plain(change.name))
    kinds |= {
        "files": [named(item.name) for item in runs.sources if item.same_files is False],
        "possibly files": [
            named(item.name) for item in runs.sources if item.same_files is None and None not in item.numbers
        ],
        "sources that not all runs have": [named(item.name) for item in runs.sources if None in item.numbers],
    }
    parts = [f"{kind} ({listed(names)})" for kind, names in kinds.items() if names]
    if not parts:
        return "The runs have the same settings, encoder and files."
    return f"The runs differ in: {', '.join(parts)}."


def _comparable(runs: RunComparison) -> str:
    if not runs.unlike:
        return "Scores have the same meaning in all runs. Compare them with their intervals."
    of_encoder = {change.name for change in runs.changes if change.what == "encoder"}
    names = list(dict.fromkeys("encoder" if name in of_encoder else plain(name) for name in runs.unlike))
    return f"Scores do not have the same meaning in all runs, so compare ranks instead. Differences: {listed(names)}."


def _heads(runs: RunComparison, make: Callable[[str], Column] = number) -> list[Column]:
    return [make(short(label, LABEL_CHARACTERS)) for label in runs.runs]


def _difference(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    first, second = values[0], values[1]
    return "–" if first is None or second is None else write(second - first)


def _scores(runs: RunComparison) -> Table:
    two = len(runs.runs) == 2
    places = [place for item in runs.sources for place in zip(item.numbers, item.ranks, strict=True)]
    apart = "; without a rank if not ranked" if any(numbers and rank is None for numbers, rank in places) else ""
    rows = []
    for item in runs.sources:
        cells = [_score(runs, item, place) for place in range(len(runs.runs))]
        scores = [None if numbers is None else numbers.score.nats for numbers in item.numbers]
        change = [_difference(scores, signed)] if two and not runs.unlike else []
        rows.append((short(item.name), _status(item), *cells, *change, _hardness(item)))
    columns = (
        *_heads(runs, lambda label: Column(label, "wrapped")),
        *([number("difference")] * (two and not runs.unlike)),
    )
    return Table(
        caption=f"Rank, and score in nats ± 95 % CI, by run{apart}",
        columns=(foreign("source"), status("status"), *columns, text("hardness")),
        rows=tuple(rows),
    )


def _score(runs: RunComparison, item: SourceAcross, place: int) -> str:
    """Format the rank and the score of a source in a run. A source that is not ranked has only a score."""
    numbers, rank = item.numbers[place], item.ranks[place]
    if numbers is None:
        return "–"
    score = score_text(numbers.score.nats, numbers.score.interval_95, runs.budgets[place])
    return score if rank is None else f"{rank}. {score}"


def _hardness(item: SourceAcross) -> str:
    values = [None if numbers is None else numbers.hardness_value for numbers in item.numbers]
    return " → ".join(dict.fromkeys(fraction(value, 2) for value in values))


def _status(item: SourceAcross) -> str:
    words = (
        "–" if value is None else NOT_RANKED if rank is None and value == "no_defects" else STATUS[value]
        for value, rank in zip(item.statuses, item.ranks, strict=True)
    )
    return " → ".join(dict.fromkeys(words))


def _findings(runs: RunComparison) -> Table | None:
    two = len(runs.runs) == 2
    rows = tuple(
        (short(item.name), plain(name), *map(percent, shares), *([_difference(shares, points)] if two else ()))
        for item in runs.sources
        if None not in item.numbers
        for name, shares in item.findings.items()
        if _is_shown(name, [share or 0.0 for share in shares])
    )
    columns = (foreign("source"), text("failure bucket"), *_heads(runs), *([number("difference")] if two else ()))
    caption = "Shares of negatives in failure buckets that are above their limit in a run, or at least 1 point apart"
    if two:
        caption += "; difference in points"
    return Table(caption=caption, columns=columns, rows=rows) if rows else None


def _is_shown(name: str, shares: Sequence[float]) -> bool:
    """Return whether a finding with a limit is above it in a run, or changed by a point between runs."""
    limit = FINDINGS[name].limit if name in FINDINGS else None
    return limit is not None and (max(shares) > limit or max(shares) - min(shares) >= MIN_SHOWN_CHANGE)


def _differences(runs: RunComparison) -> Section:
    """List differences in settings, encoder, IDF and numbers. The verdict lists those in sources and files."""
    rows = tuple((_what(change), plain(change.name), *map(_shown, change.values)) for change in runs.changes)
    columns = (text("what"), foreign("name"), *_heads(runs, foreign))
    table = Table(caption="Settings, encoder and numbers that differ between runs", columns=columns, rows=rows)
    return Section(
        anchor="changes",
        title="What differs between the runs",
        tables=(table,),
        terms=terms(*dict.fromkeys("ECI_sem" if at == 1.0 else "ECI_B" for at in runs.budgets), "hardness"),
    )


def _what(change: Change) -> str:
    harmless = change.what == "setting" and change.name in NEUTRAL_SETTINGS
    return "setting (does not change scores)" if harmless else "IDF" if change.what == "idf" else change.what


def _shown(value: str) -> str:
    return plain(FULL_HASH.sub(lambda match: f"{match.group()[:SHOWN_DIGITS]}…", value), 80)


COMPARISON_FORMATS = formats(page_of_comparison, json_of)
