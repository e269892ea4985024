"""How well the scores tell positives from negatives, pooled and within queries."""

from __future__ import annotations

from secid.analyses.separation import CorpusSeparation, Separation
from secid.pages.charts import separation_chart
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import count, fraction, nats, plain, plural, with_interval
from secid.results import Run

ESTIMATES = {"auc": "AUC", "within_auc": "AUC within queries", "gap": "gap"}


def separation_section(_: Run, separation: Separation) -> Section:
    """AUC of each source, and of the corpus where there is one."""
    rows = tuple(
        (
            plain(item.source),
            *(with_interval(getattr(item, name), getattr(item, f"{name}_interval_95"), fraction) for name in ESTIMATES),
            nats(item.mw_loss),
        )
        for item in separation.sources
    )
    columns = (foreign("source"), *map(wrapped, ESTIMATES.values()), number("MW loss"))
    corpus = separation.corpus
    return Section(
        anchor="separation",
        link="Separation",
        title="Separation of positives and negatives",
        paragraphs=() if corpus is None else (_corpus(corpus),),
        tables=(Table(caption="Separation by source, with 95 % CI", columns=columns, rows=rows),),
        charts=(separation_chart(separation.sources),),
        terms=terms(*ESTIMATES.values(), "MW loss"),
    )


def _corpus(item: CorpusSeparation) -> str:
    """What the sources' negatives may be compared with: the best of all passages."""
    auc, within = (
        with_interval(value, ends, fraction, " (95 % CI ")
        for value, ends in ((item.auc, item.auc_interval_95), (item.within_auc, item.within_auc_interval_95))
    )
    return (
        f"Against the {count(item.n_per_query)} best passages of the whole corpus that are not labelled relevant: AUC "
        f"{auc}, within queries {within}, MW loss {nats(item.mw_loss)} "
        f"({plural(item.n_queries, 'query', 'queries')} sampled, {plural(item.n_passages, 'passage')} searched)."
    )
