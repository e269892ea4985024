"""The sections of a run's page, in the order in which they are read."""

from __future__ import annotations

from secid.pages.ablation_summary import unstable
from secid.pages.glossary import CAUTION
from secid.pages.names import told_apart
from secid.pages.numbers import plural
from secid.pages.page import Page, Section, each_term_once
from secid.pages.sanitize import named, short
from secid.pages.sections.ablations import ablation_section
from secid.pages.sections.budget import budget_section, directions_section
from secid.pages.sections.early import early_section
from secid.pages.sections.findings import findings_section
from secid.pages.sections.gates import gates_section
from secid.pages.sections.origin import made_section, overlap_section, read_section
from secid.pages.sections.ranking import controls_section, pairs_section, ranking_section
from secid.pages.sections.slices import slices_section
from secid.pages.verdict import verdict
from secid.results import Run


def page_of(run: Run) -> Page:
    """Everything that the pages of a run say."""
    names = [source.name for source in run.sources]
    run = told_apart(run)
    numbered = "; # and a number, behind names that read alike once shortened, is the rank"
    alike = numbered if names != [source.name for source in run.sources] else ""
    sections: list[Section | None] = [
        ranking_section(run),
        controls_section(run),
        pairs_section(run),
        early_section(run),
        findings_section(run),
        gates_section(run),
        budget_section(run),
        ablation_section(run),
        slices_section(run),
        directions_section(run),
        overlap_section(run),
        read_section(run),
        made_section(run),
    ]
    n_queries = max((source.n_queries for source in run.sources), default=0)
    return Page(
        title="Sources of hard negatives, ranked",
        subtitle=(
            f"{plural(len(run.sources), 'source')}, up to {plural(n_queries, 'query', 'queries')} each, "
            f"seen by {named(run.encoder.name)}{alike}"
        ),
        verdict=verdict(run),
        settings=unstable(run),
        caution=CAUTION,
        sections=each_term_once(section for section in sections if section is not None),
        footer=f"Made by secid {short(run.secid_version)}, report schema {short(run.schema_version)}.",
    )
