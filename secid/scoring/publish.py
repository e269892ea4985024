"""Measured sources and controls to published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secid.analyses.buckets import Findings
from secid.analyses.controls import Control
from secid.analyses.ranking import difference_interval, interval
from secid.measure.information import trace
from secid.measure.spectrum import spectrum
from secid.measure.summary import gate_means
from secid.measure.uncertainty import difference
from secid.results import Against, BudgetPoint, ControlResult, InputFile, SourceResult
from secid.settings import Settings
from secid.triplets.measured import Measured


def measurement(item: Measured, settings: Settings) -> dict[str, Any]:
    """The fields that sources and controls share (results.Measurement)."""
    matrix, table = item.state.matrix(), item.table
    points = _curve(item)
    score = next(point for point in points if point.budget == 1.0)
    shape = spectrum(matrix)
    column = item.influence.column(1.0)
    return {
        "n_queries": len(item.influence.queries),
        "n_triplets": len(table) if table.planned is None else table.planned.n_triplets,
        "eci_nats": score.nats,
        "eci_per_dimension": score.nats / matrix.shape[0],
        "standard_error_nats": float(item.influence.standard_errors()[column]),
        "interval_95": score.interval_95,
        "bias_nats": score.bias_nats,
        "trace": trace(matrix),
        **vars(shape),
        "budget_curve": points,
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


def _curve(item: Measured) -> tuple[BudgetPoint, ...]:
    """ECI_B at the run's budget and those of the curve, rising."""
    errors = item.influence.standard_errors()
    points = []
    for budget, error, bias in zip(item.influence.budgets, errors, item.influence.bias_nats, strict=True):
        nats = item.nats(budget)
        points.append(
            BudgetPoint(
                budget=budget,
                nats=nats,
                interval_95=interval(item, budget, nats, float(error)),
                bias_nats=float(bias),
            )
        )
    return tuple(sorted(points, key=lambda point: point.budget))


def source_result(
    item: Measured,
    level: Measured | None,
    rank: int,
    group: int,
    chance: float,
    files: Mapping[str, InputFile],
    findings: Findings,
    settings: Settings,
) -> SourceResult:
    """The published numbers of one source. level: the source cut to equal numbers, the item where nothing is cut."""
    planned = item.table.source
    inputs = tuple(files[path] for path in planned.source.paths)
    tally = planned.tally
    return SourceResult(
        name=planned.name,
        rank=rank,
        rank_group=group,
        probability_first=chance,
        paths=inputs,
        schema=", ".join(sorted({file.schema for file in inputs})),
        n_read=tally.n_read,
        n_used=tally.n_used,
        n_records=planned.n_records,
        n_not_sampled=tally.n_records - planned.n_records,
        skipped=tally.skipped,
        dropped_negatives=tally.dropped,
        examples=tally.examples,
        equal_curve=() if level is None or level is item else _curve(level),
        **vars(findings),
        **measurement(item, settings),
    )


def control_result(
    control: Control, item: Measured, n_new_texts: int, ranked: Sequence[Measured], settings: Settings
) -> ControlResult:
    """The published numbers of one control, and each source's paired difference from it."""
    against = []
    for source in ranked:
        if control.of is not None and source.name != control.of:
            continue
        gap = difference(source.influence, item.influence, source.nats(1.0) - item.nats(1.0), 1.0)
        against.append(
            Against(
                source=source.name,
                difference_nats=gap.nats,
                interval_95=difference_interval(gap, 1.0),
                z=gap.z,
            )
        )
    return ControlResult(
        kind=control.kind, of=control.of, n_new_texts=n_new_texts, against=tuple(against), **measurement(item, settings)
    )
