"""Texts → batches of token ids: sorted by length, cut by a token budget, tokenised ahead of the device.

Padding is the cost that matters: a text is computed at the length of the longest text in its batch.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

CPU_CHUNK = 1024
"""Texts tokenised at once: enough for the tokenizer's threads, few enough that the device starts soon."""

GPU_CHUNK = 4096
"""The same for a GPU, whose batches are a hundred times as large: padding of SciFact's passages at 512 tokens in
batches of 131,072 is 6 % in chunks of 4,096, 11 % in chunks of 1,024 and 5 % in one chunk of all."""

AHEAD = 4
"""Chunks held ready for the device."""


class Tokens(NamedTuple):
    """Token ids of some texts, end to end. lengths (n,) int64, ids (sum(lengths),) int64, truncated (n,) bool."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def starts(self) -> NDArray[np.int64]:
        """(n,) int64, where each text's ids begin."""
        return np.cumsum(self.lengths) - self.lengths


class TokenBatch(NamedTuple):
    """One padded batch. ids (b, longest) int64; positions, lengths (b,) int64; truncated (b,) bool."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    truncated: NDArray[np.bool_]


def by_length(texts: Sequence[str]) -> NDArray[np.int64]:
    """Positions of the texts, longest first: memory runs out at the start or not at all. Ties keep their order."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return np.argsort(-lengths, kind="stable")


def longest_first(tokens: Tokens) -> NDArray[np.int64]:
    """(n,) int64, positions of the texts by number of tokens, longest first."""
    return np.argsort(-tokens.lengths, kind="stable")


def next_batch(tokens: Tokens, order: NDArray[np.int64], budget: int, padding: int) -> TokenBatch:
    """The first texts of `order` in one batch of at most `budget` padded tokens, at least one text.

    order : (n,) int64, n >= 1, positions in `tokens`, longest first. The batch refers to the same positions.
    """
    longest = int(tokens.lengths[order[0]])
    positions = order[: max(budget // longest, 1)]
    lengths = tokens.lengths[positions]
    columns = np.arange(longest)
    mask = columns < lengths[:, None]
    ids = np.full((len(positions), longest), padding, dtype=np.int64)
    ids[mask] = tokens.ids[(tokens.starts()[positions, None] + columns)[mask]]
    return TokenBatch(ids, positions, lengths, tokens.truncated[positions])


def halves(batch: TokenBatch) -> tuple[TokenBatch, TokenBatch]:
    """The longer and the shorter half of a batch of two texts or more, each no wider than its longest text."""
    middle = len(batch.positions) // 2
    first = TokenBatch(batch.ids[:middle], batch.positions[:middle], batch.lengths[:middle], batch.truncated[:middle])
    ids = batch.ids[middle:, : int(batch.lengths[middle])]
    return first, TokenBatch(ids, batch.positions[middle:], batch.lengths[middle:], batch.truncated[middle:])


class Feed:
    """Batches of a stream of tokenised chunks, handed to any number of threads, each text once.

    The batches, and so the rows, do not depend on the number of threads (docs/decisions/encoder-workers.md).
    budget : padded tokens of the next batch; `shrink` lowers it.
    """

    def __init__(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], budget: int, padding: int) -> None:
        self.budget = budget
        self._batches = self._cut(chunks, padding)
        self._lock = threading.Lock()

    def take(self) -> TokenBatch | None:
        """The next batch; None when none is left. Errors from tokenising the chunks are raised here."""
        with self._lock:
            return next(self._batches, None)

    def shrink(self, size: int) -> None:
        """Halves the budget until it is below `size` padded tokens, which did not fit on a device."""
        with self._lock:
            while self.budget >= size and self.budget > 1:
                self.budget //= 2

    def _cut(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], padding: int) -> Iterator[TokenBatch]:
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.budget, padding)
                yield batch._replace(positions=positions[batch.positions])
                order = order[len(batch.positions) :]


def merged(producers: Sequence[Callable[[], Iterable[T]]], size: int, name: str) -> Generator[T, None, None]:
    """The items of all producers as they arrive, each producer in its own thread, up to `size` items ahead.

    A producer's error is raised here and ends the others. Leaving the loop early stops the threads.
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=size)
    stopped = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return

    def run(producer: Callable[[], Iterable[T]]) -> None:
        try:
            for item in producer():
                put("item", item)
                if stopped.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    threads = [threading.Thread(target=run, args=(producer,), name=name, daemon=True) for producer in producers]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "item":
                yield value
            else:
                running -= 1
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def tokenised(
    texts: Sequence[str], tokenise: Callable[[list[str]], Tokens], chunk: int
) -> Iterator[tuple[NDArray[np.int64], Tokens]]:
    """(positions, tokens) of one chunk of the texts after another, longest first."""
    order = by_length(texts)
    for start in range(0, len(order), chunk):
        positions = order[start : start + chunk]
        yield positions, tokenise([texts[place] for place in positions])
