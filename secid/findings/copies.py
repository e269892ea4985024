"""Find negatives that are a labelled positive of their query (false_negative), or nearly one (near_copy).

Texts are compared by their normal forms and by their runs. A run is a window of words, or of characters in scripts
without spaces. Every (negative, positive of its query) pair is compared run by run. For the cost of the thresholds, see
docs/decisions/near-copies.md. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index, distinct, first_in_row, is_known
from secid.arrays import pairs as pair_codes
from secid.pool import Plan, PlannedSource
from secid.pool.normal_form import EMPTY_FORM, FORMS_AT_ONCE, FormKeys, Keys, TextForms, form_columns, text_forms
from secid.pool.texts import TextStore, batch_ranges
from secid.pool.workers import Workers

RUN_WORDS = 5
"""Number of words in a run. Texts rarely share five words in a row without copying. Source: METHOD 14."""
RUN_CHARACTERS = 10
"""Number of characters in a run in scripts without spaces, where a word has about two. Source: METHOD 14."""
MIN_SHARED_FRACTION = 0.8
"""Minimum share of a copy's distinct runs that occur in the other text. Source: METHOD 14."""
SHARE_ROUNDING = 1e-9
MIN_RUNS = 2
"""Minimum number of distinct runs in a negative to compare. A shorter negative is flagged only if its form equals a
positive's. Two runs are six consecutive words, or eleven consecutive characters in a script without spaces."""
MIN_POSITIVE_RUNS = 3
"""Minimum number of distinct runs in a positive that may count as contained in a negative, because a question may be
the start of another one. Also the minimum number of kept runs in a negative to compare with a baseline, because a
quarter of the runs is weaker evidence."""
KEPT_EVERY = 4
"""A baseline keeps one in KEPT_EVERY runs of a positive, chosen by their keys, to save space."""
COMPARED_PAIRS_AT_ONCE = 1 << 16
LABELS_AT_ONCE = 1 << 10
"""Number of labels to compare at once. In most data, the first records show whether queries have a second positive."""
BYTES_AT_ONCE = 1 << 22
"""Maximum bytes of texts in the pairs to compare at once. Their runs take about 30 times as much memory."""
RUNS_AT_ONCE = 1 << 20
"""Maximum number of runs in the pairs to compare run by run at once."""
UNION_BITS = 22
"""Logarithm of the number of flags for the runs of a part's positives. A part has at most some 600,000 runs."""
ARRAY_PREFIX = "positive_"
"""Prefix of the names of the arrays in a baseline."""
MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier for hashing: 2^64 divided by the golden ratio."""
MIXING_SHIFT = np.uint64(29)
OWNER_SHIFT = np.uint64(32)


def key_windows(keys: Keys, counts: Index, width: int) -> tuple[Keys, Index]:
    """Return the keys of all windows of `width` keys, and the text number of each. Shorter texts have no window.

    keys : keys of all texts in order.   counts : (n,) number of keys in each text.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    if width == 1:
        return keys, owners
    n = max(0, len(keys) - width + 1)
    parts = keys ^ (keys >> MIXING_SHIFT)
    mixed = np.zeros(n, np.uint64)
    for place in range(width):  # a polynomial hash modulo 2^64
        mixed *= MIXER
        mixed += parts[place : place + n]
    whole = owners[:n] == owners[width - 1 :] if n else np.zeros(0, np.bool_)
    return mixed[whole], owners[:n][whole]


@dataclass(frozen=True)
class RunSets:
    """The distinct runs of n texts. Text i has the runs keys[offsets[i]:offsets[i+1]], sorted uint32."""

    keys: npt.NDArray[np.uint32]
    offsets: Index

    @staticmethod
    def of(keys: npt.NDArray[np.uint32], owners: Index, n: int) -> RunSets:
        """Return the distinct runs with these keys. owners: text number of each key, below n."""
        ordered = np.sort(_with_owner(keys, owners))
        ordered = ordered[np.diff(ordered, prepend=~ordered[:1]) != 0]
        offsets = np.searchsorted(ordered, np.arange(n + 1, dtype=np.uint64) << OWNER_SHIFT)
        return RunSets(ordered.astype(np.uint32), offsets)

    @property
    def sizes(self) -> Index:
        """Return (n,) the number of distinct runs of each text."""
        return np.diff(self.offsets)

    def take(self, ids: Index) -> RunSets:
        """Return the sets with these ids, in this order."""
        sizes = self.sizes[ids]
        return RunSets(self.keys[ranges_of(self.offsets[ids], sizes)], np.concatenate([[0], np.cumsum(sizes)]))

    def keys_with_owner(self) -> Keys:
        """Return each run, with the number of its set in the upper half of its 64 bits."""
        return _with_owner(self.keys, np.repeat(np.arange(len(self.offsets) - 1), self.sizes))


def _with_owner(keys: npt.NDArray[np.uint32], owners: Index) -> Keys:
    return owners.astype(np.uint64) << OWNER_SHIFT | keys


def run_sets(forms: FormKeys, every: int = 1) -> RunSets:
    """Return the distinct runs of words, or of characters if `unspaced`. every: keep one run in `every`, by its key."""
    keys, owners = _runs(forms)
    sampled = keys % np.uint32(every) == 0
    return RunSets.of(keys[sampled], owners[sampled], len(forms))


def _runs(forms: FormKeys) -> tuple[npt.NDArray[np.uint32], Index]:
    """Return (key, text number) of each run as two arrays."""
    spaced, counts = forms.words, forms.n_words
    if forms.unspaced.any():
        spaced, counts = spaced[np.repeat(~forms.unspaced, counts)], np.where(forms.unspaced, 0, counts)
    words = key_windows(spaced, counts, RUN_WORDS)
    characters = key_windows(forms.characters, forms.n_characters, RUN_CHARACTERS)
    # The upper half of a key depends on all characters of the run.
    return (np.concatenate([words[0], characters[0]]) >> OWNER_SHIFT).astype(np.uint32), np.concatenate(
        [words[1], characters[1]]
    )


@dataclass(frozen=True)
class RunBits:
    """A 256-bit summary of each text's runs, which rules out most pairs that are not near copies.

    bits : (n, 4) uint64.   n_runs : (n,) number of runs, including repeated ones.
    """

    bits: Keys
    n_runs: npt.NDArray[np.int32]

    @staticmethod
    def of(forms: FormKeys) -> RunBits:
        keys, owners = _runs(forms)
        bits = np.zeros((len(forms), 256), np.bool_)
        bits.reshape(-1)[(owners << 8) + (keys >> np.uint32(24))] = True
        n_runs = np.where(forms.unspaced, forms.n_characters - RUN_CHARACTERS, forms.n_words - RUN_WORDS) + 1
        return RunBits(np.packbits(bits, axis=1).view(np.uint64), np.maximum(n_runs, 0).astype(np.int32))

    def may_be_near(self, negatives: Index, positives: Index) -> Flags:
        """Return (n,) flags, which are False only for pairs that `near_copies` does not flag.

        A pair is ruled out if both of its texts have too few runs, or too many bits that the other text lacks.
        """
        one, other = self.bits[negatives], self.bits[positives]
        return self._may_lie_in(other, negatives, MIN_RUNS) | self._may_lie_in(one, positives, MIN_POSITIVE_RUNS)

    def _may_lie_in(self, others: Keys, ids: Index, min_runs: int) -> Flags:
        n_lacking = np.bitwise_count(self.bits[ids] & ~others).sum(axis=1)
        flags: Flags = n_lacking <= (1 - MIN_SHARED_FRACTION) * self.n_runs[ids] + SHARE_ROUNDING
        return flags & (self.n_runs[ids] >= min_runs)


def forms_and_runs(store: TextStore) -> tuple[TextForms, RunBits]:
    """Return the normal forms of all texts of a store, and the bits of their runs, by id. Each text is read once."""
    columns = []
    for part in [(0, 0), *batch_ranges(len(store), FORMS_AT_ONCE, store.lengths)]:
        forms = FormKeys.of(store.packed(*part))
        runs = RunBits.of(forms)
        columns.append({**form_columns(forms), "bits": runs.bits, "n_runs": runs.n_runs})
    joined = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return TextForms.of(joined["form"], joined["empty"], joined["loop"]), RunBits(joined["bits"], joined["n_runs"])


def ranges_of(starts: Index, counts: Index) -> Index:
    """Return the concatenated ranges starts[i] … starts[i] + counts[i] - 1."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def n_shared(left: RunSets, right: RunSets) -> Index:
    """Return (n,), the number of runs that set i of `left` shares with set i of `right`."""
    ordered = np.sort(np.concatenate([left.keys_with_owner(), right.keys_with_owner()]))
    twice = ordered[1:][ordered[1:] == ordered[:-1]]  # keys are distinct within a set, so one is from each side
    return np.bincount((twice >> OWNER_SHIFT).astype(np.int64), minlength=len(left.offsets) - 1)


def near_copies(negatives: RunSets, positives: RunSets, min_runs: int = MIN_RUNS) -> Flags:
    """Return (n,) flags of pairs in which one text contains at least MIN_SHARED_FRACTION of the other's runs.

    min_runs : minimum number of runs in a negative to look up in its positive.
    """
    common = n_shared(negatives, positives)
    flags: Flags = (negatives.sizes >= min_runs) & (common >= MIN_SHARED_FRACTION * negatives.sizes - SHARE_ROUNDING)
    flags |= (positives.sizes >= MIN_POSITIVE_RUNS) & (common >= MIN_SHARED_FRACTION * positives.sizes - SHARE_ROUNDING)
    return flags


def has_one_positive(plan: Plan) -> bool:
    """Return whether no query form has a second labelled positive. A copy of the first, even cut, does not count."""
    passages = plan.passages
    query, passage = np.divmod(plan.known_positives, max(1, len(passages)))
    query = text_forms(plan.queries).number[query]
    order = np.lexsort((-passages.lengths[passage].astype(np.int64), query))  # the longest label of each query first
    query, passage = query[order], passage[order]
    first = np.searchsorted(query, query)
    others = np.flatnonzero(first != np.arange(len(first)))
    longest, other = passage[first[others]], passage[others]
    n_bytes = passages.lengths[longest].astype(np.int64) + passages.lengths[other]
    for start, stop in batch_ranges(len(others), LABELS_AT_ONCE, n_bytes, BYTES_AT_ONCE):
        left, right = (FormKeys.of(passages.packed_of(ids[start:stop])) for ids in (other, longest))
        if not (near_copies(run_sets(left), run_sets(right)) | (left.hashes() == right.hashes())).all():
            return False
    return True


@dataclass(frozen=True)
class LabelledPositives:
    """Labelled positives by query. Each query has each normal form once. Texts without words are left out.

    queries : (Q,) sorted uint64 hashes of the queries' normal forms.
    offsets : (Q + 1,) start of each query's positives; query q has positives offsets[q] … offsets[q+1] - 1.
    forms   : (N,) uint64 hash of each positive's normal form.
    n_bytes : (N,) size of each positive in bytes: of its text, or of its stored runs.
    part    : function that returns the positives at given places, as texts or as runs.
    every   : sampling interval of runs: one in `every` is kept.
    min_runs : minimum number of runs in a negative to compare.
    ids     : (N,) passage id of each positive; None for positives of another run.
    """

    queries: Keys
    offsets: Index
    forms: Keys
    n_bytes: Index
    part: Callable[[Index], TextStore | RunSets]
    every: int
    min_runs: int
    ids: Index | None = None

    def of_queries(self, forms: Keys) -> tuple[Index, Index]:
        """Return two arrays (n,): the place of each query's first positive, and its number of positives, maybe 0."""
        place = np.minimum(np.searchsorted(self.queries, forms), max(0, len(self.queries) - 1))
        known = is_known(forms, self.queries)
        starts = np.where(known, np.append(self.offsets, 0)[place], 0)
        return starts, np.where(known, np.append(self.offsets, 0)[place + 1] - starts, 0)


def labelled_positives(
    query_form: Keys, passage_form: Keys, passages: TextStore, sources: Sequence[PlannedSource]
) -> LabelledPositives:
    """Return the positives of all records of these sources.

    query_form, passage_form : hash of the normal form of each query and passage, by id.
    """
    query_ids = [np.repeat(item.query, np.diff(item.positive_offsets)) for item in sources]
    query = query_form[np.concatenate([np.zeros(0, np.int64), *query_ids])]
    return positives_of_pairs(query, _positive_ids(sources), passage_form, passages)


def _positive_ids(sources: Sequence[PlannedSource]) -> Index:
    return np.concatenate([np.zeros(0, np.int64), *(item.positives for item in sources)])


def positives_of_pairs(query: Keys, ids: Index, passage_form: Keys, passages: TextStore) -> LabelledPositives:
    """Return the positives of n labelled pairs.

    query : (n,) hash of each query's normal form.   ids : (n,) passage ids.   passage_form : hash by passage id.
    """
    form = passage_form[ids]
    order = np.lexsort((form, query))
    order = order[form[order] != EMPTY_FORM]
    query, ids, form = query[order], ids[order], form[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (query[1:] != query[:-1]) | (form[1:] != form[:-1])
    query, ids, form = query[new], ids[new], form[new]
    names, first = np.unique(query, return_index=True)
    return LabelledPositives(
        names,
        np.append(first, len(ids)),
        form,
        passages.lengths[ids].astype(np.int64),
        lambda places: passages.only(ids[places]),
        1,
        MIN_RUNS,
        ids,
    )


def stored_positives(
    queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource]
) -> dict[str, npt.NDArray[Any]]:
    """Return the labelled positives of these sources as arrays for a baseline, without texts. `restored` reads them.

    The arrays are positive_queries (Q,) uint64, positive_offsets (Q + 1,) int64, positive_forms (N,) uint64,
    positive_run_offsets (N + 1,) int64, and positive_runs uint32 with one in KEPT_EVERY runs. They do not depend on the
    order of sources and records.
    """
    ids = distinct(_positive_ids(sources))
    form = np.zeros(len(passages), np.uint64)
    form[ids] = text_forms(passages.only(ids)).form
    positives = labelled_positives(text_forms(queries).form, form, passages, sources)
    whole = RunSets(np.zeros(0, np.uint32), np.zeros(1, np.int64))
    keys, sizes = [whole.keys], [whole.sizes]
    for start, stop in batch_ranges(len(positives.forms), COMPARED_PAIRS_AT_ONCE, positives.n_bytes, BYTES_AT_ONCE):
        texts = positives.part(np.arange(start, stop))
        runs = texts if isinstance(texts, RunSets) else _runs_of(texts, KEPT_EVERY)
        keys.append(runs.keys)
        sizes.append(runs.sizes)
    return {
        f"{ARRAY_PREFIX}queries": positives.queries,
        f"{ARRAY_PREFIX}offsets": positives.offsets,
        f"{ARRAY_PREFIX}forms": positives.forms,
        f"{ARRAY_PREFIX}run_offsets": np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        f"{ARRAY_PREFIX}runs": np.concatenate(keys),
    }


def restored(arrays: Mapping[str, npt.NDArray[Any]]) -> LabelledPositives:
    """Return the positives that `stored_positives` made. Raises KeyError or ValueError for damaged arrays."""
    queries, offsets, forms, run_offsets, keys = (
        arrays[ARRAY_PREFIX + name] for name in ("queries", "offsets", "forms", "run_offsets", "runs")
    )
    runs = RunSets(keys.astype(np.uint32), run_offsets.astype(np.int64))
    offsets = offsets.astype(np.int64)
    if not (_fit(offsets, len(queries), len(forms)) and _fit(runs.offsets, len(forms), len(keys))):
        raise ValueError("the arrays of the stored positives do not match each other")
    if (queries[1:] <= queries[:-1]).any():
        raise ValueError("the queries of the stored positives are not sorted and distinct")
    return LabelledPositives(
        queries.astype(np.uint64),
        offsets,
        forms.astype(np.uint64),
        runs.sizes * runs.keys.itemsize,
        runs.take,
        KEPT_EVERY,
        MIN_POSITIVE_RUNS,
    )


def _fit(offsets: Index, n: int, n_values: int) -> bool:
    """Return whether offsets divide n_values values into n lists."""
    return len(offsets) == n + 1 and offsets[0] == 0 and offsets[-1] == n_values and bool((np.diff(offsets) >= 0).all())


class TripletPairs(NamedTuple):
    """Pairs to compare, as three arrays (n,).

    triplet : triplet numbers.   negative : passage ids.   positive : places in `LabelledPositives`.
    """

    triplet: Index
    negative: Index
    positive: Index

    def only(self, keep: Flags | slice) -> TripletPairs:
        """Return only some of the pairs. keep: one flag per pair, or a slice."""
        return TripletPairs(self.triplet[keep], self.negative[keep], self.positive[keep])


class CopyFinder:
    """Finder of negatives that copy a labelled positive.

    known   : positives from outside the run, such as a baseline's, or None.
    bits    : bits of the passages' runs, so that few pairs are compared run by run.
    workers : processes that share the comparisons; None to compare in this process.
    """

    def __init__(
        self,
        queries: TextForms,
        forms: TextForms,
        bits: RunBits,
        passages: TextStore,
        sources: Sequence[PlannedSource],
        known: LabelledPositives | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._queries, self._forms, self._passages, self._bits = queries, forms, passages, bits
        self._workers = workers or Workers(0)
        self._positives = [labelled_positives(queries.form, forms.form, passages, sources), *([known] if known else [])]

    def flags(self, source: PlannedSource) -> dict[str, Flags]:
        """Return (T,) flags of false_negative and near_copy. No triplet has both."""
        return self.flags_of_pairs(self._queries.form[source.query[source.triplet_record()]], source.negatives)

    def flags_of_pairs(self, query: Keys, passage: Index) -> dict[str, Flags]:
        """Return the same flags, (n,) each, for any pairs. query: hashes of normal forms. passage: passage ids."""
        equal, near = np.zeros((2, len(passage)), np.bool_)
        for positives in self._positives:
            for pairs in _paired(passage, *positives.of_queries(query)):
                equal[pairs.triplet[positives.forms[pairs.positive] == self._forms.form[pairs.negative]]] = True
                pairs = pairs.only(~equal[pairs.triplet])
                if positives.ids is not None:
                    pairs = pairs.only(self._bits.may_be_near(pairs.negative, positives.ids[pairs.positive]))
                self._compare(positives, pairs, near)
        return {"false_negative": equal, "near_copy": near & ~equal}

    def _compare(self, positives: LabelledPositives, pairs: TripletPairs, near: Flags) -> None:
        """Set `near` for the triplets whose negative is a near copy of a positive."""
        n_bytes = np.where(_first(pairs.triplet), self._passages.lengths[pairs.negative], 0)
        n_bytes += np.where(_first(pairs.positive), positives.n_bytes[pairs.positive], 0)
        ranges = list(batch_ranges(len(pairs.triplet), COMPARED_PAIRS_AT_ONCE, n_bytes, BYTES_AT_ONCE))
        parts = (pairs.only(slice(*part)) for part in ranges)
        flags = self._workers.map(_near_copies_in, (_Comparison.of(self._passages, positives, part) for part in parts))
        for (start, stop), near_copy in zip(ranges, flags, strict=True):
            near[pairs.triplet[start:stop][near_copy]] = True


def _first(values: Index) -> Flags:
    """Return flags (n,) of the first occurrence of each value."""
    flags: Flags = first_in_row(values[None])[0]
    return flags


class _Comparison(NamedTuple):
    """Pairs for one call of a worker.

    Pair i compares negatives[negative_place[i]] with positives[positive_place[i]] of query group[i].

    positives : texts, or runs if they are from a baseline.   every, min_runs : as in `LabelledPositives`.
    """

    negatives: TextStore
    negative_place: Index
    positives: TextStore | RunSets
    positive_place: Index
    group: Index
    every: int
    min_runs: int

    @staticmethod
    def of(passages: TextStore, positives: LabelledPositives, pairs: TripletPairs) -> _Comparison:
        ids, negative_place = np.unique(pairs.negative, return_inverse=True)
        places, positive_place = np.unique(pairs.positive, return_inverse=True)
        group = np.searchsorted(positives.offsets, places, "right")[positive_place]
        texts = passages.only(ids)
        part = positives.part(places)
        return _Comparison(texts, negative_place, part, positive_place, group, positives.every, positives.min_runs)


def _near_copies_in(pairs: _Comparison) -> Flags:
    """Return (n,) flags of the pairs that are near copies. Workers call this function."""
    negatives, positives = _runs_of(pairs.negatives, pairs.every), pairs.positives
    if not isinstance(positives, RunSets):
        positives = _runs_of(positives, 1)
    flags = np.zeros(len(pairs.negative_place), np.bool_)
    candidates = np.flatnonzero(_share_enough(negatives, positives, pairs))
    left, right = pairs.negative_place[candidates], pairs.positive_place[candidates]
    n_runs = negatives.sizes[left] + positives.sizes[right]
    for part in batch_ranges(len(candidates), COMPARED_PAIRS_AT_ONCE, n_runs, RUNS_AT_ONCE):
        rows = slice(*part)
        near = near_copies(negatives.take(left[rows]), positives.take(right[rows]), pairs.min_runs)
        flags[candidates[rows]] = near
    return flags


def _share_enough(negatives: RunSets, positives: RunSets, pairs: _Comparison) -> Flags:
    """Return (n,) flags, which are False only for pairs that `near_copies` does not flag.

    A negative is compared once with all positives of its query, as if they were one text. That text has at least as
    many of its runs as each positive.
    """
    of_positive = distinct(pair_codes(pairs.group, pairs.positive_place, len(positives.sizes)))
    of_negative, place = np.unique(
        pair_codes(pairs.group, pairs.negative_place, len(negatives.sizes)), return_inverse=True
    )
    if len(of_negative) == len(place):  # no negative is compared with two positives
        return np.ones(len(place), np.bool_)
    in_union = np.zeros(1 << UNION_BITS, np.bool_)
    in_union[_in_groups(positives, of_positive)[0]] = True
    keys, offsets = _in_groups(negatives, of_negative)
    common = np.diff(np.concatenate([[0], np.cumsum(in_union[keys])])[offsets])
    smaller = np.minimum(negatives.sizes[pairs.negative_place], positives.sizes[pairs.positive_place])
    flags: Flags = common[place] >= MIN_SHARED_FRACTION * smaller - SHARE_ROUNDING
    return flags


def _in_groups(sets: RunSets, codes: Index) -> tuple[npt.NDArray[np.uint32], Index]:
    """Return short keys of runs, which depend on the group, and the offsets of each set. codes: (group, set) pairs."""
    group, ids = np.divmod(codes, len(sets.sizes))
    runs = sets.take(ids)
    of_group = (group.astype(np.uint64) * MIXER >> OWNER_SHIFT).astype(np.uint32)
    return runs.keys + np.repeat(of_group, runs.sizes) >> np.uint32(32 - UNION_BITS), runs.offsets


def _paired(negatives: Index, starts: Index, counts: Index) -> Iterator[TripletPairs]:
    """Pair each triplet i with the positives from starts[i] to starts[i] + counts[i] - 1.

    Yield about COMPARED_PAIRS_AT_ONCE pairs at a time.
    """
    for first, last in batch_ranges(len(negatives), COMPARED_PAIRS_AT_ONCE, counts, COMPARED_PAIRS_AT_ONCE):
        n, triplets = counts[first:last], np.arange(first, last)
        yield TripletPairs(
            np.repeat(triplets, n), np.repeat(negatives[first:last], n), ranges_of(starts[first:last], n)
        )


def _runs_of(texts: TextStore, every: int) -> RunSets:
    return run_sets(FormKeys.of(texts.packed(0, len(texts))), every)
