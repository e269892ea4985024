"""Sources to rows and spooled texts: in this process alone, or with others that read shares of the files.

Whoever reads a share, its rows and texts are joined in the order of the sources, so the plan is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secid.pool.collect import Collected, Moved, Rows, collect
from secid.pool.helpers import Helpers, Job
from secid.pool.texts import Segment, TextSpool
from secid.processes import ends, receive, send, told, worth_starting
from secid.read import Reader, Share, ShareStream, open_source
from secid.records import Block, Defect, Record, Source
from secid.settings import Settings

SHARE_BYTES = 8 << 20
"""Size of a share: a tenth of a second of work, so that all processes end at about the same time."""


@dataclass
class Gathered:
    """All rows of a run, and its texts in their spools."""

    collected: list[Collected]
    slices: dict[str, int]
    queries: TextSpool
    passages: TextSpool

    @staticmethod
    def empty(folder: Path, name: str = "") -> Gathered:
        """Nothing yet; spool files are written to the folder under names that end so."""
        spools = TextSpool("query", folder / f"queries{name}.txt"), TextSpool("passage", folder / f"passages{name}.txt")
        return Gathered([], {}, *spools)

    def close(self) -> None:
        """Ends the writing, where no store is made."""
        self.queries.close()
        self.passages.close()

    def rows(self) -> list[Rows]:
        """Rows of each source, those of a file that holds several apart."""
        return [rows for collected in self.collected for rows in collected.rows()]


@dataclass
class Part:
    """What one share gave; numbers of texts, slices and lines of a span begin anew in each."""

    collected: Collected
    slices: dict[str, int]
    queries: list[Segment]
    passages: list[Segment]
    n_lines: int

    def plain(self) -> dict[str, Any]:
        """The part in values that can be sent."""
        roles = {"queries": self.queries, "passages": self.passages}
        spooled = {role: [[str(s.path), *s[1:]] for s in segments] for role, segments in roles.items()}
        return {"rows": self.collected.plain(), "slices": list(self.slices), "n_lines": self.n_lines, **spooled}

    @staticmethod
    def of(plain: dict[str, Any]) -> Part:
        """The part that was sent."""
        queries, passages = (
            [Segment(Path(path), *rest) for path, *rest in plain[role]] for role in ("queries", "passages")
        )
        slices = {value: number for number, value in enumerate(plain["slices"])}
        return Part(Collected.of(plain["rows"]), slices, queries, passages, plain["n_lines"])


def gather(
    streams: Iterable[tuple[Source, Iterable[Record | Defect | Block]]], folder: Path, tick: Callable[[], None]
) -> Gathered:
    """Reads all sources one after another in this process."""
    found = Gathered.empty(folder)
    with ExitStack() as on_error:
        on_error.callback(found.close)
        for source, stream in streams:
            found.collected.append(collect(source, stream, found.queries, found.passages, found.slices, tick))
        on_error.pop_all()
    return found


class ShareReader:
    """Reads shares of sources, into spool files of its own. readers: those that are open already, by source number."""

    def __init__(
        self, sources: Sequence[Source], settings: Settings, folder: Path, name: str, readers: Sequence[Reader] = ()
    ) -> None:
        self._sources, self._settings = sources, settings
        self._readers = dict(enumerate(readers))
        self._spools = Gathered.empty(folder, name)

    def read(self, job: Job, tick: Callable[[], None] = lambda: None) -> Part:
        """The share, or the whole source where it has none. Raises what reading raises (SecidError)."""
        number, share = job
        source = self._sources[number]
        if number not in self._readers:
            self._readers[number] = open_source(source, self._settings)
        reader = self._readers[number]
        stream = reader.blocks() if share is None else reader.share(share)
        slices: dict[str, int] = {}
        queries, passages = self._spools.queries, self._spools.passages
        collected = collect(source, stream, queries, passages, slices, tick)
        n_lines = stream.n_lines if isinstance(stream, ShareStream) else 0
        return Part(collected, slices, queries.handed_over(), passages.handed_over(), n_lines)

    def close(self) -> None:
        """Ends the writing."""
        self._spools.close()


def gather_shares(
    readers: Sequence[Reader], settings: Settings, folder: Path, tick: Callable[[], None], n_helpers: int
) -> Gathered:
    """Reads all sources by shares, with this many other processes at it.

    Raises what `gather` raises, too: the error of the first share in order that has one.
    """
    sources = [reader.source for reader in readers]
    jobs: list[Job] = []
    with ThreadPoolExecutor(1) as hashing:
        for number, reader in enumerate(readers):
            shares = reader.shares(SHARE_BYTES)
            if shares is not None:
                reader.hash_beside(hashing)
            jobs += [Job(number, None)] if shares is None else [Job(number, share) for share in shares]

        def passed(job: Job) -> None:
            if job.share is not None:
                readers[job.source].passed(job.share.n_bytes)
            tick()

        told_sources = [[source.name, source.paths] for source in sources]
        tasks = [[told_sources, asdict(settings), str(folder), f"-{number + 1}"] for number in range(n_helpers)]
        own_reader = ShareReader(sources, settings, folder, "-0", readers)
        with closing(own_reader) as own, Helpers(serve, tasks, Part.of) as helpers:
            parts = helpers.run(jobs, lambda job: own.read(job, tick), passed)
    return _joined(sources, jobs, parts, folder)


def _joined(sources: Sequence[Source], jobs: Sequence[Job], parts: list[Part], folder: Path) -> Gathered:
    """The parts in order, as if one process had read them. Empties the list, part by part."""
    found = Gathered.empty(folder)
    found.collected = [Collected(source) for source in sources]
    n_lines, place = 0, (-1, -1)
    parts.reverse()
    for source, share in jobs:
        part = parts.pop()
        file = (source, -1 if share is None else share.file)
        n_lines = n_lines if file == place else 0
        place = file
        numbers = [found.slices.setdefault(value, len(found.slices)) for value in part.slices]
        moved = Moved(
            found.queries.extend(part.queries),
            found.passages.extend(part.passages),
            n_lines,
            np.array(numbers, np.int64),
        )
        found.collected[source].join(part.collected, moved)
        n_lines += part.n_lines
    return found


def n_helpers_for(readers: Sequence[Reader]) -> int:
    """Processes that are worth their start beside this one; 0 for small inputs, or on one core."""
    return worth_starting(sum(reader.n_bytes or 0 for reader in readers if reader.shares(SHARE_BYTES) is not None))


def serve() -> None:
    """What a helper does: reads the shares it is asked for on standard input, until that ends."""
    requests, answers = ends()
    try:
        sources, settings, folder, name = receive(requests)
        listed = [Source(source, tuple(paths)) for source, paths in sources]
        reader = ShareReader(listed, Settings.of_json(settings), Path(folder), name)
        while True:
            number, (file, n_bytes, span, groups) = receive(requests)
            try:
                answer = {"part": reader.read(Job(number, Share(file, n_bytes, span, groups))).plain()}
            except Exception as error:  # is raised where the share was asked for
                answer = {"error": told(error)}
            send(answers, answer)
    except (EOFError, OSError):  # the other side is gone
        return
