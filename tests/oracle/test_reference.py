"""Tests of the reference for METHOD 1, 2 and the positive policies of 9, and of its independence."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import reference
from tests.oracle.reference import assert_close
from tests.oracle.samples import hand_made, information_matrix, random_source, sigma, unit

# METHOD 1


def test_rows_of_one_query_and_first_positive_become_one_record():
    rows = [("q", ["p"], ["a", "b", "a"]), ("r", ["p"], ["a"]), ("q", ["p", "p2"], ["b", "c"]), ("q", ["p2"], ["d"])]
    assert reference.merge_rows(rows) == [
        ("q", ("p", "p2"), ("a", "b", "c")),
        ("r", ("p",), ("a",)),
        ("q", ("p2",), ("d",)),
    ]


def test_a_record_gives_one_triplet_per_negative_and_none_without():
    assert reference.triplets(("q", ("p", "p2"), ("a", "b"))) == [("q", "p", "a"), ("q", "p", "b")]
    assert reference.triplets(("q", ("p",), ())) == []


# METHOD 2: lexing


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        ("alphanumeric", "A b_c, x2 É!", {"a", "b", "c", "x2", "é"}),
        ("alphanumeric", "__ -- !", set()),
        ("alphanumeric2", "A b_c x2 Éa", {"x2", "éa"}),
        ("whitespace", " A b_c,\tx2\n", {"a", "b_c,", "x2"}),
        ("trigrams", " Ab \t cD", {"ab ", "b c", " cd"}),
        ("trigrams", "abc", {"abc"}),
        ("trigrams", " Ab ", {"ab"}),
        ("trigrams", " A ", {"a"}),
        ("trigrams", " \n", set()),
    ],
)
def test_tokens(tokenizer, text, expected):
    assert reference.tokens(text, tokenizer) == expected


def test_document_frequency_counts_each_distinct_document_once():
    frequencies, n_documents = reference.document_frequencies(["a a b", "b c", "a a b"])
    assert (dict(frequencies), n_documents) == ({"a": 1, "b": 2, "c": 1}, 2)
    idf = reference.idf_table(frequencies, n_documents)
    assert_close([idf("b"), idf("a"), idf("unseen")], [1.0, math.log(3 / 2) + 1, math.log(3) + 1], rel=1e-15)


def test_idf_corpora_differ_in_the_texts_they_count():
    sources = {
        "one": [("q w", ("p",), ("n w",)), ("unscored w", ("p9 w",), ())],
        "two": [("q w", ("p",), ("n2", "n3 w"))],
    }
    # pooled: p, "n w", n2, "n3 w"; own: p, "n w"; with queries: pooled and "q w".
    idf = {
        name: reference.idf_for(sources, "one", name)("w")
        for name in ("pooled", "own", "pooled_with_queries", "uniform")
    }
    expected = {
        "pooled": math.log(5 / 3) + 1,
        "own": math.log(3 / 2) + 1,
        "pooled_with_queries": math.log(6 / 4) + 1,
        "uniform": 1.0,
    }
    assert_close(idf, expected, rel=1e-15)


def test_coverage_by_hand():
    idf = {"heart": 3.0, "rate": 1.0, "of": 0.5}.__getitem__
    assert reference.coverage("Heart rate of", "the RATE of_change", idf) == 1.5 / 4.5
    assert reference.coverage("heart", "heart heart", idf) == 1.0
    assert reference.coverage("?!", "heart", idf) == 0.0
    assert reference.coverage("heart", "", idf) == 0.0


# METHOD 2: gates and score


def test_score_and_diagnostics_by_hand():
    score, _ = hand_made(temperature=0.1)
    # s_qp 0.8; s_qn 0.6, 0; s_pn 0.96, 0.6; coverage 1/2 ("red"), 0.
    pi, rho, covered = [sigma(2.0), sigma(8.0)], [sigma(3.6), sigma(6.0)], [0.5, 0.0]
    weight = [pi[0] * rho[0] * 0.5, pi[1] * rho[1]]
    # u = (-1, 1)/sqrt(2) and (-2, 1)/sqrt(5): M is 2 x 2, its determinant by hand.
    xx = (weight[0] / 2 + weight[1] * 4 / 5) / 2
    yy = (weight[0] / 2 + weight[1] / 5) / 2
    xy = (-weight[0] / 2 - weight[1] * 2 / 5) / 2
    eci = math.log((1 + xx) * (1 + yy) - xy**2)
    expected = {
        "n_triplets": 2,
        "eci_nats": eci,
        "eci_per_dimension": eci / 2,
        "trace": sum(weight) / 2,
        "consistency_mean": sum(pi) / 2,
        "locality_mean": sum(rho) / 2,
        "coverage_mean": sum(covered) / 2,
        "positive_coverage_mean": 0.5,
        "residual_mean": 0.75,
        "weight_mean": sum(weight) / 2,
        "pair_loss_mean": -(math.log(pi[0]) + math.log(pi[1])) / 2,
        "inversion_fraction": 0.0,
        "low_locality_fraction": 0.0,
        "high_coverage_fraction": 0.5,
    }
    assert_close(score, expected, rel=1e-12)


def weighted(weights: list[float], directions: list[list[float]]) -> float:
    """Return the score of planted weights and directions, in nats."""
    return reference.log_det_nats(reference.singular_values(np.array(weights), np.array(directions)))


def test_a_single_direction_gives_log_of_one_plus_mean_weight():
    assert_close(weighted([0.2, 0.5, 0.9], [[0, 1, 0]] * 3), math.log(1 + 1.6 / 3), rel=1e-14)


def test_orthogonal_directions_add_and_beat_one_direction():
    two = weighted([0.2, 0.6], [[1, 0, 0], [0, 0, 1]])
    assert_close(two, math.log(1.1) + math.log(1.3), rel=1e-14)
    assert two > weighted([0.2, 0.6], [[1, 0, 0], [1, 0, 0]])


def test_planted_source_gets_the_planted_score():
    # q = e1; p and n share s_q, so pi = 1/2; n = -p off e1, so s_pn is planted as well.
    share = 0.9
    side = math.sqrt(1 - share**2)
    q_vec, p_vec = {"x": unit(1, 0)}, {"p": np.array([share, side]), "n": np.array([share, -side])}
    score = reference.score_source([("x", ("p",), ("n",))], q_vec, p_vec, reference.uniform_idf, temperature=0.3)
    rho = sigma((share**2 - side**2 - share) / 0.3)
    assert_close(score["eci_nats"], math.log(1 + 0.5 * rho), rel=1e-12)
    # A tie of positive and negative is no inversion.
    assert (score["consistency_mean"], score["inversion_fraction"], score["low_locality_fraction"]) == (0.5, 0.0, 1.0)


def test_query_echo_scores_zero():
    records = [("red fox", ("fox",), ("red fox",)), ("old tree", ("oak",), ("old tree",))]
    generator = np.random.default_rng(3)
    q_vec = {record[0]: unit(*generator.normal(size=5)) for record in records}
    p_vec = {text: unit(*generator.normal(size=5)) for record in records for text in (record[1][0], record[2][0])}
    score = reference.score_source(records, q_vec, p_vec, reference.idf_for({"echo": records}, "echo"))
    assert (score["eci_nats"], score["trace"], score["coverage_mean"]) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("offset", "has_direction"), [(0.0, False), (6e-7, False), (0.9e-3, False), (1.1e-3, True)])
def test_a_residual_of_rounding_noise_has_no_direction(offset, has_direction):
    p_vec = {"p": np.array([0.6, 0.8, 0.0]), "n": np.array([0.6, 0.8, offset])}
    score = reference.score_source([("x", ("p",), ("n",))], {"x": unit(1, 0, 0)}, p_vec, reference.uniform_idf)
    assert (score["trace"] > 0) is has_direction
    assert (score["eci_nats"] > 0) is has_direction
    assert score["weight_mean"] > 0
    assert score["n_triplets"] == 1


@pytest.mark.parametrize(("offset", "inverted"), [(6e-7, False), (-6e-7, False), (0.9e-3, False), (1.1e-3, True)])
def test_a_copy_that_rounding_lifts_above_the_positive_is_not_an_inversion(offset, inverted):
    p_vec = {"p": np.array([0.6, 0.8, 0.0]), "n": np.array([0.6 + offset, 0.8, 0.0])}
    score = reference.score_source([("x", ("p",), ("n",))], {"x": unit(1, 0, 0)}, p_vec, reference.uniform_idf)
    assert score["inversion_fraction"] == inverted
    assert (score["consistency_mean"] == 0.5) is not inverted


@pytest.mark.parametrize("temperature", [1e-12, 1e12])
def test_extreme_temperatures_stay_finite(temperature):
    score, _ = hand_made(temperature=temperature)
    assert all(math.isfinite(value) for value in score.values())
    assert score["consistency_mean"] == pytest.approx(1.0 if temperature < 1 else 0.5)


def test_a_source_without_triplets_is_an_error():
    with pytest.raises(ValueError, match="no triplet"):
        reference.score_source([("q", ("p",), ())], {}, {}, reference.uniform_idf)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4), st.integers(1, 9))
def test_score_lies_between_zero_and_trace_and_equals_the_determinant(seed, n_queries, n_negatives, dimension):
    measured = random_source(seed, n_queries, n_negatives, dimension)
    score = reference.summary(measured)
    matrix = information_matrix(measured)
    assert 0.0 <= score["eci_nats"] <= score["trace"] * (1 + 1e-12)
    assert score["trace"] <= 1.0
    assert_close(score["eci_nats"], np.linalg.slogdet(np.eye(dimension) + matrix)[1], rel=1e-9, abs=1e-13)
    assert_close(score["trace"], np.trace(matrix), rel=1e-12)


def test_rotation_and_order_change_nothing():
    measured = random_source(5, 20, 3, 6)
    rotation, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(6, 6)))
    order = np.random.default_rng(7).permutation(60)
    rotated = reference.singular_values(measured.weight[order], measured.direction[order] @ rotation)
    assert_close(rotated, reference.singular_values(measured.weight, measured.direction), rel=1e-12)


# METHOD 9: positive policies


def test_positive_policies():
    q_vec = {"q": unit(1, 0)}
    p_vec = {"middle": unit(3, 4), "far": unit(0, 1), "near": unit(4, 3), "n": unit(1, -1)}
    record = ("q", ("middle", "far", "near"), ("n",))
    triplets = {
        policy: [positive for _, positive, _ in reference.policy_triplets(record, policy, q_vec, p_vec)]
        for policy in ("first", "hardest", "easiest", "all")
    }
    expected = {"first": ["middle"], "hardest": ["far"], "easiest": ["near"], "all": ["middle", "far", "near"]}
    assert triplets == expected


def test_policy_all_keeps_the_number_of_negatives():
    # Two equal positives share the weight: the score is that of one of them.
    q_vec, p_vec = {"q": unit(1, 0)}, {"p": unit(4, 3), "twin": unit(4, 3), "n": unit(0, 1), "m": unit(3, -4)}
    both, alone = ("q", ("p", "twin"), ("n", "m")), ("q", ("p",), ("n", "m"))
    scored = reference.policy_triplets(both, "all", q_vec, p_vec)
    measured = reference.measure_triplets(scored, q_vec, p_vec, reference.uniform_idf)
    expected = reference.score_source([alone], q_vec, p_vec, reference.uniform_idf)
    assert_close(reference.summary(measured, n_positives=[2] * 4), expected, rel=1e-12)


def modules_imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_reference_imports_nothing_of_secid(tmp_path):
    folder = Path(__file__).parent
    parts = [path for path in folder.glob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert len(parts) >= 5
    offenders = {path.name for path in parts if any(name.split(".")[0] == "secid" for name in modules_imported(path))}
    assert offenders == set()
    culprit = tmp_path / "culprit.py"
    culprit.write_text("from secid.measure import gates\n", encoding="utf-8")
    assert modules_imported(culprit) == {"secid.measure"}
