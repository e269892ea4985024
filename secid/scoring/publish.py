"""Convert measured sources and controls to results, and warn of facts that affect how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from secid.analyses.analysis import Context
from secid.analyses.controls import Control
from secid.analyses.ranking import probabilities_first, score_interval, tie_letters
from secid.analyses.shared_queries import MIN_SHARED_QUERIES, SharedCounts, SourcePairs, same_queries
from secid.arrays import Flags, Floats, distinct, is_known
from secid.encode.selftest import MAX_NOISE, NOISE_FACTOR
from secid.measure.gates import INVERSION, ProxyValues, gate_means, proxies
from secid.measure.information import spectral_nats, spectrum, trace
from secid.measure.interval import MIN_QUERIES, Difference, finite_interval
from secid.measure.uncertainty import covariance
from secid.pool import Plan
from secid.results import (
    Against,
    BudgetPoint,
    Comparison,
    ControlResult,
    Hardness,
    InputFile,
    Proxies,
    RunWarning,
    Score,
    SourceReport,
    SourceScore,
    Status,
)
from secid.results.commands import no_command, repair_command
from secid.results.sources import TableNumbers
from secid.settings import Settings
from secid.triplets.estimates import Estimate
from secid.triplets.measure_set import Measured
from secid.triplets.random_reference import QuerySums, RandomReference, summed_queries

# Warnings: a noisy encoder, too few queries, unequal samples, unusable slices.

MAX_SHOWN_SOURCES, MAX_SHOWN_VALUES = 10, 5
"""Maximum number of sources, and of values per source, in the warning no_common_slice_value."""


def noise_warnings(distance: float) -> tuple[RunWarning, ...]:
    """Warn if the encoder is so noisy that more than near copies count as equal. distance: `smallest_distance`."""
    limit = NOISE_FACTOR * MAX_NOISE
    if distance <= limit:
        return ()
    return (RunWarning(kind="noisy_encoder", values={"distance": distance, "limit": limit}),)


def comparison_warnings(pairs: SourcePairs, counts: SharedCounts) -> tuple[RunWarning, ...]:
    """Warn about pairs compared by tr M or not at all, and rows with different queries. Source: METHOD 16.1."""
    warnings, n_pairs = [], len(pairs.gaps) + len(pairs.few_shared)
    if pairs.few_shared:
        first, second, n_shared = pairs.few_shared[0]
        values = {"first": first, "second": second, "n_shared_queries": n_shared}
        values |= {"n_apart": len(pairs.few_shared), "n_pairs": n_pairs}
        warnings.append(RunWarning(kind="few_shared_queries", values=values))
    if not counts.one_set:
        values = {"n_common": counts.n_common, "n_smallest": counts.n_smallest, "n_largest": counts.n_largest}
        warnings.append(RunWarning(kind="own_queries", values=values))
    if n_traces := sum(pair.number == "trace" for pair in pairs.gaps):
        warnings.append(RunWarning(kind="traces_compared", values={"n_traces": n_traces, "n_pairs": n_pairs}))
    return tuple(warnings)


def chosen_query_warnings(
    names: Sequence[str], has: Flags, hardness: Sequence[QuerySums], n_queries: int
) -> tuple[RunWarning, ...]:
    """Warn about sources that have only some of the run's queries.

    For each such source, the warning has the hardness of the other sources on its queries, and on the rest of the run's
    queries. This uses only other sources with at least MIN_SHARED_QUERIES sampled queries on both sides. If there are
    none, the warning leaves the source out.
    has : (S, n) flags of the queries that each source has.   hardness : sums by query of each source.
    """
    sources = {}
    for place, (name, in_source) in enumerate(zip(names, has, strict=True)):
        sides = [
            [sums.restrict(queries) for queries in (in_source, ~in_source)]
            for sums in (*hardness[:place], *hardness[place + 1 :])
        ]
        both = [pair for pair in sides if min(len(part.queries) for part in pair) >= MIN_SHARED_QUERIES]
        if in_source.sum() == n_queries or not both:
            continue
        values = [summed_queries(list(parts)).value for parts in zip(*both, strict=True)]
        if None not in values:
            sources[name] = [int(in_source.sum()), *values]
    if not sources:
        return ()
    return (RunWarning(kind="chosen_queries", values={"n_queries": n_queries, "sources": sources}),)


def few_query_warnings(n_queries: Mapping[str, int]) -> tuple[RunWarning, ...]:
    """Warn about sources with too few queries for intervals and comparisons. n_queries: distinct queries by source."""
    return tuple(
        RunWarning(kind="few_queries", source=name, values={"n_queries": n})
        for name, n in n_queries.items()
        if n < MIN_QUERIES
    )


def unequal_size_warnings(equal_size: Sequence[Measured] | None, settings: Settings) -> tuple[RunWarning, ...]:
    """Warn if sources are ranked at a budget beyond 1 although they have unequal sizes."""
    if equal_size is not None or settings.budget <= 1.0:
        return ()
    return (RunWarning(kind="unequal_sizes", values={"budget": settings.budget}),)


def slice_warnings(plan: Plan, settings: Settings) -> tuple[RunWarning, ...]:
    """Warn about --by: sources without the column, records whose rows have different values, and unshared values."""
    if settings.by is None:
        return ()
    absent = plan.slices.index("") if "" in plan.slices else -1
    warnings = []
    for planned in plan.sources:
        mixed = planned.tally.n_mixed_slices
        if (planned.slice == absent).all():
            values = {"column": settings.by, "n_records": planned.n_records}
            warnings.append(RunWarning(kind="no_slice_value", source=planned.name, values=values))
        if mixed:
            values = {"column": settings.by, "n_records": mixed}
            warnings.append(RunWarning(kind="mixed_slice_values", source=planned.name, values=values))
    return (*warnings, *_without_common_value(plan, settings.by))


def _without_common_value(plan: Plan, by: str) -> list[RunWarning]:
    """Warn about sources that share no slice value with another source, because no slice can compare them."""
    values = {
        planned.name: {value for number in distinct(planned.slice) if (value := plan.slices[number])}
        for planned in plan.sources
    }
    alone = [
        name
        for name, source_values in values.items()
        if source_values
        and any(values[other] for other in values if other != name)
        and not any(source_values & values[other] for other in values if other != name)
    ]
    if not alone:
        return []
    sources = {name: sorted(values[name])[:MAX_SHOWN_VALUES] for name in alone[:MAX_SHOWN_SOURCES]}
    return [RunWarning(kind="no_common_slice_value", values={"column": by, "sources": sources})]


# Conversion of measured sources and controls to results.

HISTOGRAM_BINS = 20
SHOWN_GATES = ("consistency", "locality", "coverage", "weight")
"""Gates with a histogram."""


def measurement(item: Measured, settings: Settings) -> dict[str, Any]:
    """Return the fields of a results.Score."""
    table = item.table
    return {
        **score_fields(item.eigenvalues, trace(item.state.matrix()), item.influence),
        **vars(
            gate_means(
                table.gates(),
                table.pair_loss(),
                table.repeated(table.positive_coverage),
                settings.high_coverage,
                table.share,
            )
        ),
    }


class HasErrors(Protocol):
    """Standard errors and bias of ECI_B at several budgets, such as an `Influence`."""

    @property
    def budgets(self) -> tuple[float, ...]: ...
    @property
    def bias_nats(self) -> Floats: ...
    @property
    def n_queries(self) -> int: ...
    def standard_errors(self) -> Floats: ...


def score_fields(eigenvalues: Floats, trace: float, effect: HasErrors) -> dict[str, Any]:
    """Return the fields of a results.Score that are computed from M and the standard errors.

    eigenvalues, trace : (d,) eigenvalues of M, and tr M.   effect : its budgets must include 1.
    """
    points = _curve(eigenvalues, effect)
    score = next(point for point in points if point.budget == 1.0)
    return {
        "nats": score.nats,
        "per_dimension": score.nats / len(eigenvalues),
        "standard_error_nats": float(effect.standard_errors()[effect.budgets.index(1.0)]),
        "interval_95": score.interval_95,
        "bias_nats": score.bias_nats,
        "trace": trace,
        **vars(spectrum(eigenvalues)),
        "budget_curve": points,
    }


def _curve(eigenvalues: Floats, effect: HasErrors) -> tuple[BudgetPoint, ...]:
    """Return ECI_B at each budget, in ascending order of budgets."""
    points = []
    for budget, error, bias in sorted(zip(effect.budgets, effect.standard_errors(), effect.bias_nats, strict=True)):
        nats = spectral_nats(eigenvalues, budget)
        ends = score_interval(nats, float(error), effect.n_queries, budget)
        points.append(BudgetPoint(budget=budget, nats=nats, interval_95=ends, bias_nats=float(bias)))
    return tuple(points)


def repair_of(
    run: str | None, name: str, status: Status, defects: tuple[str, ...], inputs: Sequence[InputFile]
) -> str | None:
    """Return the command that repairs a source; None if no such command can be typed, or its status is not "repair"."""
    if status != "repair" or not defects or no_command(name, inputs):
        return None
    return repair_command(run, name, defects, inputs[0].path)


def table_numbers(item: Measured, cut: Measured, reference: RandomReference | None, budget: float) -> TableNumbers:
    """Return a source's numbers in the results table, on the queries that all sources share.

    item : source on these queries.   cut : set of triplets used to rank it at the budget.
    """
    score = next(point for point in _curve(cut.eigenvalues, cut.influence) if point.budget == budget)
    hardness = None if reference is None else item.table.hardness(reference)
    return TableNumbers(
        n_queries=item.influence.n_queries,
        n_triplets=round(item.triplets.n_negatives),
        score=score,
        trace=trace(item.state.matrix()),
        hardness=hardness_of(hardness),
        inversion_fraction=item.table.average(item.table.gates().consistency.numpy() < INVERSION),
    )


def hardness_of(estimate: Estimate | None) -> Hardness | None:
    """Return an estimate of the hardness as a result; None without an estimate."""
    if estimate is None:
        return None
    return Hardness(
        value=estimate.value, interval_95=finite_interval(estimate.interval), n_queries=len(estimate.queries)
    )


def source_report(
    context: Context,
    item: Measured,
    equal_size: Measured | None,
    files: Mapping[str, InputFile],
    run: str | None,
    **ranked: Any,
) -> SourceReport:
    """Return the report of one source.

    equal_size : the source cut to equal size; `item` itself if nothing was cut; None if sources cannot be cut.
    files      : input files by path.   run : run folder that will be written, or None.
    ranked     : fields of SourceScore that depend on other sources, such as the rank.
    """
    settings, findings = context.settings, context.findings[item.name]
    planned, columns = item.table.source, item.table.columns()
    inputs = tuple(files[path] for path in planned.source.paths)
    answer = findings.status
    return SourceReport(
        name=planned.name,
        status=answer.status,
        n_flagged=answer.flagged.n,
        flagged_share=answer.flagged.estimate.value,
        repair=repair_of(run, planned.name, answer.status, answer.defects, inputs),
        files=inputs,
        split=planned.split,
        rows=planned.tally.row_counts(planned.n_records),
        n_queries=item.influence.n_queries,
        n_triplets=planned.n_triplets,
        findings=findings.findings,
        finding_overlaps=findings.overlaps,
        languages=findings.languages,
        score=SourceScore(
            without_flagged=context.without_flagged[item.name],
            proxies=Proxies(**vars(_proxies(item))),
            gate_histograms={name: _histogram(columns[name], item.table.share) for name in SHOWN_GATES},
            equal_curve=()
            if equal_size is None or equal_size is item
            else _curve(equal_size.eigenvalues, equal_size.influence),
            **measurement(item, settings),
            **ranked,
        ),
        hardness=hardness_of(context.hardness.get(item.name)),
    )


def control_result(
    control: Control, item: Measured, n_new_texts: int, gaps: Mapping[str, Difference], settings: Settings
) -> ControlResult:
    """Return the result of a control. gaps: each source's score minus the control's score, by name in rank order."""
    against = tuple(
        Against(source=name, difference_nats=gap.value, interval_95=gap.interval_within(1.0), z=gap.z)
        for name, gap in gaps.items()
    )
    return ControlResult(
        kind=control.kind,
        of=control.of,
        n_new_texts=n_new_texts,
        n_candidates=control.n_candidates,
        n_queries=item.influence.n_queries,
        n_triplets=len(item.table) if item.table.planned is None else item.table.planned.n_triplets,
        score=Score(**measurement(item, settings)),
        against=against,
    )


def _proxies(item: Measured) -> ProxyValues:
    table = item.table
    return proxies(item.triplets, table.dots(), table.gates(), item.record_gradient, table.temperature)


def _histogram(values: Floats, share: Floats | None) -> tuple[int, ...]:
    """Return the number of negatives in each bin. Round cumulative sums, so that the bins add up to the total."""
    counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(0.0, 1.0), weights=share)
    sums = np.rint(np.cumsum(counts)).astype(np.int64)
    return tuple(int(count) for count in np.diff(sums, prepend=0))


def source_reports(
    context: Context, compared: Sequence[Comparison], files: Mapping[str, InputFile], run_folder: str | None
) -> tuple[SourceReport, ...]:
    """Return the published numbers of all sources, in rank order."""
    settings, sets = context.settings, context.ranked
    names = context.equal_hardness.ranked([item.name for item in sets])
    places, ties = {name: place for place, name in enumerate(names, 1)}, tie_letters(names, compared)
    first: dict[str, float] = {}
    if same_queries(sets):
        ranked = sets[: len(names)]
        scores, effects = [item.nats(settings.budget) for item in ranked], [item.influence for item in ranked]
        n_queries = [effect.n_queries for effect in effects]
        chance = probabilities_first(scores, covariance(effects), n_queries, settings.seed)
        first = dict(zip(names, chance.tolist(), strict=True))
    equal_size: Sequence[Measured | None] = context.equal_size or [None] * len(sets)
    return tuple(
        source_report(
            context,
            item,
            numbers,
            files,
            run_folder,
            rank=places.get(item.name),
            tie=ties.get(item.name),
            probability_first=first.get(item.name),
            on_shared=None if shared is item else table_numbers(shared, score, context.reference, settings.budget),
        )
        for item, shared, score, numbers in zip(context.items, context.table, sets, equal_size, strict=True)
    )


def control_results(context: Context) -> tuple[ControlResult, ...]:
    names = [item.name for item in context.ranked]
    pool = distinct(
        np.concatenate([ids for item in context.items for ids in (item.triplets.positive, item.triplets.negative)])
    )
    results = []
    for (control, item), gaps in zip(context.controls, context.control_gaps, strict=True):
        n_new_texts = int((~is_known(distinct(item.triplets.negative), pool)).sum())
        item_gaps = {name: gaps[name] for name in names if name in gaps}
        results.append(control_result(control, item, n_new_texts, item_gaps, context.settings))
    return tuple(results)
