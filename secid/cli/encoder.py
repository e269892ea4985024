"""`secid encoder`, `secid cache`, `secid doctor` and `secid schema`: inspect the installation and its encoders."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from secid.cli.command import (
    ENCODING_SETTINGS,
    Json,
    flag,
    print_json,
    print_json_text,
    print_lines,
    print_screen,
    print_stderr,
    takes_settings,
)

if TYPE_CHECKING:
    from secid.encode import CacheFolder

# `secid encoder`.

NOT_EVALUATED = 3
"""Exit code if a check of the self-test failed or could not run."""
CACHE_SETTINGS = frozenset({"cache", "cache_dir", "cache_gb"})
"""Settings without effect here, since the self-test does not use the cache."""


@takes_settings(*(name for name in ENCODING_SETTINGS if name not in CACHE_SETTINGS))
def encoder(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ENCODER",
            help="Short name, hub name, folder, vectors file or http endpoint [default: the encoder in the settings].",
            show_default=False,
            rich_help_panel="Encoder",
        ),
    ] = None,
    json: Json = False,
    **settings: Any,
) -> int:
    """Show an encoder's recipe and run its self-test.

    For each part of the recipe the output names the rule that set it. Exit code 3: a check of the self-test failed or
    could not run.

    Example: secid encoder e5-base --max-length 256
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.pages.encoder_page import encoder_screen
    from secid.results.document import json_of

    with ConsoleProgress(quiet=False) as progress:
        description = api.describe_encoder(name, progress=progress, **settings)
    if json:
        print_json_text(json_of(description))
    else:
        print_screen(encoder_screen(description))
    if description.unsettled:
        print_stderr(f"secid: self-test: {', '.join(description.unsettled)} did not pass")
        return NOT_EVALUATED
    return 0


# `secid cache`.

cache = typer.Typer(help="Show, clear or check the embedding cache.", no_args_is_help=True)


@cache.command("info")
@takes_settings("cache_dir", "cache_gb")
def info(json: Json = False, **settings: Any) -> None:
    """Show the folder, size and content of the cache.

    Example: secid cache info
    """
    from secid.pages.encoder_page import cache_screen

    usage = _folder(settings).info()
    if json:
        print_json(asdict(usage))
    else:
        print_screen(cache_screen(usage))


@cache.command("clear")
@takes_settings("cache_dir")
def clear(
    yes: Annotated[bool, flag("--yes", "-y", text="Do not ask for confirmation.")] = False,
    json: Json = False,
    **settings: Any,
) -> None:
    """Remove all cached embeddings and training runs. Other files are kept.

    It asks for confirmation on a terminal; elsewhere it needs --yes.

    Example: secid cache clear --yes
    """
    from secid.errors import UsageError
    from secid.pages.encoder_page import bytes_text
    from secid.pages.text import log_line

    folder = _folder(settings)
    before = folder.info()
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("would be cleared", where=str(before.folder), remedy="confirm with --yes")
        what = f"{bytes_text(before.n_bytes)} of embeddings and {before.n_trainings} training runs"
        typer.confirm(log_line(f"Remove {what} in {before.folder}?"), abort=True, err=True)
    removal = folder.clear()
    if json:
        print_json({"folder": before.folder, **asdict(removal)})
        return
    print_lines(f"{before.folder}: freed {bytes_text(removal.n_bytes_freed)}")
    if removal.n_unsealed:
        print_lines(
            f"unfinished files kept: {removal.n_unsealed} ({bytes_text(removal.n_bytes_unsealed)}). A run may still be "
            "writing them; they can be removed an hour after their last write."
        )


@cache.command("verify")
@takes_settings("cache_dir")
def verify(json: Json = False, **settings: Any) -> int:
    """Read the whole cache and set damaged segments aside.

    Their texts are encoded again when they are needed. Exit codes: 1 a segment was damaged, 3 one could not be read.

    Example: secid cache verify
    """
    folder = _folder(settings)
    check = folder.verify()
    if json:
        print_json({"folder": str(folder.folder), **asdict(check)})
    else:
        print_lines(f"{folder.folder}: {check.n_whole} intact segments, {len(check.damaged)} damaged and set aside")
        for name in check.damaged:
            print_lines(f"  {name}")
        for name in check.unreadable:
            print_lines(f"  {name} cannot be read")
    return 1 if check.damaged else 3 if check.unreadable else 0


def _folder(settings: dict[str, Any]) -> CacheFolder:
    from secid.encode import CacheFolder
    from secid.errors import UsageError
    from secid.settings import flag_of, resolve

    folder = CacheFolder.of(resolve(settings).values)
    if folder.folder.exists() and not folder.folder.is_dir():
        raise UsageError(
            f"{folder.folder} is not a directory", where=flag_of("cache_dir"), remedy="name a directory, or a new path"
        )
    return folder


# `secid doctor`.


def doctor(json: Json = False) -> None:
    """Print versions, devices and caches for a bug report."""
    from secid.run_folder.write import diagnosis

    report = diagnosis()
    if json:
        print_json(report)
        return
    for section, entries in report.items():
        print_lines(f"{section}:", *(f"  {name}: {value}" for name, value in entries.items()))


# `secid schema`.


class Document(StrEnum):
    """Documents that have a JSON Schema."""

    report = "report"
    gate = "gate"
    policy = "policy"
    baseline = "baseline"
    probe = "probe"


DOCUMENT_TYPES = {
    Document.report: ("secid.analyses.registry", "Report"),
    Document.gate: ("secid.results.gate", "GateVerdict"),
    Document.policy: ("secid.tools.gating.policy", "Policy"),
    Document.probe: ("secid.results.probe", "Probe"),
    Document.baseline: ("secid.tools.gating.baseline", "Baseline"),
}
"""Module and class of each document. Only the module of the requested document is imported."""


def schema(
    document: Annotated[
        Document,
        typer.Argument(help="report (report.json), gate (its verdict), policy, baseline, or probe (probe.json)."),
    ] = Document.report,
) -> None:
    """Print the JSON Schema of a document that secid writes or reads.

    Example: secid schema baseline
    """
    from secid.results.document import json_schema

    module, name = DOCUMENT_TYPES[document]
    mode: Literal["serialization", "validation"] = "validation" if document == Document.policy else "serialization"
    print_json(json_schema(getattr(import_module(module), name), mode))
