"""Preambles and shared openings: planted ones are flagged, passages are not (METHOD 14)."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.findings.openings import (
    ABSENT_KEY,
    SHARED_CHANCE,
    Openings,
    chance_of_fewer,
    opening_flags,
    opening_keys,
    phrase_keys,
)
from secid.findings.phrases import (
    ENGLISH,
    ENGLISH_REFUSAL,
    PHRASE,
    PHRASES_OF,
    head_of,
    is_refusal,
    may_be_phrases,
    opening_pattern,
    phrase,
    without_dotless,
)
from secid.pool.normal_form import FormKeys
from secid.pool.texts import Packed
from tests.unit.findings.planned import pool_of

PREAMBLES = {
    "en": ["Here are three HARD NEGATIVE passages that meet the requirements:",
        "Here are 3 passages that look relevant but do not answer the query.", "Sure! Here is a passage about goats.",
        "Certainly, here's the passage you asked for: Goats climb.", "**Hard Negative 1:** Goats climb steep rocks.",
        "Hard negative 2 : goats", "Passage: goats climb", "**Passage 2** (hard negative): goats climb",
        "Negative: goats climb", "Query: where do goats live", "Requirements: the passage must be misleading",
        "The following passages are related to the query but do not answer it.",
        "This passage is a hard negative because it names goats.", "Below you will find a hard negative for the query.",
        "I cannot write a misleading passage about goats.", "I'm sorry, but I can't help with that request.",
        "As an AI language model, I cannot judge goats."],
    "de": ["Hier ist eine Passage über Ziegen, die die Frage nicht beantwortet:",
        "Hier sind drei schwierige Negativbeispiele zur Anfrage:", "Gerne! Hier ist ein Text über Ziegen.",
        "Natürlich, hier sind drei Textabschnitte:", "Negativ 1: Ziegen klettern.", "Passage 2: Ziegen klettern.",
        "Anforderung: Der Text muss falsch sein.", "Es tut mir leid, aber ich kann dabei nicht helfen.",
        "Als KI-Sprachmodell kann ich keine irreführenden Texte erstellen."],
    "fr": ["Voici un passage sur les chèvres qui ne répond pas à la question :",
        "Bien sûr ! Voici trois exemples négatifs difficiles :", "D'accord, voici ce que vous demandez.",
        "Négatif 1 : Les chèvres grimpent.", "Passage : Les chèvres grimpent.",
        "Je suis désolé, mais je ne peux pas vous aider."],
    "es": ["Aquí tienes un pasaje sobre cabras que no responde a la consulta:",
        "¡Claro! Aquí están tres negativos difíciles:", "A continuación se presentan tres pasajes engañosos:",
        "Pasaje 1: Las cabras trepan.", "Requisitos: el texto debe ser falso.",
        "Lo siento, pero no puedo ayudarte con eso."],
    "it": ["Ecco un passaggio sulle capre che non risponde alla domanda:", "Certo! Ecco tre esempi negativi:",
        "Passaggio 2: Le capre si arrampicano.", "Mi dispiace, ma non posso creare questo testo."],
    "pt": ["Aqui está uma passagem sobre cabras que não responde à consulta:",
        "Claro! Aqui estão três trechos negativos:", "Trecho 1: As cabras sobem.",
        "Desculpe, mas não posso ajudar com isso."],
    "nl": ["Hier is een passage over geiten die de vraag niet beantwoordt:",
        "Natuurlijk! Hier zijn drie negatieve voorbeelden:", "Het spijt me, maar ik kan je daar niet bij helpen."],
    "pl": ["Oto trzy trudne fragmenty, które nie odpowiadają na pytanie:", "Oczywiście! Oto fragment o kozach.",
        "Przepraszam, ale nie mogę w tym pomóc."],
    "tr": ["İşte sorguyla ilgili ama yanıtlamayan bir pasaj:", "Elbette! İşte üç zor negatif:",
        "Pasaj 1: Keçiler tırmanır."],
    "id": ["Berikut adalah tiga contoh negatif yang sulit:", "Tentu! Berikut ini paragraf tentang kambing.",
        "Maaf, saya tidak dapat membantu dengan permintaan itu."],
    "vi": ["Đây là một đoạn văn về dê không trả lời câu hỏi:", "Chắc chắn rồi! Dưới đây là ba đoạn văn:",
        "Đoạn văn 1: Dê leo núi.", "Xin lỗi, nhưng tôi không thể giúp việc này."],
    "ru": ["Вот три сложных отрывка, которые не отвечают на запрос:", "Конечно! Вот отрывок о козах.",
        "Отрицательный пример 1: Козы лазают.", "Извините, но я не могу помочь с этим."],
    "ar": ["إليك فقرة عن الماعز لا تجيب عن السؤال:", "بالتأكيد! إليك ثلاث فقرات سلبية:", "فقرة 1: الماعز تتسلق.",
        "عذرًا، لا أستطيع مساعدتك في ذلك."],
    "hi": ["यहाँ बकरियों के बारे में एक अनुच्छेद है जो प्रश्न का उत्तर नहीं देता:",
        "ज़रूर! यहाँ तीन कठिन नकारात्मक उदाहरण हैं:", "अनुच्छेद 1: बकरियाँ चढ़ती हैं।",
        "क्षमा करें, मैं इसमें सहायता नहीं कर सकता।"],
    "ko": ["다음은 질문에 답하지 않는 염소에 관한 지문입니다:", "물론입니다! 다음은 세 개의 어려운 부정 예시입니다:",
        "부정 예시 1: 염소는 산을 오른다.", "죄송합니다. 그 요청은 도와드릴 수 없습니다."],
    "zh": ["以下是三个困难负例段落：", "好的，以下是关于山羊的内容：",
        "当然可以！这是一个与查询相关但不回答问题的段落：", "负例1：山羊会爬山。", "段落：山羊会爬山。",
        "抱歉，我无法提供这样的内容。"],
    "ja": ["以下は質問に答えないヤギに関するパッセージです：", "承知しました。以下は三つの負例です：",
        "負例1：ヤギは山に登る。", "申し訳ありませんが、そのご依頼にはお答えできません。"],
    "th": ["นี่คือข้อความเกี่ยวกับแพะที่ไม่ตอบคำถาม:", "แน่นอนครับ! ต่อไปนี้คือย่อหน้าเกี่ยวกับแพะ",
        "ขออภัย ฉันไม่สามารถช่วยเรื่องนี้ได้"],
}  # fmt: skip
"""Openings of generators, by language. Written for these tests."""

PASSAGES = {
    "en": ["Here the river turns south and widens.", "Here is where the treaty was signed in 1648.",
        "Here are the Young Men is a song by Joy Division.", "Here is an example of a dangling modifier:",
        "Sure-footed goats climb where others fall.", "Certain results of the theory are given.",
        "Passage of the Red Sea is told in Exodus.", "Negative feedback steadies an amplifier.",
        "Query optimization is a feature of many database systems.",
        "Requirements of the engine are listed in the table.", "I Can't Make You Love Me",
        "I cannot find the manual any more.", "As an AI researcher, she worked on planning.",
        "These passages of the Nile were mapped in 1862.", "def query(self): return self.negative",
        "Hard negative mining improves dense retrieval."],
    "de": ["Hier ist der Wald besonders dicht und alt.", "Sicher ist, dass der Fluss im Winter gefriert.",
        "Natürlich vorkommendes Gold ist selten.", "Als KI bezeichnet man Programme, die lernen.",
        "Leider kann ich den Ort nicht finden.", "Negative Zahlen liegen links der Null."],
    "fr": ["Voici venir l'hiver, dit le poète.", "Voici un extrait du discours du roi.",
        "Les passages couverts de Paris datent du XIXe siècle.", "Je suis désolé est une chanson de Mark Knopfler."],
    "es": ["Claro de luna es una sonata de Beethoven.", "Aquí está enterrado el poeta.",
        "No puedo vivir sin ti es una canción de 1995."],
    "it": ["Ecco perché il fiume gela d'inverno.", "Certo è che la città fu distrutta."],
    "pt": ["Aqui está sepultado o rei.", "Claro que a cidade cresceu no século XIX."],
    "nl": ["Hier is de rivier breed.", "Natuurlijk gas wordt in het noorden gewonnen."],
    "pl": ["Oto człowiek to dzieło Nietzschego.", "Oczywiście rzeka zamarza zimą."],
    "tr": ["İşte bu yüzden nehir kışın donar.", "Tabii afetler ülkede sık görülür."],
    "id": ["Tentu saja sungai itu membeku.", "Berikut daftar kota di negara itu."],
    "vi": ["Đây là thành phố lớn nhất nước.", "Yêu cầu nhập học rất cao."],
    "ru": ["Вот уже сто лет город стоит на реке.", "Конечно, зимой река замерзает."],
    "ar": ["هذه المدينة هي الأكبر في البلاد.", "هذه الفقرة من الدستور تحمي الملكية.",
        "بالطبع تتجمد الأنهار في الشتاء."],
    "hi": ["यहाँ नदी दक्षिण की ओर मुड़ती है।", "नीचे घाटी में एक गाँव है।"],
    "ko": ["여기 강은 남쪽으로 흐른다.", "네 개의 강이 만난다.", "저는 학교에 갈 수 없습니다만 괜찮습니다."],
    "zh": ["这是中国最长的河流。", "好莱坞位于加利福尼亚州。", "要求很高的学校。", "段落是文章的基本单位。"],
    "ja": ["次の駅は京都です。", "次の文章を読んで答えなさい。", "はい、と彼は答えた。", "文章を書くのは難しい。"],
    "th": ["นี่คือเมืองหลวงของประเทศ", "ข้อความในจารึกอ่านยาก"],
}  # fmt: skip
"""Passages with the same words in them. Written for these tests."""

LOST = "the goats of the high valley climb slowly"


@pytest.mark.parametrize("language", PREAMBLES)
def test_preambles_are_recognised(language):
    assert [text for text in PREAMBLES[language] if phrase(text) is None] == []


REFUSALS = dict.fromkeys(PREAMBLES, 1) | {"en": 3, "de": 2, "tr": 0}
"""Language -> the number of preambles that decline. They are the last ones in its list."""


@pytest.mark.parametrize("language", PREAMBLES)
def test_refusals_are_distinguished_from_other_preambles(language):
    n = len(PREAMBLES[language]) - REFUSALS[language]
    assert [is_refusal(text) for text in PREAMBLES[language]] == [False] * n + [True] * REFUSALS[language]
    assert not any(map(is_refusal, PASSAGES[language]))


@pytest.mark.parametrize("language", PASSAGES)
def test_passages_are_not(language):
    assert [text for text in PASSAGES[language] if phrase(text) is not None] == []


def test_every_language_has_preambles_and_passages():
    assert set(PREAMBLES) == set(PASSAGES) == {"en", *PHRASES_OF}


@pytest.mark.parametrize("language", PREAMBLES)
def test_a_preamble_in_the_middle_of_a_passage_is_a_quotation(language):
    """The rule reads how a text opens, no more."""
    assert [text for text in PREAMBLES[language] if phrase(f"{LOST} {text}") is not None] == []


def test_the_first_twelve_words_are_read():
    head = "Here is the first of {}four misleading but still quite readable passage"
    assert phrase(head.format("")) is not None
    assert phrase(head.format("all ")) is None


def test_phrases_that_differ_in_marks_case_and_numbers_are_one():
    assert phrase("Hard negative 2:") == phrase("**HARD NEGATIVE 17 :**") == "hard negative 0"
    assert phrase("Here are three passages") == phrase("here are 12 passages") != phrase("Here is a passage")


@given(st.from_regex(re.compile(PHRASE, re.VERBOSE), fullmatch=True))
@settings(max_examples=50, deadline=None)
def test_every_phrase_has_a_start_that_is_listed(text):
    for written in (text, text.upper(), text.title(), text.replace(" ", "\n"), f" {text}"):
        assert may_be_phrases(Packed.of([written])).all() or not opening_pattern().match(head_of(written))


ALTERNATIVES = {"en": f"{ENGLISH}|{ENGLISH_REFUSAL}"} | {
    code: "|".join([words.yes, words.here, words.label, words.sorry]) for code, words in PHRASES_OF.items()
}


@pytest.mark.parametrize("language", ALTERNATIVES)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_every_alternative_of_a_language_has_a_start_that_is_listed(language, data):
    pattern = re.compile(without_dotless(ALTERNATIVES[language]), re.VERBOSE)
    assert may_be_phrases(Packed.of([data.draw(st.from_regex(pattern, fullmatch=True))])).all()


def test_most_passages_are_ruled_out_by_how_they_start():
    texts = Packed.of(["Goats climb.", "The cows climb.", "In 1908 goats", "A goat", "Hereford", "goats."])
    assert not may_be_phrases(texts).any()


def rows_with(negatives, positives=lambda n: [f"sound answer number {n} of the run"], n=20):
    return [(f"query {n}", positives(n), negatives(n)) for n in range(n)]


def openings_of(texts):
    packed = Packed.of(texts)
    return Openings(phrase_keys(packed), opening_keys(FormKeys.of(packed)))


def flags_of(tmp_path, *sources, name):
    with pool_of(tmp_path, *sources) as plan:
        flags = [
            found[name] for found in opening_flags(openings_of(plan.passages.get(0, len(plan.passages))), plan.sources)
        ]
        texts = [plan.passages.take(planned.negatives) for planned in plan.sources]
    assert [len(one) for one in flags] == [len(one) for one in texts]
    assert all(one.dtype == np.bool_ for one in flags)
    return [
        {text for text, flag in zip(some, one, strict=True) if flag} for some, one in zip(texts, flags, strict=True)
    ]


def test_a_planted_preamble_is_flagged_and_nothing_else(tmp_path):
    planted = "Here are three HARD NEGATIVE passages that meet the requirements:"
    rows = rows_with(lambda n: [planted, f"{n} goats climb in the valley", f"{n} rivers flow to the sea"])
    assert flags_of(tmp_path, rows, name="preamble") == [{planted}]


def test_a_phrase_that_positives_open_with_is_the_house_style(tmp_path):
    """Whatever source the positive is in; other phrases are still flagged."""
    label, other = "Passage 3: goats climb", "Here is a passage on goats"
    sound = rows_with(lambda n: [f"{n} goats climb"])
    with_label = rows_with(lambda n: [label, other])
    assert flags_of(tmp_path, with_label, sound, name="preamble") == [{label, other}, set()]
    in_style = rows_with(lambda n: [f"{n} goats climb"], lambda n: [f"Passage {n}: the sea"])
    assert flags_of(tmp_path, with_label, in_style, name="preamble") == [{other}, set()]


OPENING = "goats of the high valley"


def test_a_planted_shared_opening_is_flagged(tmp_path):
    rows = rows_with(lambda n: [f"Goats of the high valley, {n} of them", f"{n} rivers flow on"])
    (flagged,) = flags_of(tmp_path, rows, name="shared_opening")
    assert flagged == {f"Goats of the high valley, {n} of them" for n in range(20)}
    assert len({*openings_of([*flagged, OPENING]).opening.tolist()}) == 1


def test_a_shared_opening_of_a_script_without_spaces_has_eight_characters(tmp_path):
    rows = rows_with(
        lambda n: [f"山谷里的山羊，都在{n}爬山", f"河流{n}向东流入大海之中"], lambda n: [f"答案{n}在城市的东边附近"]
    )
    (flagged,) = flags_of(tmp_path, rows, name="shared_opening")
    assert flagged == {f"山谷里的山羊，都在{n}爬山" for n in range(20)}


@pytest.mark.parametrize(
    ("n_texts", "n_queries", "n_other", "flagged"),
    [
        (5, 5, 100, True),
        (4, 4, 100, False),  # texts
        (6, 3, 100, True),
        (6, 2, 100, False),  # queries
        (6, 6, 594, True),
        (6, 6, 595, False),  # 1 % of the source
    ],
)
def test_each_bound_of_a_shared_opening(tmp_path, n_texts, n_queries, n_other, flagged):
    opened = [[] for _ in range(n_queries)]
    for n in range(n_texts):
        opened[n % n_queries].append(f"{OPENING} number {n}")
    others = [f"{n} rivers flow to the sea" for n in range(n_other)]
    answers = [f"answer {n} is on the other page" for n in range(600)]
    rows = [(f"query {n}", [f"first answer {n}"], texts) for n, texts in enumerate(opened)]
    rows.append(("another query", answers, others))
    (found,) = flags_of(tmp_path, rows, name="shared_opening")
    assert found == ({text for texts in opened for text in texts} if flagged else set())


@pytest.mark.parametrize(("n_positive", "flagged"), [(8, True), (9, False)])
def test_five_times_the_share_of_the_positives(tmp_path, n_positive, flagged):
    """20 of 40 negatives against 8 or 9 of 80 positives."""

    def positives(n):
        return [f"{OPENING} {n} {m}" if 4 * n + m < n_positive else f"{n} {m} is the right answer" for m in range(4)]

    rows = rows_with(lambda n: [f"{OPENING} negative {n}", f"{n} rivers flow on"], positives)
    (found,) = flags_of(tmp_path, rows, name="shared_opening")
    assert bool(found) == flagged


def test_few_positives_without_the_opening_say_nothing(tmp_path):
    """8 of 200 negatives and none of 20 positives: 0.8 were expected, and none is no surprise."""
    rows = rows_with(lambda n: [f"{n} {m} rivers flow" for m in range(9)] + ([f"{OPENING} {n}"] if n < 8 else []))
    assert flags_of(tmp_path, rows, name="shared_opening") == [set()]
    many = [("more", [f"answer {n} is on the page" for n in range(200)], ["a river flows"])]
    assert len(flags_of(tmp_path, rows, many, name="shared_opening")[0]) == 8


def test_the_chance_is_the_chernoff_bound_of_a_poisson_count():
    n, expected = np.array([0.0, 1, 3, 8, 0]), np.array([4.7, 9.0, 3.0, 2.0, 0.0])
    bound = chance_of_fewer(n, expected)
    exact = [np.exp(-4.7), np.exp(-9) * 10]
    assert (bound[:2] >= exact).all()
    assert bound[0] == pytest.approx(exact[0])
    assert bound[0] < SHARED_CHANCE < bound[2]
    assert bound[2:].tolist() == [1, 1, 1]


def test_many_copies_of_one_text_are_not_a_shared_opening(tmp_path):
    rows = rows_with(lambda n: [f"{OPENING}, always the same", f"{n} rivers flow to the sea"])
    assert flags_of(tmp_path, rows, name="shared_opening") == [set()]


def test_the_order_of_rows_and_sources_changes_nothing(tmp_path):
    mixed = rows_with(
        lambda n: [f"{OPENING} {n}", f"{n} rivers flow on", f"Hard negative {n % 3}: goats", "Passage: x"]
    )
    other = rows_with(lambda n: [f"{n} goats climb"], lambda n: ["Passage: the sea", f"answer {n} on this page"])
    shuffled = random.Random(1).sample(mixed, len(mixed))
    for name in ("preamble", "shared_opening"):
        first = flags_of(tmp_path, mixed, other, name=name)
        assert first[0]
        assert flags_of(tmp_path, other, shuffled, name=name) == first[::-1]


@pytest.mark.parametrize(
    ("text", "opening", "other"),
    [
        ("  The “quick” brown fox — jumps over", "the quick brown fox jumps", "the quick brown jumps fox"),
        ("ＴＨＥ Quick brown fox jumps", "the quick brown fox jumps", "the quick brown fox jumped"),
        ("नदी के उस पार की पहाड़ी पर", "नदी के उस पार की", "नद के उस पार की"),  # marks stay in their words
        ("山谷里的山羊，都在爬山", "山谷里的山羊都在", "山谷里的山羊都爬"),
        ("ab 山谷里的山羊，都在爬山", "ab山谷里的山羊", "ba山谷里的山羊"),
    ],
)
def test_openings_of_texts(text, opening, other):
    assert len({ABSENT_KEY, *openings_of([text, opening]).opening.tolist()}) == 2
    assert len({ABSENT_KEY, *openings_of([text, other]).opening.tolist()}) == 3


def test_short_texts_have_no_opening():
    assert openings_of(["", "...", "four words are few", "山羊爬山"]).opening.tolist() == [ABSENT_KEY] * 4


def test_without_sources_there_are_no_flags():
    assert opening_flags(openings_of([]), []) == []
