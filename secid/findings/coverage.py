"""The lexical gate of a run, measured on a sample of queries: lexing every text would cost most of the time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import distinct
from secid.findings.summary import Case
from secid.pool import Lexicon, Plan, PlannedSource, sample_order, token_stream
from secid.pool.texts import TextStore, pieces

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CHUNK = 4096
"""Queries split at once."""

SAMPLE_QUERIES = 4000
"""Queries of each source that are lexed: the mean coverage of their positives has a standard error below 0.01."""
INACTIVE_COVERAGE = 0.05
UNSEGMENTED = "multilingual"
"""Tokenizer that is tried beside one that leaves the gate inactive."""


@dataclass(frozen=True)
class Gate:
    """One source under one tokenizer, on its sample.

    positive : (P',) coverage of the labelled positives.
    """

    positive: Floats

    @property
    def mean(self) -> float:
        """Mean coverage of the labelled positives."""
        return float(self.positive.mean())


class CoverageSample:
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
        return Gate(lexicon.coverage(query, passage, idf))

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


def inactive_gate(planned: PlannedSource, sample: CoverageSample, tokenizer: str) -> tuple[Case, float]:
    """How much of the queries' weight the labelled positives lack, and their mean coverage."""
    gate = sample.gate(planned, tokenizer)
    detail = f"mean coverage {gate.mean:.3f}"
    if not gate.mean >= INACTIVE_COVERAGE and tokenizer != UNSEGMENTED:
        detail += f"; {sample.gate(planned, UNSEGMENTED).mean:.3f} with --tokenizer {UNSEGMENTED}"
    return Case(int((gate.positive == 0).sum()), 1 - gate.mean, detail), gate.mean


def queries_without_tokens(queries: TextStore, tokenizer: str) -> Flags:
    """(n_queries,) which queries have no token."""
    counts = [token_stream(queries.get(*part), tokenizer)[1] for part in pieces(len(queries), CHUNK, queries.lengths)]
    n_tokens = np.concatenate([np.zeros(0, np.int64), *counts])
    wordless: Flags = n_tokens == 0
    return wordless
