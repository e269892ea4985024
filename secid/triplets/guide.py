"""A guide: a second scorer of the same triplets, which says what the target cannot say of itself.

    sample_of      the triplets that it scores: all, or a seeded sample stratified by the target's s_qn
    guide_scores   their scores: of a second bi-encoder from the rows of the texts needed, of a cross-encoder by pair
    GuideScores    the scores as columns, with the shares that a sample estimates

Worked example: of 100 negatives in two strata of 50, five of each are scored; 4 of the upper and 1 of the lower five
are flagged. The share is (50 * 4/5 + 50 * 1/5) / 100 = 0.5. Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import distinct, pairs
from secid.encode import Encoder, load, smallest_distance
from secid.encode.reranker import Reranker, load_reranker, pair_keys
from secid.errors import UsageError
from secid.measure.blocks import Triplets
from secid.measure.margins import flagged
from secid.measure.sweep import sweep
from secid.pages.glossary import recipe_line
from secid.pool import Plan, sample_order
from secid.progress import Progress
from secid.results import EncoderInfo
from secid.settings import Settings, flag_of, under
from secid.triplets.embedding import Embedder
from secid.triplets.estimates import Estimate, Names, stratified_mean

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]
Guide = Encoder | Reranker

MARGIN = 0.05
"""Relative margin from which a negative is suspect. Source: METHOD 10, NV-Retriever's best."""
STRATA = 10
"""Of a sample, of equal size, by s_qn."""


@dataclass(frozen=True)
class GuideScores:
    """Scores of a guide for the T triplets of a source; NaN for those outside its sample.

    s_query_positive, s_query_negative : (T,).   stratum : (T,) of each triplet, 0 to STRATA - 1.
    """

    s_query_positive: Floats
    s_query_negative: Floats
    stratum: Index

    @property
    def scored(self) -> Flags:
        """(T,) which triplets the guide scored."""
        return ~np.isnan(self.s_query_negative)

    @property
    def is_whole(self) -> bool:
        """Whether it scored all of them."""
        return bool(self.scored.all())

    def suspect(self) -> Flags:
        """(T,) where the guide's relative margin flags the negative; False outside the sample."""
        return np.asarray(flagged(self.s_query_negative, self.s_query_positive, "relative", MARGIN))

    def mean(self, values: Floats, cluster: Index, names: Names, share: Floats | None) -> Estimate:
        """The mean of a column over all triplets, as its sample estimates it. values: (T,); read where scored."""
        return stratified_mean(values, self.scored, self.stratum, cluster, names, share)

    def rows(self, keep: Index) -> GuideScores:
        """Those of some triplets. keep: rising places."""
        return GuideScores(*(column[keep] for column in vars(self).values()))


def load_guide(settings: Settings, target: Encoder, progress: Progress) -> Guide | None:
    """The guide that the settings name, by its own recipe; None for none.

    Raises UsageError where it is the target itself, or where the settings exclude each other.
    """
    name, reranker = settings.guide, settings.guide_reranker
    if name is not None and reranker is not None:
        raise UsageError(f"cannot be combined with {flag_of('guide')}", where=flag_of("guide_reranker"))
    if name is None and reranker is None:
        if settings.guide_sample is not None:
            remedy = f"name a guide by {flag_of('guide', 'NAME')} or {flag_of('guide_reranker', 'NAME')}"
            raise UsageError("has no effect without a guide", where=flag_of("guide_sample"), remedy=remedy)
        return None
    progress.start(f"load {name or reranker}", None, "")
    if reranker is not None:
        return load_reranker(reranker, settings)
    guide = load(under(settings, name), progress)
    if _identity(guide.info) == _identity(target.info):
        raise UsageError(
            "is the encoder that is scored: by its own scores it cannot say which of its errors are false negatives",
            where=flag_of("guide"),
            remedy="name another encoder, or a reranker",
        )
    for line in (recipe_line(guide.info), *guide.info.notes):
        progress.note(f"guide: {line}")
    return guide


def _identity(info: EncoderInfo) -> str:
    return info.fingerprint or info.name


def sample_of(plan: Plan, rows: Triplets, s_query_negative: Floats, size: int | None, seed: int) -> tuple[Index, Index]:
    """Rising places of the triplets that a guide scores, and the stratum of every triplet, (T,).

    Strata are tenths of the triplets by s_qn, each with as many places; the draw goes by the text keys of query and
    negative and the seed, so by no order of files or rows. All places and one stratum where there are no more than
    `size` triplets. Source: METHOD 8, 10.
    """
    n = len(rows)
    if size is None or size >= n:
        return np.arange(n), np.zeros(n, np.int64)
    keys = plan.queries.keys[rows.query] ^ plan.passages.keys[rows.negative][:, ::-1]
    priority = sample_order(keys, seed)
    rank = np.empty(n, np.int64)
    rank[np.lexsort((priority, s_query_negative))] = np.arange(n)
    stratum = rank * STRATA // n
    order = np.lexsort((priority, stratum))
    first = np.searchsorted(stratum[order], np.arange(STRATA))
    wanted = (np.arange(1, STRATA + 1) * size) // STRATA - (np.arange(STRATA) * size) // STRATA
    place = np.arange(n) - first[stratum[order]]
    return np.sort(order[place < wanted[stratum[order]]]), stratum


def guide_scores(
    plan: Plan,
    sources: Sequence[tuple[Triplets, Floats]],
    guide: Guide,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[GuideScores]:
    """The guide's scores of each source. sources: its triplets, and the target's s_qn of them.

    folder : an empty folder for rows.   counts : takes what the guide cost.   Each text, or pair of a reranker, is
    scored once for all sources. Source: METHOD 10.
    """
    samples = [sample_of(plan, rows, near, settings.guide_sample, settings.seed) for rows, near in sources]
    asked = [rows.take(keep) for (rows, _), (keep, _) in zip(sources, samples, strict=True)]
    by = _by_pair if isinstance(guide, Reranker) else _by_rows
    scores = by(plan, asked, guide, settings, folder, progress, counts)  # type: ignore[arg-type]
    columns = []
    for (rows, _), (keep, stratum), values in zip(sources, samples, scores, strict=True):
        both = np.full((2, len(rows)), np.nan)
        both[:, keep] = values
        columns.append(GuideScores(both[0], both[1], stratum))
    return columns


def _by_rows(
    plan: Plan,
    asked: Sequence[Triplets],
    guide: Encoder,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[tuple[Floats, Floats]]:
    """Cosines of a bi-encoder, by the pass that measures the target's. Only the texts needed have rows."""
    queries = distinct(np.concatenate([rows.query for rows in asked]))
    passages = distinct(np.concatenate([ids for rows in asked for ids in (rows.positive, rows.negative)]))
    texts = plan.queries.only(queries), plan.passages.only(passages)
    folder.mkdir()
    embedder = Embedder(*texts, guide, under(settings, settings.guide), folder, progress)
    try:
        embedder.everything()
        counts.update(embedder.counts)
        scores = []
        for rows in asked:
            own = replace(
                rows,
                query=np.searchsorted(queries, rows.query),
                positive=np.searchsorted(passages, rows.positive),
                negative=np.searchsorted(passages, rows.negative),
            )
            dots = sweep(embedder.vectors, own, {}, (), smallest_distance(guide)).dots
            scores.append((dots.query_positive.numpy(), dots.query_negative.numpy()))
        return scores
    finally:
        embedder.close()
        for store in texts:
            store.close()


def _by_pair(
    plan: Plan,
    asked: Sequence[Triplets],
    guide: Reranker,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[tuple[Floats, Floats]]:
    """Scores of a cross-encoder, each pair of texts once."""
    n_passages = len(plan.passages)
    codes = [np.stack([pairs(rows.query, ids, n_passages) for ids in (rows.positive, rows.negative)]) for rows in asked]
    every = distinct(np.concatenate([part.ravel() for part in codes]))
    query, passage = every // n_passages, every % n_passages
    progress.start("guide", len(every), "pairs")

    def texts(places: Index) -> list[tuple[str, str]]:
        return list(zip(plan.queries.take(query[places]), plan.passages.take(passage[places]), strict=True))

    keys = pair_keys(plan.queries.keys[query], plan.passages.keys[passage])
    scores = guide.scores(keys, texts, progress.advance)
    counts.update(n_pairs=len(every), n_cached=guide.n_cached, n_scored=guide.n_scored)
    return [tuple(scores[np.searchsorted(every, part)]) for part in codes]
