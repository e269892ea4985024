"""Files cut into shares that can be read apart from each other: ranges of lines, row groups, whole files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from secid.read.containers import Container


class Share(NamedTuple):
    """A part of the file at place `file` of its source.

    span   : bytes of whole lines.   groups : row groups, from the first to before the second. The whole file where
             both are None.
    n_bytes: what it takes of the file, for a progress bar.
    """

    file: int
    n_bytes: int
    span: tuple[int, int] | None = None
    groups: tuple[int, int] | None = None


def cut(file: int, path: str, container: Container, share_bytes: int) -> Iterator[Share]:
    """Shares of a file in its order, of about share_bytes each where the container can be cut."""
    size = Path(path).stat().st_size
    if container.kind == "jsonl" and not container.compression:
        for start, stop in pairwise(_line_starts(path, size, share_bytes)):
            yield Share(file, stop - start, span=(start, stop))
    elif container.kind == "parquet" and not container.compression:
        yield from _row_groups(file, path, size, share_bytes)
    else:
        yield Share(file, size)


def _line_starts(path: str, size: int, share_bytes: int) -> Iterator[int]:
    """0, places behind line ends that lie at least share_bytes apart, and the size."""
    yield 0
    at = share_bytes
    with Path(path).open("rb") as data:
        while at < size:
            data.seek(at - 1)
            line = data.readline(share_bytes)
            at += len(line) - 1
            if line.endswith(b"\n") and at < size:
                yield at
                at += share_bytes
            else:
                at += 1  # a line longer than a share: its end is looked for further on
    yield size


def _row_groups(file: int, path: str, size: int, share_bytes: int) -> Iterator[Share]:
    # pyarrow is imported only where a file asks for it: it costs 0.1 s.
    from secid.read.columnar import group_sizes

    sizes = group_sizes(path)
    bytes_per_row = size / max(1, sum(sizes))
    first = n_rows = told = 0
    for group, n in enumerate(sizes, 1):
        n_rows += n
        passed = int(n_rows * bytes_per_row) if group < len(sizes) else size
        if passed - told >= share_bytes or group == len(sizes):
            yield Share(file, passed - told, groups=(first, group))
            first, told = group, passed
