"""Findings of `secid check` on sources with planted faults: exact counts, places, and silence on clean data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secid import api
from secid.errors import NothingToScoreError, UsageError
from secid.results.check import KINDS, Check, CheckedSource, failures, parse_limits
from tests.unit.scoring.made_rows import clean_rows, passage, write

ROOT = Path(__file__).resolve().parents[3]


def check_one(tmp_path: Path, rows: list[Any], **settings: Any) -> CheckedSource:
    return api.check([write(tmp_path / "own.jsonl", rows)], **settings).sources[0]


def flagged(source: CheckedSource) -> dict[str, int]:
    return {
        finding.name: finding.n for finding in source.findings if finding.n and finding.name != "lexical_gate_inactive"
    }


def test_a_clean_source_has_no_finding(tmp_path):
    source = check_one(tmp_path, clean_rows())
    assert flagged(source) == {}
    assert not any(finding.exceeded for finding in source.findings)
    assert (source.n_read, source.n_used, source.n_records, source.n_triplets) == (40, 40, 40, 120)
    assert source.negatives_per_query.median == 3
    assert source.positive_coverage_mean > 0.5


def test_labelled_pairs_count_as_the_rows_that_they_are(tmp_path):
    rows = [
        {"query": row["query"], "passage": text, "label": label}
        for row in clean_rows()
        for label, texts in ((1, row["pos"]), (0, row["neg"]))
        for text in texts
    ]
    rows[1]["passage"] = ""  # one of 160 rows; its query keeps two negatives
    rows[4]["label"] = 0  # a query without a positive: four rows
    source = check_one(tmp_path, rows)
    assert (source.n_read, source.n_used, source.n_records) == (160, 155, 39)
    assert source.skipped == {"empty_negative": 1, "no_positive": 4}
    bad = source.finding("malformed_rows")
    assert (bad.n, bad.fraction) == (5, 5 / 160)


def test_a_positive_among_the_negatives_is_found_but_for_case_and_spaces(tmp_path):
    rows = clean_rows()
    rows[4]["neg"].append(rows[4]["pos"][0])
    rows[7]["neg"].append(rows[7]["pos"][0].upper().replace(" ", "  "))
    found = check_one(tmp_path, rows).finding("negative_equals_positive")
    assert (found.n, found.fraction) == (2, pytest.approx(2 / 122))
    assert [example.line for example in found.examples] == [5, 8]
    assert "1 of them differ" in found.detail


def test_a_positive_of_another_source_is_found_with_its_place(tmp_path):
    rows, others = clean_rows(), clean_rows()
    others[3]["pos"] = ["the other answer to the question of that hall"]
    rows[3]["neg"][1] = "The other answer  to the question of that hall"
    run = api.check([write(tmp_path / "one.jsonl", rows), write(tmp_path / "two.jsonl", others)])
    found = run.sources[0].finding("negative_is_other_positive")
    assert found.n == 1
    assert found.examples[0].line == 4
    assert found.examples[0].detail.endswith(f"labelled positive at {tmp_path / 'two.jsonl'}:4")
    assert run.sources[1].finding("negative_is_other_positive").n == 0


def test_a_positive_of_another_query_is_no_fault(tmp_path):
    rows = clean_rows()
    rows[0]["neg"][0] = rows[1]["pos"][0]
    assert flagged(check_one(tmp_path, rows)) == {}


def test_copies_within_and_across_records(tmp_path):
    rows = clean_rows()
    rows[2]["neg"] += [rows[2]["neg"][0]] * 4 + [rows[2]["neg"][1].title()]
    rows.append({**rows[5], "pos": ["another answer about topic5 in hall5 indeed"]})
    source = check_one(tmp_path, rows)
    assert source.finding("duplicate_negative").n == 5
    assert source.finding("duplicate_negative").fraction == pytest.approx(5 / 128)
    assert source.finding("repeated_negative").n == 3


def test_short_and_empty_negatives(tmp_path):
    rows = clean_rows()
    rows[0]["neg"] = [".", "N/A", "  ", *rows[0]["neg"]]
    found = check_one(tmp_path, rows).finding("short_negative")
    assert found.n == 3
    assert "1 of them empty" in found.detail


@pytest.mark.parametrize("start", ["Sure, here is a passage: ", "Certainly! Here's the passage you asked for. "])
def test_a_generator_preamble_is_found(tmp_path, start):
    rows = clean_rows()
    rows[6]["neg"][2] = start + rows[6]["neg"][2]
    found = check_one(tmp_path, rows).finding("known_preamble")
    assert (found.n, found.exceeded) == (1, True)
    assert found.examples[0].line == 7


def opened(rows: list[dict[str, Any]], n: int, key: str = "neg") -> list[dict[str, Any]]:
    for row in rows[:n]:
        row[key][0] = f"In contrast to common belief, {row[key][0]}"
    return rows


def test_an_opening_shared_by_negatives_of_several_queries(tmp_path):
    found = check_one(tmp_path, opened(clean_rows(), 6)).finding("shared_opening")
    assert (found.n, found.exceeded) == (6, True)
    assert '"in contrast to common belief, …" 5.0%' in found.detail


def test_four_alike_are_chance_and_what_positives_share_is_style(tmp_path):
    assert check_one(tmp_path, opened(clean_rows(), 4)).finding("shared_opening").n == 0
    both = opened(opened(clean_rows(), 6), 6, "pos")
    assert check_one(tmp_path, both).finding("shared_opening").n == 0


def test_one_query_whose_subject_opens_many_passages_is_no_boilerplate(tmp_path):
    rows = clean_rows()
    rows[0]["neg"] = [f"The great works of somebody famous {passage(n)}" for n in range(8)]
    assert check_one(tmp_path, rows).finding("shared_opening").n == 0


def test_a_query_echoed(tmp_path):
    rows = clean_rows()
    rows[9]["query"] += " ?"
    rows[9]["neg"][0] = f"You ask: WHERE is topic9 kept in hall9  today? {passage(5)}"
    rows[10]["neg"][0] = f"today kept hall10 in topic10 is where {passage(6)}"
    found = check_one(tmp_path, rows).finding("query_echoed")
    assert (found.n, found.examples[0].line) == (1, 10)


def test_a_text_longer_than_the_maximum_length(tmp_path):
    rows = clean_rows()
    rows[1]["neg"][0] = passage(77, 400)
    source = check_one(tmp_path, rows)
    assert source.finding("too_long").n == 1
    assert source.finding("too_long").fraction == pytest.approx(1 / (40 + 40 + 120))
    assert check_one(tmp_path, rows, max_length=4096).finding("too_long").n == 0
    assert check_one(tmp_path, rows, max_length=4).finding("too_long").n == 200


def test_a_hub_is_listed_by_more_than_one_query_in_ten(tmp_path):
    rows = clean_rows()
    for row in rows[:4]:
        row["neg"][0] = "a passage of general interest that goes with everything"
    assert check_one(tmp_path, rows).finding("hub_negative").n == 0  # 4 of 40 are no more than a tenth
    for row in rows[4:30]:
        row["neg"][0] = "a passage of general interest that goes with everything"
    found = check_one(tmp_path, rows).finding("hub_negative")
    assert (found.n, len(found.examples)) == (30, 1)
    assert "75%" in found.detail


def test_a_negative_in_another_script(tmp_path):
    rows = clean_rows()
    rows[3]["neg"][0] = "Совсем другой отрывок о чём-то другом, написанный по-русски"
    rows[8]["neg"][0] = "2 + 2 = 4; 3 + 3 = 6"  # no letter, no script
    source = check_one(tmp_path, rows)
    assert source.finding("other_script").n == 1
    assert source.scripts["negative"] == {
        "Latin": pytest.approx(118 / 120), "none": pytest.approx(1 / 120), "Cyrillic": pytest.approx(1 / 120),
    }  # fmt: skip


CHINESE = [
    {
        "query": f"第{number}号桥什么时候建成的",
        "pos": [f"第{number}号桥建成于一九五{number}年，是当地最早的桥。"],
        "neg": [f"这座山有{number}百米高，常年积雪。"],
    }
    for number in range(1, 9)
]


def test_unsegmented_text_leaves_the_gate_inactive_and_the_remedy_is_told(tmp_path):
    source = check_one(tmp_path, CHINESE)
    found = source.finding("lexical_gate_inactive")
    assert (found.exceeded, source.positive_coverage_mean) == (True, 0.0)
    assert found.fraction == 1.0
    assert "with --tokenizer multilingual" in found.detail
    mended = check_one(tmp_path, CHINESE, tokenizer="multilingual")
    assert not mended.finding("lexical_gate_inactive").exceeded
    assert mended.positive_coverage_mean > 0.1
    assert mended.scripts["query"] == {"Han": 1.0}


def test_words_that_the_tokenizer_cuts_are_told(tmp_path):
    hindi = [
        {"query": f"चावल कैसे पकाएं {n}", "pos": [f"चावल पकाने से पहले धोएं {n}"], "neg": [f"स्टेशन शहर के पूर्व में है {n}"]}
        for n in range(8)
    ]
    found = check_one(tmp_path, hindi).finding("words_misread")
    assert (found.n, found.fraction, found.exceeded) == (24, 1.0, True)
    assert found.detail == "in a sample of 24: alphanumeric cuts words at their vowel signs or other marks"
    assert "--tokenizer multilingual" in found.advice
    assert check_one(tmp_path, hindi, tokenizer="multilingual").finding("words_misread").n == 0


def test_queries_without_tokens(tmp_path):
    rows = clean_rows()
    rows[0]["query"] = "?!"
    found = check_one(tmp_path, rows).finding("query_without_tokens")
    assert (found.n, found.fraction) == (1, pytest.approx(1 / 40))
    assert found.examples[0].line == 1


def test_malformed_rows_are_a_finding_and_never_an_error(tmp_path):
    rows = [*clean_rows(10), {"query": "q", "pos": "p", "neg": "a string"}, {"query": "q", "pos": ["p"], "neg": []}]
    source = check_one(tmp_path, rows)
    assert source.skipped == {"string_for_list": 1, "no_negatives": 1}
    found = source.finding("malformed_rows")
    assert (found.n, found.fraction, found.limit, found.exceeded) == (1, pytest.approx(1 / 12), 0.05, True)
    assert [(example.reason, example.line) for example in found.examples] == [("string_for_list", 11)]
    assert source.finding("rows_without_negatives").n == 1
    assert source.n_read == source.n_used + sum(source.skipped.values())


def test_a_source_without_triplets_is_an_error(tmp_path):
    with pytest.raises(NothingToScoreError, match="no_negatives 2"):
        check_one(tmp_path, [{"query": "q", "pos": ["p"], "neg": []}] * 2)


def test_a_source_without_triplets_is_told_by_an_example(tmp_path):
    rows = [{"query": "q", "docs": ["p", "n"], "labels": [1]}] * 2 + [{"query": None, "docs": ["p"], "labels": [1]}]
    with pytest.raises(NothingToScoreError, match=r"wrong_type 2.*jsonl:1: wrong_type: 1 labels for 2 passages"):
        check_one(tmp_path, rows)


def test_samples_and_first_negatives_do_not_narrow_a_check(tmp_path):
    assert check_one(tmp_path, clean_rows(), max_records=3, first_k=1).n_triplets == 120


def test_a_tokenizer_that_needs_an_encoder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="needs an encoder"):
        check_one(tmp_path, clean_rows(), tokenizer="wordpieces")


@pytest.fixture(scope="module")
def fixtures() -> Check:
    sources = ["bm25.jsonl.gz", "poisoned.jsonl", "random.jsonl", "counterfactual.jsonl"]
    return api.check([ROOT / "fixtures" / "sources" / name for name in sources])


def test_what_the_fixtures_readme_says_is_planted_is_what_is_found(fixtures):
    assert flagged(fixtures.sources[1]) == {
        "negative_equals_positive": 9,  # 3 as they are, 3 in capitals, 3 with doubled spaces
        "negative_is_other_positive": 28,
        "duplicate_negative": 16,
        "hub_negative": 21,
    }


def test_the_other_fixtures_are_clean(fixtures):
    for number in (0, 2, 3):
        assert flagged(fixtures.sources[number]) == {}


def test_overlap_of_sources(fixtures):
    shared = {(item.first, item.second): item for item in fixtures.overlaps}
    assert len(shared) == 6
    assert shared["bm25", "poisoned"].shared_query_fraction == 1.0
    assert shared["bm25", "poisoned"].negative_jaccard_mean > 0.5 > shared["bm25", "random"].negative_jaccard_mean
    assert shared["bm25", "counterfactual"].shared_document_fraction == 0.0


def test_findings_stand_in_the_order_of_the_table_and_say_what_to_do(fixtures):
    for source in fixtures.sources:
        names = [finding.name for finding in source.findings]
        assert names == [name for name in KINDS if not name.startswith("eval_")]
        assert all(finding.advice and finding.text for finding in source.findings)


def test_order_of_rows_changes_no_count(tmp_path):
    rows = opened(clean_rows(), 6)
    rows[2]["neg"] += [rows[2]["neg"][0]]
    forward = check_one(tmp_path, rows)
    backward = check_one(tmp_path, rows[::-1])
    assert flagged(forward) == flagged(backward)
    assert forward.lengths == backward.lengths


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("duplicate_negative", {"duplicate_negative": None}),
        ("duplicate_negative=0.02", {"duplicate_negative": 0.02}),
        ("duplicate_negative=2%", {"duplicate_negative": 0.02}),
        ("duplicate_negative = 2 %", {"duplicate_negative": 0.02}),
        ("any", {"any": None}),
    ],
)
def test_limits(text, limits):
    assert parse_limits([text]) == limits


@pytest.mark.parametrize("text", ["duplicate_negative=", "any=x", "too_long=2", "too_long=-1%", "too_long=nan"])
def test_a_limit_that_is_no_share_is_refused(text):
    with pytest.raises(UsageError, match="no limit between 0 and 1"):
        parse_limits([text])


def test_an_unknown_finding_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'duplicate_negative'"):
        parse_limits(["duplicate_negatives"])


def test_failures_compare_with_the_limit_asked_for(fixtures):
    sources = fixtures.sources
    assert failures(sources, {}) == ()
    assert failures(sources, {"duplicate_negative": None}) == ("poisoned: duplicate_negative",)
    assert failures(sources, {"duplicate_negative": 0.5}) == ()
    assert "poisoned: hub_negative" in failures(sources, {"any": None})
    assert "poisoned: hub_negative" not in failures(sources, {"any": None, "hub_negative": 1.0})


def test_a_finding_that_was_not_looked_for_fails_no_check_in_silence(fixtures):
    with pytest.raises(UsageError, match="eval_query was not looked for"):
        failures(fixtures.sources, {"eval_query": None})


CITIES = ("北京", "上海", "广州", "深圳", "成都", "杭州", "武汉", "西安")


def test_an_echo_is_found_before_the_closing_marks_of_other_scripts(tmp_path):
    rows = [
        {
            "query": f"{CITIES[n % 8]}的第{n}个景点在哪里呢？",
            "pos": [f"{CITIES[n % 8]}有许多景点，其中第{n}个最有名。"],
            "neg": [f"有人问：{CITIES[n % 8]}的第{n}个景点在哪里呢，这里没有给出答案。"],
        }
        for n in range(20)
    ]
    assert check_one(tmp_path, rows).finding("query_echoed").n == 20


def test_the_opening_that_is_shown_is_the_one_that_is_shared(tmp_path):
    rows = [
        {
            "query": f"{CITIES[n % 8]}的第{n}个问题是什么",
            "pos": [f"{n}号文章讲述{CITIES[n % 8]}的历史。"],
            "neg": [f"以下是一篇 文章 第 {n} 篇：" + f"{CITIES[n % 8]}的一段非常长的内容，" * 6],
        }
        for n in range(20)
    ]
    found = check_one(tmp_path, rows).finding("shared_opening")
    assert found.n == 20
    assert found.detail.startswith('"以下是一篇 文章 …" 100.0%')


def test_japanese_may_be_written_without_kana(tmp_path):
    rows = [
        {
            "query": f"日本の第{n}の都市はどこですか",
            "pos": [f"日本の第{n}の都市は大阪であり、とても大きな街です。"],
            "neg": [f"東京都千代田区丸之内第{n}番地", f"the city of number {n} in Japan"],
        }
        for n in range(10)
    ]
    assert check_one(tmp_path, rows).finding("other_script").n == 10
