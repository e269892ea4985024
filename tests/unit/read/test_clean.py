"""Each row gives one item: every type is checked, and nothing disappears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from secid.records import SKIP_REASONS, Defect, Record, fault_text

Items = Callable[..., list[Record | Defect]]

LISTS = {"query": "q", "pos": ["p"], "neg": ["n"]}
CELLS = {"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m"}
PASSAGES = {
    "query": "q",
    "positive_passages": [{"title": "T", "text": "p"}],
    "negative_passages": [{"title": "", "text": "n"}],
}


@pytest.mark.parametrize(
    ("good", "change", "reason"),
    [
        (LISTS, {"query": None}, "missing_field"),
        (LISTS, {"query": ""}, "empty_query"),
        (LISTS, {"query": " \n\t\u3000"}, "empty_query"),
        (LISTS, {"query": 7}, "wrong_type"),
        (LISTS, {"query": ["q"]}, "wrong_type"),
        (LISTS, {"query": {"text": "q"}}, "wrong_type"),
        (LISTS, {"pos": None}, "missing_field"),
        (LISTS, {"pos": []}, "no_positive"),
        (LISTS, {"pos": ["", " "]}, "no_positive"),
        (LISTS, {"pos": [None]}, "no_positive"),
        (LISTS, {"pos": "p"}, "string_for_list"),
        (LISTS, {"pos": 7}, "wrong_type"),
        (LISTS, {"pos": [7]}, "wrong_type"),
        (LISTS, {"pos": [["p"]]}, "wrong_type"),
        (LISTS, {"pos": {"text": "p"}}, "wrong_type"),
        (LISTS, {"neg": None}, "no_negatives"),
        (LISTS, {"neg": []}, "no_negatives"),
        (LISTS, {"neg": [None, None]}, "no_negatives"),
        (LISTS, {"neg": "n"}, "string_for_list"),
        (LISTS, {"neg": ""}, "string_for_list"),
        (LISTS, {"neg": ["", "  "]}, "empty_negative"),
        (LISTS, {"neg": [True]}, "wrong_type"),
        (LISTS, {"neg": [["n"], ["m"]]}, "wrong_type"),
        (LISTS, {"neg": {"bm25": ["n"]}}, "wrong_type"),
        (LISTS, {"neg": 3.5}, "wrong_type"),
        (CELLS, {"positive": None}, "missing_field"),
        (CELLS, {"positive": ""}, "no_positive"),
        (CELLS, {"positive": ["p"]}, "wrong_type"),
        (CELLS, {"negative_1": None, "negative_2": None}, "no_negatives"),
        (CELLS, {"negative_1": "", "negative_2": " "}, "empty_negative"),
        (CELLS, {"negative_1": ["n"], "negative_2": ["n"]}, "wrong_type"),
        (PASSAGES, {"negative_passages": "n"}, "string_for_list"),
        (PASSAGES, {"negative_passages": [{"title": "T", "text": 7}]}, "wrong_type"),
        (PASSAGES, {"negative_passages": [{"title": "", "text": ""}]}, "empty_negative"),
        (PASSAGES, {"negative_passages": [{"title": "T"}]}, "no_negatives"),
        (PASSAGES, {"positive_passages": [{"docid": "7"}]}, "no_positive"),
    ],
)
def test_an_unusable_row_is_a_defect_with_its_reason(
    good: dict[str, Any], change: dict[str, Any], reason: str, items: Items
) -> None:
    first, defect, last = items([good, {**good, **change}, good])
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert isinstance(defect, Defect), defect
    assert (defect.reason, defect.line, defect.split) == (reason, 2, "")
    assert reason in SKIP_REASONS


@pytest.mark.parametrize(
    ("good", "change", "dropped"),
    [
        (LISTS, {"neg": ["", "  "]}, (("empty_negative", 2),)),
        (LISTS, {"neg": ["", None, 7, 7]}, (("empty_negative", 1), ("missing_field", 1), ("wrong_type", 2))),
        (CELLS, {"negative_1": "", "negative_2": " "}, (("empty_negative", 2),)),
    ],
)
def test_a_row_without_a_usable_negative_tells_its_query_and_what_it_had(
    good: dict[str, Any], change: dict[str, Any], dropped: tuple[tuple[str, int], ...], items: Items
) -> None:
    defect = items([good, {**good, "query": "r", **change}])[1]
    assert isinstance(defect, Defect)
    assert (defect.query, defect.dropped) == ("r", dropped)


def test_an_empty_labelled_pair_tells_its_query(items: Items) -> None:
    rows = [{"query": f"q{i}", "passage": f"p{i}", "label": i % 2} for i in range(8)]
    found = items([*rows, {"query": "q1", "passage": " ", "label": 0}])
    assert [(item.query, item.dropped) for item in found if item.dropped] == [("q1", (("empty_negative", 1),))]


@pytest.mark.parametrize("column", ["query", "pos", "neg"])
def test_an_absent_column_counts_as_null(column: str, items: Items) -> None:
    short = {key: value for key, value in LISTS.items() if key != column}
    assert items([LISTS, short])[1].reason == ("no_negatives" if column == "neg" else "missing_field")


@pytest.mark.parametrize(
    ("negatives", "kept", "dropped"),
    [
        (["n", ""], ("n",), (("empty_negative", 1),)),
        (["", "n", None, 7, " ", "m"], ("n", "m"), (("empty_negative", 2), ("missing_field", 1), ("wrong_type", 1))),
        (["n", ["m"]], ("n",), (("wrong_type", 1),)),
        (["n", {"title": "T", "text": "m"}], ("n", "T m"), ()),
        (["n", "n", "p"], ("n", "n", "p"), ()),
    ],
)
def test_single_bad_negatives_are_left_out_and_counted(
    negatives: list[Any], kept: tuple[str, ...], dropped: tuple[tuple[str, int], ...], items: Items
) -> None:
    record = items([LISTS, {**LISTS, "neg": negatives}])[1]
    assert isinstance(record, Record)
    assert (record.negatives, record.dropped) == (kept, dropped)


def test_bad_positives_next_to_a_good_one_are_counted(items: Items) -> None:
    record = items([LISTS, {**LISTS, "pos": ["", "p", None]}])[1]
    assert (record.positives, record.dropped) == (("p",), (("unusable_positive", 2),))


def test_texts_are_kept_as_they_are(items: Items) -> None:
    row = {"query": " q ", "pos": ["p\n"], "neg": ["\u0000n <b>\u200b"]}
    assert items([row])[0][:3] == (" q ", ("p\n",), ("\u0000n <b>\u200b",))


@pytest.mark.parametrize(
    ("passage", "text"),
    [
        ({"title": "T", "text": "x"}, "T x"), ({"title": "", "text": "x"}, "x"), ({"title": None, "text": "x"}, "x"),
        ({"title": 7, "text": "x"}, "x"), ({"text": "x"}, "x"), ({"title": "T", "contents": "x"}, "T x"),
    ],
)  # fmt: skip
def test_titles_are_joined(passage: dict[str, Any], text: str, items: Items) -> None:
    for others in ([], [{"title": "A", "text": "b"}]):
        row = {**PASSAGES, "negative_passages": [passage, *others]}
        assert items([PASSAGES, row])[1].negatives[0] == text


@pytest.mark.parametrize("titles", [True, False])
@pytest.mark.parametrize("text", ["", " \n"])
def test_a_title_without_a_text_is_an_empty_passage(text: str, titles: bool, items: Items) -> None:
    empty = {"title": "T", "text": text}
    rows = [
        {**PASSAGES, "negative_passages": [empty]},
        {**PASSAGES, "positive_passages": [empty]},
        {**PASSAGES, "negative_passages": [empty, {"title": "T", "text": "x"}]},
    ]
    first, second, third = items([PASSAGES, *rows], titles=titles)[1:]
    assert (first.reason, second.reason) == ("empty_negative", "no_positive")
    assert third.dropped == (("empty_negative", 1),)


def test_labels_in_lists(items: Items) -> None:
    good = {"query": "q", "docs": ["n", "p", "m"], "labels": [0, 1, 0]}
    bad = [{"labels": [0, 1]}, {"labels": [0, 1, None]}, {"labels": [0, 1, 2]}, {"labels": "011"}, {"docs": "npm"}]
    found = items([good] * 40 + [{**good, **change} for change in bad] + [{**good, "labels": [0, 0, 0]}])[39:]
    assert found[0][:3] == ("q", ("p",), ("n", "m"))
    assert [item.reason for item in found[1:]] == [
        "wrong_type", "missing_field", "wrong_type", "string_for_list", "string_for_list", "none_relevant",
    ]  # fmt: skip


def test_ids_whose_text_is_absent_are_counted(items: Items, collection: str) -> None:
    rows = [
        {"qid": 11, "pos": [1], "neg": [2, 99, 3]},
        {"qid": 11, "pos": [99], "neg": [2]},
        {"qid": "11", "pos": ["1"], "neg": ["99"]},
        {"qid": 12, "pos": [1], "neg": [2]},
        {"qid": 11, "pos": [1], "neg": [True, 2.0]},
    ]
    flags = {"query_column": "qid", "collection": collection}
    found = items(rows[:1] * 10 + rows[1:], **flags)[9:]
    assert found[0][:3] == ("q", ("p",), ("n", "m"))
    assert found[0].dropped == (("text_not_found", 1),)
    assert [(item.reason, fault_text(item.fact)) for item in found[1:4]] == [
        ("text_not_found", "passage 99"),
        ("text_not_found", "passage 99"),
        ("text_not_found", "query 12"),
    ]
    assert found[4].reason == "wrong_type"


def test_the_quick_way_and_the_careful_way_agree(items: Items) -> None:
    """A row with a bad negative takes the careful way; its good cells must read as on the quick one."""
    for good, key in ((LISTS, "neg"), (PASSAGES, "negative_passages")):
        quick, careful = items([good, {**good, key: [*good[key], None]}])
        assert careful[:3] == quick[:3]
        assert careful.dropped == (("missing_field", 1),)
        assert quick.dropped == ()
