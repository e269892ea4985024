"""Test that `secid explain` knows every column and status of the tables that commands print."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from secid.errors import UsageError
from secid.pages.check_page import answer
from secid.pages.evidence import probe_page
from secid.pages.explain import GATE_REQUIREMENTS, TERMS, explained, head_words, term_of
from secid.pages.formats import RUN_FORMATS
from secid.pages.gate_page import gate_page, mark
from secid.pages.page import STATUSES, Table
from secid.pages.sections import page_of
from secid.pages.sections.verdict import answer_table
from secid.pages.statuses import STATUS
from secid.results import Status
from secid.results.gate import Outcome
from secid.settings import DISPLAY_NAMES
from tests.unit.pages.probes import probe
from tests.unit.pages.samples import golden, guided, profiled, renamed, reported
from tests.unit.tools.gating.test_pages import CHECKS as ALL_CHECKS
from tests.unit.tools.gating.test_pages import VERDICT

GATE, PROBE = gate_page(VERDICT), probe()
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
    assert {"hardness", "queries"} == GATE_REQUIREMENTS.keys() & TERMS.keys()
    for name in ("hardness", "queries"):
        facts = explained(name)[name]
        assert (facts["is"], facts["asks"]) == (TERMS[name], GATE_REQUIREMENTS[name])


def test_all_of_them_have_facts():
    every = explained(None)
    assert all(facts["title"] and facts["docs"] for facts in every.values())
    assert TERMS.keys() <= every.keys()


WORDS = (
    "gates", "gate profile", "failure buckets", "CI", "nats", "eci_SEM", "top problem", "mean weight", "gap to random",
    "M", "log det(I + M)", "lexical residual", "encoder", "device", "repaired", "queries",
)  # fmt: skip


@pytest.mark.parametrize("name", [*WORDS, *DISPLAY_NAMES.values()])
def test_words_of_the_screens_are_explained_in_any_case(name):
    (title,) = explained(name.upper())
    assert title.casefold() == name.casefold()


def heads(*tables: Table) -> set[str]:
    return {column.title for table in tables for column in table.columns}


PAGES = [page_of(sample) for sample in (reported(), guided(golden()), profiled(golden()))] + [probe_page(PROBE)]
OF_PAGES = heads(*(table for page in PAGES for part in page.details for table in part.tables))
OWN_WORDS = heads(
    *(table for page in PAGES for part in page.details if part.anchor in ("origin", "read") for table in part.tables)
) | {"IDF", "listed above", "more", "pairs that change places", "varied"}
"""Heads that say themselves what they are."""


def test_every_head_of_a_page_is_explained_in_one_sentence_but_names_and_plain_words():
    names = {source.name for source in golden().sources}
    controls = {"bm25 pool", "dense pool", "query echo", "shuffled"}
    unknown = {head for head in OF_PAGES if term_of(head) is None}
    assert unknown <= names | controls | OWN_WORDS
    for head in OF_PAGES - unknown:
        words = head_words(head)
        assert words.endswith(".")
        assert words.rstrip(".").count(". ") == 0
    assert head_words("no such head") == ""


def test_a_source_that_is_called_like_a_head_is_not_explained():
    html = RUN_FORMATS[".html"](renamed(reported(), {"bm25": "short", "dense": "mojibake"}))
    columns = re.findall(r"<th scope=\"col\"([^>]*)><bdi>(short|mojibake|stability)</bdi></th>", html)
    assert {name for _, name in columns} == {"short", "mojibake", "stability"}
    assert all(("title=" in attributes) == (name == "stability") for attributes, name in columns)


@pytest.mark.parametrize(
    "head",
    [
        "gain at 5e-05", "vs random ± CI", "MRR@10", "seeds", "short", "by", "s_qn", "mean π", "most used", "relevant",
        "share (95 % CI)", "unjudged", "AUROC of π (95 % CI)", "precision", "score alone", "share", "regret",
        "puts first",
    ],
)  # fmt: skip
def test_heads_of_mine_audit_mix_and_probe_are_explained(head):
    (facts,) = explained(head).values()
    assert facts["is"]


def test_a_number_in_a_head_does_not_hide_what_it_counts():
    assert (term_of("eigenvalue 3"), term_of("B = 1,000"), term_of("hub")) == ("eigenvalue share", "ECI_B", "hub")
    assert "more than 5 %" in head_words("hub")


@pytest.mark.parametrize("name", ["enumerate", "zzz"])
def test_only_a_close_name_is_suggested(name):
    with pytest.raises(UsageError) as caught:
        explained(name)
    assert caught.value.remedy == "secid explain lists all names"
