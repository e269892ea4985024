"""Charts put numbers where they belong."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.pages.charts import (
    SOURCE_COLOUR,
    Scale,
    ablations_chart,
    around,
    forest_chart,
    gains_chart,
    gates_chart,
    hardness_chart,
    separation_chart,
    tag,
    ticks,
)
from secid.pages.formats import RUN_FORMATS
from secid.pages.sections import page_of
from tests.unit.pages import probes, samples, situations


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_few_and_inside(low, width):
    found = ticks(low, low + width)
    assert len(found) <= 11
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in found)


@given(st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_a_range_holds_its_values_and_is_never_empty(values):
    low, high = around(values)
    assert low < high
    assert all(low <= value <= high for value in values)


def test_scales_meet_their_ends():
    scale = Scale(1.0, 100.0, 40.0, 440.0)
    assert (scale(1.0), scale(100.0)) == (40.0, 440.0)
    assert scale(10.0) == pytest.approx(40 + 400 * 9 / 99)


def test_a_scale_of_one_value_is_its_middle():
    assert Scale(1.0, 1.0, 0.0, 10.0)(1.0) == 5.0


def test_attributes_and_bodies_are_escaped():
    assert tag("text", "<b>", class_='"x') == '<text class="&#34;x">&lt;b&gt;</text>'


def test_higher_scores_are_further_right():
    run = samples.golden()
    text = forest_chart(run).draw()
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)%"[^>]*class="src"', text)]
    assert len(places) == len(run.sources)
    assert places == sorted(places, reverse=True)


def test_gains_are_left_and_right_of_the_frozen_encoder():
    text = gains_chart(probes.with_harm(probes.probe(), 1)).draw()
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)%"[^>]*class="src"', text)]
    places = places[:: len(probes.RATES)]  # of the first strip
    (frozen,) = {float(x) for x in re.findall(r'x1="([\d.]+)%"[^>]*class="ref"', text)}
    assert places[0] > places[1] > frozen > places[2]


def test_all_words_are_large_enough_on_a_phone():
    page = RUN_FORMATS[".html"](samples.golden())
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', page)]
    assert sizes
    assert min(sizes) > 9.5


def test_without_the_page_s_style_sources_keep_their_colour():
    page = RUN_FORMATS[".html"](samples.golden())
    light = page[: page.index("@media (prefers")]
    assert f"--c0: {SOURCE_COLOUR};" in light
    assert set(re.findall(r'class="src"[^>]* color="([^"]*)"', page)) == {SOURCE_COLOUR}
    assert not re.search(r'class="src"(?![^>]* color=)', page)


def test_the_numbers_of_a_chart_are_those_of_the_run():
    run = samples.reported()
    answer = page_of(run).answer
    letters = {row[0]: row[[column.title for column in answer.columns].index("tie")] for row in answer.rows}
    (score, hardness, gates) = (chart(run).numbers for chart in (forest_chart, hardness_chart, gates_chart))
    for place, source in enumerate(run.sources):
        point, tie = source.in_table(run.budget).score, {} if source.name == "random" else {"tie": letters[source.name]}
        assert score[place] == {
            "source": source.name,
            "is_control": False,
            **tie,
            "score": point.nats,
            "score_low": point.interval_95[0],
            "score_high": point.interval_95[1],
        }
        assert hardness[place]["hardness"] == source.hardness.value
        profile = run.analyses["profile"].sources[place]
        assert (gates[place]["source"], gates[place]["locality"]) == (profile.source, profile.locality.value)
    assert [record["is_control"] for record in score].count(False) == len(run.sources) < len(score)
    (own,) = separation_chart([samples.SEPARATION]).numbers
    assert own["positive_histogram"] == samples.SEPARATION.positive_histogram
    assert (own["low"], own["high"]) == (samples.SEPARATION.low, samples.SEPARATION.high)
    assert [record["gain_ndcg10_at_5e-05"] for record in gains_chart(probes.probe()).numbers][:1] == [
        probes.probe().doses[0].sources[0].gain_ndcg10
    ]


def test_numbers_that_are_not_finite_and_ends_that_are_unknown_are_null():
    run = situations.RUN
    first, *others = run.sources
    unknown = replace(first, hardness=replace(first.hardness, value=float("nan"), interval_95=(0.0, 1.0)))
    numbers = hardness_chart(replace(run, sources=(unknown, *others))).numbers
    assert json.loads(json.dumps(numbers, allow_nan=False))[0]["hardness"] is None


def test_hardness_and_outscoring_have_a_strip_each():
    text = str(hardness_chart(situations.RUN).draw())
    rows = [re.findall(r'<circle cx="([\d.]+)%"', row) for row in text.split("<bdi>") if "<circle" in row]
    assert {len(row) for row in rows} == {2}
    hardness = [source.hardness.value for source in situations.RUN.sources]
    places = [float(first) for first, _ in rows[: len(hardness)]]
    assert sorted(range(len(hardness)), key=places.__getitem__) == sorted(
        range(len(hardness)), key=hardness.__getitem__
    )


def test_a_source_s_curve_rises_with_its_score_and_skips_what_has_none():
    run = samples.golden()
    (item,) = (item for item in run.analyses["ablations"] if item.name == "temperature")
    first, second = (source.name for source in run.sources[:2])
    scores = [(0.0, 1.0), (None, 2.0), (float("inf"), 2.0), (4.0, 3.0)]
    rows = tuple(replace(item.rows[0], scores={first: a, second: b}) for a, b in scores)
    chart = ablations_chart(run, (replace(item, rows=rows),))
    drawn = str(chart.draw())
    assert "M0.0 100.0L100.0 0.0" in drawn
    assert "M0.0 75.0L33.3 50.0L66.7 50.0L100.0 25.0" in drawn
    assert list(chart.numbers[0]["temperature"].values())[-1] == 4.0
    assert float("inf") not in chart.numbers[0]["temperature"].values()
    alone = replace(item, rows=rows[:1])
    assert ablations_chart(run, (alone,)) is None
