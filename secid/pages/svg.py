"""Building blocks of inline SVG charts: elements, scales, axes, and rows of numbers with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from secid.pages.page import Chart, described
from secid.pages.text import letter, plain, short

# Building blocks of all charts: elements, scales and axes.
#
# Presentation attributes carry what the page needs without its stylesheet; classes carry colour.

FONT = 14
"""Size of all words: on a phone of 360 pixels just under 10."""
NAME_CHARACTERS = 28
"""Of a name in a chart, as many as fit on a wide screen; page.css cuts it on a phone, the answer table has it whole."""
TICKS = 5
"""Of an axis, about."""
SOURCE_COLOUR = "#0b6bcb"
"""Of sources where the page's style is off; page.css has the same, and another for the dark."""


def tag(name: str, body: Markup | str = "", /, **attributes: object) -> Markup:
    """One element. Values are escaped; `_` in a name is `-` (`class_` is class); None leaves it out.

    The class of sources brings its colour along.
    """
    if str(attributes.get("class_")).split()[0] == "src":
        attributes["color"] = SOURCE_COLOUR
    parts = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    ]
    start = Markup("<{}{}").format(Markup(name), Markup("").join(parts))  # noqa: S704  names are ours
    return start + (Markup(">{}</{}>").format(escape(body), Markup(name)) if body else Markup("/>"))  # noqa: S704


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def words(
    x: float | str, y: float, text: str, *, dx: float = 0.0, anchor: str | None = None, class_: str | None = None
) -> Markup:
    """A line of text, dx units to the right of x."""
    return tag("text", text or " ", x=x, y=y, dx=dx or None, text_anchor=anchor, class_=class_)


def dot(x: str, y: float, class_: str, tip: str, radius: float = 4.5, dx: float = 0.0) -> Markup:
    """A source's filled dot, or a control's hollow one, dx units to the right of x. tip: shown under the pointer."""
    fill = "none" if class_ == "ctl" else None
    return tag(
        "circle",
        tag("title", plain(tip)),
        cx=x,
        cy=y,
        r=radius,
        class_=class_,
        stroke="currentColor",
        fill=fill,
        transform=f"translate({dx:g} 0)" if dx else None,
    )


def line(
    x1: float | str,
    y1: float,
    x2: float | str,
    y2: float,
    class_: str,
    dash: str | None = None,
    opacity: float | None = None,
) -> Markup:
    """A straight line; x in units or, as "12%", of the width."""
    return tag(
        "line",
        x1=x1,
        y1=y1,
        x2=x2,
        y2=y2,
        stroke="currentColor",
        class_=class_,
        stroke_dasharray=dash or None,
        stroke_opacity=f"{opacity:g}" if opacity is not None else None,
    )


def wide(body: Sequence[Markup], height: float, class_: str = "strip", **attributes: object) -> Markup:
    """An SVG as wide as its place, for shapes whose x is a share of the width: its words keep their size.

    It shows what leaves it to the left, such as the numbers of an axis.
    """
    return tag(
        "svg",
        Markup("").join(body),
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=ceil(height),
        fill="currentColor",
        overflow="visible",
        class_=class_,
        font_size=FONT,
        **attributes,
    )


def across(scale: Scale, value: float) -> str:
    """A place of a scale from 0 to 100 as a share of the width."""
    return f"{scale(value):.2f}%"


def grid_across(scale: Scale, bottom: float, top: float = 0.0) -> list[Markup]:
    """Vertical grid lines."""
    places = [across(scale, value) for value in ticks(scale.low, scale.high)]
    return [line(at, top, at, bottom, "grid", opacity=0.2) for at in places]


def numbers_across(scale: Scale, y: float) -> list[Markup]:
    """The numbers of the grid lines."""
    return [
        words(across(scale, value), y, f"{value:g}".replace("-", "−"), anchor="middle", class_="tick")
        for value in ticks(scale.low, scale.high)
    ]


@dataclass(frozen=True)
class Scale:
    """Values to places along one axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)


def around(values: Sequence[float]) -> tuple[float, float]:
    """A range from zero that holds all values with some air; never empty."""
    known = [0.0, *(value for value in values if isfinite(value))]
    low, high = min(known), max(known)
    air = (high - low) * 0.06 or 1.0
    return (low - air if low < 0 else low, high + air)


def ticks(low: float, high: float) -> list[float]:
    """About TICKS round values from low to high."""
    step = 10 ** floor(log10((high - low) / TICKS)) if high > low else 1.0
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= TICKS), 10)
    first = ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, floor(high / step + 1e-9) + 1)]


# Numbers with their intervals, a row each: a forest plot.

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
