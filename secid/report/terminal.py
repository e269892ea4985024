"""The ranked table for a terminal or a pipe, 80 columns wide at least."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from secid.report.foreign import plain
from secid.report.words import skipped_lines, verdict
from secid.results import Run

COLUMNS = ("ECI_sem", "tr M", "π", "ρ", "c", "c(pos)", "P(π<½)", "triplets")


def print_run(console: Console, run: Run) -> None:
    """Prints the table, what was left out, and the verdict. Foreign names are never markup."""
    console.print(table(run))


def table(run: Run) -> RenderableType:
    """The ranking as a rich renderable."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    shown.add_column("#", justify="right", no_wrap=True)
    shown.add_column("source", overflow="fold", ratio=1, min_width=12)
    for name in COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    for source in run.sources:
        shown.add_row(
            str(source.rank),
            Text(plain(source.name)),
            f"{source.eci_nats:.4f}",
            f"{source.trace:.4f}",
            f"{source.consistency_mean:.3f}",
            f"{source.locality_mean:.3f}",
            f"{source.coverage_mean:.3f}",
            f"{source.positive_coverage_mean:.3f}",
            f"{source.inversion_fraction:.1%}",
            str(source.n_triplets),
        )
    lines = [Text(plain(line), style="yellow") for line in skipped_lines(run)]
    return Group(shown, *lines, Text(plain(verdict(run)), style="bold"))
