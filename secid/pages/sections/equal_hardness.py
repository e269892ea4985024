"""Compare sources on negatives with equal margins, and show which sources are not ranked."""

from __future__ import annotations

from collections.abc import Mapping

from secid.analyses.equal_hardness import FEW_SHARED, MIN_RANKED_HARDNESS, EqualHardness, EqualMargins
from secid.pages.glossary import terms
from secid.pages.page import MAX_PAIRS, Section, Table, foreign, number, text, wrapped
from secid.pages.text import UNKNOWN_INTERVAL, count, named, percent, plain, signed, with_interval
from secid.results import Run

UNRANKED_REASONS: Mapping[str, str] = {
    "too_easy": f"it is as easy as random passages (hardness below {MIN_RANKED_HARDNESS:g}); a high score does not "
    "recommend it",
    FEW_SHARED: "it shares too few queries with every other source, so its score cannot be compared with theirs",
    "apart": "too few of its negatives are as hard as those of any other source; a high score does not recommend it",
}
"""Reasons why a source is not ranked."""


def equal_hardness_section(run: Run, result: EqualHardness) -> Section | None:
    """Show the difference between the mean weights of each pair at equal margins. None without a pair."""
    if not result.pairs:
        return None
    shown = result.pairs[:MAX_PAIRS]
    rows = tuple((*_names(pair), _difference(pair), percent(pair.overlap), count(pair.n_queries)) for pair in shown)
    which = f"; the first {count(MAX_PAIRS)} pairs of {count(len(result.pairs))} in report.json"
    caption = (
        f"Mean weight of the first source minus that of the second{which if len(shown) < len(result.pairs) else ''}"
    )
    return Section(
        anchor="equal-hardness",
        title="Differences at equal hardness",
        paragraphs=(pairs_line(result),),
        tables=(
            Table(
                caption=caption,
                columns=(foreign("pair"), text("higher"), wrapped("difference"), number("overlap"), number("queries")),
                rows=rows,
            ),
        ),
        terms=terms("at equal hardness", "overlap of margins", "95 % CI"),
    )


def pairs_line(result: EqualHardness) -> str:
    """Return sentences on the number of pairs that could be compared, and that differ."""
    compared = [pair for pair in result.pairs if pair.difference is not None]
    differ = sum(pair.established for pair in compared)
    partial = "" if len(compared) == len(result.pairs) else " The others have too few negatives with equal margins."
    n_compared = f"{count(len(compared))} of {count(len(result.pairs))}"
    return f"Pairs compared: {n_compared}; significant (Holm): {count(differ)}.{partial}"


def _names(pair: EqualMargins) -> tuple[str, str]:
    higher = "–"
    if pair.established and pair.difference is not None:
        higher = named(pair.first if pair.difference > 0 else pair.second)
    return f"{named(pair.first)}, {named(pair.second)}", higher


def _difference(pair: EqualMargins) -> str:
    if pair.difference is None:
        return "–"
    if pair.interval_95 is None:
        return f"{signed(pair.difference)}\n({UNKNOWN_INTERVAL})"
    return with_interval(pair.difference, pair.interval_95, signed)


def unranked_line(name: str, reason: str) -> str:
    """Return a sentence on why a source is not ranked."""
    return f"{named(name)} is not ranked: {UNRANKED_REASONS.get(reason) or plain(reason)}."
