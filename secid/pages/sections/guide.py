"""What a guide suspects, and how much each margin flags."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

from secid.pages.glossary import terms
from secid.pages.numbers import count, fraction, interval, nats, percent, with_interval
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.sanitize import named, plain
from secid.results import Run
from secid.results.guide import GuideResult, GuideSource, MarginCurve

CIRCULAR = (
    "The encoder's own margins say how much a filter would remove, not whether that helps: an encoder cannot judge its "
    "own filter."
)
SHOWN = (
    ("relative", 0.0),
    ("relative", 0.05),
    ("relative", 0.1),
    ("absolute", 0.05),
    ("absolute", 0.1),
    ("maximum", 0.8),
)
"""Values of the table; the curves have more."""


def suspects_sentence(guide: GuideResult) -> str:
    """Which source has the fewest suspects and which the most."""
    shares = sorted((source.suspect_share, source.name) for source in guide.sources)
    (least, fewest), (most, highest) = shares[0], shares[-1]
    by, what = f"By the guide {named(guide.encoder.name)},", "suspected false negatives"
    if percent(least) == percent(most):
        whose = f"the negatives of {named(highest)}" if len(shares) == 1 else "each source's negatives"
        return f"{by} {percent(most)} of {whose} are {what}."
    ends = f"{percent(least)} ({named(fewest)}) to {percent(most)} ({named(highest)})"
    return f"{by} {ends} of the negatives are {what}."


def guide_section(run: Run) -> Section | None:
    """What the guide says of each source; None without one."""
    if run.guide is None:
        return None
    scores = {source.name: source for source in run.sources}
    by_name = {source.name: source for source in run.guide.sources}
    rows = tuple(
        (plain(name), *_cells(by_name[name]), f"{nats(scores[name].eci_nats)}\n({interval(scores[name].interval_95)})")
        + ((_without(by_name[name]),) if not run.guide.is_sampled else ())
        for name in scores
        if name in by_name
    )
    heads = [number("negatives"), wrapped("suspects"), number("agreement"), number("rank correlation")]
    heads.append(wrapped("ECI_sem (nats)"))
    if not run.guide.is_sampled:
        heads.append(wrapped("without suspects (nats)"))
    what = "a sample of the negatives" if run.guide.is_sampled else "the same negatives"
    whose = f"{named(run.guide.encoder.name)} scored {what}."
    limit = "How many of its suspects are relevant depends on the guide: only labels or a reader can tell."
    return Section(
        anchor="guide",
        link="Guide",
        title="What the guide suspects",
        paragraphs=(f"{whose} {limit}",),
        tables=(Table(caption="Sources by the guide", columns=(foreign("source"), *heads), rows=rows),),
        terms=terms("negatives", "suspects", "agreement", "rank correlation", "ECI_sem", "95 % CI"),
    )


def _cells(source: GuideSource) -> tuple[str, ...]:
    return (
        count(source.n_scored),
        with_interval(source.suspect_share, source.interval_95, percent),
        percent(source.agreement),
        fraction(source.rank_correlation, 2),
    )


def _without(source: GuideSource) -> str:
    rest = source.without_suspects
    if rest is None or rest.eci_nats is None or rest.interval_95 is None:
        return "–"
    return f"{nats(rest.eci_nats)}\n({interval(rest.interval_95)})"


def margins_section(run: Run) -> Section | None:
    """How much margins flag under the target, and under the guide; None for an older report."""
    if not run.margins:
        return None
    curves = {source.name: source for source in run.margins}
    rows = []
    for source in run.sources:
        own = curves[source.name]
        rows.append((plain(source.name), *_shares(own.target)))
        if own.guide:
            rows.append((f"{plain(source.name)}, by the guide", *_shares(own.guide)))
    columns = (foreign("source"), *(number(_head(kind, value)) for kind, value in SHOWN))
    return Section(
        anchor="margins",
        link="Margins",
        title="What a margin would flag",
        paragraphs=(CIRCULAR,),
        tables=(Table(caption="Share of the negatives by margin", columns=columns, rows=tuple(rows)),),
        terms=terms("relative margin", "absolute margin", "maximum"),
    )


def _head(kind: str, value: float) -> str:
    return f"{kind} {percent(value) if kind == 'relative' else f'{value:g}'}"


def _shares(curves: Sequence[MarginCurve]) -> tuple[str, ...]:
    """Of the values shown; a dash where a guide's scores have another range."""
    known = {curve.kind: curve for curve in curves}
    cells = []
    for kind, value in SHOWN:
        curve = next(known[each] for each in known if each == kind)
        shares = [
            share for at, share in zip(curve.values, curve.shares, strict=True) if isclose(at, value, abs_tol=1e-9)
        ]
        cells.append(percent(shares[0]) if shares else "–")
    return tuple(cells)
