"""A verdict as terminal text, Markdown and JSON. Needs no torch, no encoder and no data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from secid.pages.sanitize import markdown as safe
from secid.pages.sanitize import plain
from secid.pages.verdict_words import basis, by_urgency, facts, headline, mark, number, summary
from secid.results.document import json_of
from secid.results.gate import Check, CheckExample, GateVerdict, SourceVerdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter

EXAMPLE_CHARACTERS = 160
STYLES = {"pass": "green", "FAIL": "bold red", "undecided": "yellow", "excused": "dim"}


@cache
def _adapter() -> TypeAdapter[GateVerdict]:
    from pydantic import TypeAdapter

    return TypeAdapter(GateVerdict)


def verdict_json(verdict: GateVerdict) -> str:
    """The verdict as indented JSON, ending in a line feed."""
    return json_of(_adapter(), verdict)


def verdict_schema() -> dict[str, Any]:
    """JSON Schema of the verdict."""
    schema = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "secid gate verdict", **schema}


def inert(text: str, limit: int | None = None) -> str:
    """One line that a CI log cannot take for a command: GitHub acts on lines that begin with :: or hold ##[."""
    return plain(text, limit).replace("::", ": :").replace("##[", "## [")


def print_verdict(console: Console, verdict: GateVerdict) -> None:
    """Prints a table a source, then what holds it up, with rows and advice."""
    for source in verdict.sources:
        console.print(Text(inert(headline(source)), style="bold"), soft_wrap=True)
        console.print(Text(f"  {inert(facts(source))}"), soft_wrap=True)
        for line in _table(source):
            console.print(line, soft_wrap=True)  # a narrow terminal breaks lines: a number is never cut
        for check in by_urgency(source):
            if check.outcome != "pass":
                _explain(console, check)
    for note in verdict.notes:
        console.print(Text(f"note: {inert(note)}", style="dim"), soft_wrap=True)
    console.print(Text(inert(basis(verdict)), style="dim"), soft_wrap=True)
    if len(verdict.sources) > 1:
        console.print(Text(inert(summary(verdict)), style="bold"), soft_wrap=True)


def _table(source: SourceVerdict) -> Iterator[Text]:
    """A line a check, in columns as wide as what they hold."""
    head = ("outcome", "check", "limit", "measured", "95 % interval")
    rows = [
        (mark(check), check.name, check.limit_text, number(check.measured, check.unit), interval_text(check))
        for check in by_urgency(source)
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, *rows):
        sides = (str.ljust, str.ljust, str.ljust, str.rjust, str.rjust)
        first, *others = (side(cell, width) for side, cell, width in zip(sides, cells, widths, strict=True))
        rest = f" {' '.join(others)}"
        yield (
            Text(f" {first}{rest}", style="bold")
            if cells is head
            else Text.assemble((f" {first}", STYLES[cells[0]]), rest)
        )


def _interval(check: Check) -> str:
    if check.interval_95 is None:
        return "–"
    return " to ".join(number(bound, check.unit) for bound in check.interval_95)


def _explain(console: Console, check: Check) -> None:
    lines = [f"{mark(check)} {check.name}: {check.message}."]
    lines += [f"    {inert(line)}" for line in example_lines(check)]
    if check.what_to_do:
        lines.append(f"    what to do: {inert(check.what_to_do)}")
    for number_, line in enumerate(lines):
        console.print(Text(inert(line) if not number_ else line), soft_wrap=True)


def example_lines(check: Check, limit: int = EXAMPLE_CHARACTERS) -> list[str]:
    """A line an example row; the texts are foreign."""
    return [f"{item.path}:{item.line}: {_texts(item, limit)}({item.note})" for item in check.examples]


def _texts(item: CheckExample, limit: int) -> str:
    """Query and negative of a row; nothing of one that was left out."""
    words = [(word, text) for word, text in (("query", item.query), ("negative", item.negative)) if text]
    return ", ".join(f"{word} “{plain(text, limit)}”" for word, text in words) + (" " if words else "")


def verdict_markdown(verdict: GateVerdict) -> str:
    """The verdict for a step summary or a comment. Foreign text cannot act as markup."""
    parts = ["# Gate for sources of hard negatives", f"**{safe(summary(verdict))}**"]
    for source in verdict.sources:
        parts += [f"## {safe(source.name, 80)}: {_word(source)}", safe(headline(source)), safe(facts(source))]
        parts.append(_markdown_table(source))
        parts += [_markdown_check(check) for check in by_urgency(source) if check.outcome != "pass"]
    parts += [safe(note) for note in verdict.notes]
    parts.append(safe(basis(verdict)))
    return "\n\n".join(parts) + "\n"


def _word(source: SourceVerdict) -> str:
    return {"pass": "pass", "fail": "fail", "not_evaluated": "undecided"}[source.outcome]


def _markdown_table(source: SourceVerdict) -> str:
    head = "| outcome | check | measured | 95 % interval | limit |\n|---|---|---|---|---|"
    rows = [
        f"| {mark(check)} | `{check.name}` | {number(check.measured, check.unit)} | {interval_text(check)} "
        f"| {safe(check.limit_text) or '–'} |"
        for check in by_urgency(source)
    ]
    return "\n".join([head, *rows])


def _markdown_check(check: Check) -> str:
    lines = [f"**{mark(check)} `{check.name}`**: {safe(check.message)}."]
    if check.what_to_do:
        lines.append(f"What to do: {safe(check.what_to_do)}.")
    if check.examples:
        rows = [
            f"| {safe(f'{item.path}:{item.line}')} | {safe(item.query, EXAMPLE_CHARACTERS)} "
            f"| {safe(item.negative, EXAMPLE_CHARACTERS)} | {safe(item.note)} |"
            for item in check.examples
        ]
        lines.append("\n".join(["| row | query | negative | |\n|---|---|---|---|", *rows]))
    return "\n\n".join(lines)
