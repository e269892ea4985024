"""`secid probe`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from secid.cli.options import Json, Out, Quiet, Sources, takes_settings
from secid.results.commands import OF_PROBE

TRAINING = "Training"
AS_OF_SCORE = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "query_prompt", "passage_prompt", "trust_remote_code",
)  # fmt: skip
"""Flags that work as those of `secid score` do, and that few need here."""


@takes_settings(*OF_PROBE, hidden=AS_OF_SCORE)
def probe(
    sources: Sources,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", help="Steps of each training.", rich_help_panel=TRAINING)
    ] = 100,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            metavar="N",
            help="Trainings of a source and fold; one gives no interval.",
            rich_help_panel=TRAINING,
        ),
    ] = 3,
    folds: Annotated[
        int,
        typer.Option(
            "--folds", metavar="N", help="Parts of the queries, each held out once.", rich_help_panel=TRAINING
        ),
    ] = 3,
    lora: Annotated[
        bool,
        typer.Option("--lora", help="Train LoRA adapters of rank 16, not all weights.", rich_help_panel=TRAINING),
    ] = False,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            metavar="R",
            help="Learning rate. Repeat it to try several with the first seed. [default: 5e-5 and a quarter of it; "
            "with --lora four times as much]",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    held_out: Annotated[
        int,
        typer.Option(
            "--held-out", metavar="N", help="Most queries that are held out and ranked.", rich_help_panel=TRAINING
        ),
    ] = 500,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="Queries of a step.", rich_help_panel=TRAINING)
    ] = 32,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="Add the result to this run folder of `secid score` on these files."),
    ] = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fine-tune briefly on each source, and compare the results.

    Everything but the negatives is the same for all sources, and queries that share a relevant passage are held out
    together. All weights are trained unless --lora is given. It takes minutes to hours: the expected time is printed
    first, Ctrl-C keeps what is finished, and the same command goes on from there.

    Example: secid probe mined/*.jsonl --encoder minilm --collection scifact --run secid-runs/mine
    """
    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import check_outputs, files_read
    from secid.files import write_whole
    from secid.pages.probe_page import PROBE_FORMATS, print_probe
    from secid.results.document import json_of

    files = out or []
    check_outputs(files, PROBE_FORMATS, chain(files_read(sources, settings), [run] if run else []))
    with ConsoleProgress(quiet) as progress:
        result = api.probe(
            sources,
            steps=steps,
            seeds=seeds,
            folds=folds,
            lora=lora,
            rates=rate or (),
            held_out=held_out,
            batch=batch,
            run=run,
            progress=progress,
            **settings,
        )
        if run is not None:
            progress.note(f"added to {run}: probe.json, report.md, report.html")
    for path in files:
        write_whole(path, PROBE_FORMATS[path.suffix](result))
    if json:
        sys.stdout.write(json_of(result))
    else:
        print_probe(stdout(), result)
