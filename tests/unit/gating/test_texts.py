"""Known positives in disguise, repeats, preambles, nothing; and honest negatives left alone."""

from __future__ import annotations

import random
import unicodedata

import numpy as np
import pytest

from secid.gating.runs import NO_POSITIVES, restored, stored
from secid.gating.texts import Texts, fetch
from secid.records import Defect, Record

WORDS = [f"word{n}" for n in range(2000)]


def passage(seed: int, n: int = 60) -> str:
    draw = random.Random(seed)
    title = " ".join(draw.choices(WORDS, k=6)).title()
    return f"{title}. " + " ".join(draw.choices(WORDS, k=n)) + "."


def records(*negatives: str, n: int = 30) -> list[Record | Defect]:
    """One record with these negatives among others with none of interest."""
    rows: list[Record | Defect] = [
        Record(f"query {i}", (passage(i),), (passage(1000 + i), passage(2000 + i)), "own.jsonl", i + 1)
        for i in range(n)
    ]
    rows[0] = Record("query 0", (passage(0), passage(500)), negatives, "own.jsonl", 1)
    return rows


def flagged(rows, known=NO_POSITIVES) -> dict[str, int]:
    found = Texts(lambda: rows).findings(known)
    return {name: count for name, count in found[""].flagged.items() if count}


def test_honest_negatives_are_left_alone():
    assert flagged(records(passage(7000), passage(7001))) == {}


@pytest.mark.parametrize("which", [0, 500])
@pytest.mark.parametrize(
    "alter",
    [
        lambda text: text,
        str.upper,
        lambda text: "  ".join(text.split()) + "\n",
        lambda text: text.split(". ", 1)[1],
        lambda text: " ".join(text.split()[: len(text.split()) // 2]),
        lambda text: "A new title for it. " + text,
        lambda text: text.replace(".", " !"),
    ],
    ids=["whole", "capitals", "spaces", "no title", "cut", "title added", "marks"],
)
def test_a_known_positive_is_found_however_it_is_altered(which, alter):
    assert flagged(records(alter(passage(which)), passage(7001))) == {"known_positive": 1}


def test_the_positive_of_another_query_is_no_known_positive():
    assert flagged(records(passage(3), passage(7001))) == {}


def test_windows_that_overlap_by_half_are_no_copies():
    words = passage(0).split()
    window = " ".join([*words[len(words) // 2 :], *passage(9000).split()[: len(words) // 2]])
    assert flagged(records(window, passage(7001))) == {}


def test_short_texts_count_only_when_their_words_are_equal():
    rows = [Record("q", ("Deoxyribonucleic acid",), ("DEOXYRIBONUCLEIC  ACID!", "acid rain"), "a", 1)]
    assert flagged(rows) == {"known_positive": 1}


def test_positives_that_only_the_baseline_knows():
    earlier = [Record("query 0", (passage(800),), (passage(801),), "old.jsonl", 1)]
    positives = Texts(lambda: earlier).positives
    arrays = stored(positives.values())
    known = restored(arrays)
    rows = records(passage(800).upper(), passage(800).split(". ", 1)[1])
    assert flagged(rows) == {}
    assert flagged(rows, known) == {"known_positive": 2}
    again = stored([known])
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


def test_no_positives_are_stored_and_restored():
    assert restored(stored([])).runs == {}


def test_duplicates_in_other_words_only():
    text = passage(7000)
    assert flagged(records(text, text.upper(), passage(7001))) == {"duplicate": 1}


def test_records_of_one_query_may_share_their_negatives():
    rows = [Record("q", (passage(i),), (passage(50), passage(51)), "a", i) for i in range(2)]
    assert flagged(rows) == {}


def test_a_default_answer_is_overused():
    rows = [Record(f"q {i}", (passage(i),), ("I found nothing that fits", passage(100 + i)), "a", i) for i in range(40)]
    assert flagged(rows) == {"overused": 40}
    assert flagged(rows[:20]) == {}


@pytest.mark.parametrize("text", ["UK", "42", "北京", "나무", "नदी"])
def test_a_word_of_two_letters_is_a_text(text):
    assert flagged(records(text, passage(7001))) == {}


@pytest.mark.parametrize("text", ["", "  ", "n/a", "None", "[removed]", "-", "x", "&nbsp;", "\u200b", "ｎ／ａ"])
def test_nothing_is_empty(text):
    assert flagged(records(text, passage(7001))) == {"empty": 1}


def test_empty_negatives_that_the_reader_left_out_count():
    rows = records(passage(7000))
    rows[1] = rows[1]._replace(dropped=(("empty_negative", 2),))
    rows.append(Defect("empty_negative", "own.jsonl", 99, "", "", query="query 99", dropped=(("empty_negative", 4),)))
    rows.append(Defect("empty_negative", "own.jsonl", 100, "", "", query="query 0", dropped=(("empty_negative", 1),)))
    found = Texts(lambda: rows).findings()[""]
    assert found.flagged["empty"] == 2 + 4 + 1
    assert found.n_negatives == 1 + 29 * 2 + 7
    assert len(found.shares["empty"].queries) == 30 + 1  # each under its own query


def test_an_empty_negative_counts_for_its_own_split_alone():
    rows = [Record("q", (passage(0),), (passage(5),), "a", 1, name) for name in ("one", "two")]
    rows.append(Defect("empty_negative", "a", 2, "", "two", query="r", dropped=(("empty_negative", 3),)))
    rows.append(Defect("broken_line", "a", 3, "cut"))
    assert {name: item.n_negatives for name, item in Texts(lambda: rows).findings().items()} == {"one": 1, "two": 4}


def test_the_rows_of_empty_negatives_show_no_sound_one():
    rows = records(passage(7000))
    rows[0] = rows[0]._replace(dropped=(("empty_negative", 1),))
    rows[1] = Defect("empty_negative", "own.jsonl", 2, "", "", query="query 1", dropped=(("empty_negative", 2),))
    places = Texts(lambda: rows).findings()[""].places["empty"]
    texts = fetch(lambda: rows, {("", place) for place in places})
    assert [texts["", place] for place in places] == [("query 0", ""), ("query 1", ""), ("query 1", "")]


def test_an_unlisted_opening_is_found_by_being_common():
    rows = [
        Record(f"q {i}", (passage(i),), (f"Please find some text: {passage(100 + i)}", passage(300 + i)), "a", i)
        for i in range(40)
    ]
    assert flagged(rows) == {"preamble": 40}


def test_a_house_style_is_no_preamble():
    rows = [
        Record(
            f"q {i}",
            (f"The present invention relates {passage(i)}",),
            (f"The present invention relates {passage(99 + i)}",),
            "a",
            i,
        )
        for i in range(40)
    ]
    assert flagged(rows) == {}


def test_splits_are_told_apart():
    rows = [
        Record("q", (passage(0),), (passage(0),), "a", 1, "one"),
        Record("q", (passage(0),), (passage(5),), "a", 1, "two"),
    ]
    texts = Texts(lambda: rows)
    assert {name: item.flagged["known_positive"] for name, item in texts.findings().items()} == {"one": 1, "two": 0}
    assert texts.positives.keys() == {"one", "two"}


def test_rows_are_found_again():
    rows = records(passage(7000), passage(0).upper())
    found = Texts(lambda: rows).findings()
    place = found[""].places["known_positive"][0]
    assert place == ("own.jsonl", 1, 1)
    texts = fetch(lambda: rows, {("", place), ("", ("own.jsonl", 1, 9))})
    assert texts == {("", place): ("query 0", passage(0).upper())}


SPELT = " ".join(f"Élan{chr(97 + n)} naïve{n} office{n} café" for n in range(12))


@pytest.mark.parametrize(
    "alter",
    [
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: text.replace("a", "a\u00ad"),
        lambda text: text.replace("f", "f\u200b"),
        lambda text: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text),
        lambda text: text.replace(" ", "&nbsp;"),
        lambda text: text.replace("é", "&eacute;"),
    ],
    ids=["decomposed", "soft hyphens", "zero width", "full width", "entities", "named letters"],
)
def test_a_known_positive_is_found_however_it_is_spelt(alter):
    assert alter(SPELT) != SPELT
    found = Texts(lambda: [Record("q", (SPELT,), (alter(SPELT), passage(1)), "a.jsonl", 1)]).findings()
    assert found[""].flagged["known_positive"] == 1


def chinese(seed: int, n: int = 60) -> str:
    draw = random.Random(seed)
    return "".join(chr(draw.randrange(0x4E00, 0x5600)) for _ in range(n)) + "。"


def test_a_positive_in_a_script_without_spaces_is_found_when_cut():
    positive = chinese(0)
    rows = [Record("q", (positive,), (positive[:30], positive[20:], chinese(1), chinese(2)[:30]), "a.jsonl", 1)]
    known = Texts(lambda: rows).positives
    assert Texts(lambda: rows).findings()[""].places["known_positive"] == [("a.jsonl", 1, 0), ("a.jsonl", 1, 1)]
    later = [Record("q", (chinese(9),), (positive[:45], chinese(1)), "b.jsonl", 1)]
    kept = restored(stored(known.values()))
    assert Texts(lambda: later).findings(kept)[""].flagged["known_positive"] == 1


def test_a_short_positive_is_found_when_cut_in_half():
    positive = " ".join(f"word{n}" for n in range(12))
    half, question = " ".join(positive.split()[:6]), " ".join(positive.split()[:5])
    rows = [Record("q", (positive,), (half, question, passage(1)), "a.jsonl", 1)]
    assert Texts(lambda: rows).findings()[""].places["known_positive"] == [("a.jsonl", 1, 0)]


def test_a_short_positive_may_be_the_start_of_another_text():
    rows = [Record("q", ("how do I learn to code",), ("how do I learn to code in a week",), "a.jsonl", 1)]
    assert Texts(lambda: rows).findings()[""].flagged["known_positive"] == 0
