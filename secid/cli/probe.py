"""`secid probe`."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from secid.cli.options import Json, Out, Quiet, Sources, flag, takes_settings
from secid.results.commands import OF_PROBE

training = partial(flag, group="Training")
AS_OF_SCORE = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "query_prompt", "passage_prompt", "trust_remote_code",
)  # fmt: skip
"""Flags that work as those of `secid score` do, and that few need here."""
OWN_TEXTS = {
    "encoder": "Encoder to train: short name, hub name or folder with weights.",
    "temperature": "Softmax temperature of the training loss.",
}
"""Help of the flags that mean something else than in `secid score`."""


@takes_settings(*OF_PROBE, hidden=AS_OF_SCORE, texts=OWN_TEXTS)
def probe(
    sources: Sources,
    steps: Annotated[int, training("--steps", of="N", text="Steps per training run.")] = 100,
    seeds: Annotated[
        int, training("--seeds", of="N", text="Training runs per source and fold; one gives no interval.")
    ] = 3,
    folds: Annotated[int, training("--folds", of="N", text="Parts of the queries, each held out once.")] = 3,
    full: Annotated[bool, training("--full/--lora", text="Train all weights, or LoRA adapters of rank 16.")] = True,
    rate: Annotated[
        list[float] | None,
        training(
            "--rate",
            of="R",
            text="Learning rate. Repeat it to try several with the first seed. [default: 5e-5 and a quarter of it; "
            "with --lora four times as much]",
        ),
    ] = None,
    held_out: Annotated[int, training("--held-out", of="N", text="Hold out and rank at most N queries (≥ 100).")] = 500,
    batch: Annotated[int, training("--batch", of="N", text="Queries per step.")] = 32,
    run: Annotated[
        Path | None, flag("--run", of="RUN", text="Add the result to this run folder of `secid score` on these files.")
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
    from secid.cli.console import ConsoleProgress
    from secid.cli.outputs import check_outputs, files_read, print_result, print_verdict
    from secid.files import write_whole
    from secid.pages.probe_page import PROBE_FORMATS, print_probe

    files = out or []
    check_outputs(files, PROBE_FORMATS, chain(files_read(sources, settings), [run] if run else []))
    with ConsoleProgress(quiet) as progress:
        result = api.probe(
            sources,
            steps=steps,
            seeds=seeds,
            folds=folds,
            lora=not full,
            rate=rate,
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
    print_result(result, json, print_probe)
    print_verdict(result, quiet)
