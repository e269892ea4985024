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


@takes_settings(*(name for name in ENCODER if name == "encoder"), *METHOD, *READING, *ENCODER[1:], *STUDY)
def score(
    sources: Sources,
    run: Annotated[
        Path | None, typer.Option("--run", help="Run folder to write [default: secid-runs/<time>-<names>].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run folder.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A malformed record is an error (--on-bad fail).")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of the table.")] = False,
    out: Annotated[
        list[Path] | None, typer.Option("--out", help="Also write the report here; .json or .md decides the format.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
    **settings: Any,
) -> None:
    """Rank sources of hard negatives: prints the table and writes a run folder.

    Example: secid score negatives/*.parquet --encoder e5-base
    """
    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.report.document import to_json
    from secid.report.pages import check_formats, write_page
    from secid.report.terminal import print_run
    from secid.report.words import recipe_line

    check_formats(out or [])
    if strict:
        settings["on_bad"] = "fail"
    folder = run or default_run(sources)
    with ConsoleProgress(quiet) as progress:
        result = api.score(sources, run=folder, force=force, progress=progress, **settings)
        progress.note(recipe_line(result))
    for path in out or []:
        write_page(result, path)
    if json:
        sys.stdout.write(to_json(result))
    else:
        print_run(stdout(), result)
    progress.note(f"run folder: {folder}")


def default_run(sources: list[str]) -> Path:
    """secid-runs/<time>-<names>: the names of at most three sources, cut to what a file name bears."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [Path(source.split("=", 1)[0]).name.split(".")[0] for source in sources[:3]]
    label = "-".join("".join(c if c.isalnum() or c in "_-" else "_" for c in name) for name in names)[:80]
    return Path("secid-runs") / f"{time}-{label}"
