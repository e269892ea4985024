"""The form of single passages: what generators leave is found, and what people write is not."""

from __future__ import annotations

import pytest

from secid.findings.form import is_markup, is_unfinished, is_wrapped
from secid.findings.phrases import _note, trailing_notes
from secid.pool.normal_form import FormKeys, _loops
from secid.pool.texts import MIN_FOR_RE2, Packed

GOATS = "The goats climb the steep rocks above the valley, where the grass stays green until autumn"


@pytest.mark.parametrize(
    ("text", "unfinished"),
    [
        *((f"{GOATS}{end}", True) for end in ("", ",", " and the", "…", "...", " (see the", ":", " 42")),
        *((f"{GOATS}{end}", False) for end in (".", "!", "?”", ".)", ".'  \n", ".**", "؟", "।", "。", "۔")),
        ("A title of seven words has no mark", True),
        ("A title of seven words and no", False),
        ("山羊在山谷上方陡峭的岩石上攀爬那里的草一直到深秋都是绿色的并且", True),
        ("山羊在山谷上方陡峭的岩石上攀爬，那里的草一直到深秋都是绿色的。", False),
        ("山羊在岩石上攀爬", False),
        ("แพะปีนหินสูงชันเหนือหุบเขาซึ่งหญ้ายังคงเขียวขจีจนถึงปลายฤดูใบไม้ร่วง", False),
        ("", False),
        ("\n ", False),
    ],
)
def test_unfinished(text, unfinished):
    assert is_unfinished(text) == unfinished


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        *((text, True) for text in ('{"passage": "Goats."}', "  {'text' : 'Goats.", '["Goats.", "Rocks."]',
            "```\nGoats")),
        *((text, True) for text in ('"hard_negative": Goats', "**'Negative passage 2'**: Goats", '[{"a": 1}]',
            "~~~md\nx")),
        *((text, False) for text in ("[1] Goats climb.", "{x | x > 0} is open.", "“Goats” is a film.",
            "`ls` lists files.")),
        *((text, False) for text in ('"Query by Humming": a system', "def f():\n    return {}", "", "[",
            '["Goats" he said.')),
    ],
)  # fmt: skip
def test_wrapper(text, wrapped):
    assert is_wrapped(text) == wrapped


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        *(
            (text, True)
            for text in ("<p>Goats climb.</p>", "Goats<br/>climb<br>", "<!-- x --> Goats", "<a href='b'>c</a>")
        ),
        *((text, False) for text in ("a < b and b > c", "1 <2> 3", f"<b>{GOATS * 3}</b>", "", "<<", "I <3 goats")),
    ],
)
def test_markup(text, markup):
    assert is_markup(text) == markup


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        *((text, True) for text in ("the " * 20, "goat, Goat! " * 10, f"{GOATS} {'climb rocks ' * 20}")),
        *((text, True) for text in ("好" * 30, "one two three " * 9)),
        *((text, False) for text in ("the " * 19, GOATS, f"{GOATS} {'climb ' * 12}")),
        *((text, False) for text in ("one two three four five " * 6, "山羊在岩石上攀爬" * 3)),
    ],
)
def test_loop(text, loop):
    others = [GOATS, "山羊" * 20, "", "goat " * 40]  # what a text is packed with changes nothing
    for texts in ([text], [*others, text], [text, *others]):
        assert _loops(FormKeys.of(Packed.of(texts)))[texts.index(text)] == loop


NOTES = {
    "en": "(Note: this passage is about goats and does not answer the query.)",
    "en, no brackets": "This passage is a hard negative because it only mentions rocks.",
    "en, requirements": "*I hope this passage meets your requirements!*",
    "en, offer": "Let me know if you would like another passage.",
    "en, question": "[This document discusses goats but doesn't answer the question.]",
    "de": "(Hinweis: Diese Passage beantwortet die Suchanfrage nicht.)",
    "fr": "(Remarque : ce passage ne répond pas à la requête.)",
    "es": "Nota: este pasaje no responde a la consulta.",
    "it": "(Nota: questo brano non risponde alla richiesta.)",
    "pt": "(Nota: este trecho não responde à consulta.)",
    "nl": "(Opmerking: deze passage beantwoordt de zoekvraag niet.)",
    "pl": "(Uwaga: ten fragment nie odpowiada na zapytanie.)",
    "tr": "(Not: Bu pasaj sorguyu yanıtlamıyor.)",
    "id": "(Catatan: paragraf ini tidak menjawab kueri.)",
    "vi": "(Lưu ý: đoạn văn này không trả lời truy vấn.)",
    "ru": "(Примечание: этот отрывок не отвечает на запрос.)",
    "ar": "(ملاحظة: هذه الفقرة لا تجيب عن الاستعلام.)",
    "hi": "(नोट: यह अनुच्छेद प्रश्न का उत्तर नहीं देता।)",
    "ko": "(참고: 이 구절은 질의에 답하지 않습니다.)",
    "zh": "（注：该段落没有回答查询。）",
    "ja": "（注：この文章はクエリに答えていません。）",
    "th": "(หมายเหตุ: ข้อความนี้ไม่ได้ตอบคำค้นหา)",
}
ORDINARY = (
    "(Funded by the Commonwealth Foundation; ClinicalTrials.gov number, NCT01044069.)",
    "The document was signed in 1648, and the question of the border stayed open.",
    "(see the passage on goats in the second chapter)",
    "Let me know if you come to the valley in autumn.",
    "It is a hard question, which this text leaves to the reader.",
    "return self.query(document, text)",
    "Note: goats are not allowed on the terrace.",
    "(dt. Übersetzung: Die Ziegen und der Fluss, 2. Auflage)",
    "The query returned no document.",
)


def has_trailing_note(text: str) -> bool:
    (flag,) = trailing_notes(Packed.of([text]))
    assert (trailing_notes(Packed.of([text] * MIN_FOR_RE2)) == flag).all()  # many texts are searched with RE2 first
    return bool(flag)


@pytest.mark.parametrize("language", NOTES)
def test_a_note_at_the_end_is_found_and_one_before_a_passage_is_not(language):
    assert has_trailing_note(f"{GOATS}. {NOTES[language]}")
    assert has_trailing_note(f"{GOATS}.\n\n{NOTES[language]}\n")
    assert not has_trailing_note(f"{NOTES[language]} {GOATS}. {GOATS}. {GOATS}. {GOATS}. {GOATS}.")


@pytest.mark.parametrize("end", ORDINARY)
def test_passages_end_in_no_note(end):
    assert not has_trailing_note(f"{GOATS}. {end}")


@pytest.mark.parametrize(
    "text",
    [
        "This document sets out the minimum requirements for vessels.",
        "These documents describe the system requirements.",
        "This text shows how a query is parsed by the server.",
    ],
)
def test_passages_that_speak_of_requirements_and_queries_hold_no_note(text: str) -> None:
    assert not has_trailing_note(text)


def test_a_note_may_stand_between_two_equal_marks() -> None:
    assert has_trailing_note("Le capre salgono. *Questo passaggio non risponde alla richiesta.*")


def test_brackets_of_fewer_than_twelve_characters_are_no_note() -> None:
    assert [_note(text, text) for text in ("goats (are a few)", "goats (were a few)")] == ["", "(were a few)"]


def test_a_title_in_brackets_is_not_an_array() -> None:
    assert not is_wrapped('["Song 3"] is a song of 1 by [w3]')
    assert is_wrapped('["Goats climb.", "Goats eat."]')
    assert is_wrapped('["Goats climb."]')


@pytest.mark.parametrize("end", ["\u2009", "\u200b", "\u2028", "\u2029", "\u202f»", "\x85", "\ufeff"])
def test_blanks_of_any_kind_may_follow_a_sentence_mark(end: str) -> None:
    assert not is_unfinished("The goats climb the steep rocks above the valley." + end)


@pytest.mark.parametrize(
    "end", [".[1]", ".[1][2]", ". [12]", ".”[citation needed]", ".</p>", "!</p>\n</div>", ".<br/>"]
)
def test_references_and_tags_may_follow_a_sentence_mark(end: str) -> None:
    assert not is_unfinished(GOATS + end)
    assert is_unfinished(GOATS + end.lstrip(".!”"))


@pytest.mark.parametrize("mark", [";", "\u037e", "»;", ";»"])
def test_the_question_mark_of_greek_ends_a_sentence(mark: str) -> None:
    assert not is_unfinished("«Πού πηγαίνουν οι κατσίκες όταν ο ήλιος δύει πίσω από τα βουνά" + mark)
    assert is_unfinished(GOATS + ";")


@pytest.mark.parametrize(
    "text", ['"Document 5": a film about goats', '"Passage 3": a novel', '"Query": a song', "[[Goats]] and [[rocks]]"]
)
def test_titles_and_links_are_no_wrappers(text: str) -> None:
    assert not is_wrapped(text)


@pytest.mark.parametrize("text", ["[1, 2]", "[[1, 2], [3, 4]]"])
def test_numbers_in_brackets_wrap_no_passage(text: str) -> None:
    assert not is_wrapped(text)


@pytest.mark.parametrize("text", ['{"text": "Goats"}', "```\nGoats", '"passage_2": Goats', '"query_text": Goats'])
@pytest.mark.parametrize("start", ["", "\ufeff", "\u200b \n"])
def test_a_wrapper_may_follow_marks_that_no_reader_sees(start: str, text: str) -> None:
    assert is_wrapped(start + text)


@pytest.mark.parametrize(
    "text",
    [
        "List<String> names = new ArrayList<String>();", "std::vector<label> goats, Vec<T>, Foo<a>",
        "#include <stdio.h>", "<class 'int'>", "<Button> goats", "a &lt; b and b &gt; c",
    ],
)  # fmt: skip
def test_types_and_placeholders_are_no_markup(text: str) -> None:
    assert not is_markup(text)


@pytest.mark.parametrize(
    "text",
    ["&lt;p&gt;Goats climb.&lt;/p&gt;", "<P>Goats", "Goats<BR>climb", "<goat>Goats</goat>", "<jats:p>Goats</jats:p>"],
)
def test_tags_of_any_name_that_close_and_escaped_tags_are_markup(text: str) -> None:
    assert is_markup(text)


OTHER_NOTES = (
    "Diese Passage beantwortet die Suchanfrage nicht.",
    "Hinweis: Dieser Text behandelt Ziegen, beantwortet aber nicht die gestellte Frage.",
    "(Anmerkung: Dieser Abschnitt erfüllt Ihre Anforderungen.)",
    "Ce passage ne répond pas à la requête.",
    "Note : ce texte aborde le sujet mais ne répond pas directement à la question.",
    "Este texto trata el tema, pero no responde a la pregunta.",
    "(Nota: este documento no responde a la consulta planteada.)",
    "这段文字没有回答查询。",
    "注：该段落与查询主题相关，但并未回答问题。",
    "（此段落未直接回答该问题。）",
    "備註：這篇文章沒有回答使用者的問題。",
)
OTHER_ENDS = (
    "Dieser Text ist unter einer freien Lizenz verfügbar; alle Fragen beantwortet der Verlag.",
    "Dieses Dokument legt die Anforderungen an Schiffe fest.",
    "Die Frage nach dem Ursprung der Ziegen bleibt offen und wird nicht beantwortet.",
    "Ce texte est la réponse du ministre à la question écrite.",
    "La question n'a pas reçu de réponse.",
    "Este documento contiene los requisitos de la consulta pública.",
    "El médico no responde a la pregunta en la consulta.",
    "Roep zoek(deze passage past niet bij de zoekvraag) aan na begin()",
    "希望这篇文章对你有帮助。",
    "这段文字描述了山羊的问题。",
    "这个问题一直没有得到回答。",
)


@pytest.mark.parametrize("note", OTHER_NOTES)
def test_a_note_of_another_language_needs_no_brackets(note: str) -> None:
    assert has_trailing_note(f"{GOATS}. {note}")


@pytest.mark.parametrize("end", OTHER_ENDS)
def test_passages_of_other_languages_end_in_no_note(end: str) -> None:
    assert not has_trailing_note(f"{GOATS}. {end}")
