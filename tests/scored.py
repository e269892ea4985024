"""Score sources without a run folder, for tests of the parts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secid.encode import Encoder
from secid.pool.plan import QuerySubset
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.records import Source
from secid.scoring.encoders import load_guide
from secid.scoring.run import Scored, assemble_run, read_sources
from secid.scoring.stages import Background, measure
from secid.settings import Resolved


def score_sources(
    sources: Sequence[Source | Reader],
    encoder: Encoder,
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    **of_background: Any,
) -> Scored:
    """Return the result of a score, without its texts. of_background : fields of `Background`."""
    guide, background, clock = load_guide(resolved.values, encoder, progress), Background(**of_background), Clock()
    subset = QuerySubset.of(resolved.values)
    with read_sources(sources, resolved, subset, background, folder, clock, progress) as read:
        context = measure(read, encoder, guide, background, folder, clock, progress)
        return assemble_run(context, read, encoder, background, clock, None)
