"""What `secid explain` knows: every column and status of the tables that commands print."""

from __future__ import annotations

from typing import get_args

import pytest

from secid.errors import UsageError
from secid.pages.check_page import answer
from secid.pages.explain import CHECKS, TERMS, explained
from secid.pages.findings import STATUS
from secid.pages.gate_page import gate_page, mark
from secid.pages.page import STATUSES
from secid.pages.sections.verdict import answer_table
from secid.results import Status
from secid.results.gate import Outcome
from tests.unit.gating.test_pages import CHECKS as ALL_CHECKS
from tests.unit.gating.test_pages import VERDICT
from tests.unit.pages.samples import golden

GATE = gate_page(VERDICT)
TABLES = [
    answer_table(golden(), full=True),
    answer_table(golden(), full=False),
    answer([], {}),
    GATE.answer,
    *(t for part in GATE.details for t in part.tables),
]
COLUMN_TITLES = {column.title for table in TABLES for column in table.columns}
CONTROLS = {row[0] for table in TABLES for row in table.rows[len(table.rows) - table.n_controls :]}
ASKED = (
    "score hardness outscoring tie defects queries consistency locality residual no_defects repair unusable no_verdict"
)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *COLUMN_TITLES,
            *CONTROLS,
            *STATUS,
            *STATUSES,
            *get_args(Status),
            *get_args(Outcome),
            *map(mark, ALL_CHECKS),
            *ASKED.split(),
        }
    ),
)
def test_every_column_control_and_status_of_a_printed_table_is_explained(name):
    (facts,) = explained(name).values()
    assert {"title", "is", "docs"} <= facts.keys()


def test_a_number_has_what_to_compare_it_with():
    for name in ("hardness", "score", "outscoring", "defects", "random_like"):
        (facts,) = explained(name).values()
        assert facts["typical"]


def test_a_column_that_is_a_check_too_says_both():
    assert {"hardness", "queries"} == CHECKS.keys() & TERMS.keys()
    for name in ("hardness", "queries"):
        facts = explained(name)[name]
        assert (facts["is"], facts["asks"]) == (TERMS[name], CHECKS[name])


def test_all_of_them_have_facts():
    every = explained(None)
    assert all(facts["title"] and facts["docs"] for facts in every.values())
    assert TERMS.keys() <= every.keys()


@pytest.mark.parametrize("name", ["gates", "gate profile", "failure buckets", "CI", "nats", "eci_SEM", "top problem"])
def test_words_of_the_screens_are_explained_in_any_case(name):
    (title,) = explained(name.upper())
    assert title.casefold() == name.casefold()


@pytest.mark.parametrize("name", ["encoder", "tau", "zzz"])
def test_only_a_close_name_is_suggested(name):
    with pytest.raises(UsageError) as caught:
        explained(name)
    assert caught.value.remedy == "secid explain lists all names"
