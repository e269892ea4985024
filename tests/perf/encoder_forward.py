"""Our encoder against sentence-transformers' `encode` at its best batch size, on the same texts of mixed lengths.

    python -m tests.perf.encoder_forward --data FOLDER --texts 2000

The texts are the passages of the sources, shuffled. Each side has a process of its own. Each repeat runs ours and every
batch size in turn; ratios are of medians, of wall time and of processor time. On a machine that does other work, only
the latter means something, and only with one thread (OMP_NUM_THREADS=1): threads that wait for each other spin.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from secid.encode import Encoder, load
from secid.settings import Settings
from tests.kills import ROOT
from tests.perf.plain import read_records

BATCH_SIZES = (8, 16, 32, 64, 128)


def texts_of(folder: Path, n: int) -> list[str]:
    """Some distinct passages of all sources, in a shuffled order that is always the same."""
    found = {
        text
        for path in sorted(folder.iterdir())
        for row in read_records(path)
        for text in (row.positive, *row.negatives)
    }
    texts = sorted(found)
    random.Random(0).shuffle(texts)
    return texts[:n]


class Timed(NamedTuple):
    """What one call took, in seconds, and what it returned."""

    wall: float
    processor: float
    rows: np.ndarray


def timed(run: Callable[[], np.ndarray]) -> Timed:
    """One call, timed."""
    start, busy = time.perf_counter(), time.process_time()
    rows = run()
    return Timed(time.perf_counter() - start, time.process_time() - busy, rows)


@cache
def own_encoder(encoder: str) -> Encoder:
    """Ours, once in a process."""
    return load(Settings(encoder=encoder, device="cpu", cache=False))


@cache
def plain_encoder(encoder: str) -> Any:
    """sentence-transformers' with the passages' prefix, once in a process."""
    from tests.perf.plain import load_plain, recipe_of

    return load_plain(encoder), recipe_of(encoder).passage_prefix


def ours(encoder: str, texts: list[str]) -> Timed:
    """Our encoder in the process that calls this."""
    own = own_encoder(encoder)
    return timed(lambda: own.encode(texts, "passage"))


def theirs(encoder: str, texts: list[str], size: int) -> Timed:
    """sentence-transformers in the process that calls this."""
    plain, prefix = plain_encoder(encoder)
    prefixed = [prefix + text for text in texts]
    return timed(lambda: plain.encode(prefixed, batch_size=size, normalize_embeddings=True, show_progress_bar=False))


def measured(
    encoder: str, texts: list[str], repeats: int, sizes: Sequence[int]
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, np.ndarray]]:
    """Wall times, processor times and rows by name."""
    wall: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    rows: dict[str, np.ndarray] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as own, ProcessPoolExecutor(1, context) as plain:
        own.submit(ours, encoder, texts[:64]).result()
        plain.submit(theirs, encoder, texts[:64], 32).result()
        for _ in range(repeats):
            found = {"secid": own.submit(ours, encoder, texts).result()}
            for size in sizes:
                found[f"batch {size}"] = plain.submit(theirs, encoder, texts, size).result()
            for name, one in found.items():
                wall.setdefault(name, []).append(one.wall)
                processor.setdefault(name, []).append(one.processor)
                rows[name] = one.rows
    return wall, processor, rows


def main() -> None:
    """Prints the ratio to the best batch size, and to the default of 32."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES, help="of sentence-transformers")
    options = parser.parse_args()
    texts = texts_of(options.data, options.texts)
    wall, processor, rows = measured(options.encoder, texts, options.repeats, options.batch_sizes)
    lengths = np.array([len(text) for text in texts])
    print(f"{len(texts)} texts of {lengths.min()} to {lengths.max()} characters, {torch.get_num_threads()} threads")
    for name in wall:
        print(
            f"{name:<10} {median(wall[name]):7.2f} s, {len(texts) / median(wall[name]):8.1f} texts/s, "
            f"processor {median(processor[name]):7.2f} s"
        )
    for what, seconds in (("wall time", wall), ("processor time", processor)):
        best = min((name for name in seconds if name != "secid"), key=lambda name: median(seconds[name]))
        for name in dict.fromkeys((best, "batch 32")):
            if name in seconds:
                print(f"{what} of {name}: {median(seconds[name]) / median(seconds['secid']):.2f} times ours")
    print(f"largest difference of a number: {np.abs(rows['secid'] - rows[best]).max():.1e}")


if __name__ == "__main__":
    main()
