"""Compare whole runs with the independent reference: ablations, proxies, buckets, spectra, intervals, controls."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from secid.analyses.agreement import numbers_of
from secid.analyses.budgets import EqualNumbers
from secid.findings.rows import SAMPLED_FINDINGS
from secid.pool.texts import text_key
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results import Run, RunWarning
from secid.results.catalogue import FINDINGS
from secid.scoring.run import Scored
from secid.settings import resolve
from secid.triplets.measure_set import TEMPERATURES, TOKENIZERS
from secid.triplets.table import CoverageTables
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.oracle import reference
from tests.scored import score_sources

WORDS = [
    "river", "stone", "bridge", "arch", "The", "of", "water", "9", "load", "über", "हिन्दी", "煮米饭2人", "猫",
    "黑猫在家",
]  # fmt: skip
Rows = list[tuple[str, list[str], list[str]]]


def texts(generator: np.random.Generator, low: int, high: int) -> str:
    return " ".join(generator.choice(WORDS, generator.integers(low, high)))


def made_up(seed: int = 0) -> dict[str, Rows]:
    """Return three sources of uneven size with shared and separate queries, copies and known positives."""
    generator = np.random.default_rng(seed)
    queries = [f"{texts(generator, 2, 5)} {number}" for number in range(40)]
    positives = {q: [f"{texts(generator, 4, 12)} {number}" for number in range(3)] for q in queries}
    sources: dict[str, Rows] = {}
    for name, n_negatives, names in (("a", 4, queries), ("b", 3, queries[5:]), ("c", 2, queries[:20])):
        rows: Rows = []
        for q in names:
            negatives = [texts(generator, 4, 12) for _ in range(n_negatives)]
            if generator.random() < 0.2:
                negatives[0] = positives[q][1]
            if generator.random() < 0.2:
                negatives.append(negatives[-1])
            rows.append((q, positives[q][:2], negatives))
        sources[name] = rows
    return sources


def score(sources: dict[str, Rows], folder: Path, frozen: object = None, **settings: object) -> Scored:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in sources.items():
        lines = [json.dumps({"query": q, "pos": p, "neg": n}, ensure_ascii=False) for q, p, n in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    work = folder / "work"
    work.mkdir(exist_ok=True)
    # The words are of several scripts, for which another tokenizer would be chosen.
    resolved = resolve({"cache": False, "tokenizer": "alphanumeric", **settings}, environment={}, directory=folder)
    found = resolve_sources([str(folder / "*.jsonl")])
    return score_sources(found, PieceEncoder(), resolved, work, Silent(), frequencies=frozen)


@pytest.fixture(scope="module")
def sources() -> dict[str, Rows]:
    return made_up()


@pytest.fixture(scope="module")
def scored(sources, tmp_path_factory, block_plan) -> Scored:
    return score(sources, tmp_path_factory.mktemp("run"), ablate=True)


@pytest.fixture(scope="module")
def run(scored) -> Run:
    return scored.run


class Expected:
    """The reference's numbers for the same files and vectors."""

    def __init__(self, sources: dict[str, Rows]) -> None:
        self.merged = {name: reference.merge_rows(rows) for name, rows in sources.items()}
        everything = {t for rows in sources.values() for _, p, n in rows for t in (*p, *n)}
        self.q_vec = HashEncoder().table(sorted({q for rows in sources.values() for q, _, _ in rows}), "query")
        self.p_vec = HashEncoder().table(sorted(everything), "passage")

    @cache  # noqa: B019 - one object, to the end of the module
    def measured(self, tau: float = 0.05, tokenizer: str = "alphanumeric", corpus: str = "pooled"):
        return {
            name: reference.measure_source(
                records,
                self.q_vec,
                self.p_vec,
                reference.idf_for(self.merged, name, corpus, tokenizer),
                tokenizer=tokenizer,
                temperature=tau,
            )
            for name, records in self.merged.items()
        }

    def scores(self, **setting: object) -> dict[str, float]:
        return reference.variant_scores(self.measured(**setting), "full")


@pytest.fixture(scope="module")
def expected(sources) -> Expected:
    return Expected(sources)


def ablated(run: Run, name: str) -> dict[str, dict[str, float | None]]:
    table = next(item for item in run.analyses["ablations"] if item.name == name)
    return {row.setting: dict(row.scores) for row in table.rows}


def test_diagnostics_of_every_source(run, expected):
    for source in run.sources:
        theirs = reference.summary(expected.measured()[source.name])
        reference.assert_close({key: source.flat()[key] for key in theirs}, theirs)


def test_temperatures(run, expected):
    ours = ablated(run, "temperature")
    assert len(ours) == 5
    reference.assert_close(ours, {tau: expected.scores(tau=float(tau)) for tau in ours})


def test_tokenizers(run, expected):
    ours = ablated(run, "tokenizer")
    assert set(ours) == set(reference.TOKENIZERS)
    reference.assert_close(ours, {name: expected.scores(tokenizer=name) for name in ours})


def test_idf_corpora(run, expected):
    ours = ablated(run, "idf")
    assert len(ours) == 4
    reference.assert_close(ours, {corpus: expected.scores(corpus=corpus) for corpus in ours})


def test_weights(run, expected):
    ours = ablated(run, "weight")
    theirs = {name: name.replace("no_", "without_") for name in ours}
    assert len(ours) == 8
    measured = expected.measured()
    reference.assert_close(ours, {ours_name: reference.variant_scores(measured, t) for ours_name, t in theirs.items()})


def test_samples_are_nested_and_equal_a_run_on_that_sample(run, scored, sources, tmp_path):
    ours = ablated(run, "sample")
    assert ours["100 %"] == {source.name: source.score.nats for source in run.sources}
    smaller: set[bytes] = set()
    for share, count in ((0.25, 10), (0.5, 20), (0.75, 30)):
        # source a has every query of the run, so its sample of n queries is the run's
        part = score(sources, tmp_path / str(count), frozen=scored.frequencies, controls="none", max_records=count)
        item = next(item for item in part.measured if item.name == "a")
        queries = set(map(bytes, item.query_keys))
        assert len(queries) == count
        assert smaller < queries
        smaller = queries
        assert ours[f"{100 * share:g} %"]["a"] == pytest.approx(item.nats(1.0), rel=1e-7)


@pytest.mark.parametrize("block_plan", ["processor"], indirect=True)
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_samples_are_paired_across_sources(run, scored, sources, tmp_path, share):
    """Every source is cut to the same queries: those of the source that has all queries."""
    count = round(40 * share)
    part = score({"a": sources["a"]}, tmp_path / "a", frozen=scored.frequencies, controls="none", max_records=count)
    queries = set(map(bytes, part.measured[0].query_keys))
    cut = {name: [row for row in rows if text_key("query", row[0]) in queries] for name, rows in sources.items()}
    present = {name: rows for name, rows in cut.items() if rows}
    alone = score(present, tmp_path / "all", frozen=scored.frequencies, controls="none").run
    ours = ablated(run, "sample")[f"{100 * share:g} %"]
    assert {name for name, value in ours.items() if value is None} == set(sources) - set(present)
    reference.assert_close(
        {source.name: source.score.nats for source in alone.sources}, {name: ours[name] for name in present}, rel=2e-7
    )


@pytest.mark.parametrize("block_plan", ["processor"], indirect=True)
@pytest.mark.parametrize(
    ("aspect", "setting", "override"),
    [
        ("temperature", f"{TEMPERATURES[0]:g}", {"temperature": TEMPERATURES[0]}),
        *(("tokenizer", name, {"tokenizer": name}) for name in (TOKENIZERS[-1], "wordpieces")),
        *(("idf", corpus, {"idf": corpus}) for corpus in ("own", "uniform")),
    ],
)
def test_a_variant_equals_a_separate_run(run, sources, tmp_path, aspect, setting, override):
    alone = score(sources, tmp_path, controls="none", **override).run
    reference.assert_close(
        {source.name: source.score.nats for source in alone.sources}, ablated(run, aspect)[setting], rel=2e-7
    )


def test_stability_and_order(run):
    for item in run.analyses["ablations"]:
        base = next(row for row in item.rows if row.setting == item.base)
        assert base.stability == 1.0
        assert base.swapped == ()
        names = sorted(base.scores)
        for row in item.rows:
            if None in row.scores.values():
                continue
            values = [[scores[name] for name in names] for scores in (row.scores, base.scores)]
            assert row.stability == pytest.approx(reference.rank_stability(*values))
            assert list(row.order) == sorted(names, key=lambda name: -row.scores[name])


def test_proxies(run, expected):
    for source in run.sources:
        measured = expected.measured()[source.name]
        theirs = {f"{name}_pair": value for name, value in reference.pair_proxies(measured).items()}
        theirs |= {f"{name}_record": value for name, value in reference.record_proxies(measured).items()}
        reference.assert_close(vars(source.score.proxies), theirs)


def test_findings_of_the_gates(run, expected):
    for source in run.sources:
        flags = reference.gate_buckets(expected.measured()[source.name])
        del flags["near_copy"]  # a finding of the texts, since METHOD 14
        theirs = {name: int(own.sum()) for name, own in flags.items()}
        assert {name: source.finding(name).n_negatives for name in theirs} == theirs


def test_findings_of_the_texts(run, sources):
    known = {(q, text) for rows in sources.values() for q, p, _ in rows for text in p}
    for source in run.sources:
        listed = [(q, text) for q, _, negatives in sources[source.name] for text in negatives]
        assert [finding.name for finding in source.findings] == [name for name in FINDINGS if name != "suspect"]
        ours = {finding.name: (finding.n_negatives, finding.share) for finding in source.findings}
        n_false, n_again = len([pair for pair in listed if pair in known]), len(listed) - len(set(listed))
        assert ours["false_negative"] == (n_false, pytest.approx(n_false / len(listed)))
        assert ours["repeat"] == (n_again, pytest.approx(n_again / len(listed)))
        assert n_false > 0


def test_spectrum_and_budget_curve(run, expected):
    for source in run.sources:
        measured = expected.measured()[source.name]
        eigenvalues = reference.spectrum(measured.weight, measured.direction)
        curve = reference.budget_curve(eigenvalues, [point.budget for point in source.score.budget_curve])
        reference.assert_close({point.budget: point.nats for point in source.score.budget_curve}, curve)
        shape = reference.shape_of_spectrum(eigenvalues)
        assert source.score.effective_rank == pytest.approx(shape["effective_rank"], rel=1e-6)
        assert source.score.diversity_fraction == pytest.approx(shape["diversity_fraction"], rel=1e-5)


def test_intervals_bias_and_comparisons(run, expected):
    measured = expected.measured()
    sums = {name: reference.source_sums(item) for name, item in measured.items()}
    for source in run.sources:
        assert source.score.standard_error_nats == pytest.approx(reference.standard_error(sums[source.name]), rel=1e-5)
        item = measured[source.name]
        assert source.score.bias_nats == pytest.approx(
            reference.bias_nats(item.queries, item.weight, item.direction), rel=1e-4
        )
        low, high = source.score.interval_95
        n = source.n_queries
        reach = student.ppf(0.975, n - 1) * np.sqrt(n / (n - 1))
        assert high - low == pytest.approx(2 * reach * source.score.standard_error_nats, rel=1e-6)
    for pair in run.comparisons:
        gap, error, n = reference.shared_difference(measured[pair.first], measured[pair.second])
        assert pair.difference_nats == pytest.approx(gap, rel=1e-5)
        assert pair.standard_error_nats == pytest.approx(error, rel=1e-5)
        assert pair.n_shared_queries == n
        z = pair.difference_nats / error * np.sqrt((n - 1) / n)
        assert pair.p == pytest.approx(2 * student.sf(abs(z), n - 1), rel=1e-4)
    assert [pair.p_holm for pair in run.comparisons] == pytest.approx(
        reference.holm([pair.p for pair in run.comparisons])
    )
    assert {source.score.probability_first for source in run.sources} == {None}  # the rows have different queries


def test_pairs_of_full_means_would_be_noticed(run, expected):
    """The test above can fail: the difference of the full scores is another number."""
    assert len({source.n_queries for source in run.sources}) > 1
    nats = {source.name: source.score.nats for source in run.sources}
    gaps = [nats[pair.first] - nats[pair.second] - pair.difference_nats for pair in run.comparisons]
    assert max(map(abs, gaps)) > 1e-3


def test_a_query_echo_scores_zero_and_no_control_is_ranked(run):
    echo = next(control for control in run.controls if control.kind == "query_echo")
    assert echo.score.nats == 0.0
    assert echo.score.coverage_mean == 1.0
    assert echo.n_new_texts == echo.n_queries == 40
    assert {source.name for source in run.sources} == {"a", "b", "c"}


def test_every_kind_of_control_is_made(run):
    kinds = {control.kind for control in run.controls}
    assert kinds == {"random", "known_positive", "shuffled", "query_echo", "bm25_pool", "dense_pool"}
    assert {control.of for control in run.controls if control.kind == "shuffled"} == {"a", "b", "c"}


def test_the_same_source_under_two_names_ties(sources, tmp_path):
    twice = score({"a": sources["a"], "again": sources["a"]}, tmp_path).run
    assert [source.score.tie for source in twice.sources] == ["A", "A"]
    assert twice.comparisons[0].z is None
    assert not twice.comparisons[0].established
    assert twice.analyses["overlap"][0].negative_jaccard_mean == 1.0
    for control in twice.controls:
        gaps = [each.difference_nats for each in control.against]
        assert gaps == pytest.approx([twice.sources[0].score.nats - control.score.nats] * len(gaps))


def test_sources_of_different_queries_are_the_first_warning(sources, tmp_path):
    rows = sources["a"]
    apart = score({"a": rows[:20], "b": rows[20:]}, tmp_path / "apart", controls="none").run
    values = apart.warnings[0].values
    assert apart.warnings[0].kind == "few_shared_queries"
    assert [values["first"], values["second"]] == ["a", "b"]
    assert (values["n_shared_queries"], values["n_apart"], values["n_pairs"]) == (0, 1, 1)
    three = {"a": rows[:20], "b": rows[20:], "c": rows[:20]}
    warning = score(three, tmp_path / "three", controls="none").run.warnings[0]
    assert (warning.kind, warning.values["n_apart"], warning.values["n_pairs"]) == ("few_shared_queries", 2, 3)
    some = score({"a": rows, "b": rows[10:]}, tmp_path / "some", controls="none").run
    assert not any(warning.kind == "few_shared_queries" for warning in some.warnings)


def test_idf_is_built_once_per_source_and_not_for_every_example(sources, tmp_path, monkeypatch):
    asked = []
    real = CoverageTables.idf
    monkeypatch.setattr(CoverageTables, "idf", lambda *given: asked.append(1) or real(*given))
    few = score({"a": sources["a"]}, tmp_path / "few", controls="none", examples=1).run
    n_few, asked[:] = len(asked), []
    many = score({"a": sources["a"]}, tmp_path / "many", controls="none", examples=9).run
    n_examples = [sum(len(finding.examples) for finding in run.sources[0].findings) for run in (few, many)]
    assert n_examples[0] < n_examples[1]
    assert len(asked) == n_few


def test_early_stop_encodes_less_and_keeps_the_order(tmp_path):
    generator = np.random.default_rng(5)
    queries = [f"{word} {number}" for number in range(400) for word in ["river"]]
    near = [(q, [f"{q} answer"], [f"river other {generator.integers(10**6)}"]) for q in queries]
    far = [(q, [f"{q} answer"], [f"far{generator.integers(10**6)} away"]) for q in queries]
    full = score({"near": near, "far": far}, tmp_path / "full").run
    early = score({"near": near, "far": far}, tmp_path / "early", until_ranked=0.95, ablate=True).run
    assert [source.name for source in early.sources] == [source.name for source in full.sources]
    assert early.early_stop is not None
    assert early.early_stop.undecided == ()
    assert early.early_stop.n_texts_encoded < 0.5 * early.early_stop.n_texts
    texts = {text for query, positives, negatives in near + far for text in (*positives, *negatives)}
    assert early.early_stop.n_texts == len(queries) + len(texts)  # without echoes and other texts of controls
    assert early.timing["read"]["n_distinct_passages"] == len(texts)
    assert early.idf.sha256 == full.idf.sha256
    n_scored = early.sources[0].n_queries
    assert n_scored < full.sources[0].n_queries
    (samples,) = (item for item in early.analyses["ablations"] if item.name == "sample")
    assert {row.setting: row.n_queries["near"] for row in samples.rows} == {
        f"{percent} %": -(-n_scored * percent // 100) for percent in (1, 2, 5, 10, 25, 50, 75, 100)
    }


def test_identical_sources_stay_undecided_or_tie(sources, tmp_path):
    twice = {"a": sources["a"], "again": sources["a"]}
    assert score(twice, tmp_path / "open", until_ranked=0.95).run.early_stop.undecided == (("a", "again"),)
    tied = score(twice, tmp_path / "tie", until_ranked=0.95, tie=1e-6).run.early_stop
    assert tied.undecided == ()
    assert tied.pairs[0].outcome == "tied"


def test_slices_are_runs_of_their_own_records_in_the_same_pool(sources, tmp_path):
    tagged = tmp_path / "tagged"
    tagged.mkdir()
    for name, rows in sources.items():
        lines = [
            json.dumps({"query": q, "pos": p, "neg": n, "lang": "even" if int(q.split()[-1]) % 2 == 0 else "odd"})
            for q, p, n in rows
        ]
        (tagged / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    resolved = resolve({"cache": False, "by": "lang", "tokenizer": "alphanumeric"}, environment={}, directory=tagged)
    (tagged / "work").mkdir()
    found = resolve_sources([str(tagged / "*.jsonl")])
    scored = score_sources(found, HashEncoder(), resolved, tagged / "work", Silent())
    assert {part.value for part in scored.run.analyses["slices"]} == {"even", "odd"}
    for part in scored.run.analyses["slices"]:
        parity = 0 if part.value == "even" else 1
        own = {name: [row for row in rows if int(row[0].split()[-1]) % 2 == parity] for name, rows in sources.items()}
        alone = score(own, tmp_path / part.value, frozen=scored.frequencies, controls="none").run
        reference.assert_close(
            {s.name: (s.score_nats, *s.interval_95) for s in part.sources},
            {s.name: (s.score.nats, *s.score.interval_95) for s in alone.sources},
            rel=1e-6,  # blocks differ, and a block's product is float32
        )
        assert sum(s.n_triplets for s in part.sources) < sum(s.n_triplets for s in scored.run.sources)
        leader = scored.run.sources[0].name
        leads = [
            pair.interval_95
            for pair in alone.comparisons
            if pair.second == leader and alone.sources[0].name == pair.first
        ]
        assert part.lead_interval_95 == (pytest.approx(leads[0], rel=1e-6) if leads else None)


def test_an_empty_part_of_a_file_is_left_out_with_its_reason(tmp_path):
    (tmp_path / "work").mkdir()
    rows = [
        {"qid": f"q{n}", "query": f"river {n}", "pos": [f"bank {n}"], "neg": {"x": [f"sea {n}"], "y": []}}
        for n in range(5)
    ]
    (tmp_path / "many.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    resolved = resolve({"cache": False, "max_bad_fraction": 1.0}, environment={}, directory=tmp_path)
    found = resolve_sources([str(tmp_path / "many.jsonl")])
    run = score_sources(found, HashEncoder(), resolved, tmp_path / "work", Silent()).run
    assert [source.name for source in run.sources] == ["many:x"]
    assert run.without_triplets == {"many:y": {"no_negatives": 5}}


def test_the_same_rows_in_another_order_are_a_tie_not_an_order(sources, tmp_path):
    shuffled = list(np.random.default_rng(0).permutation(len(sources["a"])))
    twice = {"a": sources["a"], "b": [sources["a"][place] for place in shuffled]}
    run = score(twice, tmp_path, until_ranked=0.95, controls="none").run
    assert run.comparisons[0].z is None
    assert [source.score.tie for source in run.sources] == ["A", "A"]
    assert run.early_stop.pairs == ()
    assert {source.score.probability_first for source in run.sources} == {0.5}


def test_controls_do_not_depend_on_the_order_of_rows(sources, tmp_path):
    doubled = {name: [*rows, *[(q, p[::-1], n[::-1]) for q, p, n in rows]] for name, rows in sources.items()}
    turned = {name: rows[::-1] for name, rows in doubled.items()}
    runs = [score(table, tmp_path / name).run for name, table in (("a", doubled), ("b", turned))]
    ours = [{(c.kind, c.of): c.score.nats for c in run.controls} for run in runs]
    reference.assert_close(*[{str(key): value for key, value in table.items()} for table in ours], rel=1e-6)


def test_too_few_queries_give_no_order_and_no_interval(sources, tmp_path):
    few = {"a": sources["a"][5:7], "b": sources["b"][:2]}
    run = score(few, tmp_path, controls="random").run
    assert RunWarning(kind="few_queries", source="a", values={"n_queries": 2}) in run.warnings
    assert run.comparisons[0].interval_95 == (-1.0, 1.0)
    assert {item.source: item.interval_95 for item in run.controls[0].against}["a"] == (-1.0, 1.0)
    assert not any(pair.established for pair in run.comparisons)
    assert {source.score.probability_first for source in run.sources} == {0.5}
    assert next(source for source in run.sources if source.name == "a").score.interval_95 == (0.0, 1.0)
    assert any(warning.kind == "few_queries" for warning in run.warnings)


def test_an_early_stop_at_max_records_leaves_open_what_is_open(tmp_path):
    generator = np.random.default_rng(1)
    rows = {
        name: [(f"river {n}", [f"river answer {n}"], [f"river {name} {generator.integers(10**9)}"]) for n in range(300)]
        for name in ("a", "b")
    }
    run = score(rows, tmp_path, until_ranked=0.95, max_records=40, controls="none").run
    assert run.sources[0].n_queries <= 40
    assert run.comparisons[0].established is False
    assert run.early_stop.undecided == (("a", "b"),)
    assert run.sources[0].rows.n_not_sampled == 260


def test_policy_all_shares_negatives_among_positives(sources, expected, tmp_path):
    result = score(sources, tmp_path, positives="all", controls="none")
    for source in result.run.sources:
        triplets = [
            (record, triplet)
            for record in expected.merged[source.name]
            for triplet in reference.policy_triplets(record, "all", expected.q_vec, expected.p_vec)
        ]
        idf = reference.idf_for(
            {name: [(q, p[:1], n) for q, p, n in records] for name, records in expected.merged.items()}, source.name
        )
        measured = reference.measure_triplets([triplet for _, triplet in triplets], expected.q_vec, expected.p_vec, idf)
        theirs = reference.summary(measured, [len(record[1]) for record, _ in triplets])
        assert source.n_triplets == theirs["n_triplets"] < len(triplets)
        for bins in source.score.gate_histograms.values():
            assert sum(bins) == source.n_triplets
        for finding in source.findings:
            if FINDINGS[finding.name].needs == "rows" and finding.name not in SAMPLED_FINDINGS:
                n = result.findings[source.name].shares[finding.name].n_all
                assert n == source.n_triplets or finding.name == "near_positive"  # not evaluated for some negatives
                assert finding.n_negatives == pytest.approx(finding.share * n, abs=0.5 + 1e-9)
                assert max(source.finding_overlaps[finding.name].values()) == finding.n_negatives
        # the pool also has the second positives, so only numbers without coverage are compared
        for name in ("consistency_mean", "locality_mean", "pair_loss_mean", "inversion_fraction"):
            assert getattr(source.score, name) == pytest.approx(theirs[name], rel=1e-6)


def test_at_another_budget_the_ranking_is_by_equal_samples(tmp_path):
    """Full sources give one order, equal numbers the other. Beyond B = 1 the ranking uses equal numbers."""

    def rows(n: int, words: str, n_negatives: int) -> Rows:
        queries = [f"river stone {place}" for place in range(n)]
        return [
            (q, [f"river {q} answer"], [f"river {words} {q[12:]}x{k}" for k in range(n_negatives)]) for q in queries
        ]

    both = {"many": rows(60, "stone", 4), "few": rows(30, "other", 1)}
    run = score(both, tmp_path, budget=1_000.0, temperature=1.0, controls="none").run
    own = {s.name: next(p.nats for p in s.score.budget_curve if p.budget == run.budget) for s in run.sources}
    assert own["many"] > own["few"]
    assert [source.name for source in run.sources] == ["few", "many"]
    assert run.comparisons[0].first == "few"
    assert run.comparisons[0].difference_nats > 0
    assert run.analyses["budgets"].equal_numbers == EqualNumbers(n_queries=30, n_triplets=30)
    few, many = (source.in_table(run.budget).score for source in run.sources)
    assert few.nats - many.nats == pytest.approx(run.comparisons[0].difference_nats)  # shown = ranked
    assert run.sources[0].score.equal_curve == ()  # the smallest source is not cut
    assert many.interval_95[0] < many.nats < many.interval_95[1]
    equal = score({"x": both["few"], "y": rows(30, "else", 1)}, tmp_path / "equal", budget=1_000.0).run
    assert equal.analyses["budgets"].equal_numbers is None
    assert all(source.score.equal_curve == () for source in equal.sources)
    below = score(both, tmp_path / "below", budget=0.5, temperature=1.0, controls="none").run
    shown = {s.name: s.in_table(0.5).score.nats for s in below.sources}
    own = {s.name: next(p.nats for p in s.score.budget_curve if p.budget == 0.5) for s in below.sources}
    assert shown["few"] == own["few"]
    assert shown["many"] != own["many"]  # on the queries that both have
    gap = shown[below.comparisons[0].first] - shown[below.comparisons[0].second]
    assert gap == pytest.approx(below.comparisons[0].difference_nats, abs=1e-12)  # up to B = 1 all negatives count
    assert numbers_of(below)["ECI at B = 0.5"] == shown


def test_crossings_agree_with_the_curves_on_equal_numbers(tmp_path):
    """Few directions of full weight lead at first, many of half the weight later: at another B on all they have."""
    near = [(f"stone {n}", ["river"], ["leaf", "moss"]) for n in range(30)]
    wide = [(f"stone {n}", [f"lake{n}"], [f"stone x{n}y{k}" for k in range(6)]) for n in range(50)]
    run = score({"near": near, "wide": wide}, tmp_path, temperature=1.0, controls="none").run
    assert run.analyses["budgets"].equal_numbers == EqualNumbers(n_queries=30, n_triplets=60)
    curves = {s.name: {p.budget: p.nats for p in s.score.compared_curve} for s in run.sources}
    assert curves["near"].keys() == curves["wide"].keys()
    ahead = max(curves, key=lambda name: curves[name][1.0])
    passed = []
    for budget in sorted(curves[ahead]):
        for crossing in run.analyses["budgets"].crossings[len(passed) :]:
            if crossing.budget < budget:
                assert crossing.first == ahead
                ahead = crossing.second
                passed.append(crossing)
        assert max(curves, key=lambda name: curves[name][budget]) == ahead
    assert passed


def test_policy_all_gives_no_crossings_of_unequal_sources_and_says_so(sources, tmp_path):
    two = {name: sources[name] for name in "ab"}
    run = score(two, tmp_path / "unequal", positives="all", controls="none", budget=100.0).run
    assert run.analyses["budgets"].crossings == ()
    assert run.not_evaluated["crossings"] == "not_equal_size"
    assert RunWarning(kind="unequal_sizes", values={"budget": 100.0}) in run.warnings
    first = score(two, tmp_path / "first", controls="none", budget=100.0).run
    assert "crossings" not in first.not_evaluated
    assert not any(warning.kind == "unequal_sizes" for warning in first.warnings)
    equal = {name: [(q, p, n[:1]) for q, p, n in sources["a"]] for name in ("x", "y")}
    assert "crossings" not in score(equal, tmp_path / "equal", positives="all", controls="none").run.not_evaluated


def test_controls_cope_with_texts_without_words_and_with_samples(tmp_path):
    rows = [(f"? {n}", ["..."], ["---", "+++"]) for n in range(12)]
    run = score({"signs": rows, "more": rows[:6]}, tmp_path, control_queries=4, max_records=3).run
    assert run.not_evaluated["control bm25 pool"] == "no_document_token"


def test_every_number_of_a_finding_can_be_recomputed_from_the_rows(scored, tmp_path):
    import pyarrow.parquet as pq

    from secid.run_folder.tables import write_negatives

    write_negatives(scored.measured, tmp_path / "negatives.parquet")
    table = pq.read_table(tmp_path / "negatives.parquet").to_pydict()
    for source in scored.run.sources:
        own = [place for place, name in enumerate(table["source"]) if name == source.name]
        assert len(own) == source.n_triplets
        inverted = sum(table["consistency"][place] < 0.5 for place in own)
        assert inverted / len(own) == pytest.approx(source.score.inversion_fraction)
        weight, information = (np.array([table[name][place] for place in own]) for name in ("weight", "information"))
        item = next(item for item in scored.measured if item.name == source.name)
        matrix = item.state.matrix().numpy()
        held = np.trace(np.linalg.solve(np.eye(len(matrix)) + matrix, matrix))
        assert information.sum() == pytest.approx(held, rel=1e-6)
        for finding in source.findings:
            inside = np.array([table[f"in_{finding.name}"][place] for place in own])
            if FINDINGS[finding.name].needs != "texts":  # whose shares are of the listed negatives, copies included
                n = scored.findings[source.name].shares[finding.name].n_all
                assert n == len(own) or finding.name == "near_positive"  # not evaluated for some negatives
                assert inside.sum() == finding.n_negatives
                assert finding.share == pytest.approx(inside.sum() / n)
            assert finding.weight_fraction == pytest.approx(weight[inside].sum() / weight.sum(), rel=1e-6)
            part = source.score.nats * information[inside].sum() / information.sum()
            assert finding.score_nats == pytest.approx(part, rel=1e-6)
        assert any(0 < finding.weight_fraction < 1 for finding in source.findings)
