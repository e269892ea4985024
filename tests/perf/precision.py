"""What number formats and cut vectors do to the score, on given sources, against a float32 encoder.

    python -m tests.perf.precision --data FOLDER --encoder minilm --max-records 300

Prints a Markdown table: largest difference of a source's score, absolute and relative, and whether any rank changed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import secid
from secid.encode import Encoder, Role, load
from secid.errors import SecidError
from secid.settings import Settings
from tests.kills import ROOT


class Remembering:
    """An encoder that keeps what it was asked and what it answered."""

    def __init__(self, inner: Encoder) -> None:
        self.info, self.dimension, self._inner = inner.info, inner.dimension, inner
        self.texts: dict[str, list[str]] = {"query": [], "passage": []}
        self.rows: dict[str, list[np.ndarray]] = {"query": [], "passage": []}

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        rows = self._inner.encode(texts, role)
        self.texts[role] += texts
        self.rows[role].append(rows)
        return rows

    def save(self, path: Path, dtype: type) -> None:
        """All rows in a vectors file, in the given format."""
        roles = [role for role in self.texts for _ in self.texts[role]]
        texts = [text for role in self.texts for text in self.texts[role]]
        vectors = np.concatenate([part for role in self.rows for part in self.rows[role]]).astype(dtype)
        np.savez(path, vector=vectors, text=np.array(texts), role=np.array(roles))


def scores(paths: list[Path], encoder: str | Encoder, **settings: object) -> tuple[dict[str, float], list[str]]:
    """Score by source, and the sources in rank order."""
    run = secid.score(paths, encoder, **{"controls": "none", "cache": False, **settings})
    return {source.name: source.eci_nats for source in run.sources}, [source.name for source in run.sources]


def row(name: str, base: tuple[dict[str, float], list[str]], other: tuple[dict[str, float], list[str]]) -> str:
    """One line of the table."""
    gaps = {source: abs(other[0][source] - nats) for source, nats in base[0].items()}
    relative = max(gap / base[0][source] for source, gap in gaps.items())
    changed = "none" if base[1] == other[1] else f"now {', '.join(other[1])}"
    return f"| {name} | {max(gaps.values()):.1e} | {relative:.1e} | {changed} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtypes", nargs="*", default=["bf16", "fp16"])
    parser.add_argument("--max-records", type=int, help="queries a source, a seeded sample; all by default")
    options = parser.parse_args()
    sample = {"max_records": options.max_records}
    paths = sorted(options.data.iterdir())
    kept = Remembering(load(Settings(encoder=options.encoder, device=options.device, dtype="float32")))
    base = scores(paths, kept, **sample)
    print(f"{options.encoder} on {kept.info.device}, float32: {', '.join(f'{n} {base[0][n]:.4f}' for n in base[1])}\n")
    print("| against float32 | largest difference, nats | relative | change of ranks |\n|---|---|---|---|")
    for dtype in options.dtypes:
        try:
            found = scores(paths, options.encoder, dtype=dtype, device=options.device, **sample)
        except (SecidError, RuntimeError) as error:
            print(f"| encoder in {dtype} | – | – | not evaluated: {' '.join(str(error).split())[:80]} |")
            continue
        print(row(f"encoder in {dtype}", base, found))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "half.npz"
        kept.save(path, np.float16)
        print(row("float32 encoder, vectors stored in half precision", base, scores(paths, str(path), **sample)))
        kept.save(Path(name) / "whole.npz", np.float32)
        for divisor in (2, 4, 8):
            width = kept.dimension // divisor
            cut = scores(paths, str(Path(name) / "whole.npz"), truncate_dim=width, **sample)
            print(row(f"first {width} of {kept.dimension} dimensions", base, cut))


if __name__ == "__main__":
    main()
