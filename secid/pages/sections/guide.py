"""Show the suspects of a guide, how reliable they are, and the negatives that margins would flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isclose

from secid.analyses.guide import GUIDE, GuideResult, GuideSource, MarginCurve, SourceMargins
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import (
    NO_BREAK_SPACE,
    code,
    count,
    fraction,
    listed,
    named,
    nats,
    percent,
    plain,
    shown_interval,
    with_interval,
)
from secid.results import Run
from secid.results.catalogue import FINDINGS

SUSPECT_LIMIT = FINDINGS["suspect"].limit or 0.0
SUSPECT_SENTENCES = {
    "evidence": "",
    "level": " Here suspects are not significantly more frequent than among random passages, so they are not evidence.",
    "blind": f" Above {100 * SUSPECT_LIMIT:g}{NO_BREAK_SPACE}% of random passages, do not filter with this guide.",
}
"""Sentence on the reliability of suspects, by how often the guide flags random passages."""
READ_SUSPECTS_ADVICE = (
    "Not every suspect is relevant. Read some of them, or measure the guide against labels "
    f"({code('secid audit --guide NAME')})."
)


def suspects_sentences(guide: GuideResult) -> list[str]:
    """Return sentences on the sources whose suspects are evidence, and on why the others' are not."""
    name = named(guide.encoder.name)
    if all(item.repeats_target for item in guide.sources):
        return [f"The guide {name} orders all negatives as the encoder does, so it is not a second opinion."]
    if all(item.random_share is None for item in guide.sources):
        return [f"The guide {name} scored no random passages, so its suspects are not evidence."]
    groups: dict[str, list[str]] = {}
    for item in guide.sources:
        kind = "evidence" if item.is_evidence else "blind" if item.is_blind else "level"
        shares = f"{percent(item.suspect_share)}, {percent(item.random_share)}"
        groups.setdefault(kind, []).append(f"{named(item.name)} ({shares})")
    first = f"Share of suspects by the guide {name}, and of random passages that it flags"
    return [f"{first}: {listed(groups[kind])}.{says}" for kind, says in SUSPECT_SENTENCES.items() if kind in groups]


def guide_sentence(_: Run, guide: GuideResult) -> str:
    return " ".join(suspects_sentences(guide))


def trusted(run: Run) -> Run:
    """Return the run without the finding `suspect` in sources where the guide is not reliable."""
    guide = GUIDE.of(run)
    if guide is None:
        return run
    evidence = {source.name for source in guide.sources if source.is_evidence}
    sources = tuple(
        source
        if source.name in evidence
        else replace(source, findings=tuple(item for item in source.findings if item.name != "suspect"))
        for source in run.sources
    )
    return replace(run, sources=sources)


def guide_section(run: Run, guide: GuideResult) -> Section:
    scores = {source.name: source.scored for source in run.sources}
    by_name = {source.name: source for source in guide.sources}
    rows = tuple(
        (plain(name), *_cells(by_name[name]), f"{nats(score.nats)}\n({shown_interval(score.interval_95)})")
        + ((_without(by_name[name]),) if not guide.is_sampled else ())
        for name, score in scores.items()
        if name in by_name
    )
    heads = [number("negatives"), wrapped("suspects"), wrapped("of random passages")]
    heads += [number("agreement"), number("rank correlation")]
    heads.append(wrapped("ECI_sem (nats)"))
    if not guide.is_sampled:
        heads.append(wrapped("without suspects (nats)"))
    is_evidence = any(item.is_evidence for item in guide.sources)
    what = "a sample of the negatives" if guide.is_sampled else "the same negatives"
    whose = f"{named(guide.encoder.name)} scored {what}."
    return Section(
        anchor="guide",
        title="What the guide suspects",
        paragraphs=(" ".join(suspects_sentences(guide)), f"{whose} {READ_SUSPECTS_ADVICE}" if is_evidence else whose),
        tables=(Table(caption="Suspects by source", columns=(foreign("source"), *heads), rows=rows),),
        terms=terms(
            "negatives", "suspects", "of random passages", "agreement", "rank correlation", "ECI_sem", "95 % CI"
        ),
    )


def _cells(source: GuideSource) -> tuple[str, ...]:
    return (
        count(source.n_scored),
        with_interval(source.suspect_share, source.interval_95, percent),
        with_interval(source.random_share, source.random_interval_95, percent),
        percent(source.agreement),
        fraction(source.rank_correlation, 2),
    )


def _without(source: GuideSource) -> str:
    rest = source.without_suspects
    if rest is None or rest.eci_nats is None or rest.interval_95 is None:
        return "–"
    return f"{nats(rest.eci_nats)}\n({shown_interval(rest.interval_95)})"


# The share of negatives that each margin flags, by the encoder and by the guide.

CIRCULAR_FILTER_CAUTION = (
    "The encoder's own margins show how much a filter would remove, not whether this helps. Do not judge a filter with "
    "the encoder that it uses."
)
SHOWN_MARGINS = (
    ("relative", 0.0),
    ("relative", 0.05),
    ("relative", 0.1),
    ("absolute", 0.05),
    ("absolute", 0.1),
    ("maximum", 0.8),
)
"""Margins in the table; the curves in report.json have more."""


def margins_section(run: Run, margins: Sequence[SourceMargins]) -> Section:
    """Show the share of negatives that margins flag, by the encoder and by the guide."""
    curves = {source.name: source for source in margins}
    rows = []
    for source in run.sources:
        curve = curves[source.name]
        rows.append((plain(source.name), *_shares(curve.target)))
        if curve.guide:
            rows.append((f"{plain(source.name)}, by the guide", *_shares(curve.guide)))
    columns = (foreign("source"), *(number(_head(kind, value)) for kind, value in SHOWN_MARGINS))
    return Section(
        anchor="margins",
        title="What a margin would flag",
        paragraphs=(CIRCULAR_FILTER_CAUTION,),
        tables=(Table(caption="Share of the negatives by margin", columns=columns, rows=tuple(rows)),),
        terms=terms("relative margin", "absolute margin", "maximum"),
    )


def _head(kind: str, value: float) -> str:
    return f"{kind} {percent(value) if kind == 'relative' else f'{value:g}'}"


def _shares(curves: Sequence[MarginCurve]) -> tuple[str, ...]:
    """Format the share for each margin in the table; "–" if the guide's scores have another range."""
    known = {curve.kind: curve for curve in curves}
    cells = []
    for kind, value in SHOWN_MARGINS:
        curve = next(known[each] for each in known if each == kind)
        shares = [
            share for at, share in zip(curve.values, curve.shares, strict=True) if isclose(at, value, abs_tol=1e-9)
        ]
        cells.append(percent(shares[0]) if shares else "–")
    return tuple(cells)
