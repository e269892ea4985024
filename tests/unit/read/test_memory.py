"""Rows of megabytes and rows of two bytes: what is in memory at once does not grow with either."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.errors import InputError
from secid.pool.texts import TextSpool, pieces
from secid.read import columnar, pages, reader, rows
from secid.read.containers import open_parts, sniff
from secid.read.rows import Broken, gathered
from secid.read.stream import ByteStream

from .conftest import read

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


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_of_megabytes_are_decoded_at_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(columnar, "PIECE_BYTES", 1 << 20)
    path = repeated(tmp_path / "a", 1 << 18, kind)  # words longer than usual in a dictionary of a usual size
    flags = {"query_column": "query", "positive_column": "pos", "negative_column": "neg"}
    assert len(read(path, **flags)[1]) == N_ROWS
    stream = ByteStream(str(path))
    sizes = [len(part.rows) for part in open_parts(stream, sniff(stream))]
    stream.close()
    assert sum(sizes) == N_ROWS
    assert 1 < max(sizes) <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_over_the_limit_is_passed_over(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BATCH_BYTES", 1 << 18)
    monkeypatch.setattr(columnar, "PIECE_BYTES", 1 << 18)
    monkeypatch.setattr(columnar, "ROW_LIMIT", 1 << 20)
    path = repeated(tmp_path / "a", 1 << 21, kind)
    stream = ByteStream(str(path))
    found = [row for part in open_parts(stream, sniff(stream)) for row in part.rows]
    stream.close()
    assert {row.reason for row in found if isinstance(row, Broken)} == {"too_large"}
    assert len(found) == N_ROWS


def test_usual_rows_are_decoded_by_the_thousand(tmp_path: Path) -> None:
    names = [f"number {n % 700} " + "x" * 500 for n in range(5000)]
    pq.write_table(pa.table({"query": names, "pos": names, "neg": [[name] * 5 for name in names]}), tmp_path / "a")
    parts = columnar.parquet_rows(str(tmp_path / "a"), "a", None)
    assert [len(part.rows) for part in parts] == [1024] * 4 + [904]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_sizes_stand_in_the_headers_of_pages(compression: str, version: str, tmp_path: Path) -> None:
    words = [f"word {n} " + "x" * n for n in range(300)]
    table = pa.table({"neg": words * 2 + [None, words[0]]})
    pq.write_table(table, tmp_path / "a", compression=compression, data_page_version=version)
    chunk = pq.ParquetFile(tmp_path / "a").metadata.row_group(0).column(0)
    with (tmp_path / "a").open("rb") as file:
        first, second = pages._pages(file, chunk)
        assert first[:2] == (pages.DICTIONARY_PAGE, sum(len(word) + 4 for word in words))
        assert (first.n_values, second.n_values) == (300, 602)
        assert second.start + second.n_packed == chunk.dictionary_page_offset + chunk.total_compressed_size
        assert pages._repeated_bytes(file, chunk) == len(words[-1])


@pytest.mark.parametrize("head", [b"", b"\x15", b"\x00" * 64, b"\x1c" * 8192, b"\x19" * 64, b"\x15\x01" * 5000])
def test_what_is_no_header_of_a_page_ends_them(head: bytes) -> None:
    chunk = SimpleNamespace(dictionary_page_offset=0, data_page_offset=0, total_compressed_size=9999)
    assert list(pages._pages(io.BytesIO(head), chunk)) == []


def header_of(n_bytes: bytes = b"\x15\x08", n_packed: bytes = b"\x15\x08", n_values: bytes = b"\x15\x02") -> bytes:
    """A data page of four bytes that holds one value, or other fields of it, as Thrift writes them."""
    return b"\x15\x00" + n_bytes + n_packed + b"\x2c" + n_values + b"\x15\x00\x00\x00"


HUGE = b"\x15" + b"\x80" * 5 + b"\x40"


@pytest.mark.parametrize("damage", [b"\x15\x01", b"\x1c\x00", HUGE])
@pytest.mark.parametrize("field", ["n_bytes", "n_packed", "n_values"])
def test_a_page_with_impossible_numbers_ends_them(field: str, damage: bytes) -> None:
    """Negative, a structure, or 2 ** 40 - of no page of Parquet."""
    chunk = SimpleNamespace(dictionary_page_offset=0, data_page_offset=0, total_compressed_size=60)
    sound = header_of() + bytes(4)
    assert len(list(pages._pages(io.BytesIO(sound + header_of()), chunk))) == 2
    assert len(list(pages._pages(io.BytesIO(sound + header_of(**{field: damage})), chunk))) == 1


@pytest.mark.parametrize("size", [b"\x81\x00", b"\xff\x01"])
def test_a_dictionary_of_a_negative_size_is_damage(size: bytes, tmp_path: Path) -> None:
    words = [f"word {n % 70}" for n in range(300)]
    pq.write_table(pa.table({"query": words, "pos": words, "neg": words}), tmp_path / "a", compression="snappy")
    data = bytearray((tmp_path / "a").read_bytes())
    start = pq.ParquetFile(tmp_path / "a").metadata.row_group(0).column(0).dictionary_page_offset
    data[start + 3 : start + 5] = size
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InputError, match="cut short or damaged"):
        list(columnar.parquet_rows(str(tmp_path / "a"), "a", None))


def test_dictionaries_of_words_used_once_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_longest_word", None)
    names = [f"number {n} " + "x" * 500 for n in range(5000)]  # more than a dictionary holds
    pq.write_table(pa.table({"query": names, "pos": names, "neg": [[name] for name in names]}), tmp_path / "a")
    assert sum(len(part.rows) for part in columnar.parquet_rows(str(tmp_path / "a"), "a", None)) == 5000


def decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that is decoded, where these may come to 1 MiB."""
    monkeypatch.setattr(pages, "BATCH_BYTES", 1 << 20)
    table = pq.ParquetFile(path)
    return [batch.num_rows for batch in columnar._batches(str(path), table, table.schema_arrow.names, "a")]


def test_one_long_word_in_a_short_dictionary_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word {n}" for n in range(99)] + ["x" * (1 << 17)]
    pq.write_table(pa.table({"neg": words[:99] + words[99:] * 99}), tmp_path / "a")
    assert max(decoded(tmp_path / "a", monkeypatch)) <= 8


def test_long_rows_that_lie_together_are_decoded_by_the_dozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {n}" for n in range(50_000)]
    texts[100:400] = ["x" * (1 << 14)] * 300
    pq.write_table(pa.table({"neg": texts}), tmp_path / "a", use_dictionary=False, write_batch_size=64)
    assert max(decoded(tmp_path / "a", monkeypatch)) <= 64


def test_long_lists_that_lie_together_are_decoded_by_the_dozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [[f"text {n}"] for n in range(50_000)]
    lists[100:400] = [[f"text {n} " + "x" * 100 for n in range(50)]] * 300
    pq.write_table(pa.table({"neg": lists}), tmp_path / "a", use_dictionary=False)
    assert max(decoded(tmp_path / "a", monkeypatch)) <= pages.CLUSTER_ROWS


def test_lists_padded_with_nulls_are_decoded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"neg": [["n"] + [None] * 20_000] * 200}), tmp_path / "a")
    assert max(decoded(tmp_path / "a", monkeypatch)) <= 3


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_page_over_the_limit_is_refused(
    use_dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(pages, "PAGE_LIMIT", 3 << 19)
    names = [f"number {n}" for n in range(300)]
    table = pa.table({"query": names, "positive": names, "negative": [name + "x" * 8000 for name in names]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=use_dictionary)
    with pytest.raises(InputError, match=r"a page of 2 MiB in negative, [^!]*write_batch_size=16"):
        read(tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet", use_dictionary=False, write_batch_size=16)
    assert len(read(tmp_path / "b.parquet")[1]) == 300


def test_the_head_is_as_short_as_its_rows_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"query": "q q", "pos": ["p p"], "neg": ["%s"]}\n' % (b"n " * (1 << 18)) * 20)
    stream = ByteStream(str(path))
    monkeypatch.setattr(reader, "HEAD_CHARACTERS", 1 << 20)
    assert len(reader.first_rows(open_parts(stream, sniff(stream)))[1]) == 2
    stream.close()


def test_parts_of_short_rows_are_short() -> None:
    short: Iterator[tuple[int, Broken, int]] = ((n, Broken("extra_columns", ""), 2) for n in range(10_000))
    assert [len(part.rows) for part in gathered(short)] == [4096, 4096, 1808]
    assert len(next(gathered((n, [], rows.PART_BYTES // 2) for n in itertools.count())).rows) == 3


def test_pieces_hold_so_many_texts_and_bytes() -> None:
    lengths = np.array([5, 5, 5, 30, 5, 5, 5, 5, 5])
    assert list(pieces(9, 4, lengths, 12)) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8), (8, 9)]
    assert list(pieces(9, 4)) == [(0, 4), (4, 8), (8, 9)]
    assert list(pieces(0, 4, lengths[:0])) == []


def test_long_texts_do_not_wait_to_be_written(tmp_path: Path) -> None:
    spool = TextSpool("passage", tmp_path / "texts")
    for n in range(40):
        spool.add([f"{n} " + "x" * (1 << 20)])
        assert (tmp_path / "texts").stat().st_size >= n << 20
    spool.close()


PEAK = """
import sys
from pathlib import Path
from secid.cli.app import main
code = main(["check", "-q", sys.argv[1]])
assert code in (0, 1), code
# The kernel's own mark: ru_maxrss begins at the size of whoever started this process.
mark = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(mark.split()[1]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_check_of_rows_of_megabytes_stays_small(tmp_path: Path) -> None:
    """60 rows of 8 MiB, 480 MiB decoded: all at once they would be there several times."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(repeated(tmp_path / "a.parquet", 8 << 20, "text"))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) < 700, done.stdout
