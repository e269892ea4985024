"""Show how often other rows of a batch bring a labelled positive as a negative, by batch size."""

from __future__ import annotations

from collections.abc import Sequence

from secid.analyses.in_batch import InBatch
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import count, percent, plain, plural
from secid.results import Run


def in_batch_section(run: Run, items: Sequence[InBatch]) -> Section:
    """Show a table with a row for each source and a column for each batch size."""
    sizes = sorted({part.batch_size for item in items for part in item.sizes})
    rows = tuple(
        (
            plain(item.source),
            count(item.n_rows),
            _largest(item),
            *(_share(item, size) for size in sizes),
            _flagged(item),
        )
        for item in items
    )
    heads = ("rows", "largest batch below 1 %", *(f"affected at {count(size)}" for size in sizes))
    table = Table(
        caption="False negatives from other rows of a batch",
        columns=(foreign("source"), *map(number, heads), wrapped("flagged in batch")),
        rows=rows,
    )
    return Section(
        anchor="in-batch",
        title="False negatives within a batch",
        paragraphs=(f"Labels are incomplete, so the affected shares are lower bounds.{_of_sample(run, items)}",),
        tables=(table,),
        terms=terms("largest batch below 1 %", "affected", "flagged in batch"),
    )


def _of_sample(run: Run, items: Sequence[InBatch]) -> str:
    """Return a sentence that the rows are a sample, if the encoder chose positives only for a sample; "" otherwise."""
    n_rows = {item.source: item.n_rows for item in items}
    rows = {source.name: source.rows for source in run.sources}
    sampled = any(item.n_not_sampled and n_rows.get(name) == item.n_records for name, item in rows.items())
    return " Batches have only sampled rows, because the encoder chose their positives." if sampled else ""


def _flagged(item: InBatch) -> str:
    ends = item.flagged_interval_95
    if ends is None:
        return percent(item.flagged_share)
    of = f"{percent(ends[0])} to {percent(ends[1])}; {plural(item.n_compared, 'pair')}"
    return f"{percent(item.flagged_share)}\n({of})"


def _largest(item: InBatch) -> str:
    if item.largest_batch is None:
        return "none"
    return f"all {count(item.n_rows)} rows" if item.largest_batch == item.n_rows else count(item.largest_batch)


def _share(item: InBatch, size: int) -> str:
    return percent(next((part.affected_share for part in item.sizes if part.batch_size == size), None))
