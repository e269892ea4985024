"""The lexical gate of a run, measured on a sample of queries: lexing every text would cost most of the time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import distinct
from secid.findings.flags import Flagged
from secid.findings.forms import Flags, Index
from secid.pool import Lexicon, Plan, PlannedSource, sample_order

Floats = npt.NDArray[np.float64]

SAMPLE_QUERIES = 4000
"""Queries of each source that are lexed: the mean coverage of their positives has a standard error below 0.01."""
INACTIVE_COVERAGE = 0.05
UNSEGMENTED = "multilingual"
"""Tokenizer that is tried beside one that leaves the gate inactive."""


@dataclass(frozen=True)
class Gate:
    """One source under one tokenizer, on its sample.

    positive : (P',) coverage of the labelled positives; record : (P',) the record of each.
    queries  : (Q',) ids; wordless : (Q',) which have no usable token.
    """

    positive: Floats
    record: Index
    queries: Index
    wordless: Flags

    @property
    def mean(self) -> float:
        """Mean coverage of the labelled positives."""
        return float(self.positive.mean())


class GateSample:
    """The queries of each source that come first in the seeded order, and the passages of their records.

    folder : where token sets are spooled.
    """

    def __init__(self, plan: Plan, folder: Path, seed: int) -> None:
        self._folder = folder
        order = sample_order(plan.queries.keys, seed)
        chosen = [distinct(planned.query) for planned in plan.sources]
        chosen = [ids[np.argsort(order[ids], kind="stable")[:SAMPLE_QUERIES]] for ids in chosen]
        self._query_ids = distinct(np.concatenate(chosen))
        self._records = [np.isin(planned.query, ids) for planned, ids in zip(plan.sources, chosen, strict=True)]
        self._of = {planned.name: place for place, planned in enumerate(plan.sources)}
        parts = [
            part
            for planned, keep in zip(plan.sources, self._records, strict=True)
            for part in (
                planned.positives[np.repeat(keep, np.diff(planned.positive_offsets))],
                planned.negatives[np.repeat(keep, np.diff(planned.negative_offsets))],
            )
        ]
        self._passage_ids = distinct(np.concatenate(parts))
        self._queries = plan.queries.only(self._query_ids)
        self._passages = plan.passages.only(self._passage_ids)
        self._lexed: dict[str, tuple[Lexicon, Floats]] = {}

    def close(self) -> None:
        """Lets go of the spool files."""
        self._queries.close()
        self._passages.close()

    def gate(self, planned: PlannedSource, tokenizer: str) -> Gate:
        """Coverage of a source's labelled positives. IDF over the sample's documents. Source: METHOD 2.3."""
        if tokenizer not in self._lexed:
            self._lexed[tokenizer] = self._lex(tokenizer)
        lexicon, idf = self._lexed[tokenizer]
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        kept = self._records[self._of[planned.name]][record]
        record = record[kept]
        query = np.searchsorted(self._query_ids, planned.query[record])
        passage = np.searchsorted(self._passage_ids, planned.positives[kept])
        asked = distinct(query)
        return Gate(
            lexicon.coverage(query, passage, idf),
            record,
            self._query_ids[asked],
            lexicon.queries_without_tokens()[asked],
        )

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


def lexical(planned: PlannedSource, sample: GateSample, tokenizer: str) -> tuple[dict[str, Flagged], float]:
    """Faults of the gate, and the mean coverage of the labelled positives."""
    found = sample.gate(planned, tokenizer)
    told = [f"mean coverage {found.mean:.3f}"]
    if not found.mean >= INACTIVE_COVERAGE and tokenizer != UNSEGMENTED:
        told.append(f"{sample.gate(planned, UNSEGMENTED).mean:.3f} with --tokenizer {UNSEGMENTED}")
    uncovered = found.positive == 0
    wordless = np.isin(planned.query, found.queries[found.wordless])
    sampled = f"in a sample of {len(found.queries)}" if len(found.queries) < len(distinct(planned.query)) else ""
    return {
        "query_without_tokens": Flagged(
            int(found.wordless.sum()), len(found.queries), _heads(planned, np.flatnonzero(wordless)), sampled
        ),
        "lexical_gate_inactive": Flagged(
            int(uncovered.sum()),
            len(uncovered),
            _heads(planned, found.record[uncovered]),
            "; ".join(told),
            1 - found.mean,
        ),
    }, found.mean


def _heads(planned: PlannedSource, records: Index) -> Flags:
    """(T,) the first triplet of each of these records."""
    heads = np.zeros(planned.n_triplets, np.bool_)
    heads[planned.negative_offsets[records]] = True
    return heads
