"""Test the order of parallel calls' results, and how many calls run ahead."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from secid.parallel import in_order


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_results_come_in_order_with_a_limited_number_of_calls_ahead(ahead: int) -> None:
    submitted: list[int] = []

    def submit(item: int) -> Future[int]:
        submitted.append(item)
        done: Future[int] = Future()
        done.set_result(item * item)
        return done

    for place, square in enumerate(in_order(submit, range(5), ahead)):
        assert square == place * place
        assert submitted == list(range(min(5, place + ahead + 1)))
    assert place == 4
