"""Ids by words equal the library's ids of whole texts, for tokenizers that treat words separately."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from secid.encode import word_cache
from secid.encode.locate import offline_minilm
from secid.encode.word_cache import Frame, WordCache, splits_at_spaces

NASTY = (
    "", " ", "  two  spaces ", "tab\tand\nline\r\nends\n", "a\x1cb\x0bc\x85d", "no\u00a0break\u2003em\u3000wide",
    "e\u0301cole \u0301alone naïve Ærø İstanbul ΣΑΣ ς", "中文 字mixed文字", "日本語のテキスト", "##ing #",
    "[SEP] x[MASK]y [CLS]", "soft\u00adhyphen zero\u200bwidth\u200djoin", "\ufffd\x00null",
    "👩‍👩‍👧 flags🇩🇪", "a" * 300, "don't stop-it, (now)!", "¨x ﬁne Å",
)  # fmt: skip
CHARACTERS = st.characters(exclude_categories=("Cs",))


def core(**cut):
    tokenizer = Tokenizer.from_file(str(offline_minilm() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if cut:
        tokenizer.enable_truncation(**cut)
    return tokenizer


@pytest.fixture(scope="module")
def library():
    return core()


def same(tokenizer, texts):
    ids, lengths, cut = WordCache(tokenizer).framed(texts, Frame.of(tokenizer))
    encodings = tokenizer.encode_batch_fast(list(texts))
    assert lengths.tolist() == [len(own.ids) for own in encodings]
    assert ids.tolist() == [token for own in encodings for token in own.ids]
    assert cut.tolist() == [bool(own.overflowing) for own in encodings]


@pytest.mark.parametrize("cut", [{}, {"max_length": 6}, {"max_length": 6, "direction": "left"}, {"max_length": 3}])
def test_ids_of_nasty_texts_are_the_librarys(cut):
    same(core(**cut), NASTY)


@settings(max_examples=60)
@given(texts=st.lists(st.text(CHARACTERS | st.sampled_from(" \t\n[]#'.,-"), max_size=40), min_size=1, max_size=6))
def test_ids_of_any_texts_are_the_librarys(library, texts):
    same(library, texts)


@pytest.mark.parametrize("limit", ["MAX_WORDS", "MAX_IDS"])
def test_a_cache_that_is_emptied_gives_the_same_ids(library, monkeypatch, limit):
    monkeypatch.setattr(word_cache, limit, 2)
    words, frame = WordCache(library), Frame.of(library)
    for text in ("one two three four", "five six", "one seven"):
        assert words.framed([text], frame)[0].tolist() == library.encode(text).ids


def test_no_text_has_no_ids(library):
    ids, lengths, cut = WordCache(library).framed([], Frame.of(library))
    assert [len(ids), len(lengths), len(cut)] == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.update(pre_tokenizer={"type": "Whitespace"}),
        lambda parts: parts.update(pre_tokenizer=None),
        lambda parts: parts.update(normalizer={"type": "Replace", "pattern": {"String": " a"}, "content": "b"}),
        lambda parts: parts["added_tokens"][0].update(content="two words", special=False),
        lambda parts: parts["added_tokens"][0].update(content="\n", special=False),
        lambda parts: parts["added_tokens"][0].update(content="new\u00a0york", special=False, normalized=True),
    ],
)
def test_other_tokenizers_read_whole_texts(library, change):
    parts = json.loads(library.to_str())
    change(parts)
    assert splits_at_spaces(library)
    assert not splits_at_spaces(Tokenizer.from_str(json.dumps(parts)))


def test_a_split_at_other_white_space_would_be_noticed(library):
    """A control character that Python counts as white space joins words in BERT."""
    assert "\x1c".isspace()
    assert len(library.encode("a\x1cb", add_special_tokens=False).ids) == 1
    assert np.array_equal(
        WordCache(library).without_special_tokens(["a\x1cb"])[0], library.encode("ab", add_special_tokens=False).ids
    )


def test_a_tokenizer_without_special_tokens_reads_whole_texts(library):
    """Else a word that is cut at the maximum length would fill the room, and not count as cut."""
    parts = json.loads(library.to_str())
    parts["post_processor"] = None
    assert Frame.of(Tokenizer.from_str(json.dumps(parts))) is None


def test_the_cache_stays_small_where_texts_have_no_spaces(library, monkeypatch):
    monkeypatch.setattr(word_cache, "MAX_IDS", 50)
    words, frame = WordCache(library), Frame.of(library)
    for number in range(10):
        words.framed([chr(0x4E00 + number) * 20], frame)
        assert len(words._ids) <= 50 + 20
