"""How much each margin flags, under the target and under a guide."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

from secid.analyses.guide import MARGINS, MarginCurve
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number
from secid.pages.text import percent, plain
from secid.results import Run

CIRCULAR = (
    "The encoder's own margins say how much a filter would remove, not whether that helps: do not judge a filter by "
    "the encoder that filtered."
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


def section(run: Run) -> Section | None:
    """How much margins flag under the target, and under the guide; None for a run without."""
    curves = {source.name: source for source in MARGINS.of(run) or ()}
    if not curves:
        return None
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
