"""The wheel holds the package's files and no others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import secid

ROOT = Path(__file__).resolve().parents[1]
ACTIONS = re.compile(r"uses: (actions/\S+)")
COME_WITH_OTHERS = {"markupsafe": "jinja2", "pydantic_core": "pydantic", "typing_extensions": "pydantic"}
"""Packages that belong to another package's interface: its escaped text, its JSON, its types."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with the installed build backend, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    packed = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    source = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "secid").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == source
    assert "secid/py.typed" in packed


def test_templates_are_in_the_wheel(wheel):
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "secid").rglob("templates/*") if path.is_file()}
    assert {"secid/pages/templates/page.html"} <= templates
    assert templates <= set(wheel.namelist())


def test_the_wheel_names_version_licence_and_program(wheel):
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if name.split("/")[0].endswith(".dist-info")}
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert f"Version: {secid.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0 AND BSD-3-Clause\n" in metadata
    assert "# secid" in metadata  # the README is the long description
    assert b"secid = secid.cli.app:entry" in wheel.read(f"{folder}/entry_points.txt")
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    assert f"{folder}/licenses/secid/findings/languages.LICENSE" in wheel.namelist()


def test_the_version_is_in_two_places_that_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == secid.__version__
    assert f"\n## {secid.__version__}\n" in (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")


def test_the_wheel_is_tried_on_every_system_and_python_that_is_promised():
    """It runs with the oldest and newest dependencies. Actions have the versions of the gate's action and example."""
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    matrix = {name: job["strategy"]["matrix"] for name, job in workflow["jobs"].items()}
    assert list(matrix) == ["oldest", "newest"]
    for own in matrix.values():
        assert {name.split("-")[0] for name in own["os"]} == {"ubuntu", "macos", "windows"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [f">={version}" for version in matrix["oldest"]["python"]] == [project["requires-python"]]
    promised = {line.rsplit(" ", 1)[1] for line in project["classifiers"] if "Python :: 3." in line}
    assert promised <= set(matrix["newest"]["python"])
    assert workflow[True]["schedule"]  # YAML reads `on` as a truth value
    assert set(ACTIONS.findall(text)) <= known_actions()
    wrong = subprocess.run(["bash", ROOT / ".ci" / "wheel", "all"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (2, "usage: .ci/wheel oldest|newest [PYTHON]\n")


def known_actions() -> set[str]:
    """Return the actions that the gate's action and its example use, with their versions."""
    elsewhere = [*(ROOT / ".github" / "actions").rglob("action.yml"), ROOT / "docs" / "ci" / "github.yml"]
    return {action for path in elsewhere for action in ACTIONS.findall(path.read_text(encoding="utf-8"))}


def test_pull_requests_run_the_tests_on_every_python_that_is_promised():
    """The workflow may only read and has no secrets, because it runs the code of a pull request."""
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"pull_request": None, "push": {"branches": ["main"]}}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    assert set(ACTIONS.findall(text)) <= known_actions()
    jobs = workflow["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "fast": None,
        "linux": "fast",
        "elsewhere": "fast",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = {line.rsplit(" ", 1)[1] for line in project["classifiers"] if "Python :: 3." in line}
    assert set(jobs["linux"]["strategy"]["matrix"]["python"]) == promised
    assert jobs["linux"]["steps"][-1]["run"] == "bash .ci/run"  # which runs the README's test command
    assert [name for name, job in jobs.items() if job.get("continue-on-error")] == ["elsewhere"]
    systems = {name.split("-")[0] for name in jobs["elsewhere"]["strategy"]["matrix"]["os"]}
    assert {"macos", "windows"} <= systems


def test_hooks_run_what_is_installed():
    """All hooks are local, so they download nothing. The fast tests run before a push."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    assert set(hooks) == {"ruff", "ruff-format", "mypy", "fast-tests"}
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    assert (hooks["fast-tests"]["entry"], hooks["fast-tests"]["stages"]) == ("pytest -q -m fast", ["pre-push"])


def test_packages_that_the_code_imports_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["llm"], *extras["probe"], *extras["ray"]]
    declared = {re.split(r"[<>=!~\[; ]", item, maxsplit=1)[0].replace("-", "_") for item in needed}
    imported = set()
    for path in (ROOT / "secid").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"secid"}
    assert {"torch", "pyarrow"} <= foreign
    assert foreign - COME_WITH_OTHERS.keys() <= declared
    assert set(COME_WITH_OTHERS.values()) <= declared
