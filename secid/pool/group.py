"""Rows of equal (query, first positive) to records, equal negatives to one."""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, distinct, narrow
from secid.pool.collect import Rows, place_of
from secid.pool.plan import Blanks, PlannedSource, Tally


def grouped(rows: Rows, query_ids: Index, passage_ids: Index, query_keys: npt.NDArray[np.uint8]) -> PlannedSource:
    """Rows of equal (query, first positive) become one record; its texts are kept once, in order."""
    query = query_ids[_int64(rows.query)]
    n_rows = len(query)
    positives, positive_row = passage_ids[_int64(rows.positives)], np.repeat(np.arange(n_rows), rows.n_positives)
    negatives, negative_row = passage_ids[_int64(rows.negatives)], np.repeat(np.arange(n_rows), rows.n_negatives)
    first_positive = positives[_starts(_int64(rows.n_positives))]
    n_passages = int(passage_ids.max(initial=0)) + 1
    first_row, record = _numbered(query * n_passages + first_positive)
    kept_positive, positive_offsets, _, _ = _distinct_within(
        record[positive_row], positives, len(first_row), n_passages
    )
    kept_negative, negative_offsets, copies, listed = _distinct_within(
        record[negative_row], negatives, len(first_row), n_passages
    )
    dropped = rows.dropped + Counter(exact_repeat=len(negatives) - len(kept_negative))
    line, file = _int64(rows.line), _int64(rows.file)
    row, slices = negative_row[kept_negative], _int64(rows.slice)
    return PlannedSource(
        name=rows.name,
        source=rows.source,
        tally=Tally(
            rows.n_used + rows.skipped.total(),
            rows.n_used,
            len(first_row),
            dict(sorted(rows.skipped.items())),
            {reason: count for reason, count in sorted(dropped.items()) if count},
            tuple(sorted((example for some in rows.examples.values() for example in some), key=place_of)),
            len(distinct(record[slices != slices[first_row][record]])),
            len(distinct(negative_row)) - len(distinct(negative_row[kept_negative])),
        ),
        n_queries_read=len(np.unique(query)),
        query=query[first_row],
        slice=slices[first_row].astype(np.int32),
        line=line[first_row],
        file=file[first_row].astype(np.int32),
        positives=positives[kept_positive],
        positive_offsets=positive_offsets,
        negatives=negatives[kept_negative],
        negative_offsets=negative_offsets,
        copies=copies.astype(np.int32),
        negative_line=narrow(line[row]),
        negative_file=file[row].astype(np.int32),
        negative_ordinal=(kept_negative - _starts(_int64(rows.n_negatives))[row]).astype(np.int32),
        listed=narrow(listed),
        findings=np.zeros(len(kept_negative), np.uint32),
        positive_findings=np.zeros(len(kept_positive), np.uint16),
        excess={},
        blanks=_blanks(rows, query_ids, query_keys),
    )


def _blanks(rows: Rows, query_ids: Index, query_keys: npt.NDArray[np.uint8]) -> Blanks:
    query = query_ids[_int64(rows.blank_query)]
    count, line, file = (_int64(values) for values in (rows.blank_count, rows.blank_line, rows.blank_file))
    return Blanks(query, query_keys[query], count, line, file.astype(np.int32))


def _int64(values: array[int]) -> Index:
    return np.array(values, dtype=np.int64)


def _starts(counts: Index) -> Index:
    return np.cumsum(counts) - counts


def _numbered(keys: Index) -> tuple[Index, Index]:
    """Place of the first of each distinct key in order of appearance, and each key's number."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return first[order], rank[inverse]


def _distinct_within(group: Index, ids: Index, n_groups: int, n_ids: int) -> tuple[Index, Index, Index, Index]:
    """Places of the first of each (group, id), by group and then appearance; offsets per group; counts;
    for every given (group, id) which of the kept ones it is.
    """
    _, first, inverse, counts = np.unique(
        group * n_ids + ids, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, group[first]))
    first_places = first[order]
    offsets = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(group[first_places], minlength=n_groups), out=offsets[1:])
    return first_places, offsets, counts[order], places(order, len(order))[inverse]


def places(used: Index, n: int) -> Index:
    """(n,) place of each id among the sorted distinct ids in use, -1 for the others."""
    result = np.full(n, -1, np.int64)
    result[used] = np.arange(len(used))
    return result
