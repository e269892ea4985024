"""Reads the settings that a run folder, a state or a baseline stores. They are data: they say how numbers are made.

They never grant a permission, and never choose a folder of this machine or an address. Those come from the command, the
environment or a settings file.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from secid.errors import EncoderError, InputError, SettingsError, UsageError
from secid.results import Run
from secid.results.commands import typed
from secid.results.document import AGAIN, REPORT_NAME
from secid.settings import ENCODERS, FIELDS, FLAG, PERMISSIONS, Resolved, Settings, checked, encoder_kind, flag_of

if TYPE_CHECKING:
    from secid.results.check import Check


class LoadingSettings(TypedDict, total=False):
    """Settings of the machine, and permissions, for a command that loads a run's encoder again."""

    device: str | None
    batch_tokens: int | None
    cache: bool | None
    cache_dir: str | None
    cache_gb: float | None
    threads: int | None
    trust_remote_code: bool | None
    allow_pickle: bool | None


OF_LOADING = tuple(LoadingSettings.__annotations__)


def settings_of(run: Run | Check, **changes: Any) -> Settings:
    """Return the settings that a run or a check was made with, with changes.

    They include no encoder, no permission and nothing of the machine: `loading_settings` takes these from the command.
    Settings of a newer secid are ignored. Raises InputError for a value that no run can have.
    """
    names = FIELDS.keys() - {*ENCODERS, *OF_LOADING}
    values = {name: entry["value"] for name, entry in run.settings.items() if name in names}
    try:
        return replace(checked(values, dict.fromkeys(values, REPORT_NAME)), **changes)
    except SettingsError as error:
        raise InputError(f"settings.{error.message}", where=REPORT_NAME, remedy=AGAIN) from None


def loading_settings(run: Run, folder: Path, own: Resolved) -> Settings:
    """Return the settings that load a run's encoder again: the recipe is the run's, all else is the command's.

    own : the settings of the command.   Raises EncoderError for a folder or address that only the run names.
    """
    stored = run.settings["encoder"]["value"] if "encoder" in run.settings else None
    encoder = encoder_of(stored, own, str(folder / REPORT_NAME))
    values = {name: getattr(own.values, name) for name in (*OF_LOADING, "keyless")}
    return settings_of(run, encoder=encoder, **values)


def refuse_settings(given: Mapping[str, Any], own: Collection[str], whose: str) -> None:
    """Raise UsageError for a setting that the command does not take.

    given : None counts as not given.   own : settings that it takes.   whose : what decides the others.
    """
    for name, value in given.items():
        if value is not None and name not in own:
            raise UsageError(f"is that of {whose}", where=flag_of(name), remedy="leave it out")


def encoder_of(stored: str | None, own: Resolved, where: str) -> str | None:
    """Return the encoder to load again: the one that the command names, otherwise the stored one.

    own : the settings of the command.   Raises SettingsError for a stored one that is not text, and EncoderError as
    `refuse_unnamed` does.
    """
    stored = checked({"encoder": stored}, {"encoder": where}).encoder
    named = own.values.encoder
    if own.origin["encoder"] == FLAG or named == stored:
        return named
    refuse_unnamed(stored, "encoder", where)
    return stored


def refuse_unnamed(stored: str | None, setting: str, where: str) -> None:
    """Raise EncoderError for a folder or address that only a stored file names, with the flag that names it.

    Short names, names of the hub and files of vectors are accepted: they run no code and receive no text.
    setting : of ENCODERS.   where : the file or folder that stores it.
    """
    if stored and (kind := _place(stored)):
        raise EncoderError(
            f"{setting} is {kind} that only this file names",
            where=where,
            remedy=f"if you trust it, add {_typed(setting, stored)}",
        )


def _place(encoder: str) -> str:
    """Return "an address" or "a local folder", and "" for an encoder that is loaded by its name."""
    if encoder_kind(encoder) == "endpoint":
        return "an address"
    return "a local folder" if Path(encoder).expanduser().is_dir() else ""


def words_of_loading(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words that a command on the run folder needs to load the run's encoder again; none for most encoders.

    values : the settings of the run, by name.
    """
    names = [name for name in ("encoder", *PERMISSIONS) if values.get(name)]
    needed = [name for name in names if name in PERMISSIONS or _place(values[name])]
    return tuple(word for name in needed for word in typed(name, values[name]))


def _typed(setting: str, name: str) -> str:
    """Return the flag with its value, quoted for a shell."""
    flag, space, value = flag_of(setting, name).partition(" ")
    return f"{flag} {shlex.quote(value)}" if space else flag
