"""How busy the encoder's pipeline keeps GPUs, on simulated ones; and how many texts a second it can move at most.

    python -m tests.perf.pipeline
    python -m tests.perf.pipeline --pace 28000 --devices 1 --cache
    python -m tests.perf.pipeline --pace 0 --no-cache

Everything is the production path (`Embedder`, cache, sorting, batches, threads) but the tokenizer, which counts
characters, and the devices: a batch takes the time that its texts have at the device's pace, next to which the host is
free, as it is next to a GPU. Rows are unit vectors that are there already. A pace of 0 is a device that takes no time,
so that what is left is the host: the ceiling.

Without --pace the four cases of the targets run. busy: the devices' share of the wall time from the call to its
return, with the start, the end and the sealing of the cache in it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from secid.encode.batching import TokenBatch, Tokens
from secid.encode.device import GPU_BUDGET, Pending, Replica
from secid.encode.parts import never_wait
from secid.encode.recipe import Recipe
from secid.encode.transformer import TransformerEncoder
from secid.pool.texts import TextSpool
from secid.progress import Silent
from secid.results import EncoderInfo
from secid.settings import Settings
from secid.triplets.embedding import Embedder

MEDIAN_TOKENS, SIGMA, LONGEST = 75, 0.4, 512
"""Of MS MARCO's passages, as in `tests.perf.gpu`."""
CHARACTERS_A_TOKEN = 4
N_QUERIES = 2_000


class Case(NamedTuple):
    """pace: texts a second of one device; 0 for a device that takes no time."""

    pace: float
    devices: int
    cache: bool
    texts: int


CASES = {
    "ceiling": Case(0, 1, False, 500_000),
    "ceiling_cached": Case(0, 1, True, 400_000),
    "busy_1": Case(28_000, 1, True, 500_000),
    "busy_8": Case(8_000, 8, False, 700_000),
}
"""The pace of one H200 with E5-base, and of slower GPUs. Ceilings go first, before files wait to be written to disk."""
TARGETS = {"busy_1": 0.95, "busy_8": 0.85, "ceiling": 120_000, "ceiling_cached": 60_000}


class Clock:
    """When a device is done with what it has taken, and how long it has worked."""

    def __init__(self, pace: float) -> None:
        self.pace, self.free_at, self.seconds = pace, 0.0, 0.0

    def take(self, n: int) -> float:
        """When n more texts are done."""
        if self.pace:
            took = n / self.pace
            self.free_at = max(self.free_at, time.perf_counter()) + took
            self.seconds += took
        return self.free_at


class Moment(NamedTuple):
    """In place of a CUDA event."""

    at: float

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.at - time.perf_counter()))


class Simulated(Replica):
    """A replica whose batches take the time of a clock, one for each device."""

    clock: Clock
    clocks: list[Clock]
    rows: torch.Tensor

    def on(self, device: torch.device) -> Replica:
        return simulated(self.clock.pace, self.rows, self.clocks)

    def _launch(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Pending:
        n = len(batch.positions)
        return Pending(batch, self.rows[:n], Moment(self.clock.take(n)))  # type: ignore[arg-type]


def simulated(pace: float, rows: torch.Tensor, clocks: list[Clock]) -> Simulated:
    """The next device, whose clock is added to the others."""
    replica = Simulated(torch.nn.Identity(), torch.device("meta"))
    replica.clock, replica.clocks, replica.rows = Clock(pace), clocks, rows
    clocks.append(replica.clock)
    return replica


class Counted:
    """A tokenizer that takes a token for every few characters."""

    padding = 0

    def tokens(self, texts: list[str]) -> Tokens:
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) // CHARACTERS_A_TOKEN
        return Tokens(np.zeros(int(lengths.sum()), np.int64), lengths, np.zeros(len(texts), np.bool_))

    def prompt_length(self, prompt: str) -> int:
        return 0


def encoder_of(case: Case, dim: int, clocks: list[Clock]) -> TransformerEncoder:
    """The production encoder over simulated devices."""
    rows = torch.zeros((GPU_BUDGET, dim))
    rows[:, 0] = 1
    texts = {"name": "simulated", "pooling": "mean", "query_prefix": "", "passage_prefix": "", "dtype": "bf16"}
    unknown: dict[str, Any] = {"revision": None, "weights_sha256": None, "max_length": None}
    info = EncoderInfo(**texts, **unknown, normalize=True, device="simulated", dim=dim, fingerprint=f"simulated-{dim}")
    recipe = SimpleNamespace(prefix=lambda role: "", include_prompt=True)
    recipe.of = lambda role: recipe
    parts: Any = SimpleNamespace(
        recipe=recipe,
        tokeniser=Counted(),
        replica=simulated(case.pace, rows, clocks),
        devices=(torch.device("meta"),) * case.devices,
    )
    return TransformerEncoder(parts, info, GPU_BUDGET)


def token_lengths(n: int) -> list[int]:
    """Lengths of passages in tokens."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN_TOKENS), SIGMA, n)
    lengths: list[int] = np.minimum(drawn.astype(int), LONGEST).tolist()
    return lengths


def passages(n: int) -> Iterator[str]:
    """Texts that differ in their number and length."""
    base = "the moon moves the water and the wind carries the sand " * (LONGEST * CHARACTERS_A_TOKEN // 50 + 2)
    return (f"{number} {base[: length * CHARACTERS_A_TOKEN]}" for number, length in enumerate(token_lengths(n)))


def plan_of(folder: Path, queries: Iterable[str], passages: Iterable[str]) -> Any:
    """What an embedder needs of a plan: stores of queries and passages."""
    stores = {}
    for role, texts in (("query", queries), ("passage", passages)):
        spool = TextSpool(role, folder / f"{role}.txt")  # type: ignore[arg-type]
        rest = iter(texts)
        while part := list(islice(rest, 1000)):
            spool.add(part)
        stores[role] = spool.store()[0]
    return SimpleNamespace(queries=stores["query"], passages=stores["passage"])


class Result(NamedTuple):
    """busy: share of the wall; cpu, main: microseconds of processor time a text, of all threads and of the main one.

    shares: of the main thread's time, by function.
    """

    texts_per_second: float
    busy: float
    cpu: float
    main: float
    shares: dict[str, float]


def run(case: Case, dim: int) -> Result:
    """Embeds all texts of a case, each once."""
    never_wait(torch.nn.Identity())  # imports what loading a model has imported
    with tempfile.TemporaryDirectory() as name:
        folder, clocks = Path(name), []
        plan = plan_of(folder, (f"what is number {number}" for number in range(N_QUERIES)), passages(case.texts))
        settings = Settings(cache=case.cache, cache_dir=str(folder / "cache"))
        embedder = Embedder(plan.queries, plan.passages, encoder_of(case, dim, clocks), settings, folder, Silent())
        profiler = cProfile.Profile()
        began, cpu, main = time.perf_counter(), time.process_time(), time.thread_time()
        profiler.enable()
        embedder.everything()
        getattr(embedder, "close", lambda: None)()
        profiler.disable()
        seconds = time.perf_counter() - began
        cpu, main = time.process_time() - cpu, time.thread_time() - main
        n = int(embedder.counts["n_encoded"])
    assert n == case.texts + N_QUERIES
    busy = sum(clock.seconds for clock in clocks) / (seconds * case.devices)
    return Result(n / seconds, busy, 1e6 * cpu / n, 1e6 * main / n, shares(profiler))


def shares(profiler: cProfile.Profile) -> dict[str, float]:
    """Share of the main thread's time in each function, the six longest."""
    profiler.create_stats()
    stats: Any = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    times = {
        f"{Path(file).stem}.{name}" if line else name: own for (file, line, name), (_, _, own, _, _) in stats.items()
    }
    total = sum(times.values()) or 1.0
    longest = sorted(times, key=lambda name: -times[name])[:6]
    return {name: times[name] / total for name in longest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pace", type=float, help="texts a second of one device; 0: no time at all")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--texts", type=int, help="passages to encode")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--cache", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", choices=CASES, help="one of the four cases")
    parser.add_argument("--json", action="store_true", help="the last line is JSON")
    options = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if options.only in (None, name)}
    if options.pace is not None:
        cases = {"case": Case(options.pace, options.devices, options.cache, options.texts or 500_000)}
    numbers: dict[str, float] = {}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, {options.dim} dimensions")
    for name, case in cases.items():
        case = case._replace(texts=options.texts or case.texts)
        result = run(case, options.dim)
        numbers[name] = round(result.busy, 4) if case.pace else round(result.texts_per_second)
        pace = f"{case.devices} x {case.pace:,.0f} texts/s" if case.pace else "devices that take no time"
        target = TARGETS.get(name)
        print(
            f"{name}: {pace}, cache {'on' if case.cache else 'off'}, {case.texts:,} texts: "
            f"{result.texts_per_second:,.0f} texts/s"
            + (f", busy {result.busy:.1%}" if case.pace else "")
            + (f" (target {target:,})" if target else "")
        )
        print(f"  processor time a text: {result.cpu:.1f} µs, {result.main:.1f} of them in the main thread")
        print(
            "  main thread's wall time: "
            + ", ".join(f"{function} {share:.0%}" for function, share in result.shares.items())
        )
    if options.json:
        print(json.dumps({name: numbers[name] for name in sorted(numbers)}))


if __name__ == "__main__":
    main()
