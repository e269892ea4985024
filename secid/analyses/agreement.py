"""Compare a ranking with downstream results: Kendall's tau, Spearman's rho and regret."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from math import factorial, isfinite
from operator import itemgetter
from pathlib import Path
from statistics import NormalDist

import numpy as np

from secid.analyses.ablations import ABLATIONS
from secid.arrays import Floats
from secid.errors import InputError, plain_message
from secid.results import Agreement, Run
from secid.results.document import read_probe
from secid.results.run import PROBE_METRIC

# Downstream results of sources, from a CSV file or a probe.

MAX_CELL = 1e100
"""Largest absolute value of a cell. It is far beyond any metric, and its square is still finite."""
ERROR_SUFFIX = "_se"
SHOWN_NAMES = 3
"""Number of unmatched names that are shown as examples."""


@dataclass(frozen=True)
class Outcomes:
    """One downstream metric of the sources.

    values    : value by source.   errors : standard errors of the values, or empty.
    abstained : reason why the probe ranks nothing; None if it ranks sources, or if the values are not from a probe.
    is_open   : True if the probe cannot separate the highest source from another one.
    """

    name: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    abstained: str | None = None
    is_open: bool = False


def outcomes_of(path: Path) -> list[Outcomes]:
    """Read downstream results: the gains of a probe (.json) at each dose, or a CSV file. Raises InputError.

    Standard errors of a probe with one seed are left out, because they lack the variance between training runs.
    """
    if path.suffix != ".json":
        return read_outcomes(path)
    probe = read_probe(path)
    if probe is None or not probe.trained:
        raise InputError(
            "the probe trained on no source, so it has no results", where=str(path), remedy="name another probe.json"
        )
    return [
        Outcomes(
            f"{PROBE_METRIC} at rate {dose.rate:g}",
            {item.name: item.gain_ndcg10 for item in dose.sources},
            {item.name: item.standard_error for item in dose.sources if item.interval_95 is not None},
            dose.not_evaluated,
            bool(dose.tied_with_first),
        )
        for dose in probe.trained
    ]


def read_outcomes(path: Path) -> list[Outcomes]:
    """Read a CSV file with a column `source` and one column per metric, split and run. Higher values are better.

    A column `<name>_se` holds the standard errors of column `<name>`. A source with an empty cell is left out of that
    column. Raises InputError with file and line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot be read: {plain_message(error)}", where=str(path), remedy="save it as a CSV file in UTF-8"
        ) from error
    columns = rows[0][1] if rows else []
    if "source" not in columns or len(columns) < 2:
        names_shown = [name[:40] for name in columns if name][:SHOWN_NAMES]
        raise InputError(
            f"needs a column `source` and one per metric, but has {', '.join(names_shown) or 'none'}",
            where=str(path),
            remedy="name the columns in the first line, such as source,ndcg@10,ndcg@10_se",
        )
    if repeated := next((name for name in columns if name and columns.count(name) > 1), None):
        raise InputError(f"column {repeated!r} occurs twice", where=f"{path}:{rows[0][0]}", remedy="rename one of them")
    table: dict[str, dict[str, float]] = {name: {} for name in columns if name not in ("source", "")}
    names: set[str] = set()
    for line, cells in rows[1:]:
        if len(cells) > len(columns):
            raise InputError(
                f"has {len(cells)} cells under {len(columns)} columns",
                where=f"{path}:{line}",
                remedy="write decimals with a point, and put names that contain a comma in quotes",
            )
        row = dict(zip(columns, cells, strict=False))
        source = row.get("source", "")
        if source in names:
            raise InputError(
                f"source {source!r} occurs twice", where=f"{path}:{line}", remedy="give each source one row"
            )
        names.add(source)
        for name, known in table.items():
            if row.get(name):
                known[source] = _number(row[name], f"{path}:{line}", name)
    errors = {name: name + ERROR_SUFFIX for name in table if name + ERROR_SUFFIX in table}
    for metric, column in errors.items():
        _refuse_odd_errors(table[metric], table[column], column, path)
    return [
        Outcomes(name, table[name], table.get(errors.get(name, ""), {}))
        for name in table
        if name not in errors.values()
    ]


def _refuse_odd_errors(values: Mapping[str, float], errors: Mapping[str, float], column: str, path: Path) -> None:
    """Raise InputError for a negative standard error, or if only some values have a standard error."""
    if negative := next((source for source, error in errors.items() if error < 0), None):
        raise InputError(
            f"{column} of {negative!r} is negative: {errors[negative]:g}",
            where=str(path),
            remedy="correct it: a standard error is at least 0",
        )
    missing = [source for source in values if source not in errors]
    if errors and missing:
        raise InputError(
            f"{column} is empty for {shown_names(missing)}",
            where=str(path),
            remedy="fill in every standard error, or remove the column",
        )


def _number(text: str, where: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        remedy = "write decimals with a point, or leave the cell empty"
        raise InputError(f"{column} = {text!r} is not a finite number", where=where, remedy=remedy)
    if abs(value) > MAX_CELL:
        raise InputError(f"{column} = {text} is too large", where=where, remedy=f"use values up to {MAX_CELL:g}")
    return value


def shown_names(names: Sequence[str]) -> str:
    """Return the first SHOWN_NAMES names in quotes, and an ellipsis if there are more."""
    return ", ".join(map(repr, names[:SHOWN_NAMES])) + (", …" if len(names) > SHOWN_NAMES else "")


# Agreement of a ranking with downstream results: Kendall's tau, Spearman's rho and regret, with intervals.

ERROR_RATE = 0.05
"""Error rate of an interval, and of all permutation tests together."""
MIN_SOURCES = 3


def pairs_ordered_alike(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[int, int]:
    """Return the number of pairs of common sources that both sides order alike, and the number of all their pairs.

    A pair that ties on both sides is ordered alike; a pair that ties on only one side is not. Source: METHOD 12.
    """
    names = sorted(first.keys() & second.keys())
    alike = [np.sign(first[a] - first[b]) == np.sign(second[a] - second[b]) for a, b in combinations(names, 2)]
    return sum(map(bool, alike)), len(alike)


def kendall_tau_b(first: Floats, second: Floats) -> float | None:
    """Return Kendall's tau-b, in [-1, 1]; None if one side is constant."""
    from scipy.stats import kendalltau  # imported here because it takes half a second, and pages do not need it

    return None if _constant(first, second) else float(kendalltau(first, second).statistic)


def spearman_rho(first: Floats, second: Floats) -> float | None:
    """Return Spearman's rho over mid-ranks, in [-1, 1]; None if one side is constant."""
    from scipy.stats import spearmanr

    return None if _constant(first, second) else float(spearmanr(first, second).statistic)


def _constant(*sides: Floats) -> bool:
    return any(len(np.unique(side)) < 2 for side in sides)


def top_1_regret(numbers: Floats, outcomes: Floats) -> float | None:
    """Return how much lower the outcome of the top-ranked source is than the best outcome, >= 0.

    numbers, outcomes : (S,) number that ranks the sources, and downstream value. None if several sources share the
    highest number.
    """
    place = _highest(numbers)
    return None if place is None else float(outcomes.max() - outcomes[place])


def _highest(values: Floats) -> int | None:
    """Return the index of the highest value; None if several values share it."""
    tops = np.flatnonzero(values == values.max())
    return int(tops[0]) if len(tops) == 1 else None


def unmatched_names(run: Run, outcomes: Iterable[Outcomes]) -> list[str]:
    """Return sentences about sources that occur only in the outcomes, or only in the run."""
    metric_names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.values))
    names = [source.name for source in run.sources]
    lines = []
    if unknown := [name for name in metric_names if name not in names]:
        lines.append(
            f"{len(unknown)} of {len(metric_names)} names are ignored because they are not in the run: "
            f"{shown_names(unknown)}"
        )
    if missing := [name for name in names if name not in metric_names]:
        lines.append(f"{len(missing)} of the run's {len(names)} sources have no value: {shown_names(missing)}")
    return lines


def numbers_of(run: Run) -> dict[str, dict[str, float]]:
    """Return every number of a run that could rank its sources: scores at each budget, other weights, and proxies.

    The result is {number: {source: value}}. At the run's own budget it holds the scores that rank the sources. Beyond
    budget 1 a larger source scores higher, so sources of different size are cut to equal size; if that is impossible,
    other budgets are left out (METHOD 7).
    """
    numbers: dict[str, dict[str, float]] = {"ECI_sem": {s.name: s.scored.nats for s in run.sources}}
    common = set.intersection(*({point.budget for point in source.scored.compared_curve} for source in run.sources))
    for budget in sorted({run.budget} if "crossings" in run.not_evaluated else common):
        if budget != 1.0:
            curves = {s.name: s.scored.compared_curve if budget > 1.0 else s.scored.budget_curve for s in run.sources}
            numbers[_at_budget(budget)] = {
                name: next(point.nats for point in curve if point.budget == budget) for name, curve in curves.items()
            }
    if any(source.scored.on_shared for source in run.sources):
        numbers[_ranked_by(run)] = {s.name: s.in_table(run.budget).score.nats for s in run.sources}
    for item in ABLATIONS.of(run) or ():
        if item.name == "weight":
            for row in item.rows:
                known = {name: value for name, value in row.scores.items() if value is not None}
                if row.setting != item.base and len(known) == len(row.scores):
                    at = "" if run.budget == 1.0 else f" at B = {run.budget:g}"
                    numbers[f"weight {row.setting}{at}"] = known
    for field in vars(run.sources[0].scored.proxies):
        numbers[field] = {source.name: getattr(source.scored.proxies, field) for source in run.sources}
    return numbers


def _at_budget(budget: float) -> str:
    return f"ECI at B = {budget:g}"


def _ranked_by(run: Run) -> str:
    return "ECI_sem" if run.budget == 1.0 else _at_budget(run.budget)


def agree(run: Run, outcomes: Iterable[Outcomes]) -> tuple[Agreement, ...]:
    """Compare every number of a run with every downstream metric. Source: METHOD 3, 12.

    An interval contains the value for the true numbers with a probability of at least 95 %; see `_Signs`. All intervals
    account for the standard errors of the metric. For the score that ranks the run, the intervals of correlations also
    account for the score's standard errors. Without standard errors there is no interval.
    Raises InputError if fewer than MIN_SOURCES sources have an outcome.
    """
    numbers = numbers_of(run)
    agreements = []
    for outcome in outcomes:
        names = [source.name for source in run.sources if source.name in outcome.values]
        if len(names) < MIN_SOURCES:
            raise InputError(
                f"{outcome.name}: only {len(names)} of the run's sources have a value, but a ranking needs "
                f"{MIN_SOURCES}; the table has values for {shown_names(list(outcome.values)) or 'no source'}",
                where="--against",
                remedy=f"use the names of the run's sources: {', '.join(source.name for source in run.sources)}",
            )
        for name, values in numbers.items():
            agreements.append(_compare(run, name, values, outcome, names))
    return tuple(agreements)


def _compare(run: Run, name: str, values: Mapping[str, float], outcome: Outcomes, names: Sequence[str]) -> Agreement:
    a = np.array([values[source] for source in names])
    b = np.array([outcome.values[source] for source in names])
    errors = np.array([outcome.errors.get(source, 0.0) for source in names])
    alike, n_pairs = pairs_ordered_alike(values, {source: outcome.values[source] for source in names})
    of_scores, of_outcomes = name == _ranked_by(run), bool(errors.any())
    n_sides = of_scores + of_outcomes
    rate = ERROR_RATE / max(1, n_sides * n_pairs)
    first = _Signs.of(a, _half_widths(run, names, rate) if of_scores else np.zeros((len(a), len(a))))
    second = _Signs.of(b, _critical_value(rate) * np.hypot(errors[:, None], errors[None, :]))
    tau, rho = kendall_tau_b(a, b), spearman_rho(a, b)
    top, best = _highest(a), _highest(b)
    return Agreement(
        number=name,
        metric=outcome.name,
        n_sources=len(names),
        kendall_tau_b=tau,
        kendall_interval_95=_tau_interval(first, second, tau) if n_sides else None,
        spearman_rho=rho,
        spearman_interval_95=_rho_interval(first, second, rho) if n_sides else None,
        n_pairs=n_pairs,
        n_pairs_alike=alike,
        first=None if top is None else names[top],
        best=None if best is None or outcome.abstained or outcome.is_open else names[best],
        top_1_regret=top_1_regret(a, b),
        regret_interval_95=None if top is None or not of_outcomes else _regret_interval(b, errors, top),
        errors_of=tuple(side for side, has in (("scores", of_scores), ("outcomes", of_outcomes)) if has),
        abstained=outcome.abstained,
    )


@dataclass(frozen=True)
class _Signs:
    """Possible orders of each pair, given the errors.

    low, high : (S, S) minimum and maximum sign of value i minus value j.

    If the simultaneous interval of a difference contains 0, both signs are possible. All combinations of signs are
    considered, even if they are not transitive, so an interval over them has at least the stated confidence. True
    values are assumed to differ.
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, values: Floats, half_widths: Floats) -> _Signs:
        gaps = values[:, None] - values[None, :]
        unknown = (np.abs(gaps) <= half_widths) & (half_widths > 0) & ~np.eye(len(values), dtype=bool)
        return cls(np.where(unknown, -1.0, np.sign(gaps)), np.where(unknown, 1.0, np.sign(gaps)))


def _products(a_low: Floats, a_high: Floats, b_low: Floats, b_high: Floats) -> tuple[Floats, Floats]:
    """Return the minimum and maximum of a * b for a in [a_low, a_high] and b in [b_low, b_high]."""
    ends = np.stack([a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high])
    return ends.min(axis=0), ends.max(axis=0)


def _tau_interval(first: _Signs, second: _Signs, estimate: float | None) -> tuple[float, float] | None:
    """Return the interval of Kendall's tau-b over all possible signs of every pair."""
    pairs = np.triu_indices(len(first.low), 1)
    scale = np.sqrt(np.prod([(np.abs(side.low) > 0)[pairs].sum() for side in (first, second)], dtype=np.float64))
    low, high = (ends[pairs].sum() for ends in _products(first.low, first.high, second.low, second.high))
    return _scaled_interval(estimate, low, high, float(scale))


def _rho_interval(first: _Signs, second: _Signs, estimate: float | None) -> tuple[float, float] | None:
    """Return the interval of Spearman's rho over all possible mid-ranks of every source.

    A source's centred rank is half the sum of the signs of its pairs.
    """
    ranks = [(side.low.sum(axis=1) / 2.0, side.high.sum(axis=1) / 2.0) for side in (first, second)]
    n = len(first.low)
    distinct = n * (n**2 - 1) / 12.0
    squares = [float((low**2).sum()) if (low == high).all() else distinct for low, high in ranks]
    low, high = (ends.sum() for ends in _products(*ranks[0], *ranks[1]))
    return _scaled_interval(estimate, low, high, float(np.sqrt(squares[0] * squares[1])))


def _scaled_interval(estimate: float | None, low: float, high: float, scale: float) -> tuple[float, float] | None:
    """Return (low / scale, high / scale), limited to [-1, 1] and widened to include the estimate.

    None if the estimate is None or the scale is 0.
    """
    if estimate is None or not scale:
        return None
    return (max(-1.0, min(estimate, float(low) / scale)), min(1.0, max(estimate, float(high) / scale)))


def _regret_interval(values: Floats, errors: Floats, first: int) -> tuple[float, float]:
    """Return the interval of source `first`'s regret, from simultaneous intervals of the others' leads over it."""
    point = _critical_value(ERROR_RATE / max(1, len(values) - 1))
    lead, half = values - values[first], point * np.hypot(errors, errors[first])
    half[first] = 0.0
    return (max(0.0, float((lead - half).max())), max(0.0, float((lead + half).max())))


def _critical_value(rate: float) -> float:
    """Return the two-sided critical value of the normal distribution at this error rate."""
    return NormalDist().inv_cdf(1.0 - rate / 2.0)


def _half_widths(run: Run, names: Sequence[str], rate: float) -> Floats:
    """Return (S, S) half-widths of score differences at this error rate; infinite for pairs that were not compared."""
    place = {name: number for number, name in enumerate(names)}
    wide = np.full((len(names), len(names)), np.inf)
    np.fill_diagonal(wide, 0.0)
    for pair in run.comparisons:
        if pair.first in place and pair.second in place:
            i, j = place[pair.first], place[pair.second]
            low, high = pair.interval_95
            wide[i, j] = wide[j, i] = (high - low) / 2.0 * _critical_value(rate) / _critical_value(ERROR_RATE)
    return wide


def unlike_chance(items: Sequence[Agreement]) -> list[Agreement]:
    """Return the comparisons that differ significantly from chance (permutation test, Holm), by rising p value."""
    by_p = sorted(items, key=lambda item: (permutation_p(item), item.number))
    holds = (permutation_p(item) * (len(by_p) - place) < ERROR_RATE for place, item in enumerate(by_p))
    return [item for item, _ in takewhile(itemgetter(1), zip(by_p, holds, strict=True))]


def permutation_p(item: Agreement) -> float:
    """Return the chance that a random order agrees or disagrees with the metric at least as much; 1.0 without tau.

    It follows from the number of reversed pairs in all possible orders. Ties count as half a reversed pair.
    """
    if item.kendall_tau_b is None:
        return 1.0
    orders = [1]  # orders by their number of reversed pairs
    for n in range(2, item.n_sources + 1):
        orders = [sum(orders[max(0, place - n + 1) : place + 1]) for place in range(len(orders) + n - 1)]
    most = len(orders) - 1
    n_extreme = int((1 - abs(item.kendall_tau_b)) / 2 * most + 1e-9)
    return min(1.0, 2 * sum(orders[: n_extreme + 1]) / factorial(item.n_sources))
