"""Which negatives are so near to their query that they may be relevant: the margins of METHOD 10.

s_qn, s_qp : scores of the negative and of its positive for one query, of any scorer; tensors or arrays of one shape.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats

Margin = Literal["absolute", "relative", "maximum"]
MARGIN = 0.05
"""Relative margin from which a negative is suspect. Source: METHOD 10, NV-Retriever's best."""


def flagged(s_qn: Any, s_qp: Any, margin: Margin, value: float) -> Any:
    """Booleans of the same shape: absolute s_qn >= s_qp - m, relative s_qn >= s_qp - r |s_qp|, maximum s_qn >= M.

    The relative margin equals s_qp (1 - r) for positive scores and stays meaningful below zero. Source: METHOD 10.
    """
    return s_qn >= {"absolute": s_qp - value, "relative": s_qp - value * abs(s_qp), "maximum": value}[margin]


def lowest_positive(s_query_positive: Floats, place: npt.NDArray[np.int64]) -> Floats:
    """(T,) the lowest score of the positives that the negative of each triplet is compared with.

    place : (T,) of the negative. A negative is flagged where it is by this one: all margins fall with the positive.
    """
    lowest = np.full(int(place.max(initial=-1)) + 1, np.inf)
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        np.minimum.at(lowest, place, s_query_positive)
    return lowest[place]
