"""Sources that are Python objects: the rows of a file, whatever holds them."""

from __future__ import annotations

import math

import orjson
import pyarrow as pa
import pytest

import secid
from secid.errors import SecidError
from secid.read import open_source, resolve_sources
from secid.records import Defect, Record
from secid.settings import Settings
from tests.snapshots import situations
from tests.unit.read.conftest import write_jsonl

ROWS = [{"query": f"q {n}", "pos": [f"p {n}"], "neg": [f"n {n}", f"m {n}"], "score": n / 2} for n in range(700)]


def pandas(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


def polars(rows):
    return pytest.importorskip("polars").DataFrame(rows)


def dataset(rows):
    return pytest.importorskip("datasets").Dataset.from_list(rows)


MAKERS = {
    "pandas": pandas,
    "pandas without some rows": lambda rows: pandas([{}, *rows]).iloc[1:],
    "polars": polars,
    "arrow": pa.Table.from_pylist,
    "arrow, once": lambda rows: pa.Table.from_pylist(rows).to_reader(max_chunksize=100),
    "dataset": dataset,
    "dataset as tensors": lambda rows: dataset(rows).with_format("numpy"),
    "dataset with a transform": lambda rows: dataset([{**row, "query": "-"} for row in rows]).with_transform(
        lambda batch: {**batch, "query": [f"q {int(2 * score)}" for score in batch["score"]]}
    ),
    "shuffled dataset": lambda rows: dataset(rows[::-1]).select(range(len(rows) - 1, -1, -1)),
    "iterable dataset": lambda rows: dataset(rows).to_iterable_dataset(),
    "dicts": list,
    "dicts, once": iter,
}


def read(*sources):
    """Name, items and content of each source."""
    files = resolve_sources(sources)
    readers = [open_source(source, Settings()) for source in files]
    return [(reader.source.name, list(reader), reader.content()) for reader in readers]


def as_rows(items, path):
    assert {item.path for item in items} == {path}
    return [(*item[:3], item.line, item.dropped) if isinstance(item, Record) else item[::2] for item in items]


@pytest.fixture
def file(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    return tmp_path / "rows.jsonl"


@pytest.mark.parametrize("kind", MAKERS)
def test_an_object_gives_the_records_of_a_file(kind, file):
    expected, (name, items, content) = read(file)[0], read(("mine", MAKERS[kind](ROWS)))[0]
    assert name == "mine"
    assert as_rows(items, "<mine>") == as_rows(expected[1], str(file))
    assert content[0].n_bytes > 0
    assert content == read(("mine", MAKERS[kind](ROWS)))[0][2]  # the same bytes for the same rows


SPARSE = [
    {"query": "q 0", "pos": "p 0", "neg": ["n 0", None]},
    {"query": None, "pos": "p 1", "neg": ["n 1"]},
    {"query": "q 2", "pos": None, "neg": ["n 2"]},
    {"query": "q 3", "pos": "p 3", "neg": None},
]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dataset", "dicts"])
def test_missing_values_are_counted_with_their_row_and_are_not_texts(kind, tmp_path):
    rows = SPARSE
    if kind in ("pandas", "dicts"):  # which have NaN in its place
        rows = [{key: math.nan if value is None else value for key, value in row.items()} for row in SPARSE]
        rows[0]["neg"] = ["n 0", math.nan]
    write_jsonl(tmp_path / "rows.jsonl", SPARSE)
    expected, items = (as_rows(source[1], path) for source, path in zip(
        read(tmp_path / "rows.jsonl", ("x", MAKERS[kind](rows))), (str(tmp_path / "rows.jsonl"), "<x>"), strict=True
    ))  # fmt: skip
    assert items == expected
    assert len([item for item in read(("x", MAKERS[kind](rows)))[0][1] if isinstance(item, Defect)]) == 3


def test_objects_are_named_after_their_place(file):
    names = [name for name, *_ in read(file, ROWS, ("a b", ROWS), ("c", file), iter(ROWS))]
    assert names == ["rows", "source-2", "a b", "c", "source-5"]


@pytest.mark.parametrize("kind", [*MAKERS, "path"])
def test_one_source_needs_no_list_and_a_dict_names_sources(kind, file):
    def source():
        return file if kind == "path" else MAKERS[kind](ROWS)

    expected = as_rows(read(file)[0][1], str(file))
    for given, name in ((source(), "rows" if kind == "path" else "source-1"), ({"mine": source()}, "mine")):
        (one,) = resolve_sources(given)
        assert one.name == name
        assert as_rows([*open_source(one, Settings())], str(file) if kind == "path" else f"<{name}>") == expected
    names = [one.name for one in resolve_sources({"a": source(), "b": ROWS, "c": str(file)})]
    assert names == ["a", "b", "c"]


def test_a_large_batch_is_written_in_slices():
    """Otherwise a DataFrame, which is one batch, would be in memory twice, and every view would be written whole."""
    texts = pa.array(["x" * 100] * 20_000)
    for column in (texts, texts.cast(pa.string_view())):
        (source,) = resolve_sources([("x", pa.table({"query": column, "pos": column, "neg": column}))])
        with source.data.open() as file:
            assert len(file.read()) < 1.2 * 3 * texts.nbytes
            file.seek(0)
            assert max(batch.num_rows for batch in pa.ipc.open_stream(file)) == 256


def test_the_first_row_may_be_larger_than_what_a_file_is_recognised_by():
    rows = [{"query": "q", "pos": ["p"], "neg": ["n" * (3 << 20)]}, *ROWS]
    assert len(read(("x", rows))[0][1]) == len(rows)


def test_a_single_row_is_not_a_document_of_rows():
    row = {"query": "q", "pos": ["p"], "neg": ["n"], "data": [{"query": "a", "pos": "b", "neg": "c"}]}
    assert [item.query for item in read(("x", [row]))[0][1]] == ["q"]


class DatasetDict(dict):
    """Stand-in for the DatasetDict of the library datasets, which is a dict too."""


class Unwritable:
    """A value that JSON cannot hold."""


def test_refusals(snapshot):
    table = pa.Table.from_pylist(ROWS)
    cases = {
        "a number": [3],
        "a number alone": 3,
        "bytes": [b"rows"],
        "a dict of tables": [DatasetDict({"train": table, "test": table})],
        "a name without object": [("x",)],
        "an empty name": [(" ", ROWS)],
        "a path that is not there": [("x", "none.jsonl")],
        "one name twice": [("x", table), ("x", ROWS)],
        "texts in place of rows": [["a", "b"]],
        "a value without JSON": [[*ROWS[:2], {"query": Unwritable()}]],
        "no rows": [("x", table[:0])],
        "no dicts": [("x", [])],
        "unknown columns": [("x", pa.table({"foo": ["a b"], "bar": ["c d"]}))],
        "a column alone": [("x", pa.chunked_array([["a"]]))],
    }
    texts = {}
    for what, sources in cases.items():
        with pytest.raises(SecidError) as caught:
            read(*sources) if isinstance(sources, list) else resolve_sources(sources)
        texts[what] = str(caught.value)
    snapshot("object-refusals.txt", situations(texts))


def test_a_frame_of_mixed_types_is_an_error_that_names_the_column():
    with pytest.raises(SecidError, match=r"^<x>: cannot be read as an Arrow table .* column q") as caught:
        read(("x", pandas({"q": ["a", 1.5]})))
    assert caught.value.remedy


def test_a_row_that_the_quick_writer_refuses_is_written_by_another():
    rows = [*ROWS[:3], {**ROWS[3], "n": 10**30}, {**ROWS[4], "pos": ["\ud800"]}, "text"]
    with pytest.raises(TypeError):
        orjson.dumps(rows[3])
    items = read(("x", rows))[0][1]
    assert [item.reason for item in items if isinstance(item, Defect)] == ["broken_line", "wrong_type"]
    assert [item.line for item in items if isinstance(item, Defect)] == [5, 6]


def test_commands_are_offered_only_for_files(tmp_path):
    rows = [{"query": f"q {n}", "pos": [f"p {n}"], "neg": [f"p {n}", f"n {n}"]} for n in range(30)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    assert "rows.jsonl" in str(secid.check(tmp_path / "rows.jsonl").save)
    assert secid.check({"rows": rows}).save is None
