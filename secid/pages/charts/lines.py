"""Numbers along an axis, one line a source: budgets, temperatures, samples, eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from secid.pages.charts.svg import (
    AXIS,
    LINE,
    WIDTH,
    Scale,
    around,
    bottom_axis,
    curve,
    left_axis,
    legend,
    line,
    picture,
    text_width,
    ticks,
    words,
)

Points = Sequence[tuple[float, float]]
LEFT, TOP, HEIGHT = 58.0, 26.0, 190.0


def lines(
    key: str,
    series: Mapping[str, Points],
    *,
    title: str,
    description: str,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    reference: tuple[str, Points] | None = None,
    mark_x: tuple[float, str] | None = None,
    zero: bool = False,
) -> Markup:
    """A line chart. reference: a dashed line among the sources.

    mark_x : a place along x with its name, such as the run's own setting.
    """
    everything = [point for points in (*series.values(), *([reference[1]] if reference else [])) for point in points]
    xs = [x for x, _ in everything] or [1.0, 10.0]
    low, high = around([y for _, y in everything], zero=zero)
    bottom = TOP + HEIGHT
    x_scale = Scale(min(xs), max(xs), LEFT + 8, WIDTH - 32, log_x)
    y_scale = Scale(low, high, bottom, TOP)
    named_ticks = x_ticks if x_ticks is not None else [(tick, f"{tick:g}") for tick in ticks(min(xs), max(xs))]
    parts = [
        *bottom_axis(x_scale, named_ticks, TOP, bottom, x_title),
        *left_axis(y_scale, [(tick, f"{tick:,g}") for tick in ticks(low, high)], LEFT, WIDTH - 4, y_title),
    ]
    if mark_x is not None:
        parts += [
            line(x_scale(mark_x[0]), TOP, x_scale(mark_x[0]), bottom, "ref", "3 3"),
            words(min(x_scale(mark_x[0]) + 4, WIDTH - text_width(mark_x[1])), TOP + 12, mark_x[1], class_="tick"),
        ]
    if reference is not None:
        parts += _reference(reference[1], x_scale, y_scale)
    for number, points in enumerate(series.values()):
        parts.append(curve(number, [(x_scale(x), y_scale(y)) for x, y in points]))
    keys, height = legend(list(series), bottom + AXIS + LINE)
    if reference is not None:
        top = bottom + AXIS + LINE + height
        keys += [line(2, top - 4, 26, top - 4, "ref", "3 3"), words(33, top, reference[0], class_="muted")]
        height += LINE
    return picture(key, title, description, bottom + AXIS + 10 + height, [*parts, *keys])


def _reference(points: Points, x_scale: Scale, y_scale: Scale) -> list[Markup]:
    places = [(x_scale(x), y_scale(y)) for x, y in points]
    return [line(*start, *end, "ref", "3 3") for start, end in pairwise(places)]
