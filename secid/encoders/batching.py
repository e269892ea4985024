"""Texts → batches of token ids: sorted by length, cut by a token budget, tokenised ahead of the device.

Padding is the cost that matters: a text is computed at the length of the longest of its batch.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 1024
"""Texts tokenised at once: enough for the tokenizer's threads, little enough that the device starts soon."""

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
    """Places of the texts, longest first: memory runs out at the start or not at all. Ties keep their order."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return np.argsort(-lengths, kind="stable")


def longest_first(tokens: Tokens) -> NDArray[np.int64]:
    """(n,) int64, places of the texts by number of tokens, most first."""
    return np.argsort(-tokens.lengths, kind="stable")


def next_batch(tokens: Tokens, order: NDArray[np.int64], budget: int, padding: int) -> TokenBatch:
    """The first texts of `order` in one batch of at most `budget` padded tokens, one text at least.

    order : (n,) int64, n >= 1, places in `tokens`, longest first. The batch's positions are places too.
    """
    longest = int(tokens.lengths[order[0]])
    chosen = order[: max(budget // longest, 1)]
    lengths = tokens.lengths[chosen]
    columns = np.arange(longest)
    mask = columns < lengths[:, None]
    ids = np.full((len(chosen), longest), padding, dtype=np.int64)
    ids[mask] = tokens.ids[(tokens.starts()[chosen, None] + columns)[mask]]
    return TokenBatch(ids, chosen, lengths, tokens.truncated[chosen])


def ahead(items: Iterable[T], size: int) -> Iterator[T]:
    """The same items, made in a thread that runs up to `size` of them ahead.

    An error of the maker is raised here. Leaving the loop early stops the thread.
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

    def make() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=make, name="secid-tokenise", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()


def in_parallel(
    function: Callable[[T], R], items: Iterable[T], workers: int, prepare: Callable[[], None]
) -> Iterator[R]:
    """function(item) of each item, in their order, by threads of which each calls `prepare` once.

    At most two items a worker are under way, so that memory does not grow with their number.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="secid-encode", initializer=prepare)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def tokenised(
    texts: Sequence[str], tokenise: Callable[[list[str]], Tokens], chunk: int = CHUNK
) -> Iterator[tuple[NDArray[np.int64], Tokens]]:
    """(positions, tokens) of chunk after chunk of the texts, longest first."""
    order = by_length(texts)
    for start in range(0, len(order), chunk):
        positions = order[start : start + chunk]
        yield positions, tokenise([texts[place] for place in positions])
