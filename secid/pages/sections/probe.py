"""Show a probe: which source trains best, how certain this is, what it leaves open, and the command for a probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from secid.pages.glossary import EXPLANATIONS, TERM_WORDS, kind_name, reason_text, sources_listed
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.statuses import REPAIR_STATUSES
from secid.pages.text import (
    NO_BREAK_SPACE,
    UNKNOWN_INTERVAL,
    about,
    code,
    count,
    fraction,
    gain,
    listed,
    named,
    percent,
    plain,
    plural,
    probability,
    seconds,
    short,
)
from secid.results import Run
from secid.results.commands import with_run_flag
from secid.results.probe import (
    MIN_GROUPS,
    MIN_HELD_OUT,
    Dose,
    Means,
    Probe,
    ReversedPair,
    established_at,
    sign,
)

PROBE_TITLE = "Which source trains better"
CHOOSE_ADVICE = f"To choose a source, train briefly on each with {code('secid probe')}."
PROBE_OFFER = "Nothing was trained for this report. To train the encoder briefly on each of these sources and compare:"
FROZEN_ROW = "frozen encoder"
TRAINED_WEIGHTS = {"full": "all weights", "lora": "LoRA adapters"}
PROBE_DOUBTS = {
    "known_positive_first": (
        "the control with known positives as negatives gained more than every source. So the probe does not notice "
        "false negatives; do not use it to choose a source."
    ),
    "not_above_random": (
        "no source is significantly better than random passages as negatives, so hard negatives may add nothing."
    ),
}
ABSTENTIONS: Mapping[str, Callable[[Probe], str]] = {
    "few_queries": lambda probe: (
        f"only {plural(probe.n_held_out, 'query', 'queries')} can be held out, but at least {MIN_HELD_OUT} are "
        "needed. Mine negatives for more queries in every source"
    ),
    "few_groups": lambda probe: (
        f"held-out queries that share a relevant passage count as one, so {count(probe.n_held_out)} queries are worth "
        f"only {plural(int(probe.effective_groups), 'independent query', 'independent queries')}, but at least "
        f"{MIN_GROUPS} are needed. Add queries with other relevant passages"
    ),
    "few_to_train_on": lambda probe: (
        f"with a fold held out, fewer queries than one batch of {count(probe.batch)} are left to train on. Add "
        f"queries, or use a smaller batch: {code(f'--batch {max(2, min(probe.batch // 2, probe.n_queries // 4))}')}"
    ),
    "one_seed": lambda _: f"one seed gives no intervals. Use {code('--seeds 3')}",
}
"""Kind in `not_evaluated` -> the reason why nothing can be ranked, and what to do."""
LOSS_TITLES = {
    "infonce": "InfoNCE",
    "mw": "Mann-Whitney loss",
    "lsepair": "LSEPair",
    "sum_marginal": "SumMargLH",
    "joint": "JointLH",
    "gist": "InfoNCE without the passages that a guide scores above the positive (GIST)",
}
COMPARED_PASSAGES = {"own": "on a query's own negatives", "batch": "with in-batch passages"}
NO_GAIN_TEXT = (
    "The probe recommends no source. At no learning rate is the encoder significantly better after training on any of "
    "them than before."
)
NO_DIFFERENCE_TEXT = "No difference between them is significant."
PROBE_TERMS = tuple(
    (name, TERM_WORDS.get(name) or EXPLANATIONS[name]) for name in ("gain", "±", "tie", "vs random", "seeds")
)


def probe_headline(probe: Probe) -> str:
    """Return a sentence on the sources that are significantly best at each learning rate, or why nothing is ranked."""
    reason = probe.abstained
    if reason == "no_gain":
        return _no_gain(probe)
    if reason == "estimate":
        return f"Only the time was asked for: {_expected(probe)}."
    if reason is not None:
        why = ABSTENTIONS[reason](probe) if reason in ABSTENTIONS else reason_text(reason)
        return f"The probe ranks nothing: {why}."
    return " ".join(f"{_at(rates)}, {words}" for words, rates in _rates_by_sentence(probe.ranked, _leader).items())


def _expected(probe: Probe) -> str:
    of_training = probe.timing.get("train", {})
    n, n_kept, expected = (of_training.get(name, 0.0) for name in ("n_trainings", "n_kept", "expected_seconds"))
    if not all(map(isfinite, (n, n_kept, expected))) or n < 1:
        return "it could not be estimated"
    runs = plural(int(n), "training run")
    if n_kept:
        return f"{runs}, of which {count(n_kept)} are already in the cache, take {about(expected)} at most"
    return f"{runs} take {about(expected)} at most"


def _leader(dose: Dose) -> Iterator[str]:
    first, tied = dose.sources[0], dose.tied_with_first
    if len(dose.sources) == 1:
        yield f"training on {named(first.name)} changes nDCG@10 by {gain(first.gain_ndcg10, first.interval_95)}."
    elif tied:
        best, others = named(first.name), sources_listed(tied)
        yield f"no source is established as the best: {best} gains most, statistically tied with {others}."
    else:
        yield f"training on {named(first.name)} is significantly better than training on every other source."


def _at(rates: Sequence[float]) -> str:
    return f"At the learning {'rate' if len(rates) == 1 else 'rates'} {listed([f'{rate:g}' for rate in rates])}"


def _rates_by_sentence(doses: Iterable[Dose], say: Callable[[Dose], Iterable[str]]) -> dict[str, list[float]]:
    """Return the rates at which each sentence holds, by sentence. say : yields the sentences of a dose."""
    rates: dict[str, list[float]] = {}
    for dose in doses:
        for words in say(dose):
            rates.setdefault(words, []).append(dose.rate)
    return rates


def _no_gain(probe: Probe) -> str:
    """Return sentences for a probe in which no source gained: established differences, and what to try."""
    established = [pair for dose in probe.trained for pair in dose.pairs if pair.established]
    harmful = _rates_by_sentence(probe.trained, _harm)
    pairs = _rates_by_sentence(probe.trained, _differences)
    sentences = [
        NO_GAIN_TEXT,
        *(f"{_at(rates)}, {words}" for words, rates in {**harmful, **pairs}.items()),
        NO_DIFFERENCE_TEXT if len(probe.names) > 1 and not established else "",
        f"Try {' or '.join(_other_trainings(probe))}.",
    ]
    return " ".join(filter(None, sentences))


def _harmed(dose: Dose) -> list[str]:
    return [source.name for source in dose.sources if sign(source.interval_95) < 0]


def _harm(dose: Dose) -> Iterator[str]:
    if _harmed(dose):
        yield f"it is significantly worse than before after training on: {sources_listed(_harmed(dose))}."


def _differences(dose: Dose) -> Iterator[str]:
    pairs = [f"{named(pair.first)} over {named(pair.second)}" for pair in dose.pairs if pair.established]
    if pairs:
        yield f"significant differences: {listed(pairs)}."


def _other_trainings(probe: Probe) -> Iterator[str]:
    """Yield what to try next, with two rates: one alone would add its fourfold.

    If every source does harm at every rate: smaller rates. If any source does harm at a rate, or if training diverged:
    more steps up to the largest rate without harm. Otherwise more steps, or larger rates.
    """
    lowest = min(dose.rate for dose in probe.doses)
    harmless = [dose.rate for dose in probe.trained if not _harmed(dose)]
    steps = f"--steps {4 * probe.steps}"
    if all(len(_harmed(dose)) == len(dose.sources) for dose in probe.trained):
        yield f"smaller rates, {code(_rates(lowest / 16, lowest / 4))}"
    elif len(harmless) < len(probe.doses):
        highest = max(harmless, default=lowest)
        yield f"longer training at smaller rates, {code(f'{steps} {_rates(highest / 4, highest)}')}"
    else:
        highest = max(harmless)
        yield f"longer training, {code(steps)},"
        yield f"larger rates, {code(_rates(highest, 4 * highest))}"


def _rates(low: float, high: float) -> str:
    return f"--rate {low:g} --rate {high:g}"


def order_sentence(probe: Probe) -> str:
    """Return sentences on how the order differs between learning rates; "" with one rate or no established pair."""
    by_pair = established_at(probe.trained)
    if len(probe.trained) < 2 or not by_pair:
        return ""
    if probe.reversals:
        order = "; ".join(map(_reversal, probe.reversals))
        return f"The order depends on the learning rate (significant at each): {order}."
    n_common = sum(len(rates) > 1 for rates in by_pair.values())
    rates = "both" if len(probe.trained) == 2 else "more than one"
    same = "No pair of sources changes its order significantly between the learning rates."
    common = f"Pairs that differ significantly at {rates}: {count(n_common)} of {count(len(by_pair))}"
    return f"{same} {common}, all in the same direction." if n_common else f"{same} {common}."


def _reversal(item: ReversedPair) -> str:
    """Return words on which source of a pair is better at which rates, the lowest rate first."""
    sides = [(item.first_better, item.first, item.second), (item.second_better, item.second, item.first)]
    parts = [
        f"{named(better)} over {named(worse)} at {listed([f'{rate:g}' for rate in rates])}"
        for rates, better, worse in sorted(sides)
    ]
    return ", but ".join(parts)


def cautions(probe: Probe) -> Iterator[str]:
    """Yield cautions: where the order differs, what weakens the result, missing controls, and the resolution."""
    yield from filter(None, [order_sentence(probe)])
    unranked = [dose for dose in probe.doses if dose.not_evaluated and dose.not_evaluated != probe.abstained]
    for say, doses in ((_unranked, unranked), (_doubts, probe.trained), (_stopped, probe.trained)):
        yield from (f"{_at(rates)}, {words}" for words, rates in _rates_by_sentence(doses, say).items())
    for names in probe.identical:
        yield f"These sources have the same negatives for these queries and were trained once: {sources_listed(names)}."
    for name, reason in probe.not_evaluated.items():
        if name != "sources":
            yield f"There is no control with {kind_name(name)}: {reason_text(reason)}."
    yield from _smallest_difference(probe)


def _unranked(dose: Dose) -> Iterator[str]:
    """Yield a sentence on why nothing is ranked at a learning rate."""
    if dose.divergence is None:
        yield f"{reason_text(dose.not_evaluated or '')}."
        return
    run = dose.divergence
    where = f"step {run.step}" if run.step else "after the last step"
    source = kind_name(run.source) if run.is_control else named(run.source)
    yield f"training diverged, so there is no result ({source}, fold {run.fold}, seed {run.seed}, {where})."


def _doubts(dose: Dose) -> Iterator[str]:
    yield from (PROBE_DOUBTS[kind] for kind in dose.doubts)
    worse = [item.name for item in dose.sources if item.vs_random and sign(item.vs_random.interval_95) < 0]
    if worse:
        yield f"significantly worse than training on random passages: {sources_listed(worse)}."


def _stopped(dose: Dose) -> Iterator[str]:
    n_seeds = max(item.n_seeds for item in (*dose.sources, *dose.controls))
    stopped = [source.name for source in dose.sources if source.n_seeds < n_seeds]
    if stopped:
        fewest = min(source.n_seeds for source in dose.sources)
        yield (
            f"training stopped early on {sources_listed(stopped)}, because the interval of the difference to the best "
            "source (without correction for several pairs) was below 0. Gains and their order use only the seeds that "
            f"all sources have: {count(fewest)}."
        )


def _smallest_difference(probe: Probe) -> Iterator[str]:
    """Yield a sentence on the smallest difference that the probe can show: half the interval of the median pair."""
    shown = []
    for dose in probe.trained:
        intervals = [pair.gap.interval_95 for pair in dose.pairs]
        halves = sorted((item[1] - item[0]) / 2 for item in intervals if item is not None and item[1] > item[0])
        shown += [f"{halves[len(halves) // 2]:.2g} at {dose.rate:g}"] if halves else []
    if shown:
        yield (
            f"Sources that differ by less than about {listed(shown)} cannot be distinguished here "
            f"(95{NO_BREAK_SPACE}% CI of a pair). More held-out queries lower this limit; more {code('--seeds')} lower "
            "it a little."
        )


def scope(probe: Probe) -> str:
    """Return a sentence on the scope of the result; "" if nothing was trained."""
    if not probe.doses:
        return ""
    folds, seeds = plural(probe.n_folds, "fold"), plural(probe.n_seeds, "seed")
    return (
        f"This holds for this loss ({LOSS_TITLES.get(probe.loss, plain(probe.loss))} "
        f"{COMPARED_PASSAGES.get(probe.passages, plain(probe.passages))}, temperature {probe.temperature:g}), "
        f"{plural(probe.steps, 'step')} of {plural(probe.batch, 'query', 'queries')} on "
        f"{TRAINED_WEIGHTS[probe.trainable]}, {folds} and {seeds}. Longer training may order the sources differently."
    )


def verdict(probe: Probe) -> tuple[str, ...]:
    return tuple(filter(None, (probe_headline(probe), *cautions(probe), scope(probe))))


def gains_table(probe: Probe) -> Table:
    """Return rows of sources, in the order of the first dose that ranks them, then of controls; columns by dose."""
    doses = probe.trained
    columns = [foreign("source")]
    for dose in doses:
        columns += [number(f"gain at {dose.rate:g}"), text("tie")]
    names = [(name, False) for name in probe.names]
    names += [(item.name, True) for dose in doses[:1] for item in dose.controls]
    rows = [
        (
            f"{kind_name(name)} (control)" if is_control else short(name),
            *(cell for dose in doses for cell in _cells(dose, name, is_control)),
        )
        for name, is_control in names
    ]
    frozen = "" if probe.frozen is None else f" ({fraction(probe.frozen.ndcg_10, 4)})"
    caption = f"Gain in nDCG@10 over the frozen encoder{frozen} by learning rate, ± 95{NO_BREAK_SPACE}% CI"
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows))


def _cells(dose: Dose, name: str, is_control: bool) -> tuple[str, str]:
    items = dose.controls if is_control else dose.sources
    source = next(item for item in items if item.name == name)
    return gain(source.gain_ndcg10, source.interval_95), source.tie or "–"


def pairs_table(dose: Dose) -> Table:
    columns = (foreign("pair"), number("difference ± CI"), number("Holm p"), text("significant"))
    return Table(
        caption=f"Differences in nDCG@10 between sources at the learning rate {dose.rate:g}",
        columns=columns,
        rows=tuple(
            (
                f"{short(pair.first)} − {short(pair.second)}",
                gain(pair.gap.value, pair.gap.interval_95),
                UNKNOWN_INTERVAL if pair.p_holm is None else probability(pair.p_holm),
                "yes" if pair.established else "no",
            )
            for pair in dose.pairs
        ),
    )


def measures_table(probe: Probe, dose: Dose) -> Table:
    """Return the metrics after training, the frozen encoder's first, and the difference to random passages."""
    named_sources = [(short(item.name), item) for item in dose.sources]
    named_sources += [(f"{kind_name(item.name)} (control)", item) for item in dose.controls]
    rows = [(FROZEN_ROW, *_means_of(probe.frozen), "–", "–")] if probe.frozen is not None else []
    for name, item in named_sources:
        gap = item.vs_random
        random = "–" if gap is None else gain(gap.value, gap.interval_95)
        rows.append((name, *_means_of(item.trained), random, count(item.n_seeds)))
    columns = (
        foreign("source"), number("nDCG@10"), number("MRR@10"), number("recall@100"), number("vs random ± CI"),
        number("seeds"),
    )  # fmt: skip
    caption = f"After training at the learning rate {dose.rate:g}"
    return Table(caption=caption, columns=columns, rows=tuple(rows))


def _means_of(means: Means) -> tuple[str, str, str]:
    return fraction(means.ndcg_10, 4), fraction(means.mrr_10, 4), fraction(means.recall_100, 4)


def protocol(probe: Probe) -> Iterator[str]:
    """Yield sentences on what the probe was trained and evaluated on."""
    left_out = f" ({count(probe.n_left_out)} others left out)" if probe.n_left_out else ""
    yield (
        f"{plural(probe.n_queries, 'query', 'queries')} with a positive and negatives in every source{left_out}, in "
        f"{plural(probe.n_groups, 'group')}. Queries that share a relevant passage are in one group, which is held out "
        "as a whole."
    )
    if probe.frozen is None:
        return
    depth = ""
    if probe.candidate_depth is not None:
        depth = (
            f" (positives, and for each query up to {probe.candidate_depth} negatives of each source, nearest passages "
            "by the frozen encoder and best passages by BM25)"
        )
    judged = plural(probe.n_held_out, "held-out query", "held-out queries")
    yield (
        f"{named(probe.encoder.name)} was trained, and evaluated on {judged} that all rank the same "
        f"{plural(probe.n_candidates, 'passage')}{depth}. Precision: {plain(probe.precision or '')}; seed: "
        f"{probe.seed}. Before training its nDCG@10 is {fraction(probe.frozen.ndcg_10, 4)}."
    )
    if probe.guide is not None:
        yield f"The guide is {named(probe.guide.name)}."


def next_command(run: Run) -> str:
    """Return the command that probes the sources of a run; "" if there is none, or a source must be repaired first."""
    sound = all(source.status not in REPAIR_STATUSES for source in run.sources)
    return with_run_flag(run.probe, run.folder) if run.probe and sound else ""


def probe_sentence(run: Run, probe: Probe | None) -> tuple[str, ...]:
    """Return the sentences that a probe adds to the verdict of a run; without a probe, the advice to run one."""
    if probe is None:
        return (CHOOSE_ADVICE,) if run.probe and len(run.sources) > 1 else ()
    return (f"{'' if probe.abstained else 'Result of the probe (short training): '}{probe_headline(probe)}",)


def probe_answer(probe: Probe | None) -> Section | None:
    """Return the table of gains for the page of a run; None if nothing was trained."""
    if probe is None or not probe.doses:
        return None
    paragraphs = tuple(verdict(probe)[1:])
    return Section(anchor="probe", title=PROBE_TITLE, paragraphs=paragraphs, tables=(gains_table(probe),))


def probe_section(run: Run, probe: Probe | None) -> Section | None:
    """Show how the probe was made, or how to make one. None without a probe and without a command."""
    if probe is not None:
        sentence = cost_sentence(run, probe)
        shown = (sentence,) if sentence else ()
        return replace(details(probe), title="How the probe trained and evaluated", paragraphs=shown)
    command = next_command(run)
    offer = Section(anchor="offer", title=PROBE_TITLE, paragraphs=(f"{PROBE_OFFER} {code(command)}",))
    return offer if command else None


def cost_sentence(run: Run, probe: Probe) -> str:
    """Return sentences that compare the times of training and scoring; "" if one of them is unknown."""
    n_trainings, n_kept, trained = (
        probe.timing.get("train", {}).get(name, 0.0) for name in ("n_trainings", "n_kept", "seconds")
    )
    scored = sum(stage.get("seconds", 0.0) for stage in run.timing.values())
    if not all(map(isfinite, (n_trainings, n_kept, trained, scored))) or min(n_trainings, trained, scored) <= 0:
        return ""
    if n_kept:
        reused_part = f"{count(n_kept)} of {plural(int(n_trainings), 'training run')} came from an earlier probe"
        return f"{reused_part}, so the times of probe and scoring are not compared."
    cached = ", with texts from the cache," if run.timing.get("encode", {}).get("n_cached") else ""
    probed, share = seconds(trained), percent(scored / trained)
    return f"The probe trained and ranked for {probed}. Scoring{cached} took {seconds(scored)}, which is {share} of it."


def details(probe: Probe) -> Section:
    """Show how the probe was made, its pairs, and the other metrics."""
    tables = [pairs_table(dose) for dose in probe.trained if dose.pairs]
    tables += [measures_table(probe, dose) for dose in probe.trained]
    return Section(
        anchor="protocol",
        title="How it was trained and evaluated",
        bullets=tuple(protocol(probe)),
        tables=tuple(tables),
        terms=PROBE_TERMS if probe.doses else (),
    )
