"""Times the text findings on generated triplets of distinct text, next to a bare loop over the same texts.

python -m tests.perf.text_findings [--triplets 1000000] [--folder DIR] [--file FILE ...] [--known] [--profile]

The bare loop decodes every distinct text from the spool and lower-cases it. Both run in one process, one after the
other; peak memory is that of the findings beyond what reading took.
"""

from __future__ import annotations

import argparse
import cProfile
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from secid.findings.copies import restored, stored_positives
from secid.findings.texts import text_rules
from secid.pool.reading import read_plan
from secid.pool.texts import TextStore, pieces
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.catalogue import BITS, TEXT_FINDINGS
from secid.settings import Settings
from tests.perf.read_plan_lex import memory_bytes, write_files

WATCH_SECONDS = 0.02


class Watch:
    """Own memory of this process at its highest, while the block runs."""

    def __enter__(self) -> Watch:
        self.before = self.most = memory_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        self.began, self.began_cpu = time.perf_counter(), time.process_time()
        return self

    def _look(self) -> None:
        while not self._done.wait(WATCH_SECONDS):
            self.most = max(self.most, memory_bytes())

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu_seconds = time.perf_counter() - self.began, time.process_time() - self.began_cpu
        self._done.set()
        self._thread.join()

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu_seconds:.2f} s cpu), {(self.most - self.before) / 2**20:.0f} MiB more"


def bare_loop(stores: tuple[TextStore, ...]) -> int:
    """Decodes and lower-cases every text."""
    return sum(
        len(text.lower())
        for store in stores
        for start, stop in pieces(len(store), 4096, store.lengths)
        for text in store.get(start, stop)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keeps the file for the next time")
    parser.add_argument("--file", type=Path, nargs="*", help="sources of one's own instead")
    parser.add_argument("--known", action="store_true", help="also with the run's positives as stored ones")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        files = arguments.file or [write_files(arguments.folder or Path(made), arguments.triplets)["parquet"]]
        settings = Settings(positives="all", on_bad="skip", max_bad_fraction=float("inf"))
        plan, _ = read_plan(resolve_sources([str(path) for path in files], settings), settings, Path(made), Silent())
        n = sum(source.n_triplets for source in plan.sources)
        print(f"{n:,} triplets, {len(plan.passages):,} passages of {plan.passages.lengths.mean():.0f} bytes")
        with Watch() as bare:
            bare_loop((plan.queries, plan.passages))
        print(f"bare loop      {bare}")
        profile = cProfile.Profile() if arguments.profile else None
        with Watch() as watch:
            if profile:
                profile.enable()
            masks = text_rules(plan.queries, plan.passages, plan.sources)
            if profile:
                profile.disable()
                profile.print_stats("tottime")
        print(f"text findings  {watch}: {watch.cpu_seconds / bare.cpu_seconds:.1f} times the bare loop, "
              f"{watch.cpu_seconds / n * 1e6:.1f} s per million triplets")  # fmt: skip
        for source, (mask, *_) in zip(plan.sources, masks, strict=True):
            n_listed = max(1, int(source.copies.sum()))
            flags = {name: (mask >> np.uint32(BITS[name])) & np.uint32(1) > 0 for name in TEXT_FINDINGS}
            shares = {name: source.copies[flag].sum() / n_listed for name, flag in flags.items()}
            print(f"  {source.name}: " + ", ".join(f"{name} {share:.2%}" for name, share in shares.items() if share))
        if arguments.known:
            with Watch() as watch:
                arrays = stored_positives(plan.queries, plan.passages, plan.sources)
            print(f"stored         {watch}, {sum(a.nbytes for a in arrays.values()) / 2**20:.1f} MiB of arrays")
            with Watch() as watch:
                text_rules(plan.queries, plan.passages, plan.sources, restored(arrays))
            print(f"with stored    {watch}")
        plan.close()


if __name__ == "__main__":
    main()
