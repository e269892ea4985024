"""Test readers on any input: records survive every schema and container, and no file breaks a reader."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from secid.errors import SecidError
from secid.read import open_source, resolve_sources
from secid.records import SKIP_REASONS, Defect, Record, fault_text
from secid.settings import Settings

Triple = tuple[str, list[str], list[str]]
"""Query, positives, negatives."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"'), min_size=1).filter(str.strip)


def records(texts: st.SearchStrategy[str], max_positives: int = 3, n_negatives: int | None = None) -> Any:
    """Lists of records; n_negatives fixes their number in each."""
    negatives = st.lists(texts, min_size=n_negatives or 1, max_size=n_negatives or 4)
    positives = st.lists(texts, min_size=1, max_size=max_positives)
    return st.lists(st.tuples(texts, positives, negatives), min_size=1, max_size=6)


def read(path: Path, **chosen: Any) -> list[Record | Defect]:
    """All items of a file."""
    resolved = Settings(**chosen)
    (source,) = resolve_sources([str(path)])
    return list(open_source(source, resolved))


def passages(texts: list[str]) -> list[dict[str, str]]:
    return [{"docid": str(n), "title": "", "text": text} for n, text in enumerate(texts)]


LISTED: dict[str, Callable[[Triple], Any]] = {
    "flagembedding": lambda r: {"query": r[0], "pos": r[1], "neg": r[2]},
    "tevatron": lambda r: {"query": r[0], "positive_passages": passages(r[1]), "negative_passages": passages(r[2])},
    "cohere": lambda r: {"query": r[0], "relevant_passages": r[1], "hard_negatives": r[2]},
    "nvidia": lambda r: {"query": r[0], "pos_doc": r[1], "neg_doc": r[2]},
    "lists": lambda r: {"query": r[0], "positive": r[1], "negative": r[2]},
    "labelled-list": lambda r: {"query": r[0], "docs": r[1] + r[2], "labels": [1] * len(r[1]) + [0] * len(r[2])},
    "ms-swift": lambda r: {
        "messages": [{"role": "user", "content": r[0]}],
        "positive_messages": [[{"role": "user", "content": text}] for text in r[1]],
        "negative_messages": [[{"role": "user", "content": text}] for text in r[2]],
    },
}
CELLS: dict[str, Callable[[Triple], Any]] = {
    "triplet": lambda r: {"query": r[0], "positive": r[1][0], "negative_0": r[2][0], "negative_1": r[2][1]},
    "gpt-table": lambda r: {"query_text": r[0], "gold_passage": r[1][0], "negative_1": r[2][0], "negative_2": r[2][1]},
}


def json_lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def escaped_lines(rows: list[Any]) -> bytes:
    return "\r\n".join(json.dumps(row) for row in rows).encode()


def json_array(rows: list[Any]) -> bytes:
    return json.dumps(rows, indent=2).encode()


def parquet(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
    return sink.getvalue()


def table(rows: list[dict[str, str]], delimiter: str = ",") -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter=delimiter)
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return sink.getvalue().encode()


CONTAINERS = {".jsonl": json_lines, ".json": json_array, ".txt": escaped_lines, ".parquet": parquet}


def round_trip(data: bytes, suffix: str, schema: str) -> list[Triple]:
    """Return the records of a file with these bytes. Fail if anything was left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"source{suffix}"
        path.write_bytes(data)
        items = read(path, format=schema)
    assert all(isinstance(item, Record) and not item.dropped for item in items), items
    return [(item.query, list(item.positives), list(item.negatives)) for item in items if isinstance(item, Record)]


@pytest.mark.parametrize("suffix", CONTAINERS)
@pytest.mark.parametrize("schema", LISTED)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_lists_survive(schema: str, suffix: str, data: st.DataObject) -> None:
    whole = data.draw(records(TEXTS))
    written = CONTAINERS[suffix]([LISTED[schema](record) for record in whole])
    assert round_trip(written, suffix, schema) == whole


@pytest.mark.parametrize("suffix", CONTAINERS)
@pytest.mark.parametrize("schema", CELLS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_cells_survive(schema: str, suffix: str, data: st.DataObject) -> None:
    whole = data.draw(records(TEXTS, max_positives=1, n_negatives=2))
    written = CONTAINERS[suffix]([CELLS[schema](record) for record in whole])
    assert round_trip(written, suffix, schema) == whole


@settings(max_examples=20, deadline=None)
@given(records(TEXTS.filter(lambda text: "\0" not in text), max_positives=1, n_negatives=2))
def test_cells_survive_csv(whole: list[Triple]) -> None:
    assert round_trip(table([CELLS["triplet"](record) for record in whole]), ".csv", "triplet") == whole


@settings(max_examples=20, deadline=None)
@given(records(PLAIN, max_positives=1, n_negatives=2))
def test_cells_survive_tsv(whole: list[Triple]) -> None:
    written = table([CELLS["triplet"](record) for record in whole], "\t")
    assert round_trip(written, ".tsv", "triplet") == whole


@settings(max_examples=25, deadline=None)
@given(records(TEXTS), st.randoms(use_true_random=False))
def test_labelled_pairs_survive_in_any_order_of_their_queries(whole: list[Triple], random: Any) -> None:
    merged: dict[str, tuple[list[str], list[str]]] = {}
    for query, positives, negatives in whole:
        kept = merged.setdefault(query, ([], []))
        kept[0].extend(positives)
        kept[1].extend(negatives)
    rows = [
        (query, text, label)
        for query, labelled in merged.items()
        for label, texts in zip((1, 0), labelled, strict=True)
        for text in texts
    ]
    random.shuffle(rows)
    written = json_lines([{"query": query, "passage": text, "label": label} for query, text, label in rows])
    found = {query: (sorted(p), sorted(n)) for query, p, n in round_trip(written, ".jsonl", "labelled-pair")}
    assert found == {query: (sorted(p), sorted(n)) for query, (p, n) in merged.items()}


ROWS = [
    {"query": "what is it", "pos": ["a p", "b p"], "neg": ["a n", '\u2028 n "quoted": x'], "pos_scores": [0.5]},
    {"query": "why \\ so", "pos": ["c p"], "neg": ["c n", ""], "pos_scores": [-1e300]},
    {"query": "", "pos": [], "neg": ["d n"], "pos_scores": []},
]
FLAT = [{"query": "what is it", "positive": "a, p", "negative_1": 'a "n"', "negative_2": "b\nn"}] * 4


def arrow(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    whole = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return sink.getvalue()


SEEDS = {
    "lines": json_lines(ROWS),
    "array": json_array(ROWS),
    "array lines": json_lines([["a q", "a p", "a n"], ["b q", "b p", "b n"]]),
    "object": json.dumps({"data": ROWS}).encode(),
    "miners": json_lines([{"query": "q", "pos": ["p"], "neg": {"bm25": ["n"], "dense": [{"text": "n"}]}}]),
    "pairs": json_lines([{"query": "q", "passage": text, "label": label} for text, label in (("p", 1), ("n", 0))]),
    "dpr": json_array([{"question": "q", "positive_ctxs": passages(["p"]), "hard_negative_ctxs": passages(["n"])}]),
    "simlm": json_lines([{"query": "q", "positives": {"text": ["p"]}, "negatives": {"text": ["n"], "score": [1]}}]),
    "swift": json_lines([LISTED["ms-swift"](("q", ["p"], ["n"]))]),
    "csv": table(FLAT),
    "tsv": b"query one\tp one\tn one\nquery two\tp two\tn two\n",
    "gzip": gzip.compress(json_lines(ROWS)),
    "zstd": pa.compress(json_lines(ROWS), "zstd", asbytes=True),
    "parquet": parquet(ROWS),
    "arrow": arrow(ROWS),
}
TOKENS = (
    *(b"\n", b"\r", b"\0", b'"', b"[", b"]", b"{", b"}", b",", b":", b"\\", b"\t", b"null", b"NaN", b"-Infinity",
        b"1e999"),
    *(b"true", b"\\ud800", b"\xff", b"\xef\xbb\xbf", b'"query"', b'"neg":', b"[[", b"9" * 400, b"PAR1", b"\x1f\x8b"),
)  # fmt: skip

MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "replace", "double", "cut"]),
        st.floats(0, 1),
        st.integers(1, 40),
        st.one_of(st.sampled_from(TOKENS), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, changes: list[tuple[str, float, int, bytes]]) -> bytes:
    """Bytes with some inserted, deleted, replaced, repeated, or the end cut off."""
    for change, place, size, piece in changes:
        at = int(place * len(data))
        middle = {"insert": piece + data[at : at + size], "double": data[at : at + size] * 2, "replace": piece}
        data = data[:at] + middle.get(change, b"") + (b"" if change == "cut" else data[at + size :])
    return data


def check(data: bytes) -> int:
    """Read bytes as a file: only SecidError may come out, and every item must be sound. Returns the number of items."""
    n_items = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source"
        path.write_bytes(data)
        with suppress(SecidError):
            for item in sound_items(path):
                n_items += 1
                assert item.line >= 1
    return n_items


def sound_items(path: Path) -> Iterator[Record | Defect]:
    for item in open_source(resolve_sources([str(path)])[0], Settings()):
        if isinstance(item, Record):
            texts = (item.query, *item.positives, *item.negatives)
            assert all(type(text) is str and text.strip() and text.encode() for text in texts), item
            assert item.positives
            assert item.negatives
            assert {reason for reason, _ in item.dropped} <= set(SKIP_REASONS)
        else:
            assert item.reason in SKIP_REASONS
            assert len(fault_text(item.fact)) <= 300
        yield item


@pytest.mark.parametrize("seed", SEEDS)
def test_the_seeds_themselves_are_read(seed: str) -> None:
    assert check(SEEDS[seed]) > 0


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=MUTATIONS)
def test_mutated_files_never_break_a_reader(seed: str, changes: list[tuple[str, float, int, bytes]]) -> None:
    check(mutated(SEEDS[seed], changes))


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)))
@example(b"")
def test_arbitrary_bytes_never_break_a_reader(data: bytes) -> None:
    check(data)


NAMES = st.sampled_from(
    [
        *("query", "pos", "neg", "positive", "negative", "negative_1", "text", "title", "label", "passage", "docs",
            "labels"),
        *("question", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs", "messages", "positive_messages",
            "content"),
        *("role", "negative_messages", "metadata", "objective", "triplet", "positives", "negatives", "doc_id", "anchor",
            "neg_bm25", "neg_dense", "negative_ids"),
        *("passages", "is_selected", "passage_text", "score", "qid", "pid", "data"),
    ]
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(NAMES, JSON, max_size=6), min_size=1, max_size=4))
@example([{"query": [{}, True]}])
def test_rows_of_any_shape_never_break_a_reader(rows: list[dict[str, Any]]) -> None:
    check(json_lines(rows))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(LISTED)), st.dictionaries(NAMES, JSON, min_size=1, max_size=3), st.sampled_from([1, 3]))
def test_a_row_of_any_shape_among_good_ones_is_one_item(schema: str, odd: dict[str, Any], n_good: int) -> None:
    good = LISTED[schema](("q q", ["p p"], ["n n"]))
    assert check(json_lines([good] * n_good + [{**good, **odd}] + [good] * n_good)) in (0, 2 * n_good + 1)
