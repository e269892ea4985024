"""Check the English of docstrings, pages and docs: no openings without a subject, no words at which readers stop.

A name of a constant, an alias or a class has one meaning in the package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "secid").rglob("*.py"))
TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "changelog.md")]
SCREENS = [
    path
    for path in sorted((ROOT / "tests" / "snapshots").rglob("*"))
    if path.suffix in (".txt", ".md", ".toml", ".xml")
]

OPENINGS = re.compile(r"(What|Whether|How|Of|Raises|Where|Who|The same|As|Which|Why|Those|That|When)\b")
"""A docstring that begins so says no subject, or folds back on itself: "Return whether …", "Count …" say it at once."""
STOPPERS = {
    r"\b(is|are|was|were) none of\b": "say: is not",
    r"\bin its turn\b": "say: then",
    r"\bthat (is|are) there\b": "say: existing, or nothing",
    r"\bis here or not\b": "say: exists",
    r"\btold by\b": "say: detected from",
    r"\bgoes on\b": "say: continues",
    r"(?-i:\bof none\b)": "say: without",
    r"\bof (the )?[a-z]+s alone\b": "say: only",
    r"\b(?<!by )so many (of|held|trainings|per cent|units|runs|rows)\b": "say: that many, or give the number its name",
    r"\bbesides?\b": "say: next to, or: in addition to, or: compared with",
    r"\bwhere (it|they) (is|are)\b": "say: if it is, or name the place",
    r"\btold\b": "say: reported, printed, detected or distinguished",
    r"\bstands\b(?! (for|in|out)\b)": "say: is",
}
"""Words that are not used, with what to write in their place."""


def notes(tree: ast.Module) -> Iterator[str]:
    """Yield docstrings, and strings under constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, own in zip(node.body, node.body[1:], strict=False):
                is_note = isinstance(own, ast.Expr) and isinstance(own.value, ast.Constant)
                if isinstance(before, ast.Assign | ast.AnnAssign) and is_note and isinstance(own.value.value, str):
                    yield own.value.value


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, definition) of a module's public constants, aliases and classes, without type variables."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, "class"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = ast.unparse(node.value).removeprefix("npt.")
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            yield from (
                (name.id, value) for name in names if isinstance(name.ctx, ast.Store) and "TypeVar" not in value
            )


def stops(text: str) -> list[str]:
    """List the words of STOPPERS that a text holds, with what to write in their place."""
    hits = (
        (found, instead) for words, instead in STOPPERS.items() for found in re.finditer(words, text, re.IGNORECASE)
    )
    return [f"{found.group()!r}: {instead}" for found, instead in hits]


def test_docstrings_open_with_a_verb_or_a_noun():
    for paths in (MODULES, TESTS):
        own = [(path, text) for path in paths for text in notes(ast.parse(path.read_text(encoding="utf-8")))]
        odd = [f"{path.relative_to(ROOT)}: {text.splitlines()[0]}" for path, text in own if OPENINGS.match(text)]
        assert odd == []


def test_no_word_makes_a_reader_stop():
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (*MODULES, *PAGES, *SCREENS)}
    texts |= {path.name: "\n".join(notes(ast.parse(path.read_text(encoding="utf-8")))) for path in TESTS}
    assert {name: found for name, text in texts.items() if (found := stops(text))} == {}


def test_a_name_has_one_meaning():
    meanings: dict[str, set[str]] = {}
    for path in MODULES:
        for name, definition in definitions(ast.parse(path.read_text(encoding="utf-8"))):
            if name[0].isupper():
                meanings.setdefault(name, set()).add(definition)
    assert {name for name, found in meanings.items() if len(found) > 1} == set()


def test_openings_and_words_are_found():
    tree = ast.parse('"""Whether it is."""\nLEAST = 3\n"""Of the rest."""\ndef count():\n    """Count rows."""')
    assert sorted(bool(OPENINGS.match(text)) for text in notes(tree)) == [False, True, True]
    assert stops("It is none of ours, and goes on.") == ["'is none of': say: is not", "'goes on': say: continues"]
