"""A verdict of the gate as a page: which sources pass, what fails with its rows, and every check."""

from __future__ import annotations

from secid.pages.formats import formats
from secid.pages.junit import to_junit
from secid.pages.numbers import capital, count, interval, nats
from secid.pages.page import Item, Page, Section, SourceFindings, Table, foreign, number, status, text
from secid.pages.sanitize import named, plain, short
from secid.pages.verdict_words import DECISIONS, MARKS, basis, by_urgency, facts, interval_text, mark, summary
from secid.pages.verdict_words import number as measured
from secid.results import TripletExample
from secid.results.document import json_of
from secid.results.gate import Check, CheckExample, GateVerdict, SourceVerdict


def gate_page(verdict: GateVerdict) -> Page:
    """The verdict on all sources of one call."""
    return Page(
        title="Gate for sources of hard negatives",
        subtitle=f"Against {named(verdict.baseline)}, scored with {named(verdict.encoder)}",
        verdict=(plain(summary(verdict)), plain(basis(verdict))),
        answer=_answer(verdict),
        findings=tuple(group for source in verdict.sources if (group := _findings(source)).items),
        details=(*(_checks(place, source) for place, source in enumerate(verdict.sources)), *_notes(verdict)),
        footer=f"Made by secid {plain(verdict.secid_version)}, verdict schema {plain(verdict.schema_version)}.",
    )


def _answer(verdict: GateVerdict) -> Table:
    rows = []
    for source in verdict.sources:
        n_failed, n_open, n_passed = (
            sum(mark(check) == MARKS[outcome] for check in source.checks)
            for outcome in ("fail", "not_evaluated", "pass")
        )
        score = f"{nats(source.eci_nats)} ({interval(source.interval_95)})"
        numbers = map(count, (n_failed, n_open, n_passed, source.n_queries, source.n_negatives))
        rows.append((short(source.name), DECISIONS[source.outcome], *numbers, score))
    heads = ("failed", "undecided", "passed", "queries", "n", "score (95 % CI)")
    columns = (foreign("source"), status("status"), *map(number, heads))
    return Table(caption="Sources, and how many checks each failed", columns=columns, rows=tuple(rows))


def _findings(source: SourceVerdict) -> SourceFindings:
    """The checks that keep the source from passing, failed ones first."""
    items = tuple(_item(check) for check in by_urgency(source) if check.holds_up)
    return SourceFindings(source=short(source.name), status=DECISIONS[source.outcome], items=items, command="")


def _item(check: Check) -> Item:
    what_to_do = f" {capital(check.what_to_do)}." if check.what_to_do else ""
    return Item(
        name=f"{check.name}: {mark(check)}",
        sentence=plain(f"{check.message}.{what_to_do}"),
        command="",
        examples=tuple(map(_example, check.examples)),
        n_negatives=0,
    )


def _example(item: CheckExample) -> TripletExample:
    """The row, with the reason in the place of its text where it was left out."""
    negative = item.negative or item.note
    return TripletExample(path=item.path, line=item.line, query=item.query, positive="", negative=negative)


def _checks(place: int, source: SourceVerdict) -> Section:
    rows = tuple(
        (
            check.name,
            mark(check),
            measured(check.measured, check.unit),
            interval_text(check),
            plain(check.limit_text) or "–",
        )
        for check in by_urgency(source)
    )
    columns = (text("check"), status("outcome"), number("measured"), number("95 % CI"), text("limit"))
    return Section(
        anchor=f"checks-{place}",
        title=f"All checks of {named(source.name)}",
        link="Checks",
        paragraphs=(plain(facts(source)),),
        tables=(Table(caption=f"Checks of {named(source.name)}", columns=columns, rows=rows),),
    )


def _notes(verdict: GateVerdict) -> tuple[Section, ...]:
    notes = tuple(map(plain, verdict.notes))
    return (Section(anchor="notes", title="Notes", link="Notes", bullets=notes),) if notes else ()


def verdict_json(verdict: GateVerdict) -> str:
    """The verdict as indented JSON, ending in a line feed."""
    return json_of(verdict)


GATE_FORMATS = {**formats(gate_page, verdict_json), ".xml": to_junit}
