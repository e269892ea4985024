"""Rows in a trainer's schema: read back by secid, by sentence-transformers' rules, and by plain JSON and Parquet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from secid.errors import OutputError, UsageError
from secid.export.rows import Passage, Row, RowsOnDisk, row_of
from secid.export.writer import SCHEMAS, SUFFIXES, Written, new_files, schema_of, suffix_of, write_rows
from secid.read import open_source
from secid.read.schemas.table import SHAPES
from secid.records import Defect, Record, Source
from secid.settings import Settings
from tests.tiny_bert import save_tiny_bert

RESERVED = {"label", "labels", "score", "scores", "dataset_name", "return_loss"}
"""Columns that sentence-transformers takes for something else than a text."""


def row(number: int, n_negatives: int = 2, **more: Any) -> Row:
    negatives = [Passage(f"bad {number} {k}", f"n{k}", "", 0.1 * k) for k in range(n_negatives)]
    return Row(f"q {number}", [Passage(f"T good {number}", f"p{number}", "T", 0.9)], negatives, **more)


def written(rows: Sequence[Row], schema: Any, path: Path) -> tuple[Written, list[dict[str, Any]]]:
    """The result, and the documents as other programs read them."""
    result = write_rows(lambda: rows, schema, path, suffix_of(path))
    if path.suffix == ".parquet":
        return result, pq.read_table(path).to_pylist()
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return result, [json.loads(line) for line in text.splitlines()]


def read_back(path: Path) -> list[tuple[str, list[str], list[str]]]:
    items = list(open_source(Source("copy", (str(path),)), Settings()))
    assert not any(isinstance(item, Defect) for item in items)
    return [(item.query, list(item.positives), list(item.negatives)) for item in items if isinstance(item, Record)]


def texts(rows: Sequence[Row]) -> list[tuple[str, list[str], list[str]]]:
    return [(r.query, [p.text for p in r.positives], [p.text for p in r.negatives]) for r in rows]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_rows_come_back_the_same(tmp_path, schema, suffix):
    rows = [row(number, columns={"lang": "de", "n": number}) for number in range(1, 2060)]
    result, documents = written(rows, schema, tmp_path / f"out{suffix}")
    assert read_back(tmp_path / f"out{suffix}") == texts(rows)
    assert (result.n_rows, result.n_negatives, len(documents)) == (2059, 4118, 2059)
    ids, scores, both = {"ids of passages": 2059}, {"scores of passages": 2059}, {"lang": 2059, "n": 2059}
    lost = {"st-ntuple": {**ids, **scores, **both}, "flagembedding": ids, "tevatron": scores}
    assert result.not_held == lost[schema]
    assert documents[6] == {
        "st-ntuple": {"anchor": "q 7", "positive": "T good 7", "negative_1": "bad 7 0", "negative_2": "bad 7 1"},
        "flagembedding": {
            "query": "q 7", "pos": ["T good 7"], "neg": ["bad 7 0", "bad 7 1"], "pos_scores": [0.9],
            "neg_scores": [0.0, 0.1], "lang": "de", "n": 7,
        },
        "tevatron": {
            "query_id": "7", "query": "q 7", "positive_passages": [{"docid": "p7", "title": "T", "text": "good 7"}],
            "negative_passages": [{"docid": f"n{k}", "title": "", "text": f"bad 7 {k}"} for k in range(2)],
            "lang": "de", "n": 7,
        },
    }[schema]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_schema_that_is_read_can_be_written(tmp_path, collection, shape, schema):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in shape.example), encoding="utf-8")
    has_ids = shape.ids or shape.name in ("miners", "simlm")
    settings = Settings(format=shape.name, collection=str(collection) if has_ids else None)
    disk = RowsOnDisk(tmp_path / "rows")
    records = list(disk.watch(open_source(Source("in", (str(path),)), settings, keep=True).blocks()))
    for split in {record.split for record in records}:
        rows = [kept for _, kept in disk.rows(split) if kept is not None]
        own = [record for record in records if isinstance(record, Record) and record.split == split]
        assert texts(rows) == [(r.query, list(r.positives), list(r.negatives)) for r in own] != []
        out = tmp_path / f"{split}.jsonl"
        written(rows, schema, out)
        assert read_back(out) == texts(rows)
        ids = {passage.id for r in rows for passage in (*r.positives, *r.negatives)}
        assert ("" not in ids) == bool(has_ids or shape.name == "tevatron" or split in ("dpr", "hard", "random"))


def as_trained(path: Path) -> list[list[str]]:
    """The columns as sentence-transformers takes them: by their order, none empty, none of another meaning."""
    table = pq.read_table(path) if path.suffix == ".parquet" else pj.read_json(path)
    assert table.column_names[:2] == ["anchor", "positive"]
    assert not RESERVED & set(table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    assert all(isinstance(value, str) and value for column in columns for value in column)
    return columns


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("numbers", [(3, 3, 3, 3), (1, 1, 1, 1), (3, 1, 2, 2)])
def test_sentence_transformers_trains_on_an_n_tuple(tmp_path, suffix, numbers):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    rows = [row(number, n, columns={"score": 1.0, "lang": "de"}) for number, n in enumerate(numbers)]
    result, _ = written(rows, "st-ntuple", tmp_path / f"out{suffix}")
    columns = as_trained(tmp_path / f"out{suffix}")
    equal = len(set(numbers)) == 1
    assert result.layout == ("n-tuple" if equal else "triplets")
    assert (len(columns), len(columns[0])) == ((2 + numbers[0], 4) if equal else (3, sum(numbers)))
    assert sorted(text for column in columns[2:] for text in column) == sorted(t for _, _, n in texts(rows) for t in n)
    model = SentenceTransformer(str(save_tiny_bert(tmp_path / "encoder")), device="cpu")
    loss = MultipleNegativesRankingLoss(model)([model.preprocess(column) for column in columns], None)
    assert loss.isfinite()


def test_every_row_has_every_column_in_one_type(tmp_path):
    """As loaders expect, which take the types from the first rows."""
    columns = [{}, {"a": 1, "b": True, "c": 1, "d": None}, {"a": 2.5, "b": "x", "c": 2**70, "e": float("nan")}]
    rows = [row(number, columns=one) for number, one in enumerate(columns)]
    rows = [row_of(record_of(r)) for r in rows]
    for suffix in (".jsonl", ".parquet"):
        _, documents = written(rows, "flagembedding", tmp_path / f"out{suffix}")
        assert [list(document) for document in documents] == [[*["query", "pos", "neg"], *"abcde"]] * 3
        assert [document["a"] for document in documents] == [None, 1.0, 2.5]
        assert [document["b"] for document in documents] == [None, "True", "x"]
        assert [document["c"] for document in documents] == [None, "1", str(2**70)]
        assert [document["e"] for document in documents] == [None] * 3


def record_of(given: Row) -> Record:
    from secid.records import Extras

    positives, negatives = ([p.text for p in side] for side in (given.positives, given.negatives))
    extras = Extras(given.columns, given.query, list(enumerate(positives)), list(enumerate(negatives)))
    return Record(given.query, tuple(positives), tuple(negatives), "in.jsonl", 1, extras=extras)


def test_scores_are_written_where_every_passage_has_one(tmp_path):
    whole = [row(1), row(2)]
    partial = [*whole, row(3)._replace(positives=[Passage("good 3")])]
    assert "neg_scores" in written(whole, "flagembedding", tmp_path / "whole.jsonl")[1][0]
    result, documents = written(partial, "flagembedding", tmp_path / "partial.jsonl")
    assert not {"pos_scores", "neg_scores"} & set(documents[0])
    assert result.not_held["scores of passages"] == 3


def test_further_positives_are_kept_where_a_row_holds_several(tmp_path):
    rows = [row(1)._replace(positives=[Passage("one"), Passage("two"), Passage("three")])]
    for schema, n_lost in (("st-ntuple", 2), ("flagembedding", 0), ("tevatron", 0)):
        result, _ = written(rows, schema, tmp_path / f"{schema}.jsonl")
        assert result.not_held.get("further positives", 0) == n_lost
        assert len(read_back(tmp_path / f"{schema}.jsonl")[0][1]) == 3 - n_lost


def test_ids_that_a_source_lacks_are_made_and_counted(tmp_path):
    rows = [
        Row("q", [Passage("p", "d1")], [Passage("n", "d2")], "q7"),
        Row("q", [Passage("p")], [Passage("n"), Passage("m")], columns={"qid": 8}),
        Row("r", [Passage("p")], [Passage("n", "d2")]),
    ]
    result, documents = written(rows, "tevatron", tmp_path / "out.jsonl")
    assert [document["query_id"] for document in documents] == ["q7", "8", "3"]
    ids = [passage["docid"] for document in documents[1:] for passage in document["positive_passages"]]
    assert len(set(ids)) == 1  # the same text, the same id
    assert result.n_made_ids == 2
    assert written(rows, "flagembedding", tmp_path / "lists.jsonl")[1][0]["query_id"] == "q7"


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for suffix in SUFFIXES:
        for name in "ab":
            written([row(1), row(2)], "tevatron", tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize("name", ["out.json", "out.csv", "out.jsonl.zst", "out", "out.parquet.gz"])
def test_other_suffixes_are_refused(name):
    with pytest.raises(OutputError):
        suffix_of(Path(name))


def test_the_schema_is_the_sources_own_where_it_is_one_of_the_three():
    assert [schema_of(None, {name}) for name in ("triplet", "tevatron", "dpr")] == ["st-ntuple", "tevatron", SCHEMAS[1]]
    assert schema_of(None, {"triplet", "tevatron"}) == "flagembedding"
    assert schema_of("tevatron", {"triplet"}) == "tevatron"
    with pytest.raises(UsageError):
        schema_of("dpr", {"dpr"})


def test_files_appear_together_or_not_at_all(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"

    def interrupted() -> None:
        with new_files(a, b) as (one, other):
            one.write_text("1", encoding="utf-8")
            other.write_text("2", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    b.symlink_to("nowhere")
    with pytest.raises(OutputError), new_files(a, b):
        pass
    with pytest.raises(OutputError), new_files(tmp_path / "no" / "a"):
        pass
