"""Run odd inputs end to end: what is scored, what is refused before encoding, and how much memory it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secid
from secid.errors import BadRecordsError, InputError, UsageError
from secid.read import open_source, resolve_sources
from secid.records import Fact
from secid.settings import Settings
from tests.fake_encoder import HashEncoder
from tests.planning import make_plan
from tests.snapshots import refusal

ROW = {"query": "what is it", "pos": ["a good passage"], "neg": ["a bad passage", "another bad passage"]}


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, rows: list[Any]) -> Path:
    path = Path(name)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def score(*sources: Path, encoder: HashEncoder | None = None, **settings: Any) -> secid.Run:
    return secid.score(list(sources), encoder or HashEncoder(), controls="none", cache=False, **settings)


def test_a_missing_collection_is_one_error_before_any_encoding():
    texts = write("texts.jsonl", [ROW])
    ids = write("ids.jsonl", [{"query": 1, "positive": 2, "negative": 3}])
    encoder = HashEncoder()
    assert "--collection" in refusal(lambda: score(texts, ids, encoder=encoder), InputError, "ids.jsonl")
    assert encoder.n_encoded == 0


def test_missing_texts_are_counted_with_examples():
    folder = Path("collection")
    folder.mkdir()
    write("collection/corpus.jsonl", [{"_id": str(n), "text": f"passage number {n}"} for n in range(40)])
    write("collection/queries.jsonl", [{"_id": str(n), "text": f"question {n}"} for n in range(20)])
    rows = [{"query": n, "positive": n, "negative": n + 20} for n in range(20)]
    ids = write("ids.jsonl", [*rows, {"query": 0, "positive": 1, "negative": 99}])
    source = score(ids, collection="collection").sources[0]
    assert (source.rows.n_read, source.rows.n_used, source.rows.skipped) == (21, 20, {"text_not_found": 1})
    facts = [(e.line, e.fact) for e in source.rows.examples if e.reason == "text_not_found"]
    assert facts == [(21, Fact("unknown_id", {"of": "passage", "id": "99"}))]


def test_labelled_pairs_score_as_the_same_lists_do():
    rows = [{**ROW, "query": f"question {n}", "neg": [f"wrong {n}", f"false {n}"]} for n in range(12)]
    lists = write("lists.jsonl", rows)
    pairs = [
        {"query": row["query"], "passage": text, "label": label}
        for label, key in ((1, "pos"), (0, "neg"))  # all positives first: a query's rows lie far apart
        for row in rows
        for text in row[key]
    ]
    one, other = score(lists).sources[0], score(write("pairs.jsonl", pairs)).sources[0]
    assert one.n_triplets == other.n_triplets == 24
    assert one.score.nats == pytest.approx(other.score.nats, rel=1e-12)


def test_one_file_of_two_sources_is_ranked_as_two_and_an_empty_one_is_named():
    rows = [
        {
            "question": f"question {n}",
            "positive_ctxs": [{"title": "", "text": f"right {n}"}],
            "negative_ctxs": [],
            "hard_negative_ctxs": [{"title": "", "text": f"wrong {n}"}],
        }
        for n in range(5)
    ]
    run = score(write("dpr.jsonl", rows))
    assert [source.name for source in run.sources] == ["dpr:hard"]
    assert run.without_triplets == {"dpr:random": {"no_negatives": 5}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pos": []}, "labelled positive"),
        ({"query": " "}, "query is empty"),
    ],
)
def test_a_file_without_a_usable_row_says_the_one_reason(change, reason):
    path = write("bad.jsonl", [{**ROW, "query": f"question {n}", **change} for n in range(9)])
    message = refusal(lambda: score(path), BadRecordsError, "bad")
    for value in (" 9 ", reason, "bad.jsonl:1"):
        assert value in message


def test_a_half_broken_file_was_probably_misread():
    path = write("half.jsonl", [ROW, {**ROW, "pos": []}])
    message = refusal(lambda: score(path), BadRecordsError, "half")
    assert "1 of 2 rows" in message
    assert refusal(lambda: secid.check([path]), BadRecordsError, "half") == message


@pytest.mark.parametrize("flag", ["collection", "corpus", "queries"])
def test_a_collection_that_resolves_nothing_is_an_error_before_any_encoding(flag):
    Path("beir").mkdir()
    for name in ("corpus", "queries"):
        write(f"beir/{name}.jsonl", [{"_id": "1", "text": "a text"}])
    given = {flag: "beir" if flag == "collection" else f"beir/{flag}.jsonl"}
    texts, encoder = write("texts.jsonl", [ROW]), HashEncoder()
    for command in (lambda: score(texts, encoder=encoder, **given), lambda: secid.check([texts], **given)):
        with pytest.raises(UsageError) as caught:
            command()
        assert (caught.value.where, flag in caught.value.message) == ("texts.jsonl", True)
    assert encoder.n_encoded == 0


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        ([{**ROW, "neg": [7, None, "n"]}], ("2 single passages", "1 row ")),
        ([{**ROW, "neg": ["", "n"]}, {**ROW, "pos": []}], ("1 of 2 rows", "1 single passage ")),
    ],
)
def test_rows_and_single_passages_are_counted_apart(rows, numbers):
    message = refusal(lambda: score(write("mixed.jsonl", rows)), BadRecordsError, "mixed")
    assert all(number in message for number in numbers)


def test_empty_negatives_are_a_finding_and_no_sign_of_a_misread_file():
    rows = [{**ROW, "query": f"query {i}", "neg": ["", "a passage"]} for i in range(6)]
    (source,) = score(write("half_empty.jsonl", rows)).sources
    empty = source.finding("empty")
    assert (empty.n_negatives, empty.share) == (6, 0.5)
    assert source.rows.dropped_negatives == {"empty_negative": 6}
    with pytest.raises(BadRecordsError):
        score(write("half_empty.jsonl", rows), on_bad="fail")


def test_a_positive_left_out_is_called_one():
    path = write("positives.jsonl", [{**ROW, "pos": ["p", ""]}])
    assert "positives" in refusal(lambda: score(path), BadRecordsError, "positives").removeprefix("positives")


def test_a_plan_holds_at_most_64_bytes_a_distinct_text(tmp_path):
    rows = [{"query": f"q {n}", "positive": f"p {n}", "negative": f"n {n}"} for n in range(2000)]
    settings = Settings()
    sources = resolve_sources([str(write("many.jsonl", rows))])
    plan = make_plan([(source, open_source(source, settings)) for source in sources], settings, tmp_path)
    holders = [plan, plan.queries, plan.passages, *plan.sources]
    held = [value for holder in holders for value in vars(holder).values()]
    n_bytes = sum(value.nbytes for value in held if isinstance(value, np.ndarray))
    n_texts = len(plan.queries) + len(plan.passages)
    plan.close()
    assert n_texts == 6000
    assert 28 * n_texts < n_bytes <= 64 * n_texts
