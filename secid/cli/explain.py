"""`secid explain`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from secid.cli.options import Json

LABELLED = re.compile(r"(\s*\S+:?\s{2,}|\w+:\s+|)(.*)")
"""A line with its label, under which its further lines begin to the right."""


def explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A finding, caution or check of the gate; without it all are listed."),
    ] = None,
    json: Json = False,
) -> None:
    """Explain a finding: its rule, its limit, what it needs, and what to do about it.

    Example: secid explain false_negative
    """
    from secid.cli.console import stdout
    from secid.cli.outputs import print_json
    from secid.pages.explain import explain_text, explained, list_text
    from secid.pages.terminal import command, write

    if json:
        print_json(explained(name))
        return
    console = stdout()
    for line in (list_text() if name is None else explain_text(name)).splitlines():
        label, text = LABELLED.match(line).groups()  # type: ignore[union-attr]
        if label.startswith("command:"):
            command(console, line)
        elif text:
            write(console, text, mark=label)
        else:
            console.print()
