"""Batches hold every text once, within the budget, and an early end stops the thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.encoders.batching import Tokens, ahead, longest_first, next_batch, tokenised


def tokens_of(lists: list[list[int]]) -> Tokens:
    lengths = np.array([len(item) for item in lists], dtype=np.int64)
    flat = np.array([number for item in lists for number in item], dtype=np.int64)
    return Tokens(flat, lengths, np.zeros(len(lists), dtype=np.bool_))


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=20), min_size=1, max_size=30), st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_batches_hold_every_text_once_within_the_budget(lists: list[list[int]], budget: int) -> None:
    tokens = tokens_of(lists)
    order = longest_first(tokens)
    seen = []
    while len(order):
        batch = next_batch(tokens, order, budget, padding=0)
        assert batch.ids.size <= budget or len(batch.ids) == 1
        for row, place, length in zip(batch.ids, batch.positions, batch.lengths, strict=True):
            assert row[:length].tolist() == lists[place]
            assert not row[length:].any()
        seen.extend(batch.positions.tolist())
        order = order[len(batch.positions) :]
    assert sorted(seen) == list(range(len(lists)))
    assert [len(lists[place]) for place in seen] == sorted((len(item) for item in lists), reverse=True)


def test_chunks_come_longest_first() -> None:
    texts = ["a" * (place % 7 + 1) for place in range(20)]
    chunks = list(tokenised(texts, lambda part: tokens_of([[1] * len(text) for text in part]), chunk=6))
    assert [len(places) for places, _ in chunks] == [6, 6, 6, 2]
    assert sorted(np.concatenate([places for places, _ in chunks]).tolist()) == list(range(20))
    lengths = np.concatenate([tokens.lengths for _, tokens in chunks])
    assert (np.diff(lengths) <= 0).all()


def test_ahead_keeps_order_and_errors() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("broken")

    items = ahead(numbers(), 2)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(items)


def test_leaving_early_stops_the_thread() -> None:
    made = []

    def endless() -> Iterator[int]:
        while True:
            made.append(1)
            yield 1

    items = ahead(endless(), 3)
    next(items)
    items.close()
    count = len(made)
    time.sleep(0.05)
    assert len(made) == count <= 6
    assert not any(thread.name == "secid-tokenise" for thread in threading.enumerate())
