"""A probe as a page of its own, and on a terminal."""

from __future__ import annotations

from rich.console import Console

from secid.pages.charts.scores import gains_chart
from secid.pages.formats import formats
from secid.pages.numbers import plural
from secid.pages.page import Page
from secid.pages.sanitize import named, plain
from secid.pages.sections.probe import cautions, details, gains_table, headline, protocol, scope, verdict
from secid.pages.terminal import print_table, write
from secid.results.document import json_of
from secid.results.probe import Probe


def probe_page(probe: Probe) -> Page:
    """Everything that a probe says."""
    return Page(
        title="Probe: which source training prefers",
        subtitle=f"{plural(len(probe.files), 'file')}, encoder {named(probe.encoder.name)}",
        verdict=verdict(probe),
        answer=gains_table(probe),
        pictures=tuple(filter(None, (gains_chart(probe),))),
        details=(details(probe),),
        footer=f"Made by secid {plain(probe.secid_version)}, probe schema {plain(probe.schema_version)}.",
    )


PROBE_FORMATS = formats(probe_page, json_of)


def print_probe(console: Console, probe: Probe) -> None:
    """Prints the verdict, the table, and what it holds for."""
    write(console, headline(probe), "bold")
    for sentence in cautions(probe):
        write(console, sentence)
    console.print()
    if probe.sources:
        print_table(console, gains_table(probe))
        console.print()
    for sentence in (*protocol(probe), scope(probe)):
        write(console, sentence)
