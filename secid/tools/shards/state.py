"""The state of a shard: sums that add up over shards, and the triplets for the passes of the merge.

A state has a JSON header with `ShardNumbers`, and arrays. The arrays of source number k are named k.NAME:

total, sound : (d, d) sums of w u u^T over its triplets, and over those without a counted defect.
query, positive, negative : (T,) numbers of the triplets' rows in the file `rows`.
offsets      : start of each record's triplets, then the number of triplets.
squared, weight : (T,) ||n - p||^2 and w.
findings, is_sound : (T,) mask of findings, and True without a counted defect.
keys         : (Q, 16) text keys of its queries, by rising id.
priorities   : the MAX_SAMPLED smallest sample hashes of its queries.

Source: METHOD 2, 8, 11, 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.analyses.overlap import SourceNegatives, jaccard_sums
from secid.arrays import Flags, Index, distinct
from secid.encode import Role
from secid.findings.status import ListedNegatives, records_left, sound_negatives
from secid.measure.blocks import Triplets, Vectors
from secid.measure.sweep import sweep
from secid.pool import DocumentFrequencies, Plan, PlannedSource, Tally, sample_order
from secid.results import SourceReport
from secid.results.catalogue import FINDINGS, FORMAL_FINDINGS, TEXT_FINDINGS
from secid.results.document import adapter_of
from secid.scoring.run import Scored
from secid.settings import Settings
from secid.tools.shards.counts import Counts
from secid.tools.shards.store import StateDir
from secid.triplets.embedding import rows_of_ids
from secid.triplets.estimates import GapMoments, Moments
from secid.triplets.measure_set import Measured, base_variant

MAX_SAMPLED = 100_000
"""Maximum number of queries of a source that a merge can sample."""
STORED_ROWS_AT_ONCE = 65_536
Arrays = dict[str, npt.NDArray[Any]]
FormalDefects = dict[str, tuple[GapMoments, ...]]
"""Type of `Counts.formal`."""


@dataclass(frozen=True, kw_only=True)
class ListedNumbers:
    """Counts of all negatives that a source lists in a shard, including blank ones.

    n_left, n_records : see `records_left`.
    moments   : moments of each share that was evaluated for all queries, by name.
    compared  : moments of each formal finding, by name.
    """

    n_left: int
    n_records: int
    moments: Mapping[str, Moments]
    compared: Mapping[str, GapMoments]


@dataclass(frozen=True, kw_only=True)
class SourceNumbers(ListedNumbers):
    """Numbers of one source in a shard. Its arrays are stored separately.

    file     : name of its file, which may have several sources.   n_groups : number of records with a triplet.
    """

    result: SourceReport
    file: str
    n_groups: int


@dataclass(frozen=True)
class ShardNumbers:
    """Numbers of a shard, for its header. A shard without a triplet has only `tallies` and `without_triplets`.

    tallies   : counts of rows read, used and skipped, by source. Malformed rows whose source is unknown are counted for
                their file, under `unassigned_of`.
    without_triplets : sources without a triplet in this shard, by name.
    jaccard   : sum of `jaccard_sums` for each pair of sources, by name.
    n_texts   : number of distinct queries and passages.   dimension : dimension of the vectors.
    smallest_distance : ||n - p|| at or below which a residual direction counts as noise.
    one_positive : True if no query of the shard has a second labelled positive.
    """

    tallies: Mapping[str, Tally]
    without_triplets: Mapping[str, ListedNumbers]
    sources: tuple[SourceNumbers, ...] = ()
    jaccard: tuple[tuple[str, str, float], ...] = ()
    n_texts: int = 0
    dimension: int = 0
    smallest_distance: float = 0.0
    one_positive: bool = True


def state_of(scored: Scored, plan: Plan, smallest_distance: float, settings: Settings) -> tuple[ShardNumbers, Arrays]:
    arrays: Arrays = {}
    results = {result.name: result for result in scored.run.sources}
    for number, item in enumerate(scored.measured):
        of_source = arrays_of(item, plan, scored.vectors, smallest_distance, settings)
        arrays |= {f"{number}.{key}": array for key, array in of_source.items()}
    listed = [SourceNegatives(item.name, item.triplets.query, item.triplets.negative) for item in scored.measured]
    numbers = ShardNumbers(
        plan.tallies,
        numbers_without_triplets(plan.without_triplets),
        tuple(
            stored_numbers(item, plan, results[item.name], scored.findings[item.name].compared)
            for item in scored.measured
        ),
        tuple(jaccard_sums(listed)),
        len(plan.queries) + len(plan.passages),
        scored.vectors.dimension,
        smallest_distance,
        scored.run.one_positive,
    )
    return numbers, arrays


def arrays_of(item: Measured, plan: Plan, vectors: Vectors, smallest_distance: float, settings: Settings) -> Arrays:
    """Return the arrays of one source. Their names lack the number of the source."""
    rows, base = item.triplets, base_variant(settings)
    is_sound = sound_negatives(item.table.source)[rows.place]
    sound = np.flatnonzero(is_sound)
    total = item.state.total
    if len(sound) < len(rows):
        part, table = rows.take(sound), item.table.rows(sound)
        sums = sweep(
            replace(vectors, tick=None), part, {base.coverage: table.coverage}, [base], smallest_distance,
            settings.temperature, None, getattr(torch, settings.sums),
        )  # fmt: skip
        sound_total = sums.state(base).total.cpu()
    else:
        sound_total = total
    used = plan.source_passages()
    priorities = np.sort(sample_order(plan.queries.keys[distinct(rows.query)], settings.seed))[:MAX_SAMPLED]
    return {
        "total": total.numpy(),
        "sound": sound_total.numpy(),
        "query": rows.query.astype(np.int64),
        "positive": np.searchsorted(used, rows.positive) + len(plan.queries),
        "negative": np.searchsorted(used, rows.negative) + len(plan.queries),
        "offsets": rows.record_offsets,
        "squared": item.table.dots().squared_distance.numpy(),
        "weight": item.table.gates().weight.numpy(),
        "findings": item.table.findings,
        "is_sound": is_sound,
        "keys": item.query_keys,
        "priorities": priorities,
    }


def stored_numbers(
    item: Measured, plan: Plan, result: SourceReport, compared: Mapping[str, GapMoments]
) -> SourceNumbers:
    """Return a source's numbers. compared: moments of formal findings over all labelled positives, scored or not."""
    planned, table = item.table.source, item.table
    row_moments = {
        name: Moments.of(table.has(name).astype(np.float64), np.ones(len(table)), table.cluster(), result.n_queries)
        for name in FINDINGS
        if name in table.evaluated and name not in TEXT_FINDINGS
    }
    listed = listed_numbers(planned, plan.queries.keys, compared)
    return SourceNumbers(
        **vars(replace(listed, moments={**listed.moments, **row_moments})),
        result=result,
        file=planned.source.name,
        n_groups=len(item.triplets.record_offsets) - 1,
    )


def numbers_without_triplets(sources: Sequence[PlannedSource]) -> dict[str, ListedNumbers]:
    """Return the numbers of sources without a triplet, by name. They may list blank negatives."""
    numbers = {}
    for planned in sources:
        keys = np.zeros((0, 16), np.uint8)
        compared = {name: ListedNegatives(planned, keys).compared(name) for name in FORMAL_FINDINGS}
        numbers[planned.name] = listed_numbers(planned, keys, compared)
    return numbers


def listed_numbers(
    planned: PlannedSource, query_keys: npt.NDArray[np.uint8], compared: Mapping[str, GapMoments]
) -> ListedNumbers:
    """Count the negatives that the records of a source list. query_keys: (n_queries, 16)."""
    n_left, n_records = records_left(planned)
    moments = ListedNegatives(planned, query_keys).moments()
    return ListedNumbers(n_left=n_left, n_records=n_records, moments=moments, compared=compared)


def write_vectors(vectors: Vectors, plan: Plan, path: Path) -> None:
    """Write the vectors of a plan's queries, then of the passages that its sources use, (n, d) float32."""
    ids: tuple[tuple[Role, Index], ...] = (("query", np.arange(len(plan.queries))), ("passage", plan.source_passages()))
    with path.open("wb") as file:
        for role, role_ids in ids:
            for rows in rows_of_ids(vectors, role, role_ids, STORED_ROWS_AT_ONCE):
                file.write(rows.cpu().contiguous().numpy().data)


def state_of_counts(counts: Counts) -> tuple[dict[str, Any], Arrays]:
    arrays: Arrays = {"phrases": counts.phrases}
    for number, table in enumerate(counts.tables.values()):
        arrays |= {f"{number}.keys": table.keys, f"{number}.counts": table.counts}
    header = {
        "tables": [[*key, table.n_documents] for key, table in counts.tables.items()],
        "formal": adapter_of(FormalDefects).dump_python(dict(counts.formal), mode="json"),
        "shared": [[*pair, n] for pair, n in counts.shared.items()],
        "n_texts": counts.n_texts,
    }
    return header, arrays


def counts_of_state(state: StateDir, name: str) -> Counts:
    header, arrays = state.header(name), state.read(name)
    tables = {
        (kind, source): DocumentFrequencies(arrays[f"{number}.keys"], arrays[f"{number}.counts"], n)
        for number, (kind, source, n) in enumerate(header["tables"])
    }
    shared = {(first, second): n for first, second, n in header["shared"]}
    formal = adapter_of(FormalDefects).validate_python(header["formal"])
    return Counts(tables, formal, arrays["phrases"], shared, header["n_texts"])


@dataclass(frozen=True)
class StoredSet:
    """The stored triplets of one source of a shard. For the columns see the arrays above."""

    triplets: Triplets
    squared: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    findings: npt.NDArray[np.uint32]
    is_sound: Flags

    @staticmethod
    def of(arrays: Mapping[str, npt.NDArray[Any]], number: int) -> StoredSet:
        """Read the triplets of source `number`."""
        ids = ("query", "positive", "negative", "offsets")
        query, positive, negative, offsets = (arrays[f"{number}.{key}"] for key in ids)
        record = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        triplets = Triplets(query, positive, negative, offsets, record, np.arange(len(query)))
        columns: list[Any] = [arrays[f"{number}.{key}"] for key in ("squared", "weight", "findings", "is_sound")]
        return StoredSet(triplets, *columns)

    def sound(self) -> StoredSet:
        """Return the triplets without a counted defect."""
        return self.rows(np.flatnonzero(self.is_sound))

    def rows(self, keep: Index) -> StoredSet:
        """Return some of the triplets. keep: rising places of the triplets."""
        columns: Sequence[Any] = (self.squared, self.weight, self.findings, self.is_sound)
        return StoredSet(self.triplets.take(keep), *(column[keep] for column in columns))


def stored_vectors(path: Path, dimension: int, device: torch.device | None) -> Vectors:
    """Return vectors that read rows from a file of `write_vectors`. Queries and passages are numbered together."""
    rows = np.memmap(path, np.float32, "r").reshape(-1, dimension)

    def take(role: Role, ids: Index, out: torch.Tensor) -> None:
        np.take(rows, ids, axis=0, out=out.numpy())

    return Vectors(torch.empty(0, dimension), torch.empty(0, dimension), take, device=device)
