"""Charts of a run: hardness of its sources, scores with intervals, and scores of positives and negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

from secid.analyses.guide import GUIDE, GuideSource
from secid.analyses.separation import SourceSeparation
from secid.pages.glossary import REFERENCES, compares, kind_name
from secid.pages.page import Chart, described
from secid.pages.svg import (
    FONT,
    NAME_CHARACTERS,
    Mark,
    Scale,
    across,
    dot,
    forest,
    grid_across,
    line,
    numbers_across,
    tag,
    ticks,
    wide,
    words,
)
from secid.pages.text import fraction, gain, is_unknown, listed, nats, percent, short, shown_interval
from secid.results import BudgetPoint, ControlResult, Run, SourceReport
from secid.results.probe import Probe, ProbedSource

# The picture to look at first: how hard each source's negatives are, against how many outscore their positive.
#
# With a guide it is how many the guide suspects: harder negatives outscore more, and only some of them are relevant.

TOP, HEIGHT, BELOW, LEFT = 24.0, 240.0, 42.0, 46.0
"""Heights of the title of the upward axis, of the plot with the names of its ends, and of the axis across; and the
room of the upward axis, which page.css leaves.
"""
CLEAR = 2.5 * FONT
"""Below the top, room for the names of both ends."""
RADIUS = 10.0
"""Of a dot with two digits in it."""
ANCHORS = {1: None, -1: "end"}
ENDS = {0.0: ("random", "random passages"), 1.0: ("known_positive", "positives")}
"""Hardness of the controls that mark the ends of the scale, by definition; and what an end is called."""
NEAR = 1.0
"""Percent of the width within which a dot would cover another's number."""
WHISKERS = "Whiskers: 95 % CI, cut at the edge and hidden by the dot."


@dataclass(frozen=True)
class _Axis:
    """What goes up. word: for a tip."""

    title: str
    label: str
    word: str


OUTSCORING = _Axis("Hardness and inversions", "negatives that outscore their positive", "outscoring")
SUSPECT = _Axis("Hardness and suspects", "negatives that the guide suspects", "suspect")


@dataclass(frozen=True)
class _Point:
    """hardness, and what goes up, with their 95 % intervals; None for none. number: in the key; 0 for a control."""

    name: str
    x: float
    y: float
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    number: int = 0


def hardness_chart(run: Run) -> Chart | None:
    """A numbered point a source: hardness across, negatives that outscore their positive up, or suspects where they are
    evidence for every source; below, the names.

    None where no hardness is known.
    """
    known = [source for source in run.sources if source.in_table(run.budget).hardness is not None]
    guide = GUIDE.of(run)
    suspects = {} if guide is None else {own.name: own for own in guide.sources if own.is_evidence}
    by = SUSPECT if all(source.name in suspects for source in known) else OUTSCORING
    suspects = suspects if by is SUSPECT else {}
    sources = [_source(number, source, run.budget, suspects.get(source.name)) for number, source in enumerate(known, 1)]
    if not sources:
        return None
    controls = [  # a guide scores none
        _Point(REFERENCES[kind], x, control.score.inversion_fraction)
        for x, (kind, _) in ENDS.items()
        for control in run.controls
        if control.kind == kind and by is OUTSCORING
    ]
    title = by.title
    description = described(
        (
            f"control {item.name}" if not item.number else item.name,
            f"hardness {fraction(item.x)}, {by.word} {percent(item.y)}",
        )
        for item in (*sources, *controls)
    )
    points = [*controls, *sources]
    circles = f" Hollow circles: {listed([item.name for item in controls])}." if controls else ""
    x_scale, y_scale = _scales(points)
    shifts = _shifts(points, x_scale, y_scale)
    moved = " Dots side by side share the place between them." if any(shifts) else ""
    note = f"{WHISKERS}{circles}{moved}"
    return Chart(
        title=title, description=description, draw=lambda: _draw_hardness(points, shifts, by, description), note=note
    )


def _source(number: int, source: SourceReport, budget: float, suspects: GuideSource | None) -> _Point:
    shown = source.in_table(budget)
    hardness = shown.hardness_value or 0.0
    x_ends = None if shown.hardness is None else shown.hardness.interval_95
    finding = None if source.scored.on_shared else source.finding("inversion")
    if suspects is not None:
        return _Point(source.name, hardness, suspects.suspect_share, x_ends, suspects.interval_95, number)
    share, ends = (shown.inversion_fraction, None) if finding is None else (finding.share, finding.interval_95)
    return _Point(source.name, hardness, share, x_ends, ends, number)


def _scales(points: Sequence[_Point]) -> tuple[Scale, Scale]:
    xs, ys = [item.x for item in points], [item.y for item in points]
    x_scale = Scale(min(-0.08, min(xs) - 0.05), max(1.08, max(xs) + 0.05), 0.0, 100.0)
    return x_scale, Scale(0.0, min(1.0, max(0.1, 1.2 * max(ys))), TOP + HEIGHT, TOP + CLEAR)


def _shifts(points: Sequence[_Point], x_scale: Scale, y_scale: Scale) -> list[float]:
    """Units to the right for each dot, so that those at nearly the same place lie side by side."""
    groups: list[list[_Point]] = []
    for item in points:
        first = (
            group
            for group in groups
            if abs(x_scale(item.x) - x_scale(group[0].x)) < NEAR and abs(y_scale(item.y) - y_scale(group[0].y)) < RADIUS
        )
        same = next(first, None)
        if same is None:
            groups.append([item])
        else:
            same.append(item)
    places = {id(item): 2 * place - len(group) + 1 for group in groups for place, item in enumerate(group)}
    return [RADIUS * places[id(item)] for item in points]


def _draw_hardness(points: Sequence[_Point], shifts: Sequence[float], by: _Axis, description: str) -> Markup:
    bottom = TOP + HEIGHT
    x_scale, y_scale = _scales(points)
    parts = [
        words("0%", FONT, by.label, dx=-LEFT, class_="tick"),
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
    parts += [part for item in points for part in _whiskers(item, x_scale, y_scale)]
    for item, shift in zip(points, shifts, strict=True):
        parts += _dot(item, by, across(x_scale, item.x), y_scale(item.y), shift)
    plot = wide(parts, bottom + BELOW, class_="plot", role="img", aria_label=f"{by.title}. {description}")
    names = [tag("li", tag("bdi", short(item.name))) for item in points if item.number]
    return plot + tag("ol", Markup("").join(names), class_="key")


def _whiskers(item: _Point, x_scale: Scale, y_scale: Scale) -> list[Markup]:
    """Both intervals through the point of a source."""
    x, y, class_ = across(x_scale, item.x), y_scale(item.y), "src"
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
    return parts


def _dot(item: _Point, by: _Axis, x: str, y: float, shift: float) -> list[Markup]:
    tip = f"{short(item.name)}: hardness {fraction(item.x)}, {by.word} {percent(item.y)}"
    if not item.number:
        return [dot(x, y, "ctl", tip, dx=shift)]
    number = words(x, y + 4, str(item.number), dx=shift, anchor="middle", class_="place")
    return [dot(x, y, "src", tip, RADIUS, shift), number]


# Scores and gains with their 95 % confidence intervals, sources above controls.


def forest_chart(run: Run) -> Chart | None:
    """The score of each source and control with its interval, sources in rank order; None without a source."""
    if not run.sources:
        return None
    controls = [item for item in run.controls if item.of is None and _comparable(run, item)]
    at = run.budget
    marks = [
        _score(at, item.name, item.in_table(at).score, item.scored.rank_group if run.comparisons else 0)
        for item in run.sources
    ]
    marks += [_score(at, kind_name(control.kind), control.score.at(at), None) for control in controls]
    references = [name for kind, name in REFERENCES.items() if any(item.kind == kind for item in controls)]
    return forest(
        f"Score ({'ECI_sem' if run.budget == 1 else 'ECI_B'}, nats) with 95 % CI",
        marks,
        [item.score.at(at).nats for item in controls if item.kind in REFERENCES],
        f"Dashed: {listed(references)}." if references else "",
    )


def _comparable(run: Run, control: ControlResult) -> bool:
    return control.score.at(run.budget).budget == run.budget and compares(run, control, run.budget)


def _score(budget: float, name: str, point: BudgetPoint, group: int | None) -> Mark:
    """Return the mark of a score.   budget : the run's.   group : None for a control."""
    ends = () if is_unknown(point.interval_95, budget) else point.interval_95  # too few queries for one
    words = f"{nats(point.nats)}, 95 % CI {shown_interval(point.interval_95, budget=budget)}"
    return Mark(name, point.nats, ends, words, group or 0, group is None)


def gains_chart(probe: Probe | None) -> Chart | None:
    """What training on each source and control changes, in the order of the table; None where nothing was trained."""
    if probe is None or not probe.sources:
        return None
    marks = [_gain(source.name, source) for source in probe.sources]
    marks += [_gain(kind_name(control.name), control, is_control=True) for control in probe.controls]
    return forest("Gain in nDCG@10 with 95 % CI", marks, [0.0], "Dashed: the frozen encoder.")


def _gain(name: str, item: ProbedSource, is_control: bool = False) -> Mark:
    words = gain(item.gain_ndcg10, item.interval_95)
    return Mark(name, item.gain_ndcg10, item.interval_95 or (), words, item.tie or 0, is_control)


# Scores of positives and negatives by source, and the ROC curve that follows from them.

ROW_HEIGHT, GAP = 64.0, 10.0
"""Of a row, and the air above its curves."""
WIDTH, ROC = 70.0, 78.0
"""Percent of the row's width: of the histogram, and where the ROC curve starts."""
NOTE = (
    "Left: cosines to the query of positives (filled) and negatives (line), each as shares. Right: ROC curve, share of "
    "negatives across, of positives up, above a threshold, both from 0 to 1."
)


def separation_chart(items: Sequence[SourceSeparation]) -> Chart:
    """A row a source: both histograms, and its ROC curve."""
    title = "Scores of positives and negatives"
    description = described((item.source, f"AUC {fraction(item.auc)}") for item in items)
    return Chart(
        title=title, description=description, draw=lambda: _draw_separation(items, title, description), note=NOTE
    )


def _draw_separation(items: Sequence[SourceSeparation], title: str, description: str) -> Markup:
    scale = Scale(items[0].low, items[0].high, 0.0, WIDTH)
    values = [(f"{scale(value):.2f}%", f"{value:g}") for value in ticks(scale.low, scale.high)]
    rows = [_row(short(item.source, NAME_CHARACTERS), _curves(item), ROW_HEIGHT) for item in items]
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
        line("0%", ROW_HEIGHT - 0.5, f"{WIDTH}%", ROW_HEIGHT - 0.5, "grid", opacity=0.4),
        line(f"{ROC}%", ROW_HEIGHT, "100%", GAP, "ref", "3 3"),
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
        height=ROW_HEIGHT - GAP,
        viewBox=box,
        preserveAspectRatio="none",
    )
