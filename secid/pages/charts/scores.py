"""Scores with 95 % intervals by rank group, and the controls as reference lines."""

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
    rect,
    tag,
    ticks,
    words,
)
from secid.pages.glossary import compares, kind_name, score_point
from secid.pages.numbers import is_untold, nats
from secid.results import BudgetPoint, ControlResult, Measurement, Run

NAMES, RIGHT, ROW, TOP = 176, 440, 26, 10
NAME_ROOM = NAMES - 24
"""Beside the number of the rank group."""
DIAMOND = 8.5
"""Half the height of a control's mark, so that a score's dot has room in it."""


def scores(run: Run, title: str, description: str) -> Markup:
    """One row a source in rank order, one a control below; a control's line crosses the sources."""
    controls = [
        control
        for control in run.controls
        if score_point(control, run.budget).budget == run.budget and compares(run, control, run.budget)
    ]
    shown = [control for control in controls if control.of is None]
    shuffled = {control.of: control for control in controls if control.of is not None}
    points = [score_point(item, run.budget) for item in (*run.sources, *controls)]
    low, high = around([value for point in points for value in (*_ends(point, run.budget), point.nats)], zero=True)
    scale = Scale(low, high, NAMES + 8, RIGHT)
    sources_end = TOP + ROW * len(run.sources)
    controls_start = sources_end + (24 if shown else 0)
    bottom = controls_start + ROW * len(shown) + 4
    axis = [(tick, f"{tick:g}") for tick in ticks(low, high)]
    parts = [
        *_groups(run),
        *bottom_axis(scale, axis, TOP, bottom, f"{'ECI_sem' if run.budget == 1 else 'ECI_B'} (nats)"),
    ]
    for row, control in enumerate(shown):
        y = controls_start + ROW * row + ROW / 2
        x = scale(score_point(control, run.budget).nats)
        parts += [
            line(x, TOP, x, y, "ref", "3 3"),
            *_bar(control, run.budget, y, scale, None),
            words(
                NAMES,
                y + 4,
                label(kind_name(control.kind), NAME_ROOM),
                anchor="end",
                class_="muted",
            ),
        ]
    if shown:
        parts.append(words(NAMES, controls_start - 5, "controls", anchor="end", class_="tick"))
    for row, source in enumerate(run.sources):
        y = TOP + ROW * row + ROW / 2
        parts += [
            *_shuffled(shuffled.get(source.name), run.budget, y, scale),
            *_bar(source, run.budget, y, scale, row),
            words(NAMES, y + 4, label(source.name, NAME_ROOM), anchor="end"),
        ]
    return picture("scores", title, description, bottom + AXIS + 2, parts)


def _groups(run: Run) -> list[Markup]:
    """A band behind the rows of every second rank group, and the group's number where it starts."""
    parts, seen = [], set()
    for row, source in enumerate(run.sources):
        y = TOP + ROW * row
        if source.rank_group % 2:
            parts.append(rect(0, y, WIDTH, ROW, "band", 0.06))
        if source.rank_group not in seen:
            seen.add(source.rank_group)
            parts.append(words(4, y + 17, str(source.rank_group), class_="tick"))
    return parts


def _bar(item: Measurement, budget: float, y: float, scale: Scale, number: int | None) -> list[Markup]:
    point = score_point(item, budget)
    class_ = "ctl" if number is None else "src"
    ends = [scale(value) for value in _ends(point, budget)]
    whisker = [line(ends[0], y, ends[1], y, f"{class_} whisker")] if ends else []
    caps = [line(end, y - 4, end, y + 4, f"{class_} cap") for end in ends]
    return [*whisker, *caps, _mark(scale(point.nats), y, class_, nats(point.nats))]


def _ends(point: BudgetPoint, budget: float) -> tuple[float, ...]:
    """The ends of the interval; none where there are too few queries for one."""
    return () if is_untold(point.interval_95, budget) else point.interval_95


def _mark(x: float, y: float, class_: str, tip: str) -> Markup:
    return tag(
        "circle",
        tag("title", tip),
        cx=x,
        cy=y,
        r=4.5,
        class_=class_,
        stroke="currentColor",
        fill="none" if class_ == "ctl" else None,
    )


def _shuffled(control: ControlResult | None, budget: float, y: float, scale: Scale) -> list[Markup]:
    """The same source with its relation removed: a hollow diamond on its row, around the score where both meet."""
    if control is None:
        return []
    point = score_point(control, budget)
    tip, r = tag("title", nats(point.nats)), DIAMOND
    shape = f"M{scale(point.nats):.1f} {y - r:.1f}l{r} {r}l{-r} {r}l{-r} {-r}z"
    return [tag("path", tip, d=shape, class_="src m hollow", stroke="currentColor", fill="none")]
