"""Compare the mean gates of each source with those of random passages and known positives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from secid.analyses.profile import FACTORS, GapToRandom, GateProfile, Mean, Profiles
from secid.pages.glossary import kind_name, terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import UNKNOWN_INTERVAL, count, fraction, named, percent, plain, plural, signed, with_interval
from secid.results import Run


def profile_section(run: Run, found: Profiles) -> Section:
    """Show the mean gates of each source, and the parts of its gap to random passages."""
    profiles = [(plain(own.source), own) for own in found.sources]
    profiles += [(kind_name(own.source), own) for own in found.controls.values()]
    means = Table(
        caption="Mean gates with 95 % CI",
        columns=(foreign("source"), *map(wrapped, (*FACTORS, "weight")), number("queries")),
        rows=tuple(
            (name, *(_mean(getattr(own, gate)) for gate in (*FACTORS, "weight")), count(own.n_queries))
            for name, own in profiles
        ),
    )
    gaps = Table(
        caption="Mean weight minus that of random passages, and each gate's part of it",
        columns=(foreign("source"), *map(wrapped, ("gap", *FACTORS)), number("queries")),
        rows=tuple(
            (
                plain(own.source),
                *(_gap(part) for part in (own.gap.weight, *(getattr(own.gap, gate) for gate in FACTORS))),
                count(own.gap.n_queries),
            )
            for own in found.sources
            if own.gap is not None
        ),
    )
    return Section(
        anchor="profile",
        link="Gates",
        title="Gate profile",
        paragraphs=(*log_det_lines(run), *_residual_alone(run, found.sources)),
        bullets=tuple(gap_lines(found)),
        tables=(means, gaps) if gaps.rows else (means,),
        terms=terms("π", "ρ", "λ", "weight", "gap to random", "95 % CI"),
    )


def gap_lines(found: Profiles) -> list[str]:
    """Return a sentence about each source: how far its mean weight is from that of random passages, and why."""
    return [_gap_line(own.source, own.gap) for own in found.sources if own.gap is not None]


def _gap_line(name: str, gap: GapToRandom) -> str:
    value, ends = gap.weight.value, gap.weight.interval_95
    if ends is None or ends[0] <= 0 <= ends[1]:
        return f"{named(name)}: not significantly different from random passages."
    gate = max(FACTORS, key=lambda name: getattr(gap, name).value / value)
    where = f"mean weight {fraction(abs(value))} {'higher' if value > 0 else 'lower'} than random passages"
    return f"{named(name)}: {where}, mostly because of {gate} ({signed(getattr(gap, gate).value)})."


def log_det_lines(run: Run) -> list[str]:
    """Return a sentence on how far the score is below the mean weight."""
    shares = [source.scored.diversity_fraction for source in run.sources]
    low, high = percent(min(shares)), percent(max(shares))
    span = low if low == high else f"{low} to {high}"
    return [f"At B = 1 the score is the mean weight minus {span} of it, which the log-det takes off."]


def _residual_alone(run: Run, sources: Sequence[GateProfile]) -> list[str]:
    """Return a sentence on how many pairs of sources have the same order by mean residual as by score."""
    residual = {own.source: own.residual.value for own in sources}
    score = {source.name: source.in_table(run.budget).score.nats for source in run.sources if source.name in residual}
    pairs = list(combinations(score, 2))
    if not pairs:
        return []
    alike = sum((residual[a] - residual[b]) * (score[a] - score[b]) > 0 for a, b in pairs)
    n_pairs = plural(len(pairs), "pair")
    return [f"The mean residual needs no encoder. It orders {count(alike)} of {n_pairs} of sources as the score does."]


def _mean(mean: Mean) -> str:
    return with_interval(mean.value, mean.interval_95, fraction)


def _gap(mean: Mean) -> str:
    if mean.interval_95 is None:
        return f"{signed(mean.value)}\n({UNKNOWN_INTERVAL})"
    return with_interval(mean.value, mean.interval_95, signed)
