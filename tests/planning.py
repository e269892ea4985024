"""Make a plan from streams of rows, for tests of the code that uses one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secid.pool import Plan, collect_sources, draft_plan
from secid.records import Block, Defect, Record, Source
from secid.settings import Settings

Streams = Iterable[tuple[Source, Iterable[Record | Defect | Block]]]


def make_plan(streams: Streams, settings: Settings, folder: Path, **options: Any) -> Plan:
    """Return the plan of these streams by `draft_plan`. folder : existing folder for spool files."""
    return draft_plan(collect_sources(streams, folder, lambda: None), settings, **options).plan
