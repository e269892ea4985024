"""Work files: a full or closed disk is reported with its place and a remedy, everything else is left as it is."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from secid import api
from secid.errors import InputError, OutputError
from secid.files import UNLOCKED_SECONDS, WORK_PREFIX, partial_files, partial_of, work_folder
from secid.pool.texts import TextSpool
from secid.read.reader import temporary_database
from tests.unit.scoring.made_rows import clean_rows, write


def test_the_folder_is_empty_and_goes_with_the_block(tmp_path):
    with work_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert list(folder.iterdir()) == []
        (folder / "texts").write_text("text", encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_with_its_folder_and_a_remedy(number, tmp_path):
    with pytest.raises(OutputError) as caught, work_folder(tmp_path):
        raise OSError(number, "No space left on device")
    assert Path(caught.value.where).parent == tmp_path
    assert "TMPDIR" in str(caught.value)
    assert "Errno" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_database_is_reported_too(tmp_path):
    owner: set[str] = set()
    database = temporary_database(owner)
    database.execute("PRAGMA max_page_count=2")
    database.execute("CREATE TABLE pairs (text)")
    with pytest.raises(OutputError) as caught, work_folder(tmp_path):
        database.execute("INSERT INTO pairs VALUES (?)", ["x" * 100_000])
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert Path(caught.value.where).parent == tmp_path


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), sqlite3.OperationalError("syntax error")])
def test_other_errors_are_left_as_they_are(error, tmp_path):
    error.sqlite_errorcode = sqlite3.SQLITE_ERROR
    with pytest.raises(type(error)) as caught, work_folder(tmp_path):
        raise error
    assert caught.value is error


OLD = UNLOCKED_SECONDS * 2
HOLDER = """
import sys, time
from secid.files import UNLOCKED_SECONDS, WORK_PREFIX, work_folder
with work_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def aged(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    os.utime(folder, (time.time() - OLD, time.time() - OLD))
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_work_folders_of_killed_runs_are_removed_and_of_living_ones_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    children = [subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    living, dead = (aged(Path(child.stdout.readline().strip())) for child in children)
    (dead / "texts").write_text("text", encoding="utf-8")
    aged(dead)
    children[1].kill()
    children[1].wait()
    young = Path(tempfile.mkdtemp(prefix=WORK_PREFIX))
    others = [aged(tmp_path / name) for name in ("secid-another.machine-x", "other")]
    try:
        with work_folder() as folder:
            assert sorted(tmp_path.iterdir()) == sorted([living, young, *others, folder])
    finally:
        children[0].kill()
        for child in children:
            child.communicate()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: -1)
        with work_folder():
            assert living.is_dir()  # of another user, as far as this call can know
    with work_folder():
        assert not living.exists()


def test_errors_of_secid_pass():
    with pytest.raises(InputError), work_folder():
        raise InputError("cannot be read")


def test_no_place_for_a_folder_is_reported(tmp_path):
    with pytest.raises(OutputError) as caught, work_folder(tmp_path / "absent"):
        pass
    assert caught.value.where == str(tmp_path / "absent")
    assert "Errno" not in str(caught.value)


def test_no_usable_temporary_folder_is_reported(monkeypatch):
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(OutputError) as caught, work_folder():
        pass
    assert (caught.value.where, "TMPDIR" in str(caught.value)) == (None, True)


def test_check_reports_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "source.jsonl"
    write(path, clean_rows(40))

    def full(self: TextSpool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TextSpool, "_write", full)
    with pytest.raises(OutputError) as caught:
        api.check([Path(path)])
    assert caught.value.__cause__.errno == errno.ENOSPC


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked there")
def test_partial_files_of_killed_runs_are_removed_and_of_living_ones_kept(tmp_path):
    old = time.time() - OLD
    dead, other = partial_of(tmp_path / "a.jsonl"), tmp_path / ".mine.partial"
    for path in (dead, other):
        path.write_text("half", encoding="utf-8")
        os.utime(path, (old, old))
    with partial_files([tmp_path / "b.jsonl"]) as (living,):
        os.utime(living, (old, old))
        with partial_files([tmp_path / "c.jsonl"]) as (second,):
            assert sorted(tmp_path.iterdir()) == sorted([living, second, other])
    assert list(tmp_path.iterdir()) == [other]
