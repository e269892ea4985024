"""An encoder's resolved recipe and its self-test as plain text of 80 columns, and as one JSON document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from secid.pages.numbers import count
from secid.pages.sanitize import plain

if TYPE_CHECKING:
    from secid.encode import Description

COLUMNS = 80
LABEL, VALUE = 16, 34
"""Widths of the first two columns; a SHA-256 fits the rest of a line after the first."""


def encoder_text(encoder: Description) -> str:
    """What a person reads: identity, recipe with the rule that set each field, self-test, notes."""
    info = encoder.info
    parameters = "unknown" if encoder.n_parameters is None else count(encoder.n_parameters)
    lines = [
        *_line("encoder", info.name),
        *_line("revision", info.revision or "none"),
        *_line("parameters", parameters),
        *_line("dimension", count(info.dim)),
        *_line("number format", f"{info.dtype} on {info.device}"),
        *_line("weights sha256", info.weights_sha256 or "unknown"),
        *_line("fingerprint", info.fingerprint or "none: its rows are not cached"),
        "",
        _columns("recipe", "value", "set by"),
        *_recipe(encoder),
        "",
        _columns("self-test", "outcome", ""),
    ]
    for check in encoder.checks:
        lines += _line(check.name, f"{check.outcome}: {check.detail}")
    if info.notes:
        lines.append("")
    for note in info.notes:
        lines += _line("note", note)
    lines += ["", _verdict(encoder)]
    return "\n".join(lines) + "\n"


def _recipe(encoder: Description) -> Iterator[str]:
    info = encoder.info
    fields = {
        "pooling": info.pooling,
        "normalize": "yes" if info.normalize else "no",
        "max_length": "no limit known" if info.max_length is None else f"{count(info.max_length)} tokens",
        "query_prefix": _quoted(info.query_prefix),
        "passage_prefix": _quoted(info.passage_prefix),
    }
    if "truncate_dim" in info.rules:
        fields["truncate_dim"] = _truncation(encoder.truncate_dim)
    for name, value in fields.items():
        yield from _cells(name, value, info.rules.get(name, "default"))
    for head in encoder.heads:
        yield from _cells("after pooling", head, "modules.json")


def _truncation(truncate_dim: int | None) -> str:
    return "none" if truncate_dim is None else f"first {count(truncate_dim)} dimensions"


def _quoted(prefix: str) -> str:
    """A prefix with its spaces and line feeds made visible."""
    return json.dumps(prefix, ensure_ascii=False) if prefix else "none"


def _verdict(encoder: Description) -> str:
    if encoder.unsettled:
        return f"did not pass: {', '.join(encoder.unsettled)}"
    skipped = f"; not asked of stored rows: {', '.join(encoder.not_asked)}" if encoder.not_asked else ""
    return f"all {len(encoder.checks)} checks pass{skipped}"


def _line(label: str, text: str) -> list[str]:
    """A label and a text, the text's further lines indented under it."""
    parts = _wrapped(text, COLUMNS - LABEL)
    return [f"{label if place == 0 else '':<{LABEL}}{part}" for place, part in enumerate(parts)]


def _cells(label: str, value: str, rule: str) -> Iterator[str]:
    values, rules = _wrapped(value, VALUE - 1), _wrapped(rule, COLUMNS - LABEL - VALUE)
    for place in range(max(len(values), len(rules))):
        yield _columns(
            label if place == 0 else "",
            values[place] if place < len(values) else "",
            rules[place] if place < len(rules) else "",
        )


def _columns(first: str, second: str, third: str) -> str:
    return f"{first:<{LABEL}}{second:<{VALUE}}{third}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, one at least; no space is lost but at the end of a line."""
    return textwrap.wrap(plain(text).replace("\u00a0", " "), width, break_on_hyphens=False) or [""]
