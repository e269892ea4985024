"""How the score and the gradient change with the number of positives and negatives, and where the next label helps."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from secid.pages.numbers import count, percent, plural, score
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.sanitize import plain
from secid.results import ObjectiveLens, RecordSize, Run

TWICE_THE_QUERIES = 1.0 - sqrt(0.5)
"""What as many queries again take off an interval: its width goes with one over the root of their number."""


def per_record_section(run: Run) -> Section | None:
    """A row for each source and number of passages used; None for a run without --objectives."""
    lens = run.objectives
    if lens is None:
        return None
    heads = ("negatives", "score ± CI", "outscoring", "within margin", "gradient on outscoring", "effective negatives")
    rows = tuple(
        (
            plain(item.source),
            _used(item),
            count(item.n_triplets),
            score(item.eci_nats, item.interval_95),
            percent(item.inversion_share),
            percent(item.margin_share),
            percent(item.gradient_on_inversions),
            count(item.effective_negatives),
        )
        for item in lens.sizes
    )
    n_queries = max((item.n_queries for item in lens.sizes), default=0)
    return Section(
        anchor="per-record",
        link="Numbers",
        title="How many positives and negatives does a record need?",
        paragraphs=(next_label(lens),),
        tables=(
            Table(
                caption=f"With the first passages of each record only, as listed; at most {count(n_queries)} queries; "
                f"gradient of {'JointLH' if any(item.n_positives for item in lens.sizes) else 'InfoNCE'}",
                columns=(foreign("source"), text("used"), *map(number, heads)),
                rows=rows,
            ),
        ),
    )


def _used(item: RecordSize) -> str:
    if item.n_positives is not None:
        return f"first {plural(item.n_positives, 'positive')}"
    return f"first {plural(item.n_negatives or 0, 'negative')}"


def next_label(lens: ObjectiveLens) -> str:
    """Where the next annotation narrows the intervals most, with what one more passage a record would do."""
    positives = [part for item in lens.narrowing if (part := item.one_more_positive) is not None]
    negatives = [part for item in lens.narrowing if (part := item.one_more_negative) is not None]
    by_label = (
        f"by {_range(positives)} as one more positive for each record"
        if positives
        else "by an unknown share as one more positive for each record, since no record has two"
    )
    mined = f" One more negative for each query, which needs no label, narrows it by {_range(negatives)}."
    return (
        "Spend the next labels on new queries: as many labels as there are records narrow a score's interval by "
        f"{percent(TWICE_THE_QUERIES)} on new queries, and {by_label}.{mined if negatives else ''}"
    )


def _range(parts: Sequence[float]) -> str:
    low, high = percent(min(parts)), percent(max(parts))
    return low if low == high else f"{low} to {high}"
