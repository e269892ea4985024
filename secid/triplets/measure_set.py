"""Measure a set of triplets: the variants of an ablation, both passes, and sets cut to equal size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Floats, Index, distinct
from secid.errors import NumericalError
from secid.measure.blocks import Triplets, Vectors, parallel_map
from secid.measure.gates import UNBOUNDED_WEIGHTS, WEIGHT_FORMULAS
from secid.measure.information import Eigen, InformationState, eigenvalues, log_det_nats, spectral_nats, trace
from secid.measure.interval import MIN_QUERIES
from secid.measure.sweep import SweepSums, Variant, sweep
from secid.measure.uncertainty import Influence, influence, influence_of_few, information
from secid.pool import Plan, PlannedSource, first_sampled, sample_order
from secid.settings import Settings
from secid.triplets.table import CoverageTables, TripletTable

# Variants: the run's own setting, and the settings of ablations. One pass computes all of them.

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2)
TOKENIZERS = ("alphanumeric", "alphanumeric2", "whitespace", "trigrams", "multilingual")
IDF_CORPORA = ("pooled", "own", "pooled_with_queries", "uniform")
TEMPERATURE_DIGITS = 12
"""Number of significant digits in the name of a temperature. With fewer, 0.05 and 0.04999999 could get the same
name."""
SAMPLES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def coverage_name(tokenizer: str, corpus: str) -> str:
    return f"{tokenizer}/{corpus}"


def base_variant(settings: Settings) -> Variant:
    return Variant(settings.temperature, coverage_name(settings.tokenizer, settings.idf), "full")


@dataclass(frozen=True)
class Aspect:
    """One aspect that an ablation varies. variants: variants by the text of the setting.   base: the run's setting."""

    name: str
    base: str
    variants: Mapping[str, Variant]


def aspects(settings: Settings, has_pieces: bool = False) -> tuple[Aspect, ...]:
    """Return the aspects of an ablation around a run's settings. Every aspect includes the base. Source: METHOD 3, 4.

    has_pieces : True if the encoder has a tokenizer, so that word pieces are a variant.
    """
    base = base_variant(settings)
    temperatures = sorted({*TEMPERATURES, settings.temperature})
    tokenizers = (*TOKENIZERS, "wordpieces") if has_pieces else TOKENIZERS
    return (
        Aspect(
            "temperature",
            f"{settings.temperature:.{TEMPERATURE_DIGITS}g}",
            {f"{tau:.{TEMPERATURE_DIGITS}g}": Variant(tau, base.coverage, "full") for tau in temperatures},
        ),
        Aspect(
            "tokenizer",
            settings.tokenizer,
            {name: Variant(base.temperature, coverage_name(name, settings.idf), "full") for name in tokenizers},
        ),
        Aspect(
            "idf",
            settings.idf,
            {name: Variant(base.temperature, coverage_name(settings.tokenizer, name), "full") for name in IDF_CORPORA},
        ),
        Aspect("weight", "full", {name: Variant(base.temperature, base.coverage, name) for name in WEIGHT_FORMULAS}),
        Aspect(
            "sample",
            "100 %",
            {f"{100 * part:g} %": Variant(base.temperature, base.coverage, "full", part) for part in SAMPLES},
        ),
    )


# A set of triplets after both passes: gates, information matrix and the influence of every triplet.

CURVE_BUDGETS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
"""Budgets of the budget curve, in addition to the source's number of negatives. Source: METHOD 7."""


@dataclass(frozen=True)
class VariantScore:
    """ECI_B of a source under one variant.

    nats        : ECI_B; None for a sample without triplets, and for an unbounded weight.
    eigenvalues : (d,) eigenvalues of M for an unbounded weight, because it is scaled later, by its mean over the run;
                  None for other weights.
    n_queries   : number of distinct queries in the variant's sample.
    """

    nats: float | None
    eigenvalues: Floats | None
    weight_sum: float
    n_negatives: float
    n_queries: int


@dataclass(frozen=True)
class Measured:
    """A set of triplets after both passes.

    record_gradient : (G,) as in SweepSums.
    state           : information state on the CPU; without its matrix if no run folder will store it.
    eigenvalues     : eigenvalues of M, >= 0, ascending; zeros may be missing.
    influence       : influence at the run's budget, then at the budgets of the curve.
    query_keys      : (Q, 16) text keys of influence.queries.
    """

    name: str
    table: TripletTable
    record_gradient: Floats
    state: InformationState
    eigenvalues: Floats
    influence: Influence
    query_keys: npt.NDArray[np.uint8]
    variants: Mapping[Variant, VariantScore]

    @property
    def triplets(self) -> Triplets:
        return self.table.triplets

    def nats(self, budget: float) -> float:
        return spectral_nats(self.eigenvalues, budget)

    @property
    def trace(self) -> float:
        return float(self.eigenvalues.sum())


def curve_budgets(budget: float, n_negatives: float) -> tuple[float, ...]:
    """Return the run's budget, then the other budgets of the curve and N in ascending order, without repeats."""
    others = sorted({*CURVE_BUDGETS, max(1.0, float(round(n_negatives)))} - {budget})
    return (budget, *others)


# Measurement of all sets of triplets in a run, and sets cut to equal size.

NO_MATRIX = torch.empty(0, 0, dtype=torch.float64)


@dataclass(frozen=True)
class Measurer:
    """Measures sets of triplets of a run by both passes, with the run's settings."""

    vectors: Vectors
    query_keys: npt.NDArray[np.uint8]
    coverages: CoverageTables
    settings: Settings
    smallest_distance: float

    def measure(
        self,
        name: str,
        planned: PlannedSource | None,
        rows: Triplets,
        variants: Sequence[Variant] = (),
        position: Floats | None = None,
        *,
        budgets: Sequence[float] | None = None,
        keep_sum: bool = True,
    ) -> Measured:
        """Compute gates, information and influence of a set of triplets, and its scores under other variants.

        planned  : source of the rows; None for a control.
        position : (T,) position of each triplet's query in the nested sample.
        budgets  : budgets of the influence; None for the run's budget and the curve's budgets.
        keep_sum : True to keep the information matrix in the state, for the run folder. Source: METHOD 2, 4, 7, 8.
        """
        settings, base = self.settings, base_variant(self.settings)
        all_variants = list(dict.fromkeys([base, *variants]))
        coverages = self._coverages(rows, all_variants)
        sums = self._sweep(rows, coverages, all_variants, position)
        scores = variant_scores(sums, variants, settings.budget, rows, position, self.vectors.computes_on)
        table = TripletTable(
            triplets=rows,
            planned=planned,
            temperature=settings.temperature,
            s_query_positive=sums.dots.query_positive.numpy()[rows.record_offsets[:-1]],
            positive_coverage=self.coverages.positives(rows, settings.tokenizer, settings.idf),
            s_query_negative=sums.dots.query_negative.numpy(),
            s_positive_negative=sums.dots.positive_negative.numpy(),
            coverage=coverages[base.coverage],
            findings=np.zeros(len(rows), np.uint32),
            evaluated=frozenset(),
        )
        state = sums.state(base)
        sums.sums.clear()
        eigen = Eigen.of(state, len(rows))
        if base in scores:  # so that the base row shows the same score as the ranking
            scores[base] = replace(scores[base], nats=spectral_nats(eigen.values, settings.budget))
        budgets = budgets or curve_budgets(settings.budget, state.n_negatives)
        squared, weight = sums.dots.squared_distance.numpy(), table.gates().weight.numpy()
        return Measured(
            name=name,
            table=table,
            record_gradient=sums.record_gradient,
            state=InformationState(state.total.cpu() if keep_sum else NO_MATRIX, state.n_negatives),
            eigenvalues=eigen.values,
            influence=influence(
                self.vectors, rows, squared, weight, eigen, self.smallest_distance, budgets, self._dtype
            ),
            query_keys=self.query_keys[distinct(rows.query)],
            variants=scores,
        )

    def part(self, item: Measured, keep: Index, budget: float) -> Measured:
        """Measure some triplets of a measured set as a separate set, at one budget and with the run's IDF.

        keep : ascending indices of the triplets. With fewer than MIN_QUERIES queries, the influence is set to 0,
               because there is no interval.
        """
        base, table = base_variant(self.settings), item.table.rows(keep)
        rows, few = table.triplets, len(keep) <= self.vectors.dimension
        sums = self._sweep(rows, {base.coverage: table.coverage}, [] if few else [base])
        inputs = self.vectors, rows, sums.dots.squared_distance.numpy(), table.gates().weight.numpy()
        if few:
            effect, eigenvalues = influence_of_few(*inputs, self.smallest_distance, budget, self._dtype)
        else:
            eigen = Eigen.of(sums.state(base), len(rows))
            effect, eigenvalues = influence(*inputs, eigen, self.smallest_distance, [budget], self._dtype), eigen.values
        if len(effect.queries) < MIN_QUERIES:
            effect = replace(effect, per_triplet=np.zeros(len(rows)), per_query=np.zeros_like(effect.per_query))
        return replace(
            item,
            table=table,
            record_gradient=sums.record_gradient,
            state=InformationState(NO_MATRIX, rows.n_negatives),
            eigenvalues=eigenvalues,
            influence=effect,
            query_keys=self.query_keys[effect.queries],
            variants={},
        )

    def score_of(self, item: Measured, keep: Index, budget: float) -> tuple[Influence, float]:
        """Return the influence and ECI_B of some triplets at one budget. This is faster than `part`: it needs no sweep.

        keep : ascending indices of the triplets, at least one.
        """
        inputs = self._inputs(item.table.rows(keep))
        if len(keep) <= self.vectors.dimension:
            effect, values = influence_of_few(*inputs, self.smallest_distance, budget, self._dtype)
        else:
            eigen = self._eigen(item, keep)
            effect = influence(*inputs, eigen, self.smallest_distance, [budget], self._dtype)
            values = eigen.values
        return effect, spectral_nats(values, budget)

    def _eigen(self, item: Measured, keep: Index) -> Eigen:
        """Return the eigenvalues and basis of some triplets' information, of more triplets than dimensions.

        It is the information of all minus that of the others, if these are fewer, have at most half of it, and leave a
        matrix of full rank. Otherwise rounding errors of the whole could be as large as what is left.
        """

        def information_of(places: Index) -> InformationState:
            return information(*self._inputs(item.table.rows(places)), self.smallest_distance, self._dtype)

        if len(item.state.total) and 2 * len(keep) > len(item.triplets):
            others = information_of(np.delete(np.arange(len(item.triplets)), keep))
            whole = InformationState(item.state.total.to(others.total), item.state.n_negatives)
            if 2 * trace(others.total) <= trace(whole.total):
                with suppress(NumericalError):
                    rest = Eigen.of(whole - others, len(keep))
                    if rest.values[0] > 0:
                        return rest
        return Eigen.of(information_of(keep), len(keep))

    def _inputs(self, table: TripletTable) -> tuple[Vectors, Triplets, Floats, Floats]:
        """Return vectors, triplets, (T,) squared distances and (T,) weights, as `influence` needs them."""
        weight = table.gates().weight.numpy()
        return replace(self.vectors, tick=None), table.triplets, table.dots().squared_distance.numpy(), weight

    def _coverages(self, rows: Triplets, variants: Sequence[Variant]) -> dict[str, Floats]:
        """Return (T,) coverage of each negative by variants' names."""
        names = list(dict.fromkeys(variant.coverage for variant in variants))
        parts = [(tokenizer, corpus) for tokenizer, corpus in (name.split("/") for name in names)]
        return dict(zip(names, self.coverages.negatives(rows, parts), strict=True))

    def _sweep(
        self,
        rows: Triplets,
        coverages: Mapping[str, Floats],
        variants: Sequence[Variant],
        position: Floats | None = None,
    ) -> SweepSums:
        return sweep(
            self.vectors,
            rows,
            coverages,
            variants,
            self.smallest_distance,
            self.settings.temperature,
            position,
            self._dtype,
        )

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.settings.sums)
        return dtype


def variant_scores(
    sums: SweepSums,
    variants: Sequence[Variant],
    budget: float,
    rows: Triplets,
    position: Floats | None,
    device: torch.device,
) -> dict[Variant, VariantScore]:
    """Return the scores of all variants of a sweep. Their matrices are computed in parallel if they fit in 1 GB."""
    places = np.zeros(len(rows)) if position is None else position

    def score(variant: Variant) -> VariantScore:
        state, scaled = sums.state(variant), variant.weight in UNBOUNDED_WEIGHTS
        inside = rows.query[places < variant.sample] if variant.sample < 1.0 else rows.query
        return VariantScore(
            nats=None if scaled or not state.n_negatives else log_det_nats(state, len(inside), budget),
            eigenvalues=eigenvalues(state, len(inside)) if scaled else None,
            weight_sum=sums.weights[variant],
            n_negatives=state.n_negatives,
            n_queries=len(distinct(inside)),
        )

    distinct_variants = list(dict.fromkeys(variants))
    if not distinct_variants:
        return {}
    d = sums.dimension
    with parallel_map(device, 3 * 8 * d * d) as each:  # a matrix, its copy, and workspace for the decomposition
        return dict(zip(distinct_variants, each(score, distinct_variants), strict=True))


def sample_positions(plan: Plan, seed: int, triplets: Sequence[Triplets] | None = None) -> Floats:
    """Return (n_queries,) position of each query in the run's nested sample, in [0, 1). Source: METHOD 8.

    A 10 % sample consists of the queries below 0.1. A query has the same position in every source.
    triplets : triplets whose queries are sampled; None for all queries of the plan. All other queries get the position
            1.0, which is in no sample.
    """
    queries = (
        np.arange(len(plan.queries))
        if triplets is None
        else distinct(np.concatenate([rows.query for rows in triplets]))
    )
    order = first_sampled(queries, plan.queries.keys, seed)
    position = np.ones(len(plan.queries))
    position[order] = np.arange(len(order)) / len(order)
    return position


def equal_size_sets(plan: Plan, triplets: Sequence[Triplets], seed: int) -> list[Triplets] | None:
    """Cut the sources to equal numbers of queries and negatives. A source that loses nothing is returned unchanged.

    Return None if sources of different size use the policy "all", whose pairs cannot be cut one by one.
    """
    places = equal_size_places(plan, triplets, seed)
    if places is None:
        return None
    return [rows if len(keep) == len(rows) else rows.take(keep) for rows, keep in zip(triplets, places, strict=True)]


def equal_size_places(plan: Plan, triplets: Sequence[Triplets], seed: int) -> list[Index] | None:
    """Return the ascending indices of the triplets that each source keeps when sources are cut to equal size.

    Return None in the same case as `equal_size_sets`. Queries are taken in the order of the nested sample. Each round
    takes one negative per query, so that every query keeps some. The negatives of a query are sorted by a hash of their
    text, so that their order in the file does not matter. Source: METHOD 7.
    """
    sizes = {(len(distinct(rows.query)), round(rows.n_negatives)) for rows in triplets}
    if len(sizes) == 1:
        return [np.arange(len(rows)) for rows in triplets]
    if any(rows.share is not None for rows in triplets):
        return None
    n_queries = min(size for size, _ in sizes)
    orders = []
    for rows in triplets:
        priority = sample_order(plan.queries.keys[rows.query], seed)
        _, query_rank = np.unique(priority, return_inverse=True)
        texts = [sample_order(plan.passages.keys[ids], seed) for ids in (rows.positive, rows.negative)]
        order = np.lexsort((*texts, query_rank))
        starts = np.searchsorted(query_rank[order], np.arange(n_queries))
        inside = order[: int(np.searchsorted(query_rank[order], n_queries))]
        round_number = np.arange(len(inside)) - starts[query_rank[inside]]
        orders.append(inside[np.lexsort((query_rank[inside], round_number))])
    n_triplets = min(map(len, orders))
    return [np.sort(order[:n_triplets]) for order in orders]
