"""A verdict of the gate as a page, as GitHub workflow commands and as JUnit XML."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from xml.etree import ElementTree

from secid.errors import OutputError
from secid.pages.findings import damaged_positives
from secid.pages.formats import formats, hard_cut, to_markdown
from secid.pages.page import Item, Page, Section, ShownFindings, Table, foreign, number, status, text
from secid.pages.text import capital, count, log_line, named, nats, plain, short
from secid.pages.verdict_words import (
    BLIND_SPOT,
    DECISIONS,
    basis,
    by_urgency,
    check_advice,
    check_sentence,
    example_lines,
    facts,
    full_sentence,
    interval_text,
    left_out,
    limit_text,
    mark,
    measured_text,
    row_note,
    source_line,
    summary,
    too_few,
    too_few_sentence,
    worst_first,
)
from secid.pages.verdict_words import number as measured
from secid.results import TripletExample
from secid.results.catalogue import DEFECTS
from secid.results.document import json_of
from secid.results.gate import CheckExample, GateCheck, GateVerdict, SourceVerdict
from secid.results.inputs import no_command, unused

# A verdict as JUnit XML, which every CI service reads: a suite a source, a case a check.


def to_junit(verdict: GateVerdict) -> str:
    """The XML document. A failed check is a failure, an undecided one an error, an excused one is skipped.

    An undecided check is no skipped one: CI services show a suite of skipped cases in green.
    """
    root = ElementTree.Element("testsuites", name="secid gate")
    for source in verdict.sources:
        root.append(_suite(source, basis(verdict)))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        root.set(name, str(sum(1 for _ in root.iter(tag))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(source: SourceVerdict, basis_line: str) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=log_line(source.report.name))
    for check in source.checks:
        suite.append(_case(check, source))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ElementTree.SubElement(suite, "system-out").text = f"{log_line(facts(source))}\n{log_line(basis_line)}"
    return suite


def _case(check: GateCheck, source: SourceVerdict) -> ElementTree.Element:
    place = f"secid.gate.{log_line(source.report.name)}"
    case = ElementTree.Element("testcase", name=log_line(check.name), classname=place)
    if check.outcome == "pass":
        return case
    tag = "failure" if check.outcome == "fail" else "skipped" if check.excused else "error"
    element = ElementTree.SubElement(case, tag, message=log_line(check_sentence(check)))
    lines = [*example_lines(check), f"what to do: {check_advice(check, source)}"]
    element.text = "\n".join(map(log_line, lines))
    return case


# A verdict of the gate as a page: which sources pass, what fails with its rows, and every check.


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
                "–" if report.hardness is None else measured(report.hardness.value, "hardness"),
                nats(report.scored.nats),
            )
        )
    heads = ("failed", "undecided", "notices", "queries", "hardness", "score")
    columns = (foreign("source"), status("status"), *map(number, heads))
    return Table(caption="Sources, and how many checks each failed", columns=columns, rows=tuple(rows))


def _findings(source: SourceVerdict) -> ShownFindings:
    """The checks that keep the source from passing, failed ones first, then notices. Too few queries are said once."""
    few = too_few(source)
    shown = [check for check in by_urgency(source) if (check.holds_up or check.notice) and check not in few]
    items = [_item(check, source) for check in shown]
    if few:
        examples = tuple(_example(example) for check in few if check.name == "queries" for example in check.examples)
        text = plain(f"{capital(too_few_sentence(source))}.")
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
    run = unused("repair")
    drop = f"secid select {run} --drop {','.join(defects)} -o {unused('repaired', '.jsonl')}"
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
        paragraphs=tuple(map(plain, filter(None, (f"{facts(source)}.", left_out(source))))),
        tables=(Table(caption=f"Checks of {named(source.report.name)}", columns=columns, rows=rows),),
    )


GATE_FORMATS = {**formats(gate_page, json_of), ".xml": to_junit}


# A verdict as GitHub workflow commands and as a step summary, within GitHub's limits. Nothing is posted.

PER_LEVEL = 10
"""Annotations of one level that GitHub shows of a step; it drops further ones silently."""
MESSAGE_BYTES = 4096
"""GitHub cuts longer messages; cutting them here keeps the end of a line whole."""
SUMMARY_BYTES = 1 << 20
"""A step summary beyond 1 MiB makes GitHub drop it whole."""
CUT_NOTE = "\n\nThe rest is cut: a step summary holds 1 MiB.\n"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def github_annotations(verdict: GateVerdict) -> list[str]:
    """One command a line: an error a failed check, a warning undecided ones, a notice an accepted source and what is
    for a person to look at.

    Where a level has more than GitHub shows, its last one says how many are left out.
    """
    levels: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    for source in verdict.sources:
        open_checks = too_few(source)
        for check in by_urgency(source):
            if (check.holds_up or check.notice) and check not in open_checks:
                level = "error" if check.outcome == "fail" else "notice" if check.notice else "warning"
                levels[level].append(_of_check(level, source, check))
        if open_checks:
            text, title = f"{capital(too_few_sentence(source))}.", f"{source.report.name}: queries"
            levels["warning"].append(_command("warning", text, title=title, file=_file(source)))
        if source.outcome == "pass":
            levels["notice"].append(
                _command("notice", f"{source_line(source)} {facts(source)}.", title="secid gate", file=_file(source))
            )
    return [line for level, lines in levels.items() for line in _within(level, lines, verdict)]


def _within(level: str, lines: list[str], verdict: GateVerdict) -> list[str]:
    if len(lines) <= PER_LEVEL:
        return lines
    left_out = len(lines) - PER_LEVEL + 1
    more = f"{left_out} more not shown. {summary(verdict)} The step summary and the log hold them all."
    return [*lines[: PER_LEVEL - 1], _command(level, more, title="secid gate")]


def _of_check(level: str, source: SourceVerdict, check: GateCheck) -> str:
    rows = "".join(
        f"\n{' '.join(filter(None, (f'{item.path}:{item.line}', row_note(item))))}" for item in check.examples
    )
    first = check.examples[0] if check.examples else None
    return _command(
        level,
        f"{full_sentence(check, source)}{rows}",
        title=f"{source.report.name}: {check.name}",
        file=first.path if first else _file(source),
        line=str(first.line) if first else None,
    )


def _file(source: SourceVerdict) -> str:
    return source.report.files[0].path


def _command(level: str, message: str, **properties: str | None) -> str:
    """`::level name=value,…::message`. Each line of the message is made plain before it is escaped."""
    text = "\n".join(plain(line) for line in message.split("\n"))
    cut = text.encode("utf-8")[:MESSAGE_BYTES].decode("utf-8", "ignore")
    named = ",".join(f"{name}={_property(plain(value))}" for name, value in properties.items() if value)
    return f"::{level} {named}::{_data(cut)}"


def _data(text: str) -> str:
    """The escapes of a command's message; % first, or the others would be escaped twice."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def append_step_summary(verdict: GateVerdict, environment: dict[str, str] | None = None) -> bool:
    """Adds the Markdown page to the file that GitHub names; False where it names none. Raises OutputError."""
    path = (dict(os.environ) if environment is None else environment).get(SUMMARY_VARIABLE)
    if not path:
        return False
    try:
        file = Path(path)
        used = file.stat().st_size if file.exists() else 0
        with file.open("a", encoding="utf-8", newline="\n") as handle:
            handle.write(hard_cut(to_markdown(gate_page(verdict)), SUMMARY_BYTES - used, CUT_NOTE))
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=f"${SUMMARY_VARIABLE} {path}") from error
    return True
