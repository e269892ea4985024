"""Positive policies, from files to score, against the independent reference (METHOD 9)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import secid
from secid.pool.texts import text_key
from tests.fake_encoder import HashEncoder
from tests.oracle import reference

POLICIES = ("first", "hardest", "easiest", "all")
WORDS = ["river", "stone", "bridge", "arch", "The", "of", "water", "9", "load"]


@pytest.fixture(scope="module")
def records() -> list[reference.Record]:
    """Return records of one to four positives, so that policies differ and weights 1 / |P| vary."""
    generator = np.random.default_rng(5)

    def text(tail: str) -> str:
        return " ".join([*generator.choice(WORDS, generator.integers(3, 9)), tail])

    return [
        (
            text(f"q{number}"),
            tuple(text(f"p{number} {place}") for place in range(1 + number % 4)),
            tuple(text(f"n{number} {place}") for place in range(3)),
        )
        for number in range(30)
    ]


@pytest.fixture(scope="module")
def source(records, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("policies") / "mined.jsonl"
    rows = [json.dumps({"query": query, "pos": pos, "neg": neg}) for query, pos, neg in records]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def ours(source: Path, policy: str, **settings: object):
    return secid.score([source], HashEncoder(), positives=policy, controls="none", cache=False, **settings).sources[0]


def drawn_first(records: list[reference.Record], seed: int) -> list[reference.Record]:
    """The records with the positive of the policy "random" first: place = splitmix64(key + seed + 1) mod |P|."""
    mask = (1 << 64) - 1
    result = []
    for query, positives, negatives in records:
        mixed = int.from_bytes(text_key("query", query)[:8], "little") + (seed + 1) * 0x9E3779B97F4A7C15 & mask
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
        place = (mixed ^ mixed >> 31) % len(positives)
        result.append((query, (positives[place], *positives[:place], *positives[place + 1 :]), negatives))
    return result


def expected(records: list[reference.Record], policy: str) -> float:
    """Return the reference's score in the pool of the scored documents. Each of |P| positives weighs 1 / |P|."""
    encoder = HashEncoder()
    q_vec = encoder.table([query for query, _, _ in records], "query")
    p_vec = encoder.table([text for _, pos, neg in records for text in (*pos, *neg)], "passage")
    groups = [reference.policy_triplets(record, policy, q_vec, p_vec) for record in records]
    scored = [triplet for group in groups for triplet in group]
    documents = {text for _, positive, negative in scored for text in (positive, negative)}
    idf = reference.idf_table(*reference.document_frequencies(documents))
    n_positives = [len({positive for _, positive, _ in group}) for group in groups for _ in group]
    measured = reference.measure_triplets(scored, q_vec, p_vec, idf)
    return reference.summary(measured, n_positives)["eci_nats"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_scores_what_the_reference_scores(policy, records, source):
    reference.assert_close(ours(source, policy).score.nats, expected(records, policy))


def test_the_policies_of_these_records_differ(records):
    assert len({round(expected(records, policy), 9) for policy in POLICIES}) == len(POLICIES)


def test_all_counts_negatives_not_pairs(records, source):
    assert ours(source, "all").n_triplets == sum(len(negatives) for _, _, negatives in records)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_random_scores_what_the_reference_scores_for_its_draw(seed, records, source):
    drawn = drawn_first(records, seed)
    assert drawn != records
    reference.assert_close(ours(source, "random", seed=seed).score.nats, expected(drawn, "first"))


def test_random_draws_every_positive_about_as_often(records):
    several = [record for record in records if len(record[1]) == 4]
    places = [
        positives.index(drawn[1][0])
        for seed in range(200)
        for (_, positives, _), drawn in zip(several, drawn_first(several, seed), strict=True)
    ]
    shares = np.bincount(places, minlength=4) / len(places)
    assert np.abs(shares - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / len(places))


def test_random_draws_one_positive_a_record_by_the_seed(records, source):
    one, again, other = (ours(source, "random", seed=seed).score.nats for seed in (1, 1, 2))
    assert one == again != other
    assert ours(source, "random", seed=1).n_triplets == sum(len(negatives) for _, _, negatives in records)
