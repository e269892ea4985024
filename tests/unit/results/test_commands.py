"""Commands on a source: no two sources share a file, and a name that no line can hold has none."""

from __future__ import annotations

import shlex

import pytest

from secid.results.commands import flagged_command, no_command, repair_command, with_run_folder
from secid.results.inputs import InputFile

NAMES = ["a", "a b", "a_b", "a/b", "a:b", "-a", "_a", "ä", "a.b"]


def test_no_two_sources_share_a_file():
    for commands in (
        [repair_command("run", name, ("repeat",), "x.jsonl") for name in NAMES],
        [flagged_command("run", name, "hub") for name in NAMES],
    ):
        files = [shlex.split(command)[-1] for command in commands]
        assert len(set(files)) == len(NAMES)
        assert not any(set(file) & set("/: '") or file.startswith("-") for file in files)
    assert repair_command("run", "a_b", ("repeat",), "x.parquet").endswith("-o a_b-clean.parquet")


@pytest.mark.parametrize("name", ["x" * 240, "ä" * 120])
def test_a_long_name_fits_a_file_s(name):
    files = [shlex.split(flagged_command("run", name + end, "random_like"))[-1] for end in "ab"]
    assert len(set(files)) == 2
    assert max(len(f"{file}.left-out.jsonl".encode()) for file in files) < 230


@pytest.mark.parametrize(("name", "read_once", "has_command"), [
    ("a b", False, True),
    ("می‌خواهم", False, True),
    ("a\x1b[31m", False, False),
    ("a\u202eb", False, False),
    ("a\nb", False, False),
    ("a", True, False),
])  # fmt: skip
def test_a_source_without_a_command_says_why(name, read_once, has_command):
    file = InputFile(path="-" if read_once else "a.jsonl", container="jsonl", schema="triplet", mapping="")
    assert (no_command(name, [file]) == "") == has_command


def test_a_command_names_the_folder_as_it_is_typed():
    command = repair_command("runs/a", "a b", ("repeat",), "x.jsonl")
    assert shlex.split(with_run_folder(command, "-runs/x y"))[2] == "./-runs/x y"
    assert with_run_folder(with_run_folder(command, "/abs"), "runs/a") == command


def test_a_command_names_a_file_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for end in ("clean.jsonl.gz", "clean-2.jsonl.gz", "clean-3.jsonl.gz"):
        command = repair_command("run", "a", ("repeat",), "a.jsonl.gz")
        assert command.endswith(f"-o a-{end}")
        (tmp_path / f"a-{end}").touch()
