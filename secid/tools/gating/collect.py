"""Read a run folder as a baseline, or as samples that the checks compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secid import __version__
from secid.analyses.guide import GUIDE
from secid.analyses.registry import read_run
from secid.arrays import Floats, Index
from secid.errors import InputError, UsageError
from secid.files import write_together
from secid.findings.copies import LabelledPositives, restored
from secid.measure.interval import reach_95
from secid.pool import DocumentFrequencies
from secid.results import IdfInfo, Run, SourceReport
from secid.results.document import RUN_REMEDY, settings_of
from secid.run_folder.tables import (
    QUERY_INFLUENCE,
    QUERY_KEYS,
    read_frequencies,
    read_positives,
    read_table,
    read_tensors,
    source_entries,
)
from secid.settings import ENCODERS, RECIPE_FIELDS, flag_of
from secid.tools.gating.baseline import (
    BASELINE_SCHEMA_VERSION,
    METHOD_SETTINGS,
    UNRELATED_QUANTILE,
    Baseline,
    BaselineSource,
    Measurement,
    Tail,
    baseline_to_json,
    table_path,
)
from secid.triplets.estimates import Estimate, Names, comparable_keys
from secid.triplets.measure_set import Measured
from secid.triplets.table import TripletTable

# A sample holds what the checks need of a source or control: its triplet table, its queries and its score. It is the
# same whether the source has just been measured or was read from a run folder.


@dataclass(frozen=True)
class Sample:
    """The triplets of a source with their queries and score.

    queries : (Q,) names of the table's distinct queries, in the order of their ids.
    score   : ECI_sem with the influence of each query.
    """

    table: TripletTable
    queries: Names
    score: Estimate

    @cached_property
    def columns(self) -> Mapping[str, Floats]:
        """Return dot products and gates by name, (T,) each."""
        return self.table.columns()

    @cached_property
    def cluster(self) -> Index:
        """Return the place of each triplet's query in `queries`, (T,)."""
        return self.table.cluster()

    @property
    def n_negatives(self) -> int:
        """Return the number of negatives. A negative that was scored against several positives counts once."""
        return round(self.table.triplets.n_negatives)

    def mean(self, values: Floats) -> Estimate:
        """Return the mean of a (T,) column."""
        return self.table.mean(values, self.queries)

    def relation(self) -> Floats:
        """Return the relation of each negative to its query, (T,): their cosine plus lexical coverage.

        Dense miners select by cosine and lexical miners by coverage. A negative with neither was not mined for its
        query. In a test on SciFact, negatives were assigned to other queries. By this sum, 77 % of BM25 negatives and
        83 % of dense negatives then lay below the 2 % point of the original ones. By the cosine alone, it was 33 % and
        90 % (docs/experiments/gate.md).
        """
        return self.table.s_query_negative + self.table.coverage

    def unrelated(self, bound: float) -> Estimate:
        """Return the share of negatives whose relation is below the bound."""
        return self.mean((self.relation() < bound).astype(np.float64))


def measured_sample(item: Measured) -> Sample:
    """Return the sample of a source or control that has just been measured."""
    names = comparable_keys(item.query_keys)
    per_query = item.influence.per_query[:, item.influence.column(1.0)]
    return Sample(item.table, names, Estimate(item.nats(1.0), names, per_query))


def folder_samples(folder: Path, run: Run) -> Iterator[tuple[SourceReport, Sample]]:
    """Yield each source's report and sample. Raises InputError if a table is missing, damaged or of another run."""
    entries = {entry.name: entry for entry in source_entries(folder)}
    for source in run.sources:
        if source.name not in entries:
            where = str(folder / "state" / "index.json")
            message = f"does not belong to report.json: source {source.name} is missing"
            raise InputError(message, where=where, remedy=RUN_REMEDY)
        keys, influence = read_tensors(folder, entries[source.name], (QUERY_KEYS, QUERY_INFLUENCE))
        names = comparable_keys(keys.numpy())
        table = read_table(folder, source.name, settings_of(run).temperature)
        yield source, Sample(table, names, Estimate(source.scored.nats, names, influence.numpy()))


# Make a baseline of a run folder.


def collect_baseline(folder: Path) -> tuple[Baseline, dict[str, npt.NDArray[Any]]]:
    """Return the baseline of a run folder, without the hash of its table, and the arrays of the table.

    Raises InputError if the folder is incomplete, UsageError for a run at a budget other than 1 or a merged run.
    """
    run = read_run(folder)
    if run.budget != 1.0:
        raise UsageError(
            f"a baseline needs scores at budget 1, but this run was ranked at {run.budget:g}",
            where=str(folder),
            remedy=f"score again without {flag_of('budget')}",
        )
    if run.has_rows_elsewhere:
        raise UsageError(
            "a baseline needs the rows of a run, but a run that was merged from shards has none",
            where=str(folder),
            remedy=f"score a sample of the queries, for example with {flag_of('max_records', 20_000)}",
        )
    frequencies = read_frequencies(folder, run)
    tables = {"keys": frequencies.keys, "counts": frequencies.counts, **read_positives(folder, run)}
    guide = GUIDE.of(run)
    sources = {source.name: _source(source, sample) for source, sample in folder_samples(folder, run)}
    run_settings = settings_of(run)
    settings = {name: getattr(run_settings, name) for name in (*METHOD_SETTINGS, *RECIPE_FIELDS, "guide_sample")}
    settings |= {name: run.settings[name]["value"] for name in ENCODERS if name in run.settings}
    baseline = Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        secid_version=__version__,
        encoder=run.encoder,
        idf=run.idf,
        table_sha256="",
        settings=settings,
        sources={name: sources[name] for name in sorted(sources)},
        guide=None if guide is None else guide.encoder.fingerprint,
    )
    return baseline, tables


def write_baseline(baseline: Baseline, arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> Baseline:
    """Write the table and the document with the table's hash, both or neither. Return the document."""
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    document = replace(baseline, table_sha256=hashlib.sha256(data).hexdigest())
    write_together({table_path(path): data, path: baseline_to_json(document).encode("utf-8")})
    return document


def read_baseline_table(path: Path, idf: IdfInfo) -> tuple[DocumentFrequencies, LabelledPositives]:
    """Read document frequencies and labelled positives. Raises InputError if the table does not fit the baseline."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
        frequencies, known = DocumentFrequencies(arrays["keys"], arrays["counts"], idf.n_texts), restored(arrays)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise InputError(
            f"not the table of a baseline: {error}", where=str(path), remedy="restore it from version control"
        ) from error
    if frequencies.sha256() != idf.sha256:
        raise InputError(
            f"the IDF table has SHA-256 {frequencies.sha256()[:12]}…, the baseline expects {idf.sha256[:12]}…",
            where=str(path),
            remedy="make the baseline again with `secid baseline update RUN`",
        )
    return frequencies, known


def _source(source: SourceReport, sample: Sample) -> BaselineSource:
    low = float(np.quantile(sample.relation(), UNRELATED_QUANTILE))
    tail = sample.unrelated(low)
    n_queries = source.n_queries
    return BaselineSource(
        n_records=source.rows.n_records,
        n_queries=n_queries,
        n_negatives=sample.n_negatives,
        score_nats=source.scored.nats,
        interval_95=source.scored.interval_95,
        standard_error_nats=source.scored.standard_error_nats,
        hardness=_hardness(source),
        findings={
            finding.name: Measurement(
                value=finding.share if finding.positives is None else finding.positives.difference,
                standard_error=(finding.positives or finding).standard_error,
                n_queries=finding.n_queries or n_queries,
            )
            for finding in source.findings
        },
        positives={item.name: item.positives.share for item in source.findings if item.positives is not None},
        unrelated=Tail(
            bound=low,
            share=Measurement(value=tail.value, standard_error=tail.standard_error, n_queries=len(tail.queries)),
        ),
        languages={code: share for code, share in source.languages.shares.items() if code},
        schema=source.schema,
        files=file_hashes(source),
    )


def _hardness(source: SourceReport) -> Measurement | None:
    """Return hardness with the standard error of its interval; None if hardness or its interval is missing."""
    hardness = source.hardness
    if hardness is None or hardness.interval_95 is None:
        return None
    low, high = hardness.interval_95
    error = (high - low) / (2.0 * reach_95(hardness.n_queries))
    return Measurement(value=hardness.value, standard_error=error, n_queries=hardness.n_queries)


def file_hashes(source: SourceReport) -> dict[str, str]:
    """Return the SHA-256 of each file, by file name."""
    return {Path(file.path).name: file.sha256 for file in source.files}
