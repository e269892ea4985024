"""`secid mix`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from secid.export.best_mixture import MixResult
    from secid.export.mixture import Blend


COLUMNS = (
    "alone: the source's own score in nats, higher is better. slope: nats that a unit more of its share would add, "
    "level over all sources that the bounds leave free. loss without: nats lost when it is left out and the others are "
    "mixed anew; a fixed share of it is set free, so below 0 that share costs more than the source gives."
)


def mix(
    run: Annotated[Path, typer.Argument(help="Run folder of `secid score`.", show_default=False)],
    budget: Annotated[
        float | None, typer.Option("--budget", help="Budget B of log det(I + B M) [default: the run's].")
    ] = None,
    max_share: Annotated[float, typer.Option("--max-share", help="Largest share of any source.")] = 1.0,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix", help="NAME=SHARE: a source (or control, by the name it has here) whose share is given; repeatable."
        ),
    ] = None,
    with_controls: Annotated[
        bool, typer.Option("--with-controls", help="Let controls take a share too, to see what the score asks for.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Also write the mixed file here, in the schema of --base.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", help="Source whose rows are written [default: first in rank with a share].")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the draws [default: the run's].", min=0)] = None,
) -> None:
    """Find the mixture of a run's sources that holds the most information; encodes nothing.

    Example: secid mix secid-runs/mine --budget 1000 --max-share 0.7 -o mixed.jsonl
    """
    from dataclasses import asdict
    from json import dumps

    from secid import api
    from secid.cli.console import stdout

    if out is not None and with_controls:
        raise UsageError("controls stand in no file, so a mixture with them cannot be written", where="--with-controls")
    found = api.mix(run, budget=budget, max_share=max_share, fixed=parse_shares(fix or []), with_controls=with_controls)
    written = None
    if out is not None:
        shares = {part.name: part.share for part in found.parts}
        fixed = [part.name for part in found.parts if part.fixed]
        written = api.write_mixture(run, shares, out, base=base, seed=seed, max_share=max_share, fixed=fixed)
    if json:
        document = {**asdict(found), "written": None if written is None else asdict(written)}
        sys.stdout.write(dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        _print(stdout(), found, written)


def parse_shares(texts: list[str]) -> dict[str, float]:
    """NAME=SHARE texts as numbers by name. Raises UsageError for another form or a name given twice."""
    shares: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not name or not 0.0 <= share <= 1.0:
            raise UsageError(f"{text!r} is not NAME=SHARE with a share between 0 and 1", where="--fix")
        if name in shares:
            raise UsageError(f"{name!r} is given twice", where="--fix")
        shares[name] = share
    return shares


def _print(console: Console, found: MixResult, written: Blend | None) -> None:
    from rich.text import Text

    from secid.cli.outputs import repeats_told
    from secid.pages.sanitize import plain

    console.print(_shares_table(found))
    console.print(Text(COLUMNS, style="dim"))
    bounded = found.max_share < 1.0 or any(part.fixed for part in found.parts)
    equal = "shares as equal as the bounds allow" if bounded else "equal shares"
    lines = [
        f"best mixture: {found.nats:.4f} nats at budget {found.budget:g}, duality gap {found.gap_nats:.1e} nats",
        f"{equal}: {found.equal_nats:.4f} nats",
        f"best single source: {plain(found.best_single)}, {found.best_single_nats:.4f} nats",
    ]
    for line in lines:
        console.print(Text(line))
    if found.hybrids:
        console.print(_hybrids_table(found))
    for remark in found.remarks:
        console.print(Text(plain(remark), style="yellow"))
    if written is not None:
        drawn = ", ".join(f"{plain(name)} {count}" for name, count in written.n_negatives.items())
        console.print(Text(f"wrote {plain(written.path)}: {written.n_rows} rows, negatives {drawn}"))
        for line in repeats_told(written.n_repeated):
            console.print(Text(line))
        console.print(Text(f"where each comes from: {plain(written.provenance_path)}"))
        for line in _drawing_told(written, found.max_share):
            console.print(Text(line))


def _drawing_told(written: Blend, max_share: float) -> list[str]:
    """What was short in the drawing, in sentences."""
    from secid.pages.numbers import plural
    from secid.pages.sanitize import plain

    names = [plain(name) for name in written.n_negatives]
    if len(names) == 1:
        told = [f"{names[0]} has the whole share, so nothing is mixed in"]
    else:
        told = [
            f"{written.n_alone:,} of {plural(written.n_records, 'record')} have candidates of fewer than two sources"
        ]
    if written.n_false_negative or written.n_near_copy:
        told.append(
            f"left out of the candidates: {plural(written.n_false_negative, 'labelled positive')} of their query, "
            f"{plural(written.n_near_copy, 'near copy', 'near copies')}"
        )
    if written.n_short:
        asked = plural(written.n_short, "negative that shares asked for was", "negatives that shares asked for were")
        told.append(f"{asked} not there; other sources made up for it where they could")
    if written.n_cut:
        cut = plural(written.n_cut, "negative")
        told.append(f"{cut} left out: with them a source would exceed --max-share {max_share:g}")
    return told


def _shares_table(found: MixResult) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from secid.pages.numbers import percent
    from secid.pages.sanitize import plain

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    table.add_column("source", overflow="fold", ratio=1, min_width=12)
    for name in ("share", "alone", "slope", "loss without"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in found.parts:
        loss = "–" if part.loss_without_nats is None else f"{part.loss_without_nats:.4f}"
        share = percent(part.share) + (" fixed" if part.fixed else "")
        table.add_row(Text(plain(part.name)), share, f"{part.single_nats:.4f}", f"{part.slope_nats:.4f}", loss)
    return table


def _hybrids_table(found: MixResult) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from secid.pages.sanitize import plain

    budgets = sorted({hybrid.budget for hybrid in found.hybrids})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    table.add_column("half of each, nats at budget", overflow="fold", ratio=1, min_width=12)
    for budget in budgets:
        table.add_column(f"{budget:g}", justify="right", no_wrap=True)
    pairs: dict[tuple[str, str], dict[float, float]] = {}
    for hybrid in found.hybrids:
        pairs.setdefault((hybrid.first, hybrid.second), {})[hybrid.budget] = hybrid.half_nats
    for (first, second), values in pairs.items():
        table.add_row(Text(plain(f"{first} + {second}")), *(f"{values[budget]:.4f}" for budget in budgets))
    return table
