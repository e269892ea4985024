"""Rows in a trainer's schema: read back by secid, by sentence-transformers' rules, and by plain JSON and Parquet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from secid.errors import OutputError, UsageError
from secid.read import open_source
from secid.read.detect import SHAPES
from secid.records import Defect, Record, Source
from secid.results.commands import COPY_SUFFIXES
from secid.settings import Settings
from secid.write.rows import CopyRow, Passage, RowsOnDisk, row_of
from secid.write.writer import MINED, SCHEMAS, WrittenFile, new_files, schema_of, suffix_of, write_rows


def row(number: int, n_negatives: int = 2, **more: Any) -> CopyRow:
    negatives = [Passage(f"bad {number} {k}", f"n{k}", "", 0.1 * k) for k in range(n_negatives)]
    return CopyRow(f"q {number}", [Passage(f"T good {number}", f"p{number}", "T", 0.9)], negatives, **more)


def written(rows: Sequence[CopyRow], schema: Any, path: Path) -> tuple[WrittenFile, list[dict[str, Any]]]:
    """Return the result, and the documents as other programs read them."""
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


def hashed(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def texts(rows: Sequence[CopyRow]) -> list[tuple[str, list[str], list[str]]]:
    return [(r.query, [p.text for p in r.positives], [p.text for p in r.negatives]) for r in rows]


@pytest.mark.parametrize("suffix", COPY_SUFFIXES)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_rows_come_back_the_same(tmp_path, schema, suffix):
    n = 2059 if suffix == ".parquet" else 299  # which is written in batches of 1,024
    rows = [row(number, columns={"lang": "de", "n": number}) for number in range(1, n + 1)]
    result, documents = written(rows, schema, tmp_path / f"out{suffix}")
    assert read_back(tmp_path / f"out{suffix}") == texts(rows)
    assert (result.n_rows, result.n_negatives, len(documents)) == (n, 2 * n, n)
    ids, scores, both = {"ids of passages": n}, {"scores of passages": n}, {"lang": n, "n": n}
    lost = {"st-ntuple": {**ids, **scores, **both}, "flagembedding": {}, "tevatron": scores, "nvidia": scores}
    assert result.not_held == lost[schema]
    assert documents[6] == {
        "st-ntuple": {"anchor": "q 7", "positive": "T good 7", "negative_1": "bad 7 0", "negative_2": "bad 7 1"},
        "flagembedding": {
            "query": "q 7", "pos": ["T good 7"], "neg": ["bad 7 0", "bad 7 1"], "pos_scores": [0.9],
            "neg_scores": [0.0, 0.1], "pos_ids": ["p7"], "neg_ids": ["n0", "n1"], "lang": "de", "n": 7,
        },
        "tevatron": {
            "query_id": hashed("q 7"), "query": "q 7",
            "positive_passages": [{"docid": "p7", "title": "T", "text": "good 7"}],
            "negative_passages": [{"docid": f"n{k}", "title": "", "text": f"bad 7 {k}"} for k in range(2)],
            "lang": "de", "n": 7,
        },
        "nvidia": {
            "question_id": hashed("q 7"), "query": "q 7", "pos_doc": [{"id": "p7", "text": "T good 7"}],
            "neg_doc": [{"id": f"n{k}", "text": f"bad 7 {k}"} for k in range(2)], "lang": "de", "n": 7,
        },
    }[schema]  # fmt: skip


@pytest.mark.parametrize("suffix", COPY_SUFFIXES)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_where_a_negative_is_from_is_kept_where_there_is_place(tmp_path, schema, suffix):
    mined = [
        Passage("near one", "d1", "", 0.75, 3, -0.25, "dense"),
        Passage("any one", "", "", None, None, 0.5, "random"),
    ]
    rows = [CopyRow("q 1", [Passage("good one", "p1")], mined, query_id="q1"), row(2)]
    path = tmp_path / f"out{suffix}"
    result, _ = written(rows, schema, path)
    disk = RowsOnDisk(tmp_path / "rows")
    for _ in disk.watch(open_source(Source("in", (str(path),)), Settings(), keep=True).blocks()):
        pass
    kept = [own for _, own in disk.rows("") if own is not None]
    if schema == "st-ntuple":
        assert result.not_held == {"ids of passages": 2, "query_id": 1, "scores of passages": 2, MINED: 1}
        return
    assert result.not_held == {"scores of positives": 1}
    made = "" if schema == "flagembedding" else hashed("any one")
    assert kept[0].negatives == [mined[0], mined[1]._replace(id=made)]
    assert not kept[0].unsupported


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
        assert ("" not in ids) == bool(
            (has_ids and shape.name != "text-and-ids") or shape.name == "tevatron" or split in ("dpr", "hard", "random")
        )


MIXED = [
    {},
    {"a": 1, "b": True, "c": 1, "d": None, "f": 1, "g": 2**53 + 1, "h": 0.5},
    {"a": 2.5, "b": "x", "c": 2**70, "e": float("nan"), "f": True, "g": 0.5, "h": float("inf")},
]


def test_values_stay_as_they_are_or_their_column_is_named(tmp_path):
    rows = [row_of(record_of(row(number, columns=one))) for number, one in enumerate(MIXED)]
    result, documents = written(rows, "flagembedding", tmp_path / "out.jsonl")
    assert result.not_held == {"NaN or infinity in e": 1, "NaN or infinity in h": 1}
    assert [list(document) for document in documents] == [[*["query", "pos", "neg"], *"abcdfghe"]] * 3
    for name in "abcdfg":
        assert repr([document[name] for document in documents]) == repr([one.get(name) for one in MIXED])
    assert [[document[name] for name in "eh"] for document in documents] == [[None, None], [None, 0.5], [None, None]]
    result, documents = written(rows, "flagembedding", tmp_path / "out.parquet")
    assert result.not_held == {"b": 2, "c": 2, "f": 2, "g": 2}
    assert [list(document) for document in documents] == [[*["query", "pos", "neg"], *"adhe"]] * 3
    assert [document["a"] for document in documents] == [None, 1.0, 2.5]
    assert repr([document["e"] for document in documents]) == "[None, None, nan]"


def record_of(given: CopyRow) -> Record:
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
    for schema, n_lost in (("st-ntuple", 2), ("flagembedding", 0), ("tevatron", 0), ("nvidia", 0)):
        result, _ = written(rows, schema, tmp_path / f"{schema}.jsonl")
        assert result.not_held.get("further positives", 0) == n_lost
        assert len(read_back(tmp_path / f"{schema}.jsonl")[0][1]) == 3 - n_lost


def test_ids_that_a_source_lacks_are_made_and_counted(tmp_path):
    rows = [
        CopyRow("q", [Passage("p", "d1")], [Passage("n", "d2")], "q7"),
        CopyRow("q", [Passage("p")], [Passage("n"), Passage("m")], columns={"qid": 8}),
        CopyRow("r", [Passage("p")], [Passage("n", "d2")]),
    ]
    result, documents = written(rows, "tevatron", tmp_path / "out.jsonl")
    assert [document["query_id"] for document in documents] == ["q7", "8", hashed("r")]
    ids = [passage["docid"] for document in documents[1:] for passage in document["positive_passages"]]
    assert len(set(ids)) == 1  # the same text, the same id
    assert result.n_made_ids == 2
    assert written(rows, "flagembedding", tmp_path / "lists.jsonl")[1][0]["query_id"] == "q7"


IDS = [
    ({"pos_id": ["p"], "neg_id": ["n", 7]}, ["p", "n", "7"]),
    ({"positive_id": "p", "negative_ids": ["n", "m"]}, ["p", "n", "m"]),
    ({"positive_doc_id": "p", "negative_2_id": "m", "negative_1_id": "n"}, ["p", "n", "m"]),
    ({"pos_id": ["p", None], "neg_id": ["n", None, None]}, ["p", "n", None]),
    ({"pos_id": ["p", "too many"], "neg_id": ["n", 0.5]}, [None] * 3),
]


@pytest.mark.parametrize(("columns", "ids"), IDS)
def test_ids_in_columns_of_their_own_are_kept(tmp_path, columns, ids):
    kept = row_of(record_of(CopyRow("q", [Passage("a p")], [Passage("a n"), Passage("a m")], columns=columns)))
    result, documents = written([kept], "tevatron", tmp_path / "out.jsonl")
    passages = [*documents[0]["positive_passages"], *documents[0]["negative_passages"]]
    made = [hashed(passage["text"]) for passage in passages]
    assert [passage["docid"] for passage in passages] == [own or other for own, other in zip(ids, made, strict=True)]
    assert set(result.not_held) == ({"pos_id", "neg_id"} if not any(ids) else set())


@pytest.mark.parametrize("name", ["id", "_id", "qid", "query-id", "question_id", "query_id"])
def test_the_id_of_the_query_is_the_rows_own(tmp_path, name):
    rows = [row_of(record_of(row(1, columns={name: 17})))]
    assert written(rows, "tevatron", tmp_path / "out.jsonl")[1][0]["query_id"] == "17"


def test_scores_that_fit_no_passages_are_named(tmp_path):
    for number, scores in enumerate((["a", "b"], [0.1], [True, 0.5], 0.5)):
        rows = [
            row_of(
                record_of(CopyRow("q", [Passage("p")], [Passage("n"), Passage("m")], columns={"neg_scores": scores}))
            )
        ]
        assert written(rows, "flagembedding", tmp_path / f"{number}.jsonl")[0].not_held == {"neg_scores": 1}


@pytest.mark.parametrize("blank", [["p", "n", ""], ["p", "", "n"], ["", "p", "n"], ["p", "n", None]])
def test_scores_and_ids_stay_with_their_passages_whatever_is_blank(tmp_path, blank):
    path = tmp_path / "in.jsonl"
    scores, ids = [0.1, 0.2, 0.3], ["d1", "d2", "d3"]
    document = {"query": "q", "pos": ["a"], "neg": blank, "pos_scores": [0.9], "neg_scores": scores, "neg_ids": ids}
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")
    (record,) = open_source(Source("in", (str(path),)), Settings(), keep=True)
    assert isinstance(record, Record)
    kept = row_of(record)
    expected = [(text, name, score) for text, name, score in zip(blank, ids, scores, strict=True) if text]
    assert [(passage.text, passage.id, passage.score) for passage in kept.negatives] == expected
    assert not kept.unsupported


PAIRS = """qid,query,pid,passage,label,lang,topic
q1,what is a cat,p1,a cat is an animal,1,en,x
q1,what is a cat,p2,a dog barks loudly,0,en,y
q2,what is rain,p3,rain is falling water,1,de,x
q2,what is rain,p4,snow is cold and white,0,de,x
"""


def test_labelled_pairs_keep_what_all_rows_of_a_query_share(tmp_path):
    (tmp_path / "in.csv").write_text(PAIRS, encoding="utf-8")
    disk = RowsOnDisk(tmp_path / "rows")
    for _ in disk.watch(open_source(Source("in", (str(tmp_path / "in.csv"),)), Settings(), keep=True).blocks()):
        pass
    rows = [kept for _, kept in disk.rows("") if kept is not None]
    result, documents = written(rows, "tevatron", tmp_path / "out.jsonl")
    assert (result.not_held, result.n_made_ids) == ({"topic": 1}, 0)
    assert [(d["query_id"], d["lang"], d["topic"]) for d in documents] == [("q1", "en", None), ("q2", "de", "x")]
    assert [d["negative_passages"][0]["docid"] for d in documents] == ["p2", "p4"]


CLASHES = [
    ({"anchor": "an anchor", "positive": "a positive", "negative": "a negative"}, "flagembedding", {"negative"}),
    ({"anchor": "an anchor", "positive": "a positive", "neg0": "a negative"}, "tevatron", {"anchor", "neg0"}),
    ({"pos_doc": "a text", "neg_doc": "another text", "answer": "an answer"}, "flagembedding", {"neg_doc"}),
    ({"pos_title": None, "neg_title": None, "title": "T", "neg0": 4}, "flagembedding", set()),
]


@pytest.mark.parametrize(("columns", "schema", "left_out"), CLASHES)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_columns_that_would_change_the_reading_are_named(tmp_path, suffix, columns, schema, left_out):
    rows = [row(number, columns=columns) for number in range(80)]
    rows += [row(80, columns={name: value or "a late title" for name, value in columns.items()})]
    result, documents = written(rows, schema, tmp_path / f"out{suffix}")
    assert set(columns).difference(documents[0]) == left_out
    assert left_out <= set(result.not_held)
    assert read_back(tmp_path / f"out{suffix}") == texts(rows)


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for suffix in COPY_SUFFIXES:
        for name in "ab":
            written([row(1), row(2)], "tevatron", tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize("name", ["out.json", "out.csv", "out.jsonl.zst", "out", "out.parquet.gz"])
def test_other_suffixes_are_refused(name):
    with pytest.raises(OutputError):
        suffix_of(Path(name))


def test_the_schema_is_the_source_s_if_it_is_one_of_the_three():
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
