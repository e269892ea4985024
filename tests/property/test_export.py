"""Copies of random rows with odd columns: read back without flags, and each value is as it was, or named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from secid.read import open_source
from secid.records import Extras, Record, Source
from secid.settings import Settings
from secid.write.rows import row_of
from secid.write.writer import NOT_FINITE, PASSAGE_ID_KEYS, SCHEMAS, write_rows

NAMES = [
    *("query", "anchor", "question", "positive", "negative", "neg", "neg0", "negative_2", "pos_doc", "neg_doc",
        "answer"),
    *("passage", "label", "score", "title", "pos_title", "neg_title", "pos_id", "neg_ids", "negative_1_id", "id",
        "qid"),
    *("query_id", "docid", "pos_scores", "neg_scores", "hard_negative", "sent1", "lang", "rejected", "metadata", ""),
]  # fmt: skip
TEXTS = st.text(min_size=1, max_size=8).map(lambda text: f"a text of some words {text}")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 3), st.floats(), st.sampled_from([0.5, 2.0]), TEXTS
)
VALUES = st.one_of(SCALARS, SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.sampled_from("ab"), SCALARS))
ROWS = st.tuples(
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=2),
    st.lists(TEXTS, min_size=1, max_size=3),
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), VALUES, max_size=5),
)


def record_of(query: str, positives: list[str], negatives: list[str], columns: Mapping[str, Any]) -> Record:
    extras = Extras(columns, query, list(enumerate(positives)), list(enumerate(negatives)))
    return Record(query, tuple(positives), tuple(negatives), "in.jsonl", 1, extras=extras)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("schema", SCHEMAS)
@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(table=st.lists(ROWS, min_size=1, max_size=6))
def test_nothing_changes_or_vanishes_unnamed(table, schema, suffix):
    records = [record_of(*cells) for cells in table]
    with TemporaryDirectory() as folder:
        out = Path(folder) / f"out{suffix}"
        result = write_rows(lambda: map(row_of, records), schema, out, suffix)
        items = list(open_source(Source("copy", (str(out),)), Settings()))
        if suffix == ".parquet":
            documents = pq.read_table(out).to_pylist()
        else:
            documents = [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]]
    assert all(isinstance(item, Record) for item in items)
    of_rows = [(item.query, item.positives, item.negatives) for item in items if isinstance(item, Record)]
    n = 1 if schema == "st-ntuple" else None
    expected = [(record.query, record.positives[:n], record.negatives) for record in records]
    if result.layout == "triplets":
        expected = [(query, good, (bad,)) for query, good, negatives in expected for bad in negatives]
    assert of_rows == expected
    if schema != "st-ntuple":
        for record, document in zip(records, documents, strict=True):
            assert record.extras is not None
            document.setdefault("query_id", document.get("question_id"))
            for name, value in record.extras.columns.items():
                assert (
                    is_blank(name, value)
                    or is_named(name, result.not_held)
                    or is_written(name, value, document, schema)
                )
    else:
        assert all(
            is_blank(name, value) or is_named(name, result.not_held)
            for *_, columns in table
            for name, value in columns.items()
        )


def is_blank(name: str, value: Any) -> bool:
    """Nothing, or the list of nulls that mined rows have in the place of scores."""
    blank = isinstance(value, list) and value != [] and all(item is None for item in value)
    return value is None or (name == "neg_scores" and blank)


def is_named(name: str, not_held: Mapping[str, int]) -> bool:
    if name in ("pos_id", "neg_ids", "negative_1_id") and "ids of passages" in not_held:
        return True
    if name in ("pos_scores", "neg_scores") and "scores of passages" in not_held:
        return True
    return name in not_held or f"{NOT_FINITE} in {name}" in not_held


def is_written(name: str, value: Any, document: Mapping[str, Any], schema: str) -> bool:
    if name in ("pos_id", "neg_ids", "negative_1_id") and (isinstance(value, list) or document.get(name) is None):
        if schema in PASSAGE_ID_KEYS:
            sides = ("pos_doc", "neg_doc") if schema == "nvidia" else ("positive_passages", "negative_passages")
            own = [passage[PASSAGE_ID_KEYS[schema]] for passage in document[sides[name != "pos_id"]]]
        else:
            own = document.get(name) or document["pos_ids" if name == "pos_id" else "neg_ids"]
        values = value if isinstance(value, list) else [value]
        return all(one is None or str(one) == other for one, other in zip(values, own, strict=False))
    if name == "query_id":
        return str(value) == str(document[name])
    written = document[name]
    if isinstance(written, list) and not isinstance(value, list):  # the id or score of the only passage
        return list(map(str, written)) == [str(value)]
    same = repr(written) == repr(value)
    numbers = (int, float)  # a column of whole numbers and fractions in Parquet
    return same or (type(value) is int and isinstance(written, numbers) and written == value)
