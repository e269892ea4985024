"""Probes with made-up numbers: one in full, and the same with another verdict."""

from __future__ import annotations

from dataclasses import replace

from secid.results.probe import Gap, Means, Probe, ProbedPair, ProbedSource, Rate
from tests.unit.pages.samples import golden

FROZEN = Means(ndcg_10=0.4211, mrr_10=0.4019, recall_100=0.8123)
GAINS = {"dense": 0.0312, "bm25": 0.0190, "mixed": 0.0188}


def gap(value: float, half: float | None = 0.006, p: float = 0.01) -> Gap:
    return Gap(
        value=value,
        standard_error=0.003,
        error_queries=0.0025,
        error_runs=None if half is None else 0.0015,
        interval_95=None if half is None else (value - half, value + half),
        p=None if half is None else p,
    )


def source(name: str, value: float, tie: int | None, random: float | None = 0.0105) -> ProbedSource:
    return ProbedSource(
        name=name,
        n_negatives=3600,
        n_seeds=3,
        trained=Means(ndcg_10=FROZEN.ndcg_10 + value, mrr_10=0.41, recall_100=0.82),
        gain_ndcg10=value,
        interval_95=(value - 0.006, value + 0.006),
        standard_error=0.003,
        error_queries=0.0025,
        error_runs=0.0015,
        p=0.001,
        vs_random=None if random is None else gap(value - random),
        tie=tie,
    )


def pair(first: str, second: str, value: float, *, established: bool) -> ProbedPair:
    return ProbedPair(
        first=first, second=second, gap=gap(value), p_holm=0.004 if established else 0.9, established=established
    )


def probe(names: tuple[str, ...] = tuple(GAINS), ties: tuple[int, ...] = (1, 2, 2)) -> Probe:
    """dense is significantly best of three; other names and ties where given."""
    gains = dict(zip(names, GAINS.values(), strict=True))
    tie = dict(zip(names, ties, strict=True))
    run = golden()
    return Probe(
        schema_version="1.0",
        secid_version="0.1.0",
        encoder=run.encoder,
        files={file.path: file for source in run.sources for file in source.files},
        collection=None,
        trainable="full",
        steps=100,
        batch=32,
        n_seeds=3,
        n_folds=3,
        seed=0,
        temperature=0.05,
        precision="float32",
        rates=(Rate(rate=5e-5, gain=0.021, used=True), Rate(rate=1.25e-5, gain=0.011, used=False)),
        n_queries=720,
        n_held_out=500,
        n_left_out=14,
        n_groups=655,
        effective_groups=480.2,
        n_candidates=6267,
        candidate_depth=None,
        frozen=FROZEN,
        sources=tuple(source(name, value, tie[name]) for name, value in gains.items()),
        controls=(source("random", 0.0105, None, None),),
        pairs=tuple(
            pair(a, b, gains[a] - gains[b], established=tie[a] != tie[b])
            for place, a in enumerate(names)
            for b in names[place + 1 :]
        ),
        not_evaluated={"known_positive": "few_second_positives"},
        timing={},
    )


def untrained(reason: str = "few_queries") -> Probe:
    """A probe that trained on nothing."""
    return replace(
        probe(), precision=None, rates=(), n_queries=66, n_held_out=66, n_left_out=0, n_groups=66,
        effective_groups=66.0, n_candidates=0, frozen=None, sources=(), controls=(), pairs=(),
        not_evaluated={"sources": reason},
    )  # fmt: skip


def without_gain(names: tuple[str, ...] = tuple(GAINS), ties: tuple[int, ...] = (1, 2, 2)) -> Probe:
    """A probe in which no source is better than the frozen encoder."""
    return replace(probe(names, ties), not_evaluated={"sources": "no_gain"})


def of_one_seed() -> Probe:
    """A probe that trained, and established nothing."""
    whole = probe()
    sources = tuple(replace(item, tie=None, interval_95=None) for item in whole.sources)
    return replace(whole, n_seeds=1, sources=sources, pairs=(), not_evaluated={"sources": "one_seed"})


def known_positive_first() -> Probe:
    whole = probe()
    return replace(whole, controls=(source("known_positive", 0.05, None, 0.0105), *whole.controls), not_evaluated={})


def below_random() -> Probe:
    whole = probe()
    sources = tuple(replace(item, vs_random=gap(0.004)) for item in whole.sources)
    return replace(whole, sources=sources, controls=(source("random", 0.02, None, None),))


def joined_by_a_third() -> Probe:
    """The last is significantly below the first; the one between is tied with both, so all share a letter."""
    whole = probe(ties=(1, 1, 1))
    pairs = tuple(replace(item, established=(item.first, item.second) == ("dense", "mixed")) for item in whole.pairs)
    return replace(whole, pairs=pairs)


def with_harm(whole: Probe, n: int) -> Probe:
    """The last n sources are significantly below the frozen encoder, and below random passages."""
    kept, last = whole.sources[: len(whole.sources) - n], whole.sources[len(whole.sources) - n :]
    worse = tuple(replace(source(item.name, -item.gain_ndcg10, item.tie), vs_random=gap(-0.03)) for item in last)
    return replace(whole, sources=kept + worse)


def with_stopped() -> Probe:
    whole = probe()
    first, *others = whole.sources
    return replace(whole, sources=(first, *(replace(item, n_seeds=2) for item in others)))


def with_lost_rate() -> Probe:
    return replace(probe(), rates=(Rate(rate=1.0e-2, gain=None, used=False), Rate(rate=5e-5, gain=0.02, used=True)))


SITUATIONS = {
    "significantly best": probe(),
    "two tied for the best": probe(ties=(1, 1, 2)),
    "all tied": probe(ties=(1, 1, 1)),
    "joined by a third": joined_by_a_third(),
    "one source": replace(probe(), sources=probe().sources[:1], pairs=()),
    "few queries": untrained(),
    "few groups": replace(untrained("few_groups"), n_held_out=180, n_groups=12, effective_groups=6.3),
    "few to train on": untrained("few_to_train_on"),
    "one seed": of_one_seed(),
    "no gain": without_gain(),
    "no gain, two tied for the best": without_gain(ties=(1, 1, 2)),
    "no gain, all tied": without_gain(ties=(1, 1, 1)),
    "no gain, and harm by one": with_harm(without_gain(), 1),
    "no gain, and harm by all": with_harm(without_gain(ties=(1, 1, 1)), 3),
    "two stopped": with_stopped(),
    "no gain of one source": replace(without_gain(), sources=probe().sources[:1], pairs=()),
    "two sources with the same negatives": replace(probe(), identical=(("bm25", "mixed"),)),
    "a reason of a newer secid": untrained("moon_phase"),
    "known positives first": known_positive_first(),
    "not above random": below_random(),
    "a rate lost": with_lost_rate(),
}
