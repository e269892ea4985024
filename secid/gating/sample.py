"""A source or a control as the checks compare it: its triplet table, the names of its queries, and its score.

The same for a source that has just been measured and for one read from a run folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from secid.arrays import Floats, Index
from secid.errors import InputError
from secid.results import Run, SourceResult
from secid.run_folder.read import QUERY_INFLUENCE, QUERY_KEYS, read_table, read_tensors, source_entries
from secid.scoring.stored import settings_of
from secid.triplets.estimates import Estimate, Names, names_of
from secid.triplets.measured import Measured
from secid.triplets.table import TripletTable


@dataclass(frozen=True)
class Sample:
    """Triplets with the queries that they were drawn for.

    queries : (Q,) names of the table's distinct queries, rising by query id.
    score   : ECI_sem with the influence of each query.
    """

    table: TripletTable
    queries: Names
    score: Estimate

    @cached_property
    def columns(self) -> Mapping[str, Floats]:
        """Dot products and gates, (T,) each."""
        return self.table.columns()

    @cached_property
    def cluster(self) -> Index:
        """(T,) place of each triplet's query among the names."""
        return self.table.cluster()

    @property
    def n_negatives(self) -> int:
        """Negatives, each once however many positives it was scored against."""
        return round(self.table.triplets.n_negatives)

    def mean(self, values: Floats) -> Estimate:
        """Mean of a (T,) column."""
        return self.table.mean(values, self.queries)

    def relation(self) -> Floats:
        """(T,) cosine of query and negative plus lexical coverage: how closely a negative is related to its query.

        Dense miners select by the first and lexical miners by the second; without either, a negative was not mined
        for the query. Of SciFact's BM25 negatives assigned to other queries 77 % are below the 2 % point of this sum,
        33 % below that of the cosine; of dense ones 83 % and 90 % (docs/experiments/gate.md).
        """
        return self.table.s_query_negative + self.table.coverage

    def unrelated(self, bound: float) -> Estimate:
        """Share of negatives whose relation is below the bound."""
        return self.mean((self.relation() < bound).astype(np.float64))


def measured_sample(item: Measured) -> Sample:
    """A source or control that has just been measured."""
    names = names_of(item.query_keys)
    per_query = item.influence.per_query[:, item.influence.column(1.0)]
    return Sample(item.table, names, Estimate(item.nats(1.0), names, per_query))


def folder_samples(folder: Path, run: Run) -> Iterator[tuple[SourceResult, Sample]]:
    """Every source of a run folder. Raises InputError if a table of it is missing, damaged or of another run."""
    entries = {entry.name: entry for entry in source_entries(folder)}
    for source in run.sources:
        if source.name not in entries:
            where = str(folder / "state" / "index.json")
            raise InputError(f"does not belong to report.json: source {source.name} is missing", where=where)
        keys, influence = read_tensors(folder, entries[source.name], (QUERY_KEYS, QUERY_INFLUENCE))
        names = names_of(keys.numpy())
        table = read_table(folder, source.name, settings_of(run).temperature)
        yield source, Sample(table, names, Estimate(source.eci_nats, names, influence.numpy()))
