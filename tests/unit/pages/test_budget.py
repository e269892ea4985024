"""Test the sentences on crossings: their range, and that there are none if sizes forbid it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from secid.analyses.budgets import Budgets, Crossing, EqualNumbers
from secid.pages.page import Section
from secid.pages.sections.budgets import budgets_section
from secid.pages.text import without_isolates
from secid.results import Run
from tests.snapshots import situations
from tests.unit.pages import samples


@pytest.fixture
def run() -> Run:
    """Sources of equal size that never change places."""
    golden = samples.golden()
    sources = tuple(samples.changed(source, equal_curve=()) for source in golden.sources)
    return samples.replaced(golden, sources=sources, budgets=Budgets(crossings=(), equal_numbers=None))


def said_of(run: Run) -> Section:
    return budgets_section(run, run.analyses["budgets"])


def largest(run: Run) -> str:
    """Return the end of the range in which no sources change places."""
    return said_of(run).paragraphs[1].split()[-1].removesuffix(".")


def test_the_range_ends_at_the_largest_budget_of_any_curve(run):
    assert largest(run) == "10,000"
    first = run.sources[0]
    longer = samples.changed(
        first, budget_curve=(*first.score.budget_curve, replace(first.score.budget_curve[-1], budget=250_000.0))
    )
    assert largest(replace(run, sources=(longer, *run.sources[1:]))) == "250,000"


def test_equal_size_is_claimed_only_if_sources_have_it(run):
    """An older report may hold neither equal numbers nor curves on them, whatever its sources' sizes."""
    alike = tuple(replace(source, n_queries=30, n_triplets=330) for source in run.sources)
    equal = said_of(replace(run, sources=alike)).paragraphs[0]
    unequal = said_of(replace(run, sources=(replace(alike[0], n_triplets=331), *alike[1:]))).paragraphs[0]
    assert ("own sample" in equal, "own sample" in unequal) == (False, True)


def test_equal_numbers_are_explained_with_the_crossings(run):
    crossing = Crossing(first="bm25", second="dense", budget=3.44)
    made = samples.replaced(
        run, budgets=Budgets(crossings=(crossing,), equal_numbers=EqualNumbers(n_queries=30, n_triplets=330))
    )
    section = said_of(made)
    crossings = without_isolates(section.paragraphs[1])
    assert all(part in crossings for part in ("B = 3.44", "dense overtakes bm25"))
    assert all(part in section.paragraphs[0] for part in ("30 queries", "330 negatives"))


def test_sources_of_unequal_size_are_shown_at_equal_size_and_at_their_own(run):
    """On its own numbers the larger scores higher at B = 10; on equal ones it does not."""
    small, large = run.sources[:2]
    at_one, at_ten = (point for point in small.score.budget_curve if point.budget in (1.0, 10.0))
    small = samples.changed(small, budget_curve=(at_one, replace(at_ten, nats=3.0)))
    own = (at_one, replace(at_ten, nats=4.0), replace(at_ten, budget=900.0, nats=9.0))
    large = samples.changed(large, budget_curve=own, equal_curve=(at_one, replace(at_ten, nats=2.0)))
    numbers = EqualNumbers(n_queries=30, n_triplets=330)
    compared, whole = said_of(
        samples.replaced(run, sources=(small, large), budgets=Budgets(crossings=(), equal_numbers=numbers))
    ).tables
    assert [row[2].split()[0] for row in compared.rows] == ["3.0000", "2.0000"]
    assert [row[2].split()[0] for row in whole.rows] == ["3.0000", "4.0000"]
    assert [row[3].split()[0] for row in whole.rows] == ["–", "9.0000"]
    assert len(said_of(run).tables) == 1


def test_each_sources_own_number_of_negatives_has_a_column(run):
    """METHOD 7: the curve is reported at N too, which may differ from source to source."""
    sources = []
    for place, source in enumerate(run.sources):
        curve = [point for point in source.score.budget_curve if point.budget in (1.0, 10.0)]
        own = replace(curve[-1], budget=330.0 + place, nats=20.0 + place)
        sources.append(samples.changed(source, budget_curve=(*curve, own)))
    shown = said_of(replace(run, sources=tuple(sources))).tables[0]
    assert [column.title for column in shown.columns] == ["source", "B = 1", "B = 10", "B = N"]
    assert shown.rows[1][-1].startswith("21.00\n(")
    assert shown.rows[1][-1].endswith("; N\u00a0=\u00a0331)")
    same = said_of(replace(run, sources=(sources[0], sources[0]))).tables[0]
    assert "B = N" not in [column.title for column in same.columns]  # then it is a budget that all share


def test_crossings_that_were_not_sought_are_not_said_to_be_none(run):
    section = said_of(replace(run, not_evaluated={"crossings": "the sources differ in size"}))
    assert section.paragraphs[1].endswith("evaluated: the sources differ in size.")
    assert "own sample" in section.paragraphs[0]
    alike = tuple(replace(source, n_queries=30, n_triplets=330) for source in run.sources)
    assert "own sample" not in said_of(replace(run, sources=alike)).paragraphs[0]


def test_what_is_said_of_budgets_word_for_word(run: Run, snapshot) -> None:
    """Word for word, in tests/snapshots."""
    alike = replace(run, sources=tuple(replace(source, n_queries=30, n_triplets=330) for source in run.sources))
    crossing = Crossing(first="bm25", second="dense", budget=3.44)
    numbers = EqualNumbers(n_queries=30, n_triplets=330)
    runs = {
        "unequal sizes": run,
        "equal sizes": alike,
        "equal numbers": samples.replaced(run, budgets=Budgets(crossings=(crossing,), equal_numbers=numbers)),
        "crossings not evaluated": replace(run, not_evaluated={"crossings": "the sources differ in size"}),
    }
    sections = {name: said_of(made) for name, made in runs.items()}
    said = {name: [without_isolates(text) for text in section.paragraphs] for name, section in sections.items()}
    snapshot("budget.txt", situations(said))
