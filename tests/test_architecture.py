"""The import layers of the package, and the imports that must stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "secid"
TOOLS = ("export", "gating", "mining", "probing", "shards")
LEVELS = {
    "errors": 0,
    "arrays": 1, "parallel": 1, "progress": 1, "files": 1, "records": 1, "settings": 1,
    "results": 2, "measure": 2,
    "read": 3, "encode": 3,
    "pool": 4, "write": 4,
    "triplets": 5,
    "findings": 6,
    "analyses": 7,
    "pages": 8,
    "notebook": 9, "run_folder": 9,
    "scoring": 10,
    "tools": 11, **{f"tools.{name}": 11 for name in TOOLS},
    "api": 12,
    "cli": 13,
    "__main__": 14, "__init__": 14,
}  # fmt: skip
FORBIDDEN = {
    "results": {"torch", "pyarrow", "transformers"},
    "pages": {"torch", "pyarrow", "transformers"},
    "measure": {"pathlib", "io", "os", "pyarrow"},
    "read": {"torch", "transformers"},
}


def room(path: Path, root: Path) -> str:
    """Return the name in LEVELS of a file's folder. Each tool counts separately."""
    return room_of(path.relative_to(root).with_suffix("").parts)


def room_of(parts: Sequence[str]) -> str:
    n = 2 if parts[0] == "tools" and len(parts) > 1 and parts[1] != "__init__" else 1
    return ".".join(parts[:n])


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules that a file imports anywhere outside type-checking blocks."""
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(
            node, ast.stmt | ast.mod | ast.ExceptHandler | ast.match_case
        ):  # expressions contain no statements
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        own = room(path, root)
        for module in imports(path):
            if any(module == name or module.startswith(name + ".") for name in FORBIDDEN.get(own, ())):
                found.append(f"{path.relative_to(root)} imports {module}")
            parts = module.split(".")
            if parts[0] != "secid" or len(parts) < 2 or own in ("__init__", "__main__"):
                continue
            other = room_of(parts[1:])
            if other in LEVELS and other != own and LEVELS[other] >= LEVELS[own]:
                found.append(f"{path.relative_to(root)} imports {module}, which is not below it")
    return found


def test_modules_import_only_lower_levels():
    assert violations(PACKAGE) == []


def test_every_room_has_a_level():
    rooms = {room(path, PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert rooms <= LEVELS.keys()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("measure/gates.py", "from secid.scoring import run"),
        ("read/reader.py", "from secid.pool import tokens"),
        ("pages/page.py", "import torch"),
        ("pool/plan.py", "def late():\n    import secid.cli.app"),
        ("scoring/run.py", "from secid.tools.gating import baseline"),
        ("run_folder/write.py", "from secid import tools"),
        ("tools/mining/find.py", "from secid.tools.export import select"),
        ("tools/export/select.py", "def late():\n    from secid.api import score"),
    ],
)
def test_an_import_upward_or_sideways_is_noticed(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line, encoding="utf-8")
    assert violations(tmp_path)


KNOW_TOOLS = ("__init__", "api", "cli")
"""Modules and folders that may name tools, because they hold the tools' functions and commands."""


def repeated_classes(root: Path) -> list[str]:
    """Return class names that more than one module defines."""
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
    names = Counter(name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE))
    return sorted(name for name, n in names.items() if n > 1)


def test_a_class_name_has_one_meaning():
    assert repeated_classes(PACKAGE) == []


def test_a_second_meaning_is_noticed(tmp_path):
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("class Part:\n    pass\n")
    assert repeated_classes(tmp_path) == ["Part"]


def tools_named(root: Path) -> list[str]:
    """Return the places where the core, or another tool, names a tool, for a type or for an import by name."""
    found = []
    for path in sorted(root.rglob("*.py")):
        own = room(path, root)
        named = {f"tools.{name}" for name in re.findall(r"secid\.tools\.(\w+)", path.read_text(encoding="utf-8"))}
        found += [f"{path.relative_to(root)} names {name}" for name in sorted(named - {own}) if own not in KNOW_TOOLS]
    return found


def test_neither_the_core_nor_another_tool_names_a_tool():
    assert tools_named(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("pages/gate_page.py", "if TYPE_CHECKING:\n    from secid.tools.gating.checks import Check"),
        ("scoring/run.py", "import_module('secid.tools.shards.merge')"),
        ("tools/mining/find.py", "if TYPE_CHECKING:\n    from secid.tools.export.left_out import Rule"),
    ],
)
def test_a_tool_that_is_named_is_noticed(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line, encoding="utf-8")
    assert tools_named(tmp_path)


HEAVY = ("torch", "transformers", "pyarrow", "numpy", "scipy")
PROBE = f"""
import sys
{{code}}
print(sorted(name for name in {HEAVY!r} if name in sys.modules))
"""


def loaded_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


RUNS_WHAT_IT_READS = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SUSPECT = re.compile("|".join([*RUNS_WHAT_IT_READS, r"torch\.load", "allow_pickle"]))
"""Text in every file that can have one of these problems."""


def unsafe(path: Path) -> list[str]:
    """Return the places where a file could execute data that it reads: imports, and loaders without their safe form."""
    if SUSPECT.search(path.read_text(encoding="utf-8")) is None:
        return []
    found = [f"imports {module}" for module in imports(path) if module.split(".")[0] in RUNS_WHAT_IT_READS]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if called == "torch.load" and given.get("weights_only") != "True":
            found.append(f"{called} without weights_only=True")
        if called.startswith("np.") and given.get("allow_pickle", "False") != "False":
            found.append(f"{called} with allow_pickle")
    return [f"{path.name}: {what}" for what in found]


def test_nothing_that_is_read_can_run():
    root = PACKAGE.parent
    files = [*PACKAGE.rglob("*.py"), *(root / "tests").rglob("*.py"), *(root / "docs").rglob("*.py")]
    assert [problem for path in files for problem in unsafe(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from marshal import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_could_run_is_noticed(tmp_path, line):
    path = tmp_path / "part.py"
    path.write_text(line, encoding="utf-8")
    assert unsafe(path) != []


def test_help_loads_nothing_heavy():
    words = (["--help"], ["score", "--help"], ["gate", "--help"])
    assert loaded_by(f"from secid.cli.app import main\nfor words in {words!r}: main(words)") == "[]"


def test_policy_errors_load_nothing_heavy(tmp_path):
    names = [str(tmp_path / name) for name in ("unknown.toml", "broken.toml", "missing.toml")]
    Path(names[0]).write_text("[gate]\nminimum_record = 1\n", encoding="utf-8")
    Path(names[1]).write_text("[gate\n", encoding="utf-8")
    words = ["gate", "new.jsonl", "--against", "baseline.json", "--policy"]
    code = f"from secid.cli.app import main\nfor name in {names!r}: assert main([*{words!r}, name]) == 2"
    assert loaded_by(f"{code}\nassert 'rich.console' not in sys.modules") == "[]"


def test_wrong_numbers_of_a_probe_load_nothing_heavy(tmp_path):
    words = ["probe", str(tmp_path / "a.jsonl"), "--encoder", "http://localhost", "--steps"]
    code = f"from secid.cli.app import main\nfor n in ('0', '1'): assert main([*{words!r}, n]) == 2"
    assert loaded_by(code) == "['numpy']"


def test_the_public_names_are_there_and_loading_the_package_loads_nothing_heavy():
    assert loaded_by("import secid\nassert all(name in dir(secid) for name in ('score', 'gate', 'check'))") == "[]"
    found = loaded_by("import secid\nfor name in secid.__all__: getattr(secid, name)")
    assert "torch" not in found
    assert "pyarrow" not in found


def test_schemas_load_nothing_heavy():
    names = ("gate", "policy", "baseline", "probe")
    code = f"from secid.cli.app import main\nfor name in {names!r}: main(['schema', name])"
    assert loaded_by(code) == "[]"
    assert loaded_by("from secid.cli.app import main\nmain(['schema', 'report'])") == "['numpy']"


def test_the_help_test_can_fail():
    assert loaded_by("from secid.cli.app import main\nimport numpy") == "['numpy']"


def test_pages_are_made_without_torch_and_pyarrow():
    found = loaded_by("import secid.analyses.registry, secid.pages.formats, secid.pages.screen")
    assert "torch" not in found
    assert "pyarrow" not in found
