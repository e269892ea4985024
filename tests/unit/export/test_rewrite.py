"""Copies with other negatives: what changes, what stays byte for byte, what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.errors import InputError, OutputError, SchemaError
from secid.export.jsonedit import elements, members
from secid.export.rewrite import check_output, rewrite
from secid.records import Defect, Record
from secid.settings import Settings
from tests.unit.read.conftest import read, write

NO_SETTINGS = Settings()


def without(*left_out: str):
    """Keeps a record's negatives but for these texts."""

    def decide(item) -> list[int | str]:
        if isinstance(item, Defect):
            return []
        return [place for place, text in enumerate(item.negatives) if text not in left_out]

    return decide


def mixed_in(*texts: str):
    """Every record gets its first own negative, then these texts."""
    return lambda item: [0, *texts] if isinstance(item, Record) else []


def copy_of(path: Path, decide, settings: Settings = NO_SETTINGS, **options: Any) -> Path:
    out = path.with_name(f"copy-{path.name}")
    n_rows = rewrite([str(path)], settings, "", decide, out, **options).n_rows
    assert n_rows == (len(read(out, **vars(settings))[1]) if n_rows else 0)
    return out


def negatives(path: Path) -> list[tuple[str, ...]]:
    return [item.negatives for item in read(path)[1]]


def test_only_the_negatives_of_a_json_line_change(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"pos" : ["p\\u00e9"],"neg":["n1",  "n\\u00322", "n3"],  "query":"q", "extra": {"neg": [1.50, 1e3]} }\n'
        '{"query": "r", "pos": ["s"], "neg": ["n1"]}\r\n',
        encoding="utf-8",
    )
    out = copy_of(path, without("n1"))
    assert out.read_bytes() == (
        b'{"pos" : ["p\\u00e9"],"neg":["n\\u00322",  "n3"],  "query":"q", "extra": {"neg": [1.50, 1e3]} }\n'
    )
    assert copy_of(path.rename(tmp_path / "b.jsonl"), without()).read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_scores_of_negatives_go_with_them(tmp_path):
    row = {"query": "q", "pos": ["p"], "neg": ["a", "b", "c"], "neg_scores": [0.1, 0.25, 3], "pos_scores": [1, 2, 3]}
    path = write(tmp_path / "a.jsonl", [row])
    (found,) = [json.loads(line) for line in copy_of(path, without("b")).read_text("utf-8").splitlines()]
    assert found == {**row, "neg": ["a", "c"], "neg_scores": [0.1, 3]}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json", "a.parquet"])
def test_passage_objects_in_every_container(tmp_path, name):
    passages = [{"docid": str(n), "title": f"T{n}", "text": f"n{n}"} for n in range(4)]
    row = {"query_id": "1", "query": "q", "positive_passages": [{"docid": "9", "title": "", "text": "p"}]}
    path = write(
        tmp_path / name,
        [{**row, "negative_passages": passages}, {**row, "query": "r", "negative_passages": passages[:1]}],
    )
    assert negatives(copy_of(path, without("T0 n0", "T2 n2"))) == [("T1 n1", "T3 n3")]
    mixed = path.with_name(f"mixed-{name}")
    rewrite([str(path)], NO_SETTINGS, "", mixed_in("from afar"), mixed)
    assert negatives(mixed) == [("T0 n0", "from afar")] * 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.csv.gz"])
def test_triplet_rows_stay_or_go(tmp_path, name):
    rows = [
        {"anchor": f"what is q{n}", "positive": f"the p{n}, it is", "negative": f"some n{n} here"} for n in range(5)
    ]
    path = write(tmp_path / name, rows)
    out = copy_of(path, without("some n1 here", "some n4 here"))
    assert negatives(out) == [("some n0 here",), ("some n2 here",), ("some n3 here",)]
    mixed = path.with_name(f"mixed-{name}")
    rewrite([str(path)], NO_SETTINGS, "", lambda item: ["a text, foreign"], mixed)
    assert negatives(mixed) == [("a text, foreign",)] * 5


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_columns_of_one_negative_each_lose_the_last_ones(tmp_path, name):
    rows = []
    for q in range(3):
        negatives_of = {f"negative_{k}": f"text {q}{k}" for k in range(1, 5)}
        rows.append({"query": f"query {q}", "positive": f"positive {q}", **negatives_of, "id": str(q)})
    path = write(tmp_path / name, rows)
    out = copy_of(path, without("text 01", "text 02", "text 03", "text 11", "text 14", "text 22", "text 23"), width=2)
    assert negatives(out) == [("text 04", "text 04"), ("text 12", "text 13"), ("text 21", "text 24")]
    if name == "a.jsonl":
        first = json.loads(out.read_text("utf-8").splitlines()[0])
        assert list(first) == ["query", "positive", "negative_1", "negative_2", "id"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_columns_behind_the_first_rows_are_rewritten_too(tmp_path, name):
    row = {"query": "q q", "positive": "p p", "negative_1": "a a"}
    path = write(tmp_path / name, [*[row] * 70, {**row, "negative_2": "b b", "negative_3": "c c", "id": "7"}])
    out = copy_of(path, without("a a", "c c"))
    assert negatives(out) == [("b b", "b b", "b b")]
    out.unlink()
    assert negatives(copy_of(path, without("a a"), width=2)) == [("b b", "c c")]


def test_cells_that_repeat_a_negative_are_counted(tmp_path):
    rows = [{"query": f"q {n}", "positive": f"p {n}", "negative_1": f"a {n}", "negative_2": f"b {n}"} for n in range(4)]
    path = write(tmp_path / "a.jsonl", rows)
    assert rewrite([str(path)], NO_SETTINGS, "", without("b 1", "a 3"), tmp_path / "c.jsonl", 2).n_repeated == 2
    assert rewrite([str(path)], NO_SETTINGS, "", without(), tmp_path / "d.jsonl", 2).n_repeated == 0
    lists = write(tmp_path / "lists.jsonl", [{"query": "q", "pos": ["p"], "neg": ["a", "b"]}] * 2)
    assert rewrite([str(lists)], NO_SETTINGS, "", without("b"), tmp_path / "e.jsonl").n_repeated == 0


def test_a_row_of_json_without_one_of_the_columns_keeps_all_that_stay(tmp_path):
    rows = [
        {
            "query": f"q {n}",
            "positive": f"p {n}",
            **{f"negative_{k}": f"{letter} {n}" for k, letter in enumerate("abc")},
        }
        for n in range(4)
    ]
    del rows[2]["negative_1"]
    path = write(tmp_path / "a.jsonl", rows)
    out = copy_of(path, without("a 0", "b 1", "c 3"), width=2)
    assert negatives(out) == [("b 0", "c 0"), ("a 1", "c 1"), ("a 2", "c 2"), ("a 3", "b 3")]


def test_every_row_of_json_holds_the_columns_that_are_kept_and_no_other(tmp_path):
    """Read without secid: rows that lack columns, or name them in another order, get those that all others have."""
    rows = [
        {"query": "q 0", "positive": "p", "negative_1": "a", "negative_2": "b", "negative_3": "c"},
        {"query": "q 1", "positive": "p", "negative_3": "c"},
        {"query": "q 2", "positive": "p", "negative_2": "b", "id": 7},
        {"negative_3": "c", "negative_2": "b", "negative_1": "a", "query": "q 3", "positive": "p"},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    for width in (1, 2, 3):
        out = tmp_path / f"{width}.jsonl"
        first = rewrite([str(path)], NO_SETTINGS, "", lambda item, n=width: range(len(item.negatives))[:n], out, width)
        names = [f"negative_{k}" for k in range(1, width + 1)]
        read = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        assert [sorted(name for name in row if name.startswith("neg")) for row in read] == [names] * 4
        assert ["".join(row[name] for name in names) for row in read] == [
            text[:width] for text in ("abc", "ccc", "bbb", "abc")
        ]
        assert first.n_repeated == 2 * (width - 1)
        assert [row["query"] for row in read] == ["q 0", "q 1", "q 2", "q 3"]
        assert read[2]["id"] == 7


def test_an_empty_cell_shifts_nothing(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        [
            {"query": "q", "pos": ["p"], "neg": ["", "a", None, "b"], "neg_scores": [0, 1, 2, 3]},
            {"query": "r", "pos": ["p"], "neg": ["c"], "neg_scores": [4]},
        ],
    )
    lines = copy_of(path, without("a")).read_text("utf-8").splitlines()
    assert json.loads(lines[0]) == {"query": "q", "pos": ["p"], "neg": ["b"], "neg_scores": [3]}
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["a query", "a positive", "first one"], ["b query", "b positive", "second one"]], [("second one",)]),
        (
            [["a query", "a positive", "first one", "third one"], ["b query", "b positive", "second one"]],
            [("third one",), ("second one",)],
        ),
    ],
)
def test_rows_without_names(tmp_path, rows, expected):
    assert negatives(copy_of(write(tmp_path / "a.jsonl", rows), without("first one"))) == expected


def test_instruction_pairs(tmp_path):
    row = {"query": ["find", "q"], "pos": ["find", "p"], "neg": [["find", "n"], ["find", "m"]]}
    path = write(tmp_path / "a.jsonl", [row])
    assert json.loads(copy_of(path, without("n")).read_text("utf-8")) == {**row, "neg": [["find", "m"]]}
    mixed = tmp_path / "mixed.jsonl"
    rewrite([str(path)], NO_SETTINGS, "", mixed_in("x"), mixed)
    assert json.loads(mixed.read_text("utf-8"))["neg"] == [["find", "n"], ["find", "x"]]


def test_ids_are_kept_but_take_no_text(tmp_path, collection):
    row = {"query_id": "1", "query_text": "q", "positive_document_ids": ["d1"]}
    path = write(tmp_path / "a.jsonl", [{**row, "negative_document_ids": ["d2", "2", "3"]}])
    settings = Settings(collection=collection)
    out = copy_of(path, lambda item: [0, 2], settings)
    assert json.loads(out.read_text("utf-8"))["negative_document_ids"] == ["d2", "3"]
    with pytest.raises(SchemaError, match="no room"):
        rewrite([str(path)], settings, "", mixed_in("x"), tmp_path / "mixed.jsonl")
    assert not (tmp_path / "mixed.jsonl").exists()


def test_parallel_lists_inside_an_object(tmp_path, collection):
    row = {"query_id": "11", "query": "q", "positives": {"doc_id": ["d1"], "score": [1.0]},
           "negatives": {"doc_id": ["d2", "2", "3"], "score": [0.5, 0.25, 0.125]}}  # fmt: skip
    path = write(tmp_path / "a.jsonl", [row])
    out = copy_of(path, lambda item: [1, 2], Settings(collection=collection))
    assert json.loads(out.read_text("utf-8"))["negatives"] == {"doc_id": ["2", "3"], "score": [0.25, 0.125]}


def test_parquet_keeps_schema_and_other_columns(tmp_path):
    table = pa.table(
        {
            "query": ["q", "r"],
            "pos": [["p"], ["p"]],
            "neg": pa.array([["a", "b"], ["a"]], pa.large_list(pa.string())),
            "neg_scores": pa.array([[0.1, 0.2], [0.3]], pa.list_(pa.float32())),
            "when": pa.array([1, 2], pa.timestamp("ms")),
        }
    ).replace_schema_metadata({"huggingface": "{}"})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    found = pq.read_table(copy_of(path, without("a")))
    assert found.schema.equals(pq.read_table(path).schema, check_metadata=True)
    assert found["neg"].to_pylist() == [["b"]]
    assert found["neg_scores"].to_pylist() == [table["neg_scores"].to_pylist()[0][1:]]
    assert found["when"].to_pylist() == table["when"].to_pylist()[:1]


def test_shards_become_one_file_and_gzip_is_reproducible(tmp_path):
    rows = [{"query": f"q{n}", "pos": ["p"], "neg": ["a", f"b{n}"]} for n in range(4)]
    paths = [str(write(tmp_path / f"s-{k}.jsonl", rows[2 * k : 2 * k + 2])) for k in range(2)]
    for out in (tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"):
        assert rewrite(paths, NO_SETTINGS, "", without("a"), out).n_rows == 4
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()
    lines = gzip.decompress((tmp_path / "one.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line)["neg"] for line in lines] == [[f"b{n}"] for n in range(4)]


def test_nothing_is_overwritten_and_names_must_fit(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"query": "q", "pos": ["p"], "neg": ["n"]}])
    before = path.read_bytes()
    for out, message in (
        (path, "already exists"),
        (tmp_path / "a.parquet", "must end in"),
        (tmp_path / "a", "must end in"),
    ):
        with pytest.raises(OutputError, match=message):
            rewrite([str(path)], NO_SETTINGS, "", without(), out)
        with pytest.raises(OutputError, match=message):
            check_output([str(path)], NO_SETTINGS, "", out)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_standard_input_cannot_be_read_twice(tmp_path):
    with pytest.raises(InputError, match="second time"):
        rewrite(["-"], NO_SETTINGS, "", without(), tmp_path / "copy.jsonl")


@pytest.mark.parametrize(
    "text", ['{"a": [1, {"b": "]}"}], "c" : "\\"x\\"" , "d":null}', '{"a":1}', "{}", ' { "a" :\t1 } ']
)
def test_spans_of_members_hold_their_values(text):
    assert {m.key: json.loads(text[slice(*m.value)]) for m in members(text)} == json.loads(text)


@pytest.mark.parametrize("text", ["[]", "[1]", '[ "a,]" , [2, 3],{"x": []}]'])
def test_spans_of_elements_hold_their_values(text):
    assert [json.loads(text[slice(*span)]) for span in elements(text)] == json.loads(text)


@pytest.mark.parametrize("text", ["", "[1]", '{"a" 1}', '{"a": 1'])
def test_what_is_no_object_is_refused(text):
    with pytest.raises((ValueError, IndexError)):
        members(text)
