"""States of all shards to what one process measures of the whole: sums added in order, then the influence pass.

One shard is in memory at a time. Source: METHOD 2, 8, 11, 14.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Floats
from secid.encode.device import gpu_of
from secid.measure.blocks import Vectors
from secid.measure.information import InformationState
from secid.measure.uncertainty import Influence
from secid.pool import Tally
from secid.pool.collect import EXAMPLES_PER_REASON, place_of
from secid.pool.part import unassigned_of
from secid.progress import Progress
from secid.results import Example
from secid.results.catalogue import BITS
from secid.results.document import adapter_of
from secid.shards.between import NO_SUM, Between, ShardPart
from secid.shards.scores import Scores
from secid.shards.shard import ROWS
from secid.shards.state import Arrays, ListedNumbers, ShardNumbers, SourceNumbers, StoredSet, stored_vectors
from secid.shards.store import StateDir
from secid.triplets.estimates import GapMoments, Moments
from secid.triplets.measured import curve_budgets


@dataclass
class Sums:
    """The first pass over one source. parts: its numbers in the shards that hold some of it, in order.

    total, sound : the sums of its triplets, and of those without a counted defect.
    priorities : the first of its queries in the order of every sample.
    """

    parts: list[SourceNumbers] = field(default_factory=list)
    total: InformationState = NO_SUM
    sound: InformationState = NO_SUM
    priorities: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, part: SourceNumbers, arrays: Arrays, number: int, sample: int) -> None:
        """Those of a shard, where the source has this number. sample: queries that are to be sampled."""
        n, n_sound = part.result.n_triplets, part.result.without_flagged.n_triplets
        self.parts.append(part)
        self.total += InformationState(torch.from_numpy(arrays[f"{number}.total"]), float(n))
        self.sound += InformationState(torch.from_numpy(arrays[f"{number}.sound"]), float(n_sound))
        self.priorities = np.sort(np.append(self.priorities, arrays[f"{number}.priorities"]))[: sample + 1]


class Whole:
    """One source, added up over shards.

    parts    : its numbers in the shards that hold some of it, in order.   silent : in those without a triplet of it.
    score    : of all its triplets.   sound : of those without a counted defect; `score` where none has any.
    weights, information : of all triplets under "", and of those with each finding.
    keys, per_query : of its queries, and their influence at the first budget, by shard.
    """

    def __init__(self, sums: Sums, silent: list[ListedNumbers], device: torch.device | None) -> None:
        n = int(sums.total.n_negatives)
        self.parts, self.silent, self.priorities = sums.parts, silent, sums.priorities
        self.score = self.sound = Scores.of(sums.total, curve_budgets(1.0, n), device)
        if sums.sound.n_negatives < n:
            self.sound = Scores.of(sums.sound, (1.0,), device)
        self.weights, self.information = defaultdict[str, float](float), defaultdict[str, float](float)
        self.keys: list[npt.NDArray[np.uint8]] = []
        self.per_query: list[Floats] = []

    def n(self, name: str) -> int:
        """The sum of a number of its parts, such as "result.n_triplets"."""
        return sum(map(attrgetter(name), self.parts))

    def n_listed(self, name: str) -> int:
        """The sum of a number of all shards."""
        return self.n(name) + sum(int(getattr(part, name)) for part in self.silent)

    def mean(self, name: str, weight: str = "result.n_triplets") -> float:
        """The mean of a number of its parts."""
        return float(np.average([*map(attrgetter(name), self.parts)], weights=[*map(attrgetter(weight), self.parts)]))

    def moments(self) -> dict[str, Moments]:
        """Of each share, over the shards that evaluated it."""
        sums: dict[str, Moments] = {}
        for part in (*self.parts, *self.silent):
            for name, own in part.moments.items():
                sums[name] = sums[name].plus(own) if name in sums else own
        return sums

    def compared(self) -> dict[str, GapMoments]:
        """Of each formal finding, over all shards."""
        first, *others = (part.compared for part in (*self.parts, *self.silent))
        sums = dict(first)
        for other in others:
            sums = {name: moments.plus(other[name]) for name, moments in sums.items()}
        return sums

    def add(self, vectors: Vectors, arrays: Arrays, number: int, distance: float, dtype: torch.dtype) -> Influence:
        """The second pass over a shard, where the source has this number."""
        own = StoredSet.of(arrays, number)
        effect = self.score.add(vectors, own, distance, dtype)
        self.keys.append(arrays[f"{number}.keys"])
        self.per_query.append(effect.per_query[:, 0])
        flags = {"": np.ones(len(own.weight), np.bool_)}
        flags |= {name: own.findings >> np.uint32(bit) & np.uint32(1) != 0 for name, bit in BITS.items()}
        for name, inside in flags.items():
            self.weights[name] += float(own.weight[inside].sum())
            self.information[name] += float(effect.information[inside].sum())
        if self.sound is not self.score and own.is_sound.any():
            self.sound.add(vectors, own.sound(), distance, dtype)
        return effect


def whole_run(
    state: StateDir,
    headers: Mapping[str, Mapping[str, Any]],
    sample: int,
    folder: Path,
    device: str,
    dtype: torch.dtype,
    progress: Progress,
) -> tuple[dict[str, Whole], Between, dict[str, Tally]]:
    """What the shards of a run come to, by source.

    headers : of the states, in order.   sample : queries of each source that are to be sampled.
    folder : an empty one, for rows that are downloaded.   device, dtype : of the influence pass.
    """
    shards = {name: adapter_of(ShardNumbers).validate_python(header["numbers"]) for name, header in headers.items()}
    sums: defaultdict[str, Sums] = defaultdict(Sums)
    tallies: dict[str, Tally] = {}
    between = Between(tuple(sorted({part.result.name for own in shards.values() for part in own.sources})))
    progress.start("merge", 2 * len(shards), "shards")
    for numbers, arrays, _ in _shards(state, shards, folder, rows=False):
        for number, part in enumerate(numbers.sources):
            sums[part.result.name].add(part, arrays, number, sample)
        for name, tally in numbers.tallies.items():
            tallies[name] = _added(tallies[name], tally) if name in tallies else tally
        if numbers.sources:
            between.count(ShardPart.of(numbers, arrays, between.names), numbers)
        del arrays  # before the next are read
        progress.advance(1)
    gpu = gpu_of(device)
    silent = {name: [s.silent[name] for s in shards.values() if name in s.silent] for name in sums}
    wholes = {name: Whole(own, silent[name], gpu) for name, own in sums.items()}
    tallies = {name: _added(tallies[name], tallies[unassigned_of(own.parts[0].file)]) for name, own in sums.items()}
    between.settle()
    for numbers, arrays, path in _shards(state, shards, folder, rows=True) if between.members else ():
        if numbers.sources:
            part_of_shard = ShardPart.of(numbers, arrays, between.names)
            between.sum(part_of_shard, stored_vectors(path, numbers.dimension, gpu), dtype)
        del arrays
    between.score(gpu)
    for numbers, arrays, path in _shards(state, shards, folder, rows=True):
        effects = {}
        for number, part in enumerate(numbers.sources):
            vectors = stored_vectors(path, numbers.dimension, gpu)
            name = part.result.name
            effects[name] = wholes[name].add(vectors, arrays, number, numbers.smallest_distance, dtype)
        if effects:
            between.add(ShardPart.of(numbers, arrays, between.names), effects, vectors, dtype)
        del arrays
        progress.advance(1)
    return wholes, between, tallies


def _shards(
    state: StateDir, shards: Mapping[str, ShardNumbers], folder: Path, *, rows: bool
) -> Iterator[tuple[ShardNumbers, Arrays, Path]]:
    for name, numbers in shards.items():
        path = state.file(name, ROWS, folder) if rows and numbers.sources else folder
        yield numbers, state.read(name), path
        if path.is_relative_to(folder) and path != folder:
            path.unlink()


def _added(before: Tally, own: Tally) -> Tally:
    """The rows of one more shard. Of each reason the first examples stay."""
    shown: list[Example] = []
    for example in sorted([*before.examples, *own.examples], key=place_of):
        if sum(other.reason == example.reason for other in shown) < EXAMPLES_PER_REASON:
            shown.append(example)
    return Tally(
        n_read=before.n_read + own.n_read,
        n_used=before.n_used + own.n_used,
        n_records=before.n_records + own.n_records,
        skipped=dict(sorted((Counter(before.skipped) + Counter(own.skipped)).items())),
        dropped=dict(sorted((Counter(before.dropped) + Counter(own.dropped)).items())),
        examples=tuple(shown),
        n_mixed_slices=before.n_mixed_slices + own.n_mixed_slices,
        n_repeated_rows=before.n_repeated_rows + own.n_repeated_rows,
    )
