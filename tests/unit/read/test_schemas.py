"""Every shape of the table, in every container that can hold it; what is refused; what decides."""

from __future__ import annotations

import io
import json
import shlex
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from secid.errors import InputError, SchemaError, SecidError
from secid.read.containers import sniff
from secid.read.reader import open_source
from secid.read.schemas.detect import detect
from secid.read.schemas.table import SHAPES, Shape
from secid.read.stream import ByteStream
from secid.records import Block, Defect, Record, Source
from secid.settings import Settings

from .conftest import read, write, write_jsonl

CONTAINERS = (
    ".jsonl",
    ".json",
    ".jsonl.gz",
    ".json.zst",
    ".parquet",
    ".parquet.gz",
    ".arrow",
    ".csv",
    ".tsv",
    ".csv.gz",
)
TABLES = (".csv", ".tsv", ".csv.gz")


def can_hold(shape: Shape, container: str) -> bool:
    """A table holds flat rows; a columnar file named rows whose columns have one type."""
    row = shape.example[0]
    flat = not any(isinstance(cell, list | dict) for cell in (row.values() if isinstance(row, dict) else row))
    if container in TABLES:
        return flat
    if "parquet" in container or "arrow" in container or container == "saved":
        return isinstance(row, dict) and shape.name != "miners"  # its lists are of ids and of objects
    return container != "object" or isinstance(row, dict)


CASES = [(shape, container) for shape in SHAPES for container in CONTAINERS if can_hold(shape, container)]


@pytest.mark.parametrize(("shape", "container"), CASES, ids=lambda value: getattr(value, "name", value))
def test_each_example_reads_as_its_shape(shape: Shape, container: str, tmp_path: Path, collection: str) -> None:
    path = write(tmp_path / f"source{container}", list(shape.example))

    reader, found = read(path, collection=collection)

    assert reader.files[0].schema == shape.name
    assert_read(found)


FOLDERS_AND_STREAMS = [
    (shape, how) for shape in SHAPES for how in ("object", "shards", "saved", "stdin") if can_hold(shape, how)
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


def test_names_of_shapes_are_distinct() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize("shape", [s for s in SHAPES if isinstance(s.example[0], dict)], ids=lambda s: s.name)
def test_mapping_names_real_columns(shape: Shape) -> None:
    binding = detect(shape.example, Settings(format=shape.name), "x")
    assert binding.columns is not None
    assert set(binding.columns) <= set(shape.example[0])
    assert any(column in binding.mapping for column in binding.columns)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_format_chooses_the_shape_by_name(shape: Shape) -> None:
    assert detect(shape.example, Settings(format=shape.name), "x").schema == shape.name


def test_mapping_of_an_n_tuple_is_told_in_numeric_order(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", **{f"negative_{n}": f"text {n}" for n in (10, 2, 1, 0)}}
    reader, (record,) = read(write(tmp_path / "a.jsonl", [row]))
    assert reader.files[0].mapping == "query=query, positive=positive, negatives=negative_0…negative_10"
    assert record.negatives == ("text 0", "text 1", "text 2", "text 10")


def test_unknown_names_are_read_by_order(tmp_path: Path) -> None:
    reader, (record,) = read(write(tmp_path / "a.jsonl", [{"x": "a b", "y": "c d", "z": "e f", "label": 1}]))
    assert record[:3] == ("a b", ("c d",), ("e f",))
    assert "by the order of the columns" in reader.files[0].mapping


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("first", [["cat", "kitten", "dog"], ["foo", "bar", "baz"]])
def test_single_words_above_phrases_may_be_a_row(suffix: str, first: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [first, *[[f"a man {n}", f"a person {n}", f"no one {n}"] for n in "xyz"]])
    with pytest.raises(InputError, match="may name the columns or be a row"):
        read(path)
    assert [len(read(path, header=told)[1]) for told in (True, False)] == [3, 4]


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


def test_a_header_of_odd_names_is_no_row(tmp_path: Path) -> None:
    _, found = read(write(tmp_path / "a.csv", [["Query (user)", "Positive passage", "Negative passage"], *ROWS]))
    assert [item.query for item in found] == [row[0] for row in ROWS]


@pytest.mark.parametrize(
    "first",
    [
        ["提问", "好文档", "坏文档"],
        ["提问", "好文档", "坏文档1"],
        ["提问（用户）", "正例", "坏文档（不相关）"],
        ["hỏi", "văn bản tốt", "văn bản xấu"],
        ["người_dùng", "văn_bản_tốt", "văn_bản_xấu_1"],
        ["수도", "서울", "부산"],
        ["물음", "좋은글", "나쁜글1"],
        ["السؤال", "الإجابة", "سلبي"],
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("n_rows", [1, 9])
def test_a_first_line_that_may_be_a_header_or_a_row_is_refused(
    first: list[str], suffix: str, n_rows: int, tmp_path: Path
) -> None:
    path = write(tmp_path / f"a{suffix}", [first, *ROWS[:n_rows]])
    with pytest.raises(InputError, match=r"a.[a-z.]+:1: the first line may name the columns or be a row") as caught:
        read(path)
    assert "--set header=no" in str(caught.value.remedy)
    assert [item.query for item in read(path, header=True)[1]] == [row[0] for row in ROWS[:n_rows]]
    assert [item.query for item in read(path, header=False)[1]] == [first[0], *(row[0] for row in ROWS[:n_rows])]


@pytest.mark.parametrize("first", ["", "编号", "no", "Unnamed: 0"])
@pytest.mark.parametrize("number", ["1", "-0.5", "true"])
def test_a_word_above_numbers_alone_names_its_column(first: str, number: str, tmp_path: Path) -> None:
    rows = [[number, *row] for row in ROWS]
    path = write(tmp_path / "a.tsv", [[first, "查询", "正例", "负例"], *rows])
    flags = {"query_column": "查询", "positive_column": "正例", "negative_column": "负例"}
    assert [item.query for item in read(path, **flags)[1]] == [row[0] for row in ROWS]


def test_a_sentence_in_a_column_of_numbers_is_asked_about(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tsv", [["what is it?", "it is this.", "none of them"], *[[*row[:2], "7"] for row in ROWS]]
    )
    with pytest.raises(InputError, match="may name the columns or be a row"):
        read(path)


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


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow"])
def test_unknown_names_are_told_with_examples_and_the_flags_that_read_them(suffix: str, tmp_path: Path) -> None:
    names = ["号码", "提问", "好 文档", "坏文档1", "坏文档2"]
    rows = [dict(zip(names, [n, *row, f"m {n} n"], strict=True)) for n, row in enumerate(ROWS)]
    path = write(tmp_path / f"a{suffix}", rows)
    with pytest.raises(SchemaError, match="no known schema") as caught:
        read(path)
    assert f"    提问: text, {ROWS[0][0]}\n" in str(caught.value)
    flags = shlex.split(str(caught.value.remedy).partition(": ")[2])
    assert flags == ["--query-column", "提问", "--positive-column", "好 文档", "--negative-column", "坏文档"]
    _, found = read(
        path, **{flag[2:].replace("-", "_"): name for flag, name in zip(flags[::2], flags[1::2], strict=True)}
    )
    assert found[0][:3] == (ROWS[0][0], (ROWS[0][1],), (ROWS[0][2], "m 0 n"))


def test_columns_without_names_are_told_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", [[str(n), *row, "bm25"] for n, row in enumerate(ROWS)])
    with pytest.raises(SchemaError, match="columns without names, of which 0, 4") as caught:
        read(path)
    assert "--query-column 1 --positive-column 2 --negative-column 3" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": "a b", "pos": ["c d"], "bm25_neg": ["e f"], "dense_neg": ["g h"]}, "bm25_neg or dense_neg, if that"),
        (
            {"query": "a b", "positive": "c d", "id": 1, "negative_1_text": "e f", "note": "g h"},
            "--negative-column negative_1_text, if",
        ),
        ({"query": "a b", "positive": "c d", "top_k": ["e f"]}, "--negative-column top_k, if"),
    ],
)
def test_columns_that_may_be_negatives_are_named(row: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no column of negatives") as caught:
        read(write(tmp_path / "a.jsonl", [row]))
    assert said in str(caught.value.remedy)


@pytest.mark.parametrize(
    "names",
    [("query", "doc_neg", "doc_pos"), ("request", "text_neg", "text_pos"), ("text", "wrongText", "correctText")],
)
def test_order_does_not_overrule_words_inside_names(names: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no known schema|no column of negatives"):
        read(write(tmp_path / "a.jsonl", [dict(zip(names, TEXTS, strict=True))]))


@pytest.mark.parametrize(
    "row",
    [{"queryText": "q", "positiveDoc": "p", "hardNegatives": ["n"]}, {"query": "q", "pos": "p", "negContexts": ["n"]}],
)
def test_names_in_camel_case_are_known(row: Any, tmp_path: Path) -> None:
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]))
    assert record[:3] == ("q", ("p",), ("n",))


def test_messages_may_be_plain_texts(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "q"}], "positive_messages": ["p"], "negative_messages": ["n", "m"]}
    assert read(write(tmp_path / "a.jsonl", [row]))[1][0][:3] == ("q", ("p",), ("n", "m"))


@pytest.mark.parametrize("negative", [{"text": "n", "rank": 1}, [{"text": "n"}]])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_query_that_is_a_text_beside_passages_that_are_objects(negative: Any, suffix: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "positive": {"title": "T", "text": "p", "score": 1}, "negative": negative}] * 2
    _, found = read(write(tmp_path / f"a{suffix}", rows))
    assert [item[:3] for item in found] == [("q", ("T p",), ("n",))] * 2


def test_relevance_scores_are_labels_that_a_score_cuts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "q", "documents": ["p", "n", "m"], "relevance_scores": [3, 1, 0]}])
    with pytest.raises(SchemaError, match="labels other than 0 and 1"):
        read(path)
    assert read(path, positive_score=3)[1][0][:3] == ("q", ("p",), ("n", "m"))


@pytest.mark.parametrize("docs", ["docs", "ctxs", "passages"])
@pytest.mark.parametrize("label", ["label", "is_selected", "has_answer"])
def test_passages_that_hold_their_labels(docs: str, label: str, tmp_path: Path) -> None:
    passages = [{"text": "n", label: 0}, {"title": "T", "text": "p", label: True}, {"text": "m", label: 0}]
    reader, (record,) = read(write(tmp_path / "a.jsonl", [{"query": "q", docs: passages}]))
    assert (reader.files[0].schema, record[:3]) == ("labelled-list", ("q", ("T p",), ("n", "m")))


def passages(n: int, joined: str) -> str:
    texts = [f"Passage {n} {m} tells at length of old towns and their walls." for m in range(3)]
    if joined == "2.":
        return " ".join(f"{m}. {text}" for m, text in enumerate(texts, 1))
    return joined.join(texts)


@pytest.mark.parametrize("mark", [" ||| ", "|||", " [SEP] ", "\n", "\n\n", "\t", " || ", "\n- ", " ### ", "；", "2."])
@pytest.mark.parametrize("negatives", ["negatives", "负例"])
def test_passages_joined_in_one_cell_are_refused(mark: str, negatives: str, tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "positive": f"Answer {n} tells of it.", negatives: passages(n, mark)} for n in range(9)]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SchemaError, match=f"9 of 9 negatives under {negatives} seem to be several passages") as caught:
        read(path)
    assert "--format triplet reads it so" in str(caught.value.remedy)
    assert len(read(path, format="triplet")[1]) == 9


def test_positives_joined_in_one_cell_are_refused(tmp_path: Path) -> None:
    rows = [["a query", "one passage ||| another one", "a negative"]] * 3
    with pytest.raises(SchemaError, match="3 of 3 positives under 1 seem"):
        read(write(tmp_path / "a.tsv", rows))


@pytest.mark.parametrize(
    "text",
    [
        lambda n: passages(n, "\n") if n % 3 else passages(n, " "),  # some documents of paragraphs
        lambda n: "\n".join([passages(n, " ")] * (1 + n % 4)),
        lambda n: f"a = b || c{n}\n    if a:\n        return c | d\n",
        lambda n: f"Heading {n}\n{passages(n, ' ')}" if n % 2 else f"|x| < {n}",
        lambda n: passages(n, " ||| ") if n == 1 else passages(n, " "),
    ],
)
def test_marks_within_passages_are_no_reason_to_refuse(text: Any, tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "positive": f"Answer {n} tells of it.", "negative": text(n)} for n in range(20)]
    assert len(read(write(tmp_path / "a.jsonl", rows))[1]) == 20


def test_a_break_that_positives_have_too_is_one_of_the_corpus(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "pos": passages(n, "\n"), "neg": passages(n + 50, "\n")} for n in range(20)]
    assert len(read(write(tmp_path / "a.jsonl", rows))[1]) == 20


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        (lambda n: f"Old {n} [SEP] {passages(n, ' ')}", lambda n: f"New {n} [SEP] {passages(n, ' ')}"),
        (lambda n: passages(n, "</s>"), lambda n: passages(n + 50, "</s>")),  # dialogues
        (lambda n: [passages(n, " ")], lambda n: [passages(n, "\n\n"), passages(n + 50, "\n\n")]),
        (lambda n: [passages(n, " ")], lambda n: [passages(n, " <sep> "), passages(n + 50, " <sep> ")]),
        (lambda n: f"Answer {n}.", lambda n: f"{passages(n, ' ')}\n\n{passages(n, ' ')}"),
        (lambda n: "lambda a: a", lambda n: f"def f{n}(a):\n    return a"),
        (lambda n: passages(n, " "), lambda n: f"Old {n} ||| {passages(n, ' ')}"),
    ],
)
def test_titles_paragraphs_and_habits_of_both_sides_are_no_joined_passages(
    positive: Any, negative: Any, tmp_path: Path
) -> None:
    rows = [{"query": f"q {n}", "positive": positive(n), "negative": negative(n)} for n in range(20)]
    assert len(read(write(tmp_path / "a.jsonl", rows))[1]) == 20


def test_lists_of_one_item_may_hold_several_passages_and_so_may_both_sides(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "pos": ["a b ||| c d"], "neg": [passages(n, " ||| ")]} for n in range(9)]
    with pytest.raises(SchemaError, match="9 of 9 negatives under neg seem to be several"):
        read(write(tmp_path / "a.jsonl", rows))


FLAT = {"query": "q", "pos_text": "p", "pos_title": "T", "neg_text": "n", "neg_title": "T"}
NUMBERED = {"query": "q", "positive": "p", "positive_title": "T", "negative_1": "n", "negative_2": "m"}
TITLES_OF_LISTS = {"query": "q", "pos": ["p"], "pos_titles": ["T"], "neg": ["n", "m"], "negTitles": ["T", ""]}


@pytest.mark.parametrize(
    ("row", "negatives"),
    [
        (FLAT, ("T n",)),
        ({**NUMBERED, "negative_1_title": "T", "negative_2_title": ""}, ("T n", "m")),
        ({**NUMBERED, "negative_title_1": "T", "negative_title_2": "U"}, ("T n", "U m")),
        (TITLES_OF_LISTS, ("T n", "m")),
        ({"query": "q", "docs": ["p", "n"], "titles": ["T", "T"], "labels": [1, 0]}, ("T n",)),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_titles_in_columns_of_their_own_are_joined(row: Any, negatives: Any, suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [row])
    reader, (record,) = read(path)
    assert record[:3] == ("q", ("T p",), negatives)
    assert "titles joined: " in reader.files[0].mapping
    reader, (record,) = read(path, titles=False)
    assert record.positives == ("p",)
    assert "titles left out: " in reader.files[0].mapping


TITLED = {"positive_title": "T", "negative_title": "U"}


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("first", [dict.fromkeys(TITLED), {}])
def test_titles_that_the_first_rows_lack_are_joined_in_every_container(first: Any, suffix: str, tmp_path: Path) -> None:
    rows: list[Any] = [{"query": f"q {n}", "positive": f"p {n}", "negative": f"n {n}"} for n in range(80)]
    rows = [{**row, **(TITLED if n >= 70 else first)} for n, row in enumerate(rows)]
    rows = rows if suffix == ".jsonl" else [{**dict.fromkeys(TITLED), **row} for row in rows]
    _, found = read(write(tmp_path / f"a{suffix}", rows))
    texts = [(*record.positives, *record.negatives) for record in found]
    assert texts[69:71] == [("p 69", "n 69"), ("T p 70", "U n 70")]
    assert len(texts) == 80


def test_titles_of_numbered_negatives_further_down_and_of_labelled_pairs_are_joined(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "positive_title": "T", "negative_1": "n", "negative_1_title": "T"}
    rows = [*[row] * 70, {**row, "negative_2": "m", "negative_2_title": "U"}, {**row, "negative_2": "m"}]
    _, found = read(write(tmp_path / "a.jsonl", rows))
    assert [record.negatives for record in found[69:]] == [("T n",), ("T n", "U m"), ("T n", "m")]

    pairs: list[Any] = [{"query": f"q {n // 2}", "passage": f"p {n}", "label": n % 2} for n in range(80)]
    _, found = read(write(tmp_path / "b.jsonl", [*pairs[:70], *({**pair, "title": "T"} for pair in pairs[70:])]))
    assert (found[34].positives, found[35].positives, len(found)) == (("p 69",), ("T p 71",), 40)


@pytest.mark.parametrize("own", [{}, {"title": "U"}])
def test_a_title_beside_a_passage_that_is_an_object_is_joined_unless_that_has_its_own(own: Any, tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": {**own, "text": text}, "title": "T", "label": text == "p"} for text in "pn"]
    title = own.get("title", "T")
    assert read(write(tmp_path / "a.jsonl", rows))[1][0][:3] == ("q", (f"{title} p",), (f"{title} n",))


@pytest.mark.parametrize(
    ("titles", "joined", "said"),
    [
        ({"pos_title": "T", "neg_title": "U"}, True, "titles joined: pos_title, neg_title"),
        ({"title": "T", "negative_title": "U"}, True, "titles joined: negative_title, title"),
        ({"negative_title": "U"}, False, "titles left out, since some passages have none: negative_title"),
        ({"positive_title": "T"}, False, "titles left out, since some passages have none: positive_title"),
        ({"positive_title": 7, "negative_title": ["U"]}, False, "titles left out: positive_title, negative_title"),
    ],
)
def test_titles_are_joined_on_both_sides_or_on_none(titles: Any, joined: bool, said: str, tmp_path: Path) -> None:
    reader, (record,) = read(write(tmp_path / "a.jsonl", [{"query": "q", "positive": "p", "negative": "n", **titles}]))
    assert record[1:3] == ((("T p",), ("U n",)) if joined else (("p",), ("n",)))
    assert reader.files[0].mapping.endswith(f"({said})")


def test_a_title_that_is_no_text_is_counted(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative": "n", "positive_title": "T", "negative_title": "U"}
    defect = read(write(tmp_path / "a.jsonl", [*[row] * 9, {**row, "negative_title": 7}]))[1][-1]
    assert (defect.reason, "a title is no text" in defect.detail) == ("wrong_type", True)


def test_objects_on_one_side_alone_are_read_together(tmp_path: Path) -> None:
    rows = [{"query": "q", "pos": [{"title": "T", "text": "p"}], "neg": ["n", "m"]}] * 50
    rows += [{"query": "q", "pos": ["p"], "neg": [{"title": "T", "text": "n"}, "m"]}] * 50
    path = str(write(tmp_path / "a.jsonl", rows))
    assert {type(item) for item in open_source(Source("a", (path,)), Settings()).blocks()} == {Block}
    assert read(Path(path))[1][50].negatives == ("T n", "m")


def test_titles_of_flat_tables_and_of_labelled_pairs_are_joined(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.tsv", [FLAT]))[1][0][:3] == ("q", ("T p",), ("T n",))
    pairs = [{"query": "q", "passage": text, "passage_title": "T", "label": text == "p"} for text in "pn"]
    assert read(write(tmp_path / "b.jsonl", pairs))[1][0][:3] == ("q", ("T p",), ("T n",))


def test_a_title_that_may_be_anyone_s_is_said_to_be_left_out(tmp_path: Path) -> None:
    reader, (record,) = read(write(tmp_path / "a.jsonl", [{"title": "T", "query": "q", "pos": ["p"], "neg": ["n"]}]))
    assert record[:3] == ("q", ("p",), ("n",))
    assert reader.files[0].mapping.endswith("(titles left out: title)")


def test_titles_that_are_not_as_many_as_the_passages_are_counted(tmp_path: Path) -> None:
    (defect,) = read(write(tmp_path / "a.jsonl", [{**TITLES_OF_LISTS, "negTitles": ["T"]}]))[1]
    assert (defect.reason, "1 titles for 2 passages" in defect.detail) == ("wrong_type", True)


def test_a_column_flag_may_name_ids_of_queries(collection: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", [["11", "a p", "a n"]])
    flags = {"query_column": "0", "positive_column": "1", "negative_column": "2"}
    with pytest.raises(InputError, match="holds ids of queries, not texts"):
        read(path, **flags)
    assert read(path, **flags, collection=collection)[1][0].query == "q"
    assert read(path, **flags, format="triplet")[1][0].query == "11"


@pytest.mark.parametrize("positive", ["p", ["p"]])
def test_ids_of_queries_beside_texts_of_passages(positive: Any, collection: str, tmp_path: Path) -> None:
    negative = ["n", "m"] if isinstance(positive, list) else "n"
    path = write(tmp_path / "a.jsonl", [{"query_id": "11", "positive": positive, "negative": negative}])
    with pytest.raises(InputError, match="holds ids of queries, not texts"):
        read(path)
    for given in ({"collection": collection}, {"queries": f"{collection}/queries.jsonl"}):
        assert read(path, **given)[1][0][:3] == ("q", ("p",), tuple(negative))


@pytest.mark.parametrize("names", [["query", "positive", "negative"], ["提问", "好文档", "坏文档1"]])
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_first_array_that_may_be_names_is_refused(names: list[str], suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [names, *ROWS])
    with pytest.raises(SchemaError, match="first row may name the columns"):
        read(path)
    assert len(read(path, header=False)[1]) == len(ROWS) + 1


def test_a_table_of_a_header_alone_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="may name the columns or be a row"):
        read(write(tmp_path / "a.csv", [["提问", "好文档", "坏文档"]]))


def test_objects_without_a_known_text_are_refused_once(tmp_path: Path) -> None:
    rows = [{"query": "q", "pos": [{"Body_Text": "p", "rank": 1}], "neg": [{"Body_Text": "n", "rank": 2}]}] * 3
    with pytest.raises(SchemaError, match="known to hold the text: Body_Text, rank") as caught:
        read(write(tmp_path / "a.jsonl", rows))
    assert "name it text" in str(caught.value.remedy)


@pytest.mark.parametrize("wrapper", ["results", "triplets", "dataset"])
def test_a_list_of_records_is_found_whatever_its_key(wrapper: str, tmp_path: Path) -> None:
    rows: Any = [{"query": f"q {n}", "positive": "p", "negative": "n"} for n in range(3)]
    value = {"version": 2, wrapper: rows} if wrapper != "dataset" else {wrapper: {"train": rows}}
    (tmp_path / "a.json").write_text(json.dumps(value), encoding="utf-8")
    assert [item.query for item in read(tmp_path / "a.json")[1]] == ["q 0", "q 1", "q 2"]


def test_distractors_are_numbered_negatives(tmp_path: Path) -> None:
    row = {"question": "q", "correct_answer": "p", "distractor1": "n", "distractor2": "m"}
    assert read(write(tmp_path / "a.jsonl", [row]))[1][0][:3] == ("q", ("p",), ("n", "m"))


@pytest.mark.parametrize("missing", ["", "N/A", "nan", "None"])
def test_a_missing_number_makes_no_header(missing: str, tmp_path: Path) -> None:
    first = ["what is this?", "it is one of these.", missing]
    path = write(tmp_path / "a.tsv", [first, *[[row[0], row[1], "1"] for row in ROWS]])
    stream = ByteStream(str(path))
    dialect = sniff(stream).dialect
    stream.close()
    assert dialect is not None
    assert dialect.header == ()


def test_a_header_in_the_middle_is_no_row(tmp_path: Path) -> None:
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


TEXTS = ["what is it", "this is it", "that is not"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("instruction", "query", "response"), "no known schema"),
        (("title", "question", "answer"), "no column of negatives"),
        (("query", "title", "body"), "no known schema"),
        (("question", "context", "answer"), "no column of negatives"),
        (("positive", "text", "other"), "no known schema"),
        (("text", "negative", "other"), "no known schema"),
    ],
)
def test_order_does_not_overrule_names_that_are_known(names: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [dict(zip(names, TEXTS, strict=True))])
    with pytest.raises(SchemaError, match=said) as caught:
        read(path)
    assert "--negative-column" in str(caught.value.remedy)
    _, (record,) = read(path, query_column=names[0], positive_column=names[1], negative_column=names[2])
    assert record[:3] == (TEXTS[0], (TEXTS[1],), (TEXTS[2],))


@pytest.mark.parametrize("named", [True, False], ids=["named", "without names"])
def test_a_few_words_again_and_again_are_no_negatives(named: bool, tmp_path: Path) -> None:
    tags = ["entailment", "neutral"]
    rows: list[Any] = [[f"a man {n} walks", f"a person {n} moves", tags[n % 2]] for n in range(8)]
    kept = [[*row[:2], f"{row[2]} {n}"] for n, row in enumerate(rows)]
    if named:
        rows, kept = ([dict(zip("xyz", row, strict=True)) for row in each] for each in (rows, kept))
    with pytest.raises(SchemaError):
        read(write(tmp_path / "a.jsonl", rows))
    assert len(read(write(tmp_path / "b.jsonl", kept))[1]) == 8


@pytest.mark.parametrize("name", ["wrong", "bad_answer", "incorrect answer", "wrong_2"])
def test_a_triplet_may_carry_a_score(name: str, tmp_path: Path) -> None:
    row = {"score": 3.2, "question": "what", "answer": "this", name: "that"}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]))
    assert record[:3] == ("what", ("this",), ("that",))


def test_a_label_that_tells_nothing_beside_three_texts_is_ambiguous(tmp_path: Path) -> None:
    rows = [{"question": f"what {n}", "answer": f"this {n}", "remark": f"that {n}", "label": 1} for n in range(8)]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SchemaError, match="same in all rows") as caught:
        read(path)
    assert "--format ordered-triplet" in str(caught.value.remedy)
    assert read(path, format="ordered-triplet")[1][0].negatives == ("that 0",)
    rows[1]["label"] = 0
    assert read(write(tmp_path / "b.jsonl", rows))[0].files[0].schema == "labelled-pair"


def test_known_names_win_over_order(tmp_path: Path) -> None:
    _, (record,) = read(write(tmp_path / "a.jsonl", [{"negative": "n", "positive": "p", "query": "q"}]))
    assert record[:3] == ("q", ("p",), ("n",))


def test_id_columns_are_no_texts(tmp_path: Path) -> None:
    row = {"query_id": "a1", "query": "q", "positive_id": "b1", "positive": "p", "negative_id": "c1", "negative": "n"}
    _, (record,) = read(write(tmp_path / "a.parquet", [row]))
    assert record[:3] == ("q", ("p",), ("n",))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"queries": {"1": "q"}, "corpus": {"2": "p"}, "relevant_docs": {"1": ["2"]}}, "LlamaIndex"),
        ({"_id": "1", "title": "t", "text": "x"}, "a collection"),
        ({"query-id": "1", "corpus-id": "2", "score": 1}, "qrels"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference"),
        ({"instruction": "a", "input": "b", "output": "c"}, "instruction-tuning"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "conversations"),
        ({"query": "q", "positive": "p"}, "no column of negatives"),
        ({"id": 1, "data": {"query": "q a", "positive": "p", "negative": "n"}}, "one level deeper"),
        (
            {"q1": {"query": "q a", "pos": ["p"], "neg": ["n"]}, "q2": {"query": "q a", "pos": ["p"], "neg": ["n"]}},
            "deeper",
        ),
        ({"what is it": {"positive": "p", "negative": "n"}}, "one level deeper"),
        ({"query": ["q a", "q b", "q c"], "positive": ["p"], "negative": ["n"]}, "lists of queries"),
        ({"foo": 1, "bar": 2}, "foo: id, 1\n    bar: id, 2"),
        (["a b", "c d"], "two columns"),
        ({"query": ["a b", "c d"], "pos": ["e f", "g h"], "neg": ["i j", "k l"]}, "a whole table"),
        ({name: {"0": "a b", "1": "c d"} for name in ("query", "positive", "negative")}, "a whole table"),
        ({n: {"query": "a b", "positive": "c d", "negative": "e f"} for n in "01"}, "a whole table"),
        ({"columns": ["query", "positive"], "index": [0], "data": [["a b", "c d"]]}, "a whole table"),
        (
            {"query": "q a", "passages": {"positive": "p", "negative": ["n"]}},
            r"jq -c '\(arrays\[\] // \.\) \| \. \+ \.NAME'",
        ),
        ({"query-id": "1", "corpus-ids": ["2", "3"]}, "lists of candidates"),
        ({"custom_id": "1", "response": {"body": {"choices": [{"message": {"content": "{}"}}]}}}, "fromjson"),
    ],
)
def test_what_holds_no_negatives_is_refused_in_words(row: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        read(write(tmp_path / "a.jsonl", [row]))
    assert caught.value.remedy
    assert "a.jsonl" in str(caught.value)


def test_a_file_with_negatives_is_not_told_that_it_has_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"instruction": "a", "input": "b", "output": "c", "negatives": ["d", "e"]}])
    with pytest.raises(SchemaError, match="no known schema") as caught:
        read(path)
    assert "negatives" in str(caught.value)
    assert "--query-column" in str(caught.value)
    _, (record,) = read(path, query_column="input", positive_column="output", negative_column="negatives")
    assert record[:3] == ("b", ("c",), ("d", "e"))


def test_several_readings_are_listed_with_the_flags_that_decide(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negative": "n one", "hard_negative": "n two"}
    path = write(tmp_path / "a.jsonl", [row])
    with pytest.raises(SchemaError, match="several readings") as caught:
        read(path)
    assert "negatives=negative" in str(caught.value)
    assert "negatives=hard_negative" in str(caught.value)
    assert "--negative-column" in str(caught.value)

    reader, (record,) = read(path, negative_column="hard_negative")
    assert record.negatives == ("n two",)
    assert reader.files[0].schema == "columns"


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
    with pytest.raises(SchemaError, match=f"several readings fit.*{name}") as caught:
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


def test_a_first_column_of_objects_breaks_no_advice(tmp_path: Path) -> None:
    rows = [{"meta": {"n": n}, "a": f"a {n}", "b": f"b {n}", "c": f"c {n}"} for n in range(9)]
    with pytest.raises(SchemaError, match="no known schema"):
        read(write(tmp_path / "a.jsonl", rows))


def test_the_advice_names_columns_by_all_words_of_negatives(tmp_path: Path) -> None:
    row = {"question": "q a", "ctx_good": "p a", "ctx_bad": "n a", "answer": "a b"}
    with pytest.raises(SchemaError) as caught:
        read(write(tmp_path / "a.jsonl", [row]))
    assert "--negative-column ctx_bad" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("query", "positive", "reasoning"), "no column of negatives"),
        (("query", "passage", "generated_answer"), "no column of negatives"),
        (("article", "summary", "headline"), "no known schema"),
    ],
)
def test_a_third_text_is_no_negative_beside_known_names(names: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [dict(zip(names, TEXTS, strict=True))])
    with pytest.raises(SchemaError, match=said) as caught:
        read(path)
    assert "--negative-column" in str(caught.value.remedy)
    assert len(read(path, format="ordered-triplet")[1]) == 1
    kept = [
        dict(zip(named, TEXTS, strict=True))
        for named in (("query", "positive", "bm25_neg"), ("sent0", "sent1", "sent2"))
    ]
    assert all(len(read(write(tmp_path / "b.jsonl", [row]))[1]) == 1 for row in kept)


@pytest.mark.parametrize(
    ("before", "behind"), [(["7"], []), (["q7"], []), (["q7", "d3"], ["1"]), ([], ["3"]), ([], ["bm25"])], ids=str
)
def test_ids_numbers_and_tags_are_no_texts_of_a_nameless_table(
    before: list[str], behind: list[str], tmp_path: Path
) -> None:
    rows = [[*before, *(f"{text} {n}" for text in TEXTS), *behind] for n in range(4)]
    path = write(tmp_path / "a.tsv", rows)
    with pytest.raises(SchemaError, match="columns without names, of which") as caught:
        read(path)
    assert "--query-column" in str(caught.value.remedy)
    flags = {f"{role}_column": str(len(before) + at) for at, role in enumerate(("query", "positive", "negative"))}
    scored = [[f"{text} {n}" for text in TEXTS] + ["0.53"] for n in range(4)]
    assert len(read(write(tmp_path / "b.tsv", scored))[1]) == 4
    assert [record.negatives for record in read(path, **flags)[1]] == [(row[len(before) + 2],) for row in rows]


def test_column_flags_take_lists_numbered_columns_and_positions(tmp_path: Path) -> None:
    row = {"a": "q", "b": ["p"], "c_1": "n", "c_2": "m"}
    flags = {"query_column": "a", "positive_column": "b", "negative_column": "c"}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]), **flags)
    assert record[:3] == ("q", ("p",), ("n", "m"))

    flags = {"query_column": "2", "positive_column": "0", "negative_column": "1"}
    _, (record,) = read(write(tmp_path / "b.jsonl", [["a p", "a n", "a q"]]), **flags)
    assert record[:3] == ("a q", ("a p",), ("a n",))


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "q", "pos": ["p"], "neg": ["n"]}])
    with pytest.raises(SchemaError, match=r"'quary' is not there\n  columns:\n    query: text, q"):
        read(path, query_column="quary")


def test_a_wrong_format_name_suggests_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "q", "pos": ["p"], "neg": ["n"]}])
    with pytest.raises(SchemaError, match="did you mean 'flagembedding'"):
        read(path, format="flagembeding")
    with pytest.raises(SchemaError, match="not the shape of --format dpr"):
        read(path, format="dpr")


def test_ids_without_a_collection_are_one_clear_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": 1, "positive": 2, "negative": 3}])
    with pytest.raises(InputError, match=r"ids of queries and passages.*no collection") as caught:
        read(path)
    assert "--collection" in str(caught.value.remedy)


def test_words_that_look_like_ids_are_texts_when_the_format_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "when", "positive": "1999", "negative": "2001"}])
    with pytest.raises(InputError, match="ids of passages"):
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
        (Record, 1, "bm25"),
        (Record, 1, "dense"),
        (Defect, 2, "bm25"),
        (Record, 2, "other"),
    ]
    assert found[2].reason == "no_negatives"


def test_an_object_of_one_passage_is_no_object_of_miners(tmp_path: Path) -> None:
    row = {"query": "q", "pos": {"title": "T", "text": "p"}, "neg": {"title": "U", "text": "n", "url": "x"}}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]), negative_column="neg")
    assert (record.positives, record.negatives, record.split) == (("T p",), ("U n",), "")
    row = {"query": "q", "pos": ["p"], "neg": {"bm25": "n", "tas-b": "m"}}
    _, found = read(write(tmp_path / "b.jsonl", [row]), negative_column="neg")
    assert [(item.split, item.negatives) for item in found] == [("bm25", ("n",)), ("tas-b", ("m",))]


def test_fields_of_passages_are_no_miners(tmp_path: Path) -> None:
    row = {"query": "q", "pos": ["p"], "neg": {"ids": ["d7", "d8"], "texts": ["n one", "n two"]}}
    with pytest.raises(SchemaError, match="neg: struct"):
        read(write(tmp_path / "a.jsonl", [row]))


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


def test_a_source_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for row in ({"query": "q", "positive": "p", "negative": "n", "miner": "x"}, ["q a", "p a", "n a"]):
        path = write(tmp_path / "a.jsonl", [row])
        with pytest.raises(SchemaError, match=r"--source-column 'nope' is not there\n  columns:\n"):
            read(path, source_column="nope")


def test_instruction_pairs_are_one_text_each(tmp_path: Path) -> None:
    row = {"query": ["i", "q"], "pos": [["i", "p"], ["i", "p2"]], "neg": ["i", "n"]}
    _, (record,) = read(write(tmp_path / "a.jsonl", [row]))
    assert record[:3] == ("q", ("p", "p2"), ("n",))


def test_a_first_text_that_differs_in_every_row_is_no_instruction(tmp_path: Path) -> None:
    rows = [{"query": ["i", f"q {n}"], "pos": [f"p {n}", f"o {n}"], "neg": ["i", f"n {n}"]} for n in range(4)]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SchemaError, match="two passages"):
        read(path)
    assert read(path, format="instructor")[1][0].positives == ("o 0",)
    assert len(read(write(tmp_path / "b.jsonl", [{**row, "pos": ["i", row["pos"][1]]} for row in rows]))[1]) == 4


def test_titles_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(SHAPES[0].example))
    assert read(path)[1][0].positives == ("T p",)
    assert read(path, titles=False)[1][0].positives == ("p",)


def test_a_label_may_be_a_decimal(tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": text, "label": Decimal(text == "p")} for text in ("n", "p")]
    _, (record,) = read(write(tmp_path / "a.parquet", rows))
    assert record[:3] == ("q", ("p",), ("n",))


@pytest.mark.parametrize("name", ["relevant", "is_positive", "is_selected", "correct"])
def test_a_flag_of_relevance_is_a_label(name: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "text": text, name: text == "p"} for text in ("n", "p")]
    _, (record,) = read(write(tmp_path / "a.jsonl", rows))
    assert record[:3] == ("q", ("p",), ("n",))


def test_scores_are_thresholded_only_by_request(tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": text, "score": score} for text, score in (("p", 3), ("m", 0.5), ("n", -1))]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(SchemaError, match="labels other than 0 and 1") as caught:
        read(path)
    assert "--positive-score" in str(caught.value.remedy)
    with pytest.raises(SchemaError, match="labels other than 0 and 1"):  # as `secid check` reads
        read(path, max_bad_fraction=float("inf"))
    _, (record,) = read(path, positive_score=0.5)
    assert record[:3] == ("q", ("p", "m"), ("n",))


def test_ms_marco_passages_are_a_labelled_list(tmp_path: Path) -> None:
    row = {"query": "q", "passages": {"passage_text": ["n", "p"], "is_selected": [0, 1], "url": ["", ""]}}
    _, (record,) = read(write(tmp_path / "a.parquet", [row]))
    assert record[:3] == ("q", ("p",), ("n",))


def test_a_wrapped_list_in_a_json_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_jsonl(path, [{"corpus": {"path": "c"}, "data": [{"question": "q", "pos_doc": ["p"], "neg_doc": ["n"]}]}])
    _, (record,) = read(path)
    assert record[:3] == ("q", ("p",), ("n",))


@pytest.mark.parametrize("written", [json.dumps, str, lambda texts: str(texts).replace(", ", "\n ")])
@pytest.mark.parametrize(("positive", "negative"), [("positive", "negatives"), ("pos", "neg")])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_lists_written_as_text_are_refused(
    suffix: str, positive: str, negative: str, written: Any, tmp_path: Path
) -> None:
    rows = [{"query": f"what {n}", positive: f"this, {n}", negative: written([f"it's {n}", "b [x]"])} for n in range(9)]
    with pytest.raises(SchemaError, match=rf"the column {negative} holds lists written as text: \["):
        read(write(tmp_path / f"a{suffix}", rows))
    kept = [{**row, negative: f"[{n}] see 'b' ['c']"} for n, row in enumerate(rows)]
    assert len(read(write(tmp_path / f"b{suffix}", kept), format="triplet" if positive == "positive" else None)[1]) == 9


@pytest.mark.parametrize(
    "written",
    [
        "[{{'docid': '{0}', 'title': '', 'text': 'a'}}, {{'docid': '0', 'text': 'b'}}]",
        '[{{"docid": "{0}", "title": "", "text": "a"}}]',
        "array(['a {0}', 'b'], dtype=object)",
        "{{'text': 'a {0}'}}",
        "('a {0}', 'b')",
        "('a {0}',)",
        "[{0}, 1, 2]",
        "[{0} 1 2]",
        '[["a {0}", 0.5], ["b", 0.3]]',
        '["a {0}", null]',
        "[None, 'a {0}']",
        "[array(['a {0}'], dtype=object)]",
    ],
)
def test_other_spellings_of_written_lists_are_refused(written: str, tmp_path: Path) -> None:
    row = {"query": "a question", "positive": "an answer"}
    rows = [{**row, "negative": written.format(n)} for n in range(9)]
    with pytest.raises(SchemaError, match="the column negative holds lists written as text"):
        read(write(tmp_path / "a.csv", rows))


@pytest.mark.parametrize(
    "text",
    [
        "(defun f{0} (x) (car x))",
        "[CLS] {0} [SEP]",
        "[1] a, [2] b {0} [3]",
        "{{ x = {0}; }}",
        "(see {0})",
        "((lambda (x) {0}))",
    ],
)
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
    with pytest.raises(InputError, match="several lists of records: train, test"):
        read(path)
    write_jsonl(path, [{"train": [row], "dev": [None, {**row, "id": 1}], "note": ["a"]}])  # of other keys, too
    with pytest.raises(InputError, match="several lists of records: train, dev"):
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
        (
            {"question": "q", "positive_ctxs": [{"text": "p"}], "hard_negative_ctxs": [{"text": "n"}]},
            {"negative_ctxs": [{"text": "m"}]},
            1,
        ),
        ({"query": "q", "passages": ["p", "n"], "labels": [1, 0]}, {"negatives": ["m"]}, 1),
    ],
)
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
    assert (found[72].reason, found[72].detail) == ("late_column", f"its negatives are in {column}")


def test_one_odd_row_of_negatives_is_counted_where_it_is_among_the_first(tmp_path: Path) -> None:
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


def test_a_second_positive_is_asked_about_or_counted(tmp_path: Path) -> None:
    wider = {**LATE, "positive_2": "o"}
    with pytest.raises(SchemaError, match=r"the positives are positive, or positive_2[^!]*--positive-column"):
        read(write(tmp_path / "a.jsonl", [wider] * 3))
    found = read(tmp_path / "a.jsonl", positive_column="positive")[1]
    assert [item.dropped for item in found] == [()] * 3
    found = read(write(tmp_path / "b.jsonl", [*[LATE] * 70, wider]))[1]
    assert (found[70].positives, found[70].dropped) == (("p",), (("unusable_positive", 1),))


def test_negatives_beside_a_labelled_list_are_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "q", "docs": ["p", "n"], "labels": [1, 0], "negatives": ["m"]}] * 3)
    with pytest.raises(SchemaError, match="the negatives are docs by labels, or negatives"):
        read(path)
    assert {item.dropped for item in read(path, format="labelled-list")[1]} == {()}


WORDS = [
    ("relevant", "irrelevant"),
    ("Relevant", "not_relevant"),
    ("yes", "no"),
    ("Positive", "Negative"),
    ("True", "False"),
]


@pytest.mark.parametrize(("positive", "negative"), WORDS)
def test_labels_may_be_words(positive: str, negative: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": "p", "label": positive}, {"query": "q", "passage": "n", "label": negative}]
    for suffix in (".jsonl", ".csv"):
        (item,) = read(write(tmp_path / f"a{suffix}", rows))[1]
        assert (item.positives, item.negatives) == (("p",), ("n",))
    (item,) = read(write(tmp_path / "b.jsonl", [{"query": "q", "docs": ["n", "p"], "labels": [negative, positive]}]))[1]
    assert (item.positives, item.negatives) == (("p",), ("n",))


@pytest.mark.parametrize(
    "row",
    [
        {"query": "q", "passage": "p", "label": "entailment"},
        {"query": "q", "passage": "p", "label": "相关"},
        {"sentence1": "q", "sentence2": "p", "label": "neutral"},
        {"query": "q", "docs": ["p", "n"], "labels": ["Perfect", "Bad"]},
    ],
)
def test_other_labels_in_words_are_asked_about(row: Any, tmp_path: Path) -> None:
    with pytest.raises(
        SchemaError, match=r"labels in words \((entailment|相关|neutral|Perfect, Bad)\): which[^!]*write 1 and 0"
    ):
        read(write(tmp_path / "a.jsonl", [row] * 3))


@pytest.mark.parametrize("passage", ["passage", "positive"])
@pytest.mark.parametrize("odd", ["maybe", [1], {}])
@pytest.mark.parametrize("at", [3, 71])
def test_a_single_odd_label_is_a_bad_row_wherever_it_stands(at: int, odd: Any, passage: str, tmp_path: Path) -> None:
    rows: list[Any] = [{"query": f"q {n // 2}", passage: f"p {n}", "label": n % 2} for n in range(80)]
    rows[at]["label"] = odd
    _, found = read(write(tmp_path / "a.jsonl", rows))
    assert next((item.reason, item.line) for item in found if isinstance(item, Defect)) == ("wrong_type", at + 1)
    assert sum(isinstance(item, Record) for item in found) == 39


def test_words_of_a_third_kind_beside_known_labels_are_asked_about(tmp_path: Path) -> None:
    words = ("relevant", "partially relevant", "irrelevant", "irrelevant")
    rows = [{"query": f"q {n // 4}", "passage": f"p {n}", "label": words[n % 4]} for n in range(80)]
    with pytest.raises(SchemaError, match=r"labels in words \(partially relevant\): which[^!]*write 1 and 0"):
        read(write(tmp_path / "a.jsonl", rows))


def test_a_label_column_settles_that_other_negatives_are_not_read(tmp_path: Path) -> None:
    rows = [{"query": "q", "passage": f"p {n}", "negative": "other", "grade": n % 2} for n in range(8)]
    (item,) = read(write(tmp_path / "a.jsonl", rows), label_column="grade")[1]
    assert (item.positives, item.negatives) == (("p 1", "p 3", "p 5", "p 7"), ("p 0", "p 2", "p 4", "p 6"))


LABELLED_PAIRS = [{"질문": f"q {n // 2}", "문단": f"p {n}", "레이블": n % 2} for n in range(8)]
LABELLED_LISTS = [{"질문": f"q {n}", "문단": [f"p {2 * n}", f"p {2 * n + 1}"], "레이블": [0, 1]} for n in range(4)]


@pytest.mark.parametrize(
    ("suffix", "rows"),
    [(suffix, LABELLED_PAIRS) for suffix in (".csv", ".tsv", ".jsonl", ".parquet")]
    + [(suffix, LABELLED_LISTS) for suffix in (".json", ".parquet")],
)
def test_labelled_passages_under_foreign_names_are_told_the_flags_that_read_them(suffix, rows, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", rows)
    with pytest.raises(SchemaError, match="if these are query, passages and their labels") as caught:
        read(path)
    assert str(caught.value.remedy).endswith("--query-column 질문 --positive-column 문단 --label-column 레이블")
    _, found = read(path, query_column="질문", positive_column="문단", label_column="레이블")
    assert [item[:3] for item in found] == [(f"q {n}", (f"p {2 * n + 1}",), (f"p {2 * n}",)) for n in range(4)]


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


def test_a_column_positive_that_holds_flags_is_no_passage(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "content": f"text {n}", "positive": n % 2} for n in range(6)]
    with pytest.raises(SchemaError, match="--positive-column content --label-column positive"):
        read(write(tmp_path / "a.jsonl", rows))


@pytest.mark.parametrize(
    ("names", "labels", "flags"),
    [
        ("question sentence label", (1, -1), "question sentence label --positive-score X"),
        ("premise hypothesis label", (0, 1, 2), "premise hypothesis label --positive-score X"),
        ("query passage rating", ("good", "bad"), "query passage rating"),
        ("anchor positive score", (0.5, 0.25), "anchor positive score --positive-score X"),
    ],
)
def test_columns_of_labels_are_told_whatever_they_hold(names: str, labels: Any, flags: str, tmp_path: Path) -> None:
    rows = [
        dict(zip(names.split(), (f"q {n // 4}", f"text {n}", labels[n % len(labels)]), strict=True)) for n in range(40)
    ]
    with pytest.raises(SchemaError) as caught:
        read(write(tmp_path / "a.csv", rows))
    query, passage, label = flags.split(" ", 2)
    told = f"--query-column {query} --positive-column {passage} --label-column {label}"
    assert told in (caught.value.remedy or "")


def test_ids_of_answers_are_ids(tmp_path: Path, collection: str) -> None:
    rows = [{"question_id": "11", "pos_ans_id": "1", "neg_ans_id": "2"}]
    reader, found = read(write(tmp_path / "a.csv", rows), collection=collection)
    assert reader.files[0].schema == "id-columns"
    assert_read(found)


def test_a_label_column_and_a_negative_column_exclude_each_other(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", LABELLED_PAIRS)
    with pytest.raises(SchemaError, match="--label-column makes the negatives"):
        read(path, query_column="질문", positive_column="문단", label_column="레이블", negative_column="문단")


@pytest.mark.parametrize("negatives", [[["n text", 0.5], ["m text", 0.3]], [["n text", "m text"], ["k text"]]])
@pytest.mark.parametrize("names", ["positive negatives", "pos neg"])
def test_lists_in_lists_are_refused(names: str, negatives: Any, tmp_path: Path) -> None:
    positive, negative = names.split()
    path = write(
        tmp_path / "a.jsonl", [{"query": f"q {n}", positive: ["p text"], negative: negatives} for n in range(3)]
    )
    with pytest.raises(SchemaError, match=rf"the column {negative} holds lists in lists: \[\[\"n text\""):
        read(path)


def test_negatives_without_a_text_are_told_beside_good_positives(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"query": "q", "pos": ["p"], "neg": [{"negative": "n", "score": 0.5}]}] * 3)
    with pytest.raises(SchemaError, match="none of their keys is known to hold the text: negative, score"):
        read(path)


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


@pytest.mark.parametrize("odd", [["a", "list"], {"text": "an object"}])
@pytest.mark.parametrize("names", [("query", "positive", "b"), ("a", "b", "c")])
def test_an_odd_cell_does_not_break_the_advice(names: Any, odd: Any, tmp_path: Path) -> None:
    rows = [{name: f"{name} {n} words" for name in names} | {"d": "the same in all rows"} for n in range(9)]
    rows[4]["d"] = odd

    with pytest.raises(SchemaError, match="columns:") as caught:
        read(write(tmp_path / "a.jsonl", rows))

    assert " d " not in caught.value.remedy


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
            told = [item.detail for item in found if isinstance(item, Defect)]
        except SecidError as error:
            told = [str(error)]
        assert told
        assert max(map(len, told)) < 1000


def test_an_object_nested_deep_is_told_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":' * 950 + "1" + "}" * 950, encoding="utf-8")

    # Which of the two is told depends on the depth of the caller's own stack; neither is a traceback.
    with pytest.raises(InputError, match=r"a: struct|nested about a thousand deep"):
        read(tmp_path / "a.json")


def test_names_of_columns_are_told_short_and_in_one_line(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "x" * 100_000: f"p {n}", "two\nlines": f"n {n}", "d": n} for n in range(9)]

    with pytest.raises(SchemaError) as caught:
        read(write(tmp_path / "a.jsonl", rows))

    assert len(str(caught.value)) < 2000
    assert "two lines: text" in str(caught.value)
