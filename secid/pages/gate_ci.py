"""Write a gate verdict for CI services: JUnit XML, GitHub annotations and GitHub's step summary."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

from secid.files import write_error
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

# JUnit XML has a suite for each source and a case for each check. Every CI service can read it.


def to_junit(verdict: GateVerdict) -> str:
    """Return a verdict as JUnit XML. A failed check is a failure, an undecided one an error, an excused one skipped.

    An undecided check is not "skipped", because CI services show a suite of skipped cases in green.
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


# GitHub annotations are workflow commands on stdout; the step summary is a file. Both have limits. secid posts nothing.

MAX_ANNOTATIONS = 10
"""Maximum annotations of one level that GitHub shows for a step. It drops the others without a message."""
MESSAGE_BYTES = 4096
"""Maximum size of an annotation. GitHub would cut it anywhere, even within a character."""
SUMMARY_BYTES = 1 << 20
"""Maximum size of a step summary. GitHub drops a larger one completely."""
SUMMARY_NOTE = "\n\nThe rest was cut, because a step summary can have at most 1 MiB.\n"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def github_annotations(verdict: GateVerdict) -> list[str]:
    """Return annotations, one per line.

    There is an error for each failed check, a warning for each undecided check, and a notice for each accepted source
    and each check with a notice. If a level has more annotations than GitHub shows, the last one says how many are
    missing.
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
    return [line for level, lines in levels.items() for line in _limited(level, lines, verdict)]


def _limited(level: str, lines: list[str], verdict: GateVerdict) -> list[str]:
    if len(lines) <= MAX_ANNOTATIONS:
        return lines
    left_out = len(lines) - MAX_ANNOTATIONS + 1
    more = f"{left_out} more are not shown here; the step summary and the log have all of them. {summary(verdict)}"
    return [*lines[: MAX_ANNOTATIONS - 1], _command(level, more, title="secid gate")]


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
    """Return `::level name=value,…::message`. Each line of the message is sanitised before it is escaped."""
    text = "\n".join(plain(line) for line in message.split("\n"))
    cut = text.encode("utf-8")[:MESSAGE_BYTES].decode("utf-8", "ignore")
    escaped = {name: _data(plain(value)) for name, value in properties.items() if value}
    named = ",".join(f"{name}={value.replace(':', '%3A').replace(',', '%2C')}" for name, value in escaped.items())
    return f"::{level} {named}::{_data(cut)}"


def _data(text: str) -> str:
    """Escape a command's message. % is escaped first; otherwise the other escapes would be escaped again."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def append_step_summary(verdict: GateVerdict) -> None:
    """Append the Markdown page to GitHub's step summary, if there is one. Raises OutputError."""
    path = os.environ.get(SUMMARY_VARIABLE)
    if not path:
        return
    try:
        file = Path(path)
        used = file.stat().st_size if file.exists() else 0
        with file.open("a", encoding="utf-8", newline="\n") as handle:
            handle.write(hard_cut(to_markdown(gate_page(verdict)), SUMMARY_BYTES - used, SUMMARY_NOTE))
    except OSError as error:
        raise write_error(error, f"${SUMMARY_VARIABLE} {path}") from error
