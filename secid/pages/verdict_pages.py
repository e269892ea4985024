"""A verdict of the gate for a terminal, as Markdown and as JSON. Needs no torch, no encoder and no data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console

from secid.pages.gate_page import gate_page
from secid.pages.markdown import render
from secid.pages.terminal import print_page
from secid.results.document import json_of
from secid.results.gate import GateVerdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter


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


def print_verdict(console: Console, verdict: GateVerdict) -> None:
    """Prints the decision, what keeps a source from passing with its rows, and every check."""
    print_page(console, gate_page(verdict))


def verdict_markdown(verdict: GateVerdict) -> str:
    """The verdict for a step summary or a comment. Untrusted text cannot act as markup."""
    return render(gate_page(verdict))


def verdict_html(verdict: GateVerdict) -> str:
    """The verdict as one HTML file."""
    from secid.pages import html

    return html.render(gate_page(verdict))
