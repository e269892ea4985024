"""Command-line options made from the settings table, so that name, type, range and help stand once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from secid.errors import UsageError
from secid.settings import DEFAULTS, FIELDS, Settings

Command = TypeVar("Command", bound=Callable[..., Any])

METHOD = ("temperature", "tokenizer", "idf", "positives", "first_k", "max_records", "seed", "sums")
READING = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "source_column", "titles",
    "header", "collection", "corpus", "queries", "positive_score", "on_bad", "max_bad_fraction",
)  # fmt: skip
ENCODER = (
    "revision", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize", "truncate_dim",
    "device", "dtype", "batch_tokens", "trust_remote_code", "allow_pickle", "cache", "cache_dir", "cache_gb", "threads",
)  # fmt: skip
STUDY = (
    "budget",
    "until_ranked",
    "tie",
    "ablate",
    "by",
    "block",
    "controls",
    "control_queries",
    "high_coverage",
    "valid",
    "far",
    "examples",
)
PANELS = {
    **dict.fromkeys(METHOD, "Method"),
    **dict.fromkeys(READING, "Reading"),
    **dict.fromkeys(("encoder", *ENCODER), "Encoder"),
}


def takes_settings(*names: str) -> Callable[[Command], Command]:
    """Replaces a command's `**settings` by one option for each named field of Settings.

    An option that is not given stays None, so that files and environment decide.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters = [*own, *map(_option, names)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


_TYPES = get_type_hints(Settings)


def _option(name: str) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    kind, default = _TYPES[name], getattr(DEFAULTS, name)
    text = FIELDS[name].metadata["help"]
    if default not in (None, ()) and not isinstance(default, bool):
        text = f"{text} [default: {default}]"
    flags = [f"{flag}/--no-{flag[2:]}"] if kind in (bool, bool | None) and (default is not False) else [flag]
    option = typer.Option(*flags, help=text, show_default=False, rich_help_panel=PANELS.get(name, "Study"))
    if kind == tuple[str, ...]:
        kind = list[str]  # typer's word for an option that may be repeated
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def refuse_repeated(words: Sequence[str]) -> None:
    """Raises UsageError for a flag that names a column or schema and is given twice: the last would win in silence."""
    flags = [word.partition("=")[0] for word in words]
    for flag in (f"--{name.replace('_', '-')}" for name in ("format", *(n for n in READING if n.endswith("_column")))):
        if flags.count(flag) > 1:
            raise UsageError(
                f"{flag} is given {flags.count(flag)} times, and one is read",
                remedy="numbered columns x_1, x_2 go by x; score two columns of negatives as two sources, a run each",
            )
