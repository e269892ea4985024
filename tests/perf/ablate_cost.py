"""What `--ablate` adds to a score, and what the same answers cost as separate runs.

It adds the same to a cold score as to one from the cache, since it encodes nothing; the difference of two cached runs
is the less noisy one.

python -m tests.perf.ablate_cost --data FOLDER
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

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
    settings = [{field: value} for field, values in SEPARATE.items() for value in values]
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        cold, _ = timed(lambda: ours(paths, encoder, cache, controls="all"), 1)
        alone, ablated = [], []
        for _ in range(options.repeats):
            alone.append(timed(lambda: ours(paths, encoder, cache, controls="all"), 1)[0])
            seconds, run = timed(lambda: ours(paths, encoder, cache, controls="all", ablate=True), 1)
            ablated.append(seconds)
        separate = sum(
            timed(lambda one=one: ours(paths, encoder, cache, controls="all", **one), 1)[0] for one in settings
        )
    added = median(ablated) - median(alone)
    n_rows = sum(len(item.rows) for item in run.ablations)
    print(f"{len(paths)} sources, {encoder}, {torch.get_num_threads()} threads, median of {options.repeats}")
    print(f"score alone, cold:           {cold:8.2f} s")
    print(f"score alone, cached:         {median(alone):8.2f} s")
    print(f"score --ablate, cached:      {median(ablated):8.2f} s, {n_rows} settings")
    print(f"--ablate adds:               {added:8.2f} s, {added / cold:.1%} of a cold score")
    print(
        f"{len(settings)} separate runs, cached:    {separate:8.2f} s, {separate / added:.1f} times what --ablate adds"
    )
    print(
        f"{len(settings)} separate runs, uncached:  {cold * len(settings):8.2f} s, "
        f"{cold * len(settings) / added:.0f} times what --ablate adds"
    )


if __name__ == "__main__":
    main()
