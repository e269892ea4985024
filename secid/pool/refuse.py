"""Malformed rows: how many are too many. Sources of which nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from secid.errors import BadRecordsError, NothingToScoreError
from secid.pool.plan import PlannedSource, Tally
from secid.read.rewrites import in_utf8
from secid.records import REASONS, fault_text
from secid.results import Example
from secid.settings import Settings, flag_of

REMEDIES = {
    "no_positive": "each query needs at least one labelled positive: ECI compares negatives with it",
    "none_relevant": "each query needs a label or judgement that calls a passage relevant: are the judgements in "
    "--collection DIR those of these queries?",
    "text_not_found": "is this the collection that the ids come from? --collection DIR, or "
    f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}, name it",
}
"""What helps where every row is left out under one reason."""

COUNTED_AS_FINDINGS = ("empty_negative",)
"""Reasons that are a finding with a limit of its own (`empty`): however many, they are no sign of a misread file."""


def refuse_bad(name: str, tally: Tally, settings: Settings) -> None:
    """Raises BadRecordsError where the settings do not allow the malformed rows of a source."""
    if not tally.n_malformed:
        return
    n_bad = sum(bad_reasons(tally).values())
    fraction = min(1.0, n_bad / tally.n_read)  # one row may hold several malformed passages
    example = next(e for e in tally.examples if e.reason in REASONS and REASONS[e.reason].malformed)
    first, encoding = _example_text(example), example.fact is not None and example.fact.kind == "not_utf8"
    if settings.on_bad == "fail":
        raise BadRecordsError(
            f"{malformed(tally)} ({left_out_text(tally)}); {first}",
            where=name,
            remedy=f"fix the file, or skip and count them with {flag_of('on_bad', 'skip')}",
        )
    if fraction > settings.max_bad_fraction:
        reason, count = max(tally.skipped.items(), key=lambda item: item[1], default=("", 0))
        if count == tally.n_read:  # neither another schema nor a larger fraction would help
            raise BadRecordsError(
                f"no row can be used, all {count} for one reason: {REASONS[reason].text}; {first}",
                where=name,
                remedy=REMEDIES.get(reason, "fix the file; if it was misread, --format names the schema"),
            )
        raise BadRecordsError(
            f"{malformed(tally)}, more than {flag_of('max_bad_fraction', settings.max_bad_fraction)} allows: "
            f"{'not all of it is UTF-8' if encoding else 'the file was probably misread'} "
            f"({left_out_text(tally)}); {first}",
            where=name,
            remedy=in_utf8(example.path)
            if encoding
            else f"name the schema with --format or the columns, or raise {flag_of('max_bad_fraction')}",
        )


def bad_reasons(tally: Tally) -> dict[str, int]:
    """Malformed rows and single passages by reason, without those of COUNTED_AS_FINDINGS."""
    return {
        reason: count
        for reason, count in reasons_left_out(tally).items()
        if reason in REASONS and REASONS[reason].malformed and reason not in COUNTED_AS_FINDINGS
    }


def refuse_empty(sources: Sequence[PlannedSource]) -> None:
    """Raises NothingToScoreError for a source without any triplet, with an example of the commonest reason."""
    for planned in sources:
        if planned.n_triplets:
            continue
        tally = planned.tally
        reasons = reasons_left_out(tally)
        reason = max(reasons, key=lambda name: reasons[name], default="")
        first = next((f"; {_example_text(example)}" for example in tally.examples if example.reason == reason), "")
        raise NothingToScoreError(
            f"no triplet to score: {left_out_text(tally)}{first}",
            where=planned.name,
            remedy=REMEDIES.get(reason, "a source needs rows with a query, a positive and at least one negative"),
        )


def _example_text(example: Example) -> str:
    words = fault_text(example.fact)
    return f"first: {example.path}:{example.line}: {example.reason}{f': {words}' if words else ''}"


def malformed(tally: Tally) -> str:
    """How much is malformed, rows and single passages apart."""
    rows, passages = tally.n_malformed_rows, tally.n_malformed_passages
    parts = [f"{rows} of {tally.n_read} rows"] if rows else []
    if passages:
        of = "other rows" if rows else f"{tally.n_read} row{'' if tally.n_read == 1 else 's'}"
        parts.append(f"{passages} single passage{'' if passages == 1 else 's'} of {of}")
    return f"{' and '.join(parts)} malformed"


def left_out_text(tally: Tally) -> str:
    reasons = reasons_left_out(tally)
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items()) or f"{tally.n_read} rows read"


def reasons_left_out(tally: Tally) -> Counter[str]:
    """Rows and single passages that were left out, by reason."""
    return Counter(tally.skipped) + Counter(tally.dropped)
