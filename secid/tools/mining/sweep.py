"""Count the negatives of dense sources with other margins and windows of ranks, in one search. Nothing is written.

A margin that suits one encoder does not suit another. This table helps to choose one.
Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from secid.arrays import Floats, Index
from secid.measure.blocks import Triplets
from secid.progress import Progress
from secid.results.catalogue import NEAR_HARDNESS
from secid.results.mine import Suspects, Sweep, Swept, SweptSource
from secid.scoring.encoders import load_guide
from secid.settings import Settings
from secid.tools.mining.choose import Picks
from secid.tools.mining.find import find_negatives, options_of, score_means
from secid.tools.mining.methods import Dense, Method, Miner, MiningPlan, Random
from secid.tools.mining.mine import LoadEncoder, run_fields
from secid.tools.mining.questions import Questions
from secid.triplets.estimates import comparable_keys, wilson_interval
from secid.triplets.guide import GuideScores, guide_scores, sample_of

SWEEP_MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
SWEEP_WINDOWS = ((11, 50), (51, 100))
"""Windows of ranks in addition to the source's own and 1 to K."""
SWEEP_SAMPLE = 300
"""Number of negatives of each variant that a guide scores. A share of 10 % then has a standard error of 1.7 points."""


def swept_methods(miner: Miner, k: int) -> list[Miner]:
    """Return the variants of a dense source by window and relative margin, without repeats.

    They have the source's maximum and pick. The relative margin replaces its own margins.
    """
    dense, methods = miner.method, dict[tuple[tuple[int, int], float], Dense]()
    if isinstance(dense, Dense):
        for ranks in (miner.window, (1, k), *SWEEP_WINDOWS):
            for relative in SWEEP_MARGINS:
                methods[ranks, relative] = replace(dense, ranks=ranks, relative=relative, absolute=None)
    return [Miner(miner.name, miner.text, method) for method in methods.values()]


def sweep_all(
    plan: MiningPlan, questions: Questions, load: LoadEncoder, settings: Settings, work: Path, progress: Progress
) -> Sweep:
    """Search the negatives of all variants of all dense sources, of which there is at least one. Raises SecidError.

    load : as in `mine_sources`.   work : an empty folder for temporary files.
    """
    dense = [miner for miner in plan.miners if isinstance(miner.method, Dense)]
    grids = [swept_methods(miner, plan.k) for miner in dense]
    at_random = Miner("random", "random", Random())
    # A method that several sources share is searched once.
    every = tuple({each.method: each for each in (*dense, *chain(*grids), at_random)}.values())
    encoder, info = load()
    guide = load_guide(settings, encoder, progress)
    lists = find_negatives(
        replace(plan, miners=every, on_short="keep"), questions, {}, encoder, settings, work, progress
    )
    guided: Sequence[Suspects | None] = [None] * len(every)
    size = settings.guide_sample or SWEEP_SAMPLE
    if guide is not None:
        rows = [_triplets(questions, lists.positive, picks) for picks in lists.picks]
        near = [s_qn[picks.ids >= 0] for picks, s_qn in zip(lists.picks, lists.s_qn, strict=True)]
        sampled, sets = replace(settings, guide_sample=size), list(zip(rows, near, strict=True))
        # The random row's own sample sets the lower end of the guide's scale, so it costs nothing further.
        random_triplets, s_random = sets[[miner.method for miner in every].index(at_random.method)]
        drawn = random_triplets.take(sample_of(questions, random_triplets, s_random, size, settings.seed)[0])
        scores = guide_scores(questions, sets, guide, sampled, work / "guide", progress, {}, [drawn])
        guided = [_suspects(questions, triplets, each) for triplets, each in zip(rows, scores, strict=True)]
    swept = {
        miner.method: _swept(miner.method, picks, s_qn, lists.s_first, plan.k, settings.temperature, suspects)
        for miner, picks, s_qn, suspects in zip(every, lists.picks, lists.s_qn, guided, strict=True)
    }
    sources = tuple(
        SweptSource(name=miner.name, own=swept[miner.method], variants=tuple(swept[each.method] for each in variants))
        for miner, variants in zip(dense, grids, strict=True)
    )
    return Sweep(
        **run_fields(plan, questions, settings),
        encoder=info,
        guide=None if guide is None else guide.info,
        guide_min_hardness=NEAR_HARDNESS,
        guide_sample=size,
        random=swept[at_random.method],
        sources=sources,
        unswept=tuple(miner.name for miner in plan.miners if miner not in dense),
    )


def _triplets(questions: Questions, positive: Index, picks: Picks) -> Triplets:
    """Return triplets of each negative. positive: (R,) positive of each row."""
    counts = picks.counts
    filled = np.flatnonzero(counts)
    return Triplets(
        query=np.repeat(questions.query, counts),
        positive=np.repeat(positive, counts),
        negative=picks.ids[picks.ids >= 0].astype(np.int64),
        record_offsets=np.concatenate([[0], np.cumsum(counts[filled])]),
        record=np.repeat(np.arange(len(counts)), counts),
        place=np.arange(int(counts.sum())),
    )


def _suspects(questions: Questions, rows: Triplets, guide: GuideScores) -> Suspects | None:
    """Return the number of negatives that the guide scored and the share that it suspects; None without negatives."""
    if not len(rows):
        return None
    queries, cluster = np.unique(rows.query, return_inverse=True)
    flags = guide.suspect().astype(np.float64)
    estimate = guide.mean(flags, cluster, comparable_keys(questions.queries.keys[queries]), None)
    return Suspects(n_scored=int(guide.scored.sum()), share=estimate.value, interval_95=wilson_interval(estimate))


def _swept(
    method: Method, picks: Picks, s_qn: Floats, s_first: Floats, k: int, temperature: float, suspects: Suspects | None
) -> Swept:
    counts = picks.counts
    n = int(counts.sum())
    return Swept(
        method=options_of(method),
        n_negatives=n,
        n_short=int((counts < k).sum()),
        n_lacking=k * len(counts) - n,
        n_missing=int((counts == 0).sum()),
        **score_means(s_qn, s_first, picks.ids >= 0, temperature),
        suspects=suspects,
    )
