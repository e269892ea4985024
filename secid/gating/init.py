"""The policy file that `secid gate --init` writes: few keys, and in comments what follows from the baseline."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path

from secid.errors import OutputError, SettingsError, UsageError
from secid.files import write_whole
from secid.gating.baseline import Baseline
from secid.gating.limits import Bound, Limits, above_advice, limits_for, minimum_queries
from secid.gating.policy import KEYS_IN, Policy, policy_in, table_in
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.settings import read_toml

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


def _limits(limits: Limits) -> str:
    """The limits of the baseline that are not the defects', and the checks that it has no power for."""
    texts = [
        f"{check} {bound.side} {bound.value:g}{_detects(bound)}".replace("± ", "±")
        for check, bound in limits.bounds.items()
        if not bound.counted
    ]
    return "; ".join([*texts, *([f"not checked, too weak: {', '.join(limits.left_out)}"] if limits.left_out else [])])


def _detects(bound: Bound) -> str:
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
    counted = [finding for finding in above if finding in DEFECTS]
    fails = f" They fail for {', '.join(counted)}: repair {name}, or set a limit in the policy." if counted else ""
    return f"{name}: {', '.join(shares)}. Later versions of {name} are judged by this source.{fails}"


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
