"""`secid report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or their report.json files.", metavar="RUN...", show_default=False),
    ],
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--to", help="File to write; .html, .md or .json decides the format. May be repeated.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Render a run's pages again, without encoder or data; several runs are compared.

    Example: secid report secid-runs/monday secid-runs/friday --to changes.html
    """
    from secid.cli.console import stdout
    from secid.report.document import read_run
    from secid.report.pages import check_formats, labels, write_comparison, write_page

    check_formats(to or [])
    found = list(zip(labels(runs), map(read_run, runs), strict=True))
    for path in to or []:
        if len(found) == 1:
            write_page(found[0][1], path)
        else:
            write_comparison(found, path)
    if to:
        return
    if len(found) == 1:
        from secid.report.terminal import print_run

        print_run(stdout(), found[0][1])
    else:
        from secid.report.comparison import compare, page_of_comparison
        from secid.report.terminal import print_page

        print_page(stdout(), page_of_comparison(compare(found)))
