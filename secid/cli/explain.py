"""`secid explain`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def explain(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A finding or caution; all are listed without it.")
    ] = None,
) -> None:
    """Explain a finding: its rule, its limit, what it needs, and what to do about it.

    Example: secid explain false_negative
    """
    from secid.pages.explain import explain_text, list_text

    sys.stdout.write(list_text() if name is None else explain_text(name))
