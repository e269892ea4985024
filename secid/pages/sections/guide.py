"""What a guide suspects and what that is worth, and what margins would flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isclose

from secid.analyses.guide import GUIDE, GuideResult, GuideSource, MarginCurve, SourceMargins
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import code, count, fraction, listed, named, nats, percent, plain, shown_interval, with_interval
from secid.results import Run

READ_SOME = (
    "Not every suspect is relevant: read some, or measure the guide against labels "
    f"({code('secid audit --guide NAME')})."
)


def suspects_sentences(guide: GuideResult) -> list[str]:
    """The suspects of the sources for which they are evidence, and where they are none, why: two sentences at most."""
    the_guide, evidence = f"The guide {named(guide.encoder.name)}", [own for own in guide.sources if own.is_evidence]
    blind = [own for own in guide.sources if own.is_blind]
    if all(own.repeats_target for own in guide.sources):
        return [f"{the_guide} orders all negatives as the encoder does: it is no second opinion."]
    if all(own.random_share is None for own in guide.sources):
        return [f"{the_guide} had no random passages to be measured on, so its suspects are no evidence."]
    if not evidence and not blind:
        random = f"not significantly more than of random passages ({_of_random(guide.sources)})"
        return [f"{the_guide} suspects {_range(guide.sources)}: {random}."]
    sentences = []
    if evidence:
        random = f"against {_of_random(evidence)} of random passages"
        sentences.append(f"{the_guide} suspects {_range(evidence)}, {random}.")
    if len(blind) == len(guide.sources):
        sentences.append(f"{the_guide} flags {_of_random(blind)} of random passages too: do not filter by it.")
    elif blind:
        which, by = listed([named(own.name) for own in blind]), "it" if evidence else the_guide.replace("The", "the", 1)
        sentences.append(f"Do not filter {which} by {by}: there it flags {_of_random(blind)} of random passages too.")
    return sentences


def _range(sources: Sequence[GuideSource]) -> str:
    """Which source has the fewest suspects and which the most."""
    shares = sorted((source.suspect_share, source.name) for source in sources)
    (least, fewest), (most, highest) = shares[0], shares[-1]
    if percent(least) == percent(most):
        which = f" of {named(highest)}" if len(shares) == 1 else ""
        return f"{percent(most)} of the negatives{which}"
    return f"{percent(least)} ({named(fewest)}) to {percent(most)} ({named(highest)}) of the negatives"


def _of_random(sources: Sequence[GuideSource]) -> str:
    shares = [source.random_share for source in sources if source.random_share is not None]
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def trusted(run: Run) -> Run:
    """The run without the finding `suspect` in sources where the guide's flags are no evidence."""
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
    """What the guide says of each source."""
    scores = {source.name: source.scored for source in run.sources}
    by_name = {source.name: source for source in guide.sources}
    rows = tuple(
        (
            plain(name),
            *_cells(by_name[name]),
            f"{nats(score.nats)}\n({shown_interval(score.interval_95)})",
        )
        + ((_without(by_name[name]),) if not guide.is_sampled else ())
        for name, score in scores.items()
        if name in by_name
    )
    heads = [number("negatives"), wrapped("suspects"), wrapped("of random passages")]
    heads += [number("agreement"), number("rank correlation")]
    heads.append(wrapped("ECI_sem (nats)"))
    if not guide.is_sampled:
        heads.append(wrapped("without suspects (nats)"))
    is_evidence = any(own.is_evidence for own in guide.sources)
    what = "a sample of the negatives" if guide.is_sampled else "the same negatives"
    whose = f"{named(guide.encoder.name)} scored {what}."
    return Section(
        anchor="guide",
        link="Guide",
        title="What the guide suspects",
        paragraphs=(" ".join(suspects_sentences(guide)), f"{whose} {READ_SOME}" if is_evidence else whose),
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


# How much each margin flags, under the target and under a guide.

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


def margins_section(run: Run, margins: Sequence[SourceMargins]) -> Section:
    """How much margins flag under the target, and under the guide."""
    curves = {source.name: source for source in margins}
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
