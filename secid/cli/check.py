"""`secid check`, `secid audit`, `secid probe` and `secid explain`: find defects, and get evidence about sources."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from secid.cli.command import (
    ENCODING_SETTINGS,
    GUIDE_SETTINGS,
    INPUT,
    READING_SETTINGS,
    Json,
    Out,
    Quiet,
    Sources,
    Split,
    check_outputs,
    files_read,
    flag,
    print_json,
    print_result,
    print_screen,
    print_verdict,
    takes_settings,
    write_results,
)
from secid.results.catalogue import CAUTIONS
from secid.results.check import ANY_FINDING, CHECKED_FINDINGS
from secid.results.commands import PROBE_SETTINGS

# `secid check`.

CHECK_SETTINGS = ("tokenizer", "examples", "threads", *(name for name in READING_SETTINGS if name != "on_bad"))
"""Without on_bad: here malformed rows are a caution, and `--fail-on malformed_rows=0` makes them an error."""


@takes_settings(*CHECK_SETTINGS)
def check(
    sources: Sources,
    against_eval: Annotated[
        str | None,
        flag(
            "--against-eval",
            metavar="DIR",
            text="Evaluation set whose queries and relevant passages must not occur in the sources: a BEIR folder, "
            "hf://datasets/OWNER/NAME, or mteb:TASK (such as mteb:SciFact).",
            group="Input",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        flag(
            "--fail-on",
            metavar="NAME[=LIMIT]",
            text="Exit 1 if this finding is above LIMIT (`secid explain NAME` shows the default); repeatable. One "
            f"of {ANY_FINDING} (all of them), {', '.join((*CHECKED_FINDINGS, *CAUTIONS))}.",
        ),
    ] = None,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> int:
    """Find defects in the texts in seconds, without an encoder.

    Exit codes: 0 pass; 1 a finding of --fail-on is above its limit; 2 wrong usage, an unreadable file, too many
    malformed rows, or a source without a triplet.

    Example: secid check negatives/*.jsonl --fail-on false_negative
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.check_page import CHECK_FORMATS, check_screen

    files = out or []
    check_outputs(files, CHECK_FORMATS, files_read(sources, settings))
    with ConsoleProgress(quiet) as progress:
        result = api.check(sources, against_eval=against_eval, fail_on=fail_on or (), progress=progress, **settings)
    write_results(files, CHECK_FORMATS, result, quiet)
    print_result(result, json, lambda checked: check_screen(checked, files))
    print_verdict(result, quiet)
    return 1 if result.failed else 0


# `secid audit`.

AUDIT_GUIDE = tuple(name for name in GUIDE_SETTINGS if name != "guide_sample")


@takes_settings(
    "encoder", *READING_SETTINGS, *ENCODING_SETTINGS, *AUDIT_GUIDE, "positives", "first_k", "max_records", "seed"
)
def audit(
    sources: Sources,
    qrels: Annotated[
        str | None,
        flag(
            "--qrels",
            metavar="FILE",
            text="Relevance judgements in BEIR's or TREC's format, instead of those of --collection. --set corpus=FILE "
            "and --set queries=FILE name the texts of their ids.",
            group=INPUT,
        ),
    ] = None,
    split: Split = None,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Count the negatives that relevance judgements call relevant.

    It also measures how well the encoder and a guide would have found them. A passage is relevant if its grade is above
    0. Judgements are matched by id, or by text if the sources have texts.

    Example: secid audit mined/*.jsonl --collection scifact --encoder e5-base
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.evidence import AUDIT_FORMATS, audit_page
    from secid.pages.screen import screen_of

    files = out or []
    check_outputs(files, AUDIT_FORMATS, chain(files_read(sources, settings), [Path(qrels)] if qrels else []))
    with ConsoleProgress(quiet) as progress:
        result = api.audit(sources, qrels=qrels, split=split, progress=progress, **settings)
    write_results(files, AUDIT_FORMATS, result, quiet)
    print_result(result, json, lambda audited: screen_of(audit_page(audited)))
    print_verdict(result, quiet)


# `secid probe`.

training = partial(flag, group="Training")
PROBE_GUIDE_SETTINGS = ("guide", "guide_query_prefix", "guide_passage_prefix")
HIDDEN_PROBE_FLAGS = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "query_prompt", "passage_prompt", "trust_remote_code",
)  # fmt: skip
"""Flags that work as in `secid score`. They are not in the help, since few users need them here."""
HELP_TEXTS = {
    "encoder": "Encoder to train: short name, hub name or folder with weights.",
    "temperature": "Softmax temperature of the training loss.",
    "guide": "Second encoder. --loss gist leaves out the passages that it scores above the positive.",
}
"""Help texts of flags that have another meaning in `secid score`."""


@takes_settings(*PROBE_SETTINGS, *PROBE_GUIDE_SETTINGS, hidden=HIDDEN_PROBE_FLAGS, texts=HELP_TEXTS)
def probe(
    sources: Sources,
    steps: Annotated[int, training("--steps", metavar="N", text="Steps per training run.")] = 100,
    seeds: Annotated[
        int, training("--seeds", metavar="N", text="Training runs per source and fold; with one there is no interval.")
    ] = 3,
    folds: Annotated[
        int, training("--folds", metavar="N", text="Number of parts of the queries; each is held out once.")
    ] = 3,
    full: Annotated[bool, training("--full/--lora", text="Train all weights, or LoRA adapters of rank 16.")] = True,
    rate: Annotated[
        list[float] | None,
        training(
            "--rate",
            metavar="R",
            text="Learning rate; every source is trained at this rate and at four times it. Repeat the flag to name "
            "all rates yourself. [default: 5e-5; with --lora 2e-4]",
        ),
    ] = None,
    held_out: Annotated[
        int, training("--held-out", metavar="N", text="Maximum number of queries to hold out and rank (≥ 100).")
    ] = 500,
    batch: Annotated[int, training("--batch", metavar="N", text="Queries per step.")] = 32,
    loss: Annotated[
        str,
        training(
            "--loss",
            metavar="LOSS",
            text="Training loss: infonce; mw (Mann-Whitney); lsepair, sum_marginal or joint (several positives); gist "
            "(with --guide).",
        ),
    ] = "infonce",
    passages: Annotated[
        str,
        training(
            "--passages",
            metavar="KIND",
            text="Negatives of a query: own (only its own), or batch (also passages of other rows).",
        ),
    ] = "batch",
    estimate: Annotated[bool, training("--estimate", text="Print the expected time; train nothing.")] = False,
    run: Annotated[
        Path | None,
        flag(
            "--run", metavar="RUN", text="Add the result to this run folder of `secid score`, made from the same files."
        ),
    ] = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fine-tune briefly on each source, and compare the results.

    Only the negatives differ between sources. Queries that share a relevant passage are held out together. Every source
    is trained at two or more learning rates, since the order may differ between them. This takes minutes to hours. The
    expected time is printed first. Ctrl-C keeps the finished training runs; the same command then runs the others.

    Example: secid probe mined/*.jsonl --encoder minilm --collection scifact --run secid-runs/mine
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.evidence import PROBE_FORMATS, probe_screen

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
            loss=loss,
            passages=passages,
            estimate=estimate,
            run=run,
            progress=progress,
            **settings,
        )
        if run is not None and not estimate:
            progress.note(f"added to {run}: probe.json, report.md, report.html")
    write_results(files, PROBE_FORMATS, result, quiet)
    print_result(result, json, probe_screen)
    print_verdict(result, quiet)


# `secid explain`.


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A finding, column, status, check of the gate or mining preset. Without NAME, all are listed.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Explain a finding, column, status, check or mining preset.

    Example: secid explain false_negative
    """
    from secid.pages.explain import explained, explained_screen

    if json:
        print_json(explained(name))
    else:
        print_screen(explained_screen(name))
