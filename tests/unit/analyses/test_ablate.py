"""Test what an ablation says about an order: ties, gaps, blocks, and the run's own budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from secid.analyses.ablations import ablation, blocks_of, over_encoders, with_noise
from secid.errors import UsageError
from secid.measure.interval import MIN_QUERIES, reach_95
from secid.measure.uncertainty import difference
from secid.pages.sections.ablations import ablations_section
from secid.progress import Silent
from secid.read import resolve_sources
from secid.scoring.run import Scored
from secid.settings import Settings, resolve
from secid.triplets.measure_set import aspects
from tests.fake_encoder import HashEncoder
from tests.scored import score_sources
from tests.snapshots import refusal

SUBJECTS = ("river", "stone", "bridge", "arch", "water", "load", "sand", "iron", "wood", "clay")
DOWN = {"a": 5.0, "b": 4.0, "c": 3.0, "d": 2.0, "e": 1.0}


def scored(folder: Path, budget: float) -> Scored:
    """Three sources that are ranked otherwise at budget 1 than beyond: `half` is the first part of `wide`."""
    near = [(subject, f"{subject} near") for subject in SUBJECTS * 4]
    wide = [(subject, f"{SUBJECTS[(n + 1) % 10]} wide {n}") for n, subject in enumerate(SUBJECTS * 4)]
    for name, pairs in {"near": near, "wide": wide, "half": wide[:20] + near[20:]}.items():
        rows = [
            {"query": f"{subject} {n}", "pos": [f"{subject} answer {n}"], "neg": [negative], "part": "all"}
            for n, (subject, negative) in enumerate(pairs)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "work").mkdir()
    wanted = {"cache": False, "budget": budget, "ablate": True, "by": "part", "controls": "none"}
    resolved = resolve(wanted, environment={}, directory=folder)
    found = resolve_sources([str(folder / "*.jsonl")])
    return score_sources(found, HashEncoder(), resolved, folder / "work", Silent())


@pytest.mark.parametrize(("budget", "first"), [(1.0, "wide"), (1000.0, "half")])
def test_the_base_of_every_ablation_and_a_slice_of_everything_are_the_run_itself(tmp_path, budget, first):
    found = scored(tmp_path, budget)
    order = [source.name for source in found.run.sources]
    by_score = sorted(found.scores, key=lambda name: -found.scores[name])
    assert by_score[0] == first
    for item in found.run.analyses["ablations"]:
        base = next(row for row in item.rows if row.setting == item.base)
        assert list(base.order) == by_score
        assert base.scores == pytest.approx(found.scores)
    caption = ablations_section(found.run, found.run.analyses["ablations"]).tables[0].caption
    assert ("B = 1,000" in caption) == (budget != 1.0)
    (everything,) = found.run.analyses["slices"]
    assert everything.field == "part"
    assert {source.name: source.score_nats for source in everything.sources} == pytest.approx(found.scores)
    assert [source.name for source in everything.sources] == order
    assert {source.name: source.n_triplets for source in everything.sources} == dict.fromkeys(order, 40)
    assert everything.stability == 1.0


def test_every_weight_is_taken_at_the_budget(tmp_path):
    tables = []
    for budget in (1.0, 1000.0):
        folder = tmp_path / f"{budget:g}"
        folder.mkdir()
        tables.append(
            next(item for item in scored(folder, budget).run.analyses["ablations"] if item.name == "weight").rows
        )
    for one, many in zip(*tables, strict=True):
        for name, nats in one.scores.items():
            assert many.scores[name] > 5 * nats, one.setting


def test_ties_keep_the_order_of_the_base_and_are_no_swaps():
    level = dict.fromkeys(DOWN, 1.0)
    found = ablation("temperature", "0.05", {"0.05": dict(reversed(DOWN.items())), "0.1": level})
    assert found.rows[1].order == tuple(DOWN)
    assert found.rows[1].stability == 0.5
    assert found.rows[1].swapped == ()
    both = ablation("idf", "pooled", {"pooled": DOWN, "own": {**DOWN, "b": 5.0, "e": 2.5}})
    assert both.rows[1].swapped == (("d", "e"),)


def test_a_setting_that_orders_no_pair_is_not_evidence():
    lacking = ablation("sample", "100 %", {"1 %": dict.fromkeys(DOWN), "2 %": {**DOWN, "a": None}, "100 %": DOWN})
    assert [row.stability for row in lacking.rows] == [None, 1.0, 1.0]
    alone = ablation("temperature", "0.05", {"0.05": {"a": 1.0}, "0.1": {"a": 2.0}})
    assert [row.stability for row in alone.rows] == [None, None]


def test_encoders_have_their_tau_with_the_target():
    forth, back = ({name: place * sign for place, name in enumerate("abcdef")} for sign in (1.0, -1.0))
    found = over_encoders({"target": forth, "other": back, "same": forth})
    assert [len(row.swapped) for row in found.rows] == [0, 15, 0]
    assert found.kendall_tau_b == {"other": pytest.approx(-1.0), "same": pytest.approx(1.0)}


def test_samples_tell_their_queries_and_intervals(tmp_path):
    run = scored(tmp_path, 1.0).run
    found = next(item for item in run.analyses["ablations"] if item.name == "sample")
    rows = {row.setting: row for row in found.rows}
    assert list(rows) == ["1 %", "2 %", "5 %", "10 %", "25 %", "50 %", "75 %", "100 %"]
    whole, half, few = rows["100 %"], rows["50 %"], rows["10 %"]
    assert whole.n_queries == {source.name: source.n_queries for source in run.sources}
    for source in run.sources:
        assert whole.intervals_95[source.name] == (source.score.nats, source.score.nats)
    assert max(few.n_queries.values()) < MIN_QUERIES
    assert few.intervals_95 == {}
    assert few.open_swaps == few.swapped
    source = run.sources[0]
    n, m = source.n_queries, half.n_queries[source.name]
    wider = reach_95(m) / reach_95(n) * (n / m - 1) ** 0.5
    upper = half.intervals_95[source.name][1] - half.scores[source.name]
    assert upper == pytest.approx((source.score.interval_95[1] - source.score.nats) * wider)
    assert not any(row.n_queries for item in run.analyses["ablations"] if item.name != "sample" for row in item.rows)


def test_a_swap_is_noise_where_the_difference_at_that_many_queries_may_be_zero(tmp_path):
    first, second = scored(tmp_path, 1.0).measured[:2]
    few, variant = (next(variant for variant in first.variants if variant.sample == part) for part in (0.1, 0.75))
    gap = difference(first.influence, second.influence, 0.0)
    n = min(item.variants[variant].n_queries for item in (first, second))
    reach = reach_95(n) * gap.standard_error * (gap.n_queries / n - 1) ** 0.5
    pair = (first.name, second.name)
    for ahead, open_swaps in ((0.9, (pair,)), (1.1, ())):
        scores = {
            "100 %": {first.name: 1.0, second.name: 0.5},
            "75 %": {first.name: 0.5, second.name: 0.5 + ahead * reach},
            "10 %": {first.name: 0.5, second.name: 100.0},
        }
        made = ablation("sample", "100 %", scores)
        made = with_noise(made, {**dict.fromkeys(scores, variant), "10 %": few}, [first, second], 1.0)
        assert (made.rows[1].swapped, made.rows[1].open_swaps) == ((pair,), open_swaps)
        assert made.rows[2].open_swaps == (pair,), "few queries decide nothing"


def test_a_temperature_close_to_one_of_the_suite_is_a_row_of_its_own():
    (found,) = (aspect for aspect in aspects(Settings(temperature=0.04999999)) if aspect.name == "temperature")
    assert found.base == "0.04999999"
    assert {setting: variant.temperature for setting, variant in found.variants.items()} == {
        text: float(text) for text in ("0.01", "0.02", "0.04999999", "0.05", "0.1", "0.2")
    }


def test_a_block_needs_a_name():
    assert blocks_of([" x = a, b "], list("ab")) == {"x": ("a", "b")}
    assert "' =a,b'" in refusal(lambda: blocks_of([" =a,b"], list("ab")), UsageError, "--set block")


@pytest.mark.parametrize(
    ("blocks", "twice"), [(["x=a,a"], "a"), (["x=a,b,a"], "a"), (["x=a,b", "x=a,c"], "this block")]
)
def test_a_block_or_a_source_in_it_named_twice_is_refused(blocks, twice):
    assert blocks_of(["x=a,b", "y=b,c"], list("abc")) == {"x": ("a", "b"), "y": ("b", "c")}
    assert twice in refusal(lambda: blocks_of(blocks, list("abc")), UsageError, "--set block=x")


def test_a_column_that_tells_rows_apart_is_refused_before_anything_is_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr("secid.scoring.stages.MAX_SLICES", 5)
    rows = [{"query": f"what is {n}", "positive": f"it is {n}", "negative": f"no {n}", "id": n} for n in range(6)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    resolved = resolve({"cache": False, "by": "id"}, environment={}, directory=tmp_path)
    found = resolve_sources([str(tmp_path / "a.jsonl")])
    (tmp_path / "work").mkdir()
    message = refusal(lambda: score_sources(found, None, resolved, tmp_path / "work", Silent()), UsageError, "--by")
    for value in ("'id'", "6", "5"):
        assert value in message


def test_a_slice_of_everything_is_the_run_under_the_sources_own_idf_and_small_slices_have_no_influence(tmp_path):
    texts = {"a": "stone river bank", "b": "river arch water"}
    for name, words in texts.items():
        rows = [
            {
                "query": f"river {n % 3} stone {n}",
                "positive": f"a river {n}",
                "negative": f"{words} {n % 3}",
                "part": n // 8,
            }
            for n in range(12)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    wanted = {"cache": False, "controls": "none", "idf": "own", "by": "part"}
    resolved = resolve(wanted, environment={}, directory=tmp_path)
    found = resolve_sources([str(tmp_path / f"{name}.jsonl") for name in texts])
    (tmp_path / "work").mkdir()
    scored = score_sources(found, HashEncoder(), resolved, tmp_path / "work", Silent())
    whole = {item.name: item for item in scored.measured}
    for source in scored.run.analyses["slices"][0].sources:
        inside = whole[source.name].table.coverage[:8]  # rows of the first slice come first
        assert source.coverage_mean == pytest.approx(inside.mean(), rel=1e-12)
    intervals = [{source.interval_95 for source in part.sources} for part in scored.run.analyses["slices"]]
    assert (0.0, 1.0) not in intervals[0]
    assert intervals[1] == {(0.0, 1.0)}  # four queries tell no interval
