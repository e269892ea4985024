"""Count how often a sample's interval covers the share of all negatives that a guide flags, on real sources.

    python docs/experiments/guide_sample.py SOURCE... --encoder minilm [--seeds 1000] [--size 300] [--placement 0]

Labelled positives replace several shares of each source's negatives. The guides are the encoder's first 128 dimensions
and TF-IDF. The encoder and the guides score everything once; then secid's code draws samples seed by seed.
Results: guide-sample.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from secid.encode import load
from secid.measure.false_negatives import margin_flags
from secid.measure.interval import reach_95
from secid.pool.reading import read_draft
from secid.progress import Silent
from secid.read import open_source, resolve_sources
from secid.settings import resolve
from secid.triplets.embedding import Embedder, rows_of_ids
from secid.triplets.estimates import Estimate, comparable_keys, wilson_interval
from secid.triplets.guide import GuideScores, sample_of
from secid.triplets.table import triplets_of

PLANTED = (0, 5, 10, 20)
"""Per cent of the negatives that are replaced by the record's labelled positive. A record has it once, so at 20 %
records are cut to their first five negatives."""
DIMENSIONS = 128


def planted(source: Path, share: int, path: Path, seed: int) -> Path:
    """Write a copy of the source in which `share` per cent of the negatives are labelled positives of their query."""
    settings = resolve({}).values
    with closing(open_source(resolve_sources([str(source)])[0], settings)) as reader:
        records = list(reader)
    draw = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            negatives = list(record.negatives)[: 5 if share == 20 else None]
            if draw.random() < share / 100 * len(negatives):
                negatives[draw.integers(len(negatives))] = record.positives[0]
            row = {"query": record.query, "pos": list(record.positives), "neg": negatives}
            file.write(json.dumps(row) + "\n")
    return path


def symmetric(estimate: Estimate) -> tuple[float, float]:
    half = reach_95(estimate.n_queries) * estimate.standard_error
    return estimate.value - half, estimate.value + half


INTERVALS: dict[str, Callable[[Estimate], tuple[float, float]]] = {"Wilson": wilson_interval, "t": symmetric}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--placement", type=int, default=0, help="seed of where the positives are planted")
    arguments = parser.parse_args()
    settings = resolve({"encoder": arguments.encoder, "controls": "none"}).values
    encoder = load(settings)
    print("source planted guide strata interval truth | covered of first 100, of all | mean width, mean error, sd")
    for name in arguments.sources:
        for share in PLANTED:
            with tempfile.TemporaryDirectory() as folder:
                path = planted(
                    Path(name), share, Path(folder) / f"{Path(name).name.split('.')[0]}.jsonl", arguments.placement
                )
                work = Path(folder) / "work"
                work.mkdir()
                with closing(open_source(resolve_sources([str(path)])[0], settings)) as reader:
                    plan = read_draft([reader], settings, work, Silent(), with_labels=False)[0].plan
                embedder = Embedder(plan, encoder, settings, work, Silent())
                embedder.everything()
                report(plan, embedder, share, arguments)
                embedder.close()
                plan.close()


def scores(plan: object, embedder: object) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield s_qp and s_qn of the triplets, under the encoder and under each guide."""
    rows = triplets_of(plan.sources[0], "first")
    n = len(rows)
    ids = (("query", rows.query), ("passage", rows.positive), ("passage", rows.negative))
    dense = [np.concatenate([part.numpy() for part in rows_of_ids(embedder.vectors, role, at, n)]) for role, at in ids]
    for name, dimensions in (("encoder", None), (f"{DIMENSIONS} dimensions", DIMENSIONS)):
        q, p, d = (_unit(part[:, :dimensions].astype(np.float64)) for part in dense)
        yield name, (q * p).sum(1), (q * d).sum(1)
    texts = [store.take(np.arange(len(store))) for store in (plan.queries, plan.passages)]
    lexical = TfidfVectorizer(sublinear_tf=True).fit(texts[1])
    table = {"query": lexical.transform(texts[0]), "passage": lexical.transform(texts[1])}
    q, p, d = (table[role][np.asarray(at)] for role, at in ids)
    yield "TF-IDF", *(np.asarray(q.multiply(other).sum(1)).ravel() for other in (p, d))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def flagged(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return flags of negatives at most 5 % below their positive, the guide's rule when this was measured."""
    return np.asarray(margin_flags(negative, positive, "relative", 0.05))


def report(plan: object, embedder: object, share: int, arguments: argparse.Namespace) -> None:
    rows, (target, *guides) = triplets_of(plan.sources[0], "first"), list(scores(plan, embedder))
    queries, cluster = np.unique(rows.query, return_inverse=True)
    names = comparable_keys(plan.queries.keys[queries])
    _, s_qp, s_qn = target
    n_planted = np.mean(np.asarray(rows.positive) == np.asarray(rows.negative))
    for guide, positive, negative in guides:
        truth = float(flagged(positive, negative).mean())
        for strata, key in (("s_qn", s_qn), ("s_qn - s_qp", s_qn - s_qp)):
            inside = {kind: [] for kind in INTERVALS}
            widths, values, errors = {kind: [] for kind in INTERVALS}, [], []
            for seed in range(arguments.seeds):
                keep, stratum = sample_of(plan, rows, key, arguments.size, seed)
                known = np.full((2, len(rows)), np.nan)
                known[:, keep] = positive[keep], negative[keep]
                own = GuideScores(known[0], known[1], stratum, rows.place, np.nan)
                estimate = own.mean(flagged(*known).astype(float), cluster, names, None)
                values.append(estimate.value)
                errors.append(estimate.standard_error)
                for kind, ends in INTERVALS.items():
                    low, high = ends(estimate)
                    inside[kind].append(low <= truth <= high)
                    widths[kind].append(high - low)
            for kind, hits in inside.items():
                first = " ".join(str(sum(hits[at:to])) for at, to in pairwise(range(0, len(hits) + 1, 100)))
                print(
                    f"{plan.sources[0].name} {n_planted:.3f} ({share} %) | {guide} | {strata} | {kind} | {truth:.4f} | "
                    f"{sum(hits[:100])} {sum(hits)} | {np.mean(widths[kind]):.4f} {np.mean(errors):.4f} "
                    f"{np.std(values):.4f} | bias {np.mean(values) - truth:+.4f}, by hundreds {first}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
