"""Compare paired differences of hardness, outscoring, tr M and score between sources with different queries.

Source: METHOD 16.1."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secid
from secid.analyses import shared_queries
from secid.results.run import Comparison, PairedDifference
from tests.fake_encoder import HashEncoder
from tests.oracle import between as oracle
from tests.oracle import reference
from tests.oracle.closeness import assert_close

N_QUERIES, N_PASSAGES = 120, 31
"""With one positive each, at most 30 passages are left to compare a query with, so all are used without a draw."""
WORDS = [f"w{number}" for number in range(25)]
Rows = dict[str, list[reference.Row]]
CLOSE: dict[str, Any] = {"rel": 2e-5, "abs": 2e-6}
"""Tolerances for float32 rows and small differences of large numbers."""


def subsets(seed: int, draw: np.random.Generator) -> list[range | list[int]]:
    """Return the queries of each source, with six kinds of differences between sources."""
    return [
        [range(120), range(40), range(20, 110)],
        [sorted(draw.permutation(120)[: draw.integers(30, 110)].tolist()) for _ in range(4)],
        [range(30), range(29), range(120), range(30, 60), range(30)],  # at and below the limits, and the same queries
        [range(70), range(30, 110), range(60, 120), range(4)],
        [range(60), range(60), range(60)],
        [range(4), range(4)],
    ][seed % 6]


def world(seed: int) -> Rows:
    """Return sources by name. A query has one to six negatives and one to three labelled positives."""
    draw = np.random.default_rng(seed)
    subjects = ("river", "stone", "bridge", "arch")
    passages = [f"{subjects[n % 4]} p{n} {' '.join(draw.choice(WORDS, 8))}" for n in range(N_PASSAGES)]
    queries, positives = [], []
    for number in range(N_QUERIES):
        first = int(draw.integers(N_PASSAGES))
        # In every fifth query the positive is of another subject, so that some are farther than random passages.
        subject = subjects[(first + (number % 5 == 0)) % 4]
        queries.append(f"{subject} q{number} {' '.join(draw.choice(WORDS, 4))}")
        others = draw.permutation(N_PASSAGES)[: draw.integers(0, 3)].tolist()
        positives.append([passages[place] for place in dict.fromkeys([first, *others])])
    sources: Rows = {}
    for name, own in zip("abcde", subsets(seed, draw), strict=False):
        hard = draw.uniform(0, 1)
        rows = []
        for number in own:
            near = [text for text in passages if text.split()[0] == queries[number].split()[0]]
            pool = near if draw.uniform() < hard else passages
            rows.append((queries[number], positives[number], draw.permutation(pool)[: draw.integers(1, 7)].tolist()))
        sources[name] = rows
    return sources


def write(sources: Rows, folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in sources.items():
        lines = [json.dumps({"query": q, "pos": p, "neg": n}) for q, p, n in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(folder / f"{name}.jsonl") for name in sources]


SETTINGS: dict[str, Any] = {"tokenizer": "alphanumeric", "cache": False, "sums": "float64"}


def score(sources: Rows, folder: Path, **settings: Any) -> secid.Run:
    return secid.score(write(sources, folder), HashEncoder(), controls="none", **SETTINGS, **settings)


@dataclass(frozen=True)
class Expected:
    """The reference's numbers of a world. measured : by source, with the triplets of the policy."""

    queries: Mapping[str, Collection[str]]
    measured: Mapping[str, reference.Measured]
    negatives: Mapping[str, list[oracle.Negative]]

    def comparison(self, a: str, b: str, number: str) -> dict[str, Any]:
        """Return the numbers of a pair, a minus b, as in a report."""
        first, second = self.negatives[a], self.negatives[b]
        main = oracle.paired(first, second, "trace")
        if number == "score":
            main = oracle.Paired(*reference.shared_difference(self.measured[a], self.measured[b]))
        assert main is not None
        sides = {name: oracle.paired(first, second, name) for name in ("hardness", "outscoring")}
        return {
            "difference": main.value,
            "standard_error": main.standard_error,
            "interval_95": main.interval_95 or (-1.0, 1.0),  # a score and a trace lie between 0 and 1
            "n_shared": main.n_queries,
            "p": main.p,
            **{name: own and {"value": own.value, "interval_95": own.interval_95} for name, own in sides.items()},
        }


def expected(sources: Rows, policy: str = "first") -> Expected:
    merged = {name: reference.merge_rows(rows) for name, rows in sources.items()}
    q_vec = HashEncoder().table(sorted({q for rows in merged.values() for q, _, _ in rows}), "query")
    texts = sorted({text for rows in merged.values() for _, p, n in rows for text in (*p, *n)})
    p_vec = HashEncoder().table(texts, "passage")
    scored = {
        name: [(t, len(record[1]) if policy == "all" else 1) for record in records
               for t in reference.policy_triplets(record, policy, q_vec, p_vec)]
        for name, records in merged.items()
    }  # fmt: skip
    pool = {text for own in scored.values() for triplet, _ in own for text in triplet[1:]}
    assert 13 <= len(pool) <= N_PASSAGES  # at least ten are left of each query's
    idf = reference.idf_table(*reference.document_frequencies(pool))
    labels = {q: set(p) for rows in sources.values() for q, p, _ in rows}
    random = oracle.random_means(labels, sorted(pool), q_vec, p_vec)
    measured = {
        name: reference.measure_triplets([t for t, _ in own], q_vec, p_vec, idf) for name, own in scored.items()
    }
    return Expected(
        {name: {row[0] for row in rows} for name, rows in sources.items()},
        measured,
        {name: oracle.negatives_of(measured[name], [n for _, n in own], random) for name, own in scored.items()},
    )


def shown(pair: Comparison) -> dict[str, Any]:
    """Return the same numbers from a report."""
    sides = {"hardness": pair.hardness, "outscoring": pair.outscoring}
    return {
        "difference": pair.difference_nats,
        "standard_error": pair.standard_error_nats,
        "interval_95": pair.interval_95,
        "n_shared": pair.n_shared_queries,
        "p": pair.p,
        **{name: own and {"value": own.value, "interval_95": own.interval_95} for name, own in sides.items()},
    }


def check(run: secid.Run, theirs: Expected, most_sets: int = 64) -> None:
    """Compare every pair of a run with the reference. Raise AssertionError."""
    pairs = oracle.compared(theirs.queries)
    assert {tuple(sorted((pair.first, pair.second))) for pair in run.comparisons} == pairs.keys()
    by_score = oracle.by_score(theirs.queries, most_sets)
    all_p = []
    for pair in run.comparisons:
        names = tuple(sorted((pair.first, pair.second)))
        assert pair.number == ("score" if names in by_score else "trace")
        assert pair.n_shared_queries == pairs[names]
        own = theirs.comparison(pair.first, pair.second, pair.number)
        assert own["difference"] > -CLOSE["abs"]
        assert_close(shown(pair), own, **CLOSE)
        all_p.append(own["p"])
    if all_p:
        assert_close([pair.p_holm for pair in run.comparisons], reference.holm(all_p), rel=1e-3, abs=1e-6)
        assert [pair.established for pair in run.comparisons] == [p < 0.05 for p in reference.holm(all_p)]
    common = oracle.common_queries(theirs.queries)
    for source in run.sources:
        assert (source.score.on_shared is None) == (common is None)
        if source.score.on_shared is not None and common is not None:
            assert source.score.on_shared.n_queries == len(common)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_of_a_run_are_those_of_the_reference(tmp_path: Path, seed: int) -> None:
    sources = world(seed)
    check(score(sources, tmp_path), expected(sources))


@pytest.mark.parametrize("seed", [0, 3])
def test_negatives_shared_among_several_positives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The reference's score does not support shares, so scores are not compared; most pairs compare tr M."""
    monkeypatch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", 0)
    sources = world(seed)
    run, theirs = score(sources, tmp_path, positives="all"), expected(sources, "all")
    for pair in run.comparisons:
        ours, own = shown(pair), theirs.comparison(pair.first, pair.second, "trace")
        names = own.keys() if pair.number == "trace" else ("hardness", "outscoring", "n_shared")
        assert_close({name: ours[name] for name in names}, {name: own[name] for name in names}, **CLOSE)
    assert run.comparisons


@pytest.mark.parametrize(("seed", "most_sets"), [(1, 0), (3, 2)])
def test_pairs_beyond_the_last_matrix_compare_tr_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most_sets: int
) -> None:
    monkeypatch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", most_sets)
    sources = world(seed)
    run = score(sources, tmp_path)
    check(run, expected(sources), most_sets)
    assert "trace" in {pair.number for pair in run.comparisons}


def farther(rows: Rows) -> Rows:
    """Return the rows with positives of another subject, which are farther from their queries than random passages."""
    subject = {"river": "stone", "stone": "bridge", "bridge": "arch", "arch": "river"}
    turned = {
        text: " ".join([subject[text.split()[0]], *text.split()[1:]]) for own in rows.values() for text, _, _ in own
    }
    return {name: [(turned[q], p[:1], n) for q, p, n in own if n != p[:1]] for name, own in rows.items()}


def test_hardness_is_not_evaluated_where_positives_are_farther_than_random_passages(tmp_path: Path) -> None:
    sources = farther(
        {name: [row for row in rows if int(row[0].split()[1][1:]) % 5] for name, rows in world(0).items()}
    )
    theirs = expected(sources)
    run = score(sources, tmp_path)
    check(run, theirs)
    assert run.comparisons
    assert {pair.hardness for pair in run.comparisons} == {None}


def test_the_worlds_hold_every_case() -> None:
    """The tests above are weak if a case does not occur."""
    apart, compared, shares = 0, 0, set()
    for seed in range(6):
        theirs = expected(world(seed))
        pairs = oracle.compared(theirs.queries)
        n_pairs = len(list(combinations(theirs.queries, 2)))
        apart, compared = apart + n_pairs - len(pairs), compared + len(pairs)
        shares |= set(pairs.values())
        for negatives in theirs.negatives.values():
            values = {name: [own.parts[name][0] for own in negatives] for name in ("hardness", "outscoring", "trace")}
            assert all(len(set(own)) > 1 for own in values.values())
    assert min(apart, compared) >= 5
    assert {4, 30} <= shares


DAMAGE = {
    "near": lambda own: replace(own, near=own.near + 0.02),
    "best": lambda own: replace(own, best=own.best - 0.02),
    "random": lambda own: replace(own, random=own.random + 0.02),
    "weight": lambda own: replace(own, weight=own.weight + 0.01),
    "share": lambda own: replace(own, share=0.9 * own.share),
}


@pytest.fixture(scope="module")
def first_world(tmp_path_factory: pytest.TempPathFactory) -> tuple[secid.Run, Expected]:
    """Return a world in which each source has separate queries, compared by tr M."""
    sources = world(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", 0)
        return score(sources, tmp_path_factory.mktemp("world")), expected(sources)


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_reference_notices_one_damaged_negative(first_world: tuple[secid.Run, Expected], damage: str) -> None:
    run, theirs = first_world
    check(run, theirs, 0)
    shared = theirs.queries["a"] & theirs.queries["b"]
    negatives = list(theirs.negatives["a"])
    place = next(place for place, own in enumerate(negatives) if own.query in shared)
    negatives[place] = DAMAGE[damage](negatives[place])
    with pytest.raises(AssertionError):
        check(run, replace(theirs, negatives={**theirs.negatives, "a": negatives}), 0)


@pytest.mark.parametrize("name", ["hardness", "outscoring", "trace"])
def test_the_reference_notices_a_wrong_formula(first_world: tuple[secid.Run, Expected], name: str) -> None:
    """Wrong formulas: errors by triplet, unpaired sides, and differences over all queries."""
    run, theirs = first_world
    pair = next(pair for pair in run.comparisons if {pair.first, pair.second} == {"a", "b"})
    a, b = (theirs.negatives[side] for side in (pair.first, pair.second))
    right = oracle.paired(a, b, name)
    assert right is not None
    ours = {
        "hardness": pair.hardness,
        "outscoring": pair.outscoring,
        "trace": PairedDifference(value=pair.difference_nats, interval_95=pair.interval_95),
    }[name]
    assert ours is not None
    shared = {own.query for own in a} & {own.query for own in b}
    a, b = ([own for own in side if own.query in shared] for side in (a, b))
    apart = [
        [replace(own, query=f"{own.query} {side} {n}") for n, own in enumerate(rows)]
        for side, rows in (("a", a), ("b", b))
    ]
    unpaired = [[replace(own, query=f"{own.query} {side}") for own in rows] for side, rows in (("a", a), ("b", b))]
    whole = [theirs.negatives[side] for side in (pair.first, pair.second)]
    for sides in (apart, unpaired, whole):
        queries = {own.query for side in sides for own in side}
        wrong = oracle.paired(*sides, name, queries)
        assert wrong is not None
        with pytest.raises(AssertionError):
            assert_close(ours.interval_95, replace(wrong, n_queries=right.n_queries).interval_95, rel=1e-3)


def test_the_rules_notice_another_limit() -> None:
    queries = expected(world(2)).queries
    assert oracle.compared(queries, 31) != oracle.compared(queries) != oracle.compared(queries, 29)
