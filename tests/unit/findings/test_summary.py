"""Findings of a source: `check` and `score` say the same of one file, and examples are chosen alike everywhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from secid.results import SourceFinding
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS
from secid.results.check import CHECKED_FINDINGS
from tests.unit.findings.test_shares import messy
from tests.unit.scoring.made_rows import clean_rows, passage
from tests.unit.scoring.runs import Sources, checked, scored

Statement = tuple[str, int, float, tuple[float, float], list[tuple[str, int]]]


def statement(finding: SourceFinding) -> Statement:
    """Return the numbers of a finding, and the places of its examples."""
    places = [(example.path, example.line) for example in finding.examples]
    return finding.name, finding.n_negatives, finding.share, finding.interval_95, places


def statements(sources: Any) -> dict[str, list[Statement]]:
    return {
        source.name: [statement(finding) for finding in source.findings if finding.name in CHECKED_FINDINGS]
        for source in sources
    }


def with_everything() -> list[dict[str, Any]]:
    """Rows of 60 queries that have every finding of the texts, and queries without tokens."""
    rows = clean_rows(60)
    for number, row in enumerate(rows):
        row["neg"] += [row["neg"][0]] * (number % 7 == 0) + [row["pos"][0].upper()] * (number % 5 == 0)
        row["neg"] += [f"Title {row['pos'][0]}"] * (number % 6 == 1) + ["N/A", "", " "] * (number % 9 == 0)
        row["neg"] += [f"Sure, here is a passage: {passage(3000 + number)}"] * (number % 8 == 2)
        row["neg"] += [row["query"] + "?"] * (number % 10 == 3) + ["The same for all of these."] * (number % 4 == 0)
        row["neg"] += [f"In contrast to common belief, {passage(4000 + number)}"] * (number % 5 < 2)
        row["neg"] += [f"Les chÃ¨vres, l'Ã©tÃ© {number}"] * (number % 11 == 4)
        row["neg"] += [f"{passage(5000 + number)} (This passage does not answer the query.)"] * (number % 13 == 1)
        row["neg"] += [f'{{"passage": "{passage(6000 + number)}"}}'] * (number % 14 == 2)
        row["neg"] += [f"{'the ' * 30}{number}."] * (number % 15 == 3)
        row["neg"] += [f"<p>{passage(7000 + number)}<br></p><p>It is in <i>hall</i></p>"] * (number % 16 == 4)
        if number % 12 == 5:
            row["pos"] = [f"The goats climb the steep rocks above the valley until late in autumn, number {number}."]
            row["neg"] += [f"Каждый час от старого вокзала отправляется поезд и приходит в порт номер {number}."]
    rows[8]["query"], rows[9]["query"] = "?!", "…"
    rows.append({"query": "a query that lists nothing", "pos": ["a positive"], "neg": ["", " "]})
    return rows


@pytest.mark.parametrize(
    ("sources", "settings"),
    [
        ({"a": with_everything(), "b": messy(7)}, {}),
        ({"a": with_everything()}, {"positives": "all", "seed": 4}),
        ({"a": messy(8), "b": messy(9)}, {"positives": "hardest", "examples": 1}),
        ({"a": with_everything(), "b": messy(7)}, {"positives": "random", "tokenizer": "whitespace", "examples": 7}),
    ],
    ids=["first", "all", "hardest", "random"],
)
def test_check_and_score_state_the_same_findings_of_a_file(tmp_path, sources: Sources, settings):
    of_check = statements(checked(tmp_path, sources, **settings).sources)
    of_score = statements(scored(tmp_path, sources, max_bad_fraction=1.0, **settings).run.sources)
    assert of_score == of_check
    counts = [n for _, n, *_ in of_check["a"]]
    assert len(counts) == len(CHECKED_FINDINGS)
    assert max(counts) > 0


def test_the_rows_above_have_every_finding_of_check(tmp_path):
    (source,) = checked(tmp_path, {"a": with_everything()}).sources
    assert all(finding.n_negatives and finding.examples for finding in source.findings)
    shares = {finding.name: finding.share for finding in source.findings}
    assert max(Counter(shares.values()).values()) < 4  # a swapped finding would be noticed


def test_findings_come_in_the_order_of_the_catalogue(tmp_path):
    run = scored(tmp_path, {"a": with_everything()}).run
    assert [finding.name for finding in run.sources[0].findings] == [name for name in FINDINGS if name != "suspect"]


def test_examples_are_one_per_query_seeded_and_no_more_than_asked_for(tmp_path):
    """The examples are those of a check. The test above shows that a score has the same ones."""
    rows = with_everything()

    def examples(**settings: Any) -> dict[str, list[str]]:
        (source,) = checked(tmp_path, {"a": rows}, **settings).sources
        return {finding.name: [example.query for example in finding.examples] for finding in source.findings}

    few, many, other = examples(examples=3), examples(examples=50), examples(examples=3, seed=1)
    for name, queries in many.items():
        named = [query for query in queries if query]  # those of rows that list blanks name none
        assert len(set(named)) == len(named)
        assert few[name] == queries[:3]
    assert len(many["false_negative"]) == 11
    assert few["false_negative"] != other["false_negative"]
    assert sorted(many["false_negative"]) == sorted(examples(examples=50, seed=1)["false_negative"])
    rows = rows[::-1]
    assert examples(examples=3)["false_negative"] == few["false_negative"]


def test_rows_that_list_blanks_are_the_last_examples_of_empty(tmp_path):
    rows = clean_rows(12)
    rows[3]["neg"] += ["", " "]
    rows[6]["neg"] += ["n/a"]
    found = checked(tmp_path, {"a": rows}).sources[0].finding("empty")
    assert (found.n_negatives, [example.line for example in found.examples]) == (3, [7, 4])
    assert [example.negative for example in found.examples] == ["n/a", ""]


def test_a_finding_s_examples_show_the_positive_that_is_scored(tmp_path):
    rows = clean_rows(12)
    for row in rows:
        row["pos"] += [f"another answer about {row['query']}", f"a third one about {row['query']}"]
        row["neg"] += [row["pos"][0]]
    run = scored(tmp_path, {"a": rows}, positives="hardest", examples=12)
    texts = {row["query"]: row["pos"] for row in rows}
    examples = run.run.sources[0].finding("false_negative").examples
    assert len(examples) == 12
    assert {texts[example.query].index(example.positive) for example in examples} > {0}
    # the copy of the scored positive itself is at a distance of 0 from it
    for example in examples:
        assert (example.s_positive_negative == pytest.approx(1.0, abs=1e-6)) == (example.positive == example.negative)


def test_numbers_of_examples_are_those_of_their_triplet(tmp_path):
    run = scored(tmp_path, {"a": with_everything()}, examples=2)
    (item,) = run.measured
    columns, source = item.table.columns(), item.table.source
    lines = source.negative_line[item.triplets.place].tolist()
    n_examples = 0
    for finding in run.run.sources[0].findings:
        flags = item.table.has(finding.name)
        for example in finding.examples:
            if example.consistency is not None:
                row = [columns[name].tolist() for name in ("consistency", "weight", "s_query_negative")]
                numbers = (example.consistency, example.weight, example.s_query_negative)
                rows = [place for place, line in enumerate(lines) if line == example.line and flags[place]]
                assert numbers in [tuple(values[place] for values in row) for place in rows]
                n_examples += 1
    assert n_examples > 20


def test_what_the_flagged_hold_of_weight_and_score_and_what_overlaps(tmp_path):
    run = scored(tmp_path, {"a": with_everything()})
    (item,), source = run.measured, run.run.sources[0]
    weight, information = item.table.columns()["weight"], item.influence.information
    for finding in source.findings:
        flags = item.table.has(finding.name)
        assert finding.weight_fraction == pytest.approx(weight[flags].sum() / weight.sum(), abs=1e-12)
        assert finding.score_nats == pytest.approx(source.score.nats * information[flags].sum() / information.sum())
        overlaps = source.finding_overlaps[finding.name]
        for other in source.findings:
            assert overlaps[other.name] == int((flags & item.table.has(other.name)).sum())
    assert source.finding("false_negative").weight_fraction > 0


def test_columns_of_text_findings_are_those_of_the_plan(tmp_path):
    (item,) = scored(tmp_path, {"a": with_everything()}, positives="all").measured
    for name in TEXT_FINDINGS:
        assert item.table.has(name).tolist() == item.table.source.has(name)[item.triplets.place].tolist()
        assert item.table.has(name).any()
