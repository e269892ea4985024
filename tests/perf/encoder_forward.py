"""Our encoder against sentence-transformers' `encode` at its best batch size, on the same texts of mixed lengths.

    python -m tests.perf.encoder_forward --data FOLDER --texts 2000

The texts are the passages of the sources, shuffled. Each repeat runs ours and every batch size in turn; the ratio is of
medians.
"""

from __future__ import annotations

import argparse
import random
import time
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
    options = parser.parse_args()
    texts = texts_of(options.data, options.texts)
    own, plain = load(Settings(encoder=options.encoder, device="cpu")), load_plain(options.encoder)
    prefix = recipe_of(options.encoder).passage_prefix
    seconds: dict[str, list[float]] = {}
    rows: dict[str, np.ndarray] = {}

    def measure(name: str, run: object) -> None:
        start = time.perf_counter()
        rows[name] = run()  # type: ignore[operator]
        seconds.setdefault(name, []).append(time.perf_counter() - start)

    own.encode(texts[:64], "passage"), plain.encode(texts[:64])
    for _ in range(options.repeats):
        measure("secid", lambda: own.encode(texts, "passage"))
        for size in BATCH_SIZES:
            measure(
                f"batch {size}",
                lambda size=size: plain.encode(
                    [prefix + text for text in texts], batch_size=size, normalize_embeddings=True
                ),
            )
    lengths = np.array([len(text) for text in texts])
    print(f"{len(texts)} texts of {lengths.min()} to {lengths.max()} characters, {torch.get_num_threads()} threads")
    for name, times in seconds.items():
        print(f"{name:<10} {median(times):7.2f} s, {len(texts) / median(times):8.1f} texts/s")
    best = min((name for name in seconds if name != "secid"), key=lambda name: median(seconds[name]))
    for name in (best, "batch 32"):
        print(f"against {name}: {median(seconds[name]) / median(seconds['secid']):.2f} times as fast")
    print(f"largest difference of a number: {np.abs(rows['secid'] - rows[best]).max():.1e}")


if __name__ == "__main__":
    main()
