"""A check as plain text and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from secid.pages.numbers import count, fraction, percent, plural
from secid.pages.sanitize import plain
from secid.records import encodable
from secid.results.check import Check, CheckedSource, Finding, Lengths, Spread

ROLES = ("query", "positive", "negative")
SHOWN_SCRIPTS = 4
INDENT = "      "
GATE = "lexical_gate_inactive"
"""The finding that is a share of weight; what it measures stands among the counts."""


def check_json(check: Check) -> str:
    """The check as indented JSON, keys in the order of the dataclasses, ending in a line feed."""
    return encodable(json.dumps(asdict(check), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def check_text(check: Check) -> str:
    """What a person reads: per source what was understood, counts, lengths, findings; then overlap and verdict."""
    lines: list[str] = []
    for source in check.sources:
        lines += [*_counts(source), *_lengths(source), *_findings(source), ""]
    if check.evaluation is not None:
        lines.append(_evaluation(check))
    lines += [*_overlaps(check), *_end(check)]
    return "\n".join(plain_line(line) for line in lines) + "\n"


def plain_line(line: str) -> str:
    """The line without control characters, its ordinary spaces kept."""
    return plain(line).replace("\u00a0", " ")


def _counts(source: CheckedSource) -> Iterator[str]:
    yield source.name
    for file in source.files:
        yield f"  {file.path}: {file.schema}, {file.container} ({file.mapping})"
    left_out = ", ".join(f"{reason} {number}" for reason, number in source.skipped.items())
    yield (
        f"  {plural(source.n_read, 'row')} read, {count(source.n_used)} used"
        + (f", left out: {left_out}" if left_out else "")
    )
    yield (
        f"  {plural(source.n_records, 'record')}, {plural(source.n_triplets, 'triplet')}; distinct texts: "
        f"{plural(source.n_queries, 'query', 'queries')}, {plural(source.n_positives, 'positive')}, "
        f"{plural(source.n_negatives, 'negative')}"
    )
    yield f"  negatives a query: {_spread(source.negatives_per_query)}"
    yield f"  mean lexical coverage of the positives: {fraction(source.positive_coverage_mean)}"


def _lengths(source: CheckedSource) -> Iterator[str]:
    yield f"  {'':<10}{'characters: min, median, 95 %, max':>36}{'tokens: min, median, 95 %, max':>36}"
    for role in ROLES:
        found: Lengths = source.lengths[role]
        yield f"  {role:<10}{_columns(found.characters):>36}{_columns(found.tokens):>36}"
    scripts = {role: _scripts(source.scripts[role]) for role in ROLES}
    if len(set(scripts.values())) == 1:
        yield f"  script of all texts: {scripts['query']}"
    else:
        yield f"  scripts: {'; '.join(f'{role} {shares}' for role, shares in scripts.items())}"


def _scripts(shares: Mapping[str, float]) -> str:
    shown = [f"{name} {percent(share)}" for name, share in list(shares.items())[:SHOWN_SCRIPTS]]
    return ", ".join([*shown, "…"] if len(shares) > SHOWN_SCRIPTS else shown)


def _columns(spread: Spread) -> str:
    numbers = (spread.minimum, spread.median, spread.p95, spread.maximum)
    return "".join(f"{count(number):>8}" for number in numbers)


def _spread(spread: Spread) -> str:
    return (
        f"min {count(spread.minimum)}, median {count(spread.median)}, 95 % {count(spread.p95)}, "
        f"max {count(spread.maximum)}"
    )


def _findings(source: CheckedSource) -> Iterator[str]:
    exceeded = [finding for finding in source.findings if finding.exceeded]
    within = [finding for finding in source.findings if finding.n and not finding.exceeded and finding.name != GATE]
    clean = len(source.findings) - len(exceeded) - len(within)
    for finding in exceeded:
        yield f"  ! {_headline(finding)}, above {percent(finding.limit)}"
        yield f"{INDENT}{finding.text}{': ' + finding.detail if finding.detail else ''}"
        yield f"{INDENT}-> {finding.advice}"
        for example in finding.examples:
            told = [example.reason] if example.reason != finding.name or not example.detail else []
            yield f"{INDENT}{example.path}:{example.line}: {': '.join([*told, *filter(None, [example.detail])])}"
    for finding in within:
        yield f"  . {_headline(finding)}{': ' + finding.detail if finding.detail else ''}"
    yield f"  {plural(clean, 'other kind')} of finding looked for, none found"


def _headline(finding: Finding) -> str:
    if finding.name == GATE:  # a share of weight, which n does not count
        return f"{finding.name}: {percent(finding.fraction)} of the {finding.of} uncovered"
    return f"{finding.name}: {count(finding.n)}, {percent(finding.fraction)} of the {finding.of}"


def _evaluation(check: Check) -> str:
    found = check.evaluation
    if found is None:
        return ""
    by = ", ".join(found.qrels) or "no qrels: every query counts, no passage is known to be relevant"
    return (
        f"looked for {plural(found.n_queries, 'evaluation query', 'evaluation queries')} and "
        f"{plural(found.n_relevant_passages, 'relevant passage')} of {found.folder} ({by})"
    )


def _overlaps(check: Check) -> Iterator[str]:
    for overlap in check.overlaps:
        jaccard = overlap.negative_jaccard_mean
        yield (
            f"{overlap.first} and {overlap.second} share {percent(overlap.shared_query_fraction)} of the queries, "
            f"{percent(overlap.shared_document_fraction)} of the negatives"
            + ("" if jaccard is None else f"; mean Jaccard of a shared query's negatives {jaccard:.3f}")
        )


def _end(check: Check) -> Iterator[str]:
    n = sum(finding.exceeded for source in check.sources for finding in source.findings)
    yield f"tokens by {check.tokens_by}; maximum length {check.max_length}; lexical gate by {check.tokenizer}"
    yield (
        f"{plural(len(check.sources), 'source')}, {plural(n, 'finding')} above the limit, "
        f"{check.seconds:.1f} s; nothing was encoded"
    )
    if check.failed:
        yield f"failed: {', '.join(check.failed)}"
