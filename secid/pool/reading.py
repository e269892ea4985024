"""Sources to a plan, told to the user on the way. No torch here: `secid check` reads as `secid score` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from secid.pool import Plan, gather, plan_of
from secid.pool.make import TextRules
from secid.progress import Progress
from secid.read import Reader, open_source
from secid.records import Source
from secid.settings import Settings, flag_of

IDLE = {
    flag_of("positive_score"): "no input has labels",
    flag_of("header", True): "no input is CSV or TSV",
    flag_of("header", False): "no input is CSV or TSV, or has rows without names",
}
"""Why a flag has no effect on these files."""


def read_plan(
    sources: Sequence[Source | Reader],
    settings: Settings,
    folder: Path,
    progress: Progress,
    *,
    with_positives: bool = False,
    with_echoes: bool = False,
    text_rules: TextRules | None = None,
) -> tuple[Plan, list[Reader]]:
    """Reads all sources into a plan, and reports what was understood of each file.

    sources : opened already, or else opened here.   folder, with_positives, with_echoes, text_rules : as in `plan_of`.
    Raises what opening and planning raise (SecidError).
    """
    readers = [item if isinstance(item, Reader) else open_source(item, settings) for item in sources]
    for reader in readers:
        for shape in reader.files:
            progress.note(f"{reader.source.name}: {shape.path}: {shape.schema} ({shape.mapping})")
    for flag in sorted(set.intersection(*(reader.idle_flags() for reader in readers))) if readers else ():
        progress.note(f"{flag} is ignored: {IDLE[flag]}")
    sizes = [reader.n_bytes for reader in readers]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    progress.start("read", total, "bytes")
    done = 0

    def tick() -> None:
        nonlocal done
        now = sum(reader.bytes_read() for reader in readers)
        progress.advance(now - done)
        done = now

    found = gather(((reader.source, reader.blocks()) for reader in readers), folder, tick)
    try:
        plan = plan_of(
            found,
            settings,
            with_positives=with_positives,
            with_echoes=with_echoes,
            text_rules=text_rules,
        )
    except BaseException:
        found.close()
        raise
    tick()
    return plan, readers
