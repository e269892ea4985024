"""Print how large and how entangled the package is: lines, modules that one record passes through, repeated types.

    python -m tests.sizes [--tree PATH] [--encoder NAME] [--modules]

Everything but the trace comes from the source text. The trace scores 20 records in another process, with an encoder
that needs no network, and counts the modules in which a function ran. Code that runs on import does not count.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "fixtures" / "sources" / "bm25.jsonl.gz"
N_RECORDS = 20

TRACER = """
import json, runpy, sys, threading
root, out, *arguments = sys.argv[1:]
ran, other = set(), set()
def imported(frame):
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"] != "__main__"
def trace(frame, event, _):
    code = frame.f_code
    if code in ran or code in other:
        return
    own = code.co_filename.startswith(root) and code.co_filename.endswith(".py")  # templates are compiled as well
    if not own or code.co_name.startswith("<") or not code.co_flags & 1:
        other.add(code)
    elif not imported(frame):
        ran.add(code)
sys.argv = ["secid", *arguments]
threading.settrace(trace)
sys.settrace(trace)
try:
    runpy.run_module("secid", run_name="__main__", alter_sys=True)
finally:
    sys.settrace(None)
    with open(out, "w") as file:
        json.dump([[code.co_filename, code.co_qualname, code.co_firstlineno] for code in ran], file)
"""
"""Only functions count (flag 1): no modules, comprehensions or class bodies."""

FACTS = {
    "identity": {"name", "source"},
    "counts": {"n_read", "n_records", "n_queries", "n_negatives", "n_triplets", "counts"},
    "score": {"eci_nats", "score_nats", "scores_nats", "score"},
    "hardness": {"hardness"},
    "findings": {"findings"},
    "status": {"status", "statuses", "outcome"},
}
PER_SOURCE = 4
"""Minimum number of these facts, inherited ones included, with which a dataclass reports on a source."""


class Package:
    """The parsed modules of a tree, by path below it."""

    def __init__(self, tree: Path) -> None:
        paths = sorted((tree / "secid").rglob("*.py"))
        self.texts = {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        self.modules = {path: ast.parse(text) for path, text in self.texts.items()}
        self.classes: dict[str, list[tuple[str, ast.ClassDef]]] = defaultdict(list)
        self.functions: dict[str, list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]] = defaultdict(list)
        for path, module in self.modules.items():
            for node in module.body:
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name].append((path, node))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.functions[node.name].append((path, node))

    def dataclasses(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """Yield the path and node of each dataclass."""
        for found in self.classes.values():
            yield from (
                (path, node) for path, node in found if any("dataclass" in ast.unparse(d) for d in node.decorator_list)
            )

    def fields(self, node: ast.ClassDef, inherited: bool = True) -> set[str]:
        """Return the names of annotated fields, those of base classes (found by name) included."""
        own = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for base in node.bases if inherited else ():
            for _, parent in self.classes.get(ast.unparse(base).split("[")[0], []):
                own |= self.fields(parent)
        return own


def complexity(function: ast.AST) -> int:
    """Return McCabe's complexity: 1, plus 1 for each branch, loop, handler, comprehension, condition and operand."""
    branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
    total = 1
    for node in ast.walk(function):
        if isinstance(node, branches):
            total += 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
    return total


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return all parameters, * and ** included."""
    stated = function.args
    extra = [item for item in (stated.vararg, stated.kwarg) if item is not None]
    return [*stated.posonlyargs, *stated.args, *stated.kwonlyargs, *extra]


def printers(package: Package) -> list[str]:
    """Return modules other than print_page's that lay out text for a terminal: a function takes a rich Console, or the
    module imports table lines of the renderer (`secid.pages.screen`). Consoles and the renderer do not count.
    """
    found = set()
    for path, module in package.modules.items():
        if path.endswith(("/pages/screen.py", "/console.py")):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".pages.screen"):
                by_hand = "table_lines" in {alias.name for alias in node.names}
            elif isinstance(node, ast.FunctionDef):
                by_hand = "Console" in [ast.unparse(item.annotation) for item in parameters(node) if item.annotation]
            else:
                continue
            if by_hand:
                found.add(path)
    return sorted(found)


def traced(tree: Path, encoder: str) -> list[tuple[str, str, int]]:
    """Return path, name and first line of every function that `secid score` runs on a small file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.jsonl").write_bytes(b"".join(gzip.decompress(SAMPLE.read_bytes()).splitlines(True)[:N_RECORDS]))
        command = [sys.executable, "-c", TRACER, str(tree / "secid"), "trace.json"]
        command += ["score", "one.jsonl", "--encoder", encoder, "--run", "run", "-q"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SECID_")}
        variables = {"PYTHONPATH": str(tree), "SECID_CACHE_DIR": "cache", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=folder, env=kept | variables, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"secid score ended with {done.returncode}: {done.stderr}")
        found = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    return [(Path(path).relative_to(tree).as_posix(), function, line) for path, function, line in found]


def lines_below(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout to measure [default: this one]")
    parser.add_argument("--encoder", default="minilm", help="for the trace")
    parser.add_argument("--modules", action="store_true", help="also list the modules of the trace")
    args = parser.parse_args()
    tree = args.tree.resolve()
    package = Package(tree)

    def show(what: str, value: object, names: object = ()) -> None:
        print(f"{what:<44}{value}" + (f"  {', '.join(map(str, names))}" if names else ""), flush=True)  # type: ignore[call-overload]

    lengths = {path: len(text.splitlines()) for path, text in package.texts.items()}
    show("product lines", f"{sum(lengths.values()):,} in {len(lengths)} files")
    ran = traced(tree, args.encoder)
    modules = sorted({path for path, _, _ in ran})
    show(
        "modules that one small file passes",
        len(modules),
        [f"{len(ran):,} functions, modules of {sum(map(lengths.__getitem__, modules)):,} lines"],
    )
    for path in modules if args.modules else ():
        print(f"    {path}")
    for field in ("hardness", "findings"):
        holders = sorted(
            node.name for _, node in package.dataclasses() if field in package.fields(node, inherited=False)
        )
        show(f"dataclasses with a field {field}", len(holders), holders)
    reports = sorted(
        node.name
        for _, node in package.dataclasses()
        if sum(bool(package.fields(node) & names) for names in FACTS.values()) >= PER_SOURCE
    )
    show(f"types with {PER_SOURCE} of {len(FACTS)} facts of a source", len(reports), reports)
    for path, node in package.functions["measure"]:
        length = (node.end_lineno or 0) - node.lineno + 1
        show(
            f"measure() of {path}", f"{length} lines, complexity {complexity(node)}, {len(parameters(node))} parameters"
        )
    twice = sorted(name for name, found in package.classes.items() if len(found) > 1)
    show("class names with several meanings", len(twice), twice)
    twice = sorted(name for name, found in package.functions.items() if len(found) > 1 and name[0] != "_")
    show("public function names with several meanings", len(twice), twice)
    by_hand = printers(package)
    show("modules that print beside print_page", len(by_hand), by_hand)
    show("test lines", f"{lines_below(tree / 'tests'):,}")


if __name__ == "__main__":
    main()
