"""Find sources whose words are misread: the lexical gate is inactive, or a tokenizer splits words or lacks a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, distinct
from secid.findings.openings import chunks
from secid.findings.summary import CautionEvidence
from secid.pool import SPLITTERS, Lexicon, Plan, PlannedSource, first_sampled, select_records, token_stream
from secid.pool.coverage import LEXED_AT_ONCE
from secid.pool.texts import TextStore, batch_ranges
from secid.pool.tokens import Fault, fault
from secid.results import RunWarning
from secid.settings import Settings

if TYPE_CHECKING:
    from secid.measure.blocks import Triplets
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import CoverageTables

# Texts whose words the tokenizer splits or merges. Only a sample is read, because reading every text would take long.

SAMPLE_TEXTS = 250
"""Number of queries to sample from each source, and number of passages. A share of 5 % has a standard error of 1 %."""
READ_CHARACTERS = 300
"""Number of characters to read from each text: enough to see its script."""
MIN_MISREAD_SHARE = 0.05
"""Minimum share of misread texts to report. A smaller share may come from quotations and names."""
MULTILINGUAL = "multilingual"
"""Name of the tokenizer without these faults."""
WORD_TOKENIZERS = {"alphanumeric": "alphanumeric", "alphanumeric2": "alphanumeric", "whitespace": "whitespace"}
"""Tokenizer that produces words -> its splitter. The other tokenizers split texts of any script."""
TextsToRead = tuple[TextStore, Index]
"""A store, and the ids of its texts to read."""


@dataclass(frozen=True)
class Misread:
    """Counts of misread texts in a sample. n_texts: size of the sample. counts: fault -> number of texts."""

    n_texts: int
    counts: dict[Fault, int]

    @staticmethod
    def of(texts: Iterable[str], split: Callable[[str], list[str]]) -> Misread:
        """Split the texts with `split`, and count those with each fault."""
        faults = [fault(text, split) for text in texts]
        return Misread(len(faults), dict(Counter(name for name in faults if name is not None)))

    @property
    def n(self) -> int:
        return sum(self.counts.values())

    @property
    def fraction(self) -> float:
        """Share of misread texts in the sample; 0 for an empty sample."""
        return self.n / self.n_texts if self.n_texts else 0.0

    @property
    def effect(self) -> Fault | None:
        """The most frequent fault; None if no text is misread."""
        return max(self.counts, key=self.counts.__getitem__, default=None)


def misread(plan: Plan, planned: PlannedSource, tokenizer: str, seed: int) -> Misread:
    """Count texts that a tokenizer misreads in a seeded sample of a source's queries and passages."""
    passages = distinct(np.concatenate([planned.positives, planned.negatives]))
    return misread_texts((plan.queries, distinct(planned.query)), (plan.passages, passages), tokenizer, seed)


def misread_texts(queries: TextsToRead, passages: TextsToRead, tokenizer: str, seed: int) -> Misread:
    """Count misread texts as `misread` does, in any distinct queries and passages."""
    if tokenizer not in WORD_TOKENIZERS:
        return Misread(0, {})
    texts = chain(_sample(*queries, seed), _sample(*passages, seed))
    return Misread.of(texts, SPLITTERS[WORD_TOKENIZERS[tokenizer]])


def _sample(store: TextStore, ids: Index, seed: int) -> Iterator[str]:
    """Yield the beginnings of sampled texts one by one, because some texts have megabytes."""
    for place in first_sampled(ids, store.keys, seed, SAMPLE_TEXTS)[:, None]:
        yield store.take(place)[0][:READ_CHARACTERS]


# Sources for which the lexical gate is inactive, or whose words the tokenizer misreads.
#
# Only samples of queries are lexed, because lexing every text under every tokenizer would dominate the time.

INACTIVE_COVERAGE = 0.05
"""Minimum mean coverage of the labelled positives. Below it, coverage is not informative about negatives either."""
MAX_CHECKED_QUERIES = 4000
"""Number of queries that `check` lexes per source. Their positives' mean coverage has a standard error below 0.01."""
MAX_TRIED_QUERIES = 200
"""Number of queries per source on which to try other tokenizers. Mean coverages have a standard error up to 0.02."""


class CoverageSample:
    """Sampled queries of each source and the passages of their records, lexed on first use."""

    def __init__(self, plan: Plan, folder: Path, seed: int) -> None:
        self._folder = folder
        self._sources: dict[str, PlannedSource] = {}
        for planned in plan.sources:
            queries = first_sampled(distinct(planned.query), plan.queries.keys, seed, MAX_CHECKED_QUERIES)
            everything = np.ones(planned.n_triplets, np.bool_)
            self._sources[planned.name] = select_records(planned, np.isin(planned.query, queries), everything)
        parts = self._sources.values()
        self._query_ids = distinct(np.concatenate([item.query for item in parts]))
        self._passage_ids = distinct(
            np.concatenate([ids for item in parts for ids in (item.positives, item.negatives)])
        )
        self._queries, self._passages = plan.queries.only(self._query_ids), plan.passages.only(self._passage_ids)
        self._lexicons: dict[str, tuple[Lexicon, Floats]] = {}

    def close(self) -> None:
        self._queries.close()
        self._passages.close()

    def positives(self, name: str, tokenizer: str) -> Floats:
        """Return (P,) coverage of a source's labelled positives, with the IDF of the sample. Source: METHOD 2.3."""
        if tokenizer not in self._lexicons:
            self._lexicons[tokenizer] = self._lex(tokenizer)
        lexicon, idf = self._lexicons[tokenizer]
        planned = self._sources[name]
        query = np.repeat(planned.query, np.diff(planned.positive_offsets))
        places = np.searchsorted(self._query_ids, query), np.searchsorted(self._passage_ids, planned.positives)
        return lexicon.coverage(*places, idf)

    def _lex(self, tokenizer: str) -> tuple[Lexicon, Floats]:
        lexicon = Lexicon(
            tokenizer,
            self._queries.packed,
            len(self._queries),
            self._passages.packed,
            np.ones(len(self._passages), np.bool_),
            self._folder / f"{tokenizer}.tokens",
            stores=(self._queries, self._passages),
        )
        return lexicon, lexicon.idf(lexicon.pooled())


def inactive_gate(planned: PlannedSource, sample: CoverageSample, tokenizer: str) -> tuple[CautionEvidence, float]:
    """Return the evidence for a caution if positives do not cover their queries, and the positives' mean coverage."""
    coverage = sample.positives(planned.name, tokenizer)
    mean = float(coverage.mean())
    values: dict[str, float | str] = {"coverage": mean}
    if not mean >= INACTIVE_COVERAGE and tokenizer != MULTILINGUAL:
        values |= {"best": MULTILINGUAL, "best_coverage": float(sample.positives(planned.name, MULTILINGUAL).mean())}
    return CautionEvidence(int((coverage == 0).sum()), 1 - mean, values), mean


def queries_without_tokens(queries: TextStore, tokenizer: str) -> npt.NDArray[np.bool_]:
    """Return (n_queries,) flags of queries without a token."""
    counts = [
        token_stream(queries.packed(*part), tokenizer)[1]
        for part in batch_ranges(len(queries), LEXED_AT_ONCE, queries.lengths)
    ]
    return np.asarray(np.concatenate([np.zeros(0, np.int64), *counts]) == 0)


def lexical(
    plan: Plan, items: Sequence[Measured], coverages: CoverageTables, settings: Settings, folder: Path
) -> tuple[RunWarning, ...]:
    """Return warnings on sources for which the lexical gate is inactive, or whose words the tokenizer misreads.

    folder : folder for the spooled token sets of a sample.
    """
    means = {item.name: item.table.average(item.table.repeated(item.table.positive_coverage)) for item in items}
    inactive = [item for item in items if means[item.name] < INACTIVE_COVERAGE]
    active = [item for item in items if item not in inactive]
    misread_words = _misread_sources(plan, active, settings.tokenizer, settings.seed)
    if not inactive:
        return _misread(misread_words, settings.tokenizer)
    others = _other_coverages(plan, inactive, coverages, settings, folder)
    names = [name for name in others if not _misread_sources(plan, items, name, settings.seed)]
    best = _best(names, others, bool(misread_words))
    warnings = []
    for item in inactive:
        most = max(names, key=lambda name: others[name][item.name].positives)
        name = best if others[best][item.name].gate_is_active or not others[most][item.name].gate_is_active else most
        values = {
            "tokenizer": settings.tokenizer,
            "coverage": means[item.name],
            "best": name,
            "best_positives": others[name][item.name].positives,
            "best_negatives": others[name][item.name].negatives,
            "helps": others[name][item.name].gate_is_active,
            "for_all": name == best,
        }
        warnings.append(RunWarning(kind="inactive_lexical_gate", source=item.name, values=values))
    return (*warnings, *_misread(misread_words, settings.tokenizer))


@dataclass(frozen=True)
class MeanCoverage:
    """Mean coverage of positives and of negatives under a tokenizer."""

    positives: float
    negatives: float

    @property
    def gate_is_active(self) -> bool:
        return self.positives >= INACTIVE_COVERAGE


def _best(names: Sequence[str], others: Mapping[str, Mapping[str, MeanCoverage]], is_asked_for: bool) -> str:
    """Return the tokenizer to recommend for a run, which can have only one.

    is_asked_for : whether sources with misread words need MULTILINGUAL. If so, it is preferred.
    Otherwise prefer the tokenizer with an active gate for the most sources, then MULTILINGUAL, then the largest
    difference in coverage between positives and negatives. That difference is small for a tokenizer that splits words
    into letters, because it covers both.
    """

    def key(name: str) -> tuple[bool, int, bool, float]:
        means = others[name].values()
        return (
            is_asked_for and name == MULTILINGUAL,
            sum(item.gate_is_active for item in means),
            name == MULTILINGUAL,
            sum(item.positives - item.negatives for item in means),
        )

    return max(names, key=key)


def _other_coverages(
    plan: Plan, items: Sequence[Measured], coverages: CoverageTables, settings: Settings, folder: Path
) -> dict[str, dict[str, MeanCoverage]]:
    """Return tokenizer -> source -> mean coverage on a sample of queries, for every tokenizer except the run's."""
    sets = []
    for rows in (item.triplets for item in items):
        sample = first_sampled(distinct(rows.query), plan.queries.keys, settings.seed, MAX_TRIED_QUERIES)
        sets.append(rows.take(np.flatnonzero(np.isin(rows.query, sample))))
    queries = distinct(np.concatenate([rows.query for rows in sets]))
    passages = distinct(np.concatenate([ids for rows in sets for ids in (rows.positive, rows.negative)]))
    part = replace(plan, queries=plan.queries.only(queries), passages=plan.passages.only(passages))
    sets = [rows.restrict(queries, passages) for rows in sets]
    folder.mkdir(exist_ok=True)
    other = coverages.for_texts(part, sets, folder)

    def mean_coverage(rows: Triplets, name: str) -> MeanCoverage:
        of_positives = np.repeat(other.positives(rows, name, settings.idf), np.diff(rows.record_offsets))
        covered = (of_positives, *other.negatives(rows, [(name, settings.idf)]))
        return MeanCoverage(*(float(np.average(values, weights=rows.share)) for values in covered))

    try:
        return {
            name: {item.name: mean_coverage(rows, name) for item, rows in zip(items, sets, strict=True)}
            for name in coverages.tokenizers()
            if name != settings.tokenizer
        }
    finally:
        part.close()


def _misread_sources(
    plan: Plan, items: Sequence[Measured], tokenizer: str, seed: int
) -> dict[Fault, list[tuple[float, str]]]:
    """Return fault -> (share of misread texts, source) of each source with a share of at least MIN_MISREAD_SHARE.

    Only the most frequent fault of a source counts.
    """
    by_what: dict[Fault, list[tuple[float, str]]] = {}
    for item in items:
        if item.table.planned is not None:
            fit = misread(plan, item.table.planned, tokenizer, seed)
            if fit.effect is not None and fit.fraction >= MIN_MISREAD_SHARE:
                by_what.setdefault(fit.effect, []).append((fit.fraction, item.name))
    return by_what


def _misread(words: Mapping[Fault, Sequence[tuple[float, str]]], tokenizer: str) -> tuple[RunWarning, ...]:
    """Return one warning for each fault, with all its sources."""
    return tuple(
        RunWarning(
            kind="misread_words",
            values={
                "tokenizer": tokenizer,
                "effect": effect,
                "best": MULTILINGUAL,
                "sources": {name: share for share, name in sorted(sources, reverse=True)},
            },
        )
        for effect, sources in words.items()
    )


# Negatives in a script that the encoder's tokenizer does not know, so that their rows mean little. Source: METHOD 14.

UnknownShares = Callable[[list[str]], npt.NDArray[np.float64]]
"""Function that takes n texts and returns the share of letters in each that a tokenizer does not know, (n,)."""
NO_TOKENIZER = "no_tokenizer"
SCRIPT_SAMPLE_CHARACTERS = 300
"""Number of characters to read from each passage: enough to see its script."""
UNKNOWN_SCRIPT_SHARE = 0.5
"""Minimum share of unknown letters for a passage to count as unknown. All-MiniLM-L6-v2 knows all letters of English
texts, 99.9 % of those of German ones, a third of Chinese, and almost none of Hindi, Thai and Arabic
(docs/findings.md)."""


def unknown_scripts(passages: TextStore, ids: Index, shares: UnknownShares) -> Flags:
    """Return (n_passages,) flags of passages whose script the tokenizer does not know; False for ids not in `ids`.

    ids : distinct passage ids to check.   shares : function that returns the shares of unknown letters.
    Every tokenizer knows ASCII letters, so passages with mostly ASCII letters are not tokenised.
    """
    flags = np.zeros(len(passages), np.bool_)
    for part, texts in chunks(passages, ids):
        heads = [text[:SCRIPT_SAMPLE_CHARACTERS] for text in texts]
        foreign = np.array([_mostly_beyond_ascii(head) for head in heads])
        if foreign.any():
            candidates = [head for head, is_foreign in zip(heads, foreign, strict=True) if is_foreign]
            flags[part[foreign]] = shares(candidates) >= UNKNOWN_SCRIPT_SHARE
    return flags


def _mostly_beyond_ascii(text: str) -> bool:
    """Return whether a text has at least as many characters beyond ASCII as ASCII letters."""
    if text.isascii():
        return False
    ascii_part = text.encode("ascii", "ignore")
    return len(text) - len(ascii_part) >= len(ascii_part.translate(None, NO_LETTERS))


NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
