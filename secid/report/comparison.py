"""Several runs side by side: what changed in settings, encoder, IDF table, sources, scores and ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from secid.errors import UsageError
from secid.report.foreign import named, plain, short, without_isolates
from secid.report.numerals import fraction, interval, listed, nats, plural
from secid.report.page import Column, Page, Part, Section, Table, foreign, number, text
from secid.report.words import CAUTION, score_point, terms
from secid.results import SCHEMA_VERSION, Run, SourceResult
from secid.settings import value_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

UNLIKE = (
    "temperature",
    "positives",
    "first_k",
    "pooling",
    "query_prefix",
    "passage_prefix",
    "normalize",
    "truncate_dim",
    "budget",
)
"""Settings under which a score is another number."""
HARMLESS = frozenset({"ablate", "block", "cache", "cache_dir", "cache_gb", "threads", "batch_tokens", "examples"})
"""Settings that change no score."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something that is not the same in all runs. values: one a run, as text."""

    what: str
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SourceAcross:
    """One source in all runs; None where a run lacks it.

    same_files: content hashes agree wherever it was read; None where fewer than two runs read it from files.
    """

    name: str
    ranks: tuple[int | None, ...]
    rank_groups: tuple[int | None, ...]
    scores_nats: tuple[float | None, ...]
    intervals_95: tuple[tuple[float, float] | None, ...]
    same_files: bool | None


@dataclass(frozen=True, kw_only=True)
class Reversal:
    """Two sources that the first run orders otherwise than another. established: in both runs."""

    run: str
    first: str
    second: str
    established: bool


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Runs compared with the first. stability: share of pairs of common sources ordered alike, 0 to 1;
    None where the two share fewer than two sources. unlike: why scores are not the same number in all runs.
    """

    schema_version: str
    runs: tuple[str, ...]
    changes: tuple[Change, ...]
    sources: tuple[SourceAcross, ...]
    stability: tuple[float | None, ...]
    reversals: tuple[Reversal, ...]
    unlike: tuple[str, ...]


def compare(runs: Sequence[tuple[str, Run]]) -> RunComparison:
    """What changed between runs, each with the name it is shown by. Raises UsageError for fewer than two."""
    if len(runs) < 2:
        raise UsageError("one run has nothing to be compared with", remedy="name two run folders")
    changes = _changes([run for _, run in runs])
    reversals = tuple(item for label, run in runs[1:] for item in _reversals(label, runs[0][1], run))
    return RunComparison(
        schema_version=SCHEMA_VERSION,
        runs=tuple(label for label, _ in runs),
        changes=changes,
        sources=_sources([run for _, run in runs]),
        stability=tuple(_stability(runs[0][1], run) for _, run in runs),
        reversals=reversals,
        unlike=tuple(
            dict.fromkeys(
                change.name for change in changes if change.what == "encoder" or change.name in (*UNLIKE, "IDF table")
            )
        ),
    )


def _changes(runs: Sequence[Run]) -> tuple[Change, ...]:
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    found = [
        ("setting", name, [_value(run.settings.get(name)) for run in runs]) for name in names if name not in HARMLESS
    ]
    encoder = ("name", "fingerprint", "pooling", "max_length", "dtype", "device", "dim")
    found += [("encoder", field, [str(getattr(run.encoder, field)) for run in runs]) for field in encoder]
    found += [
        ("idf", "IDF table", [run.idf.sha256 for run in runs]),
        ("secid", "version", [run.secid_version for run in runs]),
    ]
    return tuple(
        Change(what=what, name=name, values=tuple(values)) for what, name, values in found if len(set(values)) > 1
    )


def _value(entry: Any) -> str:
    return "absent" if entry is None else value_text(entry.get("value") if isinstance(entry, Mapping) else entry)


def _by_name(run: Run) -> dict[str, SourceResult]:
    return {source.name: source for source in run.sources}


def _sources(runs: Sequence[Run]) -> tuple[SourceAcross, ...]:
    tables = [_by_name(run) for run in runs]
    found = []
    for name in dict.fromkeys(name for table in tables for name in table):
        items = [table.get(name) for table in tables]
        points = [
            None if item is None else score_point(item, run.budget) for item, run in zip(items, runs, strict=True)
        ]
        found.append(
            SourceAcross(
                name=name,
                ranks=tuple(None if item is None else item.rank for item in items),
                rank_groups=tuple(None if item is None else item.rank_group for item in items),
                scores_nats=tuple(None if point is None else point.nats for point in points),
                intervals_95=tuple(None if point is None else point.interval_95 for point in points),
                same_files=_same_files(items),
            )
        )
    return tuple(found)


def _same_files(items: Sequence[SourceResult | None]) -> bool | None:
    contents = [tuple(file.sha256 for file in item.paths) for item in items if item is not None and item.paths]
    return len(set(contents)) == 1 if len(contents) > 1 else None


def _common_pairs(first: Run, other: Run) -> list[tuple[str, str, bool]]:
    """(higher, lower, same order) of the pairs of common sources, by rank in the first run."""
    ranks = {name: source.rank for name, source in _by_name(other).items()}
    common = [source.name for source in first.sources if source.name in ranks]
    return [(a, b, ranks[a] < ranks[b]) for a, b in combinations(common, 2)]


def _stability(first: Run, other: Run) -> float | None:
    pairs = _common_pairs(first, other)
    return sum(same for _, _, same in pairs) / len(pairs) if pairs else None


def _reversals(label: str, first: Run, other: Run) -> list[Reversal]:
    return [
        Reversal(run=label, first=a, second=b, established=_established(first, a, b) and _established(other, a, b))
        for a, b, same in _common_pairs(first, other)
        if not same
    ]


def _established(run: Run, a: str, b: str) -> bool:
    return any({pair.first, pair.second} == {a, b} and pair.established for pair in run.comparisons)


def page_of_comparison(found: RunComparison) -> Page:
    """The comparison as a page."""
    return Page(
        title="Runs compared",
        subtitle=f"{plural(len(found.runs), 'run')}: {listed([named(label) for label in found.runs], 8)}",
        verdict=(("Changed", _changed(found)), ("Order", _order(found)), ("Scores", _comparable(found))),
        caution=CAUTION,
        sections=(_ranks(found), _differences(found)),
        footer="Made by secid.",
    )


def _changed(found: RunComparison) -> str:
    kinds = {
        what: [change.name for change in found.changes if change.what == what]
        for what in ("setting", "encoder", "idf", "secid")
    }
    parts = [
        f"settings ({listed([plain(name) for name in kinds['setting']])})" if kinds["setting"] else "",
        "the encoder" if kinds["encoder"] else "",
        "the IDF table" if kinds["idf"] else "",
        "the version of secid" if kinds["secid"] else "",
    ]
    files = [named(item.name) for item in found.sources if item.same_files is False]
    absent = [named(item.name) for item in found.sources if None in item.ranks]
    parts += [
        f"the files of {listed(files)}" if files else "",
        f"which sources took part ({listed(absent)})" if absent else "",
    ]
    told = [part for part in parts if part]
    unknown = [named(item.name) for item in found.sources if item.same_files is None and None not in item.ranks]
    open_files = f"whether the files of {listed(unknown)} are the same is not known" if unknown else ""
    if told:
        return f"The runs differ in {listed(told, 7)}{f'; {open_files}' if unknown else ''}."
    if unknown:
        return f"The runs have the same settings and encoder; {open_files}."
    return "The runs have the same settings, encoder and files."


def _order(found: RunComparison) -> str:
    if all(value is None for value in found.stability[1:]):
        return "The runs share fewer than two sources, so there is no order to compare."
    if not found.reversals:
        return "The sources that the runs share stand in the same order in all of them."
    pairs = list(dict.fromkeys(f"{named(item.first)} and {named(item.second)}" for item in found.reversals))
    n_sure = sum(item.established for item in found.reversals)
    sure = (
        f"{n_sure} of these orders established in both runs"
        if n_sure
        else "none of these orders is established in both runs"
    )
    return f"Against {named(found.runs[0])}, {listed(pairs)} change places; {sure}."


def _comparable(found: RunComparison) -> str:
    if found.unlike:
        of_encoder = {change.name for change in found.changes if change.what == "encoder"}
        told = dict.fromkeys("encoder" if name in of_encoder else plain(name) for name in found.unlike)
        verb = "differs" if len(told) == 1 else "differ"
        return f"Scores in nats do not mean the same in all runs ({listed(list(told))} {verb}): compare ranks."
    return "Scores mean the same in all runs; read their differences with the intervals."


def _ranks(found: RunComparison) -> Section:
    columns: list[Column] = [foreign("source"), text("files")]
    for label in found.runs:
        columns += [number(f"rank (group), {short(label, 30)}"), number(f"score, {short(label, 30)}")]
    rows = []
    for item in found.sources:
        cells = [short(item.name), _files_told(item, found.runs)]
        for rank, group, score, ends in zip(
            item.ranks, item.rank_groups, item.scores_nats, item.intervals_95, strict=True
        ):
            cells.append("–" if rank is None else f"{rank} ({group})")
            cells.append("–" if score is None or ends is None else f"{nats(score)} ({interval(ends)})")
        rows.append(tuple(cells))
    stability = [
        f"{named(label)}: fewer than two sources in common with {named(found.runs[0])}, so no order to compare."
        if value is None
        else f"{named(label)}: stability {fraction(value)} against {named(found.runs[0])}."
        for label, value in zip(found.runs[1:], found.stability[1:], strict=True)
    ]
    return Section(
        anchor="ranks",
        title="Ranks and scores",
        link="Ranks",
        bullets=tuple(stability),
        parts=(
            Part(
                table=Table(
                    caption="Sources by run, scores in nats with 95 % intervals",
                    columns=tuple(columns),
                    rows=tuple(rows),
                )
            ),
        ),
        terms=(*terms("ECI_sem", "95 % interval", "rank group"), ("stability", STABILITY)),
    )


def _files_told(item: SourceAcross, runs: Sequence[str]) -> str:
    lacking = [named(label) for label, rank in zip(runs, item.ranks, strict=True) if rank is None]
    told = {True: "same", False: "changed", None: "" if lacking else "not from files"}[item.same_files]
    return without_isolates(", ".join(filter(None, (told, f"not in {listed(lacking)}" if lacking else ""))))


STABILITY = "share of pairs of common sources ordered as in the first run, 0 to 1; nearer to 1 the order is steadier."


def _differences(found: RunComparison) -> Section:
    rows = tuple(
        (WHAT.get(change.what, change.what), plain(change.name.replace("_", " ")), *map(_shown, change.values))
        for change in found.changes
    )
    columns = (text("what"), text("name"), *(foreign(short(label, 40)) for label in found.runs))
    table = Table(
        caption="Everything that is not the same in all runs",
        columns=columns,
        rows=rows or (("nothing",) + ("–",) * (len(columns) - 1),),
    )
    return Section(anchor="changes", title="What changed", link="Changes", parts=(Part(table=table),))


WHAT = {"idf": "IDF"}
DIGEST = re.compile(r"[0-9a-f]{32,}")
SHOWN_DIGITS = 6
"""Of a hash: enough to tell two apart; report.json has the whole."""


def _shown(value: str) -> str:
    return plain(f"{value[:SHOWN_DIGITS]}…" if DIGEST.fullmatch(value) else value, 80)


def comparison_json(found: RunComparison) -> str:
    """The comparison as indented JSON."""
    return _adapter().dump_json(found, indent=2).decode("utf-8") + "\n"


@cache
def _adapter() -> TypeAdapter[RunComparison]:
    from pydantic import TypeAdapter

    return TypeAdapter(RunComparison)


def _html(found: RunComparison) -> str:
    from secid.report.html import render

    return render(page_of_comparison(found))


def _markdown(found: RunComparison) -> str:
    from secid.report.markdown import render

    return render(page_of_comparison(found))


COMPARISON_FORMATS: Mapping[str, Callable[[RunComparison], str]] = {
    ".html": _html,
    ".json": comparison_json,
    ".md": _markdown,
}
