"""The tables of a run folder, read again. A file that is gone or changed is named, with what to do."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load
from torch import Tensor

from secid.errors import InputError, plainly
from secid.files import sha256_of
from secid.measure.blocks import Triplets
from secid.measure.information import InformationState, trace
from secid.pool import DocumentFrequencies
from secid.results import Run
from secid.results.catalogue import FINDINGS
from secid.triplets.table import DOTS, TripletTable

INFORMATION, QUERY_KEYS, QUERY_INFLUENCE = "information_total", "query_keys", "query_influence"
"""Tensors of a source's state."""
SOURCES, TABLES = "index.json", "tables.json"
POSITIVES, RANDOM_REFERENCE = "positives.safetensors", "random_reference.safetensors"
RUN_TEXTS = "run_texts.safetensors"
SAME_TRACE = 1e-9
"""Relative difference within which a trace is the same: it is added up anew."""


class Entry(NamedTuple):
    """One state as an index of state/ lists it. sha256: of its file; None where an earlier secid wrote the index."""

    name: str
    file: str
    n_negatives: float
    sha256: str | None


DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors that reading a damaged file can raise."""


@contextmanager
def whole(path: Path, folder: Path) -> Iterator[None]:
    """Turns whatever goes wrong while a file of a run folder is read into an InputError that names it."""
    try:
        yield
    except (*DAMAGE, pa.ArrowException, SafetensorError) as error:
        what = f"is damaged ({plainly(error)})" if path.exists() else "is missing from the run folder"
        raise InputError(what, where=str(path), remedy=f"score again with --run {folder} --force") from error


def read_states(folder: Path, run: Run) -> dict[str, InformationState]:
    """States of a run folder's sources by name, in rank order, on the table's queries. run: the folder's report.

    Raises InputError where a state is missing, damaged, or not that of the report.
    """
    traces = {source.name: source.in_table(run.budget).trace for source in run.sources}
    entries = source_entries(folder)
    states = {entry.name: _state(folder, entry) for entry in entries}
    with whole(folder / "state" / SOURCES, folder):
        if [entry.name for entry in entries] != list(traces):
            raise ValueError("it does not list what report.json does")
        if len({state.total.shape for state in states.values()}) > 1:
            raise ValueError("its matrices differ in size")
        for name, state in states.items():
            if not math.isclose(trace(state.matrix()), traces[name], rel_tol=SAME_TRACE):
                raise ValueError(f"tr M of {name} is not that of report.json")
    return states


def source_entries(folder: Path) -> list[Entry]:
    """The states of the sources. Raises InputError where the index is missing or damaged."""
    path = folder / "state" / SOURCES
    with whole(path, folder):
        listed = json.loads(path.read_text(encoding="utf-8"))
        return [
            Entry(str(e["source"]), _file_name(e["file"]), _count(e["n_negatives"]), e.get("sha256")) for e in listed
        ]


def _file_name(name: str) -> str:
    """Return the name of a file in state/. Raises ValueError for a path that leads out of it."""
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file")
    return name


def _count(number: Any) -> float:
    if not 0.0 <= (count := float(number)) < math.inf:
        raise ValueError(f"{count} negatives")
    return count


def read_tensors(folder: Path, entry: Entry, names: Sequence[str]) -> list[Tensor]:
    """The named tensors of a state. Raises InputError where its file is missing or no longer as it was written."""
    path = folder / "state" / entry.file
    with whole(path, folder):
        if entry.sha256 not in (None, sha256_of(path)):
            raise ValueError("its SHA-256 is not that of the index")
        with safe_open(path, "pt") as tensors:
            return [tensors.get_tensor(name) for name in names]


def _state(folder: Path, entry: Entry) -> InformationState:
    (total,) = read_tensors(folder, entry, (INFORMATION,))
    square = total.ndim == 2 and total.shape[0] == total.shape[1]
    with whole(folder / "state" / entry.file, folder):
        if total.dtype != torch.float64 or not square or not total.isfinite().all():
            raise ValueError("it holds no finite square float64 matrix")
    return InformationState(total, entry.n_negatives)


def read_frequencies(folder: Path, run: Run) -> DocumentFrequencies:
    """The document frequencies of a run folder. Raises InputError where they are missing, damaged or another run's."""
    path = folder / "state" / "idf.safetensors"
    with whole(path, folder):
        with safe_open(path, "np") as file:
            table = DocumentFrequencies(file.get_tensor("keys"), file.get_tensor("counts"), run.idf.n_texts)
        if table.sha256() != run.idf.sha256:
            raise ValueError("its hash is not that of report.json")
    return table


def read_negatives(folder: Path, columns: Sequence[str], source: str | None = None) -> pa.Table:
    """Columns of negatives.parquet, of one source or all. Raises InputError where it is missing or damaged."""
    path = folder / "negatives.parquet"
    only = None if source is None else pc.field("source") == source
    with whole(path, folder):
        missing = [name for name in columns if name not in pq.read_schema(path).names]
        if missing:
            raise ValueError(f"no column {missing[0]}; an earlier secid wrote none")
        return pq.read_table(path, columns=list(columns), filters=only, page_checksum_verification=True)


def read_positives(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]]:
    """The labelled positives of a run, as a baseline keeps them.

    Raises InputError where they are missing, damaged, or those of another run.
    """
    return _arrays(folder, POSITIVES, _hashes(folder, run)[POSITIVES])


def read_reference(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]] | None:
    """The random reference of a run as `scored_plan` takes it; None where the run has none. Raises as above."""
    hashes = _hashes(folder, run)
    return _arrays(folder, RANDOM_REFERENCE, hashes[RANDOM_REFERENCE]) if RANDOM_REFERENCE in hashes else None


def read_run_texts(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]] | None:
    """Of a shard what was counted over the texts of the whole run; None for a run of its own. Raises as above."""
    hashes = _hashes(folder, run)
    return _arrays(folder, RUN_TEXTS, hashes[RUN_TEXTS]) if RUN_TEXTS in hashes else None


def run_key(run: Run) -> str:
    """SHA-256 of what was scored, under which encoder, and of the scores: what sets a run apart from any other."""
    sources = [[source.name, source.eci_nats, [file.sha256 for file in source.paths]] for source in run.sources]
    parts = [run.encoder.fingerprint, run.idf.sha256, run.settings.get("seed"), sources]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _hashes(folder: Path, run: Run) -> dict[str, str]:
    """SHA-256 of the tables of a run, by file."""
    path = folder / "state" / TABLES
    with whole(path, folder):
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["run"] != run_key(run):
            raise ValueError("it belongs to another run than report.json")
        return {POSITIVES: index["sha256"][POSITIVES], **index["sha256"]}


def _arrays(folder: Path, name: str, sha256: str) -> dict[str, npt.NDArray[Any]]:
    path = folder / "state" / name
    with whole(path, folder):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"its SHA-256 is not that of {TABLES}")
        return dict(load(data))


def read_table(folder: Path, source: str, temperature: float) -> TripletTable:
    """The triplet table of one source, without the files behind it.

    temperature : that of the run. query: places among the query_keys of the source's state; positive, negative and
    place are numbers within the table, and a negative that several records list has one in each. The coverage of the
    positives is not on disk: NaN. Raises InputError where negatives.parquet is missing, damaged or lacks the source.
    """
    ids, numbers = ("record", "query", "negative"), (*DOTS, "coverage", "share")
    columns = [*ids, *numbers, *(entry.column for entry in FINDINGS.values())]
    rows = read_negatives(folder, columns, source)
    with whole(folder / "negatives.parquet", folder):
        if not len(rows):
            raise ValueError(f"no row of {source}")
        record, query, number = (rows.column(name).to_numpy().astype(np.int64) for name in ids)
        values = {name: rows.column(name).to_numpy().copy() for name in numbers}
        head = np.ones(len(rows), np.bool_)
        head[1:] = (record[1:] != record[:-1]) | (number[1:] <= number[:-1])
        place = np.unique(record * (number.max() + 1) + number, return_inverse=True)[1]
        triplets = Triplets(
            query=query,
            positive=np.cumsum(head) - 1,
            negative=place,
            record_offsets=np.append(np.flatnonzero(head), len(rows)),
            record=record,
            place=place,
            share=None if (values["share"] == 1.0).all() else values["share"],
        )
        table = TripletTable(
            triplets=triplets,
            planned=None,
            temperature=temperature,
            s_query_positive=values["s_query_positive"][head],
            positive_coverage=np.full(int(head.sum()), np.nan),
            s_query_negative=values["s_query_negative"],
            s_positive_negative=values["s_positive_negative"],
            coverage=values["coverage"],
            findings=np.zeros(len(rows), np.uint32),
            evaluated=frozenset(),
        )
        flags = {name: rows.column(entry.column) for name, entry in FINDINGS.items()}
        return table.with_findings({name: flag.to_numpy() for name, flag in flags.items() if not flag.null_count})
