"""Numbers with their intervals, a row each: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
from secid.pages.numbers import letter
from secid.pages.page import Chart, described
from secid.pages.sanitize import short

ROW = 24.0
"""Height of a row."""


@dataclass(frozen=True)
class Mark:
    """A row. ends: of the interval; () where there is none.   words: the number, for those who do not see it.

    group : of ties, 1 first; 0 for none.   is_control: a hollow circle below the sources.
    """

    name: str
    value: float
    ends: Sequence[float]
    words: str
    group: int = 0
    is_control: bool = False


def forest(title: str, marks: Sequence[Mark], dashed: Sequence[float], note: str) -> Chart:
    """The chart of some marks, sources above controls. dashed: values with a line from top to bottom.

    note: how to read it, besides ties and controls.
    """
    description = described((f"control {mark.name}" if mark.is_control else mark.name, mark.words) for mark in marks)
    notes = (
        "Whiskers: 95 % CI.",
        "Sources with the same letter are statistically tied, directly or through others."
        if any(mark.group for mark in marks)
        else "",
        "Hollow circles: controls." if any(mark.is_control for mark in marks) else "",
        note,
    )
    return Chart(
        title=title,
        description=description,
        draw=partial(_drawn, f"{title}. {description}", marks, dashed),
        note=" ".join(filter(None, notes)),
    )


def _drawn(label: str, marks: Sequence[Mark], dashed: Sequence[float]) -> Markup:
    """For each mark its letter, its name, and a strip as wide as the rest of the page."""
    scale = Scale(*around([value for mark in marks for value in (*mark.ends, mark.value)]), 0.0, 100.0)
    places = [across(scale, value) for value in dashed]
    grid = [*grid_across(scale, ROW), *(line(at, 0.0, at, ROW, "ref", "3 3") for at in places)]
    rows = []
    for mark in marks:
        class_ = "control" if mark.is_control else "band" if mark.group % 2 else None
        name = mark.name if mark.is_control else short(mark.name, NAME_CHARACTERS)
        rows.append(_row(letter(mark.group), name, [*grid, *_bar(mark, scale)], class_=class_))
    rows.append(_row("", "", numbers_across(scale, 14.0), 18.0))
    return tag("div", Markup("").join(rows), role="img", aria_label=label, class_="forest")


def _row(group: str, name: str, strip: Sequence[Markup], height: float = ROW, class_: str | None = None) -> Markup:
    cells = (tag("span", group or " "), tag("bdi", name or " "), wide(strip, height))
    return tag("div", Markup("").join(cells), class_=class_)


def _bar(mark: Mark, scale: Scale) -> list[Markup]:
    y, class_ = ROW / 2, "ctl" if mark.is_control else "src"
    ends = [across(scale, value) for value in mark.ends]
    whisker = [line(ends[0], y, ends[1], y, f"{class_} whisker")] if ends else []
    caps = [line(end, y - 4, end, y + 4, f"{class_} cap") for end in ends]
    return [*whisker, *caps, dot(across(scale, mark.value), y, class_, mark.words)]
