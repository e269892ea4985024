"""Test what all sources are trained and judged on: rows, cuts, controls, batches, candidates."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from secid.encode.transformer import TransformerEncoder
from secid.errors import InputError
from secid.progress import Silent
from secid.settings import Settings
from secid.tools.probing import task as candidates
from secid.tools.probing.learner import Objective, TrainingRun, steps_of
from secid.tools.probing.task import NegativeSource, Task, candidates_of
from tests.snapshots import refusal
from tests.tiny_probe import Row, task_of


def texts(task: Task, source: str, query: str) -> list[str]:
    lists = {"positives": task.positives, **task.negatives, **task.controls}[source]
    return task.passages.take(lists.of(task.queries.take(task.query).index(query)))


def test_rows_are_the_queries_that_all_sources_have(tmp_path: Path) -> None:
    one: list[Row] = [
        ("q1", ["p1", "p2"], ["n1", "n2", "n3"]),
        ("q2", ["p3"], ["n4"]),
        ("Q1!", ["p1"], ["n5", "N1."]),
        ("q3", ["p4"], ["n6"]),
    ]
    two: list[Row] = [("q1", ["P5"], ["m1", "m2"]), ("q2", ["p3"], ["m3", "m4"]), ("q4", ["p6"], ["m5"])]
    task = task_of(tmp_path, {"one": one, "two": two})
    assert {query.lower().strip("!") for query in task.queries.take(task.query)} == {"q1", "q2"}
    assert task.n_left_out == 2
    (first,) = (query for query in task.queries.take(task.query) if query != "q2")
    assert set(map(str.lower, texts(task, "positives", first))) == {"p1", "p2", "p5"}
    assert [text.lower().strip(".") for text in texts(task, "one", first)] == ["n1", "n2"]
    assert texts(task, "two", first) == ["m1", "m2"]
    assert (texts(task, "one", "q2"), texts(task, "two", "q2")) == (["n4"], ["m3"])
    assert len(texts(task, "random", first)) == 2
    assert not {"p1", "p2", "p5"} & set(map(str.lower, texts(task, "random", first)))
    assert len(set(map(str.lower, task.passages.take(task.candidates)))) == len(task.candidates)


def test_sources_without_a_shared_query_are_an_error(tmp_path: Path) -> None:
    sources = {"one": [("q1", ["p1"], ["n1"]), ("q2", ["p1"], ["n1"])], "two": [("q3", ["p1"], ["n1"])]}
    message = refusal(lambda: task_of(tmp_path, sources), InputError, None)
    assert "one 2, two 1" in message


def test_known_positives_are_a_control_where_enough_queries_have_two(tmp_path: Path) -> None:
    rows: list[Row] = [(f"q{n}", ["p", f"p{n}"] if n < 2 else ["p"], ["n1", "n2"]) for n in range(20)]
    task = task_of(tmp_path / "enough", {"one": rows})
    assert set(texts(task, "known_positive", "q0")) < {"p", "p0"}
    assert texts(task, "known_positive", "q5") == texts(task, "random", "q5")
    task = task_of(tmp_path / "few", {"one": [*rows, ("q20", ["p"], ["n1"])]})
    assert task.missing == {"known_positive": "few_second_positives"}


def test_a_collection_adds_candidates_and_random_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [f"further {n}" for n in range(50)] + ["N1", " "]
    monkeypatch.setattr(
        "secid.tools.probing.task.open_collection", lambda _: SimpleNamespace(passages=lambda: iter(more))
    )
    task = task_of(tmp_path, {"one": [("q1", ["p1"], ["n1"] * 2), ("q2", ["p2"], ["n1"])]})
    found = {text.lower() for text in task.passages.take(task.candidates)}
    assert found == {"p1", "p2", "n1", *more[:50]}


def steps(task: Task, source: str, n: int, seed: int = 0, batch: int = 7) -> list[Any]:
    run, objective = TrainingRun(NegativeSource(source), 1, seed, 0.0), Objective("infonce", "batch", None)
    return list(islice(steps_of(task, task.negatives[source], run, batch, objective), n))


def test_sources_meet_the_same_batches(task: Task) -> None:
    """Queries and positives are the same; negatives of the same source under two names, too."""
    hard, easy, again = (steps(task, source, 30) for source in ("hard", "easy", "again"))
    for one, other, twin in zip(hard, easy, again, strict=True):
        assert one.queries == other.queries == twin.queries
        assert one.passages[:7] == other.passages[:7]
        assert one.passages == twin.passages
        assert set(other.passages[7:]) == {"zzzz 9"}
    assert [step.queries for step in steps(task, "hard", 30, seed=1)] != [step.queries for step in hard]


def test_an_epoch_has_each_row_of_the_other_folds_once(task: Task) -> None:
    own = set(task.queries.take(task.query[task.fold != 1]))
    n = len(own) // 7
    batches = steps(task, "hard", 2 * n)
    for part in (batches[:n], batches[n:]):
        queries = [query for step in part for query in step.queries]
        assert len(queries) == len(set(queries)) == 7 * n
        assert set(queries) <= own
    assert batches[0].queries != batches[n].queries


def test_a_batch_is_cut_to_the_rows_that_there_are(task: Task) -> None:
    n = int((task.fold != 1).sum())
    (step,) = steps(task, "hard", 1, batch=1_000)
    assert (len(step.queries), len(step.passages), step.sides.negative.shape) == (n, 2 * n, (n, 2 * n))


def test_known_positives_of_other_rows_are_masked(tmp_path: Path) -> None:
    """q1 and q2 share p; n is a labelled positive of q2 that q1 has as its negative, and p is q2's own negative."""
    rows: list[Row] = [("q1", ["p"], ["n"]), ("q2", ["p", "n"], ["p"])]
    rows += [("q3", ["other"], ["n"])]
    task = task_of(tmp_path, {"one": rows})
    task = replace(task, fold=np.zeros(3, np.int64))
    masked: dict[tuple[str, str, str], set[bool]] = {}
    for step in steps(task, "one", 60, batch=3):
        masks = ~(step.sides.positive | step.sides.negative)
        for i, query in enumerate(step.queries):
            for j, passage in enumerate(step.passages):
                place = "own" if j % 3 == i else "other"
                masked.setdefault((query, passage, place), set()).add(bool(masks[i, j]))
    assert masked[("q1", "p", "other")] == {True}
    assert masked[("q2", "n", "other")] == masked[("q2", "p", "other")] == {True}
    assert masked[("q2", "p", "own")] == {False}, "its own negative stays, a known positive or not"
    assert masked[("q1", "n", "other")] == masked[("q3", "p", "other")] == {False}
    assert ("q2", "n", "own") in masked, "each of several positives is drawn"


@pytest.fixture
def many(tmp_path: Path) -> Task:
    """Return 40 rows, of which the first 30 are held out, and some 300 passages."""
    draws = random.Random(0)
    words = [f"{a}{b}" for a in "bcdfgklm" for b in "aeiou"]
    every = [" ".join(draws.sample(words, 4)) for _ in range(300)]
    rows = [(" ".join(draws.sample(words, 2)), [every[n]], draws.sample(every[40:], 4)) for n in range(40)]
    return task_of(tmp_path, {"one": rows, "two": [(q, p, draws.sample(every[40:], 3)) for q, p, _ in rows]})


def test_few_passages_are_all_candidates(many: Task, encoder: TransformerEncoder) -> None:
    ids, depth = candidates_of(many, np.arange(30), encoder, Settings(cache=False), Silent())
    assert (len(ids), depth) == (len(many.passages), None)


def test_many_passages_are_cut_to_the_deepest_lists_that_fit(
    many: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, n = np.arange(30), len(many.passages)
    monkeypatch.setattr(candidates, "MAX_LIST_DEPTH", 6)
    passages, queries = many.passages.take(np.arange(n)), many.queries.take(many.query[rows])
    scores = encoder.encode(queries, "query") @ encoder.encode(passages, "passage").T
    dense = np.argsort(-scores, axis=1, kind="stable")

    def listed(depth: int) -> set[int]:
        """Return the passages that are candidates without BM25."""
        own = {int(place) for row in rows for place in many.positives.of(row)}
        own |= {int(place) for row in dense for place in row[:depth]}
        return own | {int(id_) for lists in many.negatives.values() for row in rows for id_ in lists.of(row)[:depth]}

    monkeypatch.setattr(candidates, "MAX_CANDIDATES", n - 1)
    deepest, depth = candidates_of(many, rows, encoder, Settings(cache=False), Silent())
    assert depth == 6
    assert listed(6) <= set(deepest.tolist())
    of_bm25 = set(deepest.tolist()) - listed(6)
    words = [set(query.split()) for query in queries]
    assert all(any(own & set(passages[place].split()) for own in words) for place in of_bm25), "a shared word"
    monkeypatch.setattr(candidates, "MAX_CANDIDATES", len(deepest) - 20)
    ids, depth = candidates_of(many, rows, encoder, Settings(cache=False), Silent())
    assert depth is not None
    assert 1 < depth < 6
    assert listed(depth) <= set(ids.tolist()) < set(deepest.tolist())
    assert len(ids) <= len(deepest) - 20
    monkeypatch.setattr(candidates, "MAX_CANDIDATES", 10)
    ids, depth = candidates_of(many, rows, encoder, Settings(cache=False), Silent())
    assert depth == 1
    assert listed(1) <= set(ids.tolist())
    assert ids.tolist() == sorted(set(ids.tolist()))
