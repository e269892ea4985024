"""Negatives that say nothing new: listed twice in their record, the query's own text, or listed for many queries.

Source: METHOD 14.
"""

from __future__ import annotations

import numpy as np

from secid.arrays import distinct
from secid.findings.normal_form import EMPTY_FORM, Flags, TextForms
from secid.pool import PlannedSource

HUB_SHARE = 0.05
"""Share of the queries above which a text that serves them is a hub. Source: METHOD 14."""
HUB_QUERIES = 100
"""Number of queries for which the share is estimated. Source: METHOD 14."""


def listed_before(source: PlannedSource, passages: TextForms) -> Flags:
    """(T,) the record lists a negative of the same normal form at an earlier place.

    Copies of one text are one row: `copies` counts them, and all but the first are repeats too.
    """
    keys = source.triplet_record() * max(1, passages.n_forms) + passages.number[source.negatives]
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), np.bool_)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return again


def echo_flags(source: PlannedSource, queries: TextForms, passages: TextForms) -> Flags:
    """(T,) the negative's normal form equals its query's; no text without words equals another."""
    own = passages.form[source.negatives]
    return np.asarray((own == queries.form[source.query[source.triplet_record()]]) & (own != EMPTY_FORM))


def hub_flags(source: PlannedSource, queries: TextForms, passages: TextForms) -> Flags:
    """(T,) the negative's normal form serves more than HUB_SHARE of HUB_QUERIES queries, as estimated from the source.

    A form that serves k of the source's Q queries serves k / Q of a random sample of HUB_QUERIES of them on average
    (the mean of a hypergeometric count, which is what rarefaction takes). A source of fewer queries is its own sample:
    the queries that it lacks count as not served, so the estimate k / max(Q, HUB_QUERIES) is a lower bound, and a form
    needs six queries to be a hub however small the source is. Queries count by their normal form.
    """
    n_forms = max(1, passages.n_forms)
    asked = queries.number[source.query[source.triplet_record()]]
    pairs = distinct(asked * n_forms + passages.number[source.negatives])
    n_served = np.bincount(pairs % n_forms, minlength=n_forms)
    n_queries = len(distinct(pairs // n_forms))
    return np.asarray((n_served > HUB_SHARE * max(n_queries, HUB_QUERIES))[passages.number[source.negatives]])
