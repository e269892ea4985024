"""`secid report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from secid.errors import UsageError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or their report.json files.", metavar="RUN...", show_default=False),
    ],
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--to",
            help="File to write; .html, .md or .json decides the format. May be repeated; further .html and .md files "
            "may follow without it; a .json file needs its own --to, since a run may be named by its report.json.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Render a run's pages again, without encoder or data; several runs are compared.

    Example: secid report secid-runs/monday secid-runs/friday --to changes.html changes.md
    """
    from secid.cli.console import stdout
    from secid.pages.pages import check_formats, check_not_read, check_writable, labels, write_comparison, write_page
    from secid.pages.sanitize import plain
    from secid.results.document import read_run

    runs, files = runs_and_files(runs, to or [])
    check_formats(files)
    check_writable(files)
    check_not_read(files, (path / "report.json" if path.is_dir() else path for path in runs))
    found = list(zip(labels(runs), map(read_run, runs), strict=True))
    for path in files:
        if len(found) == 1:
            write_page(found[0][1], path)
        else:
            write_comparison(found, path)
        stdout().print(f"wrote {plain(str(path))}: {path.stat().st_size:,} bytes", markup=False, soft_wrap=True)
    if files:
        return
    if len(found) == 1:
        from secid.pages.terminal import print_run

        print_run(stdout(), found[0][1])
    else:
        from secid.pages.comparison import compare
        from secid.pages.comparison_page import page_of_comparison
        from secid.pages.terminal import print_page

        print_page(stdout(), page_of_comparison(compare(found)))


def runs_and_files(named: Sequence[Path], to: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """What is read and what is written. A page is never a run, so a page beside --to is one more file to write.

    Raises UsageError for a page without --to, a report.json that is not there, or no run at all.
    """
    pages = [path for path in named if path.suffix in (".html", ".md") and not path.is_dir()]
    runs = [path for path in named if path not in pages]
    odd = [*([] if to else pages), *(path for path in runs if path.suffix == ".json" and not path.exists())]
    if odd:
        raise UsageError("no run is there to be read", where=str(odd[0]), remedy=f"to write it: --to {odd[0]}")
    if not runs:
        raise UsageError("no run named", remedy=f"secid report RUN --to {' '.join(map(str, [*to, *pages]))}")
    return runs, [*to, *pages]
