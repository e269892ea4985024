"""Derive the limits that a source must meet, and write them as a policy file for `secid gate --init`."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, hypot, inf, log10, sqrt
from pathlib import Path
from statistics import median

from secid.errors import OutputError, SettingsError, UsageError
from secid.files import write_whole
from secid.measure.interval import MIN_QUERIES, reach_95
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.gate import GROSS_DAMAGE, Basis, finding_of
from secid.settings import read_toml
from secid.tools.gating.baseline import Baseline, BaselineSource, Measurement
from secid.tools.gating.policy import LIMITED_CHECKS, POLICY_TABLES, Policy, policy_in, table_in
from secid.triplets.estimates import MAX_ROUNDING_ERROR

# Limits come from the policy, or else from the baseline. Limits of counted defects come only from the policy, because a
# baseline with defects must not let more of them in.
#
# A limit from the baseline has a margin so that a new sample of the same source passes. With `minimum_queries` queries,
# the whole 95 % interval is inside the limit in 95 % of samples; with twice as many, in nearly all. The margin covers
# the errors of both the baseline and the new sample. A check that would miss even gross damage in a sample as large as
# the baseline's is left out, and the report names it.

Z_ROOM = 1.6448536269514722
"""95 % point of the normal distribution, for a limit on one side."""
Z_95 = 1.959963984540054
"""97.5 % point of the normal distribution, for limits on both sides."""
DEFAULT_MIN_QUERIES = 100
"""Minimum number of queries to decide on a source, unless the baseline has fewer or the policy sets another number."""
RANDOM_LIKE_OF_RANDOM = 0.87
"""Share of random passages that have the finding random_like. Source: METHOD 10."""
SHUFFLED_UNRELATED_SHARE = 0.7
"""Share of other queries' negatives that count as unrelated, 0.76 to 0.83 measured. Source: docs/experiments/gate.md"""
MIN_SAMPLE_QUERIES = 30
"""Minimum sample size in queries that limits are derived for, unless the baseline has fewer queries."""
LANGUAGE_TOLERANCE = 0.05
"""Extra share of texts in new languages that a source may have, above the baseline's share. 1,000 texts are sampled."""
MIN_LANGUAGE_SHARE = 0.01
"""Minimum share of a source's texts that makes a language a known one."""
CAN_FAIL_ANY = ("random_like", "weak_positive", "other_language")
"""Findings that can fail any source, including a new one."""
CAN_FAIL_KNOWN = ("inversion", "suspect", "shared_opening", "hub")
"""Findings that can fail a source with a predecessor. For a new source they are a notice, because a person must judge
whether they are normal for its miner. Hubs are always a notice, because one text near the limit can move the share of a
sound sample by a point."""
DECIDED_BY_NUMBER = (*DEFECTS, "languages")
"""Checks that are decided by the number instead of its interval."""
AT_LEAST, AT_MOST, WITHIN = "at least", "at most", "within ±"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The limit of one check.

    side, value : side of the limit ("at least", "at most" or "within ±"), and its value.
    basis       : origin of the limit: a predecessor, the whole baseline or the policy.
    reference   : name of the baseline source that the limit comes from; "" without one.   before : its number.
    notice      : True if a number beyond the limit gives a notice instead of a failure.
    counted     : True if the number decides, not its interval.
    detects     : smallest share of damaged negatives that fails in half of the samples as large as the reference. None
                  for a limit of the policy, and for the score, which has no defined damage. Damaged negatives are
                  random passages (hardness, random_like), negatives of other queries (drift), or negatives with the
                  finding.
    """

    side: str
    value: float
    basis: Basis
    reference: str = ""
    before: float | None = None
    notice: bool = False
    counted: bool = False
    detects: float | None = None

    def allowed(self) -> tuple[float, float]:
        return {AT_LEAST: (self.value, inf), AT_MOST: (-inf, self.value), WITHIN: (-self.value, self.value)}[self.side]


@dataclass(frozen=True)
class GateLimits:
    """All limits of one source.

    bounds   : limit of each check, by name.   left_out : checks without a limit because they have too little power.
    """

    minimum_queries: int
    bounds: Mapping[str, Bound]
    left_out: tuple[str, ...] = ()


def minimum_queries(policy: Policy, baseline: Baseline, previous: str | None = None) -> int:
    """Return the minimum number of distinct queries to decide on a source.

    The policy may set it. Otherwise it is 100, or fewer if the predecessor has fewer. For a new source, the median
    source of the baseline takes the predecessor's place.
    """
    if policy.minimum_queries is not None:
        return policy.minimum_queries
    sizes = [source.n_queries for source in baseline.sources.values()]
    n_queries = baseline.sources[previous].n_queries if previous else median(sizes)
    return max(MIN_QUERIES, min(DEFAULT_MIN_QUERIES, int(n_queries)))


def limits_for(policy: Policy, baseline: Baseline, previous: str | None) -> GateLimits:
    """Return the limits of a source. previous: its predecessor in the baseline, None for a new source."""
    least = minimum_queries(policy, baseline, previous)
    usual = minimum_queries(Policy(), baseline, previous)
    derived = _derived(policy, baseline, previous, max(least, min(usual, MIN_SAMPLE_QUERIES)))
    bounds: dict[str, Bound] = {}
    left_out: list[str] = []
    for name in LIMITED_CHECKS:
        policy_value = of_policy(policy, name)
        if policy_value == "off" or (previous is None and name.startswith("drift.")):
            continue
        bound = derived.get(name)
        if isinstance(policy_value, float | int):
            bounds[name] = _policy_bound(name, float(policy_value), previous)
        elif bound is None:
            left_out += [name] if name == "hardness" else []
        elif bound.notice or bound.detects is None or bound.detects <= GROSS_DAMAGE:
            bounds[name] = bound
        else:
            left_out.append(name)
    return GateLimits(least, bounds, tuple(left_out))


def _policy_bound(check: str, value: float, previous: str | None) -> Bound:
    """Return a limit that the policy sets. A limit of 0 applies to the number, since no interval lies at or below 0."""
    drift = check.startswith("drift.")
    side = WITHIN if check == "drift.score_nats" else AT_LEAST if check == "hardness" else AT_MOST
    counted = (finding_of(check) or check) in DECIDED_BY_NUMBER or (value == 0.0 and side == AT_MOST)
    reference = previous or "" if drift or check == "languages" else ""
    return Bound(side=side, value=value, basis="policy", reference=reference, counted=counted)


def of_policy(policy: Policy, check: str) -> float | str | None:
    """Return the policy's limit of a check, or "off"; None if the policy does not set it."""
    table, _, key = check.rpartition(".")
    if table:
        return getattr(getattr(policy, table), key)  # type: ignore[no-any-return]
    return policy.hardness_minimum if check == "hardness" else policy.languages_maximum


def _derived(policy: Policy, baseline: Baseline, previous: str | None, n: int) -> dict[str, Bound]:
    """Return limits by check: defects from the policy, all others from the baseline, for samples of n queries."""
    sources = {previous: baseline.sources[previous]} if previous else dict(baseline.sources)
    known = known_languages(baseline, previous)
    limits: dict[str, Bound | None] = {"hardness": _hardness(sources, n)}
    if known:
        limits["languages"] = _languages(sources, known)
    for name in DEFECTS:
        limits[f"findings.{name}"] = Bound(side=AT_MOST, value=policy.defects_maximum, basis="policy", counted=True)
    for name in (*CAN_FAIL_ANY, *CAN_FAIL_KNOWN):
        limits[f"findings.{name}"] = _share(sources, name, n, notice=name == "hub" or previous is None)
    if previous:
        limits["drift.score_nats"] = _score(previous, sources[previous], n)
        limits["drift.unrelated"] = _unrelated(previous, sources[previous], n)
    return {name: limit for name, limit in limits.items() if limit is not None}


def known_languages(baseline: Baseline, previous: str | None) -> set[str]:
    """Return the languages of the predecessor; for a new source, those of the whole baseline."""
    sources = [baseline.sources[previous]] if previous else baseline.sources.values()
    return {code for source in sources for code, share in source.languages.items() if share >= MIN_LANGUAGE_SHARE}


def _extreme(known: Mapping[str, Measurement], n: int, sign: float) -> tuple[str, Measurement]:
    """Return the source with the largest number (sign 1) or the smallest (sign -1).

    If any source has at least n queries, the smaller ones are ignored, so that a tiny source does not loosen a limit.
    """
    large = {name: measurement for name, measurement in known.items() if measurement.n_queries >= n} or known
    name = max(large, key=lambda name: sign * large[name].value)
    return name, large[name]


def _hardness(sources: Mapping[str, BaselineSource], n: int) -> Bound | None:
    """Return the limit of hardness: at least that of the easiest source minus a margin. None without any hardness."""
    known = {name: source.hardness for name, source in sources.items() if source.hardness is not None}
    if not known:
        return None
    easiest, before = _extreme(known, n, -1.0)
    limit = round_down(before.value - margin(before, n))
    return Bound(
        side=AT_LEAST,
        value=limit,
        basis=_basis(sources, "extreme"),
        reference=easiest,
        before=before.value,
        detects=_detects(lambda share: (limit - (1.0 - share) * before.value, before.standard_error)),
    )


def _languages(sources: Mapping[str, BaselineSource], known: set[str]) -> Bound:
    """Return the limit of languages: at most the sources' largest share in new languages plus LANGUAGE_TOLERANCE."""
    new = {
        name: sum(share for code, share in source.languages.items() if code not in known)
        for name, source in sources.items()
    }
    largest = max(new, key=new.__getitem__)
    before, basis = new[largest], _basis(sources, "extreme")
    limit = ceil(round((before + LANGUAGE_TOLERANCE) * 1e6, 3)) / 1e6  # the baseline stores nine digits
    return Bound(side=AT_MOST, value=limit, basis=basis, reference=largest, before=before, counted=True)


def _share(sources: Mapping[str, BaselineSource], name: str, n: int, notice: bool) -> Bound | None:
    """Return the limit of a finding: at most the sources' largest share plus a margin.

    The limit is not smaller than the share that a sample with 0 of n queries cannot exclude. None if no source of the
    baseline was checked for the finding.
    """
    known = {key: source.findings[name] for key, source in sources.items() if name in source.findings}
    if not known:
        return None
    largest, before = _extreme(known, n, 1.0)
    before = replace(before, value=max(0.0, before.value))
    entry = FINDINGS[name]
    room, least = share_margin(before, n), _least_share(n)
    if entry.formal:  # a difference has an error even if it is 0
        room, least = max(room, margin(before, n)), max(least, entry.limit or 0.0)
    limit = round_up(max(before.value + room, least))
    full = RANDOM_LIKE_OF_RANDOM if name == "random_like" else 1.0
    return Bound(
        side=AT_MOST,
        value=limit,
        basis=_basis(sources, "extreme"),
        reference=largest,
        before=before.value,
        notice=notice and name in CAN_FAIL_KNOWN,
        detects=_detects(lambda share: _beyond(before, before.value + share * (full - before.value), limit)),
    )


def _score(name: str, source: BaselineSource, n: int) -> Bound | None:
    """Return the limit of the score: within ± a margin of the predecessor's; None if that has no standard error."""
    score = source.score()
    if score.n_queries < MIN_QUERIES:
        return None
    limit = round_up(margin(score, n, Z_95))
    return Bound(side=WITHIN, value=limit, basis="source", reference=name, before=score.value)


def _unrelated(name: str, source: BaselineSource, n: int) -> Bound:
    """Return the limit of unrelated negatives: at most a margin above the predecessor's share."""
    tail = source.unrelated.share
    limit = round_up(max(share_margin(tail, n), _least_share(n) - tail.value))

    def beyond(share: float) -> tuple[float, float]:
        damaged = tail.value + share * (SHUFFLED_UNRELATED_SHARE - tail.value)
        distance, error = _beyond(tail, damaged, tail.value + limit)
        return distance, hypot(error, tail.standard_error)

    return Bound(side=AT_MOST, value=limit, basis="source", reference=name, before=tail.value, detects=_detects(beyond))


def _basis(sources: Mapping[str, BaselineSource], basis_of_several: Basis) -> Basis:
    """Return "source" if the limit comes from a single source, else `basis_of_several`."""
    return "source" if len(sources) == 1 else basis_of_several


def margin(known: Measurement, n: int, room: float = Z_ROOM) -> float:
    """Return the distance from the reference within which the interval of a new sample of n queries should lie.

    room : Z_ROOM for a limit on one side, Z_95 for limits on both sides.
    """
    return (_reach(known, n) + room) * known.standard_error * sqrt(1.0 + known.n_queries / n)


def _reach(known: Measurement, n: int) -> float:
    """Return the half width of the 95 % interval in standard errors, for at least MIN_QUERIES queries."""
    return reach_95(max(MIN_QUERIES, min(known.n_queries, n)))


def share_margin(share: Measurement, n: int) -> float:
    """Return the margin of a share. Its error grows with the share, so the sample's error is computed at the limit."""
    p, reach = share.value, _reach(share, n)
    base = sqrt(p * (1.0 - p) / _draws(share)) * sqrt(1.0 + share.n_queries / n)
    result = (reach + Z_ROOM) * base
    if 0.0 < p < SHARE_WITH_LARGEST_ERROR:
        for _ in range(FIXED_POINT_ROUNDS):
            limit = min(SHARE_WITH_LARGEST_ERROR, p + result)
            result = base * (Z_ROOM + reach * sqrt(limit * (1.0 - limit) / (p * (1.0 - p))))
    return result


SHARE_WITH_LARGEST_ERROR = 0.5
FIXED_POINT_ROUNDS = 20
"""Iterations to find the margin. The factor grows as the margin's square root, so each at least halves the error."""


def _least_share(n: int) -> float:
    """Return 1.25 times the upper end of Wilson's interval for 0 of n queries."""
    z2 = reach_95(max(MIN_QUERIES, n)) ** 2
    return 1.25 * z2 / (n + z2)


def _draws(share: Measurement) -> float:
    """Return the number of independent draws with the share's error, as in `share_interval`; without it, of queries."""
    p = share.value
    if share.standard_error > MAX_ROUNDING_ERROR and 0.0 < p < 1.0:
        return p * (1.0 - p) / share.standard_error**2
    return float(share.n_queries)


def _beyond(known: Measurement, damaged: float, limit: float) -> tuple[float, float]:
    """Return how far a share lies beyond a limit, and its error in a sample as large as the reference's."""
    return damaged - limit, sqrt(max(0.0, damaged * (1.0 - damaged)) / _draws(known))


def _detects(beyond: Callable[[float], tuple[float, float]]) -> float:
    """Return the smallest share of damaged negatives that is detected, a multiple of 0.01; infinite if none is.

    A share is detected if the number is at least half an interval beyond the limit. Then the whole interval is beyond
    the limit in half of the samples.
    beyond : function of the share of damaged negatives; returns how far the number lies beyond the limit on average,
    and its standard error.
    """
    for percent in range(1, 101):
        distance, error = beyond(percent / 100.0)
        if distance > 0.0 and distance >= Z_95 * error:
            return percent / 100.0
    return inf


def above_advice(baseline: Baseline) -> dict[str, dict[str, float]]:
    """Return shares in the baseline that are above the catalogue's limits, by source and finding.

    Only findings that the gate checks are included. For a formal finding, the share is the difference from the
    positives. It is included if the lower end of its interval is above the limit, as for a later source.
    """
    checked = (*DEFECTS, *CAN_FAIL_ANY, *CAN_FAIL_KNOWN)
    return {
        name: above
        for name, source in baseline.sources.items()
        if (above := {finding: share.value for finding, share in source.findings.items()
                      if finding in checked and FINDINGS[finding].exceeded_by(_excess(finding, share))})
    }  # fmt: skip


def _excess(finding: str, share: Measurement) -> float:
    """Return the number that a limit is compared with; see `SourceFinding.counted_share`."""
    if not FINDINGS[finding].formal or share.n_queries < MIN_QUERIES:
        return share.value
    return share.value - reach_95(share.n_queries) * share.standard_error


def round_up(value: float) -> float:
    """Round up to two significant digits, so that a maximum is short and never tighter."""
    return _rounded(value, ceil)


def round_down(value: float) -> float:
    """Round down to two significant digits."""
    return _rounded(value, floor)


def _rounded(value: float, way: Callable[[float], int]) -> float:
    if value == 0.0:
        return 0.0
    places = 1 - floor(log10(abs(value)))
    return float(f"{way(round(value * 10**places, 9)) / 10**places:.{max(0, places)}f}")


# The policy file of `secid gate --init` has few keys. Its comments show the limits that follow from the baseline.

COMMENT_WIDTH = 118
POLICY_HEAD = (
    'Policy of `secid gate`. A key that is set here replaces the limit from the baseline, and "off" skips the check. '
    "Limits that are not set here are derived from the baseline in each run. All checks and keys: docs/gate.md."
)


def policy_text(baseline: Baseline, where: str, table: str = "gate") -> str:
    """Return a commented policy table: keys for all sources, and the limits from the baseline as comments."""
    policy = Policy()
    lines = [
        *_comment(POLICY_HEAD),
        "",
        f"[{table}]",
        f"# minimum_queries = {minimum_queries(policy, baseline)}",
        *_comment("A source with fewer distinct queries is undecided, unless a check fails."),
        f"defects_maximum = {policy.defects_maximum:g}",
        *_comment(
            f"Maximum share of each counted defect ({', '.join(DEFECTS)}), whatever its share in the baseline. A "
            "[gate.findings] table can set another limit for a single defect."
        ),
        f"new_source = {json.dumps(policy.new_source)}",
        *_comment('"hold" keeps a source without a predecessor undecided until somebody reviews it.'),
        "",
        f"[{table}.names]",
        *_comment('"new-name" = "name in the baseline". Dates, versions and shard numbers are ignored automatically.'),
        "",
        *_comment(
            f'Limits derived from {where}. "detects X %" means: if X % of the negatives are random passages, belong to '
            "other queries, or have the finding, about half of the samples as large as the baseline's fail."
        ),
        *_comment(f"- a new source: {_limits(limits_for(policy, baseline, None))}"),
    ]
    for name in baseline.sources:
        lines += _comment(f"- {name} and what follows it: {_limits(limits_for(policy, baseline, name))}")
    for name, above in above_advice(baseline).items():
        lines += _comment(above_sentence(name, above))
    return "\n".join(lines) + "\n"


def _limits(limits: GateLimits) -> str:
    """Format the limits except those of defects, and the checks that were left out for low power."""
    texts = [
        f"{check} {bound.side} {bound.value:g}{_detects_text(bound)}".replace("± ", "±")
        for check, bound in limits.bounds.items()
        if not bound.counted
    ]
    if limits.left_out:
        texts.append(f"not checked (too little power): {', '.join(limits.left_out)}")
    return "; ".join(texts)


def _detects_text(bound: Bound) -> str:
    """Format the share of damaged negatives that a limit detects, and whether it is a notice."""
    notes = ["notice"] if bound.notice else []
    notes += [] if bound.detects is None else [f"detects {100 * bound.detects:.0f} %"]
    return f" ({', '.join(notes)})" if notes else ""


def above_sentence(name: str, above: Mapping[str, float]) -> str:
    """Return sentences about a source of the baseline with larger shares than the catalogue recommends."""
    shares = [
        f"{finding} {100 * share:.1f} % (recommended: at most {100 * (FINDINGS[finding].limit or 0.0):g} %)"
        for finding, share in above.items()
    ]
    counted, judged = ([finding for finding in above if (finding in DEFECTS) == flag] for flag in (True, False))
    sentences = [f"{name}: {', '.join(shares)}."]
    if judged:
        sentences.append(f"Later versions of {name} pass with the same share of {', '.join(judged)}.")
    if counted:
        repair = f"Repair {name}, or set a limit in the policy."
        sentences.append(f"Later versions of {name} fail with the same share of {', '.join(counted)}. {repair}")
    return " ".join(sentences)


def write_policy(baseline: Baseline, where: str, path: Path) -> None:
    """Write the policy to a new file, or add it to a file that has none. Raises UsageError, OutputError."""
    name = ".".join(POLICY_TABLES.get(path.name, ("gate",)))
    text = policy_text(baseline, where, name)
    if path.exists():
        try:
            data = path.read_bytes()
        except OSError as error:
            raise OutputError(
                f"cannot be read: {error.strerror}", where=str(path), remedy="name another file with --policy"
            ) from error
        table, before = read_toml(data, str(path)), data.decode("utf-8")
        if table_in(table, path.name) is not None:
            raise UsageError(
                f"already has a [{name}] table",
                where=str(path),
                remedy="remove the table first, or name another file with --policy",
            )
        text = _combined(before, text, path)
    write_whole(path, text)


def _combined(before: str, text: str, path: Path) -> str:
    """Append the policy to the text of a file, with its line ends. Raises UsageError if the file cannot hold both."""
    end = "\r\n" if "\r\n" in before else "\n"
    whole = f"{before.rstrip()}{end * 2}{text.replace(chr(10), end)}" if before.strip() else text
    remedy = "name another file with --policy"
    try:
        policy_in(tomllib.loads(whole), path.name, str(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"a table cannot be added: {error}", where=str(path), remedy=remedy) from error
    except SettingsError as error:
        raise UsageError(f"already contains a policy: {error.message}", where=str(path), remedy=remedy) from error
    return whole


def _comment(text: str) -> list[str]:
    """Return the lines of a comment. Control characters are replaced, since they could end it or break the file."""
    printable = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)
    return [f"# {line}" for line in textwrap.wrap(printable, COMMENT_WIDTH)]
