"""A table read from a run folder is the one that was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.catalogue import FINDINGS
from secid.run_folder.tables import write_negatives, write_state
from secid.scoring.run import Scored
from secid.settings import resolve
from secid.tools.gating.collect import folder_samples, measured_sample
from tests.fake_encoder import HashEncoder
from tests.scored import score_sources


def scored(folder: Path, positives: str) -> Scored:
    """Two sources with uneven records, repeats, a copy of a positive, and queries that two records share."""
    for name, n in (("a", 24), ("b", 12)):
        rows = [
            {
                "query": f"query {i % 10}",
                "pos": [f"positive {i} {j}" for j in range(1 + i % 3)],
                "neg": [*(f"{name} negative {i} {j}" for j in range(1 + i % 4)), f"{name} negative {i} 0",
                    f"positive {i} 0"],
            }
            for i in range(n)
        ]  # fmt: skip
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "work").mkdir()
    resolved = resolve({"cache": False, "controls": "none", "positives": positives}, environment={}, directory=folder)
    sources = resolve_sources([str(folder / "*.jsonl")])
    return score_sources(sources, HashEncoder(), resolved, folder / "work", Silent())


@pytest.mark.parametrize("positives", ["first", "all"])
def test_a_source_of_a_run_folder_is_the_measured_one(tmp_path, positives):
    run = scored(tmp_path, positives)
    write_negatives(run.measured, tmp_path / "negatives.parquet")
    write_state(run.measured, tmp_path / "state")
    for item, (source, read) in zip(run.measured, folder_samples(tmp_path, run.run), strict=True):
        own = measured_sample(item)
        assert source.name == item.name
        assert read.queries.tolist() == own.queries.tolist()
        assert (read.score.value, read.n_negatives) == (own.score.value, own.n_negatives)
        np.testing.assert_array_equal(read.cluster, own.cluster)
        np.testing.assert_array_equal(read.score.per_query, own.score.per_query)
        np.testing.assert_array_equal(read.table.triplets.record_offsets, own.table.triplets.record_offsets)
        for name, column in own.columns.items():
            np.testing.assert_array_equal(read.columns[name], column, err_msg=name)
        assert read.table.evaluated == own.table.evaluated
        assert {"repeat", "false_negative"} <= read.table.evaluated
        for name in read.table.evaluated:
            np.testing.assert_array_equal(read.table.has(name), own.table.has(name), err_msg=name)
        assert read.table.has("false_negative").any()
        np.testing.assert_array_equal(read.relation(), own.relation())
        tail, theirs = read.unrelated(0.5), own.unrelated(0.5)
        assert 0.0 < tail.value < 1.0
        assert (tail.value, tail.standard_error) == (theirs.value, theirs.standard_error)
        place, theirs = read.table.triplets.place, own.table.triplets.place
        assert len(np.unique(np.stack([place, theirs]), axis=1).T) == len(np.unique(place)) == len(np.unique(theirs))
    assert set(FINDINGS) >= read.table.evaluated
