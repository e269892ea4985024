"""Scores with their 95 % confidence intervals, sources above controls."""

from __future__ import annotations

from markupsafe import Markup

from secid.pages.charts.svg import (
    AXIS,
    WIDTH,
    Scale,
    around,
    bottom_axis,
    label,
    line,
    picture,
    tag,
    text_width,
    ticks,
    words,
)
from secid.pages.glossary import compares, kind_name, score_point
from secid.pages.numbers import interval, is_unknown, letter, nats
from secid.pages.page import Chart, described
from secid.pages.sanitize import plain
from secid.results import BudgetPoint, ControlResult, Measurement, Run

NAMES, RIGHT, ROW, TOP = 184, 444, 26, 26
REFERENCES = {"random": "random passages", "known_positive": "known positives"}
"""Controls whose score is drawn through the rows of the sources, by the words that label them."""


def forest_chart(run: Run) -> Chart | None:
    """The score of each source and control with its interval, sources in rank order; None without a source."""
    if not run.sources:
        return None
    controls = [item for item in run.controls if item.of is None and _comparable(run, item)]
    title = f"Score ({'ECI_sem' if run.budget == 1 else 'ECI_B'}, nats) with 95 % CI"
    named: list[tuple[str, Measurement]] = [
        *((source.name, source) for source in run.sources),
        *((f"control {_name(control)}", control) for control in controls),
    ]
    description = described((name, _words(score_point(item, run.budget), run.budget)) for name, item in named)
    return Chart(title=title, description=description, draw=lambda: _forest(run, controls, title, description))


def _comparable(run: Run, control: ControlResult) -> bool:
    return score_point(control, run.budget).budget == run.budget and compares(run, control, run.budget)


def _name(control: ControlResult) -> str:
    return REFERENCES.get(control.kind, kind_name(control.kind))


def _words(point: BudgetPoint, budget: float) -> str:
    return f"{nats(point.nats)}, 95 % CI {interval(point.interval_95, budget=budget)}"


def _forest(run: Run, controls: list[ControlResult], title: str, description: str) -> Markup:
    items: list[Measurement] = [*run.sources, *controls]
    points = [score_point(item, run.budget) for item in items]
    low, high = around([value for point in points for value in (*_ends(point, run.budget), point.nats)], zero=True)
    scale = Scale(low, high, NAMES + 8, RIGHT)
    crossing = [control for control in controls if control.kind in REFERENCES]
    top = TOP + 16 * (len(crossing) > 1)
    sources_end = top + ROW * len(run.sources)
    controls_start = sources_end + (12 if controls else 0)
    bottom = controls_start + ROW * len(controls) + 4
    parts = [*_bands(run, top), *bottom_axis(scale, [(tick, f"{tick:g}") for tick in ticks(low, high)], top, bottom)]
    for place, control in enumerate(crossing):
        parts += _crossing(control, scale(score_point(control, run.budget).nats), place, sources_end)
    if controls:
        parts.append(line(0, sources_end + 6, WIDTH, sources_end + 6, "axis"))
    for row, (source, point) in enumerate(zip(run.sources, points, strict=False)):
        y = top + ROW * (row + 0.5)
        parts += [_label(source.name, y, NAMES - 24), *_bar(point, run.budget, y, scale, "src")]
    for row, (control, point) in enumerate(zip(controls, points[len(run.sources) :], strict=True)):
        y = controls_start + ROW * (row + 0.5)
        parts += [_label(_name(control), y, NAMES - 4, "muted"), *_bar(point, run.budget, y, scale, "ctl")]
    return picture("scores", title, description, bottom + AXIS - 16, parts)


def _label(name: str, y: float, room: float, class_: str | None = None) -> Markup:
    return words(NAMES, y + 5, label(name, room), anchor="end", class_=class_)


def _bands(run: Run, top: float) -> list[Markup]:
    """The letter of each group of tied sources, and a band behind every second group."""
    parts = []
    for row, source in enumerate(run.sources if run.comparisons else ()):
        y = top + ROW * row
        if source.rank_group % 2:
            parts.append(tag("rect", x=0.0, y=y, width=WIDTH, height=ROW, class_="band", fill_opacity="0.06"))
        parts.append(words(5, y + ROW / 2 + 5, letter(source.rank_group), class_="tick"))
    return parts


def _crossing(control: ControlResult, x: float, place: int, bottom: float) -> list[Markup]:
    """The score of a control through the rows of the sources, its name above."""
    name = REFERENCES[control.kind]
    half = text_width(name) / 2
    at = min(max(x, NAMES + half), WIDTH - half)
    y = 12 + 16 * place
    return [
        line(x, y + 4, x, bottom, "ref", "3 3"),
        words(at, y, name, anchor="middle", class_="tick"),
    ]


def _bar(point: BudgetPoint, budget: float, y: float, scale: Scale, class_: str) -> list[Markup]:
    ends = [scale(value) for value in _ends(point, budget)]
    whisker = [line(ends[0], y, ends[1], y, f"{class_} whisker")] if ends else []
    caps = [line(end, y - 4, end, y + 4, f"{class_} cap") for end in ends]
    return [*whisker, *caps, dot(scale(point.nats), y, class_, _words(point, budget))]


def _ends(point: BudgetPoint, budget: float) -> tuple[float, ...]:
    """The ends of the interval; none where there are too few queries for one."""
    return () if is_unknown(point.interval_95, budget) else point.interval_95


def dot(x: float, y: float, class_: str, tip: str) -> Markup:
    """A source's filled dot, or a control's hollow one. tip: shown under the pointer."""
    fill = "none" if class_ == "ctl" else None
    return tag("circle", tag("title", plain(tip)), cx=x, cy=y, r=4.5, class_=class_, stroke="currentColor", fill=fill)
