"""Scores and gains with their 95 % confidence intervals, sources above controls."""

from __future__ import annotations

from secid.pages.charts.forest import Mark, forest
from secid.pages.glossary import REFERENCES, compares, kind_name, score_point
from secid.pages.numbers import gain, interval, is_unknown, listed, nats
from secid.pages.page import Chart
from secid.results import ControlResult, Measurement, Run
from secid.results.probe import Probe, ProbedSource


def forest_chart(run: Run) -> Chart | None:
    """The score of each source and control with its interval, sources in rank order; None without a source."""
    if not run.sources:
        return None
    controls = [item for item in run.controls if item.of is None and _comparable(run, item)]
    marks = [_score(run, source.name, source, source.rank_group if run.comparisons else 0) for source in run.sources]
    marks += [_score(run, kind_name(control.kind), control, None) for control in controls]
    references = [name for kind, name in REFERENCES.items() if any(item.kind == kind for item in controls)]
    return forest(
        f"Score ({'ECI_sem' if run.budget == 1 else 'ECI_B'}, nats) with 95 % CI",
        marks,
        [score_point(item, run.budget).nats for item in controls if item.kind in REFERENCES],
        f"Dashed: {listed(references)}." if references else "",
    )


def _comparable(run: Run, control: ControlResult) -> bool:
    return score_point(control, run.budget).budget == run.budget and compares(run, control, run.budget)


def _score(run: Run, name: str, item: Measurement, group: int | None) -> Mark:
    """group : None for a control."""
    point = score_point(item, run.budget)
    ends = () if is_unknown(point.interval_95, run.budget) else point.interval_95  # too few queries for one
    words = f"{nats(point.nats)}, 95 % CI {interval(point.interval_95, budget=run.budget)}"
    return Mark(name, point.nats, ends, words, group or 0, group is None)


def gains_chart(probe: Probe | None) -> Chart | None:
    """What training on each source and control changes, in the order of the table; None where nothing was trained."""
    if probe is None or not probe.sources:
        return None
    marks = [_gain(source.name, source) for source in probe.sources]
    marks += [_gain(kind_name(control.name), control, is_control=True) for control in probe.controls]
    return forest("Gain in nDCG@10 with 95 % CI", marks, [0.0], "Dashed: the frozen encoder.")


def _gain(name: str, item: ProbedSource, is_control: bool = False) -> Mark:
    words = gain(item.gain_ndcg10, item.interval_95)
    return Mark(name, item.gain_ndcg10, item.interval_95 or (), words, item.tie or 0, is_control)
