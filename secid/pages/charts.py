"""Draw charts of a run and its probe as inline SVG, with a row for each source and a strip for each number or curve.

Labels are outside the strips, so that they cannot overlap. Attributes style the charts if the stylesheet is missing;
classes add colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from secid.analyses.ablations import Ablation, AblationRow
from secid.analyses.guide import GUIDE
from secid.analyses.profile import FACTORS, PROFILE, GateProfile
from secid.analyses.separation import SourceSeparation
from secid.pages.glossary import REFERENCES, compares, kind_name
from secid.pages.page import Chart, described
from secid.pages.text import fraction, gain, is_unknown, listed, nats, percent, plain, short, shown_interval
from secid.results import BudgetPoint, Run
from secid.results.probe import Probe, ProbedSource
from secid.settings import display_name

FONT = 14
"""Font size of all text. On a phone with 360 pixels it appears just below 10."""
CHART_NAME_CHARACTERS = 28
"""Maximum length of a name in a chart on a wide screen. page.css cuts it on a phone; the answer table has all of it."""
TICKS = (5, 3, 2)
"""Maximum number of ticks on an axis, with one, two and three strips in a row."""
SOURCE_COLOUR = "#0b6bcb"
"""Colour of sources without the stylesheet. page.css has the same colour, and another one for dark mode."""
ROW_HEIGHT, CURVES_HEIGHT, GAP_HEIGHT, AXIS_HEIGHT = 24.0, 64.0, 10.0, 18.0
"""Heights of a row of numbers, of a row of curves, of the space above curves, and of an axis."""
WHISKERS_NOTE = "Whiskers: 95 % CI."


@dataclass(frozen=True)
class Mark:
    """A number with both ends of its 95 % interval, or () without one. words: the same as text, for screen readers."""

    value: float
    ends: Sequence[float]
    words: str


@dataclass(frozen=True)
class ChartRow:
    """A row of a chart. marks : one for each strip.   tie : letters of its ties, if any.

    is_control : draw it below the sources, with hollow circles.
    """

    name: str
    marks: tuple[Mark, ...]
    tie: str = ""
    is_control: bool = False


def hardness_chart(run: Run) -> Chart | None:
    """Draw the hardness of each source, and the share of its negatives that score above their positive.

    If a guide is reliable for every source, the share that it suspects is drawn instead. None without hardness.
    """
    known = [source for source in run.sources if source.in_table(run.budget).hardness is not None]
    if not known:
        return None
    guide = GUIDE.of(run)
    suspects = {} if guide is None else {item.name: item for item in guide.sources if item.is_evidence}
    by_guide = all(source.name in suspects for source in known)
    word = "suspect" if by_guide else "outscoring"
    rows = []
    for source in known:
        shown, finding = source.in_table(run.budget), source.finding("inversion")
        share, ends = shown.inversion_fraction, None
        if by_guide:
            share, ends = suspects[source.name].suspect_share, suspects[source.name].interval_95
        elif finding is not None and not source.scored.on_shared:
            share, ends = finding.share, finding.interval_95
        hardness = shown.hardness_value or 0.0
        interval = None if shown.hardness is None else shown.hardness.interval_95
        rows.append(ChartRow(source.name, (_mark(hardness, interval, "hardness"), _mark(share, ends, word, percent))))
    for control in run.controls:
        if control.kind in REFERENCES and not by_guide:  # a guide does not score controls
            level = _mark(0.0 if control.kind == "random" else 1.0, None, "hardness")  # by definition
            marks = level, _mark(control.score.inversion_fraction, None, word, percent)
            rows.append(ChartRow(kind_name(control.kind), marks, is_control=True))
    title = f"Hardness and {'suspects' if by_guide else 'inversions'}"
    dashed = "Dashed: hardness 0 (random passages) and 1 (positives)."
    return _forest(title, rows, [[0.0, 1.0], []], dashed, heads=("hardness", word), shares=(1,))


def _mark(value: float, ends: tuple[float, float] | None, word: str, write: Callable[[float], str] = fraction) -> Mark:
    return Mark(value, () if ends is None or is_unknown(ends) else ends, f"{word} {write(value)}")


def forest_chart(run: Run) -> Chart | None:
    """Draw the score of each source and control with its interval, sources in rank order. None without a source."""
    if not run.sources:
        return None
    at = run.budget
    controls = [
        item for item in run.controls if item.of is None and item.score.at(at).budget == at and compares(run, item, at)
    ]
    rows = [ChartRow(item.name, (_score(at, item.in_table(at).score),), item.scored.tie or "") for item in run.sources]
    rows += [ChartRow(kind_name(item.kind), (_score(at, item.score.at(at)),), is_control=True) for item in controls]
    dashed = [item.score.at(at).nats for item in controls if item.kind in REFERENCES]
    references = [name for kind, name in REFERENCES.items() if any(item.kind == kind for item in controls)]
    title = f"Score ({'ECI_sem' if at == 1 else 'ECI_B'}, nats) with 95 % CI"
    return _forest(title, rows, [dashed], f"Dashed: {listed(references)}." if references else "", keys=("score",))


def _score(budget: float, point: BudgetPoint) -> Mark:
    ends = () if is_unknown(point.interval_95, budget) else point.interval_95  # unknown with too few queries
    return Mark(point.nats, ends, f"{nats(point.nats)}, 95 % CI {shown_interval(point.interval_95, budget=budget)}")


def gates_chart(run: Run) -> Chart | None:
    """Draw the mean gates of each source, of random passages and of known positives. None without gate profiles."""
    result = PROFILE.of(run)
    if result is None:
        return None
    of = {profile.source: profile for profile in result.sources}
    profiles = [(source.name, of[source.name], False) for source in run.sources if source.name in of]
    profiles += [(kind_name(profile.source), profile, True) for profile in result.controls.values()]
    rows = [
        ChartRow(name, tuple(_mean(profile, gate) for gate in FACTORS), is_control=is_control)
        for name, profile, is_control in profiles
    ]
    return _forest("Gate profile", rows, [[0.0, 1.0]] * len(FACTORS), "Higher adds to the score.", heads=FACTORS)


def _mean(profile: GateProfile, gate: str) -> Mark:
    mean = getattr(profile, gate)
    return _mark(mean.value, mean.interval_95, gate)


def gains_chart(probe: Probe | None) -> Chart | None:
    """Draw the gain of training on each source and control, one strip per learning rate. None without training."""
    if probe is None or not probe.trained:
        return None
    doses = probe.trained
    sources = [{item.name: item for item in dose.sources} for dose in doses]
    controls = [{item.name: item for item in dose.controls} for dose in doses]
    rows = [ChartRow(name, tuple(_gain(gains[name]) for gains in sources)) for name in probe.names]
    rows += [
        ChartRow(kind_name(name), tuple(_gain(gains[name]) for gains in controls), is_control=True)
        for name in controls[0]
    ]
    heads = [f"rate {dose.rate:g}" for dose in doses]
    keys = [f"gain_ndcg10_at_{dose.rate:g}" for dose in doses]
    title, note = "Gain in nDCG@10 with 95 % CI, by learning rate", "Dashed: the frozen encoder."
    return _forest(title, rows, [[0.0]] * len(doses), note, heads=heads, keys=keys)


def _gain(item: ProbedSource) -> Mark:
    return Mark(item.gain_ndcg10, item.interval_95 or (), gain(item.gain_ndcg10, item.interval_95))


def _forest(
    title: str,
    rows: Sequence[ChartRow],
    dashed: Sequence[Sequence[float]],
    note: str,
    heads: Sequence[str] = (),
    shares: Sequence[int] = (),
    keys: Sequence[str] = (),
) -> Chart:
    """Return a chart of rows, sources above controls.

    dashed : for each strip, values with a dashed line from top to bottom.
    heads  : heading of each strip, if there are several.   keys : names of their numbers; the headings by default.
    shares : places of the strips whose numbers are shares, shown in per cent.
    note   : how to read the chart; ties and controls are explained anyway.
    """
    description = described(
        (f"control {row.name}" if row.is_control else row.name, ", ".join(mark.words for mark in row.marks))
        for row in rows
    )
    tied = "Sources that share a letter do not differ significantly."
    notes = (
        WHISKERS_NOTE,
        tied if any(row.tie for row in rows) else "",
        "Hollow circles: controls." if any(row.is_control for row in rows) else "",
        note,
    )
    draw = partial(_drawn, f"{title}. {description}", rows, dashed, heads, shares)
    numbers = tuple(_record(row, keys or heads) for row in rows)
    return Chart(title=title, description=description, draw=draw, numbers=numbers, note=" ".join(filter(None, notes)))


def _record(row: ChartRow, keys: Sequence[str]) -> dict[str, object]:
    """Return the numbers of a row. Numbers that are not finite become None."""
    record: dict[str, object] = {"source": plain(row.name), "is_control": row.is_control}
    if row.tie:
        record["tie"] = row.tie
    for key, mark in zip(keys, row.marks, strict=True):
        low, high = mark.ends or (None, None)
        for name, value in ((key, mark.value), (f"{key}_low", low), (f"{key}_high", high)):
            record[name] = value if value is not None and isfinite(value) else None
    return record


def _drawn(
    label: str, rows: Sequence[ChartRow], dashed: Sequence[Sequence[float]], heads: Sequence[str], shares: Sequence[int]
) -> Markup:
    """Draw the letter, name and strips of each row, and the axes below them."""
    scales, grids, axes = [], [], []
    for place, lines in enumerate(dashed):
        marks = [row.marks[place] for row in rows]
        scale = Scale(*around([value for mark in marks for value in (*mark.ends, mark.value, *lines)]), 0.0, 100.0)
        values = ticks(scale.low, scale.high, TICKS[min(len(dashed), len(TICKS)) - 1])
        scales.append(scale)
        grids.append(
            [
                *(
                    _line(scale.at(value), 0.0, scale.at(value), ROW_HEIGHT, "grid", stroke_opacity=0.2)
                    for value in values
                ),
                *(
                    _line(scale.at(value), 0.0, scale.at(value), ROW_HEIGHT, "ref", stroke_dasharray="3 3")
                    for value in lines
                ),
            ]
        )
        axes.append(_axis(scale, values, is_share=place in shares))
    parts = [_row("", "", [tag("span", head) for head in heads])] if heads else []
    for row in rows:
        class_ = "control" if row.is_control else None
        strips = [
            _strip([*grid, *_bar(mark, scale, "ctl" if row.is_control else "src")], ROW_HEIGHT)
            for mark, scale, grid in zip(row.marks, scales, grids, strict=True)
        ]
        name = row.name if row.is_control else short(row.name, CHART_NAME_CHARACTERS)
        parts.append(_row(row.tie, name, strips, class_))
    return _figure(label, [*parts, _row("", "", axes)], "forest")


def _bar(mark: Mark, scale: Scale, class_: str) -> list[Markup]:
    y, ends = ROW_HEIGHT / 2, [scale.at(value) for value in mark.ends]
    whisker = [_line(ends[0], y, ends[1], y, f"{class_} whisker")] if ends else []
    fill = "none" if class_ == "ctl" else None
    title = tag("title", plain(mark.words))
    dot = tag("circle", title, cx=scale.at(mark.value), cy=y, r=4.5, class_=class_, stroke="currentColor", fill=fill)
    return [*whisker, *(_line(end, y - 4, end, y + 4, f"{class_} cap") for end in ends), dot]


# Histograms of the scores of positives and negatives, and their ROC curve.

CURVES_NOTE = (
    "Left: histograms of the cosine to the query, for positives (filled) and negatives (line). Right: ROC curve, the "
    "share of positives above a threshold (up) by the share of negatives above it (across), both from 0 to 1."
)


def separation_chart(items: Sequence[SourceSeparation]) -> Chart:
    """Draw both histograms and the ROC curve of each source."""
    title = "Scores of positives and negatives"
    description = described((item.source, f"AUC {fraction(item.auc)}") for item in items)
    draw = partial(_drawn_curves, f"{title}. {description}", items)
    numbers = tuple(
        {
            "source": plain(item.source),
            **{name: getattr(item, name) for name in ("low", "high", "positive_histogram", "negative_histogram")},
        }
        for item in items
    )
    return Chart(title=title, description=description, draw=draw, numbers=numbers, note=CURVES_NOTE)


def _drawn_curves(label: str, items: Sequence[SourceSeparation]) -> Markup:
    rows = []
    for item in items:
        positive, negative = map(_shares, (item.positive_histogram, item.negative_histogram))
        most = max(*positive, *negative)
        histograms = [
            _path(_steps(positive, most), "src", fill="currentColor", fill_opacity=0.3),
            _path(_steps(negative, most), "ctl"),
        ]
        roc = [_path("M0 100L100 0", "ref", stroke_dasharray="3 3"), _path(_roc(positive, negative), "src")]
        strips = [_stretched(histograms, len(positive)), _stretched(roc, 100)]
        rows.append(_row("", short(item.source, CHART_NAME_CHARACTERS), strips))
    scale, unit = Scale(items[0].low, items[0].high, 0.0, 100.0), Scale(0.0, 1.0, 0.0, 100.0)
    rows.append(_row("", "", [_axis(scale, ticks(scale.low, scale.high)), _axis(unit, [0.0, 1.0])]))
    return _figure(label, rows, "forest curves")


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) or 1
    return [count / total for count in counts]


def _steps(shares: Sequence[float], most: float) -> str:
    """Return the outline of a histogram, 1 unit wide for each bin and 100 high."""
    return f"M0 100{''.join(f'V{100 - 100 * share / most:.1f}h1' for share in shares)}V100"


def _roc(positive: Sequence[float], negative: Sequence[float]) -> str:
    """Return the ROC curve as a path, 100 wide and high. Thresholds are the edges of the bins, highest first."""
    points = zip(accumulate(reversed(negative)), accumulate(reversed(positive)), strict=True)
    return f"M0 100{''.join(f'L{100 * x:.1f} {100 - 100 * y:.1f}' for x, y in points)}"


def _path(d: str, class_: str, fill: str = "none", **attributes: object) -> Markup:
    more = {"stroke": "currentColor", "vector_effect": "non-scaling-stroke", **attributes}
    return tag("path", d=d, class_=class_, fill=fill, **more)


def _stretched(paths: Sequence[Markup], width: int) -> Markup:
    """Return a strip of paths, `width` units wide and 100 high, stretched to the cell."""
    top = 100 * GAP_HEIGHT / (CURVES_HEIGHT - GAP_HEIGHT)
    box = f"0 {-top:.1f} {width} {100 + top:.1f}"
    return _strip(paths, CURVES_HEIGHT, viewBox=box, preserveAspectRatio="none")


# The score of each source by the settings of an ablation.

CURVED_SETTINGS = ("temperature", "sample")
"""Ablations whose settings are numbers on an axis."""


def ablations_chart(run: Run, ablations: Sequence[Ablation]) -> Chart | None:
    """Draw the score of each source by temperature and by sample size. None if neither was varied."""
    shown = [item for item in ablations if item.name in CURVED_SETTINGS and len(item.rows) > 1]
    names = [source.name for source in run.sources]
    if not shown or not any(_curves(item, names) for item in shown):
        return None
    title = f"Score by {' and by '.join(item.name for item in shown)}"
    description = described((name, ", ".join(_score_list(item, name) for item in shown)) for name in names)
    note = "Coloured: the score of the source. Grey: the other sources, on the same scale."
    draw = partial(_drawn_settings, f"{title}. {description}", names, shown)
    numbers = tuple(
        {
            "source": plain(name),
            **{item.name: {plain(display_name(row.setting)): _nats(row, name) for row in item.rows} for item in shown},
        }
        for name in names
    )
    return Chart(title=title, description=description, draw=draw, numbers=numbers, note=note)


def _nats(row: AblationRow, name: str) -> float | None:
    value = row.scores.get(name)
    return value if value is not None and isfinite(value) else None


def _score_list(item: Ablation, name: str) -> str:
    scores = (f"{plain(display_name(row.setting))} {nats(row.scores.get(name))}" for row in item.rows)
    return f"by {item.name} {', '.join(scores)}"


def _drawn_settings(label: str, names: Sequence[str], items: Sequence[Ablation]) -> Markup:
    curves = [_curves(item, names) for item in items]
    rows = [_row("", "", [tag("span", f"by {item.name}") for item in items])]
    for name in names:
        strips = []
        for of_names in curves:
            others = [_path(path, "ref", stroke_opacity=0.5) for other, path in of_names.items() if other != name]
            lines = [_path(path, "src", stroke_width=2.5) for other, path in of_names.items() if other == name]
            strips.append(_stretched([*others, *lines], 100))
        rows.append(_row("", short(name, CHART_NAME_CHARACTERS), strips))
    axes = [_strip(_ends([plain(display_name(row.setting)) for row in item.rows]), AXIS_HEIGHT) for item in items]
    return _figure(label, [*rows, _row("", "", axes)], "forest")


def _curves(item: Ablation, names: Sequence[str]) -> dict[str, str]:
    """Return the curve of each source that has at least two scores, as a path that is 100 wide and high."""
    known = [value for row in item.rows for name in names if (value := _nats(row, name)) is not None]
    if not known:
        return {}
    scale = Scale(min(known), max(known), 100.0, 0.0)
    paths = {}
    for name in names:
        values = [(place, value) for place, row in enumerate(item.rows) if (value := _nats(row, name)) is not None]
        points = [f"{100 * place / (len(item.rows) - 1):.1f} {scale(value):.1f}" for place, value in values]
        if len(points) > 1:
            paths[name] = f"M{'L'.join(points)}"
    return paths


def _ends(words: Sequence[str]) -> list[Markup]:
    return [
        tag("text", words[0], x="0%", y=14.0, text_anchor="start", class_="tick"),
        tag("text", words[-1], x="100%", y=14.0, text_anchor="end", class_="tick"),
    ]


# Elements, scales and axes.


def tag(name: str, body: Markup | str = "", /, **attributes: object) -> Markup:
    """Return an element. Values are escaped, and an attribute with None is left out.

    In names of attributes `_` becomes `-`; `class_` becomes class. The class "src" adds the colour of sources.
    """
    if str(attributes.get("class_")).split()[0] == "src":
        attributes["color"] = SOURCE_COLOUR
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(f"{value:.4g}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    start = f"<{name}{''.join(parts)}"
    return Markup(f"{start}>{escape(body)}</{name}>" if body else f"{start}/>")  # noqa: S704  all values are escaped


def _figure(label: str, rows: Sequence[Markup], class_: str) -> Markup:
    return tag("div", Markup("").join(rows), role="img", aria_label=label, class_=class_)


def _row(tie: str, name: str, strips: Sequence[Markup], class_: str | None = None) -> Markup:
    cells = (tag("span", tie or " "), tag("bdi", name or " "), *strips)
    return tag("div", Markup("").join(cells), class_=class_)


def _strip(body: Sequence[Markup], height: float, **attributes: object) -> Markup:
    """Return an SVG that is as wide as its cell. If x is a share of the width, text keeps its size."""
    more = {
        "width": "100%",
        "height": height,
        "fill": "currentColor",
        "overflow": "visible",
        "aria_hidden": "true",
        **attributes,
    }
    return tag("svg", Markup("").join(body), xmlns="http://www.w3.org/2000/svg", class_="strip", font_size=FONT, **more)


def _axis(scale: Scale, values: Sequence[float], is_share: bool = False) -> Markup:
    """Return the numbers below a strip. Shares are in per cent; the last number has the sign."""
    texts = [f"{100 * value if is_share else value:g}".replace("-", "−") for value in values]
    if is_share:
        texts[-1] += " %"
    numbers = [
        tag("text", text, x=scale.at(value), y=14.0, text_anchor="middle", class_="tick")
        for text, value in zip(texts, values, strict=True)
    ]
    return _strip(numbers or [Markup(" ")], AXIS_HEIGHT)


def _line(x1: str, y1: float, x2: str, y2: float, class_: str, **attributes: object) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="currentColor", class_=class_, **attributes)


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def at(self, value: float) -> str:
        """Return the place of a value as a share of the width, for a scale from 0 to 100."""
        return f"{self(value):.2f}%"


def around(values: Sequence[float]) -> tuple[float, float]:
    """Return a range with zero, all values, and some space around them. It is never empty."""
    known = [0.0, *(value for value in values if isfinite(value))]
    low, high = min(known), max(known)
    air = (high - low) * 0.06 or 1.0
    return (low - air if low < 0 else low, high + air)


def ticks(low: float, high: float, n: int = TICKS[0]) -> list[float]:
    """Return about n round values from low to high."""
    step = 10 ** floor(log10((high - low) / n)) if high > low else 1.0
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= n), 10)
    first = ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, floor(high / step + 1e-9) + 1)]
