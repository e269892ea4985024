"""The table of `secid compare`."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from secid.pages.agreement import LEAKAGE, ONE_COLUMN, SEVERAL_COLUMNS, conclusion, table
from secid.results import Agreement


def agreement(**changes):
    fields = {
        "number": "ECI_sem",
        "metric": "ndcg@10",
        "n_sources": 4,
        "kendall_tau_b": 0.5,
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


def printed(*found):
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(table(found))
    return stream.getvalue()


def test_all_three_have_their_intervals_below_them():
    lines = printed(agreement()).splitlines()
    assert lines[3].split() == ["ECI_sem", "+0.50", "+0.60", "4/6", "0.0123"]
    assert lines[4].startswith("  [bold]mine[/bold] ")
    assert re.findall(r"\[([^a-z]*?)\]", lines[4]) == ["+0.10, +0.90", "-0.20, +0.80", "0, 0.0346"]
    assert not any(line.endswith(" ") for line in lines)


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
def test_an_interval_that_is_unknown_is_left_out_alone(missing):
    assert printed(agreement(**{missing: None})).count("[") == printed(agreement()).count("[") - 1


def test_a_number_is_never_rich_markup():
    assert "weight: [/x]" in printed(agreement(number="weight [/x]"))


def test_a_constant_side_is_a_dash_and_lines_fit():
    text = printed(agreement(kendall_tau_b=None, spearman_rho=None, number="weight " + "x" * 60, first="y" * 90))
    assert text.splitlines()[3].split()[1:3] == ["-", "-"]
    assert max(map(len, text.splitlines())) <= 80


def test_a_shared_first_place_is_told():
    lines = printed(agreement(first=None, top_1_regret=None, regret_interval_95=None)).splitlines()
    assert lines[3].split()[-1] == "-"
    assert lines[4].startswith("  (several tie)")


def test_one_column_of_results_proves_nothing_and_several_must_agree():
    several_numbers = (agreement(), agreement(number="mnrl_loss_pair"))
    assert conclusion(several_numbers) == f"{ONE_COLUMN} {LEAKAGE}"
    assert conclusion((agreement(metric="fold0"), agreement(metric="fold1"))) == f"{SEVERAL_COLUMNS} {LEAKAGE}"
    assert "proves nothing" in ONE_COLUMN


def test_the_conclusion_is_printed_once():
    text = " ".join(printed(agreement(), agreement(metric="mrr")).split())
    assert text.count(f"Conclusion: {SEVERAL_COLUMNS} {LEAKAGE}") == 1
