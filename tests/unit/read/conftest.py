"""Helpers of the reader tests: write rows to any container, and read a whole source."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.errors import InputError, SecidError
from secid.read import Reader, open_source, resolve_sources
from secid.records import Defect, Record
from secid.settings import Settings


def zstd(data: bytes) -> bytes:
    """Return the data as one zstd frame."""
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_array(path: Path, rows: list[Any]) -> None:
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def write_parquet(path: Path, rows: list[Any]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_arrow(path: Path, rows: list[Any]) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_table(path: Path, rows: list[Any]) -> None:
    delimiter = "\t" if ".tsv" in path.name else ","
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if isinstance(rows[0], dict):
            writer.writerow(rows[0])
        writer.writerows(list(row.values()) if isinstance(row, dict) else row for row in rows)


def write(path: Path, rows: list[Any]) -> Path:
    """Write rows in the format of the path's suffixes."""
    packing = path.suffix if path.suffix in (".gz", ".zst") else ""
    plain = path.with_suffix("") if packing else path
    writers = {
        ".jsonl": write_jsonl, ".json": write_array, ".parquet": write_parquet, ".arrow": write_arrow,
        ".csv": write_table, ".tsv": write_table,
    }  # fmt: skip
    writers[plain.suffix](plain, rows)
    if packing:
        data = plain.read_bytes()
        plain.unlink()
        path.write_bytes(gzip.compress(data) if packing == ".gz" else zstd(data))
    return path


def read(path: Path | str, **settings: Any) -> tuple[Reader, list[Record | Defect]]:
    """Return the reader of a path's only source, and all its items."""
    chosen = Settings(**settings)
    (source,) = resolve_sources([str(path)])
    reader = open_source(source, chosen)
    return reader, list(reader)


@contextmanager
def refused(where: Path | str, kind: type[SecidError] = InputError) -> Iterator[pytest.ExceptionInfo[SecidError]]:
    """Expect an error of exactly this class, about this file, folder or line."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind
    assert (caught.value.where or str(caught.value)).endswith(str(where))


@pytest.fixture
def items(tmp_path: Path) -> Callable[..., list[Record | Defect]]:
    """Return a function that reads rows (JSON lines) or bytes from a file, and returns their items."""

    def of(content: Any, name: str = "source.jsonl", **settings: Any) -> list[Record | Defect]:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write(path, content)
        return read(path, **settings)[1]

    return of


@pytest.fixture
def collection(tmp_path: Path) -> str:
    """A BEIR folder with the ids that the table's examples use."""
    folder = tmp_path / "collection"
    folder.mkdir()
    texts = {"1": "p", "2": "n", "3": "m", "d1": "p", "d2": "n"}
    write_jsonl(folder / "corpus.jsonl", [{"_id": key, "title": "", "text": text} for key, text in texts.items()])
    write_jsonl(folder / "queries.jsonl", [{"_id": "11", "text": "q"}])
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n11\t1\t1\n", encoding="utf-8")
    return str(folder)
