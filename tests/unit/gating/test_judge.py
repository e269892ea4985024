"""What a verdict takes from a run: controls of this source's queries, whatever was scored with it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from secid.gating import judge
from secid.gating.policy import Policy
from secid.settings import resolve
from tests.unit.gating.conftest import baseline_of, sample, source_of


def test_a_pooled_control_counts_on_the_source_s_queries_alone(monkeypatch):
    pooled = sample(n_queries=100)
    near = pooled.table.s_query_negative
    near[pooled.cluster >= 40] = -1.0  # a companion's, far from everything
    monkeypatch.setattr(judge, "measured_sample", lambda measured: pooled)
    names = [f"query {i:08d}".encode().ljust(16, b"\0") for i in range(40)]
    keys = np.frombuffer(b"".join(names), np.uint8).reshape(40, 16)
    item = SimpleNamespace(name="a", query_keys=keys)
    scored = SimpleNamespace(controls=[(SimpleNamespace(kind="random", of=None), None)])
    own = judge._controls_of(item, scored)["random"]
    assert own.means()["query_similarity"].value == pytest.approx(near[:200].mean())
    assert (len(own.queries), own.n_negatives, own.cluster.max()) == (40, 200, 39)
    few = SimpleNamespace(name="a", query_keys=keys[:4])
    assert judge._controls_of(few, scored) == {}


@pytest.mark.parametrize(
    ("dtype", "flags", "expected"),
    [("bf16", {}, "bf16"), ("bf16", {"dtype": "float32"}, "float32"), ("unknown", {}, "auto")],
)
def test_the_number_format_is_the_baseline_s_unless_given(dtype, flags, expected):
    baseline = baseline_of(own=source_of(sample()))
    baseline = replace(baseline, encoder=replace(baseline.encoder, dtype=dtype))
    settings = judge.settings_for(baseline, resolve(flags, environment={}), Policy())
    assert settings.values.dtype == expected
    stored = replace(baseline, encoder=replace(baseline.encoder, pooling="precomputed"))
    assert judge.settings_for(stored, resolve({}, environment={}), Policy()).values.dtype == "auto"
