"""The mean lexical residual of each source next to its score: what the encoder adds to a count of shared words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from secid.analyses.lambda_only import MeanResidual
from secid.pages.glossary import WORDS, score_name, terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import count, fraction, nats, plain, plural, with_interval
from secid.results import Run


def lambda_only_section(run: Run, items: Sequence[MeanResidual]) -> Section:
    """A row a source."""
    own = {item.source: item for item in items}
    scores = {source.name: source.in_table(run.budget).score.nats for source in run.sources}
    rows = tuple(
        (plain(name), with_interval(own[name].residual_mean, own[name].interval_95, fraction), nats(score))
        for name, score in scores.items()
    )
    return Section(
        anchor="lambda-only",
        link="λ alone",
        title="Lexical residual alone",
        paragraphs=_agreement({name: own[name].residual_mean for name in scores}, scores),
        tables=(
            Table(
                caption="Mean λ by source, with 95 % CI",
                columns=(foreign("source"), wrapped("mean λ"), number(score_name(run))),
                rows=rows,
            ),
        ),
        terms=(("λ", WORDS["λ"]), *terms("95 % CI")),
    )


def _agreement(residual: dict[str, float], score: dict[str, float]) -> tuple[str, ...]:
    """How many pairs of sources both numbers order alike; nothing for one source."""
    pairs = list(combinations(score, 2))
    if not pairs:
        return ()
    alike = sum((residual[a] - residual[b]) * (score[a] - score[b]) > 0 for a, b in pairs)
    sentence = (
        f"λ needs no encoder. It orders {count(alike)} of {plural(len(pairs), 'pair')} of sources as the score does; "
        "only where they differ does the encoder change the order."
    )
    return (sentence,)
