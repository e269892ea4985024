"""What `--ablate` costs over a score alone, from a cold cache, and what the same answers cost as separate runs.

python -m tests.perf.ablate_cost --data FOLDER
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from tests.kills import ROOT
from tests.perf.end_to_end import ours, timed

SEPARATE = {
    "temperature": (0.01, 0.02, 0.1, 0.2),
    "tokenizer": ("alphanumeric2", "whitespace", "trigrams"),
    "idf": ("own", "pooled_with_queries", "uniform"),
}
"""Settings of METHOD 4 that a user could change one at a time; weights and samples have no setting."""


def main() -> None:
    """Prints wall times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    paths, encoder = sorted(options.data.iterdir()), options.encoder
    alone, _ = timed(lambda: ours(paths, encoder, None, controls="all"), options.repeats)
    ablated, run = timed(lambda: ours(paths, encoder, None, controls="all", ablate=True), options.repeats)
    n_rows = sum(len(item.rows) for item in run.ablations)
    print(f"{len(paths)} sources, {encoder}, {torch.get_num_threads()} threads, median of {options.repeats}")
    print(f"score alone, cold:           {alone:8.2f} s")
    print(f"score --ablate, cold:        {ablated:8.2f} s, {ablated / alone:.3f} times, {n_rows} settings")
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        ours(paths, encoder, cache, controls="all")
        cached, _ = timed(lambda: ours(paths, encoder, cache, controls="all"), options.repeats)
        settings = [{field: value} for field, values in SEPARATE.items() for value in values]
        separate = sum(
            timed(lambda one=one: ours(paths, encoder, cache, controls="all", **one), 1)[0] for one in settings
        )
    print(f"score alone, cached:         {cached:8.2f} s")
    print(
        f"{len(settings)} separate runs, cached:    {separate:8.2f} s, {separate / max(1e-9, ablated - alone):.1f} times "  # noqa: E501
        "what --ablate adds"
    )
    print(f"{len(settings)} separate runs, uncached:  {alone * len(settings):8.2f} s (that many times a score alone)")


if __name__ == "__main__":
    main()
