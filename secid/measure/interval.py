"""How far a 95 % interval reaches: the one definition, for reports, gates and the limits derived from a baseline."""

from __future__ import annotations

FEWEST_QUERIES = 5
"""Influences sum to zero, so one query alone always has a standard error of 0; intervals were tested from 40."""


def reach_95(n_queries: int) -> float:
    """Half-width of a 95 % interval in standard errors: Student's t, for the mean of n >= 2 observations.

    The clustered standard error divides by n, Student's by n - 1; with 100 queries the two steps make 1.99 of 1.96,
    with 5 they make 3.10. Of a difference n is the number of queries of the side that has fewer. Source: METHOD 8.
    """
    from scipy.special import stdtrit  # here, so that a process which only looks at texts does without scipy

    return float(stdtrit(n_queries - 1, 0.975) * (n_queries / (n_queries - 1)) ** 0.5)
