"""The text of `secid compare`."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from rich.console import Console

from secid.analyses.agreement import permutation_p
from secid.pages.evidence import (
    LEAKAGE_ADVICE,
    ONE_COLUMN_ADVICE,
    SEVERAL_COLUMNS_ADVICE,
    agreement_screen,
    chance,
    conclusion,
)
from secid.pages.screen import print_page
from secid.results import Agreement


def agreement(**changes):
    fields = {
        "number": "ECI_sem",
        "metric": "ndcg@10",
        "n_sources": 9,
        "kendall_tau_b": 0.95,
        "kendall_interval_95": (0.1, 0.9),
        "spearman_rho": 0.6,
        "spearman_interval_95": (-0.2, 0.8),
        "n_pairs": 6,
        "n_pairs_alike": 4,
        "first": "[bold]mine[/bold]",
        "best": "bm25",
        "top_1_regret": 0.0123456,
        "regret_interval_95": (0.0, 0.034567),
    }
    return Agreement(**{**fields, **changes})


def printed(*items, width=80, legend=False):
    stream = io.StringIO()
    print_page(Console(file=stream, width=width, highlight=False), agreement_screen(items, legend))
    return stream.getvalue()


def test_the_conclusion_comes_first_and_once():
    text = " ".join(printed(agreement(), agreement(metric="mrr")).split())
    assert text.startswith(chance((agreement(), agreement(metric="mrr"))))
    assert text.count(SEVERAL_COLUMNS_ADVICE) == text.count(LEAKAGE_ADVICE) == 1


def test_the_legend_has_every_number_of_the_tables_and_no_other():
    text = printed(*(agreement(number=name) for name in ("ECI_sem", "ECI at B = 10", "mnrl_loss_pair")), legend=True)
    assert all(f"\n{term}: " in text for term in ("tau", "regret", "ECI_sem", "ECI at B", "MNRL loss", "pair, record"))
    assert not any(f"\n{term}: " in text for term in ("weight", "gradient energy", "ambiguity"))


def test_all_three_have_their_intervals():
    text = printed(agreement(), width=120)
    assert "[bold]mine[/bold]" in text
    assert re.findall(r"\S+ to [^\s,]+", text) == ["+0.10 to +0.90", "−0.20 to +0.80", "0 to 0.0346"]


@pytest.mark.parametrize(("n_sources", "n_numbers", "possible"), [(4, 1, False), (5, 1, True), (5, 19, False),
                                                                 (6, 19, False), (7, 19, True)])  # fmt: skip
def test_few_sources_distinguish_no_number_from_chance(n_sources, n_numbers, possible):
    items = [agreement(n_sources=n_sources, kendall_tau_b=1.0)] * n_numbers
    assert ("even perfect" in chance(items)) is not possible


def test_the_permutation_test_agrees_with_counting_all_orders():
    def tau(order):
        pairs = list(combinations(order, 2))
        return sum(1 if first < second else -1 for first, second in pairs) / len(pairs)

    taus = [tau(order) for order in permutations(range(5))]
    for value in sorted(set(taus)):
        expected = min(1.0, sum(abs(other) >= abs(value) - 1e-12 for other in taus) / len(taus))
        p = permutation_p(agreement(n_sources=5, kendall_tau_b=value))
        assert p == pytest.approx(expected) if value else p == 1.0
    assert permutation_p(agreement(kendall_tau_b=None)) == 1.0


def test_only_numbers_beyond_chance_are_named():
    items = [agreement(), agreement(kendall_tau_b=0.1, number="mnrl_loss_pair")]
    assert "ECI_sem" in chance(items)
    assert "MNRL" not in chance(items)
    assert ": 0 of 2." in chance([agreement(kendall_tau_b=0.1)] * 2)


def test_comparisons_that_chance_explains_are_printed_only_with_the_legend():
    items = [agreement(), agreement(kendall_tau_b=0.1, number="mnrl_loss_pair", metric="mrr")]
    assert [name in printed(*items) for name in ("ECI_sem", "MNRL", "mrr")] == [True, False, False]
    assert [name in printed(*items, legend=True) for name in ("ECI_sem", "MNRL", "mrr")] == [True] * 3
    few = [replace(item, n_sources=4, kendall_tau_b=1.0) for item in items]
    assert "puts first" not in printed(*few)
    assert printed(*few, legend=True).count("puts first") == 3


def test_a_budget_is_explained_if_it_is_printed():
    assert "\nECI at B: " in printed(agreement(number="ECI at B = 100"))
    assert "\nECI at B: " not in printed(agreement())


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("weight no_residual", "weight: without residual"),
        ("weight fisher at B = 100", "weight: Fisher at B = 100"),
        ("mnrl_loss_pair", "MNRL loss, pair"),
        ("gradient_energy_record", "gradient energy, record"),
        ("ECI at B = 100", "ECI at B = 100"),
    ],
)
def test_numbers_are_named_in_words(key, words):
    assert words in printed(agreement(number=key))


@pytest.mark.parametrize("missing", ["kendall_interval_95", "spearman_interval_95", "regret_interval_95"])
def test_only_the_unknown_interval_is_left_out(missing):
    assert len(re.findall("[0-9] to ", printed(agreement(**{missing: None})))) == 2
    unknown = dict.fromkeys(("kendall_interval_95", "spearman_interval_95", "regret_interval_95"))
    assert "95\u00a0%" not in printed(agreement(**unknown))
    assert "95 %" not in printed(agreement(**unknown))


def test_a_number_is_never_rich_markup():
    assert "weight: [/x]" in printed(agreement(number="weight [/x]"))


def test_a_constant_side_is_a_dash_and_lines_fit():
    item = agreement(kendall_tau_b=None, spearman_rho=None, number="weight " + "x" * 60, first="y" * 90)
    text = printed(item, legend=True)
    assert "\n    –  0.0123" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_row_takes_one_line_of_60_columns():
    names = ("weight no_consistency", "gradient_energy_record", "ambiguity_pair")
    lines = printed(*(agreement(number=name, first="dense_rank_10_20") for name in names), width=60).splitlines()
    assert sum("dense_rank_10_20" in line and "0.0123" in line for line in lines) == len(names)
    assert max(map(len, lines)) <= 60


def test_a_shared_first_place_is_said():
    assert "several tie" in printed(agreement(first=None, top_1_regret=None, regret_interval_95=None))


def test_one_column_of_results_and_several():
    several_numbers = (agreement(), agreement(number="mnrl_loss_pair"))
    assert conclusion(several_numbers).endswith(f"{ONE_COLUMN_ADVICE} {LEAKAGE_ADVICE}")
    assert conclusion((agreement(metric="a"), agreement(metric="b"))).endswith(
        f"{SEVERAL_COLUMNS_ADVICE} {LEAKAGE_ADVICE}"
    )
