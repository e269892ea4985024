"""What the sections on separation, batches and cost show."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from secid.pages.charts.separation import HEIGHT, separation_chart
from secid.pages.formats import FORMATS
from secid.pages.sections.in_batch import in_batch_section
from secid.pages.sections.origin import origin_section
from secid.pages.sections.separation import separation_section
from secid.results import BatchSize, CorpusSeparation, Cost, InBatch, Run, SourceSeparation
from tests.snapshots import situations
from tests.unit.pages import samples

COMMON = {
    "n_queries": 40,
    "n_positives": 40,
    "n_negatives": 400,
    "auc": 0.871,
    "auc_interval_95": (0.85, 0.892),
    "within_auc": 0.954,
    "within_auc_interval_95": (0.94, 0.968),
    "gap": 0.083,
    "gap_interval_95": (0.07, 0.096),
    "aoc": 0.13,
    "mw_loss": 0.412,
    "mw_bound": 1e-7,
}
SOURCE = SourceSeparation(
    source="dense",
    contrastive_loss=1.5,
    low=-0.2,
    high=1.0,
    positive_histogram=(0, 0, 10, 30),
    negative_histogram=(100, 200, 90, 10),
    **COMMON,
)
SIZES = tuple(
    BatchSize(batch_size=size, false_negatives_mean=size / 1e5, affected_share=size / 1e5) for size in (32, 64, 128)
)
BATCHES = InBatch(
    source="dense",
    n_rows=200,
    sizes=SIZES,
    largest_batch=140,
    relative_margin=0.05,
    flagged_share=0.0123,
    n_batches=3,
    batch_rows=64,
)
COST = Cost(
    scoring_seconds=12.0, tokens_per_second=1e4, epoch_tokens={"dense": 400_000}, epoch_seconds=120.0, epoch_share=0.1
)
RUN: Run = replace(
    samples.golden(),
    separation=(SOURCE, replace(SOURCE, source=samples.HOSTILE[0], mw_loss=None, auc_interval_95=None)),
    corpus_separation=CorpusSeparation(n_passages=5183, n_per_query=500, **COMMON),
    in_batch=(
        BATCHES,
        replace(BATCHES, source=samples.HOSTILE[0], largest_batch=200, flagged_share=None),
        replace(BATCHES, source="bm25", largest_batch=None, sizes=SIZES[:1]),
    ),
    cost=COST,
)


def test_the_sections_say_what_they_show(snapshot):
    one = replace(RUN, sources=RUN.sources[:1])
    shown = {
        name: [*section.paragraphs, *(" | ".join(row) for table in section.tables for row in _rows(table))]
        for name, section in (("separation", separation_section(RUN)), ("in batch", in_batch_section(RUN)))
    }
    costs = {"cost": origin_section(RUN).paragraphs, "cost of one source": origin_section(one).paragraphs}
    snapshot("separation.txt", situations({**shown, **costs}))


def _rows(table):
    return [
        [column.title for column in table.columns],
        *([cell.replace("\n", " ") for cell in row] for row in table.rows),
    ]


def test_a_run_without_these_parts_has_no_such_sections():
    bare = replace(RUN, separation=(), corpus_separation=None, in_batch=(), cost=None)
    assert (separation_section(bare), in_batch_section(bare), separation_chart(bare)) == (None, None, None)
    assert origin_section(bare).paragraphs == ()


def test_the_curves_are_those_of_the_histograms():
    picture = str(separation_chart(replace(RUN, separation=(SOURCE,))).draw())
    positive, negative, roc = re.findall(r'<path d="([^"]+)"', picture)
    steps = [float(y) for y in re.findall(r"V([\d.]+)h1", positive)]
    assert steps == pytest.approx([100, 100, 100 - 100 / 3, 0], abs=0.1)  # of the highest bar, which is 0.75
    assert [float(y) for y in re.findall(r"V([\d.]+)h1", negative)] == pytest.approx([66.7, 33.3, 70, 96.7], abs=0.1)
    points = [(0.0, 100.0), *((float(x), float(y)) for x, y in re.findall(r"L([\d.]+) ([\d.]+)", roc))]
    assert points == [(0, 100), (2.5, 25), (25, 0), (75, 0), (100, 0)]
    area = sum((x - before) * (200 - y - y_before) / 2 for (before, y_before), (x, y) in pairwise(points))
    assert area / 1e4 == pytest.approx(0.95625)  # 0.75 (0.975 + 0.025 / 2) + 0.25 (0.75 + 0.225 / 2)
    assert f'height="{HEIGHT:.0f}"' in picture


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_names_are_never_markup(suffix):
    page = FORMATS[suffix](RUN)
    assert samples.HOSTILE[0] not in page
    assert "<script>document.title" not in page
