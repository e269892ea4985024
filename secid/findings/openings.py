"""Find openings of negatives, and differences in form that reveal negatives because positives lack them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index, distinct, is_known, pairs
from secid.findings.copies import RunBits
from secid.findings.form import form_flags
from secid.findings.languages import LANGUAGES, UNCERTAIN_LANGUAGE, language_numbers, mojibake_flags, save_model
from secid.findings.phrases import may_be_phrases, phrase
from secid.pool import DocumentFrequencies, Keys, PlannedSource
from secid.pool.normal_form import FORMS_AT_ONCE, STEP, FormKeys, TextForms, form_columns, mixed_bits
from secid.pool.texts import Packed, TextSpool, TextStore, batch_ranges
from secid.pool.workers import Workers, n_workers

# Negatives that open with a generator's phrase, or with words that many negatives share but few positives.
#
# Both rules read only the first words of each distinct passage. Source: METHOD 14.

OPENING_WORDS = 5
OPENING_CHARACTERS = 8
"""Length of an opening in words, and in characters of a script without spaces. Source: METHOD 14."""
SHARED_FRACTION = 0.01
"""Minimum share of a source's distinct negatives that have a shared opening. Source: METHOD 14."""
SHARED_RATIO = 5.0
"""Minimum ratio of that share to the share among positives, because a house style opens both alike.
Source: METHOD 14."""
SHARED_TEXTS = 5
"""Minimum number of distinct texts with a shared opening. Fewer may share it by chance. Source: METHOD 14."""
SHARED_QUERIES = 3
"""Minimum number of queries with a shared opening, because the passages of one query often open with its subject.
Source: METHOD 14."""
SHARED_CHANCE = 0.01
"""Maximum probability of seeing as few positives with the opening if they had it as often as the negatives. A few
positives are weak evidence: if 8 of 670 negatives open with "free flight measurements of the", it means little that 89
positives do not. Without this limit, 16 of 132 sound samples of Cranfield had more than 1 % of such negatives. With it,
none did (docs/decisions/openings.md)."""
FACTS_AT_ONCE = 8192
"""Number of texts to process at once. They take a few MB."""
FORM_FINDINGS = ("loop", "wrapper", "unfinished", "markup", "trailing_note", "mojibake")
"""Formal findings that depend only on the text itself."""
ABSENT_KEY = 0
NO_KEYS = np.zeros(0, np.uint64)
NO_PLACES = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Openings:
    """Openings of n passages.

    phrase  : (n,) key of the generator's phrase at the start, or ABSENT_KEY.
    opening : (n,) key of the first words, or ABSENT_KEY.
    """

    phrase: Keys
    opening: Keys


def phrase_keys(texts: Packed) -> Keys:
    """Return the key of the generator's phrase at the start of each text, (n,); ABSENT_KEY for a text without one."""
    phrases, places = np.full(len(texts), ABSENT_KEY, np.uint64), np.flatnonzero(may_be_phrases(texts))
    phrases[places] = list(map(_key, map(phrase, texts.take(places))))
    return phrases


def _key(words: str | None) -> int:
    """Return a 64-bit key of the words, the same on every machine; ABSENT_KEY for None."""
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "little") or 1 if words else ABSENT_KEY


def opening_flags(
    texts: Openings, sources: Sequence[PlannedSource], run: RunOpenings | None = None
) -> list[dict[str, Flags]]:
    """Return finding -> (T,) flags of negatives, for `preamble` and `shared_opening`, one dict per source.

    preamble       : the negative opens with a generator's phrase (`phrases.phrase`), and no positive opens with it.
    shared_opening : see `shared_openings`. Shares are of distinct texts: the source's negatives, and all positives of
                     the run.
    run   : facts about the whole run if these sources are a part of it; None to gather them from these sources.
    A source without negatives gets empty arrays. Source: METHOD 14.
    """
    run = run or RunOpenings.of(sources, texts)
    return [
        {
            "preamble": ~is_known(texts.phrase[planned.negatives], run.common_phrases),
            "shared_opening": is_known(texts.opening[planned.negatives], run.shared.get(planned.name, NO_KEYS)),
        }
        for planned in sources
    ]


@dataclass(frozen=True)
class RunOpenings:
    """Facts that the rules need about all passages of a run.

    common_phrases : sorted keys of the phrases at the start of any positive, including ABSENT_KEY.
    shared         : source -> sorted keys of its negatives' shared openings.
    """

    common_phrases: Keys
    shared: Mapping[str, Keys]

    @staticmethod
    def of(sources: Sequence[PlannedSource], texts: Openings) -> RunOpenings:
        positives = positives_of(sources)
        of_positives = tally(texts.opening[positives])
        shared = {
            planned.name: shared_openings(
                tally(texts.opening[distinct(planned.negatives)]), queries_by_opening(planned, texts), of_positives
            )
            for planned in sources
        }
        return RunOpenings(common_phrases(texts.phrase[positives]), shared)


def common_phrases(phrases: Keys) -> Keys:
    """Return the sorted distinct phrase keys of the positives, with ABSENT_KEY. phrases: key of each positive."""
    return distinct(np.append(phrases, np.uint64(ABSENT_KEY)))


def tally(keys: Keys) -> DocumentFrequencies:
    """Count the occurrences of each key except ABSENT_KEY. n_documents also counts the keys that are ABSENT_KEY."""
    values, counts = np.unique(keys[keys != ABSENT_KEY], return_counts=True)
    return DocumentFrequencies(values, counts.astype(np.int64), len(keys))


def queries_by_opening(planned: PlannedSource, texts: Openings) -> DocumentFrequencies:
    """Count, for each opening, the queries that have a negative with it."""
    openings, number = np.unique(texts.opening[planned.negatives], return_inverse=True)
    query = planned.query[planned.triplet_record()]
    opening_of_query = distinct(pairs(query, number, max(1, len(openings)))) % max(1, len(openings))
    table = tally(openings[opening_of_query])
    return replace(table, n_documents=len(distinct(query)))


def opening_keys(forms: FormKeys) -> Keys:
    """Return the key of each text's opening, (n,); ABSENT_KEY for a shorter text. Keys are the same on every machine.

    An opening is the first five words of the normal form, or the first eight characters in a script without spaces.

    >>> texts = Packed.of(["“The quick” brown fox jumps", "the quick brown fox jumps over", "Too short"])
    >>> one, other, short = opening_keys(FormKeys.of(texts))
    >>> bool(one == other), int(short)
    (True, 0)

    Source: METHOD 14.
    """
    words = first_keys(forms.words, forms.n_words, OPENING_WORDS)
    if not forms.unspaced.any():
        return words
    characters = first_keys(forms.characters, forms.n_characters, OPENING_CHARACTERS)
    return np.where(forms.unspaced, characters, words)


def first_keys(keys: Keys, counts: Index, n: int) -> Keys:
    """Return a key that identifies the first n keys of each text, (n_texts,); ABSENT_KEY for a text with fewer keys.

    keys : keys of all texts in order.   counts : (n_texts,) number of keys in each text.
    """
    long = np.flatnonzero(counts >= n)
    starts = (np.cumsum(counts) - counts)[long]
    mixed = np.full(len(long), n, np.uint64)
    for place in range(n):
        mixed = mixed_bits(mixed * STEP + keys[starts + place])
    first = np.full(len(counts), ABSENT_KEY, np.uint64)
    first[long] = np.maximum(mixed, 1)
    return first


def positives_of(sources: Sequence[PlannedSource]) -> Index:
    """Return the sorted ids of the distinct labelled positives of all sources."""
    return distinct(np.concatenate([np.zeros(0, np.int64), *(planned.positives for planned in sources)]))


def chunks(passages: TextStore, ids: Index) -> Iterator[tuple[Index, list[str]]]:
    """Yield (ids, texts) of the passages with these ids, in parts that fit in memory."""
    for start, stop in batch_ranges(len(ids), FACTS_AT_ONCE, passages.lengths[ids]):
        yield ids[start:stop], passages.take(ids[start:stop])


def shared_openings(
    negatives: DocumentFrequencies, queries: DocumentFrequencies, positives: DocumentFrequencies
) -> Keys:
    """Return the sorted keys of the openings that a source's negatives share, and positives do not.

    An opening is shared if all of these hold:
    - at least SHARED_TEXTS of the source's distinct negatives have it, for at least SHARED_QUERIES queries;
    - they are at least SHARED_FRACTION of its distinct negatives, and SHARED_RATIO times the fraction among positives;
    - a low count among positives is not just chance (SHARED_CHANCE).
    negatives : opening -> number of the source's distinct negatives.
    queries   : opening -> number of queries for which such negatives are listed.
    positives : opening -> number of the run's distinct positives.
    """
    share = negatives.counts / max(1, negatives.n_documents)
    in_positives = positives.counts_of(negatives.keys) / max(1, positives.n_documents)
    common = (
        (negatives.counts >= SHARED_TEXTS)
        & (share >= SHARED_FRACTION)
        & (share >= SHARED_RATIO * in_positives)
        & (chance_of_fewer(in_positives * positives.n_documents, share * positives.n_documents) <= SHARED_CHANCE)
        & (queries.counts_of(negatives.keys) >= SHARED_QUERIES)
    )
    return negatives.keys[common]


def chance_of_fewer(n: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return an upper bound on the probability of n or fewer if more are expected, else 1. Source: Chernoff 1952."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(n > 0, n * np.log(expected / n), 0.0)
    return np.where(n >= expected, 1.0, np.exp(np.minimum(n - expected + logarithm, 0.0)))


# Formal findings reveal negatives only if positives are written differently.
#
# They are evaluated for negatives and labelled positives. The difference decides whether a formal defect counts.
# Source: METHOD 16.2.

ORDINARY_LENGTHS = (0.01, 0.99)
"""Quantiles of the positives' lengths that bound the ordinary lengths. Source: METHOD 16.2."""
LengthRange = tuple[int, int]
BothFlags = tuple[Flags, Flags]
"""(T,) flags of negatives and (P,) flags of labelled positives."""


@dataclass(frozen=True)
class PassageFacts:
    """Facts about n passages, by id. Each passage is read once.

    language   : (n,) place in LANGUAGES, or UNCERTAIN_LANGUAGE.   characters : (n,) length in characters.
    flags      : finding -> (n,) flags, for the findings in FORM_FINDINGS.
    """

    forms: TextForms
    runs: RunBits
    openings: Openings
    language: npt.NDArray[np.int16]
    characters: Index
    flags: Mapping[str, Flags]

    @staticmethod
    def of(columns: Mapping[str, npt.NDArray[Any]]) -> PassageFacts:
        """Return the facts from the columns of `_facts_of`."""
        return PassageFacts(
            TextForms.of(columns["form"], columns["empty"], columns["loop"]),
            RunBits(columns["run_bits"], columns["n_runs"]),
            Openings(columns["phrase"], columns["opening"]),
            columns["language"],
            columns["characters"],
            {name: columns[name] for name in FORM_FINDINGS},
        )

    def of_source(self, planned: PlannedSource, ordinary: LengthRange | None = None) -> dict[str, BothFlags]:
        """Return finding -> flags for the formal findings of one source.

        ordinary : shortest and longest ordinary length; None to take them from the source's positives.
        A passage has other_language if its language and that of at least one positive of its record are decided, but
        no positive of the record has the same language. A positive is compared with the record's other positives.
        """
        low, high = ordinary or ordinary_lengths(self.lengths(planned))
        unordinary = (self.characters < low) | (self.characters > high)
        return {
            name: (flags[planned.negatives], flags[planned.positives])
            for name, flags in {**self.flags, "length": unordinary}.items()
        } | {"other_language": _other_language(planned, self.language)}

    def lengths(self, planned: PlannedSource) -> DocumentFrequencies:
        """Count a source's labelled positives by length in characters."""
        labelled = planned.positives[first_labels(planned)]
        values, counts = np.unique(self.characters[labelled], return_counts=True)
        return DocumentFrequencies(values.astype(np.uint64), counts.astype(np.int64), len(labelled))


class PassageReader:
    """Reads passages into facts, in child processes if there are many. Use it as a context manager.

    threads : as in `Workers`.
    Give `written` to the spool of passages to begin while later rows are read. A text that occurs again is read once.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads, self._stack = threads, ExitStack()
        self._workers: Workers | None = None
        self._model: Path | None = None
        self._known = NO_KEYS  # sorted first eight bytes of the keys of texts that are read
        # Each item has the places of texts in the file, and a function that waits for their facts.
        self._started: deque[tuple[Index, Callable[[], dict[str, npt.NDArray[Any]]]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)

    def workers(self, n_texts: int) -> Workers:
        """Return the workers of this reader. In the first call, n_texts decides their number."""
        if self._workers is None:
            self._workers = self._stack.enter_context(Workers(n_texts, self._threads))
        return self._workers

    def written(self, spool: TextSpool) -> None:
        """Begin to read the texts that the spool has written, if there are enough for child processes."""
        if spool.n_new < FACTS_AT_ONCE or n_workers(spool.n_written, self._threads) < 2:
            return
        texts = spool.new_texts()
        keys = np.ascontiguousarray(texts.keys).view(np.uint64)[:, 0]
        first = np.sort(np.unique(keys, return_index=True)[1])
        first = first[~is_known(keys[first], self._known)]
        self._known = np.sort(np.append(self._known, keys[first]), kind="stable")
        self._start(self.workers(spool.n_written), texts.only(first))

    def facts(self, passages: TextStore) -> PassageFacts:
        """Return the facts about all passages, by id. passages: texts of the spool given to `written`, if any was."""
        before = np.concatenate([NO_PLACES, *(offsets for offsets, _ in self._started)])
        missing = passages.only(np.flatnonzero(~is_known(passages.offsets, before)))
        self._start(self.workers(len(passages)), missing)
        offsets = np.concatenate([NO_PLACES, *(offsets for offsets, _ in self._started)])
        order = np.argsort(offsets, kind="stable")
        places = order[np.searchsorted(offsets, passages.offsets, sorter=order)]
        parts = [_facts_of(passages.only(NO_PLACES), None)]
        while self._started:  # each file is closed before the next one is opened
            parts.append(self._started.popleft()[1]())
        return PassageFacts.of({name: np.concatenate([part[name] for part in parts])[places] for name in parts[0]})

    def _start(self, workers: Workers, texts: TextStore) -> None:
        """Begin to read texts. With one worker, they are read when they are needed."""
        if workers.n > 1 and self._model is None:
            self._model = save_model(texts.folder)
        for start, stop in batch_ranges(len(texts), FACTS_AT_ONCE, texts.lengths):
            part = texts.only(np.arange(start, stop))
            self._started.append((part.offsets, workers.start(partial(_facts_of, model=self._model), part)))


def _facts_of(store: TextStore, model: Path | None) -> dict[str, npt.NDArray[Any]]:
    """Return name -> facts about the texts of a store, (n,) each. Workers call this function.

    model : folder of the saved language model; None to read the library's file.
    """
    texts = store.packed(0, len(store))
    ranges = [(0, 0), *batch_ranges(len(store), FORMS_AT_ONCE, store.lengths)]
    parts = [_form_columns(store.packed(*part)) for part in ranges]
    return {
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        **form_flags(texts),
        "phrase": phrase_keys(texts),
        "mojibake": mojibake_flags(texts),
        "language": language_numbers(texts, model),
        "characters": texts.lengths - texts.n_bytes(0x80, 0xC0),
    }


def _form_columns(texts: Packed) -> dict[str, npt.NDArray[Any]]:
    """Return name -> array with one row per text, for the facts that depend only on normal forms."""
    forms = FormKeys.of(texts)
    runs = RunBits.of(forms)
    return {**form_columns(forms), "opening": opening_keys(forms), "run_bits": runs.bits, "n_runs": runs.n_runs}


def first_labels(planned: PlannedSource) -> Index:
    """Return the place in `positives` of the first occurrence of each (query, labelled positive) pair."""
    labels = pairs(
        planned.query[planned.positive_record()], planned.positives, int(planned.positives.max(initial=0)) + 1
    )
    return np.unique(labels, return_index=True)[1]


def ordinary_lengths(lengths: DocumentFrequencies) -> LengthRange:
    """Return the shortest and longest ordinary length. Without positives, every length is ordinary.

    lengths : length in characters -> number of positives.
    """
    if not len(lengths.keys):
        return 0, np.iinfo(np.int64).max
    ranks = np.cumsum(lengths.counts)
    low, high = (int(np.searchsorted(ranks, quantile * ranks[-1])) for quantile in ORDINARY_LENGTHS)
    return int(lengths.keys[low]), int(lengths.keys[high])


def _other_language(planned: PlannedSource, language: npt.NDArray[np.int16]) -> BothFlags:
    """Return the flags of other_language (see `PassageFacts.of_source`). language: (n_passages,) by id."""
    negative_language, record = language[planned.negatives], planned.triplet_record()
    of_positive, record_of_positive = language[planned.positives], planned.positive_record()
    decided = of_positive != UNCERTAIN_LANGUAGE
    decided_in = np.bincount(record_of_positive[decided], minlength=planned.n_records)
    spoken = record_of_positive * len(LANGUAGES) + of_positive
    labels, counts = np.unique(spoken[decided], return_counts=True)
    known = is_known(record * len(LANGUAGES) + negative_language, labels)
    is_single = is_known(spoken, labels[counts == 1])
    return (
        (negative_language != UNCERTAIN_LANGUAGE) & (decided_in[record] > 0) & ~known,
        decided & (decided_in[record_of_positive] > 1) & is_single,
    )
