"""Our encoder against sentence-transformers' `encode` at its best batch size, on the same texts of mixed lengths.

    python -m tests.perf.encoder_forward --data FOLDER --texts 2000

The texts are the passages of the sources, shuffled. Each repeat runs ours and every batch size in turn; ratios are of
medians, of wall time and of processor time. On a machine that does other work, only the latter means something, and
only with one thread (OMP_NUM_THREADS=1): threads that wait for each other spin. The allocator's setting of our CPU
encoder (secid/encoders/allocator.py) holds for the whole process, so that sentence-transformers has it here as well.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from secid.encoders import load
from secid.settings import Settings
from tests.kills import ROOT
from tests.perf.plain import load_plain, read_records, recipe_of

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
    own, plain = load(Settings(encoder=options.encoder, device="cpu")), load_plain(options.encoder)
    prefix = recipe_of(options.encoder).passage_prefix
    wall: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    rows: dict[str, np.ndarray] = {}

    def measure(name: str, run: Callable[[], np.ndarray]) -> None:
        start, busy = time.perf_counter(), time.process_time()
        rows[name] = run()
        wall.setdefault(name, []).append(time.perf_counter() - start)
        processor.setdefault(name, []).append(time.process_time() - busy)

    own.encode(texts[:64], "passage"), plain.encode(texts[:64])
    for _ in range(options.repeats):
        measure("secid", lambda: own.encode(texts, "passage"))
        for size in options.batch_sizes:
            measure(
                f"batch {size}",
                lambda size=size: plain.encode(
                    [prefix + text for text in texts], batch_size=size, normalize_embeddings=True
                ),
            )
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
