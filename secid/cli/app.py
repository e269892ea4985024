"""Build the command line, run a command, and turn exceptions into exit codes."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Annotated, Any

import typer
from typer.main import get_command

from secid import __version__
from secid.cli.command import GroupedCommand, print_stderr, refuse_repeated, refuse_second_output
from secid.errors import SecidError
from secid.settings import FIELDS, flag_of

DONE, NOT_PASSED, WRONG_USE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130
GARBAGE_THRESHOLD = 50_000
"""Number of new objects after which Python looks for garbage. Imports make many objects that stay. With Python's
default, 700 or 2,000, looking at them again and again takes a tenth of the time of a start."""
END_SIGNALS = (signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else []))
"""Signals that ask a process to end. Without a handler it would end at once and leave incomplete files."""

COMMANDS = (
    "score", "mine", "check", "explain", "flagged", "select", "mix", "ablate", "probe", "compare", "report", "audit",
    "merge", "gate", "baseline", "encoder", "cache", "schema", "doctor",
)  # fmt: skip
"""Each command is a function or a group of commands. Its module is in MODULES, or has its name."""
TOOLS = {
    "mine": "mining", "probe": "probing", "merge": "shards",
    **dict.fromkeys(("flagged", "select", "mix"), "export"),
    **dict.fromkeys(("gate", "baseline"), "gating"),
}  # fmt: skip
"""Folder of `secid.tools` that a command needs. If the folder is not installed, the command is left out."""
MODULES = {
    **dict.fromkeys(("ablate", "merge"), "score"),
    **dict.fromkeys(("audit", "explain", "probe"), "check"),
    "compare": "report",
    **dict.fromkeys(("flagged", "mix"), "select"),
    "baseline": "gate",
    **dict.fromkeys(("cache", "doctor", "schema"), "encoder"),
}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"secid {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Handle the options that come before a command."""


def installed_commands() -> tuple[str, ...]:
    """Return the names of the installed commands."""
    missing = {tool for tool in TOOLS.values() if find_spec(f"secid.tools.{tool}") is None}
    return tuple(name for name in COMMANDS if TOOLS.get(name) not in missing)


def program(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the program with these commands."""
    app = typer.Typer(
        name="secid",
        help="Inspect sources of hard negatives before you train a dense retriever on them. See what is wrong with "
        "each source, how hard it is, and which differences between sources are real.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        command = getattr(import_module(f"secid.cli.{MODULES.get(name, name)}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=GroupedCommand)(command)
    return app


@cache
def click_program(names: tuple[str, ...]) -> Any:
    """Return click's command for a program with these commands. It is built once per process."""
    return get_command(program(names))


def main(arguments: list[str]) -> int:
    """Run a command line and return its exit code. An unexpected exception gives 3, never 1, which is a verdict."""
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _terminate)
    # Building all commands takes half the time of a help text, and only the list of commands needs all of them.
    first = next((word for word in arguments if not word.startswith("-")), "")
    try:
        refuse_repeated(arguments)
        refuse_second_output(arguments)
        names = installed_commands()
        result = click_program((first,) if first in names else names)(
            args=arguments, prog_name="secid", standalone_mode=False
        )
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        sys.stderr.close()  # the reader of stdout has closed it; click would exit with 1, which is a verdict here
        return DONE
    except Exception as error:
        result = code_of_ending(error) or _failed(error)
    if result == INTERRUPTED:  # typer turns Ctrl-C into this number without a message
        _say("secid: interrupted; no incomplete file is left")
    return result if isinstance(result, int) else DONE


def _failed(error: Exception) -> int:
    """Print an error with its remedy. Return the exit code."""
    from secid.files import NO_ROOM
    from secid.pages.text import short

    if isinstance(error, SecidError):
        _say(f"secid: {error}")
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _say(f"secid: file name too long: {short(str(error.filename))}\n  use a name of at most 255 bytes")
        return WRONG_USE
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return _no_room(error)
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("secid.tools."):
        _say(f"secid: this needs {error.name}, which is not installed\n  install secid again")
        return WRONG_USE
    return _unexpected(error)


def _no_room(error: OSError) -> int:
    """Report a full disk or a limit on file sizes. It is not an internal error."""
    from secid.files import FILE_SIZE_REMEDY

    remedy = FILE_SIZE_REMEDY if error.errno == errno.EFBIG else "free space for the output and temporary files"
    _say(f"secid: cannot write: {error.strerror}\n  {remedy}, and run the command again")
    return WRONG_USE


def _unexpected(error: Any) -> int:
    """Print an internal error's traceback, or a usage error with help if it names a setting. Return the exit code."""
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    setting = next((one for one in (name, name.removeprefix("no_")) if one in FIELDS), None)
    uses = getattr(error.ctx.command.callback, "settings", None) if setting else None
    if uses is not None and setting not in uses:
        command = error.ctx.command_path
        _say(f"secid: {error.option_name}: `{command}` does not use it\n  remove it; `{command} -h` lists its options")
        return WRONG_USE
    if uses is not None:
        value = "no" if setting != name else "VALUE"
        _say(f"secid: {error.option_name}: this setting has no flag\n  use --set {setting}={value}")
        return WRONG_USE
    if uses is None and name and hasattr(error, "possibilities"):
        _say(f"secid: no such option: {error.option_name}\n  {_nearest(name, error.ctx)}")
        return WRONG_USE
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        shown = StringIO()
        error.show(shown)
        print_stderr(shown.getvalue())
        return WRONG_USE
    print_stderr(traceback.format_exc())
    _say("secid: internal error; please report it with the output of `secid doctor`")
    return INTERNAL


def _nearest(name: str, context: Any) -> str:
    """Return a remedy for an unknown option: the most similar flag or setting, or else how to list all options."""
    settings = getattr(context.command.callback, "settings", ())
    flags = {name: flag_of(name, None if FIELDS[name].metadata["group"] else "VALUE") for name in settings}
    typed = [flag for one in context.command.params for flag in one.opts if flag.startswith("--")]
    flags |= {flag[2:].replace("-", "_"): flag for flag in typed}
    near = get_close_matches(name, flags, n=1)
    return f"did you mean {flags[near[0]]}?" if near else f"`{context.command_path} -h` lists its options"


def code_of_ending(error: BaseException | None) -> int | None:
    """Return the exit code if Ctrl-C or a signal caused an error, else None.

    Work that is interrupted may raise another error, which has the interruption as its cause.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code in map(_code_of, END_SIGNALS):
            return error.code
        error = error.__cause__ or error.__context__
    return None


def _terminate(number: int, frame: Any) -> None:
    raise SystemExit(_code_of(number))


def _code_of(number: int) -> int:
    """Return the exit code that a shell reports for a process that a signal ended."""
    return 128 + number


def _say(text: str) -> None:
    """Print a message to stderr. Control characters in quoted names and texts are made visible.

    Lines after the first are indented. So a script cannot mistake part of a name for a verdict.
    """
    first, *others = text.split("\n")
    print_stderr("\n".join((first, *(line if line.startswith(" ") else f"  {line}" for line in others))))


def entry() -> None:
    """Run the `secid` program.

    Idle OpenMP threads sleep, unless the user sets OMP_WAIT_POLICY. By default they spin. On cores shared with other
    programs, two threads then took 33 to 42 s for 2,000 records instead of 3 to 4 s.
    """
    gc.set_threshold(GARBAGE_THRESHOLD)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch reads it when it is imported
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None
    except OSError as error:  # Python would exit with 1, which is a verdict here
        sys.stdout = None
        code = code if code == WRONG_USE else _no_room(error)
    sys.exit(code)
