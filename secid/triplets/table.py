"""The triplet table: a row a triplet, a column a fact.

A column is stored once, at the smallest size that holds it: ids as int32, what belongs to the positive once a record,
findings as bits of one mask. Gates follow from the dot products in a few operations, so they are computed when asked
for. `negatives.parquet` is this table on disk. Source: METHOD 1, 2, 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Flags, Floats, Index
from secid.measure.blocks import Triplets
from secid.measure.gates import Dots, Gates, gates, pair_loss_nats
from secid.pool import PlannedSource
from secid.results.catalogue import BITS
from secid.triplets.estimates import Estimate, Names, Share, clustered_mean
from secid.triplets.guide import GuideScores
from secid.triplets.query_sums import QuerySums
from secid.triplets.random_reference import RandomReference, hardness, hardness_sums

Mask = npt.NDArray[np.uint32]

GATES = ("consistency", "locality", "coverage", "residual", "weight")
DOTS = ("s_query_positive", "s_query_negative", "s_positive_negative")


@dataclass(frozen=True)
class TripletTable:
    """The triplets of one source or control, T rows in G groups of (record, scored positive).

    triplets          : ids, records and shares.   planned : where its rows come from; None for a control.
    temperature       : > 0, of the gates.
    s_query_positive  : (G,) cosine of the scored positive.   positive_coverage : (G,) its lexical coverage.
    s_query_negative, s_positive_negative, coverage : (T,) of the negative.
    findings          : (T,) bit i says that the negative has the i-th finding of the catalogue.
    evaluated         : names of the findings that were evaluated.
    guide             : scores of a guide; None without one.
    """

    triplets: Triplets
    planned: PlannedSource | None
    temperature: float
    s_query_positive: Floats
    positive_coverage: Floats
    s_query_negative: Floats
    s_positive_negative: Floats
    coverage: Floats
    findings: Mask
    evaluated: frozenset[str]
    guide: GuideScores | None = None

    def __len__(self) -> int:
        return len(self.triplets)

    @property
    def source(self) -> PlannedSource:
        """Where the rows come from. Raises ValueError for a control, whose triplets are in no file."""
        if self.planned is None:
            raise ValueError("a control has no rows in a file")
        return self.planned

    @property
    def share(self) -> Floats | None:
        """(T,) what each triplet counts; None for one each."""
        return self.triplets.share

    def average(self, values: Floats | Flags) -> float:
        """Mean of a (T,) column over the negatives."""
        return float(np.average(values, weights=self.share))

    def mean(self, values: Floats, names: Names) -> Estimate:
        """The same with its error, clustered by query. names: (Q,) of the distinct queries, rising by query id."""
        return clustered_mean(values, self.cluster(), names, self.share)

    def cluster(self) -> Index:
        """(T,) place of each triplet's query among the distinct ones."""
        return np.unique(self.triplets.query, return_inverse=True)[1]

    def share_of(self, flags: Flags, names: Names, among: Flags | None = None) -> Share:
        """The share of the flagged negatives. flags : (T,).   names : as in `mean`.

        among : (T,) the triplets that were evaluated, at least one; all where None.
        """
        weight: Floats = np.ones(len(self)) if self.share is None else self.share
        cluster = self.cluster()
        if among is not None:
            present, cluster = np.unique(cluster[among], return_inverse=True)
            weight, flags, names = weight[among], flags[among], names[present]
        return Share.of(flags * weight, weight, cluster, names)

    def in_slice(self, number: int) -> Index:
        """Places of the rows of one value of --by. Raises ValueError for a control."""
        return np.flatnonzero(self.source.slice[self.triplets.record] == number)

    def repeated(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(T,) a column of the groups, for each of their triplets."""
        return np.repeat(per_group, np.diff(self.triplets.record_offsets))

    def dots(self) -> Dots:
        """Dot products of all triplets, and ||n - p||^2."""
        positive_negative = torch.from_numpy(self.s_positive_negative)
        return Dots(
            torch.from_numpy(self.repeated(self.s_query_positive)),
            torch.from_numpy(self.s_query_negative),
            positive_negative,
            squared_distance(positive_negative),
        )

    def gates(self) -> Gates:
        """Gates of all triplets at the table's temperature."""
        return gates(self.dots(), torch.from_numpy(self.coverage), self.temperature)

    def pair_loss(self) -> Tensor:
        """(T,) -log consistency."""
        return pair_loss_nats(self.dots(), self.temperature)

    def columns(self) -> Mapping[str, Floats]:
        """Dot products and gates by the names that they have in negatives.parquet, (T,) each."""
        dots, gates = self.dots(), self.gates()
        return {
            "s_query_positive": dots.query_positive.numpy(),
            "s_query_negative": self.s_query_negative,
            "s_positive_negative": self.s_positive_negative,
            **{name: getattr(gates, name).numpy() for name in GATES},
        }

    def has(self, finding: str) -> Flags:
        """(T,) which negatives have a finding. Raises KeyError where it was not evaluated."""
        if finding not in self.evaluated:
            raise KeyError(finding)
        flags: Flags = (self.findings >> np.uint32(BITS[finding])) & np.uint32(1) != 0
        return flags

    def with_findings(self, flags: Mapping[str, Flags]) -> TripletTable:
        """The table with further findings. flags: (T,) by name."""
        mask = self.findings.copy()
        for name, flag in flags.items():
            mask |= flag.astype(np.uint32) << np.uint32(BITS[name])
        return replace(self, findings=mask, evaluated=self.evaluated | flags.keys())

    def hardness(self, reference: RandomReference) -> Estimate | None:
        """Where the negatives lie between random passages (0) and the positives (1). Source: METHOD 10."""
        best = self.repeated(self.s_query_positive)
        return hardness(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def hardness_sums(self, reference: RandomReference) -> QuerySums:
        """Return the sums by query from which the hardness on any queries follows."""
        best = self.repeated(self.s_query_positive)
        return hardness_sums(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def rows(self, keep: Index) -> TripletTable:
        """Some rows of the table: a filter, or one group of a group-by. keep: rising places of them."""
        triplets = self.triplets.take(keep)
        groups = np.searchsorted(self.triplets.record_offsets, keep, side="right") - 1
        heads = groups[triplets.record_offsets[:-1]]
        return replace(
            self,
            triplets=triplets,
            s_query_positive=self.s_query_positive[heads],
            positive_coverage=self.positive_coverage[heads],
            **{name: getattr(self, name)[keep] for name in ("s_query_negative", "s_positive_negative", "coverage")},
            findings=self.findings[keep],
            guide=None if self.guide is None else self.guide.rows(keep),
        )


def squared_distance(positive_negative: Tensor) -> Tensor:
    """||n - p||^2 of unit vectors; 0 where n counts as p, since the sweep sets their dot product to 1."""
    return (2.0 - 2.0 * positive_negative).clamp_min(0.0)
