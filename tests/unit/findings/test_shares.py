"""Shares of findings and their errors, against plain sums over the rows as they are written in the file."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np
import pytest

from secid.measure.blocks import Triplets
from secid.pool.texts import text_key
from secid.results import SourceFinding
from secid.triplets import random_reference
from secid.triplets.estimates import Estimate, Share, comparable_keys, wilson_interval
from secid.triplets.measure_set import Measured
from secid.triplets.table import TripletTable
from tests.fake_encoder import PieceEncoder
from tests.unit.findings import slow_texts
from tests.unit.scoring.runs import checked, scored

Rows = list[dict[str, Any]]
Cell = tuple[str, float, float]
"""Query of a listed negative, how much of it has the finding, and what it counts."""
TEXTS = ["Alpha beta.", "alpha  BETA", "gamma", "Gamma!", "delta 4", "N/A", "…", "", "  ", "where is it", "epsilon"]
PLAIN = ("false_negative", "near_copy", "repeat", "empty", "query_echo", "hub")


def messy(seed: int, n: int = 60) -> Rows:
    """Rows with copies, repeats, placeholders, blanks and positives among the negatives; some list only blanks."""
    draw = random.Random(seed)
    rows = []
    for number in range(n):
        query = f"Where is it {draw.randrange(n // 2)}" if draw.random() < 0.9 else "Where is it?"
        negatives = draw.choices(TEXTS, k=draw.randint(1, 6)) if draw.random() < 0.85 else ["", " "]
        positives = draw.sample(["Delta 4", "zeta", "eta"], k=draw.randint(1, 2))
        rows.append({"query": query, "pos": positives, "neg": negatives + [f"text {number} {draw.randrange(9)}"] * 2})
        if draw.random() < 0.15:
            rows[-1]["neg"] = [""] * draw.randint(1, 3)
    return rows


def records_of(rows: Rows) -> dict[tuple[str, str], tuple[list[str], list[str]]]:
    """Positives and listed negatives with a text, by query and first positive."""
    records: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for row in rows:
        listed = [text for text in row["neg"] if text.strip()]
        if listed:
            positives, negatives = records.setdefault((row["query"], row["pos"][0]), ([], []))
            positives += row["pos"]
            negatives += listed
    return records


def cells(sources: list[Rows], rows: Rows, finding: str) -> Iterator[Cell]:
    """Every listed negative of a source, with whether it has the finding; blanks are empty."""
    labelled = [
        slow_texts.PlainRecord(query, positives, [])
        for part in sources
        for (query, _), (positives, _) in records_of(part).items()
    ]
    records = records_of(rows)
    served = defaultdict(set)
    for (query, _), (_, negatives) in records.items():
        for text in negatives:
            served[slow_texts.form(text)].add(slow_texts.form(query))
    n_queries = len({slow_texts.form(query) for query, _ in records})
    for (query, _), (_, negatives) in records.items():
        positives = slow_texts.positives_of([labelled], query)
        forms = [slow_texts.form(text) for text in negatives]
        for place, (text, form) in enumerate(zip(negatives, forms, strict=True)):
            equal = form != "" and form in map(slow_texts.form, positives)
            near = not equal and any(slow_texts.is_near(text, positive) for positive in positives)
            rules: dict[str, Callable[[], bool]] = {
                "false_negative": lambda equal=equal: equal,
                "near_copy": lambda near=near: near,
                "repeat": lambda forms=forms, place=place: forms[place] in forms[:place],
                "empty": lambda text=text: slow_texts.is_empty(text),
                "query_echo": lambda form=form, query=query: form != "" and form == slow_texts.form(query),
                "hub": lambda form=form: 100 * len(served[form]) > 5 * max(100, n_queries),
            }
            yield query, float(rules[finding]()), 1.0
    for row in rows:
        yield from ((row["query"], float(finding == "empty"), 1.0) for text in row["neg"] if not text.strip())


def plain_share(found: Iterator[Cell] | list[Cell]) -> tuple[int, Estimate]:
    """Return the number, and the share with its error by query, from sums over Python lists."""
    listed = list(found)
    total, whole = sum(value * weight for _, value, weight in listed), sum(weight for *_, weight in listed)
    share = total / whole
    gaps: defaultdict[str, float] = defaultdict(float)
    for query, value, weight in listed:
        gaps[query] += weight * (value - share) / whole
    names = np.array([text_key("query", query) for query in gaps])
    return max(round(total), int(total > 0)), Estimate(share, names, np.array(list(gaps.values())))


def assert_share(finding: SourceFinding, found: Iterator[Cell] | list[Cell]) -> None:
    n, estimate = plain_share(found)
    assert finding.n_negatives == n
    assert finding.share == pytest.approx(estimate.value, abs=1e-12)
    error = sqrt(sum(gap**2 for gap in estimate.per_query))
    assert finding.standard_error == pytest.approx(error, abs=1e-12)
    assert finding.interval_95 == pytest.approx(wilson_interval(estimate), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_shares_of_listed_negatives_are_plain_sums_over_the_file(tmp_path, seed):
    sources = {"a": messy(seed), "b": messy(seed + 100, 30)}
    check = checked(tmp_path, sources, on_bad="skip")
    for source in check.sources:
        for name in PLAIN:
            assert_share(source.finding(name), cells(list(sources.values()), sources[source.name], name))
        assert all(0 < source.finding(name).share < 1 for name in ("false_negative", "repeat", "empty", "hub"))


def test_the_comparison_notices_a_lost_blank_and_a_query_that_lists_nothing_else(tmp_path):
    rows = messy(0)
    source = checked(tmp_path, {"a": rows}).sources[0]
    blank = next(place for place, row in enumerate(rows) if not any(text.strip() for text in row["neg"]))
    with pytest.raises(AssertionError):
        assert_share(source.finding("empty"), cells([rows], [*rows[:blank], *rows[blank + 1 :]], "empty"))
    elsewhere = [{**row, "query": rows[0]["query"]} if number == blank else row for number, row in enumerate(rows)]
    with pytest.raises(AssertionError):
        assert_share(source.finding("empty"), cells([rows], elsewhere, "empty"))


def test_a_share_of_something_is_of_one_negative_at_least():
    names, cluster = np.array([b"a", b"b"]), np.array([0, 1])
    assert Share.of(np.array([0.2, 0.0]), np.ones(2), cluster, names).n == 1
    assert Share.of(np.array([0.0, 0.0]), np.ones(2), cluster, names).n == 0
    assert Share.of(np.array([2.6, 0.0]), np.array([3.0, 1.0]), cluster, names).n == 3


def test_a_row_that_counts_nothing_changes_no_share():
    names, cluster = np.array([b"a", b"b"]), np.array([0, 1, 1])
    with_row = Share.of(np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0]), cluster, names)
    without = Share.of(np.array([1.0, 0.0]), np.array([1.0, 1.0]), cluster[:2], names)
    assert (with_row.n, with_row.estimate.value) == (without.n, without.estimate.value) == (1, 0.5)
    assert with_row.estimate.per_query.tolist() == without.estimate.per_query.tolist()


def table_of(item: Measured, queries: list[str]) -> list[str]:
    """The query of each triplet in words."""
    words = {text_key("query", query): query for query in queries}
    distinct = np.unique(item.triplets.query)
    names = {int(number): words[bytes(key)] for number, key in zip(distinct, item.query_keys, strict=True)}
    return [names[int(number)] for number in item.triplets.query]


@pytest.mark.parametrize("policy", ["first", "all"])
def test_shares_of_scored_negatives_weigh_each_negative_once(tmp_path, policy):
    rows = messy(1)
    run = scored(tmp_path, {"a": rows}, positives=policy, max_bad_fraction=1.0)
    (item,) = run.measured
    asked, table = table_of(item, [row["query"] for row in rows]), item.table
    assert (table.share is None) == (policy == "first")
    for name in ("inversion", "low_locality", "high_coverage", "valid_but_far"):
        values: defaultdict[int, list[float]] = defaultdict(list)
        of_query = {}
        for place, flag, query in zip(table.triplets.place.tolist(), table.has(name).tolist(), asked, strict=True):
            values[place].append(flag)
            of_query[place] = query
        listed = [(of_query[place], sum(flags) / len(flags), 1.0) for place, flags in values.items()]
        assert len(listed) == run.run.sources[0].n_triplets
        assert_share(run.run.sources[0].finding(name), listed)


def test_findings_against_random_passages_are_shares_of_the_sampled_queries(tmp_path, monkeypatch):
    monkeypatch.setattr(random_reference, "MAX_REFERENCE_QUERIES", 8)
    rows = messy(2)
    run = scored(tmp_path, {"a": rows}, max_bad_fraction=1.0)
    (item,), source = run.measured, run.run.sources[0]
    shares = run.findings["a"].shares
    asked = table_of(item, [row["query"] for row in rows])
    assert len(shares["inversion"].estimate.queries) == len(set(asked)) > 8
    for name in ("random_like", "weak_positive"):
        sample = set(map(bytes, shares[name].estimate.queries))
        assert len(sample) == 8
        within = [text_key("query", query) in sample for query in asked]
        flags = item.table.has(name).tolist()
        assert not any(flag and not inside for flag, inside in zip(flags, within, strict=True))
        listed = [(q, float(flag), 1.0) for q, flag, inside in zip(asked, flags, within, strict=True) if inside]
        assert 0 < len(listed) < len(item.table)
        assert_share(source.finding(name), listed)
    assert 0 < source.finding("random_like").share < 1


def average_cosines(rows: Rows) -> dict[str, float]:
    """Return each query's mean cosine with all passages of the triplets except its labelled positives."""
    passages, labelled = set(), defaultdict(set)
    for row in rows:
        listed = [text for text in row["neg"] if text.strip()]
        passages |= {row["pos"][0], *listed} if listed else set()
        labelled[row["query"]] |= {*row["pos"]}
    queries, texts = (
        PieceEncoder().table(sorted(some), role) for some, role in ((labelled, "query"), (passages, "passage"))
    )
    return {
        query: float(np.mean([queries[query] @ texts[text] for text in sorted(passages - own)]))
        for query, own in labelled.items()
    }


def test_near_positives_are_shares_of_what_was_evaluated(tmp_path):
    rows = messy(3)
    run = scored(tmp_path, {"a": rows}, max_bad_fraction=1.0)
    (item,), source = run.measured, run.run.sources[0]
    asked, numbers, average = (
        table_of(item, [row["query"] for row in rows]),
        item.table.columns(),
        average_cosines(rows),
    )
    random = np.array([average[query] for query in asked])
    span, above = numbers["s_query_positive"] - random, numbers["s_query_negative"] - random
    flags = item.table.has("near_positive").tolist()
    assert flags == [bool(s > 0 and a >= 0.9 * s) for a, s in zip(above, span, strict=True)]
    listed = [(q, float(flag), 1.0) for q, flag, s in zip(asked, flags, span, strict=True) if s > 0]
    assert 0 < sum(flags) < len(listed) < len(flags)
    assert_share(source.finding("near_positive"), listed)


def small_table(query: list[int], share: list[float] | None) -> TripletTable:
    ids, zeros = np.array(query), np.zeros(len(query))
    rows = Triplets(
        query=ids, positive=ids, negative=ids, record_offsets=np.arange(len(ids) + 1), record=ids, place=ids,
        share=None if share is None else np.array(share),
    )  # fmt: skip
    nothing: frozenset[str] = frozenset()
    return TripletTable(rows, None, 0.05, zeros, zeros, zeros, zeros, zeros, zeros.astype(np.uint32), nothing)


def test_a_share_among_some_rows_by_hand():
    table = small_table([3, 3, 5, 9], [0.5, 0.5, 1.0, 1.0])
    names = comparable_keys(np.arange(48, dtype=np.uint8).reshape(3, 16))
    flags = np.array([True, False, True, True])
    whole = table.share_of(flags, names)
    assert (whole.n, whole.estimate.value) == (2, pytest.approx(2.5 / 3))
    some = table.share_of(flags, names, np.array([True, True, False, True]))
    assert (some.n, some.estimate.value) == (2, 0.75)
    assert some.estimate.queries.tolist() == [names[0], names[2]]
    assert some.estimate.per_query == pytest.approx([-0.25 / 2, 0.25 / 2])


def near_and_far(n: int) -> dict[str, Rows]:
    """A source near to its queries and one far from them, so that few queries order them; every fifth lists blanks."""
    draw = random.Random(5)
    queries = [f"river {number}" for number in range(n)]
    made = {"near": "river {}", "far": "far{} away"}
    return {
        name: [
            {"query": q, "pos": [f"{q} answer"], "neg": [pattern.format(draw.random()), *[" "] * (number % 5 == 0)]}
            for number, q in enumerate(queries)
        ]
        for name, pattern in made.items()
    }


@pytest.mark.parametrize(
    ("sources", "settings"),
    [
        ({"a": messy(3, 80), "b": messy(4, 80)}, {"max_records": 12}),
        (near_and_far(300), {"until_ranked": 0.95}),
    ],
    ids=["max_records", "until_ranked"],
)
def test_shares_of_a_sample_are_those_of_all_rows_blanks_included(tmp_path, sources, settings):
    run = scored(tmp_path, sources, max_bad_fraction=1.0, **settings)
    for item in run.measured:
        source = next(source for source in run.run.sources if source.name == item.name)
        sample = set(map(bytes, item.query_keys))
        rows = sources[item.name]
        assert 0 < sum(text_key("query", row["query"]) in sample for row in rows) < len(rows)
        for name in ("empty", "repeat", "hub"):
            assert_share(source.finding(name), cells(list(sources.values()), rows, name))
        assert source.finding("empty").n_negatives > 0
