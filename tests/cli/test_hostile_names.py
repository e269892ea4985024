"""Names and texts from files: no line that secid writes is a command of a CI service, a verdict or an escape code."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from secid.cli.command import print_lines, print_stderr
from secid.cli.console import stdout
from secid.pages.gate_ci import github_annotations, to_junit
from secid.pages.screen import Line, print_page, screen
from secid.pages.text import json_shown, log_line
from secid.records import has_hidden_characters
from tests.cli.conftest import Invoke, rows, write_rows
from tests.unit.tools.gating.test_pages import hostile

PACKAGE = Path(__file__).resolve().parents[2] / "secid"
HOSTILE = (
    "::error::pwned",
    "\u3000::set-output name=a::b",
    "##[error]pwned",
    "VERDICT: pass n_sources=1",
    "\u00a0 VERDICT: usable",
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b31mC1",
    "\u202egnp.exe\u2066",
    "line\u2028break\u2029\x85\x0b\x0c end",
    "\ud800",
)


def is_safe(line: str) -> bool:
    """Return True if a line is neither a command nor a verdict, and has no invisible character."""
    start = line.lstrip()
    return not (start.startswith(("::", "VERDICT:")) or "##[" in line or has_hidden_characters(line))


def lines_of(text: str) -> list[str]:
    """The lines that a terminal or a runner sees; VERDICT as the last line of stderr is secid's own."""
    return text.splitlines()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_log_line_is_safe(text):
    assert not is_safe(text)
    assert is_safe(log_line(text))
    assert log_line(log_line(text)) == log_line(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_json_is_the_same_document_without_what_a_line_may_not_hold(text):
    document = json.dumps({"name": [text]}, indent=2, ensure_ascii=False)
    shown = json_shown(document)
    assert json.loads(shown) == json.loads(document)
    assert all(map(is_safe, shown.split("\n")))


@pytest.mark.parametrize("word", ["VERDICT: pass", "::error::x", "##[error]x"])
@pytest.mark.parametrize("indent", [0, 4])
def test_no_wrapped_line_begins_with_a_command_or_a_verdict(monkeypatch, word, indent):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for n_before in range(60, 81):
            print_page(stdout(), screen([Line(f"{'x' * n_before} {word}", indent=indent)]))
    assert len(lines_of(out.getvalue())) > 21
    assert all(map(is_safe, lines_of(out.getvalue())))


@pytest.mark.parametrize("text", HOSTILE)
def test_lines_of_commands_are_safe(text, capsys):
    print_lines(text, f"name {text}")
    print_stderr(f"secid: {text}\n  {text}\n{text}")
    out, err = capsys.readouterr()
    assert all(map(is_safe, lines_of(out) + lines_of(err)))
    assert (len(lines_of(out)), len(lines_of(err))) == (2, 3)


NAMES = ("a\n::error::pwned", "b\x1b[31m\u202e", "c\nVERDICT: pass", "d\n  ##[error]x")


def test_log_and_terminal_of_a_score(invoke: Invoke, tiny, tmp_path):
    paths = [write_rows(tmp_path / f"{name}.jsonl", rows(8)) for name in NAMES]
    scored = invoke("score", *paths, "--encoder", tiny, "--run", "run")
    assert scored.code == 0
    log = Path("run/log.txt").read_bytes().decode("utf-8")
    assert "pwned" in log
    *err, verdict = lines_of(scored.err)
    assert verdict.startswith("VERDICT: ")
    assert all(map(is_safe, lines_of(log) + lines_of(scored.out) + err))
    as_json = invoke("score", *paths, "--encoder", tiny, "--run", "again", "--json")
    assert all(map(is_safe, lines_of(as_json.out)))
    assert {source["name"] for source in json.loads(as_json.out)["sources"]} >= {NAMES[0]}


def test_errors_and_wrong_usage(invoke: Invoke):
    for arguments in (
        ("check", "missing\n::error::pwned.jsonl"),
        ("score", "--x\n::error::pwned"),
        ("cache", "info", "--set", "cache_dir=a\n::error::pwned"),
        ("report", "a\n  ::error::pwned"),
        ("explain", "\n::error::pwned"),
    ):
        result = invoke(*arguments)
        assert all(map(is_safe, lines_of(result.out) + lines_of(result.err))), arguments


def test_an_internal_error_is_safe(invoke: Invoke, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("\n::error::pwned\x1b[31m")

    monkeypatch.setattr("secid.cli.app.click_program", fail)
    result = invoke("doctor")
    assert result.code == 3
    assert "pwned" in result.err
    assert all(map(is_safe, lines_of(result.err)))


def test_rows_and_copies_of_hostile_texts(invoke: Invoke, tiny, tmp_path):
    items = [{**row, "neg": [*row["pos"], *HOSTILE[:-1]]} for row in rows(8)]
    source = write_rows(tmp_path / "a.jsonl", items)
    assert invoke("score", source, "--encoder", tiny, "--run", "run", "--quiet").code == 0
    shown = invoke("flagged", "run", "--finding", "false_negative", "-o", "-")
    assert shown.code == 0
    assert shown.out.count("\n") == 8
    assert all(map(is_safe, lines_of(shown.out)))


WRITERS = {
    "pages/screen.py",
    "cli/gate.py",  # GitHub's commands, which pages/gate_ci.py makes of plain texts
    "cli/console.py",  # notes and progress
    "cli/command.py",  # messages through the sanitiser, and the verdict, for scripts
}  # fmt: skip
CONSTANT = {"cli/app.py": "version"}
"""Functions that print nothing but our own words."""


def writes(tree: ast.AST) -> list[str]:
    """Calls that put text on standard output or standard error, as they are written."""
    found = []
    for node in ast.walk(tree):
        last = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if last not in ("print", "print_exc", "echo", "secho", "write"):
            continue
        called = ast.unparse(node.func)
        empty = called.endswith(".print") and not node.args
        if called in ("print", "typer.echo", "typer.secho", "click.echo", "traceback.print_exc") and not empty:
            found.append(called)
        if called.endswith((".print", "stdout.write", "stderr.write", "stream.write")) and not empty:
            found.append(called)
    return found


def test_nothing_else_writes_to_a_terminal():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        text = path.read_text(encoding="utf-8")
        if not re.search(r"print|echo|(stdout|stderr|stream)\.write", text):
            continue
        tree = ast.parse(text)
        if name in CONSTANT:
            tree.body = [node for node in tree.body if CONSTANT[name] not in ast.unparse(node)]
        if name not in WRITERS and (calls := writes(tree)):
            found[name] = calls
    assert found == {}


def test_the_search_for_writers_finds_them():
    for line in ("print(x)", "typer.echo(x)", "sys.stdout.write(x)", "console.print(x)", "traceback.print_exc()"):
        assert writes(ast.parse(line)), line
    assert writes(ast.parse("console.print()")) == []


def test_annotations_and_junit_of_hostile_names():
    verdict = hostile()
    for line in github_annotations(verdict):
        assert line.startswith(("::error ", "::warning ", "::notice "))
        assert not has_hidden_characters(line)
    text = to_junit(verdict)
    ElementTree.fromstring(text)
    assert all(map(is_safe, text.splitlines()))
