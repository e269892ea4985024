"""Facts in words: every kind that readers and encoders name has a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from secid.encode.locate import FAMILIES
from secid.pages.check_page import evaluation_words
from secid.pages.encoder_page import CHECK_RESULTS, FACTS, fact_lines
from secid.records import FAULTS, Fact, fault_text
from secid.results import Example

PACKAGE = Path(__file__).resolve().parents[3] / "secid"


def kinds_in(source: str) -> set[str]:
    """Return the kinds of facts that a module names."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Fact" and call.args)
    return {str(name.value) for name in names if isinstance(name, ast.Constant)}


@pytest.mark.parametrize(
    ("folder", "words"), [("read", {*FAULTS}), ("pool", {*FAULTS}), ("encode", {*FACTS, *CHECK_RESULTS})]
)
def test_every_kind_has_its_words(folder: str, words: set[str]) -> None:
    kinds = set().union(*(kinds_in(path.read_text(encoding="utf-8")) for path in (PACKAGE / folder).glob("*.py")))
    assert kinds
    assert kinds <= words
    assert {family.fact for family in FAMILIES if family.fact} <= {*FACTS}


def test_a_kind_is_found_where_a_module_names_it() -> None:
    assert kinds_in('x = [Fact("one"), Fact("two", {"n": 2}), Fact(kind), other("three")]') == {"one", "two"}


def test_a_kind_of_a_newer_version_is_left_out() -> None:
    newer = Fact("of_tomorrow", {"n": 1})
    assert fact_lines([newer, Fact("pickle")]) == [FACTS["pickle"]]
    assert (fault_text(newer), fault_text(None)) == ("", "")


def test_a_fact_without_the_values_of_its_kind_has_no_words():
    assert fact_lines([Fact("truncated"), Fact("pickle")]) == [FACTS["pickle"]]
    assert (fault_text(Fact("type")), fault_text(Fact("type", {"n_lines": 2}))) == ("", "")


def test_a_row_of_several_lines_says_how_many_a_quotation_mark_joins() -> None:
    values = {"n": 4, "expected": 3}
    alone, joined = (fault_text(Fact("field_count", {**values, **more})) for more in ({}, {"n_lines": 31}))
    assert joined.startswith(alone)
    assert "31" in joined.removeprefix(alone)


def test_a_text_of_the_evaluation_set_is_named_with_its_likeness():
    exact, near = {"text": "mine", "id": "q7"}, {"similarity": 0.93, "evaluation_text": "theirs"}
    words = [evaluation_words(Example("", "a", 1, Fact("evaluation_text", own))) for own in (exact, exact | near)]
    assert all("mine" in text and "q7" in text for text in words)
    assert ["0.93" in text and "theirs" in text for text in words] == [False, True]
    assert evaluation_words(Example("", "a", 1, Fact("empty_list"))) == ""
