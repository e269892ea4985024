"""Compare a guide's numbers with loops over Python floats, which notice damage."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from secid.analyses.guide import curves as curves_of
from secid.measure.false_negatives import margin_flags
from secid.triplets.estimates import clustered_mean, stratified_mean, wilson_interval
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.oracle import guide as reference
from tests.oracle.objectives import Record, losses_and_gradients
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import scored

TOLERANCE = 1e-6
"""Source: METHOD 11."""
OTHER = HashEncoder(64, name="other")


def texts_of(rows):
    """Return distinct queries and passages."""
    passages = [text for row in rows for text in (*row["pos"], *row["neg"])]
    return [row["query"] for row in rows], list(dict.fromkeys(passages))


def vectors(path: Path, rows, encoder: HashEncoder = OTHER) -> Path:
    """Write a file of the encoder's vectors for all texts of the rows."""
    queries, passages = texts_of(rows)
    np.savez(
        path,
        vector=np.concatenate([encoder.encode(queries, "query"), encoder.encode(passages, "passage")]),
        text_sha256=np.array([hashlib.sha256(text.encode()).hexdigest() for text in (*queries, *passages)]),
        role=np.array(["query"] * len(queries) + ["passage"] * len(passages)),
    )
    return path


def encoder_of(table):
    """Return an encoder that looks up vectors by text."""
    return SimpleNamespace(encode=lambda texts, role: np.array([table[text] for text in texts]))


def pairs(rows, encoder):
    queries, passages = texts_of(rows)
    return reference.pairs_of(rows, encoder.table(queries, "query"), encoder.table(passages, "passage"))


@pytest.fixture(scope="module")
def rows():
    rows = clean_rows(60, 4)
    rows[7]["neg"][1] = rows[7]["pos"][0]  # equal to the scored positive
    return rows


@pytest.fixture(scope="module")
def result(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    return scored(folder, {"mined": rows}, guide=str(vectors(folder / "guide.npz", rows)))


def test_suspects_agreement_and_curves_are_those_of_loops(rows, result):
    target, guide = pairs(rows, PieceEncoder()), pairs(rows, OTHER)
    run = result.run
    (source,), (margins,) = run.analyses["guide"].sources, run.analyses["margins"]
    suspects = reference.suspect_share(guide, run.analyses["guide"].random_score)
    assert 0.05 < suspects < 0.9
    assert source.suspect_share == pytest.approx(suspects, rel=TOLERANCE)
    assert run.sources[0].finding("suspect").share == pytest.approx(suspects, rel=TOLERANCE)
    assert run.sources[0].finding("suspect").interval_95 == source.interval_95
    assert run.sources[0].score.on_shared is None, "one source is its own table"
    assert source.agreement == pytest.approx(reference.same_order(target, guide), rel=TOLERANCE)
    assert source.rank_correlation == pytest.approx(reference.spearman(target, guide), rel=TOLERANCE)
    for curves, of in ((margins.target, target), (margins.guide, guide)):
        assert {curve.kind: (min(curve.values), max(curve.values)) for curve in curves} == reference.SPANS
        for curve in curves:
            shares = [reference.flagged_share(of, curve.kind, value) for value in curve.values]
            assert curve.shares == pytest.approx(shares, rel=TOLERANCE, abs=1e-12)


def test_score_without_suspects_is_that_of_the_rest_in_the_same_pool(rows, result):
    (item,) = result.measured
    (source,) = result.run.analyses["guide"].sources
    keep = ~item.table.has("suspect")
    _, passages = texts_of(rows)
    table = PieceEncoder().table(passages, "passage")
    differences = np.array([table[negative] - table[row["pos"][0]] for row in rows for negative in row["neg"]])
    weights = item.table.gates().weight.numpy()
    rest = reference.score_nats(weights[keep], differences[keep], int(keep.sum()))
    assert source.without_suspects.n_triplets == keep.sum()
    assert source.without_suspects.eci_nats == pytest.approx(rest, rel=TOLERANCE)
    assert abs(rest - reference.score_nats(weights, differences, len(keep))) > 100 * TOLERANCE  # it can fail


@pytest.mark.parametrize("damage", ["level", "role", "encoder"])
def test_the_reference_notices_damage(rows, result, damage):
    (source,) = result.run.analyses["guide"].sources
    encoder = OTHER if damage != "encoder" else HashEncoder(65)
    of = pairs(rows, encoder)
    if damage == "role":
        of = [(negative, positive) for positive, negative in of]
    share = reference.suspect_share(of, result.run.analyses["guide"].random_score + (0.1 if damage == "level" else 0.0))
    assert abs(share - source.suspect_share) > 1e-3


@pytest.mark.parametrize("sign", [1, -1])
def test_relative_margin_below_zero_lowers_the_bar(sign):
    assert margin_flags(np.array([sign * 0.5 - 0.02]), np.array([sign * 0.5]), "relative", 0.05).all()
    assert not margin_flags(np.array([sign * 0.5 - 0.03]), np.array([sign * 0.5]), "relative", 0.05).any()


def test_curves_run_over_the_range_of_the_scores():
    found = curves_of(np.zeros(1), np.ones(1), np.ones(1), (-4.0, 6.0))
    ends = {curve.kind: (curve.values[0], curve.values[-1]) for curve in found}
    assert {len(curve.values) for curve in found} == {21}
    assert ends == {"absolute": (0.0, 2.0), "relative": (0.0, 0.2), "maximum": (-4.0, 6.0)}


def test_stratified_mean_is_that_of_loops():
    draw = np.random.default_rng(0)
    n = 240
    stratum, query = draw.permutation(np.arange(n) % 4), draw.integers(0, 50, n)
    query = np.unique(query, return_inverse=True)[1]
    values = (draw.random(n) < 0.2 + 0.2 * stratum).astype(float)
    known = draw.random(n) < 0.4
    names = np.arange(query.max() + 1).astype("S16")
    estimate = stratified_mean(np.where(known, values, np.nan), known, stratum, query, names)
    value, variance = reference.stratified(values.tolist(), known.tolist(), stratum.tolist(), query.tolist())
    assert estimate.value == pytest.approx(value, rel=1e-12)
    assert estimate.standard_error**2 == pytest.approx(variance, rel=1e-12)
    assert abs(values[known].mean() - value) > 1e-3  # the strata count
    whole = stratified_mean(values, np.ones(n, bool), np.zeros(n, int), query, names)
    assert whole.per_query == pytest.approx(clustered_mean(values, query, names).per_query)


def test_a_stratum_that_one_value_is_known_of_has_no_error_of_its_own():
    known, stratum = np.array([True, False, True, True]), np.array([0, 0, 1, 1])
    estimate = stratified_mean(
        np.array([1.0, np.nan, 0.0, 1.0]), known, stratum, np.arange(4), np.arange(4).astype("S16")
    )
    assert estimate.value == 0.75
    assert estimate.per_query == pytest.approx(np.array([0.25, 0.25, -0.25 - 0.5 * 2**0.5, -0.25 + 0.5 * 2**0.5]) / 4)


def test_no_suspect_in_a_sample_bounds_the_share_by_the_sample():
    n, known = 10_000, np.arange(10_000) % 100 == 0
    stratum, query = np.zeros(n, int), np.arange(n)
    estimate = stratified_mean(np.zeros(n), known, stratum, query, query.astype("S16"))
    low, high = wilson_interval(estimate)
    assert low == 0.0
    assert high == pytest.approx(1.96**2 / (100 + 1.96**2), rel=0.05)


def test_samples_cover_the_share_of_the_whole(rows, tmp_path):
    rows = clean_rows(150, 4)
    path = vectors(tmp_path / "guide.npz", rows)
    whole = scored(tmp_path, {"mined": rows}, guide=str(path)).run.analyses["guide"].sources[0]
    assert whole.n_scored == 600
    sources = [
        scored(tmp_path, {"mined": rows}, guide=str(path), guide_sample=120, seed=seed).run.analyses["guide"].sources[0]
        for seed in range(12)
    ]
    assert {source.n_scored for source in sources} == {120}
    assert len({source.suspect_share for source in sources}) > 6
    covering = [low <= whole.suspect_share <= high for low, high in (source.interval_95 for source in sources)]
    assert sum(covering) >= 10
    assert all(source.without_suspects is None for source in sources)


def gist_loss(target, guide, is_masked):
    """Return the mean loss of GIST over records of four negatives. target, guide : scores of all triplets."""
    records = []
    for first in range(0, len(target), 4):
        own, judged = target[first : first + 4], guide[first : first + 4]
        masked = [is_masked(positive, negative) for positive, negative in judged]
        records.append(Record([own[0][0]], [negative for _, negative in own], [1.0], masked))
    return np.mean(losses_and_gradients("gist", records, 0.05)[0])


def test_gist_masks_what_a_guide_scores_above_the_positive(rows, tmp_path):
    path = vectors(tmp_path / "guide.npz", rows)
    result = scored(tmp_path, {"mined": rows}, guide=str(path), objectives=True)
    target, guide = pairs(rows, PieceEncoder()), pairs(rows, OTHER)
    above = [negative > positive for positive, negative in guide]
    (item,) = result.measured
    assert item.table.guide.above_positive().tolist() == above
    level = result.run.analyses["guide"].random_score
    loss = next(own.loss_nats for own in result.run.analyses["objectives"].objectives if own.objective == "gist")
    assert loss == pytest.approx(gist_loss(target, guide, lambda p, n: n > p), rel=TOLERANCE)
    of_suspects = gist_loss(target, guide, lambda p, n: reference.is_suspect(p, n, level))
    assert abs(loss - of_suspects) > 100 * TOLERANCE  # it can fail


def test_gist_needs_a_guide_of_all_negatives(rows, tmp_path):
    guide = str(vectors(tmp_path / "guide.npz", rows))
    for number, (sample, expected) in enumerate(((None, True), (100, False))):
        run = scored(tmp_path / str(number), {"mined": rows}, guide=guide, guide_sample=sample, objectives=True).run
        lens = run.analyses["objectives"].objectives
        assert ("gist" in {item.objective for item in lens}) is expected
        assert all(("suspect" in item.gradient_shares) is expected for item in lens)
        assert run.not_evaluated.get("GIST-masked InfoNCE") == (None if expected else "guide_sample")
