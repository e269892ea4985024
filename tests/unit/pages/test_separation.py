"""Test the sections on separation, batches and cost."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from secid.pages.charts import CURVES_HEIGHT, separation_chart
from secid.pages.formats import RUN_FORMATS
from secid.pages.sections.cost import cost_section
from secid.pages.sections.in_batch import in_batch_section
from secid.pages.sections.separation import quantile, separation_section
from tests.snapshots import situations
from tests.unit.pages import samples

SOURCE = samples.SEPARATION
RUN = samples.separated(samples.golden())
PARTS = RUN.analyses


def test_the_sections_say_what_they_show(snapshot):
    one = replace(RUN, sources=RUN.sources[:1])
    sections = {
        "separation": separation_section(RUN, PARTS["separation"]),
        "in batch": in_batch_section(RUN, PARTS["in_batch"]),
        "cost": cost_section(RUN, PARTS["cost"]),
        "cost of one source": cost_section(one, PARTS["cost"]),
    }
    shown = {
        name: [*section.paragraphs, *(" | ".join(row) for table in section.tables for row in _rows(table))]
        for name, section in sections.items()
    }
    snapshot("separation.txt", situations(shown))


def _rows(table):
    return [
        [column.title for column in table.columns],
        *([cell.replace("\n", " ") for cell in row] for row in table.rows),
    ]


def test_the_curves_are_those_of_the_histograms():
    picture = str(separation_chart([SOURCE]).draw())
    positive, negative, _, roc = re.findall(r'<path d="([^"]+)"', picture)
    steps = [float(y) for y in re.findall(r"V([\d.]+)h1", positive)]
    assert steps == pytest.approx([100, 100, 100 - 100 / 3, 0], abs=0.1)  # of the highest bar, which is 0.75
    assert [float(y) for y in re.findall(r"V([\d.]+)h1", negative)] == pytest.approx([66.7, 33.3, 70, 96.7], abs=0.1)
    points = [(0.0, 100.0), *((float(x), float(y)) for x, y in re.findall(r"L([\d.]+) ([\d.]+)", roc))]
    assert points == [(0, 100), (2.5, 25), (25, 0), (75, 0), (100, 0)]
    area = sum((x - before) * (200 - y - y_before) / 2 for (before, y_before), (x, y) in pairwise(points))
    assert area / 1e4 == pytest.approx(0.95625)  # 0.75 (0.975 + 0.025 / 2) + 0.25 (0.75 + 0.225 / 2)
    assert f'height="{CURVES_HEIGHT:.0f}"' in picture


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ((0, 0, 10, 30), 0.5, 3 + 10 / 30),
        ((0, 0, 10, 30), 0.25, 3.0),
        ((0, 7, 0, 0), 0.05, 1.05),
        ((1, 0, 0, 1), 0.95, 3.9),
        ((0, 0, 0, 0), 0.5, None),
    ],
)
def test_quantiles_lie_where_the_bins_put_them(counts, share, value):
    assert quantile(counts, 0.0, 4.0, share) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_names_are_never_markup(suffix):
    page = RUN_FORMATS[suffix](RUN)
    assert samples.HOSTILE[0] not in page
    assert "<script>document.title" not in page
