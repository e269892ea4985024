"""A verdict of the gate as a page: which sources pass, what fails with its rows, and every check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from shlex import quote

from secid.pages.findings import advice, damaged_positives
from secid.pages.glossary import by_reason, in_plain_words, why_not
from secid.pages.page import Item, Page, Section, ShownFindings, Table, foreign, number, status, text
from secid.pages.text import (
    count,
    fraction,
    listed,
    named,
    nats,
    percent,
    plain,
    plural,
    short,
    shown_interval,
)
from secid.records import fault_text
from secid.results import TripletExample
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.gate import GROSS_DAMAGE, CheckExample, GateCheck, GateVerdict, Outcome, SourceVerdict
from secid.results.inputs import no_command, unused_name

# A verdict in words, the same on every page.

DECISIONS: Mapping[Outcome, str] = {"pass": "accepted", "fail": "rejected", "undecided": "undecided"}
"""The outcome of a source."""
ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")
MARKS = ("pass", "fail", "undecided", "excused", "notice")
EXAMPLE_CHARACTERS = 160
NEEDS_QUERIES = ("", "no_reference")
"""Reasons for an undecided check that more queries remove."""
BLIND_SPOT = (
    "Relevant passages that nobody labelled are not detected: in simulations no check failed where they were 10 % of "
    "the negatives."
)
NEW = "The baseline has no predecessor of this source, and the policy holds new sources for review."
MEASURES: Mapping[str, str] = {
    "queries": "Distinct queries",
    "hardness": "Hardness, where random passages are 0 and the positives are 1",
    "languages": "Sampled negatives in a language that {} does not have",
    "drift.score_nats": "Change of ECI_sem",
    "drift.unrelated": "Change of the share of negatives less related to their query than 98 % of the predecessor's",
}
"""Quantity that each check measures; checks of findings are named by the catalogue."""
DRIFT = ("drift.score_nats", "drift.unrelated")
ADVICE: Mapping[str, str] = {
    "new_source": "Review it; to accept it, score it with the others and run `secid baseline update RUN`.",
    "hardness": "Mine negatives that are nearer to the query: in-batch training gives passages like these for free.",
    "languages": "If the language is intended, score the source with the others and run `secid baseline update RUN`.",
}
MOVED = (
    "Find out what changed in how the source was mined or generated; if the change is intended, score the sources "
    "again and run `secid baseline update RUN`."
)
EXCUSE = 'Set its limit to "off" in the policy, or add its name to allow_undecided.'


def mark(check: GateCheck) -> str:
    """The outcome in one word."""
    return "excused" if check.excused else "notice" if check.notice else check.outcome


def worst_first(verdict: GateVerdict) -> list[SourceVerdict]:
    """Rejected sources, undecided ones, accepted ones; by name within."""
    return sorted(verdict.sources, key=lambda source: ORDER.index(source.outcome))


def by_urgency(source: SourceVerdict) -> list[GateCheck]:
    """Sort the checks: those that keep the source from passing first, then notices, otherwise in their own order."""
    return sorted(
        source.checks, key=lambda check: (not check.blocks_pass, ORDER.index(check.outcome), not check.notice)
    )


def too_few(source: SourceVerdict) -> list[GateCheck]:
    """The undecided checks of a source of fewer queries than limits are made for, to be said in one sentence."""
    undecided = [check for check in source.checks if check.outcome == "undecided" and not check.excused]
    small = any(check.name == "queries" for check in undecided)
    return [check for check in undecided if small and check.name != "new_source" and check.reason in NEEDS_QUERIES]


def too_few_sentence(source: SourceVerdict) -> str:
    """One sentence for all of `too_few`, which must not be empty."""
    checks = too_few(source)
    names = [check.name for check in checks if check.name != "queries"] or ["the policy"]
    needed = count(max(check.n_queries_needed or 0 for check in checks))
    n = count(source.report.n_queries)
    return f"Distinct queries: {n}, too few for {listed(names, len(names))}. About {needed} would decide."


def check_sentence(check: GateCheck) -> str:
    """Say what was measured, against what limit."""
    if check.name == "new_source":
        return NEW
    if check.reason:
        return f"Not evaluated: {why_not(check.reason)}."
    if check.measured is None:
        return "The measured number is not finite."
    notes = [] if check.interval_95 is None else [f"95 % CI {interval_text(check)}"]
    notes += [f"paired over {plural(check.n_shared, 'shared query', 'shared queries')}"] if check.n_shared else []
    of = f" of {count(check.n)}" if check.n and check.unit == "share" and check.name not in DRIFT else ""
    bounds = f" ({', '.join(notes)})" if notes else ""
    return f"{_measure(check)}: {measured_text(check)}{of}{bounds}; limit: {limit_text(check)}{_origin(check)}."


def _measure(check: GateCheck) -> str:
    if not check.finding:
        return MEASURES[check.name].format(check.reference or "the baseline")
    entry = FINDINGS[check.finding]
    return f"Negatives that {entry.says}{', minus the share of such positives' if entry.formal else ''}"


def _origin(check: GateCheck) -> str:
    """Say where the limit comes from."""
    if check.basis == "policy":
        return " (policy)" if check.name != "queries" else ""
    if check.before is None:
        return ""
    before = _number(check, check.before, signed=_is_formal(check))
    whose = "most extreme in" if check.basis == "extreme" else "in"
    return f" ({check.reference}, {whose} the baseline: {before})"


def _is_formal(check: GateCheck) -> bool:
    return bool(check.finding) and FINDINGS[check.finding].formal


def _is_difference(check: GateCheck) -> bool:
    """Return whether a check measures a difference: from the predecessor; for a formal finding, from the positives."""
    return check.name in DRIFT or _is_formal(check)


def _number(check: GateCheck, value: float | None, *, signed: bool) -> str:
    """A number in the unit of a check; a difference of shares in points, without the word."""
    if value is None or check.unit == "count":
        return count(value)
    if check.unit == "share":
        return f"{100 * value:+.2f}".replace("-", "−") if signed else f"{100 * value:.2f} %"
    return fraction(value, 2) if check.unit == "hardness" else nats(value, signed=signed)


def measured_text(check: GateCheck) -> str:
    """The measured value in its unit."""
    points = " points" if check.unit == "share" and _is_difference(check) and check.measured is not None else ""
    return f"{_number(check, check.measured, signed=_is_difference(check))}{points}"


def interval_text(check: GateCheck) -> str:
    """The interval of a measured value, in its unit."""
    ends = check.interval_95 or ()
    return " to ".join(_number(check, end, signed=_is_difference(check)) for end in ends) or "–"


def limit_text(check: GateCheck) -> str:
    """On which side of which number the check has to be; "–" for one without a limit."""
    if check.limit is None:
        return "–"
    value = f"{check.limit:,.0f}" if check.unit == "count" else f"{check.limit:g}"
    if check.unit == "share":
        value = f"{100 * check.limit:.4g} {'points' if _is_difference(check) else '%'}"
    return f"{check.side}{'' if check.side.endswith('±') else ' '}{value}".replace("-", "−")


def check_advice(check: GateCheck, source: SourceVerdict) -> str:
    """Say what to do about a check that does not pass; "" for one that does."""
    if check.outcome == "pass" and not check.notice:
        return ""
    if check.reason:
        return EXCUSE
    if check.outcome == "undecided" and check.name != "new_source":
        needed = check.n_queries_needed
        return f"Add queries: about {count(needed)} would decide." if needed else "Add queries: more may decide."
    if check.finding:
        return advice(next(item for item in source.report.findings if item.name == check.finding))
    return ADVICE.get(check.name, MOVED)


def full_sentence(check: GateCheck, source: SourceVerdict) -> str:
    """Say what was measured, and what to do."""
    return f"{check_sentence(check)} {check_advice(check, source)}".rstrip()


def source_line(source: SourceVerdict) -> str:
    """One line on one source."""
    marks = Counter(map(mark, source.checks))
    counts = ", ".join(f"{count(marks[word])} {word}" for word in MARKS if marks[word])
    return f"{source.report.name}: {DECISIONS[source.outcome]} (checks: {counts})."


def summary(verdict: GateVerdict) -> str:
    """One line on the whole call; what could not be checked comes first."""
    unchecked = list(dict.fromkeys(name for source in verdict.sources for name in source.left_out))
    first = f"Not checked: {listed(unchecked, len(unchecked))}. " if unchecked else ""
    if len(verdict.sources) == 1:
        return f"{first}{source_line(verdict.sources[0])}"
    counts = Counter(source.outcome for source in verdict.sources)
    parts = [f"{count(counts[outcome])} {DECISIONS[outcome]}" for outcome in ORDER if counts[outcome]]
    return f"{first}{plural(len(verdict.sources), 'source')}: {listed(parts)}."


def facts(source: SourceVerdict) -> str:
    """Describe a source: its predecessor, its size and score, and what was left out."""
    report, rows = source.report, source.report.rows
    languages = [f"{code or 'undecided'} {percent(share)}" for code, share in report.languages.shares.items()]
    return (
        f"Predecessor in the baseline: {source.previous or 'none'}. Rows read: {count(rows.n_read)}; records: "
        f"{count(rows.n_records)}; not sampled: {count(rows.n_not_sampled)}; queries: {count(report.n_queries)}; "
        f"negatives: {count(report.n_triplets)}. Left out: "
        f"{by_reason({**rows.skipped, **rows.dropped_negatives}) or 'nothing'}. Languages of "
        f"{plural(report.languages.n_texts, 'sampled text')}: {listed(languages, 4)}. ECI_sem "
        f"{nats(report.scored.nats)} nats (95 % CI {shown_interval(report.scored.interval_95)})."
    )


def left_out(source: SourceVerdict) -> str:
    """The checks that this baseline is too small or too varied for; "" if there are none."""
    if not source.left_out:
        return ""
    return (
        f"Not checked: {listed(source.left_out, len(source.left_out))}. This baseline is too small or too varied to "
        f"detect even {100 * GROSS_DAMAGE:.0f} % damaged negatives."
    )


def basis(verdict: GateVerdict) -> str:
    """Say what was compared with what."""
    shared = any(check.n_shared for source in verdict.sources for check in source.checks)
    guide = "" if verdict.guide is None else f"; guide {verdict.guide}"
    policy = verdict.policy_from or "derived from the baseline"
    sentences = [f"Against {verdict.baseline}; policy {policy}; encoder {verdict.encoder}{guide}."]
    if verdict.paired:
        none = f"Not paired with {verdict.paired}: no source has a predecessor there with the same queries."
        sentences.append(f"Paired with {verdict.paired}." if shared else none)
    if verdict.exit_zero:
        sentences.append("Trial period (--exit-zero): the exit code is 0 whatever the verdict.")
    return " ".join(sentences)


def example_lines(check: GateCheck) -> list[str]:
    """A line an example row; the texts are untrusted."""
    lines = []
    for item in check.examples:
        texts = (("query", item.query), ("negative", item.negative))
        quoted = [f"{word} “{plain(text, EXAMPLE_CHARACTERS)}”" for word, text in texts if text]
        lines.append(f"{item.path}:{item.line}: {', '.join(filter(None, (*quoted, row_note(item))))}")
    return lines


def row_note(item: CheckExample) -> str:
    """Say why a row was left out, or how near its negative and positive are to the query; "" if neither is known."""
    if item.reason:
        return f"left out: {fault_text(item.fact) or in_plain_words(item.reason)}"
    if item.s_query_negative is None:
        return ""
    return f"cosine to the query {fraction(item.s_query_negative)}, of its positive {fraction(item.s_query_positive)}"


def gate_page(verdict: GateVerdict) -> Page:
    """The verdict on all sources of one call."""
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
        findings=tuple(group for source in worst_first(verdict) if (group := _findings(source)).items),
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
    return Table(caption="Sources, and how many checks each failed", columns=columns, rows=tuple(rows))


def _findings(source: SourceVerdict) -> ShownFindings:
    """The checks that keep the source from passing, failed ones first, then notices. Too few queries are said once."""
    few = too_few(source)
    shown = [check for check in by_urgency(source) if (check.blocks_pass or check.notice) and check not in few]
    items = [_item(check, source) for check in shown]
    if few:
        examples = tuple(_example(example) for check in few if check.name == "queries" for example in check.examples)
        text = plain(too_few_sentence(source))
        item = Item(name="queries: undecided", sentence=text, command="", examples=examples, n_negatives=0)
        items.insert(sum(check.outcome == "fail" for check in shown), item)
    status = DECISIONS[source.outcome]
    return ShownFindings(source=short(source.report.name), status=status, items=tuple(items), command=_repair(source))


def _repair(source: SourceVerdict) -> str:
    """The commands that drop the counted defects that failed; "" for none, or where dropping repairs none."""
    report = source.report
    helped = {item.name for item in report.findings if item.dropping_helps}
    failed = [check.finding for check in source.checks if check.outcome == "fail" and check.finding in DEFECTS]
    defects = [name for name in failed if name in helped]
    if not defects or no_command(report.name, report.files, names_files=True):
        return ""
    files = " ".join(quote(file.path) for file in report.files)
    run = unused_name("repair")
    drop = f"secid select {run} --drop {','.join(defects)} -o {unused_name('repaired', '.jsonl')}"
    return f"secid score {files} --encoder ENCODER --run {run} && {drop}"


def _item(check: GateCheck, source: SourceVerdict) -> Item:
    return Item(
        name=f"{check.name}: {mark(check)}",
        sentence=plain(full_sentence(check, source)),
        command="",
        examples=tuple(map(_example, check.examples)),
        n_negatives=0,
    )


def _example(item: CheckExample) -> TripletExample:
    """The row, with the reason in the place of its text where it was left out."""
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
        )
        for check in by_urgency(source)
    )
    columns = (
        text("check"),
        status("outcome"),
        number("value"),
        number("95 % CI"),
        text("limit"),
    )
    return Section(
        anchor=f"checks-{place}",
        title=f"All checks of {named(source.report.name)}",
        link="Checks",
        paragraphs=tuple(map(plain, filter(None, (facts(source), left_out(source))))),
        tables=(Table(caption=f"Checks of {named(source.report.name)}", columns=columns, rows=rows),),
    )
