"""Rows of any length score as unit rows do."""

from __future__ import annotations

import json

import numpy as np
import pytest

import secid
from secid.errors import NumericalError
from tests.fake_encoder import HashEncoder


class LongRows(HashEncoder):
    """Rows with the same directions and lengths from 1 to 30."""

    def encode(self, texts, role):
        lengths = np.array([1 + len(text.encode()) * 7 % 30 for text in texts], np.float32)
        return super().encode(texts, role) * lengths[:, None]


class ZeroRow(HashEncoder):
    """A row of zeros for one text."""

    def encode(self, texts, role):
        return super().encode(texts, role) * np.array([["nothing" not in text] for text in texts], np.float32)


@pytest.fixture
def sources(tmp_path) -> list[str]:
    generator = np.random.default_rng(0)
    paths = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.jsonl"
        rows = [
            {
                "query": f"river {n}",
                "pos": [f"river answer {n}"],
                "neg": [
                    f"{word} {generator.integers(10**9)}" for word in ("river", "lake", "far")[: 2 + (name == "b")]
                ],
            }
            for n in range(30)
        ]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        paths.append(str(path))
    return paths


def test_lengths_change_nothing(sources):
    unit, long = (secid.score(sources, encoder, cache=False) for encoder in (HashEncoder(), LongRows(name="long")))
    assert [source.name for source in long.sources] == [source.name for source in unit.sources]
    for one, other in zip(unit.sources, long.sources, strict=True):
        assert other.score.nats == pytest.approx(one.score.nats, rel=1e-6)
        assert other.score.standard_error_nats == pytest.approx(one.score.standard_error_nats, rel=1e-5)
        assert other.score.trace == pytest.approx(one.score.trace, rel=1e-6)
        assert other.score.trace <= 1
    assert [control.score.nats for control in long.controls] == pytest.approx(
        [control.score.nats for control in unit.controls], rel=1e-6, abs=1e-9
    )


def test_a_row_without_length_is_named(sources, tmp_path):
    path = tmp_path / "zero.jsonl"
    path.write_text(json.dumps({"query": "q", "pos": ["p"], "neg": ["nothing here"]}) + "\n", encoding="utf-8")
    with pytest.raises(NumericalError, match="nothing here"):
        secid.score([*sources, str(path)], ZeroRow(), cache=False)
