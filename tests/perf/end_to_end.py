"""Compare `secid.score` with a plain sentence-transformers script on the same sources, in one run.

    python -m tests.perf.end_to_end --data FOLDER --encoder minilm --repeats 3

FOLDER holds at least two sources. Times are wall times after imports, loading the model included; ratios are of
medians. secid writes its cache, as by default, to a new folder each time. Its controls are off, as the script has none.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import secid
from secid.encode.device import Replica
from tests.kills import ROOT
from tests.perf.plain import plain_scores


class ForwardClock:
    """Clock of the wall time during which at least one forward pass runs."""

    def __init__(self) -> None:
        self.intervals: list[tuple[float, float]] = []
        self._original = Replica.forward
        self._lock = threading.Lock()

    def __enter__(self) -> ForwardClock:
        original, clock = self._original, self

        def timed(replica: Replica, *arguments: Any) -> Any:
            start = time.perf_counter()
            found = original(replica, *arguments)
            with clock._lock:
                clock.intervals.append((start, time.perf_counter()))
            return found

        Replica.forward = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Replica.forward = self._original  # type: ignore[method-assign]

    def seconds(self) -> float:
        """Return the length of the union of all intervals."""
        total, end = 0.0, float("-inf")
        for start, stop in sorted(self.intervals):
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        return total


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median seconds of several calls, and the last result."""
    seconds, found = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        found = function()
        seconds.append(time.perf_counter() - start)
    return median(seconds), found


def ours(paths: list[Path], encoder: str, cache: Path, **settings: Any) -> secid.Run:
    """Score once with a given cache folder, by default without controls."""
    return secid.score(paths, encoder, **{"controls": "none", "cache_dir": str(cache), **settings})


def main() -> None:
    """Print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--single", help="name of the file for the single-source ratio; the first by default")
    options = parser.parse_args()
    paths, encoder, repeats = sorted(options.data.iterdir()), options.encoder, options.repeats
    single = [options.data / options.single] if options.single else paths[:1]
    print(f"{len(paths)} sources, {encoder}, float32, {torch.get_num_threads()} threads, median of {repeats}")

    plain_all, expected = timed(lambda: plain_scores(paths, encoder), repeats)
    plain_one, _ = timed(lambda: plain_scores(single, encoder), repeats)
    cold, outside = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name, ForwardClock() as clock:
            first, run = timed(lambda: ours(paths, encoder, Path(name)), 1)
            cold.append(first)
            outside.append(1 - clock.seconds() / first)
            again, _ = timed(lambda: ours(paths, encoder, Path(name)), 3)
    report("all sources, cold", plain_all, median(cold))
    furthest = max(abs(source.scored.nats - expected[source.name]) for source in run.sources)
    print(f"largest difference of a score: {furthest:.1e} nats")
    print(f"outside the forward pass: {median(outside):.1%} of {median(cold):.2f} s")
    print(f"second run from the cache: {again:.2f} s, {median(cold) / again:.1f} times as fast as the first")

    cold_one, added = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            cold_one.append(timed(lambda: ours(single, encoder, Path(name)), 1)[0])
            seconds, run = timed(lambda: ours(paths, encoder, Path(name)), 1)
            added.append(seconds)
    report(f"one source ({single[0].name}), cold", plain_one, median(cold_one))
    counts = run.timing["encode"]
    print(
        f"the others beside it, from its cache: {median(added):.2f} s, "
        f"{counts['n_encoded']:.0f} of {counts['n_texts']:.0f} texts encoded"
    )


def report(what: str, plain: float, own: float) -> None:
    """Print one comparison."""
    print(f"{what}: script {plain:.2f} s, secid {own:.2f} s: {plain / own:.2f} times as fast")


if __name__ == "__main__":
    main()
