"""Make sources with different queries and vectors of known hardness. The text of a negative states its hardness."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.fake_encoder import HashEncoder, _drawn

POSITIVE = 0.5
"""Cosine of a query and its positive. A negative of hardness h has h times that, apart from the mean of random
passages.
"""
DIMENSION = 64


class HardnessEncoder(HashEncoder):
    """Encode texts such as "query 12", "positive 12" and "dense 12 0.80 1", whose third word is the hardness."""

    def __init__(self) -> None:
        super().__init__(DIMENSION, name="hardness")

    def row(self, text: str, role: str) -> np.ndarray:
        kind, number, *rest = text.split()
        axis = _drawn(f"axis {number}", DIMENSION)
        if kind == "query":
            return axis
        other = _drawn(f"{role} {text}", DIMENSION)
        other = other - axis * (axis @ other)
        other /= np.linalg.norm(other)
        cosine = POSITIVE * (float(rest[0]) if rest else 1.0)
        return cosine * axis + np.sqrt(1.0 - cosine**2) * other


def write_unlike(folder: Path, sources: Mapping[str, Mapping[int, float]], n_negatives: int = 2) -> list[str]:
    """Write a file for each source. sources : by name, the hardness of the negatives of each query by its number."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, queries in sources.items():
        draw = np.random.default_rng(len(name))
        lines = [
            {
                "query": f"query {number}",
                "pos": [f"positive {number}"],
                "neg": [f"{name} {number} {hardness + draw.uniform(-0.1, 0.1):.3f} {k}" for k in range(n_negatives)],
            }
            for number, hardness in queries.items()
        ]
        paths.append(str(folder / f"{name}.jsonl"))
        Path(paths[-1]).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return paths


def margin_case(folder: Path) -> list[str]:
    """Write sources of a miner with a margin: `dense` keeps the 35 of 120 queries on which no negative outscores the
    positive. On these bm25 has hardness 0.67 and dense 0.79; on all of its queries bm25 has 1.5.
    """
    kept = range(35)
    bm25 = {number: 0.67 if number in kept else 1.85 for number in range(120)}
    return write_unlike(folder, {"bm25": bm25, "dense": dict.fromkeys(kept, 0.79)})
