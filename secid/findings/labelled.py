"""Labelled positives by query: those of the run, those that a baseline keeps, and where the run labels one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.arrays import among
from secid.findings.normal_form import EMPTY_FORM, Flags, FormKeys, Index, Keys
from secid.findings.passage_facts import CHUNK_TEXTS, KEPT_EVERY, PassageFacts, QueryFacts
from secid.findings.runs import RunSets, Sieve, distinct_per_text, kept_of, runs_of, short_keys
from secid.pool import PlannedSource
from secid.pool.texts import TextStore, pieces

STORED = "positive_"
"""Names of the arrays in a baseline begin with this."""


@dataclass(frozen=True)
class RunPositives:
    """The labelled positives of a run, each normal form of a query's once.

    keys : sorted, query number * n_forms + form number.   passages : an id of each.   offsets : those of query
    number q lie at offsets[q:q+2].
    """

    keys: Index
    passages: Index
    offsets: Index
    n_forms: int

    @staticmethod
    def of(queries: QueryFacts, passages: PassageFacts, sources: Sequence[PlannedSource]) -> RunPositives:
        """Those of all records of all sources."""
        asked = [np.repeat(item.query, np.diff(item.positive_offsets)) for item in sources]
        query = queries.number[np.concatenate([np.zeros(0, np.int64), *asked])]
        ids = np.concatenate([np.zeros(0, np.int64), *(item.positives for item in sources)])
        n_forms = max(1, passages.n_forms)
        keys, first = np.unique(query * n_forms + passages.number[ids], return_index=True)
        offsets = np.searchsorted(keys, np.arange(queries.n_forms + 1) * n_forms)
        return RunPositives(keys, ids[first], offsets, n_forms)

    def hold(self, query: Index, form: Index) -> Flags:
        """(n,) the form with this number is a positive of the query with this number."""
        return among(query * self.n_forms + form, self.keys)


@dataclass(frozen=True)
class StoredPositives:
    """Labelled positives that a baseline or a run folder keeps, without their texts.

    queries : (Q,) uint64 hash of each query's normal form, sorted.   forms : (N,) uint64 hash of each positive's
    normal form; those of query q lie at offsets[q:q+2].   runs : one of KEPT_EVERY runs of each positive, as 32 bits.
    """

    queries: Keys
    offsets: Index
    forms: Keys
    runs: RunSets

    def sieve(self, n_slots: int) -> npt.NDArray[np.uint64]:
        """(N, n_slots / 64) slots that the kept runs fill."""
        sieve = Sieve(len(self.forms), n_slots)
        for start, stop in pieces(len(self.forms), CHUNK_TEXTS):
            offsets = self.runs.offsets[start : stop + 1]
            owners = np.repeat(np.arange(stop - start), np.diff(offsets))
            sieve.fill(start, stop, self.runs.keys[offsets[0] : offsets[-1]].astype(np.uint32, copy=False), owners)
        return sieve.bits

    def of_queries(self, forms: Keys) -> tuple[Index, Index]:
        """First positive of each of these queries, and (n,) how many each has: 0 for a query that is not stored."""
        place = np.minimum(np.searchsorted(self.queries, forms), max(0, len(self.queries) - 1))
        stored = among(forms, self.queries)
        starts = np.where(stored, np.append(self.offsets, 0)[place], 0)
        return starts, np.where(stored, np.append(self.offsets, 0)[place + 1] - starts, 0)


def stored_positives(
    queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource]
) -> dict[str, npt.NDArray[Any]]:
    """The labelled positives of some sources as arrays for a baseline; `restored` is the inverse.

    positive_queries (Q,) uint64, positive_offsets (Q + 1,) int64, positive_forms (N,) uint64,
    positive_run_offsets (N + 1,) int64, positive_runs uint32. The order of sources and records does not matter.
    Positives without letters and digits are left out: nothing equals them.
    """
    asked = [np.repeat(item.query, np.diff(item.positive_offsets)) for item in sources]
    query_ids = np.concatenate([np.zeros(0, np.int64), *asked])
    ids, number = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(item.positives for item in sources)]), return_inverse=True
    )
    used, asked_number = np.unique(query_ids, return_inverse=True)
    query_form = _hashes(queries, used)[asked_number]
    forms, runs = _kept_runs(passages, ids)
    order = np.lexsort((forms[number], query_form))
    order = order[forms[number][order] != EMPTY_FORM]
    query_form, form = query_form[order], forms[number][order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (query_form[1:] != query_form[:-1]) | (form[1:] != form[:-1])
    kept = runs.take(number[order][new])
    names, first = np.unique(query_form[new], return_index=True)
    return {
        f"{STORED}queries": names,
        f"{STORED}offsets": np.append(first, int(new.sum())).astype(np.int64),
        f"{STORED}forms": form[new],
        f"{STORED}run_offsets": kept.offsets,
        f"{STORED}runs": kept.keys.astype(np.uint32, copy=False),
    }


def restored(arrays: Mapping[str, npt.NDArray[Any]]) -> StoredPositives:
    """The positives that `stored_positives` made arrays of.

    Raises KeyError for a missing array, and ValueError where the arrays do not fit together.
    """
    queries, offsets, forms, run_offsets, runs = (
        arrays[STORED + name] for name in ("queries", "offsets", "forms", "run_offsets", "runs")
    )
    offsets, run_offsets = offsets.astype(np.int64), run_offsets.astype(np.int64)
    if not (_fit(offsets, len(queries), len(forms)) and _fit(run_offsets, len(forms), len(runs))):
        raise ValueError("the stored positives do not fit together")
    if (queries[1:] <= queries[:-1]).any():
        raise ValueError("the queries of the stored positives are not in order")
    return StoredPositives(
        queries.astype(np.uint64), offsets, forms.astype(np.uint64), RunSets(runs.astype(np.uint32), run_offsets)
    )


def _hashes(store: TextStore, ids: Index) -> Keys:
    """(n,) hash of the normal form of each of these texts."""
    parts = [FormKeys.of(store.packed_of(ids[a:b])).hashes() for a, b in _chunks(store, ids)]
    return np.concatenate([np.zeros(0, np.uint64), *parts])


def _kept_runs(store: TextStore, ids: Index) -> tuple[Keys, RunSets]:
    """Hash of each text's normal form, and the runs of it that are kept."""
    hashes: list[Keys] = [np.zeros(0, np.uint64)]
    keys: list[npt.NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
    sizes: list[Index] = [np.zeros(0, np.int64)]
    for start, stop in _chunks(store, ids):
        forms = FormKeys.of(store.packed_of(ids[start:stop]))
        runs, owners = runs_of(forms)
        short = short_keys(runs)
        kept = kept_of(short, KEPT_EVERY)
        distinct, offsets = distinct_per_text(short[kept], owners[kept], stop - start)
        hashes.append(forms.hashes())
        keys.append(distinct)
        sizes.append(np.diff(offsets))
    return np.concatenate(hashes), RunSets(
        np.concatenate(keys), np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    )


def _chunks(store: TextStore, ids: Index) -> list[tuple[int, int]]:
    return list(pieces(len(ids), CHUNK_TEXTS, store.lengths[ids]))


def _fit(offsets: Index, n: int, n_values: int) -> bool:
    """Offsets of n lists that n_values values are cut into."""
    return len(offsets) == n + 1 and offsets[0] == 0 and offsets[-1] == n_values and bool((np.diff(offsets) >= 0).all())
