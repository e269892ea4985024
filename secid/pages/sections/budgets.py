"""Show the scores at larger budgets, and where sources change places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from secid.analyses.budgets import Budgets
from secid.pages.glossary import equal_numbers_text, reason_text, terms
from secid.pages.page import Section, Table, foreign, wrapped
from secid.pages.text import NO_BREAK_SPACE, budget, listed, named, nats, plain
from secid.results import BudgetPoint, Run

Curve = tuple[BudgetPoint, ...]
SHOWN_CROSSINGS = 6
BUDGET_MEANING = (
    "B is the number of negatives drawn from a source, times a noise-to-prior ratio that theory leaves open. Above "
    "B = 1, only samples of equal size can be compared."
)


def budgets_section(run: Run, budgets: Budgets) -> Section | None:
    """Show ECI_B of all sources at shared budgets, on samples of equal size if there are any. None without budgets."""
    curves = {source.name: source.scored.compared_curve for source in run.sources}
    whole = {source.name: source.scored.budget_curve for source in run.sources}
    shared = _shared(curves.values())
    if not shared:
        return None
    compared = _table(curves, shared, "")
    of_samples = _table(whole, _shared(whole.values()), ", on each source's own sample")
    tables = (compared, of_samples) if equal_numbers_text(run) else (compared,)
    own_number = any(column.title == "B = N" for table in tables for column in table.columns)
    return Section(
        anchor="budget",
        title="Order at larger budgets",
        paragraphs=(_meaning(run), _crossings(run, budgets)),
        tables=tables,
        terms=terms("ECI_B", "shortfall", *(["B = N"] * own_number)),
    )


def _table(curves: Mapping[str, Curve], budgets: list[float], whose: str) -> Table:
    """Return a table of scores by budget. If sources differ in size, it also has each score at the source's own N."""
    cells = {name: _at_own_number(curve, budgets) for name, curve in curves.items()}
    own_number = ("B = N",) if any(cell != "–" for cell in cells.values()) else ()
    rows = tuple(
        (
            plain(name),
            *(f"{nats(point.nats)}\n(short by {nats(point.bias_nats)})" for point in curve if point.budget in budgets),
            *(cells[name] for _ in own_number),
        )
        for name, curve in curves.items()
    )
    return Table(
        caption=f"ECI_B in nats by budget{whose}, with its shortfall",
        columns=(foreign("source"), *map(wrapped, (*(f"B = {budget(at)}" for at in budgets), *own_number))),
        rows=rows,
    )


def _at_own_number(curve: Curve, shared: list[float]) -> str:
    """Format the score at the source's own number of negatives, if no other source has this budget; else "–"."""
    last = next((point for point in curve if point.budget not in shared), None)
    if last is None:
        return "–"
    return (
        f"{nats(last.nats)}\n(short by {nats(last.bias_nats)}; N{NO_BREAK_SPACE}={NO_BREAK_SPACE}{budget(last.budget)})"
    )


def _meaning(run: Run) -> str:
    numbers = equal_numbers_text(run)
    sizes = {(source.n_queries, source.n_triplets) for source in run.sources}
    if numbers and "crossings" not in run.not_evaluated:
        return f"{BUDGET_MEANING} Curves and crossings use {numbers}, even up to B = 1."
    return BUDGET_MEANING if len(sizes) == 1 else f"{BUDGET_MEANING} These curves show each source's own sample."


def _crossings(run: Run, budgets: Budgets) -> str:
    """Return a sentence on where sources change places, from B = 1 to the largest budget of the comparable curves."""
    if "crossings" in run.not_evaluated:
        return f"Crossings were not evaluated: {reason_text(run.not_evaluated['crossings'])}."
    if len(run.sources) < 2:
        return ""
    if not budgets.crossings:
        largest = max(point.budget for source in run.sources for point in source.scored.compared_curve)
        return f"No two sources change places between B = 1 and {budget(largest)}."
    crossings = [
        f"{named(item.second)} overtakes {named(item.first)} at B = {budget(item.budget)}" for item in budgets.crossings
    ]
    return f"By the estimates, without a significance test: {listed(crossings, SHOWN_CROSSINGS)}."


def _shared(curves: Iterable[Curve]) -> list[float]:
    """Return the budgets that all curves have, rising."""
    budgets = [{point.budget for point in curve} for curve in curves]
    return sorted(set.intersection(*budgets)) if budgets else []
