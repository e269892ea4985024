"""Test how ids are replaced by their texts."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import pytest

from secid.read.collection import Collection, open_collection
from secid.read.reader import temporary_database
from secid.records import Record
from secid.settings import Settings

from .conftest import read, refused, write, write_jsonl


def test_ids_compare_as_strings_and_titles_are_joined(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.jsonl", [{"_id": 7, "title": "T", "text": "x"}, {"_id": "8", "text": "y"}])
    collection = Collection([str(path)], (), titles=True)
    assert [collection.passage(key) for key in ("7", "8", "9", "07")] == ["T x", "y", None, None]
    assert Collection([str(path)], (), titles=False).passage("7") == "x"
    assert collection.has("passages")
    assert not collection.has("queries")
    assert collection.query("7") is None


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv", ".tsv"])
def test_a_corpus_in_every_container(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"corpus{suffix}", [{"docid": "a1", "text": "x y"}, {"docid": "a2", "text": "z y"}])
    collection = Collection([str(path)], (), titles=True)
    assert (collection.passage("a1"), collection.passage("a2")) == ("x y", "z y")


def test_tables_without_header(tmp_path: Path) -> None:
    corpus = tmp_path / "collection.tsv"
    corpus.write_bytes(b"0\tThe presence\t\n".replace(b"\t\n", b"\n") + b'1\t"Quoted" freely\r\n')
    queries = tmp_path / "queries.tsv"
    queries.write_bytes(b"11\twhat is it\n")
    collection = Collection([str(corpus)], [str(queries)], titles=True)
    assert collection.passage("1") == '"Quoted" freely'
    assert collection.query("11") == "what is it"


def test_a_corpus_of_shards(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for n in range(2):
        write_jsonl(tmp_path / f"c/corpus-{n:05d}-of-00002.jsonl", [{"_id": str(n), "text": f"x {n}"}])
    assert open_collection(Settings(corpus=str(tmp_path / "c"))).passage("1") == "x 1"


def test_ids_that_restart_per_shard_are_an_error(tmp_path: Path) -> None:
    rows = [{"_id": "1", "text": "x"}, {"_id": "2", "text": "y"}, {"_id": "1", "text": "z"}]
    path = write(tmp_path / "corpus.jsonl", rows)
    with refused(path):
        Collection([str(path)], (), titles=True)
    same = write(tmp_path / "same.jsonl", [rows[0], rows[0]])
    assert Collection([str(same)], (), titles=True).passage("1") == "x"


@pytest.mark.parametrize("row", [{"text": "x"}, {"_id": "1"}, {"_id": None, "text": "x"}, {"_id": "1", "text": 7}])
def test_a_file_that_is_not_a_collection_is_an_error(row: dict[str, object], tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.jsonl", [row])
    with refused("corpus.jsonl:1"):
        Collection([str(path)], (), titles=True)


def test_a_damaged_row_of_a_corpus_is_passed_over_and_its_id_missing(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"_id": "1", "text": "x"}\n{"_id": "2", "te\n{"_id": "3", "text": "y"}\n')
    collection = Collection([str(path)], (), titles=True)
    assert [collection.passage(key) for key in "123"] == ["x", None, "y"]


def test_a_missing_folder_or_corpus_is_an_error(tmp_path: Path) -> None:
    with refused("none"):
        open_collection(Settings(collection=str(tmp_path / "none")))
    with refused(tmp_path):
        open_collection(Settings(collection=str(tmp_path)))
    with refused("none.jsonl"):
        open_collection(Settings(corpus=str(tmp_path / "none.jsonl")))


def test_query_ids_without_queries_are_an_error(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", [{"_id": "1", "text": "x"}])
    path = write(tmp_path / "a.jsonl", [{"query": 1, "positive": 1, "negative": 1}])
    for given in ({"corpus": str(corpus)}, {"collection": str(tmp_path)}):
        with refused(path) as caught:
            read(path, **given)
        assert "queries" in str(caught.value.remedy)


def test_query_texts_with_passage_ids_need_only_the_corpus(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", [{"_id": "d1", "text": "x"}, {"_id": "d2", "text": "y"}])
    row = {"query_text": "what", "positive_document_ids": ["d1"], "negative_document_ids": ["d2"]}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]), corpus=str(corpus))
    assert isinstance(record, Record)
    assert record[:3] == ("what", ("x",), ("y",))


def test_a_collection_is_loaded_once(collection: str) -> None:
    assert open_collection(Settings(collection=collection)) is open_collection(Settings(collection=collection))


def test_a_database_is_closed_when_its_owner_goes() -> None:
    collection = Collection((), (), titles=True)
    database = temporary_database(collection)
    database.execute("SELECT 1")
    del collection
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_passages_are_read_to_the_end_after_the_last_mention_of_their_collection(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.jsonl", [{"_id": str(n), "text": f"x {n}"} for n in range(3)])
    passages = Collection([str(path)], (), titles=True).passages()
    gc.collect()
    assert list(passages) == ["x 0", "x 1", "x 2"]
