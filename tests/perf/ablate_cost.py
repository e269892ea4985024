"""What `--ablate` adds to a score, cold and from the cache, and what the same answers cost as separate runs.

It encodes nothing, so it adds the same to a cold score as to one from the cache; the difference of two cached runs is
the less noisy one. Only settings that a run can have are run by themselves; what all would cost is extrapolated.

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
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        cache = Path(name)
        cold, _ = timed(lambda: ours(paths, encoder, cache, controls="all"), 1)
        cold_ablated, _ = timed(lambda: ours(paths, encoder, Path(other), controls="all", ablate=True), 1)
        alone, ablated = [], []
        for _ in range(options.repeats):
            alone.append(timed(lambda: ours(paths, encoder, cache, controls="all"), 1)[0])
            seconds, run = timed(lambda: ours(paths, encoder, cache, controls="all", ablate=True), 1)
            ablated.append(seconds)
        separate = sum(
            timed(lambda one=one: ours(paths, encoder, cache, controls="all", **one), 1)[0] for one in settings
        )
    added = median(ablated) - median(alone)
    n_settings = sum(row.setting != item.base for item in run.ablations for row in item.rows)
    each, added_each = separate / len(settings), added / n_settings
    print(f"{len(paths)} sources, {encoder}, {torch.get_num_threads()} threads, median of {options.repeats}")
    print(f"score alone, cold:           {cold:8.2f} s")
    print(f"score --ablate, cold:        {cold_ablated:8.2f} s, {cold_ablated / cold - 1.0:+.1%} (one run of each)")
    print(f"score alone, cached:         {median(alone):8.2f} s")
    print(f"score --ablate, cached:      {median(ablated):8.2f} s, {n_settings} settings beside the run's own")
    print(
        f"--ablate adds:               {added:8.2f} s, {added / cold:.1%} of a cold score, {added_each:.2f} s a setting"
    )
    print(
        f"{len(settings)} separate runs, cached:    {separate:8.2f} s, {each / added_each:.1f} times as much a setting"
    )
    print(f"extrapolated to {n_settings}, cached: {each * n_settings:7.0f} s")
    print(f"extrapolated to {n_settings}, cold:   {cold * n_settings:7.0f} s, {cold * n_settings / added:.0f} times")


if __name__ == "__main__":
    main()
