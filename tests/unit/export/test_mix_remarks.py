"""What a mixture's numbers mean depends on whether the bounds decided them."""

from __future__ import annotations

import pytest
import torch

from secid.cli.mix import REMARKS
from secid.export.best_mixture import mix_states
from secid.measure.information import InformationState
from secid.records import words


def state(*eigenvalues: float) -> InformationState:
    return InformationState(torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) * 100.0, 100.0)


UNEQUAL = {"a": state(0.5, 0.1), "b": state(0.2, 0.1)}
MIXED = {"a": state(0.5, 0.0), "b": state(0.0, 0.49)}
TWINS = {"a": state(0.5, 0.1), "b": state(0.5, 0.1), "c": state(0.1, 0.1)}


def remarks(states, budget=1.0, max_share=1.0, **fixed: float) -> dict[str, dict]:
    made = mix_states(states, set(), budget, max_share, fixed).remarks
    assert {fact.kind for fact in made} <= REMARKS.keys()
    assert all(words(REMARKS, fact) for fact in made)
    return {fact.kind: dict(fact.values) for fact in made}


def test_one_source_almost_alone_is_the_rule_only_where_it_is_free():
    assert remarks(UNEQUAL)["alone_by_rule"]["name"] == "a"
    bound = remarks(UNEQUAL, b=1.0)
    assert bound["alone"]["name"] == "b"
    assert "alone_by_rule" not in bound


@pytest.mark.parametrize("bounds", [{"max_share": 0.5}, {"a": 0.3}])
def test_a_gain_is_reported_only_where_no_bound_decides(bounds):
    assert remarks(MIXED)["near_alone"]["gain"] >= 0.0
    for states in (MIXED, UNEQUAL):
        assert "near_alone" not in remarks(states, **bounds)


def test_a_bound_that_nothing_reaches_is_none():
    assert "near_alone" in remarks(MIXED, max_share=0.9)


def test_equal_sources_share_arbitrarily_only_where_they_are_free():
    assert "same_information" in remarks(TWINS)
    assert "same_information" in remarks(TWINS, c=0.5)
    assert "same_information" not in remarks(TWINS, a=0.3)
    assert "same_information" not in remarks(TWINS, max_share=0.5)


def test_a_source_with_fewer_negatives_than_its_share_of_the_budget_is_named():
    assert remarks(MIXED, budget=300.0, b=0.5)["too_few"] == {"name": "b", "n": 100.0, "budget": 300.0}
    assert "too_few" not in remarks(MIXED, budget=150.0, b=0.5)


def test_unequal_numbers_are_reported():
    """Samples of one process: the larger holds more directions, and takes the larger share at a large budget."""
    few = InformationState(torch.diag(torch.tensor([1.0, 0.0, 0.0])).double(), 2.0)
    many = InformationState(torch.diag(torch.tensor([1.0, 1.0, 1.0])).double(), 6.0)
    assert mix_states({"few": few, "many": many}, set(), 1000.0, 1.0, {}).parts[1].share > 0.9
    unequal = remarks({"few": few, "many": many}, 1000.0)["unequal"]
    assert unequal == {"fewest": "few", "most": "many", "n_fewest": 2.0, "n_most": 6.0}
    assert "unequal" not in remarks(MIXED, 1000.0)
