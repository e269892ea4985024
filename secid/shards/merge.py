"""States of all shards to what one process measures of the whole: sums added in order, then the influence pass.

One shard is in memory at a time. Source: METHOD 2, 8, 11, 14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Floats
from secid.encode.device import gpu_of
from secid.measure.information import Eigen, InformationState
from secid.measure.uncertainty import Difference, Influence, covariance, difference, influence
from secid.pool import Tally
from secid.pool.collect import EXAMPLES_PER_REASON, place_of
from secid.pool.part import unassigned_of
from secid.progress import Progress
from secid.records import Fact
from secid.results import Example
from secid.results.catalogue import BITS
from secid.shards.shard import ROWS
from secid.shards.state import StoredSet, stored_vectors
from secid.shards.store import StateDir
from secid.triplets.estimates import Moments
from secid.triplets.measured import curve_budgets


@dataclass
class Whole:
    """One source, added up over shards.

    headers : those of the shards that hold some of it, in order.   silent : of those that hold no triplet of it.
    total, sound : its sums, and those of its triplets without a counted defect.
    eigen, eigen_sound : of both, once all shards are added.
    squares, bias : (budgets,) sums over queries.   square_sound : the same without the flagged, at budget 1.
    weights, information : of all triplets, and of those with each finding.
    keys, per_query : of its queries, and their influence at the first budget, by shard.
    """

    name: str
    headers: list[Mapping[str, Any]] = field(default_factory=list)
    silent: list[Mapping[str, Any]] = field(default_factory=list)
    total: InformationState | None = None
    sound: InformationState | None = None
    eigen: Eigen | None = None
    eigen_sound: Eigen | None = None
    squares: Floats = field(default_factory=lambda: np.zeros(0))
    bias: Floats = field(default_factory=lambda: np.zeros(0))
    square_sound: float = 0.0
    n_queries_sound: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    information: dict[str, float] = field(default_factory=dict)
    keys: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    per_query: list[Floats] = field(default_factory=list)
    priorities: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def file(self) -> str:
        """The name of its file, which may hold several sources."""
        return str(self.headers[0]["file"])

    def n(self, name: str) -> int:
        """The sum of a number of the headers."""
        return sum(int(header.get(name, 0)) for header in (*self.headers, *self.silent))

    def mean(self, group: str, name: str, weight: str = "n_triplets") -> float:
        """The mean of a number of the headers."""
        return float(sum(header[group][name] * header[weight] for header in self.headers)) / self.n(weight)

    def moments(self) -> dict[str, Moments]:
        """Of each share, over the shards that evaluated it."""
        found: dict[str, Moments] = {}
        for header in (*self.headers, *self.silent):
            for name, own in header["moments"].items():
                found[name] = found[name].plus(own) if name in found else Moments._make(own)
        return found

    @property
    def budgets(self) -> tuple[float, ...]:
        return curve_budgets(1.0, self.n("n_triplets"))

    @property
    def error(self) -> float:
        """Standard error at budget 1."""
        return float(np.sqrt(self.squares[0]))

    def add_sums(
        self, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], number: int, sample: int
    ) -> None:
        """The first pass over a shard."""
        self.headers.append(header)
        for kind, n in (("total", header["n_triplets"]), ("sound", header["n_sound"])):
            own = InformationState(torch.from_numpy(arrays[f"{number}.{kind}"]), float(n))
            before = getattr(self, kind)
            setattr(self, kind, own if before is None else before + own)
        both = np.concatenate([self.priorities, arrays[f"{number}.priorities"]])
        self.priorities = np.sort(both)[: sample + 1]

    def decompose(self, device: torch.device | None) -> None:
        """Between the passes."""
        self.eigen = _eigen(self.total, self.n("n_triplets"), device)
        flagged = self.n("n_sound") < self.n("n_triplets")
        self.eigen_sound = _eigen(self.sound, self.n("n_sound"), device) if flagged and self.n("n_sound") else None
        self.squares, self.bias = np.zeros((2, len(self.budgets)))

    def add_influence(
        self, vectors: Any, own: StoredSet, keys: npt.NDArray[np.uint8], distance: float, dtype: torch.dtype
    ) -> Influence:
        """The second pass over a shard."""
        assert self.eigen is not None
        effect = influence(vectors, own.triplets, own.squared, own.weight, self.eigen, distance, self.budgets, dtype)
        self.squares += (effect.per_query**2).sum(axis=0)
        self.bias += effect.bias_nats
        self.keys.append(keys)
        self.per_query.append(effect.per_query[:, 0])
        flags = {"": np.ones(len(own.weight), np.bool_)}
        flags |= {name: own.findings >> np.uint32(bit) & np.uint32(1) != 0 for name, bit in BITS.items()}
        for name, inside in flags.items():
            self.weights[name] = self.weights.get(name, 0.0) + float(own.weight[inside].sum())
            self.information[name] = self.information.get(name, 0.0) + float(effect.information[inside].sum())
        sound = own.sound()
        if self.eigen_sound is not None and len(sound.weight):
            part = influence(
                vectors, sound.triplets, sound.squared, sound.weight, self.eigen_sound, distance, dtype=dtype
            )
            self.square_sound += float((part.per_query[:, 0] ** 2).sum())
            self.n_queries_sound += len(part.queries)
        return effect


def _eigen(state: InformationState | None, n_triplets: int, device: torch.device | None) -> Eigen:
    assert state is not None
    total = state.total if device is None else state.total.to(device)
    return Eigen.of(InformationState(total, state.n_negatives), n_triplets)


@dataclass
class Between:
    """What sets pairs of sources apart, added up over shards. names: of the sources, in the order of the matrices.

    covariance : (S, S) of the scores.   square, n_shared : of the pairs, by place, the lower one first.
    jaccard    : by names, queries shared and the sum of the overlap of their negatives.
    """

    names: tuple[str, ...]
    covariance: Floats
    square: dict[tuple[int, int], float] = field(default_factory=dict)
    n_shared: dict[tuple[int, int], int] = field(default_factory=dict)
    jaccard: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def add(self, effects: Mapping[str, Influence], pairs: Mapping[str, Sequence[float]]) -> None:
        """Those of one shard."""
        places = [self.names.index(name) for name in effects]
        self.covariance[np.ix_(places, places)] += covariance(list(effects.values()))
        none = Influence((1.0,), np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros(0))
        for a, b in combinations(range(len(self.names)), 2):
            first, second = (effects.get(self.names[place], none) for place in (a, b))
            gap = difference(first, second, 0.0)
            self.square[a, b] = self.square.get((a, b), 0.0) + gap.standard_error**2
            self.n_shared[a, b] = self.n_shared.get((a, b), 0) + gap.n_shared_queries
        for label, (n, overlap) in pairs.items():
            first_name, _, second_name = label.partition("\n")
            key = min(first_name, second_name), max(first_name, second_name)
            before = self.jaccard.get(key, (0, 0.0))
            self.jaccard[key] = before[0] + int(n), before[1] + overlap

    def gap(self, first: str, second: str, nats: float, n_queries: int) -> Difference:
        """The difference of two sources. n_queries: of the one that has fewer."""
        places = sorted((self.names.index(first), self.names.index(second)))
        square, n_shared = self.square[places[0], places[1]], self.n_shared[places[0], places[1]]
        return Difference(nats, float(np.sqrt(square)), n_shared, n_queries)


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
    wholes: dict[str, Whole] = {}
    tallies: dict[str, Tally] = {}
    progress.start("merge", 2 * len(headers), "shards")
    for header, arrays, _ in _shards(state, headers, folder, rows=False):
        for number, own in enumerate(header["sources"]):
            wholes.setdefault(own["name"], Whole(own["name"])).add_sums(own, arrays, number, sample)
        for name, tally in header["tallies"].items():
            tallies[name] = _added(tallies.get(name), tally)
        del arrays  # before the next are read
        progress.advance(1)
    tallies = {name: _added(tallies[name], asdict(tallies[unassigned_of(wholes[name].file)])) for name in wholes}
    gpu = gpu_of(device)
    for whole in wholes.values():
        whole.silent = [own for header in headers.values() if (own := header["silent"].get(whole.name))]
        whole.decompose(gpu)
    order = tuple(sorted(wholes))
    between = Between(order, np.zeros((len(order), len(order))))
    for header, arrays, path in _shards(state, headers, folder, rows=True):
        effects = {}
        for number, own in enumerate(header["sources"]):
            vectors = stored_vectors(path, header["dimension"], gpu)
            effects[own["name"]] = wholes[own["name"]].add_influence(
                vectors, StoredSet.of(arrays, number), arrays[f"{number}.keys"], header["smallest_distance"], dtype
            )
        if effects:
            between.add(effects, header["pairs"])
        del arrays
        progress.advance(1)
    return wholes, between, tallies


def _shards(
    state: StateDir, headers: Mapping[str, Mapping[str, Any]], folder: Path, *, rows: bool
) -> Iterator[tuple[Mapping[str, Any], dict[str, npt.NDArray[Any]], Path]]:
    for name, header in headers.items():
        path = state.file(name, ROWS, folder) if rows and header["sources"] else folder
        yield header, state.read(name), path
        if path.is_relative_to(folder) and path != folder:
            path.unlink()


def _added(before: Tally | None, own: Mapping[str, Any]) -> Tally:
    """The rows of one more shard. Of each reason the first examples stay."""
    examples = [_example(example) for example in own["examples"]]
    if before is None:
        return Tally(**{**own, "examples": tuple(examples)})
    shown: list[Example] = []
    for example in sorted([*before.examples, *examples], key=place_of):
        if sum(other.reason == example.reason for other in shown) < EXAMPLES_PER_REASON:
            shown.append(example)
    return Tally(
        n_read=before.n_read + own["n_read"],
        n_used=before.n_used + own["n_used"],
        n_records=before.n_records + own["n_records"],
        skipped=dict(sorted((Counter(before.skipped) + Counter(own["skipped"])).items())),
        dropped=dict(sorted((Counter(before.dropped) + Counter(own["dropped"])).items())),
        examples=tuple(shown),
        n_mixed_slices=before.n_mixed_slices + own["n_mixed_slices"],
        n_repeated_rows=before.n_repeated_rows + own["n_repeated_rows"],
    )


def _example(own: Mapping[str, Any]) -> Example:
    fact = own["fact"]
    return Example(own["reason"], own["path"], own["line"], None if fact is None else Fact(**fact))
