"""A plan of streams of rows, for tests of what is made of one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secid.pool import Plan, collect_sources, draft_plan
from secid.records import Block, Defect, Record, Source
from secid.settings import Settings

Streams = Iterable[tuple[Source, Iterable[Record | Defect | Block]]]


def make_plan(streams: Streams, settings: Settings, folder: Path, **options: Any) -> Plan:
    """What `draft_plan` plans of these streams. folder: an existing one, for spool files."""
    return draft_plan(collect_sources(streams, folder, lambda: None), settings, **options).plan
