"""The answer to which sources to train on: one row a source, the same on every page."""

from __future__ import annotations

from collections.abc import Callable

from secid.pages.findings import STATUS, ranked
from secid.pages.glossary import on_own_queries, score_point
from secid.pages.numbers import count, fraction, letter, percent, score
from secid.pages.page import Column, Table, foreign, number, status, text
from secid.pages.sanitize import plain
from secid.results import Run, SourceResult

Cell = Callable[[Run, SourceResult], str]


def answer_table(run: Run, *, full: bool) -> Table:
    """The columns that fit a terminal of 80 columns; full: also the score without defects, and the top problem."""
    columns = COLUMNS | MORE_COLUMNS if full else COLUMNS
    if full and any(source.on_shared for source in run.sources):  # those scores are of all queries
        columns = {column: cell for column, cell in columns.items() if cell is not score_without_defects}
    rows = tuple(tuple(cell(run, source) for cell in columns.values()) for source in run.sources)
    return Table(caption="Sources by score", columns=tuple(columns), rows=rows)


def own_score(run: Run, source: SourceResult) -> str:
    """The score that the source is ranked by, with its interval."""
    point = score_point(source, run.budget)
    return score(point.nats, point.interval_95, run.budget)


def score_without(source: SourceResult) -> str:
    """ECI_sem without the flagged negatives; "–" where none is flagged."""
    rest = source.without_flagged
    if source.n_flagged and not rest.n_triplets:
        return "none left"
    return score(rest.eci_nats, rest.interval_95) if source.n_flagged else "–"


def score_without_defects(_: Run, source: SourceResult) -> str:
    """Return `score_without` as a cell."""
    return score_without(source)


def queries(run: Run, source: SourceResult) -> str:
    """Return the number of queries of a row.

    "35/120" : all sources share 35 of its 120.   "120*" : the rows of the table are of different queries.
    """
    own = count(source.n_queries)
    if source.on_shared is not None:
        return f"{count(source.on_shared.n_queries)}/{own}"
    return f"{own}*" if on_own_queries(run) else own


def _tie(run: Run, source: SourceResult) -> str:
    return letter(source.rank_group) if run.comparisons else "–"


def _top_problem(run: Run, source: SourceResult) -> str:
    return next((item.name for _, item in ranked(run, source)), "none")


COLUMNS: dict[Column, Cell] = {
    foreign("source"): lambda _, source: plain(source.name),
    status("status"): lambda _, source: STATUS[source.status],
    number("score ± CI"): own_score,
    text("tie"): _tie,
    number("hardness"): lambda run, source: fraction(source.in_table(run.budget).hardness, 2),
    number("outscoring"): lambda run, source: percent(source.in_table(run.budget).inversion_fraction),
    number("defects"): lambda _, source: percent(source.flagged_share),
    number("queries"): queries,
}
MORE_COLUMNS: dict[Column, Cell] = {
    number("n"): lambda run, source: count(source.in_table(run.budget).n_triplets),
    number("score without defects"): score_without_defects,
    text("top problem"): _top_problem,
}
