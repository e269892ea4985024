"""Limits from a baseline: as tight as its own uncertainty allows, so that the same source passes again.

A limit lies so many standard errors away from what the baseline's sources show, the errors being those of the
baseline and of a new sample of the policy's smallest size. The new interval takes `reach_95` of them (1.97 at 500
queries), the rest is the room in which the estimate may fall: 3.09 leaves one check in a thousand undecided for each
side of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, floor, log10, sqrt
from typing import Any

from secid.gating.baseline import Baseline, BaselineSource, Known
from secid.gating.policy import DRIFT_METRICS, Policy, parse_policy
from secid.measure.interval import FEWEST_QUERIES, reach_95
from secid.results.catalogue import DEFECT_LIMIT, DEFECTS, FINDINGS

Z_ROOM = 3.090232306167813
"""99.9 % point of the normal distribution."""
SMALLEST_SAMPLE = 500
"""Distinct queries of a new source, unless the baseline's own sources are smaller."""
SMALL_BASELINE_SHARE = 0.75
NEGATIVES_SHARE = 0.5
"""Share of the baseline's negatives per record that a new source may come down to."""
FIXED_POINT_ROUNDS = 20
"""The factor grows as a root of the margin, so that each round at least halves what is missing."""
DEFECT_CEILING = 0.05
"""Where a baseline's source has more than one in twenty, it is no example."""
DERIVED = frozenset({*DEFECTS, "shared_opening", "hub", "other_language", "inversion", "high_coverage"})
"""Findings that are checked unless the policy says otherwise. The others are a matter of taste (low_locality), of the
encoder's length (truncated) or of a sample of the queries (random_like): off unless the policy names them."""
TAILS = ("unrelated", "close")
RANK_SHARE = 0.75
"""Share of the smallest effective rank in use that a new source must reach: the bias correction of METHOD 7 is an
estimate, and ranks of equal sources at other sizes differ by a tenth."""


def fewest_queries(policy: Policy, baseline: Baseline, name: str | None = None) -> int:
    """Distinct queries of the smallest source that the policy judges. name: of a source with its own version there."""
    given = policy.minimum_queries or policy.minimum_records
    if given is not None:
        return given
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
    """How far from the baseline's value a fresh sample's whole interval may reach, n queries being drawn."""
    return (_reach_of(source, n) + Z_ROOM) * (standard_error or 0.0) * sqrt(1.0 + source.n_queries / n)


def _reach_of(source: BaselineSource, n: int) -> float:
    """Standard errors that the interval of a comparison takes; of fewer queries than `FEWEST_QUERIES` there is none."""
    return reach_95(max(FEWEST_QUERIES, min(source.n_queries, n)))


def share_margin(source: BaselineSource, share: Known, n: int) -> float:
    """The margin of a share. Its error grows with it, so the new interval is as wide as it is at the limit itself.

    Without this, 5 of 141 fresh samples of SciFact sources stayed undecided on a tail of 2 %.
    """
    p, found, reach = share.value, margin(source, share.standard_error, n), _reach_of(source, n)
    base = found / (reach + Z_ROOM)
    if 0.0 < p < 0.5:
        for _ in range(FIXED_POINT_ROUNDS):
            there = min(0.5, p + found)
            found = base * (Z_ROOM + reach * sqrt(there * (1.0 - there) / (p * (1.0 - p))))
    return found


def complete(policy: Policy, baseline: Baseline, name: str) -> Policy:
    """The policy with every limit that it leaves open filled in from the baseline, for the source of that name.

    Score and drift compare with one source, so theirs is the margin. A source that the baseline does not know has no
    last version, and so no limits of drift.
    """
    return _filled(policy, _derived(policy, baseline, name))


def common(policy: Policy, baseline: Baseline) -> Policy:
    """The policy with the limits filled in that are the same for every source of the baseline; others stay open."""
    first, *others = [_derived(policy, baseline, name) for name in baseline.sources]
    for other in others:
        for key, value in first.items():
            if isinstance(value, dict):
                first[key] = {inner: limit for inner, limit in value.items() if other[key][inner] == limit}
        first = {key: value for key, value in first.items() if isinstance(value, dict) or other[key] == value}
    return _filled(policy, first)


def _filled(policy: Policy, derived: dict[str, Any]) -> Policy:
    given = policy.model_dump(exclude_unset=True)
    filled = dict(given)
    for name, table in derived.items():
        if isinstance(table, dict):
            stated = {key: value for key, value in given.get(name, {}).items() if value is not None}
            filled[name] = {**table, **stated}
        else:
            filled[name] = given.get(name) or table
    return parse_policy(filled, "policy")


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
            "coverage_maximum": min(1.0, up(max(_reach(sources, _mean("coverage"), n)))),
        },
        "findings": {name: _share_limit(sources, name, n) if name in DERIVED else "off" for name in FINDINGS},
        "diversity": {
            "effective_rank_minimum": down(RANK_SHARE * min(source.effective_rank[budget] for source in sources))
        },
        "drift": {metric: up(_tolerance(own, metric, n)) for metric in DRIFT_METRICS if own is not None},
    }


Get = Callable[[BaselineSource], Known | None]


def _mean(name: str) -> Get:
    return lambda source: source.means.get(name)


def _reach(sources: Iterable[BaselineSource], get: Get, n: int, sign: float = 1.0) -> list[float]:
    """The value of each source that knows it, moved by its margin."""
    return [
        known.value + sign * margin(source, known.standard_error, n)
        for source in sources
        if (known := get(source)) is not None
    ]


def _lowest(sources: list[BaselineSource], name: str, n: int) -> float:
    return max(0.0, down(min(_reach(sources, _mean(name), n, -1.0))))


def _share_limit(sources: list[BaselineSource], name: str, n: int) -> float:
    """Largest share among the baseline's sources and its margin; a defect's within its floor and ceiling."""
    known = [(source, source.findings[name]) for source in sources if name in source.findings]
    reached = [share.value + share_margin(source, share, n) for source, share in known]
    if name in DEFECTS:
        return up(min(max([*reached, DEFECT_LIMIT]), DEFECT_CEILING))
    z2 = reach_95(max(FEWEST_QUERIES, n)) ** 2
    none_seen = 1.25 * z2 / (n + z2)  # what Wilson's interval reaches for 0 of n, and a quarter
    return min(1.0, up(max([*reached, none_seen])))


def _tolerance(source: BaselineSource, metric: str, n: int) -> float:
    if metric == "score_nats":
        return margin(source, source.standard_error_nats, n)
    known = source.means[metric]
    return share_margin(source, known, n) if metric in TAILS else margin(source, known.standard_error, n)


def up(value: float, digits: int = 2) -> float:
    """Rounded away from zero to two significant digits, so that a limit reads well and is no tighter."""
    return _rounded(value, digits, ceil)


def down(value: float, digits: int = 2) -> float:
    """Rounded down to two significant digits."""
    return _rounded(value, digits, floor)


def _rounded(value: float, digits: int, way: Callable[[float], int]) -> float:
    if value == 0.0:
        return 0.0
    places = digits - 1 - floor(log10(abs(value)))
    return float(f"{way(round(value * 10**places, 9)) / 10**places:.{max(0, places)}f}")
