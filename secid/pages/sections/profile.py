"""Compare the mean gates of each source with those of random passages and known positives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from secid.analyses.profile import FACTORS, GateProfile, Mean, Profiles
from secid.pages.glossary import kind_name, terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import UNKNOWN_HALF_WIDTH, count, fraction, plain, plural, signed, span, with_interval
from secid.results import Run


def profile_section(run: Run, result: Profiles) -> Section:
    """Show the mean gates of each source and of the controls. `profile_gaps` has the gaps to random passages."""
    profiles = [(plain(profile.source), profile) for profile in result.sources]
    profiles += [(kind_name(profile.source), profile) for profile in result.controls.values()]
    means = Table(
        caption="Mean gates with 95 % CI",
        columns=(foreign("source"), *map(wrapped, (*FACTORS, "weight")), number("queries")),
        rows=tuple(
            (
                name,
                *(
                    with_interval(mean.value, mean.interval_95, fraction)
                    for mean in (profile.consistency, profile.locality, profile.residual, profile.weight)
                ),
                count(profile.n_queries),
            )
            for name, profile in profiles
        ),
    )
    share = span([source.scored.diversity_fraction for source in run.sources])
    log_det = f"At B = 1 the score is the mean weight minus {share} of it, which the log-det takes off."
    return Section(
        anchor="profile",
        title="Gate profile",
        paragraphs=(log_det, *_residual_alone(run, result.sources)),
        tables=(means,),
        terms=terms(*FACTORS, "weight", "gap to random", "95 % CI"),
    )


def profile_gaps(_: Run, result: Profiles) -> Table | None:
    """Return a row for each source: how far its mean weight is from that of random passages, and each gate's part.

    The parts add up to the difference. None if no source has a gap.
    """
    rows = tuple(
        (
            plain(profile.source),
            _half(profile.gap.weight),
            *(signed(getattr(profile.gap, gate).value) for gate in FACTORS),
        )
        for profile in result.sources
        if profile.gap is not None
    )
    columns = (foreign("source"), *map(number, ("gap to random", *FACTORS)))
    caption = "Mean weight (product of the gates) minus that of random passages, by gate"
    return Table(caption=caption, columns=columns, rows=rows) if rows else None


def _half(mean: Mean) -> str:
    ends = mean.interval_95
    return f"{signed(mean.value)} {UNKNOWN_HALF_WIDTH if ends is None else f'±{fraction((ends[1] - ends[0]) / 2)}'}"


def _residual_alone(run: Run, sources: Sequence[GateProfile]) -> list[str]:
    """Return a sentence on how many pairs of sources have the same order by mean residual as by score."""
    residual = {profile.source: profile.residual.value for profile in sources}
    score = {source.name: source.in_table(run.budget).score.nats for source in run.sources if source.name in residual}
    pairs = list(combinations(score, 2))
    if not pairs:
        return []
    alike = sum((residual[a] - residual[b]) * (score[a] - score[b]) > 0 for a, b in pairs)
    n_pairs = plural(len(pairs), "pair")
    return [f"The mean residual needs no encoder. It orders {count(alike)} of {n_pairs} of sources as the score does."]
