"""Reads what `secid mine` and `--sweep` mine for. Imports nothing heavy, so that errors of the files come first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from secid.findings.judgements import label_files
from secid.mining.methods import MiningPlan
from secid.mining.questions import Questions, questions_of_collection, questions_of_pairs
from secid.pool.reading import bytes_read_by
from secid.progress import Progress
from secid.read import opened, resolve_sources
from secid.read.collection import noted_collection
from secid.settings import Settings


def read_questions(
    plan: MiningPlan, settings: Settings, work: Path, progress: Progress, refuse: Callable[[], None]
) -> Questions:
    """Rows and candidates. The caller closes them. Raises InputError, also where there is no candidate.

    refuse : called when the files are open and nothing has been read; raises EncoderError for a missing encoder.
    """
    if plan.pairs is None:
        files, labels = (label_files(None, name, settings, "--pairs SOURCE") for name in (plan.split, None))
        refuse()
        progress.start("read", None, "")
        judged = noted_collection(settings, progress)
        return questions_of_collection(judged, files, labels, work, settings.max_bad_fraction)
    with opened(resolve_sources([plan.pairs], settings), settings, pairs_too=True) as readers:
        refuse()
        given = settings.collection or settings.corpus
        collection = noted_collection(settings, progress) if given else None
        tick = bytes_read_by(readers, progress)
        return questions_of_pairs(readers, collection, settings, work, tick)
