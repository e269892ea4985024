"""Train a copy of the encoder on one source, rank the held-out queries with it, and compute the loss of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from secid.arrays import Flags, Floats, Index, distinct, is_known, pairs
from secid.encode import Encoder, Role
from secid.encode.batching import TokenBatch, longest_first, next_batch
from secid.encode.device import is_gpu, is_out_of_memory, without_cudnn_attention
from secid.encode.transformer import TransformerEncoder
from secid.encode.word_cache import Tokens
from secid.errors import EncoderError, NonFiniteEmbeddingError, NotEvaluatedError
from secid.measure.blocks import Vectors
from secid.measure.objectives import CLOSED_FORMS, BatchScores, all_pairs
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.results.probe import Divergence
from secid.settings import Settings, with_guide
from secid.tools.probing.options import SEVERAL_POSITIVES, Options
from secid.tools.probing.task import NegativeSource, RowLists, Task
from secid.triplets.embedding import Embedder, rows_of_ids
from secid.triplets.guide import above_positive
from secid.triplets.search import nearest_passages

# A trainable copy of the encoder: restore its weights, take training steps, and encode texts.
#
# secid has its own training loop so that every source gets the same batches, initial weights and learning rates. The
# model and the recipe are those of the frozen encoder. Dropout is off. So two sources differ only in their negatives,
# and smaller micro-batches give the same gradients. Source: METHOD 13.

T = TypeVar("T")

CPU_TOKENS, GPU_TOKENS = 4_096, 65_536
"""Maximum padded tokens of a micro-batch. Its texts have similar lengths."""
WEIGHT_DECAY = 0.01
WARM_UP_SHARE = 0.1
"""Share of the steps in which the learning rate rises to its full value. Over the others it falls to 0."""
MAX_GRADIENT_NORM = 1.0
"""Maximum norm of the gradients. Common trainers use the same norm and weight decay."""
LORA_RANK = 16


class DivergedError(NotEvaluatedError):
    """Training diverged: a loss, its gradient, or a vector after training is not finite.

    step : number of the step, from 1; None after the last one.   run : the training run, if known.
    """

    def __init__(self, message: str, step: int | None = None, run: Divergence | None = None) -> None:
        super().__init__(message)
        self.step, self.run = step, run


class Step(NamedTuple):
    """The texts of one step. queries : (b,).   passages : (p,).   sides : positives and negatives of each query."""

    queries: Sequence[str]
    passages: Sequence[str]
    sides: Sides


class Learner:
    """A trainable copy of an encoder on one device. `restore` brings back its initial weights."""

    def __init__(
        self, encoder: TransformerEncoder, device: torch.device, lora: bool, bf16: bool, temperature: float, loss: str
    ) -> None:
        """Copy the encoder.

        lora : train adapters of rank LORA_RANK on all linear layers instead of all weights.
        bf16 : compute in bf16 by autocast.   temperature, loss : temperature and name of the training loss.
        """
        self._encoder, self._device, self._bf16 = encoder, device, bf16
        self._temperature, self._loss = temperature, loss
        self._replica = encoder.parts.trainable(device)
        if lora:
            _add_adapters(self._replica.model)
        self._weights = [weight for weight in self._replica.model.parameters() if weight.requires_grad]
        self._start = [weight.detach().to("cpu", copy=True) for weight in self._weights]
        self._budget = GPU_TOKENS if is_gpu(device) else CPU_TOKENS
        self._one_graph = True

    def restore(self) -> None:
        with torch.no_grad():
            for weight, value in zip(self._weights, self._start, strict=True):
                weight.copy_(value)
                weight.grad = None  # a training that diverged leaves one

    def fit(self, steps: Iterator[Step], n_steps: int, rate: float, tick: Callable[[], None]) -> None:
        """Train with AdamW. The rate rises over a tenth of the steps, then falls to 0.

        Raises DivergedError if a loss or its gradient is not finite. Raises EncoderError if a single text or the
        optimizer's state does not fit in memory.
        """
        fused = self._device.type in ("cpu", "cuda")
        optimizer = torch.optim.AdamW(self._weights, lr=rate, weight_decay=WEIGHT_DECAY, fused=fused)
        rise = max(1, round(WARM_UP_SHARE * n_steps))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda n: min((n + 1) / rise, (n_steps - n) / max(1, n_steps - rise))
        )
        for number, step in zip(range(n_steps), steps, strict=False):
            loss = self._gradients(step)
            norm = float(nn.utils.clip_grad_norm_(self._weights, MAX_GRADIENT_NORM))
            if not np.isfinite([loss, norm]).all():
                message = f"at step {number + 1} the loss is {loss:g} and the norm of its gradient {norm:g}"
                raise DivergedError(message, number + 1)
            try:
                optimizer.step()
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise self._too_large("the optimizer's state", "train adapters with --lora") from error
                raise
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            tick()

    def tokens(self, texts: Sequence[str], role: Role) -> Tokens:
        """Return the token ids of these texts with the recipe's prefix, cut to its maximum length."""
        prefix = self._encoder.recipe.prefix(role)
        return self._encoder.parts.tokeniser.tokens([prefix + text for text in texts])

    def rows(self, tokens: Tokens, role: Role) -> Tensor:
        """Return (n, d) float32 unit rows under the current weights, in the order of the texts."""
        return self._in_memory(lambda: self._rows(tokens, role), int(tokens.lengths.max()))

    @torch.no_grad()
    def _rows(self, tokens: Tokens, role: Role) -> Tensor:
        out = torch.empty(len(tokens.lengths), self._encoder.info.dim, device=self._device)
        for batch in self._batches(tokens):
            out[torch.from_numpy(batch.positions).to(self._device)] = self._vectors(batch, role)
        return out

    def _gradients(self, step: Step) -> float:
        """Return the loss of a step, and add its gradients to those of the weights."""
        queries, passages = self.tokens(step.queries, "query"), self.tokens(step.passages, "passage")
        texts: list[tuple[Role, Tokens]] = [("query", queries), ("passage", passages)]
        longest = int(max(queries.lengths.max(), passages.lengths.max()))
        return self._in_memory(lambda: self._backward(texts, step.sides), longest)

    def _in_memory(self, work: Callable[[], T], longest: int) -> T:
        """Return the result of `work`. If memory runs out, run it again with smaller micro-batches.

        The first repetition keeps their size, but gives each micro-batch its own graph (`_backward`).
        longest : number of tokens of the longest text. Raises EncoderError if that text alone does not fit.
        """
        while True:
            try:
                return work()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not self._one_graph and self._budget <= longest:
                    raise self._too_large("a single text", "use a smaller --max-length") from error
            for weight in self._weights:  # after the except block: the error holds the failed attempt's tensors
                weight.grad = None
            if is_gpu(self._device):
                torch.cuda.empty_cache()
            self._budget, self._one_graph = self._budget if self._one_graph else self._budget // 2, False

    def _too_large(self, what: str, remedy: str) -> EncoderError:
        return EncoderError(f"out of memory on {self._device} with {what}", remedy=f"{remedy}, or a smaller encoder")

    def _backward(self, texts: Sequence[tuple[Role, Tokens]], sides: Sides) -> float:
        """Return the loss, and add its gradients to those of the weights.

        If one graph for all texts does not fit in memory, gradients are cached (Gao et al. 2021). All texts are encoded
        first, without a graph. Then each micro-batch is encoded again and gets its share of the gradient, so that only
        one micro-batch's graph is in memory.
        """
        if self._one_graph:
            queries, passages = (self._joined(tokens, role) for role, tokens in texts)
            loss = training_loss(queries, passages, sides, self._loss, self._temperature)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()
        rows = [self._rows(tokens, role).requires_grad_() for role, tokens in texts]
        loss = training_loss(rows[0], rows[1], sides, self._loss, self._temperature)
        shares = torch.autograd.grad(loss, rows)
        for (role, tokens), share in zip(texts, shares, strict=True):
            for batch in self._batches(tokens):
                gradient = share[torch.from_numpy(batch.positions).to(self._device)]
                self._vectors(batch, role).backward(gradient)  # type: ignore[no-untyped-call]
        return loss.item()

    def _joined(self, tokens: Tokens, role: Role) -> Tensor:
        batches = list(self._batches(tokens))
        order = np.argsort(np.concatenate([batch.positions for batch in batches]))
        rows = torch.cat([self._vectors(batch, role) for batch in batches])
        return rows.index_select(0, torch.from_numpy(order).to(self._device))

    def _batches(self, tokens: Tokens) -> Iterator[TokenBatch]:
        order = longest_first(tokens)
        while len(order):
            batch = next_batch(tokens, order, self._budget, self._encoder.parts.tokeniser.padding)
            yield batch
            order = order[len(batch.positions) :]

    def _vectors(self, batch: TokenBatch, role: Role) -> Tensor:
        recipe = self._encoder.recipe.of(role)
        skip = 0 if recipe.include_prompt else self._encoder.parts.tokeniser.prompt_length(recipe.prefix(role))
        autocast = torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16)
        with autocast, without_cudnn_attention(self._device):
            vectors = self._replica.vectors(batch, recipe, skip)
        return nn.functional.normalize(vectors.float(), dim=1)


def _add_adapters(model: nn.Module) -> None:
    """Freeze the model and add adapters to all linear layers of its transformers. They have no effect until trained."""
    from peft import LoraConfig, inject_adapter_in_model

    model.requires_grad_(False)
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    config = LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, lora_dropout=0.0, target_modules="all-linear")
    modules: list[Any] = list(model.modules())
    for module in modules:
        if hasattr(module, "auto_model"):
            inject_adapter_in_model(config, module.auto_model)
    torch.random.set_rng_state(state)


# One training run has a source, a held-out fold, a seed and a learning rate. It returns metrics of each held-out query.
#
# All draws depend only on seed and fold, so every source gets the same batches. Source: METHOD 13.

RANK_CUTOFF = 100
"""Number of passages that are ranked for a query; the metrics ignore the others."""


class TrainingRun(NamedTuple):
    """One training run and its ranking. source : source or control to train on; None to rank by the frozen encoder."""

    source: NegativeSource | None
    fold: int
    seed: int
    rate: float


@dataclass(frozen=True)
class HeldOut:
    """The rows that a fold holds out, with their queries and all candidates as tokens.

    rows : (n,) rows of the task.
    row, place : (L,) for each relevant pair, the place of its row in `rows` and of its passage among the candidates.
    """

    rows: Index
    queries: Tokens
    candidates: Tokens
    row: Index
    place: Index


def steps_of(task: Task, negatives: RowLists, run: TrainingRun, batch: int, objective: Objective) -> Iterator[Step]:
    """Yield training batches without end.

    A batch holds rows of the other folds, shuffled each epoch, each with one positive and one negative. For a loss with
    several positives, a row has up to MAX_POSITIVES positives. The further ones do not change any other draw.

    batch : rows in a step; all rows of the other folds if there are fewer. The last, incomplete batch of an epoch is
    not used.
    """
    rows = np.flatnonzero(task.fold != run.fold)
    order, draws, more = (np.random.default_rng([run.seed, run.fold, purpose]) for purpose in range(3))
    n = min(batch, len(rows))
    while True:
        epoch = rows[order.permutation(len(rows))]
        for start in range(0, len(epoch) - n + 1, n):
            batch_rows = epoch[start : start + n]
            positive = _draw_one(task.positives, batch_rows, draws)
            others = _more_positives(task.positives, batch_rows, positive, objective.n_positives - 1, more)
            passages = np.concatenate([positive, _draw_one(negatives, batch_rows, draws), others.ids])
            sides = _sides(task, batch_rows, passages, others.rows, objective)
            yield Step(task.queries.take(task.query[batch_rows]), task.passages.take(passages), sides)


def _draw_one(lists: RowLists, rows: Index, draws: np.random.Generator) -> Index:
    """Draw one passage of each row. The position drawn depends on the list's length, but not on its passages."""
    place: Index = lists.offsets[rows] + (draws.random(len(rows)) * lists.counts[rows]).astype(np.int64)
    return np.asarray(lists.ids[place])


def _more_positives(positives: RowLists, rows: Index, drawn: Index, most: int, draws: np.random.Generator) -> RowLists:
    """Draw up to `most` more positives of each row. drawn : the positive that each row already has."""
    lists = [ids[ids != one] for ids, one in zip(map(positives.of, rows), drawn, strict=True)] if most else []
    drawn_lists = [ids if len(ids) <= most else draws.choice(ids, most, replace=False) for ids in lists]
    return RowLists.of_counts(np.concatenate([np.zeros(0, np.int64), *drawn_lists]), map(len, drawn_lists))


def _sides(task: Task, rows: Index, passages: Index, owner: Index, objective: Objective) -> Sides:
    """Return the positives and negatives of b rows.

    A row's own negative stays a negative even if it is labelled as a positive. Labelled positives of a row that other
    rows brought into the batch are neither.

    passages : ids of b positives, of b negatives, then of more positives.   owner : row in the batch of each of these.
    """
    every, b = np.arange(len(rows)), len(rows)
    same_row = np.concatenate([every, every, owner]) == every[:, None]
    positive = same_row.copy()
    positive[:, b : 2 * b] = False
    negative = same_row & ~positive
    if objective.passages == "batch":
        labelled = is_known(pairs(rows[:, None], passages[None, :], len(task.passages)), task.relevant)
        negative |= ~same_row & ~labelled
    guide = objective.guide
    return Sides(positive, negative, None if guide is None else guide.masked(task.query[rows], passages))


def held_out(task: Task, fold: int, test_rows: Index, candidates: Tokens, learner: Learner) -> HeldOut:
    """Return the held-out rows of a fold.

    test_rows : all rows of the task that are ranked.   candidates : tokens of the task's candidates.
    """
    rows = test_rows[task.fold[test_rows] == fold]
    lists = task.positives.take(rows)
    return HeldOut(
        rows=rows,
        queries=learner.tokens(task.queries.take(task.query[rows]), "query"),
        candidates=candidates,
        row=lists.rows,
        place=np.searchsorted(task.candidates, lists.ids),
    )


def train_and_rank(
    learner: Learner,
    task: Task,
    test: HeldOut,
    run: TrainingRun,
    options: Options,
    objective: Objective,
    tick: Callable[[], None],
) -> Floats:
    """Train, and return nDCG@10, MRR@10 and recall@100 of the held-out rows, (n, 3).

    If `run.source` is None, nothing is trained, and the metrics are those of the frozen encoder.
    Raises the errors of `Learner.fit`. For a vector that is not finite it raises DivergedError, or
    NonFiniteEmbeddingError with the frozen encoder.
    """
    learner.restore()
    if run.source is not None:
        steps = steps_of(task, task.sources[run.source], run, options.batch, objective)
        learner.fit(steps, options.steps, run.rate, tick)
    queries, candidates = learner.rows(test.queries, "query"), learner.rows(test.candidates, "passage")
    _check_finite(queries, task.queries, task.query[test.rows], run)
    _check_finite(candidates, task.passages, task.candidates, run)
    return measures(queries, candidates, test.row, test.place)


def _check_finite(rows: Tensor, store: TextStore, ids: Index, run: TrainingRun) -> None:
    """Raise DivergedError or NonFiniteEmbeddingError if a row is not finite, since NaN would sort before all scores."""
    wrong = (~rows.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if wrong and run.source is not None:
        raise DivergedError("the vector of a text is not finite after training")
    if wrong:
        raise NonFiniteEmbeddingError(
            f"before training, the encoder returned NaN or infinity for {store.take(ids[wrong[:1]])[0][:80]!r}",
            remedy="remove the text, or use another encoder",
        )


def measures(queries: Tensor, candidates: Tensor, row: Index, place: Index) -> Floats:
    """Return nDCG@10, MRR@10 and recall@100 of each query, (n, 3), in [0, 1], for binary relevance. Source: METHOD 13.

    queries, candidates : (n, d) and (C, d) unit rows; candidates in the order of their text keys.
    row, place : (L,) query and candidate of each relevant pair. Each query has at least one.
    """
    vectors, numbers = Vectors(queries, candidates), np.arange(len(queries))
    first, _ = nearest_passages(vectors, numbers, np.arange(len(candidates)), RANK_CUTOFF)
    hit = is_known(pairs(numbers[:, None], first, len(candidates)), np.sort(pairs(row, place, len(candidates))))
    n_relevant = np.bincount(row, minlength=len(queries))
    discount = 1.0 / np.log2(np.arange(2, 12))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(n_relevant, 10)]
    at_10 = np.zeros((len(queries), 10), np.bool_)
    at_10[:, : hit.shape[1]] = hit[:, :10]
    first_hit = np.where(at_10.any(axis=1), 1.0 / (1 + at_10.argmax(axis=1)), 0.0)
    return np.stack([at_10 @ discount / ideal, first_hit, hit.sum(axis=1) / n_relevant], axis=1)


# The loss of a step, with the closed forms that `secid score --objectives` uses. They return the loss and its
# derivative with respect to every score, so training uses the gradients of `--objectives`. Source: METHOD 9.

CLOSED_FORM_NAMES = {
    "infonce": "single_lh",
    "lsepair": "lse_pair",
    "sum_marginal": "sum_marg_lh",
    "joint": "joint_lh",
    "gist": "gist",
}
"""Name of the closed form of each --loss except mw, which needs all pairs of a batch."""
MAX_POSITIVES = 8
"""Maximum labelled positives of a query in one step. A query with forty positives would otherwise fill the batch."""


@dataclass(frozen=True)
class Sides:
    """Flags of a step's positives and negatives, (b, p) each, by query and passage.

    masked : (b, p) passages that the guide scores higher than the query's positive; None without a guide.
    """

    positive: Flags
    negative: Flags
    masked: Flags | None = None


def training_loss(queries: Tensor, passages: Tensor, sides: Sides, loss: str, temperature: float) -> Tensor:
    """Return the loss of a step in nats, with the gradient of its closed form.

    It is the mean over queries; for mw, over all pairs of a positive and a negative. It is NaN if a score is not
    finite. It is computed in float64, on the CPU if the device has no float64.

    queries, passages : (b, d) and (p, d) unit rows; every query has a positive.
    """
    scores = queries @ passages.T / temperature
    flags = [torch.from_numpy(side).to(scores.device) for side in (sides.positive, sides.negative)]
    parts = [scores[mask] for mask in flags]
    if not scores.isfinite().all():
        return scores.sum() * torch.nan
    exact = torch.device("cpu") if scores.device.type == "mps" else scores.device
    positive, negative = (part.detach().to(exact).double() for part in parts)
    of_positive, of_negative = (mask.nonzero()[:, 0].to(exact) for mask in flags)
    masked = None if sides.masked is None else torch.from_numpy(sides.masked[sides.negative]).to(exact)
    ones = torch.ones_like(positive)
    of_step = BatchScores(positive, negative, of_positive, of_negative, ones, masked, len(queries))
    form = all_pairs(positive, negative) if loss == "mw" else CLOSED_FORMS[CLOSED_FORM_NAMES[loss]]
    gradient = form(of_step)
    n_terms = 1 if loss == "mw" else len(queries)
    value = gradient.loss.sum() / n_terms
    slopes = (gradient.positive, gradient.negative)
    pull = torch.stack([(part * slope.to(part)).sum() for part, slope in zip(parts, slopes, strict=True)]).sum()
    pull = pull / n_terms  # has the closed form's derivatives; the next line replaces its value by the loss
    return pull + (value.to(pull) - pull).detach()


class Guidance:
    """Finds a step's passages that GIST masks. The guide encodes all training texts once, in advance."""

    def __init__(self, task: Task, guide: Encoder, settings: Settings, folder: Path, progress: Progress) -> None:
        """Encode the task's texts. folder : new folder, made here, for the file of vectors."""
        folder.mkdir()
        self.info = guide.info
        lists = (task.positives, *task.negatives.values(), *task.controls.values())
        ids = distinct(task.query), distinct(np.concatenate([part.ids for part in lists]))
        with closing(Embedder(task.queries, task.passages, guide, with_guide(settings), folder, progress)) as embedder:
            embedder.need(*ids)
            self._vectors = embedder.vectors

    def masked(self, queries: Index, passages: Index) -> Flags:
        """Return (b, p) flags of passages that the guide scores higher than the positive of query i, passage i."""
        scores = self._rows("query", queries) @ self._rows("passage", passages).T
        target = scores[np.arange(len(queries)), np.arange(len(queries))]
        return above_positive(scores, target[:, None])

    def _rows(self, role: Role, ids: Index) -> Floats:
        """Return (n, d) float64 unit rows of these ids."""
        (rows,) = rows_of_ids(self._vectors, role, ids, len(ids))
        return np.asarray(rows.cpu().double().numpy())


@dataclass(frozen=True)
class Objective:
    """The loss of a step and the passages that it compares. loss, passages: values of --loss and --passages."""

    loss: str
    passages: str
    guide: Guidance | None

    @property
    def n_positives(self) -> int:
        """Return the maximum number of labelled positives of a query in one step."""
        return MAX_POSITIVES if self.loss in SEVERAL_POSITIVES else 1
