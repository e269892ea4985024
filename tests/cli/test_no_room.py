"""A full work directory and a limit on file sizes are reported, and leave no half-written file."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys

import pytest

from secid import api
from secid.errors import OutputError
from secid.files import work_folder
from secid.write.writer import new_files, writing
from tests.cli.conftest import child_environment, listing, rows, write_rows
from tests.cli.test_select_drop import planted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")
LIMIT = 20 * 1024


def test_a_limit_on_the_size_of_files_is_not_an_internal_error(tmp_path):
    write_rows(tmp_path / "in.jsonl", rows(400, 4))
    child = subprocess.run(
        [sys.executable, "-m", "secid", "check", "in.jsonl", "-o", "check.html"],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
    )
    assert child.returncode == 2, child.stderr
    assert "internal error" not in child.stderr
    assert "ulimit" in child.stderr
    assert "Traceback" not in child.stderr
    assert listing(tmp_path) == ["in.jsonl"]


def test_a_full_work_directory_is_not_blamed_on_the_output(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError) as caught, work_folder(tmp_path) as work, new_files(tmp_path / "copy.jsonl"):
        raise full
    assert caught.value.where == str(work)
    with pytest.raises(OutputError) as caught, new_files(tmp_path / "copy.jsonl"), writing(tmp_path / "copy.jsonl"):
        raise full
    assert caught.value.where == str(tmp_path / "copy.jsonl")
    assert listing(tmp_path) == []


def test_select_blames_the_work_directory(tmp_path, tiny, monkeypatch):
    write_rows(tmp_path / "in.jsonl", planted())
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("secid.tools.export.select.read_facts", full)  # before anything is written
    with pytest.raises(OutputError) as caught:
        api.select("run", "out.jsonl", drop="preamble")
    assert "out.jsonl" not in str(caught.value)
    assert listing(tmp_path) == ["in.jsonl", "run"]
