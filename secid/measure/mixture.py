"""The proportions of sources that hold the most information together, with a proof of how good they are.

log det(I + B sum_s alpha_s M_s) is concave in the proportions alpha. Newton's method: at each step the
second-order model is maximised over the allowed proportions, and a line search keeps the true value
from falling. Sources number tens, dimensions thousands, so the factorisations are all of the cost.
Source: METHOD 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Flags, Floats
from secid.errors import UsageError
from secid.measure.information import InformationState, eigenvalues, factor_nats, factor_of, spectral_nats

RELATIVE_GAP = 1e-9
"""Duality gap, of the value, at which the search stops: below what anyone reads off a score."""
MAX_STEPS = 60
"""Newton steps; sources of real runs need 4 to 12."""
MAX_EXCHANGES = 20_000
"""Exchanges between two sources inside one step: each costs microseconds, tens of sources need hundreds."""
ROUNDING = 1e-12
"""Relative difference of two values that rounding alone can make."""
SLACK = 1e-9
"""Sums of shares that differ by no more are equal: shares come from decimal text."""


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest share of each source. lower, upper: (S,), 0 <= lower <= upper <= 1.

    Raises UsageError where no proportions that add up to 1 lie between them.
    """

    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        # Written as "passes if", so that NaN fails
        if not bool(((self.lower >= 0) & (self.lower <= self.upper) & (self.upper <= 1)).all()):
            raise UsageError("every share must lie between 0 and 1, the smallest not above the largest")
        if not (float(self.lower.sum()) <= 1 + SLACK and float(self.upper.sum()) >= 1 - SLACK):
            raise UsageError(
                f"no proportions add up to 1 within these bounds: together at least {self.lower.sum():g} "
                f"and at most {self.upper.sum():g}",
                remedy="raise --max-share or change --fix",
            )

    @classmethod
    def of(cls, n_sources: int, max_share: float = 1.0, fixed: dict[int, float] | None = None) -> Bounds:
        """The simplex with one largest share for all sources that are not fixed. fixed: share by place."""
        lower, upper = np.zeros(n_sources), np.full(n_sources, float(max_share))
        for place, share in (fixed or {}).items():
            lower[place] = upper[place] = share
        return cls(lower, upper)

    def filled(self, preference: Floats) -> Floats:
        """The allowed proportions with the largest preference . alpha: the dearest sources are filled first."""
        alpha = self.lower.copy()
        left = 1.0 - float(alpha.sum())
        for place in np.argsort(-preference, kind="stable"):
            more = min(left, float(self.upper[place] - self.lower[place]))
            alpha[place] += more
            left -= more
        return alpha

    def middle(self) -> Floats:
        """Allowed proportions as near to equal shares as the bounds let them: every source at one level, clipped."""
        low, high = 0.0, 1.0
        for _ in range(64):  # halvings of [0, 1] down to the last bit
            level = (low + high) / 2
            over = np.clip(level, self.lower, self.upper).sum() > 1
            low, high = (low, level) if over else (level, high)
        return self.filled_up(np.clip(low, self.lower, self.upper))

    def filled_up(self, alpha: Floats) -> Floats:
        """Proportions that add up to 1 but for rounding, made to add up; within the bounds."""
        for place in np.argsort(-alpha, kind="stable"):
            alpha[place] = np.clip(alpha[place] + 1.0 - alpha.sum(), self.lower[place], self.upper[place])
        return alpha


@dataclass(frozen=True)
class Mixture:
    """Proportions of sources, what they hold, and the certificate.

    proportions : (S,) in [0, 1], adding up to 1.   nats : log det(I + B M(alpha)).
    slopes      : (S,) B tr(A^-1 M_s), what a unit more of each source would add, in nats.
    gap_nats    : no allowed proportions hold more than nats + gap_nats, >= 0.
    """

    proportions: Floats
    nats: float
    slopes: Floats
    gap_nats: float


def mixed(matrices: Sequence[Tensor], proportions: Floats) -> Tensor:
    """M(alpha) = sum_s alpha_s M_s, (d, d) float64. Raises UsageError for no source or unequal shapes."""
    if not matrices or len({tuple(matrix.shape) for matrix in matrices}) > 1:
        raise UsageError("a mixture needs at least one source, all of one dimension")
    total = torch.zeros_like(matrices[0])
    for matrix, share in zip(matrices, proportions, strict=True):
        if share:
            total += float(share) * matrix
    return total


def evaluate(matrices: Sequence[Tensor], proportions: Floats, budget: float, bounds: Bounds) -> tuple[Mixture, Tensor]:
    """The certificate of given proportions, by concavity f(beta) <= f(alpha) + slopes . (beta - alpha); the factor too.

    The right side is largest where the sources of steepest slope are filled first. Source: METHOD 7.
    """
    factor = factor_of(mixed(matrices, proportions), budget)
    inverse = torch.cholesky_inverse(factor)
    slopes = np.array([budget * float((inverse * matrix).sum()) for matrix in matrices])
    gap = float(slopes @ (bounds.filled(slopes) - proportions))
    return Mixture(proportions, factor_nats(factor), slopes, max(0.0, gap)), factor


def best_mixture(matrices: Sequence[Tensor], budget: float, bounds: Bounds) -> Mixture:
    """The proportions with the most information at a budget.

    matrices : (d, d) float64 PSD information matrices, at least one, of equal d.   budget : B > 0.
    The gap is at most 1e-9 of the value unless rounding ends the search earlier; it is returned either way.
    Sources without information, or of equal information, leave the optimum open: one of the optima is returned.
    Raises UsageError for no source or unequal shapes, NumericalError for a matrix that is not PSD.
    Source: METHOD 7.
    """
    starts = [bounds.middle(), *(bounds.filled(row) for row in np.eye(len(matrices)))]
    values = [factor_nats(factor_of(mixed(matrices, start), budget)) for start in starts]
    # Equal shares win a tie (to rounding), so that identical sources share alike
    level = values[0] >= (1.0 - ROUNDING) * max(values)
    best, factor = evaluate(matrices, starts[0 if level else int(np.argmax(values))], budget, bounds)
    for _ in range(MAX_STEPS):
        if best.gap_nats <= RELATIVE_GAP * best.nats:
            break
        moving = (best.proportions > bounds.lower) | (best.slopes >= _lowest_given(best, bounds))
        curvature = _curvature(matrices, factor, budget, moving)
        direction = _model_optimum(best, curvature, bounds, moving) - best.proportions
        longer = _line_search(matrices, best, direction, budget)
        if longer is None:
            break
        best, factor = evaluate(matrices, longer, budget, bounds)
    optimum = InformationState(mixed(matrices, best.proportions), 1.0)
    return replace(best, nats=spectral_nats(eigenvalues(optimum, len(optimum.total)), budget))


def _lowest_given(best: Mixture, bounds: Bounds) -> float:
    """The flattest slope among sources that have share to give: no source of a flatter one can gain now."""
    return float(np.min(best.slopes, where=best.proportions > bounds.lower, initial=np.inf))


def _curvature(matrices: Sequence[Tensor], factor: Tensor, budget: float, moving: Flags) -> Floats:
    """(S, S) B^2 tr(A^-1 M_s A^-1 M_t), minus the Hessian; PSD. Zero for sources that do not move.

    Two triangular solves a source are most of the cost of a step, hence only those that may move.
    """
    whitened = {}
    for place in np.flatnonzero(moving).tolist():
        half = torch.linalg.solve_triangular(factor, matrices[place], upper=False)
        whitened[place] = torch.linalg.solve_triangular(factor, half.T, upper=False)
    table = np.zeros((len(matrices), len(matrices)))
    for s, first in whitened.items():
        for t, second in whitened.items():
            if t <= s:
                table[s, t] = table[t, s] = budget**2 * float(torch.dot(first.reshape(-1), second.reshape(-1)))
    return table


def _model_optimum(best: Mixture, curvature: Floats, bounds: Bounds, moving: Flags) -> Floats:
    """Maximiser of slopes . x - x^T C x / 2, x = alpha - best, by exchanges between two sources that move.

    Each exchange moves share from the source of the flattest slope that can give to that of the
    steepest that can take, exactly as far as the model or the bounds allow.
    """
    alpha, slope = best.proportions.copy(), best.slopes.copy()
    for _ in range(MAX_EXCHANGES):
        giver = int(np.argmin(np.where(moving & (alpha > bounds.lower), slope, np.inf)))
        taker = int(np.argmax(np.where(moving & (alpha < bounds.upper), slope, -np.inf)))
        gain = slope[taker] - slope[giver]
        if not gain > 1e-3 * RELATIVE_GAP * best.nats:  # three digits beyond what the whole search asks for
            break
        bend = curvature[giver, giver] + curvature[taker, taker] - 2.0 * curvature[giver, taker]
        room = min(alpha[giver] - bounds.lower[giver], bounds.upper[taker] - alpha[taker])
        moved = room if bend * room <= gain else gain / bend
        alpha[giver] = bounds.lower[giver] if moved == alpha[giver] - bounds.lower[giver] else alpha[giver] - moved
        alpha[taker] = bounds.upper[taker] if moved == bounds.upper[taker] - alpha[taker] else alpha[taker] + moved
        slope -= moved * (curvature[:, taker] - curvature[:, giver])
    return alpha


def _line_search(matrices: Sequence[Tensor], best: Mixture, direction: Floats, budget: float) -> Floats | None:
    """Proportions further along the direction that hold more; None where rounding leaves none."""
    rise = float(best.slopes @ direction)
    step = 1.0
    while step > 1e-6:
        alpha = best.proportions + step * direction
        # A quarter of the promised rise: the usual condition that steps do not shrink to nothing
        if factor_nats(factor_of(mixed(matrices, alpha), budget)) > best.nats + 0.25 * step * rise * (step < 1.0):
            return alpha
        step /= 2
    return None
