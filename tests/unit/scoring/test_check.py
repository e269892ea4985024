"""`secid.check` on sources with one kind of planted defect: exact counts, shares and places, silence on clean data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secid import api
from secid.errors import BadRecordsError, NothingToScoreError, UsageError
from secid.results import SourceReport
from secid.results.catalogue import CAUTIONS
from secid.results.check import CHECKED_FINDINGS, Check, TextFacts, failures, parse_limits
from tests.snapshots import refusal
from tests.unit.scoring.made_rows import clean_rows, passage, write

ROOT = Path(__file__).resolve().parents[3]
Rows = list[dict[str, Any]]


def check_one(tmp_path: Path, rows: list[Any], **settings: Any) -> tuple[SourceReport, TextFacts]:
    check = api.check([write(tmp_path / "own.jsonl", rows)], **settings)
    return check.sources[0], check.texts["own"]


def counts(source: SourceReport, facts: TextFacts) -> dict[str, int]:
    """Count the negatives with each finding and the items of each caution, without zeros and made-up lengths."""
    numbers = {finding.name: finding.n_negatives for finding in source.findings if finding.name != "length"}
    numbers |= {caution.name: caution.n for caution in facts.cautions if caution.exceeded}
    return {name: n for name, n in numbers.items() if n}


def test_a_clean_source_has_no_finding(tmp_path):
    source, facts = check_one(tmp_path, clean_rows())
    assert counts(source, facts) == {}
    assert [finding.name for finding in source.findings] == list(CHECKED_FINDINGS)
    assert [caution.name for caution in facts.cautions] == [name for name in CAUTIONS if "eval" not in name]
    for finding in (item for item in source.findings if item.name != "length"):
        assert (finding.share, finding.interval_95[0], finding.examples) == (0.0, 0.0, ())
        assert 0.05 < finding.interval_95[1] < 0.12  # 0 of 40 queries
        assert (finding.weight_fraction, finding.score_nats) == (None, None)
    assert (source.rows.n_read, source.rows.n_used, source.rows.n_records, source.n_triplets) == (40, 40, 40, 120)
    assert (source.score, source.hardness) == (None, None)
    assert facts.negatives_per_query.median == 3
    assert facts.positive_coverage_mean > 0.5


HUB = "a passage of general interest that goes with everything."
GOATS = "The goats climb the steep rocks above the valley, where the grass stays green until late in the autumn."
TRAINS = "Каждый час от старого вокзала отправляется поезд и приходит в порт до отплытия последнего парома."


def false_negative(rows: Rows) -> None:
    rows[4]["neg"].append(rows[4]["pos"][0])
    rows[7]["neg"].append(rows[7]["pos"][0].upper().replace(" ", "  "))


def near_copy(rows: Rows) -> None:
    rows[4]["neg"].append(f"A title of it: {rows[4]['pos'][0]}")
    rows[7]["neg"].append(f"{rows[7]['pos'][0].rsplit(' ', 3)[0]}.")


def preamble(rows: Rows) -> None:
    rows[4]["neg"][2] = f"Sure, here is a passage: {passage(1)}"
    rows[7]["neg"][0] = f"Certainly! Here's the passage you asked for. {passage(2)}"


def empty(rows: Rows) -> None:
    rows[4]["neg"] += [".", "  "]  # the second has no text at all: the reader leaves it out
    rows[7]["neg"] += ["N/A"]


def repeat(rows: Rows) -> None:
    rows[4]["neg"] += [rows[4]["neg"][0]] * 4
    rows[7]["neg"] += [rows[7]["neg"][1].title()]


def query_echo(rows: Rows) -> None:
    rows[4]["neg"][0] = f"{rows[4]['query'].upper()}?"
    rows[7]["neg"][1] = rows[7]["query"]


def mojibake(rows: Rows) -> None:
    rows[4]["neg"][0] = f"Die StraÃŸe fÃ¼hrt Ã¼ber den FluÃŸ {passage(1)}"
    rows[7]["neg"][1] = f"Les chÃ¨vres, l'Ã©tÃ© {passage(2)}"


def trailing_note(rows: Rows) -> None:
    rows[4]["neg"][0] += " (Note: this passage is on topic, but it does not answer the query.)"
    rows[7]["neg"][1] += "\n\nThis passage is a hard negative because the query asks for something else."


def wrapper(rows: Rows) -> None:
    rows[4]["neg"][0] = json.dumps({"hard_negative": rows[4]["neg"][0]})
    rows[7]["neg"][1] = f"```\n{rows[7]['neg'][1]}\n```."


def loop(rows: Rows) -> None:
    rows[4]["neg"][0] = f"{'the ' * 30}end."
    rows[7]["neg"][1] = f"Goats {'climb rocks, ' * 15} and then rest."


def unfinished(rows: Rows) -> None:
    rows[4]["neg"][0] = rows[4]["neg"][0].removesuffix(".")
    rows[7]["neg"][1] += ".."


def markup(rows: Rows) -> None:
    rows[4]["neg"][0] = f"<p>{rows[4]['neg'][0]}</p><br/><a href='https://example.org/'></a>."
    rows[7]["neg"][1] = f"<html><body><div class='text'>{rows[7]['neg'][1]}</div></body></html>."


def shared_opening(rows: Rows) -> None:
    for row in rows[4:19]:
        row["neg"][0] = f"In contrast to common belief, {row['neg'][0]}"


def hub(rows: Rows) -> None:
    for row in rows[4:11]:
        row["neg"][0] = HUB


def other_language(rows: Rows) -> None:
    for place in (4, 7):
        rows[place]["pos"] = [f"{GOATS} {rows[place]['pos'][0]}"]
        rows[place]["neg"][0] = f"{TRAINS} {place}."


def query_without_tokens(rows: Rows) -> None:
    rows[4]["query"], rows[7]["query"] = "?!", "…"


PLANTED: list[tuple[Callable[[Rows], None], int, int, set[int]]] = [
    (false_negative, 2, 122, {5, 8}), (near_copy, 2, 122, {5, 8}), (preamble, 2, 120, {5, 8}), (empty, 3, 123, {5, 8}),
    (repeat, 5, 125, {5, 8}), (query_echo, 2, 120, {5, 8}), (mojibake, 2, 120, {5, 8}), (trailing_note, 2, 120, {5, 8}),
    (wrapper, 2, 120, {5, 8}), (loop, 2, 120, {5, 8}), (unfinished, 2, 120, {5, 8}), (markup, 2, 120, {5, 8}),
    (shared_opening, 15, 120, set(range(5, 20))), (hub, 7, 120, set(range(5, 12))), (other_language, 2, 120, {5, 8}),
    (query_without_tokens, 6, 120, {5, 8}),
]  # fmt: skip
"""Plants the finding of its name in clean rows; negatives that have it then, of how many, and in which lines."""


@pytest.mark.parametrize(("plant", "n", "of", "lines"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_one_kind_of_planted_defect(tmp_path, plant, n, of, lines):
    rows = clean_rows()
    plant(rows)
    source, facts = check_one(tmp_path, rows, examples=20)
    assert counts(source, facts) == {plant.__name__: n}
    finding = source.finding(plant.__name__)
    assert finding.share == pytest.approx(n / of, abs=1e-12)
    assert finding.interval_95[0] < finding.share < finding.interval_95[1]
    assert {example.line for example in finding.examples} == lines
    assert {example.path for example in finding.examples} == {str(tmp_path / "own.jsonl")}


def test_every_finding_of_check_is_planted_here():
    assert {plant.__name__ for plant, *_ in PLANTED} == set(CHECKED_FINDINGS) - {"length"}


def test_examples_hold_the_texts_of_their_row(tmp_path):
    rows = clean_rows()
    false_negative(rows)
    for example in check_one(tmp_path, rows)[0].finding("false_negative").examples:
        row = rows[example.line - 1]
        assert (example.query, example.positive, example.negative) == (row["query"], row["pos"][0], row["neg"][3])
        assert (example.consistency, example.weight, example.matched_terms) == (None, None, ())


def test_labelled_pairs_count_as_the_rows_that_they_are(tmp_path):
    rows = [
        {"query": row["query"], "passage": text, "label": label}
        for row in clean_rows()
        for label, texts in ((1, row["pos"]), (0, row["neg"]))
        for text in texts
    ]
    rows[1]["passage"] = ""  # one of 160 rows; its query keeps two negatives
    rows[4]["label"] = 0  # a query without a positive: four rows
    source, facts = check_one(tmp_path, rows)
    assert (source.rows.n_read, source.rows.n_used, source.rows.n_records) == (160, 155, 39)
    assert source.rows.skipped == {"empty_negative": 1, "none_relevant": 4}
    assert facts.caution("malformed_rows").n == 0
    assert source.finding("empty").n_negatives == 1  # no malformed row, but a finding


def test_a_positive_of_another_source_is_a_false_negative_only_of_this_one(tmp_path):
    rows, others = clean_rows(), clean_rows()
    others[3]["pos"] = ["the other answer to the question of that hall"]
    rows[3]["neg"][1] = "The other answer  to the question of that hall"
    one, two = api.check([write(tmp_path / "one.jsonl", rows), write(tmp_path / "two.jsonl", others)]).sources
    assert (one.finding("false_negative").n_negatives, two.finding("false_negative").n_negatives) == (1, 0)
    (example,) = one.finding("false_negative").examples
    assert (example.path, example.line) == (str(tmp_path / "one.jsonl"), 4)


def test_a_positive_of_another_query_is_not_a_defect(tmp_path):
    rows = clean_rows()
    rows[0]["neg"][0] = rows[1]["pos"][0]
    assert counts(*check_one(tmp_path, rows)) == {}


def test_four_alike_are_chance_and_what_positives_share_is_style(tmp_path):
    rows = clean_rows()
    for row in rows[:4]:
        row["neg"][0] = f"In contrast to common belief, {row['neg'][0]}"
    assert counts(*check_one(tmp_path, rows)) == {}
    shared_opening(rows)
    for row in rows:
        row["pos"][0] = f"In contrast to common belief, {row['pos'][0]}"
    assert counts(*check_one(tmp_path, rows)) == {}


def test_one_query_whose_subject_opens_many_passages_makes_no_shared_opening(tmp_path):
    rows = clean_rows()
    rows[0]["neg"] = [f"The great works of somebody famous {passage(n)}" for n in range(500, 508)]
    assert counts(*check_one(tmp_path, rows)) == {}


def test_two_records_of_a_query_may_list_the_same_negative(tmp_path):
    rows = clean_rows()
    rows.append({**rows[5], "pos": ["another answer about topic5 in hall5 indeed"]})
    source, _ = check_one(tmp_path, rows)
    assert (source.finding("repeat").n_negatives, source.n_triplets) == (0, 123)


CHINESE = [
    {
        "query": f"第{number}号桥什么时候建成的",
        "pos": [f"第{number}号桥建成于一九五{number}年，是当地最早的桥。"],
        "neg": [f"这座山有{number}百米高，常年积雪。"],
    }
    for number in range(1, 9)
]


def test_unsegmented_text_leaves_the_gate_inactive_and_the_remedy_works(tmp_path):
    _, facts = check_one(tmp_path, CHINESE, tokenizer="alphanumeric")
    gate = facts.caution("inactive_lexical_gate")
    assert (gate.exceeded, gate.fraction, facts.positive_coverage_mean) == (True, 1.0, 0.0)
    assert gate.values["best"] == "multilingual"
    _, other = check_one(tmp_path, CHINESE)
    assert not other.caution("inactive_lexical_gate").exceeded
    assert other.positive_coverage_mean > 0.1


def test_words_that_the_tokenizer_cuts_are_a_caution(tmp_path):
    hindi = [
        {"query": f"चावल कैसे पकाएं {n}", "pos": [f"चावल पकाने से पहले धोएं {n}"], "neg": [f"स्टेशन शहर के पूर्व में है {n}"]}
        for n in range(8)
    ]
    misfit = check_one(tmp_path, hindi, tokenizer="alphanumeric")[1].caution("tokenizer_misfit")
    assert (misfit.n, misfit.fraction, misfit.exceeded) == (24, 1.0, True)
    assert (misfit.values["tokenizer"], misfit.values["effect"]) == ("alphanumeric", "cut")
    assert check_one(tmp_path, hindi)[1].caution("tokenizer_misfit").n == 0


def test_queries_without_tokens_are_those_of_the_tokenizer_at_hand(tmp_path):
    rows = clean_rows()
    query_without_tokens(rows)
    assert check_one(tmp_path, rows, tokenizer="whitespace")[0].finding("query_without_tokens").n_negatives == 0


def test_malformed_rows_are_a_caution_and_too_many_the_error_that_score_gives(tmp_path):
    rows = [*clean_rows(10), {"query": "q", "pos": "p", "neg": "a string"}, {"query": "q", "pos": ["p"], "neg": []}]
    with pytest.raises(BadRecordsError) as caught:
        check_one(tmp_path, rows)
    assert caught.value.exit_code == 2
    source, facts = check_one(tmp_path, rows, max_bad_fraction=0.1)
    assert source.rows.skipped == {"string_for_list": 1, "no_negatives": 1}
    bad = facts.caution("malformed_rows")
    assert (bad.n, bad.fraction, bad.limit, bad.exceeded) == (1, pytest.approx(1 / 12), 0.1, False)
    assert [(example.reason, example.line) for example in bad.examples] == [("string_for_list", 11)]
    bare = facts.caution("rows_without_negatives")
    assert (bare.n, bare.fraction, [example.line for example in bare.examples]) == (1, pytest.approx(1 / 12), [12])
    assert source.rows.n_read == source.rows.n_used + sum(source.rows.skipped.values())


def test_lengths_are_of_distinct_texts_by_role(tmp_path):
    rows = clean_rows(10)
    rows[0]["neg"][0] = rows[1]["neg"][0] = "ab" * 45  # 90 characters are 20 tokens
    rows[2]["neg"][0] = "水" * 900
    lengths = check_one(tmp_path, rows)[1].lengths
    assert {role: part.n_texts for role, part in lengths.items()} == {"query": 10, "positive": 10, "negative": 29}
    assert (lengths["negative"].characters.minimum, lengths["negative"].tokens.minimum) == (90, 20)
    assert (lengths["negative"].characters.maximum, lengths["negative"].tokens.maximum) == (900, 900)


def test_a_source_without_triplets_is_an_error(tmp_path):
    rows = [{"query": "q", "pos": ["p"], "neg": []}] * 2
    assert "no_negatives 2" in refusal(lambda: check_one(tmp_path, rows), NothingToScoreError, "own")


def test_a_source_without_triplets_is_explained_by_an_example(tmp_path):
    rows = [{"query": "q", "docs": ["p", "n"], "labels": [1]}] * 2 + [{"query": None, "docs": ["p"], "labels": [1]}]
    message = refusal(lambda: check_one(tmp_path, rows), BadRecordsError, "own")
    assert "wrong_type 2" in message
    assert "own.jsonl:1: wrong_type" in message


def test_samples_and_first_negatives_do_not_narrow_a_check(tmp_path):
    assert check_one(tmp_path, clean_rows(), max_records=3, first_k=1)[0].n_triplets == 120


def test_a_tokenizer_that_needs_an_encoder_is_refused(tmp_path):
    message = refusal(lambda: check_one(tmp_path, clean_rows(), tokenizer="wordpieces"), UsageError, None)
    assert "wordpieces" in message


@pytest.fixture(scope="module")
def fixtures() -> Check:
    sources = ["bm25.jsonl.gz", "poisoned.jsonl", "random.jsonl", "counterfactual.jsonl", "dense.parquet"]
    return api.check([ROOT / "fixtures" / "sources" / name for name in sources])


def test_what_the_fixtures_readme_says_is_planted_is_what_is_found(fixtures):
    poisoned = fixtures.sources[1]
    # the second positive of 28 queries; the first one of 9 queries, 3 as it is, 3 in capitals, 3 with doubled spaces
    planted = counts(poisoned, fixtures.texts["poisoned"])
    assert planted == {"false_negative": 37, "repeat": 16, "hub": 21}
    assert all(poisoned.finding(name).share == pytest.approx(n / 330) for name, n in planted.items())


def test_the_other_fixtures_are_clean(fixtures):
    clean = [source for source in fixtures.sources if source.name != "poisoned"]
    assert [counts(source, fixtures.texts[source.name]) for source in clean] == [{}] * 4


def test_overlap_of_sources(fixtures):
    shared = {(item.first, item.second): item for item in fixtures.overlaps}
    assert len(shared) == 10
    assert shared["bm25", "poisoned"].shared_query_fraction == 1.0
    assert shared["bm25", "poisoned"].negative_jaccard_mean > 0.5 > shared["bm25", "random"].negative_jaccard_mean
    assert shared["bm25", "counterfactual"].shared_document_fraction == 0.0


def test_order_of_rows_changes_no_count(tmp_path):
    rows = clean_rows()
    shared_opening(rows)
    repeat(rows)
    forward, facts = check_one(tmp_path, rows)
    backward, others = check_one(tmp_path, rows[::-1])
    assert counts(forward, facts) == {"shared_opening": 19, "repeat": 5}  # 4 copies open alike
    assert counts(backward, others) == counts(forward, facts)
    assert facts.lengths == others.lengths
    for one, other in zip(forward.findings, backward.findings, strict=True):
        assert one.interval_95 == pytest.approx(other.interval_95)
        assert [example.query for example in one.examples] == [example.query for example in other.examples]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("repeat", {"repeat": None}), ("repeat=0.02", {"repeat": 0.02}), ("repeat=2%", {"repeat": 0.02}),
        ("repeat = 2 %", {"repeat": 0.02}), ("malformed_rows=0", {"malformed_rows": 0.0}), ("any", {"any": None}),
    ],
)  # fmt: skip
def test_limits(text, limits):
    assert parse_limits([text]) == limits


@pytest.mark.parametrize("text", ["repeat=", "any=x", "empty=2", "empty=-1%", "empty=nan"])
def test_a_limit_that_is_not_a_share_is_refused(text):
    assert f"'{text}'" in refusal(lambda: parse_limits([text]), UsageError, "--fail-on")


def test_failures_compare_with_the_limit_asked_for(fixtures):
    assert failures(fixtures, {}) == ()
    assert failures(fixtures, {"repeat": None}) == ("poisoned: repeat",)
    assert failures(fixtures, {"repeat": 0.5}) == ()
    assert failures(fixtures, {"repeat": 16 / 330}) == ()  # passes at the limit
    failed = failures(fixtures, {"any": None})
    assert failed == ("poisoned: false_negative", "poisoned: repeat", "poisoned: hub", "counterfactual: length")
    assert "poisoned: hub" not in failures(fixtures, {"any": None, "hub": 1.0})


@pytest.mark.parametrize(("name", "needs"), [("eval_query", "--against-eval DIR"), ("inversion", "secid score")])
def test_a_finding_that_was_not_looked_for_fails_no_check_in_silence(fixtures, name, needs):
    message = refusal(lambda: failures(fixtures, {name: None}), UsageError, "--fail-on")
    assert name in message
    assert needs in message


def test_an_echo_is_found_before_the_closing_marks_of_other_scripts(tmp_path):
    rows = [{**row, "neg": [row["query"] + "？", *row["neg"]]} for row in CHINESE]
    assert counts(*check_one(tmp_path, rows, tokenizer="multilingual")) == {"query_echo": 8}
