"""A check as plain text and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from secid.pages.findings import negatives, share_interval
from secid.pages.numbers import count, fraction, percent, plural
from secid.pages.sanitize import plain
from secid.records import encodable
from secid.results import Example, SourceFinding, TripletExample
from secid.results.catalogue import CAUTIONS, FINDINGS
from secid.results.check import Check, CheckedSource, Lengths, SourceCaution, Spread

ROLES = ("query", "positive", "negative")
INDENT = "      "
SHOWN_CHARACTERS = 80
"""Of a text in an example."""
GATE = "inactive_lexical_gate"
"""The caution that is a share of weight; below its limit the mean coverage among the counts says the same."""


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


def _columns(spread: Spread) -> str:
    numbers = (spread.minimum, spread.median, spread.p95, spread.maximum)
    return "".join(f" {count(number):>7}" for number in numbers)


def _spread(spread: Spread) -> str:
    return (
        f"min {count(spread.minimum)}, median {count(spread.median)}, 95 % {count(spread.p95)}, "
        f"max {count(spread.maximum)}"
    )


def _findings(source: CheckedSource) -> Iterator[str]:
    """What is above its limit in full, what is below it in a line, and the names of all else that was looked for."""
    shown = [item for item in source.findings if item.n_negatives]
    for item in sorted(shown, key=lambda item: not stands_out(item)):
        yield from _finding(item)
    cautions = [item for item in source.cautions if item.exceeded or (item.n and item.name != GATE)]
    for caution in sorted(cautions, key=lambda caution: not caution.exceeded):
        yield from _caution(caution)
    names = {*(item.name for item in shown), *(caution.name for caution in cautions)}
    absent = [name for name in source.shares() if name not in names]
    yield f"  looked for and not found: {', '.join(absent)}" if absent else "  nothing else was looked for"


def stands_out(finding: SourceFinding) -> bool:
    """Whether its share is above the limit of the catalogue."""
    limit = FINDINGS[finding.name].limit
    return limit is not None and finding.share > limit


def _finding(finding: SourceFinding) -> Iterator[str]:
    entry = FINDINGS[finding.name]
    head = f"{finding.name}: {negatives(finding)}, {percent(finding.share)} (95 % CI {share_interval(finding)})"
    if stands_out(finding):
        yield f"  ! {head}, above {percent(entry.limit)}"
        yield f"{INDENT}these {entry.says}"
        yield f"{INDENT}-> {entry.do}"
    else:
        yield f"  . {head}"
    n_shown = None if stands_out(finding) else int(entry.counted)  # of a defect, always one
    for example in finding.examples[:n_shown]:
        texts = (("query", example.query), ("negative", example.negative))
        quoted = [f"{role} {plain(text, SHOWN_CHARACTERS)!r}" for role, text in texts if text]
        yield _example(example, ", ".join(quoted))


def _caution(caution: SourceCaution) -> Iterator[str]:
    entry = CAUTIONS[caution.name]
    n = "" if caution.name == GATE else f"{count(caution.n)}, "  # a share of weight, which n does not count
    head = f"{caution.name}: {n}{percent(caution.fraction)} of the {entry.of}"
    if not caution.exceeded:
        yield f"  . {head}{': ' + caution.detail if caution.detail else ''}"
        return
    yield f"  ! {head}, above {percent(caution.limit)}"
    yield f"{INDENT}{entry.says}{': ' + caution.detail if caution.detail else ''}"
    yield f"{INDENT}-> {entry.do}"
    for example in caution.examples:
        reason = [example.reason] if example.reason != caution.name or not example.detail else []
        yield _example(example, ": ".join([*reason, *filter(None, [example.detail])]))


def _example(example: Example | TripletExample, words: str) -> str:
    return f"{INDENT}{example.path}:{example.line}{': ' + words if words else ''}"


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
    n = sum(
        sum(map(stands_out, source.findings)) + sum(item.exceeded for item in source.cautions)
        for source in check.sources
    )
    yield f"tokens by {check.tokens_by}; lexical gate by {check.tokenizer}"
    yield (
        f"{plural(len(check.sources), 'source')}, {plural(n, 'finding')} above the limit, {check.seconds:.1f} s; "
        "nothing was encoded: `secid score` looks for more"
    )
    if check.failed:
        yield f"failed: {', '.join(check.failed)}"
