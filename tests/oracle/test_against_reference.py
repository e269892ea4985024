"""Compare plan, lexing and sweep with the independent reference, on the same embeddings (METHOD 11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secid.arrays import FLOAT32_DISTANCE
from secid.measure.blocks import Vectors
from secid.measure.gates import gate_means, gates, pair_loss_nats
from secid.measure.information import Eigen, eigenvalues, spectral_nats, trace
from secid.measure.sweep import Variant, sweep
from secid.measure.uncertainty import covariance, difference, holm, influence, influence_of_few
from secid.pool import Lexicon, Plan
from secid.records import Record, Source
from secid.settings import Settings
from secid.triplets.table import triplets_of
from tests.oracle import reference
from tests.planning import make_plan

pytestmark = pytest.mark.usefixtures("block_plan")

Rows = list[tuple[str, list[str], list[str]]]
BASE = Variant(0.05, "base", "full")


def plan_of(sources: dict[str, Rows], folder: Path, **settings: object) -> Plan:
    folder.mkdir(parents=True, exist_ok=True)
    streams = [
        (
            Source(name, ("x",)),
            [Record(q, tuple(p), tuple(n), "x", line) for line, (q, p, n) in enumerate(rows, 1)],
        )
        for name, rows in sources.items()
    ]
    return make_plan(streams, Settings(**settings), folder)


def embedded(plan: Plan, dimension: int, seed: int, twins: dict[str, str] | None = None) -> tuple[Vectors, dict, dict]:
    """Return random float32 unit rows. A text in `twins` gets its twin's row with float32 rounding noise."""
    generator = np.random.default_rng(seed)
    tables, matrices = [], []
    for store in (plan.queries, plan.passages):
        rows = generator.standard_normal((len(store), dimension))
        texts = store.get(0, len(store))
        for place, text in enumerate(texts):
            if twins and twins.get(text) in texts:
                noise = generator.standard_normal(dimension) * 6e-8
                rows[place] = rows[texts.index(twins[text])] + noise * np.linalg.norm(rows[texts.index(twins[text])])
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        matrices.append(torch.from_numpy(rows))
        exact = rows.astype(np.float64)
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
        tables.append(dict(zip(texts, exact, strict=True)))
    return Vectors(*matrices), *tables


def scored(plan: Plan, vectors: Vectors, folder: Path, tau: float = 0.05) -> dict[str, dict[str, float]]:
    """Return secid's numbers of every source, by the reference's names."""
    counted = np.ones(len(plan.passages), np.bool_)
    lexicon = Lexicon(
        "alphanumeric", plan.queries.packed, len(plan.queries), plan.passages.packed, counted, folder / "tokens"
    )
    idf = lexicon.idf(lexicon.pooled())
    found = {}
    for planned in plan.sources:
        rows = triplets_of(planned, "first")
        c = lexicon.coverage(rows.query, rows.negative, idf)
        c_positive = lexicon.coverage(rows.query, rows.positive, idf)
        variant = Variant(tau, "base", "full")
        swept = sweep(vectors, rows, {"base": c}, [variant])
        matrix = swept.state(variant).matrix()
        eci = spectral_nats(eigenvalues(swept.state(variant), len(rows)))
        found[planned.name] = {
            "n_triplets": len(rows),
            "eci_nats": eci,
            "eci_per_dimension": eci / vectors.dimension,
            "trace": trace(matrix),
            **vars(gate_means(gates(swept.dots, torch.from_numpy(c), tau), pair_loss_nats(swept.dots, tau), c_positive,
                0.5)),
        }  # fmt: skip
    return found


def expected(sources: dict[str, Rows], q_vec: dict, p_vec: dict, tau: float = 0.05) -> dict[str, dict[str, float]]:
    merged = {name: reference.merge_rows(rows) for name, rows in sources.items()}
    return {
        name: reference.score_source(records, q_vec, p_vec, reference.idf_for(merged, name), temperature=tau)
        for name, records in merged.items()
    }


WORDS = ["alpha", "beta", "Gamma", "delta7", "épsilon", "Ωmega", "the", "of", "一二", "x_y", "İstanbul", "ß"]


def random_sources(seed: int, n_records: int, n_negatives: int) -> dict[str, Rows]:
    generator = np.random.default_rng(seed)

    def text(low: int, high: int) -> str:
        return " ".join(generator.choice(WORDS, generator.integers(low, high))) + f" {generator.integers(1000)}"

    return {
        name: [
            (
                text(1, 6),
                [text(3, 30) for _ in range(generator.integers(1, 3))],
                [text(3, 30) for _ in range(n_negatives)],
            )
            for _ in range(n_records)
        ]
        for name in ("one", "two")
    }


@pytest.mark.parametrize(
    ("n_records", "n_negatives", "dimension", "n_seeds"),
    [(1, 1, 8, 3), (5, 2, 32, 3), (300, 7, 16, 1), (40, 3, 256, 1)],
)
def test_thousands_of_random_triplets_score_as_the_reference_says(tmp_path, n_records, n_negatives, dimension, n_seeds):
    for seed in range(n_seeds):
        sources = random_sources(seed, n_records, n_negatives)
        folder = tmp_path / str(seed)
        plan = plan_of(sources, folder)
        vectors, q_vec, p_vec = embedded(plan, dimension, seed)
        reference.assert_close(scored(plan, vectors, folder), expected(sources, q_vec, p_vec))


def test_a_damaged_embedding_is_noticed(tmp_path):
    sources = random_sources(0, 30, 3)
    plan = plan_of(sources, tmp_path)
    vectors, q_vec, p_vec = embedded(plan, 16, 0)
    first = next(iter(p_vec))
    p_vec[first] = np.roll(p_vec[first], 1)
    with pytest.raises(AssertionError):
        reference.assert_close(scored(plan, vectors, tmp_path), expected(sources, q_vec, p_vec))


texts = st.text(alphabet=st.sampled_from("aB cé ıİ_-.一\u0301\u200d7 "), max_size=12)
rows = st.tuples(texts, st.lists(texts, min_size=1, max_size=2), st.lists(texts, min_size=1, max_size=3))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(rows, min_size=1, max_size=6),
    tau=st.sampled_from([1e-4, 0.01, 0.05, 1.0, 1e3]),
    dimension=st.integers(2, 12),
    copy=st.booleans(),
)
def test_awkward_records_score_as_the_reference_says(tmp_path_factory, rows, tau, dimension, copy):
    """Empty queries, n = p, n = p except for spaces or case, one triplet, N below and above d, extreme tau."""
    folder = tmp_path_factory.mktemp("plan")
    if copy:
        query, positives, negatives = rows[0]
        rows = [*rows, (query, positives, [*negatives, positives[0], positives[0].upper(), f" {positives[0]} "])]
    sources = {"only": rows}
    plan = plan_of(sources, folder)
    positive = rows[0][1][0]
    twins = {positive.upper(): positive, f" {positive} ": positive}
    vectors, q_vec, p_vec = embedded(plan, dimension, len(rows), {k: v for k, v in twins.items() if k != v})
    ours, theirs = scored(plan, vectors, folder, tau), expected(sources, q_vec, p_vec, tau)
    # a float64 dot carries 1e-16 of absolute error, which the logits multiply by 1/tau
    reference.assert_close(ours, theirs, rel=1e-6, abs=max(1e-12, 1e-15 / tau))


def test_a_copy_of_the_positive_has_no_direction(tmp_path):
    twins = {f"{' ' * place}some passage": "some passage" for place in range(1, 40)}
    sources = {"only": [("a query", ["some passage"], list(twins))]}
    plan = plan_of(sources, tmp_path)
    vectors, _, _ = embedded(plan, 16, 0, twins)
    found = scored(plan, vectors, tmp_path)["only"]
    assert found["eci_nats"] == 0.0
    assert found["n_triplets"] == 39
    assert found["weight_mean"] > 0
    # rounding lifts one copy above the positive and drops the next below it; neither is an inversion
    assert (found["consistency_mean"], found["inversion_fraction"]) == (0.5, 0.0)


@pytest.mark.parametrize("budget", [1.0, 1000.0])
def test_influence_errors_and_bias_are_the_references(tmp_path, budget):
    sources = random_sources(3, 60, 4)
    sources["two"] = [*sources["two"], *[(q, p, n[:1]) for q, p, n in sources["one"][:20]]]
    plan = plan_of(sources, tmp_path)
    vectors, q_vec, p_vec = embedded(plan, 24, 3)
    lexicon = Lexicon(
        "alphanumeric", plan.queries.packed, len(plan.queries), plan.passages.packed,
        np.ones(len(plan.passages), np.bool_), tmp_path / "tokens",
    )  # fmt: skip
    idf = lexicon.idf(lexicon.pooled())
    ours, theirs = [], []
    merged = {name: reference.merge_rows(rows) for name, rows in sources.items()}
    for planned in plan.sources:
        rows = triplets_of(planned, "first")
        c = lexicon.coverage(rows.query, rows.negative, idf)
        swept = sweep(vectors, rows, {"base": c}, [BASE])
        weight = gates(swept.dots, torch.from_numpy(c), 0.05).weight.numpy()
        eigen = Eigen.of(swept.state(BASE), len(rows))
        columns = vectors, rows, swept.dots.squared_distance.numpy(), weight
        ours.append(influence(*columns, eigen, FLOAT32_DISTANCE, [budget]))
        alone, eigenvalues = influence_of_few(*columns, FLOAT32_DISTANCE, budget)
        np.testing.assert_allclose(eigenvalues[-24:], eigen.values, rtol=1e-5)
        scale = np.abs(ours[-1].per_triplet).max()
        assert np.abs(alone.per_triplet - ours[-1].per_triplet).max() < 1e-5 * scale
        assert np.abs(alone.information - ours[-1].information).max() < 1e-5 * ours[-1].information.max()
        assert alone.standard_errors() == pytest.approx(ours[-1].standard_errors(), rel=1e-6)
        records = merged[planned.name]
        theirs.append(reference.measure_source(records, q_vec, p_vec, reference.idf_for(merged, planned.name)))
    sums = [reference.source_sums(item, budget) for item in theirs]
    for mine, item, their_sums in zip(ours, theirs, sums, strict=True):
        direct = reference.influence(item.weight, item.direction, budget)
        scale = np.abs(direct).max()
        assert np.abs(mine.per_triplet - direct).max() < 1e-5 * scale
        assert mine.standard_errors()[0] == pytest.approx(reference.standard_error(their_sums), rel=1e-5)
        bias = reference.bias_nats(item.queries, item.weight, item.direction, budget)
        assert mine.bias_nats[0] == pytest.approx(bias, rel=1e-4)
    paired = difference(ours[0], ours[1], 0.0)
    assert paired.standard_error == pytest.approx(reference.paired_standard_error(*sums), rel=1e-5)
    assert paired.n_shared == 20
    assert covariance(ours)[0, 1] == pytest.approx(reference.covariance(*sums), rel=1e-4)


def test_holm_is_the_references():
    p_values = np.array([0.04, 0.001, 0.5, 0.02, 0.02])
    assert holm(p_values) == pytest.approx(reference.holm(list(p_values)))
