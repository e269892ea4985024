"""A verdict of the gate as a page: which sources pass, what fails with its rows, and every check."""

from __future__ import annotations

from shlex import quote

from secid.pages.findings import damaged_positives
from secid.pages.formats import formats
from secid.pages.junit import to_junit
from secid.pages.numbers import capital, count, nats
from secid.pages.page import Item, Page, Section, SourceFindings, Table, foreign, number, status, text
from secid.pages.sanitize import named, plain, short
from secid.pages.verdict_words import (
    BLIND_SPOT,
    DECISIONS,
    basis,
    by_urgency,
    facts,
    full_sentence,
    interval_text,
    left_out,
    limit_text,
    mark,
    measured_text,
    row_note,
    summary,
    too_few,
    too_few_sentence,
    worst_first,
)
from secid.pages.verdict_words import number as measured
from secid.records import is_object
from secid.results import TripletExample
from secid.results.catalogue import DEFECTS
from secid.results.commands import hidden, no_command, unused
from secid.results.document import json_of
from secid.results.gate import Check, CheckExample, GateVerdict, SourceVerdict


def gate_page(verdict: GateVerdict) -> Page:
    """The verdict on all sources of one call."""
    return Page(
        title="Gate for sources of hard negatives",
        subtitle=f"Against {named(verdict.baseline)}, scored with {named(verdict.encoder)}",
        verdict=(
            plain(summary(verdict)),
            plain(basis(verdict)),
            *damaged_positives(worst_first(verdict)),
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
        marks = [mark(check) for check in source.checks]
        numbers = (*map(marks.count, ("fail", "undecided", "notice")), source.n_queries)
        rows.append(
            (
                short(source.name),
                DECISIONS[source.outcome],
                *map(count, numbers),
                "–" if source.hardness is None else measured(source.hardness, "hardness"),
                nats(source.eci_nats),
            )
        )
    heads = ("failed", "undecided", "notices", "queries", "hardness", "score")
    columns = (foreign("source"), status("status"), *map(number, heads))
    return Table(caption="Sources, and how many checks each failed", columns=columns, rows=tuple(rows))


def _findings(source: SourceVerdict) -> SourceFindings:
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
    return SourceFindings(source=short(source.name), status=status, items=tuple(items), command=_repair(source))


def _repair(source: SourceVerdict) -> str:
    """The commands that drop the counted defects that failed; "" for none, or where dropping repairs none."""
    helped = {item.name for item in source.findings if item.dropping_helps}
    failed = [check.finding for check in source.checks if check.outcome == "fail" and check.finding in DEFECTS]
    defects = [name for name in failed if name in helped]
    once = any(map(is_object, source.paths))
    if not defects or no_command(source.name, read_once=once) or any(map(hidden, source.paths)):
        return ""
    files = " ".join(map(quote, source.paths))
    run = unused("repair")
    drop = f"secid select {run} --drop {','.join(defects)} -o {unused('repaired', '.jsonl')}"
    return f"secid score {files} --encoder ENCODER --run {run} && {drop}"


def _item(check: Check, source: SourceVerdict) -> Item:
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
        title=f"All checks of {named(source.name)}",
        link="Checks",
        paragraphs=tuple(map(plain, filter(None, (f"{facts(source)}.", left_out(source))))),
        tables=(Table(caption=f"Checks of {named(source.name)}", columns=columns, rows=rows),),
    )


GATE_FORMATS = {**formats(gate_page, json_of), ".xml": to_junit}
