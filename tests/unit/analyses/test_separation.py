"""Separation, batches and cost of whole runs: against the corpus by definition, and what a run says it lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from secid.analyses import separation as module
from secid.analyses.cost import COST_OF_CACHED, COST_OF_SAMPLE, FORWARD_PASSES, NO_RATE, cost_of
from secid.analyses.registry import from_json, to_json
from secid.errors import NumericalError
from secid.measure import separation as formulas
from secid.pages.sections.in_batch import in_batch_section
from secid.results import Run
from secid.triplets import embedding
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.oracle import separation as oracle
from tests.oracle.closeness import assert_close
from tests.unit.scoring.made_rows import clean_rows, passage
from tests.unit.scoring.runs import scored

QUERIES, NEGATIVES, FURTHER = 24, 4, 30
ENCODER = PieceEncoder()


def collection(folder: Path, rows: list[dict], further: list[str]) -> Path:
    """A collection of the rows' texts and further passages. Every third query has a further one as second positive.

    One text has two ids.
    """
    folder.mkdir()
    texts = list(dict.fromkeys(text for row in rows for text in (*row["pos"], *row["neg"]))) + further
    ids = {text: f"d{number}" for number, text in enumerate(texts)}
    lines = [{"_id": key, "text": text} for text, key in ids.items()] + [{"_id": "again", "text": texts[0]}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    queries = [{"_id": f"q{number}", "text": row["query"]} for number, row in enumerate(rows)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries), encoding="utf-8")
    pairs = [(number, row["pos"][0]) for number, row in enumerate(rows)]
    pairs += [(number, further[number]) for number in range(0, len(rows), 3)]
    labels = "".join(f"q{number}\t{ids[text]}\t1\n" for number, text in pairs)
    (folder / "qrels.tsv").write_text(labels, encoding="utf-8")
    return folder


@pytest.fixture
def rows() -> list[dict]:
    return clean_rows(QUERIES, NEGATIVES)


FURTHER_TEXTS = [passage(7_000 + number) for number in range(FURTHER)]


def expected(rows: list[dict], best: int) -> dict[str, float]:
    """The protocol in loops: of all distinct passages that are no positive of a query, its nearest."""
    texts = list(dict.fromkeys(text for row in rows for text in (*row["pos"], *row["neg"]))) + FURTHER_TEXTS
    passages = ENCODER.table(texts, "passage")
    queries = ENCODER.table([row["query"] for row in rows], "query")
    positives, negatives = [], []
    for number, row in enumerate(rows):
        own = {row["pos"][0], *([FURTHER_TEXTS[number]] if number % 3 == 0 else [])}
        cosines = {text: float(queries[row["query"]] @ vector) for text, vector in passages.items()}
        positives += [(str(number), cosines[text], 1.0) for text in own]
        others = sorted((cosine for text, cosine in cosines.items() if text not in own), reverse=True)
        negatives += [(str(number), cosine, 1.0) for cosine in others[:best]]
    return {**oracle.of_pairs(positives, negatives, 0.05), "n_positives": len(positives), "n_negatives": len(negatives)}


@pytest.mark.parametrize(("best", "controls"), [(7, "known_positive"), (500, "none")])
def test_the_best_of_the_corpus_are_those_of_a_search_by_definition(tmp_path, monkeypatch, rows, best, controls):
    monkeypatch.setattr(module, "BEST_PER_QUERY", best)
    monkeypatch.setattr(embedding, "COPY_WINDOW", 11)
    monkeypatch.setattr(embedding, "MAX_NEW_SHARE", 1.0)
    folder = collection(tmp_path / "collection", rows, FURTHER_TEXTS)
    run = scored(tmp_path / "run", {"a": rows}, collection=str(folder), controls=controls).run
    found = run.analyses["separation"].corpus
    ours = {
        name: getattr(found, name) for name in ("auc", "within_auc", "aoc", "mw_loss", "n_positives", "n_negatives")
    }
    assert_close(ours, expected(rows, best), rel=1e-6, abs=1e-7)
    assert (found.n_queries, found.n_passages) == (QUERIES, QUERIES * (1 + NEGATIVES) + FURTHER)
    assert found.gap == pytest.approx(found.within_auc - found.auc)
    with pytest.raises(AssertionError):
        assert_close(ours, expected(rows, best - 1 if best < 500 else 100), rel=1e-6, abs=1e-7)


def test_a_corpus_that_is_not_encoded_is_left_out_until_the_cache_has_it(tmp_path, monkeypatch, rows):
    folder = collection(tmp_path / "collection", rows, FURTHER_TEXTS)
    given = {"collection": str(folder), "cache": True, "cache_dir": str(tmp_path / "cache")}
    encoder = PieceEncoder()
    run = scored(tmp_path / "run", {"a": rows}, encoder, **given).run
    assert run.analyses["separation"].corpus is None
    assert run.not_evaluated["separation from the corpus"] == module.NOT_ENCODED
    assert encoder.n_encoded <= QUERIES * (2 + NEGATIVES) + QUERIES // 3  # nothing but the run's texts, and positives
    first = scored(tmp_path / "run", {"a": rows}, encode_corpus=True, **given).run.analyses["separation"].corpus
    assert first is not None
    monkeypatch.setattr(embedding, "MAX_NEW_SHARE", 0.0)
    again = PieceEncoder()
    second = scored(tmp_path / "run", {"a": rows}, again, **given).run
    assert second.analyses["separation"].corpus == first
    assert again.n_encoded == 0
    assert "separation from the corpus" not in second.not_evaluated


def test_a_run_without_a_collection_says_nothing_of_one(tmp_path, rows):
    run = scored(tmp_path, {"a": rows}).run
    assert run.analyses["separation"].corpus is None
    assert not any("corpus" in name for name in run.not_evaluated)


def assert_counts(bins, passages, low, high):
    """The bins are those of a plain count; shares of a negative are rounded as they add up."""
    expected = oracle.counts(passages, low, high, module.BINS)
    assert len(bins) == module.BINS
    assert_close(np.cumsum(bins).tolist(), np.rint(np.cumsum(expected)).tolist())


def moved(passage, found):
    """Return the same passage with another score along the axis."""
    query, score, share = passage
    half = (found.high - found.low) / 2
    return query, score + (half if score < found.low + half else -half), share


@pytest.mark.parametrize("policy", ["first", "all"])
def test_a_source_s_numbers_are_those_of_its_own_scores(tmp_path, rows, policy):
    for number, row in enumerate(rows):
        row["pos"] += [passage(9_000 + number)] if number % 2 else []
        row["neg"] += row["pos"][:1] if number == 5 else []  # a tie
    result = scored(tmp_path, {"a": rows, "b": rows[:9]}, positives=policy)
    table, run = result.measured[0].table, result.run
    found = next(item for item in run.analyses["separation"].sources if item.source == result.measured[0].name)
    triplets = table.triplets
    share = np.ones(len(table)) if table.share is None else table.share
    heads = triplets.record_offsets[:-1]
    positives = [(str(q), s, 1.0) for q, s in zip(triplets.query[heads], table.s_query_positive, strict=True)]
    negatives = [(str(q), s, n) for q, s, n in zip(triplets.query, table.s_query_negative, share, strict=True)]
    ours = {name: getattr(found, name) for name in ("auc", "within_auc", "aoc", "mw_loss")}
    assert_close(ours, oracle.of_pairs(positives, negatives, 0.05), rel=1e-9, abs=1e-7)
    assert found.contrastive_loss == run.sources[0].score.proxies.mnrl_loss_record
    assert sum(found.positive_histogram) == found.n_positives == len(positives)
    assert abs(sum(found.negative_histogram) - found.n_negatives) <= 1
    for bins, counted in ((found.positive_histogram, positives), (found.negative_histogram, negatives)):
        assert_counts(bins, counted, found.low, found.high)
    with pytest.raises(AssertionError):  # one score that is half the axis off
        assert_counts(found.positive_histogram, [moved(positives[0], found), *positives[1:]], found.low, found.high)
    others = run.analyses["separation"].sources
    assert {(item.low, item.high) for item in others} == {(found.low, found.high)}
    assert {item.source for item in run.analyses["in_batch"]} == {"a", "b"}
    again = from_json(to_json(run))
    assert (again.analyses["separation"].sources, again.analyses["in_batch"]) == (
        run.analyses["separation"].sources,
        run.analyses["in_batch"],
    )


def test_intervals_of_an_auc_stay_inside_and_are_never_a_point(tmp_path):
    """Every positive above every negative, in 40 queries."""
    rows = [{"query": f"{n} a", "pos": [f"{n} b"], "neg": [f"{n + 1000} c"]} for n in range(40)]
    (item,) = scored(tmp_path, {"a": rows}, HashEncoder(64)).run.analyses["separation"].sources
    assert item.within_auc == 1.0
    for value, (low, high) in ((item.auc, item.auc_interval_95), (item.within_auc, item.within_auc_interval_95)):
        assert 0.0 <= low < value <= high <= 1.0
        assert low < 0.95
    (few,) = scored(tmp_path, {"a": rows[:4]}, HashEncoder(64)).run.analyses["separation"].sources
    assert (few.auc_interval_95, few.gap_interval_95) == ((0.0, 1.0), None)


def test_an_area_above_its_bound_is_an_error_that_names_the_source(tmp_path, monkeypatch, rows):
    real = formulas.separation
    monkeypatch.setattr(formulas, "separation", lambda *given: replace(real(*given), aoc=100.0))
    with pytest.raises(NumericalError) as caught:
        scored(tmp_path, {"a": rows})
    assert caught.value.where == "a"


def test_every_source_keeps_the_bound_at_any_temperature(tmp_path, rows):
    run = scored(tmp_path, {"a": rows, "b": rows[::-1]}).run
    assert all(item.aoc <= item.mw_loss / log(2) for item in run.analyses["separation"].sources)
    cold = scored(tmp_path, {"a": rows}, temperature=1e-5).run.analyses["separation"].sources[0]
    assert cold.aoc <= cold.mw_loss / log(2)


def test_batches_depend_on_no_order_of_rows_and_on_the_seed(tmp_path):
    rows = clean_rows(256, 2)
    found = [scored(tmp_path, {"a": part}).run.analyses["in_batch"][0] for part in (rows, rows[::-1])]
    assert found[0] == found[1]
    assert (found[0].n_rows, found[0].batch_rows, found[0].n_batches) == (256, 64, 4)
    assert [size.batch_size for size in found[0].sizes] == [32, 64, 128, 256]
    assert found[0].largest_batch == 256
    assert scored(tmp_path, {"a": rows}, seed=1).run.analyses["in_batch"][0].flagged_share != found[0].flagged_share


@pytest.mark.parametrize("policy", ["first", "all", "hardest"])
def test_batches_are_of_all_rows_and_the_flagged_share_of_the_sample(tmp_path, policy):
    rows = clean_rows(100, 2)
    for one, other in pairwise(rows):
        one["neg"].append(other["pos"][0])
        other["pos"].append(one["pos"][0])
    runs = [scored(tmp_path, {"a": rows}, positives=policy, max_records=size).run for size in (None, 50)]
    whole, part = (run.analyses["in_batch"][0] for run in runs)
    assert (whole.n_rows, whole.batch_rows) == (100, 64)
    assert part.n_rows == (50 if policy == "hardest" else 100)
    assert part.batch_rows == 50
    if policy != "hardest":  # which is the hardest the encoder says, of what it encoded
        assert (part.sizes, part.largest_batch) == (whole.sizes, whole.largest_batch)
    low, high = part.flagged_interval_95
    assert 0.0 <= low < part.flagged_share < high
    assert part.n_compared >= 50 * 49 * 3
    words = in_batch_section(runs[1], runs[1].analyses["in_batch"]).paragraphs[0]
    assert ("sample" in words) == (policy == "hardest")


def test_one_record_makes_no_batch(tmp_path, rows):
    run = scored(tmp_path, {"a": rows[:1], "b": rows}).run
    alone = next(item for item in run.analyses["in_batch"] if item.source == "a")
    assert (alone.n_rows, alone.sizes, alone.largest_batch, alone.flagged_share) == (1, (), None, None)
    assert alone.n_compared == 0
    assert {name: why for name, why in run.not_evaluated.items() if "batch" in name} == {"batches of a": "one_row"}


def plan(lengths: list[int], n_records: int = 1) -> SimpleNamespace:
    """Two queries of 10 and 30 bytes, passages of these lengths; a source of two records, and one of the first."""
    tally = SimpleNamespace(n_records=n_records)
    store = SimpleNamespace(lengths=np.array(lengths, np.int32))
    both = SimpleNamespace(
        name="both",
        n_records=2,
        tally=tally,
        query=np.array([0, 1]),
        positives=np.array([0, 1]),
        negatives=np.array([1, 2, 2]),
    )
    one = SimpleNamespace(
        name="one", n_records=1, tally=tally, query=np.array([0]), positives=np.array([0]), negatives=np.array([1])
    )
    return SimpleNamespace(queries=SimpleNamespace(lengths=np.array([10, 30])), passages=store, sources=(both, one))


def test_the_cost_by_hand():
    """840 bytes gave 210 tokens in 2 s; the epochs have 40 + 300 + 1,100 and 10 + 300 bytes."""
    timing = {"encode": {"seconds": 2.0, "n_cached": 0, "n_bytes": 840, "n_tokens": 210}, "measure": {"seconds": 1.0}}
    found = cost_of(plan([100, 200, 450]), timing)
    assert found.tokens_per_second == 105.0
    assert found.epoch_tokens == {"both": 360, "one": 78}
    assert found.epoch_seconds == pytest.approx(FORWARD_PASSES * (360 + 78) / 105)
    assert found.epoch_share == pytest.approx(3.0 / found.epoch_seconds)


@pytest.mark.parametrize(
    ("changed", "why"), [({"n_cached": 3}, COST_OF_CACHED), ({"n_tokens": 0}, NO_RATE), ({"seconds": 0.0}, NO_RATE)]
)
def test_without_a_measured_rate_there_is_no_cost(changed, why):
    timing = {"encode": {"seconds": 2.0, "n_cached": 0, "n_bytes": 840, "n_tokens": 210, **changed}}
    assert cost_of(plan([1, 2, 3]), timing) == why
    assert cost_of(plan([1, 2, 3]), {}) == NO_RATE
    assert cost_of(plan([1, 2, 3], n_records=3), timing) == COST_OF_SAMPLE


def test_an_encoder_that_counts_no_tokens_has_no_cost(tmp_path, rows):
    run: Run = scored(tmp_path, {"a": rows}).run
    assert (run.analyses.get("cost"), run.not_evaluated["cost"]) == (None, NO_RATE)
    assert run.timing["encode"]["n_bytes"] > 0
    sample = scored(tmp_path, {"a": rows}, max_records=10).run
    assert (sample.analyses.get("cost"), sample.not_evaluated["cost"]) == (None, COST_OF_SAMPLE)


def test_an_early_stop_encodes_no_text_for_the_corpus(tmp_path, rows):
    rows = clean_rows(300, 2)
    other = [{**row, "neg": row["neg"][:1]} for row in rows]
    folder = collection(tmp_path / "collection", rows, [passage(7_000 + number) for number in range(300)])
    given = {"until_ranked": 0.6, "tie": 0.5, "collection": str(folder)}
    with_corpus, without = PieceEncoder(), PieceEncoder()
    run = scored(tmp_path / "run", {"a": rows, "b": other}, with_corpus, **given).run
    scored(tmp_path / "run", {"a": rows, "b": other}, without, until_ranked=0.6, tie=0.5)
    assert run.early_stop.n_texts_encoded < run.early_stop.n_texts
    assert (
        with_corpus.n_encoded <= without.n_encoded + 60
    )  # second positives of the 100 queries scored, of about a third of them
    assert run.not_evaluated["separation from the corpus"] == module.NOT_ENCODED
    assert run.analyses.get("cost") is None
