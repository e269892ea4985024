"""The gate profile and the pairs at equal hardness, as a page says them."""

from __future__ import annotations

from dataclasses import replace

from secid.pages.sections import analysis_part
from secid.pages.text import without_isolates
from tests.unit.pages import samples

RUN = samples.profiled(samples.golden())
NAMES = [source.name for source in RUN.sources]


def test_controls_are_below_the_sources():
    (means,) = analysis_part(RUN, "profile").tables
    assert [row[0] for row in means.rows] == [*NAMES, "random passages", "known positives"]
    assert means.rows[0][1] == "0.500\n(0.400 to 0.600)"


def test_the_parts_of_the_gates_are_next_to_the_gap_that_they_add_up_to():
    table = analysis_part(RUN, "profile", "gaps")
    assert [row[0] for row in table.rows] == NAMES
    assert table.rows[0][1:] == ("−0.200 ±0.100", "−0.200", "+0.500", "+0.100")
    found = RUN.analyses["profile"]
    unknown = replace(found.sources[0], gap=replace(found.sources[0].gap, weight=samples.NO_ENDS))
    without = replace(found.sources[1], gap=None)
    some = samples.replaced(RUN, profile=replace(found, sources=(unknown, without)))
    assert [row[:2] for row in analysis_part(some, "profile", "gaps").rows] == [(NAMES[0], "+0.100 ±?")]
    none = samples.replaced(RUN, profile=replace(found, sources=(without,)))
    assert analysis_part(none, "profile", "gaps") is None


def test_the_residual_is_counted_against_the_score_by_pairs():
    (table,), lines = analysis_part(RUN, "profile").tables, analysis_part(RUN, "profile").paragraphs
    assert len(table.rows) == len(NAMES) + 2
    assert lines[1] == "The mean residual needs no encoder. It orders 0 of 10 pairs of sources as the score does."
    assert lines[0].startswith("At B = 1 the score is the mean weight minus 0.")


def test_pairs_without_common_margins_have_no_difference():
    section = analysis_part(RUN, "equal_hardness")
    *compared, apart = section.tables[0].rows
    assert {row[2] for row in compared} == {"+0.100\n(+0.050 to +0.150)"}
    assert without_isolates(compared[0][1]) == NAMES[0]
    assert apart[1:3] == ("–", "–")
    assert section.paragraphs == (
        "Pairs compared: 3 of 4; significant (Holm): 3. The others have too few negatives with equal margins.",
    )
