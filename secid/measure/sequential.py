"""How strong the evidence of one look must be where growing samples are looked at several times (METHOD 8).

An estimate from nested samples moves like Brownian motion in information time, 1 / variance. From that
follows the chance that it leaves a band at any look though nothing is there, and from the chance that may
be spent the band: one nominal level for all looks (Pocock's).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import norm

Floats = npt.NDArray[np.float64]

NODES = 101
"""Gauss-Legendre nodes of each look's density: Pocock's published constants come out to all their digits."""


def information_times(sizes: Sequence[int], population: int) -> Floats:
    """(L,) 1 / variance of the mean of a sample drawn without replacement, in units of 1 / one query's variance.

    sizes : queries of each look, rising, below `population`.   Source: METHOD 8, finite-population factor.
    """
    n = np.asarray(sizes, np.float64)
    return n / (1.0 - n / population)


def spent(times: Floats, level: float) -> Floats:
    """(L,) chance, without any difference, of a two-sided p <= level at that look or an earlier one, in [0, 1].

    times : information times of the looks, rising.   Source: METHOD 8.
    """
    edge = norm.isf(level / 2.0)
    nodes, masses = np.polynomial.legendre.leggauss(NODES)
    inside = []
    points, density = np.zeros(1), np.ones(1)
    before = 0.0
    for now in times:
        half = edge * np.sqrt(now)
        places, widths = nodes * half, masses * half
        density = norm.pdf(places[:, None], points[None, :], np.sqrt(now - before)) @ density
        density *= widths  # mass at each node, so that the next step is a plain sum
        points, before = places, now
        inside.append(density.sum())
    return 1.0 - np.array(inside)


def level_of_a_look(times: Floats, alpha: float) -> float:
    """The two-sided nominal p that each look may use, so that all looks together err with chance alpha.

    times : (L,) as in `spent`, at least one.   alpha : in (0, 1).   Returns a level in [alpha / L, alpha].
    """
    if len(times) == 1:
        return alpha
    return float(brentq(lambda level: spent(times, level)[-1] - alpha, alpha / len(times), alpha, xtol=1e-12))
