"""A verdict as JUnit XML, which every CI service reads: a suite a source, a case a check."""

from __future__ import annotations

from xml.etree import ElementTree

from secid.pages.sanitize import log_line
from secid.pages.verdict_words import advice, basis, example_lines, facts, sentence
from secid.results.gate import Check, GateVerdict, SourceVerdict


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
    suite = ElementTree.Element("testsuite", name=log_line(source.name))
    for check in source.checks:
        suite.append(_case(check, source))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ElementTree.SubElement(suite, "system-out").text = f"{log_line(facts(source))}\n{log_line(basis_line)}"
    return suite


def _case(check: Check, source: SourceVerdict) -> ElementTree.Element:
    case = ElementTree.Element("testcase", name=log_line(check.name), classname=f"secid.gate.{log_line(source.name)}")
    if check.outcome == "pass":
        return case
    tag = "failure" if check.outcome == "fail" else "skipped" if check.excused else "error"
    element = ElementTree.SubElement(case, tag, message=log_line(sentence(check)))
    lines = [*example_lines(check), f"what to do: {advice(check, source)}"]
    element.text = "\n".join(map(log_line, lines))
    return case
