"""Compute the loss of a training step with the closed forms that `secid score --objectives` uses. Source: METHOD 9.

Each query's scores are split into those of positives and those of negatives. The closed form returns the loss and its
derivative with respect to every score, so training uses the gradients that `--objectives` reports.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Flags, Floats, Index, distinct
from secid.encode import Encoder, Role
from secid.measure.objectives import CLOSED_FORMS, BatchScores, all_pairs
from secid.progress import Progress
from secid.settings import Settings, with_guide
from secid.tools.probing.options import SEVERAL_POSITIVES
from secid.tools.probing.task import Task
from secid.triplets.embedding import Embedder, rows_of_ids
from secid.triplets.guide import above_positive

CLOSED_FORM_NAMES = {
    "infonce": "single_lh",
    "lsepair": "lse_pair",
    "sum_marginal": "sum_marg_lh",
    "joint": "joint_lh",
    "gist": "gist",
}
"""Name of the closed form of each --loss except mw, which needs all pairs of a batch."""
MAX_POSITIVES = 8
"""Maximum labelled positives of a query in one step. A query with forty positives would otherwise fill the batch."""


@dataclass(frozen=True)
class Sides:
    """Flags of a step's positives and negatives, (b, p) each, by query and passage.

    masked : (b, p) passages that the guide scores higher than the query's positive; None without a guide.
    """

    positive: Flags
    negative: Flags
    masked: Flags | None = None


def training_loss(queries: Tensor, passages: Tensor, sides: Sides, loss: str, temperature: float) -> Tensor:
    """Return the loss of a step in nats, with the gradient of its closed form.

    It is the mean over queries; for mw, over all pairs of a positive and a negative. It is NaN if a score is not
    finite. It is computed in float64, on the CPU if the device has no float64.

    queries, passages : (b, d) and (p, d) unit rows; every query has a positive.
    """
    scores = queries @ passages.T / temperature
    flags = [torch.from_numpy(side).to(scores.device) for side in (sides.positive, sides.negative)]
    parts = [scores[mask] for mask in flags]
    if not scores.isfinite().all():
        return scores.sum() * torch.nan
    exact = torch.device("cpu") if scores.device.type == "mps" else scores.device
    positive, negative = (part.detach().to(exact).double() for part in parts)
    of_positive, of_negative = (mask.nonzero()[:, 0].to(exact) for mask in flags)
    masked = None if sides.masked is None else torch.from_numpy(sides.masked[sides.negative]).to(exact)
    ones = torch.ones_like(positive)
    of_step = BatchScores(positive, negative, of_positive, of_negative, ones, masked, len(queries))
    form = all_pairs(positive, negative) if loss == "mw" else CLOSED_FORMS[CLOSED_FORM_NAMES[loss]]
    gradient = form(of_step)
    n_terms = 1 if loss == "mw" else len(queries)
    value = gradient.loss.sum() / n_terms
    slopes = (gradient.positive, gradient.negative)
    pull = torch.stack([(part * slope.to(part)).sum() for part, slope in zip(parts, slopes, strict=True)]).sum()
    pull = pull / n_terms  # has the closed form's derivatives; the next line replaces its value by the loss
    return pull + (value.to(pull) - pull).detach()


class Guidance:
    """Finds a step's passages that GIST masks. The guide encodes all training texts once, in advance."""

    def __init__(self, task: Task, guide: Encoder, settings: Settings, folder: Path, progress: Progress) -> None:
        """Encode the task's texts. folder : new folder, made here, for the file of vectors."""
        folder.mkdir()
        self.info = guide.info
        lists = (task.positives, *task.negatives.values(), *task.controls.values())
        ids = distinct(task.query), distinct(np.concatenate([part.ids for part in lists]))
        with closing(Embedder(task.queries, task.passages, guide, with_guide(settings), folder, progress)) as embedder:
            embedder.need(*ids)
            self._vectors = embedder.vectors

    def masked(self, queries: Index, passages: Index) -> Flags:
        """Return (b, p) flags of passages that the guide scores higher than the positive of query i, passage i."""
        scores = self._rows("query", queries) @ self._rows("passage", passages).T
        target = scores[np.arange(len(queries)), np.arange(len(queries))]
        return above_positive(scores, target[:, None])

    def _rows(self, role: Role, ids: Index) -> Floats:
        """Return (n, d) float64 unit rows of these ids."""
        (rows,) = rows_of_ids(self._vectors, role, ids, len(ids))
        return np.asarray(rows.cpu().double().numpy())


@dataclass(frozen=True)
class Objective:
    """The loss of a step and the passages that it compares. loss, passages: values of --loss and --passages."""

    loss: str
    passages: str
    guide: Guidance | None

    @property
    def n_positives(self) -> int:
        """Return the maximum number of labelled positives of a query in one step."""
        return MAX_POSITIVES if self.loss in SEVERAL_POSITIVES else 1
