"""Facts of texts: normal forms, scripts, estimated tokens."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.findings import facts as facts_module
from secid.findings.facts import (
    ASCII_PER_TOKEN,
    FEW,
    OTHER_PER_TOKEN,
    UNSPACED_PER_TOKEN,
    Facts,
    ScriptTable,
    begins_as_generated,
    gather,
)
from secid.findings.forms import Forms, normal_form, opening_of
from secid.pool.texts import Packed

PIECES = st.sampled_from(
    ["a", "B", " ", "  ", "\n", "\t", "\x1c", "\x85", "\u3000", "é", "“", "İ", "K", "ſ", "桥", "は", "1", ".", "\0",
     "~", "\x7f", "Sure, here is a passage", "as an AI language model, I", "好的，以下", "one two three four five six"]
)  # fmt: skip
WRITTEN = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)


def facts(texts: list[str]) -> Facts:
    return gather(lambda start, stop: Packed.of(texts[start:stop]), len(texts), ScriptTable())


def plainly_told(text: str, table: ScriptTable) -> dict[str, object]:
    """Facts of one text in plain Python, character by character."""
    form = plain_form(text)
    n_ascii, n_unspaced = sum(char < "\x80" for char in text), sum(bool(table.unspaced[ord(char)]) for char in text)
    beyond = len(text.encode()) - len(text)
    many = beyond > FEW * len(text)
    amount = len(text) / ASCII_PER_TOKEN + beyond / OTHER_PER_TOKEN
    scripts = {"Latin"} if form.islower() else {"none"}
    if many:
        n_other = len(text) - n_ascii - n_unspaced
        amount = n_ascii / ASCII_PER_TOKEN + n_other / OTHER_PER_TOKEN + n_unspaced / UNSPACED_PER_TOKEN
        numbers = [table.names[number] for char in text for number in table.of(np.array([ord(char)], np.uint32))]
        counts = {name: numbers.count(name) for name in table.names if name != "none"}
        both = counts["Han"] + counts["Kana"]
        kana = counts["Kana"] > facts_module.KANA_FRACTION * both
        counts |= {"Han": 0 if kana else both, "Kana": both if kana else 0}
        most = max(counts.values())
        scripts = {name for name, count in counts.items() if count == most} if most else {"none"}  # any of equals
    opening = form[:8] if many and 2 * n_unspaced > len(text) else " ".join(form.split(" ")[:5])
    return {
        "characters": len(text),
        "tokens": int(np.ceil(amount)),
        "normal": hash(form.encode()),
        "opening": hash(opening.encode()),
        "preamble": begins_as_generated(text),
        "script": scripts,
    }


@settings(max_examples=300)
@given(st.lists(WRITTEN, max_size=8))
def test_facts_are_those_of_a_plain_loop(texts):
    found, table = facts(texts), ScriptTable()
    for place, text in enumerate(texts):
        expected = plainly_told(text, table)
        assert found.scripts[found.script[place]] in expected.pop("script")
        assert {name: getattr(found, name)[place] for name in expected} == expected


@given(st.lists(WRITTEN, max_size=8))
def test_forms_are_those_of_a_plain_loop(texts):
    forms = Forms.of(Packed.of(texts))
    assert [form.decode() for form in forms.encoded()] == [plain_form(text) for text in texts]
    assert forms.openings(np.zeros(len(texts), np.bool_)).tolist() == [
        hash(opening_of(normal_form(text), False).encode()) for text in texts
    ]


def test_most_plain_texts_are_decided_by_two_bytes(monkeypatch):
    asked = []
    monkeypatch.setattr(facts_module, "begins_as_generated", lambda text: asked.append(text) or False)
    facts(["Water runs", "Sure, here is a passage", "Iron", "“Quoted”", "(1) Iron", "I cannot help"])
    assert asked == ["Sure, here is a passage", "“Quoted”", "(1) Iron", "I cannot help"]


def scripts(texts: list[str]) -> list[str]:
    found = facts(texts)
    return [found.scripts[number] for number in found.script]


def plain_form(text):
    return " ".join(unicodedata.normalize("NFC", text.lower()).split())


@given(st.text())
def test_the_normal_form_is_lower_case_composed_with_single_spaces(text):
    assert normal_form(text) == plain_form(text)


def test_composed_and_decomposed_texts_are_one():
    for text in ("một đô thị lớn", "오랜 역사와 문화"):
        assert normal_form(unicodedata.normalize("NFD", text)) == normal_form(text) == text


@given(st.lists(st.text(min_size=1), max_size=8))
def test_facts_of_a_text_do_not_depend_on_its_neighbours(texts):
    together = facts(texts)
    for place, text in enumerate(texts):
        alone = facts([text])
        assert together.tokens[place] == alone.tokens[0]
        assert together.normal[place] == alone.normal[0]
        assert together.opening[place] == alone.opening[0]
        assert together.scripts[together.script[place]] == alone.scripts[alone.script[0]]


def test_no_text_at_all():
    assert len(facts([])) == 0


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain words", "Latin"),
        ("“quoted” words — with 5 µm", "Latin"),
        ("đường phố ở Việt Nam", "Latin"),
        ("длинный текст with one word", "Cyrillic"),
        ("这座桥建成于一九五三年", "Han"),
        ("この橋は1953年に建てられた", "Kana"),
        ("이 다리는 언제 지어졌습니까", "Hangul"),
        ("ما هذا الكتاب", "Arabic"),
        ("यह पुल कब बना था", "Devanagari"),
        ("12 + 30 = 42 !", "none"),
        ("", "none"),
    ],
)
def test_script_of_most_letters(text, script):
    assert scripts([text]) == [script]


def test_the_estimate_is_near_what_wordpiece_gives_for_english():
    # 65 tokens by all-MiniLM-L6-v2's tokenizer, special ones left out
    text = (
        "Press a floured fingertip about a centimetre into the shaped loaf. If the dent springs back at once, the "
        "dough needs more time. If it fills slowly and a faint mark stays, it is ready. If it does not move at all, "
        "the dough has gone too far and should be baked at once."
    )
    assert facts([text]).tokens[0] == pytest.approx(65, rel=0.15)
    assert facts(["桥" * 30]).tokens[0] == 30


def test_openings_are_words_or_characters_of_unspaced_scripts():
    found = facts(["One two three four five six", "one two  three FOUR five seven", "one two three four six"])
    assert found.opening[0] == found.opening[1] != found.opening[2]
    found = facts(["以下是一段关于桥梁的文字", "以下是一段关于桥的短文", "这座桥建成于一九五三年"])
    assert found.opening[0] == found.opening[1] != found.opening[2]


def test_chunks_leave_no_seam(monkeypatch):
    texts = [f"text {number} über ß 桥" if number % 3 else f"plain {number}" for number in range(50)]
    whole = facts(texts)
    monkeypatch.setattr("secid.findings.facts.CHUNK_TEXTS", 7)
    parts = facts(texts)
    for name in ("characters", "tokens", "normal", "opening", "script"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize(
    ("text", "generated"),
    [
        ("Sure, here is a passage about bridges.", True),
        ("好的，以下是一段关于桥梁的文字。", True),
        ("以下是一篇短文：", True),
        ("はい、以下が文章です。", True),
        ("물론입니다! 다음은 다리에 관한 글입니다.", True),
        ("Chắc chắn rồi! Dưới đây là một đoạn văn.", True),
        ("好的老师会听学生说话。", False),
        ("以下各项规定自公布之日起施行。", False),
        ("네덜란드는 유럽의 나라이다.", False),
        ("Đây là một cây cầu cũ.", False),
        ("A bridge is here.", False),
    ],
)
def test_how_generated_texts_begin(text, generated):
    assert facts([text]).preamble.tolist() == [generated]
