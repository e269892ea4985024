"""The probe as a whole: a planted signal, common random numbers, rates, halving, abstention, devices."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from secid.encode.transformer import TransformerEncoder
from secid.errors import EncoderError, NonFiniteEmbeddingError, NotEvaluatedError
from secid.progress import Silent
from secid.results.probe import Divergence, Probe
from secid.settings import Settings
from secid.tools.probing import learner as training
from secid.tools.probing import schedule
from secid.tools.probing.learner import DivergedError, Learner, Step, TrainingRun
from secid.tools.probing.options import Options
from secid.tools.probing.run import RANDOM, run_probe
from secid.tools.probing.task import NegativeSource, RowLists, Task
from tests.snapshots import refusal
from tests.tiny_probe import PLANTED, before_each_run, tiny_encoder

QUICK = replace(PLANTED, steps=2)


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[tuple[str, int]] = []
        self.places: list[tuple[str, int]] = []
        self.n_stages_before_a_note = self.done = 0

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self.stages.append((stage, total or 0))

    def advance(self, n: int) -> None:
        self.done += n

    def at(self, place: str, total: int) -> None:
        self.places.append((place, total))
        self.stages[-1] = (self.stages[-1][0], total)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.n_stages_before_a_note = len(self.stages)


def probed(task: Task, encoder: Any, options: Options = PLANTED, progress: Any = None, **settings: Any) -> Probe:
    given = Settings(**{"device": "cpu", "cache": False, **settings})
    return run_probe(task, encoder, given, options, progress or Notes(), {})


@pytest.fixture(scope="module")
def progress() -> Notes:
    return Notes()


@pytest.fixture(scope="module")
def outcome(task: Task, encoder: TransformerEncoder, progress: Notes) -> Probe:
    return probed(task, encoder, progress=progress)


def of(outcome: Probe, name: str) -> Any:
    """Return a source or control at the first dose."""
    dose = outcome.doses[0]
    return next(source for source in (*dose.sources, *dose.controls) if source.name == name)


def two_of(task: Task) -> Task:
    """Return the task without the repeated source."""
    return replace(task, negatives={name: task.negatives[name] for name in ("hard", "easy")})


def pair(outcome: Probe, *names: str) -> Any:
    return next(pair for pair in outcome.doses[0].pairs if {pair.first, pair.second} == set(names))


def test_a_planted_signal_comes_first(outcome: Probe) -> None:
    """Negatives that teach the task beat those that do not, beyond what runs and queries explain."""
    assert outcome.not_evaluated == {"known_positive": "few_second_positives"}
    assert outcome.names == ("again", "hard", "easy")
    assert of(outcome, "hard").interval_95[0] > 0
    assert pair(outcome, "hard", "easy").established
    assert pair(outcome, "hard", "easy").gap.value > 0.05
    assert (of(outcome, "hard").tie, of(outcome, "easy").tie) == ("A", "B")
    assert of(outcome, "hard").vs_random.value > of(outcome, "easy").vs_random.value
    assert (of(outcome, "random").tie, of(outcome, "random").vs_random) == (None, None)


def test_a_source_that_is_named_as_a_control_is_not_the_control(task: Task, encoder: TransformerEncoder) -> None:
    lists = {"random": task.negatives["hard"], "easy": task.negatives["easy"]}
    named, outcome = (probed(own, encoder, QUICK) for own in (replace(task, negatives=lists), two_of(task)))
    assert named.doses[0].controls == outcome.doses[0].controls
    assert named.names == ("random", "easy")
    assert replace(named.doses[0].sources[0], name="hard") == of(outcome, "hard")


def test_gains_are_differences_to_the_frozen_encoder(outcome: Probe) -> None:
    assert outcome.frozen is not None
    for source in (*outcome.doses[0].sources, *outcome.doses[0].controls):
        assert source.gain_ndcg10 == pytest.approx(source.trained.ndcg_10 - outcome.frozen.ndcg_10, abs=1e-12)
        assert source.interval_95[0] < source.gain_ndcg10 < source.interval_95[1]
        assert source.standard_error == pytest.approx(np.hypot(source.error_queries, source.error_runs))
    assert (outcome.n_held_out, outcome.n_candidates, outcome.candidate_depth) == (120, 121, None)
    assert outcome.precision == "float32"


def test_identical_sources_tie_to_the_last_bit(outcome: Probe) -> None:
    item = pair(outcome, "hard", "again")
    assert (item.gap.value, item.gap.standard_error, item.p_holm, item.established) == (0.0, 0.0, 1.0, False)
    assert replace(of(outcome, "hard"), name="again") == of(outcome, "again")
    assert outcome.identical == (("hard", "again"),)


def train_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train sources with the same negatives one by one."""
    monkeypatch.setattr(schedule.TrainingFiles, "name", lambda _, run: str(run))


def test_identical_sources_would_tie_if_each_were_trained(
    task: Task, encoder: TransformerEncoder, outcome: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe of its own, so that a seed gives the same bits again."""
    train_each(monkeypatch)
    assert probed(task, encoder) == outcome


def test_other_batches_for_each_source_are_noticed(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_each(monkeypatch)
    real = training.steps_of

    def own_batches(task: Task, negatives: RowLists, run: TrainingRun, *rest: Any) -> Iterator[Step]:
        assert run.source is not None
        return real(task, negatives, run._replace(seed=100 * len(run.source.name) + run.seed), *rest)

    monkeypatch.setattr(training, "steps_of", own_batches)
    assert pair(probed(task, encoder, QUICK), "hard", "again").gap.value != 0.0


def test_lora_learns_the_signal_too(task: Task, encoder: TransformerEncoder) -> None:
    lora = probed(replace(two_of(task), controls={}), encoder, replace(PLANTED, lora=True, rates=(2e-2,)))
    assert pair(lora, "hard", "easy").gap.value > 0


@pytest.mark.usefixtures("outcome")
def test_time_is_announced_and_every_training_run_counted(progress: Notes) -> None:
    assert [note.split()[:3] for note in progress.notes] == [["the", "probe", "takes"]]
    assert "0 of 12 training runs are in the cache" in progress.notes[0]
    assert progress.n_stages_before_a_note == 1
    assert progress.stages == [("time a few steps", 0), ("rank by the frozen encoder", 2), ("train", 12)]
    assert progress.done == 2 + 12
    assert progress.places[0] == ("hard, fold 1, seed 1, rate 0.003", 12)
    assert len(progress.places) == 12


def test_a_long_probe_says_what_would_shorten_it(task: Task, encoder: TransformerEncoder, monkeypatch: Any) -> None:
    def interrupted(runs: schedule.TrainingRuns) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schedule.TrainingRuns, "seconds", lambda runs, n: 3_601.0)
    monkeypatch.setattr(schedule.TrainingRuns, "frozen", interrupted)
    monkeypatch.setattr(schedule, "multiplies_bf16", lambda: True)
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        probed(task, encoder, PLANTED, notes)
    assert notes.notes[1] == (
        "to save time: --dtype bf16 (about two thirds of the time on this CPU), a smaller --max-length, fewer --steps"
    )


@pytest.mark.parametrize(
    ("reason", "options", "n_groups"),
    [("few_queries", {"n_held_out": 99}, 120), ("few_groups", {}, 29), ("few_to_train_on", {"batch": 90}, 120)],
)
def test_where_there_is_too_little_nothing_is_trained(
    task: Task, encoder: TransformerEncoder, reason: str, options: dict[str, Any], n_groups: int
) -> None:
    few, notes = replace(task, group=np.arange(120) % n_groups), Notes()
    outcome = probed(few, encoder, replace(PLANTED, **options), notes)
    assert (notes.stages, notes.notes) == ([], [])
    assert outcome.not_evaluated == {"sources": reason, **task.missing}
    assert (outcome.doses, outcome.frozen, outcome.queries, outcome.n_candidates) == ((), None, None, 0)
    assert outcome.n_held_out == options.get("n_held_out", 120)


def test_without_a_gain_nothing_is_ranked(task: Task, encoder: TransformerEncoder) -> None:
    outcome = probed(task, encoder, replace(PLANTED, steps=1, rates=(1e-9,)))
    assert outcome.not_evaluated["sources"] == "no_gain"
    assert [source.tie for source in outcome.doses[0].sources] == ["A"] * 3
    assert len(outcome.doses[0].pairs) == 3


def test_a_gain_of_a_control_does_not_count_for_a_source(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = training.train_and_rank

    def random_alone(learner: Any, task: Task, held: Any, run: TrainingRun, *rest: Any) -> Any:
        return real(learner, task, held, run if run.source == RANDOM else run._replace(source=None), *rest)

    monkeypatch.setattr(schedule, "train_and_rank", random_alone)
    outcome = probed(task, encoder)
    assert of(outcome, "random").interval_95[0] > 0
    assert of(outcome, "hard").interval_95 == (0.0, 0.0)
    assert outcome.not_evaluated["sources"] == "no_gain"


def test_with_one_seed_nothing_is_ranked(task: Task, encoder: TransformerEncoder) -> None:
    outcome = probed(task, encoder, replace(PLANTED, n_seeds=1))
    assert outcome.not_evaluated["sources"] == "one_seed"
    assert of(outcome, "hard").gain_ndcg10 > 0
    assert of(outcome, "hard").interval_95 is None


def test_a_clearly_worse_source_stops_and_no_control_does(task: Task, encoder: TransformerEncoder) -> None:
    sources = {"hard": "hard", "again": "hard", "third": "hard", "easy": "easy"}
    negatives = {name: task.negatives[of_source] for name, of_source in sources.items()}
    easy, notes = task.negatives["easy"], Notes()
    as_bad = replace(easy, ids=np.full_like(easy.ids, task.positives.ids[0]))  # one passage for all queries
    own = replace(task, negatives=negatives, controls={"random": as_bad})
    outcome = probed(own, encoder, replace(PLANTED, n_seeds=3), notes)
    assert {source.name: source.n_seeds for source in outcome.doses[0].sources} == {
        "hard": 3,
        "again": 3,
        "third": 3,
        "easy": 2,
    }
    assert of(outcome, "random").n_seeds == 3
    assert pair(outcome, "hard", "easy").established
    (_, first), *_, (_, last) = notes.places
    assert last < first, "the total shrinks with the training runs that are left out"
    assert notes.done == sum(total for _, total in notes.stages)


def test_each_dose_is_that_of_a_probe_of_its_own_also_beside_one_that_diverges(
    task: Task, encoder: TransformerEncoder, outcome: Probe
) -> None:
    notes = Notes()
    three = probed(task, encoder, replace(PLANTED, rates=(3e-3, 1e-9, 1e38)), notes)
    assert [dose.rate for dose in three.doses] == [3e-3, 1e-9, 1e38]
    assert three.doses[0] == outcome.doses[0], "nothing of the other rates is left"
    assert [dose.not_evaluated for dose in three.doses] == [None, "no_gain", "diverged"]
    lost = three.doses[2]
    assert (lost.sources, lost.pairs) == ((), ())
    assert lost.divergence == Divergence(source="hard", is_control=False, fold=1, seed=1, step=2)
    assert three.abstained is None
    assert three.reversals == ()
    totals = [total for _, total in notes.places]
    assert totals == sorted(totals, reverse=True)


def test_sources_that_change_places_are_named(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the second rate each source is trained on the negatives of the other."""
    real, own = training.steps_of, replace(two_of(task), controls={})

    def swapped(task: Task, negatives: RowLists, run: TrainingRun, *rest: Any) -> Iterator[Step]:
        other = {NegativeSource("hard"): NegativeSource("easy"), NegativeSource("easy"): NegativeSource("hard")}
        source = other.get(run.source, run.source) if run.rate > 3e-3 else run.source
        return real(task, task.sources[source], run, *rest)

    monkeypatch.setattr(training, "steps_of", swapped)
    outcome = probed(own, encoder, replace(PLANTED, rates=(3e-3, 3.1e-3)))
    (found,) = outcome.reversals
    assert (found.first, found.first_better, found.second_better) == ("easy", (3.1e-3,), (3e-3,))
    assert outcome.best == ()


def test_measures_of_each_query_have_the_reported_means(outcome: Probe, task: Task) -> None:
    assert outcome.queries is not None
    assert sorted(outcome.queries.text) == sorted(task.queries.take(task.query))
    row = {text: place for place, text in enumerate(task.queries.take(task.query))}
    rows = [row[text] for text in outcome.queries.text]
    assert list(outcome.queries.fold) == task.fold[rows].tolist()
    assert list(outcome.queries.group) == task.group[rows].tolist()
    for source in (*outcome.doses[0].sources, *outcome.doses[0].controls):
        for name in ("ndcg_10", "mrr_10", "recall_100"):
            values = getattr(source.per_query, name)
            assert len(values) == outcome.n_held_out
            assert np.mean(values) == pytest.approx(getattr(source.trained, name), abs=5e-5)


def test_a_vector_that_is_not_finite_is_not_ranked(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training, the error names the text. After training, the dose has no result."""
    runs: list[TrainingRun] = []
    damaged = {3e-3}
    real = Learner.rows

    def rows(learner: Learner, tokens: Any, role: Any) -> torch.Tensor:
        out = real(learner, tokens, role)
        if runs and runs[-1].rate in damaged and role == "passage":
            out[7, 0] = torch.nan
        return out

    before_each_run(monkeypatch, lambda _, run: runs.append(run))
    monkeypatch.setattr(Learner, "rows", rows)
    outcome = probed(two_of(task), encoder, replace(PLANTED, n_seeds=1, rates=(1e-3, 3e-3)))
    assert [dose.not_evaluated for dose in outcome.doses] == ["one_seed", "diverged"]
    assert outcome.doses[1].divergence == Divergence(source="hard", is_control=False, fold=1, seed=1, step=None)
    damaged.add(0.0)
    message = refusal(lambda: probed(two_of(task), encoder), NonFiniteEmbeddingError, None)
    assert repr(task.passages.take(task.candidates[7:8])[0]) in message


def test_damaged_weights_are_not_called_a_rate_that_diverged(folder: Path, task: Task) -> None:
    own = tiny_encoder(folder)
    trainable = own.parts.trainable

    def damaged(device: torch.device) -> Any:
        replica = trainable(device)
        next(replica.model.parameters()).data[:] = torch.nan
        return replica

    own.parts.__dict__["trainable"] = damaged
    assert "before training" in refusal(lambda: probed(two_of(task), own), NonFiniteEmbeddingError, None)


def test_where_every_dose_diverges_the_error_says_where(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(PLANTED, rates=(1e37, 1e38))
    message = refusal(lambda: probed(task, encoder, options), NotEvaluatedError, None)
    assert "1e+37 (hard, fold 1, seed 1, step 2); 1e+38 (hard, fold 1, seed 1, step 2)" in message
    assert "--rate 1e+36" in message

    def diverge(_: Any, run: TrainingRun) -> None:
        if run.seed == 1 and run.source == NegativeSource("easy"):
            raise DivergedError("the loss is nan at step 3", 3)

    before_each_run(monkeypatch, diverge)
    message = refusal(lambda: probed(task, encoder), NotEvaluatedError, None)
    assert "0.003 (easy, fold 1, seed 2, step 3)" in message


def test_devices_share_the_runs_and_give_the_same(
    task: Task, encoder: TransformerEncoder, outcome: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Counter[tuple[int, int]] = Counter()
    both = threading.Barrier(2)
    runs: list[TrainingRun] = []

    def note(learner: Any, run: TrainingRun) -> None:
        if run.source is not None and run.seed == 0 and len(taken) < 2:
            both.wait(20)  # neither goes on before the other has a source, too
        runs.append(run)
        taken[(id(learner), threading.get_ident())] += 1

    before_each_run(monkeypatch, note)
    two = probed(task, encoder, device="cpu,cpu")
    assert two == outcome
    assert len({learner for learner, _ in taken}) == 2
    assert len(runs) == len(set(runs)) == 2 + 2 * 2 * 3, "identical sources are trained once"


def test_a_device_that_fails_ends_the_probe(
    task: Task, encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[TrainingRun] = []

    def fail(_: Any, run: TrainingRun) -> None:
        runs.append(run)
        if run.source == NegativeSource("easy"):
            raise EncoderError("out of memory on cuda:1 with a single text")

    before_each_run(monkeypatch, fail)
    with pytest.raises(EncoderError, match="cuda:1"):
        probed(task, encoder, device="cpu,cpu")
    assert len(runs) < 2 + 2 * 4, "no further run began"
    assert not any(thread.name.startswith("ThreadPool") for thread in threading.enumerate())


def test_a_fold_without_a_held_out_query_is_left_out(task: Task, encoder: TransformerEncoder) -> None:
    fold = task.fold.copy()
    fold[fold == 1] = 5
    gap = probed(replace(task, fold=fold), encoder, replace(PLANTED, n_folds=6, steps=1))
    assert gap.n_held_out == 120
