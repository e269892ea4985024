"""Agreement with downstream results, on the published tables of arXiv 2603.20990v3 and by hand (METHOD 12)."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from secid.analyses.agreement import (
    ERROR_RATE,
    Outcomes,
    _half_widths,
    agree,
    kendall_tau_b,
    pairs_ordered_alike,
    read_outcomes,
    shown_names,
    spearman_rho,
    top_1_regret,
    unmatched_names,
)
from secid.errors import InputError
from tests.snapshots import refusal, situations

SOURCES = ("BM25", "Dense", "LLM", "BM25+Dense", "BM25+LLM", "Dense+LLM")
SINGLE, HYBRID = SOURCES[:3], SOURCES[3:]
ECI = {  # Table 1
    "DistilBERT": (0.1265, 0.1755, 0.2612, 0.1510, 0.1939, 0.2192),
    "E5-base": (0.0954, 0.1191, 0.2112, 0.1072, 0.1533, 0.1659),
    "Contriever": (0.0667, 0.1170, 0.1813, 0.0918, 0.1240, 0.1498),
}
NDCG = {  # Table 2, means
    "DistilBERT": (0.344, 0.373, 0.392, 0.349, 0.359, 0.381),
    "E5-base": (0.452, 0.465, 0.479, 0.439, 0.450, 0.459),
    "Contriever": (0.349, 0.397, 0.434, 0.334, 0.359, 0.402),
}
PROXIES = {  # Table 3: gradient energy, MNRL loss, ambiguity
    "DistilBERT": (
        (27.59, 22.96, 29.83, 25.41, 28.66, 25.55),
        (2.416, 2.434, 2.184, 3.077, 2.955, 2.958),
        (0.881, 0.883, 0.733, 0.934, 0.911, 0.915),
    ),
    "E5-base": (
        (39.86, 39.61, 29.56, 42.96, 42.68, 40.86),
        (1.790, 2.107, 1.031, 2.584, 2.060, 2.297),
        (0.533, 0.689, 0.122, 0.715, 0.547, 0.690),
    ),
    "Contriever": (
        (162.68, 155.55, 91.90, 166.39, 163.00, 155.74),
        (2.573, 2.719, 1.033, 3.326, 2.710, 2.829),
        (0.801, 0.840, 0.344, 0.882, 0.811, 0.845),
    ),
}


def named(values: tuple[float, ...], names: tuple[str, ...] = SOURCES) -> dict[str, float]:
    table = dict(zip(SOURCES, values, strict=True))
    return {name: table[name] for name in names}


def test_the_score_orders_all_published_pairs_within_blocks():
    counts = [
        pairs_ordered_alike(named(ECI[encoder], block), named(NDCG[encoder], block))
        for encoder in ECI
        for block in (SINGLE, HYBRID)
    ]
    assert (sum(alike for alike, _ in counts), sum(total for _, total in counts)) == (18, 18)


def test_and_38_of_45_over_all_six():
    counts = [pairs_ordered_alike(named(ECI[encoder]), named(NDCG[encoder])) for encoder in ECI]
    assert (sum(alike for alike, _ in counts), sum(total for _, total in counts)) == (38, 45)


def test_proxies_do_not_order_the_published_pairs():
    for values in zip(*PROXIES.values(), strict=True):
        counts = [
            pairs_ordered_alike(named(numbers, block), named(NDCG[encoder], block))
            for encoder, numbers in zip(PROXIES, values, strict=True)
            for block in (SINGLE, HYBRID)
        ]
        assert sum(alike for alike, _ in counts) < 18


def test_a_constant_side_has_no_correlation():
    assert kendall_tau_b(np.ones(4), np.arange(4.0)) is None
    assert spearman_rho(np.ones(4), np.arange(4.0)) is None
    for n in (0, 1):
        assert kendall_tau_b(np.ones(n), np.ones(n)) is spearman_rho(np.ones(n), np.ones(n)) is None


def test_correlations_by_hand():
    """Mid-ranks of the second side are 1, 4, 2.5 and 2.5; one of the six pairs is a tie there."""
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 9.0, 7.0, 7.0])
    assert kendall_tau_b(a, b) == pytest.approx((3 - 2) / np.sqrt(6 * 5))
    assert spearman_rho(a, b) == pytest.approx(1.5 / np.sqrt(5.0 * 4.5))
    assert kendall_tau_b(a[:2], b[:2]) == 1.0


def test_regret_is_what_the_first_source_loses():
    assert top_1_regret(np.array([3.0, 1.0]), np.array([0.5, 0.7])) == pytest.approx(0.2)
    assert top_1_regret(np.array([1.0, 3.0]), np.array([0.5, 0.7])) == 0.0
    assert top_1_regret(np.array([3.0, 3.0]), np.array([0.5, 0.7])) is None


def test_a_table_of_outcomes_is_read(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("source,ndcg,ndcg_se,mrr\nbm25,0.5,0.01,\ndense,0.6,0.02,0.3\n", encoding="utf-8")
    ndcg, mrr = read_outcomes(path)
    assert ndcg.values == {"bm25": 0.5, "dense": 0.6}
    assert ndcg.errors == {"bm25": 0.01, "dense": 0.02}
    assert mrr.values == {"dense": 0.3}


def test_of_many_names_three_are_shown():
    assert shown_names(["a", "b", "c"]) == "'a', 'b', 'c'"
    assert shown_names(["a", "b", "c", "d"]) == "'a', 'b', 'c', …"


BROKEN = {
    "no column of sources": ("name,ndcg\nbm25,1\n", ""),
    "no metric": ("source\nbm25\n", ""),
    "empty": ("", ""),
    "a word": ("source,ndcg\nbm25,high\n", ":2"),
    "NaN": ("source,ndcg\nbm25,nan\n", ":2"),
    "too large": ("source,ndcg\nbm25,1e308\n", ":2"),
    "a decimal comma": ("source,ndcg\nbm25,0,51\n", ":2"),
    "a column twice": ("source,ndcg,ndcg\nbm25,1,2\n", ":1"),
    "a source twice": ("source,ndcg\nbm25,1\nbm25,2\n", ":3"),
    "a negative error": ("source,ndcg,ndcg_se\nbm25,1,-0.1\n", ""),
    "an error of some": ("source,ndcg,ndcg_se\nbm25,1,0.1\ndense,1,\n", ""),
}


def test_a_broken_table_is_refused_with_its_line(tmp_path, snapshot):
    path, errors = tmp_path / "results.csv", {}
    for situation, (text, line) in BROKEN.items():
        path.write_text(text, encoding="utf-8")
        errors[situation] = refusal(lambda: read_outcomes(path), InputError, f"{path}{line}").replace(
            f"{tmp_path}/", ""
        )
    snapshot("outcomes.txt", situations(errors))


def test_spaces_around_names_and_numbers_are_no_part_of_them(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("source, ndcg , ndcg_se\nbm25 , 0.5, 0.01\n\n", encoding="utf-8")
    assert read_outcomes(path) == [Outcomes("ndcg", {"bm25": 0.5}, {"bm25": 0.01})]


def planted(scores, error):
    """A run of these scores, every difference with this standard error."""
    names = [f"s{number}" for number in range(len(scores))]
    sources = [
        SimpleNamespace(
            name=n,
            scored=SimpleNamespace(nats=v, compared_curve=(), on_shared=None, proxies=SimpleNamespace(other=v)),
        )
        for n, v in zip(names, scores, strict=True)
    ]
    comparisons = [
        SimpleNamespace(
            first=a.name,
            second=b.name,
            interval_95=(difference - 1.96 * error, difference + 1.96 * error),
        )
        for a, b in combinations(sources, 2)
        for difference in [a.scored.nats - b.scored.nats]
    ]
    return SimpleNamespace(sources=sources, comparisons=comparisons, analyses={}, budget=1.0, not_evaluated={})


@pytest.mark.parametrize("error", [0.2, 1.0, 5.0])
def test_intervals_cover_the_truth_at_least_as_often_as_they_say(error):
    """True values are 1 apart on both sides; the order of two pairs differs between them."""
    generator = np.random.default_rng(3)
    scores, outcomes = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 1.0, 3.0, 5.0, 4.0])
    tau, rho = kendall_tau_b(scores, outcomes), spearman_rho(scores, outcomes)
    n_runs, held = 300, np.zeros(3)
    for _ in range(n_runs):
        a, b = (true + error * generator.standard_normal(5) for true in (scores, outcomes))
        table = Outcomes("ndcg", {f"s{n}": float(v) for n, v in enumerate(b)}, {f"s{n}": error for n in range(5)})
        found = agree(planted(a, error * np.sqrt(2.0)), [table])[0]
        regret = float(outcomes.max() - outcomes[int(a.argmax())])
        ends = (found.kendall_interval_95, found.spearman_interval_95, found.regret_interval_95)
        held += [low <= true <= high for (low, high), true in zip(ends, (tau, rho, regret), strict=True)]
        estimates = (found.kendall_tau_b, found.spearman_rho, found.top_1_regret)
        assert all(low <= value <= high for (low, high), value in zip(ends, estimates, strict=True))
    assert (held / n_runs >= 0.95).all()


def test_at_the_error_rate_of_a_run_widths_are_those_of_its_intervals():
    pair = SimpleNamespace(first="a", second="b", interval_95=(-0.25, 0.75))
    wide = _half_widths(SimpleNamespace(comparisons=(pair,)), ("a", "b", "c"), ERROR_RATE)
    assert wide.tolist() == [[0.0, 0.5, np.inf], [0.5, 0.0, np.inf], [np.inf, np.inf, 0.0]]


def test_sure_orders_leave_no_width_and_unsure_ones_all_of_it():
    values = {"s0": 1.0, "s1": 2.0, "s2": 3.0, "s3": 2.5}
    sure, other = agree(planted([1.0, 2.0, 3.0, 4.0], 1e-6), [Outcomes("ndcg", values, dict.fromkeys(values, 1e-6))])
    assert sure.kendall_interval_95 == pytest.approx((sure.kendall_tau_b,) * 2)
    assert sure.spearman_interval_95 == pytest.approx((sure.spearman_rho,) * 2)
    assert sure.regret_interval_95 == pytest.approx((0.5, 0.5), abs=1e-5)
    assert (sure.errors_of, other.errors_of) == (("scores", "outcomes"), ("outcomes",))
    unsure, exact = agree(planted([1.0, 2.0, 3.0, 4.0], 50.0), [Outcomes("ndcg", values, {})])
    assert unsure.kendall_interval_95 == unsure.spearman_interval_95 == (-1.0, 1.0)
    assert (unsure.regret_interval_95, unsure.errors_of) == (None, ("scores",))
    assert (exact.kendall_interval_95, exact.errors_of) == (None, ())


def test_a_tied_best_is_not_the_best_and_unmatched_tables_are_named():
    run = planted([1.0, 2.0, 3.0], 0.1)
    found = agree(run, [Outcomes("ndcg", dict.fromkeys(("s0", "s1", "s2"), 1.0), {})])
    assert {item.best for item in found} == {None}
    unmatched = [Outcomes("ndcg", {"x": 1.0, "y": 2.0}, {})]
    assert "'x', 'y'" in refusal(lambda: agree(run, unmatched), InputError, "--against")


def test_a_number_that_ties_at_the_top_puts_none_first():
    outcomes = [Outcomes("ndcg", {"s0": 1.0, "s1": 2.0, "s2": 3.0}, dict.fromkeys(("s0", "s1", "s2"), 0.1))]
    for found in agree(planted([1.0, 2.0, 2.0], 0.1), outcomes):
        assert (found.first, found.top_1_regret, found.regret_interval_95) == (None, None, None)
        assert found.best == "s2"
    for found in agree(planted([1.0, 1.0, 2.0], 0.1), outcomes):
        assert (found.first, found.top_1_regret) == ("s2", 0.0)


def test_beyond_budget_1_the_scores_on_equal_numbers_are_compared():
    """s2 has the highest score at B = 1; on equal numbers it is the last at larger budgets."""
    run = planted([1.0, 2.0, 3.0], 1e-6)
    run.budget = 100.0
    for source, ranked in zip(run.sources, (30.0, 20.0, 10.0), strict=True):
        curve = [(1.0, source.scored.nats), (10.0, ranked / 5), (100.0, ranked)]
        source.scored.compared_curve = tuple(SimpleNamespace(budget=budget, nats=nats) for budget, nats in curve)
    outcomes = [Outcomes("ndcg", {"s0": 3.0, "s1": 2.0, "s2": 1.0}, {})]
    found = {item.number: item for item in agree(run, outcomes)}
    assert set(found) == {"ECI_sem", "ECI at B = 10", "ECI at B = 100", "other"}
    assert found["ECI at B = 10"].kendall_tau_b == 1.0
    assert (found["ECI at B = 100"].first, found["ECI at B = 100"].kendall_tau_b) == ("s0", 1.0)
    assert found["ECI at B = 100"].errors_of == ("scores",)
    assert found["ECI_sem"].errors_of == ()
    run.not_evaluated["crossings"] = "the sources differ in size, and cannot be cut"
    assert {item.number for item in agree(run, outcomes)} == {"ECI_sem", "ECI at B = 100", "other"}


def test_the_scores_of_other_weights_name_a_budget_beyond_1():
    """A weight that lacks a source's score, and the run's own weight, do not count as separate numbers."""
    run = planted([1.0, 2.0, 3.0], 0.1)
    rows = {"closeness": (1.0, 2.0, 3.0), "relative": (3.0, 2.0, 1.0), "uniform": (1.0, 2.0, None)}
    scores = [SimpleNamespace(setting=k, scores=dict(zip(("s0", "s1", "s2"), v, strict=True))) for k, v in rows.items()]
    run.analyses["ablations"] = (SimpleNamespace(name="weight", base="closeness", rows=scores),)
    outcomes = [Outcomes("ndcg", {"s0": 3.0, "s1": 2.0, "s2": 1.0}, {})]
    taus = {item.number: item.kendall_tau_b for item in agree(run, outcomes)}
    assert taus == {"ECI_sem": -1.0, "weight relative": 1.0, "other": -1.0}
    run.budget = 100.0
    assert "weight relative at B = 100" in {item.number for item in agree(run, outcomes)}


def test_names_on_only_one_side_are_reported():
    run = SimpleNamespace(sources=[SimpleNamespace(name=name) for name in ("a", "b", "c")])
    outcomes = [
        Outcomes("ndcg", {"a": 1.0, "x": 2.0}, {}),
        Outcomes("mrr", {"b": 1.0, "y": 1.0, "z": 1.0, "w": 1.0}, {}),
    ]
    strange, missing = unmatched_names(run, outcomes)
    assert "'x', 'y', 'z'" in strange
    assert "'a'" not in strange
    assert "'c'" in missing
    assert "'b'" not in missing
    assert unmatched_names(run, [Outcomes("ndcg", dict.fromkeys("abc", 1.0), {})]) == []
