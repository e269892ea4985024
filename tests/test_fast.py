"""`pytest -m fast` reaches every folder of the package, and imports no other test file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_ignore_collect
from tests.fast import FAST, SLOW, TESTS, is_fast

ROOT = TESTS.parent
PACKAGE = ROOT / "secid"
MODULES = [*PACKAGE.glob("*/*.py"), *PACKAGE.glob("tools/*/*.py")]
FOLDERS = sorted({path.parent.relative_to(PACKAGE).as_posix() for path in MODULES} - {"tools"})
HEAVY = {"transformers", "sentence_transformers", "datasets", "playwright"}


def fast_files() -> list[Path]:
    return [path for path in sorted(TESTS.rglob("test_*.py")) if is_fast(path)]


def test_every_file_that_is_named_is_there_and_named_once():
    named = [*FAST, *(name for names in SLOW.values() for name in names)]
    assert [name for name in named if not (TESTS / name).exists()] == []
    assert len(set(named)) == len(named)
    assert all(not is_fast(TESTS / name) for names in SLOW.values() for name in names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_the_package_has_fast_tests(folder: str):
    """tests/unit mirrors the folders of the package; tests/cli tests commands."""
    own = TESTS / ("cli" if folder == "cli" else f"unit/{folder}")
    assert any(path.is_relative_to(own) for path in fast_files())


def imported(body: list[ast.stmt], package: str) -> Iterator[str]:
    """Yield what a module imports when it is loaded: full names, also of what could be an object in a module.

    body : statements outside functions. package : name of the module's package, for relative imports.
    """
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
            module = ".".join([*above, *filter(None, [statement.module])])
            yield from (f"{module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from imported(statement.orelse, package)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in ("body", "orelse", "finalbody", "handlers"):
                yield from imported(getattr(statement, name, []), package)


@cache
def imports_of(path: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Return the packages that are not ours and our files that a file imports."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    others, ours = set(), set()
    for name in imported(ast.parse(path.read_text(encoding="utf-8")).body, package):
        first, *rest = name.split(".")
        if first not in ("secid", "tests"):
            others.add(first)
            continue
        for end in range(len(rest) + 1):
            place = ROOT.joinpath(first, *rest[:end])
            ours |= {file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()}
    return frozenset(others), frozenset(ours)


def heavy_imports(path: Path) -> set[str]:
    """Return which of HEAVY a test file imports, through our own files and every conftest.py above it."""
    waiting = [path, *(folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").is_file())]
    seen, others = set(waiting), set()
    while waiting:
        found, ours = imports_of(waiting.pop())
        others |= found
        waiting += ours - seen
        seen |= ours
    return others & HEAVY


def test_fast_tests_import_nothing_heavy():
    assert {path.name: heavy for path in fast_files() if (heavy := heavy_imports(path))} == {}


def test_a_heavy_import_would_be_noticed():
    slow = [TESTS / name for name in next(iter(SLOW.values()))]
    assert sum(bool(heavy_imports(path)) for path in slow) > 3


@pytest.mark.parametrize("mark", ["fast", ""])
def test_only_fast_files_are_collected_for_fast_tests(mark: str):
    config = SimpleNamespace(getoption=lambda name: {"markexpr": mark}[name])
    files = sorted(TESTS.rglob("test_*.py"))
    collected = [path for path in files if pytest_ignore_collect(path, config) is None]
    assert collected == (fast_files() if mark else files)
