"""Build the page of a run, and the screen that a terminal shows: verdict, answer table, findings and sections."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from secid.analyses.registry import ANALYSES
from secid.pages.charts import forest_chart, gains_chart, gates_chart, hardness_chart
from secid.pages.findings import example_rows, findings_of, heat_table, most_urgent, rows_note
from secid.pages.glossary import ANSWER_TERMS, EXPLANATIONS, missing_lines, skipped_lines, terms
from secid.pages.page import Page, Section, each_term_once
from secid.pages.screen import SHOWN_FINDINGS, Line, Screen, bullet, command, findings_lines, screen, strong, warning
from secid.pages.sections.findings import findings_section
from secid.pages.sections.guide import trusted
from secid.pages.sections.origin import origin_section, read_section
from secid.pages.sections.probe import next_command, probe_answer, probe_section, probe_sentence
from secid.pages.sections.ranking import (
    controls_section,
    directions_section,
    early_section,
    early_sentences,
    gates_section,
    pairs_section,
    ranking_section,
)
from secid.pages.sections.verdict import answer_table, below_table, notes, scored_line, verdict
from secid.pages.text import count, plain, plural
from secid.results import Run
from secid.results.probe import Probe


def analysis_part(run: Run, name: str, part: str = "section") -> Any:
    """Return what NAME_section, or another part, returns for the result of an analysis; None without a result.

    The function is in a module with the same name as the module of the analysis. It is imported only if needed.
    """
    result = run.analyses.get(name)
    if not result:
        return None
    (analysis,) = (each for each in ANALYSES if each.name == name)
    module = import_module(f"{__name__}.{analysis.compute.__module__.rpartition('.')[2]}")
    return getattr(module, f"{name}_{part}")(run, result)


def page_of(run: Run, probe: Probe | None = None) -> Page:
    run = trusted(run)
    sections = (
        Section(anchor="columns", title="Columns of the answer table", terms=terms(*ANSWER_TERMS)),
        Section(anchor="notes", title="What the numbers say and what they do not", bullets=notes(run)),
        ranking_section(run),
        pairs_section(run),
        probe_section(run, probe),
        controls_section(run),
        findings_section(run),
        early_section(run),
        *(analysis_part(run, analysis.name) for analysis in ANALYSES),
        gates_section(run),
        directions_section(run),
        read_section(run),
        origin_section(run),
    )
    charts = (gates_chart(run), hardness_chart(run), forest_chart(run), gains_chart(probe))
    return Page(
        title="Sources of hard negatives",
        subtitle=f"{plural(len(run.sources), 'source')}. {scored_line(run)}",
        verdict=(*verdict(run), *probe_sentence(run, probe)),
        answer=answer_table(run, full=True),
        second=probe_answer(probe),
        pictures=tuple(chart for chart in charts if chart is not None),
        findings=findings_of(run),
        below=below_table(run),
        gaps=analysis_part(run, "profile", "gaps"),
        heat=heat_table(run.sources),
        rows=example_rows(run),
        rows_note=rows_note(run),
        details=each_term_once(section for section in sections if section is not None),
        footer=f"Made by secid {plain(run.secid_version)}, report schema {plain(run.schema_version)}.",
    )


def run_screen(run: Run, legend: bool = False, probe: Probe | None = None) -> Screen:
    """Show verdict, answer table, findings, what was left out, the probe or its command, and the path of the page."""
    run = trusted(run)
    next_step = next_command(run) if probe is None else ""
    advice = () if next_step else probe_sentence(run, probe)
    headline, *others = (*verdict(run), *advice)
    slices, gaps = analysis_part(run, "slices", "sentence"), analysis_part(run, "profile", "gaps")
    return screen(
        (strong(headline), *others),
        (scored_line(run), answer_table(run, full=False)),
        map(bullet, (*below_table(run), analysis_part(run, "guide", "sentence") or "")),
        () if gaps is None else (gaps.caption, gaps),
        (f"{term}: {EXPLANATIONS[term]}" for term in ANSWER_TERMS if legend),
        _urgent(run),
        (
            f"{slices} See “Does the order hold within parts of the data?” in the report." if slices else "",
            "" if run.early_stop is None else " ".join(early_sentences(run.early_stop)),
            *map(warning, (*skipped_lines(run.sources), *missing_lines(run, without=["cost"]))),
            "To see which source trains better, run a short training on each:" if next_step else "",
            command(next_step, 4),
            command(f"report: {run.folder.rstrip('/')}/report.html" if run.folder else ""),
        ),
    )


def _urgent(run: Run) -> Iterator[Line]:
    groups, n_more = most_urgent(run, SHOWN_FINDINGS)
    if groups:
        where = f" ({count(n_more)} more in report.html)" if n_more else ""
        yield strong(f"Findings above their limits{where}, and what to run")
    for group in groups:
        yield from findings_lines(group)
