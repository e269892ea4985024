"""Write the generated parts of the pages: tables from the code, and printed output.

    python docs/build.py            # the tables and the samples of snapshots
    python docs/build.py --output   # also the output in the README, gate.md and probe.md, by running the commands

tests/test_docs.py fails if a generated part is out of date.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
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
EXAMPLE = ROOT / "docs" / "example-report" / "report.json"
"""The run of the README's first command, with ablations. tests/unit/pages/test_example.py scores the fixtures again."""
INDEX = ROOT / "docs" / "README.md"
WORDS = (
    "source", "record", "encoder", "consistency", "locality", "residual", "weight", "ECI_sem", "hardness",
    "outscoring", "finding", "defects", "control", "pool", "not ranked", "tie",
)  # fmt: skip
"""The terms that the index of the pages explains."""
GATE_PAGE = ROOT / "docs" / "gate.md"
PROBE_PAGE = ROOT / "docs" / "probe.md"
PROBE_SNAPSHOT = ROOT / "tests" / "snapshots" / "probe-80.txt"
TWO_SOURCES = "fixtures/sources/bm25.jsonl.gz fixtures/sources/dense.parquet --encoder minilm"
GATE_COMMANDS = (
    f"secid score {TWO_SOURCES} --run baseline",
    "secid baseline baseline -o secid-baseline.json",
    "secid gate negatives/llm.jsonl --against secid-baseline.json",
)


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


def index() -> str:
    """Return docs/README.md with its table of words."""
    from secid.pages.explain import TERMS

    rows = [f"| {word} | {_cell(TERMS[word].rstrip('.'))} |" for word in WORDS]
    return block(INDEX.read_text(encoding="utf-8"), "words", "\n".join(["| word | meaning |", "|---|---|", *rows]))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def printed(*commands: str, exit_code: int = 0) -> str:
    """Return what the last command prints. The commands run in a folder with the fixtures, negatives/llm.jsonl, and the
    example report without its ablations as secid-runs/NAME.
    """
    from secid.cli.app import main as secid

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        Path("fixtures").symlink_to(ROOT / "fixtures", target_is_directory=True)
        Path("negatives").mkdir()
        Path("negatives/llm.jsonl").write_bytes((ROOT / "fixtures/sources/poisoned.jsonl").read_bytes())
        example = json.loads(EXAMPLE.read_text(encoding="utf-8"))
        del example["analyses"]["ablations"]
        Path("secid-runs/NAME").mkdir(parents=True)
        Path("secid-runs/NAME/report.json").write_text(json.dumps(example), encoding="utf-8")
        Path("secid-runs/NAME/negatives.parquet").touch()
        for command in commands:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = secid(shlex.split(command)[1:])
            if code not in (0, exit_code):
                raise SystemExit(err.getvalue())
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def first_output() -> str:
    """Return what the README's first command prints, with the findings of the first source only."""
    output = printed("secid report secid-runs/NAME")
    head, found, findings = re.split(r"(\nFindings.*, and what to run\n)", output, maxsplit=1)
    first = re.split(r"\n(?=\S)", findings)[0]
    return f"{head}{found}{first}\n[…]\n{output.splitlines()[-1]}"


def gate_output() -> str:
    """Return what the gate prints about a rejected source, up to the first example."""
    beginning, example = re.split(r"\n(?= +negatives/llm)", printed(*GATE_COMMANDS, exit_code=1), maxsplit=2)[:2]
    return f"{beginning}\n{example}\n[…]"


def probe_output() -> str:
    """Return what a probe of too few queries prints."""
    return printed(f"secid probe {TWO_SOURCES}")


OUTPUTS = {README: first_output, GATE_PAGE: gate_output, PROBE_PAGE: probe_output}
"""The pages with printed output, and the function that makes it."""


def with_output(page: Path) -> str:
    """Return a page with its current output."""
    return block(page.read_text(encoding="utf-8"), "output", f"```text\n{OUTPUTS[page]()}\n```")


def probe_page() -> str:
    """Return probe.md with a sample of a probe that ranks its sources: its first two sentences and its table."""
    beginning, table, _ = PROBE_SNAPSHOT.read_text(encoding="utf-8").split("\n\n")
    sentences = beginning.split("\nThere is no control")[0]
    sample = f"```text\n{sentences}\n[…]\n\n{table}\n[…]\n```"
    return block(PROBE_PAGE.read_text(encoding="utf-8"), "sample", sample)


def main(arguments: list[str]) -> None:
    """Write the pages."""
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
    FINDINGS_PAGE.write_text(findings_page(), encoding="utf-8")
    INDEX.write_text(index(), encoding="utf-8")
    PROBE_PAGE.write_text(probe_page(), encoding="utf-8")
    if "--output" in arguments:
        for page in OUTPUTS:
            page.write_text(with_output(page), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
