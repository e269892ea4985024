"""Show the order of the sources within parts of the data."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from secid.analyses.slices import Slice, SliceSource
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import count, fraction, named, nats, percent, plain, shown_interval
from secid.results import Run

SHOWN_SLICES = 50
FINDING_SLICES = 12
"""Maximum number of slices in the table of findings, which has a row for each source of a slice."""
ABSENT_VALUE = "(absent or empty)"


def slices_section(run: Run, slices: Sequence[Slice]) -> Section:
    """Show a table with a row for each slice and a column for each source."""
    shown, n_more = _sorted(slices[:SHOWN_SLICES]), len(slices) - SHOWN_SLICES
    names = [source.name for source in run.sources]
    columns = (
        foreign(plain(shown[0].field), is_name=True),
        number("queries, most"),
        *(wrapped(plain(name), is_name=True) for name in names),
        number("stability"),
    )
    table = Table(
        caption="Rank (tie) and score in nats with 95 % CI by slice",
        columns=columns,
        rows=tuple(_row(item, names, run.budget) for item in shown),
    )
    return Section(
        anchor="slices",
        title="Does the order hold within parts of the data?",
        paragraphs=(
            slices_sentence(run, slices),
            *([f"{count(n_more)} more slices are in report.json."] if n_more > 0 else []),
        ),
        tables=(table, *_findings(_sorted(slices[:FINDING_SLICES]))),
        terms=terms("queries", "tie", "95 % CI", "stability", "share"),
    )


def slices_sentence(run: Run, slices: Sequence[Slice]) -> str:
    """Return sentences on the number of slices in which another source leads, and in which its lead is significant."""
    leader = run.sources[0].name
    having = [item for item in slices if any(source.name == leader for source in item.sources)]
    others = [item for item in having if item.sources[0].name != leader]
    n_sure = sum(item.lead_interval_95 is not None and item.lead_interval_95[0] > 0 for item in others)
    n_lacking = len(slices) - len(having)
    n_led = f"{count(len(having) - len(others))} of {count(len(having))}"
    sentences = (
        f"Slices by {named(slices[0].field)} in which {named(leader)} scores highest: {n_led}.",
        f"Another source leads in {count(len(others))}, significantly in {count(n_sure)}.",
        *([f"Slices without this source: {count(n_lacking)}."] if n_lacking else []),
    )
    return " ".join(sentences)


def _findings(slices: Sequence[Slice]) -> tuple[Table, ...]:
    every = [(part, source) for part in slices for source in part.sources]
    used = list(dict.fromkeys(name for _, item in every for name, share in item.finding_shares.items() if share > 0))
    if not used:
        return ()
    rows = tuple(
        (f"{named(_value(part))}, {named(item.name)}", *(percent(item.finding_shares.get(name)) for name in used))
        for part, item in every
    )
    cut = f", the {len(slices)} largest slices" if len(slices) == FINDING_SLICES else ""
    columns = (foreign("slice and source"), *(number(plain(name)) for name in used))
    return (Table(caption=f"Share of negatives by failure bucket{cut}", columns=columns, rows=rows),)


def _sorted(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Sort slices by their values, as numbers if all are numbers. The absent value comes last."""
    places: dict[str, float] = {}
    for item in slices:
        try:
            places[item.value] = float(item.value or inf)
        except ValueError:
            return sorted(slices, key=lambda item: (not item.value, item.value))
    return sorted(slices, key=lambda item: places[item.value])


def _value(item: Slice) -> str:
    """Return the value of a slice. A value that equals ABSENT_VALUE is put in quotation marks."""
    return f"“{item.value}”" if item.value == ABSENT_VALUE else item.value or ABSENT_VALUE


def _row(item: Slice, names: list[str], budget: float) -> tuple[str, ...]:
    sources = {source.name: source for source in item.sources}
    n_queries = max((source.n_queries for source in item.sources), default=0)
    cells = (_cell(sources.get(name), budget) for name in names)
    return (plain(_value(item)), count(n_queries), *cells, fraction(item.stability))


def _cell(source: SliceSource | None, budget: float) -> str:
    if source is None:
        return "–"
    place = "" if source.rank is None else f"{source.rank} ({source.tie or '–'}) "
    return f"{place}{nats(source.score_nats)}\n({shown_interval(source.interval_95, budget)})"
