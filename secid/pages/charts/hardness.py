"""The picture to look at first: how hard each source's negatives are, against how many outscore their positive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secid.pages.charts.scores import REFERENCES
from secid.pages.charts.svg import (
    FONT,
    NAME_CHARACTERS,
    Scale,
    across,
    dot,
    grid_across,
    line,
    numbers_across,
    ticks,
    wide,
    words,
)
from secid.pages.numbers import fraction, percent
from secid.pages.page import Chart, described
from secid.pages.sanitize import short
from secid.results import Run, SourceResult

TOP, HEIGHT, BELOW, LEFT = 24.0, 240.0, 42.0, 46.0
"""Heights of the title of the upward axis, of the plot with the names of its ends, and of the axis across; and the
room of the upward axis, which page.css leaves.
"""
CLEAR = 2.5 * FONT
"""Below the top, room for the names of both ends."""
COVERED = 0.25
"""Share of a name's room that may be covered; a name without such a place is left to the tip and the table."""
NARROW = 280.0
"""Width of the plot on a phone, where names are placed apart (wider plots part them more)."""
CHARACTER, BROAD = 0.65 * FONT, frozenset("mwMW@%")
"""Width of a character, which half as much again holds for a broad one."""
SPOTS = tuple((side, dy) for dy in (-8, 17, -23, 32, -38, 47, -53, -68, -83) for side in (1, -1))
"""Where a name may be: right or left of its point, and how far below; the first is the best."""
ANCHORS = {1: None, -1: "end"}
ENDS = {0.0: ("random", "random passages"), 1.0: ("known_positive", "positives")}
"""Hardness of the controls that mark the ends of the scale, by definition; and what an end is called."""
NOTE = (
    "Whiskers: 95 % CI, cut at the edge. Hardness: 0 as near to the query as random passages, 1 as near as the "
    "positives. Hollow circles: controls."
)
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
        for x, (kind, _) in ENDS.items()
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
    points = [*controls, *sources]
    return Chart(title=title, description=description, draw=lambda: _draw(points, title, description), note=NOTE)


def _source(source: SourceResult) -> _Point | None:
    if source.hardness is None:
        return None
    inversion = source.finding("inversion")
    share, ends = (source.inversion_fraction, None) if inversion is None else (inversion.share, inversion.interval_95)
    return _Point(source.name, source.hardness, share, source.hardness_interval_95, ends)


def _draw(points: Sequence[_Point], title: str, description: str) -> Markup:
    xs, ys = [item.x for item in points], [item.y for item in points]
    bottom = TOP + HEIGHT
    x_scale = Scale(min(-0.08, min(xs) - 0.05), max(1.08, max(xs) + 0.05), 0.0, 100.0)
    y_scale = Scale(0.0, min(1.0, max(0.1, 1.2 * max(ys))), bottom, TOP + CLEAR)
    parts = [
        words("0%", FONT, "negatives that outscore their positive", dx=-LEFT, class_="tick"),
        *grid_across(x_scale, bottom, TOP),
        *numbers_across(x_scale, bottom + 17),
        words("50%", bottom + 36, "hardness", anchor="middle", class_="tick"),
    ]
    for value in ticks(0.0, y_scale.high):
        y = y_scale(value)
        parts.append(line("0%", y, "100%", y, "grid", opacity=0.2))
        parts.append(words(-6.0, y + 4, f"{100 * value:g} %", anchor="end", class_="tick"))
    for row, (x, (_, name)) in enumerate(ENDS.items(), 1):  # each name has a line of its own
        at, side = across(x_scale, x), 1 if x_scale(x) < 50.0 else -1
        parts.append(line(at, TOP, at, bottom, "ref", "3 3"))
        parts.append(words(at, TOP + row * FONT, name, dx=5.0 * side, anchor=ANCHORS[side], class_="tick"))
    for item in points:
        parts += _cross(item, x_scale, y_scale)
    parts += _names(points, x_scale, y_scale)
    return wide(parts, bottom + BELOW, class_="plot", role="img", aria_label=f"{title}. {description}")


def _cross(item: _Point, x_scale: Scale, y_scale: Scale) -> list[Markup]:
    """Both intervals through the point."""
    x, y, class_ = across(x_scale, item.x), y_scale(item.y), "ctl" if item.is_control else "src"
    parts = []
    if item.x_ends is not None:
        low, high = max(item.x_ends[0], x_scale.low), min(item.x_ends[1], x_scale.high)
        parts.append(line(across(x_scale, low), y, across(x_scale, high), y, f"{class_} whisker", opacity=0.6))
        parts += [words("0%", y + 4, "‹", class_=class_)] if low > item.x_ends[0] else []
        parts += [words("100%", y + 4, "›", anchor="end", class_=class_)] if high < item.x_ends[1] else []
    if item.y_ends is not None:
        ends = (y_scale(item.y_ends[0]), y_scale(min(item.y_ends[1], y_scale.high)))
        parts.append(line(x, ends[0], x, ends[1], f"{class_} whisker", opacity=0.6))
        parts += [words(x, ends[1] + 4, "ˆ", anchor="middle", class_=class_)] if item.y_ends[1] > y_scale.high else []
    return [*parts, dot(x, y, class_, f"{short(item.name)}: hardness {fraction(item.x)}, outscoring {percent(item.y)}")]


def _names(points: Sequence[_Point], x_scale: Scale, y_scale: Scale) -> list[Markup]:
    """The name of each source where, on a phone, it is near and covers little of points, intervals and other names; how
    many have no such place.
    """
    places = [(item, x_scale(item.x) / 100 * NARROW, y_scale(item.y)) for item in points]
    taken = [(x - 6, y - 6, x + 6, y + 6) for _, x, y in places]
    taken += [(x - 3, y_scale(item.y_ends[1]), x + 3, y_scale(item.y_ends[0])) for item, x, y in places if item.y_ends]
    parts, n_more = [], 0
    for item, x, y in places:
        if item.is_control:
            continue
        text = short(item.name, NAME_CHARACTERS)
        rooms = [
            _room(CHARACTER * (len(text) + 0.5 * sum(map(text.count, BROAD))), x, y + dy, side) for side, dy in SPOTS
        ]
        costs = [
            _outside(room) + sum(_shared(room, other) for other in taken) + 3.0 * abs(dy)
            for room, (_, dy) in zip(rooms, SPOTS, strict=True)
        ]
        best = costs.index(min(costs))
        if costs[best] - 3.0 * abs(SPOTS[best][1]) > COVERED * _shared(rooms[best], rooms[best]):
            n_more += 1
            continue
        taken.append(rooms[best])
        side, dy = SPOTS[best]
        parts.append(words(across(x_scale, item.x), y + dy, text, dx=5.0 * side, anchor=ANCHORS[side]))
    more = [words("100%", TOP + HEIGHT - 6, f"and {n_more} more", anchor="end", class_="tick")] if n_more else []
    return [*parts, *more]


def _room(width: float, x: float, y: float, side: int) -> Box:
    left = x + 5 if side > 0 else x - 5 - width
    return (left, y - FONT, left + width, y + 4)


def _outside(box: Box) -> float:
    """How far a name leaves the plot, which is worse than covering another."""
    ends = (0.0 - box[0], box[2] - NARROW, TOP + CLEAR - box[1], box[3] - TOP - HEIGHT)
    return 1e4 * sum(max(0.0, end) for end in ends)


def _shared(first: Box, second: Box) -> float:
    """Area that both boxes cover."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
