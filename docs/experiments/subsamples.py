"""Measure how well intervals cover, and how often an early stop is wrong, on real sources.

    python docs/experiments/subsamples.py SOURCE... --encoder minilm [--subsamples 1000] [--seeds 200]

The script encodes the sources once, then uses seeded subsamples of their queries. Results: subsamples.md.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np

from secid.analyses.ranking import FIRST_LOOK, _decide_pairs, _first_queries, look_sizes, rank_early
from secid.encode import load, smallest_distance
from secid.measure.information import Eigen, InformationState, spectral_nats
from secid.measure.interval import reach_95
from secid.measure.uncertainty import influence
from secid.pool.reading import read_draft
from secid.progress import Silent
from secid.read import resolve_sources
from secid.settings import resolve
from secid.triplets.embedding import Embedder, rows_of_ids
from secid.triplets.measure_set import Measurer, sample_positions
from secid.triplets.table import CoverageTables, triplets_of

SIZES = (40, 100, 200, 400)


def sample_state(u: np.ndarray, weight: np.ndarray, keep: np.ndarray) -> InformationState:
    import torch

    rows = torch.from_numpy(u[keep] * np.sqrt(weight[keep])[:, None])
    return InformationState((rows.T @ rows).double(), float(len(keep)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--subsamples", type=int, default=1000)
    parser.add_argument("--bootstraps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--one-look", type=int, default=200, help="seeds of a single look at a tenth of the queries")
    parser.add_argument("--of", nargs="*", help="sources whose intervals are tried; all where absent")
    arguments = parser.parse_args()
    run(arguments.sources, load(resolve({"encoder": arguments.encoder}).values), arguments)


def run(names: list[str], encoder: object, arguments: argparse.Namespace) -> None:
    resolved = resolve({"controls": "none"})
    settings = resolved.values
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        plan = read_draft(resolve_sources(names), settings, work, Silent())[0].plan
        embedder = Embedder(plan, encoder, settings, work, Silent())
        embedder.everything()
        triplets = [triplets_of(planned, "first") for planned in plan.sources]
        coverages = CoverageTables(plan, triplets, work)
        epsilon = smallest_distance(encoder)
        bench = Measurer(embedder.vectors, plan.queries.keys, coverages, settings, epsilon)
        items = [bench.measure(p.name, p, rows) for p, rows in zip(plan.sources, triplets, strict=True)]
        print("sources:", {item.name: round(item.nats(1.0), 4) for item in items})
        tried = [item for item in items if not arguments.of or item.name in arguments.of]
        if arguments.subsamples:
            coverage(tried, embedder.vectors, epsilon, arguments.subsamples)
        if arguments.bootstraps:
            bootstrap(tried, embedder.vectors, epsilon, arguments.bootstraps)
        if arguments.one_look:
            one_look(plan, embedder, bench, settings, arguments.one_look)
        if arguments.seeds:
            early(plan, embedder, bench, items, settings, arguments.seeds)
        plan.close()


def directions(item: object, vectors: object, epsilon: float) -> np.ndarray:
    """Return (T, d) residual directions; 0 if negative and positive are within epsilon. Source: METHOD 2.6."""
    rows = item.triplets
    negative, positive = (
        next(rows_of_ids(vectors, "passage", ids, len(rows))) for ids in (rows.negative, rows.positive)
    )
    length = np.sqrt(item.table.dots().squared_distance.numpy())
    factor = np.divide(1.0, length, out=np.zeros_like(length), where=length > epsilon)
    return ((negative - positive).numpy() * factor[:, None]).astype(np.float32)


def coverage(items: list, vectors: object, epsilon: float, n_subsamples: int) -> None:
    """Print the share of subsamples whose 95 % interval, with the finite-population factor, covers the full score."""
    print("\ncoverage of 95 % intervals, with bias correction in brackets")
    for item in items:
        u = directions(item, vectors, epsilon)
        weight, squared = item.table.gates().weight.numpy(), item.table.dots().squared_distance.numpy()
        queries = np.unique(item.triplets.query)
        truth = item.nats(1.0)
        line = []
        for size in SIZES:
            inside = corrected = 0
            generator = np.random.default_rng(size)
            for _ in range(n_subsamples):
                chosen = generator.choice(queries, size, replace=False)
                keep = np.flatnonzero(np.isin(item.triplets.query, chosen))
                part = item.triplets.take(keep)
                state = sample_state(u, weight, keep)
                eigen = Eigen.of(state, len(part))
                effect = influence(vectors, part, squared[keep], weight[keep], eigen, epsilon)
                half = reach_95(size) * effect.standard_errors()[0] * np.sqrt(1 - size / len(queries))
                nats = spectral_nats(eigen.values)
                inside += abs(nats - truth) <= half
                corrected += abs(nats + effect.bias_nats[0] * (1 - size / len(queries)) - truth) <= half
            line.append(f"{size}: {inside / n_subsamples:.3f} ({corrected / n_subsamples:.3f})")
        print(f"  {item.name:22s}", "  ".join(line), flush=True)


def bootstrap(items: list, vectors: object, epsilon: float, n_resamples: int) -> None:
    """Print the standard error by resampling queries over the one by influence."""
    print("\nstandard error, bootstrap over influence")
    for item in items:
        u = directions(item, vectors, epsilon) * np.sqrt(item.table.gates().weight.numpy())[:, None].astype(np.float32)
        queries, cluster = np.unique(item.triplets.query, return_inverse=True)
        generator = np.random.default_rng(0)
        scores = []
        for _ in range(n_resamples):
            counts = np.bincount(generator.integers(len(queries), size=len(queries)), minlength=len(queries))[cluster]
            total = (u * counts[:, None].astype(np.float32)).T @ u / counts.sum()
            scores.append(float(np.linalg.slogdet(np.eye(len(total)) + total.astype(np.float64))[1]))
        print(f"  {item.name:22s} {np.std(scores, ddof=1) / item.influence.standard_errors()[0]:.3f}", flush=True)


def early(plan: object, embedder: object, bench: object, items: list, settings: object, n_seeds: int) -> None:
    """Stop early with many seeds: print the share of queries at which each pair is decided, and wrong orders."""
    from dataclasses import replace

    truth = {item.name: item.nats(1.0) for item in items}
    when: dict[tuple[str, str], list[int]] = {pair: [] for pair in combinations(sorted(truth), 2)}
    wrong, established, stopped, five = 0, 0, [], []
    for seed in range(n_seeds):
        own = replace(settings, seed=seed, until_ranked=0.95)
        _, _, stop = rank_early(plan, embedder, bench, own, Silent())
        n_queries = len(plan.queries)
        any_wrong = False
        for pair in stop.pairs:
            key = tuple(sorted((pair.first, pair.second)))
            when[key].append(pair.n_queries)
            if pair.n_queries < n_queries:
                established += 1
                any_wrong |= truth[pair.first] < truth[pair.second]
        wrong += any_wrong
        stopped.append(stop.looks[-1].n_queries)
        five.append(next((look.n_queries for look in stop.looks if look.n_decided >= len(when) - 1), n_queries))
    print(f"\nearly stop at 0.95, {n_seeds} seeds, looks {look_sizes(len(plan.queries))}, first look {FIRST_LOOK}")
    print(f"  runs with any wrong order before the last look: {wrong} of {n_seeds} ({established} orders established)")
    print(f"  queries when it stopped: median {np.median(stopped):.0f}, mean {np.mean(stopped):.0f} of {n_queries}")
    print(
        f"  all pairs but one decided by 10 % of the queries: {np.mean(np.array(five) <= n_queries / 10):.1%} of runs"
    )
    for pair, sizes in when.items():
        shares = np.array(sizes) / len(plan.queries)
        print(
            f"  {pair[0]} / {pair[1]}: median {np.median(sizes):.0f} queries "
            f"({np.median(shares):.1%}), by 10 %: {np.mean(shares <= 0.1):.1%} of runs"
        )


def one_look(plan: object, embedder: object, bench: object, settings: object, n_seeds: int) -> None:
    """Print the pairs decided at 0.95 by a single look at a tenth of the queries (--max-records), over seeds."""
    names = sorted(planned.name for planned in plan.sources)
    size = len(plan.queries) // 10
    counts: dict[tuple[str, str], int] = {}
    five = 0
    for seed in range(n_seeds):
        part = _first_queries(plan, sample_positions(plan, seed) < (size - 0.5) / len(plan.queries))
        triplets = [triplets_of(planned, settings.positives) for planned in part.sources]
        items = [
            bench.measure(planned.name, planned, rows, budgets=(1.0,))
            for planned, rows in zip(part.sources, triplets, strict=True)
        ]
        seen = dict.fromkeys(names, size / len(plan.queries))
        found = _decide_pairs(items, list(combinations(names, 2)), lambda n_sharing: 0.05 / n_sharing, size, seen, None)
        five += len(found) >= 5
        for pair in found:
            counts[pair.first, pair.second] = counts.get((pair.first, pair.second), 0) + 1
    print(f"\none look at {size} of {len(plan.queries)} queries, {n_seeds} seeds: at least five pairs in {five}")
    for (first, second), n in sorted(counts.items()):
        print(f"  {first} above {second}: {n}", flush=True)


if __name__ == "__main__":
    main()
