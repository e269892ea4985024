"""The part of a source that the settings ask for: a sample, the first negatives, the positives that may be scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, distinct
from secid.pool.group import places
from secid.pool.plan import PlannedSource
from secid.pool.texts import TextStore
from secid.settings import Settings


def restricted(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """The sample of queries and the first K negatives of each record that the settings ask for."""
    keep_record = np.ones(planned.n_records, np.bool_)
    if settings.max_records is not None:
        sample = first_sampled(distinct(planned.query), queries.keys, settings.seed, settings.max_records)
        keep_record = np.isin(planned.query, sample)
    record = planned.triplet_record()
    keep = keep_record[record]
    if settings.first_k is not None:
        keep &= np.arange(planned.n_triplets) - planned.negative_offsets[record] < settings.first_k
    return planned if keep.all() and keep_record.all() else select(planned, keep_record, keep)


def select(
    planned: PlannedSource, keep_record: npt.NDArray[np.bool_], keep_triplet: npt.NDArray[np.bool_]
) -> PlannedSource:
    """The source with some of its records and triplets. keep_record: (R,), keep_triplet: (T,).

    Where records go, so do the blanks of queries without one.
    """
    positive_record = planned.positive_record()
    keep_positive = keep_record[positive_record]
    keep_triplet = keep_triplet & keep_record[planned.triplet_record()]

    def offsets(groups: Index) -> Index:
        counts = np.bincount(groups, minlength=planned.n_records)[keep_record]
        return np.concatenate([[0], np.cumsum(counts)])

    return replace(
        planned,
        query=planned.query[keep_record],
        slice=planned.slice[keep_record],
        line=planned.line[keep_record],
        file=planned.file[keep_record],
        positives=planned.positives[keep_positive],
        positive_offsets=offsets(positive_record[keep_positive]),
        negatives=planned.negatives[keep_triplet],
        negative_offsets=offsets(planned.triplet_record()[keep_triplet]),
        copies=planned.copies[keep_triplet],
        negative_line=planned.negative_line[keep_triplet],
        negative_file=planned.negative_file[keep_triplet],
        negative_ordinal=planned.negative_ordinal[keep_triplet],
        listed=np.where(
            planned.listed >= 0, places(np.flatnonzero(keep_triplet), planned.n_triplets)[planned.listed], -1
        ),
        findings=planned.findings[keep_triplet],
        positive_findings=planned.positive_findings[keep_positive],
        blanks=planned.blanks
        if keep_record.all()
        else planned.blanks.only(np.isin(planned.blanks.query, planned.query[keep_record])),
    )


def sample_order(keys: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint64]:
    """(n,) a uniform 64-bit number for each text key and seed: sampling takes the smallest.

    The same text gets the same number in every source, file and run, so samples are nested and
    paired. The mixing is that of splitmix64. Source: METHOD 8, DESIGN 5.
    """
    with np.errstate(over="ignore"):
        mixed = np.ascontiguousarray(keys[:, :8]).view(np.uint64).ravel() + np.uint64(seed) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def content_of(*keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return (n,) a hash of the texts' content, by which equal scores are ordered.

    keys : (n, 16) text keys each, such as those of the negatives, or of negatives and queries.
    """
    mixed = sample_order(keys[0], 0)
    for place, part in enumerate(keys[1:], start=1):
        mixed ^= sample_order(part, place)
    return mixed


def first_sampled(ids: Index, keys: npt.NDArray[np.uint8], seed: int, n: int | None = None) -> Index:
    """The n of these texts that every sample takes first, all where None, in its order. keys: of every id."""
    return ids[np.argsort(sample_order(keys[ids], seed), kind="stable")[:n]]


def key_ranks(keys: npt.NDArray[np.uint8]) -> Index:
    """(n,) rank of each text by its key: an order that no file or row order changes."""
    high, low = np.ascontiguousarray(keys).view(">u8").astype(np.uint64).T
    order = np.argsort(high)
    if (high[order[1:]] == high[order[:-1]]).any():  # 8 bytes hardly ever agree where 16 do not
        order = np.lexsort((low, high))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


def with_scorable_positives(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """Only the positives that the policy may score, so that no other is encoded; with objectives all of them, the
    scored one first. Source: METHOD 9.
    """
    starts, counts = planned.positive_offsets[:-1], np.diff(planned.positive_offsets)
    if settings.positives == "first":
        chosen = starts
    elif settings.positives == "random":
        draws = sample_order(queries.keys[planned.query], settings.seed + 1)  # + 1: not the order of samples
        chosen = starts + (draws % counts.astype(np.uint64)).astype(np.int64)
    else:
        return planned
    if settings.objectives:
        other = np.ones(len(planned.positives), np.bool_)
        other[chosen] = False
        order = np.lexsort((other, planned.positive_record()))
        return _with_positives(planned, order, planned.positive_offsets)
    return _with_positives(planned, chosen, np.arange(planned.n_records + 1, dtype=np.int64))


def _with_positives(planned: PlannedSource, places: Index, offsets: Index) -> PlannedSource:
    return replace(
        planned,
        positives=planned.positives[places],
        positive_findings=planned.positive_findings[places],
        positive_offsets=offsets,
    )
