"""Sources for the gate whose negatives are related to their queries, an encoder for them, and a baseline."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cli.conftest import invoke_in_process, write_rows

WORDS = [
    f"{first}{second}{end}" for first in "bdfgklmnprst" for second in "aeiou" for end in ("nder", "lk", "rsh", "x")
]
DAMAGES = ({}, {"known": 2}, {"preamble": 2}, {"duplicate": 2})
DIMENSION = 64


def items(n: int, first: int = 0, **damage: int) -> list[dict[str, Any]]:
    """Records whose negatives share words with their query. damage: what a negative of every n-th record becomes."""
    rows = []
    for number in range(first, first + n):
        draw = random.Random(number)
        subject = draw.sample(WORDS, 6)

        def passage(shared: int, draw: random.Random = draw, subject: list[str] = subject) -> str:
            words = [*draw.sample(subject, shared), *draw.sample(WORDS, 14)]
            return " ".join(draw.sample(words, len(words)))

        positive = passage(6)
        negatives = [passage(draw.randint(2, 4)) for _ in range(5)]
        for name, every in damage.items():
            if number % every == 0:
                negatives[0] = {
                    "known": positive.upper(),
                    "preamble": f"Sure, here is a passage: {negatives[0]}",
                    "duplicate": negatives[1],
                }[name]
        rows.append({"query": " ".join(subject), "pos": [positive], "neg": negatives})
    return rows


def save_vectors(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Bags of words in random directions: an encoder in which texts that share words are similar, in no time."""
    axes = np.random.default_rng(0).standard_normal((len(WORDS) + 1, DIMENSION))
    place = {word: number for number, word in enumerate(WORDS)}
    texts = list(dict.fromkeys(text for row in rows for text in (row["query"], *row["pos"], *row["neg"])))
    vectors = [axes[[place.get(word, -1) for word in text.lower().split()]].sum(axis=0) for text in texts]
    np.savez(path, text=np.array(texts), vectors=np.array(vectors, np.float32))
    return path


class Prepared(NamedTuple):
    folder: Path
    baseline: Path
    run: Path
    encoder: Path


def fresh(tmp_path: Path, name: str = "used", **damage: int) -> Path:
    return write_rows(tmp_path / f"{name}.jsonl", items(140, 1000, **damage))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A run over one source of 160 records, and its baseline."""
    folder = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        rows = [row for damage in DAMAGES for row in items(140, 1000, **damage)]
        encoder = save_vectors(folder / "vectors.npz", items(160) + rows)
        source = write_rows(folder / "used.jsonl", items(160))
        scored = invoke_in_process("score", source, "--encoder", encoder, "--run", folder / "run", "--quiet")
        assert scored.code == 0, scored.err
        baseline = invoke_in_process("baseline", folder / "run", "-o", folder / "b.json")
        assert baseline.code == 0, baseline.err
    return Prepared(folder, folder / "b.json", folder / "run", encoder)
