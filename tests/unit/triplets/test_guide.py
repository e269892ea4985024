"""Test which triplets a guide scores, which guides are refused, and what a run without one says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from secid import api
from secid.analyses.guide import GuideSource
from secid.analyses.registry import from_json, to_json
from secid.arrays import is_known
from secid.encode import load
from secid.errors import EncoderError, UsageError
from secid.pages.charts import hardness_chart
from secid.pages.formats import to_markdown
from secid.pages.sections import page_of
from secid.pool import Plan, sample_order
from secid.progress import Silent
from secid.run_folder.tables import read_negatives
from secid.scoring import stages
from secid.scoring.encoders import load_guide
from secid.settings import Settings, flag_of
from secid.triplets import guide
from secid.triplets.estimates import stratified_mean
from secid.triplets.guide import GUIDE_STRATA, random_rows, sample_of
from secid.triplets.random_reference import passage_pool
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.oracle.guide import is_suspect, suspect_share
from tests.oracle.test_guide import encoder_of, texts_of, vectors
from tests.tiny_bert import save_tiny_bert
from tests.unit.encode.test_reranker import save_reranker
from tests.unit.scoring.made_rows import clean_rows, write
from tests.unit.scoring.runs import scored
from tests.unit.triplets.test_random_reference import triplets, world


def rows_of(seed: int = 0, n: int = 400):
    """A plan, its triplets and a made-up s_qn."""
    made = world(seed=seed)
    draw = np.random.default_rng(seed)
    pairs = draw.choice(made.n_queries * (400 - made.n_queries), n, replace=False)
    query, negative = np.divmod(np.sort(pairs), 400 - made.n_queries)
    rows = triplets(query, query, made.n_queries + negative)
    return made, rows, draw.random(n).round(2)


def test_a_sample_takes_as_many_of_each_tenth():
    made, rows, near = rows_of()
    keep, stratum = sample_of(made.plan, rows, near, 104, 0)
    assert len(keep) == 104
    assert (np.diff(keep) > 0).all()
    assert np.bincount(stratum).tolist() == [40] * GUIDE_STRATA
    assert set(np.bincount(stratum[keep])) == {10, 11}
    assert all(near[stratum == h].max() <= near[stratum == h + 1].min() for h in range(GUIDE_STRATA - 1))


def test_a_sample_follows_seed_and_texts_not_the_order_of_rows():
    made, rows, near = rows_of()
    near = near + np.arange(400) * 1e-6
    keep, _ = sample_of(made.plan, rows, near, 100, 0)
    order = np.random.default_rng(1).permutation(400)
    shuffled = replace(rows, query=rows.query[order], positive=rows.positive[order], negative=rows.negative[order])
    again, _ = sample_of(made.plan, shuffled, near[order], 100, 0)
    assert sorted(order[again].tolist()) == keep.tolist()
    other, _ = sample_of(made.plan, rows, near, 100, 1)
    assert other.tolist() != keep.tolist()


@pytest.mark.parametrize(("tied_by", "fails"), [("hash", False), ("draw", True)])
def test_equal_scores_are_drawn_at_random(tied_by, fails, monkeypatch):
    """They fill parts of two tenths: an order of ties that the draw shares favours one side of each."""
    made, rows, near = rows_of()
    keys = made.plan.queries.keys[rows.query] ^ made.plan.passages.keys[rows.negative][:, ::-1]
    if tied_by == "draw":
        monkeypatch.setattr(guide, "sample_order", lambda _, seed: sample_order(keys, seed))
    equal = np.arange(400) % 20 < 9
    near = np.where(equal, 0.5, near)
    each, shares = (np.arange(400), np.arange(400).astype("S16")), []
    for seed in range(300):
        keep, stratum = sample_of(made.plan, rows, near, 100, seed)
        shares.append(stratified_mean(equal.astype(float), is_known(np.arange(400), keep), stratum, *each).value)
    off = abs(np.mean(shares) - 0.45) / (np.std(shares) / np.sqrt(300))
    assert (off > 3.5) == fails


@pytest.mark.parametrize("size", [None, 400, 1000])
def test_all_are_scored_if_the_sample_is_not_smaller(size):
    made, rows, near = rows_of()
    keep, stratum = sample_of(made.plan, rows, near, size, 0)
    assert keep.tolist() == list(range(400))
    assert not stratum.any()


@pytest.mark.parametrize(
    ("names", "where"),
    [
        ({"guide": "a", "guide_reranker": "b"}, "--guide-reranker"),
        ({"guide_sample": 200}, "--guide-sample"),
    ],
)
def test_combinations_without_meaning_are_refused(names, where):
    with pytest.raises(UsageError) as refusal:
        load_guide(Settings(**names), PieceEncoder(), Silent())
    assert refusal.value.where == where


def test_the_target_cannot_be_the_guide(tmp_path):
    rows = clean_rows(6)
    path = vectors(tmp_path / "own.npz", rows)
    with pytest.raises(UsageError) as refusal:
        api.score([write(tmp_path / "a.jsonl", rows)], encoder=str(path), guide=str(path), controls="none")
    assert refusal.value.where == "--guide"


@pytest.mark.parametrize("recipe", [{}, {"query_prefix": "query: "}, {"pooling": "cls"}, {"max_length": 20}])
def test_a_copy_of_the_target_cannot_be_the_guide_whatever_its_recipe(recipe, tmp_path):
    target, copy = (save_tiny_bert(tmp_path / name) for name in ("own", "copy"))
    with pytest.raises(UsageError) as refusal:
        load_guide(Settings(guide=str(copy), device="cpu"), load(Settings(encoder=str(target), **recipe)), Silent())
    assert refusal.value.where == "--guide"


def test_a_run_without_a_guide_says_so(tmp_path):
    run = scored(tmp_path, {"a": clean_rows()}).run
    assert run.analyses.get("guide") is None
    assert run.not_evaluated["suspect"] == "no_guide"
    assert run.sources[0].finding("suspect") is None
    assert run.analyses["margins"][0].guide == ()
    assert "guide" not in {section.anchor for section in _sections(run)}


def test_pages_of_a_guide(tmp_path):
    rows = clean_rows(120)
    path = str(vectors(tmp_path / "guide.npz", rows))
    whole = scored(tmp_path, {"a": rows}, guide=path).run
    sample = scored(tmp_path, {"a": rows}, guide=path, guide_sample=100).run
    assert "suspect" not in whole.not_evaluated
    assert sample.not_evaluated["score without suspects"] == "guide_sample"
    tables = [next(s for s in _sections(run) if s.anchor == "guide").tables for run in (whole, sample)]
    assert [len(own[0].columns) for own in tables] == [8, 7]
    again = from_json(to_json(whole))
    assert (again.analyses["guide"], again.analyses["margins"]) == (whole.analyses["guide"], whole.analyses["margins"])
    assert to_markdown(page_of(whole))


@pytest.mark.parametrize("evidence", [True, False])
def test_suspects_are_evidence_where_random_passages_are_not_flagged(evidence, tmp_path):
    """Planted: the passages of a query lie along it, or all passages do, so that their order is noise."""
    rows = clean_rows(40)
    axis = {text: place for place, row in enumerate(rows) for text in (row["query"], *row["pos"], *row["neg"])}
    draw = np.random.default_rng(0)
    table = {text: np.eye(40)[place if evidence else 0] + 0.02 * draw.random(40) for text, place in axis.items()}
    path = str(vectors(tmp_path / "guide.npz", rows, encoder_of(table)))
    run = scored(tmp_path, {"a": rows}, guide=path).run
    (source,) = run.analyses["guide"].sources
    assert source.n_random == 40 * 8
    # a query's own negatives are among the passages drawn: 3 of 159
    assert source.random_share == pytest.approx(0.0 if evidence else 0.15, abs=0.05)
    assert source.suspect_share == pytest.approx(1.0 if evidence else 0.15, abs=0.05)
    assert source.is_evidence == evidence
    assert source.is_blind != evidence
    chart = hardness_chart(run)
    assert chart is not None
    assert ("suspect" in chart.description) == evidence
    findings = {item.name for own in page_of(run).findings for item in own.items}
    assert ("suspect" in findings) == evidence


@pytest.mark.parametrize("positives", ["first", "all"])
def test_random_passages_are_flagged_as_loops_flag_them(positives, tmp_path, monkeypatch):
    rows = [{**row, "pos": [*row["pos"], f"{row['pos'][0]} again"]} for row in clean_rows(40)]
    drawn = []

    def kept(plan, own, pool, seed):
        drawn.append((plan, random_rows(plan, own, pool, seed)))
        return drawn[-1][1]

    monkeypatch.setattr(stages, "random_rows", kept)
    monkeypatch.setattr(Plan, "close", lambda self: None)
    other = HashEncoder(12, name="other")
    (source,) = (
        scored(tmp_path, {"a": rows}, guide=_with_all(tmp_path, rows), positives=positives)
        .run.analyses["guide"]
        .sources
    )
    ((plan, pairs),) = drawn
    queries, passages = (store.take(np.arange(len(store))) for store in (plan.queries, plan.passages))
    of_query, of_passage = other.table(queries, "query"), other.table(passages, "passage")
    labelled = {row["query"]: row["pos"] for row in rows}
    flags, lowest, scores = {}, {}, {}
    for query, positive, passage in zip(pairs.query, pairs.positive, pairs.negative, strict=True):
        text, best, random = queries[query], passages[positive], passages[passage]
        assert best in labelled[text]
        assert random not in labelled[text]
        own, near = (float(of_query[text] @ of_passage[name]) for name in (best, random))
        lowest[text], scores[text, random] = min(own, lowest.get(text, own)), near
    level = sum(scores.values()) / len(scores)
    for (text, random), near in scores.items():
        flags[text, random] = is_suspect(lowest[text], near, level)
    assert len(flags) == source.n_random == 320
    assert len(pairs) == 320 * (2 if positives == "all" else 1)
    share = sum(flags.values()) / len(flags)
    assert source.random_share == pytest.approx(share)
    low, high = source.random_interval_95
    assert low < share < high
    assert source.excess_interval_95[0] < source.suspect_share - share < source.excess_interval_95[1]


def test_random_passages_follow_no_order_of_rows():
    made, rows, _ = rows_of()
    pool = passage_pool(made.plan, [rows])
    first = random_rows(made.plan, rows, pool, 0)
    order = np.random.default_rng(1).permutation(400)
    order = order[np.argsort(-rows.query[order], kind="stable")]
    turned = triplets(rows.query[order], rows.positive[order], rows.negative[order])
    again = random_rows(made.plan, turned, pool, 0)
    sets = [
        set(zip(own.query.tolist(), own.positive.tolist(), own.negative.tolist(), strict=True))
        for own in (first, again)
    ]
    assert sets[0] == sets[1]
    assert len(first) == len(sets[0]) == 3 * len(np.unique(rows.query))


def test_a_guide_of_one_score_is_refused(tmp_path):
    rows = clean_rows(6)
    table = {text: np.ones(8) for row in rows for text in (row["query"], *row["pos"], *row["neg"])}
    with pytest.raises(EncoderError) as refusal:
        scored(tmp_path, {"a": rows}, guide=str(vectors(tmp_path / "guide.npz", rows, encoder_of(table))))
    assert refusal.value.where == str(tmp_path / "guide.npz")


def test_the_target_under_another_name_repeats_it(tmp_path):
    rows = clean_rows(40)
    path = str(vectors(tmp_path / "guide.npz", rows, PieceEncoder()))
    (source,) = scored(tmp_path, {"a": rows}, guide=path).run.analyses["guide"].sources
    assert source.repeats_target
    assert not source.is_evidence
    (other,) = (
        scored(tmp_path, {"a": rows}, guide=str(vectors(tmp_path / "guide.npz", rows))).run.analyses["guide"].sources
    )
    assert not other.repeats_target


def test_a_pair_listed_often_is_drawn_once():
    made, rows, near = rows_of(n=100)
    ten = np.repeat(np.arange(100), 10)
    again = triplets(rows.query[ten], rows.positive[ten], rows.negative[ten])
    keep, stratum = sample_of(made.plan, again, near[ten], 50, 0)
    assert len(keep) == 500
    assert len(np.unique(ten[keep])) == 50
    assert all(len(set(stratum[ten == pair])) == 1 for pair in range(100))
    assert len(sample_of(made.plan, again, near[ten], 100, 0)[0]) == 1000


def test_a_guide_has_prefixes_of_its_own(tmp_path):
    target = load(Settings(encoder=str(save_tiny_bert(tmp_path / "own")), query_prefix="ask: "))
    notes: list[str] = []
    progress = SimpleNamespace(start=lambda *_: None, note=notes.append, advance=lambda _: None)
    other = str(save_tiny_bert(tmp_path / "other", seed=1))
    assert load_guide(Settings(guide=other), target, progress).info.query_prefix == ""
    advice = [line for line in notes if "guide_query_prefix" in line]
    assert len(advice) == 1
    assert flag_of("query_prefix") not in advice[0]
    notes.clear()
    guide = load_guide(Settings(guide=other, guide_query_prefix=""), target, progress)
    assert guide.info.rules["query_prefix"] == "flag"
    assert not any("guide_query_prefix" in line for line in notes)
    own = load_guide(Settings(guide=other, guide_passage_prefix="passage: "), target, progress)
    assert (own.info.query_prefix, own.info.passage_prefix) == ("", "passage: ")


def test_suspects_of_several_positives_are_those_that_select_drops(tmp_path, monkeypatch):
    monkeypatch.setattr(GuideSource, "is_evidence", True)  # a guide of hashes is none
    rows = [{**row, "pos": [*row["pos"], f"{row['pos'][0]} again"]} for row in clean_rows(60)]
    source, path = write(tmp_path / "a.jsonl", rows), _with_all(tmp_path, rows)
    own = {"encoder": PieceEncoder(), "controls": "none", "cache": False, "guide": path, "positives": "all"}
    run = api.score([source], run=tmp_path / "run", objectives=True, **own)
    finding = run.sources[0].finding("suspect")
    copy = api.select(tmp_path / "run", tmp_path / "b.jsonl", drop="suspect")
    assert copy.left_out == {"suspect": finding.n_negatives}
    assert finding.share == pytest.approx(finding.n_negatives / 180)
    assert run.analyses["guide"].sources[0].suspect_share == pytest.approx(finding.share)
    assert run.analyses["guide"].sources[0].n_scored == 180
    assert run.analyses["guide"].sources[0].without_suspects.n_triplets == 180 - finding.n_negatives
    of_query, of_passage = (
        HashEncoder(12, name="other").table(t, r)
        for t, r in zip(texts_of(_flat(rows)), ("query", "passage"), strict=True)
    )
    flagged, level = 0, run.analyses["guide"].random_score
    for row in rows:
        lowest = min(float(of_query[row["query"]] @ of_passage[text]) for text in row["pos"])
        flagged += sum(
            is_suspect(lowest, float(of_query[row["query"]] @ of_passage[text]), level) for text in row["neg"]
        )
    assert finding.n_negatives == flagged


def _sections(run):
    return page_of(run).details


def test_suspects_are_dropped_where_all_were_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(GuideSource, "is_evidence", True)  # a guide of hashes is none
    rows = clean_rows(80)
    source, path = write(tmp_path / "a.jsonl", rows), vectors(tmp_path / "guide.npz", rows)
    own = {"encoder": PieceEncoder(), "controls": "none", "cache": False, "guide": str(path)}
    run = api.score([source], run=tmp_path / "run", **own)
    (result,) = run.analyses["guide"].sources
    n_suspect = run.sources[0].finding("suspect").n_negatives
    copy = api.select(tmp_path / "run", tmp_path / "b.jsonl", drop="suspect")
    assert copy.left_out == {"suspect": n_suspect}
    assert copy.after.hardness == pytest.approx(result.without_suspects.hardness, rel=1e-6)
    flagged = api.flagged(tmp_path / "run", "suspect", tmp_path / "rows.jsonl")
    assert flagged.n_rows == {"a": n_suspect}
    scores = read_negatives(tmp_path / "run", ["s_guide_positive", "s_guide_negative", "in_suspect"], "a").to_pydict()
    low = run.analyses["guide"].random_score
    high = zip(scores["s_guide_positive"], scores["s_guide_negative"], strict=True)
    assert [is_suspect(p, n, low) for p, n in high] == scores["in_suspect"]
    api.score([source], run=tmp_path / "part", guide_sample=100, **own)
    with pytest.raises(UsageError):
        api.select(tmp_path / "part", tmp_path / "c.jsonl", drop="suspect")
    part = read_negatives(tmp_path / "part", ["s_guide_negative", "in_suspect"], "a")
    assert [part[name].null_count for name in part.column_names] == [140, 140]
    n_sampled = sum(filter(None, part["in_suspect"].to_pylist()))
    assert 0 < n_sampled < n_suspect
    assert api.flagged(tmp_path / "part", "suspect", tmp_path / "c.jsonl").n_rows == {"a": n_sampled}


def test_a_reranker_is_a_guide_and_its_scores_are_kept(tmp_path):
    rows, folder = clean_rows(20), save_reranker(tmp_path / "reranker")
    own = {"guide_reranker": str(folder), "cache": True, "cache_dir": str(tmp_path / "cache"), "device": "cpu"}
    first, second = (scored(tmp_path, {"a": rows, "b": rows}, **own) for _ in range(2))
    n_pairs = first.run.timing["guide"]["n_pairs"]
    assert 20 + 60 < n_pairs <= 20 + 60 + 300
    assert [run.run.timing["guide"]["n_scored"] for run in (first, second)] == [n_pairs, 0]
    assert second.run.analyses["guide"] == first.run.analyses["guide"]
    model = CrossEncoder(str(folder), device="cpu")
    pairs = [(row["query"], text) for row in rows for text in (*row["pos"], *row["neg"])]
    scores = model.predict(pairs, show_progress_bar=False).reshape(20, 4).astype(float)
    table = first.measured[0].table.guide
    assert table.s_query_positive.reshape(20, 3)[:, 0] == pytest.approx(scores[:, 0], abs=1e-6)
    assert table.s_query_negative.reshape(20, 3) == pytest.approx(scores[:, 1:], abs=1e-6)
    level = first.run.analyses["guide"].random_score
    assert scores.min() < level < scores.max()
    share = suspect_share([(best, near) for best, *others in scores.tolist() for near in others], level)
    assert first.run.analyses["guide"].sources[0].suspect_share == pytest.approx(share)


def _flat(rows):
    """The rows with the further positives among the negatives, where `vectors` takes texts from."""
    return [{**row, "neg": [*row["neg"], *row["pos"][1:]]} for row in rows]


def _with_all(folder, rows):
    return str(vectors(folder / "guide.npz", _flat(rows), HashEncoder(12, name="other")))
