"""Write the generated parts of the pages: option tables, settings, findings, and the README's output.

    python docs/build.py            # the tables, from the code
    python docs/build.py --output   # also the output in the README, by running its first command (seconds to a minute)

tests/test_docs.py fails if a generated part is out of date.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
CLI_PAGE = ROOT / "docs" / "cli.md"
FINDINGS_PAGE = ROOT / "docs" / "findings.md"
README = ROOT / "README.md"


def commands() -> dict[str, tuple[Any, Any]]:
    """Return each command of the app with its function, by its words; the app itself is under ""."""
    from typer.main import get_command

    from secid.cli.app import program

    app = program()
    found: dict[str, tuple[Any, Any]] = {"": (get_command(app), None)}
    pending: list[tuple[str, Any, Any]] = [("", app, get_command(app))]
    while pending:
        words, typer_app, group = pending.pop()
        functions = {
            info.name or info.callback.__name__.replace("_", "-"): info for info in typer_app.registered_commands
        }
        groups = {info.name or info.typer_instance.info.name: info for info in typer_app.registered_groups}
        for name, command in sorted(group.commands.items()):
            full = f"{words} {name}".strip()
            if name in groups:
                pending.append((full, groups[name].typer_instance, command))
            else:
                found[full] = (command, functions[name].callback)
    return found


def option_table(command: Any, function: Any) -> str:
    """Return the arguments and options of a command as a Markdown table, in the order of its help."""
    types = get_type_hints(function) if function else {}
    lines = ["| option | values | meaning |", "|---|---|---|"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            names = [parameter.name.upper()]
        elif parameter.hidden:
            continue
        else:
            names = [*parameter.opts, *parameter.secondary_opts]
        shown = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {shown} | {_values(types.get(parameter.name, bool))} | {_cell(parameter.help or '')} |")
    return "\n".join(lines)


NAMES = {bool: "", str: "text", int: "whole number", float: "number", Path: "path"}


def _values(kind: Any) -> str:
    """Return the values that an option takes, from its type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(filter(None, (_values(item) for item in arguments if item is not NoneType))))
    if origin in (list, tuple):
        return f"{_values(arguments[0])}, repeatable"
    if issubclass(kind, Enum):
        return ", ".join(f"`{item.value}`" for item in kind)
    return NAMES[kind]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def block(text: str, name: str, content: str) -> str:
    """Return the page with new content between `<!-- name -->` and `<!-- end -->`."""
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"the page has no <!-- {name} --> … <!-- end -->: add both comments")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[3]}", text, count=1)


def cli_page() -> str:
    """Return cli.md with current tables. A command without a section gets one from its help."""
    text = CLI_PAGE.read_text(encoding="utf-8")
    for name, (command, function) in commands().items():
        place = f"options: {name}".rstrip()
        if f"<!-- {place} -->" not in text:
            before, after = text.split(SECTIONS_END, 1)
            text = f"{before}{section(name, command.help, place)}{SECTIONS_END}{after}"
        text = block(text, place, option_table(command, function))
    return block(text, "settings", settings_table())


def settings_table() -> str:
    """Return the table of settings without a flag."""
    from secid.settings import DEFAULTS, FIELDS, value_range, value_text

    lines = ["| setting | values | default | meaning |", "|---|---|---|---|"]
    for name, field in FIELDS.items():
        if not field.metadata["group"]:
            default = value_text(getattr(DEFAULTS, name))
            lines.append(f"| `{name}` | {value_range(name)} | {default} | {_cell(field.metadata['help'])} |")
    return "\n".join(lines)


SECTIONS_END = "## Settings\n"
"""The heading that follows the commands."""


def section(name: str, help_text: str, place: str) -> str:
    """Return a command's section, made from its docstring. The paragraphs can be rewritten by hand later."""
    description, _, example = help_text.partition("Example:")
    shown = f"```sh\n{' '.join(example.split())}\n```\n\n" if example else ""
    paragraphs = "\n\n".join(" ".join(part.split()) for part in description.strip().split("\n\n"))
    return f"## secid {name}\n\n{shown}{paragraphs}\n\n<!-- {place} -->\n<!-- end -->\n\n"


def findings_table() -> str:
    """Return the table of all findings, each linked to its section."""
    from secid.pages.explain import NEEDS
    from secid.results.catalogue import FINDINGS

    head = ["| finding | rule | needs | defect | limit |", "|---|---|---|---|---|"]
    rows = []
    for entry in FINDINGS.values():
        limit = "none" if entry.limit is None else f"{100 * entry.limit:g} %"
        defect = "yes" if entry.counted else "no"
        cells = (f"[`{entry.name}`](#{entry.name})", _cell(entry.rule), NEEDS[entry.needs], defect, limit)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*head, *rows])


def findings_page() -> str:
    """Return findings.md with its table, and a heading for each finding and caution, so that each has an anchor."""
    from secid.pages.explain import caution_facts, command_of
    from secid.results.catalogue import CAUTIONS, FINDINGS

    text = block(FINDINGS_PAGE.read_text(encoding="utf-8"), "findings table", findings_table())
    findings = [
        f"### {name}\n\nNegatives that {entry.says}. {_capital(entry.do)}.\n\n    {command_of(entry)}"
        for name, entry in FINDINGS.items()
    ]
    cautions = [
        f"### {name}\n\n{_capital(caution.of)} that {caution.says}. {_capital(caution.do)}. "
        f"{_capital(caution_facts(caution)['limit'])}."
        for name, caution in CAUTIONS.items()
    ]
    return block(block(text, "findings", "\n\n".join(findings)), "cautions", "\n\n".join(cautions))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def first_output() -> str:
    """Return the standard output of the README's first command."""
    from secid.cli.app import main as secid

    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "fixtures" / "sources").iterdir())
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = secid(["score", *sources, "--encoder", "minilm", "--run", f"{folder}/run"])
    if code:
        raise SystemExit(err.getvalue())
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def shown(output: str) -> str:
    """Return the verdict, the table, the first source's findings and the page's path, with a short run folder name."""
    output = re.sub(r"\S+/run\b", "secid-runs/NAME", output)
    head, found, findings = re.split(r"(\nFindings.*, and what to run\n)", output, maxsplit=1)
    first = re.split(r"\n(?=\S)", findings)[0]
    return f"{head}{found}{first}\n[…]\n{output.splitlines()[-1]}"


def readme() -> str:
    """Return README.md with the current output."""
    return block(README.read_text(encoding="utf-8"), "output", f"```text\n{shown(first_output())}\n```")


def main(arguments: list[str]) -> None:
    """Write the pages."""
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
    FINDINGS_PAGE.write_text(findings_page(), encoding="utf-8")
    if "--output" in arguments:
        README.write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
