"""`secid select`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.cli.outputs import repeats_told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from secid.export.select import By, Selected

ALWAYS = (
    "Labelled positives, near copies of the positive (--near-copy of `secid score`) and repeats within a record are "
    "left out whatever the rule."
)


def select(
    run: Annotated[Path, typer.Argument(help="Run folder of `secid score`.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="The filtered copy; a new file.", show_default=False)],
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

    Example: secid select secid-runs/mine --source bm25 --top 3 -o bm25-top3.jsonl
    """
    from dataclasses import asdict
    from json import dumps
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.pages.sanitize import plain

    with ConsoleProgress(quiet) as progress:
        found = api.select(
            run,
            out,
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
    for line in _lines(found):
        stdout().print(plain(line), markup=False)


def _lines(found: Selected) -> tuple[str, ...]:
    from secid.export.select import FLAGS, REPEAT
    from secid.pages.numbers import plural

    n_gone = sum(found.left_out.values())
    always = {*FLAGS, REPEAT} & found.left_out.keys()
    scores = (
        f"{found.before_nats:.4f} nats before ({found.n_before:,}), {found.after_nats:.4f} after ({found.n_after:,})"
    )
    return (
        f"wrote {found.path}: {found.n_after:,} of {found.n_listed:,} listed negatives, {plural(found.n_rows, 'row')}",
        *repeats_told(found.n_repeated),
        f"left out: {n_gone:,}{_counted(found.left_out)}; which and why: {found.left_out_path}",
        *((ALWAYS,) if always else ()),
        *((f"rows not scored, not in the copy{_counted(found.rows_skipped)}",) if found.rows_skipped else ()),
        f"ECI at budget {found.budget:g} in the pool of the run: {scores}",
        found.remark,
    )


def _counted(reasons: Mapping[str, int]) -> str:
    """ " (top 3, repeat 1)"; nothing where there is none."""
    told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({told})" if told else ""
