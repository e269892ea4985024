"""The score of a filtered copy, compared with the original's. Source: METHOD 7, 8."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from secid.encode import Encoder
from secid.errors import EncoderError
from secid.export.select import Selection
from secid.export.source_files import PLACEHOLDER, find_source, settings_of, split_of
from secid.progress import Progress
from secid.records import Source
from secid.results import BudgetPoint, Run, SourceResult
from secid.run_folder.read import read_frequencies
from secid.scoring.run import score_sources
from secid.settings import FIELDS, Resolved


@dataclass(frozen=True, kw_only=True)
class Selected(Selection):
    """The copy, its score and the original's, in the same pool (IDF table) and at the same budget.

    budget : B, the run's.   before_nats, after_nats : ECI at it.   before_interval_95, after_interval_95 : of each.
    before_n_triplets, after_n_triplets : distinct negatives of the records that each score is of. Beyond B = 1 scores
    of unequal numbers do not compare. A ranking rule makes the comparison circular: the encoder that selected scores.
    """

    budget: float
    before_nats: float
    before_interval_95: tuple[float, float]
    before_n_triplets: int
    after_nats: float
    after_interval_95: tuple[float, float]
    after_n_triplets: int


def rescore(run: Run, folder: Path, written: Selection, encoder: Encoder, work: Path, progress: Progress) -> Selected:
    """Scores the copy as the run scored the original: same settings, same pool, no controls, ablations or slices.

    Raises EncoderError where the encoder is not the run's.
    """
    if encoder.info.fingerprint != run.encoder.fingerprint:
        raise EncoderError(
            f"is not the encoder of the run, {run.encoder.name}: their fingerprints differ",
            where=encoder.info.name,
            remedy="select with the run's encoder",
        )
    settings = settings_of(run, controls="none", ablate=False, block=(), by=None)
    resolved = Resolved(settings, dict.fromkeys(FIELDS, "run"))
    source = Source(PLACEHOLDER, (written.path,))
    scored = score_sources([source], encoder, resolved, work, progress, read_frequencies(folder, run))
    splits = {found.name.removeprefix(source.name).removeprefix(":"): found for found in scored.run.sources}
    original, copy = find_source(run, written.source), splits[split_of(written.source, splits, written.path)]
    before, after = _point(original, run.budget), _point(copy, run.budget)
    return Selected(
        **vars(written),
        budget=run.budget,
        before_nats=before.nats,
        before_interval_95=before.interval_95,
        before_n_triplets=original.n_triplets,
        after_nats=after.nats,
        after_interval_95=after.interval_95,
        after_n_triplets=copy.n_triplets,
    )


def _point(source: SourceResult, budget: float) -> BudgetPoint:
    return next(point for point in source.budget_curve if point.budget == budget)
