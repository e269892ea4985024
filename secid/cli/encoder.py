"""`secid encoder`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from secid.cli.lines import complain, say, say_json
from secid.cli.options import ENCODING, Json, takes_settings

NOT_EVALUATED = 3
"""Exit code of an encoder that cannot be trusted: a check failed or could not be run."""
CACHE = frozenset({"cache", "cache_dir", "cache_gb"})
"""Settings without effect here: the self-test never reads from the cache."""


@takes_settings(*(name for name in ENCODING if name not in CACHE))
def encoder(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ENCODER",
            help="Short name, hub name, folder, vectors file or http endpoint [default: the encoder of the settings].",
            show_default=False,
            rich_help_panel="Encoder",
        ),
    ] = None,
    json: Json = False,
    **settings: Any,
) -> int:
    """Show an encoder's recipe and run its self-test.

    The recipe names the rule that set each of its parts. Exit code 3: a check of the self-test failed or could not run.

    Example: secid encoder e5-base --max-length 256
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.encoder import encoder_text
    from secid.results.document import json_of

    with ConsoleProgress(quiet=False) as progress:
        description = api.describe_encoder(name, progress=progress, **settings)
    if json:
        say_json(json_of(description))
    else:
        say(*encoder_text(description).splitlines())
    if description.unsettled:
        complain(f"secid: self-test: {', '.join(description.unsettled)} did not pass")
        return NOT_EVALUATED
    return 0
