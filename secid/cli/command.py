"""Code that commands share: make options from the settings; check, write and print results."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from secid.errors import UsageError
from secid.files import check_writable
from secid.settings import DEFAULTS, FIELDS, GROUPS, TYPES, allowed, assignments, flag_of, value_text
from secid.settings import ENCODING_SETTINGS as ENCODING_SETTINGS
from secid.settings import READING_SETTINGS as READING_SETTINGS

if TYPE_CHECKING:
    from secid.pages.formats import Judged
    from secid.pages.screen import Screen

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
        """Write a section for each group: first groups that only this command has, then GROUPS, then OTHER_OPTIONS."""
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


# Print messages and JSON documents through the sanitiser.
#
# `pages.screen` prints pages, and `console` prints notes and progress. A test checks that nothing else prints.


def print_stderr(text: str) -> None:
    """Print lines to standard error. If it is closed, do nothing."""
    from secid.pages.text import log_line

    with suppress(OSError, AttributeError):
        sys.stderr.write("".join(f"{log_line(line)}\n" for line in text.rstrip("\n").split("\n")))
        sys.stderr.flush()


def print_json_text(text: str) -> None:
    """Print a JSON document to standard output."""
    from secid.pages.text import json_shown

    sys.stdout.write(json_shown(text))


# Check output files before any work, then write and print results.

Result = TypeVar("Result")


def check_outputs(
    outputs: Sequence[Path], suffixes: Collection[str], inputs: Iterable[Path], folders: str = ""
) -> None:
    """Refuse outputs that cannot be written.

    suffixes : suffixes of the formats.   inputs : files and folders that will be read; ignored without outputs.
    folders  : text to add to the remedy if an output may be meant as a folder.
    Raises UsageError if an output's suffix is not one of `suffixes`, or if an output is an input or lies inside one,
    even under another name. Raises OutputError if it cannot be written.
    """
    from secid.pages.formats import METRICS, format_of

    for path in outputs:
        if format_of(path) not in suffixes:
            hint = folders if path.is_dir() or not path.suffix else ""
            if format_of(path) == METRICS:
                remedy = "use -o metrics.json with secid score, or with secid report for one run"
                raise UsageError("metrics are written only for a single run", where=str(path), remedy=remedy)
            raise UsageError(
                f"no page format has the suffix {path.suffix!r}",
                where=str(path),
                remedy=f"use {', '.join(suffixes)}{hint}",
            )
        check_writable(path)
    existing = [path for path in inputs if path.exists()] if outputs else []
    for path in filter(Path.exists, outputs):
        for other in existing:
            if path.samefile(other) or (other.is_dir() and path.resolve().is_relative_to(other.resolve())):
                what = "an input" if path.samefile(other) else f"part of the input {other}"
                raise UsageError(
                    f"is also {what} and would be overwritten", where=str(path), remedy="name another output file"
                )


def files_read(specs: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of the sources and those in the settings."""
    from secid.read import resolve_sources
    from secid.settings import FIELDS, resolve

    values = resolve({name: value for name, value in settings.items() if name in FIELDS}).values
    sources = [path for source in resolve_sources(specs) for path in source.paths]
    yield from map(Path, (*sources, *filter(None, (values.encoder, values.corpus, values.queries))))


def write_results(
    files: Sequence[Path], formats: Mapping[str, Callable[[Result], str]], result: Result, quiet: bool
) -> None:
    """Write a result to each file in the format of its suffix. Unless quiet, name the files on standard error."""
    from secid.files import write_whole

    for path in files:
        write_whole(path, formats[path.suffix](result))
        if not quiet:
            print_stderr(f"wrote {path}")


def print_result(result: Result, as_json: bool, shown: Callable[[Result], Screen]) -> None:
    """Print a result as one JSON document, or as the screen that a terminal shows."""
    from secid.results.document import json_of

    with suppress(BrokenPipeError):  # the verdict is the same if the reader stops early
        if as_json:
            print_json_text(json_of(result))
        else:
            print_screen(shown(result))


def print_screen(screen: Screen) -> None:
    """Print a screen to standard output."""
    from secid.cli.console import stdout
    from secid.pages.screen import print_page

    print_page(stdout(), screen)


def print_lines(*lines: str) -> None:
    """Print lines to standard output without wrapping them."""
    from secid.pages.screen import Line, screen

    print_screen(screen(Line(line, kind="literal") for line in lines))


def print_verdict(result: Judged, quiet: bool) -> None:
    """Print the verdict for scripts, as the last line of stderr.

    Print nothing if quiet, or on a terminal, where the page above has the verdict in words.
    """
    from rich.text import Text

    from secid.cli.console import stderr
    from secid.pages.formats import verdict_line

    console = stderr()
    if not quiet and not console.file.isatty():
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # so that the result comes first if both go to one file
        console.print(Text(verdict_line(result)))


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print_json_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
