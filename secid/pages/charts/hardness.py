"""The picture to look at first: how hard each source's negatives are, against how many outscore their positive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secid.pages.charts.scores import REFERENCES, dot
from secid.pages.charts.svg import (
    AXIS,
    FONT,
    WIDTH,
    Scale,
    bottom_axis,
    label,
    left_axis,
    line,
    picture,
    text_width,
    ticks,
    words,
)
from secid.pages.numbers import fraction, percent
from secid.pages.page import Chart, described
from secid.results import Run, SourceResult

LEFT, TOP, HEIGHT = 50.0, 28.0, 250.0
GAP = 8.0
"""Between a point and its name."""
NAME_ROOM = 150.0
HEIGHTS = (-6, 5, 16, -12, 22, -26, 36, -40, 50, -54)
SPOTS = tuple((dy, side) for dy in HEIGHTS for side in (1, -1, 0) if side or abs(dy) >= 12)
"""Where a name may be: height below its point, and to the right, to the left, or centred; the first is the best."""
ANCHORS = {1: None, 0: "middle", -1: "end"}
ENDS = {"random": 0.0, "known_positive": 1.0}
"""Hardness of the controls that mark the ends of the scale, by definition."""


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class _Point:
    """hardness and inversions with their 95 % intervals; None for none. is_control: marks an end of the scale."""

    name: str
    x: float
    y: float
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    is_control: bool = False


def hardness_chart(run: Run) -> Chart | None:
    """A point a source: hardness across, negatives that outscore their positive up. None where no hardness is known."""
    sources = [point for source in run.sources if (point := _source(source)) is not None]
    if not sources:
        return None
    controls = [
        _Point(REFERENCES[kind], x, control.inversion_fraction, is_control=True)
        for kind, x in ENDS.items()
        for control in run.controls
        if control.kind == kind
    ]
    title = "Hardness and inversions"
    description = described(
        (
            f"control {item.name}" if item.is_control else item.name,
            f"hardness {fraction(item.x)}, outscoring {percent(item.y)}",
        )
        for item in (*sources, *controls)
    )
    points = [*sources, *controls]
    return Chart(title=title, description=description, draw=lambda: _draw(points, title, description))


def _source(source: SourceResult) -> _Point | None:
    if source.hardness is None:
        return None
    inversion = source.finding("inversion")
    share, ends = (source.inversion_fraction, None) if inversion is None else (inversion.share, inversion.interval_95)
    return _Point(source.name, source.hardness, share, source.hardness_interval_95, ends)


def _draw(points: Sequence[_Point], title: str, description: str) -> Markup:
    xs = [value for item in points for value in (item.x, *(item.x_ends or ()))]
    ys = [value for item in points for value in (item.y, *(item.y_ends or ()))]
    bottom = TOP + HEIGHT
    x_scale = Scale(min(-0.08, min(xs) - 0.05), max(1.08, max(xs) + 0.05), LEFT, WIDTH - 6)
    y_scale = Scale(0.0, min(1.0, max(0.1, *ys) * 1.08), bottom, TOP)
    x_ticks = [(value, f"{value:g}") for value in ticks(x_scale.low, x_scale.high)]
    y_ticks = [(value, f"{100 * value:g} %") for value in ticks(0.0, y_scale.high)]
    parts = [
        *bottom_axis(x_scale, x_ticks, TOP, bottom, "hardness: 0 random passages, 1 the positives"),
        *left_axis(y_scale, y_ticks, LEFT, WIDTH - 6, "negatives that outscore their positive"),
        *(line(x_scale(x), TOP, x_scale(x), bottom, "ref", "3 3") for x in (0.0, 1.0)),
    ]
    for item in points:
        parts += _cross(item, x_scale, y_scale)
    crosses = [_crosses(item, x_scale, y_scale) for item in points]
    places = [(item, x_scale(item.x), y_scale(item.y)) for item in points]
    parts += _names(places, [box for boxes in crosses for box in boxes], bottom)
    return picture("hardness", title, description, bottom + AXIS + 2, parts)


def _cross(item: _Point, x_scale: Scale, y_scale: Scale) -> list[Markup]:
    """Both intervals through the point."""
    x, y, class_ = x_scale(item.x), y_scale(item.y), "ctl" if item.is_control else "src"
    parts = []
    if item.x_ends is not None:
        parts.append(line(x_scale(item.x_ends[0]), y, x_scale(item.x_ends[1]), y, f"{class_} whisker", opacity=0.6))
    if item.y_ends is not None:
        parts.append(line(x, y_scale(item.y_ends[0]), x, y_scale(item.y_ends[1]), f"{class_} whisker", opacity=0.6))
    return [*parts, dot(x, y, class_, f"{item.name}: hardness {fraction(item.x)}, outscoring {percent(item.y)}")]


def _crosses(item: _Point, x_scale: Scale, y_scale: Scale) -> list[Box]:
    """The room of a point and its intervals."""
    x, y = x_scale(item.x), y_scale(item.y)
    boxes = [(x - 6, y - 6, x + 6, y + 6)]
    if item.x_ends is not None:
        boxes.append((x_scale(item.x_ends[0]), y - 3, x_scale(item.x_ends[1]), y + 3))
    if item.y_ends is not None:
        boxes.append((x - 3, y_scale(item.y_ends[1]), x + 3, y_scale(item.y_ends[0])))
    return boxes


def _names(places: Sequence[tuple[_Point, float, float]], boxes: Sequence[Box], bottom: float) -> list[Markup]:
    """The name of each point where it covers the least of other names and of `boxes`."""
    taken = list(boxes)
    parts = []
    for item, x, y in places:
        text = label(item.name, NAME_ROOM)
        spots = [(x + side * GAP, y + dy, side) for dy, side in SPOTS]
        rooms = [_box(text, *spot) for spot in spots]
        costs = [_outside(room, bottom) + sum(_shared(room, other) for other in taken) for room in rooms]
        best = costs.index(min(costs))
        taken.append(rooms[best])
        left, base, side = spots[best]
        muted = "muted" if item.is_control else None
        parts.append(words(left, base, text, anchor=ANCHORS[side], class_=muted))
    return parts


def _box(text: str, x: float, y: float, side: int) -> Box:
    width = text_width(text)
    left = x - width * (1 - side) / 2
    return (left, y - FONT, left + width, y + 4)


def _outside(box: Box, bottom: float) -> float:
    """How far a name leaves the plot, which is worse than covering another."""
    return 1e4 * (
        max(0.0, LEFT - box[0]) + max(0.0, box[2] - WIDTH) + max(0.0, TOP - box[1]) + max(0.0, box[3] - bottom)
    )


def _shared(first: Box, second: Box) -> float:
    """Area that both boxes cover."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
