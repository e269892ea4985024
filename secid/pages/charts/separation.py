"""Scores of positives and negatives by source, and the ROC curve that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from markupsafe import Markup

from secid.analyses.separation import SEPARATION, SourceSeparation
from secid.pages.charts.svg import NAME_CHARACTERS, Scale, line, tag, ticks, wide, words
from secid.pages.numbers import fraction
from secid.pages.page import Chart, described
from secid.pages.sanitize import short
from secid.results import Run

HEIGHT, GAP = 64.0, 10.0
"""Of a row, and the air above its curves."""
WIDTH, ROC = 70.0, 78.0
"""Percent of the row's width: of the histogram, and where the ROC curve starts."""
NOTE = (
    "Left: cosines to the query of positives (filled) and negatives (line), each as shares. Right: ROC curve, share of "
    "negatives across, of positives up, above a threshold, both from 0 to 1."
)


def separation_chart(run: Run) -> Chart | None:
    """A row a source: both histograms, and its ROC curve; None without a source that was separated."""
    separation = SEPARATION.of(run)
    if separation is None or not separation.sources:
        return None
    items = separation.sources
    title = "Scores of positives and negatives"
    description = described((item.source, f"AUC {fraction(item.auc)}") for item in items)
    return Chart(title=title, description=description, draw=lambda: _draw(items, title, description), note=NOTE)


def _draw(items: Sequence[SourceSeparation], title: str, description: str) -> Markup:
    scale = Scale(items[0].low, items[0].high, 0.0, WIDTH)
    values = [(f"{scale(value):.2f}%", f"{value:g}") for value in ticks(scale.low, scale.high)]
    rows = [_row(short(item.source, NAME_CHARACTERS), _curves(item), HEIGHT) for item in items]
    numbers = [words(at, 14.0, text, anchor="middle", class_="tick") for at, text in values]
    numbers += [words(f"{ROC}%", 14.0, "0", class_="tick"), words("100%", 14.0, "1", anchor="end", class_="tick")]
    rows.append(_row(" ", numbers, 18.0))
    return tag("div", Markup("").join(rows), role="img", aria_label=f"{title}. {description}", class_="forest")


def _row(name: str, strip: Sequence[Markup], height: float) -> Markup:
    return tag("div", Markup("").join((tag("span", " "), tag("bdi", name), wide(strip, height))))


def _curves(item: SourceSeparation) -> list[Markup]:
    positive, negative = map(_shares, (item.positive_histogram, item.negative_histogram))
    most = max(*positive, *negative)
    bins = f"0 0 {len(positive)} 100"
    curve = [_path(_steps(positive, most), "src", 0.3), _path(_steps(negative, most), "ctl", 0.0)]
    return [
        _stretched(curve, 0.0, WIDTH, bins),
        line("0%", HEIGHT - 0.5, f"{WIDTH}%", HEIGHT - 0.5, "grid", opacity=0.4),
        line(f"{ROC}%", HEIGHT, "100%", GAP, "ref", "3 3"),
        _stretched([_path(_roc(positive, negative), "src", 0.0)], ROC, 100.0 - ROC, "0 0 100 100"),
    ]


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) or 1
    return [count / total for count in counts]


def _steps(shares: Sequence[float], most: float) -> str:
    """The outline of a histogram of one unit a bin, 100 high."""
    return f"M0 100{''.join(f'V{100 - 100 * share / most:.1f}h1' for share in shares)}V100"


def _roc(positive: Sequence[float], negative: Sequence[float]) -> str:
    """Shares at or above each edge of the bins, the highest first."""
    points = zip(accumulate(reversed(negative)), accumulate(reversed(positive)), strict=True)
    return f"M0 100{''.join(f'L{100 * x:.1f} {100 - 100 * y:.1f}' for x, y in points)}"


def _path(d: str, class_: str, opacity: float) -> Markup:
    return tag(
        "path",
        d=d,
        class_=class_,
        fill="currentColor" if opacity else "none",
        fill_opacity=f"{opacity:g}" if opacity else None,
        stroke="currentColor",
        vector_effect="non-scaling-stroke",
    )


def _stretched(body: Sequence[Markup], start: float, width: float, box: str) -> Markup:
    """Paths as wide as a share of the row."""
    return tag(
        "svg",
        Markup("").join(body),
        x=f"{start}%",
        y=GAP,
        width=f"{width}%",
        height=HEIGHT - GAP,
        viewBox=box,
        preserveAspectRatio="none",
    )
