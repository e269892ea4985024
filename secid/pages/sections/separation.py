"""Show the cosines of positives and negatives to their queries, and how well these separate them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from secid.analyses.separation import CorpusSeparation, Separation, SourceSeparation
from secid.pages.charts import separation_chart
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import UNKNOWN_INTERVAL, count, fraction, nats, plain, plural, with_interval
from secid.results import Run

SHOWN_QUANTILES = (0.05, 0.5, 0.95)
"""Quantiles of the cosines in the table."""
ESTIMATES = {"auc": "AUC", "within_auc": "AUC within queries", "gap": "gap"}


def separation_section(_: Run, separation: Separation) -> Section:
    """Show histograms, quantiles and AUC of each source, and the AUC of the corpus if there is one."""
    rows = tuple(
        (
            plain(item.source),
            *(with_interval(getattr(item, name), getattr(item, f"{name}_interval_95"), fraction) for name in ESTIMATES),
            nats(item.mw_loss),
        )
        for item in separation.sources
    )
    columns = (foreign("source"), *map(wrapped, ESTIMATES.values()), number("MW loss"))
    by_source = Table(caption="Separation by source, with 95 % CI", columns=columns, rows=rows)
    corpus = separation.corpus
    return Section(
        anchor="separation",
        title="Histograms of s(q, p) and s(q, n)",
        paragraphs=() if corpus is None else (_corpus(corpus),),
        tables=(_cosines(separation.sources), by_source),
        charts=(separation_chart(separation.sources),),
        terms=terms(*ESTIMATES.values(), "MW loss"),
    )


def _cosines(items: Sequence[SourceSeparation]) -> Table:
    """Return a table with quantiles of both histograms. All sources have the same bins."""
    rows = tuple(
        (
            plain(item.source),
            *(_quantiles(item, counts) for counts in (item.positive_histogram, item.negative_histogram)),
        )
        for item in items
    )
    bins = fraction((items[0].high - items[0].low) / len(items[0].positive_histogram))
    return Table(
        caption=f"Median cosine to the query (5 to 95 % quantile), from bins of {bins}",
        columns=(foreign("source"), wrapped("positives"), wrapped("negatives")),
        rows=rows,
    )


def _quantiles(item: SourceSeparation, counts: Sequence[int]) -> str:
    low, median, high = (quantile(counts, item.low, item.high, share) for share in SHOWN_QUANTILES)
    if low is None or high is None:
        return UNKNOWN_INTERVAL
    return with_interval(median, (low, high), fraction)


def quantile(counts: Sequence[int], low: float, high: float, share: float) -> float | None:
    """Return a quantile of a histogram, by linear interpolation within a bin; None if the histogram is empty.

    counts : counts of equal bins from `low` to `high`.   share : within (0, 1).
    """
    below, target = 0, share * sum(counts)
    for place, (n, until) in enumerate(zip(counts, accumulate(counts), strict=True)):
        if n and until >= target:
            return low + (high - low) * (place + (target - below) / n) / len(counts)
        below = until
    return None


def _corpus(item: CorpusSeparation) -> str:
    """Return a sentence with the same numbers for the best passages of the corpus, for comparison."""
    auc, within = (
        with_interval(value, ends, fraction, " (95 % CI ")
        for value, ends in ((item.auc, item.auc_interval_95), (item.within_auc, item.within_auc_interval_95))
    )
    return (
        f"Against the {count(item.n_per_query)} best passages of the whole corpus that are not labelled relevant: AUC "
        f"{auc}, within queries {within}, MW loss {nats(item.mw_loss)} "
        f"({plural(item.n_queries, 'query', 'queries')} sampled, {plural(item.n_passages, 'passage')} searched)."
    )
