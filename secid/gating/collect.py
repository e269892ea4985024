"""A run folder to a baseline: its numbers, its table of document frequencies, and what its files' texts say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.errors import InputError, UsageError
from secid.export.source_files import check_unchanged, settings_of, split_of
from secid.files import make_folder, write_together
from secid.gating.baseline import (
    BASELINE_SCHEMA_VERSION,
    ENCODER_SETTINGS,
    HIGH_POINT,
    LOW_POINT,
    METHOD_SETTINGS,
    Baseline,
    BaselineSource,
    Known,
    table_path,
    to_json,
)
from secid.gating.columns import Columns, folder_columns
from secid.gating.runs import restored, stored
from secid.gating.texts import TextFindings, Texts
from secid.pool import DocumentFrequencies
from secid.read import open_source
from secid.records import Source
from secid.results import BudgetPoint, IdfInfo, Run, SourceResult
from secid.results.document import read_run
from secid.run_folder.read import read_frequencies
from secid.settings import Settings
from secid.triplets.estimates import Estimate
from secid.version import VERSION

DIFFERS_Z = 3.0
"""Standard errors between a source and a control from which the two count as different."""
RANK_BUDGETS = (10.0, 100.0, 1_000.0, 10_000.0)


def collect(folder: Path) -> tuple[Baseline, dict[str, npt.NDArray[Any]]]:
    """The baseline of a run folder, its table's hash still empty, and the arrays of the table.

    Raises InputError where the folder is not whole, and where a file of a source is not found or has changed: the
    baseline keeps what its texts say. Raises UsageError for a run at another budget than 1.
    """
    run = read_run(folder)
    if run.budget != 1.0:
        raise UsageError(
            f"a baseline holds scores at budget 1, this run was ranked at {run.budget:g}",
            where=str(folder),
            remedy="score again without --budget",
        )
    frequencies = read_frequencies(folder, run)
    columns = folder_columns(folder, {source.name: source.eci_nats for source in run.sources})
    texts, positives = _texts_of(run)
    settings = {name: run.settings[name]["value"] for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS)}
    baseline = Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        secid_version=VERSION,
        encoder=run.encoder,
        idf=run.idf,
        table_sha256="",
        settings=settings,
        sources={
            source.name: _source(source, columns[source.name], texts[source.name], run)
            for source in sorted(run.sources, key=lambda source: source.name)
        },
    )
    tables = {"keys": frequencies.keys, "counts": frequencies.counts, **positives}
    return baseline, tables


def write_baseline(baseline: Baseline, arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> Baseline:
    """Writes the table and the document that names it by its hash, both or none. Returns what was written."""
    from dataclasses import replace

    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    named = replace(baseline, table_sha256=hashlib.sha256(data).hexdigest())
    make_folder(path)
    write_together({table_path(path): data, path: to_json(named).encode("utf-8")})
    return named


def read_table(path: Path, idf: IdfInfo) -> DocumentFrequencies:
    """Document frequencies. Raises InputError where the table is not the baseline's IDF."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
        frequencies = DocumentFrequencies(arrays["keys"], arrays["counts"], idf.n_texts)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise InputError(f"not a table of document frequencies: {error}", where=str(path)) from error
    if frequencies.sha256() != idf.sha256:
        raise InputError(
            f"the IDF table is {frequencies.sha256()[:12]}…, the baseline names {idf.sha256[:12]}…",
            where=str(path),
            remedy="make the baseline again with `secid baseline update RUN`",
        )
    return frequencies


def _source(source: SourceResult, columns: Columns, texts: TextFindings, run: Run) -> BaselineSource:
    settings = run.settings
    low, high = columns.quantile(LOW_POINT), columns.quantile(HIGH_POINT)
    means = {**columns.means(), **columns.tail(low, high)}
    buckets = columns.buckets(settings["high_coverage"]["value"], settings["near_copy"]["value"]) | dict(texts.shares)
    return BaselineSource(
        n_records=source.n_records,
        n_queries=source.n_queries,
        n_negatives=columns.n_negatives,
        score_nats=source.eci_nats,
        interval_95=source.interval_95,
        standard_error_nats=source.standard_error_nats,
        bias_nats=source.bias_nats,
        means={name: _known(estimate) for name, estimate in means.items()},
        buckets={name: _known(estimate) for name, estimate in buckets.items()},
        tails={"low": low, "high": high},
        effective_rank={f"{budget:g}": rank_at(source.budget_curve, budget) for budget in RANK_BUDGETS},
        like_controls=_like_controls(source.name, run),
        schema=source.schema,
        files=file_hashes(source),
    )


def file_hashes(source: SourceResult) -> dict[str, str]:
    """SHA-256 by name of file."""
    return {Path(file.path).name: file.sha256 for file in source.paths}


def _known(estimate: Estimate) -> Known:
    return Known(value=estimate.value, standard_error=estimate.standard_error)


def rank_at(curve: tuple[BudgetPoint, ...], budget: float) -> float:
    """Effective rank at a budget: by how much ECI_B grows as ln B grows from B/10 to B, bias corrected.

    The derivative is the sum of B e / (1 + B e) over the eigenvalues e of M: the number of directions that the
    budget fills. Source: METHOD 7.
    """
    by_budget = {point.budget: point for point in curve}
    last, first = by_budget[budget], by_budget[budget / 10.0]
    grown = last.nats + last.bias_nats - first.nats - first.bias_nats
    return float(grown / np.log(10.0))


def _like_controls(name: str, run: Run) -> tuple[str, ...]:
    """Kinds of control that a source's score did not differ from."""
    found = [
        control.kind
        for control in run.controls
        for gap in control.against
        if control.kind in ("random", "shuffled") and gap.source == name and (gap.z is None or abs(gap.z) < DIFFERS_Z)
    ]
    return tuple(dict.fromkeys(found))


def _texts_of(run: Run) -> tuple[dict[str, TextFindings], dict[str, npt.NDArray[Any]]]:
    """What the sources' files say, read again, and their labelled positives as the table keeps them.

    Every source is compared with the positives of all, as the gate will do.
    """
    settings = settings_of(run)
    for source in run.sources:
        check_unchanged(source)
    names = {source.name: tuple(file.path for file in source.paths) for source in run.sources}
    opened = {paths: _texts(paths, settings) for paths in sorted(set(names.values()))}
    arrays = stored(positives for texts in opened.values() for positives in texts.positives.values())
    known = restored(arrays)
    findings = {paths: texts.findings(known) for paths, texts in opened.items()}
    return {name: findings[paths][split_of(name, findings[paths], paths[0])] for name, paths in names.items()}, arrays


def _texts(paths: tuple[str, ...], settings: Settings) -> Texts:
    source = Source("again", paths)
    return Texts(lambda: open_source(source, settings))
