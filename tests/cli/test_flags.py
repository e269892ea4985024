"""Flags and help: what score offers, how it is grouped, and that every flag that secid names can be typed."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from secid import api
from secid.cli.app import COMMANDS, program
from secid.results import Run
from secid.results.catalogue import CAUTIONS, FINDINGS
from secid.settings import DEFAULTS, FIELDS, GROUPS, TYPES, flag_of, resolve
from tests.cli.conftest import ROOT

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OF_OTHERS = {"--help", "--force-reinstall", "--no", "--long"}
"""Flags of typer and pip; and parts of this program's text that only look like flags."""
SCREEN_LINES, SCREENS = 40, 2
CHOICES = {("gate", "annotations"), ("schema", "document")}
"""Options whose help lists the values themselves."""


def commands() -> Iterator[Any]:
    pending = [get_command(program())]
    while pending:
        command = pending.pop()
        yield command
        pending += getattr(command, "commands", {}).values()


@cache
def known_flags() -> frozenset[str]:
    return frozenset(
        flag for command in commands() for item in command.params for flag in (*item.opts, *item.secondary_opts)
    )


def flags_of(name: str) -> list[str]:
    (command,) = (command for command in commands() if command.name == name)
    return [item.name for item in command.params if item.param_type_name == "option"]


def test_score_has_39_flags():
    """Another flag needs a reason: settings that few people change have none (--set)."""
    assert len(flags_of("score")) == 39
    assert set(flags_of("score")) - set(flags_of("ablate")) == {
        "ablate",
        "shard",
        "state_dir",
        "prepare",
        "on",
        "shards",
    }


@pytest.mark.parametrize("name", ["score", "ablate", "check", "gate", "encoder"])
def test_help_fits_two_screens_of_80_columns_in_groups(name, invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = invoke(name, "--help")
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert len(lines) <= SCREENS * SCREEN_LINES
    assert max(map(len, lines)) <= 80
    assert "METHOD" not in outcome.out
    sections = [line.removesuffix(":") for line in lines if re.fullmatch(r"\w+:", line)]
    groups = [name for name in sections if name in GROUPS]
    assert groups == [group for group in GROUPS if group in groups]
    assert set(sections) - {*GROUPS, "Gate"} == {"Options"}


def test_every_value_has_a_name_in_capitals():
    unnamed = {
        (command.name, item.name)
        for command in commands()
        for item in command.params
        if not getattr(item, "is_flag", False) and not re.search(r"[A-Z]", item.metavar or "")
    }
    assert unnamed <= CHOICES


def texts_in(path: Path) -> Iterator[str]:
    """The strings of a module, in order."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown_flags(texts: Iterator[str]) -> set[str]:
    return {flag for text in texts for flag in FLAG.findall(text)} - known_flags() - OF_OTHERS


def test_every_flag_that_a_message_names_exists():
    modules = [*(ROOT / "secid").rglob("*.py")]
    assert {path.name: unknown_flags(texts_in(path)) for path in modules if unknown_flags(texts_in(path))} == {}


def test_a_flag_that_does_not_exist_would_be_noticed():
    assert unknown_flags(iter(["or --allow-pickle, if you trust it", "give --max-length 3"])) == {"--allow-pickle"}


def example(name: str) -> Any:
    """A value of a setting other than its default."""
    kind, default = TYPES[name], getattr(DEFAULTS, name)
    choices = [choice for part in (kind, *get_args(kind)) for choice in get_args(part) if isinstance(choice, str)]
    if choices:
        return next(choice for choice in choices if choice != default)
    if bool in (kind, *get_args(kind)):
        return not default
    if name == "block":
        return "a=x,y"
    return "text" if str in (kind, *get_args(kind)) else 0.75 if float in (kind, *get_args(kind)) else 700


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "encoder"])
def test_a_setting_typed_as_it_is_named_has_its_value(name, invoke, monkeypatch):
    given: dict[str, Any] = {}

    def score(*_: object, **settings: Any) -> Run:
        given.update({key: value for key, value in settings.items() if key in FIELDS})
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "score", score)
    assert invoke("score", "x.jsonl", *shlex.split(flag_of(name, example(name)))).code == 130
    found = getattr(resolve(given, environment={}).values, name)
    assert found == (("a=x,y",) if name == "block" else example(name))


@pytest.mark.parametrize("command", ["", "cache"])
def test_the_line_of_a_command_is_whole(command, invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = invoke(*command.split(), "--help").out.partition("Commands:")[2]
    assert listed.strip()
    assert all(line.endswith(".") and "..." not in line for line in listed.strip().splitlines())


def test_every_command_is_listed(invoke):
    lines = invoke("--help").out.splitlines()
    assert {line.split()[0] for line in lines if re.match(r"  [a-z]+ ", line)} >= set(COMMANDS)


@pytest.mark.parametrize("name", [name for name in FIELDS if not FIELDS[name].metadata["group"]])
def test_a_flag_of_a_setting_without_one_is_answered_with_what_to_type(name, invoke):
    for flag, value in ((name, "VALUE"), (f"no_{name}", "no")):
        outcome = invoke("score", "a.jsonl", f"--{flag.replace('_', '-')}")
        assert outcome.code == 2
        assert f"--set {name}={value}" in outcome.err


def test_explain_prints_the_same_facts_as_json(invoke):
    everything = json.loads(invoke("explain", "--json").out)
    assert {*FINDINGS, *CAUTIONS} <= {*everything}
    (facts,) = json.loads(invoke("explain", "hub", "--json").out).values()
    assert facts == everything["hub"]
    printed = "".join(invoke("explain", "hub").out.split())
    assert all("".join(text.split()) in printed for text in facts.values())
