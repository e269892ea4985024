"""The lexical gate on other scripts is meaningful under some offered tokenizer, or reported as inactive."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pytest

from secid.pages.statuses import warning_sentences
from secid.pool import SPLITTERS
from secid.pool.tokens import fault
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results import RunWarning
from secid.settings import resolve
from tests.fake_encoder import HashEncoder
from tests.scored import score_sources
from tests.snapshots import situations

TEXTS = {
    "chinese": ("怎样煮米饭", "煮米饭的时候先洗米再加水", "火车站在城市的东边"),
    "japanese": ("電車の時刻を調べる", "電車の時刻は駅の掲示板で調べることができます", "猫は窓のそばで眠っている"),
    "thai": ("วิธีหุงข้าว", "การหุงข้าวเริ่มจากล้างข้าวแล้วเติมน้ำ", "สถานีรถไฟอยู่ทางตะวันออก"),
    "arabic": ("كيف أطبخ الأرز", "لكي أطبخ الأرز أغسله ثم أضيف الماء", "محطة القطار في شرق المدينة"),
    "hindi": ("चावल कैसे पकाएं", "चावल पकाने से पहले चावल धोएं", "रेलवे स्टेशन शहर के पूर्व में है"),
    "german": ("Wie kocht man Reis", "Man kocht Reis in Wasser", "Der Bahnhof liegt im Osten"),
    "code": ("sort list by key", "def sort_by(list, key): return sorted(list, key=key)", "import os; os.getcwd()"),
}


def run_of(texts, folder, encoder=None, **settings):
    query, positive, negative = texts
    return run_of_rows([(f"{query} {n}", positive, negative) for n in range(6)], folder, encoder, **settings)


def run_of_rows(triplets, folder, encoder=None, **settings):
    rows = [(query, [positive], [negative]) for query, positive, negative in triplets]
    return run_of_lists(rows, folder, encoder, **settings)


def run_of_lists(lists, folder, encoder=None, **settings):
    rows = [{"query": query, "pos": positives, "neg": negatives} for query, positives, negatives in lists]
    folder.mkdir(exist_ok=True)
    path = folder / "source.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    given = {"cache": False, "controls": "none", "tokenizer": "alphanumeric", **settings}
    resolved = resolve(given, environment={}, directory=folder)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return score_sources(resolve_sources([str(path)]), encoder or HashEncoder(), resolved, work, Silent()).run


@pytest.mark.parametrize("script", TEXTS)
def test_the_positive_is_covered_more_than_a_stranger_under_multilingual(script, tmp_path):
    source = run_of(TEXTS[script], tmp_path, tokenizer="multilingual").sources[0]
    assert source.score.positive_coverage_mean >= 0.05
    assert source.score.positive_coverage_mean > source.score.coverage_mean


@pytest.mark.parametrize("script", ["chinese", "thai", "hindi", "german"])
def test_the_tokenizer_of_a_script_is_chosen_unless_one_is_set(script, tmp_path):
    run = run_of(TEXTS[script], tmp_path, tokenizer=None)
    expected = ("alphanumeric", "default") if script == "german" else ("multilingual", "automatic")
    assert (*run.settings["tokenizer"].values(),) == expected
    assert run.idf.tokenizer == expected[0]
    assert not {item.kind for item in run.warnings} & {"misread_words", "inactive_lexical_gate"}
    kept = run_of(TEXTS[script], tmp_path, tokenizer="alphanumeric")
    assert (*kept.settings["tokenizer"].values(),) == ("alphanumeric", "flag")


@pytest.mark.parametrize("script", ["chinese", "japanese"])
def test_an_inactive_gate_is_reported_with_the_tokenizer_that_helps(script, tmp_path):
    run = run_of(TEXTS[script], tmp_path)
    assert run.sources[0].score.positive_coverage_mean < 0.05
    assert len(run.warnings) == 1
    assert advised(run.warnings[0]) == "multilingual"


@pytest.mark.parametrize("policy", ["first", "all"])
def test_the_coverage_that_another_tokenizer_reaches_is_a_mean_over_negatives(policy, tmp_path):
    """A record of three negatives counts three times, whatever the number of its positives."""
    query, positive, negative = TEXTS["chinese"]
    rows = [(query, [positive, "无关的文字"], [negative]), (f"{query}吗", ["火车站"], [negative, "猫在家", "狗在家"])]
    other = run_of_lists(rows, tmp_path / "other", tokenizer="multilingual", positives=policy).sources[0]
    run = run_of_lists(rows, tmp_path / "own", positives=policy)
    warning = next(item for item in run.warnings if item.kind == "inactive_lexical_gate")
    assert warning.values["best_positives"] == pytest.approx(other.score.positive_coverage_mean)
    assert 0.05 < other.score.positive_coverage_mean < 0.5


def test_where_no_tokenizer_helps_the_warning_says_so(tmp_path):
    (warning,) = run_of(UNHELPED, tmp_path).warnings
    assert advised(warning) is None
    assert warning.values["best_positives"] < 0.05


UNHELPED = ("abc def", "一二三", "四五六")
PIECES_ALONE = ("ab cd", "xaby zcdx", "ef")
"""Neither a word nor a window of three characters of the query is in the positive."""
DECOMPOSED = [unicodedata.normalize("NFD", text) for text in ("wie schön ist es", "es ist schön hier", "die Straße")]


def advised(*warnings: RunWarning) -> str | None:
    """The tokenizer that the first of these warnings with any advises."""
    return next((item.values["best"] for item in warnings if item.values.get("helps", "best" in item.values)), None)


class Characters(HashEncoder):
    """An encoder whose pieces are single characters."""

    def word_pieces(self, texts):
        return np.array([*map(ord, "".join(texts))], np.int64), np.array([*map(len, texts)])


def test_the_encoders_own_pieces_are_offered_too(tmp_path):
    (warning,) = run_of(PIECES_ALONE, tmp_path, encoder=Characters()).warnings
    assert advised(warning) == "wordpieces"


def test_a_tokenizer_that_cuts_words_is_never_advised_though_it_covers_most(tmp_path):
    """Tamil words whose endings differ: single consonants meet in any two texts, and lead to no other tokenizer."""
    texts = ("சென்னை எங்கே", "சென்னையில் கடல் உள்ளது", "அரிசியைக் கழுவவும்")
    advice = {name: advised(*run_of(texts, tmp_path, tokenizer=name).warnings) for name in SPLITTERS}
    assert set(advice.values()) <= {"multilingual", "trigrams", None}
    assert advice["multilingual"] == "trigrams"
    assert advice["trigrams"] is None  # the end of the way


def test_a_run_is_advised_one_tokenizer_and_multilingual_where_it_helps(tmp_path):
    """The encoder's own pieces cover more of both positives, and of negatives too."""
    paths = []
    for script in ("chinese", "japanese"):
        query, positive, negative = TEXTS[script]
        rows = [{"query": f"{query} {n}", "pos": [positive], "neg": [negative]} for n in range(6)]
        paths.append(tmp_path / f"{script}.jsonl")
        paths[-1].write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    given = {"cache": False, "controls": "none", "tokenizer": "alphanumeric"}
    resolved = resolve(given, environment={}, directory=tmp_path)
    (tmp_path / "work").mkdir()
    sources = resolve_sources([str(path) for path in paths])
    warnings = [
        item
        for item in score_sources(sources, Characters(), resolved, tmp_path / "work", Silent()).run.warnings
        if item.kind == "inactive_lexical_gate"
    ]
    assert [advised(item) for item in warnings] == ["multilingual"] * 2
    assert all(item.values["best_negatives"] < 0.005 for item in warnings)


@pytest.mark.parametrize("script", ["german", "code", "arabic"])
def test_an_active_gate_gives_no_warning(script, tmp_path):
    assert run_of(TEXTS[script], tmp_path).warnings == ()


@pytest.mark.parametrize(
    ("script", "tokenizer"), [("hindi", "alphanumeric"), ("hindi", "alphanumeric2"), ("thai", "alphanumeric")]
)
def test_a_tokenizer_that_misreads_words_is_named_though_the_gate_is_active(script, tokenizer, tmp_path):
    run = run_of(TEXTS[script], tmp_path, tokenizer=tokenizer)
    assert run.sources[0].score.positive_coverage_mean >= 0.05
    (warning,) = run.warnings
    assert advised(warning) == "multilingual"
    assert (warning.kind, warning.values["tokenizer"]) == ("misread_words", tokenizer)
    assert warning.values["sources"] == {"source": 1.0}
    assert run_of(TEXTS[script], tmp_path, tokenizer="multilingual").warnings == ()


def test_decomposed_letters_are_named(tmp_path):
    (warning,) = run_of(DECOMPOSED, tmp_path, tokenizer="whitespace").warnings
    assert warning.values["effect"] == "decomposed"
    assert warning.values["tokenizer"] == "whitespace"


def test_the_wording_of_the_warnings(tmp_path, snapshot):
    texts = {
        "an inactive gate": run_of(TEXTS["chinese"], tmp_path),
        "no tokenizer helps": run_of(UNHELPED, tmp_path),
        "the encoder's pieces help": run_of(PIECES_ALONE, tmp_path, encoder=Characters()),
        "words are cut": run_of(TEXTS["hindi"], tmp_path, tokenizer="alphanumeric"),
        "decomposed letters": run_of(DECOMPOSED, tmp_path, tokenizer="whitespace"),
    }
    snapshot("lexical-gate.txt", situations({name: warning_sentences(run) for name, run in texts.items()}))


def test_bm25_of_the_pool_finds_texts_of_scripts_without_spaces(tmp_path):
    query, positive, _ = TEXTS["chinese"]
    run = run_of((query, positive, "她不想煮米饭"), tmp_path, controls="bm25_pool")
    assert [control.n_triplets for control in run.controls] == [6]


def test_bm25_of_the_pool_answers_queries_of_one_character(tmp_path):
    """Documents hold their single characters for them, as passages do."""

    def found_for(rows):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        run = run_of_rows(rows, folder, controls="bm25_pool")
        reasons = {name: why for name, why in run.not_evaluated.items() if name.startswith("control")}
        return [control.n_triplets for control in run.controls], reasons

    assert found_for([(char, f"黑{char}在家", f"小{char}不在家") for char in "猫狗鸟"]) == ([3], {})
    counts, reasons = found_for([("ab", "ab cd", "ef"), ("gh", "gh ij", "kl")])
    assert counts == []
    assert list(reasons) == ["control bm25 pool"]


def test_what_a_tokenizer_does_to_a_text():
    split = SPLITTERS["alphanumeric"]
    assert fault("हिन्दी में लिखा गया", split) == "cut"
    assert fault("राम का घर नदी के पास है", split) == "cut"  # की, का and के become क, one token each
    assert fault("की का के", SPLITTERS["alphanumeric2"]) == "cut"  # and none here
    assert fault("我爱北京天安门", split) == "fused"
    for text in ("မြန်မာစာ", "ភាសាខ្មែរ"):
        assert fault(text, split) == "cut"
        assert fault(text, SPLITTERS["whitespace"]) == "fused"
    assert fault("５ｋｍ x² ａｂ", split) is None  # other forms of letters, which no mark parts
    assert fault("北京", split) is None  # a pair of characters is one token either way
    assert fault("the city of 北京天安门 and its long history", split) is None
    assert fault("naïve café", split) is None
    assert fault(unicodedata.normalize("NFD", "a naïve old café in town"), split) == "decomposed"
    assert fault("5 Ω at 20 Å", split) is None  # signs that have no marks, in whatever form
    assert fault("हिन्दी में", SPLITTERS["whitespace"]) is None


def test_a_query_of_one_character_meets_the_passages_that_hold_it(tmp_path):
    source = run_of(("猫", "黑猫在家", "小狗在家"), tmp_path, tokenizer="multilingual").sources[0]
    assert source.score.positive_coverage_mean > 2 * source.score.coverage_mean
    examples = [item for finding in source.findings for item in finding.examples]
    assert examples
    assert {term for item in examples for term, _ in item.matched_terms} == set()  # nothing of 小狗在家


def test_longer_queries_are_covered_only_by_pairs(tmp_path):
    whole = run_of(("黑猫", "黑猫在家", "猫黑在家"), tmp_path, tokenizer="multilingual", idf="uniform").sources[0]
    means = whole.score.positive_coverage_mean, whole.score.coverage_mean
    assert means == (0.5, 0.0)  # the number of the query is the rest


def test_composed_and_decomposed_letters_meet_under_multilingual(tmp_path):
    texts = ("wie schön", unicodedata.normalize("NFD", "wie schön es ist"), "etwas anderes")
    found = run_of(texts, tmp_path, tokenizer="multilingual", idf="uniform").sources[0]
    assert found.score.positive_coverage_mean == pytest.approx(2 / 3)
