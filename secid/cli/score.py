"""`secid score`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from secid.cli.options import ENCODER, METHOD, READING, STUDY, takes_settings

Sources = Annotated[
    list[str],
    typer.Argument(help="Files, globs, folders of shards, name=path, or - for standard input.", show_default=False),
]


RunOption = Annotated[
    Path | None, typer.Option("--run", help="Run folder to write; secid-runs/<time>-<names> when absent.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing run folder.")]
Strict = Annotated[bool, typer.Option("--strict", help="A malformed record is an error (--on-bad fail).")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of the table.")]
Out = Annotated[
    list[Path] | None,
    typer.Option("-o", "--out", help="Also write the report here; the suffix (.json, .md, .html) picks the format."),
]
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        help="Target encoder: alias, hub name, local folder, vectors file or http endpoint. "
        "Repeat it to compare the order under other encoders; the first is the target.",
        rich_help_panel="Encoder",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]


@takes_settings(*METHOD, *READING, *ENCODER, *STUDY)
def score(
    sources: Sources,
    encoder: Encoders = None,
    run: RunOption = None,
    force: Force = False,
    strict: Strict = False,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Rank sources of hard negatives: prints the table and writes a run folder.

    Example: secid score negatives/*.parquet --encoder e5-base
    """
    score_and_print(sources, encoder, run, force, strict, json, out or [], quiet, settings)


def score_and_print(
    sources: list[str],
    encoders: list[str] | None,
    run: Path | None,
    force: bool,
    strict: bool,
    json: bool,
    out: list[Path],
    quiet: bool,
    settings: dict[str, Any],
) -> None:
    """What `score` and `ablate` share: checks the outputs, scores, prints, says where the pages are."""
    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import refuse_inputs
    from secid.pages.pages import check_formats, check_writable, write_page
    from secid.pages.terminal import print_run
    from secid.results.document import to_json

    check_formats(out, "; a run folder is named by --run")
    check_writable(out)
    settings |= {"encoder": encoders[0] if encoders else None, "other_encoders": (encoders or [])[1:]}
    if strict:
        settings["on_bad"] = "fail"
    refuse_inputs(out, sources, settings)
    folder = run or default_run(sources)
    with ConsoleProgress(quiet) as progress:
        result = api.score(sources, run=folder, force=force, progress=progress, **settings)
    for path in out:
        write_page(result, path)
    if json:
        sys.stdout.write(to_json(result))
    else:
        print_run(stdout(), result)
    for path in out:
        progress.note(f"wrote {path}")
    progress.note(f"run folder: {folder}")


def default_run(sources: list[str]) -> Path:
    """secid-runs/<time>-<names>: the names of at most three sources, cut to what a file name bears."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [Path(source.split("=", 1)[0]).name.split(".")[0] for source in sources[:3]]
    label = "-".join("".join(c if c.isalnum() or c in "_-" else "_" for c in name) for name in names)[:80]
    return Path("secid-runs") / f"{time}-{label}"
