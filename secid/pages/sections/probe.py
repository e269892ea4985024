"""The probe: which source training prefers, how sure that is, what it does not say, and the command that finds out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isfinite

from secid.pages.findings import TO_REPAIR
from secid.pages.glossary import TIE_TERM, kind_name, sources_listed, why_not
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import (
    SPACE,
    UNKNOWN,
    code,
    count,
    fraction,
    gain,
    letter,
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
from secid.results.inputs import with_run_flag
from secid.results.probe import FEWEST_GROUPS, FEWEST_HELD_OUT, Probe, ProbedPair, ProbedSource, sign

TITLE = "Which source training prefers"
CHOOSE = f"To choose a source, train a little on each with {code('secid probe')}."
OFFER = "Nothing was trained for this report. To train the encoder briefly on each of these sources and compare:"
FROZEN = "frozen encoder"
WEIGHTS = {"full": "all weights", "lora": "LoRA adapters"}
DOUBTS = {
    "known_positive_first": (
        "The control of known positives gained more than every source, and it trains against relevant passages: this "
        "probe does not notice false negatives, so do not choose a source by it."
    ),
    "not_above_random": (
        "No source is significantly better than random passages as negatives: the gain may come from in-batch "
        "negatives alone."
    ),
}
ABSTENTIONS: Mapping[str, Callable[[Probe], str]] = {
    "few_queries": lambda probe: (
        f"{plural(probe.n_held_out, 'query', 'queries')} can be held out, and at least {FEWEST_HELD_OUT} are needed: "
        "mine more queries for every source"
    ),
    "few_groups": lambda probe: (
        f"held-out queries that share a relevant passage count as one, and {count(probe.n_held_out)} of them tell as "
        f"much as {plural(int(probe.effective_groups), 'independent one')}; at least {FEWEST_GROUPS} are needed: "
        "add queries with relevant passages of their own"
    ),
    "few_to_train_on": lambda probe: (
        f"with a fold held out, fewer queries than one batch of {count(probe.batch)} are left to train on: add "
        f"queries, or name a smaller batch: {code(f'--batch {max(2, min(probe.batch // 2, probe.n_queries // 4))}')}"
    ),
    "one_seed": lambda _: (
        f"one seed says nothing of what another run would give: {code('--seeds 3')} is needed for intervals"
    ),
}
"""Why nothing can be ranked and what to do, by the kind in `not_evaluated`."""
NO_GAIN = (
    "The probe names no source to train on: after training on any of them the encoder is not significantly better than "
    "before."
)
NO_DIFFERENCE = "No difference between them is significant."
PROBE_TERMS = (
    ("gain", "nDCG@10 minus the frozen encoder's, −1 to 1, over seeds that all sources finished; higher is better."),
    (
        "±",
        "half of a 95 % confidence interval: what other queries, and other runs of the same training, would change.",
    ),
    ("tie", f"{TIE_TERM} (Holm)."),
    ("vs random", "nDCG@10 minus that after training on random passages, over the seeds that both have."),
    ("seeds", "runs of each fold; fewer where a source was stopped."),
)


def probe_headline(probe: Probe) -> str:
    """Which source is significantly best, or that none is, or why nothing is ranked."""
    reason = probe.abstained
    if reason == "no_gain":
        return _no_gain(probe)
    if reason is not None:
        why = ABSTENTIONS[reason](probe) if reason in ABSTENTIONS else why_not(reason)
        return f"The probe ranks nothing: {why}."
    first, tied = probe.sources[0], probe.tied_with_first
    if len(probe.sources) == 1:
        return f"Training on {named(first.name)} changes nDCG@10 by {gain(first.gain_ndcg10, first.interval_95)}."
    if tied:
        with_first = f"{named(first.name)} gains most, statistically tied with {sources_listed(tied)}"
        return f"No source is established as the best: {with_first}."
    return f"Training on {named(first.name)} is significantly better than training on every other source."


def _no_gain(probe: Probe) -> str:
    """That none is worth training on, what is established among them all the same, and what to try."""
    harmful = [source.name for source in probe.sources if sign(source.interval_95) < 0]
    pairs = [f"{named(pair.first)} over {named(pair.second)}" for pair in probe.pairs if pair.established]
    sentences = [
        NO_GAIN,
        f"Significantly worse than before after training on: {sources_listed(harmful)}." if harmful else "",
        f"Significant differences: {listed(pairs)}." if pairs else NO_DIFFERENCE if probe.pairs else "",
        f"Try {' or '.join(_other_trainings(probe, len(harmful) == len(probe.sources)))}.",
    ]
    return " ".join(filter(None, sentences))


def _other_trainings(probe: Probe, smaller: bool) -> Iterator[str]:
    """What to try next: more steps, and a rate that was not tried. smaller : a smaller rate alone."""
    if not smaller:
        yield f"longer training, {code(f'--steps {4 * probe.steps}')},"
    tried = {rate.rate for rate in probe.rates}
    factors = (1 / 4, 1 / 16, 1 / 64) if smaller else (1 / 4, 4, 1 / 16)
    others = (rate.rate * factor for rate in probe.rates if rate.used for factor in factors)
    other = next((rate for rate in others if rate not in tried), None)
    if other is not None:
        yield f"{'a smaller' if smaller else 'another'} rate, {code(f'--rate {other:g}')}"


def cautions(probe: Probe) -> Iterator[str]:
    """What makes the order worth less, and controls that were not made."""
    yield from (DOUBTS[kind] for kind in probe.doubts)
    worse = [item.name for item in probe.sources if item.vs_random and sign(item.vs_random.interval_95) < 0]
    if worse:
        yield f"Significantly worse than training on random passages: {sources_listed(worse)}."
    stopped = [source.name for source in probe.sources if source.n_seeds < probe.n_seeds]
    if stopped:
        fewest = min(source.n_seeds for source in probe.sources)
        yield (
            f"Stopped before the last seed: {sources_listed(stopped)}. The interval of the difference to the best "
            "source, each pair by itself, lay below 0. Gains and their order are of the seeds that all sources have: "
            f"{count(fewest)}."
        )
    for names in probe.identical:
        yield f"The same negatives for these queries, so trained once with one result: {sources_listed(names)}."
    lost = [rate.rate for rate in probe.rates if rate.gain is None]
    if lost:
        yield f"Training diverged at the rate {listed([f'{rate:g}' for rate in lost])}, so it was left out."
    for name, reason in probe.not_evaluated.items():
        if name != "sources":
            yield f"No control of {kind_name(name)}: {why_not(reason)}."
    yield from _smallest_difference(probe)


def _smallest_difference(probe: Probe) -> Iterator[str]:
    """What difference of two sources this probe can show: half the 95 % interval of the pair in the middle."""
    intervals = [pair.gap.interval_95 for pair in probe.pairs]
    halves = sorted((item[1] - item[0]) / 2 for item in intervals if item is not None and item[1] > item[0])
    if halves:
        half = halves[len(halves) // 2]
        yield (
            f"Sources that differ by less than about {half:.2g} cannot be told apart here (95{SPACE}% CI of a pair); "
            f"more held-out queries lower this, {code('--seeds')} somewhat."
        )


def scope(probe: Probe) -> str:
    """What the probe holds for; "" where nothing was trained."""
    if not probe.sources:
        return ""
    folds, seeds = plural(probe.n_folds, "fold"), plural(probe.n_seeds, "seed")
    return (
        f"This holds for this loss (InfoNCE with in-batch passages, temperature {probe.temperature:g}), "
        f"{plural(probe.steps, 'step')} of {plural(probe.batch, 'query', 'queries')} on {WEIGHTS[probe.trainable]}, "
        f"{folds} and {seeds}; longer training may order the sources differently."
    )


def verdict(probe: Probe) -> tuple[str, ...]:
    """All that it says, in sentences."""
    return tuple(filter(None, (probe_headline(probe), *cautions(probe), scope(probe))))


def gains_table(probe: Probe) -> Table:
    """A row a source, the highest gain first, then the controls and the frozen encoder."""
    columns = (
        foreign("source"), number("gain ± CI"), text("tie"), number("vs random ± CI"), number("seeds"),
        number("nDCG@10"),
    )  # fmt: skip
    rows = [_cells(name, source) for name, source in _in_order(probe)]
    if probe.frozen is not None:
        rows.append((FROZEN, "–", "–", "–", "–", fraction(probe.frozen.ndcg_10, 4)))
    return Table(caption="Gain in nDCG@10 over the frozen encoder", columns=columns, rows=tuple(rows))


def _in_order(probe: Probe) -> list[tuple[str, ProbedSource]]:
    """The sources, then the controls, each with what it is called in a table."""
    controls = [(f"{kind_name(control.name)} (control)", control) for control in probe.controls]
    return [*((short(source.name), source) for source in probe.sources), *controls]


def _cells(name: str, source: ProbedSource) -> tuple[str, ...]:
    return (
        name,
        gain(source.gain_ndcg10, source.interval_95),
        "–" if source.tie is None else letter(source.tie),
        "–" if source.vs_random is None else gain(source.vs_random.value, source.vs_random.interval_95),
        count(source.n_seeds),
        fraction(source.trained.ndcg_10, 4),
    )


def pairs_table(probe: Probe) -> Table:
    """A row a pair of sources."""
    columns = (foreign("pair"), number("difference ± CI"), number("Holm p"), text("significant"))
    return Table(
        caption="Differences of nDCG@10 between sources",
        columns=columns,
        rows=tuple(_pair_cells(pair) for pair in probe.pairs),
    )


def _pair_cells(pair: ProbedPair) -> tuple[str, ...]:
    return (
        f"{short(pair.first)} − {short(pair.second)}",
        gain(pair.gap.value, pair.gap.interval_95),
        UNKNOWN if pair.p_holm is None else probability(pair.p_holm),
        "yes" if pair.established else "no",
    )


def measures_table(probe: Probe) -> Table:
    """The other measures, the frozen encoder's first."""
    rows = [(FROZEN, probe.frozen)] if probe.frozen is not None else []
    rows += [(name, source.trained) for name, source in _in_order(probe)]
    return Table(
        caption="After training",
        columns=(foreign("source"), number("nDCG@10"), number("MRR@10"), number("recall@100")),
        rows=tuple(
            (name, fraction(item.ndcg_10, 4), fraction(item.mrr_10, 4), fraction(item.recall_100, 4))
            for name, item in rows
        ),
    )


def protocol(probe: Probe) -> Iterator[str]:
    """On what it was trained and judged, sentence by sentence."""
    left_out = f" ({count(probe.n_left_out)} others left out)" if probe.n_left_out else ""
    yield (
        f"{plural(probe.n_queries, 'query', 'queries')} with a positive and negatives in every source{left_out}, in "
        f"{plural(probe.n_groups, 'group')}: queries that share a relevant passage are held out together."
    )
    if probe.frozen is None:
        return
    depth = ""
    if probe.candidate_depth is not None:
        depth = f" (positives, all negatives, and the best {probe.candidate_depth} of the frozen encoder and of BM25)"
    judged = plural(probe.n_held_out, "held-out query", "held-out queries")
    yield (
        f"Trained {named(probe.encoder.name)}, and judged it on {judged}, each ranking the same "
        f"{plural(probe.n_candidates, 'passage')}{depth}; {plain(probe.precision or '')}, seed {probe.seed}."
    )
    others = [f"{rate.rate:g}" for rate in probe.rates if not rate.used and rate.gain is not None]
    tried = f"; {listed(others)} gained less with the first seed" if others else ""
    yield from (f"One learning rate for all sources: {rate.rate:g}{tried}." for rate in probe.rates if rate.used)


def next_command(run: Run) -> str:
    """What probes the sources of a run; "" where nothing can, or a source has to be repaired or mined again first."""
    sound = all(source.status not in TO_REPAIR for source in run.sources)
    return with_run_flag(run.probe, run.folder) if run.probe and sound else ""


def probe_sentence(run: Run, probe: Probe | None) -> tuple[str, ...]:
    """What the probe adds to the verdict of a run; without one that it takes one to choose between sources."""
    if probe is None:
        return (CHOOSE,) if run.probe and len(run.sources) > 1 else ()
    return (f"{'' if probe.abstained else 'By the probe, which trains: '}{probe_headline(probe)}",)


def probe_answer(probe: Probe | None) -> Section | None:
    """The gains, to stand beside the answer of a score, whose verdict has the headline; None where nothing trained."""
    if probe is None or not probe.sources:
        return None
    own = tuple(verdict(probe)[1:])
    return Section(anchor="probe", title=TITLE, link="Probe", paragraphs=own, tables=(gains_table(probe),))


def probe_section(run: Run, probe: Probe | None) -> Section | None:
    """How the probe was made, or how to make one; None where neither can be."""
    if probe is not None:
        sentence = cost_sentence(run, probe)
        shown = (sentence,) if sentence else ()
        return replace(details(probe), title="How the probe trained and judged", paragraphs=shown)
    command = next_command(run)
    offer = Section(anchor="offer", title=TITLE, link="Probe", paragraphs=(f"{OFFER} {code(command)}",))
    return offer if command else None


def cost_sentence(run: Run, probe: Probe) -> str:
    """How long the probe trained beside how long scoring took; "" where nothing was trained."""
    n_trainings, n_kept, trained = (
        probe.timing.get("train", {}).get(name, 0.0) for name in ("n_trainings", "n_kept", "seconds")
    )
    scored = sum(stage.get("seconds", 0.0) for stage in run.timing.values())
    if not all(map(isfinite, (n_trainings, n_kept, trained, scored))) or min(n_trainings, trained, scored) <= 0:
        return ""
    if n_kept:
        kept = f"{count(n_kept)} of {plural(int(n_trainings), 'training')} were kept from an earlier probe"
        return f"{kept}, so its time is not compared with that of scoring."
    cached = ", with texts from the cache," if run.timing.get("encode", {}).get("n_cached") else ""
    probed, share = seconds(trained), percent(scored / trained)
    return f"The probe trained and ranked for {probed}. Scoring{cached} took {seconds(scored)}, which is {share} of it."


def details(probe: Probe) -> Section:
    """How it was made, the pairs, and the other measures."""
    tables = [pairs_table(probe)] if probe.pairs else []
    tables += [measures_table(probe)] if probe.sources else []
    return Section(
        anchor="protocol",
        title="How it was trained and judged",
        link="Protocol",
        bullets=tuple(protocol(probe)),
        tables=tuple(tables),
        terms=PROBE_TERMS if probe.sources else (),
    )
