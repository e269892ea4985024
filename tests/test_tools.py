"""Each tool can be removed: without its folder, only its own commands and functions are missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from secid.cli.app import COMMANDS
from secid.cli.app import TOOLS as TOOL_OF
from tests.cli.gate.conftest import items, save_vectors
from tests.kills import fork
from tests.test_architecture import PACKAGE, TOOLS

ONE = {"one": 1.0}
FUNCTIONS: dict[str, dict[str, list[Any]]] = {
    "export": {
        "flagged": ["run", "empty", "rows"], "mix": ["run", ONE], "select": ["run", "copy"],
        "write_mixture": ["run", ONE, "copy"],
    },
    "gating": {"Baseline": [], "baseline": ["run"], "gate": [["a.jsonl"], "baseline.json"]},
    "mining": {"mine": [["any=random"], "out"], "mine_sweep": [["any=random"]]},
    "probing": {"probe": [["a.jsonl"], "encoder"]},
    "shards": {"merge": ["states"], "score_on_ray": [["a.jsonl"]], "score_shard": [["a.jsonl"]]},
}  # fmt: skip
"""Functions that each tool adds to the API, with arguments that reach the tool."""


def without_tool(copy: str, commands: list[list[str]], functions: dict[str, list[Any]]) -> list[Any]:
    """Return the exit codes and output of commands, and the refusals of functions, if a tool's folder is missing.

    All modules of the copy are imported again; libraries stay loaded.
    """
    for name in list(sys.modules):
        if re.match(r"secid($|\.)", name):
            del sys.modules[name]
    sys.path.insert(0, copy)
    os.chdir(copy)
    found = import_module("secid")
    main = import_module("secid.cli.app").main
    assert Path(str(found.__file__)).parent == Path(copy, "secid")
    said, refusals = [], {}
    for words in commands:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = main(words)
        said.append([code, out.getvalue(), err.getvalue()])
    for path in sorted(Path("secid").rglob("*.py")):
        if path.name != "__main__.py":
            import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    functions_found = {name: getattr(found, name) for name in found.__all__}
    for name, arguments in functions.items():
        try:
            functions_found[name](*arguments)
        except ImportError as error:
            refusals[name] = str(error)
    return [said, refusals]


def print_without_tools(arguments: list[str]) -> None:
    """Run all tools in one process, which loads the libraries once."""
    print(json.dumps([without_tool(*case) for case in json.loads(arguments[0])]))


def listed(text: str) -> set[str]:
    """Return the commands in a help text."""
    return set(re.findall(r"^  ([a-z]+)  ", text.split("Commands:")[1], re.MULTILINE))


def test_without_a_tool_only_its_own_commands_and_functions_are_missing(tmp_path):
    rows = items(8)
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    score = ["score", str(source), "--encoder", str(save_vectors(tmp_path / "v.npz", rows)), "--run", "run"]
    cases = []
    gone = {tool: [name for name in COMMANDS if TOOL_OF.get(name) == tool] for tool in TOOLS}
    for tool in TOOLS:
        shutil.copytree(PACKAGE, tmp_path / tool / "secid")
        shutil.rmtree(tmp_path / tool / "secid" / "tools" / tool)
        words = [["--help"], ["check", str(source)], score, [gone[tool][0]]]
        cases.append([str(tmp_path / tool), words, FUNCTIONS[tool]])
    child = fork([json.dumps(cases)], tmp_path, tmp_path / "said", print_without_tools)
    out, err = child.communicate()
    assert child.returncode == 0, err
    for tool, (said, refusals) in zip(TOOLS, json.loads(out.splitlines()[-1]), strict=True):
        helped, checked, scored, missing = said
        assert listed(helped[1]) == set(COMMANDS) - set(gone[tool])
        assert (checked[0], scored[0], missing[0]) == (0, 0, 2), said
        assert f"No such command '{gone[tool][0]}'" in missing[2]
        report = json.loads((tmp_path / tool / "run" / "report.json").read_text(encoding="utf-8"))
        assert report["sources"][0]["score"]["rank"] == 1
        assert refusals.keys() == FUNCTIONS[tool].keys()
        assert all(f"secid.tools.{tool}" in text for text in refusals.values())
