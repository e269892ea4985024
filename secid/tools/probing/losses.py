"""The losses of a training step, by the closed forms that `secid score --objectives` reports. Source: METHOD 9.

A step's scores are split into positives and negatives of each query. The closed form gives the loss and its derivative
by every score, so training follows exactly what the analysis of the frozen scores describes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Flags, Floats, Index, distinct
from secid.encode import Encoder, Role
from secid.measure.in_batch import MARGIN, margin_flags
from secid.measure.objectives import CLOSED_FORMS, MW, BatchScores, Gradient, all_pairs
from secid.progress import Progress
from secid.settings import Settings, with_guide
from secid.tools.probing.options import SEVERAL_POSITIVES
from secid.tools.probing.task import Task
from secid.triplets.embedding import Embedder, rows_of_ids

FORMS = {
    "infonce": "single_lh",
    "mw": MW,
    "lsepair": "lse_pair",
    "sum_marginal": "sum_marg_lh",
    "joint": "joint_lh",
    "gist": "gist",
}
"""The closed form of each loss, by the name of --loss."""
MOST_POSITIVES = 8
"""Labelled positives of a query in one step of a loss of several: queries with forty would fill the batch."""


@dataclass(frozen=True)
class Sides:
    """Which passages of a step are positives and negatives of which query: (b, p) each, p passages.

    suspect : those that the guide places too near the query's positive; None without a guide.
    """

    positive: Flags
    negative: Flags
    suspect: Flags | None = None


def training_loss(queries: Tensor, passages: Tensor, sides: Sides, loss: str, temperature: float) -> Tensor:
    """The loss of a step in nats, with the closed form's gradient: a mean over queries, of mw over all pairs.

    queries, passages : (b, d), (p, d) unit rows; every query has a positive.
    NaN where a score is not finite. Computed in float64, on the CPU if the device has none.
    """
    scores = queries @ passages.T / temperature
    flags = [torch.from_numpy(side).to(scores.device) for side in (sides.positive, sides.negative)]
    parts = [scores[own] for own in flags]
    if not scores.isfinite().all():
        return scores.sum() * torch.nan
    exact = torch.device("cpu") if scores.device.type == "mps" else scores.device
    positive, negative = (part.detach().to(exact).double() for part in parts)
    of_positive, of_negative = (own.nonzero()[:, 0].to(exact) for own in flags)
    masked = None if sides.suspect is None else torch.from_numpy(sides.suspect[sides.negative]).to(exact)
    ones = torch.ones_like(positive)
    of_step = BatchScores(positive, negative, of_positive, of_negative, ones, masked, len(queries))
    gradient = _form(loss, positive, negative)(of_step)
    n_terms = 1 if loss == "mw" else len(queries)
    value = gradient.loss.sum() / n_terms
    slopes = (gradient.positive, gradient.negative)
    pull = torch.stack([(part * slope.to(part)).sum() for part, slope in zip(parts, slopes, strict=True)]).sum()
    pull = pull / n_terms  # its derivative by each score is the closed form's; its value is replaced by the loss
    return pull + (value.to(pull) - pull).detach()


def _form(loss: str, positive: Tensor, negative: Tensor) -> Callable[[BatchScores], Gradient]:
    return all_pairs(positive, negative) if loss == "mw" else CLOSED_FORMS[FORMS[loss]]


class Guidance:
    """What a guide says of the passages of a step, from its rows of all texts that are trained on."""

    def __init__(self, task: Task, guide: Encoder, settings: Settings, folder: Path, progress: Progress) -> None:
        """folder : for a file of rows; made here."""
        folder.mkdir()
        self.info = guide.info
        lists = (task.positives, *task.negatives.values(), *task.controls.values())
        ids = distinct(task.query), distinct(np.concatenate([own.ids for own in lists]))
        with closing(Embedder(task.queries, task.passages, guide, with_guide(settings), folder, progress)) as embedder:
            embedder.need(*ids)
            self._vectors = embedder.vectors

    def suspects(self, queries: Index, passages: Index) -> Flags:
        """(b, p) the passages that the guide's relative margin flags against passage i, the positive of query i."""
        scores = self._rows("query", queries) @ self._rows("passage", passages).T
        own = scores[np.arange(len(queries)), np.arange(len(queries))]
        return np.asarray(margin_flags(scores, own[:, None], "relative", MARGIN))

    def _rows(self, role: Role, ids: Index) -> Floats:
        """(n, d) float64 unit rows of these ids."""
        (rows,) = rows_of_ids(self._vectors, role, ids, len(ids))
        return np.asarray(rows.cpu().double().numpy())


@dataclass(frozen=True)
class Objective:
    """What a step compares. loss: as --loss names it.   passages: own or batch, as --passages does."""

    loss: str = "infonce"
    passages: str = "batch"
    guide: Guidance | None = None

    @property
    def n_positives(self) -> int:
        """Most labelled positives of a query in one step."""
        return MOST_POSITIVES if self.loss in SEVERAL_POSITIVES else 1
