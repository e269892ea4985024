"""`secid baseline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secid.cli.lines import say
from secid.cli.options import flag

UPDATE = "update"


def baseline(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[update] RUN",
            help="Run folder of `secid score`. The word update before it updates an existing baseline.",
        ),
    ],
    out: Annotated[
        Path | None, flag("-o", "--out", of="FILE", text="The baseline to write [default: secid-baseline.json].")
    ] = None,
    quiet: Annotated[bool, flag("--quiet", "-q", text="Print nothing.")] = False,
) -> None:
    """Write or update the baseline that `secid gate` compares with.

    An update prints what changed. Commit both files: NAME.json, to read and review, and NAME.idf.safetensors. Write
    ./update for a run folder named update.

    Example: secid baseline secid-runs/today -o secid-baseline.json
    """
    from secid.errors import UsageError

    is_update = words[0] == UPDATE
    folders = words[1:] if is_update else words
    if len(folders) != 1:
        raise UsageError(
            f"{'baseline update' if is_update else 'baseline'} takes one run folder, got {len(folders)}",
            remedy="secid baseline RUN, or secid baseline update RUN; write ./update for a folder named update",
        )
    from secid.api import baseline as write
    from secid.gating.baseline import DEFAULT_NAME, changes, read_baseline

    path = out or Path(DEFAULT_NAME)
    before = read_baseline(path) if is_update else None
    after = write(folders[0], path, update=is_update)
    if quiet:
        return
    from secid.gating.init import above_sentence
    from secid.gating.limits import above_advice
    from secid.pages.numbers import plural

    if before is None:
        say(f"{path}: {plural(len(after.sources), 'source')}: {', '.join(after.sources)}")
    else:
        lines = changes(before, after)
        say(f"{path}: {plural(len(lines), 'change')}" if lines else f"{path}: nothing changed")
        say(*(f"  {line}" for line in lines))
    for name, above in above_advice(after).items():
        say(above_sentence(name, above))
