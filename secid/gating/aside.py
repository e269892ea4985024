"""The texts of sources, looked at without the encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from secid.gating.runs import restored
from secid.gating.texts import TextFindings, Texts
from secid.read import open_source
from secid.records import Source
from secid.settings import Settings

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
