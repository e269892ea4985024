"""What is wrong with each source: every finding with its share, its part of the score, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.findings.rows import SAMPLED, Rule, Thresholds, row_rules
from secid.findings.shares import ListedNegatives, Share, scored_share
from secid.pool import SPLITTERS, Plan, PlannedSource, sample_order, splitter
from secid.results import SourceFinding, TripletExample
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS
from secid.settings import Settings
from secid.triplets.coverage import CoverageBench
from secid.triplets.estimates import names_of, share_interval
from secid.triplets.measured import Measured
from secid.triplets.random_reference import RandomReference, sampled
from secid.triplets.table import TripletTable

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

EXAMPLE_CHARACTERS = 600
"""A passage is cut to this length in the report: enough to judge it, small enough for a page."""
MATCHED_TERMS = 12
SEVERITY_DECIMALS = 5
"""Of how bad a triplet is: copies of one text differ in the seventh, by the batch they were encoded in."""


@dataclass(frozen=True)
class SourceFindings:
    """Findings of one source. shares: of each, by name, for whoever judges them."""

    findings: tuple[SourceFinding, ...]
    overlaps: Mapping[str, Mapping[str, int]]
    shares: Mapping[str, Share]


def text_findings(plan: Plan, planned: PlannedSource, settings: Settings) -> SourceFindings:
    """Findings of the texts of one source, while the plan's texts are at hand."""
    shares = ListedNegatives(planned, plan.queries.keys).shares()

    def shown(name: str) -> tuple[TripletExample, ...]:
        examples = [_text_example(plan, planned, place) for place in _text_places(plan, planned, name, settings)]
        return tuple([*examples, *(_blanks(planned) if name == "empty" else ())][: settings.examples])

    return SourceFindings(
        tuple(_result(name, share, shown(name)) for name, share in shares.items()),
        _overlaps({name: planned.has(name) for name in shares}, None),
        shares,
    )


def wordless_finding(plan: Plan, planned: PlannedSource, wordless: Flags, settings: Settings) -> SourceFinding:
    """Negatives of queries without tokens. wordless: (n_queries,)."""
    query = planned.query[planned.triplet_record()]
    ids, cluster = np.unique(query, return_inverse=True)
    flags = wordless[query].astype(np.float64)
    share = Share.of(flags, np.ones(len(flags)), cluster, names_of(plan.queries.keys[ids]))
    places = np.flatnonzero(flags)
    chosen = places[_one_a_query(plan, query[places], np.zeros(len(places)), settings)]
    examples = tuple(_text_example(plan, planned, int(place)) for place in chosen)
    return _result("query_without_tokens", share, examples)


class Inspector:
    """Looks into measured sources while the plan's texts are still at hand.

    truncated : (n_passages,) which passages the encoder cut; None where it does not say.
    reference : random passages to compare with, where there are any.
    """

    def __init__(
        self,
        plan: Plan,
        coverages: CoverageBench,
        truncated: Flags | None,
        reference: RandomReference | None,
        settings: Settings,
    ) -> None:
        self._plan, self._coverages, self._settings = plan, coverages, settings
        self._truncated, self._reference = truncated, reference
        self._wordless = coverages.lexicon(settings.tokenizer).queries_without_tokens()

    def inspect(self, item: Measured) -> tuple[TripletTable, SourceFindings]:
        """The table with all findings as columns, and what they come to. Source: METHOD 4, 14."""
        table, settings = item.table, self._settings
        texts = text_findings(self._plan, table.source, settings)
        thresholds = Thresholds(settings.high_coverage, settings.valid, settings.far)
        rules = row_rules(table, thresholds, self._reference, self._truncated, self._wordless)
        table = table.with_findings({name: table.source.has(name)[table.triplets.place] for name in TEXT_FINDINGS})
        table = table.with_findings({name: rule.flags for name, rule in rules.items()})
        names = names_of(item.query_keys)
        looked_for = None if self._reference is None else sampled(table.triplets.query, self._reference)
        shares = {
            **texts.shares,
            **{
                name: scored_share(table, names, rule.flags, looked_for if name in SAMPLED else None)
                for name, rule in rules.items()
            },
        }
        shares = {name: shares[name] for name in FINDINGS if name in shares}
        shown = {result.name: result.examples for result in texts.findings}
        writer = _ExampleWriter(self._plan, item, table, self._coverages, settings)
        places = {name: _text_places(self._plan, table.source, name, settings) for name in TEXT_FINDINGS}
        return table, SourceFindings(
            tuple(
                _result(
                    name,
                    share,
                    writer.measured(shown[name], places[name]) if name in shown else writer.worst(rules[name]),
                    *_parts(item, table, name),
                )
                for name, share in shares.items()
            ),
            _overlaps({name: table.has(name) for name in shares}, table.share),
            shares,
        )


def _result(
    name: str,
    share: Share,
    examples: tuple[TripletExample, ...],
    weight_fraction: float | None = None,
    score_nats: float | None = None,
) -> SourceFinding:
    return SourceFinding(
        name=name,
        n_negatives=share.n,
        share=share.estimate.value,
        interval_95=share_interval(share.estimate),
        standard_error=share.estimate.standard_error,
        weight_fraction=weight_fraction,
        score_nats=score_nats,
        examples=examples,
    )


def _parts(item: Measured, table: TripletTable, name: str) -> tuple[float, float]:
    """Share of the total weight, and part of the score, that the flagged hold."""
    flags = table.has(name)
    weight = table.gates().weight.numpy() * (1.0 if table.share is None else table.share)
    eci = item.nats(item.influence.budgets[0])
    return _part(weight, flags), eci * _part(item.influence.information, flags)


def _part(amounts: Floats, flags: Flags) -> float:
    """Share of the amounts that the flagged hold; 0.0 where there is nothing to share."""
    total = float(amounts.sum())
    return float(amounts[flags].sum()) / total if total > 0 else 0.0


def _overlaps(flags: Mapping[str, Flags], share: Floats | None) -> dict[str, dict[str, int]]:
    """How many negatives have two findings at once."""
    return {first: {second: _count(a & b, share) for second, b in flags.items()} for first, a in flags.items()}


def _count(flags: Flags, share: Floats | None) -> int:
    """How many negatives the flagged pairs make up, by their shares; at least 1 where there are any."""
    if share is None or not flags.any():
        return int(flags.sum())
    return max(1, round(float(share[flags].sum())))


def _text_places(plan: Plan, planned: PlannedSource, name: str, settings: Settings) -> list[int]:
    """The first negatives with a finding in the seeded order of queries, one a query."""
    places = np.flatnonzero(planned.has(name))
    query = planned.query[planned.triplet_record()[places]]
    return [int(place) for place in places[_one_a_query(plan, query, np.zeros(len(places)), settings)]]


def _text_example(plan: Plan, planned: PlannedSource, place: int) -> TripletExample:
    """A negative with its query and the first positive of its record."""
    record = int(np.searchsorted(planned.negative_offsets, place, side="right")) - 1
    ids = np.array([planned.positives[planned.positive_offsets[record]], planned.negatives[place]])
    positive, negative = plan.passages.take(ids)
    return TripletExample(
        path=planned.source.paths[int(planned.negative_file[place])],
        line=int(planned.negative_line[place]),
        query=_cut(plan.queries.take(planned.query[[record]])[0]),
        positive=_cut(positive),
        negative=_cut(negative),
    )


def _blanks(planned: PlannedSource) -> list[TripletExample]:
    """Rows that list negatives without text."""
    rows = zip(planned.blanks.file.tolist(), planned.blanks.line.tolist(), strict=True)
    return [
        TripletExample(path=planned.source.paths[file], line=line, query="", positive="", negative="")
        for file, line in rows
    ]


def _one_a_query(plan: Plan, query: Index, severity: Floats, settings: Settings) -> Index:
    """Places of the worst rows, one a query; equally bad ones in the seeded order of queries. query: (n,) ids."""
    priority = sample_order(plan.queries.keys[query], settings.seed)
    order = np.lexsort((priority, -severity.round(SEVERITY_DECIMALS)))
    _, first = np.unique(query[order], return_index=True)
    return order[np.sort(first)][: settings.examples]


class _ExampleWriter:
    """Examples of one source with the numbers of their triplets."""

    def __init__(
        self, plan: Plan, item: Measured, table: TripletTable, coverages: CoverageBench, settings: Settings
    ) -> None:
        self._plan, self._table, self._coverages, self._settings = plan, table, coverages, settings
        self._columns = table.columns()
        self._idf = coverages.idf(item.triplets, settings.tokenizer, settings.idf)

    def worst(self, rule: Rule) -> tuple[TripletExample, ...]:
        """The worst triplets by a rule, one a query."""
        inside = np.flatnonzero(rule.flags)
        chosen = _one_a_query(self._plan, self._table.triplets.query[inside], rule.severity[inside], self._settings)
        return tuple(self._example(int(row)) for row in inside[chosen])

    def measured(self, examples: Sequence[TripletExample], places: Sequence[int]) -> tuple[TripletExample, ...]:
        """Examples of a finding of the texts, with the numbers of their triplets. places: of the first examples."""
        rows = [int(np.flatnonzero(self._table.triplets.place == place)[0]) for place in places[: len(examples)]]
        return (*map(self._with_numbers, examples, rows), *examples[len(rows) :])

    def _example(self, row: int) -> TripletExample:
        rows, planned = self._table.triplets, self._table.source
        listed = int(rows.place[row])
        positive, negative = self._plan.passages.take(np.array([rows.positive[row], rows.negative[row]]))
        example = TripletExample(
            path=planned.source.paths[int(planned.negative_file[listed])],
            line=int(planned.negative_line[listed]),
            query=_cut(self._plan.queries.take(rows.query[[row]])[0]),
            positive=_cut(positive),
            negative=_cut(negative),
        )
        return self._with_numbers(example, row)

    def _with_numbers(self, example: TripletExample, row: int) -> TripletExample:
        numbers: dict[str, Any] = {name: float(values[row]) for name, values in self._columns.items()}
        return replace(example, matched_terms=self._matched(row), **numbers)

    def _matched(self, row: int) -> tuple[tuple[str, float], ...]:
        """Query tokens that the negative holds, the heaviest first."""
        tokenizer, rows = self._settings.tokenizer, self._table.triplets
        if tokenizer not in SPLITTERS:
            return ()  # word pieces are no terms that a reader would know
        query, negative = (
            self._plan.queries.take(rows.query[[row]])[0],
            self._plan.passages.take(rows.negative[[row]])[0],
        )
        terms = sorted({*splitter(tokenizer, "query")(query)} & {*splitter(tokenizer, "passage")(negative)})
        weights: Iterable[float] = self._coverages.lexicon(tokenizer).term_idf(terms, self._idf) if terms else []
        pairs = sorted(zip(terms, map(float, weights), strict=True), key=lambda pair: (-pair[1], pair[0]))
        return tuple(pairs[:MATCHED_TERMS])


def _cut(text: str) -> str:
    return text if len(text) <= EXAMPLE_CHARACTERS else text[: EXAMPLE_CHARACTERS - 1] + "…"
