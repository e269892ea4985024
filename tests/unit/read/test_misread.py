"""Files that could be read as what they are not: each is read rightly, or refused with what decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from secid.errors import SchemaError
from secid.records import Record

from .conftest import read, write

WORDS = ("where the wind blows", "how the river runs", "why the stone rolls", "when the tide turns")


def refusal(path: Path, **settings: Any) -> SchemaError:
    """The error that a file is refused with."""
    with pytest.raises(SchemaError) as caught:
        read(path, **settings)
    return caught.value


def queries(n: int) -> list[str]:
    return [f"{WORDS[at % 4]} at {at} o'clock" for at in range(n)]


@pytest.mark.parametrize("names", [("document_a", "document_b"), ("passage_1", "passage_2")])
@pytest.mark.parametrize("labels", [(0, 1), ("a", "b")])
def test_a_label_that_chooses_between_two_passages_is_asked_about(names: Any, labels: Any, tmp_path: Path) -> None:
    rows = [
        {"query": query, names[0]: f"first of {query}", names[1]: f"second of {query}", "label": labels[at % 2]}
        for at, query in enumerate(queries(8))
    ]
    error = refusal(write(tmp_path / "a.csv", rows))
    assert "the label beside" in str(error)
    assert "--format ordered-triplet" in str(error.remedy)
    assert len(read(tmp_path / "a.csv", format="ordered-triplet")[1]) == 8


def test_scores_of_three_texts_are_still_passed_over(tmp_path: Path) -> None:
    rows = [{"a": q, "b": f"first of {q}", "c": f"second of {q}", "score": at / 8} for at, q in enumerate(queries(8))]
    assert len(read(write(tmp_path / "a.csv", rows))[1]) == 8


@pytest.mark.parametrize("name", ["esci_label", "kind"])
def test_labels_of_several_passages_a_query_are_no_negatives(name: str, tmp_path: Path) -> None:
    rows = [
        {"query": query, "product_title": f"{mark} of {query}", name: mark} for query in queries(10) for mark in "ESCI"
    ]
    error = refusal(write(tmp_path / "a.csv", rows))
    assert ("labels in words (E, S, C, I)" in str(error)) is (name == "esci_label")
    assert "query, positive and negatives" not in str(error.remedy)


def test_a_list_of_queries_is_not_proposed_as_the_positives(tmp_path: Path) -> None:
    rows = [{"doc": f"text on {q}", "queries": [q, f"{q}?"], "negatives": [f"other than {q}"]} for q in queries(8)]
    error = refusal(write(tmp_path / "a.jsonl", rows))
    assert "lists of queries" in str(error)
    assert "--positive-column" not in str(error.remedy)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_an_empty_cell_of_a_table_is_null(suffix: str, tmp_path: Path) -> None:
    rows = [
        {"query": q, "positive": f"text on {q}", "negative_1": f"other than {q}", "negative_2": f"far from {q}"}
        for q in queries(8)
    ]
    empty = "" if suffix != ".parquet" else None
    rows[2]["negative_2"] = rows[3]["negative_2"] = rows[3]["negative_1"] = rows[4]["query"] = empty
    found = read(write(tmp_path / f"a{suffix}", rows))[1]
    assert [getattr(item, "reason", "") for item in found] == ["", "", "", "no_negatives", "missing_field", "", "", ""]
    assert [item.dropped for item in found if isinstance(item, Record)] == [()] * 6
    assert len(found[2].negatives) == 1


@pytest.mark.parametrize("column", ["text", "title"])
def test_an_empty_cell_of_a_collection_is_an_empty_text(column: str, tmp_path: Path) -> None:
    corpus = [{"_id": f"d{at}", "title": f"T{at}", "text": f"text {at}"} for at in range(8)]
    corpus[7] |= {column: ""}
    (tmp_path / "corpus").mkdir()
    path = write(tmp_path / "corpus" / "corpus.tsv", corpus)
    rows = [{"query": q, "positive": "d1", "negative": f"d{at}"} for at, q in enumerate(queries(8))]
    found = read(write(tmp_path / "a.jsonl", rows), corpus=str(path))[1]
    assert found[7].negatives == (("text 7",) if column == "title" else ("T7",))


@pytest.mark.parametrize("passage", ["text", {"text": "text"}])
@pytest.mark.parametrize("empty", [[], None])
def test_a_column_of_negatives_that_is_always_empty_is_not_asked_about(
    passage: Any, empty: Any, tmp_path: Path
) -> None:
    rows = [{"query": q, "positives": [passage], "negatives": [passage], "hard_negatives": empty} for q in queries(8)]
    reader, found = read(write(tmp_path / "a.jsonl", rows))
    assert "negatives=negatives" in reader.files[0].mapping
    assert [len(item.negatives) for item in found if isinstance(item, Record)] == [1] * 8


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("score", [False, True])
@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_the_ranks_of_a_run_are_no_ids(first: int, score: bool, suffix: str, tmp_path: Path, collection: str) -> None:
    rows = [[100 + query, 7 * query + rank, rank + first, *[0.5] * score] for query in range(3) for rank in range(4)]
    error = refusal(write(tmp_path / f"a{suffix}", rows), collection=collection)
    assert "a run (query, passage, rank)" in str(error)
    assert len(read(tmp_path / f"a{suffix}", collection=collection, format="id-rows")[1]) == 12


@pytest.mark.parametrize("rows", [[[7, 0, at] for at in range(1, 9)], [[at, at + 9, 1] for at in range(8)]])
def test_triples_of_ids_that_count_are_still_read(rows: Any, tmp_path: Path, collection: str) -> None:
    assert len(read(write(tmp_path / "a.tsv", rows), collection=collection)[1]) == 8


@pytest.mark.parametrize("between", [",\n", "\n,", ",\n\n", "\n, "])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("[ ", "\n]\n"), ("[", "\n]")])
def test_an_array_is_one_whatever_its_lines_and_name(between: str, opening: str, closing: str, tmp_path: Path) -> None:
    rows = [json.dumps({"query": q, "positive": "a text", "negative": "another"}) for q in queries(8)]
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(opening + between.join(rows) + closing, encoding="utf-8")
        reader, found = read(tmp_path / name)
        assert reader.files[0].container == "json array"
        assert len(found) == 8


def test_a_cut_first_line_of_array_rows_makes_no_array(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('["q", "p",\n' + '["a query", "a text", "another"]\n' * 8, encoding="utf-8")
    assert [isinstance(item, Record) for item in read(tmp_path / "a.jsonl")[1]] == [False] + [True] * 8


@pytest.mark.parametrize("settings", [{}, {"negative_column": "negatives"}])
@pytest.mark.parametrize("negatives", [{"type": "hard", "texts": ["n one", "n two"]}, {"1": "n one", "2": "n two"}])
def test_keys_of_negatives_that_are_no_miners_make_no_sources(negatives: Any, settings: Any, tmp_path: Path) -> None:
    rows = [{"query": q, "positive": f"text on {q}", "negatives": negatives} for q in queries(8)]
    error = refusal(write(tmp_path / "a.jsonl", rows), **settings)
    assert "objects" in str(error)
    assert "list of texts" in str(error.remedy)


@pytest.mark.parametrize("negatives", [{"bm25": "n one", "dense": "n two"}, {"0": ["n one"], "1": ["n two"]}])
def test_miners_of_one_text_or_with_numbers_are_still_sources(negatives: Any, tmp_path: Path) -> None:
    rows = [{"query": q, "positive": f"text on {q}", "negatives": negatives} for q in queries(8)]
    found = read(write(tmp_path / "a.jsonl", rows), negative_column="negatives")[1]
    assert {item.split for item in found} == set(negatives)


@pytest.mark.parametrize(("named", "other"), [("positive", "positive_2"), ("positive_2", "positive")])
def test_a_numbered_positive_that_a_flag_leaves_out_is_named(named: str, other: str, tmp_path: Path) -> None:
    rows = [{"query": q, "positive": f"text on {q}", "positive_2": f"more on {q}", "negative": "n"} for q in queries(8)]
    path = write(tmp_path / "a.jsonl", rows)
    assert "to read all, write them as a list" in str(refusal(path).remedy)
    mapping = read(path, positive_column=named)[0].files[0].mapping
    assert f"positive={named}," in mapping
    assert f"left out: {other}" in mapping
