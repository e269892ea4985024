"""Scores in full, and which differences between sources are significant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from secid.pages.answer import queries
from secid.pages.glossary import equal_numbers, score_name, score_point, terms
from secid.pages.numbers import (
    UNKNOWN,
    count,
    fraction,
    interval,
    letter,
    nats,
    percent,
    points,
    probability,
    rounded,
    with_interval,
)
from secid.pages.page import MOST_PAIRS, Section, Table, foreign, number, text, wrapped
from secid.pages.sanitize import named, plain
from secid.results import Run
from secid.results.between import PairedDifference
from secid.results.sources import TableNumbers

MANY_QUERIES = 1_000_000
"""Beyond this a needed number of queries is as good as never."""


def ranking_section(run: Run) -> Section:
    """The score of each source with its interval and tie, and what it consists of."""
    rows = []
    for source in run.sources:
        shown, point = source.in_table(run.budget), score_point(source, run.budget)
        rows.append(
            (
                plain(source.name),
                f"{count(source.rank)}{f' ({letter(source.rank_group)})' if run.comparisons else ''}",
                nats(point.nats),
                interval(point.interval_95, run.budget),
                percent(source.probability_first),
                _hardness_interval(shown),
                percent(source.diversity_fraction),
                queries(run, source),
            )
        )
    names = (
        "rank (tie)",
        f"{score_name(run)} (nats)",
        "95 % CI",
        "P(first)",
        "hardness, 95 % CI",
        "diversity fraction",
    )
    columns = (foreign("source"), *map(number, (*names, "queries")))
    numbers = equal_numbers(run) if run.budget > 1.0 else ""
    on_equal = f"Scores, intervals, ranks and pairs are on {numbers}: beyond B = 1 a larger sample scores higher."
    return Section(
        anchor="scores",
        link="Scores",
        title="Scores",
        paragraphs=(on_equal,) if numbers else (),
        tables=(Table(caption="Scores with their intervals", columns=columns, rows=tuple(rows)),),
        terms=terms(
            *("ECI_sem" if run.budget == 1.0 else "ECI_B", "95 % CI", "tie", "P(first)", "hardness"),
            *("diversity fraction", "queries"),
        ),
    )


def _hardness_interval(shown: TableNumbers) -> str:
    ends = shown.hardness_interval_95
    if shown.hardness is None:
        return "–"
    return UNKNOWN if ends is None else f"{fraction(ends[0], 2)} to {fraction(ends[1], 2)}"


def pairs_section(run: Run) -> Section | None:
    """Show the pairs of sources; if there are more than MOST_PAIRS, only neighbors in the ranking."""
    if not run.comparisons:
        return None
    following = {(first.name, second.name) for first, second in pairwise(run.sources)}
    whole = len(run.comparisons) <= MOST_PAIRS
    rows = tuple(
        (
            f"{named(pair.first)} over {named(pair.second)}",
            f"{nats(pair.difference_nats, signed=True)}{'' if pair.number == 'score' else ' (tr M)'}",
            interval(pair.interval_95, run.budget),
            probability(pair.p_holm),
            "yes" if pair.established else "no",
            _needed(pair.queries_needed_80),
            _paired(pair.hardness, partial(fraction, decimals=2)),
            _paired(pair.outscoring, points),
            count(pair.n_shared_queries),
        )
        for pair in run.comparisons
        if whole or (pair.first, pair.second) in following
    )
    which = "" if whole else f"; neighbors in the ranking, of {count(len(run.comparisons))} pairs in report.json"
    heads = ("difference (nats)", "95 % CI", "Holm p")
    columns = (
        foreign("pair"),
        *map(number, heads),
        text("significant"),
        number("queries for 80 %"),
        wrapped("hardness"),
        wrapped("outscoring"),
        number("shared queries"),
    )
    return Section(
        anchor="pairs",
        link="Pairs",
        title="Differences between sources",
        paragraphs=(pairs_sentence(run),),
        tables=(Table(caption=f"Pairs of sources, the higher score first{which}", columns=columns, rows=rows),),
        terms=terms("difference", "95 % CI", "Holm p", "queries for 80 %", "hardness, outscoring of a pair"),
    )


def _paired(item: PairedDifference | None, write: Callable[[float | None], str]) -> str:
    return "–" if item is None else with_interval(item.value, item.interval_95, write)


def pairs_sentence(run: Run) -> str:
    """How many differences are significant, and how many queries the others would need."""
    n, tied = len(run.comparisons), [pair for pair in run.comparisons if not pair.established]
    if not tied:
        return "The difference is significant." if n == 1 else f"All {count(n)} differences are significant."
    needed = sorted(pair.queries_needed_80 for pair in tied if pair.queries_needed_80 is not None)
    several = len(tied) == n
    some = "The difference is not significant" if n == 1 else f"None of the {count(n)} differences is significant"
    first = some if several else f"{count(n - len(tied))} of {count(n)} differences are significant (Holm)"
    if not needed:
        return f"{first}."
    low, high = (_needed(number) for number in (needed[0], needed[-1]))
    span = f"about {low} to {high}" if low != high else f"about {low}"
    subject = "" if several else "the others "
    return f"{first}; {subject}would take {span} queries to find with 80 % power."


def _needed(number: int | None) -> str:
    if number is None:
        return "–"
    return f"over {count(MANY_QUERIES)}" if number > MANY_QUERIES else count(rounded(number))
