"""Write and read the tables of a run folder: the numbers of every triplet, and the states."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load
from safetensors.numpy import save as numpy_bytes
from safetensors.torch import save as torch_bytes
from torch import Tensor

from secid.errors import InputError, plain_message
from secid.files import sha256_of
from secid.measure.blocks import Triplets
from secid.measure.information import InformationState, trace
from secid.pool import DocumentFrequencies
from secid.records import encodable
from secid.results import IdfInfo, Run
from secid.results.catalogue import FINDINGS
from secid.triplets.table import DOT_COLUMNS, TripletTable

if TYPE_CHECKING:
    from secid.triplets.measure_set import Measured

# Read the tables of a run folder. Errors name the missing or changed file and a remedy.

INFORMATION, QUERY_KEYS, QUERY_INFLUENCE = "information_total", "query_keys", "query_influence"
"""Names of the tensors in a source's state."""
SOURCES, TABLES = "index.json", "tables.json"
POSITIVES, RANDOM_REFERENCE = "positives.safetensors", "random_reference.safetensors"
RUN_TEXTS = "run_texts.safetensors"
TRACE_TOLERANCE = 1e-9
"""Maximum relative difference at which two traces count as equal. They may be summed in different orders."""


class Entry(NamedTuple):
    """One state in the index of state/. name: source; file: name of its file; sha256: hash of the file."""

    name: str
    file: str
    n_negatives: float
    sha256: str


READ_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors that reading a damaged file can raise."""


@contextmanager
def damage_named(path: Path, folder: Path) -> Iterator[None]:
    """Raise any error of the block, which reads a file of a run folder, as an InputError that names the file."""
    try:
        yield
    except (*READ_ERRORS, pa.ArrowException, SafetensorError) as error:
        problem = f"is damaged ({plain_message(error)})" if path.exists() else "is missing from the run folder"
        raise InputError(problem, where=str(path), remedy=f"score again with --run {folder} --force") from error


def read_states(folder: Path, run: Run) -> dict[str, InformationState]:
    """Return source -> state for the queries of a run's table, in rank order. run: the folder's report.

    Raises InputError if a state is missing, damaged, or does not match the report.
    """
    traces = {source.name: source.in_table(run.budget).trace for source in run.sources}
    entries = source_entries(folder)
    states = {entry.name: _state(folder, entry) for entry in entries}
    with damage_named(folder / "state" / SOURCES, folder):
        if [entry.name for entry in entries] != list(traces):
            raise ValueError("its sources differ from report.json")
        if len({state.total.shape for state in states.values()}) > 1:
            raise ValueError("its matrices differ in size")
        for name, state in states.items():
            if not math.isclose(trace(state.matrix()), traces[name], rel_tol=TRACE_TOLERANCE):
                raise ValueError(f"tr M of {name} differs from report.json")
    return states


def source_entries(folder: Path) -> list[Entry]:
    """Return the index entries of the sources' states. Raises InputError if the index is missing or damaged."""
    path = folder / "state" / SOURCES
    with damage_named(path, folder):
        listed = json.loads(path.read_text(encoding="utf-8"))
        return [Entry(str(e["source"]), _file_name(e["file"]), _count(e["n_negatives"]), e["sha256"]) for e in listed]


def _file_name(name: str) -> str:
    """Return the name of a file in state/. Raises ValueError for a path with folders."""
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file")
    return name


def _count(number: Any) -> float:
    if not 0.0 <= (count := float(number)) < math.inf:
        raise ValueError(f"{count} negatives")
    return count


def read_tensors(folder: Path, entry: Entry, names: Sequence[str]) -> list[Tensor]:
    """Read the named tensors of a state. Raises InputError if its file is missing or has changed."""
    path = folder / "state" / entry.file
    with damage_named(path, folder):
        if entry.sha256 != sha256_of(path):
            raise ValueError("its SHA-256 differs from the index")
        with safe_open(path, "pt") as tensors:
            return [tensors.get_tensor(name) for name in names]


def _state(folder: Path, entry: Entry) -> InformationState:
    (total,) = read_tensors(folder, entry, (INFORMATION,))
    square = total.ndim == 2 and total.shape[0] == total.shape[1]
    with damage_named(folder / "state" / entry.file, folder):
        if total.dtype != torch.float64 or not square or not total.isfinite().all():
            raise ValueError("it does not hold a finite square float64 matrix")
    return InformationState(total, entry.n_negatives)


def read_frequencies(folder: Path, run: Run) -> DocumentFrequencies:
    """Read a run's document frequencies. Raises InputError if they are missing, damaged or from another run."""
    path = folder / "state" / "idf.safetensors"
    with damage_named(path, folder):
        with safe_open(path, "np") as file:
            table = DocumentFrequencies(file.get_tensor("keys"), file.get_tensor("counts"), run.idf.n_texts)
        if table.sha256() != run.idf.sha256:
            raise ValueError("its hash differs from report.json")
    return table


def read_negatives(folder: Path, columns: Sequence[str], source: str | None = None) -> pa.Table:
    """Read columns of negatives.parquet for one source, or for all if None. Raises InputError if it is damaged."""
    path = folder / "negatives.parquet"
    only = None if source is None else pc.field("source") == source
    with damage_named(path, folder):
        missing = [name for name in columns if name not in pq.read_schema(path).names]
        if missing:
            raise ValueError(f"no column {missing[0]}")
        return pq.read_table(path, columns=list(columns), filters=only, page_checksum_verification=True)


def read_positives(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]]:
    """Read a run's labelled positives as arrays. Raises InputError if missing, damaged or of another run."""
    return _arrays(folder, POSITIVES, _hashes(folder, run)[POSITIVES])


def read_reference(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]] | None:
    """Read the random passages with which a run measured hardness; None without any. Raises like `read_positives`."""
    hashes = _hashes(folder, run)
    return _arrays(folder, RANDOM_REFERENCE, hashes[RANDOM_REFERENCE]) if RANDOM_REFERENCE in hashes else None


def read_run_texts(folder: Path, run: Run) -> dict[str, npt.NDArray[Any]] | None:
    """Read a shard's facts about all texts of the run; None if the run is not a shard. Raises like `read_positives`."""
    hashes = _hashes(folder, run)
    return _arrays(folder, RUN_TEXTS, hashes[RUN_TEXTS]) if RUN_TEXTS in hashes else None


def run_key(run: Run) -> str:
    """Return a SHA-256 that identifies a run by its encoder, documents, seed, files and scores."""
    sources = [[source.name, source.scored.nats, [file.sha256 for file in source.files]] for source in run.sources]
    parts = [run.encoder.fingerprint, run.idf.sha256, run.settings.get("seed"), sources]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _hashes(folder: Path, run: Run) -> dict[str, str]:
    path = folder / "state" / TABLES
    with damage_named(path, folder):
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["run"] != run_key(run):
            raise ValueError("it belongs to another run than report.json")
        return {POSITIVES: index["sha256"][POSITIVES], **index["sha256"]}


def _arrays(folder: Path, name: str, sha256: str) -> dict[str, npt.NDArray[Any]]:
    path = folder / "state" / name
    with damage_named(path, folder):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"its SHA-256 differs from {TABLES}")
        return dict(load(data))


def read_table(folder: Path, source: str, temperature: float) -> TripletTable:
    """Read the triplet table of one source. The input files are not needed.

    The table's `query` is a place in the query_keys of the source's state. `positive`, `negative` and `place` are
    numbered within the table, and a negative listed by several records has one number per record. The coverage of
    positives is NaN, because it is not stored.
    Raises InputError if negatives.parquet is missing, damaged or lacks the source.
    """
    ids, numbers = ("record", "query", "negative"), (*DOT_COLUMNS, "coverage", "share")
    columns = [*ids, *numbers, *(entry.column for entry in FINDINGS.values())]
    rows = read_negatives(folder, columns, source)
    with damage_named(folder / "negatives.parquet", folder):
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


# Write the tables that are too large for a page. The functions above detect changed files by checksums.

ROWS_PER_GROUP = 65_536

NEGATIVES_SCHEMA = pa.schema(
    [
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("record", pa.int64()),
        ("query", pa.int64()),
        ("negative", pa.int32()),
        ("ordinal", pa.int32()),
        ("s_query_positive", pa.float64()),
        ("s_query_negative", pa.float64()),
        ("s_positive_negative", pa.float64()),
        ("consistency", pa.float64()),
        ("locality", pa.float64()),
        ("coverage", pa.float64()),
        ("residual", pa.float64()),
        ("weight", pa.float64()),
        ("influence", pa.float64()),
        ("information", pa.float64()),
        ("share", pa.float64()),
        ("s_guide_positive", pa.float64()),
        ("s_guide_negative", pa.float64()),
        *((entry.column, pa.bool_()) for entry in FINDINGS.values()),
    ]
)
"""Columns of negatives.parquet, which has one row per triplet.

path, line  : file and line of the row that first lists the negative.
record      : number of the record within the source, from 0.
query       : place of the query in the query_keys of the source's state.
negative    : place among the record's distinct negatives, from 0.
ordinal     : place among the usable negatives of its row, from 0. Labelled pairs of one query count as one row.
influence   : first-order effect on the source's score, times N, in nats, at the run's budget (METHOD 8).
information : B w u^T A^-1 u / N, the triplet's first-order part of the score, in nats at the run's budget. The column
              sums to tr(A^-1 B M), which is at most the score.
share       : fraction as which the triplet counts; below 1 if its negative is paired with several positives.
s_guide_positive, s_guide_negative : the guide's scores of positive and negative for the query; null without scores.
"""


def write_negatives(measured: Iterable[Measured], path: Path) -> None:
    """Write negatives.parquet in row groups, so that memory does not grow with the number of sources.

    A finding that was not evaluated is null. `suspect` is also null if the guide did not score the negative.
    """
    repeat = [field.name for field in NEGATIVES_SCHEMA if not pa.types.is_floating(field.type)]
    with pq.ParquetWriter(
        path, NEGATIVES_SCHEMA, compression="zstd", use_dictionary=repeat, write_page_checksum=True
    ) as writer:
        for item in measured:
            for batch in _batches(item):
                writer.write_batch(batch)


def _batches(item: Measured) -> Iterator[pa.RecordBatch]:
    planned, rows, columns = item.table.source, item.triplets, item.table.columns()
    name, paths = _strings([planned.name]), _strings(list(map(encodable, planned.source.paths)))
    queries = np.unique(rows.query, return_inverse=True)[1].astype(np.int64)
    flags = {name: item.table.has(name) for name in FINDINGS if name in item.table.evaluated}
    of_guide = item.table.guide
    none, unknown = np.zeros(len(rows), np.bool_), {}
    if of_guide is not None:
        flags["suspect"], unknown["suspect"] = of_guide.suspect(), ~of_guide.scored
    guide = (None, None) if of_guide is None else (of_guide.s_query_positive, of_guide.s_query_negative)
    information = item.influence.budgets[0] / item.state.n_negatives * item.influence.information
    for start in range(0, len(rows), ROWS_PER_GROUP):
        part = slice(start, start + ROWS_PER_GROUP)
        record, place = rows.record[part], rows.place[part]
        n = len(record)
        arrays = [
            pa.DictionaryArray.from_arrays(_column(np.zeros(n), pa.int32()), name),
            pa.DictionaryArray.from_arrays(_column(planned.negative_file[place], pa.int32()), paths),
            _column(planned.negative_line[place], pa.int64()),
            _column(record, pa.int64()),
            _column(queries[part], pa.int64()),
            _column(place - planned.negative_offsets[record], pa.int32()),
            _column(planned.negative_ordinal[place], pa.int32()),
            *(_column(values[part], pa.float64()) for values in columns.values()),
            _column(item.influence.per_triplet[part], pa.float64()),
            _column(information[part], pa.float64()),
            _column(np.ones(n) if rows.share is None else rows.share[part], pa.float64()),
            *(
                pa.nulls(n, pa.float64())
                if scores is None
                else _column(scores[part], pa.float64(), np.isnan(scores[part]))
                for scores in guide
            ),
            *(
                _column(flags[finding][part], pa.bool_(), unknown.get(finding, none)[part])
                if finding in flags
                else pa.nulls(n, pa.bool_())
                for finding in FINDINGS
            ),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=NEGATIVES_SCHEMA)


def _column(values: npt.NDArray[Any], kind: Any, unknown: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return values as an Arrow array of a type. unknown: flags of the values that are null.

    Buffers are used, because `pyarrow.array` would import pandas, which takes 0.2 s.
    """
    data = _bits(values) if kind == pa.bool_() else pa.py_buffer(values.astype(kind.to_pandas_dtype(), order="C"))
    return pa.Array.from_buffers(kind, len(values), [None if unknown is None else _bits(~unknown), data])


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _strings(texts: Sequence[str]) -> pa.Array:
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(b"".join(data)))


def write_frequencies(table: DocumentFrequencies, info: IdfInfo, path: Path) -> None:
    """Write the document frequencies used for coverage, so that another run can score in the same pool."""
    tensors = {"keys": np.ascontiguousarray(table.keys), "counts": np.ascontiguousarray(table.counts)}
    path.write_bytes(numpy_bytes(tensors, {name: str(value) for name, value in vars(info).items()}))


def write_tables(run: Run, tables: Mapping[str, Mapping[str, npt.NDArray[Any]]], folder: Path) -> None:
    """Write tables of arrays, and tables.json, which holds the key of the run and the SHA-256 of each table.

    tables : file name -> arrays. POSITIVES holds labelled positives as hashes without texts. RANDOM_REFERENCE and
             RUN_TEXTS are optional.
    """
    hashes = {}
    for name, arrays in tables.items():
        data = numpy_bytes({key: np.ascontiguousarray(array) for key, array in arrays.items()})
        (folder / name).write_bytes(data)
        hashes[name] = hashlib.sha256(data).hexdigest()
    index = json.dumps({"run": run_key(run), "sha256": hashes}, indent=2)
    (folder / TABLES).write_text(f"{index}\n", encoding="utf-8")


def write_state(measured: Iterable[Measured], folder: Path) -> None:
    """Write the folder state/: the information sum of each source in safetensors, and an index with names and SHA-256.

    A paired comparison with another run also needs query_keys (Q, 16), the text key of each query, and query_influence
    (Q,), its sum of influences over N at the first budget (METHOD 8).
    """
    folder.mkdir(exist_ok=True)
    index = []
    for number, item in enumerate(measured):
        name = f"source-{number:04d}.safetensors"
        tensors = {
            INFORMATION: item.state.total.contiguous(),
            QUERY_KEYS: torch.from_numpy(item.query_keys.copy()),
            QUERY_INFLUENCE: torch.from_numpy(item.influence.per_query[:, 0].copy()),
        }
        data = torch_bytes(tensors)
        (folder / name).write_bytes(data)
        entry = {"source": item.name, "file": name, "n_negatives": item.state.n_negatives}
        index.append({**entry, "sha256": hashlib.sha256(data).hexdigest()})
    (folder / "index.json").write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
