"""BM25 from token keys: the scores of bm25s, and the same bits everywhere."""

from __future__ import annotations

from fractions import Fraction
from math import log

import bm25s
import numpy as np
import pytest

from secid.pool.texts import Packed
from secid.pool.tokens import splitter
from secid.triplets import search
from secid.triplets.search import Bm25Index, _idf

WORDS = [f"w{number}" for number in range(40)]


def drawn(n: int, longest: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(0, longest + 1))) for _ in range(n)]


def best(queries: list[str], documents: list[str], k: int, tokenizer: str = "alphanumeric"):
    parts = [Packed.of(documents[start : start + 7]) for start in range(0, len(documents), 7)]
    return Bm25Index(Packed.of(queries), parts, tokenizer).best(np.arange(len(queries)), k)


@pytest.mark.parametrize("tokenizer", ["alphanumeric", "multilingual", "trigrams"])
def test_scores_are_those_of_bm25s(tokenizer):
    queries, documents = drawn(30, 8, 0), [*drawn(200, 60, 1), "Ünïcode w1 機械翻訳", ""]
    split, split_document = splitter(tokenizer, "query"), splitter(tokenizer, "passage")
    index = bm25s.BM25(dtype="float64")
    index.index([split_document(text) for text in documents], show_progress=False)
    places, scores = best(queries, documents, len(documents), tokenizer)
    for row, query in enumerate(queries):
        theirs = index.get_scores(split(query)) if split(query) else np.zeros(len(documents))
        ours = np.zeros(len(documents))
        found = places[row] >= 0
        ours[places[row, found]] = scores[row, found]
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
        assert found.sum() == (theirs > 0).sum()


def test_the_bits_of_a_score_are_known():
    """Any other value, on any processor, is an error."""
    _, scores = best(["w1 w2 w2 w3"], ["w1 w2 w3 w4", "w2 w2 w5", "w1 w6 w7 w8 w9 w3", "w9"], 4)
    bits = ["0x1.0ac393b5d8000p+0", "0x1.a91c49d93c000p-1", "0x1.adb4cf7d80000p-2"]
    assert [score.hex() for score in scores[0, :3].tolist()] == bits
    assert np.isnan(scores[0, 3])


def test_sums_are_exact_in_any_order():
    (scores,) = best([" ".join(WORDS * 3)], drawn(50, 200, 2), 50)[1]
    scores = scores[~np.isnan(scores)]
    units = [Fraction(score) / Fraction(search.WEIGHT_UNIT) for score in scores.tolist()]
    assert all(unit.denominator == 1 for unit in units)
    assert max(scores) < 2**13


@pytest.mark.parametrize(("n", "having"), [(1, 1), (10, 3), (10**6, 1), (10**9, 10**9)])
def test_the_inverse_document_frequency_is_lucene_s(n, having):
    assert _idf(n, having) == pytest.approx(log(1 + (n - having + 0.5) / (having + 0.5)), rel=1e-6)


def test_equal_scores_go_by_the_place_of_the_document():
    documents = ["w1 w2", "w3", "w2 w1", "w1 w4", "w1 w5"] * 4
    places, scores = best(["w1"], documents, 7)
    assert places[0].tolist() == [0, 2, 3, 4, 5, 7, 8]
    assert len(set(scores[0].tolist())) == 1


@pytest.mark.parametrize("k", [1, 3, 20])
def test_the_best_are_the_first_of_all(k):
    """Texts have few words, so many documents score the same as the last one."""
    queries, documents = drawn(30, 3, 3), drawn(500, 4, 4)
    every, few = best(queries, documents, len(documents)), best(queries, documents, k)
    for all_found, found in zip(every, few, strict=True):
        np.testing.assert_array_equal(all_found[:, :k], found)


def test_without_tokens_nothing_is_found():
    for queries, documents in ((["?!"], ["w1"]), (["w1"], ["…", ""]), (["w1"], []), ([], ["w1"])):
        places, scores = best(queries, documents, 3)
        assert (places < 0).all()
        assert np.isnan(scores).all()
