"""The probe beside the score: what training preferred, or the command that finds out."""

from __future__ import annotations

from secid.pages.page import Section
from secid.pages.probe_text import (
    PROBE_TERMS,
    cautions,
    gains_table,
    headline,
    measures_table,
    pairs_table,
    protocol,
    scope,
)
from secid.pages.sanitize import code
from secid.results import Run
from secid.results.commands import beside_run
from secid.results.probe import Probe

TITLE = "Which source training prefers"
OFFER = "Nothing was trained for this report. To train the encoder briefly on each of these sources and compare:"


def probe_command(run: Run) -> str:
    """What probes the sources of a run; "" where nothing can."""
    return "" if run.probe is None else beside_run(run.probe, run.folder)


def probe_sentence(probe: Probe | None) -> tuple[str, ...]:
    """What the probe adds to the verdict of a run; nothing without one."""
    if probe is None:
        return ()
    said = headline(probe)
    return (said if "sources" in probe.not_evaluated else f"By the probe, which trains: {said}",)


def probe_section(run: Run, probe: Probe | None) -> Section | None:
    """The probe in full, or how to make one; None where neither can be."""
    if probe is None:
        command = probe_command(run)
        own = Section(anchor="probe", title=TITLE, link="Probe", paragraphs=(f"{OFFER} {code(command)}",))
        return own if command else None
    section = details(probe)
    tables = (gains_table(probe), *section.tables) if probe.sources else ()
    sentences = tuple(filter(None, (headline(probe), *cautions(probe), scope(probe))))
    return Section(
        anchor="probe", title=TITLE, link="Probe", paragraphs=sentences, bullets=section.bullets, tables=tables,
        terms=section.terms,
    )  # fmt: skip


def details(probe: Probe) -> Section:
    """How it was made, the pairs, and the other measures."""
    tables = [pairs_table(probe)] if probe.pairs else []
    tables += [measures_table(probe)] if probe.sources else []
    return Section(
        anchor="protocol",
        title="How it was trained and judged",
        link="Protocol",
        bullets=tuple(protocol(probe)),
        tables=tuple(tables),
        terms=PROBE_TERMS if probe.sources else (),
    )
