"""Sources scored without a run folder, for tests of what a run is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secid.encode import Encoder
from secid.progress import Progress
from secid.read import Reader
from secid.records import Source
from secid.scoring.encoders import load_guide
from secid.scoring.run import Scored, scored_plan
from secid.settings import Resolved


def score_sources(
    sources: Sequence[Source | Reader],
    encoder: Encoder,
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    *given: Any,
    **named: Any,
) -> Scored:
    """What `scored_plan` gives, whose other parameters follow; the texts are no longer at hand."""
    guide = load_guide(resolved.values, encoder, progress)
    with scored_plan(sources, encoder, guide, resolved, folder, progress, *given, **named) as (scored, _):
        return scored
