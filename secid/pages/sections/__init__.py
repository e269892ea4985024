"""The page of a run: the verdict, the answer table, the findings by source, and the details in sections."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from secid.analyses.registry import ANALYSES
from secid.pages.charts import forest_chart, gains_chart, hardness_chart
from secid.pages.findings import findings_of, heat_table
from secid.pages.glossary import ANSWER_TERMS, terms
from secid.pages.page import Page, Section, each_term_once
from secid.pages.sections.controls import controls_line, controls_section
from secid.pages.sections.findings import findings_section
from secid.pages.sections.guide import trusted
from secid.pages.sections.origin import origin_section, read_section
from secid.pages.sections.probe import probe_answer, probe_section, probe_sentence
from secid.pages.sections.ranking import (
    directions_section,
    early_section,
    gates_section,
    pairs_section,
    ranking_section,
)
from secid.pages.sections.verdict import answer_table, verdict
from secid.pages.text import named, plain, plural
from secid.results import Run
from secid.results.probe import Probe


def section_of(name: str) -> Callable[[Run], Section | None]:
    """The function `section` of the module with the name of an analysis."""
    section: Callable[[Run], Section | None] = import_module(f"{__name__}.{name}").section
    return section


def page_of(run: Run, probe: Probe | None = None) -> Page:
    """Everything that the pages of a run say, with its probe where it has one."""
    run = trusted(run)
    sections = (
        Section(anchor="columns", link="Columns", title="Columns of the answer table", terms=terms(*ANSWER_TERMS, "n")),
        ranking_section(run),
        pairs_section(run),
        probe_section(run, probe),
        controls_section(run),
        findings_section(run),
        early_section(run),
        *(section_of(analysis.name)(run) for analysis in ANALYSES),
        gates_section(run),
        directions_section(run),
        read_section(run),
        origin_section(run),
    )
    n_queries = max((source.n_queries for source in run.sources), default=0)
    charts = (hardness_chart(run), forest_chart(run), gains_chart(probe))
    return Page(
        title="Sources of hard negatives",
        subtitle=(
            f"{plural(len(run.sources), 'source')}, up to {plural(n_queries, 'query', 'queries')} each, scored with "
            f"{named(run.encoder.name)}"
        ),
        verdict=(*verdict(run), *probe_sentence(probe)),
        answer=answer_table(run, full=True),
        second=probe_answer(probe),
        pictures=tuple(chart for chart in charts if chart is not None),
        findings=findings_of(run),
        controls=controls_line(run),
        heat=heat_table(run.sources),
        details=each_term_once(section for section in sections if section is not None),
        footer=f"Made by secid {plain(run.secid_version)}, report schema {plain(run.schema_version)}.",
    )
