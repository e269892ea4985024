"""The gate profile and the pairs at equal hardness, as a page says them."""

from __future__ import annotations

from dataclasses import replace

from secid.pages.sections import of_analysis
from secid.pages.sections.profile import gap_lines
from secid.pages.text import without_isolates
from tests.unit.pages import samples

RUN = samples.profiled(samples.golden())
NAMES = [source.name for source in RUN.sources]


def test_controls_stand_below_the_sources():
    means, gaps = of_analysis(RUN, "profile").tables
    assert [row[0] for row in means.rows] == [*NAMES, "random passages", "known positives"]
    assert [row[0] for row in gaps.rows] == NAMES
    assert means.rows[0][1] == "0.500\n(0.400 to 0.600)"
    assert gaps.rows[0][1:3] == ("−0.200\n(−0.300 to −0.100)",) * 2
    assert gaps.rows[0][4] == "+0.100\n(unknown: too few queries)"


def test_a_line_says_how_far_a_source_is_from_random_passages_and_why():
    found = RUN.analyses["profile"]
    assert without_isolates(gap_lines(found)[0]) == (
        f"{NAMES[0]}: mean weight 0.200 lower than random passages, mostly because of consistency (−0.200)."
    )
    gap = replace(found.sources[0].gap, weight=samples.NO_ENDS)
    level = replace(found, sources=(replace(found.sources[0], gap=gap), replace(found.sources[1], gap=None)))
    assert [without_isolates(line) for line in gap_lines(level)] == [
        f"{NAMES[0]}: not significantly different from random passages."
    ]


def test_the_residual_is_counted_against_the_score_by_pairs():
    (table, _), lines = of_analysis(RUN, "profile").tables, of_analysis(RUN, "profile").paragraphs
    assert len(table.rows) == len(NAMES) + 2
    assert lines[1] == "The mean residual needs no encoder. It orders 0 of 10 pairs of sources as the score does."
    assert lines[0].startswith("At B = 1 the score is the mean weight minus 0.")


def test_pairs_without_common_margins_have_no_difference():
    section = of_analysis(RUN, "equal_hardness")
    *compared, apart = section.tables[0].rows
    assert {row[2] for row in compared} == {"+0.100\n(+0.050 to +0.150)"}
    assert without_isolates(compared[0][1]) == NAMES[0]
    assert apart[1:3] == ("–", "–")
    assert section.paragraphs == (
        "Pairs compared: 3 of 4; significant (Holm): 3. The others have too few negatives with equal margins.",
    )
