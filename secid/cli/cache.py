"""`secid cache`: the embedding cache, shown, emptied, checked."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.lines import say
from secid.cli.options import Json, flag, takes_settings
from secid.cli.outputs import print_json

if TYPE_CHECKING:
    from secid.encode import CacheFolder

app = typer.Typer(help="Show, empty or check the cache of embeddings.", no_args_is_help=True)
UNITS = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}


@app.command("info")
@takes_settings("cache_dir", "cache_gb")
def info(json: Json = False, **settings: Any) -> None:
    """Show where the cache is, how large it is, and what it holds.

    Example: secid cache info
    """
    from datetime import UTC, datetime

    from secid.pages.sanitize import plain

    usage = _folder(settings).info()
    if json:
        print_json(asdict(usage))
        return
    missing = "" if Path(usage.folder).is_dir() else " (does not exist yet)"
    say(f"folder           {usage.folder}{missing}")
    say(f"size             {_size(usage.n_bytes)} of {_size(usage.limit_bytes)}")
    say(f"damaged          {usage.n_damaged} segments set aside")
    say(f"older format     {usage.n_older} segments, not read")
    say(f"training runs    {usage.n_trainings} of `secid probe`")
    say(f"encoders         {len(usage.encoders)}")
    if usage.encoders:
        say("", f"{'fingerprint':<20}{'segments':>9}{'rows':>15}{'size':>12}  {'last used':<20}  encoder")
    for use in usage.encoders:
        used = datetime.fromtimestamp(use.last_used, UTC).strftime("%Y-%m-%d %H:%M UTC")
        shown, name = use.fingerprint[:16], plain(use.name) or "unknown"
        say(f"{shown:<20}{use.n_segments:>9,}{use.n_rows:>15,}{_size(use.n_bytes):>12}  {used}  {name}")


@app.command("clear")
@takes_settings("cache_dir")
def clear(
    yes: Annotated[bool, flag("--yes", "-y", text="Do not ask.")] = False, json: Json = False, **settings: Any
) -> None:
    """Remove all cached embeddings and training runs; other files stay.

    Asks first on a terminal; elsewhere --yes must be given.

    Example: secid cache clear --yes
    """
    from secid.errors import UsageError
    from secid.pages.sanitize import log_line

    folder = _folder(settings)
    before = folder.info()
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{before.folder} would be emptied", remedy="confirm with --yes")
        what = f"{_size(before.n_bytes)} of embeddings and {before.n_trainings} training runs"
        typer.confirm(log_line(f"Remove {what} in {before.folder}?"), abort=True, err=True)
    removal = folder.clear()
    if json:
        print_json({"folder": before.folder, **asdict(removal)})
        return
    say(f"{before.folder}: {_size(removal.n_bytes_freed)} freed")
    if removal.n_unsealed:
        say(
            f"{removal.n_unsealed} unfinished, {_size(removal.n_bytes_unsealed)}: kept for an hour after the last "
            "write, as a run may be writing them"
        )


@app.command("verify")
@takes_settings("cache_dir")
def verify(json: Json = False, **settings: Any) -> int:
    """Read every byte of the cache and set damaged segments aside.

    Their texts are encoded again when needed. Exit codes: 1 if a segment was damaged, 3 if one could not be read.

    Example: secid cache verify
    """
    folder = _folder(settings)
    check = folder.verify()
    if json:
        print_json({"folder": str(folder.folder), **asdict(check)})
    else:
        say(f"{folder.folder}: {check.n_whole} segments whole, {len(check.damaged)} damaged and set aside")
        for name in check.damaged:
            say(f"  {name}")
        for name in check.unreadable:
            say(f"  {name} cannot be read")
    return 1 if check.damaged else 3 if check.unreadable else 0


def _folder(settings: dict[str, Any]) -> CacheFolder:
    from secid.encode import CacheFolder
    from secid.errors import UsageError
    from secid.settings import flag_of, resolve

    folder = CacheFolder.of(resolve(settings).values)
    if folder.folder.exists() and not folder.folder.is_dir():
        raise UsageError(f"{folder.folder} is not a directory", where=flag_of("cache_dir"))
    return folder


def _size(n_bytes: int) -> str:
    """In the largest unit that leaves a digit before the point."""
    unit = next((unit for unit in UNITS if n_bytes >= UNITS[unit]), "B")
    return f"{n_bytes / UNITS[unit]:,.{0 if unit == 'B' else 1}f} {unit}"
