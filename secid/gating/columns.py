"""The numbers of every triplet of one source, from a run in memory or from a run folder, and what they average to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secid.errors import InputError
from secid.measure.summary import INVERSION
from secid.triplets.estimates import Estimate, Floats, Index, Names, clustered_mean, names_of

if TYPE_CHECKING:
    from secid.triplets.measured import Measured

MEANS = ("consistency", "locality", "coverage", "query_similarity", "positive_similarity")
NEEDED = ("consistency", "locality", "coverage", "s_query_positive", "s_query_negative", "s_positive_negative")


@dataclass(frozen=True)
class Columns:
    """Triplets of one source. T triplets, Q distinct queries.

    queries : (Q,) names.   cluster : (T,) place of each triplet's query.   share : (T,) or None for one each.
    values  : (T,) of each name of NEEDED.
    score   : ECI_sem with the influence of each query.
    negative: (T,) number of each triplet's negative, where several triplets share one.
    """

    queries: Names
    cluster: Index
    share: Floats | None
    values: Mapping[str, Floats]
    score: Estimate
    negative: Index | None = None

    @property
    def n_negatives(self) -> int:
        """Negatives, each once however many positives it was scored against."""
        return len(self.cluster) if self.share is None else round(float(self.share.sum()))

    def restricted(self, names: Names) -> Columns:
        """The triplets of these queries alone. The score stays that of all: its influences add up to one number."""
        kept = np.isin(self.queries, names)
        if kept.all():
            return self
        rows = kept[self.cluster]
        return Columns(
            queries=self.queries[kept],
            cluster=(np.cumsum(kept) - 1)[self.cluster[rows]],
            share=None if self.share is None else self.share[rows],
            values={name: column[rows] for name, column in self.values.items()},
            score=self.score,
            negative=None if self.negative is None else self.negative[rows],
        )

    def mean(self, values: Floats) -> Estimate:
        """Mean of a (T,) column."""
        return clustered_mean(values, self.cluster, self.queries, self.share)

    def means(self) -> dict[str, Estimate]:
        """The estimates of MEANS."""
        renamed = {"query_similarity": "s_query_negative", "positive_similarity": "s_query_positive"}
        return {name: self.mean(self.values[renamed.get(name, name)]) for name in MEANS}

    def buckets(self, high_coverage: float, near_copy: float) -> dict[str, Estimate]:
        """Shares of the buckets that the gate's numbers decide. A negative that copies one of the positives that it is
        scored against is a near-copy, however little it is like the others; inversions are shares of the pairs.
        """
        values = self.values
        flags = {
            "inversion": values["consistency"] < INVERSION,
            "high_coverage": values["coverage"] >= high_coverage,
            "near_copy": self._any(values["s_positive_negative"] >= near_copy),
        }
        return {name: self.mean(found.astype(np.float64)) for name, found in flags.items()}

    def _any(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """(T,) whether any triplet of the same negative has the flag."""
        return flags if self.negative is None else np.bincount(self.negative, flags)[self.negative] > 0

    def relation(self) -> Floats:
        """(T,) cosine of query and negative plus lexical coverage: how a negative has to do with its query.

        Dense miners choose by the one and lexical miners by the other; what has neither was not mined for the query.
        Of SciFact's BM25 negatives dealt to other queries 77 % lie below the 2 % point of this sum, 33 % below that
        of the cosine; of dense ones 83 % and 90 % (docs/experiments/gate.md).
        """
        return self.values["s_query_negative"] + self.values["coverage"]

    def tail(self, low: float, high: float) -> dict[str, Estimate]:
        """Shares of negatives whose relation lies below `low` (unrelated) and above `high` (close)."""
        relation = self.relation()
        return {
            "unrelated": self.mean((relation < low).astype(np.float64)),
            "close": self.mean((relation > high).astype(np.float64)),
        }

    def quantile(self, fraction: float) -> float:
        """Quantile of the relation."""
        return float(np.quantile(self.relation(), fraction))


def measured_columns(item: Measured) -> Columns:
    """Columns of a source or control that has just been measured."""
    queries, cluster = np.unique(item.triplets.query, return_inverse=True)
    names = names_of(item.query_keys)
    if len(names) != len(queries):
        raise ValueError(f"{len(names)} query keys for {len(queries)} queries")
    column = item.influence.budgets.index(1.0)
    return Columns(
        queries=names,
        cluster=cluster,
        share=item.triplets.share,
        values={name: values for name, values in item.table.columns().items() if name in NEEDED},
        score=Estimate(item.nats(1.0), names, item.influence.per_query[:, column]),
        negative=None if item.triplets.share is None else item.triplets.place,
    )


def folder_columns(folder: Path, scores: Mapping[str, float]) -> dict[str, Columns]:
    """Columns of every source of a run folder.

    scores : ECI_sem by source, from the report.
    Raises InputError where the folder lacks a table or was written by a secid that kept less.
    """
    import pyarrow as pa

    from secid.run_folder.read import QUERY_INFLUENCE, QUERY_KEYS, read_negatives, read_tensors, source_entries

    wanted = ["source", "record", "negative", "query", *NEEDED]
    table = read_negatives(folder, wanted)
    entries = {entry.name: entry for entry in source_entries(folder)}
    for name in scores:
        if name not in entries:
            raise InputError(f"is not of the report beside it: no {name}", where=str(folder / "state" / "index.json"))
    by_name = table.column("source").combine_chunks().cast(pa.string()).to_numpy(zero_copy_only=False)
    arrays = {name: table.column(name).to_numpy() for name in wanted[1:]}
    found = {}
    for name, score in scores.items():
        keys, influence = read_tensors(folder, entries[name], (QUERY_KEYS, QUERY_INFLUENCE))
        own = {key: array[by_name == name] for key, array in arrays.items()}
        found[name] = _source_columns(own, keys.numpy(), influence.numpy(), score)
    return found


def _source_columns(
    arrays: Mapping[str, npt.NDArray[np.generic]],
    query_keys: npt.NDArray[np.uint8],
    query_influence: Floats,
    score: float,
) -> Columns:
    names = names_of(query_keys)
    values = {name: arrays[name].astype(np.float64) for name in NEEDED}
    share, negative = _shares(arrays["record"].astype(np.int64), arrays["negative"].astype(np.int64))
    return Columns(
        queries=names,
        cluster=arrays["query"].astype(np.int64),
        share=share,
        values=values,
        score=Estimate(score, names, query_influence),
        negative=negative,
    )


def _shares(record: Index, negative: Index) -> tuple[Floats | None, Index | None]:
    """What each triplet counts, and the number of its negative; None where each has one of its own.

    A negative scored against several positives shares one count (METHOD 9).
    """
    _, inverse, counts = np.unique(
        np.stack([record, negative], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    number = inverse.ravel()
    return (None, None) if (counts == 1).all() else (1.0 / counts[number], number)
