"""Copies in the schema of sentence-transformers, read by its rules and trained on."""

from __future__ import annotations

from pathlib import Path

import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from tests.tiny_bert import save_tiny_bert
from tests.unit.write.test_writer import row, texts, written

RESERVED = {"label", "labels", "score", "scores", "dataset_name", "return_loss"}
"""Columns that sentence-transformers takes for something else than a text."""


def as_trained(path: Path) -> list[list[str]]:
    """Return the columns as sentence-transformers uses them: by order, none of them empty or with another meaning."""
    table = pq.read_table(path) if path.suffix == ".parquet" else pj.read_json(path)
    assert table.column_names[:2] == ["anchor", "positive"]
    assert not RESERVED & set(table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    assert all(isinstance(value, str) and value for column in columns for value in column)
    return columns


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("numbers", [(3, 3, 3, 3), (1, 1, 1, 1), (3, 1, 2, 2)])
def test_sentence_transformers_trains_on_an_n_tuple(tmp_path, suffix, numbers):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    rows = [row(number, n, columns={"score": 1.0, "lang": "de"}) for number, n in enumerate(numbers)]
    result, _ = written(rows, "st-ntuple", tmp_path / f"out{suffix}")
    columns = as_trained(tmp_path / f"out{suffix}")
    equal = len(set(numbers)) == 1
    assert result.layout == ("n-tuple" if equal else "triplets")
    assert (len(columns), len(columns[0])) == ((2 + numbers[0], 4) if equal else (3, sum(numbers)))
    assert sorted(text for column in columns[2:] for text in column) == sorted(t for _, _, n in texts(rows) for t in n)
    model = SentenceTransformer(str(save_tiny_bert(tmp_path / "encoder")), device="cpu")
    loss = MultipleNegativesRankingLoss(model)([model.preprocess(column) for column in columns], None)
    assert loss.isfinite()
