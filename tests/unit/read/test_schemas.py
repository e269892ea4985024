"""Every shape of the table, in every container that can hold it; what is refused; what decides."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from secid.errors import InputError, SchemaError, SecidError
from secid.read.detect import SHAPES, Shape, detect
from secid.records import Defect, Fact, Record, fault_text
from secid.settings import Settings

from .conftest import read, refused, write, write_jsonl

CONTAINERS = (".jsonl", ".json", ".parquet", ".arrow", ".csv", ".tsv")
PACKED = (".jsonl.gz", ".json.zst", ".parquet.gz", ".csv.gz")
TABLES = (".csv", ".tsv", ".csv.gz")
COMMON = ("flagembedding", "triplet", "labelled-pair", "tevatron", "rows")
"""Schemas that are read from folders, streams and compressed files as well: what a file is packed in is no part of a
schema."""


def can_hold(shape: Shape, container: str) -> bool:
    """A table holds flat rows; a columnar file named rows whose columns have one type."""
    row = shape.example[0]
    flat = not any(isinstance(cell, list | dict) for cell in (row.values() if isinstance(row, dict) else row))
    if container in TABLES:
        return flat
    if "parquet" in container or "arrow" in container or container == "saved":
        return isinstance(row, dict) and shape.name != "miners"  # its lists are of ids and of objects
    return container != "object" or isinstance(row, dict)


CASES = [
    (shape, container)
    for shape in SHAPES
    for container in (*CONTAINERS, *(PACKED if shape.name in COMMON else ()))
    if can_hold(shape, container)
]


@pytest.mark.parametrize(("shape", "container"), CASES, ids=lambda value: getattr(value, "name", value))
def test_each_example_reads_as_its_shape(shape: Shape, container: str, tmp_path: Path, collection: str) -> None:
    path = write(tmp_path / f"source{container}", list(shape.example))

    reader, found = read(path, collection=collection)

    assert reader.files[0].schema == shape.name
    assert_read(found)


FOLDERS_AND_STREAMS = [
    (shape, how)
    for shape in SHAPES
    if shape.name in COMMON
    for how in ("object", "shards", "saved", "stdin")
    if can_hold(shape, how)
]


@pytest.mark.parametrize(("shape", "how"), FOLDERS_AND_STREAMS, ids=lambda value: getattr(value, "name", value))
def test_each_example_reads_from_folders_and_streams(
    shape: Shape, how: str, tmp_path: Path, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, folder = list(shape.example), tmp_path / "source"
    folder.mkdir()
    where: str | Path = folder
    if how == "object":
        where = folder / "a.json"
        where.write_text(json.dumps({"version": 1, "data": rows}), encoding="utf-8")
    elif how == "shards":
        write(folder / "a-00000-of-00002.jsonl", rows[:1])
        write(folder / "a-00001-of-00002.jsonl.gz", rows[1:])
    elif how == "saved":
        write(folder / "data-00000-of-00001.arrow", rows)
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        (folder / "dataset_info.json").write_text("{}", encoding="utf-8")
    else:
        data = write(folder / "a.jsonl", rows).read_bytes()
        monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO(data)}))
        where = "-"

    reader, found = read(where, collection=collection)

    assert {file.schema for file in reader.files} - {"empty"} == {shape.name}
    assert_read(found)


def assert_read(found: list[Record | Defect]) -> None:
    """Every item is a record of the texts that examples hold, none twice."""
    assert found
    for item in found:
        assert isinstance(item, Record), item
        assert item.query == "q"
        assert item.positives in (("p",), ("T p",))
        assert set(item.negatives) <= {"n", "m", "h", "T n", "T h"}
    assert len({item.negatives for item in found}) == len(found)


@pytest.mark.parametrize("shape", [s for s in SHAPES if isinstance(s.example[0], dict)], ids=lambda s: s.name)
def test_mapping_names_real_columns(shape: Shape) -> None:
    binding = detect(shape.example, Settings(format=shape.name), "x")
    assert binding.columns is not None
    assert set(binding.columns) <= set(shape.example[0])
    assert any(column in binding.mapping for column in binding.columns)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_format_chooses_the_shape_by_name(shape: Shape) -> None:
    assert detect(shape.example, Settings(format=shape.name), "x").schema == shape.name
    assert [other.name for other in SHAPES].count(shape.name) == 1


@pytest.mark.parametrize("names", ["123", ("text_0", "text_1", "text_2"), ("text_a", "text_b", "text_c"), "abc"])
def test_names_that_differ_in_their_number_are_read_by_order(names: Any, tmp_path: Path) -> None:
    row = {**dict(zip(names, ("a b", "c d", "e f"), strict=True)), "label": 1}
    reader, (record,) = read(write(tmp_path / "a.jsonl", [row]))
    assert record[:3] == ("a b", ("c d",), ("e f",))
    assert "by the order of the columns" in reader.files[0].mapping


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_header_of_words_of_inference_is_seen(suffix: str, tmp_path: Path) -> None:
    rows = [{"premise": f"a man {n}", "entailment": f"a person {n}", "contradiction": f"no one {n}"} for n in "xyz"]
    reader, found = read(write(tmp_path / f"a{suffix}", rows))
    assert reader.files[0].schema == "ordered-triplet"
    assert [item.query for item in found] == ["a man x", "a man y", "a man z"]


ROWS = [[f"what is the thing {n}", f"the thing {n} is good", f"some other thing {n}"] for n in range(9)]


@pytest.mark.parametrize(
    ("header", "rows", "names"),
    [
        (["", "query", "positive", "negative"], [[str(n), *row] for n, row in enumerate(ROWS)], "negative"),
        (["query", "positive", "negative", ""], [[*row, ""] for row in ROWS], "negative"),
        (["query", "positive", "negative", "negative"], [[*row, "m"] for row in ROWS], "negative_1…negative_2"),
        (["query", "positive", "negative[0]", "negative[1]"], [[*row, "m"] for row in ROWS], "negative_0…negative_1"),
        (["#query", "positive", "negative"], ROWS, "negative"),
        (["Query", "Positive passage", "negative"], ROWS, "negative"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_two_known_names_make_a_header(
    suffix: str, header: list[str], rows: list[list[str]], names: str, tmp_path: Path
) -> None:
    reader, found = read(write(tmp_path / f"a{suffix}", [header, *rows]))
    assert f"negatives={names}" in reader.files[0].mapping
    assert [item.query for item in found] == [row[0] for row in ROWS]
    assert found[0].negatives[0] == ROWS[0][2]


@pytest.mark.parametrize(
    "names",
    [["查询", "正例", "负例1"], ["câu hỏi", "văn_bản_đúng", "đoạn văn sai 1"], ["질문", "정답문서", "오답문서2"]],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".jsonl", ".parquet"])
def test_the_commonest_foreign_names_are_known(names: list[str], suffix: str, tmp_path: Path) -> None:
    order = (0, 2, 1)
    rows = [{names[at]: row[at] for at in order} for row in ROWS]
    reader, found = read(write(tmp_path / f"a{suffix}", rows))
    assert reader.files[0].schema == "triplet"
    assert [item[:3] for item in found] == [(row[0], (row[1],), (row[2],)) for row in ROWS]


Q = ("q", ("p",), ("n",))
TWO = ("q", ("p",), ("n", "m"))
ONE_RECORD: dict[str, tuple[str, list[Any], Any]] = {
    "camel case": (".jsonl", [{"queryText": "q", "positiveDoc": "p", "hardNegatives": ["n"]}], Q),
    "contexts in camel case": (".jsonl", [{"query": "q", "pos": "p", "negContexts": ["n"]}], Q),
    "messages that are plain texts": (
        ".jsonl",
        [{"messages": [{"role": "user", "content": "q"}], "positive_messages": ["p"], "negative_messages": ["n", "m"]}],
        TWO,
    ),
    "a title of the row": (".jsonl", [{"title": "T", "query": "q", "pos": ["p"], "neg": ["n"]}], Q),
    "a title beside an object": (
        ".jsonl", [{"pos_title": "T", "query": "q", "positive": {"text": "p"}, "negative": {"text": "n"}}], Q
    ),
    "distractors": (".jsonl", [{"question": "q", "correct_answer": "p", "distractor1": "n", "distractor2": "m"}], TWO),
    **{
        f"a score, and {name}": (".jsonl", [{"score": 3.2, "question": "q", "answer": "p", name: "n"}], Q)
        for name in ("wrong", "bad_answer", "incorrect answer", "wrong_2")
    },
    "known names in another order": (".jsonl", [{"negative": "n", "positive": "p", "query": "q"}], Q),
    "ids beside texts": (
        ".parquet",
        [{"query_id": "a1", "query": "q", "positive_id": "b1", "positive": "p", "negative_id": "c1", "negative": "n"}],
        Q,
    ),
    "an instruction before each text": (
        ".jsonl",
        [{"query": ["i", "q"], "pos": [["i", "p"], ["i", "p2"]], "neg": ["i", "n"]}],
        ("q", ("p", "p2"), ("n",)),
    ),
    "labels that are decimals": (
        ".parquet", [{"query": "q", "passage": text, "label": Decimal(text == "p")} for text in ("n", "p")], Q
    ),
    **{
        f"labels under {name}": (".jsonl", [{"query": "q", "text": text, name: text == "p"} for text in ("n", "p")], Q)
        for name in ("relevant", "is_positive", "is_selected", "correct")
    },
    "MS MARCO": (
        ".parquet",
        [{"query": "q", "passages": {"passage_text": ["n", "p"], "is_selected": [0, 1], "url": ["", ""]}}],
        Q,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_RECORD)
def test_one_record_is_read(name: str, tmp_path: Path) -> None:
    suffix, rows, expected = ONE_RECORD[name]
    (record,) = read(write(tmp_path / f"a{suffix}", rows))[1]
    assert record[:3] == expected


def test_a_wrapped_list_in_a_json_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_jsonl(path, [{"corpus": {"path": "c"}, "data": [{"question": "q", "pos_doc": ["p"], "neg_doc": ["n"]}]}])
    assert read(path)[1][0][:3] == Q


@pytest.mark.parametrize("negative", [{"text": "n", "rank": 1}, [{"text": "n"}]])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_query_may_be_a_text_if_passages_are_objects(negative: Any, suffix: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "positive": {"title": "T", "text": "p", "score": 1}, "negative": negative}] * 2
    _, found = read(write(tmp_path / f"a{suffix}", rows))
    assert [item[:3] for item in found] == [("q", ("T p",), ("n",))] * 2


@pytest.mark.parametrize("docs", ["docs", "ctxs", "passages"])
@pytest.mark.parametrize("label", ["label", "is_selected", "has_answer"])
def test_passages_that_hold_their_labels(docs: str, label: str, tmp_path: Path) -> None:
    passages = [{"text": "n", label: 0}, {"title": "T", "text": "p", label: True}, {"text": "m", label: 0}]
    reader, (record,) = read(write(tmp_path / "a.jsonl", [{"query": "q", docs: passages}]))
    assert (reader.files[0].schema, record[:3]) == ("labelled-list", ("q", ("T p",), ("n", "m")))


@pytest.mark.parametrize(
    "row",
    [
        {"query": "q", "pos_text": "p", "pos_title": "T", "neg_text": "n", "neg_title": "T"},
        {"query": "q", "positive": "p", "positive_title": "T", "negative_1": "n", "negative_2": "m"},
        {"query": "q", "pos": ["p"], "pos_titles": ["T"], "neg": ["n", "m"], "negTitles": ["T", ""]},
        {"query": "q", "docs": ["p", "n"], "titles": ["T", "T"], "labels": [1, 0]},
    ],
)
def test_titles_in_columns_of_their_own_are_asked_about(row: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [row])
    with refused(path, SchemaError):
        read(path)
    assert read(path, titles=False)[1][0].positives == ("p",)


def test_a_column_flag_may_name_ids_of_queries(collection: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", [["11", "a p", "a n"]])
    flags = {"query_column": "0", "positive_column": "1", "negative_column": "2"}
    with pytest.raises(InputError):
        read(path, **flags)
    assert read(path, **flags, collection=collection)[1][0].query == "q"
    assert read(path, **flags, format="triplet")[1][0].query == "11"


@pytest.mark.parametrize("wrapper", ["results", "triplets", "dataset"])
def test_a_list_of_records_is_found_whatever_its_key(wrapper: str, tmp_path: Path) -> None:
    rows: Any = [{"query": f"q {n}", "positive": "p", "negative": "n"} for n in range(3)]
    value = {"version": 2, wrapper: rows} if wrapper != "dataset" else {wrapper: {"train": rows}}
    (tmp_path / "a.json").write_text(json.dumps(value), encoding="utf-8")
    assert [item.query for item in read(tmp_path / "a.json")[1]] == ["q 0", "q 1", "q 2"]


def test_a_header_in_the_middle_is_not_a_row(tmp_path: Path) -> None:
    names = ["query", "positive", "negative"]
    _, found = read(write(tmp_path / "a.csv", [names, *ROWS, names, *ROWS]))
    (defect,) = [item for item in found if isinstance(item, Defect)]
    assert (len(found), defect.reason, defect.line) == (2 * len(ROWS) + 1, "broken_line", len(ROWS) + 2)


def test_keywords_above_keywords_are_a_row(tmp_path: Path) -> None:
    rows = [[f"usb cable {n}", f"usb c cable {n} m", f"phone case {n}"] for n in range(20)]
    first = ["negative space", "positive space drawing", "text art"]
    assert read(write(tmp_path / "a.tsv", [first, *rows]))[1][0].query == "negative space"


def test_a_blank_line_above_a_header_makes_it_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\nquery,positive,negative\nq,p,n\n", encoding="utf-8")
    (record,) = read(path)[1]
    assert (record.query, record.line) == ("q", 3)


def test_a_few_words_again_and_again_are_no_negatives(tmp_path: Path) -> None:
    tags = ["entailment", "neutral"]
    rows: list[Any] = [[f"a man {n} walks", f"a person {n} moves", tags[n % 2]] for n in range(8)]
    kept = [[*row[:2], f"{row[2]} {n}"] for n, row in enumerate(rows)]
    with pytest.raises(SchemaError):
        read(write(tmp_path / "a.jsonl", rows))
    assert len(read(write(tmp_path / "b.jsonl", kept))[1]) == 8


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"query": "q", "pos": ["p"], "neg": ["n"]}, "hard_neg"),
        ({"query": "q", "positive": "p", "hard_negative": "n"}, "easy_negative"),
        ({"query": "q", "positive": "p", "hard_negative_1": "n"}, "random_negative_1"),
        ({"query": "q", "positive": "p", "hard_negs": ["n"]}, "randNegs"),
        ({"query": "q", "positive": "p", "negative": "n"}, "negative_bm25"),
        (SHAPES[0].example[0], "bm25_negative_passages"),
        ({"question": "q", "positive_ctxs": [{"text": "p"}], "negative_ctxs": [{"text": "n"}]}, "bm25_negative_ctxs"),
    ],
)
def test_negatives_that_no_reading_takes_are_named(row: Any, name: str, tmp_path: Path) -> None:
    *_, negatives = row
    path = write(tmp_path / "a.jsonl", [{**row, name: row[negatives]}])
    with pytest.raises(SchemaError) as caught:
        read(path)
    assert "--negative-column" in str(caught.value.remedy)
    assert read(path, negative_column=name)[1][0].negatives == read(path, negative_column=negatives)[1][0].negatives
    beside = {f"{name}_scores": [0.5], f"{name}_ids": [7], "num_negatives": 1, "negative_source": "bm25"}
    assert len(read(write(tmp_path / "b.jsonl", [{**row, **beside}]))[1]) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("negative_genre", lambda n: "news"), ("negative_extra", lambda n: {"rank": n})),
        *(("negative_stage", lambda n: ["easy", "hard"][n % 2]), ("neg_ref", lambda n: [f"d{n}", "d7"])),
        *((f"negative_{word}", "{0} of {0}".format) for word in ("summary", "author", "domain", "difficulty", "topic")),
        *(("neg_heading", "A {}".format), ("negative_keywords", lambda n: [f"word {n}"])),
        ("negative_metadata", lambda n: {"text": f"note {n}"}),
    ],
)
def test_columns_that_tell_of_negatives_are_no_other_reading(name: str, value: Any, tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "positive": f"p {n} a", "negative": f"n {n} b", name: value(n)} for n in range(9)]
    assert len(read(write(tmp_path / "a.jsonl", rows))[1]) == 9


def test_column_flags_take_lists_numbered_columns_and_positions(tmp_path: Path) -> None:
    row = {"a": "q", "b": ["p"], "c_1": "n", "c_2": "m"}
    flags = {"query_column": "a", "positive_column": "b", "negative_column": "c"}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]), **flags)
    assert record[:3] == ("q", ("p",), ("n", "m"))

    flags = {"query_column": "2", "positive_column": "0", "negative_column": "1"}
    _, (record,) = read(write(tmp_path / "b.jsonl", [["a p", "a n", "a q"]]), **flags)
    assert record[:3] == ("a q", ("a p",), ("a n",))


def test_words_that_look_like_ids_are_texts_when_the_format_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "when", "positive": "1999", "negative": "2001"}])
    with pytest.raises(InputError):
        read(path)
    _, (record,) = read(path, format="triplet")
    assert record[:3] == ("when", ("1999",), ("2001",))


def test_short_words_and_unsegmented_scripts_are_no_ids(tmp_path: Path) -> None:
    rows = [{"query": "什么是光合作用", "positive": "光合作用2", "negative": "呼吸作用3"}]
    assert isinstance(read(write(tmp_path / "a.jsonl", rows))[1][0], Record)
    rows = [{"anchor": "cat", "positive": "kitten", "negative": "dog"}]
    assert isinstance(read(write(tmp_path / "b.jsonl", rows))[1][0], Record)


def test_several_miners_become_sources(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "pos": ["p"], "neg": {"bm25": ["n1 x"], "dense": ["n2 y", "n3 z"]}},
        {"query": "r", "pos": ["p"], "neg": {"bm25": [], "other": ["n4 y"]}},
    ]
    _, found = read(write(tmp_path / "a.jsonl", rows))
    assert [(type(item), item.line, item.split) for item in found] == [
        (Record, 1, "bm25"), (Record, 1, "dense"), (Defect, 2, "bm25"), (Record, 2, "other"),
    ]  # fmt: skip
    assert found[2].reason == "no_negatives"


def test_an_object_with_one_passage_is_not_an_object_of_miners(tmp_path: Path) -> None:
    row = {"query": "q", "pos": {"title": "T", "text": "p"}, "neg": {"title": "U", "text": "n", "url": "x"}}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]), negative_column="neg")
    assert (record.positives, record.negatives, record.split) == (("T p",), ("U n",), "")
    row = {"query": "q", "pos": ["p"], "neg": {"bm25": "n", "tas-b": "m"}}
    _, found = read(write(tmp_path / "b.jsonl", [row]), negative_column="neg")
    assert [(item.split, item.negatives) for item in found] == [("bm25", ("n",)), ("tas-b", ("m",))]


def test_a_row_without_query_counts_against_each_source_in_it(tmp_path: Path) -> None:
    good = {"query": "q", "pos": ["p"], "neg": {"a": ["n x"], "b": ["n y"]}}
    _, found = read(write(tmp_path / "a.jsonl", [good, {**good, "query": " "}]))
    assert [(item.reason, item.split) for item in found[2:]] == [("empty_query", "a"), ("empty_query", "b")]


def test_dpr_splits_into_random_and_hard(tmp_path: Path) -> None:
    shape = next(shape for shape in SHAPES if shape.name == "dpr")
    reader, found = read(write(tmp_path / "a.json", list(shape.example)))
    assert {item.split: item.negatives for item in found} == {"random": ("T n",), "hard": ("T h",)}
    assert "random (negative_ctxs) and hard (hard_negative_ctxs)" in reader.files[0].mapping


def test_source_column_splits_by_value(tmp_path: Path) -> None:
    row = {"query": "q", "pos": ["p"], "neg": ["n"]}
    rows = [{**row, "miner": "bm25"}, {**row, "miner": 7}, {**row, "miner": None}, row]
    for suffix in (".jsonl", ".json"):
        _, found = read(write(tmp_path / f"a{suffix}", rows), source_column="miner")
        assert [item.split for item in found] == ["bm25", "7", None, None]
        assert [getattr(item, "reason", "") for item in found] == ["", "", "missing_field", "missing_field"]
    _, found = read(write(tmp_path / "a.parquet", [{**row, "miner": "bm25"}]), source_column="miner")
    assert found[0].split == "bm25"


def test_titles_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(SHAPES[0].example))
    assert read(path)[1][0].positives == ("T p",)
    assert read(path, titles=False)[1][0].positives == ("p",)


def test_scores_are_thresholded_only_by_request(tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": text, "score": score} for text, score in (("p", 3), ("m", 0.5), ("n", -1))]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SchemaError) as caught:
        read(path)
    assert "--positive-score" in str(caught.value.remedy)
    with pytest.raises(SchemaError):  # as `secid check` reads
        read(path, max_bad_fraction=float("inf"))
    _, (record,) = read(path, positive_score=0.5)
    assert record[:3] == ("q", ("p", "m"), ("n",))


@pytest.mark.parametrize("written", [json.dumps, str, lambda texts: str(texts).replace(", ", "\n ")])
@pytest.mark.parametrize(
    ("suffix", "positive", "negative"), [(".csv", "positive", "negatives"), (".jsonl", "pos", "neg")]
)
def test_lists_written_as_text_are_refused(
    suffix: str, positive: str, negative: str, written: Any, tmp_path: Path
) -> None:
    rows = [{"query": f"what {n}", positive: f"this, {n}", negative: written([f"it's {n}", "b [x]"])} for n in range(9)]
    with pytest.raises(SchemaError):
        read(write(tmp_path / f"a{suffix}", rows))
    kept = [{**row, negative: f"[{n}] see 'b' ['c']"} for n, row in enumerate(rows)]
    assert len(read(write(tmp_path / f"b{suffix}", kept), format="triplet" if positive == "positive" else None)[1]) == 9


@pytest.mark.parametrize(
    "written",
    [
        "[{{'docid': '{0}', 'title': '', 'text': 'a'}}, {{'docid': '0', 'text': 'b'}}]",
        '[{{"docid": "{0}", "title": "", "text": "a"}}]', "array(['a {0}', 'b'], dtype=object)", "{{'text': 'a {0}'}}",
        "('a {0}', 'b')", "('a {0}',)", "[{0}, 1, 2]", "[{0} 1 2]", '[["a {0}", 0.5], ["b", 0.3]]', '["a {0}", null]',
        "[None, 'a {0}']", "[array(['a {0}'], dtype=object)]",
    ],
)  # fmt: skip
def test_other_spellings_of_written_lists_are_refused(written: str, tmp_path: Path) -> None:
    row = {"query": "a question", "positive": "an answer"}
    rows = [{**row, "negative": written.format(n)} for n in range(9)]
    with pytest.raises(SchemaError):
        read(write(tmp_path / "a.csv", rows))


@pytest.mark.parametrize(
    "text",
    [
        "(defun f{0} (x) (car x))", "[CLS] {0} [SEP]", "[1] a, [2] b {0} [3]", "{{ x = {0}; }}", "(see {0})",
        "((lambda (x) {0}))",
    ],
)  # fmt: skip
def test_texts_in_brackets_are_no_written_lists(text: str, tmp_path: Path) -> None:
    row = {"query": "a question", "positive": "an answer"}
    rows = [{**row, "negative": text.format(n)} for n in range(9)]
    assert len(read(write(tmp_path / "a.csv", rows))[1]) == 9


@pytest.mark.parametrize("key", ["data", "train"])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_records_with_a_column_of_objects_are_no_wrapper(key: str, n_rows: int, tmp_path: Path) -> None:
    inner = {"query": "x", "positive": "y", "negative": "z"}
    path = write(tmp_path / "a.jsonl", [{"query": "q", "positive": "p", "negative": "n", key: [inner]}] * n_rows)
    assert [item[:3] for item in read(path)[1]] == [("q", ("p",), ("n",))] * n_rows


def test_several_lists_of_records_in_a_json_object_are_an_error(tmp_path: Path) -> None:
    path, row = tmp_path / "a.json", {"query": "q", "positive": "p", "negative": "n"}
    write_jsonl(path, [{"train": [row], "test": [row]}])
    with pytest.raises(InputError):
        read(path)
    write_jsonl(path, [{"train": [row], "dev": [None, {**row, "id": 1}], "note": ["a"]}])  # of other keys, too
    with pytest.raises(InputError):
        read(path)
    write_jsonl(path, [{"train": [row], "labels": ["a"], "info": {"id": 1}, "test": []}])
    assert len(read(path)[1]) == 1


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"query": "q", "pos": ["p"], "neg": ["n"]}\n' * 200)

    monkeypatch.setattr(sys, "stdin", Stdin)
    reader, found = read("-")
    assert (reader.source.name, reader.n_bytes, len(found)) == ("stdin", None, 200)
    assert reader.content()[0].n_bytes == reader.bytes_read() == 43 * 200


def test_parquet_on_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write(tmp_path / "a.parquet", [{"query": "q", "positive": "p", "negative": "n"}]).read_bytes()

    class Stdin:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert isinstance(read("-")[1][0], Record)


def test_a_column_of_one_odd_row_does_not_decide(tmp_path: Path) -> None:
    row = {"query": "q", "positive": ["p"], "negative": ["n"]}
    reader, found = read(write(tmp_path / "a.jsonl", [row, {**row, "neg": {"bm25": ["m"]}}, row]))
    assert reader.files[0].schema == "lists"
    assert [item.negatives for item in found] == [("n",)] * 3


def test_columns_of_negatives_that_few_rows_have_are_read(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative_1": "n"}
    reader, found = read(write(tmp_path / "a.jsonl", [row] * 9 + [{**row, "negative_2": "m"}]))
    assert "negative_1…negative_2" in reader.files[0].mapping
    assert found[-1].negatives == ("n", "m")
    assert found[0].dropped == ()  # rows may have fewer negatives than there are columns


LATE = {"query": "q", "positive": "p", "negative": "n"}


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("flags", [{}, {"negative_column": "negative_"}, {"source_column": "miner"}])
def test_numbered_columns_behind_the_first_rows_are_read(suffix: str, flags: Any, tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative_1": "n", "miner": "x"}
    wider = {**row, "negative_10": "k", "negative_2": "m", "note": "a b"}
    flags = {name: value.rstrip("_") for name, value in flags.items()}
    reader, found = read(write(tmp_path / f"a{suffix}", [*[row] * 70, wider, row, wider]), **flags)
    assert reader.files[0].mapping == "query=query, positive=positive, negatives=negative_1"
    assert [item.negatives for item in found[69:]] == [("n",), ("n", "m", "k"), ("n",), ("n", "m", "k")]
    assert not any(isinstance(item, Defect) or item.dropped for item in found)


@pytest.mark.parametrize(
    ("rows", "later", "n_lost"),
    [
        (LATE, {"hard_negative": "m"}, 1),
        (LATE, {"hard_negative": None}, 0),
        (LATE, {"wrong": False}, 0),
        (LATE, {"wrong": 3}, 0),
        (LATE, {"wrong": [True, None, "", "m"]}, 1),
        (LATE, {"hard_negative": {"text": "m"}}, 1),
        ({"query": "q", "positive": ["p"], "negative": ["n"]}, {"negatives": ["m", "k"]}, 2),
        ({"question": "q", "positive_ctxs": [{"text": "p"}], "hard_negative_ctxs": [{"text": "n"}]},
            {"negative_ctxs": [{"text": "m"}]}, 1),
        ({"query": "q", "passages": ["p", "n"], "labels": [1, 0]}, {"negatives": ["m"]}, 1),
    ],
)  # fmt: skip
def test_other_negatives_behind_the_first_rows_are_counted(rows: Any, later: Any, n_lost: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*[rows] * 70, {**rows, **later}, {**rows, "comment": "x y"}])
    found = read(path)[1]
    assert [item.dropped for item in found[69:]] == [(), (("late_column", n_lost),) if n_lost else (), ()]
    assert {item.negatives for item in found} == {("n",)}


EMPTY_AT_FIRST = [
    {**LATE, "hard_negative": None},
    {**LATE, "bm25_negatives": None},
    {"query": "q", "positive": ["p"], "hard_negatives": ["n"], "negative_passages": None},
]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".arrow"])
@pytest.mark.parametrize("row", EMPTY_AT_FIRST)
def test_negatives_in_a_column_that_is_empty_at_first_are_counted(row: Any, suffix: str, tmp_path: Path) -> None:
    *_, column = row
    later = {**row, column: ["m", "k"] if column.endswith("s") else "m"}
    only = {**later, list(row)[2]: None}
    found = read(write(tmp_path / f"a{suffix}", [*[row] * 70, later, row, only]))[1]
    assert [item.dropped for item in found[69:72]] == [(), (("late_column", len(later[column])),), ()]
    assert isinstance(found[72], Defect)
    assert (found[72].reason, found[72].fact) == ("late_column", Fact("late_columns", {"columns": column}))


def test_one_odd_row_of_negatives_is_counted_even_among_the_first(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.jsonl", [*[LATE] * 20, {**LATE, "hard_negative": "m"}, LATE]))[1]
    assert [item.dropped for item in found[19:]] == [(), (("late_column", 1),), ()]


@pytest.mark.parametrize("odd", [[[]], {"a": 1}, "text"])
def test_numbered_columns_are_read_whatever_a_single_row_of_the_first_has_there(odd: Any, tmp_path: Path) -> None:
    rows: list[Any] = [{"query": f"q {n}", "positive": f"p {n}", "negative": f"n {n}"} for n in range(100)]
    rows[5]["negative_2"] = odd
    for row in rows[80:]:
        row["negative_2"] = "second"
    _, found = read(write(tmp_path / "a.jsonl", rows))
    assert sum(len(item.negatives) for item in found if isinstance(item, Record)) == 120 + (odd == "text")


def test_numbered_lists_behind_the_first_rows_are_counted(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative_1": "n"}
    found = read(write(tmp_path / "a.jsonl", [*[row] * 70, {**row, "negative_2": ["m", "k"]}]))[1]
    assert (found[70].negatives, found[70].dropped) == (("n",), (("late_column", 2),))


def test_a_list_in_a_column_of_texts_counts_as_many_as_it_holds(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative": "n", "negative_2": None}
    found = read(write(tmp_path / "a.jsonl", [*[row] * 70, {**row, "negative_2": ["m", None, "k"]}]))[1]
    assert (found[70].negatives, found[70].dropped) == (("n",), (("wrong_type", 2),))


WORDS = [
    ("relevant", "irrelevant"), ("Relevant", "not_relevant"), ("yes", "no"), ("Positive", "Negative"),
    ("True", "False"),
]  # fmt: skip


@pytest.mark.parametrize(("positive", "negative"), WORDS)
def test_labels_may_be_words(positive: str, negative: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": "p", "label": positive}, {"query": "q", "passage": "n", "label": negative}]
    for suffix in (".jsonl", ".csv"):
        (item,) = read(write(tmp_path / f"a{suffix}", rows))[1]
        assert (item.positives, item.negatives) == (("p",), ("n",))
    (item,) = read(write(tmp_path / "b.jsonl", [{"query": "q", "docs": ["n", "p"], "labels": [negative, positive]}]))[1]
    assert (item.positives, item.negatives) == (("p",), ("n",))


@pytest.mark.parametrize("passage", ["passage", "positive"])
@pytest.mark.parametrize("odd", ["maybe", [1], {}])
@pytest.mark.parametrize("at", [3, 71])
def test_a_single_odd_label_is_a_bad_row_wherever_it_stands(at: int, odd: Any, passage: str, tmp_path: Path) -> None:
    rows: list[Any] = [{"query": f"q {n // 2}", passage: f"p {n}", "label": n % 2} for n in range(80)]
    rows[at]["label"] = odd
    _, found = read(write(tmp_path / "a.jsonl", rows))
    assert next((item.reason, item.line) for item in found if isinstance(item, Defect)) == ("wrong_type", at + 1)
    assert sum(isinstance(item, Record) for item in found) == 39


def test_a_label_column_settles_that_other_negatives_are_not_read(tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": f"p {n}", "negative": "other", "grade": n % 2} for n in range(8)]
    (item,) = read(write(tmp_path / "a.jsonl", rows), label_column="grade")[1]
    assert (item.positives, item.negatives) == (("p 1", "p 3", "p 5", "p 7"), ("p 0", "p 2", "p 4", "p 6"))


MINED_PAIRS = [{"anchor": f"q {n // 2}", "positive": f"p {n}", "label": 1 - n % 2} for n in range(6)]
MINED_LISTS = [{"anchor": f"q {n}", "positive": [f"p {2 * n}", f"p {2 * n + 1}"], "labels": [1, 0]} for n in range(3)]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("flags", [{}, {"label_column": "label"}])
def test_labels_overrule_the_name_positive(suffix: str, flags: Any, tmp_path: Path) -> None:
    rows = MINED_LISTS if suffix != ".csv" and not flags else MINED_PAIRS
    for found in read(write(tmp_path / f"a{suffix}", rows), **flags)[1]:
        assert isinstance(found, Record)
        n = 2 * int(found.query[-1])
        assert (found.positives, found.negatives) == ((f"p {n}",), (f"p {n + 1}",))


def test_ids_of_answers_are_ids(tmp_path: Path, collection: str) -> None:
    rows = [{"question_id": "11", "pos_ans_id": "1", "neg_ans_id": "2"}]
    reader, found = read(write(tmp_path / "a.csv", rows), collection=collection)
    assert reader.files[0].schema == "id-columns"
    assert_read(found)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("negatives", ["n", ["n", "m"]])
@pytest.mark.parametrize("positive", ["p", ["p"]])
def test_negatives_that_are_null_in_all_first_rows_are_read(
    positive: Any, negatives: Any, suffix: str, tmp_path: Path
) -> None:
    row = {"query": "q", "pos": positive, "neg": None}
    found = read(write(tmp_path / f"a{suffix}", [*[row] * 70, {**row, "neg": negatives}]))[1]
    assert [item.reason for item in found[:70]] == ["no_negatives"] * 70
    assert (found[70].positives, found[70].negatives) == (("p",), tuple(negatives))


def test_labelled_pairs_count_late_negatives(tmp_path: Path) -> None:
    rows = [{"query": f"q {n // 2}", "passage": f"p {n}", "label": n % 2} for n in range(160)]
    rows[150:152] = [{**rows[150], "negative": "m"}, {**rows[151], "negatives": ["m", "k"], "flag": True}]
    found = read(write(tmp_path / "a.jsonl", rows))[1]
    assert [item.dropped for item in found[74:77]] == [(), (("late_column", 3),), ()]
    assert {len(item.negatives) for item in found} == {1}


def test_a_column_named_in_full_brings_no_others(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative_1": "n"}
    path = write(tmp_path / "a.jsonl", [*[row] * 70, {**row, "negative_2": "m"}])
    found = read(path, negative_column="negative_1")[1]
    assert [(item.negatives, item.dropped) for item in found[69:]] == [(("n",), ())] * 2


@pytest.mark.parametrize(
    ("row", "flags"),
    [
        (["q q", "p p", "n n"], {"query_column": "0", "positive_column": "1", "negative_column": "2"}),
        (["q q", ["p p"], ["n n"]], {}),
    ],
)
def test_rows_without_names_that_grow_are_counted(row: Any, flags: Any, tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.jsonl", [*[row] * 70, [*row, "m m"]]), **flags)[1]
    assert [getattr(item, "reason", "") for item in found[69:]] == ["", "wrong_type"]


@pytest.mark.parametrize(
    "rows",
    [
        [{"neg": {}}, {"query": None, "neg": []}],
        [
            {"query": "q", "positives": {"doc_id": ["1"]}, "negatives": {"doc_id": ["2"]}},
            {"positives": 7, "negatives": []},
        ],
        [{"query": ["i", "q"], "pos": "p", "neg": "n"}, {"query": 7, "pos": [], "neg": {}}],
    ],
)
def test_columns_of_mixed_kinds_break_no_binder(rows: list[Any], tmp_path: Path) -> None:
    """Found by fuzzing: a binder met a list where most rows have an object."""
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SecidError):
        read(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("names", [("câu hỏi", "đoạn văn sai", "đoạn văn đúng"), ("질문", "오답", "정답")])
def test_names_of_composed_letters_are_known_however_they_are_written(names: Any, suffix: str, tmp_path: Path) -> None:
    rows = [{normalize("NFD", name): f"{name} text {n}" for name in names} for n in range(9)]
    path = write(tmp_path / f"a{suffix}", rows)

    for flags in ({}, dict(zip(("query_column", "negative_column", "positive_column"), names, strict=True))):
        _, found = read(path, **flags)

        assert [(item.positives, item.negatives) for item in found] == [
            ((f"{names[2]} text {n}",), (f"{names[1]} text {n}",)) for n in range(9)
        ]


DEEP = "[" * 970 + "]" * 970


@pytest.mark.parametrize(
    ("row", "odd"),
    [
        ({"a": "a {} words", "b": "b", "c": "DEEP"}, {}),
        ({"query": "q {} words", "positive": "p {} words", "negative": "DEEP"}, {}),
        ({"query": "q {} words", "passage": "p {} words", "label": 1}, {"label": "DEEP"}),
        (["q {} words", "p {} words", "n {} words"], ["q", "DEEP", "n"]),
        (["q {} words", "0", "p {} words", "1"], ["q", "DEEP", "n", "1"]),
    ],
)
def test_values_nested_deep_end_no_reader(row: Any, odd: Any, tmp_path: Path) -> None:
    """Nearly as deep as what is counted as `too_deep`."""
    odd_row = {**row, **odd} if isinstance(row, dict) else odd
    *lines, odd_line = [json.dumps(row).replace("{}", str(n)) for n, row in enumerate([*[row] * 80, odd_row])]
    for at in (3, 75):
        path = tmp_path / "a.jsonl"
        text = "\n".join([*lines[:at], odd_line, *lines[at:]])
        path.write_text(text.replace('"DEEP"', DEEP), encoding="utf-8")

        try:
            _, found = read(path)
            faults = [fault_text(item.fact) for item in found if isinstance(item, Defect)]
        except SecidError as error:
            faults = [str(error)]
        assert faults
        assert max(map(len, faults)) < 1000


def test_a_deeply_nested_object_is_reported_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":' * 950 + "1" + "}" * 950, encoding="utf-8")

    # Which of the two errors is raised depends on the depth of the caller's own stack; neither is a traceback.
    with pytest.raises(InputError):
        read(tmp_path / "a.json")


def test_names_of_columns_are_shortened_to_one_line(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "x" * 100_000: f"p {n}", "two\nlines": f"n {n}", "d": n} for n in range(9)]

    with pytest.raises(SchemaError) as caught:
        read(write(tmp_path / "a.jsonl", rows))

    assert len(str(caught.value)) < 2000
    assert "two lines: text" in str(caught.value)


def test_detection_looks_at_each_key_of_an_object_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are counted, not timed. Once, detection on a file of 1,000 records by key took many minutes."""
    calls: list[int] = []
    for n in (20, 200):
        seen = 0

        def counted(name: str) -> str:
            nonlocal seen
            seen += 1
            return normalize("NFC", name)

        monkeypatch.setattr("secid.read.binding.composed", counted)
        row = {f"id{place}": {"question": "q", "docs": ["p", "n"], "labels": [1, 0]} for place in range(n)}
        with pytest.raises(SchemaError):
            detect([row], Settings(), "a.json")
        calls.append(seen)
    assert calls[1] < 11 * calls[0]
