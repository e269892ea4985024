"""Compare two rules by which a guide calls a negative suspect: 5 % below the positive, and a limit on hardness.

    python docs/experiments/guide_margin.py COLLECTION… --cache FOLDER [--wordllama]

COLLECTION is a BEIR folder. Candidates are the 30 best passages by BM25 of each query, so that no guide chose its own,
without the query's first labelled positive, which is the positive here. A candidate with another label of the query
is a false negative. The guides are all-MiniLM-L6-v2, its cosines c as 0.7 + 0.3 c (those of E5 lie between 0.7 and
1), the static student of dose.py, its token means before centring, and WordLlama.

Rules: `relative` flags s_qn >= s_qp - 0.05 |s_qp|. `h` flags s_qn >= r + h (s_qp - r), where r is the mean score of
random passages, of the query or of 300 pairs of query and passage, and needs s_qp > r.

Each line has the share of the unlabelled candidates that a rule flags, of the false negatives, and of random passages.
Results: guide-margin.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from dose import Array, Collection, Vectors, lexical, minilm_vectors, number_of, read_collection, student_vectors, unit

CANDIDATES, QUERIES, PAIRS, RELATIVE = 30, 1_000, 300, 0.05
LIMITS = (0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


def wordllama_vectors(collection: Collection) -> Vectors:
    """Return (Q, 256) and (N, 256) unit rows of WordLlama: means of token vectors."""
    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    queries, passages = (
        np.asarray(model.embed(part), np.float64) for part in (collection.queries, collection.passages)
    )
    return unit(queries), unit(passages)


def guides(collection: Collection, arguments: argparse.Namespace) -> Iterator[tuple[str, Array]]:
    """Yield each guide and its (Q, N) scores."""
    queries, passages = minilm_vectors(collection, arguments.cache)
    yield "minilm", queries @ passages.T
    yield "minilm, 0.7 + 0.3 c", 0.7 + 0.3 * (queries @ passages.T)
    for centred in (True, False):
        queries, passages = student_vectors(collection, centred)
        yield "student" if centred else "token means", queries @ passages.T
    if arguments.wordllama:
        queries, passages = wordllama_vectors(collection)
        yield "wordllama", queries @ passages.T


def main() -> None:
    """Print a line per collection, guide and rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--wordllama", action="store_true")
    arguments = parser.parse_args()
    print("collection | guide | rule | unlabelled | false negatives | random")
    for folder in arguments.collections:
        collection = read_collection(folder)
        rows = np.arange(len(collection.queries))[:QUERIES]  # in the order of hashes
        positive = np.array([collection.positives[row][0] for row in rows])
        relevant = collection.relevant[rows]
        order = lexical(collection)[1][rows]
        np.put_along_axis(order, positive[:, None], -np.inf, axis=1)
        chosen = np.argsort(-order, axis=1, kind="stable")[:, :CANDIDATES]
        known = np.take_along_axis(relevant, chosen, axis=1)
        generator = np.random.default_rng(number_of(collection.name))
        drawn = generator.integers(len(collection.passages), size=(len(rows), CANDIDATES))
        for name, every in guides(collection, arguments):
            scores = every[rows]
            near, best = np.take_along_axis(scores, chosen, axis=1), scores[np.arange(len(rows)), positive][:, None]
            random = np.take_along_axis(scores, drawn, axis=1)
            of_query, of_pairs = random.mean(axis=1, keepdims=True), random.ravel()[:: -(-random.size // PAIRS)].mean()
            limits = {"relative 5 %": best - RELATIVE * np.abs(best)}
            for h in LIMITS:
                for whose, r in (("query", of_query), ("pairs", of_pairs)):
                    limits[f"h {h:g}, r of {whose}"] = np.where(best > r, r + h * (best - r), np.inf)
            for rule, limit in limits.items():
                flags, at_random = near >= limit, (random >= limit).mean()
                found = f"{flags[known].mean():.3f} of {known.sum()}" if known.any() else "-"
                print(
                    f"{collection.name} | {name} | {rule} | {flags[~known].mean():.3f} | {found} | {at_random:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
