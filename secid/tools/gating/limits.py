"""What a source is held against, and the policy file that `secid gate --init` writes from it."""

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
from secid.measure.interval import FEWEST_QUERIES, reach_95
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.gate import GROSS, Basis, finding_of
from secid.settings import read_toml
from secid.tools.gating.baseline import Baseline, BaselineSource, Measurement
from secid.tools.gating.policy import KEYS_IN, LIMITED, Policy, policy_in, table_in
from secid.triplets.estimates import NO_SPREAD

# What a source is held against: limits from the policy, else from the baseline, and the damage that each detects.
#
# Counted defects are held against the policy alone: a baseline that has them must not admit more of them.
#
# A limit from the baseline lies far enough from the reference that a fresh sample of the same source passes: its whole
# 95 % interval is inside in 95 % of samples of `minimum_queries` queries, and in practically all of twice as many. The
# errors of the baseline and of the new sample both count. A check that would not see even gross damage in a sample as
# large as the baseline's is left out and named.

Z_ROOM = 1.6448536269514722
"""95 % point of the normal distribution: where the estimate of a fresh sample may fall."""
Z_95 = 1.959963984540054
"""The same where it may fall on either side."""
DECIDABLE_QUERIES = 100
"""Queries from which limits of the baseline are decided."""
RANDOM_LIKE_OF_RANDOM = 0.87
"""Share of random passages that are random_like. Source: METHOD 10."""
SHUFFLED_BELOW = 0.7
"""Share of negatives of other queries that lie in the lower tail; 0.76 to 0.83 were measured. Source:
docs/experiments/gate.md."""
LEAST_SAMPLE = 30
"""Queries of the smallest samples that limits are made for, whatever the policy's minimum; fewer if the baseline is
smaller."""
LANGUAGE_TOLERANCE = 0.05
"""How many more texts than in the baseline may be in a language that it does not have: a share of a sample of 1,000."""
KNOWN_LANGUAGE = 0.01
"""Share of a source from which the baseline has a language."""
ESTIMATED = ("random_like", "weak_positive", "other_language")
"""Findings that can fail every source."""
NOTICED = ("inversion", "suspect", "shared_opening", "hub")
"""Findings that can fail a source with a predecessor. Of a new one they are a notice: whether a new kind of miner may
have them is for a person to judge. Hubs are a notice always: a text just above or just below the limit moves the share
of a sound sample by a point."""
COUNTED = (*DEFECTS, "languages")
"""Of these the number decides, not its interval."""
LEAST, MOST, WITHIN = "at least", "at most", "within ±"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A limit of one check.

    side, value : at least, at most, or within ±.   basis : where it comes from; a predecessor, all of the baseline, the
    policy.   reference : the source of the baseline that it comes from, if one; before: the reference's number.
    notice      : beyond it is a notice, not a failure.   counted : the number decides, not its interval.
    detects     : the least share of damaged negatives that fails in half of the samples as large as the reference;
                  None for a limit of the policy, and where no damage is defined (the score). Damaged means random
                  passages (hardness, random_like), negatives of other queries (drift), or negatives with the finding.
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
        """The smallest and the largest number that it allows."""
        return {LEAST: (self.value, inf), MOST: (-inf, self.value), WITHIN: (-self.value, self.value)}[self.side]


@dataclass(frozen=True)
class GateLimits:
    """All that one source is held against: bounds by the name of the check, and the checks left out for low power."""

    minimum_queries: int
    bounds: Mapping[str, Bound]
    left_out: tuple[str, ...] = ()


def minimum_queries(policy: Policy, baseline: Baseline, previous: str | None = None) -> int:
    """Distinct queries from which a source is decided: the policy's, else 100, or as many as the baseline has."""
    if policy.minimum_queries is not None:
        return policy.minimum_queries
    sizes = [source.n_queries for source in baseline.sources.values()]
    own = baseline.sources[previous].n_queries if previous else median(sizes)
    return max(FEWEST_QUERIES, min(DECIDABLE_QUERIES, int(own)))


def limits_for(policy: Policy, baseline: Baseline, previous: str | None) -> GateLimits:
    """The limits of a source. previous: its predecessor in the baseline, None for a new source."""
    least = minimum_queries(policy, baseline, previous)
    usual = minimum_queries(Policy(), baseline, previous)
    derived = _derived(policy, baseline, previous, max(least, min(usual, LEAST_SAMPLE)))
    bounds: dict[str, Bound] = {}
    left_out: list[str] = []
    for name in LIMITED:
        own = of_policy(policy, name)
        if own == "off" or (previous is None and name.startswith("drift.")):
            continue
        bound = derived.get(name)
        if isinstance(own, float | int):
            bounds[name] = _given(name, float(own), previous)
        elif bound is None:
            left_out += [name] if name == "hardness" else []
        elif bound.notice or bound.detects is None or bound.detects <= GROSS:
            bounds[name] = bound
        else:
            left_out.append(name)
    return GateLimits(least, bounds, tuple(left_out))


def _given(check: str, value: float, previous: str | None) -> Bound:
    """A limit of the policy. Nothing estimated can be shown to be 0, so the number itself decides there."""
    drift = check.startswith("drift.")
    side = WITHIN if check == "drift.score_nats" else LEAST if check == "hardness" else MOST
    counted = (finding_of(check) or check) in COUNTED or (value == 0.0 and side == MOST)
    reference = previous or "" if drift or check == "languages" else ""
    return Bound(side=side, value=value, basis="policy", reference=reference, counted=counted)


def of_policy(policy: Policy, check: str) -> float | str | None:
    """The policy's own limit of a check, "off", or None where the baseline gives it."""
    table, _, key = check.rpartition(".")
    if table:
        return getattr(getattr(policy, table), key)  # type: ignore[no-any-return]
    return policy.hardness_minimum if check == "hardness" else policy.languages_maximum


def _derived(policy: Policy, baseline: Baseline, previous: str | None, n: int) -> dict[str, Bound]:
    """Limits that the baseline gives, by check."""
    sources = {previous: baseline.sources[previous]} if previous else dict(baseline.sources)
    known = known_languages(baseline, previous)
    limits: dict[str, Bound | None] = {"hardness": _hardness(sources, n)}
    if known:
        limits["languages"] = _languages(sources, known)
    for name in DEFECTS:
        limits[f"findings.{name}"] = Bound(side=MOST, value=policy.defects_maximum, basis="policy", counted=True)
    for name in (*ESTIMATED, *NOTICED):
        limits[f"findings.{name}"] = _share(sources, name, n, notice=name == "hub" or previous is None)
    if previous:
        limits["drift.score_nats"] = _score(previous, sources[previous], n)
        limits["drift.unrelated"] = _unrelated(previous, sources[previous], n)
    return {name: limit for name, limit in limits.items() if limit is not None}


def known_languages(baseline: Baseline, previous: str | None) -> set[str]:
    """Languages of the predecessor, else of any source of the baseline."""
    sources = [baseline.sources[previous]] if previous else baseline.sources.values()
    return {code for source in sources for code, share in source.languages.items() if share >= KNOWN_LANGUAGE}


def _extreme(known: Mapping[str, Measurement], n: int, sign: float) -> tuple[str, Measurement]:
    """The source with the largest number, or with sign -1 the smallest, among those that have n queries, if any have:
    a tiny source loosens no limit.
    """
    large = {name: own for name, own in known.items() if own.n_queries >= n} or known
    name = max(large, key=lambda name: sign * large[name].value)
    return name, large[name]


def _hardness(sources: Mapping[str, BaselineSource], n: int) -> Bound | None:
    """At least that of the easiest source, less a margin."""
    known = {name: source.hardness for name, source in sources.items() if source.hardness is not None}
    if not known:
        return None
    easiest, before = _extreme(known, n, -1.0)
    limit = down(before.value - margin(before, n))
    return Bound(
        side=LEAST,
        value=limit,
        basis=_basis(sources, "extreme"),
        reference=easiest,
        before=before.value,
        detects=_detects(lambda share: (limit - (1.0 - share) * before.value, before.standard_error)),
    )


def _languages(sources: Mapping[str, BaselineSource], known: set[str]) -> Bound:
    """At most the largest share of the sources in other languages and LANGUAGE_TOLERANCE, by count."""
    new = {
        name: sum(share for code, share in source.languages.items() if code not in known)
        for name, source in sources.items()
    }
    largest = max(new, key=new.__getitem__)
    before = new[largest]
    limit = _rounded_up(before + LANGUAGE_TOLERANCE)
    basis = _basis(sources, "extreme")
    return Bound(side=MOST, value=limit, basis=basis, reference=largest, before=before, counted=True)


def _rounded_up(share: float) -> float:
    """To six places, so that a share which the baseline stores with nine digits is within its own limit."""
    return ceil(round(share * 1e6, 3)) / 1e6


def _share(sources: Mapping[str, BaselineSource], name: str, n: int, notice: bool) -> Bound | None:
    """At most the largest share of the sources and its margin; what 0 of n queries would still allow is the least."""
    known = {key: source.findings[name] for key, source in sources.items() if name in source.findings}
    if not known:
        return None
    largest, before = _extreme(known, n, 1.0)
    before = replace(before, value=max(0.0, before.value))
    entry = FINDINGS[name]
    room, least = share_margin(before, n), _least_share(n)
    if entry.formal:  # a difference has an error even where it is 0
        room, least = max(room, margin(before, n)), max(least, entry.limit or 0.0)
    limit = up(max(before.value + room, least))
    full = RANDOM_LIKE_OF_RANDOM if name == "random_like" else 1.0
    return Bound(
        side=MOST,
        value=limit,
        basis=_basis(sources, "extreme"),
        reference=largest,
        before=before.value,
        notice=notice and name in NOTICED,
        detects=_detects(lambda share: _beyond(before, before.value + share * (full - before.value), limit)),
    )


def _score(name: str, source: BaselineSource, n: int) -> Bound | None:
    """Within ± a margin of the predecessor's; None where that has too few queries for an error."""
    score = source.score()
    if score.n_queries < FEWEST_QUERIES:
        return None
    limit = up(margin(score, n, Z_95))
    return Bound(side=WITHIN, value=limit, basis="source", reference=name, before=score.value)


def _unrelated(name: str, source: BaselineSource, n: int) -> Bound:
    """At most a margin above the predecessor's."""
    tail = source.unrelated.share
    limit = up(max(share_margin(tail, n), _least_share(n) - tail.value))

    def beyond(share: float) -> tuple[float, float]:
        damaged = tail.value + share * (SHUFFLED_BELOW - tail.value)
        distance, error = _beyond(tail, damaged, tail.value + limit)
        return distance, hypot(error, tail.standard_error)

    return Bound(side=MOST, value=limit, basis="source", reference=name, before=tail.value, detects=_detects(beyond))


def _basis(sources: Mapping[str, BaselineSource], of_all: Basis) -> Basis:
    """One source is the reference itself, be it a predecessor or the whole of the baseline."""
    return "source" if len(sources) == 1 else of_all


def margin(known: Measurement, n: int, room: float = Z_ROOM) -> float:
    """How far from the reference the interval of a fresh sample of n queries may reach. room: Z_95 for two sides."""
    return (_reach(known, n) + room) * known.standard_error * sqrt(1.0 + known.n_queries / n)


def _reach(known: Measurement, n: int) -> float:
    """Half width of an interval in standard errors; fewer queries than FEWEST_QUERIES have none."""
    return reach_95(max(FEWEST_QUERIES, min(known.n_queries, n)))


def share_margin(share: Measurement, n: int) -> float:
    """The margin of a share. Its error grows with it, so that of the sample counts as it is at the limit itself."""
    p, reach = share.value, _reach(share, n)
    base = sqrt(p * (1.0 - p) / _draws(share)) * sqrt(1.0 + share.n_queries / n)
    result = (reach + Z_ROOM) * base
    if 0.0 < p < HALF:
        for _ in range(FIXED_POINT_ROUNDS):
            limit = min(HALF, p + result)
            result = base * (Z_ROOM + reach * sqrt(limit * (1.0 - limit) / (p * (1.0 - p))))
    return result


HALF = 0.5
"""Where the error of a share is largest."""
FIXED_POINT_ROUNDS = 20
"""The factor grows as a root of the margin, so that each round at least halves the remaining error."""


def _least_share(n: int) -> float:
    """The upper end of the interval of 0 of n queries (Wilson's), and a quarter."""
    z2 = reach_95(max(FEWEST_QUERIES, n)) ** 2
    return 1.25 * z2 / (n + z2)


def _draws(share: Measurement) -> float:
    """Independent draws that give the share's error; without an error queries count, as in `share_interval`."""
    p = share.value
    if share.standard_error > NO_SPREAD and 0.0 < p < 1.0:
        return p * (1.0 - p) / share.standard_error**2
    return float(share.n_queries)


def _beyond(known: Measurement, damaged: float, limit: float) -> tuple[float, float]:
    """How far a share lies beyond a limit, and its error in a sample like the reference's."""
    return damaged - limit, sqrt(max(0.0, damaged * (1.0 - damaged)) / _draws(known))


def _detects(beyond: Callable[[float], tuple[float, float]]) -> float:
    """The least share of damaged negatives, in whole percent, that is detected; infinite where none is.

    beyond : how far beyond the limit the number of a source with that share lies on average, and its standard error.
    The whole interval of half of the samples lies beyond where the number itself is half an interval beyond.
    """
    for percent in range(1, 101):
        distance, error = beyond(percent / 100.0)
        if distance > 0.0 and distance >= Z_95 * error:
            return percent / 100.0
    return inf


def above_advice(baseline: Baseline) -> dict[str, dict[str, float]]:
    """Return what the baseline's own sources have above the limits of the catalogue: by source, share by finding.

    Only findings that the gate checks. Of a formal one the share is the difference from the positives, and what has to
    be above the limit is the lower end of its interval, as for a later source.
    """
    checked = (*DEFECTS, *ESTIMATED, *NOTICED)
    return {
        name: above
        for name, source in baseline.sources.items()
        if (above := {finding: share.value for finding, share in source.findings.items()
                      if finding in checked and _excess(finding, share) > (FINDINGS[finding].limit or inf)})
    }  # fmt: skip


def _excess(finding: str, share: Measurement) -> float:
    """What a limit holds for, as `SourceFinding.counted_share` has it."""
    if not FINDINGS[finding].formal or share.n_queries < FEWEST_QUERIES:
        return share.value
    return share.value - reach_95(share.n_queries) * share.standard_error


def up(value: float) -> float:
    """Rounded away from zero to two significant digits, so that a limit reads well and is never tighter."""
    return _rounded(value, ceil)


def down(value: float) -> float:
    """Rounded down to two significant digits."""
    return _rounded(value, floor)


def _rounded(value: float, way: Callable[[float], int]) -> float:
    if value == 0.0:
        return 0.0
    places = 1 - floor(log10(abs(value)))
    return float(f"{way(round(value * 10**places, 9)) / 10**places:.{max(0, places)}f}")


# The policy file that `secid gate --init` writes: few keys, and in comments what follows from the baseline.

WIDTH = 118
HEAD = (
    "Policy of `secid gate`. Limits that are not set here follow from the baseline each time; a key that is set here "
    'wins, and "off" skips its check. What each check asks, and every key: docs/gate.md.'
)


def policy_text(baseline: Baseline, where: str, table: str = "gate") -> str:
    """A commented table of that name: what applies to all sources, and in comments what follows from the baseline."""
    policy = Policy()
    lines = [
        *_comment(HEAD),
        "",
        f"[{table}]",
        f"# minimum_queries = {minimum_queries(policy, baseline)}",
        *_comment("A source with fewer distinct queries is undecided, unless a check fails."),
        f"defects_maximum = {policy.defects_maximum:g}",
        *_comment(
            f"Largest share of each defect that is counted ({', '.join(DEFECTS)}), whatever the baseline has. A "
            "[gate.findings] table gives one of them another limit."
        ),
        f"new_source = {json.dumps(policy.new_source)}",
        *_comment('"hold" keeps a source without a predecessor undecided until somebody reviews it.'),
        "",
        f"[{table}.names]",
        *_comment('"new-name" = "name in the baseline". Dates, versions and shard numbers are ignored automatically.'),
        "",
        *_comment(
            f"What follows from {where}. (detects X %): about half of the samples as large as the baseline's fail if "
            "X % of their negatives are random passages, those of other queries, or have the finding."
        ),
        *_comment(f"- a new source: {_limits(limits_for(policy, baseline, None))}"),
    ]
    for name in baseline.sources:
        lines += _comment(f"- {name} and what follows it: {_limits(limits_for(policy, baseline, name))}")
    for name, above in above_advice(baseline).items():
        lines += _comment(above_sentence(name, above))
    return "\n".join(lines) + "\n"


def _limits(limits: GateLimits) -> str:
    """The limits of the baseline that are not the defects', and the checks that it has no power for."""
    texts = [
        f"{check} {bound.side} {bound.value:g}{_detects_text(bound)}".replace("± ", "±")
        for check, bound in limits.bounds.items()
        if not bound.counted
    ]
    return "; ".join([*texts, *([f"not checked, too weak: {', '.join(limits.left_out)}"] if limits.left_out else [])])


def _detects_text(bound: Bound) -> str:
    """From what share of damaged negatives it acts."""
    notes = ["notice"] if bound.notice else []
    notes += [] if bound.detects is None else [f"detects {100 * bound.detects:.0f} %"]
    return f" ({', '.join(notes)})" if notes else ""


def above_sentence(name: str, above: Mapping[str, float]) -> str:
    """What a source of the baseline has more of than the catalogue recommends."""
    shares = [
        f"{finding} {100 * share:.1f} % (recommended: at most {100 * (FINDINGS[finding].limit or 0.0):g} %)"
        for finding, share in above.items()
    ]
    counted, judged = ([finding for finding in above if (finding in DEFECTS) == flag] for flag in (True, False))
    by = f" Later versions of {name} pass with the same share of {', '.join(judged)}." if judged else ""
    fails = f" They fail for {', '.join(counted)}: repair {name}, or set a limit in the policy." if counted else ""
    return f"{name}: {', '.join(shares)}.{by}{fails}"


def write_policy(baseline: Baseline, where: str, path: Path) -> None:
    """Writes the policy to a new file, or adds it to settings that have none yet. Raises UsageError, OutputError."""
    name = ".".join(KEYS_IN.get(path.name, ("gate",)))
    text = policy_text(baseline, where, name)
    if path.exists():
        try:
            data = path.read_bytes()
        except OSError as error:
            raise OutputError(f"cannot be read: {error.strerror}", where=str(path)) from error
        table, before = read_toml(data, str(path)), data.decode("utf-8")
        if table_in(table, path.name) is not None:
            raise UsageError(
                f"already has a [{name}] table",
                where=str(path),
                remedy="remove it first, or give another file with --policy",
            )
        text = _combined(before, text, path)
    write_whole(path, text)


def _combined(before: str, text: str, path: Path) -> str:
    """The settings followed by the policy, in their line ends. Raises UsageError if they cannot share a file."""
    end = "\r\n" if "\r\n" in before else "\n"
    whole = f"{before.rstrip()}{end * 2}{text.replace(chr(10), end)}" if before.strip() else text
    remedy = "give another file with --policy"
    try:
        policy = policy_in(tomllib.loads(whole), path.name, str(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"cannot add a table: {error}", where=str(path), remedy=remedy) from error
    except SettingsError as error:
        raise UsageError(f"already contains a policy: {error.message}", where=str(path), remedy=remedy) from error
    if policy is None:
        raise UsageError("a table added here would not be read", where=str(path), remedy=remedy)
    return whole


def _comment(text: str) -> list[str]:
    """Lines of a comment. A control character would end it or break the file."""
    printable = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)
    return [f"# {line}" for line in textwrap.wrap(printable, WIDTH)]
