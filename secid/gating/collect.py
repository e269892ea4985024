"""A run folder to a baseline: its numbers, and its table of document frequencies and labelled positives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.analyses.guide import GUIDE
from secid.analyses.report import read_run
from secid.errors import InputError, UsageError
from secid.files import write_together
from secid.findings.copies import Positives, restored
from secid.gating.baseline import (
    BASELINE_SCHEMA_VERSION,
    LOW_POINT,
    METHOD_SETTINGS,
    Baseline,
    BaselineSource,
    Measurement,
    Tail,
    table_path,
    to_json,
)
from secid.gating.sample import Sample, folder_samples
from secid.measure.interval import reach_95
from secid.pool import DocumentFrequencies
from secid.results import IdfInfo, Languages, SourceResult
from secid.run_folder.read import read_frequencies, read_positives
from secid.scoring.stored import settings_of
from secid.settings import ENCODERS, RECIPE_FIELDS, flag_of
from secid.triplets.estimates import Estimate
from secid.version import VERSION


def collect(folder: Path) -> tuple[Baseline, dict[str, npt.NDArray[Any]]]:
    """The baseline of a run folder, its table's hash still empty, and the arrays of the table.

    Raises InputError if the folder is incomplete, UsageError for a run at a budget other than 1.
    """
    run = read_run(folder)
    if run.budget != 1.0:
        raise UsageError(
            f"a baseline needs scores at budget 1; this run was ranked at {run.budget:g}",
            where=str(folder),
            remedy=f"score again without {flag_of('budget')}",
        )
    if run.has_rows_elsewhere:
        raise UsageError(
            "a baseline needs the rows of a run; this one was merged from shards",
            where=str(folder),
            remedy=f"score a sample of the queries, such as with {flag_of('max_records', 20_000)}",
        )
    frequencies = read_frequencies(folder, run)
    tables = {"keys": frequencies.keys, "counts": frequencies.counts, **read_positives(folder, run)}
    guide = GUIDE.of(run)
    sources = {source.name: _source(source, sample) for source, sample in folder_samples(folder, run)}
    own = settings_of(run)
    settings = {name: getattr(own, name) for name in (*METHOD_SETTINGS, *RECIPE_FIELDS, "guide_sample")}
    settings |= {name: run.settings[name]["value"] for name in ENCODERS if name in run.settings}
    baseline = Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        secid_version=VERSION,
        encoder=run.encoder,
        idf=run.idf,
        table_sha256="",
        settings=settings,
        sources={name: sources[name] for name in sorted(sources)},
        guide=None if guide is None else guide.encoder.fingerprint,
    )
    return baseline, tables


def write_baseline(baseline: Baseline, arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> Baseline:
    """Writes the table and the document with the table's hash, both or neither. Returns the document."""
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    document = replace(baseline, table_sha256=hashlib.sha256(data).hexdigest())
    write_together({table_path(path): data, path: to_json(document).encode("utf-8")})
    return document


def read_table(path: Path, idf: IdfInfo) -> tuple[DocumentFrequencies, Positives]:
    """Document frequencies and labelled positives. Raises InputError if the table is not the baseline's."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
        frequencies, known = DocumentFrequencies(arrays["keys"], arrays["counts"], idf.n_texts), restored(arrays)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise InputError(f"not the table of a baseline: {error}", where=str(path)) from error
    if frequencies.sha256() != idf.sha256:
        raise InputError(
            f"the IDF table has SHA-256 {frequencies.sha256()[:12]}…, the baseline expects {idf.sha256[:12]}…",
            where=str(path),
            remedy="make the baseline again with `secid baseline update RUN`",
        )
    return frequencies, known


def _source(source: SourceResult, sample: Sample) -> BaselineSource:
    languages = source.languages or Languages(n_texts=0, shares={})
    low = float(np.quantile(sample.relation(), LOW_POINT))
    n_queries = source.n_queries
    return BaselineSource(
        n_records=source.n_records,
        n_queries=n_queries,
        n_negatives=sample.n_negatives,
        score_nats=source.eci_nats,
        interval_95=source.interval_95,
        standard_error_nats=source.standard_error_nats,
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
        unrelated=Tail(bound=low, share=_measurement(sample.unrelated(low))),
        languages={code: share for code, share in languages.shares.items() if code},
        schema=source.schema,
        files=file_hashes(source),
    )


def _measurement(estimate: Estimate) -> Measurement:
    return Measurement(value=estimate.value, standard_error=estimate.standard_error, n_queries=len(estimate.queries))


def _hardness(source: SourceResult) -> Measurement | None:
    """With the error that its interval shows; None without either."""
    if source.hardness is None or source.hardness_interval_95 is None:
        return None
    low, high = source.hardness_interval_95
    n_queries = source.hardness_queries or source.n_queries
    error = (high - low) / (2.0 * reach_95(n_queries))
    return Measurement(value=source.hardness, standard_error=error, n_queries=n_queries)


def file_hashes(source: SourceResult) -> dict[str, str]:
    """SHA-256 by file name."""
    return {Path(file.path).name: file.sha256 for file in source.paths}
