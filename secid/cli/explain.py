"""`secid explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from secid.cli.options import Json


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A finding, column, status, check of the gate or preset of mine; without it all are listed.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Explain a finding, a column, a status or a preset of mine.

    Example: secid explain false_negative
    """
    from secid.cli.console import stdout
    from secid.cli.outputs import print_json
    from secid.pages.explain import explained, print_explained

    if json:
        print_json(explained(name))
    else:
        print_explained(stdout(), name)
