"""docs/formats.md: every example is read as the page says, and every schema and reason is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from secid.errors import SchemaError
from secid.read.detect import FORMAT_TITLES
from secid.records import SKIP_REASONS, Record

from .conftest import read

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^### (?P<heading>.*?)$|^```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


def examples() -> list[tuple[str, str, str]]:
    """Return (heading, language, text) of every fenced block with a language."""
    found, heading = [], ""
    for block in BLOCK.finditer(PAGE):
        if block["heading"] is not None:
            heading = block["heading"]
        else:
            found.append((heading, block["language"], block["text"]))
    return found


READ = [(heading.split("`")[1], language, text) for heading, language, text in examples() if language != "refused"]
REFUSED = [(heading, text) for heading, language, text in examples() if language == "refused"]


@pytest.mark.parametrize(("schema", "language", "text"), READ)
def test_each_example_is_read_as_its_heading_says(schema, language, text, tmp_path, collection):
    path = tmp_path / f"source.{language}"
    path.write_text(text, encoding="utf-8")

    reader, found = read(path, collection=collection)

    assert reader.files[0].schema == schema
    assert found
    for item in found:
        assert isinstance(item, Record), item
        assert item.query.split(" ")[0] == "q"
        assert item.positives[0].removeprefix("T ").split(" ")[0] == "p"
        assert {text.removeprefix("T ").split(" ")[0] for text in item.negatives} <= {"n", "m", "h"}


@pytest.mark.parametrize(("heading", "text"), REFUSED)
def test_each_refused_example_is_refused_with_a_remedy(heading, text, tmp_path):
    path = tmp_path / "source.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError) as caught:
        read(path)
    assert caught.value.remedy


def test_every_schema_has_an_example():
    assert {schema for schema, _, _ in READ} == set(FORMAT_TITLES)


def test_what_the_table_of_refusals_quotes_is_said_by_the_code():
    table = PAGE.partition("| the error says |")[2].partition("\n\n")[0]
    quoted = [text for row in table.splitlines()[2:] for text in re.findall(r"`(.+?)`", row.split(" | ")[0])]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "secid" / "read").rglob("*.py"))
    said = re.sub(r"\"\s+f?\"", "", code)
    assert len(quoted) > 15
    assert [text for text in quoted if text not in said] == []


def test_the_table_of_reasons_is_the_code_s():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (yes|no) \|$", PAGE, re.MULTILINE)
    assert {name: (text, said == "yes") for name, text, said in rows} == {
        name: tuple(reason) for name, reason in SKIP_REASONS.items()
    }
