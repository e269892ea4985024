"""A verdict as terminal text, Markdown and JSON. Needs no torch, no encoder and no data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from secid.report.foreign import markdown as safe
from secid.report.foreign import plain
from secid.report.verdict_words import basis, by_urgency, facts, headline, mark, number, summary
from secid.verdicts import Check, GateVerdict, SourceVerdict

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
    return _adapter().dump_json(verdict, indent=2).decode("utf-8") + "\n"


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
        console.print(_table(source))
        for check in by_urgency(source):
            if check.outcome != "pass":
                _explain(console, check)
    for note in verdict.notes:
        console.print(Text(f"note: {inert(note)}", style="dim"), soft_wrap=True)
    console.print(Text(inert(basis(verdict)), style="dim"), soft_wrap=True)
    if len(verdict.sources) > 1:
        console.print(Text(inert(summary(verdict)), style="bold"), soft_wrap=True)


def _table(source: SourceVerdict) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), highlight=False)
    for name in ("outcome", "check", "limit"):
        shown.add_column(name, no_wrap=True)
    for name in ("measured", "95 % interval"):
        shown.add_column(name, justify="right", no_wrap=True)
    for check in by_urgency(source):
        word = mark(check)
        shown.add_row(
            Text(word, style=STYLES[word]),
            check.name,
            check.limit_text,
            number(check.measured, check.unit),
            _interval(check),
        )
    return shown


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
    return [
        f"{item.path}:{item.line}: query “{plain(item.query, limit)}”, negative “{plain(item.negative, limit)}” "
        f"({item.note})"
        for item in check.examples
    ]


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
        f"| {mark(check)} | `{check.name}` | {number(check.measured, check.unit)} | {_interval(check)} "
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
