"""Batches hold every text once, within the budget, and an early end stops the thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.encode.batching import Feed, TokenBatch, Tokens, halves, longest_first, merged, next_batch, tokenised


def tokens_of(lists: list[list[int]]) -> Tokens:
    lengths = np.array([len(item) for item in lists], dtype=np.int64)
    flat = np.array([number for item in lists for number in item], dtype=np.int64)
    return Tokens(flat, lengths, np.zeros(len(lists), dtype=np.bool_))


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=20), min_size=1, max_size=30), st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_batches_hold_every_text_once_within_the_budget(lists: list[list[int]], budget: int) -> None:
    tokens = tokens_of(lists)
    order = longest_first(tokens)
    places = []
    while len(order):
        batch = next_batch(tokens, order, budget, padding=0)
        assert batch.ids.size <= budget or len(batch.ids) == 1
        for row, place, length in zip(batch.ids, batch.positions, batch.lengths, strict=True):
            assert row[:length].tolist() == lists[place]
            assert not row[length:].any()
        places.extend(batch.positions.tolist())
        order = order[len(batch.positions) :]
    assert sorted(places) == list(range(len(lists)))
    assert [len(lists[place]) for place in places] == sorted((len(item) for item in lists), reverse=True)


def test_chunks_come_longest_first() -> None:
    texts = ["a" * (place % 7 + 1) for place in range(20)]
    chunks = list(tokenised(texts, lambda part: tokens_of([[1] * len(text) for text in part]), chunk=6))
    assert [len(places) for places, _ in chunks] == [6, 6, 6, 2]
    assert sorted(np.concatenate([places for places, _ in chunks]).tolist()) == list(range(20))
    lengths = np.concatenate([tokens.lengths for _, tokens in chunks])
    assert (np.diff(lengths) <= 0).all()


def fed(lists: list[list[int]], budget: int) -> Feed:
    places = np.arange(len(lists))
    return Feed(iter([(places, tokens_of(lists))]), budget, 0)


LISTS = [[7] * length for length in (9, 1, 4, 4, 7, 2, 2, 5, 8)]


def test_a_feed_hands_each_text_to_one_thread() -> None:
    feed = fed(LISTS * 40, 16)
    producers = [lambda: iter(feed.take, None)] * 4
    batches: list[TokenBatch] = list(merged(producers, 3, "test"))
    alone = list(iter(fed(LISTS * 40, 16).take, None))
    assert sorted(np.concatenate([batch.positions for batch in batches])) == list(range(len(LISTS) * 40))
    assert sorted(batch.positions.tolist() for batch in batches) == sorted(batch.positions.tolist() for batch in alone)


def test_a_feed_gives_smaller_batches_after_one_that_did_not_fit() -> None:
    feed = fed(LISTS, 64)
    feed.shrink(40)
    feed.shrink(40)  # the same batch size, from another worker: no reason to go lower
    assert feed.budget == 32
    sizes = [batch.ids.size for batch in iter(feed.take, None)]
    assert max(sizes) <= 32 < sum(sizes)


def test_halves_hold_the_same_texts() -> None:
    batch = fed(LISTS, 1000).take()
    assert batch is not None
    first, second = halves(batch)
    assert [part.ids.shape for part in (first, second)] == [(4, 9), (5, 4)]
    assert np.concatenate([first.positions, second.positions]).tolist() == batch.positions.tolist()
    assert [len(LISTS[place]) for place in second.positions] == second.lengths.tolist()
    assert (second.ids != 0).sum() == second.lengths.sum()


def numbers(*values: int, broken: bool = False) -> Iterator[int]:
    yield from values
    if broken:
        raise KeyError("broken")


def test_merged_keeps_each_makers_order_and_raises_its_error() -> None:
    items = list(merged([lambda: numbers(1, 2, 3), lambda: numbers(11, 12)], 1, "test"))
    assert sorted(items) == [1, 2, 3, 11, 12]
    assert [item for item in items if item < 10] == [1, 2, 3]
    stream = merged([lambda: numbers(1, 2, broken=True)], 2, "test")
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(stream)


def test_leaving_early_and_errors_stop_the_threads() -> None:
    produced = []

    def endless() -> Iterator[int]:
        while True:
            produced.append(1)
            yield 1

    items = merged([endless, endless], 3, "secid-test")
    next(items)
    items.close()
    count = len(produced)
    with pytest.raises(KeyError, match="broken"):
        list(merged([lambda: numbers(broken=True), endless], 3, "secid-test"))
    later = len(produced)
    time.sleep(0.05)
    assert len(produced) == later <= count + 6
    assert count <= 8
    assert not any(thread.name == "secid-test" for thread in threading.enumerate())
