"""Batches hold every text once, within the budget, and an early end stops the thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.encode import batching
from secid.encode.batching import (
    BatchQueue,
    TokenBatch,
    Tokens,
    halves,
    longest_first,
    merged_items,
    next_batch,
    text_windows,
    token_chunks,
)


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
    chunks = list(token_chunks(texts, lambda part: tokens_of([[1] * len(text) for text in part]), 6, n_threads=3))
    assert [len(places) for places, _ in chunks] == [6, 6, 6, 2]
    assert sorted(np.concatenate([places for places, _ in chunks]).tolist()) == list(range(20))
    lengths = np.concatenate([tokens.lengths for _, tokens in chunks])
    assert (np.diff(lengths) <= 0).all()


def queue_of(lists: list[list[int]], budget: int) -> BatchQueue:
    places = np.arange(len(lists))
    return BatchQueue(iter([(places, tokens_of(lists))]), budget, 0)


LISTS = [[7] * length for length in (9, 1, 4, 4, 7, 2, 2, 5, 8)]


def taken_from(queue: BatchQueue) -> Iterator[TokenBatch]:
    while (batch := queue.take()) is not None:
        queue.done()
        yield batch


def test_a_feed_hands_each_text_to_one_thread() -> None:
    queue = queue_of(LISTS * 40, 16)
    producers = [lambda: taken_from(queue)] * 4
    batches: list[TokenBatch] = list(merged_items(producers, 3, "test"))
    alone = list(taken_from(queue_of(LISTS * 40, 16)))
    assert sorted(np.concatenate([batch.positions for batch in batches])) == list(range(len(LISTS) * 40))
    assert sorted(batch.positions.tolist() for batch in batches) == sorted(batch.positions.tolist() for batch in alone)


def test_a_feed_gives_smaller_batches_after_one_that_did_not_fit() -> None:
    queue = queue_of(LISTS, 64)
    queue.shrink(40)
    queue.shrink(40)  # the same batch size, from another worker: no reason to go lower
    assert queue.budget == 32
    sizes = [batch.ids.size for batch in taken_from(queue)]
    assert max(sizes) <= 32 < sum(sizes)


def test_what_a_thread_gives_back_another_encodes() -> None:
    """The second thread waits for the first one's batch although the stream is at its end."""
    queue = queue_of([[7] * 4], 16)
    batch = queue.take()
    assert batch is not None
    assert queue.take(wait=False) is None
    taken: list[TokenBatch | None] = []
    other = threading.Thread(target=lambda: taken.append(queue.take()))
    other.start()
    time.sleep(0.02)
    assert taken == []
    queue.give_back(batch)
    other.join(10)
    assert [item is batch for item in taken] == [True]
    queue.done()
    assert queue.take() is None


class Lazy(Sequence[str]):
    """Texts of which only slices can be read; notes how many were."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.n_read = texts, 0

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: Any) -> Any:
        assert isinstance(place, slice)
        self.n_read += len(self.texts[place])
        return self.texts[place]


def test_windows_are_read_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "READ_TEXTS", 5)
    monkeypatch.setattr(batching, "WINDOW_TEXTS", 20)
    monkeypatch.setattr(batching, "WINDOW_CHARACTERS", 400)
    lazy = Lazy(["a" * (place % 7 + 1) for place in range(50)] + ["b" * 300] * 12)
    sizes = [(start, len(window)) for start, window in text_windows(lazy)]
    assert sizes == [(0, 20), (20, 20), (40, 15), (55, 5), (60, 2)]
    lazy.n_read = 0
    first, window = next(text_windows(lazy))
    assert (first, window, lazy.n_read) == (0, lazy.texts[:20], 20)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_order_of_chunks_does_not_depend_on_the_number_of_threads(
    n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "READ_TEXTS", 64)
    monkeypatch.setattr(batching, "WINDOW_TEXTS", 256)
    lazy = Lazy(["a" * (place * 31 % 17 + 1) for place in range(1000)])

    def tokenise(part: list[str]) -> Tokens:
        time.sleep(0.005 if len(part[0]) > 12 else 0)
        return tokens_of([[1] * len(text) for text in part])

    chunks = list(token_chunks(lazy, tokenise, 50, n_threads))
    positions = np.concatenate([places for places, _ in chunks])
    assert sorted(positions.tolist()) == list(range(1000))
    assert [len(lazy.texts[place]) for place in positions] == np.concatenate([t.lengths for _, t in chunks]).tolist()
    for start in range(0, 1000, 256):
        window = positions[start : start + 256]
        assert sorted(window.tolist()) == list(range(start, min(start + 256, 1000)))


def test_halves_hold_the_same_texts() -> None:
    batch = queue_of(LISTS, 1000).take()
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
    items = list(merged_items([lambda: numbers(1, 2, 3), lambda: numbers(11, 12)], 1, "test"))
    assert sorted(items) == [1, 2, 3, 11, 12]
    assert [item for item in items if item < 10] == [1, 2, 3]
    stream = merged_items([lambda: numbers(1, 2, broken=True)], 2, "test")
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(stream)


def test_leaving_early_and_errors_stop_the_threads() -> None:
    produced = []

    def endless() -> Iterator[int]:
        while True:
            produced.append(1)
            yield 1

    items = merged_items([endless, endless], 3, "secid-test")
    next(items)
    items.close()
    count = len(produced)
    with pytest.raises(KeyError, match="broken"):
        list(merged_items([lambda: numbers(broken=True), endless], 3, "secid-test"))
    later = len(produced)
    time.sleep(0.05)
    assert len(produced) == later <= count + 6
    assert count <= 8
    assert not any(thread.name == "secid-test" for thread in threading.enumerate())
