"""Files that could be read as what they are not: each is read rightly, or refused with what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secid.errors import SchemaError

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
