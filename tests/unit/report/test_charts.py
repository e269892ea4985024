"""Charts put numbers where they belong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.report.charts.lines import lines
from secid.report.charts.scores import scores
from secid.report.charts.svg import Scale, around, label, tag, ticks
from tests.unit.report import samples


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
    text = scores(run, "t", "d")
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"[^>]*class="src"', text)]
    assert len(places) == len(run.sources)
    assert places == sorted(places, reverse=True)


def test_each_control_without_a_source_has_a_reference_line():
    run = samples.golden()
    n_controls = sum(control.of is None for control in run.controls)
    assert len(re.findall(r'class="ref"', scores(run, "t", "d"))) == n_controls


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [(1.0, 2.0)]}, {"a": [(1.0, 0.0), (10.0, 0.0)]}])
def test_lines_cope_with_nothing(series):
    text = lines("k", series, title="t", description="d", x_title="x", y_title="y", log_x=True)
    assert text.startswith("<svg")
    assert "nan" not in text
