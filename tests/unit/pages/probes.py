"""Probes with made-up numbers: a complete one, and variants with other verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from secid.results.probe import (
    Divergence,
    Dose,
    Gap,
    HeldOutQueries,
    Means,
    PerQuery,
    Probe,
    ProbedPair,
    ProbedSource,
    reversals_of,
)
from tests.unit.pages.samples import golden

RATES = (5e-5, 2e-4)
PER_QUERY = PerQuery(ndcg_10=(0.5, 0.3422), mrr_10=(0.5, 0.3038), recall_100=(1.0, 0.6246))
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


def source(name: str, value: float, tie: str | None, random: float | None = 0.0105) -> ProbedSource:
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
        per_query=PER_QUERY,
    )


def pair(first: str, second: str, value: float, *, established: bool) -> ProbedPair:
    return ProbedPair(
        first=first, second=second, gap=gap(value), p_holm=0.004 if established else 0.9, established=established
    )


def dose(rate: float, names: tuple[str, ...] = tuple(GAINS), ties: tuple[str, ...] = ("A", "B", "B")) -> Dose:
    """The first is significantly best of three; other names and ties where given."""
    gains = dict(zip(names, GAINS.values(), strict=True))
    tie = dict(zip(names, ties, strict=True))
    return Dose(
        rate=rate,
        not_evaluated=None,
        divergence=None,
        sources=tuple(source(name, value, tie[name]) for name, value in gains.items()),
        controls=(source("random", 0.0105, None, None),),
        pairs=tuple(
            pair(a, b, gains[a] - gains[b], established=not set(tie[a]) & set(tie[b]))
            for place, a in enumerate(names)
            for b in names[place + 1 :]
        ),
    )


def probe(names: tuple[str, ...] = tuple(GAINS), ties: tuple[str, ...] = ("A", "B", "B"), *doses: Dose) -> Probe:
    """dense is significantly best of three at both rates; other names, ties and doses where given."""
    run = golden()
    made = doses or tuple(dose(rate, names, ties) for rate in RATES)
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
        loss="infonce",
        passages="batch",
        guide=None,
        precision="float32",
        n_queries=720,
        n_held_out=500,
        n_left_out=14,
        n_groups=655,
        effective_groups=480.2,
        n_candidates=6267,
        candidate_depth=None,
        queries=HeldOutQueries(text=("what is it", "who was that"), group=(0, 1), fold=(0, 1)),
        frozen=FROZEN,
        frozen_per_query=PER_QUERY,
        doses=made,
        reversals=reversals_of(made),
        not_evaluated={"known_positive": "few_second_positives"},
        timing={},
    )


def of_doses(*doses: Dose) -> Probe:
    return probe(tuple(GAINS), (1, 2, 2), *doses)


def each_dose(whole: Probe, change: Callable[[Dose], Dose]) -> Probe:
    """Return the probe with each dose changed."""
    doses = tuple(map(change, whole.doses))
    return replace(whole, doses=doses, reversals=reversals_of(doses))


def untrained(reason: str = "few_queries") -> Probe:
    """Return a probe without training runs."""
    return replace(
        probe(), precision=None, n_queries=66, n_held_out=66, n_left_out=0, n_groups=66, effective_groups=66.0,
        n_candidates=0, queries=None, frozen=None, frozen_per_query=None, doses=(), reversals=(),
        not_evaluated={"sources": reason},
    )  # fmt: skip


def without_gain(names: tuple[str, ...] = tuple(GAINS), ties: tuple[str, ...] = ("A", "B", "B")) -> Probe:
    """Return a probe in which no source is better than the frozen encoder."""
    whole = each_dose(probe(names, ties), lambda own: replace(own, not_evaluated="no_gain"))
    return replace(whole, not_evaluated={"sources": "no_gain"})


def of_one_source(whole: Probe) -> Probe:
    return each_dose(whole, lambda own: replace(own, sources=own.sources[:1], pairs=()))


def of_one_seed() -> Probe:
    """Return a probe that trained but established nothing."""

    def alone(own: Dose) -> Dose:
        sources = tuple(replace(item, tie=None, interval_95=None) for item in own.sources)
        return replace(own, sources=sources, pairs=(), not_evaluated="one_seed")

    return replace(each_dose(probe(), alone), n_seeds=1, not_evaluated={"sources": "one_seed"})


def known_positive_first() -> Probe:
    first, second = probe().doses
    control = source("known_positive", 0.05, None, 0.0105)
    whole = of_doses(first, replace(second, controls=(control, *second.controls)))
    return replace(whole, not_evaluated={})


def below_random() -> Probe:
    def below(own: Dose) -> Dose:
        sources = tuple(replace(item, vs_random=gap(0.004)) for item in own.sources)
        return replace(own, sources=sources, controls=(source("random", 0.02, None, None),))

    return each_dose(probe(), below)


def joined_by_a_third() -> Probe:
    """The last is significantly below the first; the one between shares a letter with each."""
    return probe(ties=("A", "AB", "B"))


def with_harm(whole: Probe, n: int) -> Probe:
    """Return the probe with the last n sources significantly below the frozen encoder and random passages."""

    def harmed(own: Dose) -> Dose:
        kept, last = own.sources[: len(own.sources) - n], own.sources[len(own.sources) - n :]
        worse = tuple(replace(source(item.name, -item.gain_ndcg10, item.tie), vs_random=gap(-0.03)) for item in last)
        return replace(own, sources=kept + worse)

    return each_dose(whole, harmed)


def with_stopped() -> Probe:
    first, second = probe().doses
    best, *others = second.sources
    sources = (best, *(replace(item, n_seeds=2) for item in others))
    return of_doses(first, replace(second, sources=sources))


def diverged(rate: float, step: int | None = 7) -> Dose:
    run = Divergence(source="dense", is_control=False, fold=1, seed=2, step=step)
    return Dose(rate=rate, not_evaluated="diverged", divergence=run, sources=(), controls=(), pairs=())


def no_gain_at(rate: float) -> Dose:
    return replace(dose(rate, ties=("A", "A", "A")), not_evaluated="no_gain")


REVERSED = of_doses(dose(5e-5), dose(2e-4, ("bm25", "dense", "mixed"), ("A", "B", "C")))
SITUATIONS = {
    "significantly best": probe(),
    "two tied for the best": probe(ties=("A", "A", "B")),
    "all tied": probe(ties=("A", "A", "A")),
    "joined by a third": joined_by_a_third(),
    "best at one rate, tied at the other": of_doses(dose(5e-5), dose(2e-4, ties=("A", "A", "B"))),
    "another source at the other rate": REVERSED,
    "three rates": of_doses(*REVERSED.doses, dose(8e-4, ("mixed", "bm25", "dense"), ("A", "B", "C"))),
    "one source": of_one_source(probe()),
    "few queries": untrained(),
    "few groups": replace(untrained("few_groups"), n_held_out=180, n_groups=12, effective_groups=6.3),
    "few to train on": untrained("few_to_train_on"),
    "one seed": of_one_seed(),
    "no gain": without_gain(),
    "no gain, two tied for the best": without_gain(ties=("A", "A", "B")),
    "no gain, all tied": without_gain(ties=("A", "A", "A")),
    "no gain, and harm by one": with_harm(without_gain(), 1),
    "no gain, and harm by all": with_harm(without_gain(ties=("A", "A", "A")), 3),
    "no gain at one rate": of_doses(dose(5e-5), no_gain_at(2e-4)),
    "two stopped": with_stopped(),
    "no gain of one source": of_one_source(without_gain()),
    "two sources with the same negatives": replace(probe(), identical=(("bm25", "mixed"),)),
    "a reason of a newer secid": untrained("moon_phase"),
    "an estimate": replace(
        untrained("estimate"),
        timing={"train": {"n_trainings": 144, "n_kept": 12, "expected_seconds": 4_980.4, "seconds": 3.0}},
    ),
    "an estimate without a time": untrained("estimate"),
    "Mann-Whitney, own negatives": replace(probe(), loss="mw", passages="own"),
    "GIST": replace(probe(), loss="gist", guide=golden().encoder),
    "known positives first": known_positive_first(),
    "not above random": below_random(),
    "a rate that diverged": of_doses(dose(5e-5), diverged(1e-2)),
    "a rate that diverged after training": of_doses(dose(5e-5), diverged(1e-2, None)),
}
