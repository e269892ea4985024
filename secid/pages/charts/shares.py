"""Shares of a source's negatives: gate histograms and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from secid.pages.charts.svg import (
    AXIS,
    LINE,
    WIDTH,
    Scale,
    around,
    bottom_axis,
    label,
    line,
    picture,
    rect,
    series_class,
    tag,
    ticks,
    words,
)
from secid.pages.glossary import in_plain_words
from secid.results import SourceResult

PANEL_GAP, PANEL_HEIGHT, NAME_HEIGHT = 12, 44, 20
SYMBOLS = {"consistency": "π", "locality": "ρ", "coverage": "c", "weight": "weight"}


def histograms(sources: Sequence[SourceResult], gates: Sequence[str], title: str, description: str) -> Markup:
    """One row of small histograms a source; heights of one gate compare across sources. A tick marks the mean."""
    width = (WIDTH - PANEL_GAP * (len(gates) - 1)) / len(gates)
    tallest = {
        gate: max((_tallest(source.gate_histograms.get(gate, ())) for source in sources), default=0.0) for gate in gates
    }
    parts = [
        words(number * (width + PANEL_GAP), 13, SYMBOLS.get(gate, gate), class_="tick")
        for number, gate in enumerate(gates)
    ]
    y = 22.0
    for number, source in enumerate(sources):
        parts.append(words(0, y + 13, label(source.name, WIDTH)))
        base = y + NAME_HEIGHT + PANEL_HEIGHT
        for column, gate in enumerate(gates):
            x = column * (width + PANEL_GAP)
            mean = getattr(source, f"{gate}_mean", None)
            parts += _panel(source.gate_histograms.get(gate, ()), tallest[gate], x, base, width, number, mean)
        y = base + LINE
    return picture("gates", title, description, y + 2, parts)


def _tallest(counts: Sequence[int]) -> float:
    return max(counts, default=0) / max(1, sum(counts))


def _panel(
    counts: Sequence[int], tallest: float, x: float, base: float, width: float, number: int, mean: float | None
) -> list[Markup]:
    parts = [line(x, base, x + width, base, "axis")]
    total = sum(counts)
    if total and tallest:
        step = width / len(counts)
        path = f"M{x:.1f} {base:.1f}"
        for place, count in enumerate(counts):
            height = PANEL_HEIGHT * count / total / tallest
            path += f"V{base - height:.1f}H{x + step * (place + 1):.1f}"
        parts.append(tag("path", d=f"{path}V{base:.1f}z", class_=f"{series_class(number)} area", fill_opacity="0.75"))
    if mean is not None:
        at = x + width * min(1.0, max(0.0, mean))
        parts.append(line(at, base + 5, at, base - 3, "mean"))
    parts += [
        words(x, base + 15, "0", class_="tick"),
        words(x + width, base + 15, "1", anchor="end", class_="tick"),
    ]
    return parts


def finding_bars(
    names: Sequence[str], shares: Mapping[str, Mapping[str, float]], title: str, description: str
) -> Markup:
    """Bars of all sources for each finding. shares: source -> finding -> share."""
    bar, gap, left = 9.0, 12.0, 176.0
    _, high = around([value for own in shares.values() for value in own.values()], zero=True)
    scale = Scale(0.0, min(1.0, max(high, 0.01)), left, WIDTH - 24)  # the last tick, 100%, whole
    y, parts = 6.0, []
    bottom = y + len(names) * (bar * len(shares) + gap)
    axis = [(tick, f"{100 * tick:g}%") for tick in ticks(0.0, scale.high)]
    parts += bottom_axis(scale, axis, y, bottom, "share of negatives")
    for name in names:
        middle = y + bar * len(shares) / 2
        parts.append(words(left - 8, middle + 4, in_plain_words(name), anchor="end"))
        for number, own in enumerate(shares.values()):
            share = own.get(name, 0.0)
            parts.append(rect(left, y + bar * number + 1, scale(share) - left, bar - 2, f"{series_class(number)} area"))
        y += bar * len(shares) + gap
    keys, height = _squares(list(shares), bottom + AXIS + LINE)
    return picture("findings", title, description, bottom + AXIS + 10 + height, [*parts, *keys])


def _squares(names: Sequence[str], y: float) -> tuple[list[Markup], float]:
    """A legend of squares, in the order of the bars."""
    parts = []
    for number, name in enumerate(names):
        x, top = (number % 2) * WIDTH / 2, y + LINE * (number // 2)
        parts += [
            rect(x + 2, top - 10, 11, 11, f"{series_class(number)} area"),
            words(x + 20, top, label(f"{number + 1}. {name}")),
        ]
    return parts, LINE * ((len(names) + 1) // 2)
