"""Made-up rows without a fault, for tests to plant faults in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = [
    a + b for a in ("ba", "ke", "li", "mo", "nu", "pa", "ri", "so") for b in ("den", "fir", "gol", "hem", "jut", "kas")
]


def passage(number: int, length: int = 24) -> str:
    """Words that differ between numbers; the first five too."""
    words = (f"{WORDS[(number * 7 + place * (number % 5 + 1)) % 48]}{number}x{place}" for place in range(length))
    return f"{' '.join(words)}."


def clean_rows(n: int = 40, n_negatives: int = 3) -> list[dict[str, Any]]:
    """Return rows without defects: the positive repeats the query's words, and no text occurs twice."""
    return [
        {
            "query": f"where is topic{number} kept in hall{number} today",
            "pos": [f"topic{number} is kept in hall{number} {passage(number)}"],
            "neg": [passage(1000 + number * 10 + rank) for rank in range(n_negatives)],
        }
        for number in range(n)
    ]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
