"""Written rows to a check and to a scored run of the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secid import api
from secid.encode import Encoder
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.check import Check
from secid.scoring.run import Scored
from secid.settings import resolve
from tests.fake_encoder import PieceEncoder
from tests.scored import score_sources
from tests.unit.scoring.made_rows import write

Sources = Mapping[str, list[dict[str, Any]]]
"""Rows of each source."""


def files_of(folder: Path, sources: Sources) -> list[Path]:
    """A file for each source."""
    folder.mkdir(exist_ok=True)
    return [write(folder / f"{name}.jsonl", rows) for name, rows in sources.items()]


def checked(folder: Path, sources: Sources, **settings: Any) -> Check:
    """Return the result of `secid.check` for these rows."""
    return api.check(files_of(folder, sources), **settings)


def scored(
    folder: Path, sources: Sources, encoder: Encoder | None = None, before: Scored | None = None, **settings: Any
) -> Scored:
    """A run over the rows, without controls unless they are asked for.

    before : an earlier run, whose document frequencies this one takes.
    """
    files = files_of(folder, sources)
    resolved = resolve({"cache": False, "controls": "none", **settings}, environment={}, directory=folder)
    with tempfile.TemporaryDirectory() as work:
        found = resolve_sources(list(map(str, files)))
        taken = {} if before is None else {"frequencies": before.frequencies}
        return score_sources(found, encoder or PieceEncoder(), resolved, Path(work), Silent(), **taken)
