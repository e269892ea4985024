"""`secid encoder`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from secid.cli.options import ENCODER, takes_settings

NOT_EVALUATED = 3
"""Exit code where the encoder cannot be trusted: a check failed or could not be made."""
CACHE = frozenset({"cache", "cache_dir", "cache_gb"})
"""Encoder options that say nothing here: the self-test never reads from the cache."""


@takes_settings(*(name for name in ENCODER if name not in CACHE))
def encoder(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ENCODER",
            help="Alias, hub name, local folder, vectors file or http endpoint [default: the settings' encoder].",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    **settings: Any,
) -> int:
    """Show an encoder's resolved recipe, which rule set each part of it, and a self-test.

    Exits with 3 where a check of the self-test fails or cannot be made.

    Example: secid encoder e5-base --max-length 256
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.encoder import encoder_json, encoder_text

    with ConsoleProgress(quiet=False) as progress:
        found = api.describe_encoder(name, progress=progress, **settings)
    sys.stdout.write(encoder_json(found) if json else encoder_text(found))
    if found.unsettled:
        sys.stderr.write(f"secid: self-test: {', '.join(found.unsettled)} did not pass\n")
        return NOT_EVALUATED
    return 0
