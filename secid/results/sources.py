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

    n_positives : positives that have it.   n_labelled : all positives.   share : n_positives / n_labelled.
    difference  : the negatives' share minus this one.   standard_error, interval_95 : those of the difference, with
                  queries as the sampling unit.
    excess      : lower bound of the difference: the lower end of the interval, or the difference itself with too few
                  queries for an interval.
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
    """Numbers of one finding of the catalogue in a source. Findings overlap. Source: METHOD 14.

    n_negatives : negatives that have it. For a text finding these are listed negatives of all rows read, including
                  those without text; for a finding that needs the encoder, scored negatives, of its sample if it has
                  one.
    share       : share of all such negatives.   interval_95, standard_error : those of the share, with queries as the
                  sampling unit.
    weight_fraction : share of the source's total weight on these negatives; None without an encoder.
    score_nats  : their part of the score, by the first-order split w u^T A^-1 u / N, scaled so that all triplets add up
                  to ECI; 0.0 if ECI is 0, None without an encoder.
    n_queries   : distinct queries that it was evaluated for; None in a report of an earlier version.
    n_rows      : for `repeat`, rows that list only negatives which earlier rows of their record list.
    positives   : for a formal finding, its numbers among the labelled positives.
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
        """Number that a limit applies to: the negatives' share; for a formal finding its excess over the positives."""
        return self.share if self.positives is None else self.positives.excess

    @property
    def dropping_helps(self) -> bool:
        """True if dropping these negatives brings the rest nearer to the positives; True if it is not formal."""
        return self.positives is None or dropping_narrows_gap(self.positives.share, self.positives.difference)


def dropping_narrows_gap(share: float, difference: float) -> bool:
    """Return whether negatives without a formal finding would be nearer to the positives; they would differ by `share`.

    share : the positives' share.   difference : the negatives' share minus it. Source: METHOD 16.2.
    """
    return share < abs(difference)


def defects_to_drop(findings: Sequence[SourceFinding]) -> tuple[str, ...]:
    """Return the counted defects that a repaired copy of the source drops, in the order of the findings.

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
    """Languages of a seeded sample of a source's distinct negatives, independent of their positives.

    n_texts  : sampled texts, at most 1,000.   shares: their shares by ISO 639-1 code, "" for an undecided language.
    """

    n_texts: int
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """Numbers that others rank sources by, in pair form and in record form (softmax over a record).

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

    bias_nats: average shortfall of a sample of this size. At large budgets scores of
    unequal samples must not be compared (see SourceScore.compared_curve).
    """

    budget: float
    nats: float
    interval_95: tuple[float, float]
    bias_nats: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of the triplets of a source or control, and its parts. Means are over triplets.

    nats                  : ECI_sem.   interval_95 : interval for the process that made the source, with queries as the
                            sampling unit.   bias_nats : estimate of its finite-sample shortfall.
    effective_rank        : exp of the entropy of M's spectrum, 1 to d.
    diversity_fraction    : 1 - ECI / tr M: the share of the trace that the log-det removes, in [0, 1).
    top_eigenvalue_shares : shares of tr M on the largest eigenvalues, descending; empty if tr M = 0.
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
        """The curve for comparing sources beyond budget 1."""
        return self.budget_curve

    def at(self, budget: float) -> BudgetPoint:
        """Return the score at a budget, beyond 1 on `compared_curve`; at B = 1 if the curve lacks the budget."""
        curve = self.compared_curve if budget > 1.0 else self.budget_curve
        of_all = BudgetPoint(budget=1.0, nats=self.nats, interval_95=self.interval_95, bias_nats=self.bias_nats)
        return next((point for point in curve if point.budget == budget), of_all)


Status = Literal["no_defects", "no_verdict", "repair", "unusable"]
"""Status of a source by its defects, from best to worst. Source: METHOD 14.

no_defects : no counted defect is above its limit.
no_verdict : no counted defect is above its limit, but the encoder cannot read the texts.
repair     : the flagged negatives must be dropped first.
unusable   : too few records would keep a negative without the flagged ones.
"""


@dataclass(frozen=True, kw_only=True)
class Hardness:
    """Nearness of negatives to their query: 0 is as near as random passages, 1 as near as the positive.

    interval_95 : None with too few queries.   n_queries : distinct queries that were sampled for it.
    Source: METHOD 10.
    """

    value: float
    interval_95: tuple[float, float] | None
    n_queries: int


@dataclass(frozen=True, kw_only=True)
class WithoutFlagged:
    """A source without the negatives that have a counted defect, in the same pool; the whole source if none has one.

    hardness : measured against the same random passages; None if the source itself has none.
    All numbers are None if no negative is left.
    """

    n_triplets: int
    eci_nats: float | None
    interval_95: tuple[float, float] | None
    hardness: float | None


@dataclass(frozen=True, kw_only=True)
class TableNumbers:
    """The columns of the table of one source. Source: METHOD 16.1.

    n_queries, n_triplets : size of the set that the columns describe.   score : score at the run's budget.
    trace : tr M.
    """

    n_queries: int
    n_triplets: int
    score: BudgetPoint
    trace: float
    hardness: Hardness | None
    inversion_fraction: float

    @property
    def hardness_value(self) -> float | None:
        """The hardness without its interval, or None."""
        return None if self.hardness is None else self.hardness.value


@dataclass(frozen=True, kw_only=True)
class SourceScore(Score):
    """The score of a source, and its place among the other sources of its run.

    rank_group        : sources whose order is not established share a group; None for a source that shares too few
                        queries with every other. Source: METHOD 16.1.
    probability_first : probability of the highest score under the joint normal of the scores; None if the scores are
                        for different queries.
    gate_histograms   : triplets in 20 equal bins of [0, 1], by gate (consistency, locality, coverage, weight).
    equal_curve       : its budget curve on sets of equal size across the run; empty if its set was not cut.
    on_shared         : the columns of the table if these use only some of the source's queries, else None. All other
                        fields describe all its queries.
    """

    rank: int
    rank_group: int | None
    probability_first: float | None
    without_flagged: WithoutFlagged
    proxies: Proxies
    gate_histograms: Mapping[str, tuple[int, ...]]
    equal_curve: tuple[BudgetPoint, ...] = ()
    on_shared: TableNumbers | None = None

    @property
    def compared_curve(self) -> tuple[BudgetPoint, ...]:
        """The curve for comparing sources: that of sets of equal size if there is one. Source: METHOD 7."""
        return self.equal_curve or self.budget_curve


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Counts of the rows of a source: n_read = n_used + sum(skipped).

    n_records : records; used rows of the same query and positive form one.   n_not_sampled : further records that a
    sample left out (--max-records, --until-ranked).   dropped_negatives : negatives left out of used rows, by reason.
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

    split            : name of the source within its files; "" if they hold only one.
    status           : status by counted defects only.   n_flagged, flagged_share : listed negatives with at least one
                       counted defect, and their share of all.   repair : the command that drops all counted defects
                       of the source; None unless the status is "repair".
    findings         : every finding that was evaluated, in the order of the catalogue.
    finding_overlaps : numbers of triplets with two findings, by the names of both.
    languages        : languages of a sample of its negatives.
    score            : None without an encoder.   hardness : None without an encoder, or if it cannot be computed, with
                       the reason in Run.not_evaluated.
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
        """The schemas of its files, separated by commas."""
        return ", ".join(sorted({file.schema for file in self.files}))

    @property
    def scored(self) -> SourceScore:
        """The score. Raises ValueError for a source that was not scored."""
        if self.score is None:
            raise ValueError(f"{self.name} has no score")
        return self.score

    def in_table(self, budget: float) -> TableNumbers:
        """Return the columns of the table. budget : the run's; if the curve lacks it, the score is that at B = 1."""
        return self.scored.on_shared or self.numbers(self.scored.at(budget))

    def numbers(self, score: BudgetPoint) -> TableNumbers:
        """Return the columns for all its queries, with this score."""
        return TableNumbers(
            n_queries=self.n_queries,
            n_triplets=self.n_triplets,
            score=score,
            trace=self.scored.trace,
            hardness=self.hardness,
            inversion_fraction=self.scored.inversion_fraction,
        )

    def finding(self, name: str) -> SourceFinding | None:
        """Return the finding of this name; None if it was not evaluated."""
        return next((item for item in self.findings if item.name == name), None)

    def flat(self) -> dict[str, str | float | None]:
        """Return its texts and numbers by name.

        Interval ends are NAME_low and NAME_high, and shares of negatives with a finding are findings.NAME. Numbers of
        the score keep their names, except `eci_nats` and `eci_per_dimension`.
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
    """Return the name of a control in pages, mixtures and messages: "bm25 pool", "shuffled of NAME"."""
    return kind.replace("_", " ") + ("" if of is None else f" of {of}")


@dataclass(frozen=True, kw_only=True)
class Against:
    """One source minus one control, paired over the queries they share."""

    source: str
    difference_nats: float
    interval_95: tuple[float, float]
    z: float | None

    @property
    def placed(self) -> Literal["above", "tied", "below"]:
        """Position of the source; "tied" if the interval contains 0 or supports no conclusion (no z)."""
        low, high = self.interval_95
        if self.z is None or low <= 0 <= high:
            return "tied"
        return "above" if low > 0 else "below"


@dataclass(frozen=True, kw_only=True)
class ControlResult:
    """One control, scored like a source and never ranked among them. Source: METHOD 6.

    kind: random, known_positive, shuffled, query_echo, bm25_pool, dense_pool. of: the source that a
    shuffled control was shuffled from, else None. n_new_texts: texts encoded only for it. n_candidates: documents
    that negatives were drawn from (random) or searched in (bm25_pool, dense_pool), null for other kinds.
    """

    kind: str
    of: str | None
    n_new_texts: int
    n_candidates: int | None = None
    n_queries: int
    n_triplets: int
    score: Score
    against: tuple[Against, ...]
