"""Results of one source or control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from secid.results.catalogue import FINDINGS
from secid.results.inputs import Example, InputFile, TripletExample


@dataclass(frozen=True, kw_only=True)
class AmongPositives:
    """A formal finding among the distinct labelled positives of a source's queries. Source: METHOD 16.2.

    n_positives : number of positives with the finding.   n_labelled : number of all labelled positives.
    share       : n_positives / n_labelled.   difference : share of the negatives minus share of the positives.
    standard_error, interval_95 : error and interval of the difference, clustered by query.
    excess      : lower end of the interval; the difference itself with too few queries for an interval.
    """

    n_positives: int
    n_labelled: int
    share: float
    difference: float
    standard_error: float
    interval_95: tuple[float, float]
    excess: float


@dataclass(frozen=True, kw_only=True)
class SourceFinding:
    """Results of one finding for a source. Findings can overlap. Source: METHOD 14.

    n_negatives : number of negatives with the finding. A text finding counts the listed negatives in all rows read,
                  including negatives without text. A finding that needs the encoder counts scored negatives, or only
                  those in the sample that it was evaluated for.
    share       : n_negatives as a share of all negatives that could be counted.
    interval_95, standard_error : interval and error of the share, clustered by query.
    weight_fraction : share of the source's total weight that these negatives have; None without an encoder.
    score_nats  : part of the score that these negatives contribute. The part of a triplet is w u^T A^-1 u / N to first
                  order, scaled so that all parts add up to ECI. 0.0 if ECI is 0, None without an encoder.
    n_queries   : number of distinct queries that it was evaluated for; None in reports of earlier versions.
    n_rows      : for `repeat`, number of rows whose negatives all occur in earlier rows of the same record.
    positives   : for a formal finding, its results among the labelled positives.
    """

    name: str
    n_negatives: int
    share: float
    interval_95: tuple[float, float]
    standard_error: float
    weight_fraction: float | None = None
    score_nats: float | None = None
    n_queries: int | None = None
    n_rows: int | None = None
    positives: AmongPositives | None = None
    examples: tuple[TripletExample, ...]

    @property
    def counted_share(self) -> float:
        """Number that is compared with the limit: the share; for a formal finding, the excess over the positives."""
        return self.share if self.positives is None else self.positives.excess

    @property
    def dropping_helps(self) -> bool:
        """True if the finding is not formal, or if dropping these negatives brings the rest closer to the positives."""
        return self.positives is None or dropping_narrows_gap(self.positives.share, self.positives.difference)


def dropping_narrows_gap(share: float, difference: float) -> bool:
    """Return True if dropping all negatives with a formal finding reduces the difference from the positives.

    share : share of the positives with the finding. It is also the size of the difference after dropping.
    difference : share of the negatives minus share of the positives. Source: METHOD 16.2.
    """
    return share < abs(difference)


def defects_to_drop(findings: Sequence[SourceFinding]) -> tuple[str, ...]:
    """Return the names of the counted defects to drop from a source, in the order of the findings.

    A formal defect is included only if it is above its limit and dropping it reduces the difference from the positives.
    """
    return tuple(
        item.name
        for item in findings
        if (entry := FINDINGS.get(item.name)) is not None
        and entry.counted
        and item.dropping_helps
        and (entry.exceeded_by(item.counted_share) if entry.formal else item.counted_share > 0.0)
    )


@dataclass(frozen=True, kw_only=True)
class Languages:
    """Languages of a seeded sample of a source's distinct negatives.

    n_texts : number of sampled texts, at most 1,000.
    shares  : share of the texts in each language, by ISO 639-1 code; "" is an undecided language.
    """

    n_texts: int
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """Numbers that other work ranks sources by, in pair form and in record form (softmax over a record).

    Source: METHOD 3.
    """

    gradient_energy_pair: float
    gradient_energy_record: float
    mnrl_loss_pair: float
    mnrl_loss_record: float
    ambiguity_pair: float
    ambiguity_record: float


@dataclass(frozen=True, kw_only=True)
class BudgetPoint:
    """ECI_B at one budget: log det(I + B M) in nats. Source: METHOD 7.

    bias_nats : expected shortfall of the score of a sample of this size. At large budgets it is so large that scores of
                samples of different size cannot be compared (see SourceScore.compared_curve).
    """

    budget: float
    nats: float
    interval_95: tuple[float, float]
    bias_nats: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score of a source or control, and related numbers. Means are over triplets.

    nats                  : ECI_sem.   interval_95 : its 95 % interval, with queries as the sampling unit.
    bias_nats             : estimated shortfall of the score because the sample is finite.
    effective_rank        : exp of the entropy of M's spectrum, 1 to d.
    diversity_fraction    : 1 - ECI / tr M, the share of the trace that the log-determinant removes, in [0, 1).
    top_eigenvalue_shares : shares of the largest eigenvalues in tr M, descending; empty if tr M = 0.
    """

    nats: float
    per_dimension: float
    standard_error_nats: float
    interval_95: tuple[float, float]
    bias_nats: float
    trace: float
    frobenius: float
    effective_rank: float
    diversity_fraction: float
    top_eigenvalue_shares: tuple[float, ...]
    budget_curve: tuple[BudgetPoint, ...]
    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    positive_coverage_mean: float
    residual_mean: float
    weight_mean: float
    pair_loss_mean: float
    inversion_fraction: float
    low_locality_fraction: float
    high_coverage_fraction: float

    @property
    def compared_curve(self) -> tuple[BudgetPoint, ...]:
        """Budget curve to compare sources beyond budget 1."""
        return self.budget_curve

    def at(self, budget: float) -> BudgetPoint:
        """Return the score at a budget; if the curve lacks the budget, the score at B = 1.

        Beyond budget 1 the curve is `compared_curve`.
        """
        curve = self.compared_curve if budget > 1.0 else self.budget_curve
        of_all = BudgetPoint(budget=1.0, nats=self.nats, interval_95=self.interval_95, bias_nats=self.bias_nats)
        return next((point for point in curve if point.budget == budget), of_all)


Status = Literal["no_defects", "no_verdict", "repair", "unusable"]
"""Status of a source by its defects, from best to worst. Source: METHOD 14.

no_defects : no counted defect is above its limit.
no_verdict : no counted defect is above its limit, but the encoder cannot read the texts.
repair     : a counted defect is above its limit; drop the flagged negatives before training.
unusable   : a counted defect is above its limit, and dropping the flagged negatives would leave fewer than half of the
             records with a negative.
"""


@dataclass(frozen=True, kw_only=True)
class Hardness:
    """Mean closeness of negatives to their query: 0 is as close as random passages, 1 is as close as the positive.

    interval_95 : None with too few queries.   n_queries : number of distinct queries in the sample. Source: METHOD 10.
    """

    value: float
    interval_95: tuple[float, float] | None
    n_queries: int


@dataclass(frozen=True, kw_only=True)
class WithoutFlagged:
    """Score of a source without the negatives that have a counted defect, with the same IDF.

    n_triplets : number of remaining negatives. If it is 0, all other numbers are None.
    hardness   : hardness against the same random passages; None if the source itself has no hardness.
    """

    n_triplets: int
    eci_nats: float | None
    interval_95: tuple[float, float] | None
    hardness: float | None


@dataclass(frozen=True, kw_only=True)
class TableNumbers:
    """A source's numbers in the results table. Source: METHOD 16.1.

    n_queries, n_triplets : number of queries and triplets behind these numbers.
    score : score at the run's budget.   trace : tr M.
    """

    n_queries: int
    n_triplets: int
    score: BudgetPoint
    trace: float
    hardness: Hardness | None
    inversion_fraction: float

    @property
    def hardness_value(self) -> float | None:
        """Value of the hardness, or None."""
        return None if self.hardness is None else self.hardness.value


@dataclass(frozen=True, kw_only=True)
class SourceScore(Score):
    """Score of a source, and its rank among the sources of the run.

    rank              : rank among the ranked sources. This and the next two fields are None for a source that is not
                        ranked. Source: METHOD 16.3.
    tie               : letters of the source. Two sources share a letter if and only if their difference is not
                        significant. Also None if the source shares too few queries with others. Source: METHOD 16.1.
    probability_first : probability of the highest score under the joint normal distribution of the scores. Also None
                        if the scores are for different queries.
    gate_histograms   : number of negatives in 20 equal bins of [0, 1], by gate (consistency, locality, coverage,
                        weight).
    equal_curve       : budget curve of the source cut to the same size as the others; empty if it was not cut.
    on_shared         : numbers in the results table, if the table uses only some of the source's queries; else None.
                        All other fields describe all of the source's queries.
    """

    rank: int | None
    tie: str | None
    probability_first: float | None
    without_flagged: WithoutFlagged
    proxies: Proxies
    gate_histograms: Mapping[str, tuple[int, ...]]
    equal_curve: tuple[BudgetPoint, ...] = ()
    on_shared: TableNumbers | None = None

    @property
    def compared_curve(self) -> tuple[BudgetPoint, ...]:
        """Curve for comparisons: `equal_curve`, or `budget_curve` if the source was not cut. Source: METHOD 7."""
        return self.equal_curve or self.budget_curve


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Number of rows in a source: n_read = n_used + sum(skipped).

    n_records : number of records. Used rows with the same query and positive form one record.
    n_not_sampled : number of records that sampling left out (--max-records, --until-ranked), not in `n_records`.
    skipped : number of skipped rows by reason.
    dropped_negatives : number of negatives that were left out of used rows, by reason.
    """

    n_read: int
    n_used: int
    n_records: int
    n_not_sampled: int = 0
    skipped: Mapping[str, int]
    dropped_negatives: Mapping[str, int]
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """The report of one source.

    split            : name of the source within its files; "" if the files hold only one source.
    status           : status of the source, decided only by counted defects.
    n_flagged, flagged_share : number of listed negatives with at least one counted defect, and their share of all
                       listed negatives.
    repair           : command that drops all counted defects of the source; None unless the status is "repair".
    findings         : evaluated findings, in the order of the catalogue.
    finding_overlaps : number of triplets that two findings share, by the names of the two.
    languages        : languages of a sample of the source's negatives.
    score            : score of the source; None without an encoder.
    hardness         : hardness of the source; None without an encoder, or if it cannot be computed (the reason is in
                       Run.not_evaluated).
    """

    name: str
    files: tuple[InputFile, ...]
    split: str = ""
    rows: RowCounts
    n_queries: int
    n_triplets: int
    status: Status
    n_flagged: int
    flagged_share: float
    repair: str | None = None
    findings: tuple[SourceFinding, ...]
    finding_overlaps: Mapping[str, Mapping[str, int]]
    languages: Languages
    score: SourceScore | None = None
    hardness: Hardness | None = None

    @property
    def schema(self) -> str:
        """Schemas of the source's files, separated by commas."""
        return ", ".join(sorted({file.schema for file in self.files}))

    @property
    def scored(self) -> SourceScore:
        """Score of the source. Raises ValueError if the source was not scored."""
        if self.score is None:
            raise ValueError(f"{self.name} has no score")
        return self.score

    def in_table(self, budget: float) -> TableNumbers:
        """Return the source's numbers in the results table. budget: budget of the run, as in `Score.at`."""
        return self.scored.on_shared or self.numbers(self.scored.at(budget))

    def numbers(self, score: BudgetPoint) -> TableNumbers:
        """Return the source's numbers over all of its queries, with this score."""
        return TableNumbers(
            n_queries=self.n_queries,
            n_triplets=self.n_triplets,
            score=score,
            trace=self.scored.trace,
            hardness=self.hardness,
            inversion_fraction=self.scored.inversion_fraction,
        )

    def finding(self, name: str) -> SourceFinding | None:
        """Return the finding with this name; None if it was not evaluated."""
        return next((item for item in self.findings if item.name == name), None)

    def flat(self) -> dict[str, str | float | None]:
        """Return the source's texts and numbers as a flat dictionary.

        The ends of an interval are NAME_low and NAME_high, and the share of a finding is findings.NAME. Fields of the
        score keep their names, except that nats and per_dimension become eci_nats and eci_per_dimension.
        """
        score: dict[str, Any] = {} if self.score is None else dict(vars(self.score))
        for name in ("nats", "per_dimension"):
            if name in score:
                score[f"eci_{name}"] = score.pop(name)
        hardness = self.hardness
        values: dict[str, Any] = {
            "name": self.name,
            **vars(self.rows),
            **vars(self),
            **score,
            "schema": self.schema,
            "hardness": hardness and hardness.value,
            "hardness_interval_95": hardness and hardness.interval_95,
            "hardness_queries": hardness and hardness.n_queries,
        }
        del values["score"], values["split"]
        row: dict[str, str | float | None] = {}
        for name, value in values.items():
            if "interval_95" in name:
                row |= dict(zip((f"{name}_low", f"{name}_high"), value or (None, None), strict=True))
            elif value is None or isinstance(value, str | int | float):
                row[name] = value
        return row | {f"findings.{item.name}": item.share for item in self.findings}


def control_name(kind: str, of: str | None) -> str:
    """Return the name of a control for pages, mixtures and messages, such as "bm25 pool" or "shuffled of NAME"."""
    return kind.replace("_", " ") + ("" if of is None else f" of {of}")


@dataclass(frozen=True, kw_only=True)
class Against:
    """Difference between one source and one control, paired over their shared queries."""

    source: str
    difference_nats: float
    interval_95: tuple[float, float]
    z: float | None

    @property
    def placed(self) -> Literal["above", "tied", "below"]:
        """Position of the source relative to the control; "tied" if the difference is not significant."""
        low, high = self.interval_95
        if self.z is None or low <= 0 <= high:
            return "tied"
        return "above" if low > 0 else "below"


@dataclass(frozen=True, kw_only=True)
class ControlResult:
    """Result of one control. Controls are scored like sources but never ranked. Source: METHOD 6.

    kind : random, known_positive, shuffled, query_echo, bm25_pool or dense_pool.
    of   : name of the source that was shuffled; None for other kinds.
    n_new_texts  : number of texts that were encoded only for this control.
    n_candidates : number of documents that negatives were drawn from (random) or retrieved from (bm25_pool,
                   dense_pool); None for other kinds.
    against : difference of each source from this control.
    """

    kind: str
    of: str | None
    n_new_texts: int
    n_candidates: int | None = None
    n_queries: int
    n_triplets: int
    score: Score
    against: tuple[Against, ...]
