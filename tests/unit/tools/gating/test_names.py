"""Test which source of the baseline a new file follows."""

from __future__ import annotations

import pytest

from secid.errors import SettingsError
from secid.tools.gating.baseline import predecessor, undated_name


@pytest.mark.parametrize(
    "name",
    [
        "dense-2025", "dense-2025-11", "dense_2025_11_03", "dense.20251103", "dense-202511", "dense-2025-w45",
        "dense 2025q3", "dense-v2", "dense_V1.3", "dense.part-00003-of-00010", "dense-shard12", "dense-00003-of-00010",
        "dense-v2-2025-11", "dense-2025-11.part-3",
    ],
)  # fmt: skip
def test_dates_versions_and_shards_are_left_out(name):
    assert undated_name(name) == "dense"
    assert predecessor(name, ["bm25", "dense"], {}, "p.toml") == "dense"
    assert predecessor("dense", ["bm25", name], {}, "p.toml") == name


@pytest.mark.parametrize(
    "name",
    [
        "dense_rank_10_20", "dense-2", "dense10", "dense-1999", "dense-2025-13", "densev2", "dense-20251", "2025-11",
        "v2",
    ],
)  # fmt: skip
def test_other_numbers_belong_to_the_name(name):
    assert undated_name(name) == name
    assert predecessor(name, ["dense"], {}, "p.toml") is None


@pytest.mark.parametrize(
    ("known", "latest"),
    [
        (["dense-v9", "dense-v10", "dense-v2"], "dense-v10"),
        (["dense-2025-11", "dense-2024-12"], "dense-2025-11"),
        (["dense-v2", "dense"], "dense-v2"),
        (["dense-v2", "bm25-v3"], "dense-v2"),
    ],
)
def test_of_several_versions_the_latest(known, latest):
    assert predecessor("dense-2026-01", known, {}, "p.toml") == latest


def test_an_equal_name_comes_before_a_later_version():
    assert predecessor("dense-v9", ["dense-v9", "dense-v10"], {}, "p.toml") == "dense-v9"


def test_the_policy_maps_a_name_or_its_stem_first():
    known, names = ["dense", "bm25"], {"miner": "dense", "dense-v3": "bm25"}
    assert predecessor("miner", known, names, "p.toml") == "dense"
    assert predecessor("miner-2025-11", known, names, "p.toml") == "dense"
    assert predecessor("dense-v3", known, names, "p.toml") == "bm25"
    assert predecessor("dense-v4", known, names, "p.toml") == "dense"


def test_a_mapping_to_no_source_is_refused():
    with pytest.raises(SettingsError) as caught:
        predecessor("miner-v2", ["dense"], {"miner": "dens"}, "p.toml")
    assert caught.value.where == "p.toml"
    assert "names.miner = 'dens' " in caught.value.message
    assert "dense" in (caught.value.remedy or "")
