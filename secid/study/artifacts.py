"""The tables of a run folder that are too large for a page: every triplet's numbers, and the states."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file

from secid.errors import InputError
from secid.lexical import DocumentFrequencies
from secid.results import IdfInfo

if TYPE_CHECKING:
    from secid.study.finish import Measured

ROWS_PER_GROUP = 65_536

NEGATIVES_SCHEMA = pa.schema(
    [
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("record", pa.int64()),
        ("negative", pa.int32()),
        ("s_query_positive", pa.float64()),
        ("s_query_negative", pa.float64()),
        ("s_positive_negative", pa.float64()),
        ("consistency", pa.float64()),
        ("locality", pa.float64()),
        ("coverage", pa.float64()),
        ("residual", pa.float64()),
        ("weight", pa.float64()),
        ("influence", pa.float64()),
        ("equals_positive", pa.bool_()),
    ]
)
"""One row a triplet. record: 0-based within the source; negative: 0-based within the record.

influence: first-order change of the source's score times N, in nats, at the run's budget (METHOD 8).
"""


def write_negatives(measured: Iterable[Measured], path: Path) -> None:
    """negatives.parquet, in row groups, so that memory does not grow with the sources."""
    with pq.ParquetWriter(path, NEGATIVES_SCHEMA, compression="zstd") as writer:
        for item in measured:
            for batch in _batches(item):
                writer.write_batch(batch)


def _batches(item: Measured) -> Iterator[pa.RecordBatch]:
    planned, rows, gates = item.planned, item.triplets, item.gates
    if planned is None:
        raise ValueError("a control has no rows in a file")
    paths = pa.array(planned.source.paths, pa.string())
    for start in range(0, len(rows), ROWS_PER_GROUP):
        part = slice(start, start + ROWS_PER_GROUP)
        record, place = rows.record[part], rows.place[part]
        n = len(record)
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([planned.name], pa.string())),
            pa.DictionaryArray.from_arrays(pa.array(planned.file[record].astype(np.int32)), paths),
            pa.array(planned.line[record]),
            pa.array(record),
            pa.array((place - planned.negative_offsets[record]).astype(np.int32)),
            pa.array(item.scalars.query_positive[part]),
            pa.array(item.scalars.query_negative[part]),
            pa.array(item.scalars.positive_negative[part]),
            pa.array(gates.consistency[part]),
            pa.array(gates.locality[part]),
            pa.array(gates.coverage[part]),
            pa.array(gates.residual[part]),
            pa.array(gates.weight[part]),
            pa.array(item.influence.per_triplet[part]),
            pa.array(planned.equals_positive[place]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=NEGATIVES_SCHEMA)


def write_frequencies(table: DocumentFrequencies, info: IdfInfo, path: Path) -> None:
    """The document frequencies behind coverage, so that another run can score in the same pool."""
    tensors = {"keys": np.ascontiguousarray(table.keys), "counts": np.ascontiguousarray(table.counts)}
    save_numpy(tensors, path, {**{name: str(value) for name, value in vars(info).items()}})


def read_frequencies(path: Path) -> tuple[DocumentFrequencies, IdfInfo]:
    """What `write_frequencies` wrote. Raises InputError where the file is no such table or was changed."""
    try:
        with safe_open(path, "np") as file:
            table = DocumentFrequencies(file.get_tensor("keys"), file.get_tensor("counts"), 0)
            head = file.metadata()
        info = IdfInfo(head["corpus"], head["tokenizer"], int(head["n_texts"]), int(head["n_tokens"]), head["sha256"])
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise InputError(f"not a table of document frequencies: {error}", where=str(path)) from error
    table = replace(table, n_documents=info.n_texts)
    if table.sha256() != info.sha256:
        raise InputError("the table does not match its own hash", where=str(path), remedy="write the baseline again")
    return table, info


def write_state(measured: Iterable[Measured], folder: Path) -> None:
    """state/: the information sum of each source in safetensors, and an index that names them.

    query_keys (Q, 16) and query_influence (Q,) are what a paired comparison with another run needs:
    the text key of each query and its sum of influences over N at the first budget (METHOD 8).
    """
    folder.mkdir(exist_ok=True)
    index = []
    for number, item in enumerate(measured):
        name = f"source-{number:04d}.safetensors"
        tensors = {
            "information_total": item.state.total.contiguous(),
            "query_keys": torch.from_numpy(item.query_keys.copy()),
            "query_influence": torch.from_numpy(item.influence.per_query[:, 0].copy()),
        }
        save_file(tensors, folder / name)
        index.append({"source": item.planned.name, "file": name, "n_negatives": item.state.n_negatives})
    (folder / "index.json").write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
