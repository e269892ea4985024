"""`pytest -m fast` reaches every folder of the package, and imports no other test file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fast import FAST, SLOW, TESTS, is_fast

ROOT = TESTS.parent
PACKAGE = ROOT / "secid"
FOLDERS = sorted(path.parent.name for path in [*PACKAGE.glob("*/*.py"), *PACKAGE.glob("tools/*/*.py")])
HEAVY = ("transformers", "sentence_transformers", "datasets", "playwright")
COLLECT = f"""
import sys, pytest
code = pytest.main(["-q", "--collect-only", "-m", "fast", "--assert=plain"])
assert code == 0, code
print("loaded:", [name for name in {HEAVY!r} if name in sys.modules])
"""


def fast_files() -> list[Path]:
    return [path for path in sorted(TESTS.rglob("test_*.py")) if is_fast(path)]


def test_every_file_that_is_named_is_there_and_named_once():
    named = [*FAST, *(name for names in SLOW.values() for name in names)]
    assert [name for name in named if not (TESTS / name).exists()] == []
    assert len(set(named)) == len(named)
    assert all(not is_fast(TESTS / name) for names in SLOW.values() for name in names)


@pytest.mark.parametrize("folder", dict.fromkeys(name for name in FOLDERS if name != "tools"))
def test_every_folder_of_the_package_has_fast_tests(folder: str):
    """tests/unit mirrors the folders of the package and of the tools; tests/cli tests commands."""
    own = TESTS / ("cli" if folder == "cli" else f"unit/{folder}")
    assert any(path.is_relative_to(own) for path in fast_files())


def test_fast_tests_are_found_without_importing_the_others():
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True)
    *listed, loaded = done.stdout.strip().splitlines()
    assert loaded == "loaded: []", done.stdout[-2000:] + done.stderr
    found = {line.split("::")[0] for line in listed if "::" in line}
    assert found == {path.relative_to(ROOT).as_posix() for path in fast_files()}
