"""Test what a selection leaves out, by default and by name."""

from __future__ import annotations

import pytest

from secid.errors import UsageError
from secid.results import AmongPositives, SourceFinding
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.tools.export.left_out import defects_of_ranking, findings_to_drop


def test_names_are_parsed_as_the_catalogue_lists_them():
    assert findings_to_drop("repeat,false_negative") == ("false_negative", "repeat")
    assert findings_to_drop(["repeat", " preamble ,repeat"]) == ("preamble", "repeat")
    assert findings_to_drop(None) == findings_to_drop("none") == findings_to_drop(()) == ()
    with pytest.raises(UsageError, match="'f'"):
        findings_to_drop(("f",))


def wrapped(negatives: float, positives: float, excess: float) -> SourceFinding:
    found = AmongPositives(
        n_positives=round(100 * positives),
        n_labelled=100,
        share=positives,
        difference=negatives - positives,
        standard_error=0.01,
        interval_95=(excess, 2 * (negatives - positives) - excess),
        excess=excess,
    )
    return SourceFinding(
        name="wrapper",
        n_negatives=20,
        share=negatives,
        interval_95=(0.1, 0.3),
        standard_error=0.01,
        positives=found,
        examples=(),
    )


def test_a_ranking_drops_a_formal_defect_only_where_that_brings_negatives_nearer_to_the_positives():
    usual = tuple(name for name in DEFECTS if not FINDINGS[name].formal)
    assert defects_of_ranking([]) == usual
    assert defects_of_ranking([wrapped(0.2, 0.25, 0.0)]) == usual  # the positives have more of it
    assert defects_of_ranking([wrapped(0.4, 0.3, 0.05)]) == usual  # without it the difference would be larger
    assert defects_of_ranking([wrapped(0.2, 0.0, 0.15)]) == tuple(
        name for name in DEFECTS if name in (*usual, "wrapper")
    )
