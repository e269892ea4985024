"""`secid score` and `secid ablate`."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from secid.cli.options import (
    ENCODING,
    GUIDE,
    READING,
    SCORING,
    STATISTICS,
    Json,
    Legend,
    Out,
    Quiet,
    Sources,
    flag,
    takes_settings,
)

RunOption = Annotated[
    Path | None, flag("--run", of="DIR", text="Run folder to write [default: secid-runs/<time>-<names>-<id>].")
]
Force = Annotated[bool, flag("--force", text="Replace an existing run folder.")]
Encoders = Annotated[
    list[str] | None,
    flag(
        "--encoder",
        of="NAME",
        text="Short name, hub name, folder, vectors file or http endpoint. Repeat it to compare the order under "
        "other encoders; the first is the target.",
        group="Encoder",
    ),
]
SETTINGS = (*READING, *ENCODING, *GUIDE, *SCORING, *STATISTICS)


def _score(
    sources: Sources,
    encoder: Encoders = None,
    run: RunOption = None,
    force: Force = False,
    out: Out = None,
    json: Json = False,
    legend: Legend = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Find the defects, the hardness and the score of each source.

    Example: secid score negatives/*.parquet --encoder e5-base
    """
    from dataclasses import replace

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import check_outputs, files_read, print_verdict
    from secid.errors import OutputError, RunNotWrittenError
    from secid.files import check_writable, write_whole
    from secid.pages.formats import FORMATS, OF_METRICS, format_of
    from secid.pages.terminal import print_run
    from secid.results.document import to_json

    # What cannot be written is an error after the result.
    if encoder:
        settings |= {"encoder": encoder[0], "other_encoders": encoder[1:]}
    outputs = out or []
    formats = {**FORMATS, **OF_METRICS}
    check_outputs(outputs, formats, files_read(sources, settings), "; a run folder is named by --run")
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
            result = api.score(sources, run=folder, force=force, progress=progress, **settings)
        except RunNotWrittenError as error:
            folder, problem, result = None, error, replace(error.run, folder=None)
    for path in outputs:
        try:
            write_whole(path, formats[format_of(path)](result))
            progress.note(f"wrote {path}")
        except OutputError as error:
            problem = error
    with suppress(BrokenPipeError):  # a reader that stops early misses neither the run folder nor the verdict
        if json:
            sys.stdout.write(to_json(result))
        else:
            print_run(stdout(), result, legend=legend)
    if folder is not None:
        progress.note(f"run folder: {folder}")
    if problem is not None:
        sys.stdout.flush()
        raise problem
    print_verdict(result, quiet)


score = takes_settings(*SETTINGS)(_score)
ablate = takes_settings(*(name for name in SETTINGS if name != "ablate"), ablate=True)(_score)
ablate.__doc__ = """Score, and see whether the order survives other settings.

The same as `secid score --ablate`: other temperatures, tokenizers, IDF corpora, weights and samples.

Example: secid ablate *.parquet --encoder e5-base --encoder e5-large
"""


def default_run(sources: list[str]) -> Path:
    """secid-runs/<time>-<names>-<id>: at most three sources' names, cut to what a file name may hold.

    The id keeps runs apart that start in the same second, here or on another machine.
    """
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [Path(source.split("=", 1)[0]).name.split(".")[0] for source in sources[:3]]
    label = "-".join("".join(c if c.isalnum() or c in "_-" else "_" for c in name) for name in names)[:80]
    return Path("secid-runs") / f"{time}-{label}-{secrets.token_hex(4)}"
