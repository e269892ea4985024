"""Controls hold what they promise: who may be a negative of whom (METHOD 6)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secid.analyses import controls as module
from secid.analyses.controls import CONTROL_KINDS, base_of, chosen_kinds, make_controls
from secid.arrays import narrow
from secid.errors import UsageError
from secid.measure.blocks import Triplets, Vectors
from secid.progress import Silent
from secid.records import Record, Source
from secid.settings import Settings
from secid.triplets.embedding import rows_of_ids
from secid.triplets.table import triplets_of
from tests.meta import NoWait, WaitError
from tests.planning import make_plan
from tests.snapshots import refusal


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    generator = np.random.default_rng(0)
    streams = []
    for name in ("one", "two"):
        rows = [
            Record(
                f"query {n}",
                (f"answer {n}", f"other answer {n}"),
                (*(f"text {generator.integers(60)} word" for _ in range(4)), f"answer {(n + 1) % 20}"),
                "x",
                n,
            )
            for n in range(20)
        ]
        streams.append((Source(name, ("x",)), rows))
    settings = Settings()
    folder = tmp_path_factory.mktemp("plan")
    plan = make_plan(streams, settings, folder, with_positives=True, with_echoes=True)
    rows = [
        torch.nn.functional.normalize(torch.from_numpy(generator.standard_normal((len(store), 8))), dim=1).float()
        for store in (plan.queries, plan.passages)
    ]
    vectors = Vectors(*rows)
    triplets = [triplets_of(planned, "first") for planned in plan.sources]
    controls, missing = make_controls(plan, triplets, vectors, settings, Silent())
    assert missing == {}
    return plan, triplets, vectors, {(control.kind, control.of): control.triplets for control in controls}


class Texts:
    """One text for each key, (n, 16)."""

    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)


def pairs(rows):
    return set(zip(rows.query.tolist(), rows.negative.tolist(), strict=True))


def positives_of(plan):
    return {divmod(int(code), len(plan.passages)) for code in plan.known_positives}


def test_all_kinds_are_made(made):
    assert {kind for kind, _ in made[3]} == set(CONTROL_KINDS)


def test_no_control_but_the_known_positives_offers_a_positive(made):
    plan, _, _, controls = made
    known = positives_of(plan)
    assert known
    for (kind, _), rows in controls.items():
        if kind == "known_positive":
            assert pairs(rows) <= known
        else:
            assert not pairs(rows) & known


def test_random_and_shuffled_negatives_come_from_other_records(made):
    _, triplets, _, controls = made
    own = set().union(*(pairs(rows) for rows in triplets))
    for (kind, _), rows in controls.items():
        if kind in ("random", "shuffled"):
            assert not pairs(rows) & own


def test_a_shuffled_source_holds_only_its_own_negatives(made):
    plan, triplets, _, controls = made
    for planned, rows in zip(plan.sources, triplets, strict=True):
        dealt = controls["shuffled", planned.name]
        assert set(dealt.negative.tolist()) <= set(rows.negative.tolist())


def test_a_query_with_most_of_the_negatives_is_too_large_to_shuffle():
    number = np.array([0, 1, 1, 1])
    rows = Triplets(number, number, np.arange(2, 6), np.array([0, 1, 4]), number, np.arange(4))
    plan = SimpleNamespace(queries=Texts(np.arange(32, dtype=np.uint8).reshape(2, 16)))
    assert module._shuffled(rows, SimpleNamespace(rank=np.arange(6)), plan, Settings()) == "one_large_query"


def test_the_dense_control_takes_the_nearest_documents(made):
    plan, triplets, vectors, controls = made
    base = base_of(plan, triplets, Settings())
    known = positives_of(plan)
    rows = controls["dense_pool", None]
    for query in set(rows.query.tolist()):
        scores = (vectors.passages[base.pool] @ vectors.queries[query]).numpy()
        best = [int(base.pool[place]) for place in np.argsort(-scores) if (query, int(base.pool[place])) not in known]
        assert set(rows.negative[rows.query == query].tolist()) == set(best[: base.per_query])


def test_the_candidates_are_the_same_however_many_sources_list_them(made, monkeypatch):
    plan, triplets, vectors, _ = made
    whole = base_of(plan, triplets, Settings())
    assert whole.candidates.tolist() == whole.pool.tolist()
    monkeypatch.setattr(module, "CANDIDATES", 20)
    drawn = base_of(plan, triplets, Settings())
    assert base_of(plan, [*triplets, *triplets], Settings()).candidates.tolist() == drawn.candidates.tolist()
    assert base_of(plan, triplets, Settings(seed=1)).candidates.tolist() != drawn.candidates.tolist()
    assert len(drawn.candidates) == 20
    assert set(drawn.candidates.tolist()) < set(whole.pool.tolist())
    assert (np.diff(drawn.rank[drawn.candidates]) > 0).all()
    fewer = base_of(plan, triplets[:1], Settings())  # a smaller pool keeps what a larger one takes of it
    assert set(drawn.candidates.tolist()) & set(fewer.pool.tolist()) <= set(fewer.candidates.tolist())
    controls, _ = make_controls(plan, triplets, vectors, Settings(), Silent())
    for control in controls:
        expected = {"random": len(whole.pool), "bm25_pool": 20, "dense_pool": 20}.get(control.kind)
        assert control.n_candidates == expected
        if expected == 20:
            assert set(control.triplets.negative.tolist()) <= set(drawn.candidates.tolist())


@pytest.mark.parametrize(
    "wait", [lambda x: x.cpu(), lambda x: x[x > 0], lambda x: x.sum().item(), lambda x: x + torch.ones(3)]
)
def test_the_mode_rejects_what_waits(wait):
    with pytest.raises((WaitError, NotImplementedError, RuntimeError)), NoWait():
        wait(torch.empty(3, device="meta"))


def test_rows_from_a_file_come_in_the_order_asked_for(made):
    rows = made[2].passages
    ids = np.array([5, 2, 9, 2, 0])
    expected = rows[torch.from_numpy(ids)]
    mapped = Vectors(rows[:0], rows, lambda role, rising, out: out.copy_(rows[torch.from_numpy(rising)]))
    for vectors in (made[2], mapped):
        assert torch.equal(torch.cat(list(rows_of_ids(vectors, "passage", ids, 2))), expected)


def test_echoes_are_the_queries_own_texts(made):
    plan, triplets, _, controls = made
    rows = controls["query_echo", None]
    assert plan.queries.take(rows.query) == plan.passages.take(rows.negative)
    echoes = plan.echoes.copy()
    echoes[rows.query[0]] = -1
    part = SimpleNamespace(queries=plan.queries, echoes=echoes)
    others = module._query_echo(base_of(plan, triplets, Settings()), part, "alphanumeric")
    assert others.query.tolist() == rows.query[1:].tolist(), "of the queries whose text is in the plan"


def test_pairs_of_narrow_ids_of_a_large_run_stay_apart():
    """2^12 queries and 2^20 passages: a product of int32 ids would wrap, and pairs of other queries would meet."""
    draw = np.random.default_rng(1)
    stores = [Texts(draw.integers(0, 256, (n, 16), dtype=np.uint8)) for n in (2**12, 2**20)]
    query, negative = np.sort(draw.integers(0, 2**12, 500)), draw.integers(0, 2**20, 500)
    n, labelled = 2**20, query[:100] * 2**20 + 7
    rows = Triplets(*map(narrow, (query, negative, negative, np.arange(501), np.arange(500), np.arange(500))))
    sources = [SimpleNamespace(negative_offsets=np.arange(501))]
    plan = SimpleNamespace(queries=stores[0], passages=stores[1], sources=sources, known_positives=np.unique(labelled))
    assert rows.query.dtype == np.int32
    expected = {q * n + d for q, d in zip(query.tolist(), negative.tolist(), strict=True)} | set(labelled.tolist())
    assert base_of(plan, [rows], Settings()).labelled_or_scored.tolist() == sorted(expected)
    assert max(expected) > 2**31


def test_controls_are_chosen_by_name():
    assert chosen_kinds("none") == ()
    assert chosen_kinds("shuffled, random") == ("random", "shuffled")
    assert chosen_kinds("dense pool, known-positive,bm25_pool") == ("known_positive", "bm25_pool", "dense_pool")
    for wrong in ("rnadom", "all,random"):
        assert f"'{wrong}'" in refusal(lambda wrong=wrong: chosen_kinds(wrong), UsageError, "--set controls")
