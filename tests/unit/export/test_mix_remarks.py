"""What a mixture's numbers mean depends on whether the bounds decided them."""

from __future__ import annotations

import pytest
import torch

from secid.export.best_mixture import mix_states
from secid.measure.information import InformationState


def state(*eigenvalues: float) -> InformationState:
    return InformationState(torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) * 100.0, 100.0)


UNEQUAL = {"a": state(0.5, 0.1), "b": state(0.2, 0.1)}
MIXED = {"a": state(0.5, 0.0), "b": state(0.0, 0.49)}
TWINS = {"a": state(0.5, 0.1), "b": state(0.5, 0.1), "c": state(0.1, 0.1)}


def remarks(states, budget=1.0, max_share=1.0, **fixed: float) -> str:
    return " ".join(mix_states(states, set(), budget, max_share, fixed).remarks)


def test_one_source_almost_alone_is_the_rule_only_where_it_is_free():
    assert "is a alone" in remarks(UNEQUAL)
    assert "to be expected" in remarks(UNEQUAL)
    bound = remarks(UNEQUAL, b=1.0)
    assert "is b alone" in bound
    assert "to be expected" not in bound


@pytest.mark.parametrize("bounds", [{"max_share": 0.5}, {"a": 0.3}])
def test_a_gain_is_told_only_where_no_bound_decides(bounds):
    assert "nats more" in remarks(MIXED)
    for states in (MIXED, UNEQUAL):
        assert "nats more" not in remarks(states, **bounds)


def test_a_bound_that_nothing_reaches_is_none():
    assert "nats more" in remarks(MIXED, max_share=0.9)


def test_equal_sources_share_arbitrarily_only_where_they_are_free():
    assert "arbitrary" in remarks(TWINS)
    assert "arbitrary" in remarks(TWINS, c=0.5)
    assert "arbitrary" not in remarks(TWINS, a=0.3)
    assert "arbitrary" not in remarks(TWINS, max_share=0.5)


def test_a_source_with_fewer_negatives_than_its_share_of_the_budget_is_named():
    assert "b has 100 negatives" in remarks(MIXED, budget=300.0, b=0.5)
    assert "100 negatives" not in remarks(MIXED, budget=150.0, b=0.5)


def test_sources_of_unequal_numbers_are_told():
    """Samples of one process: the larger holds more directions, and takes the larger share at a large budget."""
    few = InformationState(torch.diag(torch.tensor([1.0, 0.0, 0.0])).double(), 2.0)
    many = InformationState(torch.diag(torch.tensor([1.0, 1.0, 1.0])).double(), 6.0)
    assert mix_states({"few": few, "many": many}, set(), 1000.0, 1.0, {}).parts[1].share > 0.9
    told = remarks({"few": few, "many": many}, 1000.0)
    assert "few has 2 negatives, many 6. Beyond B = 1" in told
    assert "only equal numbers" not in remarks(MIXED, 1000.0)
