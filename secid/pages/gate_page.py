"""Show a gate verdict as a page: which sources pass, which checks fail on which rows, and all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from shlex import quote

from secid.pages.findings import advice
from secid.pages.glossary import reason_list, reason_text, reason_words
from secid.pages.page import QUOTED_CHARACTERS, Item, Page, Section, ShownFindings, Table, foreign, number, status, text
from secid.pages.statuses import damaged_positives
from secid.pages.text import code, count, fraction, listed, named, nats, percent, plain, plural, short, shown_interval
from secid.records import fault_text
from secid.results import TripletExample
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.commands import no_command, unused_name
from secid.results.gate import GROSS_DAMAGE, CheckExample, GateCheck, GateVerdict, Outcome, SourceVerdict

# The sentences of a verdict, the same on every page.

DECISIONS: Mapping[Outcome, str] = {"pass": "accepted", "fail": "rejected", "undecided": "undecided"}
"""Words for the outcome of a source."""
OUTCOME_ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")
VERDICT_MARKS = ("pass", "fail", "undecided", "excused", "notice")
NEEDS_QUERIES = ("", "no_reference")
"""Reasons for an undecided check that more queries can remove."""
BLIND_SPOT = (
    "Relevant passages without a label are not detected. In simulations, no check failed where they were 10 % of the "
    "negatives."
)
NEW_SOURCE_NOTE = "This source has no predecessor in the baseline, and the policy holds new sources for review."
MEASURES: Mapping[str, str] = {
    "queries": "Distinct queries",
    "hardness": "Hardness (0 for random passages, 1 for the positives)",
    "languages": "Sampled negatives in a language that {} does not have",
    "drift.score_nats": "Change in ECI_sem",
    "drift.unrelated": "Change in the share of negatives less related to their query than 98 % of the predecessor's",
}
"""Quantity that each check measures. Checks of findings have the words of the catalogue."""
DRIFT_CHECKS = ("drift.score_nats", "drift.unrelated")
UPDATE_COMMAND = "secid baseline update RUN"
ADVICE: Mapping[str, str] = {
    "new_source": f"Review it. To accept it, score it with the others and run `{UPDATE_COMMAND}`.",
    "hardness": "Mine negatives that are nearer to the query; in-batch training already has passages like these.",
    "languages": f"If the language is intended, score the source with the others and run `{UPDATE_COMMAND}`.",
}
DRIFT_ADVICE = (
    "Find out what changed when the source was mined or generated. If the change is intended, score the sources again "
    f"and run `{UPDATE_COMMAND}`."
)
EXCUSE_ADVICE = 'Set its limit to "off" in the policy, or add its name to allow_undecided.'


def mark(check: GateCheck) -> str:
    return "excused" if check.excused else "notice" if check.notice else check.outcome


def worst_first(verdict: GateVerdict) -> list[SourceVerdict]:
    """Sort the sources: rejected, then undecided, then accepted."""
    return sorted(verdict.sources, key=lambda source: OUTCOME_ORDER.index(source.outcome))


def by_urgency(source: SourceVerdict) -> list[GateCheck]:
    """Sort the checks: first those that keep the source from passing, then notices, then the others in their order."""
    return sorted(
        source.checks, key=lambda check: (not check.blocks_pass, OUTCOME_ORDER.index(check.outcome), not check.notice)
    )


def too_few(source: SourceVerdict) -> list[GateCheck]:
    """Return the checks that are undecided because the source has too few queries. One sentence covers all of them."""
    undecided = [check for check in source.checks if check.outcome == "undecided" and not check.excused]
    small = any(check.name == "queries" for check in undecided)
    return [check for check in undecided if small and check.name != "new_source" and check.reason in NEEDS_QUERIES]


def too_few_sentence(source: SourceVerdict) -> str:
    """Return a sentence about all checks of `too_few`; there must be at least one."""
    checks = too_few(source)
    names = [check.name for check in checks if check.name != "queries"] or ["the policy"]
    needed = count(max(check.n_queries_needed or 0 for check in checks))
    n = count(source.report.n_queries)
    return f"{n} distinct queries are too few for {listed(names, len(names))}. About {needed} would be enough."


def check_sentence(check: GateCheck) -> str:
    """Return a sentence with the measured number, its interval and its limit."""
    if check.name == "new_source":
        return NEW_SOURCE_NOTE
    if check.reason:
        return f"Not evaluated: {reason_text(check.reason)}."
    if check.measured is None:
        return "The measured number is not finite."
    number = measured_text(check)
    if check.n and check.unit == "share" and check.name not in DRIFT_CHECKS:
        number = f"{number} of {count(check.n)}"
    if check.interval_95 is None:
        return f"{_measure(check)}: {number}; limit: {limit_text(check)}."
    return f"{_measure(check)}: {number} (95 % CI {interval_text(check)}); limit: {limit_text(check)}."


def _measure(check: GateCheck) -> str:
    if not check.finding:
        return MEASURES[check.name].format(check.reference or "the baseline")
    entry = FINDINGS[check.finding]
    return f"Negatives that {entry.says}{', minus the share of such positives' if entry.formal else ''}"


def _baseline(check: GateCheck) -> str:
    """Format the number of the baseline that the limit comes from, with its source; "–" for a limit of the policy."""
    if check.basis == "policy" or check.before is None:
        return "–"
    return f"{_number(check, check.before, signed=_is_formal(check))} ({short(check.reference)})"


def _is_formal(check: GateCheck) -> bool:
    return bool(check.finding) and FINDINGS[check.finding].formal


def _is_difference(check: GateCheck) -> bool:
    """Return whether a check measures a difference: from the predecessor; for a formal finding, from the positives."""
    return check.name in DRIFT_CHECKS or _is_formal(check)


def _number(check: GateCheck, value: float | None, *, signed: bool) -> str:
    """Format a number in the unit of a check. A difference of shares is in points, without the word."""
    if value is None or check.unit == "count":
        return count(value)
    if check.unit == "share":
        return f"{100 * value:+.2f}".replace("-", "−") if signed else f"{100 * value:.2f} %"
    return fraction(value, 2) if check.unit == "hardness" else nats(value, signed=signed)


def measured_text(check: GateCheck) -> str:
    points = " points" if check.unit == "share" and _is_difference(check) and check.measured is not None else ""
    return f"{_number(check, check.measured, signed=_is_difference(check))}{points}"


def interval_text(check: GateCheck) -> str:
    """Format the interval of the measured number; "–" without one."""
    ends = check.interval_95 or ()
    return " to ".join(_number(check, end, signed=_is_difference(check)) for end in ends) or "–"


def limit_text(check: GateCheck) -> str:
    """Format the limit of a check, such as "at most 5 %"; "–" without a limit."""
    if check.limit is None:
        return "–"
    value = f"{check.limit:,.0f}" if check.unit == "count" else f"{check.limit:g}"
    if check.unit == "share":
        value = f"{100 * check.limit:.4g} {'points' if _is_difference(check) else '%'}"
    return f"{check.side}{'' if check.side.endswith('±') else ' '}{value}".replace("-", "−")


def check_advice(check: GateCheck, source: SourceVerdict) -> str:
    """Return advice for a check that did not pass or has a notice; "" for any other."""
    if check.outcome == "pass" and not check.notice:
        return ""
    if check.reason:
        return EXCUSE_ADVICE
    if check.outcome == "undecided" and check.name != "new_source":
        needed = check.n_queries_needed
        return f"Add queries; about {count(needed)} would be enough." if needed else "Add queries."
    if check.finding:
        return advice(next(item for item in source.report.findings if item.name == check.finding))
    return ADVICE.get(check.name, DRIFT_ADVICE)


def full_sentence(check: GateCheck, source: SourceVerdict) -> str:
    """Return sentences with the measured number, its limit and advice."""
    return f"{check_sentence(check)} {check_advice(check, source)}".rstrip()


def source_line(source: SourceVerdict) -> str:
    """Return a line about a source: its outcome and the number of checks with each outcome."""
    marks = Counter(map(mark, source.checks))
    counts = ", ".join(f"{count(marks[word])} {word}" for word in VERDICT_MARKS if marks[word])
    return f"{source.report.name}: {DECISIONS[source.outcome]} (checks: {counts})."


def summary(verdict: GateVerdict) -> str:
    """Return a line about all sources. Checks that were not possible come first."""
    unchecked = list(dict.fromkeys(name for source in verdict.sources for name in source.left_out))
    first = f"Not checked: {listed(unchecked, len(unchecked))}. " if unchecked else ""
    if len(verdict.sources) == 1:
        return f"{first}{source_line(verdict.sources[0])}"
    counts = Counter(source.outcome for source in verdict.sources)
    parts = [f"{count(counts[outcome])} {DECISIONS[outcome]}" for outcome in OUTCOME_ORDER if counts[outcome]]
    return f"{first}{plural(len(verdict.sources), 'source')}: {listed(parts)}."


def facts(source: SourceVerdict) -> str:
    """Describe a source: its predecessor, its size and score, and what was left out."""
    report, rows = source.report, source.report.rows
    languages = [f"{code or 'undecided'} {percent(share)}" for code, share in report.languages.shares.items()]
    return (
        f"Predecessor in the baseline: {source.previous or 'none'}. Rows read: {count(rows.n_read)}; records: "
        f"{count(rows.n_records)}; not sampled: {count(rows.n_not_sampled)}; queries: {count(report.n_queries)}; "
        f"negatives: {count(report.n_triplets)}. Left out: "
        f"{reason_list({**rows.skipped, **rows.dropped_negatives}) or 'nothing'}. Languages of "
        f"{plural(report.languages.n_texts, 'sampled text')}: {listed(languages, 4)}. ECI_sem "
        f"{nats(report.scored.nats)} nats (95 % CI {shown_interval(report.scored.interval_95)})."
    )


def left_out(source: SourceVerdict) -> str:
    """Return a sentence about the checks that this baseline has too little power for; "" if there are none."""
    if not source.left_out:
        return ""
    return (
        f"Not checked: {listed(source.left_out, len(source.left_out))}. This baseline is too small or too varied to "
        f"detect even {100 * GROSS_DAMAGE:.0f} % damaged negatives."
    )


def basis(verdict: GateVerdict) -> str:
    """Return sentences about the baseline, policy and encoder that were used."""
    shared = any(check.n_shared for source in verdict.sources for check in source.checks)
    guide = "" if verdict.guide is None else f"; guide: {verdict.guide}"
    policy = verdict.policy_from or "derived from the baseline"
    sentences = [f"Baseline: {verdict.baseline}; policy: {policy}; encoder: {verdict.encoder}{guide}."]
    if verdict.paired:
        none = f"Not paired with {verdict.paired}, because no source shares queries with its predecessor there."
        sentences.append(f"Paired with {verdict.paired}." if shared else none)
    if verdict.exit_zero:
        sentences.append("Trial period (--exit-zero): the exit code is 0 whatever the verdict.")
    return " ".join(sentences)


def example_lines(check: GateCheck) -> list[str]:
    """Return a line for each example row. The texts are untrusted."""
    lines = []
    for item in check.examples:
        texts = (("query", item.query), ("negative", item.negative))
        quoted = [f"{word} “{plain(text, QUOTED_CHARACTERS)}”" for word, text in texts if text]
        lines.append(f"{item.path}:{item.line}: {', '.join(filter(None, (*quoted, row_note(item))))}")
    return lines


def row_note(item: CheckExample) -> str:
    """Return why a row was left out, or the cosines of its negative and positive to the query; "" if none is known."""
    if item.reason:
        return f"left out: {fault_text(item.fact) or reason_words(item.reason)}"
    if item.s_query_negative is None:
        return ""
    return f"cosine to the query {fraction(item.s_query_negative)}, positive {fraction(item.s_query_positive)}"


def gate_page(verdict: GateVerdict) -> Page:
    return Page(
        title="Gate for sources of hard negatives",
        subtitle=f"Against {named(verdict.baseline)}, scored with {named(verdict.encoder)}",
        verdict=(
            plain(summary(verdict)),
            plain(basis(verdict)),
            *damaged_positives(source.report for source in worst_first(verdict)),
            BLIND_SPOT,
        ),
        answer=_answer(verdict),
        findings=tuple(group for source in worst_first(verdict) if (group := _findings(source, verdict.encoder)).items),
        details=tuple(_checks(place, source) for place, source in enumerate(worst_first(verdict))),
        footer=f"Made by secid {plain(verdict.secid_version)}, verdict schema {plain(verdict.schema_version)}.",
    )


def _answer(verdict: GateVerdict) -> Table:
    rows = []
    for source in worst_first(verdict):
        marks, report = [mark(check) for check in source.checks], source.report
        numbers = (*map(marks.count, ("fail", "undecided", "notice")), report.n_queries)
        rows.append(
            (
                short(report.name),
                DECISIONS[source.outcome],
                *map(count, numbers),
                "–" if report.hardness is None else fraction(report.hardness.value, 2),
                nats(report.scored.nats),
            )
        )
    heads = ("failed", "undecided", "notices", "queries", "hardness", "score")
    columns = (foreign("source"), status("status"), *map(number, heads))
    return Table(caption="Sources, with the number of checks by outcome", columns=columns, rows=tuple(rows))


def _findings(source: SourceVerdict, encoder: str) -> ShownFindings:
    """Show the checks that keep the source from passing, failed checks first, then notices.

    All checks that are undecided because of too few queries share one entry.
    """
    few = too_few(source)
    shown = [check for check in by_urgency(source) if (check.blocks_pass or check.notice) and check not in few]
    items = [_item(check, source) for check in shown]
    if few:
        examples = tuple(_example(example) for check in few if check.name == "queries" for example in check.examples)
        text = plain(too_few_sentence(source))
        item = Item(name="queries: undecided", sentence=text, command="", examples=examples, n_negatives=0)
        items.insert(sum(check.outcome == "fail" for check in shown), item)
    status, command = DECISIONS[source.outcome], _repair(source, encoder)
    return ShownFindings(source=short(source.report.name), status=status, items=tuple(items), command=command)


def _repair(source: SourceVerdict, encoder: str) -> str:
    """Return commands that drop the defects whose checks failed; "" if there are none or dropping does not help."""
    report = source.report
    helped = {item.name for item in report.findings if item.dropping_helps}
    failed = [check.finding for check in source.checks if check.outcome == "fail" and check.finding in DEFECTS]
    defects = [name for name in failed if name in helped]
    if not defects or no_command(report.name, report.files, names_files=True):
        return ""
    files = " ".join(quote(file.path) for file in report.files)
    run = unused_name("repair")
    drop = f"secid select {run} --drop {','.join(defects)} -o {unused_name('repaired', '.jsonl')}"
    return f"secid score {files} --encoder {quote(encoder)} --run {run} && {drop}"


def _item(check: GateCheck, source: SourceVerdict) -> Item:
    return Item(
        name=f"{check.name}: {mark(check)}",
        sentence=plain(full_sentence(check, source)).replace(f"`{UPDATE_COMMAND}`", code(UPDATE_COMMAND)),
        command="",
        examples=tuple(map(_example, check.examples)),
        n_negatives=0,
    )


def _example(item: CheckExample) -> TripletExample:
    """Return an example row. If it was left out, the reason replaces its text."""
    negative = item.negative or f"({row_note(item)})"
    return TripletExample(
        path=item.path,
        line=item.line,
        query=item.query,
        positive="",
        negative=negative,
        s_query_negative=item.s_query_negative,
    )


def _checks(place: int, source: SourceVerdict) -> Section:
    rows = tuple(
        (
            check.name,
            mark(check),
            measured_text(check).removesuffix(" points"),
            interval_text(check),
            limit_text(check).removeprefix("within "),
            _baseline(check),
        )
        for check in by_urgency(source)
    )
    columns = (text("check"), status("outcome"), number("value"), number("95 % CI"), text("limit"), foreign("baseline"))
    return Section(
        anchor=f"checks-{place}",
        title=f"All checks of {named(source.report.name)}",
        paragraphs=tuple(map(plain, filter(None, (facts(source), left_out(source))))),
        tables=(Table(caption=f"Checks of {named(source.report.name)}", columns=columns, rows=rows),),
    )
