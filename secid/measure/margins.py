"""Margins that flag likely relevant negatives by their scores. Source: METHOD 10."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from secid.arrays import Floats, Index

Margin = Literal["absolute", "relative", "maximum"]
RELATIVE_MARGIN = 0.05
"""Relative margin of a filter by the encoder's own scores: NV-Retriever's best. Source: METHOD 10."""


def margin_flags(s_qn: Any, s_qp: Any, margin: Margin, value: float) -> Any:
    """Return flags of negatives whose score is so close to the positive's that they may be relevant.

    s_qn, s_qp : scores of the negative and of its positive for the same query, by any scorer; tensors or arrays of the
                 same shape, which is that of the flags.
    margin : absolute flags s_qn >= s_qp - m, relative flags s_qn >= s_qp - r |s_qp|, maximum flags s_qn >= M.
    value  : m, r or M.
    The relative limit is s_qp (1 - r) for positive scores, and stays meaningful for negative ones. Source: METHOD 10.
    """
    return s_qn >= {"absolute": s_qp - value, "relative": s_qp - value * abs(s_qp), "maximum": value}[margin]


def lowest_positive(s_query_positive: Floats, place: Index) -> Floats:
    """Return (T,) lowest score among the positives of each triplet's negative.

    s_query_positive : (T,) score of the triplet's positive.   place : (T,) number of the triplet's negative.
    A lower positive lowers the limit of every margin, so if any positive flags a negative, the lowest one does.
    """
    lowest = np.full(int(place.max(initial=-1)) + 1, np.inf)
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        np.minimum.at(lowest, place, s_query_positive)
    return lowest[place]
