"""A verdict of the gate in words, the same for every page."""

from __future__ import annotations

from collections.abc import Mapping

from secid.pages.findings import what_to_do
from secid.pages.glossary import by_reason, in_plain_words, why_not
from secid.pages.text import capital, count, fraction, listed, nats, percent, plain, plural, shown_interval
from secid.records import fault_text
from secid.results.catalogue import FINDINGS
from secid.results.gate import GROSS, CheckExample, GateCheck, GateVerdict, Outcome, SourceVerdict

DECISIONS: Mapping[Outcome, str] = {"pass": "accepted", "fail": "rejected", "undecided": "undecided"}
"""The outcome of a source."""
ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")
EXAMPLE_CHARACTERS = 160
FEW = ("", "no_reference")
"""Reasons for an undecided check that more queries remove."""
BLIND_SPOT = (
    "Relevant passages that nobody labelled are not detected: in simulations no check failed where they were 10 % of "
    "the negatives."
)
DRIFT: Mapping[str, str] = {
    "drift.score_nats": "ECI_sem",
    "drift.unrelated": "the share of negatives less related to their query than 98 % of the predecessor's",
}
EASY = "mine negatives that are nearer to the query: in-batch training gives passages like these for free"
LANGUAGE = "if the language is intended, score the source with the others and run `secid baseline update RUN`"
MOVED = (
    "find out what changed in how the source was mined or generated; if the change is intended, score the sources "
    "again and run `secid baseline update RUN`"
)


def mark(check: GateCheck) -> str:
    """The outcome in one word."""
    return "excused" if check.excused else "notice" if check.notice else check.outcome


def worst_first(verdict: GateVerdict) -> list[SourceVerdict]:
    """Rejected sources, undecided ones, accepted ones; by name within."""
    return sorted(verdict.sources, key=lambda source: ORDER.index(source.outcome))


def by_urgency(source: SourceVerdict) -> list[GateCheck]:
    """What keeps the source from passing first, then notices; checks of one outcome in their own order."""
    return sorted(source.checks, key=lambda check: (not check.holds_up, ORDER.index(check.outcome), not check.notice))


def too_few(source: SourceVerdict) -> list[GateCheck]:
    """The undecided checks of a source of fewer queries than limits are made for, to be said in one sentence."""
    undecided = [check for check in source.checks if check.outcome == "undecided" and not check.excused]
    small = any(check.name == "queries" for check in undecided)
    return [check for check in undecided if small and check.name != "new_source" and check.reason in FEW]


def too_few_sentence(source: SourceVerdict) -> str:
    """One sentence for all of `too_few`, which must not be empty."""
    checks = too_few(source)
    names = [check.name for check in checks if check.name != "queries"]
    needed = max(check.n_queries_needed or 0 for check in checks)
    of = f" for {listed(names, len(names))}" if names else ""
    n_queries = source.report.n_queries
    are = "is" if n_queries == 1 else "are"
    return f"{plural(n_queries, 'query', 'queries')} {are} too few{of}: about {count(needed)} would decide"


def check_sentence(check: GateCheck) -> str:
    """What was measured, against what."""
    if check.name == "new_source":
        return "the baseline has no predecessor of this source, and the policy holds new sources for review"
    if check.name == "queries":
        return f"{plural(round(check.measured or 0), 'distinct query', 'distinct queries')}; limit: {limit_text(check)}"
    if check.reason:
        return f"not evaluated: {why_not(check.reason)}"
    if check.measured is None:
        return "the measured number is not finite"
    bounds = "" if check.interval_95 is None else f" (95 % CI {interval_text(check)})"
    scale = ", where random passages are 0 and the positives are 1" if check.name == "hardness" else ""
    return f"{_measured(check)}{bounds}{scale}; limit: {limit_text(check)}{_origin(check)}"


def _measured(check: GateCheck) -> str:
    if check.finding:
        more = " more than of the positives" if FINDINGS[check.finding].formal else ""
        of = plural(check.n or 0, "negative")
        return f"{number(check.measured, 'share')} of {of}{more} {FINDINGS[check.finding].says}"
    if check.name == "languages":
        language = f"in a language that {check.reference or 'the baseline'} does not have"
        return f"{number(check.measured, 'share')} of {plural(check.n or 0, 'sampled negative')} are {language}"
    if check.name == "hardness":
        return f"hardness {number(check.measured, 'hardness')}"
    paired = f", paired over {plural(check.n_shared, 'shared query', 'shared queries')}" if check.n_shared else ""
    return f"{DRIFT[check.name]} changed by {measured_text(check)} from {number(check.before, check.unit)}{paired}"


def _origin(check: GateCheck) -> str:
    """Where the limit comes from."""
    if check.basis == "policy":
        return " (policy)"
    if check.before is None:
        return ""
    before = number(check.before, check.unit)
    if check.name in DRIFT:
        return f" ({check.reference} in the baseline)"
    extreme = "the easiest" if check.name == "hardness" else "the highest"
    if check.basis == "extreme":
        return f" ({extreme} in the baseline is {check.reference}: {before})"
    return f" ({check.reference} in the baseline: {before})"


def limit_text(check: GateCheck) -> str:
    """On which side of which number the check has to be; "–" for one without a limit."""
    if check.limit is None:
        return "–"
    value = f"{check.limit:,.0f}" if check.unit == "count" else f"{check.limit:g}"
    if check.unit == "share":
        value = f"{100 * check.limit:.4g} {'points' if check.name in DRIFT else '%'}"
    return f"{check.side}{'' if check.side.endswith('±') else ' '}{value}".replace("-", "−")


def check_advice(check: GateCheck, source: SourceVerdict) -> str:
    """What to do about a check of a source that does not pass; "" for one that does."""
    if check.outcome == "pass" and not check.notice:
        return ""
    if check.name == "new_source":
        return "review it; to accept it, score it with the others and run `secid baseline update RUN`"
    if check.reason:
        return 'set its limit to "off" in the policy, or add its name to allow_undecided'
    if check.outcome == "undecided":
        needed = check.n_queries_needed
        return f"add queries: about {count(needed)} would decide" if needed else "add queries: more may decide"
    if check.finding:
        return what_to_do(next(item for item in source.report.findings if item.name == check.finding))
    return {"hardness": EASY, "languages": LANGUAGE}.get(check.name, MOVED)


def full_sentence(check: GateCheck, source: SourceVerdict) -> str:
    """What was measured, and what to do."""
    remedy = check_advice(check, source)
    return f"{capital(check_sentence(check))}.{f' {capital(remedy)}.' if remedy else ''}"


def source_line(source: SourceVerdict) -> str:
    """One line on one source."""
    counts = {
        "failed": sum(check.outcome == "fail" for check in source.checks),
        "undecided": sum(check.outcome == "undecided" and not check.excused for check in source.checks),
        "excused by the policy": sum(check.excused for check in source.checks),
    }
    n_notices = sum(check.notice for check in source.checks)
    n_passed = sum(check.outcome == "pass" for check in source.checks)
    tail = "".join(f", {count(number)} {words}" for words, number in counts.items() if number)
    tail += f"; {plural(n_notices, 'notice')}" if n_notices else ""
    passed = f"{count(n_passed)} of {plural(len(source.checks), 'check')} passed"
    return f"{source.report.name}: {DECISIONS[source.outcome]} ({passed}{tail})."


def summary(verdict: GateVerdict) -> str:
    """One line on the whole call; what could not be checked comes first."""
    unchecked = list(dict.fromkeys(name for source in verdict.sources for name in source.left_out))
    first = f"Not checked: {listed(unchecked, len(unchecked))}. " if unchecked else ""
    if len(verdict.sources) == 1:
        return f"{first}{source_line(verdict.sources[0])}"
    counts = {outcome: sum(source.outcome == outcome for source in verdict.sources) for outcome in ORDER}
    parts = [f"{count(n)} {DECISIONS[outcome]}" for outcome, n in counts.items() if n]
    return f"{first}{plural(len(verdict.sources), 'source')}: {listed(parts)}."


def facts(source: SourceVerdict) -> str:
    """What it follows, its size and score, and what was left out of it."""
    report, rows = source.report, source.report.rows
    left_out = (
        (plural(sum(rows.skipped.values()), "row"), rows.skipped),
        (plural(sum(rows.dropped_negatives.values()), "negative"), rows.dropped_negatives),
    )
    parts = [f"left out {number} ({by_reason(reasons)})" for number, reasons in left_out if any(reasons.values())]
    parts += [f"{plural(rows.n_not_sampled, 'record')} not sampled"] if rows.n_not_sampled else []
    rest = f"; {'; '.join(parts)}" if parts else ""
    languages = [f"{code or 'undecided'} {percent(share)}" for code, share in report.languages.shares.items()]
    follows = "new to the baseline" if source.previous is None else f"follows {source.previous} of the baseline"
    return (
        f"{capital(follows)}. {plural(rows.n_read, 'row')} read, {plural(rows.n_records, 'record')}, "
        f"{plural(report.n_queries, 'query', 'queries')}, {plural(report.n_triplets, 'negative')}{rest}. "
        f"Languages of {plural(report.languages.n_texts, 'sampled text')}: {listed(languages, 4)}. "
        f"ECI_sem {nats(report.scored.nats)} nats (95 % CI {shown_interval(report.scored.interval_95)})"
    )


def left_out(source: SourceVerdict) -> str:
    """The checks that this baseline is too small or too varied for; "" if there are none."""
    if not source.left_out:
        return ""
    return (
        f"Not checked: {listed(source.left_out, len(source.left_out))}. This baseline is too small or too varied to "
        f"detect even {100 * GROSS:.0f} % damaged negatives."
    )


def basis(verdict: GateVerdict) -> str:
    """What was compared with what."""
    shared = any(check.n_shared for source in verdict.sources for check in source.checks)
    paired = f", paired with {verdict.paired}" if verdict.paired and shared else ""
    trial = " Trial period (--exit-zero): the exit code is 0 whatever the verdict." if verdict.exit_zero else ""
    unshared = (
        f" Not paired with {verdict.paired}: no source has a predecessor there with the same queries."
        if verdict.paired and not shared
        else ""
    )
    guide = "" if verdict.guide is None else f"; guide {verdict.guide}"
    policy = verdict.policy_from or "derived from the baseline"
    return f"Against {verdict.baseline}{paired}; policy {policy}; encoder {verdict.encoder}{guide}.{unshared}{trial}"


def number(value: float | None, unit: str) -> str:
    """A measured value or limit."""
    if value is None or unit == "count":
        return count(value)
    if unit == "share":
        return f"{100 * value:.2f} %"
    return f"{value:.2f}".replace("-", "−") if unit == "hardness" else nats(value)


def measured_text(check: GateCheck) -> str:
    """The measured value in its unit; a change has its sign, and that of a share is in points."""
    if check.name not in DRIFT or check.measured is None:
        return number(check.measured, check.unit)
    return f"{_change(check.measured, check.unit)}{' points' if check.unit == 'share' else ''}"


def _change(value: float, unit: str) -> str:
    return f"{100 * value:+.2f}".replace("-", "−") if unit == "share" else nats(value, signed=True)


def interval_text(check: GateCheck) -> str:
    """The interval of a measured value, in its unit."""
    if check.interval_95 is None:
        return "–"
    if check.name in DRIFT:
        return " to ".join(_change(bound, check.unit) for bound in check.interval_95)
    return " to ".join(number(bound, check.unit) for bound in check.interval_95)


def example_lines(check: GateCheck) -> list[str]:
    """A line an example row; the texts are untrusted."""
    lines = []
    for item in check.examples:
        texts = (("query", item.query), ("negative", item.negative))
        quoted = [f"{word} “{plain(text, EXAMPLE_CHARACTERS)}”" for word, text in texts if text]
        lines.append(f"{item.path}:{item.line}: {', '.join(filter(None, (*quoted, row_note(item))))}")
    return lines


def row_note(item: CheckExample) -> str:
    """Why a row was left out, or how near its negative and positive are to the query; "" where neither is known."""
    if item.reason:
        return f"left out: {fault_text(item.fact) or in_plain_words(item.reason)}"
    if item.s_query_negative is None:
        return ""
    return f"cosine to the query {fraction(item.s_query_negative)}, of its positive {fraction(item.s_query_positive)}"
