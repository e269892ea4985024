"""Rows of megabytes and rows of two bytes: what is in memory at once does not grow with either."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.pool.texts import TextSpool, batch_ranges
from secid.read import containers, reader
from secid.read import stream as rows
from secid.read.containers import open_parts, sniff
from secid.read.stream import Broken, ByteStream, Part, in_parts
from secid.read.textrows import TOO_DEEP

from .conftest import read, refused

LONG = "one two "
N_ROWS = 60


def repeated(path: Path, n_bytes: int, kind: str) -> Path:
    """N_ROWS rows whose negatives are two texts of n_bytes, each in the file once."""
    words = pa.array([LONG * (n_bytes // 8), LONG[::-1] * (n_bytes // 8)])
    which = pa.array([n % 2 for n in range(N_ROWS)], pa.int32())
    texts = pa.DictionaryArray.from_arrays(which, words)
    if kind == "list":
        texts = pa.ListArray.from_arrays(pa.array(range(N_ROWS + 1), pa.int32()), texts)
    names = [f"number {n}" for n in range(N_ROWS)]
    table = pa.table({"query": names, "pos": [[name] for name in names], "neg": texts})
    if kind == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path, store_schema=kind == "categories")
    return path


KINDS = ["text", "list", "categories", "arrow"]


def parts_of(path: Path) -> list[Part]:
    stream = ByteStream(str(path))
    parts = list(open_parts(stream, sniff(stream)))
    stream.close()
    return parts


@pytest.mark.parametrize("kind", KINDS)
def test_long_words_that_many_rows_share_are_read_whole(kind: str, tmp_path: Path) -> None:
    path = repeated(tmp_path / "a", 1 << 18, kind)
    flags = {"query_column": "query", "positive_column": "pos", "negative_column": "neg"}
    assert [len(item.negatives[0]) for item in read(path, **flags)[1]] == [1 << 18] * N_ROWS


def long_rows(path: Path, n_bytes: int, n_long: int = N_ROWS) -> Path:
    """Write N_ROWS rows, whose first n_long negatives have n_bytes each."""
    names = [f"number {n}" for n in range(N_ROWS)]
    texts = [f"{name} " + "x" * n_bytes * (n < n_long) for n, name in enumerate(names)]
    table = pa.table({"query": names, "pos": [[name] for name in names], "neg": [[text] for text in texts]})
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path, write_batch_size=1)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_few_long_rows_are_handed_on_at_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "BATCH_BYTES", 1 << 20)
    parts = parts_of(long_rows(tmp_path / name, 1 << 18))
    assert sum(len(part.rows) for part in parts) == N_ROWS
    assert max(len(part.rows) for part in parts) in (3, 4)
    assert [number for part in parts for number in part.numbers] == list(range(1, N_ROWS + 1))
    assert 0.0 < parts[0].fraction_read <= parts[-1].fraction_read == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_row_over_the_limit_is_counted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "BATCH_BYTES", 1 << 14)
    monkeypatch.setattr(containers, "READ_BATCH_ROWS", 1)
    monkeypatch.setattr(containers, "ROW_LIMIT", 1 << 16)
    found = [row for part in parts_of(long_rows(tmp_path / name, 1 << 17, n_long=3)) for row in part.rows]
    assert [row.reason if isinstance(row, Broken) else "" for row in found] == ["too_large"] * 3 + [""] * (N_ROWS - 3)


def test_rows_over_the_limit_on_average_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "ROW_LIMIT", 1 << 16)
    with refused("a.parquet"):
        parts_of(long_rows(tmp_path / "a.parquet", 1 << 17))


def test_usual_rows_are_decoded_by_the_hundred(tmp_path: Path) -> None:
    names = [f"number {n % 700} " + "x" * 500 for n in range(5000)]
    pq.write_table(pa.table({"query": names, "pos": names, "neg": [[name] * 5 for name in names]}), tmp_path / "a")
    assert [len(part.rows) for part in parts_of(tmp_path / "a")] == [256] * 19 + [136]


def test_lists_padded_with_nulls_are_handed_on_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "BATCH_BYTES", 1 << 20)
    pq.write_table(pa.table({"neg": [["n"] + [None] * 20_000] * 200}), tmp_path / "a")
    assert max(len(part.rows) for part in parts_of(tmp_path / "a")) <= 20


@pytest.mark.parametrize("size", [b"\x81\x00", b"\xff\x01"])
def test_a_dictionary_of_a_negative_size_is_damage(size: bytes, tmp_path: Path) -> None:
    words = [f"word {n % 70}" for n in range(300)]
    pq.write_table(pa.table({"query": words, "pos": words, "neg": words}), tmp_path / "a", compression="snappy")
    data = bytearray((tmp_path / "a").read_bytes())
    start = pq.ParquetFile(tmp_path / "a").metadata.row_group(0).column(0).dictionary_page_offset
    data[start + 3 : start + 5] = size
    (tmp_path / "a").write_bytes(data)
    with refused("a"):
        parts_of(tmp_path / "a")


def test_the_head_is_as_short_as_its_rows_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"query": "q q", "pos": ["p p"], "neg": ["%s"]}\n' % (b"n " * (1 << 18)) * 20)
    stream = ByteStream(str(path))
    monkeypatch.setattr(reader, "MAX_HEAD_PARTS", 2)
    assert len(reader.first_rows(open_parts(stream, sniff(stream)))[1]) == 2
    stream.close()


def test_parts_of_short_rows_are_short() -> None:
    short: Iterator[tuple[int, Broken, int]] = ((n, TOO_DEEP, 2) for n in range(10_000))
    assert [len(part.rows) for part in in_parts(short)] == [4096, 4096, 1808]
    assert len(next(in_parts((n, [], rows.PART_BYTES // 2) for n in itertools.count())).rows) == 3


def test_ranges_respect_the_limits_of_texts_and_bytes() -> None:
    lengths = np.array([5, 5, 5, 30, 5, 5, 5, 5, 5])
    assert list(batch_ranges(9, 4, lengths, 12)) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8), (8, 9)]
    assert list(batch_ranges(9, 4)) == [(0, 4), (4, 8), (8, 9)]
    assert list(batch_ranges(0, 4, lengths[:0])) == []


def test_long_texts_do_not_wait_to_be_written(tmp_path: Path) -> None:
    spool = TextSpool("passage", tmp_path / "texts")
    for n in range(40):
        spool.add([f"{n} " + "x" * (1 << 20)])
        assert (tmp_path / "texts").stat().st_size >= n << 20
    spool.close()


PEAK = """
import sys
from pathlib import Path
from secid.read import open_source
from secid.records import Source
from secid.settings import Settings
print(sum(len(item.queries) for item in open_source(Source("a", (sys.argv[1],)), Settings()).blocks()))
# The kernel's own mark: ru_maxrss begins at the size of whoever started this process.
mark = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(mark.split()[1]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_rows_of_megabytes_stays_small(tmp_path: Path) -> None:
    """60 rows of 8 MiB, 480 MiB decoded."""
    path = long_rows(tmp_path / "a.parquet", 8 << 20)
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    n_rows, mebibytes = map(int, done.stdout.split())
    assert n_rows == N_ROWS
    assert mebibytes < 300
