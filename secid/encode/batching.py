"""Texts → batches of token ids: sorted by length in windows, cut by a token budget, tokenised ahead of the device.

Padding is the cost that matters: a text is computed at the length of the longest text in its batch.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

WINDOW_TEXTS = 32_768
"""Texts sorted by length together; the next window is read and sorted while one is encoded."""
WINDOW_CHARACTERS = 64 << 20
"""The same where texts are books: a window ends here."""
READ_TEXTS = 1024
"""Texts read at once."""

CPU_CHUNK = 1024
"""Texts tokenised at once: enough for the tokenizer's threads, few enough that the device starts soon."""

GPU_CHUNK = 4096
"""The same for a GPU, whose batches are a hundred times as large: padding of SciFact's passages at 512 tokens in
batches of 131,072 is 6 % in chunks of 4,096, 11 % in chunks of 1,024 and 5 % in one chunk of all."""

AHEAD = 4
"""Chunks held ready for the device."""
GOOD_BATCHES = 64
"""Batches that fit, after which a lowered budget is doubled: another process may have taken the memory and left."""


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


class FeedError(Exception):
    """Reading or tokenising the texts failed, by the error that is its cause: no fault of a device."""


class Feed:
    """Batches of a stream of tokenised chunks, handed to any number of threads, each text once.

    The batches, and so the rows, do not depend on the number of threads (docs/decisions/encoder-workers.md).
    Each batch taken is reported by `done` or `give_back`.
    budget : padded tokens of the next batch; `shrink` lowers it.
    """

    def __init__(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], budget: int, padding: int) -> None:
        self.budget = self._first_budget = budget
        self._batches = self._cut(chunks, padding)
        self._returned: list[TokenBatch] = []
        self._n_taken = self._n_good = 0
        self._n_wanted = GOOD_BATCHES
        self._changed = threading.Condition()
        self._error: Exception | None = None

    def take(self, wait: bool = True) -> TokenBatch | None:
        """The next batch; None when none is left.

        wait : for the batches that other threads have taken, as one of them may be given back.
        Raises FeedError in every thread once reading or tokenising the texts has failed.
        """
        with self._changed:
            while True:
                batch = self._returned.pop() if self._returned else self._next()
                if batch is not None:
                    self._n_taken += 1
                    return batch
                if not wait or not self._n_taken:
                    return None
                self._changed.wait()

    def _next(self) -> TokenBatch | None:
        try:
            if self._error is None:
                return next(self._batches, None)
        except Exception as error:
            self._error = error
        raise FeedError from self._error

    def done(self, n: int = 1) -> None:
        """n of the batches taken are encoded, or lost to an error that ends the stream."""
        with self._changed:
            self._n_taken -= n
            self._n_good += n
            if self.budget < self._first_budget and self._n_good >= self._n_wanted:
                self.budget = min(2 * self.budget, self._first_budget)
                self._n_good = 0
            self._changed.notify_all()

    def give_back(self, batch: TokenBatch, *parts: TokenBatch) -> None:
        """A batch that was taken is left to any thread, whole or as these parts of it."""
        with self._changed:
            self._returned.extend(reversed(parts or (batch,)))
            self._n_taken -= 1
            self._changed.notify_all()

    def shrink(self, size: int) -> None:
        """Halves the budget until it is below `size` padded tokens, which did not fit on a device."""
        with self._changed:
            while self.budget >= size and self.budget > 1:
                self.budget //= 2
            self._n_good = 0
            self._n_wanted *= 2  # so that batches that are too large for the device are tried ever more rarely

    def _cut(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], padding: int) -> Iterator[TokenBatch]:
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.budget, padding)
                yield batch._replace(positions=positions[batch.positions])
                order = order[len(batch.positions) :]


def merge(producers: Sequence[Callable[[], Iterable[T]]], size: int, name: str) -> Generator[T, None, None]:
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
    try:
        for thread in threads:
            thread.start()
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
            if thread.is_alive():  # Ctrl-C may come before the last is started
                thread.join()


def windows(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(position of the first, texts) of one window after another; only slices of `texts` are read."""
    window: list[str] = []
    start = size = 0
    for place in range(0, len(texts), READ_TEXTS):
        part = texts[place : place + READ_TEXTS]
        window.extend(part)
        size += sum(map(len, part))
        if len(window) >= WINDOW_TEXTS or size >= WINDOW_CHARACTERS:
            yield start, window
            start, window, size = start + len(window), [], 0
    if window:
        yield start, window


def token_chunks(
    texts: Sequence[str], tokenise: Callable[[list[str]], Tokens], chunk: int, n_threads: int
) -> Iterator[tuple[NDArray[np.int64], Tokens]]:
    """(positions, tokens) of one chunk after another, longest first within a window.

    n_threads : chunks tokenised at once, so that one becomes arrays while the tokenizer's own threads work on the next.
    """
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="secid-tokenise")
    ahead: deque[tuple[NDArray[np.int64], Future[Tokens]]] = deque()
    try:
        for start, window in windows(texts):
            order = by_length(window)
            for first in range(0, len(order), chunk):
                places = order[first : first + chunk]
                part = [window[place] for place in places.tolist()]
                ahead.append((start + places, pool.submit(tokenise, part)))
                if len(ahead) > n_threads:
                    positions, tokens = ahead.popleft()
                    yield positions, tokens.result()
        for positions, tokens in ahead:
            yield positions, tokens.result()
    finally:
        pool.shutdown(cancel_futures=True)
