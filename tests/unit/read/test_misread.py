"""Files in shapes that people get wrong are read correctly, or the error names flags that read them correctly."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from secid.errors import InputError, SchemaError, SecidError
from secid.records import Record
from tests.snapshots import Snapshot, situations

from .conftest import read, write, write_jsonl

CORPUS = {
    **{f"d{n}": f"passage {n} of the corpus" for n in range(9)},
    "Nikolaj_Coster-Waldau": "an actor",
    "Fox_Broadcasting": "a network",
    "Arctic": "the far north",
    "<dbpedia:X_(book)>": "a book",
    "民法典第五十四条": "an article of a law",
    "27/2010/nđ-cp#8": "a decree",
}
QUERIES = {"75000": "who is he", "q1": "the first query", "q2": "the second query"}


@pytest.fixture
def wiki(tmp_path: Path) -> str:
    """A BEIR folder whose ids are those of FEVER, DBpedia and laws."""
    folder = tmp_path / "wiki"
    folder.mkdir()
    write_jsonl(folder / "corpus.jsonl", [{"_id": key, "text": text} for key, text in CORPUS.items()])
    write_jsonl(folder / "queries.jsonl", [{"_id": key, "text": text} for key, text in QUERIES.items()])
    return str(folder)


def file_of(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    if isinstance(content, list):
        return write(path, content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def texts(n: int = 4, **columns: str) -> list[dict[str, str]]:
    """Rows of different texts, three words or more each: column=text."""
    return [{name: f"{text} number {at}" for name, text in columns.items()} for at in range(n)]


FEVER = {"qid": 75000, "pos": ["Nikolaj_Coster-Waldau"], "neg": {"bm25": ["Fox_Broadcasting"], "tas": ["Arctic"]}}
HE = ("who is he", ("an actor",), ("a network",))
ABC = ("a 0", ("b 0",), ("c 0",))
TEXT = {"query": "a 0", "positive": "b 0"}
TRIPLET = {"query": "a 0", "positive": "b 0", "negative": "c 0"}

READ: dict[str, tuple[str, Any, dict[str, Any], Any]] = {
    # name: (file, content, settings, first record; its source where the file holds several)
    "FEVER ids of several miners": ("a.jsonl", [FEVER], {"collection": "DIR"}, (*HE, "bm25")),
    "FEVER ids without names": ("a.tsv", "75000\tNikolaj_Coster-Waldau\tFox_Broadcasting\n", {"collection": "DIR"}, HE),
    "DBpedia and law ids": (
        "a.jsonl",
        [{"query": "a 0", "pos": ["<dbpedia:X_(book)>"], "neg": ["民法典第五十四条", "27/2010/nđ-cp#8"]}],
        {"collection": "DIR"},
        ("a 0", ("a book",), ("an article of a law", "a decree")),
    ),
    "ids under column flags": (
        "a.jsonl",
        [{"x": "a 0", "y": "Arctic", "z": "Fox_Broadcasting"}],
        {"collection": "DIR", "query_column": "x", "positive_column": "y", "negative_column": "z"},
        ("a 0", ("the far north",), ("a network",)),
    ),
    "two columns of negatives": (
        "a.jsonl", [{**TEXT, "neg_bm25": ["c 0"], "neg_dense": ["d 0"]}], {}, (*ABC, "neg_bm25"),
    ),
    "one column of a miner's negatives": ("a.jsonl", [{**TEXT, "neg_bm25": ["c 0"]}], {}, (*ABC, "neg_bm25")),
    "a text and ids": (
        "a.jsonl",
        [{**TEXT, "negative_ids": ["Arctic", "Fox_Broadcasting"]}],
        {"collection": "DIR"},
        ("a 0", ("b 0",), ("the far north", "a network")),
    ),
    "an id under the name of a text, and ids": (
        "a.jsonl",
        [{"query": "a 0", "positive": "Nikolaj_Coster-Waldau", "negative_ids": ["Arctic"]}],
        {"collection": "DIR"},
        ("a 0", ("an actor",), ("the far north",)),
    ),
    "years without names": (
        "a.tsv",
        "what year is it\t1900\t1990\n" * 3,
        {"format": "rows"},
        ("what year is it", ("1900",), ("1990",)),
    ),
    "a flag for all columns of negatives": (
        "a.jsonl",
        [{**TRIPLET, "negative_llm": "d 0"}],
        {"format": "miners"},
        (*ABC, "negative"),
    ),
    "the miners first": (
        "a.jsonl",
        [{**TEXT, "bm25_negatives": ["c 0"], "dense_negatives": ["d 0"]}],
        {},
        (*ABC, "bm25_negatives"),
    ),
    "one word of another script": (
        "a.jsonl",
        [{"query": "最大的城市 是 哪个", "pos": ["上海"], "neg": ["北京市的中心", "กรุงเทพมหานคร", "東京_都"]}] * 3,
        {},
        ("最大的城市 是 哪个", ("上海",), ("北京市的中心", "กรุงเทพมหานคร", "東京_都")),
    ),
    "answers of one word": (
        "a.jsonl",
        [{"query": "a 0", "pos": ["Paris"], "neg": ["Rome", "self-made", "1984"]}] * 3,
        {},
        ("a 0", ("Paris",), ("Rome", "self-made", "1984")),
    ),
    "the index of pandas": ("a.csv", ",query,positive,negative\n0,a 0,b 0,c 0\n", {}, ABC),
    "an index without a name": ("a.csv", "Unnamed: 0,query,positive,negative\n0,a 0,b 0,c 0\n", {}, ABC),
    "passages with answers": (
        "a.jsonl",
        [
            {
                "question": "a 0",
                "ctxs": [{"text": "b 0", "hasanswer": True, "score": 9}, {"text": "c 0", "hasanswer": False}],
            }
        ],
        {},
        ABC,
    ),
    "a byte order mark": ("a.csv", "\ufeffquery,positive,negative\na 0,b 0,c 0\n", {}, ABC),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_is_read(name: str, tmp_path: Path, wiki: str) -> None:
    file, content, settings, expected = READ[name]
    chosen = {key: wiki if value == "DIR" else value for key, value in settings.items()}
    first = read(file_of(tmp_path, file, content), **chosen)[1][0]
    assert isinstance(first, Record), first
    assert (*first[:3], *([first.split] if first.split else [])) == expected


class Case(NamedTuple):
    """A file that is refused. fill: values for NAME, X, N and DIR in its remedy, in order; None: nothing to type.

    expected: the first record that the remedy's flags or command read.
    """

    file: str
    content: Any
    fill: tuple[str, ...] | None = None
    expected: Any = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    kind: type[SecidError] = SchemaError


LABELLED = [
    {
        "idx": f"dev-{n}", "doc": f"a {n // 2}", "code": f"{'cb'[n % 2]} {n // 2}", "code_tokens": f"{n} x",
        "label": n % 2,
    }
    for n in range(6)
]  # fmt: skip
GRADES = [["q1", "d1", 1], ["q1", "d2", 2], ["q1", "d3", 1], ["q2", "d4", 1]]
GRADED = ("the first query", (CORPUS["d2"],), (CORPUS["d1"], CORPUS["d3"]))
IDS = {"query": "a 0", "positive": "d1", "negative": "d2"}
OF_IDS = ("a 0", (CORPUS["d1"],), (CORPUS["d2"],))
TABLE = "foo,bar,baz\n" + "a 0,b 0,c 0\n" * 3

REFUSED: dict[str, Case] = {
    "labels of 0 and 1 next to unknown names": Case("a.json", LABELLED, ("doc", "code"), ABC),
    "labels of 0 and 1 under foreign names": Case("a.jsonl",
        [{"질문": row["doc"], "문단": row["code"], "레이블": row["label"]} for row in LABELLED], ("문단",), ABC),
    "scores without a threshold": Case("a.jsonl",
        [{"query": "a 0", "passage": t, "score": s} for t, s in (("b 0", 0.9), ("c 0", 0.1))], ("0.5",), ABC),
    "labels in words": Case("a.jsonl", [{"query": "a 0", "passage": "b 0", "label": "entailment"}] * 3),
    "a grade under a name of its own": Case("a.csv",
        [{"query": "a 0", "text": t, "rating": r} for t, r in (("b 0", 1), ("c 0", 0))] * 2, (), None),
    "qrels without a header": Case("a.tsv", GRADES, ("2", "2", "DIR"), GRADED),
    "qrels of one grade": Case("a.tsv", [[f"q{n}", f"d{n}", 1] for n in range(4)]),
    "qrels with a header": Case("a.tsv", [{"query-id": "q1", "corpus-id": "d1", "score": 1}]),
    "TREC judgements with tabs": Case("a.tsv", [[1, 0, "d1", 1], [1, 0, "d2", 0]]),
    "a run of scores": Case("a.tsv", [[f"q{q}", f"d{q + n}", n / 4] for q in (1, 2) for n in (1, 2, 3)]),
    "LlamaIndex": Case("a.json", '{"queries": {"1": "q"}, "corpus": {"2": "p"}, "relevant_docs": {"1": ["2"]}}'),
    "preference pairs": Case("a.jsonl", texts(prompt="how", chosen="so it is", rejected="not at all"),
        ("prompt", "chosen"), ("how number 0", ("so it is number 0",), ("not at all number 0",))),
    "conversations": Case("a.jsonl", [{"messages": [{"role": "user", "content": "hi"}]}]),
    "a collection": Case("a.jsonl", [{"_id": "1", "title": "t", "text": "x"}]),
    "records under a key": Case("a.jsonl", [{"id": 1, "data": TRIPLET}] * 2),
    "a table by columns": Case("a.json", json.dumps({key: {"0": value, "1": "x"} for key, value in TRIPLET.items()})),
    "passages by id": Case("a.jsonl", [{"query": "a 0", "positive": {f"d{n}": "b 0"},
        "negative": {f"e{n}": "c 0", "f": "d 0"}} for n in range(3)]),
    "rejected messages": Case("a.jsonl", [{"messages": [{"role": "user", "content": "a 0"},
        {"role": "assistant", "content": "b 0"}],
        "rejected_messages": [[{"role": "assistant", "content": "c 0"}]]}] * 3),
    "claims and evidence by id": Case("a.jsonl",
        [{"claim": "who is he", "evidence": "Arctic", "negatives": ["Fox_Broadcasting"]}] * 3, ("evidence",),
        ("who is he", ("the far north",), ("a network",)), {"collection": "DIR"}),
    "a text and ids without a collection": Case("a.jsonl", [{**TEXT, "negative_ids": ["Arctic"]}], ("DIR",),
        ("a 0", ("b 0",), ("the far north",)), kind=InputError),
    "numbers as passages": Case("a.jsonl", [{"query": "a 0", "positive": 1900, "negative": 1990}] * 3, kind=InputError),
    "numbers without names": Case("a.tsv", "which one is 12:30\t12:30\t1e5\n" * 3, (),
        ("which one is 12:30", ("12:30",), ("1e5",))),
    "words for labels without names": Case("a.tsv",
        "".join(f"which one is {n}\t{'yes' if n % 2 else 'no'}\tno\n" for n in range(9)), (),
        ("which one is 0", ("no",), ("no",))),
    "ids of rows that are none": Case("a.tsv", "which one is it\tyes it is\tno\n", None, None, {"format": "id-rows"}),
    "rows of one word": Case("a.tsv", "tides\tocean\tmoon\n" * 3, (), ("tides", ("ocean",), ("moon",)), {}, InputError),
    "a header of unknown names": Case("a.csv", TABLE, ("foo", "bar", "baz"), ABC, {"header": True}),
    "a header or a row": Case("a.csv", TABLE, (), ("foo", ("bar",), ("baz",)), kind=InputError),
    "a header alone": Case("a.csv", "提问,好文档,坏文档\n", kind=InputError),
    "arrays under names": Case("a.jsonl", [["query", "positive", "negative"], ["a 0", "b 0", "c 0"]]),
    "ids without a collection": Case("a.jsonl", [IDS], ("DIR",), OF_IDS, kind=InputError),
    "columns of ids without a collection": Case("a.jsonl",
        [{"query": "a 0", "positive_id": "Arctic", "negative_ids": ["Fox_Broadcasting"]}], ("DIR",),
        ("a 0", ("the far north",), ("a network",)), kind=InputError),
    "ids of another collection": Case("a.jsonl", [{**IDS, "positive": "x1", "negative": "x2"}], (),
        ("a 0", ("x1",), ("x2",)), {"collection": "DIR"}, InputError),
    "names of another collection": Case("a.jsonl", [{**IDS, "positive": "Antarctic", "negative": "Sky_News"}], (),
        ("a 0", ("Antarctic",), ("Sky_News",)), {"collection": "DIR"}, InputError),
    "columns of ids of another collection": Case("a.jsonl",
        [{"query": "a 0", "positive_id": "x1", "negative_ids": ["x2"]}], None, None, {"collection": "DIR"}, InputError),
    "two kinds of negatives": Case("a.jsonl", [{**TRIPLET, "hard_negative": "d 0"}], (), ABC),
    "a second column of negatives": Case("a.jsonl", [{**TRIPLET, "negative_bm25": "d 0"}], (), ABC),
    "a second positive": Case("a.jsonl", [{**TRIPLET, "positive_2": "d 0"}], (), ABC),
    "negatives next to labels": Case("a.jsonl",
        [{"query": "a 0", "docs": ["b 0", "c 0"], "labels": [1, 0], "negatives": ["m"]}] * 3, (), ABC),
    "translations": Case("a.jsonl", texts(en="a b", de="c d", fr="e f"), ("en", "de", "fr"),
        ("a b number 0", ("c d number 0",), ("e f number 0",))),
    "scores of a run": Case("a.tsv", [["q1", f"d{n}", f"{20 - n}.5"] for n in range(4)]),
    "qrels of 0 and 1": Case("a.tsv", [["q1", "d1", 1], ["q1", "d2", 0], ["q2", "d1", 0], ["q2", "d2", 1]],
        ("1", "1", "DIR"), ("the first query", (CORPUS["d1"],), (CORPUS["d2"],))),
    "names as ids without a collection": Case("a.jsonl",
        [{"query": "who is he", "pos": ["Nikolaj_Coster-Waldau"], "neg": ["Fox_Broadcasting", "Arctic"]}] * 3, ("DIR",),
        ("who is he", ("an actor",), ("a network", "the far north")), kind=InputError),
    "DBpedia's ids without a collection": Case("a.jsonl",
        [{"query": "a 0", "pos": ["<dbpedia:X_(book)>"], "neg": ["<dbpedia:X_(book)>"]}], ("DIR",),
        ("a 0", ("a book",), ("a book",)), kind=InputError),
    "no negatives": Case("a.jsonl", [TEXT]),
    "a question, a context and an answer": Case("a.jsonl", texts(question="a b", context="c d", answer="e f")),
    "a word of negatives within a name": Case("a.jsonl", [{"question": "a 0", "ctx_good": "b 0", "ctx_bad": "c 0"}],
        ("ctx_good",), ABC),
    "unknown names": Case("a.jsonl", [{"号码": 7, "提问": "a 0", "好 文档": "b 0", "坏文档1": "c 0", "坏文档2": "d 0"}],
        ("提问", "'好 文档'", "坏文档"), ("a 0", ("b 0",), ("c 0", "d 0"))),
    "a query and two texts": Case("a.jsonl", texts(query="a b", left="c d", right="e f"), ("left", "right"),
        ("a b number 0", ("c d number 0",), ("e f number 0",))),
    "four texts without names": Case("a.jsonl", [["a 0", "b 0", "c 0", "d 0"]] * 2, (),
        ("a 0", ("b 0",), ("c 0", "d 0"))),
    "ids before texts without names": Case("a.tsv", [["7", "a 0", "b 0", "c 0"]] * 3, ("1", "2", "3"), ABC),
    "a class as the third text": Case("a.jsonl", [[f"a {n} b", f"c {n} d", "neutral"] for n in range(8)]),
    "a column that is missing": Case("a.jsonl", [TRIPLET], (), ABC, {"query_column": "quary"}),
    "a source column that is missing": Case("a.jsonl", [TRIPLET], None, None, {"source_column": "miner"}),
    "a name of a format that is misspelt": Case("a.jsonl", [TRIPLET], None, None, {"format": "tripletts"}),
    "another format": Case("a.jsonl", [TRIPLET], None, None, {"format": "dpr"}),
    "labels and negatives named": Case("a.jsonl", LABELLED, None, None,
        {"query_column": "doc", "positive_column": "code", "label_column": "label", "negative_column": "idx"}),
    "titles in columns of their own": Case("a.jsonl", [{**TRIPLET, "positive_title": "T", "negative_title": "U"}] * 2,
        (), ABC),
    "lists of queries": Case("a.jsonl", [{"query": ["a", "b", "c"], "positive": ["p"], "negative": ["n"]}]),
    "objects without a text": Case("a.jsonl", [{"query": "a 0", "pos": [{"Body": "b"}], "neg": [{"Body": "c"}]}] * 3),
    "objects of fields": Case("a.jsonl", [{"query": "a 0", "pos": ["b"], "neg": {"ids": ["d7"], "texts": ["n one"]}}]),
    "lists in lists": Case("a.jsonl", [{"query": "a 0", "positive": ["b"], "negatives": [["c", 0.5]]}] * 3),
    "lists written as text": Case("a.csv", [{"query": "a 0", "positive": "['b 0']",
        "negatives": "['c 0', \"d's\"]"}] * 3),
    "lists as numpy prints them": Case("a.csv",
        [{"query": "a 0", "positive": "b 0", "negatives": "['c 0' 'd 0' array()]"}]),
    "columns of bytes": Case("a.parquet", [{"query": b"a", "positive": b"b", "negative": b"c"}]),
}  # fmt: skip


def refusal(case: Case, folder: Path, wiki: str) -> SecidError:
    """The error that a file is refused with."""
    settings = {key: wiki if value == "DIR" else value for key, value in case.settings.items()}
    with pytest.raises(case.kind) as caught:
        read(file_of(folder, case.file, case.content), **settings)
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_what_reads_it(name: str, tmp_path: Path, wiki: str) -> None:
    case = REFUSED[name]
    error = refusal(case, tmp_path, wiki)
    assert str(tmp_path / case.file) in (error.where or "")
    assert error.remedy
    if case.expected is None:
        return
    fill = iter([wiki if part == "DIR" else part for part in case.fill or ()])
    words = [
        next(fill, word) if word.strip(";") in ("NAME", "N", "X", "DIR") else word for word in error.remedy.split(" ")
    ]
    settings = {key: wiki if value == "DIR" else value for key, value in case.settings.items()}
    typed = dict(flags_of(" ".join(words)))
    assert read(tmp_path / case.file, **{**settings, **typed})[1][0][:3] == case.expected


def flags_of(remedy: str) -> Iterator[tuple[str, Any]]:
    """The first flags of a remedy as settings, `--set NAME=VALUE` among them."""
    words = shlex.split(remedy[remedy.index("--") :].replace(";", " ;"))
    while words and words[0].startswith("--"):
        name, value = words.pop(0).removeprefix("--").replace("-", "_"), words.pop(0).rstrip(",")
        if name == "set":
            name, _, value = value.partition("=")
        yield name, {"yes": True, "no": False}.get(value, float(value) if name == "positive_score" else value)


def test_wording(tmp_path: Path, wiki: str, snapshot: Snapshot) -> None:
    said = {}
    for name, case in REFUSED.items():
        said[name] = str(refusal(case, tmp_path, wiki)).replace(f"{tmp_path}/", "")
    snapshot("schema-refusals.txt", situations(said))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_an_empty_cell_of_a_table_is_null(suffix: str, tmp_path: Path) -> None:
    rows: list[Any] = [dict(row) for row in texts(8, query="a", positive="b", negative_1="c", negative_2="d")]
    empty = "" if suffix != ".parquet" else None
    rows[2]["negative_2"] = rows[3]["negative_2"] = rows[3]["negative_1"] = rows[4]["query"] = empty
    items = read(write(tmp_path / f"a{suffix}", rows))[1]
    assert [getattr(item, "reason", "") for item in items] == ["", "", "", "no_negatives", "missing_field", "", "", ""]
    assert [item.dropped for item in items if isinstance(item, Record)] == [()] * 6
    assert len(items[2].negatives) == 1


@pytest.mark.parametrize("column", ["text", "title"])
def test_an_empty_cell_of_a_collection_is_an_empty_text(column: str, tmp_path: Path) -> None:
    corpus = [{"_id": f"d{at}", "title": f"T{at}", "text": f"text {at}"} for at in range(8)]
    corpus[7] |= {column: ""}
    (tmp_path / "corpus").mkdir()
    path = write(tmp_path / "corpus" / "corpus.tsv", corpus)
    rows = [{"query": f"a {at}", "positive": "d1", "negative": f"d{at}"} for at in range(8)]
    items = read(write(tmp_path / "a.jsonl", rows), corpus=str(path))[1]
    assert items[7].negatives == (("text 7",) if column == "title" else ("T7",))


@pytest.mark.parametrize("passage", ["text", {"text": "text"}])
@pytest.mark.parametrize("empty", [[], None])
def test_a_column_of_negatives_that_is_always_empty_is_left_out(passage: Any, empty: Any, tmp_path: Path) -> None:
    row = {"query": "a", "positives": [passage], "negatives": [passage], "hard_negatives": empty}
    reader, items = read(write(tmp_path / "a.jsonl", [row] * 8))
    assert "negatives=negatives" in reader.files[0].mapping
    assert [len(item.negatives) for item in items if isinstance(item, Record)] == [1] * 8


@pytest.mark.parametrize(
    "rows", [[["q1", "d0", f"d{at}"] for at in range(1, 9)], [["q1", "d1", at] for at in range(1, 9)]]
)
def test_triples_of_ids_that_count_are_still_read(rows: Any, tmp_path: Path, wiki: str) -> None:
    reader, items = read(
        write(tmp_path / "a.tsv", rows), collection=wiki, format=None if rows[0][1] == "d0" else "id-rows"
    )
    assert (reader.files[0].schema, len(items)) == ("id-rows", 8)


def test_a_text_source_next_to_a_collection_stays_one(tmp_path: Path, wiki: str) -> None:
    reader, _ = read(
        write(tmp_path / "a.jsonl", [{"query": "Arctic", "pos": ["far north"], "neg": ["Arctic fox"]}]), corpus=wiki
    )
    assert "ids" not in reader.files[0].mapping


@pytest.mark.parametrize("between", [",\n", "\n,", ",\n\n", "\n, "])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("[ ", "\n]\n"), ("[", "\n]")])
def test_an_array_is_one_whatever_its_lines_and_name(between: str, opening: str, closing: str, tmp_path: Path) -> None:
    rows = [json.dumps(TRIPLET)] * 8
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(opening + between.join(rows) + closing, encoding="utf-8")
        reader, items = read(tmp_path / name)
        assert reader.files[0].container == "json array"
        assert len(items) == 8


def test_a_cut_first_line_of_array_rows_makes_no_array(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('["q", "p",\n' + '["a query", "a text", "another"]\n' * 8, encoding="utf-8")
    assert [isinstance(item, Record) for item in read(tmp_path / "a.jsonl")[1]] == [False] + [True] * 8


@pytest.mark.parametrize("negatives", [{"bm25": "n one", "dense": "n two"}, {"0": ["n one"], "1": ["n two"]}])
def test_miners_of_one_text_or_with_numbers_are_sources(negatives: Any, tmp_path: Path) -> None:
    rows = [{"query": "a", "positive": "b", "negatives": negatives}] * 8
    items = read(write(tmp_path / "a.jsonl", rows), negative_column="negatives")[1]
    assert {item.split for item in items} == set(negatives)


@pytest.mark.parametrize(("named", "other"), [("positive", "positive_2"), ("positive_2", "positive")])
def test_a_numbered_positive_that_a_flag_leaves_out_is_named(named: str, other: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", texts(8, query="a", positive="b", positive_2="c", negative="d"))
    mapping = read(path, positive_column=named)[0].files[0].mapping
    assert f"positive={named}," in mapping
    assert f"left out: {other}" in mapping
