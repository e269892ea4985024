"""The policy file that `secid gate --init` writes: every limit, what it means, and what the baseline shows."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from secid.errors import OutputError, SettingsError, UsageError
from secid.files import make_folder, write_whole
from secid.gating.baseline import Baseline
from secid.gating.limits import common, complete
from secid.gating.policy import KEYS_IN, BucketsPolicy, Policy, policy_in, table_in, tables

ENDS = {
    **dict.fromkeys(BucketsPolicy.model_fields, 1.0),
    "coverage_maximum": 1.0,
    "consistency_minimum": 0.0,
    "locality_minimum": 0.0,
    "effective_rank_minimum": 0.0,
}
"""Limits beyond which no number can be."""
SHOWN_SOURCES = 6
WIDTH = 118
MEANS_SHOWN = {"consistency_minimum": "consistency", "locality_minimum": "locality", "coverage_maximum": "coverage"}


def policy_text(baseline: Baseline, where: str, name: str = "gate") -> str:
    """A commented table of that name with limits derived from the baseline. Source: secid.gating.limits."""
    policy = common(Policy(), baseline)
    of_source = {name: complete(Policy(), baseline, name) for name in baseline.sources}
    lines = [
        f"# Policy of `secid gate`, derived from {_plain(where)} by `secid gate --init`.",
        "# A limit is decided on the whole 95 % interval: pass inside, fail outside, else undecided (exit 3).",
        '# "off" leaves a check out; a key that is removed is derived from the baseline anew.',
        *_comment(
            "Derived limits admit what resembles the sources of the baseline. A sound source of another kind may fail "
            "them: widen those that it fails on once it has been reviewed."
        ),
        *_warnings(baseline),
        "",
        f"[{name}]",
    ]
    for key, field in Policy.model_fields.items():
        if key not in tables():
            each = [f"{_plain(known)} {getattr(found, key)}" for known, found in of_source.items()]
            lines += [*_comment(str(field.description)), *_line(key, getattr(policy, key), each)]
    for part, table in tables().items():
        values = getattr(policy, part)
        lines += ["", *_comment(str(table.__doc__).strip()), f"[{name}.{part}]"]
        for key, field in table.model_fields.items():
            nothing = " Nothing can fail this limit." if _says_nothing(baseline, key, getattr(values, key)) else ""
            lines += _comment(f"{field.description}{_known(baseline, part, key, policy)}{nothing}")
            each = [f"{_plain(known)} {getattr(getattr(found, part), key)}" for known, found in of_source.items()]
            lines += _line(key, getattr(values, key), [] if key == "named" else each)
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any, each: list[str]) -> list[str]:
    """The key with its value; where each source has its own limit, a comment with what they are."""
    if value is not None:
        return [f"{key} = {_toml(value)}"]
    return [*(_comment(f"Each source's own: {_first(each)}.") if each else ()), f'# {key} = "…"']


def _first(shown: list[str]) -> str:
    more = f" and {len(shown) - SHOWN_SOURCES} more" if len(shown) > SHOWN_SOURCES else ""
    return f"{', '.join(shown[:SHOWN_SOURCES])}{more}"


def write_policy(baseline: Baseline, where: str, path: Path) -> None:
    """Writes the policy to a new file, or adds it to settings that have none yet. Raises UsageError, OutputError."""
    name = ".".join(KEYS_IN.get(path.name, ("gate",)))
    text = policy_text(baseline, where, name)
    if path.exists():
        try:
            before = path.read_bytes().decode("utf-8")
            table = tomllib.loads(before)
        except OSError as error:
            raise OutputError(f"cannot be read: {error.strerror}", where=str(path)) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"not valid TOML: {error}", where=str(path)) from error
        if table_in(table, path.name) is not None:
            raise UsageError(
                f"has a [{name}] table already",
                where=str(path),
                remedy="remove it first, or name another file with --policy",
            )
        text = _added(before, text, path)
    make_folder(path)
    write_whole(path, text)


def _added(before: str, text: str, path: Path) -> str:
    """The settings with the policy after them, in their line ends. Raises UsageError where they cannot be one file."""
    end = "\r\n" if "\r\n" in before else "\n"
    whole = f"{before.rstrip()}{end * 2}{text.replace(chr(10), end)}" if before.strip() else text
    remedy = "name another file with --policy"
    try:
        found = policy_in(tomllib.loads(whole), path.name, str(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"no table can be added: {error}", where=str(path), remedy=remedy) from error
    except SettingsError as error:
        raise UsageError(f"holds a policy already: {error.message}", where=str(path), remedy=remedy) from error
    if found is None:
        raise UsageError("no table can be added that would be read", where=str(path), remedy=remedy)
    return whole


def _warnings(baseline: Baseline) -> list[str]:
    like = [
        f"{_plain(name)} (like {', '.join(source.like_controls)})"
        for name, source in baseline.sources.items()
        if source.like_controls
    ]
    lines = []
    if like:
        lines += _comment(
            f"In this baseline the score of {'; '.join(like)} does not differ from a control's. Such a source cannot "
            "pass [gate.controls]: leave the control out of differ_from if random negatives are meant."
        )
    return lines


def _known(baseline: Baseline, table: str, key: str, policy: Policy) -> str:
    """What the baseline's sources show for this limit."""
    found: dict[str, float] = {}
    for name, source in baseline.sources.items():
        if table == "buckets" and key in source.buckets:
            found[name] = source.buckets[key].value
        elif table == "means":
            found[name] = source.means[MEANS_SHOWN[key]].value
        elif table == "diversity" and key == "effective_rank_minimum":
            found[name] = source.effective_rank[f"{policy.diversity.budget:g}"]
        elif table == "score" and key == "tolerance_nats":
            found[name] = source.score_nats
    if not found:
        return " Not known of the baseline." if table == "buckets" else ""
    return f" Baseline: {_first([f'{_plain(name)} {value:.4g}' for name, value in found.items()])}."


def _says_nothing(baseline: Baseline, key: str, value: Any) -> bool:
    """True for a limit that no source can be beyond."""
    if not isinstance(value, float | int):
        return False
    if key == "tolerance_nats":
        return value >= max(source.score_nats for source in baseline.sources.values())
    return value == ENDS.get(key)


def _comment(text: str) -> list[str]:
    import textwrap

    return [f"# {line}" for line in textwrap.wrap(text, WIDTH)]


def _plain(text: str) -> str:
    """A name as a comment can hold it: a control character would end the comment or break the file."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _toml(value: Any) -> str:
    """A value as TOML; the strings and lists of a policy are written as in JSON, which TOML shares."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
