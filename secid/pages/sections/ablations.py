"""How far the order rests on the settings: lines for what has an order, heat tables for what has none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import inf

from secid.pages.charts.lines import lines
from secid.pages.glossary import SETTINGS, terms
from secid.pages.numbers import SPACE, budget, count, fraction, interval, nats
from secid.pages.page import Chart, Part, Section, Table, described, number, text, wrapped
from secid.pages.sanitize import code, named, plain, short
from secid.results import Ablation, AblationRow, Run
from secid.settings import in_words

SHADES = 10
WEIGHT = "weight"
NUMERIC = ("temperature", "sample")
"""Ablations whose settings are numbers; those of all others are names."""
CONCLUSION_LIMIT = 320
UNBROKEN = 8
"""Sources whose order stands in one line."""


def ablation_section(run: Run) -> Section:
    """One part an aspect; a sentence where none was tried."""
    if not run.ablations:
        told = (
            (
                f"Not tried in this run; {code('secid score … --ablate')} varies temperature, tokenizer, IDF corpus, "
                "weights and sample size."
            ),
        )
        return Section(
            anchor="ablations", link="Settings", title="How far the order rests on the settings", paragraphs=told
        )
    return Section(
        anchor="ablations",
        link="Settings",
        title="How far the order rests on the settings",
        bullets=tuple(conclusions(run)),
        parts=tuple(_part(run, item) for item in run.ablations),
        terms=_terms(run),
    )


def _terms(run: Run) -> tuple[tuple[str, str], ...]:
    """What was varied, and the numbers of the tables."""
    names = [item.name for item in run.ablations]
    score = "ECI_sem" if run.budget == 1.0 else "ECI_B"
    sampled = any(row.n_queries for item in run.ablations for row in item.rows)
    return (
        *(SETTINGS[name] for name in names if name in SETTINGS),
        *terms(score, "order", "stability", *(["range"] if any(name != WEIGHT for name in names) else [])),
        *(terms("shade") if any(name not in NUMERIC for name in names) else ()),
        *(terms("queries", "95 % interval") if sampled else ()),
    )


def _part(run: Run, item: Ablation) -> Part:
    """The table of one aspect: with a chart where its settings are numbers, as a heat table where they are names."""
    names = [source.name for source in run.sources]
    blocks = list(dict.fromkeys(block for row in item.rows for block in row.block_stability))
    numeric = len(item.rows) > 1 and all(_place(item, row.setting) is not None for row in item.rows)
    sampled = any(row.n_queries for row in item.rows)
    rows = [
        (
            f"{plain(in_words(row.setting))}{' (this run)' if row.setting == item.base else ''}",
            *([queries(row)] if sampled else []),
            *(_score(row, name) for name in names),
            order(run, row, SPACE if len(names) <= UNBROKEN else " "),
            fraction(row.stability),
            *(fraction(row.block_stability.get(block)) for block in blocks),
        )
        for row in item.rows
    ]
    if item.name != WEIGHT:  # scores under different weights have no difference
        ranges = (nats(item.range_nats.get(name)) for name in names)
        rows.append(("range", *(["–"] * sampled), *ranges, *["–"] * (2 + len(blocks))))
    at = "" if run.budget == 1.0 else f" at B = {budget(run.budget)}"
    interval_of = ", with the 95 % interval of the score of all queries" if sampled else ""
    table = Table(
        caption=f"Score in nats{at} by {plain(in_words(item.name))}{interval_of}",
        columns=(
            text(plain(in_words(item.name))),
            *([number("queries, most")] if sampled else []),
            *((wrapped if sampled else number)(short(name)) for name in names),
            text("order"),
            number("stability"),
            *(number(f"stability in {short(block, 30)}") for block in blocks),
        ),
        rows=tuple(rows),
        shades=() if numeric else _shades(item, names, rows),
    )
    return Part(table=table, chart=_chart(run, item) if numeric else None)


def _shades(item: Ablation, names: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[tuple[int | None, ...], ...]:
    """A shade for each score, within its row; none for the other cells of the table."""
    shades: list[tuple[int | None, ...]] = []
    for row, cells in zip_longest(item.rows, rows):
        values = [row.scores.get(name) for name in names] if row else []
        known = [value for value in values if value is not None]
        found = [_shade(value, min(known, default=0.0), max(known, default=0.0)) for value in values]
        shades.append((None, *found, *[None] * (len(cells) - 1 - len(found))))
    return tuple(shades)


def queries(row: AblationRow) -> str:
    """The queries of a sample, of the source that has most."""
    return count(max(row.n_queries.values(), default=None))


def _score(row: AblationRow, name: str) -> str:
    """With its interval, unless all queries were in the sample."""
    ends = row.intervals_95.get(name)
    return nats(row.scores.get(name)) + (f"\n({interval(ends, ' ')})" if ends and ends[0] < ends[1] else "")


def conclusions(run: Run) -> list[str]:
    """A sentence an ablation: at which settings which sources change places, and within which blocks."""
    return [f"{plain(in_words(item.name))}: {told(item)}" for item in run.ablations]


def told(item: Ablation) -> str:
    """A conclusion as a sentence, cut after a whole clause where it is long; its note; what becomes of the blocks."""
    text = plain(item.conclusion)
    if len(text) > CONCLUSION_LIMIT:
        text = text[:CONCLUSION_LIMIT].rsplit("; ", 1)[0] + "; and more"
    blocks = dict.fromkeys(block for row in item.rows for block in row.block_stability)
    notes = [plain(item.note).rstrip(".")] if item.note else []
    return ". ".join([text.rstrip("."), *notes, *(_of_block(item, block) for block in blocks)]) + "."


def _of_block(item: Ablation, block: str) -> str:
    known = [(value, row.setting) for row in item.rows if (value := row.block_stability.get(block)) is not None]
    if not known:
        return f"Within {named(block, 30)}: no pair to order"
    least, setting = min(known)
    if least == 1.0:
        return f"Within {named(block, 30)}: order unchanged"
    return f"Within {named(block, 30)}: stability down to {fraction(least)} at {plain(in_words(setting))}"


def order(run: Run, row: AblationRow, between: str) -> str:
    """The sources by their score under a setting, highest first, each by its rank in the run."""
    ranks = {source.name: source.rank for source in run.sources}
    return between.join(str(ranks[name]) for name in row.order if name in ranks)


def _shade(value: float | None, low: float, high: float) -> int | None:
    if value is None:
        return None
    span = high / 2 - low / 2  # halves: the difference of the ends itself may be no finite number
    return min(SHADES - 1, int(SHADES * ((value / 2 - low / 2) / span))) if span > 0 else 0


def _place(item: Ablation, setting: str) -> float | None:
    """The number that a setting is, for a logarithmic axis; None for a name, even one that reads as a number."""
    if item.name not in NUMERIC:
        return None
    try:
        value = float(setting.removesuffix("%").strip())
    except ValueError:
        return None
    return value if 0 < value < inf else None


def _chart(run: Run, item: Ablation) -> Chart:
    series = {
        source.name: [
            (place, value)
            for row in item.rows
            if (place := _place(item, row.setting)) is not None and (value := row.scores.get(source.name)) is not None
        ]
        for source in run.sources
    }
    title = f"Score by {plain(in_words(item.name))}"
    description = described(
        (name, ", ".join(f"{nats(value)} at {place:g}" for place, value in points)) for name, points in series.items()
    )
    base = _place(item, item.base)
    unit = " (% of the queries, log scale)" if item.name == "sample" else " (log scale)"
    return Chart(
        title=title,
        description=description,
        draw=lambda: lines(
            f"ablation-{plain(item.name)}",
            series,
            title=title,
            description=description,
            x_title=f"{plain(item.name)}{unit}",
            y_title="score (nats)",
            log_x=True,
            zero=True,
            x_ticks=[(place, f"{place:g}") for row in item.rows if (place := _place(item, row.setting)) is not None],
            mark_x=(base, "this run") if base is not None else None,
        ),
    )
