"""Ablations: the same triplets under other settings, all filled in the pass that scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from secid.errors import UsageError
from secid.measure.gates import WEIGHTS
from secid.measure.sweep import Variant
from secid.results import Ablation, AblationRow
from secid.settings import Settings
from secid.study.agreement import kendall_tau_b

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2)
TOKENIZERS = ("alphanumeric", "alphanumeric2", "whitespace", "trigrams", "multilingual")
CORPORA = ("pooled", "own", "pooled_with_queries", "uniform")
SAMPLES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)

Scores = Mapping[str, float | None]


def coverage_name(tokenizer: str, corpus: str) -> str:
    """The name under which a sweep finds a coverage."""
    return f"{tokenizer}/{corpus}"


def tokenizer_of(variant: Variant) -> str:
    """The tokenizer of a variant's coverage."""
    return variant.coverage.split("/")[0]


def base_variant(settings: Settings) -> Variant:
    """The setting of the run itself."""
    return Variant(settings.temperature, coverage_name(settings.tokenizer, settings.idf), "full")


@dataclass(frozen=True)
class Aspect:
    """One thing that is varied. variants: setting as text -> variant; base: the run's own setting."""

    name: str
    base: str
    variants: Mapping[str, Variant]


def aspects(settings: Settings, has_pieces: bool = False) -> tuple[Aspect, ...]:
    """The default suite around a run's settings; the base stands in every aspect. Source: METHOD 3, 4."""
    base = base_variant(settings)
    temperatures = sorted({*TEMPERATURES, settings.temperature})
    tokenizers = (*TOKENIZERS, "wordpieces") if has_pieces else TOKENIZERS
    return (
        Aspect(
            "temperature",
            f"{settings.temperature:g}",
            {f"{tau:g}": Variant(tau, base.coverage, "full") for tau in temperatures},
        ),
        Aspect(
            "tokenizer",
            settings.tokenizer,
            {name: Variant(base.temperature, coverage_name(name, settings.idf), "full") for name in tokenizers},
        ),
        Aspect(
            "idf",
            settings.idf,
            {name: Variant(base.temperature, coverage_name(settings.tokenizer, name), "full") for name in CORPORA},
        ),
        Aspect("weight", "full", {name: Variant(base.temperature, base.coverage, name) for name in WEIGHTS}),
        Aspect(
            "sample",
            "100 %",
            {f"{100 * part:g} %": Variant(base.temperature, base.coverage, "full", part) for part in SAMPLES},
        ),
    )


def blocks_of(texts: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Blocks of sources from `NAME=source,source`; one block of all by default. Raises UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, members = text.partition("=")
        listed = tuple(part.strip() for part in members.split(",") if part.strip())
        if not name or len(listed) < 2:
            raise UsageError(f"not a block: {text!r}", where="--block", remedy="--block NAME=source,source")
        for member in listed:
            if member not in names:
                raise UsageError(
                    f"no source {member!r}", where=f"--block {name}", remedy=f"sources: {', '.join(names)}"
                )
        twice = next((member for member in listed if listed.count(member) > 1), None)
        if twice is not None or name in found:
            what = "this block" if twice is None else f"source {twice!r}"
            raise UsageError(f"{what} is named twice", where=f"--block {name}", remedy="name each once")
        found[name] = listed
    return found


def ablation(
    name: str, base: str, scores: Mapping[str, Scores], blocks: Mapping[str, Sequence[str]] | None = None
) -> Ablation:
    """The table of one aspect. scores: setting -> source -> nats, None where it was not evaluated."""
    rows = tuple(_row(setting, values, scores[base], blocks or {}) for setting, values in scores.items())
    n_ties = {setting: len(newly_tied(values, scores[base])) for setting, values in scores.items()}
    known = {
        source: [value for values in scores.values() if (value := values[source]) is not None]
        for source in scores[base]
    }
    return Ablation(
        name=name,
        base=base,
        rows=rows,
        range_nats={source: max(values) - min(values) if values else 0.0 for source, values in known.items()},
        conclusion=conclusion(name, base, rows, n_ties),
    )


def _row(setting: str, values: Scores, base: Scores, blocks: Mapping[str, Sequence[str]]) -> AblationRow:
    present = {source: value for source, value in values.items() if value is not None}
    places = {source: place for place, source in enumerate(_ordered(base))}
    return AblationRow(
        setting=setting,
        scores=dict(values),
        order=tuple(sorted(present, key=lambda source: (-present[source], places[source]))),
        stability=rank_stability(values, base, tuple(base)),
        block_stability={name: rank_stability(values, base, members) for name, members in blocks.items()},
        swapped=tuple(swapped(values, base, tuple(base))),
    )


def _ordered(base: Scores) -> list[str]:
    """Sources by their score at the base, those that tie by name, those without a score last."""
    return sorted(base, key=lambda source: (-(-np.inf if (value := base[source]) is None else value), source))


def newly_tied(values: Scores, base: Scores) -> list[tuple[str, str]]:
    """Pairs of sources that tie here and not at the base. Pairs with a missing score are left out."""
    return [
        (first, second)
        for first, second in combinations(base, 2)
        if _gap(values, first, second) == 0 and _gap(base, first, second) not in (None, 0)
    ]


def swapped(values: Scores, base: Scores, names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of sources whose order is the other one than at the base. Pairs with a missing score are left out."""
    found = []
    for first, second in combinations(names, 2):
        gap, base_gap = _gap(values, first, second), _gap(base, first, second)
        if gap is not None and base_gap is not None and gap * base_gap < 0:
            found.append((first, second) if base_gap > 0 else (second, first))
    return found


def rank_stability(values: Scores, base: Scores, names: Sequence[str]) -> float | None:
    """Fraction of source pairs ordered the same way, 1 identical, 0 reversed; None without a pair.

    A pair that ties under one setting alone counts as half. Source: METHOD 3.
    """
    points = []
    for first, second in combinations(names, 2):
        gap, base_gap = _gap(values, first, second), _gap(base, first, second)
        if gap is None or base_gap is None:
            continue
        if gap == 0 and base_gap == 0:
            points.append(1.0)
        elif gap == 0 or base_gap == 0:
            points.append(0.5)
        else:
            points.append(float((gap > 0) == (base_gap > 0)))
    return sum(points) / len(points) if points else None


def _gap(values: Scores, first: str, second: str) -> float | None:
    a, b = values[first], values[second]
    return None if a is None or b is None else a - b


PLURALS = {"idf": ("IDF corpus", "IDF corpora")}


def conclusion(name: str, base: str, rows: Sequence[AblationRow], n_ties: Mapping[str, int]) -> str:
    """One line of plain words: unchanged, or at which settings which pairs swap or tie.

    n_ties : by setting, pairs that tie there and not at the base. Settings that order no pair count nowhere.
    """
    one, many = PLURALS.get(name, (name, f"{name}s"))
    ordering = [row for row in rows if row.stability is not None]
    n_missing = sum(1 for row in rows if any(value is None for value in row.scores.values()))
    lacks = f" ({n_missing} {'setting lacks' if n_missing == 1 else 'settings lack'} a score for some source)"
    note = lacks if n_missing else ""
    if all(row.setting == base for row in ordering):
        return f"no {one} other than {base} orders a pair{note}"
    changed = [row for row in rows if row.swapped]
    ties = [(row.setting, n) for row in rows if (n := n_ties[row.setting])]
    tied = "; ".join(f"{n} {'pair ties' if n == 1 else 'pairs tie'} at {setting}" for setting, n in ties)
    if not changed and not tied:
        return f"order unchanged over {len(ordering)} {many}{note}"
    if not changed:
        return f"no pair changes places over {len(ordering)} {many}; {tied}{note}"
    told = [
        f"{row.setting} ({', '.join(f'{first} and {second}' for first, second in row.swapped[:3])}"
        f"{' and more' if len(row.swapped) > 3 else ''})"
        for row in changed
    ]
    return f"order changes against {base} at {name} {'; '.join([*told, *([tied] if tied else [])])}{note}"


def over_encoders(table: Mapping[str, Scores]) -> Ablation:
    """The ablation over encoders; the first is the target. Its note tells which agree, and the condition."""
    base, *others = table
    found = ablation("encoder", base, table)
    names = sorted(table[base])
    told = []
    for other in others:
        a, b = (np.array([table[encoder][name] for name in names], np.float64) for encoder in (base, other))
        tau = kendall_tau_b(a, b)
        told.append(f"{other} {'undefined' if tau is None else f'{tau:+.2f}'}")
    return replace(
        found,
        note=f"Kendall tau-b with {base}: {', '.join(told)}. "
        "Only encoders of the target's own family bear on the target",
    )
