"""The ranked table for a terminal or a pipe: fits 80 columns with any names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from secid.pages import page
from secid.pages.ablation_summary import unstable
from secid.pages.glossary import (
    brief,
    equal_numbers,
    missing_lines,
    score_name,
    score_point,
    skipped_lines,
    told_control,
)
from secid.pages.names import told_apart
from secid.pages.numbers import HALF_UNTOLD, UNTOLD, count, fraction, half_width, is_untold, nats, percent
from secid.pages.sanitize import plain, short, without_isolates
from secid.pages.sections.ablations import WEIGHT, order, queries, told
from secid.pages.sections.early import early_told
from secid.pages.sections.slices import slices_told
from secid.pages.trimmed import Trimmed
from secid.pages.verdict import in_a_line, warning, warnings
from secid.results import Ablation, ControlResult, Run
from secid.settings import in_words

SHOWN_SOURCES = 6
"""Sources that a compact ablation table has columns for at 80 columns."""
SHOWN_FINDINGS = 5
FOLDED_WIDTH, SETTING_WIDTH = 12, 7
"""Least widths of a column that folds: of names, and of settings, whose tables have most columns."""
GAP = 2
"""Characters between two columns of a table."""
COLUMN_CHARACTERS = 24
"""Of a name in the legend of the ablations' columns."""
INTERVAL_WIDTH, WRAPPED_BESIDE = 18, 2
"""Width of an interval in brackets, and the columns of those for which 80 columns have room."""
WATCH_OUT = "Watch out"
COLUMNS = {
    "hardness": "hardness",
    "div.": "diversity fraction",
    "π": "π",
    "ρ": "ρ",
    "c": "c",
    "π<½": "P(π < ½)",
}
"""Terms of the page that columns hold; of π, ρ and c the means."""
DROPPED_FIRST = ("ρ", "c", "π", "div.", "negatives", "ECI_sem", "hardness", "π<½")
"""Columns of the ranking that a narrow terminal goes without, in this order, so that names can be read."""
USUAL_WIDTH = 80
ONLY_AT_ONE = ("ρ", "c")
"""Columns for which a table with two scores has no room at 80 columns."""
CONTROL_LEGEND = (
    "above, level, below: sources whose difference from the control at B = 1 is positive, open, negative; a shuffled "
    "one meets its own source alone."
)


def print_run(console: Console, run: Run, legend: bool = True) -> None:
    """Prints ranking, controls, ablations, what was left out, and the verdict. Foreign names are never markup."""
    console.print(Trimmed(table(run, console.width, legend)))


def table(run: Run, width: int = USUAL_WIDTH, legend: bool = True) -> RenderableType:
    """The run as a rich renderable for a terminal of so many columns."""
    run = told_apart(run)
    ranking, hidden = _ranking(run, width)
    parts: list[RenderableType] = [ranking, *([_line(_legend(run, hidden))] if legend else [])]
    if hidden:
        parts.append(_line(f"Too narrow for {', '.join(hidden)}: see report.md."))
    if run.controls:
        parts += [_line(""), _controls(run), _line(CONTROL_LEGEND)]
    if run.ablations:
        parts += [_line(""), _line(_ablation_legend(run))]
    for item in run.ablations:
        parts += [_line(""), _ablation(run, item), _line(f"{plain(in_words(item.name))}: {told(item)}")]
    if _untold(run):
        parts.append(_line(f"{HALF_UNTOLD}: interval {UNTOLD}."))
    parts.append(_line(""))
    parts += [_line(line, "yellow") for line in [*skipped_lines(run), *missing_lines(run)]]
    if run.early_stop is not None:
        parts.append(_labelled("Early stop", " ".join(early_told(run, run.early_stop))))
    if run.slices:
        parts.append(_labelled("Slices", f"{slices_told(run)}; scores and intervals by slice are in report.md."))
    settings = unstable(run)
    parts += [*_findings(run), *([_labelled("Settings", settings)] if settings else [])]
    parts.append(_labelled("Verdict", in_a_line(run)))
    return Group(*parts)


def _untold(run: Run) -> bool:
    """Whether any score shown has too few queries for an interval."""
    points = [score_point(source, run.budget) for source in run.sources]
    return any(is_untold(point.interval_95, run.budget) for point in points) or any(
        is_untold(control.interval_95, 1.0) for control in run.controls
    )


def _line(text: str, style: str = "") -> Text:
    return Text(without_isolates(text), style=style)


def _labelled(label: str, sentence: str) -> Text:
    return Text.assemble((f"{label}: ", "bold"), without_isolates(sentence))


def _findings(run: Run) -> list[RenderableType]:
    """The findings that matter most, a line each, and how many more there are."""
    found = warnings(run, brief=True)
    if not found:
        return [_labelled(WATCH_OUT, warning(run))]
    n_more = len(found) - SHOWN_FINDINGS
    lines = [f"- {sentence}" for sentence in found[:SHOWN_FINDINGS]]
    lines += [f"- {n_more} more in report.md"] if n_more > 0 else []
    return [Text(f"{WATCH_OUT}:", style="bold"), *map(_line, lines)]


def _new(*columns: tuple[str, Literal["left", "right"]], folds: int = 0, is_tight: bool = False) -> Table:
    """A table of which one column folds and the others never do. is_tight: with one space between columns."""
    padding = (0, 0 if is_tight else 1, 0, 0)
    least = SETTING_WIDTH if is_tight else FOLDED_WIDTH
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding, highlight=False)
    for place, (title, justify) in enumerate(columns):
        if place == folds:
            made.add_column(Text(title), overflow="fold", ratio=1, min_width=least)
        else:
            made.add_column(Text(title), justify=justify, no_wrap=True)
    return made


def _legend(run: Run, hidden: Sequence[str]) -> str:
    """What the columns mean, of those that are shown."""
    at_one = run.budget == 1.0
    numbers = equal_numbers(run) if run.budget > 1.0 else ""
    on = f", on {numbers}; gates and counts are of all negatives" if numbers else ""
    score_at_one = "" if "ECI_sem" in hidden else " ECI_sem: the score at B = 1."
    at = [] if at_one else [f"ECI_B: {score_name(run)}, by which sources rank{on}.{score_at_one}"]
    rank = "rank: sources with the same number in brackets are statistically tied."
    missing = {*hidden, *(() if at_one else ONLY_AT_ONE)}
    told = [f"{name}: {brief(term)}." for name, term in COLUMNS.items() if name not in missing]
    return " ".join([*at, rank, *told])


def _ranking(run: Run, width: int) -> tuple[Table, tuple[str, ...]]:
    """The ranked sources, and the columns for which there is no room beside the names."""
    columns = _columns(run)
    names = [short(source.name) for source in run.sources]
    hidden: list[str] = []
    shown = _joined(columns)
    for title in DROPPED_FIRST:
        if width - sum(max(map(cell_len, (head, *cells))) + GAP for head, cells in shown.items()) >= FOLDED_WIDTH:
            break
        if columns.pop(title, None) is not None:
            hidden.append(title)
            shown = _joined(columns)
    first, *others = shown
    made = _new((first, "right"), ("source", "left"), *((name, "right") for name in others), folds=1)
    for name, rank, *cells in zip(names, shown[first], *(shown[other] for other in others), strict=True):
        made.add_row(rank, Text(name), *cells)
    return made, tuple(hidden)


def _columns(run: Run) -> dict[str, list[str]]:
    """The cells of every column of the ranking but the names, by title."""
    at_one = run.budget == 1.0
    points = [score_point(source, run.budget) for source in run.sources]
    columns = {
        "rank": [f"{source.rank} ({source.rank_group})" for source in run.sources],
        "ECI_sem ±95 %" if at_one else "ECI_B ±95 %": [
            f"{nats(point.nats)} {half_width(point.nats, point.interval_95, run.budget)}" for point in points
        ],
        "ECI_sem": [nats(source.eci_nats) for source in run.sources],
        "hardness": [fraction(source.hardness) for source in run.sources],
        "div.": [percent(source.diversity_fraction) for source in run.sources],
        "π": [f"{source.consistency_mean:.2f}" for source in run.sources],
        "ρ": [f"{source.locality_mean:.2f}" for source in run.sources],
        "c": [f"{source.coverage_mean:.2f}" for source in run.sources],
        "π<½": [f"{percent(source.inversion_fraction):>6}" for source in run.sources],
        "negatives": [count(source.n_triplets) for source in run.sources],
    }
    return {title: cells for title, cells in columns.items() if title not in (("ECI_sem",) if at_one else ONLY_AT_ONE)}


def _joined(columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The columns with those of the gates as one, a space between them, for a narrow table."""
    gates = [title for title in COLUMNS if title in columns and title not in ("hardness", "div.")]
    widths = [max(map(len, columns[title])) if columns[title] else 0 for title in gates]
    joined = " ".join(f"{title:>{width}}" for title, width in zip(gates, widths, strict=True))
    made: dict[str, Sequence[str]] = {}
    for title, cells in columns.items():
        if title not in gates:
            made[title] = cells
        elif title == gates[-1]:
            made[joined] = [" ".join(row) for row in zip(*(columns[gate] for gate in gates), strict=True)]
    return made


def _controls(run: Run) -> Table:
    shown = _new(
        ("controls, not ranked", "left"),
        ("ECI_sem ±95 %", "right"),
        ("div.", "right"),
        ("above", "right"),
        ("level", "right"),
        ("below", "right"),
    )
    for control in run.controls:
        above, level, below = _placed(control)
        score = f"{nats(control.eci_nats)} {half_width(control.eci_nats, control.interval_95)}"
        diversity = percent(control.diversity_fraction)
        shown.add_row(_line(told_control(control)), score, diversity, str(above), str(level), str(below))
    return shown


def _placed(control: ControlResult) -> tuple[int, int, int]:
    """Sources clearly above the control, not told apart from it, clearly below."""
    places = [item.placed for item in control.against]
    return places.count("above"), places.count("level"), places.count("below")


def _ablation_legend(run: Run) -> str:
    shown = run.sources[:SHOWN_SOURCES]
    n_more = len(run.sources) - len(shown)
    return (
        f"Scores by setting, in nats. Columns are sources by rank: "
        f"{', '.join(f'#{source.rank} {short(source.name, COLUMN_CHARACTERS)}' for source in shown)}"
        f"{f' ({n_more} more in report.md)' if n_more > 0 else ''}. *: this run. "
        f"order: {brief('order')}. stability: {brief('stability')}."
    )


def _ablation(run: Run, item: Ablation) -> Table:
    names = [source.name for source in run.sources[:SHOWN_SOURCES]]
    ranks = [f"#{source.rank}" for source in run.sources[:SHOWN_SOURCES]]
    sampled = any(row.n_queries for row in item.rows)
    heads = (*(["queries"] * sampled), *ranks)
    shown = _new(
        (plain(in_words(item.name)), "left"),
        *((head, "right") for head in heads),
        ("order", "left"),
        ("stability", "right"),
        is_tight=True,
    )
    for row in item.rows:
        kept = replace(row, order=tuple(name for name in row.order if name in names))
        shown.add_row(
            Text(plain(in_words(row.setting)) + (" *" if row.setting == item.base else "")),
            *([queries(row)] * sampled),
            *(nats(row.scores.get(name)) for name in names),
            order(run, kept, ""),
            fraction(row.stability),
        )
    if item.name != WEIGHT:  # scores under different weights have no difference
        shown.add_row("range", *([""] * sampled), *(nats(item.range_nats.get(name)) for name in names), "", "")
    return shown


def print_page(console: Console, made: page.Page) -> None:
    """Prints the verdict and the tables of a page that has no table of its own, such as a comparison."""
    parts: list[RenderableType] = []
    for section in made.sections:
        parts.append(Text(section.title, style="bold"))
        parts += map(_line, (*section.paragraphs, *section.bullets))
        for part in section.parts:
            parts += [_line(""), _generic(part.table), _line("")]
    parts += [_labelled(label, sentence) for label, sentence in made.verdict]
    console.print(Trimmed(Group(*parts)))


def _generic(shown: page.Table) -> Table:
    """Cells of two lines keep them as long as few stand side by side."""
    made = _new()
    n_wrapped = sum(column.kind == "wrapped" for column in shown.columns)
    for column in shown.columns:
        is_wrapped = column.kind == "wrapped"
        made.add_column(
            Text(column.title),
            justify="right" if is_wrapped or column.kind == "number" else "left",
            overflow="fold",
            min_width=INTERVAL_WIDTH if is_wrapped and n_wrapped <= WRAPPED_BESIDE else None,
        )
    for row in shown.rows:
        made.add_row(*_cells(row))
    return made


def _cells(row: Sequence[str]) -> list[Text]:
    return [_line(cell) for cell in row]
