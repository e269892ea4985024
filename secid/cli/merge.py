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
            text="Queries per source that controls, ablations and the like are measured on.",
            group="Statistics",
        ),
    ] = 20_000,
    out: Out = None,
    json: Json = False,
    legend: Legend = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Merge the shards of a run into one report.

    For data that does not fit on one machine; to rank the sources, a sample is enough (secid score --max-records).
    Each of N jobs, on any machine, scores one part of the queries and saves a state. A job whose state exists is
    skipped:

        secid score SOURCE... --encoder E --shard 0/8 --state-dir URL

    Run the N jobs with --prepare first: each then counts only its part of the texts, where otherwise every shard
    counts all of them. With --run DIR a shard also writes a run folder, to select rows from. With --on ray --shards 8
    instead of --shard, a Ray cluster does all of it.

    Scores, most findings, intervals and comparisons cover all rows; the rest of the report, a sample of the queries.

    Example: secid merge s3://bucket/run
    """
    from secid.shards.run import merge as put_together

    show(
        lambda progress, folder: put_together(
            state_dir, run=folder, force=force, sample=sample, progress=progress, **settings
        ),
        [state_dir.rstrip("/")], run, out or [], [], json=json, legend=legend, quiet=quiet,
    )  # fmt: skip


merge = takes_settings(*("encoder", *(name for name in OF_MACHINE if name != "shard")))(_merge)
