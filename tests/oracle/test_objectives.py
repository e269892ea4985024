"""Compare `score --objectives`, from files to numbers, with METHOD 9 and 10 in plain loops over the vectors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import secid
from secid.analyses.objectives import MAX_CURVE_QUERIES, doubling_counts, one_more_negative, one_more_positive
from secid.measure.blocks import Triplets
from secid.measure.objectives import MULTI_POSITIVE, OBJECTIVES
from secid.pages.sections.objectives import OBJECTIVE_NAMES, OBJECTIVE_SENTENCES
from secid.results import Run
from tests.fake_encoder import HashEncoder
from tests.oracle import objectives as oracle
from tests.oracle import reference
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import scored

WORDS = ["river", "stone", "bridge", "arch", "The", "of", "water", "9", "load"]
TAU, MARGIN = 0.05, 0.05
STUDENT_39 = 2.022690920036762
"""97.5 % point of Student's t with 39 degrees."""


def drawn(n: int, most_positives: int, seed: int = 5) -> list[reference.Record]:
    """Return records with uneven numbers of positives and negatives. The first word of a text decides its position."""
    generator = np.random.default_rng(seed)

    def text(tail: str) -> str:
        return " ".join([*generator.choice(WORDS, generator.integers(3, 9)), tail])

    return [
        (
            text(f"q{seed} {number}"),
            tuple(text(f"p{seed} {number} {place}") for place in range(1 + number % most_positives)),
            tuple(text(f"n{seed} {number} {place}") for place in range(2 + number % 5)),
        )
        for number in range(n)
    ]


def write(records: list[reference.Record], path: Path) -> Path:
    rows = [json.dumps({"query": query, "pos": pos, "neg": neg}) for query, pos, neg in records]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Case:
    """Two sources, with several positives per record and with one."""

    records: dict[str, list[reference.Record]]
    files: list[Path]

    def run(self, **settings: object) -> Run:
        given = {"controls": "none", "cache": False, "objectives": True, **settings}
        return secid.score(self.files, HashEncoder(), **given)


def made(folder: Path, n: int) -> Case:
    records = {"several": drawn(n, 4), "one": drawn(n, 1, 6)}
    return Case(records, [write(rows, folder / f"{name}.jsonl") for name, rows in records.items()])


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Case:
    return made(tmp_path_factory.mktemp("objectives"), 40)


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Case:
    """Return a case with every number of positives and every number of negatives once."""
    return made(tmp_path_factory.mktemp("few"), 20)


@pytest.fixture(scope="module")
def first(case) -> Run:
    return case.run()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def vectors(records: list[reference.Record]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    encoder = HashEncoder()
    q_vec = encoder.table([query for query, _, _ in records], "query")
    return q_vec, encoder.table([text for _, pos, neg in records for text in (*pos, *neg)], "passage")


def scored_records(records: list[reference.Record], policy: str) -> list[oracle.Record]:
    q_vec, p_vec = vectors(records)
    result = []
    for query, pos, neg in records:
        near = [float(q_vec[query] @ p_vec[text]) for text in pos]
        weights = {
            "first": [1.0, *[0.0] * (len(pos) - 1)],
            "hardest": [float(place == near.index(min(near))) for place in range(len(pos))],
            "easiest": [float(place == near.index(max(near))) for place in range(len(pos))],
            "all": [1 / len(pos)] * len(pos),
        }[policy]
        negatives = [float(q_vec[query] @ p_vec[text]) for text in neg]
        result.append(oracle.Record(near, negatives, weights, [False] * len(neg)))
    return result


def anchor(record: oracle.Record) -> float:
    """Return the scored positive's cosine; under the policy "all", the first one's."""
    return record.positives[record.scored.index(max(record.scored))]


@pytest.mark.parametrize("policy", ["first", "hardest", "easiest", "all"])
def test_every_number_is_the_reference_s(policy, few):
    for item in few.run(positives=policy).analyses["objectives"].objectives:
        records = scored_records(few.records[item.source], policy)
        best = [anchor(record) for record in records]
        inside = {
            "inversion": [[s > p for s in record.negatives] for record, p in zip(records, best, strict=True)],
            "margin": [
                [s >= p - MARGIN * abs(p) for s in record.negatives] for record, p in zip(records, best, strict=True)
            ],
        }
        for name, flags in inside.items():
            if item.source == "one":  # no strongest of one
                losses, _, negative = oracle.losses_and_gradients(item.objective, records, TAU)
                on = math.fsum(
                    g for row, own in zip(negative, flags, strict=True) for g, f in zip(row, own, strict=True) if f
                )
                expected = float(np.mean(losses)), on / math.fsum(g for row in negative for g in row)
                assert item.strongest_positive is item.weakest_positive is None
            else:
                *expected, effective, strongest, weakest = oracle.values(item.objective, records, TAU, flags)
                assert item.effective_negatives == pytest.approx(effective, rel=1e-6)
                if item.objective != "single_lh":
                    assert (item.strongest_positive, item.weakest_positive) == pytest.approx(
                        (strongest, weakest), abs=1e-6
                    )
            assert (item.loss_nats, item.gradient_shares[name]) == pytest.approx(tuple(expected), rel=1e-6)
        assert item.gradient_shares["copy"] == 0.0


def test_another_temperature_or_order_of_positives_would_be_noticed(case, first):
    (item,) = (
        o for o in first.analyses["objectives"].objectives if (o.source, o.objective) == ("several", "single_lh")
    )
    for policy, tau in (("first", TAU * 1.001), ("easiest", TAU)):
        records = scored_records(case.records["several"], policy)
        losses, _, _ = oracle.losses_and_gradients("single_lh", records, tau)
        assert item.loss_nats != pytest.approx(float(np.mean(losses)), rel=1e-6)


def test_what_needs_several_positives_or_a_guide_is_not_evaluated(first, case):
    evaluated = {
        name: {o.objective for o in first.analyses["objectives"].objectives if o.source == name}
        for name in case.records
    }
    assert evaluated["several"] == {*OBJECTIVES} - {"gist"}
    assert evaluated["one"] == {*OBJECTIVES} - {"gist"} - MULTI_POSITIVE
    reasons = {name: why for name, why in first.not_evaluated.items() if "objectives" in name or "GIST" in name}
    assert reasons == {"objectives of several positives of one": "one_positive", "GIST-masked InfoNCE": "no_guide"}


def test_every_objective_has_a_name_and_a_sentence():
    assert [*OBJECTIVE_NAMES] == [*OBJECTIVE_SENTENCES]
    assert {*OBJECTIVE_NAMES} == {*OBJECTIVES}


@pytest.mark.parametrize("policy", ["first", "random", "all"])
def test_scores_are_the_same_with_and_without(policy, case):
    lens, plain = case.run(positives=policy), case.run(positives=policy, objectives=False)
    assert [source.score.nats for source in lens.sources] == [source.score.nats for source in plain.sources]
    assert lens.idf.sha256 == plain.idf.sha256
    assert [source.findings for source in lens.sources] == [source.findings for source in plain.sources]
    assert plain.analyses.get("objectives") is None


def test_an_early_stop_has_objectives_of_what_it_scored(case):
    run = case.run(until_ranked=0.9)
    assert {item.objective for item in run.analyses["objectives"].objectives} == {*OBJECTIVES} - {"gist"}


def expected_size(
    records: list[reference.Record], pool: list[reference.Record], n_pos: int, n_neg: int | None
) -> tuple[int, float, float, float]:
    """Return negatives, score, standard error and share of inversions with the first passages of each record.

    pool : records of all sources, of which the first positives are scored and make the IDF.
    """
    q_vec, p_vec = vectors(records)
    documents = {text for _, pos, neg in pool for text in (pos[0], *neg)}
    idf = reference.idf_table(*reference.document_frequencies(documents))
    scored = [(q, p, n) for q, pos, neg in records for p in pos[:n_pos] for n in neg[:n_neg]]
    share = np.array([1 / min(len(pos), n_pos) for _, pos, neg in records for p in pos[:n_pos] for n in neg[:n_neg]])
    rows = reference.measure_triplets(scored, q_vec, p_vec, idf)
    n, d = share.sum(), rows.direction.shape[1]
    matrix = np.zeros((d, d))
    for s, w, u in zip(share, rows.weight, rows.direction, strict=True):
        matrix += s * w * np.outer(u, u) / n
    inverse = np.linalg.inv(np.eye(d) + matrix)
    shift = float(np.trace(inverse @ matrix))
    sums: dict[str, float] = {}
    for (query, _, _), s, w, u in zip(scored, share, rows.weight, rows.direction, strict=True):
        sums[query] = sums.get(query, 0.0) + s * (w * float(u @ inverse @ u) - shift) / n
    error = math.sqrt(math.fsum(value**2 for value in sums.values()))
    return round(n), float(np.linalg.slogdet(np.eye(d) + matrix)[1]), error, float(share @ (rows.s_qn > rows.s_qp) / n)


def test_rows_by_number_of_passages_are_the_reference_s(case, first):
    pool = [record for rows in case.records.values() for record in rows]
    numbers = {name: [] for name in case.records}
    for item in first.analyses["objectives"].sizes:
        numbers[item.source].append((item.n_positives, item.n_negatives))
        n, nats, error, above = expected_size(case.records[item.source], pool, item.n_positives or 1, item.n_negatives)
        reference.assert_close(item.eci_nats, nats)
        half = STUDENT_39 * error * math.sqrt(40 / 39)
        assert item.interval_95 == pytest.approx((nats - half, nats + half), rel=1e-5)
        assert (item.n_queries, item.n_triplets) == (40, n)
        assert item.inversion_share == pytest.approx(above)
    by_negatives = [(None, n) for n in (1, 2, 4, 6)]
    assert numbers == {"several": [*by_negatives, (1, None), (2, None), (4, None)], "one": by_negatives}


def test_gradients_by_number_of_passages_are_joint_lh_of_the_first(case, first):
    records = scored_records(case.records["several"], "first")
    for item in (row for row in first.analyses["objectives"].sizes if row.source == "several"):
        m, k = item.n_positives, item.n_negatives
        cut = [replace(r, positives=r.positives[:m], negatives=r.negatives[:k]) for r in records]
        flags = [[s > anchor(r) for s in own.negatives] for r, own in zip(records, cut, strict=True)]
        _, _, negative = oracle.losses_and_gradients("joint_lh", cut, TAU)
        total = math.fsum(g for row in negative for g in row)
        on = math.fsum(g for row, f in zip(negative, flags, strict=True) for g, own in zip(row, f, strict=True) if own)
        assert item.gradient_on_inversions == pytest.approx(on / total, rel=1e-6)


def test_numbers_double_up_to_the_most():
    assert [doubling_counts(n) for n in (1, 2, 3, 8, 10)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 10]]


def rows_of(queries: np.ndarray, groups: np.ndarray, records: np.ndarray, place: np.ndarray) -> Triplets:
    offsets = np.append(np.flatnonzero(np.diff(groups, prepend=-1)), len(groups))
    return Triplets(queries, groups, place, offsets, records, place)


@pytest.mark.parametrize(("between", "within", "k"), [(1.0, 1.0, 4), (0.2, 2.0, 8), (3.0, 0.5, 2)])
def test_one_more_negative_narrows_as_the_variance_components_say(between, within, k):
    """Planted: a mean of n queries of k negatives has the variance (b + w/k) / n."""
    generator, n = np.random.default_rng(1), 4000
    h = between**0.5 * np.repeat(generator.standard_normal(n), k) + within**0.5 * generator.standard_normal(n * k)
    number = np.repeat(np.arange(n), k)
    rows = rows_of(number, number, number, np.arange(n * k))
    truth = 1 - math.sqrt((between + within / (k + 1)) / (between + within / k))
    assert one_more_negative(rows, h - h.mean()) == pytest.approx(truth, rel=0.12)


@pytest.mark.parametrize(("between", "within", "m"), [(1.0, 1.0, 2), (0.2, 2.0, 4)])
def test_one_more_positive_narrows_as_the_variance_components_say(between, within, m):
    """Planted: m positives that share 3 negatives, each pair counting 1/m."""
    generator, n, k = np.random.default_rng(2), 4000, 3
    of_positive = between**0.5 * np.repeat(generator.standard_normal(n), m) + within**0.5 * generator.standard_normal(
        n * m
    )
    number = np.repeat(np.arange(n), m * k)
    rows = rows_of(number, np.repeat(np.arange(n * m), k), number, np.tile(np.arange(k), n * m) + k * number)
    truth = 1 - math.sqrt((between + within / (m + 1)) / (between + within / m))
    assert one_more_positive(rows, np.repeat(of_positive, k) / (m * k)) == pytest.approx(truth, rel=0.12)


def test_nothing_is_estimated_from_single_passages_or_few_queries():
    number = np.arange(50)
    single = rows_of(number, number, number, number)
    assert one_more_negative(single, np.ones(50)) is one_more_positive(single, np.ones(50)) is None
    few = rows_of(np.arange(4) // 2, np.arange(4) // 2, np.arange(4) // 2, np.arange(4))
    assert one_more_negative(few, np.ones(4)) is None


@pytest.mark.parametrize("n", [4, 5])
def test_five_queries_of_two_positives_are_enough(n):
    query, pair = np.arange(2 * n) // 2, np.arange(2 * n)
    value = one_more_positive(rows_of(query, pair, query, pair), np.linspace(1.0, 2.0, 2 * n))
    assert (value is None) == (n < 5)


def test_more_queries_than_the_limit_are_sampled(tmp_path):
    path = write(drawn(MAX_CURVE_QUERIES + 30, 1, 8), tmp_path / "many.jsonl")
    run = secid.score([path], HashEncoder(), controls="none", cache=False, objectives=True)
    assert {item.n_queries for item in run.analyses["objectives"].sizes} == {MAX_CURVE_QUERIES}


def test_parts_of_sources_come_in_the_order_of_their_rank(tmp_path):
    rows = clean_rows(40)
    near = [{**row, "neg": [text.replace("is", "was") for text in row["pos"]] + row["neg"][:2]} for row in rows]
    rows_of = {"a": near, "b": rows, "c": [{**row, "neg": row["neg"][:1]} for row in rows]}
    run = scored(tmp_path, rows_of, objectives=True).run
    ranks = {source.name: source.score.rank for source in run.sources}
    assert list(ranks) != sorted(ranks)
    for parts in (
        run.analyses["separation"].sources,
        run.analyses["in_batch"],
        run.analyses["objectives"].objectives,
        run.analyses["objectives"].sizes,
    ):
        places = [ranks[part.source] for part in parts]
        assert places == sorted(places)
        assert set(places) == {1, 2, 3}


def test_planted_copies_take_the_gradient_that_falls_on_copies(tmp_path):
    """Every record offers its own second positive as a negative: nearly all of LSEPair maxN's gradient may go there."""
    records = [(q, (p, f"{p} again"), (f"{p} again", *neg)) for q, (p,), neg in drawn(30, 1, 9)]
    path = write(records, tmp_path / "planted.jsonl")
    run = secid.score([path], HashEncoder(), controls="none", cache=False, objectives=True)
    q_vec, p_vec = vectors(records)
    (item,) = (o for o in run.analyses["objectives"].objectives if o.objective == "single_lh")
    on, every = 0.0, 0.0
    for query, pos, neg in records:
        s = np.exp([(q_vec[query] @ p_vec[text]) / TAU for text in (pos[0], *neg)])
        on, every = on + s[1] / s.sum(), every + s[1:].sum() / s.sum()
    assert item.gradient_shares["copy"] == pytest.approx(on / every, rel=1e-6)
    assert item.gradient_shares["copy"] > 0.1
