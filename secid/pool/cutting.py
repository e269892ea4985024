"""Passages cut to the queries' vocabulary, by this process or by others beside it.

Threads alone gain a third on two cores: numpy lets go of the interpreter for microseconds at a time, and two threads
then wait for each other. Processes gain all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

import numpy as np
import numpy.typing as npt

from secid.pool.frequencies import DocumentFrequencies
from secid.pool.texts import KEY_BYTES, TextStore
from secid.pool.tokens import token_stream
from secid.pool.vocabulary import Cut, Vocabulary
from secid.processes import Helper, ends, receive, send, started, stopped, worth_starting

Here = Callable[[int, int], Cut]


class Cutters:
    """Processes that cut passages beside this one; none for few texts. The end of the `with` block ends them.

    store : the passages, as other processes can read them; None where they cannot.
    """

    def __init__(self, store: TextStore | None, tokenizer: str, counted: npt.NDArray[np.bool_]) -> None:
        self._store, self._tokenizer, self._counted = store, tokenizer, counted
        self._helpers: list[Helper] = []
        self._free: SimpleQueue[Helper | None] = SimpleQueue()

    def __enter__(self) -> Cutters:
        n = worth_starting(int(self._store.lengths.sum(dtype=np.int64))) if self._store is not None else 0
        self._helpers = [helper for _ in range(n) if (helper := started(serve))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stopped(self._helpers)

    def begin(self, vocabulary: Vocabulary, n_threads: int) -> int:
        """Tells the processes what to cut to. n_threads: of this process, where it is alone.

        Returns the number of threads that keep all at work.
        """
        for helper in self._helpers:
            with suppress(OSError):  # it died: found when it is asked
                paths = [str(path) for path in self._store.paths] if self._store else []
                helper.tell([paths, self._tokenizer, vocabulary.keys.data])
        lanes = [None, *self._helpers] if self._helpers else [None] * n_threads
        for lane in lanes:
            self._free.put(lane)
        return len(lanes)

    def cut(self, start: int, stop: int, here: Here) -> Cut:
        """The cut of passages start … stop-1, by whoever is free. here: does it in this process.

        Does it here, too, where the other process ends: an error is raised by this one.
        """
        lane = self._free.get()
        try:
            if lane is not None:
                try:
                    return self._asked(lane, start, stop)
                except (OSError, EOFError, ValueError):
                    lane = None
            return here(start, stop)
        finally:
            self._free.put(lane)

    def _asked(self, helper: Helper, start: int, stop: int) -> Cut:
        if self._store is None:
            raise EOFError
        offsets, lengths = self._store.places(start, stop)
        helper.tell([offsets.data, lengths.data, self._counted[start:stop].view(np.uint8).data])
        columns, counts, keys, frequencies = map(np.asarray, helper.answer())
        return Cut(columns, counts, DocumentFrequencies(keys, frequencies, 0))


def _reader(paths: Sequence[str]) -> TextStore:
    """Reads texts by their places alone."""
    none = np.zeros(0, np.int64)
    return TextStore(tuple(map(Path, paths)), none, none.astype(np.int32), none.view(np.uint8).reshape(-1, KEY_BYTES))


def serve() -> None:
    """What another process does: cuts the passages whose places it is told, until no more come."""
    requests, answers = ends()
    with suppress(EOFError, OSError):  # the other side is gone
        paths, tokenizer, keys = receive(requests)
        vocabulary, store = Vocabulary(np.asarray(keys)), _reader(paths)
        while True:
            offsets, lengths, counted = map(np.asarray, receive(requests))
            stream = token_stream(store.packed_at(offsets, lengths), tokenizer, role="passage")
            found = vocabulary.cut(*stream, counted.astype(np.bool_))
            send(answers, [found.columns.data, found.counts.data, found.others.keys.data, found.others.counts.data])
