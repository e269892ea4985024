"""Tokenizers by array arithmetic equal their plain meaning; scripts keep their words (METHOD 2, 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.pool import SPLITTERS, splitter, term_keys, token_stream
from secid.pool.tokens import BLOB_BYTES, TokenSets, distinct_tokens
from tests.oracle import scoring as oracle

AWKWARD = st.sampled_from("aB_ .-9\t\n\x00\x1f\u0085\u00a0éßİ一ก\u0301")
TEXTS = st.lists(st.text(st.one_of(AWKWARD, st.characters(exclude_categories=["Cs"])), max_size=40), max_size=8)


def token_sets(texts: Sequence[str], tokenizer: str) -> TokenSets:
    """Distinct token keys of each text."""
    return distinct_tokens(*token_stream(texts, tokenizer))


@settings(max_examples=150, deadline=None)
@given(texts=TEXTS, tokenizer=st.sampled_from(sorted(SPLITTERS)))
def test_token_sets_equal_the_plain_meaning(texts, tokenizer):
    found = token_sets(texts, tokenizer)
    keys = found.table[found.numbers]
    assert len(found) == len(texts)
    for place, text in enumerate(texts):
        expected = sorted(term_keys(sorted(set(SPLITTERS[tokenizer](text))), tokenizer))
        assert keys[found.offsets[place] : found.offsets[place + 1]].tolist() == expected


@pytest.mark.parametrize("tokenizer", sorted(SPLITTERS))
def test_every_one_byte_character_is_in_words_or_between_them(tokenizer):
    texts = [f"ab{chr(code)}cd" for code in range(256)]
    assert token_stream(texts, tokenizer)[1].tolist() == [len(SPLITTERS[tokenizer](text)) for text in texts]


def test_distinct_tokens_have_distinct_keys():
    words = [f"{a}{b}{c}" for a in "abcdefghij0123456789" for b in "klmnopqrstäöü" for c in ("", "x", "xx", "é", "一")]
    for tokenizer in SPLITTERS:
        terms = sorted({token for word in words for token in SPLITTERS[tokenizer](word)})
        assert len(set(term_keys(terms, tokenizer).tolist())) == len(terms)


def test_keys_of_trigrams_and_of_short_texts_differ_though_they_hold_the_character_zero():
    terms = ["a", "a\0", "\0a", "\0\0a", "\0a\0", "a\0\0", "\0", "\0\0", "\0\0\0"]
    assert len(set(term_keys(terms, "trigrams").tolist())) == len(terms)
    assert token_sets(terms, "trigrams").table.tolist() == sorted(term_keys(terms, "trigrams").tolist())


def test_a_text_longer_than_a_blob_and_many_small_ones_agree():
    long = "word " * (BLOB_BYTES // 2)
    texts = [long, *["tiny text"] * 1000, long + "end"]
    found = token_sets(texts, "alphanumeric")
    assert np.diff(found.offsets).tolist() == [1, *[2] * 1000, 2]


def test_no_text_and_empty_texts():
    for tokenizer in SPLITTERS:
        assert len(token_sets([], tokenizer)) == 0
        assert token_sets(["", " ", "\n"], tokenizer).offsets.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),  # vowel signs stay in the word
        ("我爱北京", ["我爱", "爱北", "北京"]),
        ("日本語を読む", ["日本", "本語", "語を", "を読", "読む"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("الكِتَاب الجديد", ["الكِتَاب", "الجديد"]),
        ("Größe der Bäume", ["größe", "der", "bäume"]),
        ("def get_user(id): x1=2", ["def", "get", "user", "id", "x1", "2"]),
        ("人 ok", ["人", "ok"]),
        ("उन्\u200dहोंने", ["उन्होंने"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("Donau\u00addampf\u2060schiff", ["donaudampfschiff"]),
        ("葛\U000e0100城", ["葛城"]),
        ("\u2764\ufe0f 1\ufe0f\u20e3 \u0301x", ["1", "x"]),  # what has no letter or digit is no token
        ("ที่", ["ที"]),
        ("ก\u200bข", ["ก", "ข"]),  # the zero-width space stands between words
    ],
)
def test_multilingual_words(text, expected):
    assert SPLITTERS["multilingual"](text) == expected


SPELT = st.text(
    st.sampled_from(
        "aß1 ทีำ่猫々एन्\u094b\u0301\u0308\u200b\u200c\u200d\u00ad\ufeff\ufe0f\U000e0101\u034f\u20e3\u0488２ﾊﾞ"
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(text=SPELT)
def test_multilingual_equals_the_oracle(text):
    for role in ("query", "passage"):
        expected = oracle.tokens(text, "multilingual", is_passage=role == "passage")
        assert set(splitter("multilingual", role)(text)) == expected
    assert all(any(map(str.isalnum, token)) for token in splitter("multilingual", "passage")(text))


def test_alphanumeric_breaks_hindi_words_which_is_why_there_is_another():
    assert SPLITTERS["alphanumeric"]("हिन्दी") != ["हिन्दी"]


def test_keys_of_spans_differ_by_every_byte_and_by_length_wherever_they_stand():
    """Across the eight bytes that are read at once, and across what is hashed one by one."""
    tokens = [letter * (n - 1) + last for n in range(1, 140) for letter in "ab" for last in "ab"]
    tokens = list(dict.fromkeys(tokens))
    keys, counts = token_stream([" ".join(tokens), *tokens], "alphanumeric")
    assert counts[0] == len(tokens)
    assert len(set(keys.tolist())) == len(tokens)
    assert keys[: len(tokens)].tolist() == keys[len(tokens) :].tolist() == term_keys(tokens, "alphanumeric").tolist()
