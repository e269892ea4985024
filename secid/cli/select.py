"""`secid select`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.cli.outputs import repeats_told

if TYPE_CHECKING:
    from secid.study.select import By


def select(
    run: Annotated[Path, typer.Argument(help="Run folder of `secid score`.", show_default=False)],
    write: Annotated[Path, typer.Option("--write", help="The filtered copy; a new file.", show_default=False)],
    source: Annotated[str | None, typer.Option("--source", help="Which source, where the run has several.")] = None,
    top: Annotated[int | None, typer.Option("--top", help="Keep at most K negatives of each record.")] = None,
    min_weight: Annotated[float | None, typer.Option("--min-weight", help="Keep negatives of at least this w.")] = None,
    max_negatives: Annotated[int | None, typer.Option("--max", help="Keep at most N negatives in all.")] = None,
    by: Annotated[
        str, typer.Option("--by", help="What --top and --max go by: weight, influence or information.")
    ] = "weight",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
) -> None:
    """Write a filtered copy of a source by the numbers of a run, and score it again.

    Example: secid select secid-runs/mine --source bm25 --top 3 --write bm25-top3.jsonl
    """
    from dataclasses import asdict
    from json import dumps
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.report.foreign import plain

    with ConsoleProgress(quiet) as progress:
        found = api.select(
            run,
            write,
            source=source,
            top=top,
            min_weight=min_weight,
            max_negatives=max_negatives,
            by=cast("By", by),
            progress=progress,
        )
    if json:
        sys.stdout.write(dumps(asdict(found), indent=2, ensure_ascii=False) + "\n")
        return
    reasons = ", ".join(f"{reason} {count}" for reason, count in found.left_out.items()) or "nothing"
    scores = f"{found.before_nats:.4f} nats before, {found.after_nats:.4f} after"
    lines = (
        f"wrote {found.path}: {found.n_after} of {found.n_before} negatives, {found.n_rows} rows",
        *repeats_told(found.n_repeated),
        f"left out: {reasons} ({found.left_out_path})",
        f"ECI at budget {found.budget:g} in the pool of the run: {scores}",
        found.remark,
    )
    for line in lines:
        stdout().print(plain(line), markup=False)
