"""The lexical gate on other scripts is meaningful under some offered tokenizer, or reported as inactive."""

from __future__ import annotations

import json

import pytest

from secid.data import resolve_sources
from secid.progress import Silent
from secid.settings import resolve
from secid.study.score import score_sources
from tests.fake_encoder import HashEncoder

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
    rows = [{"query": f"{query} {n}", "pos": [positive], "neg": [negative]} for n in range(6)]
    path = folder / "source.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    resolved = resolve({"cache": False, "controls": "none", **settings}, environment={}, directory=folder)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return score_sources(
        resolve_sources([str(path)], resolved.values), encoder or HashEncoder(), resolved, work, Silent()
    ).run


@pytest.mark.parametrize("script", TEXTS)
def test_the_positive_is_covered_more_than_a_stranger_under_multilingual(script, tmp_path):
    source = run_of(TEXTS[script], tmp_path, tokenizer="multilingual").sources[0]
    assert source.positive_coverage_mean >= 0.05
    assert source.positive_coverage_mean > source.coverage_mean


@pytest.mark.parametrize("script", ["chinese", "japanese"])
def test_an_inactive_gate_is_reported_with_the_tokenizer_that_helps(script, tmp_path):
    run = run_of(TEXTS[script], tmp_path)
    assert run.sources[0].positive_coverage_mean < 0.05
    assert len(run.warnings) == 1
    assert "the lexical gate is inactive" in run.warnings[0]
    assert "--tokenizer " in run.warnings[0]


def test_where_no_tokenizer_helps_the_warning_says_so(tmp_path):
    run = run_of(("abc def", "一二三", "四五六"), tmp_path)
    assert "no offered tokenizer lifts the coverage of positives to 0.05" in run.warnings[0]


class Characters(HashEncoder):
    """An encoder whose pieces are single characters."""

    def word_pieces(self, texts):
        return [[ord(character) for character in text] for text in texts]


def test_the_encoders_own_pieces_are_offered_too(tmp_path):
    # one character a query: no pair of it, nor any window of three, is in the positive
    (said,) = run_of(("猫", "黑猫在家", "小狗"), tmp_path, encoder=Characters()).warnings
    assert said.startswith("source: use --tokenizer wordpieces, it lifts the coverage of positives to ")


def test_an_active_gate_gives_no_warning(tmp_path):
    assert run_of(TEXTS["german"], tmp_path).warnings == ()
