"""The policy file that `secid gate --init` writes: every limit, its meaning, and the values of the baseline."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from secid.errors import OutputError, SettingsError, UsageError
from secid.files import write_whole
from secid.gating.baseline import Baseline
from secid.gating.limits import common, complete
from secid.gating.policy import KEYS_IN, Policy, policy_in, table_in, tables

MAX_SOURCES = 6
WIDTH = 118


def policy_text(baseline: Baseline, where: str, table: str = "gate") -> str:
    """A commented table of that name with limits derived from the baseline. Source: secid.gating.limits."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - TOML: `name` and `toml` make text safe in it
        loader=PackageLoader("secid.gating"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"comment": _comment, "name": _plain, "toml": _toml}
    policy = common(Policy(), baseline)
    own = {_plain(name): complete(Policy(), baseline, name) for name in baseline.sources}

    def of_sources(key: str, part: str | None) -> str:
        return _first([f"{name} {getattr(getattr(each, part) if part else each, key)}" for name, each in own.items()])

    return environment.get_template("policy.toml").render(
        where=where,
        table=table,
        policy=policy,
        tables=tables(),
        like=[
            f"{_plain(name)} (like {', '.join(source.like_controls)})"
            for name, source in baseline.sources.items()
            if source.like_controls
        ],
        own=of_sources,
        values=lambda key, part: _values(baseline, part, key, policy) if part else "",
    )


def _first(texts: list[str]) -> str:
    more = f" and {len(texts) - MAX_SOURCES} more" if len(texts) > MAX_SOURCES else ""
    return f"{', '.join(texts[:MAX_SOURCES])}{more}"


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


def _values(baseline: Baseline, table: str, key: str, policy: Policy) -> str:
    """The values of the baseline's sources for this limit, and whether anything can fail it."""
    values: dict[str, float] = {}
    for name, source in baseline.sources.items():
        if table == "findings" and key in source.findings:
            values[name] = source.findings[key].value
        elif table == "means":
            values[name] = source.means[key.rsplit("_", 1)[0]].value
        elif table == "diversity" and key == "effective_rank_minimum":
            values[name] = source.effective_rank[f"{policy.diversity.budget:g}"]
        elif table == "score" and key == "tolerance_nats":
            values[name] = source.score_nats
    text = f" Baseline: {_first([f'{_plain(name)} {value:.4g}' for name, value in values.items()])}." if values else ""
    if table == "findings" and not values:
        text = " Not measured in the baseline."
    return text + (" Nothing can fail this limit." if _is_vacuous(baseline, key, policy, table) else "")


def _is_vacuous(baseline: Baseline, key: str, policy: Policy, table: str) -> bool:
    """True for a limit that no source can fail."""
    value = getattr(getattr(policy, table), key)
    if key == "tolerance_nats" and isinstance(value, float):
        return value >= max(source.score_nats for source in baseline.sources.values())
    return table in ("means", "findings", "diversity") and value == (0.0 if key.endswith("_minimum") else 1.0)


def _comment(text: str) -> str:
    import textwrap

    return "\n".join(f"# {line}" for line in textwrap.wrap(text, WIDTH))


def _plain(text: str) -> str:
    """A name that is safe in a comment: a control character would end the comment or break the file."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _toml(value: Any) -> str:
    """A value as TOML; the strings and lists of a policy are written as in JSON, which TOML shares."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
