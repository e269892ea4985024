"""Sources of different queries: what the table, the pairs and the sentences say of them. Source: METHOD 16.1."""

from __future__ import annotations

from pathlib import Path

import pytest

import secid
from secid.analyses import shared_queries
from secid.analyses.shared_queries import counts_of, flags_of, scored_pairs
from secid.pages.sections.verdict import answer_table, below_table, notes, verdict
from secid.settings import Settings
from tests.unlike import HardnessEncoder, margin_case, write_unlike


def score(paths: list[str], **settings: object) -> secid.Run:
    return secid.score(paths, HardnessEncoder(), cache=False, controls="random", **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> secid.Run:
    return score(margin_case(tmp_path_factory.mktemp("margin")))


def test_a_source_that_keeps_easier_queries_does_not_change_its_place(run: secid.Run) -> None:
    sources = {source.name: source for source in run.sources}
    bm25, dense = (sources[name].in_table(1.0) for name in ("bm25", "dense"))
    assert sources["bm25"].hardness.value == pytest.approx(1.5, abs=0.05)
    assert bm25.hardness.value == pytest.approx(0.67, abs=0.05)
    assert dense.hardness.value == pytest.approx(0.79, abs=0.05)
    assert (bm25.n_queries, dense.n_queries) == (35, 35)
    assert bm25.hardness.value < dense.hardness.value < sources["bm25"].hardness.value
    (pair,) = run.comparisons
    assert pair.hardness is not None
    sign = 1 if pair.first == "bm25" else -1
    assert sign * pair.hardness.value == pytest.approx(bm25.hardness.value - dense.hardness.value)
    first, second = (sources[name].in_table(1.0).score.nats for name in (pair.first, pair.second))
    assert pair.difference_nats == pytest.approx(first - second)
    assert [pair.first, pair.second] == [source.name for source in run.sources]


def test_they_equal_the_scores_of_only_the_shared_rows(run: secid.Run, tmp_path: Path) -> None:
    """Scores differ only through the pool that IDF is counted over."""
    alone = score(
        write_unlike(tmp_path, {"bm25": dict.fromkeys(range(35), 0.67), "dense": dict.fromkeys(range(35), 0.79)})
    )
    assert {s.name: s.score.nats for s in alone.sources} == pytest.approx(
        {s.name: s.in_table(1.0).score.nats for s in run.sources}, rel=0.05
    )
    assert all(source.score.on_shared is None for source in alone.sources)


def test_a_pair_that_shares_less_than_the_table_needs_is_compared_on_what_it_shares(tmp_path: Path) -> None:
    """Each row is of its own queries then, and the pair still of the 32 that both have."""
    first = {number: 0.2 if number < 48 else 0.7 for number in range(80)}
    second = dict.fromkeys(range(48, 130), 0.5)
    run = score(write_unlike(tmp_path / "all", {"a": first, "b": second}))
    (pair,) = run.comparisons
    shared = {"a": {n: first[n] for n in range(48, 80)}, "b": {n: second[n] for n in range(48, 80)}}
    alone = {source.name: source.score.nats for source in score(write_unlike(tmp_path / "shared", shared)).sources}
    whole = {source.name: source.score.nats for source in run.sources}
    assert pair.n_shared_queries == 32
    of_shared, of_whole = (scores[pair.first] - scores[pair.second] for scores in (alone, whole))
    # The pool that words are counted in differs, which moves a score by a few percent.
    assert pair.difference_nats == pytest.approx(of_shared, rel=0.15)
    assert of_whole != pytest.approx(of_shared, rel=0.3)


def test_the_page_says_which_queries_rows_are_of(run: secid.Run) -> None:
    table = answer_table(run, full=False)
    column = [column.title for column in table.columns].index("queries")
    assert {row[0]: row[column] for row in table.rows[:2]} == {"bm25": "35/120", "dense": "35"}
    text = " ".join((*verdict(run), *notes(run)))
    assert "has 35 of the 120 queries" in text
    assert "35 queries that all sources share" in text


def test_the_hardness_on_the_rest_is_of_sources_that_have_both(tmp_path: Path) -> None:
    """c only has queries outside b, so it says nothing about how hard the queries of b are."""
    sources = {
        "a": {number: 0.6 if number < 40 else 0.5 for number in range(80)},
        "b": dict.fromkeys(range(40), 0.6),
        "c": dict.fromkeys(range(40, 80), 0.1),
    }
    (warning,) = (item for item in score(write_unlike(tmp_path, sources)).warnings if item.kind == "chosen_queries")
    n, on_these, on_the_rest = warning.values["sources"]["b"]
    assert n == 40
    assert (on_these, on_the_rest) == pytest.approx((0.6, 0.5), abs=0.05)


def test_where_too_little_is_shared_only_pairs_compare(tmp_path: Path) -> None:
    easy, hard = dict.fromkeys(range(60), 0.5), dict.fromkeys(range(60, 120), 0.9)
    paths = write_unlike(tmp_path, {"a": easy, "b": hard, "c": dict.fromkeys(range(20, 100), 0.7)})
    run = score(paths)
    assert {source.score.probability_first for source in run.sources} == {None}
    assert {frozenset((pair.first, pair.second)) for pair in run.comparisons} == {frozenset("ac"), frozenset("bc")}
    kinds = {warning.kind: warning.values for warning in run.warnings}
    assert kinds["few_shared_queries"] == {
        "first": "a", "second": "b", "n_shared_queries": 0, "n_apart": 1, "n_pairs": 3,
    }  # fmt: skip
    assert kinds["own_queries"] == {"n_common": 0, "n_smallest": 60, "n_largest": 80}
    ranks = {source.name: source.score.rank for source in run.sources}
    assert all(ranks[pair.first] < ranks[pair.second] for pair in run.comparisons)
    assert "crossings" in run.not_evaluated
    cells = [row[-1] for row in answer_table(run, full=False).rows]
    assert [cell.endswith("*") for cell in cells] == [True, True, True, False]  # the last row is of random passages


def test_a_small_source_does_not_cut_the_columns_of_the_others(tmp_path: Path) -> None:
    """On the 35 queries of `small`, bm25 and dense have the reverse of their order on all 200."""
    hardness = {"bm25": {n: 0.5 if n < 35 else 0.9 for n in range(200)}, "dense": dict.fromkeys(range(200), 0.7)}
    run = score(write_unlike(tmp_path, {**hardness, "small": dict.fromkeys(range(35), 0.6)}))
    sources = {source.name: source for source in run.sources}
    assert {name: source.in_table(1.0).n_queries for name, source in sources.items()} == {
        "bm25": 200, "dense": 200, "small": 35,
    }  # fmt: skip
    bm25, dense = (sources[name].in_table(1.0).hardness for name in ("bm25", "dense"))
    assert (bm25.value, dense.value) == pytest.approx((0.83, 0.7), abs=0.05)
    (pair,) = run.comparisons
    assert (pair.first, pair.second, pair.n_shared_queries) == ("dense", "bm25", 200)
    assert list(sources) == ["dense", "bm25", "small"]
    assert [source.score.rank for source in run.sources] == [1, 2, None], "what is compared with nothing cannot win"
    assert run.analyses["equal_hardness"].unranked == {"small": "few_shared"}
    assert [source.score.tie is None for source in run.sources] == [False, False, True]
    row = next(row for row in answer_table(run, full=False).rows if row[0] == "small")
    assert row[1] == "not ranked"
    assert "is not ranked: it shares too few queries with every other source" in below_table(run)[0]


def test_the_largest_source_decides_whether_the_table_is_of_common_queries() -> None:
    for n_largest, in_table in ((175, True), (176, False), (120, True)):
        counts = counts_of(flags_of([shared_queries.np.arange(n) for n in (n_largest, n_largest, 35)]))
        assert counts.in_table is in_table


def test_beyond_the_last_set_pairs_compare_tr_m(
    run: secid.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", 0)
    paths = write_unlike(tmp_path, {"a": dict.fromkeys(range(80), 0.5), "b": dict.fromkeys(range(40, 120), 0.6)})
    few = {name: dict.fromkeys(range(40, 80), 0.6) for name in ("c",)}
    by_trace = score([*paths, *write_unlike(tmp_path / "c", few)])
    assert {pair.number for pair in by_trace.comparisons} == {"score"}  # all share what the table is of
    run = score([*paths, *write_unlike(tmp_path / "d", {"d": dict.fromkeys(range(60, 100), 0.6)})])
    pairs = {frozenset((pair.first, pair.second)): pair for pair in run.comparisons}
    assert pairs[frozenset("ab")].number == "trace"
    assert next(warning for warning in run.warnings if warning.kind == "traces_compared").values["n_pairs"] == 3


def test_the_larger_source_decides_what_few_is() -> None:
    ids = [range(1000), range(199), range(200), range(29), range(29)]
    counts = counts_of(flags_of([shared_queries.np.array(own) for own in ids]))
    assert [counts.of(0, other).compares for other in (1, 2, 3)] == [False, True, False]
    assert counts.of(3, 4).compares  # the same queries


def test_beyond_budget_1_the_sets_of_a_pair_are_cut_to_its_sizes() -> None:
    shared, key = shared_queries.Shared(40, 80, b"queries"), shared_queries.SubsetKey
    for budget, partners in ((1.0, (-1, -1)), (1.01, (5, 2))):
        sets = shared_queries._sets((2, 5), shared, Settings(budget=budget))
        assert sets == [key(place, b"queries", other) for place, other in zip((2, 5), partners, strict=True)]


def test_sets_go_to_the_pairs_that_share_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", 3)
    key = shared_queries.SubsetKey
    sizes = {(0, 1): 50, (0, 2): 90, (1, 2): 40}
    sets = {(a, b): [key(a, bytes([n])), key(b, bytes([n]))] for (a, b), n in sizes.items()}
    assert scored_pairs(sizes, sets, {key(0, bytes([50]))}) == [(0, 2), (0, 1)]
