"""Does a ranking agree with what was measured downstream? Kendall, Spearman, regret, with intervals."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.errors import InputError, plainly
from secid.results import Agreement, Run

Floats = npt.NDArray[np.float64]

N_DRAWS = 2_000
"""Draws behind an interval: the ends of a 95 % interval move by about 0.01 of a rank correlation."""
ERROR_SUFFIX = "_se"
FEWEST_SOURCES = 3
SHOWN_NAMES = 3
"""Names shown as examples of those that were not matched."""


@dataclass(frozen=True)
class Outcomes:
    """Downstream numbers by source. errors: their standard errors where the table gives them."""

    name: str
    values: Mapping[str, float]
    errors: Mapping[str, float]


def pairs_ordered_alike(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[int, int]:
    """How many pairs of the sources both have are ordered the same way, and how many pairs there are.

    A pair that ties in both counts as ordered alike; one that ties in one alone does not. Source: METHOD 12.
    """
    names = sorted(first.keys() & second.keys())
    alike = [np.sign(first[a] - first[b]) == np.sign(second[a] - second[b]) for a, b in combinations(names, 2)]
    return sum(map(bool, alike)), len(alike)


def kendall_tau_b(first: Floats, second: Floats) -> float | None:
    """Kendall's tau-b, in [-1, 1]; None where one side is constant."""
    a, b = (np.sign(values[:, None] - values[None, :])[np.triu_indices(len(values), 1)] for values in (first, second))
    scale = np.sqrt((a != 0).sum() * (b != 0).sum())
    return float((a * b).sum() / scale) if scale else None


def spearman_rho(first: Floats, second: Floats) -> float | None:
    """Spearman's rho over mid-ranks, in [-1, 1]; None where one side is constant."""
    from scipy.stats import rankdata

    ranks = np.stack([rankdata(first), rankdata(second)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    scale = np.sqrt((ranks**2).sum(axis=1).prod())
    return float((ranks[0] * ranks[1]).sum() / scale) if scale else None


def top_1_regret(numbers: Floats, outcomes: Floats) -> float:
    """What is lost downstream by taking the source that the number puts first, >= 0, in the outcome's unit."""
    return float(outcomes.max() - outcomes[int(numbers.argmax())])


def read_outcomes(path: Path) -> list[Outcomes]:
    """Downstream results from a CSV file: a column `source`, then one column a metric, higher is better.

    A column `<metric>_se` holds the standard error of that metric. Empty cells leave a source out.
    Raises InputError with file and line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {plainly(error)}", where=str(path)) from error
    columns = [name for name in reader.fieldnames or [] if name]
    if "source" not in columns or len(columns) < 2:
        raise InputError(
            f"needs a column `source` and one a metric, has {', '.join(columns) or 'none'}",
            where=str(path),
            remedy="the first line of the file names the columns, such as source,ndcg@10,ndcg@10_se",
        )
    seen: set[str] = set()
    table: dict[str, dict[str, float]] = {name: {} for name in columns if name != "source"}
    for line, row in rows:
        source = row["source"]
        if source in seen:
            raise InputError(f"source {source!r} stands twice", where=f"{path}:{line}")
        seen.add(source)
        for name, cells in table.items():
            if row.get(name):
                cells[source] = _number(row[name], f"{path}:{line}", name)
    metrics = [name for name in table if not (name.endswith(ERROR_SUFFIX) and name.removesuffix(ERROR_SUFFIX) in table)]
    return [Outcomes(name, table[name], table.get(name + ERROR_SUFFIX, {})) for name in metrics]


def unmatched_names(run: Run, outcomes: Iterable[Outcomes]) -> list[str]:
    """What of the names stands on one side alone, in words: in the table, and in the run."""
    given = list(dict.fromkeys(name for outcome in outcomes for name in outcome.values))
    own = [source.name for source in run.sources]
    found = []
    if strange := [name for name in given if name not in own]:
        found.append(
            f"{len(strange)} of {len(given)} names are no source of the run and count nowhere: {_shown(strange)}"
        )
    if missing := [name for name in own if name not in given]:
        found.append(f"{len(missing)} of the run's {len(own)} sources have no value: {_shown(missing)}")
    return found


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN_NAMES])) + (", …" if len(names) > SHOWN_NAMES else "")


def _number(text: str, where: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InputError(f"{column} = {text!r} is not a number", where=where)
    return value


def numbers_of(run: Run) -> dict[str, dict[str, float]]:
    """Every number of a run that could rank its sources: scores, budgets, other weights, proxies."""
    found: dict[str, dict[str, float]] = {"ECI_sem": {s.name: s.eci_nats for s in run.sources}}
    common = set.intersection(*({point.budget for point in source.budget_curve} for source in run.sources))
    for budget in sorted(common - {1.0}):
        found[f"ECI at B = {budget:g}"] = {
            source.name: next(point.nats for point in source.budget_curve if point.budget == budget)
            for source in run.sources
        }
    for item in run.ablations:
        if item.name == "weight":
            for row in item.rows:
                known = {name: value for name, value in row.scores.items() if value is not None}
                if row.setting != item.base and len(known) == len(row.scores):
                    found[f"weight {row.setting}"] = known
    for field in vars(run.sources[0].proxies):
        found[field] = {source.name: getattr(source.proxies, field) for source in run.sources}
    return found


def agree(run: Run, outcomes: Iterable[Outcomes], seed: int = 0) -> tuple[Agreement, ...]:
    """Agreement of every number of a run with every downstream metric. Source: METHOD 3, 12.

    Intervals draw the scores from their joint normal (by the paired comparisons) and the outcomes from
    theirs; where neither side has standard errors, or the run compares at another budget than 1, there
    is no interval.
    Raises InputError where fewer than three sources have an outcome.
    """
    numbers = numbers_of(run)
    found = []
    for outcome in outcomes:
        names = [source.name for source in run.sources if source.name in outcome.values]
        if len(names) < FEWEST_SOURCES:
            raise InputError(
                f"{outcome.name}: only {len(names)} of the run's sources have a value",
                where="--against",
                remedy=f"a ranking needs at least {FEWEST_SOURCES}; the run has "
                + ", ".join(source.name for source in run.sources),
            )
        for name, values in numbers.items():
            found.append(_agreement(run, name, values, outcome, names, seed))
    return tuple(found)


def _agreement(
    run: Run, name: str, values: Mapping[str, float], outcome: Outcomes, names: Sequence[str], seed: int
) -> Agreement:
    a = np.array([values[source] for source in names])
    b = np.array([outcome.values[source] for source in names])
    alike, n_pairs = pairs_ordered_alike(values, {source: outcome.values[source] for source in names})
    draws = _draws(run, name == "ECI_sem" and run.budget == 1.0, a, b, outcome, names, seed)
    return Agreement(
        number=name,
        metric=outcome.name,
        n_sources=len(names),
        kendall_tau_b=kendall_tau_b(a, b),
        kendall_interval_95=_interval(kendall_tau_b, draws),
        spearman_rho=spearman_rho(a, b),
        spearman_interval_95=_interval(spearman_rho, draws),
        n_pairs=n_pairs,
        n_pairs_alike=alike,
        first=names[int(a.argmax())],
        best=names[int(b.argmax())],
        top_1_regret=top_1_regret(a, b),
        regret_interval_95=_interval(top_1_regret, draws),
    )


def _draws(
    run: Run, has_errors: bool, a: Floats, b: Floats, outcome: Outcomes, names: Sequence[str], seed: int
) -> list[tuple[Floats, Floats]] | None:
    """Plausible (numbers, outcomes); None where neither side has a standard error."""
    errors = np.array([outcome.errors.get(source, 0.0) for source in names])
    if not has_errors and not errors.any():
        return None
    covariance = score_covariance(run, names) if has_errors else np.zeros((len(names), len(names)))
    generator = np.random.default_rng(seed)
    spread, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(spread, 0.0))
    noise = generator.standard_normal((2, N_DRAWS, len(names)))
    return list(zip(a + noise[0] @ root.T, b + noise[1] * errors, strict=True))


def score_covariance(run: Run, names: Sequence[str]) -> Floats:
    """(S, S) covariance of the scores, from the standard errors of scores and of paired differences."""
    variance = {source.name: source.standard_error_nats**2 for source in run.sources}
    matrix = np.diag([variance[name] for name in names])
    place = {name: number for number, name in enumerate(names)}
    for pair in run.comparisons:
        if pair.first in place and pair.second in place:
            i, j = place[pair.first], place[pair.second]
            matrix[i, j] = matrix[j, i] = (
                variance[pair.first] + variance[pair.second] - pair.standard_error_nats**2
            ) / 2.0
    return matrix


def _interval(
    measure: Callable[[Floats, Floats], float | None], draws: list[tuple[Floats, Floats]] | None
) -> tuple[float, float] | None:
    if draws is None:
        return None
    values = [value for a, b in draws if (value := measure(a, b)) is not None]
    if not values:
        return None
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
