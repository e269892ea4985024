"""Make sources for the gate with negatives related to their queries, an encoder for them, and a baseline."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytest

from tests.cli.conftest import invoke_in_process, write_rows

WORDS = [
    f"{first}{second}{end}" for first in "bdfgklmnprst" for second in "aeiou" for end in ("nder", "lk", "rsh", "x")
]
FRAMES = {
    "en": ["the", "of", "and", "with", "that", "was", "from", "this", "which", "have"],
    "de": ["der", "und", "mit", "nicht", "eine", "wird", "auch", "über", "können", "für"],
}
"""Words between the others, by which a language is recognised. The encoder ignores them."""
COMMON = {word for words in FRAMES.values() for word in words}
DIMENSION = 64


@cache
def record(number: int, language: str, shared: tuple[int, int], random_tenths: int) -> tuple[str, str, tuple[str, ...]]:
    """Return a query, its positive and five negatives: always the same for one number."""
    draw = random.Random(number)
    subject = draw.sample(WORDS, 6)
    others = [word for word in WORDS if word not in subject]
    frames = FRAMES[language]

    def passage(n_shared: int) -> str:
        words = draw.sample([*draw.sample(subject, n_shared), *draw.sample(others, 14)], n_shared + 14)
        return " ".join(f"{draw.choice(frames)} {draw.choice(frames)} {word}" for word in words)

    positive = passage(6)
    negatives = (passage(0 if number % 10 < random_tenths else draw.randint(*shared)) for _ in range(5))
    return " ".join(subject), positive, tuple(negatives)


def items(
    n: int,
    first: int = 0,
    language: str = "en",
    shared: tuple[int, int] = (2, 4),
    random_tenths: int = 0,
    **damage: int,
) -> list[dict[str, Any]]:
    """Return records whose negatives share `shared` words with their query, but none in random_tenths of ten records.

    damage : replacement of the first negative of every n-th record: a known positive, a preamble or its neighbour.
    """
    rows = []
    for number in range(first, first + n):
        query, positive, (head, *others) = record(number, language, shared, random_tenths)
        for name, every in damage.items():
            if number % every == 0:
                known, preamble = positive.upper(), f"Sure, here is a passage: {head}"
                head = {"known": known, "preamble": preamble, "duplicate": others[0]}[name]
        rows.append({"query": query, "pos": [positive], "neg": [head, *others]})
    return rows


def with_negatives(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "neg": other["neg"]} for row, other in zip(rows, others, strict=True)]


def misread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return queries, positives and negatives whose UTF-8 was read as Latin-1."""
    text = json.dumps(rows, ensure_ascii=False).encode().decode("latin-1")
    return json.loads("".join(char if char.isprintable() else " " for char in text))  # type: ignore[no-any-return]


def mostly_misread() -> list[dict[str, Any]]:
    """Return German records with all negatives misread, and the positives of two thirds of the records."""
    rows = items(*NEW, language="de")
    damaged = misread(rows)
    return [
        {**row, "neg": other["neg"], "pos": other["pos"] if number % 3 else row["pos"]}
        for number, (row, other) in enumerate(zip(rows, damaged, strict=True))
    ]


def save_vectors(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write vectors of bags of words in random directions: texts with shared words are similar, at no cost."""
    texts = list(dict.fromkeys(text for row in rows for text in (row["query"], *row["pos"], *row["neg"])))
    bags = [[word for word in re.findall(r"\w+", text.lower()) if word not in COMMON] for text in texts]
    axes = {
        word: np.random.default_rng(crc32(word.encode())).standard_normal(DIMENSION)
        for word in sorted({word for bag in bags for word in bag})
    }
    vectors = [sum((axes[word] for word in bag), np.full(DIMENSION, 1e-3)) for bag in bags]
    np.savez(path, text=np.array(texts), vectors=np.array(vectors, np.float32))
    return path


class Prepared(NamedTuple):
    folder: Path
    baseline: Path
    run: Path
    encoder: Path


NEW = (140, 1000)
"""Number of records of a new source, and number of its first record."""
VARIANTS = {
    "fresh": items(*NEW),
    "known": items(*NEW, known=2),
    "preamble": items(*NEW, preamble=2),
    "duplicate": items(*NEW, duplicate=2),
    "5 % known, 40 queries": items(40, 1000, known=4),
    "30 % random": items(*NEW, random_tenths=3),
    "harder": items(*NEW, shared=(4, 5)),
    "German": items(*NEW, language="de"),
    "German negatives": with_negatives(items(*NEW), items(*NEW, language="de")),
    "misread": misread(items(*NEW, language="de")),
    "misread negatives": with_negatives(items(*NEW, language="de"), misread(items(*NEW, language="de"))),
    "misread, mostly": mostly_misread(),
    "few": items(30, 3000),
}


def variant(tmp_path: Path, which: str, name: str = "used") -> Path:
    return write_rows(tmp_path / f"{name}.jsonl", VARIANTS[which])


def fresh(tmp_path: Path, name: str = "used", **damage: int) -> Path:
    return write_rows(tmp_path / f"{name}.jsonl", items(*NEW, **damage))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return a run over one source of 160 records, and its baseline."""
    folder = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = [row for variant in VARIANTS.values() for row in variant]
        encoder = save_vectors(folder / "vectors.npz", items(160) + rows)
        source = write_rows(folder / "used.jsonl", items(160))
        scored = invoke_in_process("score", source, "--encoder", encoder, "--run", folder / "run", "--quiet")
        assert scored.code == 0, scored.err
        baseline = invoke_in_process("baseline", folder / "run", "-o", folder / "b.json")
        assert baseline.code == 0, baseline.err
    return Prepared(folder, folder / "b.json", folder / "run", encoder)
