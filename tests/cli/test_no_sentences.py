"""The JSON of a command holds numbers, names and kinds; the words are those of the pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FIXTURES, Invoke, rows, write_rows

MOST_WORDS = 3
QUOTED = {
    "query", "positive", "negative", "text", "evaluation_text", "query_prefix", "passage_prefix",  # texts
    "path", "name", "mapping", "parser", "error",  # names of files and columns, messages of other programs
    "repair", "score", "probe", "flags",  # what is typed
}  # fmt: skip
"""Keys of strings that may be long: none is a sentence of secid's own."""


def sentences(value: Any, key: str = "") -> Iterator[str]:
    """Return the strings of more than MOST_WORDS words in a JSON document, except those under QUOTED."""
    if isinstance(value, str) and key not in QUOTED and len(value.split()) > MOST_WORDS:
        yield f"{key}: {value}"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from sentences(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from sentences(item, key)


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Sound rows, rows that are left out for one reason each, and rows with findings."""
    table: list[Any] = list(rows(120, 4))
    table[3]["pos"], table[4]["query"] = [], " "
    table[5]["neg"], table[6]["neg"] = "one text alone here", [7, None, "n"]
    table[7]["neg"][0], table[8]["neg"] = table[7]["pos"][0], []
    path = write_rows(tmp_path / "faulty.jsonl", table)
    lines = ["{'query': 'x'}", '{"query": "a", "query": "b"}', '{"a": 1} {"b": 2}', '{"query": "a"},', "[1, 2]", '"a"']
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_documents_hold_no_sentence(faulty: Path, tiny: Path, invoke: Invoke) -> None:
    given = (faulty, "--set", "max_bad_fraction=0.5", "--quiet")
    encoded = (*given, "--encoder", tiny)
    collection = FIXTURES / "collection"
    assert invoke("score", *encoded, "--run", "run", "--max-length", 20).code == 0
    assert invoke("baseline", "run", "-o", "base.json").code == 0
    documents = [json.loads(Path("run/report.json").read_text(encoding="utf-8"))]
    commands = (
        ("check", *given, "--against-eval", collection, "--json"),
        ("gate", *encoded, "--max-length", 20, "--against", "base.json", "--json"),
        ("audit", FIXTURES / "sources" / "random.jsonl", *encoded, "--collection", collection, "--json"),
        ("encoder", tiny, "--json"),
    )
    documents += [json.loads(invoke(*command).out) for command in commands]
    reasons = {example["reason"] for source in documents[0]["sources"] for example in source["rows"]["examples"]}
    assert len(reasons) >= 6
    assert [text for document in documents for text in sentences(document)] == []


@pytest.mark.parametrize(
    ("document", "n"),
    [
        ({"encoder": {"notes": ["weights loaded from the pickle"]}}, 1),
        ({"examples": [{"detail": "a list where text is expected", "query": "a text of many words"}]}, 1),
        ({"not_evaluated": {"source a": "no triplet: reason 5"}, "warnings": [{"kind": "few_queries"}]}, 1),
        ({"repair": "secid select run --drop repeat", "budget": 1.0, "guide": None}, 0),
    ],
)
def test_a_sentence_is_noticed(document: dict[str, Any], n: int) -> None:
    assert len(list(sentences(document))) == n
