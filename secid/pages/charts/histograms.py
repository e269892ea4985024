"""How the gates of each source's negatives are distributed."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from secid.pages.charts.svg import (
    LINE,
    WIDTH,
    label,
    line,
    picture,
    series_class,
    tag,
    words,
)
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
