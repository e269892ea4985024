"""Scores with their 95 % confidence intervals, sources above controls."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from secid.pages.charts.svg import (
    NAME_CHARACTERS,
    Scale,
    across,
    around,
    dot,
    grid_across,
    line,
    numbers_across,
    tag,
    wide,
)
from secid.pages.glossary import REFERENCES, compares, kind_name, score_point
from secid.pages.numbers import interval, is_unknown, letter, listed, nats
from secid.pages.page import Chart, described
from secid.pages.sanitize import short
from secid.results import BudgetPoint, ControlResult, Measurement, Run

ROW = 24.0
"""Height of a row."""


def forest_chart(run: Run) -> Chart | None:
    """The score of each source and control with its interval, sources in rank order; None without a source."""
    if not run.sources:
        return None
    controls = [item for item in run.controls if item.of is None and _comparable(run, item)]
    title = f"Score ({'ECI_sem' if run.budget == 1 else 'ECI_B'}, nats) with 95 % CI"
    named: list[tuple[str, Measurement]] = [
        *((source.name, source) for source in run.sources),
        *((f"control {kind_name(control.kind)}", control) for control in controls),
    ]
    description = described((name, _words(score_point(item, run.budget), run.budget)) for name, item in named)
    references = [name for kind, name in REFERENCES.items() if any(item.kind == kind for item in controls)]
    note = (
        "Whiskers: 95 % CI.",
        "Sources with the same letter are statistically tied, directly or through others." if run.comparisons else "",
        "Hollow circles: controls." if controls else "",
        f"Dashed: {listed(references)}." if references else "",
    )
    return Chart(
        title=title,
        description=description,
        draw=lambda: _forest(run, controls, title, description),
        note=" ".join(filter(None, note)),
    )


def _comparable(run: Run, control: ControlResult) -> bool:
    return score_point(control, run.budget).budget == run.budget and compares(run, control, run.budget)


def _words(point: BudgetPoint, budget: float) -> str:
    return f"{nats(point.nats)}, 95 % CI {interval(point.interval_95, budget=budget)}"


def _forest(run: Run, controls: Sequence[ControlResult], title: str, description: str) -> Markup:
    """A row for each source and control: its letter, its name, and a strip as wide as the rest of the page."""
    items: list[Measurement] = [*run.sources, *controls]
    points = [score_point(item, run.budget) for item in items]
    low, high = around([value for point in points for value in (*_ends(point, run.budget), point.nats)])
    scale = Scale(low, high, 0.0, 100.0)
    places = [across(scale, score_point(item, run.budget).nats) for item in controls if item.kind in REFERENCES]
    grid = [*grid_across(scale, ROW), *(line(at, 0.0, at, ROW, "ref", "3 3") for at in places)]
    rows = []
    for source, point in zip(run.sources, points, strict=False):
        group = source.rank_group if run.comparisons else 0
        strip = [*grid, *_bar(point, run.budget, scale, "src")]
        band = "band" if group % 2 else None
        rows.append(_row(letter(group), short(source.name, NAME_CHARACTERS), strip, class_=band))
    for control, point in zip(controls, points[len(run.sources) :], strict=True):
        rows.append(
            _row("", kind_name(control.kind), [*grid, *_bar(point, run.budget, scale, "ctl")], class_="control")
        )
    rows.append(_row("", "", numbers_across(scale, 14.0), 18.0))
    return tag("div", Markup("").join(rows), role="img", aria_label=f"{title}. {description}", class_="forest")


def _row(group: str, name: str, strip: Sequence[Markup], height: float = ROW, class_: str | None = None) -> Markup:
    cells = (tag("span", group or " "), tag("bdi", name or " "), wide(strip, height))
    return tag("div", Markup("").join(cells), class_=class_)


def _bar(point: BudgetPoint, budget: float, scale: Scale, class_: str) -> list[Markup]:
    y = ROW / 2
    ends = [across(scale, value) for value in _ends(point, budget)]
    whisker = [line(ends[0], y, ends[1], y, f"{class_} whisker")] if ends else []
    caps = [line(end, y - 4, end, y + 4, f"{class_} cap") for end in ends]
    return [*whisker, *caps, dot(across(scale, point.nats), y, class_, _words(point, budget))]


def _ends(point: BudgetPoint, budget: float) -> tuple[float, ...]:
    """The ends of the interval; none where there are too few queries for one."""
    return () if is_unknown(point.interval_95, budget) else point.interval_95
