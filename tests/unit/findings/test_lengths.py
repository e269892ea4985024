"""Lengths of texts from their bytes: characters exactly, tokens about as WordPiece counts them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.findings import summary
from secid.findings.summary import TextLengths, lengths_of, text_lengths
from secid.pool.texts import TextSpool

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
ENGLISH = (
    "Press a floured fingertip about a centimetre into the shaped loaf. If the dent springs back at once, the dough "
    "needs more time. If it fills slowly and a faint mark stays, it is ready. If it does not move at all, the dough "
    "has gone too far and should be baked at once."
)


def measured(texts: list[str]) -> TextLengths:
    """Lengths of distinct texts, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        spool = TextSpool("passage", Path(folder) / "texts")
        spool.add(texts)
        store, _ = spool.store()
        result = text_lengths(store)
        store.close()
    return result


@given(st.lists(TEXTS, unique=True, max_size=12))
@settings(deadline=None)
def test_characters_are_those_of_the_string_whatever_its_neighbours(texts):
    result = measured(texts)
    assert result.characters.tolist() == list(map(len, texts))
    for place, text in enumerate(texts):
        assert result.tokens[place] == measured([text]).tokens[0]


@pytest.mark.parametrize(
    ("text", "n_tokens"),
    [("", 0), ("a", 1), ("a" * 45, 10), ("a" * 46, 11), ("ж" * 20, 10), ("桥" * 30, 30), ("😀" * 3, 3), ("桥a", 2)],
)
def test_tokens_by_the_bytes_of_a_character(text, n_tokens):
    assert measured([text]).tokens.tolist() == [n_tokens]


def test_the_estimate_is_near_what_wordpiece_gives_for_english():
    """The text has 65 tokens by all-MiniLM-L6-v2's tokenizer, without special tokens."""
    assert measured([ENGLISH]).tokens[0] == pytest.approx(65, rel=0.15)


def test_chunks_leave_no_seam(monkeypatch):
    texts = [f"text {number} über ß 桥" if number % 3 else f"plain {number}" for number in range(50)]
    whole = measured(texts)
    monkeypatch.setattr(summary, "LENGTHS_AT_ONCE", 7)
    parts = measured(texts)
    np.testing.assert_array_equal(whole.characters, parts.characters)
    np.testing.assert_array_equal(whole.tokens, parts.tokens)


def test_percentiles_of_some_texts():
    result = lengths_of(measured(["a" * n for n in range(1, 102)]), np.arange(101))
    assert result.n_texts == 101
    assert vars(result.characters) == {"minimum": 1, "median": 51, "p95": 96, "maximum": 101}
