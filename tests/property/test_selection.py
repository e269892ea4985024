"""Test that selections do not depend on the order of passages, blocks, threads, or the last bits of scores."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import secid
from secid.analyses.controls import make_controls
from secid.arrays import SCORE_UNIT, best, best_first
from secid.encode import from_callable
from secid.findings.judgements import passage_finder
from secid.measure.blocks import Vectors
from secid.pool import content_of, key_ranks
from secid.pool.texts import TextSpool
from secid.progress import Silent
from secid.records import Record, Source
from secid.results.gate import CheckExample, GateCheck
from secid.settings import Settings
from secid.tools.gating.checks import with_worst
from secid.triplets import search
from secid.triplets.search import dots, nearest_passages
from secid.triplets.table import triplets_of
from tests.planning import make_plan

WORDS = ["oak", "tin", "sea", "sun", "elm"]
DIMENSION = 6


ROWS = [np.random.default_rng(seed).standard_normal(DIMENSION) for seed in range(24)]
ROWS = [(row / np.linalg.norm(row)).astype(np.float32) for row in ROWS]


def place_of(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0] % len(ROWS)


def row_of(text: str) -> np.ndarray:
    """One of 24 rows by the text alone: many texts have the same."""
    return ROWS[place_of(text)]


def rows_of(texts: list[str]) -> torch.Tensor:
    return torch.from_numpy(np.array([row_of(text) for text in texts]))


def encoder() -> Any:
    return from_callable(lambda texts, role: np.array([row_of(text) for text in texts]), "two dozen rows")


def records(seed: int) -> list[Record]:
    draw = np.random.default_rng(seed)

    def text(n: int) -> str:
        return " ".join(draw.choice(WORDS, n))

    def negatives() -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"{text(3)} {draw.integers(30)}" for _ in range(3)))

    return [Record(f"{text(2)} {n}?", (f"{text(3)} {n}",), negatives(), "x", n) for n in range(25)]


def controls(rows: list[Record], folder: Path) -> dict[str, set[tuple[str, str]]]:
    """The texts of each query and negative that the pool's controls pair."""
    folder.mkdir()
    plan = make_plan([(Source("one", ("x",)), rows)], Settings(), folder, with_positives=True, with_echoes=True)
    texts = {role: store.take(np.arange(len(store))) for role, store in (("q", plan.queries), ("p", plan.passages))}
    vectors = Vectors(rows_of(texts["q"]), rows_of(texts["p"]))
    triplets = [triplets_of(planned, "first") for planned in plan.sources]
    made, _ = make_controls(plan, triplets, vectors, Settings(controls="bm25_pool,dense_pool"), Silent())
    plan.close()
    return {
        control.kind: {
            (texts["q"][query], texts["p"][negative])
            for query, negative in zip(control.triplets.query.tolist(), control.triplets.negative.tolist(), strict=True)
        }
        for control in made
    }


def test_the_pool_s_controls_depend_on_no_order_blocks_or_threads(tmp_path, monkeypatch):
    rows = records(0)
    expected = controls(rows, tmp_path / "base")
    assert expected.keys() == {"bm25_pool", "dense_pool"}
    before = torch.get_num_threads()
    for number, size in enumerate((1, 3, 1_000)):
        np.random.default_rng([0, number]).shuffle(rows)
        for module, name in ((search, "QUERY_BLOCK"), (search, "CPU_WINDOW"), (search, "EXACT_PAIRS_AT_ONCE")):
            monkeypatch.setattr(module, name, size)
        monkeypatch.setattr(search, "EXTRA_COMPARED", size - 1)
        torch.set_num_threads(1 + number)
        try:
            assert controls(rows, tmp_path / str(number)) == expected
        finally:
            torch.set_num_threads(before)


def test_an_order_by_place_is_noticed_by_the_test_above(tmp_path, monkeypatch):
    rows = records(0)
    monkeypatch.setattr("secid.analyses.controls.key_ranks", lambda keys: np.arange(len(keys)))
    monkeypatch.setattr("secid.triplets.random_reference.key_ranks", lambda keys: np.arange(len(keys)))
    forward, backward = controls(rows, tmp_path / "a"), controls(rows[::-1], tmp_path / "b")
    assert all(forward[kind] != backward[kind] for kind in ("bm25_pool", "dense_pool"))


moved_scores = st.tuples(st.integers(0, 6), st.floats(-0.4, 0.4), st.sampled_from([-1, 0, 1]))
"""A whole number of units, the distance of the score from it, and the direction of a change in the last place."""


@settings(max_examples=200, deadline=None)
@given(st.lists(moved_scores, min_size=1, max_size=40), st.integers(-(2**30), 2**30), st.integers(1, 12))
def test_one_unit_in_the_last_place_changes_no_selection(drawn, lowest, k):
    """This holds for scores that are not next to a rounding boundary."""
    whole, distance, steps = (np.array(column) for column in zip(*drawn, strict=True))
    scores = (lowest + whole + distance) * SCORE_UNIT
    moved = np.where(steps == 0, scores, np.nextafter(scores, np.copysign(np.inf, steps)))
    content = np.random.default_rng(len(drawn)).permutation(len(drawn))
    expected = best_first(scores, content).tolist()
    assert expected == sorted(range(len(drawn)), key=lambda place: (-whole[place], content[place]))
    assert best_first(moved, content).tolist() == expected
    assert best(moved, content, k).tolist() == best(scores, content, k).tolist() == expected[:k]


def test_without_rounding_the_last_place_would_decide():
    scores = np.array([0.3, np.nextafter(0.3, 1)])
    assert best_first(scores, np.array([0, 1])).tolist() == [0, 1]
    assert np.lexsort(([0, 1], -scores)).tolist() == [1, 0]


@pytest.mark.parametrize("d", [1, 2, 5, 384, 1_001])
def test_a_dot_product_has_the_bits_of_one_order_of_exact_products(d):
    draw = np.random.default_rng(d)
    queries, passages = (draw.standard_normal((n, d)).astype(np.float32) for n in (3, 40))
    left, right = np.repeat(np.arange(3), 40), np.tile(np.arange(40), 3)
    found = dots(Vectors(torch.from_numpy(queries), torch.from_numpy(passages)), left, right)
    for value, q, p in zip(found.tolist(), queries[left], passages[right], strict=True):
        terms = [float(a) * float(b) for a, b in zip(q, p, strict=True)]
        while len(terms) > 1:
            half = (len(terms) + 1) // 2
            upper = terms[half:]
            terms = [terms[place] + upper[place] if place < len(upper) else terms[place] for place in range(half)]
        assert value == terms[0]


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_any_rounding_in_float32_leaves_the_selection_as_it_is(k, scale, monkeypatch):
    """Imitate another processor: each rough product is off by up to the error of d roundings."""
    draw, d = np.random.default_rng(0), 64
    rows = draw.standard_normal((1, d)) + 3e-6 * draw.standard_normal((300, d))
    rows = (scale * rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    vectors = Vectors(torch.from_numpy(rows[:5] + np.float32(0.02)), torch.from_numpy(rows))
    expected = nearest_passages(vectors, np.arange(5), np.arange(300), k)

    def off(queries, parts, n):
        rough = torch.cat(queries) @ torch.cat(list(parts)).T
        error = d * 2.0**-24 * float(torch.cat(queries).norm(dim=1).max()) * scale
        scores, places = (rough + error * (2 * torch.rand(rough.shape, generator=generator) - 1)).topk(n, dim=1)
        return scores, places

    generator = torch.Generator().manual_seed(k)
    monkeypatch.setattr(search, "nearest", off)
    for _ in range(5):
        found = nearest_passages(vectors, np.arange(5), np.arange(300), k)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    monkeypatch.setattr(search, "FLOAT32_ROUNDING", 0.0)
    monkeypatch.setattr(search, "EXTRA_COMPARED", 0)
    others = [nearest_passages(vectors, np.arange(5), np.arange(300), k)[0] for _ in range(5)]
    assert any(not np.array_equal(own, expected[0]) for own in others), "the margin is needed"


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tied(n: int = 30) -> list[dict[str, Any]]:
    """Rows whose negatives, and positives, have one row each."""
    twins = [text for text in (f"text {number}" for number in range(4_000)) if place_of(text) == place_of("twin")]
    own = [text for text in (f"answer {number}" for number in range(4_000)) if place_of(text) == place_of("good")]
    return [
        {"query": f"query {n}", "pos": own[3 * n : 3 * n + 3], "neg": [own[3 * n], *twins[4 * n : 4 * n + 4]]}
        for n in range(n)
    ]


def turned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in reverse order, each list reversed, too."""
    return [{**row, "pos": row["pos"][::-1], "neg": row["neg"][::-1]} for row in rows[::-1]]


def test_hardest_and_easiest_positives_of_one_score_go_by_text(tmp_path):
    shown = []
    for name, rows in (("a", tied()), ("b", turned(tied()))):
        path = written(tmp_path / name / "s.jsonl", rows)
        for policy in ("hardest", "easiest"):
            run = secid.score([path], encoder(), positives=policy, controls="none", examples=40)
            examples = run.sources[0].finding("inversion").examples or run.sources[0].finding("low_locality").examples
            shown.append({example.query: example.positive for example in examples})
    assert shown[0]
    assert shown[0] == shown[2]
    assert shown[1] == shown[3]


def test_selected_negatives_of_one_weight_go_by_text(tmp_path):
    kept = []
    for name, rows in (("a", tied()), ("b", turned(tied()))):
        path = written(tmp_path / name / "s.jsonl", [{**row, "pos": row["pos"][:1]} for row in tied_first(rows)])
        secid.score([path], encoder(), run=tmp_path / name / "run", controls="none")
        for limit in ({"top": 2}, {"max_negatives": 50}):
            out = tmp_path / name / f"{next(iter(limit))}.jsonl"
            secid.select(tmp_path / name / "run", out, drop=(), force=True, **limit)
            lines = out.read_text("utf-8").splitlines()
            kept.append({(row["query"], text) for row in map(json.loads, lines) for text in row["neg"]})
    assert kept[:2] == kept[2:]
    assert [len(pairs) for pairs in kept[:2]] == [60, 50]


def tied_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The positive that comes first by text, so that both files score the same one."""
    return [{**row, "pos": sorted(row["pos"])} for row in rows]


def test_examples_of_a_query_go_by_text(tmp_path):
    shown = []
    for name, rows in (("a", tied()), ("b", turned(tied()))):
        path = written(tmp_path / name / "s.jsonl", tied_first(rows))
        run = secid.score([path], encoder(), controls="none", examples=5)
        shown.append(
            {f.name: [(e.query, e.negative) for e in f.examples] for f in run.sources[0].findings if f.examples}
        )
    assert len(shown[0]) > 1
    assert shown[0] == shown[1]


def test_the_examples_of_a_check_go_by_text():
    draw = np.random.default_rng(0)
    texts = [f"text {number}" for number in range(300)]
    severity = draw.integers(0, 3, len(texts)) / 8

    def shown(order: np.ndarray) -> list[str]:
        keys = np.array([list(hashlib.sha256(texts[place].encode()).digest()[:16]) for place in order], np.uint8)
        sample = SimpleNamespace(
            cluster=order // 10, columns=dict.fromkeys(("s_query_positive", "s_query_negative"), severity)
        )
        subject = SimpleNamespace(
            sample=sample,
            content=content_of(keys),
            example=lambda place: CheckExample(path="", line=0, query="", negative=texts[order[place]]),
        )
        check = GateCheck(name="score", outcome="fail", unit="nats", side="above", limit=0.0, basis="policy")
        return [example.negative for example in with_worst(check, subject, severity[order]).examples]

    expected = shown(np.arange(300))
    assert len(expected) == 3
    assert shown(draw.permutation(300)) == expected


def test_of_evaluation_texts_that_match_equally_the_text_decides(tmp_path):
    words = [f"word{number}" for number in range(60)]
    passage = " ".join(words)
    ones = {"a": " ".join(words[:40]), "b": " ".join(words[20:])}
    spool = TextSpool("passage", tmp_path / "texts")
    spool.add([passage])
    store, _ = spool.store()
    matched = []
    for texts in (ones, dict(reversed(ones.items()))):
        finder = passage_finder(texts)
        matched.append(finder.ids[finder.find(store).number[0]])
    assert matched[0] == matched[1]


def test_candidates_are_taken_in_the_order_of_their_keys():
    """Searches rely on this: places rise with the rank of the text's key."""
    keys = np.random.default_rng(0).integers(0, 256, (50, 16), np.uint8)
    order = np.argsort(key_ranks(keys))
    assert (np.diff(np.array([int.from_bytes(bytes(row[:8])) for row in keys[order]], dtype=object)) > 0).all()
