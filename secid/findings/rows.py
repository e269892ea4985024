"""Evaluate the findings that need the encoder's rows, and add all findings as columns to each source's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secid.arrays import Flags, Floats
from secid.findings.status import SourceStatus, readable
from secid.findings.summary import (
    Matcher,
    RowPlace,
    SourceFindings,
    cut,
    one_per_query,
    overlaps_of,
    source_finding,
    text_example,
)
from secid.measure.gates import INVERSION, LOW_LOCALITY
from secid.pool import SPLITTERS, Plan, splitter
from secid.results import TripletExample
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS
from secid.settings import Settings
from secid.triplets.estimates import Names, Share, comparable_keys
from secid.triplets.guide import GuideScores
from secid.triplets.measure_set import Measured
from secid.triplets.random_reference import PassageMeans, RandomReference, near_positive, random_like, sampled
from secid.triplets.table import CoverageTables, TripletTable

# Findings that need the encoder's rows or a tokenizer, with one rule each over the columns of the triplet table.
#
# The thresholds of METHOD 4 are conventions of secid. They are settings, and printed with the numbers.
# Source: METHOD 4, 10, 14.

SAMPLED_FINDINGS = frozenset({"random_like", "weak_positive"})
"""Findings that are evaluated only for the queries of the random reference."""
AGAINST_PASSAGES = SAMPLED_FINDINGS | {"near_positive"}
"""Findings that compare a triplet with other passages of the run. At least ten other passages are needed."""


@dataclass(frozen=True)
class Thresholds:
    """Limits of the rules, all in [0, 1].

    high_coverage : minimum c that counts as high.   valid : minimum π and ρ of a valid triplet.
    far           : ρ below which a triplet counts as far.
    """

    high_coverage: float
    valid: float
    far: float


@dataclass(frozen=True)
class RowFlags:
    """Result of one rule.

    flags    : (T,) flags of the negatives with the finding.
    severity : (T,) severity for choosing examples; larger is worse.
    evaluated : (T,) flags of the evaluated negatives; None if all were evaluated.
    """

    flags: Flags
    severity: Floats
    evaluated: Flags | None = None


def row_rules(
    table: TripletTable,
    thresholds: Thresholds,
    reference: RandomReference | None,
    means: PassageMeans,
    truncated: Flags | None,
    unknown: Flags | None,
    wordless: Flags,
) -> dict[str, RowFlags]:
    """Return finding -> result for the findings that need more than texts.

    reference : random passages of the sampled queries; None leaves out the two findings that need them.
    means     : mean cosine of every query with the passages of the run.
    truncated : (n_passages,) flags of texts that the encoder cut; None leaves out the finding.
    unknown   : (n_passages,) flags of texts in a script that the tokenizer does not know; None leaves out the finding.
    wordless  : (n_queries,) flags of queries without tokens.
    """
    columns = table.columns()
    pi, rho, c, weight = (columns[name] for name in ("consistency", "locality", "coverage", "weight"))
    valid, far, high = thresholds.valid, thresholds.far, thresholds.high_coverage
    rules = {
        "query_without_tokens": RowFlags(wordless[table.triplets.query], np.zeros(len(table))),
        "inversion": RowFlags(pi < INVERSION, -pi),
        "low_locality": RowFlags(rho < LOW_LOCALITY, -rho),
        "high_coverage": RowFlags(c >= high, c),
        "valid_but_lexical": RowFlags((pi >= valid) & (rho >= valid) & (c >= high), c),
        "valid_but_far": RowFlags((pi >= valid) & (c < high) & (rho < far), -rho),
        "near_positive": _near_positive(table, columns, means),
    }
    if truncated is not None:
        rules["truncated"] = RowFlags(truncated[table.triplets.negative], weight)
    if unknown is not None:
        rules["unknown_script"] = RowFlags(unknown[table.triplets.negative], weight)
    if table.guide is not None:
        rules["suspect"] = RowFlags(table.guide.suspect(), table.guide.hardness())
    if reference is not None:
        rules |= _against_random(table, columns, reference)
    return rules


def _against_random(
    table: TripletTable, columns: Mapping[str, Floats], reference: RandomReference
) -> dict[str, RowFlags]:
    query, near, best = table.triplets.query, columns["s_query_negative"], columns["s_query_positive"]
    sample = sampled(query, reference)
    return {
        "random_like": RowFlags(random_like(query, near, reference), -near, sample),
        "weak_positive": RowFlags(random_like(query, best, reference), -best, sample),
    }


def _near_positive(table: TripletTable, columns: Mapping[str, Floats], means: PassageMeans) -> RowFlags:
    near, best = columns["s_query_negative"], columns["s_query_positive"]
    flags, hardness = near_positive(near, best, means.of(table.triplets.query))
    return RowFlags(flags, hardness, ~np.isnan(hardness))


# All findings of each source under the encoder: columns of its table, shares of the score, and examples.

MATCHED_TERMS = 12
SUSPECT = "suspect"
"""Name of the guide's finding. It becomes a column only if the guide scored every negative. Otherwise only its share is
estimated."""


class Inspector:
    """Evaluator of the findings of measured sources. It needs the plan's texts.

    truncated : (n_passages,) flags of passages that the encoder cut; None if it does not report this.
    unknown   : (n_passages,) flags of passages in a script that the encoder's tokenizer does not know; None without a
                tokenizer.
    reference : random passages to compare with, or None.
    means     : mean cosine of every query with the passages of the run.
    texts     : source -> text findings in all rows read.
    """

    def __init__(
        self,
        plan: Plan,
        coverages: CoverageTables,
        truncated: Flags | None,
        unknown: Flags | None,
        reference: RandomReference | None,
        means: PassageMeans,
        texts: Mapping[str, SourceFindings],
        settings: Settings,
    ) -> None:
        self._plan, self._coverages, self._texts, self._settings = plan, coverages, texts, settings
        self._truncated, self._unknown, self._reference, self._means = truncated, unknown, reference, means
        self._matcher = Matcher(plan)
        self._wordless = coverages.lexicon(settings.tokenizer).queries_without_tokens()

    def inspect(self, item: Measured) -> tuple[TripletTable, SourceFindings]:
        """Return a source's table with all findings as columns, and its findings. Source: METHOD 4, 14."""
        table, settings = item.table, self._settings
        texts = self._texts[item.name]
        thresholds = Thresholds(settings.high_coverage, settings.valid, settings.far)
        compared = self._reference, self._means
        rules = row_rules(table, thresholds, *compared, self._truncated, self._unknown, self._wordless)
        table = table.with_findings({name: table.source.has(name)[table.triplets.place] for name in TEXT_FINDINGS})
        names = comparable_keys(item.query_keys)
        columns = [name for name in rules if name != SUSPECT or (table.guide is not None and table.guide.is_whole)]
        table = table.with_findings({name: rules[name].flags for name in columns})
        shares = {
            **{name: texts.shares[name] for name in TEXT_FINDINGS},
            **{
                name: table.share_of(rule.flags, names, rule.evaluated)
                for name, rule in rules.items()
                if rule.evaluated is None or rule.evaluated.any()
            },
            **({} if table.guide is None else {SUSPECT: _suspects(table, table.guide, rules[SUSPECT].flags, names)}),
        }
        shares = {name: shares[name] for name in FINDINGS if name in shares}
        of_texts = {result.name: result for result in texts.findings if result.name in TEXT_FINDINGS}
        weight = table.gates().weight.numpy() * (1.0 if table.share is None else table.share)
        writer = _ExampleWriter(self._plan, item, table, self._coverages, self._matcher, settings)
        return table, SourceFindings(
            tuple(
                replace(
                    source_finding(
                        name,
                        share.n,
                        share.estimate,
                        writer.measured(of_texts[name].examples, texts.places[name])
                        if name in of_texts
                        else writer.worst(rules[name]),
                        *_parts(item, table, name, weight),
                    ),
                    n_rows=of_texts[name].n_rows if name in of_texts else None,
                    positives=of_texts[name].positives if name in of_texts else None,
                )
                for name, share in shares.items()
            ),
            overlaps_of({name: table.has(name) for name in shares if name in table.evaluated}, table.share),
            shares,
            _read(texts.status, shares),
            texts.languages,
            texts.places,
            texts.compared,
        )


def _read(answer: SourceStatus, shares: Mapping[str, Share]) -> SourceStatus:
    """Return the status by texts and encoder. answer: status by texts. shares: finding -> share of negatives."""
    unknown = shares.get("unknown_script")
    return replace(answer, status=readable(answer.status, None if unknown is None else unknown.estimate.value))


def _suspects(table: TripletTable, guide: GuideScores, flags: Flags, names: Names) -> Share:
    amount = np.where(guide.scored, 1.0 if table.share is None else table.share, 0.0)
    estimate = guide.mean(flags.astype(np.float64), table.cluster(), names, table.share)
    n = float(amount[flags].sum())
    return Share(max(round(n), int(n > 0)), round(float(amount.sum())), estimate)


def _parts(item: Measured, table: TripletTable, name: str, weight: Floats) -> tuple[float, float] | tuple[None, None]:
    """Return the flagged negatives' share of the total weight, and their part of the score in nats.

    weight : (T,) weight of each triplet, multiplied by its share.
    Return (None, None) if the finding was evaluated only on a sample.
    """
    if name not in table.evaluated:
        return None, None
    flags = table.has(name)
    eci = item.nats(item.influence.budgets[0])
    weight_fraction, share = (
        part_of_total(float(amounts[flags].sum()), float(amounts.sum()))
        for amounts in (weight, item.influence.information)
    )
    return weight_fraction, eci * share


def part_of_total(part: float, total: float) -> float:
    """Return part / total, or 0.0 for an empty total."""
    return part / total if total > 0 else 0.0


class _ExampleWriter:
    """Writer of a source's examples with the numbers of their triplets."""

    def __init__(
        self,
        plan: Plan,
        item: Measured,
        table: TripletTable,
        coverages: CoverageTables,
        matcher: Matcher,
        settings: Settings,
    ) -> None:
        self._plan, self._table, self._coverages, self._settings = plan, table, coverages, settings
        self._columns, self._matcher = table.columns(), matcher
        self._idf = coverages.idf(item.triplets, settings.tokenizer, settings.idf)

    def worst(self, rule: RowFlags) -> tuple[TripletExample, ...]:
        """Return the flagged triplets of highest severity as examples, one per query."""
        rows, inside = self._table.triplets, np.flatnonzero(rule.flags)
        ids = rows.query[inside], rows.positive[inside], rows.negative[inside]
        first = one_per_query(self._plan, *ids, rule.severity[inside], self._settings)
        return tuple(self._example(int(row)) for row in inside[first])

    def measured(self, examples: Sequence[TripletExample], places: Sequence[RowPlace]) -> tuple[TripletExample, ...]:
        """Return a text finding's examples. Those whose triplet was scored get its numbers.

        places : row places of the first examples. Examples after them have no triplet.
        """
        shown = [
            example if row is None else replace(self._example(row), match=example.match, negative=example.negative)
            for example, row in zip(examples, map(self._row, places), strict=False)
        ]
        return (*shown, *examples[len(shown) :])

    def _row(self, place: RowPlace) -> int | None:
        """Return the first table row of the negative at this place; None if it was not scored."""
        planned = self._table.source
        same = (planned.negative_file, planned.negative_line, planned.negative_ordinal)
        (places,) = np.nonzero(
            np.logical_and.reduce([column == value for column, value in zip(same, place, strict=True)])
        )
        rows = np.flatnonzero(np.isin(self._table.triplets.place, places))
        return int(rows[0]) if len(rows) else None

    def _example(self, row: int) -> TripletExample:
        rows, planned = self._table.triplets, self._table.source
        numbers: dict[str, Any] = {name: float(values[row]) for name, values in self._columns.items()}
        place, findings = int(rows.place[row]), self._table.names_of(row)
        return replace(
            text_example(self._plan, planned, place),
            positive=cut(self._plan.passages.take(rows.positive[[row]])[0]),
            matched_terms=self._matched(row),
            match=self._matcher.of("false_negative", planned, place) if "false_negative" in findings else None,
            findings=findings,
            **numbers,
        )

    def _matched(self, row: int) -> tuple[tuple[str, float], ...]:
        """Return the query tokens that occur in the negative, with their IDF, in descending order of IDF."""
        tokenizer, rows = self._settings.tokenizer, self._table.triplets
        if tokenizer not in SPLITTERS:
            return ()  # word pieces are not words that a reader would recognise
        query, negative = (
            self._plan.queries.take(rows.query[[row]])[0],
            self._plan.passages.take(rows.negative[[row]])[0],
        )
        terms = sorted({*splitter(tokenizer, "query")(query)} & {*splitter(tokenizer, "passage")(negative)})
        weights: Iterable[float] = self._coverages.lexicon(tokenizer).term_idf(terms, self._idf) if terms else []
        pairs = sorted(zip(terms, map(float, weights), strict=True), key=lambda pair: (-pair[1], pair[0]))
        return tuple(pairs[:MATCHED_TERMS])
