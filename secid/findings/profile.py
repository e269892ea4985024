"""Lengths and scripts of a source's texts, summed up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secid.findings.facts import Facts
from secid.findings.forms import Index
from secid.results.check import Lengths, Spread


def spread(values: npt.NDArray[np.int64]) -> Spread:
    """Smallest, median, 95th percentile and largest; at least one value."""
    low, middle, high, top = np.percentile(values, [0, 50, 95, 100]).tolist()
    return Spread(minimum=low, median=middle, p95=high, maximum=top)


def lengths_of(facts: Facts, ids: Index) -> Lengths:
    """Lengths of these distinct texts; at least one."""
    return Lengths(n_texts=len(ids), characters=spread(facts.characters[ids]), tokens=spread(facts.tokens[ids]))


def scripts_of(facts: Facts, ids: Index) -> dict[str, float]:
    """Share of these distinct texts by the script of most of their letters, the commonest first."""
    counts = np.bincount(facts.script[ids], minlength=len(facts.scripts))
    order = np.argsort(-counts, kind="stable")
    return {facts.scripts[place]: float(counts[place] / len(ids)) for place in order.tolist() if counts[place]}
