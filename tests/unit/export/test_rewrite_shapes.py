"""Copies without some negatives, schema by schema: the rows that the same data without them would have had."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from secid.errors import SchemaError
from secid.export.rewrite import check_output, rewrite
from secid.read import open_source, resolve_sources
from secid.read.containers import open_rows, sniff
from secid.read.schemas.table import SHAPES as TABLE
from secid.read.stream import ByteStream
from secid.records import Defect, Record
from secid.settings import Settings
from tests.unit.read.conftest import write

OWN, OTHER = "bm25", "dense"
NAMES = ((0, OWN), (1, OTHER))


@dataclass(frozen=True)
class Query:
    """One query with its negatives by source, of which a schema may hold only the first's."""

    text: str
    positives: tuple[str, ...]
    negatives: dict[str, tuple[str, ...]]

    @property
    def own(self) -> tuple[str, ...]:
        return self.negatives[OWN]


def number(text: str) -> float:
    """What a column beside the passages says of one, so that a shift shows."""
    return sum(text.encode()) / 4


def labelled(query: Query) -> list[tuple[str, bool]]:
    """Positives amid the negatives, as labelled data has them."""
    before = [(text, False) for text in query.own if number(text) % 1 == 0]
    after = [(text, False) for text in query.own if number(text) % 1 != 0]
    return [*before, *((text, True) for text in query.positives), *after]


def pairs(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in queries:
        for text, positive in labelled(query):
            yield {"query": query.text, "passage": text, "label": int(positive), "rank": number(text)}


def positional_pairs(queries: Sequence[Query]) -> Iterator[list[Any]]:
    for row in pairs(queries):
        yield [row["query"], row["passage"], str(row["label"])]


def pairs_of_sources(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    """Negatives of a source each, positives of none."""
    for query in queries:
        for text in query.positives:
            yield {"query": query.text, "passage": text, "label": 1, "miner": None}
        for name, negatives in query.negatives.items():
            for text in negatives:
                yield {"query": query.text, "passage": text, "label": 0, "miner": name}


def labelled_lists(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in filter(lambda query: query.own, queries):
        texts, labels = zip(*labelled(query), strict=True)
        yield {
            "query": query.text,
            "docs": list(texts),
            "labels": list(map(int, labels)),
            "doc_numbers": list(map(number, texts)),
            "tags": ["always", "four", "or", "so", "tags"],
        }


def positional_lists(queries: Sequence[Query]) -> Iterator[list[Any]]:
    for row in labelled_lists(queries):
        yield [row["query"], row["docs"], row["labels"], row["tags"], row["doc_numbers"]]


def labelled_objects(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in filter(lambda query: query.own, queries):
        passages = [{"text": text, "is_selected": int(label), "n": number(text)} for text, label in labelled(query)]
        yield {"query": query.text, "passages": passages}


def ms_marco(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in filter(lambda query: query.own, queries):
        texts, labels = zip(*labelled(query), strict=True)
        inside = {"is_selected": list(map(int, labels)), "passage_text": list(texts), "n": list(map(number, texts))}
        yield {"answers": ["an answer"], "passages": inside, "query": query.text, "query_id": 7}


def miners(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in filter(lambda query: any(query.negatives.values()), queries):
        scores = {name: list(map(number, texts)) for name, texts in query.negatives.items()}
        lists = {name: list(texts) for name, texts in query.negatives.items()}
        yield {"query": query.text, "neg": lists, "pos": list(query.positives), "neg_scores": scores}


def dpr(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    def contexts(texts: Sequence[str]) -> list[dict[str, Any]]:
        return [{"title": "", "text": text, "score": number(text)} for text in texts]

    for query in filter(lambda query: any(query.negatives.values()), queries):
        yield {
            "question": query.text,
            "answers": ["one", "two"],
            "positive_ctxs": contexts(query.positives),
            "negative_ctxs": contexts(query.negatives[OTHER]),
            "hard_negative_ctxs": contexts(query.own),
            "negative_scores": list(map(number, query.negatives[OTHER])),
            "hard_negative_scores": list(map(number, query.own)),
        }


def lists_of_sources(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in queries:
        for name, negatives in query.negatives.items():
            if negatives:
                yield {"query": query.text, "pos": list(query.positives), "neg": list(negatives), "miner": name}


def titled_lists(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in filter(lambda query: query.own, queries):
        yield {
            "query": query.text,
            "pos_text": list(query.positives),
            "pos_title": ["" for _ in query.positives],
            "neg_text": list(query.own),
            "neg_title": [f"{number(text)} :" for text in query.own],
        }


def titled_triplets(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for query in queries:
        for text in query.own:
            yield {
                "query": query.text,
                "positive": query.positives[0],
                "positive_title": "a title",
                "negative": text,
                "negative_title": f"{number(text)} :",
            }


@dataclass(frozen=True)
class Shape:
    """How rows are made of the data, and which of their sources is selected from."""

    rows: Callable[[Sequence[Query]], Iterator[Any]]
    split: str = ""
    source_column: str | None = None
    flat: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return Settings(source_column=self.source_column, **self.flags)


SHAPES = {
    "pairs": Shape(pairs, flat=True),
    "positional pairs": Shape(positional_pairs, flat=True),
    "pairs of sources": Shape(pairs_of_sources, OWN, "miner", flat=True),
    "labelled lists": Shape(labelled_lists),
    "positional lists": Shape(
        positional_lists, flags={"query_column": "0", "positive_column": "1", "label_column": "2"}
    ),
    "labelled objects": Shape(labelled_objects),
    "ms marco": Shape(ms_marco),
    "miners": Shape(miners, OWN),
    "dpr": Shape(dpr, "hard"),
    "lists of sources": Shape(lists_of_sources, OWN, "miner"),
    "titled lists": Shape(titled_lists),
    "titled triplets": Shape(titled_triplets, flat=True),
}
CONTAINERS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json", ".parquet", ".csv", ".tsv", ".csv.gz")


def data(n: int = 9) -> list[Query]:
    """Queries with one to five negatives of each source."""
    return [
        Query(
            f"what is asked in number {q}?",
            tuple(f"the right answer {k} to {q}" for k in range(1 + q % 2)),
            {name: tuple(f"{name} passage {k} for {q}, wrong" for k in range(1 + (q + n) % 5)) for n, name in NAMES},
        )
        for q in range(n)
    ]  # fmt: skip


def left(queries: Sequence[Query], gone: set[str]) -> list[Query]:
    """The data without those negatives of the selected source."""
    return [
        replace(query, negatives={**query.negatives, OWN: tuple(t for t in query.own if t not in gone)})
        for query in queries
    ]


def without(gone: set[str]):
    """A title is joined before its text, so that texts are known by their end."""

    def decide(item: Record | Defect) -> list[int | str]:
        if isinstance(item, Defect):
            return []
        return [place for place, text in enumerate(item.negatives) if text.split(" : ")[-1] not in gone]

    return decide


def rows_of(path: Path) -> list[Any]:
    """The rows of a file, read without a schema."""
    stream = ByteStream(str(path))
    try:
        return [row for _, row in open_rows(stream, sniff(stream, None))]
    finally:
        stream.close()


def fits(shape: Shape, container: str) -> bool:
    named = shape.rows not in (positional_pairs, positional_lists)
    return (shape.flat or "sv" not in container) and (named or container != ".parquet")


CASES = [(name, container) for name, shape in SHAPES.items() for container in CONTAINERS if fits(shape, container)]
GONE = {text for query in data() for place, text in enumerate(query.own) if place != 1 and place % 3 < 2}


@pytest.mark.parametrize(("name", "container"), CASES)
def test_a_copy_is_what_the_data_without_the_negatives_would_be(name: str, container: str, tmp_path: Path) -> None:
    shape, queries = SHAPES[name], data()
    path = write(tmp_path / f"in{container}", list(shape.rows(queries)))
    before = path.read_bytes()
    out = tmp_path / f"out{container}"
    found = rewrite([str(path)], shape.settings, shape.split, without(GONE), out)
    expected = rows_of(write(tmp_path / f"expected{container}", list(shape.rows(left(queries, GONE)))))
    if container == ".json":
        expected = [json.loads(json.dumps(row)) for row in expected]
    assert rows_of(out) == expected
    assert found.n_rows == len(expected)
    assert path.read_bytes() == before
    if container == ".parquet":
        assert pq.read_schema(out).equals(pq.read_schema(path))
    assert_records(path, out, shape, GONE)


def assert_records(path: Path, out: Path, shape: Shape, gone: set[str]) -> None:
    """The copy, read as secid reads it, has the same records but for the negatives of one source."""

    def records(file: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
        (source,) = resolve_sources([str(file)], shape.settings)
        items = [item for item in open_source(source, shape.settings) if isinstance(item, Record)]
        found: dict[tuple[str, str], tuple[Any, ...]] = {}
        for item in items:  # of triplets there are several a query
            before = found.get((item.split, item.query), ((), ()))[1]
            found[item.split, item.query] = (item.positives, before + item.negatives)
        return found

    expected = {}
    for (split, query), (positives, negatives) in records(path).items():
        kept = tuple(text for text in negatives if split != shape.split or text.split(" : ")[-1] not in gone)
        if kept:
            expected[split, query] = (positives, kept)
    assert records(out) == expected
    assert shape.split == "" or len({split for split, _ in expected}) == 2


@pytest.mark.parametrize("name", SHAPES)
@hypothesis_settings(max_examples=25)
@given(chosen=st.data())
def test_json_lines_keep_their_bytes(name: str, chosen: st.DataObject) -> None:
    """Whatever goes: the text of the copy is that of the data without it, in the spelling of the original."""
    shape, queries = SHAPES[name], data(4)
    texts = [text for query in queries for text in query.own]
    gone = chosen.draw(st.sets(st.sampled_from(texts), max_size=len(texts) - 1))
    spelling = {"separators": chosen.draw(st.sampled_from([(",", ":"), (" ,  ", " : ")])), "ensure_ascii": True}
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        lines = [
            "".join(json.dumps(row, **spelling) + "\n" for row in shape.rows(data))
            for data in (queries, left(queries, gone))
        ]
        path.write_text(lines[0], "utf-8")
        rewrite([str(path)], shape.settings, shape.split, without(gone), out)
        assert out.read_text("utf-8") == lines[1]


def numbered(n: int) -> dict[str, Any]:
    """A row of columns with one negative each, and what is said of each beside it."""
    row = {"query": f"query {n}", "positive": f"positive {n}", "positive_score": 9}
    for k in range(1, 4):
        text = f"negative {n}{k}"
        row |= {f"negative_{k}": text, f"negative_{k}_title": f"{n}{k} :", f"negative_score_{k}": number(text)}
    return row


@pytest.mark.parametrize("container", [".jsonl", ".json", ".parquet", ".csv", ".tsv"])
def test_what_is_said_of_a_negative_moves_with_it(container: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"in{container}", [numbered(n) for n in range(6)])
    out = tmp_path / f"out{container}"
    gone = {"negative 01", "negative 12", *(f"negative {n}3" for n in range(1, 6))}
    rewrite([str(path)], Settings(), "", without(gone), out, 2)
    for n, row in enumerate(rows_of(out)):
        kept = [text for k in range(1, 4) if (text := f"negative {n}{k}") not in gone]
        kept = (kept * 2)[:2]
        assert [row[f"negative_{k}"] for k in (1, 2)] == kept
        assert [row[f"negative_{k}_title"] for k in (1, 2)] == [f"{text[-2:]} :" for text in kept]
        assert [float(row[f"negative_score_{k}"]) for k in (1, 2)] == list(map(number, kept))
        assert len(row) == 9
        assert float(row["positive_score"]) == 9


def test_another_source_s_text_has_no_title_or_score_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [numbered(n) for n in range(3)])
    out = tmp_path / "out.jsonl"
    rewrite([str(path)], Settings(), "", lambda item: [1, "from afar", 0], out, mixed=True)
    first = rows_of(out)[0]
    assert [first[f"negative_{k}"] for k in (1, 2, 3)] == ["negative 02", "from afar", "negative 01"]
    assert [first[f"negative_{k}_title"] for k in (1, 2, 3)] == ["02 :", "", "01 :"]
    assert [first[f"negative_score_{k}"] for k in (1, 2, 3)] == [number("negative 02"), None, number("negative 01")]


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - {"lists of sources", "titled lists", "titled triplets"}))
def test_nothing_of_other_sources_goes_where_it_would_be_told_as_what_it_is_not(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    path = write(tmp_path / "a.jsonl", list(shape.rows(data())))
    out = tmp_path / "out.jsonl"
    with pytest.raises(SchemaError, match=r"would need [^$]* that [^$]*--base NAME"):
        check_output([str(path)], shape.settings, shape.split, out, mixed=True)
    assert not out.exists()


def test_a_mixture_holds_the_rows_of_its_base_alone(tmp_path: Path) -> None:
    shape = SHAPES["lists of sources"]
    path = write(tmp_path / "a.jsonl", list(shape.rows(data())))
    out = tmp_path / "out.jsonl"
    rewrite([str(path)], shape.settings, OWN, lambda item: ["from afar"], out, mixed=True)
    assert {(row["miner"], *row["neg"]) for row in rows_of(out)} == {(OWN, "from afar")}


def test_rows_without_a_record_go_but_not_what_other_sources_have_in_them(tmp_path: Path) -> None:
    sound = {"query": "q", "pos": ["p"], "neg": {OWN: ["a", "b"], OTHER: ["c"]}}
    rows = [
        sound,
        {**sound, "neg": {OWN: ["a"], OTHER: []}},  # emptied, and nobody else's
        {**sound, "neg": {OWN: [""], OTHER: ["c"]}},  # a defect for one source
        {**sound, "query": ""},  # for both
        {**sound, "neg": {OWN: "a", OTHER: ["c"]}},  # a lone text
        {**sound, "neg": {OTHER: ["c"]}},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    met: list[tuple[int, str]] = []

    def decide(item: Record | Defect) -> Sequence[int | str]:
        met.append((item.line, getattr(item, "reason", "")))
        return without({"a"})(item)

    out = tmp_path / "out.jsonl"
    rewrite([str(path)], Settings(), OWN, decide, out)
    assert rows_of(out) == [
        {**sound, "neg": {OWN: ["b"], OTHER: ["c"]}},
        rows[2],
        {**sound, "neg": {OWN: None, OTHER: ["c"]}},
        rows[5],
    ]
    assert met == [(1, ""), (2, ""), (4, "empty_query"), (5, "")]


def test_labelled_pairs_are_decided_on_by_their_own_rows(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "passage": "n", "label": 0},
        {"query": "r", "passage": "no positive", "label": 0},
        {"query": "q", "passage": "", "label": 0},
        {"query": "q", "passage": "p", "label": 1},
        {"query": "s", "passage": "no negative", "label": 1},
        {"query": "q", "passage": "m", "label": 0},
        {"query": "q", "passage": "n", "label": 0},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    met: list[tuple[int, Any]] = []

    def decide(item: Record | Defect) -> Sequence[int | str]:
        met.append((item.line, item.reason if isinstance(item, Defect) else item.negatives))
        return [] if item.line in (1, 2, 3) else [0]

    out = tmp_path / "out.jsonl"
    assert rewrite([str(path)], Settings(), "", decide, out).n_rows == 4
    assert rows_of(out) == rows[3:]
    assert met == [(3, "empty_negative"), (1, ("n",)), (6, ("m",)), (7, ("n",)), (2, "no_positive")]


def test_an_empty_cell_names_no_source_in_a_table(tmp_path: Path) -> None:
    rows = [{**row, "miner": row["miner"] or ""} for row in pairs_of_sources(data(3))]
    path = write(tmp_path / "a.csv", rows)
    (source,) = resolve_sources([str(path)], Settings(source_column="miner"))
    items = list(open_source(source, Settings(source_column="miner")))
    assert {item.split for item in items if isinstance(item, Record)} == {OWN, OTHER}
    assert not any(isinstance(item, Defect) for item in items)


@pytest.mark.parametrize("container", [".jsonl", ".parquet"])
@pytest.mark.parametrize("shape", TABLE, ids=lambda shape: shape.name)
def test_every_schema_that_is_read_is_written(shape: Any, container: str, tmp_path: Path, collection: str) -> None:
    """A copy of which nothing is left out is the original; one without a source's negatives lacks just these."""
    if container == ".parquet" and (isinstance(shape.example[0], list) or shape.name == "miners"):
        return  # its columns have one type, and names
    path = write(tmp_path / f"in{container}", list(shape.example))
    chosen = Settings(collection=collection)
    (source,) = resolve_sources([str(path)], chosen)
    splits = {item.split for item in open_source(source, chosen)}
    assert None not in splits
    for split in splits:
        out = tmp_path / f"out {split}{container}"
        rewrite([str(path)], chosen, split or "", lambda item: range(len(item.negatives)), out)  # type: ignore[union-attr]
        assert rows_of(out) == rows_of(path)
        assert container == ".parquet" or out.read_bytes() == path.read_bytes()
        none = tmp_path / f"none {split}{container}"
        rewrite([str(path)], chosen, split or "", lambda item: [], none)
        if none.stat().st_size and rows_of(none):
            (copy,) = resolve_sources([str(none)], chosen)
            left = {item.split for item in open_source(copy, chosen) if isinstance(item, Record)}
            assert left == splits - {split}


def test_shards_of_which_one_gives_no_such_source_are_refused(tmp_path: Path) -> None:
    both = list(dpr(data()))
    one = [
        {key: value for key, value in row.items() if key not in ("negative_ctxs", "negative_scores")} for row in both
    ]
    paths = [str(write(tmp_path / f"{name}.jsonl", rows)) for name, rows in (("both", both), ("one", one))]
    for split in ("", "hard"):
        with pytest.raises(SchemaError, match="several schemas"):
            check_output(paths, Settings(), split, tmp_path / "out.jsonl")


@pytest.mark.parametrize("container", [".jsonl", ".csv", ".parquet"])
def test_numbered_columns_stay_where_rows_of_other_sources_do(container: str, tmp_path: Path) -> None:
    rows = [{**numbered(n), "miner": (OWN, OTHER)[n % 2]} for n in range(4)]
    path = write(tmp_path / f"in{container}", rows)
    out = tmp_path / f"out{container}"
    gone = {f"negative {n}{k}" for n in range(4) for k in (1, 3)}
    found = rewrite([str(path)], Settings(source_column="miner"), OWN, without(gone), out, 1)
    before, after = rows_of(path), rows_of(out)
    assert after[1::2] == before[1::2]
    assert [[row[f"negative_{k}"] for k in (1, 2, 3)] for row in after[::2]] == [[f"negative {n}2"] * 3 for n in (0, 2)]
    assert [list(row) for row in after] == [list(row) for row in before]
    assert found.n_repeated == 4
