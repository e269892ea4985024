"""The catalogue of findings: names, bits, words, and what derives from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from secid.errors import UsageError
from secid.findings.rows import AGAINST_PASSAGES, SAMPLED_FINDINGS
from secid.results.catalogue import (
    BITS,
    CAUTIONS,
    DAMAGE_FINDINGS,
    DEFECT_LIMIT,
    DEFECTS,
    FINDINGS,
    FORMAL_FINDINGS,
    TEXT_FINDINGS,
    Caution,
    Finding,
    known_finding,
)
from secid.results.check import CHECKED_FINDINGS
from secid.run_folder.tables import NEGATIVES_SCHEMA
from tests.snapshots import refusal

ENTRIES = [*FINDINGS.values(), *CAUTIONS.values()]
BY_NEED = {
    "texts": "false_negative near_copy preamble empty repeat query_echo mojibake trailing_note wrapper loop "
    "shared_opening hub other_language unfinished markup length",
    "tokens": "query_without_tokens unknown_script truncated",
    "rows": "inversion random_like weak_positive near_positive low_locality high_coverage valid_but_lexical "
    "valid_but_far",
    "guide": "suspect",
}
"""METHOD 4, 14, 15 and 16.2."""
DAMAGED = {"mojibake", "trailing_note", "wrapper", "loop"}
COUNTED = {"false_negative", "near_copy", "repeat", "empty", "preamble", "query_echo", *DAMAGED}
DOCS = Path(__file__).resolve().parents[3] / "docs" / "findings.md"


def test_the_catalogue_is_the_table_of_the_method():
    names = {need: {name for name, entry in FINDINGS.items() if entry.needs == need} for need in BY_NEED}
    assert names == {need: set(listed.split()) for need, listed in BY_NEED.items()}
    assert set(DEFECTS) == COUNTED
    assert set(DAMAGE_FINDINGS) == DAMAGED
    assert set(FORMAL_FINDINGS) == {*DAMAGED, "other_language", "unfinished", "markup", "length"}
    assert all(BITS[name] < 16 for name in FORMAL_FINDINGS), "masks of positives have 16 bits"
    assert all(FINDINGS[name].limit == DEFECT_LIMIT == 0.01 for name in COUNTED)
    assert set(FINDINGS) >= AGAINST_PASSAGES > SAMPLED_FINDINGS


def test_every_name_is_one_identifier_and_used_once():
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
    assert "any" not in names  # means all of them, in --fail-on
    assert all(name == entry.name for name, entry in (FINDINGS | CAUTIONS).items())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_says_what_it_is_and_what_to_do(entry: Finding | Caution):
    texts = {name: value for name, value in vars(entry).items() if isinstance(value, str)}
    assert {"name", "says", "do"} <= set(texts)
    for name, text in texts.items():
        assert text.strip() == text != "", name
        assert "  " not in text, name
        assert not text.endswith("."), name
    assert entry.limit is None or 0 <= entry.limit <= 1


def test_bits_are_places_of_a_mask_and_those_of_the_texts_come_first():
    assert list(BITS.values()) == list(range(len(FINDINGS)))
    assert tuple(BITS)[: len(TEXT_FINDINGS)] == TEXT_FINDINGS
    assert len(BITS) <= 32  # of the table's uint32
    assert max(BITS[name] for name in FORMAL_FINDINGS) < 16  # of a positive's uint16
    assert set(DEFECTS) <= set(TEXT_FINDINGS)  # the status of a source needs no encoder


def test_check_looks_for_all_that_needs_no_encoder():
    assert set(CHECKED_FINDINGS) == {
        name for name, entry in FINDINGS.items() if entry.needs not in ("rows", "guide")
    } - {
        "truncated",
        "unknown_script",
    }


def test_negatives_parquet_has_a_column_for_each_finding():
    columns = [name for name in NEGATIVES_SCHEMA.names if name.startswith("in_")]
    assert columns == [entry.column for entry in FINDINGS.values()]


def test_an_entry_is_given_by_its_name():
    assert known_finding("hub", "--drop") is FINDINGS["hub"]
    assert known_finding("malformed_rows", "--fail-on", CAUTIONS) is None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_misspelt_name_is_answered_with_the_nearest(entry: Finding | Caution):
    for wrong in (f"{entry.name}s", entry.name.replace("_", "-") + "-"):
        message = refusal(lambda wrong=wrong: known_finding(wrong, "--fail-on", CAUTIONS), UsageError, "--fail-on")
        assert f"'{entry.name}'" in message


def test_a_name_like_none_is_answered_with_all_names_that_the_place_knows():
    message = refusal(lambda: known_finding("xyzzy", "--drop"), UsageError, "--drop")
    assert all(name in message for name in FINDINGS)
    assert "malformed_rows" not in message
    assert "'malformed_rows'" in refusal(lambda: known_finding("malformed_rows", "--drop"), UsageError, "--drop")


def test_the_docs_have_a_section_for_each_entry_in_its_order():
    headings = re.findall(r"^### ([a-z_]+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [*FINDINGS, *CAUTIONS]
