"""Numbers as pages write them."""

from __future__ import annotations

import pytest

from secid.pages import text as numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5455229, "0.5455"),
        (-0.01, "−0.0100"),
        (38.327, "38.33"),
        (168.71, "168.7"),
        (12345.6, "12,346"),
        (0.0, "0.0000"),
        (-1e-13, "0.0000"),
        (1e-6, "1.0e−06"),
        (-4.9e-5, "−4.9e−05"),
        (5e-5, "0.0001"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_nats(value, text):
    assert numbers.nats(value) == text


def test_signs():
    assert numbers.nats(0.1, signed=True) == "+0.1000"
    assert numbers.nats(-0.1, signed=True) == "−0.1000"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 %"),
        (0.0005, "< 0.1 %"),
        (0.066, "6.6 %"),
        (1.0, "100.0 %"),
        (None, "–"),
        (0.99999, "> 99.9 %"),
        (0.9994, "99.9 %"),
        (-1e-17, "0.0 %"),
        (-0.02, "−2.0 %"),
    ],
)
def test_what_is_not_zero_or_one_never_reads_as_it(value, text):
    assert numbers.percent(value).replace("\u00a0", " ") == text


@pytest.mark.parametrize(("value", "text"), [(1e-9, "< 0.0001"), (0.0123, "0.0123")])
def test_p(value, text):
    assert numbers.probability(value).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_lists(items, text):
    assert numbers.listed(items) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0.01"),
        (1.04, "1.04"),
        (1.0, "1"),
        (1e-5, "1e-05"),
        (3.43756, "3.44"),
        (1234.56789, "1,235"),
        (1e12, "1,000,000,000,000"),
    ],
)
def test_budgets_are_not_rounded_to_others(value, text):
    assert numbers.budget(value) == text


def test_plurals():
    assert numbers.plural(1, "query", "queries") == "1 query"
    assert numbers.plural(2000, "row") == "2,000 rows"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 second"), (40.4, "40 seconds"), (89, "89 seconds"), (90, "2 minutes"), (5_000, "83 minutes"),
     (5_400, "2 hours"), (105_019, "29 hours")],
)  # fmt: skip
def test_an_estimated_time_is_rounded(seconds, words):
    assert numbers.about(seconds) == f"about {words}"


@pytest.mark.parametrize(
    ("value", "ends", "budget", "text"),
    [
        (0.3848, (0.35, 0.4198), 1.0, "0.385 ±0.035"),
        (0.3848, (0.384, 0.3852), 1.0, "0.3848 ±0.0004"),
        (168.7, (160.0, 177.4), 1000.0, "168.7 ±8.7"),
        (0.2, (0.0, 1.0), 1.0, "0.200 ±?"),
        (None, None, 1.0, "–"),
    ],
)
def test_a_score_has_half_of_its_interval(value, ends, budget, text):
    assert numbers.score_text(value, ends, budget) == text
