"""The budget curve with its crossings, and the directions behind it."""

from __future__ import annotations

from collections.abc import Sequence

from secid.report.charts.lines import lines
from secid.report.foreign import named, plain, short
from secid.report.numerals import SPACE, budget, fraction, nats, percent
from secid.report.page import Chart, Part, Section, Table, described, foreign, number, wrapped
from secid.report.words import equal_numbers, terms
from secid.results import Measurement, Run

BUDGET_MEANING = (
    "B is the number of negatives that will be drawn from a source, times a noise-to-prior ratio that theory leaves "
    "open. Curves show each source's own sample; beyond B = 1 only samples of equal size compare"
)


def budget_section(run: Run) -> Section | None:
    """ECI_B of all sources at the budgets they share, relative to the highest."""
    budgets = _shared_budgets(run)
    if not budgets:
        return None
    by_source = {source.name: _nats(source) for source in run.sources}
    highest = {at: max(values[at] for values in by_source.values()) or 1.0 for at in budgets}
    relative = {name: [(at, values[at] / highest[at]) for at in budgets] for name, values in by_source.items()}
    random = next((control for control in run.controls if control.kind == "random"), None)
    shared = [at for at in budgets if random is not None and at in _nats(random)]
    reference = (
        ("random passages (control)", [(at, _nats(random)[at] / highest[at]) for at in shared])
        if random and shared
        else None
    )
    title = "Score at growing budgets, relative to the highest source"
    description = described(
        (name, ", ".join(f"{fraction(value)} at {budget(at)}" for at, value in points))
        for name, points in relative.items()
    )
    chart = Chart(
        title=title,
        description=description,
        draw=lambda: lines(
            "budget",
            relative,
            title=title,
            description=description,
            x_title="budget B (negatives drawn, log scale)",
            y_title="ECI_B relative to the highest source",
            log_x=True,
            x_ticks=[(at, budget(at)) for at in budgets],
            reference=reference,
            marks=[(item.budget, "") for item in run.crossings if budgets[0] <= item.budget <= budgets[-1]],
        ),
    )
    drawn = [*relative.items(), *([reference] if reference else [])]
    own_number = ("B = N",) if any(_at_own_number(source, budgets) != "–" for source in run.sources) else ()
    rows = tuple(
        (
            short(source.name),
            *(f"{nats(_nats(source)[at])}\n(short by {nats(_bias(source)[at])})" for at in budgets),
            *(_at_own_number(source, budgets) for _ in own_number),
        )
        for source in run.sources
    )
    table = Table(
        caption="ECI_B in nats by budget, and how much the sample understates it",
        columns=(foreign("source"), *map(wrapped, (*(f"B = {budget(at)}" for at in budgets), *own_number))),
        rows=rows,
    )
    return Section(
        anchor="budget",
        link="Budget",
        title="Does the order hold for more negatives?",
        paragraphs=(BUDGET_MEANING + ("." if "crossings" in run.not_evaluated else _on_equal_numbers(run)),),
        bullets=_crossings(run),
        parts=(
            Part(table=table, chart=chart),
            _drawn(budgets, drawn),
        ),
        terms=terms("ECI_B", "shortfall", *own_number, "relative to the highest"),
    )


def _drawn(budgets: Sequence[float], lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Part:
    """The numbers that the chart draws."""
    rows = tuple((short(name), *(fraction(dict(points).get(at)) for at in budgets)) for name, points in lines)
    columns = (foreign("source"), *(number(f"B = {budget(at)}") for at in budgets))
    caption = "ECI_B relative to the highest source"
    return Part(table=Table(caption=caption, columns=columns, rows=rows, folded=True, drawn=True))


def _at_own_number(source: Measurement, shared: list[float]) -> str:
    """The score at a budget of as many negatives as the source has, where that is its own alone."""
    return next(
        (
            f"{nats(point.nats)}\n(short by {nats(point.bias_nats)}; N{SPACE}={SPACE}{budget(point.budget)})"
            for point in source.budget_curve
            if point.budget > 0 and point.budget not in shared
        ),
        "–",
    )


def _on_equal_numbers(run: Run) -> str:
    """What crossings are of; the curves may show others where sources differ in numbers."""
    numbers = equal_numbers(run)
    told = ", so the crossings (dotted lines) are from equal numbers of queries and negatives"
    return f"{told}: {numbers}, whatever the pair. Curves may cross elsewhere." if numbers else f"{told}."


def _crossings(run: Run) -> tuple[str, ...]:
    """Where sources change places, from B = 1 to the largest budget of any curve."""
    if "crossings" in run.not_evaluated:
        return (f"Crossings are not evaluated: {plain(run.not_evaluated['crossings'])}.",)
    largest = max(at for source in run.sources for at in _nats(source))
    return tuple(
        f"At B = {budget(item.budget)} {named(item.second)} overtakes {named(item.first)}." for item in run.crossings
    ) or (f"No two sources change places between B = 1 and {budget(largest)}.",)


def _shared_budgets(run: Run) -> list[float]:
    found = [set(_nats(source)) for source in run.sources]
    return sorted(set.intersection(*found)) if found else []


def _nats(item: Measurement) -> dict[float, float]:
    """ECI_B by budget; an edited report may hold budgets that no axis has a place for."""
    return {point.budget: point.nats for point in item.budget_curve if point.budget > 0}


def _bias(item: Measurement) -> dict[float, float]:
    return {point.budget: point.bias_nats for point in item.budget_curve}


def directions_section(run: Run) -> Section:
    """The spectrum of M."""
    series = {
        source.name: [(float(place), share) for place, share in enumerate(source.top_eigenvalue_shares, 1)]
        for source in run.sources
    }
    longest = max((len(points) for points in series.values()), default=0)
    title = "Share of tr M on the largest eigenvalues"
    description = described(
        (name, ", ".join(percent(share) for _, share in points[:3])) for name, points in series.items()
    )
    chart = Chart(
        title=title,
        description=f"The first three of each. {description}",
        draw=lambda: lines(
            "spectrum",
            {name: [(x, 100 * y) for x, y in points] for name, points in series.items()},
            title=title,
            description=description,
            x_title="eigenvalue, largest first",
            y_title="share of tr M (%)",
            zero=True,
            x_ticks=[(float(place), str(place)) for place in range(1, longest + 1)],
        ),
    )
    rows = tuple(
        (
            short(source.name),
            nats(source.effective_rank),
            percent(source.diversity_fraction),
            fraction(source.frobenius),
            *(percent(share) for share in source.top_eigenvalue_shares),
            *["–"] * (longest - len(source.top_eigenvalue_shares)),
        )
        for source in run.sources
    )
    head = ("effective rank", "log-det discount", "‖M‖", *(f"share {place}" for place in range(1, longest + 1)))
    table = Table(caption="Directions of the residuals", columns=(foreign("source"), *map(number, head)), rows=rows)
    return Section(
        anchor="directions",
        link="Variety",
        title="How varied the negatives are",
        parts=(Part(table=table, chart=chart if longest else None),),
        terms=terms("effective rank", "log-det discount", "‖M‖", "eigenvalue share", "tr M"),
    )
