"""Charts put numbers where they belong."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.pages.charts.lines import lines
from secid.pages.charts.scores import forest_chart
from secid.pages.charts.svg import COLOURS, WIDTH, Scale, apart, around, label, tag, text_width, ticks
from secid.pages.formats import FORMATS
from secid.pages.sections import page_of
from tests.unit.pages import samples


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_few_and_inside(low, width):
    found = ticks(low, low + width)
    assert len(found) <= 11
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in found)


@given(st.lists(st.floats(-1e6, 1e6), max_size=5), st.booleans())
def test_a_range_holds_its_values_and_is_never_empty(values, zero):
    low, high = around(values, zero=zero)
    assert low < high
    assert all(low <= value <= high for value in values)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("W" * 60, "WWWWWW…WWWWWW"), ("漢" * 60, "漢漢漢漢漢漢漢…漢漢漢漢漢漢"), ("bm25-of-march", "bm25-of-march")],
)
def test_a_label_is_as_long_as_its_letters_are_narrow(name, shown):
    assert len(label(name)) <= len(shown) + 1
    assert label(name)[:6] == shown[:6]
    assert len(label("i" * 30)) == 30


@pytest.mark.parametrize("log", [False, True])
def test_scales_meet_their_ends(log):
    scale = Scale(1.0, 100.0, 40.0, 440.0, log)
    assert (scale(1.0), scale(100.0)) == (40.0, 440.0)
    assert scale(10.0) == pytest.approx(240.0 if log else 40 + 400 * 9 / 99)


def test_a_scale_of_one_value_is_its_middle():
    assert Scale(1.0, 1.0, 0.0, 10.0)(1.0) == 5.0


def test_attributes_and_bodies_are_escaped():
    assert tag("text", "<b>", class_='"x') == '<text class="&#34;x">&lt;b&gt;</text>'


def test_higher_scores_stand_further_right():
    run = samples.golden()
    text = forest_chart(run).draw()
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)%"[^>]*class="src"', text)]
    assert len(places) == len(run.sources)
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [(1.0, 2.0)]}, {"a": [(1.0, 0.0), (10.0, 0.0)]}])
def test_lines_cope_with_nothing(series):
    text = lines("k", series, title="t", description="d", x_title="x", y_title="y", log_x=True)
    assert text.startswith("<svg")
    assert "nan" not in text


def test_numbers_of_an_axis_never_run_into_each_other():
    scale = Scale(1.0, 132.0, 66.0, 428.0, log=True)
    kept = apart(scale, [(1.0, "1"), (10.0, "10"), (100.0, "100"), (132.0, "132")])
    assert [text for _, text in kept] == ["1", "10", "100"]
    assert apart(Scale(1.0, 132.0, 0.0, 4000.0), [(100.0, "100"), (132.0, "132")]) == [(100.0, "100"), (132.0, "132")]
    made = replace(samples.golden(), budget=1.0)
    chart = next(item for item in page_of(made).details if item.anchor == "budget").parts[0].chart
    places = re.findall(r'<text x="([\d.]+)" y="2[\d.]+" text-anchor="middle" class="tick">([\d,]+)<', chart.draw())
    ends = [(float(x) - text_width(text) / 2, float(x) + text_width(text) / 2) for x, text in places]
    assert len(ends) > 2
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_all_words_are_large_enough_on_a_phone():
    page = FORMATS[".html"](samples.golden())
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', page)]
    assert sizes
    assert min(sizes) * 320 / WIDTH > 9.5  # a phone of 360 pixels, less the page's margins


def test_without_the_page_s_style_series_keep_their_colours():
    page = FORMATS[".html"](samples.golden())
    light = dict(re.findall(r"--c(\d): (#\w+);", page[: page.index("@media (prefers")]))
    assert [light[str(number)] for number in range(len(COLOURS))] == list(COLOURS)
    for number, colour in enumerate(COLOURS[:5]):
        assert set(re.findall(rf'class="s{number} area"[^>]* color="([^"]*)"', page)) == {colour}
        assert not re.search(rf'class="s{number} area"(?![^>]* color=)', page)
