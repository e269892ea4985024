"""Numbers as pages write them."""

from __future__ import annotations

import pytest

from secid.report import numerals


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5455229, "0.5455"),
        (-0.01, "−0.0100"),
        (38.327, "38.33"),
        (168.71, "168.7"),
        (12345.6, "12,346"),
        (0.0, "0.0000"),
        (-1e-9, "0.0000"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_nats(value, text):
    assert numerals.nats(value) == text


def test_signs():
    assert numerals.nats(0.1, signed=True) == "+0.1000"
    assert numerals.nats(-0.1, signed=True) == "−0.1000"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0 %"), (0.0005, "< 0.1 %"), (0.066, "6.6 %"), (1.0, "100.0 %"), (None, "–")]
)
def test_what_is_not_zero_never_reads_as_zero(value, text):
    assert numerals.percent(value).replace("\u00a0", " ") == text


@pytest.mark.parametrize(("value", "text"), [(1e-9, "p < 0.0001"), (0.0123, "p = 0.0123")])
def test_p(value, text):
    assert numerals.p_text(value).replace("\u00a0", " ") == text


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
    assert numerals.listed(items) == text


def test_plurals():
    assert numerals.plural(1, "query", "queries") == "1 query"
    assert numerals.plural(2000, "row") == "2,000 rows"
