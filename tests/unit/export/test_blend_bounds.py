"""Drawing negatives from several sources within a largest share, on random tables."""

from __future__ import annotations

import numpy as np
import pytest

from secid.errors import UsageError
from secid.export.mixture import _Draws, _Pools
from tests.snapshots import refusal


def drawn(seed: int, largest: list[float]) -> tuple[_Draws, list[int], int]:
    """Three sources that know some of 20 queries each, 4 negatives a record; the third runs out first."""
    draw = np.random.default_rng(seed)
    query = np.arange(20)
    tables, passages = [], []
    for n in (90, 40, 12):
        asked = np.sort(draw.integers(0, 20, n))
        tables.append(_Pools(asked, np.arange(n)))
        passages.append(draw.integers(0, 60, n))  # some texts are in several sources
    draws = _Draws(query, tables, passages)
    missing = [draws.take_quotas(record, draw.multinomial(4, [0.5, 0.3, 0.2]).tolist()) for record in query.tolist()]
    order = draw.permutation(20).tolist()
    draws.make_up(order, missing, largest)
    before = list(draws.counts)
    n_cut = draws.keep_within(order, largest, ["a", "b", "c"])
    for record, picked in enumerate(draws.picked):
        texts = [int(passages[place][triplet]) for place, triplet in picked]
        assert len(set(texts)) == len(texts) <= 4
        assert all(triplet in tables[place].of(record) for place, triplet in picked)
    assert draws.counts == [sum(p == place for picked in draws.picked for p, _ in picked) for place in range(3)]
    return draws, before, n_cut


@pytest.mark.parametrize("largest", [[0.5] * 3, [0.4] * 3, [0.7] * 3, [0.55, 0.3, 1.0]])
def test_no_source_exceeds_its_largest_share(largest):
    n_exceeding = n_exchanged = 0
    for seed in range(60):
        draws, before, n_cut = drawn(seed, largest)
        total = sum(draws.counts)
        assert total == sum(before) - n_cut > 0
        assert all(count / total <= share + 1e-9 for count, share in zip(draws.counts, largest, strict=True))
        n_exceeding += any(n > share * sum(before) for n, share in zip(before, largest, strict=True))
        n_exchanged += any(after > n for after, n in zip(draws.counts, before, strict=True))
    assert n_exceeding > 5 or max(largest) == 0.7  # the bound had something to do
    assert n_exchanged > 5 or max(largest) == 0.7


def test_without_a_bound_nothing_is_given_up():
    draws, before, n_cut = drawn(0, [1.0] * 3)
    assert (draws.counts, n_cut) == (before, 0)


def test_shares_that_no_whole_numbers_meet_are_refused():
    draws = _Draws(np.arange(3), [_Pools(np.arange(3), np.arange(3))] * 2, [np.arange(3), np.arange(3) + 10])
    for record in range(3):
        draws.take_quotas(record, [1, 1])
    refusal(lambda: draws.keep_within([0, 1, 2], [0.9, 0.1], ["a", "b"]), UsageError, "--max-share")
