"""E5-base's architecture in bf16 on a GPU: our encoder, sentence-transformers, and the measure stage's share.

    python -m tests.perf.gpu
    python -m tests.perf.gpu --device cpu --tiny

The second line is a rehearsal on any machine, of the same code with small numbers: it shows that the script runs, and
its figures mean nothing. A part that cannot be measured says why and the others go on.

Weights are random and texts are made of random words, in lengths as MS MARCO's passages have them (in word pieces:
median about 75, spread as a log-normal of sigma 0.4, at most 512): speed depends on neither meaning nor weights. The
peak is what a large bf16 matrix product reaches on the same device in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from secid.encode import load
from secid.encode.replica import Replica
from secid.encode.transformer import TransformerEncoder
from secid.settings import Settings

VOCABULARY = 30_522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MEDIAN_TOKENS, SIGMA, LONGEST = 75, 0.4, 512
NEGATIVES = 10
ROOM = 2 * 1024**3
"""Bytes beyond what is in use that the proof of halving leaves to the encoder."""
NOISE = 0.03
"""Largest difference of a number between two batchings in bf16, which keeps 8 bits."""


class Size(NamedTuple):
    """How much of everything. layers, width: of the model; matrix: side of the product that shows the peak."""

    layers: int
    width: int
    matrix: int
    texts: int
    queries: int
    repeats: int
    budgets: tuple[int, ...]
    peer_batches: tuple[int, ...]


FULL = Size(12, 768, 8192, 200_000, 20_000, 3, (16_384, 32_768, 65_536, 131_072, 262_144), (32, 128, 256, 512, 1024))
TINY = Size(2, 48, 256, 300, 12, 1, (256, 4096), (8, 32))


def config_of(size: Size) -> BertConfig:
    """At full size E5-base: 12 layers of 768, 12 heads, 512 positions."""
    heads = max(1, size.width // 64)
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        intermediate_size=4 * size.width,
    )


def save_encoder(folder: Path, config: BertConfig) -> Path:
    """Random weights; a word is one word piece."""
    words = [*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))]
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated), encoding="utf-8")
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return folder


def texts_of(n: int) -> list[str]:
    """Texts of random words, lengths drawn as told above."""
    generator = np.random.default_rng(0)
    lengths = np.minimum(generator.lognormal(np.log(MEDIAN_TOKENS - 2), SIGMA, n).astype(int) + 1, LONGEST - 2)
    words = generator.integers(0, VOCABULARY - len(SPECIAL), int(lengths.sum()))
    ends = np.cumsum(lengths)
    return [
        " ".join(f"w{word}" for word in words[end - length : end]) for end, length in zip(ends, lengths, strict=True)
    ]


def floating_operations(lengths: np.ndarray, config: BertConfig) -> float:
    """Multiplications and additions of the matrix products for these texts without padding."""
    d, layers, inner = config.hidden_size, config.num_hidden_layers, config.intermediate_size
    dense = 2.0 * layers * (4 * d * d + 2 * d * inner) * lengths.sum()
    attention = 4.0 * layers * d * (lengths.astype(np.float64) ** 2).sum()
    return float(dense + attention)


def wait(device: str) -> None:
    """Returns when the device has done all it was given."""
    if device.startswith("cuda"):
        for number in range(torch.cuda.device_count()):
            torch.cuda.synchronize(number)


def seconds_of(function: Callable[[], object], repeats: int, device: str) -> float:
    """Median wall time, the device's queue emptied before and after; one call goes before, uncounted."""
    function()
    found = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        function()
        wait(device)
        found.append(time.perf_counter() - start)
    return median(found)


def peak_operations(size: int, device: str) -> float:
    """Floating-point operations a second of a large bf16 product."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def product() -> None:
        for _ in range(20):
            left @ right

    return 20 * 2.0 * size**3 / seconds_of(product, 5, device)


@contextmanager
def part(name: str) -> Iterator[None]:
    """One part of the script; what stops it is told, and the next part goes on."""
    print(f"\n{name}")
    try:
        yield
    except Exception as error:
        print(f"  not evaluated: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


class Bench:
    """The parts, on one device."""

    def __init__(self, folder: Path, device: str, size: Size) -> None:
        self.folder, self.device, self.size = folder, device, size
        self.config = config_of(size)
        self.encoder = save_encoder(folder / "e5-base-architecture", self.config)
        self.texts = texts_of(size.texts)
        self.lengths = np.array([text.count(" ") + 3 for text in self.texts])
        self.fastest = size.budgets[0]

    def load(self, device: str | None = None, batch_tokens: int | None = None) -> TransformerEncoder:
        settings = Settings(
            encoder=str(self.encoder),
            device=device or self.device,
            dtype="bf16",
            batch_tokens=batch_tokens or self.fastest,
            cache=False,
        )
        found = load(settings)
        assert isinstance(found, TransformerEncoder)
        return found

    def rates(self) -> None:
        """Texts, tokens and operations a second by batch budget, against the peak."""
        peak = peak_operations(self.size.matrix, self.device)
        operations = floating_operations(self.lengths, self.config)
        own = self.load()
        attention = own.parts.replicas[0].model.config._attn_implementation
        print(f"  peak {peak / 1e12:.1f} TFLOP/s, attention {attention}, {self.lengths.mean():.0f} tokens on average")
        seconds = {}
        for budget in self.size.budgets:
            own.batch_tokens = budget
            seconds[budget] = time_ = seconds_of(
                lambda: own.encode(self.texts, "passage"), self.size.repeats, self.device
            )
            lowered = "" if own.batch_tokens == budget else f", halved to {own.batch_tokens:,} on the way"
            print(
                f"  batches of {budget:,} tokens: {len(self.texts) / time_:,.0f} texts/s, "
                f"{self.lengths.sum() / time_:,.0f} tokens/s, {operations / time_ / 1e12:.1f} TFLOP/s, "
                f"{operations / time_ / peak:.1%} of the peak{lowered}"
            )
        self.fastest = min(seconds, key=lambda budget: seconds[budget])

    def tokenising(self) -> None:
        """The tokenizer alone, which works ahead of the device and must not be the slower of the two."""
        own = self.load()
        tokens = seconds_of(lambda: own.parts.tokeniser.tokens(self.texts), 1, "cpu")
        print(f"  tokenising alone: {len(self.texts) / tokens:,.0f} texts/s")

    def peer(self) -> None:
        """sentence-transformers on the same texts, at each batch size."""
        from sentence_transformers import SentenceTransformer

        texts = self.texts[: max(1, len(self.texts) // 4)]
        own = self.load()
        ours = seconds_of(lambda: own.encode(texts, "passage"), self.size.repeats, self.device)
        plain = SentenceTransformer(str(self.encoder), device=self.device, model_kwargs={"torch_dtype": torch.bfloat16})
        plain.max_seq_length = LONGEST
        theirs = {
            batch: seconds_of(
                lambda batch=batch: plain.encode(texts, batch_size=batch, show_progress_bar=False),
                self.size.repeats,
                self.device,
            )
            for batch in self.size.peer_batches
        }
        for batch, seconds in theirs.items():
            print(f"  batch {batch}: {len(texts) / seconds:,.0f} texts/s; secid {seconds / ours:.2f} times as fast")
        print(f"  secid against its best batch size: {min(theirs.values()) / ours:.2f} times as fast")
        rows = plain.encode(texts[:64], normalize_embeddings=True, show_progress_bar=False)
        gap = np.abs(np.asarray(rows, np.float32) - own.encode(texts[:64], "passage")).max()
        print(f"  largest difference of a number, of 64 texts: {gap:.1e}")

    def several(self) -> None:
        """All GPUs against one."""
        count = torch.cuda.device_count()
        if count < 2:
            print(f"  not evaluated: {count} CUDA devices")
            return
        one, all_ = self.load(), self.load(",".join(f"cuda:{number}" for number in range(count)))
        seconds = [
            seconds_of(lambda own=own: own.encode(self.texts, "passage"), self.size.repeats, self.device)
            for own in (one, all_)
        ]
        gap = np.abs(one.encode(self.texts[:2000], "passage") - all_.encode(self.texts[:2000], "passage")).max()
        print(f"  {count} GPUs: {seconds[0] / seconds[1]:.2f} times as fast as one; rows differ by {gap:.1e} or less")

    def halving(self) -> None:
        """Batches that do not fit are halved and give the same rows. On a CPU the lack of memory is played."""
        texts = self.texts[: 8 * self.size.queries]
        expected = self.load().encode(texts, "passage")
        budget = 8 * max(self.size.budgets)
        own = self.load(batch_tokens=budget)
        with scarce(self.device, budget // 16):
            found = own.encode(texts, "passage")
        gap = float(np.abs(found - expected).max())
        passed = own.batch_tokens < budget and gap <= NOISE
        print(
            f"  from {budget:,} to {own.batch_tokens:,} tokens a batch; rows differ by {gap:.1e} or less "
            f"(limit {NOISE}): {'pass' if passed else 'fail'}"
        )

    def whole(self) -> None:
        """Stage times of a score over one source, ten negatives a query."""
        import secid

        n = self.size.queries
        texts = texts_of(n * (2 + NEGATIVES))
        with (self.folder / "made.jsonl").open("w", encoding="utf-8") as file:
            for number in range(n):
                query, positive, *negatives = texts[number::n]
                row = {"query": " ".join(query.split()[:8]) + f" w{number}", "pos": [positive], "neg": negatives}
                file.write(json.dumps(row) + "\n")
        settings: dict[str, Any] = {"device": self.device, "dtype": "bf16", "batch_tokens": self.fastest}
        run = secid.score([self.folder / "made.jsonl"], str(self.encoder), cache=False, controls="none", **settings)
        total = sum(stage["seconds"] for stage in run.timing.values())
        print(f"  {n * NEGATIVES:,} triplets: {total:.1f} s")
        for stage, entry in run.timing.items():
            print(f"  {stage:<10} {entry['seconds']:8.2f} s, {entry['seconds'] / total:.1%}")


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
            raise torch.cuda.OutOfMemoryError("played")
        return real(replica, batch, *rest)

    with mock.patch.object(Replica, "forward", forward):
        yield


def main() -> None:
    """Prints rates, shares and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with small numbers")
    parser.add_argument("--texts", type=int, help=f"texts to encode [default: {FULL.texts:,}]")
    parser.add_argument("--queries", type=int, help=f"queries of the whole run [default: {FULL.queries:,}]")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(f"no CUDA device: torch {torch.__version__} sees none, so nothing was measured")
    size = TINY if options.tiny else FULL
    size = size._replace(texts=options.texts or size.texts, queries=options.queries or size.queries)
    place = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else options.device
    print(
        f"{place}, Python {sys.version.split()[0]}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {torch.get_num_threads()} threads"
    )
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.device, size)
        for title, run in (
            (f"{size.texts:,} texts by batch budget, bf16", bench.rates),
            ("the tokenizer", bench.tokenising),
            (f"sentence-transformers, {max(1, size.texts // 4):,} of the texts", bench.peer),
            ("several GPUs", bench.several),
            ("out of memory", bench.halving),
            ("a whole run", bench.whole),
        ):
            with part(title):
                run()


if __name__ == "__main__":
    main()
