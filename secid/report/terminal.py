"""The ranked table for a terminal or a pipe: fits 80 columns with any names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from secid.report import page
from secid.report.content.ablations import told
from secid.report.foreign import plain, short, without_isolates
from secid.report.numerals import count, fraction, half_width, nats, percent
from secid.report.verdict import verdict
from secid.report.words import control_name, missing_lines, score_name, score_point, skipped_lines
from secid.results import Ablation, ControlResult, Run

SHOWN_SOURCES = 6
"""Sources that a compact ablation table has columns for at 80 columns."""


def print_run(console: Console, run: Run) -> None:
    """Prints ranking, controls, ablations, what was left out, and the verdict. Foreign names are never markup."""
    console.print(table(run))


def table(run: Run) -> RenderableType:
    """The run as a rich renderable."""
    parts: list[RenderableType] = [_ranking(run)]
    if run.controls:
        parts.append(_controls(run))
    for item in run.ablations:
        parts += [
            _ablation(run, item),
            Text(without_isolates(f"{plain(item.name)}: {told(item.conclusion)}")),
            Text(""),
        ]
    parts += [
        Text(without_isolates(line), style="yellow")
        for line in [*skipped_lines(run), *missing_lines(run), *map(plain, run.warnings[1:])]
    ]
    for label, sentence in verdict(run):
        parts.append(Text.assemble((f"{label}: ", "bold"), without_isolates(sentence)))
    return Group(*parts)


def _new(*columns: tuple[str, Literal["left", "right"]], caption: str = "") -> Table:
    """A table whose first column folds and whose others never do."""
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        highlight=False,
        title=caption or None,
        title_justify="left",
        title_style="bold",
    )
    for place, (title, justify) in enumerate(columns):
        if place == 0:
            made.add_column(title, overflow="fold", ratio=1, min_width=12)
        else:
            made.add_column(title, justify=justify, no_wrap=True)
    return made


def _ranking(run: Run) -> Table:
    score = score_name(run)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    shown.add_column("#", justify="right", no_wrap=True)
    shown.add_column("source", overflow="fold", ratio=1, min_width=12)
    for name in ("group", f"{score} ±95 %", "π", "ρ", "c", "π<½", "negatives"):
        shown.add_column(name, justify="right", no_wrap=True)
    for source in run.sources:
        point = score_point(source, run.budget)
        shown.add_row(
            str(source.rank),
            Text(short(source.name)),
            str(source.rank_group),
            f"{nats(point.nats)} {half_width(point.nats, point.interval_95)}",
            f"{source.consistency_mean:.2f}",
            f"{source.locality_mean:.2f}",
            f"{source.coverage_mean:.2f}",
            percent(source.inversion_fraction),
            count(source.n_triplets),
        )
    return shown


def _controls(run: Run) -> Table:
    shown = _new(
        ("controls, not ranked", "left"),
        ("ECI_sem ±95 %", "right"),
        ("above", "right"),
        ("level", "right"),
        ("below", "right"),
    )
    for control in run.controls:
        above, level, below = _placed(control)
        score = f"{nats(control.eci_nats)} {half_width(control.eci_nats, control.interval_95)}"
        shown.add_row(Text(without_isolates(control_name(control))), score, str(above), str(level), str(below))
    shown.caption = "above, level, below: sources whose difference from the control is positive, open, negative"
    shown.caption_justify = "left"
    return shown


def _placed(control: ControlResult) -> tuple[int, int, int]:
    """Sources clearly above the control, not told apart from it, clearly below."""
    above = sum(item.interval_95[0] > 0 for item in control.against)
    below = sum(item.interval_95[1] < 0 for item in control.against)
    return above, len(control.against) - above - below, below


def _ablation(run: Run, item: Ablation) -> Table:
    names = [source.name for source in run.sources[:SHOWN_SOURCES]]
    shown = _new(
        (plain(item.name), "left"),
        *((f"#{source.rank}", "right") for source in run.sources[: len(names)]),
        ("stability", "right"),
    )
    for row in item.rows:
        mark = " *" if row.setting == item.base else ""
        shown.add_row(
            Text(plain(row.setting) + mark), *(nats(row.scores.get(name)) for name in names), fraction(row.stability)
        )
    return shown


def print_page(console: Console, made: page.Page) -> None:
    """Prints the verdict and the tables of a page that has no table of its own, such as a comparison."""
    for section in made.sections:
        console.print(Text(section.title, style="bold"))
        for line in (*section.paragraphs, *section.bullets):
            console.print(Text(without_isolates(line)))
        for part in section.parts:
            console.print(_generic(part.table))
    for label, sentence in made.verdict:
        console.print(Text.assemble((f"{label}: ", "bold"), without_isolates(sentence)))


def _generic(shown: page.Table) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    for column in shown.columns:
        made.add_column(Text(column.title), justify="right" if column.kind == "number" else "left", overflow="fold")
    for row in shown.rows:
        made.add_row(*_cells(row))
    return made


def _cells(row: Sequence[str]) -> list[Text]:
    return [Text(cell) for cell in row]
