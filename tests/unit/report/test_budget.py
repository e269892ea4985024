"""What is said of crossings: their range, and that there are none where sizes forbid it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from secid.report.content.budget import budget_section
from secid.results import Run
from tests.unit.report import samples


@pytest.fixture
def run() -> Run:
    return replace(samples.golden(), crossings=())


def test_the_range_ends_at_the_largest_budget_of_any_curve(run):
    assert budget_section(run).bullets == ("No two sources change places between B = 1 and 10,000.",)
    first = run.sources[0]
    longer = replace(first, budget_curve=(*first.budget_curve, replace(first.budget_curve[-1], budget=250_000.0)))
    section = budget_section(replace(run, sources=(longer, *run.sources[1:])))
    assert section.bullets == ("No two sources change places between B = 1 and 250,000.",)


def test_crossings_that_were_not_sought_are_not_said_to_be_none(run):
    section = budget_section(replace(run, not_evaluated={"crossings": "the sources differ in size"}))
    assert section.bullets == ("Crossings are not evaluated: the sources differ in size.",)
    assert not any("equal numbers" in text for text in section.paragraphs)
    assert any("equal numbers" in text for text in budget_section(run).paragraphs)
