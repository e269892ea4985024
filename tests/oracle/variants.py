"""Reference for METHOD 3, 4 and 7: other weights, proxies, buckets, budget curve, spectrum, mixtures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tests.oracle.scoring import Measured, log_det_nats, mean, sigmoid, singular_values, softplus

VARIANTS = (
    "full", "without_consistency", "without_locality", "without_residual", "residual_only", "gradient_weighted",
    "margin_hardness", "fisher",
)  # fmt: skip
OUTSIDE_UNIT = frozenset({"gradient_weighted"})
"""Weights that can exceed 1, so they are divided by their mean over the run. Source: METHOD 3."""


def variant_weight(measured: Measured, variant: str) -> np.ndarray:
    """Return each triplet's weight, (N,) float64 >= 0, before scaling. variant : one of VARIANTS. Source: METHOD 3."""
    pi, rho, residual = measured.consistency, measured.locality, measured.residual
    # 1 - pi by a separate sigmoid: subtraction would lose every digit for an easy negative.
    other = sigmoid((measured.s_qn - measured.s_qp) / measured.temperature)
    weights: dict[str, np.ndarray] = {
        "full": pi * rho * residual,
        "without_consistency": rho * residual,
        "without_locality": pi * residual,
        "without_residual": pi * rho,
        "residual_only": np.ones_like(pi),
        "gradient_weighted": (other / measured.temperature) ** 2 * measured.distance**2,
        "margin_hardness": other,
        "fisher": 4.0 * pi * other * rho * residual,
    }
    return weights[variant]


def run_weights(sources: Mapping[str, Measured], variant: str) -> dict[str, np.ndarray]:
    """Return the weights of every source of a run, on one scale.

    A weight of OUTSIDE_UNIT is divided by its mean over all triplets of all sources (each triplet
    counts once, so a large source counts more), unless that mean is 0. Source: METHOD 3.
    """
    weights = {name: variant_weight(measured, variant) for name, measured in sources.items()}
    if variant in OUTSIDE_UNIT:
        scale = mean(value for weight in weights.values() for value in weight)
        weights = {name: weight / scale if scale > 0 else weight for name, weight in weights.items()}
    return weights


def variant_scores(sources: Mapping[str, Measured], variant: str, budget: float = 1.0) -> dict[str, float]:
    """log det(I + budget * M) of every source under the weights of `variant`, in nats. Source: METHOD 3."""
    weights = run_weights(sources, variant)
    return {
        name: log_det_nats(singular_values(weights[name], measured.direction), budget)
        for name, measured in sources.items()
    }


def pair_proxies(measured: Measured) -> dict[str, float]:
    """Return gradient energy, MNRL loss and ambiguity in pair form, means over triplets. Source: METHOD 3."""
    return {
        "gradient_energy": mean(variant_weight(measured, "gradient_weighted")),
        "mnrl_loss": mean(softplus((measured.s_qn - measured.s_qp) / measured.temperature)),
        "ambiguity": mean(measured.consistency < 0.5),
    }


def record_proxies(measured: Measured) -> dict[str, float]:
    """Return them in record form: softmax over the positive and all its explicit negatives; means over records.

    Triplets of one (query, positive) form one record. n_k - p is the residual direction times its
    length, so a negative without a direction has no gradient. Source: METHOD 3.
    """
    members: dict[tuple[str, str], list[int]] = {}
    for index, (query, positive, _) in enumerate(measured.triplets):
        members.setdefault((query, positive), []).append(index)
    energy, loss, ambiguous = [], [], []
    for indices in members.values():
        logits = (measured.s_qn[indices] - measured.s_qp[indices]) / measured.temperature
        top = max(0.0, float(logits.max()))
        total = math.fsum([math.exp(-top), *np.exp(logits - top)])
        share = np.exp(logits - top) / total
        pull = (share * measured.distance[indices]) @ measured.direction[indices]
        energy.append(float(pull @ pull) / measured.temperature**2)
        loss.append(top + math.log(total))
        ambiguous.append(bool(np.any(logits > 0)))
    return {"gradient_energy": mean(energy), "mnrl_loss": mean(loss), "ambiguity": mean(ambiguous)}


def rank_stability(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the share of source pairs that both settings order the same way, in [0, 1]. A tie agrees only with a tie.

    first, second : scores of the same sources, two or more. Source: METHOD 3.
    """
    return mean(
        np.sign(first[i] - first[j]) == np.sign(second[i] - second[j])
        for i in range(len(first))
        for j in range(i + 1, len(first))
    )


def gate_buckets(measured: Measured, *, near_copy: float = 0.99) -> dict[str, np.ndarray]:
    """Return which triplets are in each bucket defined by gates, (N,) bool; buckets overlap. Source: METHOD 4."""
    pi, rho, covered = measured.consistency, measured.locality, measured.coverage
    return {
        "inversion": pi < 0.5,
        "low_locality": rho < 0.5,
        "high_coverage": covered >= 0.5,
        "valid_but_lexical": (pi >= 0.9) & (rho >= 0.9) & (covered >= 0.5),
        "valid_but_far": (pi >= 0.9) & (covered < 0.5) & (rho < 0.1),
        "near_copy": measured.s_pn >= near_copy,
    }


def spectrum(weight: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of M, descending, (d,) float64; with N < d rows the last d - N are 0. Source: METHOD 7."""
    eigenvalues = singular_values(weight, direction) ** 2
    return np.pad(eigenvalues, (0, direction.shape[1] - len(eigenvalues)))


def budget_curve(eigenvalues: np.ndarray, budgets: Iterable[float]) -> dict[float, float]:
    """log det(I + B * M) in nats for each budget B. Source: METHOD 7."""
    return {budget: log_det_nats(np.sqrt(eigenvalues), budget) for budget in budgets}


def shape_of_spectrum(eigenvalues: np.ndarray, top: int = 10) -> dict[str, float | list[float]]:
    """Return trace, Frobenius norm, effective rank, top-k eigenvalue shares and diversity 1 - ECI / tr M.

    Effective rank is exp of the entropy of the eigenvalues over their sum. Raise ValueError for
    M = 0, which has neither shares nor a rank. Source: METHOD 7.
    """
    trace = math.fsum(eigenvalues)
    if trace <= 0:
        raise ValueError("the zero matrix has no effective rank")
    shares = eigenvalues / trace
    entropy = -math.fsum(share * math.log(share) for share in shares if share > 0)
    return {
        "trace": trace,
        "frobenius_norm": math.sqrt(math.fsum(eigenvalues**2)),
        "effective_rank": math.exp(entropy),
        "top_shares": [float(share) for share in shares[:top]],
        "diversity_fraction": 1.0 - log_det_nats(np.sqrt(eigenvalues)) / trace,
    }


def mixture_rows(sources: Mapping[str, Measured], proportions: Mapping[str, float]) -> np.ndarray:
    """Return rows X with X'X = M(alpha), the sum of alpha_s M_s over `proportions`. Source: METHOD 7."""
    return np.vstack(
        [
            np.sqrt(share * sources[name].weight / len(sources[name].weight))[:, None] * sources[name].direction
            for name, share in proportions.items()
        ]
    )


def mixture_nats(sources: Mapping[str, Measured], proportions: Mapping[str, float], budget: float = 1.0) -> float:
    """log det(I + budget * M(alpha)) in nats; concave in the proportions. Source: METHOD 7."""
    return log_det_nats(np.linalg.svd(mixture_rows(sources, proportions), compute_uv=False), budget)
