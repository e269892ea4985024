"""Labelled positives that other rows of a batch bring as negatives, by batch size."""

from __future__ import annotations

from secid.pages.glossary import terms
from secid.pages.numbers import count, percent
from secid.pages.page import Section, Table, foreign, number
from secid.pages.sanitize import plain
from secid.results import InBatch, Run

SHOWN_SIZES = (32, 128, 512, 2_048, 8_192, 32_768)


def in_batch_section(run: Run) -> Section | None:
    """A row a source, a column a batch size; None for a run without."""
    if not run.in_batch:
        return None
    sizes = [
        size for size in SHOWN_SIZES if any(size == part.batch_size for item in run.in_batch for part in item.sizes)
    ]
    rows = tuple(
        (plain(item.source), _largest(item), *(_share(item, size) for size in sizes), percent(item.flagged_share))
        for item in run.in_batch
    )
    heads = ("largest batch below 1 %", *(f"affected at {count(size)}" for size in sizes), "flagged in batch")
    table = Table(
        caption="False negatives from other rows of a batch",
        columns=(foreign("source"), *map(number, heads)),
        rows=rows,
    )
    return Section(
        anchor="in-batch",
        link="Batches",
        title="False negatives within a batch",
        paragraphs=("Labels are incomplete, so the shares affected are lower bounds.",),
        tables=(table,),
        terms=terms("largest batch below 1 %", "affected", "flagged in batch"),
    )


def _largest(item: InBatch) -> str:
    if item.largest_batch is None:
        return "none"
    return f"all {count(item.n_rows)} rows" if item.largest_batch == item.n_rows else count(item.largest_batch)


def _share(item: InBatch, size: int) -> str:
    return percent(next((part.affected_share for part in item.sizes if part.batch_size == size), None))
