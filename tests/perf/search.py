"""Time exact dense search: secid against faiss-cpu's IndexFlatIP (filling the index included), alternating.

    pip install faiss-cpu && python -m tests.perf.search [--passages 200000] [--queries 2048] [--repeats 3]

Prints the median processor time of each, and of the bare float32 products, and how many places of the results differ.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import faiss
import numpy as np
import torch

from secid.measure.blocks import Vectors
from secid.triplets.search import CPU_WINDOW, QUERY_BLOCK, nearest_passages


def main() -> None:
    """Measure, and print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"passages": 200_000, "queries": 2_048, "dimension": 384, "k": 100, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    faiss.omp_set_num_threads(args.threads)
    draw = torch.Generator().manual_seed(0)
    queries, passages = (
        torch.nn.functional.normalize(torch.randn(n, args.dimension, generator=draw), dim=1)
        for n in (args.queries, args.passages)
    )

    def ours() -> Any:
        ids = np.arange(args.queries), np.arange(args.passages)
        return nearest_passages(Vectors(queries, passages), *ids, args.k)[0]

    def theirs() -> Any:
        index = faiss.IndexFlatIP(args.dimension)
        index.add(passages.numpy())
        return index.search(queries.numpy(), args.k)[1]

    def products() -> None:
        for rows in passages.split(CPU_WINDOW):
            for some in queries.split(QUERY_BLOCK):
                some @ rows.T

    seconds: dict[str, list[float]] = {"secid": [], "faiss": [], "products": []}
    found: dict[str, Any] = {}
    sides: dict[str, Callable[[], Any]] = {"secid": ours, "faiss": theirs, "products": products}
    for _ in range(args.repeats):
        for name, side in sides.items():
            start = time.process_time()
            found[name] = side()
            seconds[name].append(time.process_time() - start)
    for name, values in seconds.items():
        ratio = median(values) / median(seconds["faiss"])
        print(f"{name:9} {median(values):7.2f} s ({min(values):.2f} to {max(values):.2f})  {ratio:.2f} of faiss")
    print(f"{int((found['secid'] != found['faiss']).sum())} of {found['secid'].size} places differ")


if __name__ == "__main__":
    main()
