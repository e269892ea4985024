"""`secid score`, `secid ablate` and `secid merge`: score sources with an encoder, at once or in shards."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.command import (
    ENCODING_SETTINGS,
    GUIDE_SETTINGS,
    READING_SETTINGS,
    SCORING_SETTINGS,
    STATISTICS_SETTINGS,
    Json,
    Legend,
    Out,
    Quiet,
    Sources,
    check_outputs,
    files_read,
    flag,
    print_json_text,
    print_screen,
    print_verdict,
    takes_settings,
)
from secid.settings import SHARD_LOCAL_SETTINGS

if TYPE_CHECKING:
    from secid.progress import Progress
    from secid.results import Run

# `secid score` and `secid ablate`.

RunOption = Annotated[
    Path | None, flag("--run", metavar="DIR", text="Run folder to write [default: secid-runs/<time>-<names>-<id>].")
]
Force = Annotated[bool, flag("--force", text="Replace an existing run folder.")]
StateDirOption = Annotated[
    str | None, flag("--state-dir", metavar="URL", text="Folder or bucket for the states of shards.", group="Output")
]
Prepare = Annotated[
    bool, flag("--prepare", text="With --shard: only count this shard's part of the texts.", hidden=True)
]
On = Annotated[
    str | None,
    flag("--on", metavar="ray|ray://HOST:PORT", text="Score and merge all shards on a Ray cluster.", hidden=True),
]
NShards = Annotated[int | None, flag("--shards", metavar="N", text="With --on: number of shards.", hidden=True)]
Encoders = Annotated[
    list[str] | None,
    flag(
        "--encoder",
        metavar="NAME",
        text="Short name, hub name, folder, vectors file or http endpoint; repeatable, the first is the target.",
        group="Encoder",
    ),
]
SETTINGS = (*READING_SETTINGS, *ENCODING_SETTINGS, *GUIDE_SETTINGS, *SCORING_SETTINGS, *STATISTICS_SETTINGS)


def _score(
    sources: Sources,
    encoder: Encoders = None,
    run: RunOption = None,
    force: Force = False,
    state_dir: StateDirOption = None,
    prepare: Prepare = False,
    on: On = None,
    shards: NShards = None,
    out: Out = None,
    json: Json = False,
    legend: Legend = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Score sources by three gates, and list their failure buckets.

    Example: secid score negatives/*.parquet --encoder e5-base
    """
    if on is None and shards is None and (state_dir is not None or prepare):
        _score_shard(sources, encoder, run, force, state_dir, prepare, quiet, {"-o": out, "--json": json}, settings)
        return
    from secid import api

    score: Callable[..., Run] = api.score
    if on is not None or shards is not None:
        _refuse_on_ray(encoder, state_dir, prepare, on, shards)
        from secid.tools.shards.run import score_on_ray

        score, settings = score_on_ray, {**settings, "on": on, "shards": shards, "state_dir": state_dir}
        settings |= {"encoder": encoder[0]} if encoder else {}
    elif encoder:
        settings |= {"encoder": encoder[0], "other_encoders": encoder[1:]}
    show(
        lambda progress, folder: score(sources, run=folder, force=force, progress=progress, **settings),
        sources, run, out or [], files_read(sources, settings), json=json, legend=legend, quiet=quiet,
    )  # fmt: skip


def _refuse_on_ray(
    encoders: list[str] | None, state_dir: str | None, prepare: bool, on: str | None, shards: int | None
) -> None:
    """Raise UsageError for flags that --on does not support, or if a flag that it needs is missing."""
    from secid.errors import UsageError

    if on is None or shards is None or state_dir is None:
        remedy = "use --on ray --shards 8 --state-dir URL"
        raise UsageError("must be used together", where="--on, --shards and --state-dir", remedy=remedy)
    if len(encoders or ()) > 1:
        raise UsageError("shards are scored with one encoder", where="--encoder", remedy="name one encoder")
    if prepare:
        raise UsageError("--on counts the texts itself", where="--prepare", remedy="remove --prepare")


def show(
    compute: Callable[[Progress, Path | None], Run],
    sources: list[str],
    run: Path | None,
    outputs: list[Path],
    inputs: Iterable[Path],
    *,
    json: bool,
    legend: bool,
    quiet: bool,
) -> None:
    """Score, print the run, and write its pages.

    compute : function that scores. It takes the progress display and the run folder to write.
    sources : names for the run folder if `run` is None.   inputs : files that are read and must not be overwritten.
    """
    from dataclasses import replace

    from secid.analyses.registry import to_json
    from secid.cli.console import ConsoleProgress
    from secid.errors import OutputError, RunNotWrittenError
    from secid.files import check_writable, write_whole
    from secid.pages.formats import METRICS_FORMAT, RUN_FORMATS, format_of
    from secid.pages.sections import run_screen

    # If a file cannot be written, the result is printed before the error.
    formats = {**RUN_FORMATS, **METRICS_FORMAT}
    check_outputs(outputs, formats, inputs, "; --run names a run folder")
    problem: OutputError | None = None
    folder = run
    if run is None:
        try:
            folder = default_run(sources)
            check_writable(folder)
        except OutputError as error:
            folder, problem = None, error
    with ConsoleProgress(quiet) as progress:
        try:
            result = compute(progress, folder)
        except RunNotWrittenError as error:
            folder, problem, result = None, error, replace(error.run, folder=None)
    for path in outputs:
        try:
            write_whole(path, formats[format_of(path)](result))
            progress.note(f"wrote {path}")
        except OutputError as error:
            problem = error
    with suppress(BrokenPipeError):  # if the reader stops early, run folder and verdict are still printed
        if json:
            print_json_text(to_json(result))
        else:
            print_screen(run_screen(result, legend=legend))
    if folder is not None:
        progress.note(f"run folder: {folder}")
    if problem is not None:
        sys.stdout.flush()
        raise problem
    print_verdict(result, quiet)


def _score_shard(
    sources: list[str],
    encoders: list[str] | None,
    run: Path | None,
    force: bool,
    state_dir: str | None,
    prepare: bool,
    quiet: bool,
    outputs: Mapping[str, Any],
    settings: dict[str, Any],
) -> None:
    """Score one part of the queries and write its state. outputs: flags for a report, which a shard does not have."""
    from secid.cli.console import ConsoleProgress
    from secid.errors import UsageError
    from secid.tools.shards.run import score_shard

    if state_dir is None:
        raise UsageError(
            "needs a folder of states", where="--prepare", remedy="use --shard 0/8 --state-dir DIR --prepare"
        )
    if output_flags := [name for name, value in outputs.items() if value]:
        raise UsageError(
            "a shard has no report", where=output_flags[0], remedy=f"after all shards, run secid merge {state_dir}"
        )
    if len(encoders or ()) > 1:
        raise UsageError("shards are scored with one encoder", where="--encoder", remedy="name one encoder")
    if prepare and run is not None:
        raise UsageError("--prepare writes no run folder", where="--run", remedy="remove --run, or --prepare")
    with ConsoleProgress(quiet) as progress:
        done = score_shard(
            sources,
            encoders[0] if encoders else None,
            state_dir=state_dir,
            prepare=prepare,
            run=run,
            force=force,
            progress=progress,
            **settings,
        )
        what = f"{done.name} already exists" if done.skipped else f"wrote {done.name}"
        progress.note(f"{what}: {done.n_done} of {done.n_shards} in {state_dir}")
        if done.n_done == done.n_shards and not prepare:
            progress.note(f"All shards are done. Next: secid merge {state_dir}")


score = takes_settings(*SETTINGS)(_score)
ABLATE_SETTINGS = (name for name in SETTINGS if name not in ("ablate", "shard"))
ablate = takes_settings(*ABLATE_SETTINGS, ablate=True, state_dir=None, prepare=False, on=None, shards=None)(_score)
ablate.__doc__ = """Score, and check if the order is the same with other settings.

It is the same as `secid score --ablate`: other temperatures, tokenizers, IDF corpora, weights and samples.

Example: secid ablate *.parquet --encoder e5-base --encoder e5-large
"""


def default_run(sources: list[str]) -> Path:
    """Return secid-runs/<time>-<names>-<id>. <names> has up to three sources, cut to 80 characters.

    The id distinguishes runs that start in the same second, on this machine or another.
    """
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [Path(source.split("=", 1)[0]).name.split(".")[0] for source in sources[:3]]
    label = "-".join("".join(c if c.isalnum() or c in "_-" else "_" for c in name) for name in names)[:80]
    return Path("secid-runs") / f"{time}-{label}-{secrets.token_hex(4)}"


# `secid merge`.


def _merge(
    state_dir: Annotated[
        str, typer.Argument(metavar="URL", help="Folder or bucket with the states of all shards.", show_default=False)
    ],
    run: RunOption = None,
    force: Force = False,
    sample: Annotated[
        int,
        flag(
            "--sample",
            metavar="N",
            text="Queries per source to sample for controls, ablations and other analyses.",
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

    Use shards for data that do not fit on one machine. To rank sources, a sample is enough (secid score --max-records).

    Each of N jobs, on any machine, scores one part of the queries and saves a state. A job whose state exists is
    skipped:

        secid score SOURCE... --encoder E --shard 0/8 --state-dir URL

    Run the N jobs with --prepare first. Then each counts only its part of the texts; otherwise every shard counts all
    texts. With --run DIR a shard also writes a run folder, for secid select. With --on ray --shards 8 instead of
    --shard, a Ray cluster does all of this.

    Scores, most findings, intervals and comparisons cover all rows. The rest of the report covers a sample of the
    queries.

    Example: secid merge s3://bucket/run
    """
    from secid.tools.shards.run import merge as merge_shards

    show(
        lambda progress, folder: merge_shards(
            state_dir, run=folder, force=force, sample=sample, progress=progress, **settings
        ),
        [state_dir.rstrip("/")], run, out or [], [], json=json, legend=legend, quiet=quiet,
    )  # fmt: skip


merge = takes_settings(*("encoder", *(name for name in SHARD_LOCAL_SETTINGS if name != "shard")))(_merge)
