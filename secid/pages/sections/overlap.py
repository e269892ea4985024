"""Show the overlap of pairs of sources."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

from secid.pages.glossary import terms
from secid.pages.page import MAX_PAIRS, Section, Table, foreign, number
from secid.pages.text import count, fraction, named, percent
from secid.results import Overlap, Run
from secid.results.check import Check


def overlap_section(_: Run | Check, overlaps: Sequence[Overlap]) -> Section | None:
    """Show the overlap of up to MAX_PAIRS pairs, those with the most negatives in common. None without a pair."""
    if not overlaps:
        return None
    shown, which = overlaps, ""
    if len(overlaps) > MAX_PAIRS:
        shown = nlargest(MAX_PAIRS, overlaps, key=lambda item: item.negative_jaccard_mean or 0.0)
        which = f"; the {MAX_PAIRS} with the most negatives in common, of {count(len(overlaps))} in the JSON report"
    rows = tuple(
        (
            f"{named(item.first)} and {named(item.second)}",
            percent(item.shared_query_fraction),
            percent(item.shared_document_fraction),
            fraction(item.negative_jaccard_mean),
        )
        for item in shown
    )
    head = ("shared queries", "shared documents", "same negatives")
    table = Table(
        caption=f"Overlap of pairs of sources{which}", columns=(foreign("pair"), *map(number, head)), rows=rows
    )
    return Section(
        anchor="overlaps", title="What the sources share", tables=(table,), terms=terms("shared", "same negatives")
    )
