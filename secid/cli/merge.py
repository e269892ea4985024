"""`secid merge`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from secid.cli.options import Json, Legend, Out, Quiet, flag, takes_settings
from secid.cli.score import Force, RunOption, show
from secid.settings import OF_MACHINE


def _merge(
    state_dir: Annotated[str, typer.Argument(metavar="URL", help="Folder of the shards' states.", show_default=False)],
    run: RunOption = None,
    force: Force = False,
    sample: Annotated[
        int,
        flag(
            "--sample",
            of="N",
            text="Queries of each source that controls, ablations and the like are measured on.",
            group="Statistics",
        ),
    ] = 20_000,
    out: Out = None,
    json: Json = False,
    legend: Legend = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Put the shards of a run together into one report.

    For rows that do not fit one machine; a ranking alone needs a sample (secid score --max-records). Each of N jobs, on
    whatever machine, scores one part of the queries and leaves a state; a state that is there is not made again:

        secid score SOURCE... --encoder E --shard 0/8 --state-dir URL

    With --prepare the same command only counts its part of the texts. Counted by all N jobs first, it spares each of
    them counting all texts. With --run DIR a shard also writes a run folder, to select rows from. With --on ray
    --shards 8 in place of --shard a Ray cluster does all of it.

    Each source's numbers, their intervals and comparisons are of all rows; the other parts of the report are of a
    sample of the queries.

    Example: secid merge s3://bucket/run
    """
    from secid.shards.run import merge as put_together

    show(
        lambda progress, folder: put_together(
            state_dir, run=folder, force=force, sample=sample, progress=progress, **settings
        ),
        [state_dir.rstrip("/")], run, out or [], [], json=json, legend=legend, quiet=quiet,
    )  # fmt: skip


merge = takes_settings(*(name for name in OF_MACHINE if name != "shard"))(_merge)
