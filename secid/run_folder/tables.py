"""The tables of a run folder that are too large for a page: every triplet's numbers, and the states.

`secid.run_folder.read` reads them again, and notices by checksums where one has changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save as numpy_bytes
from safetensors.torch import save as torch_bytes

from secid.pool import DocumentFrequencies
from secid.records import encodable
from secid.results import IdfInfo, Run
from secid.results.catalogue import FINDINGS
from secid.run_folder.read import INFORMATION, QUERY_INFLUENCE, QUERY_KEYS, TABLES, run_key

if TYPE_CHECKING:
    from secid.triplets.measured import Measured

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
"""One row a triplet. path, line: the row that first lists the negative. record: 0-based within the
source; query: place of its query in the query_keys of the source's state; negative: 0-based within
the record's distinct negatives; ordinal: 0-based among the usable negatives of its row (rows of
labelled pairs are grouped by query first, and counted as one).

influence: first-order change of the source's score times N, in nats, at the run's budget (METHOD 8).
information: B w u^T A^-1 u / N, what the triplet holds of the score to first order, in nats at the
run's budget; share: what the row counts, below 1 where a negative is paired with several positives.
s_guide_positive, s_guide_negative: the guide's scores of positive and negative for the query; null where it scored
none. information sums to tr(A^-1 B M), which is at most the score.
"""


def write_negatives(measured: Iterable[Measured], path: Path) -> None:
    """The triplet table on disk: negatives.parquet, in row groups, so that memory does not grow with the sources.

    A finding that was not evaluated is null, and so is `suspect` where the guide did not score the negative.
    """
    with pq.ParquetWriter(path, NEGATIVES_SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        for item in measured:
            for batch in _batches(item):
                writer.write_batch(batch)


def _batches(item: Measured) -> Iterator[pa.RecordBatch]:
    planned, rows, columns = item.table.source, item.triplets, item.table.columns()
    paths = pa.array(map(encodable, planned.source.paths), pa.string())
    queries = np.unique(rows.query, return_inverse=True)[1].astype(np.int64)
    flags = {name: item.table.has(name) for name in FINDINGS if name in item.table.evaluated}
    of_guide = item.table.guide
    none, unknown = np.zeros(len(rows), np.bool_), {}
    if of_guide is not None:
        flags["suspect"], unknown["suspect"] = of_guide.suspect(), ~of_guide.scored
    guide = (None, None) if of_guide is None else (of_guide.s_query_positive, of_guide.s_query_negative)
    for start in range(0, len(rows), ROWS_PER_GROUP):
        part = slice(start, start + ROWS_PER_GROUP)
        record, place = rows.record[part], rows.place[part]
        n = len(record)
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([planned.name], pa.string())),
            pa.DictionaryArray.from_arrays(pa.array(planned.negative_file[place].astype(np.int32)), paths),
            pa.array(planned.negative_line[place]),
            pa.array(record),
            pa.array(queries[part]),
            pa.array((place - planned.negative_offsets[record]).astype(np.int32)),
            pa.array(planned.negative_ordinal[place].astype(np.int32)),
            *(pa.array(values[part]) for values in columns.values()),
            pa.array(item.influence.per_triplet[part]),
            pa.array(item.influence.budgets[0] / item.state.n_negatives * item.influence.information[part]),
            pa.array(np.ones(n) if rows.share is None else rows.share[part]),
            *(pa.nulls(n, pa.float64()) if own is None else pa.array(own[part], from_pandas=True) for own in guide),
            *(
                pa.array(flags[name][part], mask=unknown.get(name, none)[part])
                if name in flags
                else pa.nulls(n, pa.bool_())
                for name in FINDINGS
            ),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=NEGATIVES_SCHEMA)


def write_frequencies(table: DocumentFrequencies, info: IdfInfo, path: Path) -> None:
    """The document frequencies behind coverage, so that another run can score in the same pool."""
    tensors = {"keys": np.ascontiguousarray(table.keys), "counts": np.ascontiguousarray(table.counts)}
    path.write_bytes(numpy_bytes(tensors, {name: str(value) for name, value in vars(info).items()}))


def write_tables(run: Run, tables: Mapping[str, Mapping[str, npt.NDArray[Any]]], folder: Path) -> None:
    """Tables of arrays, by file, and tables.json, which ties them to the run and to their SHA-256.

    tables : POSITIVES, the labelled positives as hashes without texts; RANDOM_REFERENCE, where there is one.
    """
    hashes = {}
    for name, arrays in tables.items():
        data = numpy_bytes({key: np.ascontiguousarray(array) for key, array in arrays.items()})
        (folder / name).write_bytes(data)
        hashes[name] = hashlib.sha256(data).hexdigest()
    index = json.dumps({"run": run_key(run), "sha256": hashes}, indent=2)
    (folder / TABLES).write_text(f"{index}\n", encoding="utf-8")


def write_state(measured: Iterable[Measured], folder: Path) -> None:
    """state/: the information sum of each source in safetensors, and an index that names them and their SHA-256.

    query_keys (Q, 16) and query_influence (Q,) are what a paired comparison with another run needs:
    the text key of each query and its sum of influences over N at the first budget (METHOD 8).
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
        entry = {"source": item.name, "file": name, "n_negatives": item.state.n_negatives}
        index.append({**entry, "sha256": _written(folder / name, tensors)})
    (folder / "index.json").write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _written(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    """Writes a file of tensors; its SHA-256."""
    data = torch_bytes(tensors)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
