"""Other languages and wrong encodings: planted ones are flagged, sound passages are not (METHOD 14)."""

from __future__ import annotations

import errno
import random
from itertools import permutations
from types import SimpleNamespace
from unicodedata import normalize

import numpy as np
import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from secid.findings import languages
from secid.findings.languages import FIRST_CHARACTERS, LANGUAGES, is_mojibake, language_numbers, mojibake_flags
from secid.pool.plan import bit_of
from secid.pool.texts import MIN_FOR_RE2, Packed
from tests.language_model import library_arrays
from tests.unit.findings.planned import pool_of
from tests.unit.findings.pooled import text_masks

TEXTS = {
    "en": ["The goats climb the steep rocks above the valley, where the grass stays green until late in the autumn.",
        "Trains leave the old station every hour and reach the harbour before the last ferry sails – usually at nine.",
        "The café’s owner was naïve about prices, and closed it after the first winter."],
    "de": ["Die Ziegen klettern über die steilen Felsen oberhalb des Tals, wo das Gras bis in den Herbst grün bleibt.",
        "Vom alten Bahnhof fährt jede Stunde ein Zug zum Hafen, größtenteils pünktlich für die letzte Fähre.",
        "Der Käse reift sechs Wochen in kühlen Höhlen und schmeckt danach würzig."],
    "fr": ["Les chèvres grimpent sur les rochers escarpés de la vallée, où l'herbe reste verte jusqu'en automne.",
        "Un train part toutes les heures de l'ancienne gare et arrive au port avant le dernier bac, même l'été.",
        "Le fromage mûrit six semaines dans des caves fraîches et devient très épicé."],
    "es": ["Las cabras trepan por las rocas empinadas sobre el valle, donde la hierba sigue verde hasta el otoño.",
        "Cada hora sale un tren de la antigua estación y llega al puerto antes de que zarpe el último barco, según él.",
        "El queso madura seis semanas en cuevas frías y después está más picante."],
    "ru": ["Козы поднимаются по крутым скалам над долиной, где трава остаётся зелёной до поздней осени.",
        "Каждый час от старого вокзала отправляется поезд и приходит в порт до отплытия последнего парома.",
        "Сыр зреет шесть недель в прохладных пещерах и становится острым."],
    "ar": ["تتسلق الماعز الصخور الشديدة الانحدار فوق الوادي حيث يبقى العشب أخضر حتى أواخر الخريف.",
        "يغادر قطار المحطة القديمة كل ساعة ويصل إلى الميناء قبل أن تبحر العبارة الأخيرة.",
        "ينضج الجبن ستة أسابيع في كهوف باردة ثم يصبح طعمه حارا."],
    "hi": ["बकरियाँ घाटी के ऊपर खड़ी चट्टानों पर चढ़ती हैं, जहाँ घास पतझड़ तक हरी रहती है और पानी मिलता है।",
        "पुराने स्टेशन से हर घंटे एक रेलगाड़ी चलती है और आखिरी नाव के निकलने से पहले बंदरगाह पहुँच जाती है।",
        "पनीर छह सप्ताह तक ठंडी गुफाओं में पकता है और उसके बाद उसका स्वाद तीखा हो जाता है।"],
    "zh": ["山羊爬上山谷上方陡峭的岩石，那里的草一直绿到深秋，牧羊人在那里过夏天。",
        "每小时都有一列火车从老车站出发，在最后一班渡轮开航之前到达港口。",
        "奶酪在凉爽的山洞里放置六个星期，之后味道会变得浓烈。"],
    "ja": ["ヤギは谷の上の険しい岩を登り、そこでは草が晩秋まで青々としている。",
        "古い駅からは一時間ごとに列車が出て、最後の船が出る前に港に着く。",
        "チーズは涼しい洞窟で六週間熟成され、その後は味が濃くなる。"],
    "ko": ["염소들은 계곡 위의 가파른 바위를 오르며, 그곳의 풀은 늦가을까지 푸르다.",
        "옛 역에서는 매시간 기차가 출발하여 마지막 배가 떠나기 전에 항구에 도착한다.",
        "치즈는 서늘한 동굴에서 여섯 주 동안 숙성된 뒤 맛이 진해진다."],
    "th": ["แพะปีนขึ้นไปบนโขดหินสูงชันเหนือหุบเขา ซึ่งหญ้ายังเขียวอยู่จนถึงปลายฤดูใบไม้ร่วง",
        "รถไฟออกจากสถานีเก่าทุกชั่วโมงและไปถึงท่าเรือก่อนที่เรือลำสุดท้ายจะออก",
        "ชีสบ่มอยู่ในถ้ำเย็นเป็นเวลาหกสัปดาห์ แล้วรสชาติจะเข้มข้นขึ้น"],
    "vi": ["Những con dê leo lên các vách đá dựng đứng phía trên thung lũng, nơi cỏ vẫn xanh cho đến cuối mùa thu.",
        "Mỗi giờ có một chuyến tàu rời nhà ga cũ và đến bến cảng trước khi chuyến phà cuối cùng khởi hành.",
        "Phô mai được ủ sáu tuần trong hang mát và sau đó có vị đậm hơn."],
}  # fmt: skip
"""Written for these tests."""

UNDECIDED = [
    "", "42", "4.2 kg, 17:30, 2026-11-22", "x = [1, 2, 3]", "for i in range(10): x[i] += y[i] * 2",
    "def get(self, key): return self._d[key]", "SELECT * FROM t WHERE id = 7;", "Berlin", "J. R. R. Tolkien",
    "https://example.org/a?b=c", "BRCA1 TP53 EGFR KRAS", "…—!?", "ok",
]  # fmt: skip
"""Code, numbers and names belong to no language, or to any."""


def languages_of(texts):
    """Return the code of each text's language; None if it is uncertain."""
    return [
        None if number == languages.UNCERTAIN_LANGUAGE else LANGUAGES[number]
        for number in language_numbers(Packed.of(texts))
    ]


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_passage(language):
    assert languages_of(TEXTS[language]) == [language] * len(TEXTS[language])


@pytest.fixture(scope="module")
def library():
    """Return the library's classifier of single texts, which `language_numbers` reproduces."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    return identifier


def test_the_shipped_model_is_that_of_the_library():
    model, expected = languages._model(None), library_arrays()
    expected["row"] = expected["row"].astype(np.int64) << 8
    expected["language"] = np.append(np.arange(len(LANGUAGES)), expected.pop("extra"))
    assert vars(model).keys() == expected.keys()
    for name, array in vars(model).items():
        assert np.array_equal(array, expected[name]), name


def test_many_texts_at_once_have_the_languages_and_probabilities_of_the_library(library):
    generator = random.Random(0)
    texts = [text for some in TEXTS.values() for text in some] + UNDECIDED
    texts += [" ".join(generator.sample(texts, 3)) for _ in range(50)]
    texts += [text.upper() for text in texts] + [text[: generator.randrange(60)] for text in texts]
    texts += [
        "cafe\u0301 et the\u0301 glace\u0301", "Da je on to znao, ne bi to tako rekao.", "Да је он то знао.", "\0",
    ]  # fmt: skip
    heads = [normalize("NFC", text.lower() if text.isupper() else text).encode() for text in texts]
    numbers, probabilities = languages._model_of(LANGUAGES, None).classify(heads)
    names, expected = zip(*(library.classify(text) for text in texts), strict=True)
    assert probabilities == pytest.approx(expected, abs=2e-5)
    sure = [place for place, probability in enumerate(expected) if probability > 0.5]
    assert len(sure) > 100
    assert [LANGUAGES[numbers[place]] for place in sure] == [names[place] for place in sure]
    numbers, _ = languages._classified(heads, None)  # ASCII texts among the languages in Latin letters
    decided = [place for place, probability in enumerate(expected) if probability >= languages.MIN_CONFIDENCE]
    assert [LANGUAGES[numbers[place]] for place in decided] == [names[place] for place in decided]
    alone = [languages._model_of(LANGUAGES, None).classify([head]) for head in heads[:20]]
    assert [float(probability[0]) for _, probability in alone] == probabilities[:20].tolist()


def test_of_no_texts_there_are_no_languages():
    assert len(language_numbers(Packed.of([]))) == 0


def test_code_numbers_and_names_are_undecided():
    assert languages_of(UNDECIDED) == [None] * len(UNDECIDED)


def test_of_a_source_the_undecided_texts_have_no_language():
    texts = [*TEXTS["de"], *UNDECIDED[:2]]
    keys = np.arange(16 * len(texts), dtype=np.uint8).reshape(-1, 16)
    store = SimpleNamespace(keys=keys, packed_of=lambda ids: Packed.of([texts[number] for number in ids]))
    assert languages.languages_of(store, np.arange(len(texts)), 0).shares == {"de": 0.6, "": 0.4}


def test_functions_with_english_words_are_english_or_undecided():
    function = 'def sorted_keys(table):\n    """Return the keys of the table in order."""\n    return sorted(table)\n'
    assert languages_of([function])[0] in (None, "en")


def test_a_text_whose_start_says_nothing_is_read_on():
    numbers = "1.5 2.5 3.5 4.5 " * (FIRST_CHARACTERS // 16)
    assert languages_of([numbers, f"{numbers} {TEXTS['de'][0]} {TEXTS['de'][1]}"]) == [None, "de"]


def test_languages_are_the_librarys_and_none_is_a_variety_of_another():
    assert len(set(LANGUAGES)) == len(LANGUAGES)
    assert not {"wuu", "yue", "arz", "ary", "pcm", "nn", "ms"} & set(LANGUAGES)


def rows_of(pairs):
    """Return one record per pair of positive texts and negative texts."""
    return [(f"query {n}", positives, negatives) for n, (positives, negatives) in enumerate(pairs)]


def flags_of(folder, *sources, name):
    """Return the flagged (query, negative) pairs of each source."""
    with pool_of(folder, *sources) as plan:
        found = []
        for planned, mask in zip(plan.sources, text_masks(plan.queries, plan.passages, plan.sources), strict=True):
            flags = bit_of(mask, name)
            assert len(flags) == planned.n_triplets
            queries = plan.queries.take(planned.query[planned.triplet_record()])
            texts = plan.passages.take(planned.negatives)
            found.append({pair for pair, flag in zip(zip(queries, texts, strict=True), flags, strict=True) if flag})
    return found


def test_negatives_in_every_other_language_are_flagged_and_in_ones_own_none(tmp_path):
    """All pairs of twelve languages: recall 1, no false alarm."""
    rows = rows_of(([TEXTS[one][0]], [TEXTS[other][1], TEXTS[one][2]]) for one, other in permutations(TEXTS, 2))
    (flagged,) = flags_of(tmp_path, rows, name="other_language")
    assert flagged == {(query, negatives[0]) for query, _, negatives in rows}


def test_what_is_undecided_is_not_flagged(tmp_path):
    rows = rows_of([([TEXTS["de"][0]], [text for text in UNDECIDED if text]), (["42"], [TEXTS["de"][1]])])
    assert flags_of(tmp_path, rows, name="other_language") == [set()]


def test_a_record_with_positives_in_two_languages_allows_both(tmp_path):
    both = [TEXTS["de"][0], "17", TEXTS["fr"][0]]
    rows = rows_of([(both, [TEXTS["de"][1], TEXTS["fr"][1], TEXTS["en"][1]]), (both[:1], [TEXTS["fr"][1]])])
    (flagged,) = flags_of(tmp_path, rows, name="other_language")
    assert flagged == {("query 0", TEXTS["en"][1]), ("query 1", TEXTS["fr"][1])}


def wrongly(text: str, *encodings: str) -> str:
    """Return the text with its UTF-8 decoded in these wrong encodings, one after the other."""
    for encoding in encodings:
        text = text.encode("utf-8").decode(encoding, errors="ignore")
    return text


SPOILED = {
    "Latin-1": ("latin-1",),
    "Windows-1252": ("cp1252",),
    "twice": ("cp1252", "cp1252"),
}
FIVE = ("de", "fr", "ru", "hi", "zh")


@pytest.mark.parametrize("language", FIVE)
@pytest.mark.parametrize("spoiling", SPOILED)
def test_wrongly_decoded_texts_are_recognised(language, spoiling):
    texts = [wrongly(text, *SPOILED[spoiling]) for text in TEXTS[language]]
    assert [text for text in texts if not is_mojibake(text)] == []


@pytest.mark.parametrize(("language", "n"), [("ru", 3), ("hi", 3), ("zh", 3), ("de", 1), ("fr", 0)])
def test_of_texts_read_in_windows_1251_single_accents_are_missed(language, n):
    """The library takes "Гј" for "ü" only where others follow; a newer one that finds more is welcome."""
    assert sum(is_mojibake(wrongly(text, "cp1251")) for text in TEXTS[language]) >= n


@pytest.mark.parametrize("language", TEXTS)
def test_rightly_decoded_texts_are_not(language):
    assert [text for text in TEXTS[language] if is_mojibake(text)] == []


def test_many_texts_are_searched_with_re2_first_and_have_the_same_flags():
    sound = [text for some in TEXTS.values() for text in some]
    texts = sound + [wrongly(text, *encodings) for text in sound for encodings in SPOILED.values()]
    texts = [text for text in texts if not text.isascii()]
    n = 1 + MIN_FOR_RE2 // len(texts)
    flags = mojibake_flags(Packed.of(texts * n)).reshape(n, -1)
    assert (flags == [is_mojibake(text) for text in texts]).all()


def test_a_sound_passage_that_quotes_a_damaged_name_is_sound():
    quoted = f"{TEXTS['ru'][0]} {wrongly('Müller', 'latin-1')} {TEXTS['ru'][1]}"
    assert not is_mojibake(quoted)
    assert is_mojibake(f"The {wrongly('Müller', 'latin-1')} family kept goats.")  # nothing sound beyond ASCII


def test_damaged_negatives_are_flagged_whatever_the_positive_is(tmp_path):
    damaged = wrongly(TEXTS["de"][1], "latin-1")
    also_damaged = wrongly(TEXTS["de"][2], "cp1252")
    rows = rows_of([([TEXTS["de"][0]], [damaged, TEXTS["de"][2]]), ([also_damaged], [damaged])])
    assert flags_of(tmp_path, rows, name="mojibake") == [{("query 0", damaged), ("query 1", damaged)}]


def test_the_order_of_rows_and_sources_changes_nothing(tmp_path):
    generator = random.Random(0)
    texts = [text for some in TEXTS.values() for text in some] + [wrongly(text, "latin-1") for text in TEXTS["fr"]]
    sources = [rows_of(([generator.choice(texts)], generator.sample(texts, 6)) for _ in range(30)) for _ in range(2)]
    shuffled = [generator.sample(rows, len(rows)) for rows in sources]
    for name in ("other_language", "mojibake"):
        first = flags_of(tmp_path, *sources, name=name)
        assert all(first)
        assert flags_of(tmp_path, *reversed(shuffled), name=name) == first[::-1]


def test_damage_at_the_end_of_a_text_begins_behind_what_repairing_leaves():
    assert languages.damage_start("on the DÃƒ") == 9


def test_a_full_disk_keeps_the_number_of_its_error(tmp_path, monkeypatch):
    """NumPy reports a short write without a number, and secid's message for a full disk needs it."""

    def short_write(path, array):
        raise OSError("Not enough free space to write 8192 bytes")

    monkeypatch.setattr(languages.np, "save", short_write)
    with pytest.raises(OSError, match="No space left") as caught:
        languages.save_model(tmp_path)
    assert caught.value.errno == errno.ENOSPC
