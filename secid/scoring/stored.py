"""Settings that a run folder, a state or a baseline stores. They are data: they say how numbers are made.

They give no permission, and choose neither a folder of this machine nor an address: those the user names, in the
command, in the environment or in a settings file.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypedDict

from secid.errors import EncoderError, UsageError
from secid.settings import FLAG, Resolved, encoder_kind, flag_of


class LoadingSettings(TypedDict, total=False):
    """Settings of a command that loads the encoder of a run again: those of the machine, and the permissions."""

    device: str | None
    batch_tokens: int | None
    cache: bool | None
    cache_dir: str | None
    cache_gb: float | None
    threads: int | None
    trust_remote_code: bool | None
    allow_pickle: bool | None


OF_LOADING = tuple(LoadingSettings.__annotations__)


def refuse_settings(given: Mapping[str, Any], own: Collection[str], whose: str) -> None:
    """Raises UsageError for a setting that the command does not take. own: those it takes; whose: has the others."""
    for name, value in given.items():
        if value is not None and name not in own:
            raise UsageError(f"is that of {whose}", where=flag_of(name), remedy="leave it out")


def encoder_of(stored: str | None, own: Resolved, where: str) -> str | None:
    """The encoder to load again: the one that the command names, otherwise the stored one.

    own : the settings of the command.   Raises EncoderError as `refuse_unnamed`.
    """
    named = own.values.encoder
    if own.origin["encoder"] == FLAG or named == stored:
        return named
    refuse_unnamed(stored, "encoder", where)
    return stored


def refuse_unnamed(stored: str | None, setting: str, where: str) -> None:
    """Raises EncoderError for a folder or address that only a stored file names, with the flag that names it.

    Short names, names of the hub and files of vectors are accepted: they run no code and receive no text.
    setting : of ENCODERS.   where : the file or folder that stores it.
    """
    name = stored or ""
    kind = "an address" if encoder_kind(name) == "endpoint" else "a local folder"
    if kind == "an address" or (name and Path(name).expanduser().is_dir()):
        raise EncoderError(
            f"{setting} is {kind} that only this file names",
            where=where,
            remedy=f"if you trust it, add {_typed(setting, name)}",
        )


def _typed(setting: str, name: str) -> str:
    """The flag, quoted for a shell."""
    flag, space, value = flag_of(setting, name).partition(" ")
    return f"{flag} {shlex.quote(value)}" if space else flag
