"""Whether the order holds within parts of the data."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from secid.pages.glossary import in_plain_words, terms
from secid.pages.numbers import SPACE, count, fraction, interval, nats, percent, plural
from secid.pages.page import Part, Section, Table, foreign, number, wrapped
from secid.pages.sanitize import named, short
from secid.results import Run, Slice, SliceSource

SHOWN_SLICES = 50
FINDING_SLICES = 12
"""Slices whose findings are shown: a row for each of their sources; report.json has all."""
ABSENT = "(absent or empty)"


def slices_section(run: Run) -> Section | None:
    """A row a slice, a column a source; None for a run that was not sliced."""
    if not run.slices:
        return None
    shown, n_cut = _sorted(run.slices[:SHOWN_SLICES]), max(0, len(run.slices) - SHOWN_SLICES)
    names = [source.name for source in run.sources]
    order = list(dict.fromkeys(item.name for source in run.sources for item in source.findings))
    columns = (
        foreign(short(shown[0].field)),
        number("queries, most"),
        *(wrapped(short(name)) for name in names),
        number("stability"),
    )
    table = Table(
        caption="Rank (rank group) and score in nats with 95 % interval by slice",
        columns=columns,
        rows=tuple(_row(item, names, run.budget) for item in shown),
    )
    return Section(
        anchor="slices",
        link="Slices",
        title="Does the order hold within parts of the data?",
        paragraphs=(
            f"{slices_told(run)[:1].upper()}{slices_told(run)[1:]}.",
            *([f"{count(n_cut)} more slices are in report.json."] if n_cut else []),
        ),
        parts=(Part(table=table), *_findings(_sorted(run.slices[:FINDING_SLICES]), order)),
        terms=terms("queries", "rank", "rank group", "95 % interval", "stability", "share"),
    )


def _findings(slices: Sequence[Slice], order: Sequence[str]) -> tuple[Part, ...]:
    """Shares of the findings in each slice and source, in this order; those that no source has are left out."""
    every = [(part, source) for part in slices for source in part.sources]
    filled = {name for _, source in every for name, share in source.finding_shares.items() if share > 0}
    used = [name for name in (*order, *sorted(filled - {*order})) if name in filled]
    if not used:
        return ()
    rows = tuple(
        (
            f"{named(_value(part), 30)}, {named(source.name, 30)}",
            *(percent(source.finding_shares.get(name)) for name in used),
        )
        for part, source in every
    )
    cut = f", the {len(slices)} largest slices" if len(slices) == FINDING_SLICES else ""
    columns = (foreign("slice and source"), *(number(in_plain_words(name)) for name in used))
    return (Part(table=Table(caption=f"Share of negatives by finding{cut}", columns=columns, rows=rows, folded=True)),)


def slices_told(run: Run) -> str:
    """In how many slices another source leads, and in how many of them beyond noise; without a full stop."""
    leader = run.sources[0].name
    having = [item for item in run.slices if any(source.name == leader for source in item.sources)]
    others = [item for item in having if item.sources[0].name != leader]
    n_sure = sum(item.lead_interval_95 is not None and item.lead_interval_95[0] > 0 for item in others)
    n_lacking = len(run.slices) - len(having)
    lacking = f"; {count(n_lacking)} more hold nothing of it" if n_lacking else ""
    beyond = "all" if n_sure == len(others) else count(n_sure) if n_sure else "none"
    sure = f", {beyond} of them beyond noise (a lead whose 95{SPACE}% interval is above 0)" if others else ""
    field = named(run.slices[0].field)
    if not having:
        return f"no slice by {field} holds {named(leader)}"
    if len(having) == 1:
        return f"the only slice by {field} that holds {named(leader)} {_led(others)}{lacking}"
    return (
        f"{count(len(others)) if others else 'none'} of {plural(len(having), 'slice')} by "
        f"{field} that hold {named(leader)} have another leader{sure}{lacking}"
    )


def _led(others: Sequence[Slice]) -> str:
    """What a single slice says of the leader."""
    if not others:
        return "has the same leader"
    ends = others[0].lead_interval_95
    sure = "beyond" if ends is not None and ends[0] > 0 else "not beyond"
    return f"has another leader, {sure} noise (a lead whose 95{SPACE}% interval is above 0)"


def _sorted(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Slices by their values, as numbers where all are, the absent value last."""
    places: dict[str, float] = {}
    for item in slices:
        try:
            places[item.value] = float(item.value or inf)
        except ValueError:
            return sorted(slices, key=lambda item: (not item.value, item.value))
    return sorted(slices, key=lambda item: places[item.value])


def _value(item: Slice) -> str:
    """The value, in quotation marks where it reads like our word for none."""
    return f"“{item.value}”" if item.value == ABSENT else item.value or ABSENT


def _row(item: Slice, names: list[str], budget: float) -> tuple[str, ...]:
    found = {source.name: source for source in item.sources}
    n_queries = max((source.n_queries for source in item.sources), default=0)
    cells = (_cell(found.get(name), budget) for name in names)
    return (short(_value(item)), count(n_queries), *cells, fraction(item.stability))


def _cell(source: SliceSource | None, budget: float) -> str:
    if source is None:
        return "–"
    return (
        f"{source.rank} ({source.rank_group}) {nats(source.score_nats)}\n({interval(source.interval_95, ' ', budget)})"
    )
