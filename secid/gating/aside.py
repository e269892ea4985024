"""The texts of sources, looked at by a process of its own while this one loads the encoder and encodes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from secid.gating.runs import restored
from secid.gating.texts import TextFindings, Texts
from secid.pool.texts import KEY_BYTES
from secid.processes import Helper, ends, receive, send, started, stopped
from secid.read import open_source
from secid.records import Source
from secid.settings import Settings
from secid.triplets.estimates import Estimate

LEAST_BYTES = 4 << 20
"""Below this looking takes less time than a process takes to start: 33 MB take 1.5 s, a start 0.3 s."""

Looked = dict[tuple[tuple[str, ...], str], TextFindings]
"""By the paths and the split of a source."""


def look(sources: Sequence[Source], settings: Settings, table: Path) -> Looked:
    """Findings of all sources. table: the file beside a baseline, with the positives that it knows."""
    from safetensors.numpy import load_file

    known, found = restored(load_file(table)), Looked()
    for source in sources:
        parts = Texts(opener(source, settings)).findings(known)
        found |= {(source.paths, split): findings for split, findings in parts.items()}
    return found


def opener(source: Source, settings: Settings) -> Callable[[], Any]:
    """Opens a source from its start, each time anew."""
    return lambda: open_source(source, settings)


class Aside:
    """Looks at texts beside what is done in its `with` block. The end of the block ends the process."""

    def __init__(self, sources: Sequence[Source], settings: Settings, table: Path) -> None:
        self._task = (tuple(sources), settings, table)
        self._helper: Helper | None = None

    def __enter__(self) -> Aside:
        sources = self._task[0]
        n_bytes = sum(Path(path).stat().st_size for source in sources for path in source.paths)
        if n_bytes < LEAST_BYTES or (os.cpu_count() or 1) == 1:
            return self
        self._helper = started(serve)
        if self._helper is not None:
            sources, settings, table = self._task
            told = [[source.name, source.paths] for source in sources]
            with suppress(OSError):  # it died: `findings` does the work
                self._helper.tell([told, asdict(settings), str(table)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._helper is not None:
            stopped([self._helper])

    def findings(self) -> Looked:
        """What was found; by this process where the other came to no end, so that errors are told by this one."""
        if self._helper is not None:
            with suppress(OSError, EOFError, ValueError):
                return {(tuple(paths), split): _of(plain) for paths, split, plain in self._helper.answer()}
        return look(*self._task)


def serve() -> None:
    """What the other process does: one task from standard input, its findings to standard output, or nothing."""
    with suppress(Exception):  # whoever asked looks itself then
        requests, answers = ends()
        sources, settings, table = receive(requests)
        listed = [Source(name, tuple(paths)) for name, paths in sources]
        found = look(listed, Settings.of_json(settings), Path(table))
        send(answers, [[paths, split, _plain(findings)] for (paths, split), findings in found.items()])


def _plain(findings: TextFindings) -> list[Any]:
    """In values that can be sent."""
    shares = {
        name: [share.value, bytearray(share.queries.tobytes()), array("d", share.per_query.tobytes())]
        for name, share in findings.shares.items()
    }
    return [findings.n_negatives, shares, findings.places, findings.flagged]


def _of(plain: list[Any]) -> TextFindings:
    n_negatives, shares, places, flagged = plain
    estimates = {
        name: Estimate(value, np.frombuffer(queries, f"S{KEY_BYTES}"), np.array(per_query))
        for name, (value, queries, per_query) in shares.items()
    }
    listed = {name: [(path, line, number) for path, line, number in rows] for name, rows in places.items()}
    return TextFindings(n_negatives, estimates, listed, flagged)
