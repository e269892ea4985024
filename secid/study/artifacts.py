"""The tables of a run folder that are too large for a page: every triplet's numbers, and the states."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save_file

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


def write_state(measured: Iterable[Measured], folder: Path) -> None:
    """state/: the information sum of each source in safetensors, and an index that names them."""
    folder.mkdir()
    index = []
    for number, item in enumerate(measured):
        name = f"source-{number:04d}.safetensors"
        save_file({"information_total": item.state.total.contiguous()}, folder / name)
        index.append({"source": item.planned.name, "file": name, "n_negatives": item.state.n_negatives})
    (folder / "index.json").write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
