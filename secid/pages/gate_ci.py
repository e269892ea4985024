"""A verdict for CI services: JUnit XML, GitHub's workflow commands and its step summary."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

from secid.errors import OutputError
from secid.pages.formats import formats, hard_cut, to_markdown
from secid.pages.gate_page import (
    basis,
    by_urgency,
    check_advice,
    check_sentence,
    example_lines,
    facts,
    full_sentence,
    gate_page,
    row_note,
    source_line,
    summary,
    too_few,
    too_few_sentence,
)
from secid.pages.text import log_line, plain
from secid.results.document import json_of
from secid.results.gate import GateCheck, GateVerdict, SourceVerdict

# JUnit XML, which every CI service reads: a suite a source, a case a check.


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


GATE_FORMATS = {**formats(gate_page, json_of), ".xml": to_junit}


# GitHub's workflow commands and step summary, within its limits. Nothing is posted.

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
            if (check.blocks_pass or check.notice) and check not in open_checks:
                level = "error" if check.outcome == "fail" else "notice" if check.notice else "warning"
                levels[level].append(_of_check(level, source, check))
        if open_checks:
            text, title = too_few_sentence(source), f"{source.report.name}: queries"
            levels["warning"].append(_command("warning", text, title=title, file=_file(source)))
        if source.outcome == "pass":
            levels["notice"].append(
                _command("notice", f"{source_line(source)} {facts(source)}", title="secid gate", file=_file(source))
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
