"""The budget curve with its crossings, and the directions behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from secid.pages.charts.lines import lines
from secid.pages.glossary import compares, equal_numbers, terms
from secid.pages.numbers import SPACE, budget, fraction, nats, percent
from secid.pages.page import Chart, Part, Section, Table, described, foreign, number, wrapped
from secid.pages.sanitize import named, plain, short
from secid.results import BudgetPoint, Run

Curve = tuple[BudgetPoint, ...]
RANDOM = "random (control)"
BUDGET_MEANING = (
    "B is the number of negatives that will be drawn from a source, times a noise-to-prior ratio that theory leaves "
    "open. Beyond B = 1 only samples of equal size compare"
)


def budget_section(run: Run) -> Section | None:
    """ECI_B of all sources at the budgets they share, relative to the highest, on equal numbers where there are any."""
    curves = {source.name: _nats(source.compared_curve) for source in run.sources}
    budgets = _shared(curves.values())
    if not budgets:
        return None
    highest = {at: max(values[at] for values in curves.values()) or 1.0 for at in budgets}
    relative = {name: [(at, values[at] / highest[at]) for at in budgets] for name, values in curves.items()}
    random = next((control for control in run.controls if control.kind == "random"), None)
    control = {} if random is None else _nats(random.budget_curve)
    may_stand = random is not None and all(compares(run, random, at) for at in budgets)
    reference = [(at, control[at] / highest[at]) for at in budgets if at in control] if may_stand else []
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
            reference=(RANDOM, reference) if reference else None,
            marks=[(item.budget, "") for item in run.crossings if budgets[0] <= item.budget <= budgets[-1]],
        ),
    )
    compared = _table({source.name: source.compared_curve for source in run.sources}, budgets, "")
    whole = {source.name: source.budget_curve for source in run.sources}
    own = _table(whole, _shared(map(_nats, whole.values())), ", each source's own sample", folded=True)
    note = "Dotted: crossings." if run.crossings else ""
    if reference:
        note = f"{note} Dashed: the control.".strip()
    elif random is not None:
        note = f"{note} The control has another number of negatives, so it does not compare beyond B = 1.".strip()
    drawn = [*relative.items(), *([(RANDOM, reference)] if reference else [])]
    parts = [Part(table=compared, chart=chart, note=note), _drawn(budgets, drawn)]
    parts += [Part(table=own)] if run.equal_numbers else []
    own_number = any(column.title == "B = N" for part in parts for column in part.table.columns)
    return Section(
        anchor="budget",
        link="Budget",
        title="Does the order hold for more negatives?",
        paragraphs=(BUDGET_MEANING + _on_equal_numbers(run),),
        bullets=_crossings(run),
        parts=tuple(parts),
        terms=terms("ECI_B", "shortfall", *(["B = N"] * own_number), "relative to the highest"),
    )


def _drawn(budgets: Sequence[float], lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Part:
    """The numbers that the chart draws."""
    rows = tuple((short(name), *(fraction(dict(points).get(at)) for at in budgets)) for name, points in lines)
    columns = (foreign("source"), *(number(f"B = {budget(at)}") for at in budgets))
    caption = "ECI_B relative to the highest source"
    return Part(table=Table(caption=caption, columns=columns, rows=rows, folded=True, drawn=True))


def _table(curves: Mapping[str, Curve], budgets: list[float], whose: str, folded: bool = False) -> Table:
    """Scores at the budgets, and where sources differ in number each one's at its own N."""
    own = {name: _at_own_number(curve, budgets) for name, curve in curves.items()}
    own_number = ("B = N",) if any(text != "–" for text in own.values()) else ()
    rows = tuple(
        (
            short(name),
            *(f"{nats(point.nats)}\n(short by {nats(point.bias_nats)})" for point in curve if point.budget in budgets),
            *(own[name] for _ in own_number),
        )
        for name, curve in curves.items()
    )
    return Table(
        caption=f"ECI_B in nats by budget{whose}, and how much the sample understates it",
        columns=(foreign("source"), *map(wrapped, (*(f"B = {budget(at)}" for at in budgets), *own_number))),
        rows=rows,
        folded=folded,
    )


def _at_own_number(curve: Curve, shared: list[float]) -> str:
    """The score at a budget of as many negatives as the source has, where that is its own alone."""
    return next(
        (
            f"{nats(point.nats)}\n(short by {nats(point.bias_nats)}; N{SPACE}={SPACE}{budget(point.budget)})"
            for point in curve
            if point.budget > 0 and point.budget not in shared
        ),
        "–",
    )


def _on_equal_numbers(run: Run) -> str:
    """What the curves and crossings are of."""
    if "crossings" in run.not_evaluated:
        return "; these curves show each source's own sample."
    numbers = equal_numbers(run)
    if not numbers:
        sizes = {(source.n_queries, source.n_triplets) for source in run.sources}
        return ", as these are." if len(sizes) == 1 else "; these curves show each source's own sample."
    return (
        f", so curves and crossings are on {numbers}, as many as every source has, also up to B = 1, where other "
        "sections show the score of all. The folded table has each source's own sample."
    )


def _crossings(run: Run) -> tuple[str, ...]:
    """Where sources change places, from B = 1 to the largest budget of the curves that compare."""
    if "crossings" in run.not_evaluated:
        return (f"Crossings are not evaluated: {plain(run.not_evaluated['crossings'])}.",)
    if len(run.sources) < 2:
        return ()
    largest = max(point.budget for source in run.sources for point in source.compared_curve)
    return tuple(
        f"At B = {budget(item.budget)} {named(item.second)} overtakes {named(item.first)}, by the estimates: the order "
        "beyond is not tested."
        for item in run.crossings
    ) or (f"No two sources change places between B = 1 and {budget(largest)}.",)


def _shared(curves: Iterable[Mapping[float, float]]) -> list[float]:
    """Budgets that all curves have, rising."""
    found = [set(curve) for curve in curves]
    return sorted(set.intersection(*found)) if found else []


def _nats(curve: Curve) -> dict[float, float]:
    """ECI_B by budget; an edited report may hold budgets that no axis has a place for."""
    return {point.budget: point.nats for point in curve if point.budget > 0}


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
            fraction(source.frobenius),
            *(percent(share) for share in source.top_eigenvalue_shares),
            *["–"] * (longest - len(source.top_eigenvalue_shares)),
        )
        for source in run.sources
    )
    head = ("effective rank", "‖M‖", *(f"share {place}" for place in range(1, longest + 1)))
    table = Table(caption="Directions of the residuals", columns=(foreign("source"), *map(number, head)), rows=rows)
    return Section(
        anchor="directions",
        link="Variety",
        title="How varied the negatives are",
        parts=(Part(table=table, chart=chart if longest else None),),
        terms=terms("effective rank", "‖M‖", "eigenvalue share", "tr M"),
    )
