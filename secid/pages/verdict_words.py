"""A verdict in words, the same for every page."""

from __future__ import annotations

from collections.abc import Mapping

from secid.pages.numbers import count, interval, nats, plural
from secid.records import REASONS
from secid.results.gate import Check, GateVerdict, Outcome, SourceVerdict

MARKS = {"pass": "pass", "fail": "FAIL", "not_evaluated": "undecided"}
ORDER: tuple[Outcome, ...] = ("fail", "not_evaluated", "pass")


def mark(check: Check) -> str:
    """The outcome in one word; an undecided check that the policy excuses says so."""
    return "excused" if check.excused else MARKS[check.outcome]


def by_urgency(source: SourceVerdict) -> list[Check]:
    """What holds the source up first; checks of one outcome in their own order."""
    return sorted(source.checks, key=lambda check: (not check.holds_up, ORDER.index(check.outcome)))


def headline(source: SourceVerdict) -> str:
    """One line on one source."""
    counts = {outcome: sum(check.outcome == outcome for check in source.checks) for outcome in ORDER}
    n_excused = sum(check.excused for check in source.checks)
    tail = f"{counts['pass']} of {len(source.checks)} checks passed"
    n_vacuous = sum(check.vacuous for check in source.checks)
    if n_vacuous:
        tail += f", {n_vacuous} of them by a limit that nothing can fail"
    if n_excused:
        tail += f", {n_excused} excused by the policy"
    if source.outcome == "pass":
        return f"{source.name} may enter: {tail}."
    held = ", ".join(check.name for check in by_urgency(source) if check.holds_up)
    if source.outcome == "fail":
        return f"{source.name} may not enter: {held}. {tail}."
    return f"{source.name} could not be judged: {held} undecided. {tail}."


def summary(verdict: GateVerdict) -> str:
    """One line on the whole call."""
    counts = {outcome: sum(source.outcome == outcome for source in verdict.sources) for outcome in ORDER}
    parts = (
        (counts["pass"], "may enter"),
        (counts["fail"], "may not"),
        (counts["not_evaluated"], "could not be judged"),
    )
    return f"{plural(len(verdict.sources), 'source')}: " + ", ".join(f"{n} {word}" for n, word in parts if n)


def facts(source: SourceVerdict) -> str:
    """Size and score of a source, and what was left out of it."""
    return (
        f"{plural(source.n_read, 'row')} read{_left_out(source)}; "
        f"{plural(source.n_records, 'record')}, {plural(source.n_queries, 'query', 'queries')}, "
        f"{plural(source.n_negatives, 'negative')}; "
        f"ECI_sem {nats(source.eci_nats)} nats ({interval(source.interval_95, ' ')})"
    )


def _left_out(source: SourceVerdict) -> str:
    """What of a source the verdict does not speak of."""
    parts = [
        (sum(source.skipped.values()), "left out", _by_reason(source.skipped)),
        (source.n_not_sampled, "records not sampled", ""),
        (sum(source.dropped_negatives.values()), "negatives left out", _by_reason(source.dropped_negatives)),
    ]
    return "".join(f", {n:,} {what}{reasons}" for n, what, reasons in parts if n)


def _by_reason(counts: Mapping[str, int]) -> str:
    told = (f"{REASONS[reason].text if reason in REASONS else reason} {n:,}" for reason, n in counts.items() if n)
    return f" ({', '.join(told)})"


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
