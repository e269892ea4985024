"""A verdict of the gate in words, the same for every page."""

from __future__ import annotations

from secid.pages.glossary import by_reason
from secid.pages.numbers import count, interval, listed, nats, plural
from secid.pages.sanitize import plain
from secid.results.gate import Check, GateVerdict, Outcome, SourceVerdict

MARKS = {"pass": "pass", "fail": "fail", "not_evaluated": "undecided"}
"""The outcome of a check."""
DECISIONS: dict[Outcome, str] = {"pass": "accepted", "fail": "rejected", "not_evaluated": "undecided"}
"""The outcome of a source."""
ORDER: tuple[Outcome, ...] = ("fail", "not_evaluated", "pass")
EXAMPLE_CHARACTERS = 160


def mark(check: Check) -> str:
    """The outcome in one word; an undecided check that the policy excuses says so."""
    return "excused" if check.excused else MARKS[check.outcome]


def by_urgency(source: SourceVerdict) -> list[Check]:
    """What keeps the source from passing first; checks of one outcome in their own order."""
    return sorted(source.checks, key=lambda check: (not check.holds_up, ORDER.index(check.outcome)))


def headline(source: SourceVerdict) -> str:
    """One line on one source."""
    n = len(source.checks)
    counts = {
        "failed": sum(check.outcome == "fail" for check in source.checks),
        "undecided": sum(check.outcome == "not_evaluated" and not check.excused for check in source.checks),
        "excused by the policy": sum(check.excused for check in source.checks),
        "with a limit that nothing can fail": sum(check.vacuous for check in source.checks),
    }
    n_passed = sum(check.outcome == "pass" for check in source.checks)
    tail = "".join(f", {count(number)} {words}" for words, number in counts.items() if number)
    return f"{source.name}: {DECISIONS[source.outcome]} ({count(n_passed)} of {plural(n, 'check')} passed{tail})."


def summary(verdict: GateVerdict) -> str:
    """One line on the whole call."""
    if len(verdict.sources) == 1:
        return headline(verdict.sources[0])
    counts = {outcome: sum(source.outcome == outcome for source in verdict.sources) for outcome in ORDER}
    parts = [f"{count(n)} {DECISIONS[outcome]}" for outcome, n in counts.items() if n]
    return f"Of {plural(len(verdict.sources), 'source')}, {listed(parts)}."


def facts(source: SourceVerdict) -> str:
    """Size and score of a source, and what was left out of it."""
    left_out = (
        (plural(sum(source.skipped.values()), "row"), source.skipped),
        (plural(sum(source.dropped_negatives.values()), "negative"), source.dropped_negatives),
    )
    parts = [f"left out {number} ({by_reason(reasons)})" for number, reasons in left_out if any(reasons.values())]
    parts += [f"{plural(source.n_not_sampled, 'record')} not sampled"] if source.n_not_sampled else []
    rest = f"; {'; '.join(parts)}" if parts else ""
    return (
        f"{plural(source.n_read, 'row')} read, {plural(source.n_records, 'record')}, "
        f"{plural(source.n_queries, 'query', 'queries')}, {plural(source.n_negatives, 'negative')}{rest}. "
        f"ECI_sem {nats(source.eci_nats)} nats (95 % CI {interval(source.interval_95)})"
    )


def basis(verdict: GateVerdict) -> str:
    """What was compared with what."""
    paired = f", paired with {verdict.paired}" if verdict.paired else ""
    trial = " Trial period (--exit-zero): the exit code is 0 whatever the verdict." if verdict.exit_zero else ""
    return f"Against {verdict.baseline}{paired}; policy {verdict.policy_from}; encoder {verdict.encoder}.{trial}"


def number(value: float | None, unit: str) -> str:
    """A measured value or limit."""
    if value is None or unit == "count":
        return count(value)
    if unit == "share":
        return f"{100 * value:.2f} %"
    return f"{value:.1f}" if unit == "directions" else nats(value)


def interval_text(check: Check) -> str:
    """The interval of a measured value, in its unit."""
    if check.interval_95 is None:
        return "–"
    return " to ".join(number(bound, check.unit) for bound in check.interval_95)


def example_lines(check: Check, limit: int = EXAMPLE_CHARACTERS) -> list[str]:
    """A line an example row; the texts are untrusted."""
    lines = []
    for item in check.examples:
        texts = (("query", item.query), ("negative", item.negative))
        quoted = [f"{word} “{plain(text, limit)}”" for word, text in texts if text]
        lines.append(f"{item.path}:{item.line}: {', '.join(quoted)}{' ' if quoted else ''}({item.note})")
    return lines
