"""Negatives that are a labelled positive of their query (false_negative) or nearly one (near_copy).

Every (negative, positive of its query) pair is looked at. `Sieve` tells nearly all of them apart without their runs,
and loses none; what passes is compared run by run. Thresholds and what they cost: docs/decisions/near-copies.md.
Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secid.findings.labelled import RunPositives, StoredPositives
from secid.findings.normal_form import EMPTY_FORM, Flags, FormKeys, Index
from secid.findings.passage_facts import KEPT_EVERY, PassageFacts, QueryFacts
from secid.findings.runs import RunSets, distinct_per_text, kept_of, n_set, n_shared, runs_of, short_keys, spread
from secid.pool import PlannedSource
from secid.pool.texts import TextStore, pieces

CONTAINED = 0.8
"""Share of a text's distinct runs that occur in the other one, from which it is a copy. Source: METHOD 14."""
ROUNDING = 1e-9
LEAST_RUNS = 2
"""Distinct runs below which a negative is too short for sharing them to mean anything; then only equal forms count.
Two are six words in a row, or eleven characters of a script without spaces, of a positive of the very query."""
LEAST_WHOLE_RUNS = 3
"""The same for a positive that a negative holds, since a question may be the start of another one; and for what a
baseline keeps of the runs, since a quarter of them says less."""
PAIRS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 1 << 22
"""Bytes of the texts of pairs that are compared run by run at once: their runs take about 30 times as much."""
KEPT_BITS = np.uint64(0x1111111111111111)
"""Bits of a sieve that the kept runs can set: every fourth, as their keys are divisible by KEPT_EVERY."""


class Pairs(NamedTuple):
    """Triplet of each pair, its negative, and its positive: a passage's id, or a place among stored positives."""

    triplet: Index
    negative: Index
    positive: Index

    def only(self, kept: Flags | slice) -> Pairs:
        """The pairs that are kept."""
        return Pairs(self.triplet[kept], self.negative[kept], self.positive[kept])


class CopyFinder:
    """Finds copies of labelled positives among negatives.

    known : positives from outside the run, which count as its own do.
    """

    def __init__(
        self,
        queries: QueryFacts,
        facts: PassageFacts,
        passages: TextStore,
        sources: Sequence[PlannedSource],
        known: StoredPositives | None = None,
    ) -> None:
        self._queries, self._facts, self._passages = queries, facts, passages
        self._run = RunPositives.of(queries, facts, sources)
        self._n_slots = n_set(facts.sieve)
        self._known = known
        self._known_sieve = None if known is None else known.sieve(64 * facts.sieve.shape[1])

    def flags(self, source: PlannedSource) -> dict[str, Flags]:
        """(T,) each: false_negative, near_copy. No triplet has both."""
        asked = source.query[source.triplet_record()]
        equal = self._run.hold(self._queries.number[asked], self._facts.number[source.negatives])
        equal &= self._facts.form[source.negatives] != EMPTY_FORM
        near = np.zeros(source.n_triplets, np.bool_)
        if self._known is not None and self._known_sieve is not None:
            self._compare_known(self._known, self._known_sieve, source, asked, equal, near)
        wanted = np.flatnonzero(~equal)
        query = self._queries.number[asked[wanted]]
        starts, counts = self._run.offsets[query], np.diff(self._run.offsets)[query]
        for pairs in _paired(wanted, source.negatives[wanted], starts, counts):
            self._compare_run(pairs._replace(positive=self._run.passages[pairs.positive]), near)
        return {"false_negative": equal, "near_copy": near & ~equal}

    def _compare_run(self, pairs: Pairs, near: Flags) -> None:
        """Marks the triplets whose negative is a near copy of a positive of the run."""
        facts = self._facts
        n_negative, n_positive = facts.n_runs[pairs.negative], facts.n_runs[pairs.positive]
        comparable = facts.unspaced[pairs.negative] == facts.unspaced[pairs.positive]
        comparable &= (n_negative >= LEAST_RUNS) | (n_positive >= LEAST_WHOLE_RUNS)
        pairs, n_negative, n_positive = pairs.only(comparable), n_negative[comparable], n_positive[comparable]
        common = n_set(facts.sieve[pairs.negative] & facts.sieve[pairs.positive])
        may_be = (n_negative >= LEAST_RUNS) & _may_occur(self._n_slots[pairs.negative] - common, n_negative)
        may_be |= (n_positive >= LEAST_WHOLE_RUNS) & _may_occur(self._n_slots[pairs.positive] - common, n_positive)
        pairs = pairs.only(may_be)
        n_bytes = self._passages.lengths[pairs.negative] + self._passages.lengths[pairs.positive]
        for start, stop in pieces(len(pairs.triplet), PAIRS_AT_ONCE, n_bytes, BYTES_AT_ONCE):
            part = pairs.only(slice(start, stop))
            ids, place = np.unique(np.concatenate([part.negative, part.positive]), return_inverse=True)
            sets = _run_sets(self._passages, ids)
            left, right = sets.take(place[: stop - start]), sets.take(place[stop - start :])
            near[part.triplet[_copied(left, right, LEAST_RUNS, LEAST_WHOLE_RUNS)]] = True

    def _compare_known(
        self,
        known: StoredPositives,
        sieve: npt.NDArray[np.uint64],
        source: PlannedSource,
        asked: Index,
        equal: Flags,
        near: Flags,
    ) -> None:
        """Marks the triplets whose negative equals, or is a near copy of, a positive that is stored."""
        facts = self._facts
        starts, counts = known.of_queries(self._queries.form)
        triplets = np.arange(source.n_triplets)
        for pairs in _paired(triplets, source.negatives, starts[asked], counts[asked]):
            equal[pairs.triplet[known.forms[pairs.positive] == facts.form[pairs.negative]]] = True
            n_negative, n_positive = facts.n_kept[pairs.negative], known.runs.sizes[pairs.positive]
            negative, positive = facts.sieve[pairs.negative] & KEPT_BITS, sieve[pairs.positive]
            common = n_set(negative & positive)
            may_be = (n_negative >= LEAST_WHOLE_RUNS) & _may_occur(n_set(negative) - common, n_negative)
            may_be |= (n_positive >= LEAST_WHOLE_RUNS) & _may_occur(n_set(positive) - common, n_positive)
            pairs = pairs.only(may_be & ~equal[pairs.triplet])
            n_bytes = self._passages.lengths[pairs.negative]
            for start, stop in pieces(len(pairs.triplet), PAIRS_AT_ONCE, n_bytes, BYTES_AT_ONCE):
                part = pairs.only(slice(start, stop))
                ids, place = np.unique(part.negative, return_inverse=True)
                left, right = _kept_sets(self._passages, ids).take(place), known.runs.take(part.positive)
                near[part.triplet[_copied(left, right, LEAST_WHOLE_RUNS, LEAST_WHOLE_RUNS)]] = True


def _paired(triplets: Index, negatives: Index, starts: Index, counts: Index) -> Iterator[Pairs]:
    """Each triplet with the positives starts[i] … starts[i] + counts[i] - 1, PAIRS_AT_ONCE or one triplet at a time."""
    for first, last in pieces(len(triplets), PAIRS_AT_ONCE, counts, PAIRS_AT_ONCE):
        n = counts[first:last]
        yield Pairs(
            np.repeat(triplets[first:last], n), np.repeat(negatives[first:last], n), spread(starts[first:last], n)
        )


def _may_occur(n_missing: npt.NDArray[np.int32], n_runs: npt.NDArray[Any]) -> Flags:
    """(n,) False where more runs are missing for certain than a copy may lack.

    n_runs : repeated runs may be counted, which only lets more pass.
    """
    return n_missing <= (1.0 - CONTAINED) * n_runs + ROUNDING


def _copied(left: RunSets, right: RunSets, least_left: int, least_right: int) -> Flags:
    """(n,) CONTAINED of one text's runs occur in the other, where it has enough of them."""
    common = n_shared(left, right)
    left_in_right = (left.sizes >= least_left) & (common >= CONTAINED * left.sizes - ROUNDING)
    return left_in_right | ((right.sizes >= least_right) & (common >= CONTAINED * right.sizes - ROUNDING))


def _run_sets(passages: TextStore, ids: Index) -> RunSets:
    """The distinct runs of these passages."""
    return RunSets(*distinct_per_text(*runs_of(FormKeys.of(passages.packed_of(ids))), len(ids)))


def _kept_sets(passages: TextStore, ids: Index) -> RunSets:
    """The distinct runs of these passages that a baseline would keep."""
    runs, owners = runs_of(FormKeys.of(passages.packed_of(ids)))
    keys = short_keys(runs)
    kept = kept_of(keys, KEPT_EVERY)
    return RunSets(*distinct_per_text(keys[kept], owners[kept], len(ids)))
