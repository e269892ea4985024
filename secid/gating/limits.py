"""Limits from a baseline: as tight as its own uncertainty allows, so that the same source passes again.

A limit is a number of standard errors away from the values of the baseline's sources; the errors are those of the
baseline and of a new sample of the policy's smallest size. The new interval takes `reach_95` of them (1.97 at 500
queries), the rest is room for the estimate itself: 3.09 leaves one check in a thousand undecided on each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, floor, log10, sqrt
from typing import Any

from secid.gating.baseline import TAILS, Baseline, BaselineSource, Measurement
from secid.gating.policy import DRIFT_METRICS, Policy, parse_policy
from secid.measure.interval import FEWEST_QUERIES, reach_95
from secid.results.catalogue import DEFECT_LIMIT, DEFECTS, FINDINGS

Z_ROOM = 3.090232306167813
"""99.9 % point of the normal distribution."""
SMALLEST_SAMPLE = 500
"""Fewest distinct queries of a new source, unless the baseline's own sources have fewer."""
SMALL_BASELINE_SHARE = 0.75
NEGATIVES_SHARE = 0.5
"""Fewest negatives per record of a new source, as a share of the baseline's."""
FIXED_POINT_ROUNDS = 20
"""The factor grows as a root of the margin, so that each round at least halves the remaining error."""
DEFECT_CEILING = 0.05
"""A baseline source with more than one in twenty is no example."""
DERIVED = frozenset({*DEFECTS, "shared_opening", "hub", "other_language", "inversion", "high_coverage"})
"""Findings that are checked unless the policy says otherwise. The others depend on taste (low_locality), on the
encoder's maximum length (truncated) or on a sample of the queries (random_like): off unless the policy sets them."""
RANK_SHARE = 0.75
"""Share of the baseline's smallest effective rank that a new source must reach: the bias correction of METHOD 7 is an
estimate, and ranks of equal sources of different sizes differ by a tenth."""


def fewest_queries(policy: Policy, baseline: Baseline, name: str | None = None) -> int:
    """Distinct queries of the smallest source that the policy accepts. name: of a source that the baseline may have."""
    minimum = policy.minimum_queries or policy.minimum_records
    if minimum is not None:
        return minimum
    own = None if name is None else baseline.sources.get(name)
    smallest = min(source.n_queries for source in ([own] if own else baseline.sources.values()))
    return SMALLEST_SAMPLE if smallest >= SMALLEST_SAMPLE else max(2, int(SMALL_BASELINE_SHARE * smallest))


def reference_name(name: str | None, policy: Policy, baseline: Baseline) -> str:
    """The baseline source that a score is compared with. The median of an even number is the lower one."""
    against = policy.score.against
    if against == "named" and policy.score.named is not None:
        return policy.score.named
    if against == "own" and name in baseline.sources:
        return str(name)
    ranked = sorted(baseline.sources, key=lambda known: (baseline.sources[known].score_nats, known))
    return ranked[-1] if against == "best" else ranked[(len(ranked) - 1) // 2]


def margin(source: BaselineSource, standard_error: float | None, n: int) -> float:
    """How far from the baseline's value the whole interval of a new sample of n queries may reach."""
    return (_interval_reach(source, n) + Z_ROOM) * (standard_error or 0.0) * sqrt(1.0 + source.n_queries / n)


def _interval_reach(source: BaselineSource, n: int) -> float:
    """Half width of the interval of a comparison, in standard errors; fewer queries than FEWEST_QUERIES have none."""
    return reach_95(max(FEWEST_QUERIES, min(source.n_queries, n)))


def share_margin(source: BaselineSource, share: Measurement, n: int) -> float:
    """The margin of a share. Its error grows with it, so the new interval is as wide as it is at the limit itself.

    Without this, 5 of 141 new samples of SciFact sources stayed undecided on a tail of 2 %.
    """
    p, result, reach = share.value, margin(source, share.standard_error, n), _interval_reach(source, n)
    base = result / (reach + Z_ROOM)
    if 0.0 < p < 0.5:
        for _ in range(FIXED_POINT_ROUNDS):
            limit = min(0.5, p + result)
            result = base * (Z_ROOM + reach * sqrt(limit * (1.0 - limit) / (p * (1.0 - p))))
    return result


def complete(policy: Policy, baseline: Baseline, name: str) -> Policy:
    """The policy with every open limit derived from the baseline, for the source of that name.

    Score and drift are compared with one source, whose margin counts. A source that is not in the baseline has no
    earlier version, and so no drift limits.
    """
    return _with_derived(policy, _derived(policy, baseline, name))


def common(policy: Policy, baseline: Baseline) -> Policy:
    """The policy with those derived limits that are the same for every source of the baseline; others stay open."""
    first, *others = [_derived(policy, baseline, name) for name in baseline.sources]
    for other in others:
        for key, value in first.items():
            if isinstance(value, dict):
                first[key] = {inner: limit for inner, limit in value.items() if other[key][inner] == limit}
        first = {key: value for key, value in first.items() if isinstance(value, dict) or other[key] == value}
    return _with_derived(policy, first)


def _with_derived(policy: Policy, derived: dict[str, Any]) -> Policy:
    explicit = policy.model_dump(exclude_unset=True)
    values = dict(explicit)
    for name, table in derived.items():
        if isinstance(table, dict):
            own = {key: value for key, value in explicit.get(name, {}).items() if value is not None}
            values[name] = {**table, **own}
        else:
            values[name] = explicit.get(name) or table
    return parse_policy(values, "policy")


def _derived(policy: Policy, baseline: Baseline, name: str) -> dict[str, Any]:
    n, sources = fewest_queries(policy, baseline, name), list(baseline.sources.values())
    reference, own = baseline.sources[reference_name(name, policy, baseline)], baseline.sources.get(name)
    budget = f"{policy.diversity.budget:g}"
    per_record = min(source.n_negatives / source.n_records for source in sources)
    return {
        "minimum_records": n,
        "minimum_queries": n,
        "minimum_negatives": max(1, int(NEGATIVES_SHARE * per_record * n)),
        "score": {"tolerance_nats": up(margin(reference, reference.standard_error_nats, n))},
        "means": {
            "consistency_minimum": _lowest(sources, "consistency", n),
            "locality_minimum": _lowest(sources, "locality", n),
            "coverage_maximum": min(1.0, up(max(_reaches(sources, _mean("coverage"), n)))),
        },
        "findings": {name: _share_limit(sources, name, n) if name in DERIVED else "off" for name in FINDINGS},
        "diversity": {
            "effective_rank_minimum": down(RANK_SHARE * min(source.effective_rank[budget] for source in sources))
        },
        "drift": {metric: up(_tolerance(own, metric, n)) for metric in DRIFT_METRICS if own is not None},
    }


Get = Callable[[BaselineSource], Measurement | None]


def _mean(name: str) -> Get:
    return lambda source: source.means.get(name)


def _reaches(sources: Iterable[BaselineSource], get: Get, n: int, sign: float = 1.0) -> list[float]:
    """The value of each source that has it, moved by its margin."""
    return [
        known.value + sign * margin(source, known.standard_error, n)
        for source in sources
        if (known := get(source)) is not None
    ]


def _lowest(sources: list[BaselineSource], name: str, n: int) -> float:
    return max(0.0, down(min(_reaches(sources, _mean(name), n, -1.0))))


def _share_limit(sources: list[BaselineSource], name: str, n: int) -> float:
    """Largest share of the baseline's sources plus its margin; for a defect within its floor and ceiling."""
    known = [(source, source.findings[name]) for source in sources if name in source.findings]
    reaches = [share.value + share_margin(source, share, n) for source, share in known]
    if name in DEFECTS:
        return up(min(max([*reaches, DEFECT_LIMIT]), DEFECT_CEILING))
    z2 = reach_95(max(FEWEST_QUERIES, n)) ** 2
    smallest = 1.25 * z2 / (n + z2)  # upper end of Wilson's interval for 0 of n, plus a quarter
    return min(1.0, up(max([*reaches, smallest])))


def _tolerance(source: BaselineSource, metric: str, n: int) -> float:
    if metric == "score_nats":
        return margin(source, source.standard_error_nats, n)
    known = source.means[metric]
    return share_margin(source, known, n) if metric in TAILS else margin(source, known.standard_error, n)


def up(value: float, digits: int = 2) -> float:
    """Rounded away from zero to two significant digits, so that a limit reads well and is never tighter."""
    return _rounded(value, digits, ceil)


def down(value: float, digits: int = 2) -> float:
    """Rounded down to two significant digits."""
    return _rounded(value, digits, floor)


def _rounded(value: float, digits: int, way: Callable[[float], int]) -> float:
    if value == 0.0:
        return 0.0
    places = digits - 1 - floor(log10(abs(value)))
    return float(f"{way(round(value * 10**places, 9)) / 10**places:.{max(0, places)}f}")
