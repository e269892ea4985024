"""The lexical gate: where it is inactive, and where the tokenizer misreads the words of a script.

Lexing every text under every tokenizer would cost most of the time, so that samples of queries are lexed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, distinct
from secid.findings.summary import Case
from secid.pool import Lexicon, Plan, PlannedSource, first_sampled, select, token_stream
from secid.pool.scripts import Fault
from secid.pool.texts import TextStore, pieces
from secid.pool.tokenizer_fit import BETTER, NOTICED_MISREAD, misread
from secid.results import RunWarning
from secid.settings import Settings

if TYPE_CHECKING:  # `check` needs none of it, and no torch
    from secid.measure.blocks import Triplets
    from secid.triplets.coverage import CoverageBench
    from secid.triplets.measured import Measured
    from secid.triplets.table import TripletTable

INACTIVE_COVERAGE = 0.05
"""Mean coverage of the labelled positives below which coverage says nothing about negatives either."""
CHECKED_QUERIES = 4000
"""Queries of each source that `check` lexes: the mean coverage of their positives has a standard error below 0.01."""
TRIED_QUERIES = 200
"""Queries of a source that other tokenizers are tried on: a mean coverage has a standard error of at most 0.02."""
CHUNK = 4096
"""Queries split at once."""


class CoverageSample:
    """The sampled queries of each source and the passages of their records, lexed when first asked for.

    folder : where token sets are spooled.
    """

    def __init__(self, plan: Plan, folder: Path, seed: int) -> None:
        self._folder = folder
        self._sources: dict[str, PlannedSource] = {}
        for planned in plan.sources:
            queries = first_sampled(distinct(planned.query), plan.queries.keys, seed, CHECKED_QUERIES)
            everything = np.ones(planned.n_triplets, np.bool_)
            self._sources[planned.name] = select(planned, np.isin(planned.query, queries), everything)
        parts = self._sources.values()
        self._query_ids = distinct(np.concatenate([item.query for item in parts]))
        self._passage_ids = distinct(
            np.concatenate([ids for item in parts for ids in (item.positives, item.negatives)])
        )
        self._queries, self._passages = plan.queries.only(self._query_ids), plan.passages.only(self._passage_ids)
        self._lexicons: dict[str, tuple[Lexicon, Floats]] = {}

    def close(self) -> None:
        """Lets go of the spool files."""
        self._queries.close()
        self._passages.close()

    def positives(self, name: str, tokenizer: str) -> Floats:
        """(P,) coverage of a source's labelled positives. IDF over the sample's documents. Source: METHOD 2.3."""
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


def inactive_gate(planned: PlannedSource, sample: CoverageSample, tokenizer: str) -> tuple[Case, float]:
    """How much of the queries' weight the labelled positives lack, and their mean coverage."""
    coverage = sample.positives(planned.name, tokenizer)
    mean = float(coverage.mean())
    values: dict[str, float | str] = {"coverage": mean}
    if not mean >= INACTIVE_COVERAGE and tokenizer != BETTER:
        values |= {"best": BETTER, "best_coverage": float(sample.positives(planned.name, BETTER).mean())}
    return Case(int((coverage == 0).sum()), 1 - mean, values), mean


def queries_without_tokens(queries: TextStore, tokenizer: str) -> npt.NDArray[np.bool_]:
    """(n_queries,) which queries have no token."""
    counts = [token_stream(queries.get(*part), tokenizer)[1] for part in pieces(len(queries), CHUNK, queries.lengths)]
    return np.asarray(np.concatenate([np.zeros(0, np.int64), *counts]) == 0)


def lexical(
    plan: Plan, items: Sequence[Measured], coverages: CoverageBench, settings: Settings, folder: Path
) -> tuple[RunWarning, ...]:
    """Warnings on the lexical gate: where it is inactive, and where the tokenizer misreads the words of a script.

    folder: where the token sets of a sample are spooled.
    """
    means = {item.name: _positive_coverage(item.table) for item in items}
    inactive = [item for item in items if means[item.name] < INACTIVE_COVERAGE]
    active = [item for item in items if item not in inactive]
    misread_words = _misread_sources(plan, active, settings.tokenizer, settings.seed)
    if not inactive:
        return _misread(misread_words, settings.tokenizer)
    others = _under_others(plan, inactive, coverages, settings, folder)
    names = [name for name in others if not _misread_sources(plan, items, name, settings.seed)]
    best = _best(names, others, bool(misread_words))
    warnings = []
    for item in inactive:
        most = max(names, key=lambda name: others[name][item.name].positives)
        name = best if others[best][item.name].lifts or not others[most][item.name].lifts else most
        values = {
            "tokenizer": settings.tokenizer,
            "coverage": means[item.name],
            "best": name,
            "best_positives": others[name][item.name].positives,
            "best_negatives": others[name][item.name].negatives,
            "helps": others[name][item.name].lifts,
            "for_all": name == best,
        }
        warnings.append(RunWarning(kind="inactive_lexical_gate", source=item.name, values=values))
    return (*warnings, *_misread(misread_words, settings.tokenizer))


def _positive_coverage(table: TripletTable) -> float:
    """Mean coverage of the scored positives, over triplets."""
    return table.average(table.repeated(table.positive_coverage))


@dataclass(frozen=True)
class MeanCoverage:
    """Mean coverage of positives and of negatives under a tokenizer."""

    positives: float
    negatives: float

    @property
    def lifts(self) -> bool:
        """Whether the gate is active there."""
        return self.positives >= INACTIVE_COVERAGE


def _best(names: Sequence[str], others: Mapping[str, Mapping[str, MeanCoverage]], is_asked_for: bool) -> str:
    """The one tokenizer that a run is advised to use: it has but one.

    Most sources helped; then BETTER; then what covers positives most beyond negatives, for a tokenizer that cuts words
    into letters covers both. is_asked_for: sources with misread words need BETTER.
    """

    def key(name: str) -> tuple[bool, int, bool, float]:
        means = others[name].values()
        return (
            is_asked_for and name == BETTER,
            sum(item.lifts for item in means),
            name == BETTER,
            sum(item.positives - item.negatives for item in means),
        )

    return max(names, key=key)


def _under_others(
    plan: Plan, items: Sequence[Measured], coverages: CoverageBench, settings: Settings, folder: Path
) -> dict[str, dict[str, MeanCoverage]]:
    """What every other tokenizer covers, by tokenizer and source, on a sample of the sources' queries."""
    sets = []
    for rows in (item.triplets for item in items):
        sample = first_sampled(distinct(rows.query), plan.queries.keys, settings.seed, TRIED_QUERIES)
        sets.append(rows.take(np.flatnonzero(np.isin(rows.query, sample))))
    queries = distinct(np.concatenate([rows.query for rows in sets]))
    passages = distinct(np.concatenate([ids for rows in sets for ids in (rows.positive, rows.negative)]))
    part = replace(plan, queries=plan.queries.only(queries), passages=plan.passages.only(passages))
    sets = [rows.among(queries, passages) for rows in sets]
    folder.mkdir(exist_ok=True)
    bench = coverages.over(part, sets, folder)

    def mean_coverage(rows: Triplets, name: str) -> MeanCoverage:
        of_positives = np.repeat(bench.positives(rows, name, settings.idf), np.diff(rows.record_offsets))
        covered = (of_positives, bench.negatives(rows, name, settings.idf))
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
    """What a tokenizer does to words -> the sources in which it does so noticeably, each with its share of texts."""
    by_what: dict[Fault, list[tuple[float, str]]] = {}
    for item in items:
        if item.table.planned is not None:
            fit = misread(plan, item.table.planned, tokenizer, seed)
            if fit.effect is not None and fit.fraction >= NOTICED_MISREAD:
                by_what.setdefault(fit.effect, []).append((fit.fraction, item.name))
    return by_what


def _misread(words: Mapping[Fault, Sequence[tuple[float, str]]], tokenizer: str) -> tuple[RunWarning, ...]:
    """One warning for all sources in which the tokenizer does the same to words."""
    return tuple(
        RunWarning(
            kind="misread_words",
            values={
                "tokenizer": tokenizer,
                "effect": effect,
                "best": BETTER,
                "sources": {name: share for share, name in sorted(sources, reverse=True)},
            },
        )
        for effect, sources in words.items()
    )
