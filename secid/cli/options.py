"""Make command-line options from the settings, and group them in the help."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from secid.errors import UsageError
from secid.settings import DEFAULTS, FIELDS, GROUPS, TYPES, allowed, assignments, flag_of, value_text
from secid.settings import ENCODING_SETTINGS as ENCODING_SETTINGS
from secid.settings import READING_SETTINGS as READING_SETTINGS

Command = TypeVar("Command", bound=Callable[..., Any])

GUIDE_SETTINGS = ("guide", "guide_reranker", "guide_sample", "guide_query_prefix", "guide_passage_prefix")
SCORING_SETTINGS = ("temperature", "tokenizer", "idf", "sums", "positives", "first_k", "max_records", "seed")
STATISTICS_SETTINGS = (
    "shard", "budget", "until_ranked", "tie", "controls", "control_queries", "ablate", "objectives", "encode_corpus",
    "by", "block", "high_coverage", "valid", "far", "examples",
)  # fmt: skip

INPUT, *_, OUTPUT = GROUPS
OTHER_OPTIONS = "Options"
"""Group of options that are in no other group."""
OUTPUTS = frozenset({"run", "force", "out", "json", "legend", "quiet", "annotations"})
"""Options that are in the group Output in every command."""
MAX_LABEL_COLUMNS = 26
"""Maximum width of an option's name in the help. Its text gets the rest of 80 columns."""


def flag(*names: str, metavar: str | None = None, text: str, group: str | None = None, hidden: bool = False) -> Any:
    """Return an option with a help text.

    metavar : name of its value in the help; None to let typer choose it.   text : help text.
    group : group in the help.   hidden : leave it out of the help.
    """
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=group, hidden=hidden)


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files, globs, folders, hf://datasets/OWNER/NAME, name=path, or - for stdin.",
        show_default=False,
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `secid score`.", show_default=False)]
Json = Annotated[bool, flag("--json", text="Print one JSON document instead of text.")]
Out = Annotated[
    list[Path] | None, flag("-o", "--out", metavar="FILE", text="Also write a .html, .md or .json file; repeatable.")
]
Quiet = Annotated[bool, flag("--quiet", "-q", text="Print no progress and no notes.")]
Legend = Annotated[bool, flag("--legend", text="Also print what the columns and numbers mean.")]


Split = Annotated[
    str | None,
    flag(
        "--split",
        metavar="NAME",
        text="Use only judgements of this split of the collection. [default: all]",
        group=INPUT,
    ),
]


class GroupedCommand(TyperCommand):
    """A command whose help lists arguments and options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group: first groups that only this command has, then GROUPS in order, then REST."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            label, text = parameter.get_help_record(ctx) or ("", "")
            group = OUTPUT if parameter.name in OUTPUTS else OTHER_OPTIONS
            if parameter.param_type_name == "argument":  # its help record would show the Python type
                label = f"{parameter.metavar or parameter.name.upper()}{'...' if parameter.nargs < 0 else ''}"
                group = INPUT
            if label:
                group = getattr(parameter, "rich_help_panel", None) or group
                groups.setdefault(group, []).append((label, text))
        width = min(MAX_LABEL_COLUMNS, max(len(label) for rows in groups.values() for label, _ in rows))
        command_groups = [name for name in groups if name not in (*GROUPS, OTHER_OPTIONS)]
        for name in (*command_groups, *GROUPS, OTHER_OPTIONS):
            if name in groups:
                with formatter.section(name):
                    formatter.write_dl([(label.ljust(width), text) for label, text in groups[name]])


def takes_settings(
    *names: str, hidden: Sequence[str] = (), texts: Mapping[str, str] | None = None, **fixed: object
) -> Callable[[Command], Command]:
    """Replace a command's `**settings` with --set, and with a flag for each named setting that has one.

    A setting that the user does not set is None, so that files and environment can set it.

    names  : settings that the command uses.   hidden : flags to leave out of the help.
    texts  : help texts that differ from those of the settings, by setting.
    fixed  : values of options that the user cannot set.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own_parameters = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD and parameter.name not in fixed
        ]

        by_flag = [name for name in FIELDS if name in names and FIELDS[name].metadata["group"]]
        parameters = [
            *own_parameters,
            *(_option(name, name in hidden, (texts or {}).get(name)) for name in by_flag),
            _assignments(names),
        ]

        @wraps(command)
        def with_settings(**arguments: Any) -> Any:
            values = assignments(arguments.pop("assignments") or (), names)
            for name in values:
                if arguments.get(name) is not None:
                    raise UsageError(f"{name} is set twice", where="--set", remedy=f"remove {flag_of(name)}")
            return command(**{**arguments, **values, **fixed})

        with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        with_settings.settings = frozenset(names)  # type: ignore[attr-defined]  # used in error messages
        return with_settings  # type: ignore[return-value]

    return decorate


def _option(name: str, hidden: bool, text: str | None) -> inspect.Parameter:
    kind, default, metadata = TYPES[name], getattr(DEFAULTS, name), FIELDS[name].metadata
    text = text or metadata["help"]
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    if choices:
        text = f"{text} One of {', '.join(choices)}."
    if default is not None and kind is not bool:
        text = f"{text} [default: {value_text(default)}]"
    numbers = {int: "N", float: "X"}
    letters = [numbers[part] for part in (kind, *get_args(kind)) if part in numbers]
    option = typer.Option(
        flag_of(name),
        help=text,
        show_default=False,
        metavar=metadata["metavar"] or (letters[0] if letters else "NAME" if choices else "TEXT"),
        rich_help_panel=metadata["group"],
        hidden=hidden,
    )
    return _keyword(name, Annotated[kind | None, option])


def _assignments(names: Sequence[str]) -> inspect.Parameter:
    others = ", ".join(sorted(name for name in names if not FIELDS[name].metadata["group"]))
    text = (
        f"Set a setting; repeatable. NAME without a value prints its values. Settings without a flag: {others}. "
        "Settings can also be in secid.toml, or in the environment as SECID_NAME."
    )

    def print_allowed(typed: list[str] | None) -> list[str] | None:
        names_only = [
            name for text in typed or () if "=" not in text and (name := text.strip().replace("-", "_")) in names
        ]
        for name in names_only:
            typer.echo(f"{name}: {allowed(name)}")
        if names_only:
            raise typer.Exit
        return typed

    # An eager option works without SOURCE.
    option = typer.Option(
        "--set", metavar="NAME=VALUE", help=text, rich_help_panel=OTHER_OPTIONS, callback=print_allowed, is_eager=True
    )
    return _keyword("assignments", Annotated[list[str] | None, option])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def refuse_repeated(words: Sequence[str]) -> None:
    """Raise UsageError for a repeated flag that names a column or schema, since only the last one would count."""
    flags = [word.partition("=")[0] for word in words]
    for flag in map(flag_of, ("format", *(name for name in READING_SETTINGS if name.endswith("_column")))):
        if flags.count(flag) > 1:
            raise UsageError(
                f"{flag} appears {flags.count(flag)} times, but only one is used",
                remedy="for columns x_1, x_2, name their prefix x; to score two columns, score two sources",
            )


def refuse_second_output(words: Sequence[str]) -> None:
    """Raise UsageError if a page's name follows the value of -o, since it would be read as a source."""
    for option, first, second in zip(words, words[1:], words[2:], strict=False):
        suffix = Path(second).suffix
        is_page = suffix in (".html", ".md") or (suffix == ".json" and not Path(second).exists())
        if option in ("-o", "--out") and is_page and not second.startswith("-"):
            remedy = f"repeat it: {shlex.join((option, first, option, second))}"
            raise UsageError(f"takes one file, but {second} is a second one", where=option, remedy=remedy)
