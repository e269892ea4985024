"""Test what readers know before, during and after the rows."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from secid import files
from secid.read import open_source
from secid.records import Defect, Record, Source
from secid.settings import Settings

from .conftest import read, refused, write

ROW = {"query": "q", "positive": "p", "negative": "n"}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet", ".parquet.zst", ".arrow"])
def test_content_is_the_hash_of_the_bytes_on_disk(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [ROW] * 500)
    reader, found = read(path)
    (content,) = reader.content()
    data = path.read_bytes()
    assert content.sha256 == hashlib.sha256(data).hexdigest()
    assert content.n_bytes == reader.n_bytes == reader.bytes_read() == len(data)
    assert len(found) == 500


def test_the_hash_covers_bytes_behind_the_last_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"query": "q", "pos": ["p"], "neg": ["n"]}\n' + b"\n" * 3_000_000)
    reader, _ = read(path)
    assert reader.content()[0].n_bytes == path.stat().st_size


def test_content_is_known_only_after_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [ROW])
    reader = open_source(Source("a", (str(path),)), Settings())
    with pytest.raises(RuntimeError):
        reader.content()
    assert len(list(reader)) == 1
    with pytest.raises(RuntimeError, match="once"):
        list(reader)


def test_progress_grows_to_the_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{**ROW, "negative": "n" * 1000}] * 5000)
    reader = open_source(Source("a", (str(path),)), Settings())
    seen = [reader.bytes_read() for _ in reader]
    assert seen == sorted(seen)
    assert 0 < seen[0] < reader.n_bytes / 2
    assert reader.bytes_read() == reader.n_bytes


def test_files_of_one_source_may_differ_in_shape(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", [ROW])
    two = write(tmp_path / "b.parquet", [{"query": "q", "pos": ["p"], "neg": ["n"]}])
    reader = open_source(Source("x", (str(one), str(two))), Settings())
    assert [file.schema for file in reader.files] == ["triplet", "flagembedding"]
    assert [item.path for item in reader] == [str(one), str(two)]
    assert len(reader.content()) == 2


def test_an_empty_shard_is_not_an_error(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", [ROW])
    two = tmp_path / "b.jsonl"
    two.write_bytes(b"")
    reader = open_source(Source("x", (str(one), str(two))), Settings())
    assert [file.schema for file in reader.files] == ["triplet", "empty"]
    assert len(list(reader)) == 1
    assert [content.n_bytes for content in reader.content()] == [one.stat().st_size, 0]


def pairs(tmp_path: Path, rows: list[tuple[Any, Any, Any]]) -> list[Record | Defect]:
    path = write(tmp_path / "a.jsonl", [{"query": q, "passage": p, "label": label} for q, p, label in rows])
    return read(path)[1]


def test_labelled_pairs_are_grouped_in_order_of_first_appearance(tmp_path: Path) -> None:
    found = pairs(
        tmp_path, [("b", "n1", 0), ("a", "p", 1), ("b", "p", 1), ("a", "n", 0), ("b", "n2", 0), ("b", "n1", 0)]
    )
    assert [tuple(item) for item in found] == [
        tuple(Record("b", ("p",), ("n1", "n2", "n1"), found[0].path, 1, n_rows=4)),
        tuple(Record("a", ("p",), ("n",), found[0].path, 2, n_rows=2)),
    ]


def test_groups_without_positive_or_negative_are_defects(tmp_path: Path) -> None:
    found = pairs(
        tmp_path, [("a", "p", 1), ("a", "n", 0), ("b", "n", 0), ("c", "p", 1), ("d", "p", None), ("e", "", 0)]
    )
    assert [(item.line, item.reason) for item in found if isinstance(item, Defect)] == [
        (5, "missing_field"), (6, "empty_negative"), (3, "none_relevant"), (4, "no_negatives"),
    ]  # fmt: skip


def test_groups_reach_across_the_files_of_a_source(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", [{"query": "q", "passage": "p", "label": 1}] * 2)
    two = write(tmp_path / "b.jsonl", [{"query": "q", "passage": "n", "label": 0}])
    found = list(open_source(Source("x", (str(one), str(two))), Settings()))
    assert [item[:3] for item in found] == [("q", ("p", "p"), ("n",))]


def test_groups_larger_than_memory_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"query {n % 500}", f"text {n} " + "x" * 500, int(n % 7 == 0)) for n in range(5000)]
    whole = pairs(tmp_path, rows)
    monkeypatch.setattr(files, "CACHE_KIB", 64)
    assert pairs(tmp_path, rows) == whole
    assert sum(len(item.positives) + len(item.negatives) for item in whole if isinstance(item, Record)) == 5000


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv", ".tsv"])
@pytest.mark.parametrize("of_positives", ["gold", None])
def test_positives_count_for_all_sources_of_their_query(of_positives: Any, suffix: str, tmp_path: Path) -> None:
    rows = [
        {"query": "q", "passage": "n", "label": 0, "miner": "bm25"},
        {"query": "q", "passage": "p", "label": 1, "miner": of_positives},
        {"query": "q", "passage": "m", "label": 0, "miner": "dense"},
        {"query": "q", "passage": "own", "label": 1, "miner": "dense"},
        {"query": "r", "passage": "o", "label": 0, "miner": "dense"},
        {"query": "r", "passage": "h", "label": 0, "miner": None},
    ]
    null, *found = read(write(tmp_path / f"a{suffix}", rows), source_column="miner")[1]
    assert (null.reason, null.line) == ("missing_field", 7 if suffix in (".csv", ".tsv") else 6)
    assert [(item.split, item.positives, item.negatives) for item in found if isinstance(item, Record)] == [
        ("bm25", ("p", "own"), ("n",)),
        ("dense", ("own",) if of_positives else ("p", "own"), ("m",)),
    ]
    defects = [(item.split, item.reason, item.n_rows) for item in found if isinstance(item, Defect)]
    assert defects == [("gold", "no_negatives", 1)] * bool(of_positives) + [("dense", "none_relevant", 1)]


def test_a_positive_of_no_source_is_a_row_of_each_source_that_uses_it(tmp_path: Path) -> None:
    rows = [("q", "p", 1, None), ("q", "n", 0, "a"), ("q", "m", 0, "b"), ("q", "o", 0, "b")]
    rows += [("r", "unused", 1, None), ("r", "positive alone", 1, "a")]
    named = [dict(zip(("query", "passage", "label", "miner"), row, strict=True)) for row in rows]
    found = read(write(tmp_path / "a.jsonl", named), source_column="miner")[1]
    assert [(item.split, item.line, item.n_rows, getattr(item, "reason", "")) for item in found] == [
        ("a", 2, 2, ""), ("b", 3, 3, ""), (None, 5, 1, "no_negatives"), ("a", 6, 1, "no_negatives"),
    ]  # fmt: skip


def test_pairs_are_grouped_within_their_source_column(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "passage": text, "label": label, "miner": miner}
        for miner in ("a", "b")
        for text, label in (("p", 1), (f"n {miner}", 0))
    ]
    found = read(write(tmp_path / "a.jsonl", rows), source_column="miner")[1]
    assert [(item.split, item.negatives) for item in found] == [("a", ("n a",)), ("b", ("n b",))]


def test_a_file_that_goes_bad_half_way_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(b'{"query": "q", "pos": ["p"], "neg": ["n"]}\n' * 60_000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data[:-100])
    reader = open_source(Source("a", (str(path),)), Settings())
    with refused(path):
        list(reader)


def test_reading_needs_neither_torch_nor_pyarrow_for_json() -> None:
    code = (
        "import sys, secid.read; print([name for name in ('torch', 'pyarrow', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@contextmanager
def piped(*pieces: bytes) -> Iterator[str]:
    """The path of a pipe into which the pieces are written one by one, with a rest before each."""
    out, into = os.pipe()

    def pour() -> None:
        with open(into, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            for piece in pieces:
                time.sleep(0.05)
                file.write(piece)

    with ThreadPoolExecutor() as other:
        poured = other.submit(pour)
        yield f"/dev/fd/{out}"
        os.close(out)
        poured.result()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv", ".parquet"])
def test_a_pipe_is_read_from_its_first_byte_to_its_last(suffix: str, tmp_path: Path) -> None:
    rows = [{"query": f"q {at}", "positive": f"p {at}", "negative": "n" * 300} for at in range(2000)]
    data = write(tmp_path / f"a{suffix}", rows).read_bytes()
    with piped(data) as path:
        reader, found = read(path)
    assert [item.query for item in found] == [f"q {at}" for at in range(2000)]
    assert (reader.n_bytes, reader.bytes_read()) == (None, len(data))
    assert reader.content()[0].sha256 == hashlib.sha256(data).hexdigest()


def test_a_pipe_that_fills_slowly_is_understood_from_more_than_has_arrived() -> None:
    with piped(b"query,posi", b"tive,negative\nq,p,n\n") as path:
        reader, (record,) = read(path)
    assert (reader.files[0].container, record[:3]) == ("csv", ("q", ("p",), ("n",)))
