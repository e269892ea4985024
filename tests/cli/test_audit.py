"""`secid audit`: labels matched by id and by text, what is counted apart, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer

from secid import api
from secid.errors import InputError, UsageError
from secid.findings.judgements import label_files, read_judgements
from secid.pages.evidence import audit_page
from secid.read.collection import Collection
from secid.read.evaluation import read_qrels
from secid.results.document import json_of
from secid.settings import Settings
from tests.cli.conftest import ROOT, Invoke
from tests.oracle import audit as oracle
from tests.snapshots import Snapshot, refusal, situations
from tests.tiny_bert import save_tiny_bert
from tests.unit.encode.test_reranker import save_reranker

TEXTS = {
    "d1": ("", "Rye bread keeps for a week."),
    "d2": ("Dough", "Sourdough rises overnight in a cool room."),
    "d3": ("", "The bolt of a crank turns left."),
    "d4": ("", "Spokes are trued with a small key."),
    "d5": ("", "Ferns like shade and wet soil."),
    "d6": ("", "RYE BREAD keeps, for a week!"),
}
QUERIES = {
    "q1": "how long does bread keep",
    "q2": "which way does a crank bolt turn",
    "q3": "where do ferns grow",
    "q4": "How long does bread keep?",
}
QRELS = {
    "train": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t2\nq1\td5\t0\n",
    "test": "query-id\tcorpus-id\tscore\nq2\td3\t1\nq2\td4\t0\nq2\td2\t-1\n",
}
ROWS = [
    ("q1", "d1", ["d2", "d5", "d4", "d6"]),
    ("q2", "d3", ["d4", "d1", "d2", "d3"]),
    ("q3", "d5", ["d1", "d2"]),
]


@pytest.fixture
def beir(tmp_path) -> Path:
    """A collection with two splits; d6 is a copy of d1, and q4 of q1, but for case and marks."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": key, "title": title, "text": text}) for key, (title, text) in TEXTS.items()]
    queries = [json.dumps({"_id": key, "text": text}) for key, text in QUERIES.items()]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    for name, text in QRELS.items():
        (folder / "qrels" / f"{name}.tsv").write_text(text, "utf-8")
    return Path("beir")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.tsv.bak", "q1\td1\t1\n"),
        ("README.md", "# judgements"),
        ("readme.txt", "of judgements"),
        ("notes", "none"),
    ],
)
def test_other_files_next_to_the_qrels_are_not_read(beir, name, text):
    before = label_files(None, None, Settings(collection=str(beir)))
    (beir / "qrels" / name).write_text(text, "utf-8")
    assert label_files(None, None, Settings(collection=str(beir))) == before


def test_a_split_is_the_stem_of_its_file(beir):
    given = Settings(collection=str(beir))
    (beir / "qrels" / "dev.tsv.gz").write_bytes(gzip.compress(b"q1\td1\t1\n"))
    assert [Path(file).name for file in label_files(None, "dev", given)] == ["dev.tsv.gz"]
    assert [Path(file).name for file in label_files(None, "test", given)] == ["test.tsv"]
    for wrong in ("tsv", "gz", "dev.tsv"):
        with pytest.raises(UsageError):
            label_files(None, wrong, given)


def test_judgements_listed_twice_count_once(beir, tiny):
    source = written(texts=True)
    once = api.audit([source], str(tiny), collection=str(beir)).labels
    (beir / "qrels" / "again.tsv").write_text(QRELS["train"] + QRELS["test"].partition("\n")[2], "utf-8")
    twice = api.audit([source], str(tiny), collection=str(beir)).labels
    assert (twice.n_judgements, twice.n_relevant) == (once.n_judgements, once.n_relevant)


@pytest.mark.parametrize("text", ["q d 1\nq e 0\n", "q  d  1 \r\nq e 0", "q 0 d 1\nq 0 e 0\n", "q\td\t1\nq\te\t0\n"])
def test_columns_of_qrels_may_be_parted_by_spaces(text, tmp_path):
    (tmp_path / "qrels.txt").write_bytes(text.encode())
    assert list(read_qrels(str(tmp_path / "qrels.txt"))) == [("q", "d", 1.0), ("q", "e", 0.0)]


def written(name: str = "in.jsonl", *, texts: bool, titles: bool = True, rows: list = ROWS) -> str:
    """A file of (query, positive, negatives), as texts (queries in capitals) or as ids."""

    def passage(key: str) -> str:
        title, text = TEXTS[key]
        return f"{title} {text}".strip() if titles else text

    lines = [
        json.dumps(
            {"query": QUERIES[q].upper(), "pos": [passage(p)], "neg": [passage(key) for key in n]}
            if texts
            else {"query": q, "pos": [p], "neg": n}
        )
        for q, p, n in rows
    ]
    Path(name).write_text("\n".join(lines), "utf-8")
    return name


def counts(source) -> tuple[int, ...]:
    return (
        source.n_negatives,
        source.n_labelled_relevant,
        source.n_labelled_non_relevant,
        source.n_unjudged,
        source.n_of_unjudged_queries,
    )


@pytest.mark.parametrize("texts", [True, False])
def test_labels_match_ids_and_texts_alike(beir, tiny, texts):
    """q1: d2, and d6 as a copy of d1, are relevant, d5 is not. q2: d3 is its own positive; d4 and d2 are not."""
    report = api.audit([written(texts=texts)], str(tiny), collection=str(beir))
    (source,) = report.sources
    assert counts(source) == (10, 3, 3, 2, 2)
    assert (source.n_queries, source.n_unjudged_queries, source.n_outside) == (2, 1, 0)
    labels = report.labels
    assert (labels.n_judgements, labels.n_relevant, labels.n_queries) == (6, 3, 2)
    assert (labels.split, len(labels.files)) == (None, 2)
    assert source.rule("absolute").n_flagged_relevant >= 1  # the positive itself is as near as itself


def test_a_split_and_a_sample(beir, tiny):
    file = written(texts=False)
    report = api.audit([file], str(tiny), collection=str(beir), split="test")
    assert counts(report.sources[0]) == (10, 1, 2, 1, 6)
    assert [Path(path).name for path in report.labels.files] == ["test.tsv"]
    assert counts(api.audit([file], str(tiny), collection=str(beir), first_k=1).sources[0]) == (3, 1, 1, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "q1\td1\t1\nq1\td2\t2\nq2\td3\t1\n",
        "q1 0 d1 1\nq1 0 d2 2\n\nq2 0 d3 1\n",
        "q1  Q0\td1 1\r\nq1 Q0 d2 2\r\nq2 Q0 d3 1",
        "query_id,doc_id,relevance\nq1,d1,1\nq1,d2,2\nq2,d3,1\n",
    ],
)
def test_a_file_of_qrels_in_any_layout(beir, tiny, text):
    Path("judged.txt").write_text(text, "utf-8")
    texts = {"corpus": str(beir / "corpus.jsonl"), "queries": str(beir / "queries.jsonl")}
    for rows_of_texts in (True, False):
        report = api.audit([written(texts=rows_of_texts)], str(tiny), qrels="judged.txt", **texts)
        assert counts(report.sources[0]) == (10, 3, 0, 5, 2)


@pytest.mark.parametrize("positives", ["first", "hardest", "easiest", "random", "all"])
def test_every_policy_counts_a_negative_once(beir, tiny, positives):
    rows = [{"query": QUERIES["q1"], "pos": [TEXTS[key][1] for key in ("d1", "d3")], "neg": [TEXTS["d6"][1]]}]
    Path("in.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    report = api.audit(["in.jsonl"], str(tiny), collection=str(beir), positives=positives)
    assert counts(report.sources[0]) == (1, 1, 0, 0, 0)
    assert report.positives == positives


def test_it_counts_what_the_finding_false_negative_counts(tiny, monkeypatch):
    """The positives of the fixtures are those of their qrels, and no negative is listed twice."""
    monkeypatch.chdir(ROOT)
    files = ["fixtures/sources/poisoned.jsonl", "fixtures/sources/bm25.jsonl.gz"]
    report = api.audit(files, str(tiny), collection="fixtures/collection")
    checked = api.check(files, collection="fixtures/collection")
    exact = [source.finding("false_negative").n_negatives for source in checked.sources]
    assert [source.n_labelled_relevant for source in report.sources] == exact == [37, 0]


def test_several_judgements_of_a_pair_count_by_the_highest(beir):
    Path("a.tsv").write_text("q1\td1\t0\nq4\td6\t3\nq1\td2\t1\nq1\td2\t0\n", "utf-8")
    collection = Collection([str(beir / "corpus.jsonl")], [str(beir / "queries.jsonl")], titles=True)
    judgements = read_judgements(["a.tsv"], collection, 0.05)
    assert (len(judgements.queries), sorted(judgements.grade.tolist()), judgements.n_distinct) == (1, [1, 3], 3)
    assert judgements.unknown == {"unknown_query": 0, "unknown_passage": 0}


def test_the_command_prints_what_the_function_returns(beir, tiny, invoke: Invoke):
    file = written(texts=True)
    outcome = invoke("audit", file, "--collection", beir, "--encoder", tiny, "--json", "-o", "a.html", "-o", "a.md")
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out)
    expected = json.loads(json_of(api.audit([file], str(tiny), collection=str(beir))))
    assert printed["sources"] == expected["sources"]
    assert {"name", "n_labelled_relevant", "auroc_consistency"} <= printed["sources"][0].keys()
    assert "<table" in Path("a.html").read_text("utf-8")
    assert "| source" in Path("a.md").read_text("utf-8")


def test_pages(tiny, invoke: Invoke, snapshot: Snapshot, monkeypatch):
    monkeypatch.chdir(ROOT)
    outcome = invoke(
        "audit", "fixtures/sources/poisoned.jsonl", "fixtures/sources/bm25.jsonl.gz", "--collection",
        "fixtures/collection", "--encoder", tiny, "--quiet",
    )  # fmt: skip
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    snapshot("audit.txt", outcome.out)


@pytest.mark.parametrize("negatives", [["d2", "d5"], ["d2", "d5", "d1"]])
def test_an_absolute_margin_is_shown_where_a_tie_makes_it_differ(beir, tiny, negatives):
    """d1 is the positive itself, which π does not flag."""
    report = api.audit([written(texts=False, rows=[("q1", "d1", negatives)])], str(tiny), collection=str(beir))
    (source,) = report.sources
    differs = source.rule("absolute").n_flagged != source.rule("consistency").n_flagged
    assert differs == ("d1" in negatives)
    (section,) = (part for part in audit_page(report).details if part.anchor == "rules")
    assert len(section.tables[0].rows) == (3 if differs else 2)


def test_pages_with_a_guide(tiny, tmp_path, invoke: Invoke, snapshot: Snapshot, monkeypatch):
    save_tiny_bert(tmp_path / "second", seed=7)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    outcome = invoke(
        "audit", "fixtures/sources/poisoned.jsonl", "--collection", "fixtures/collection", "--encoder", tiny,
        "--guide", "./second", "--quiet",
    )  # fmt: skip
    assert outcome.code == 0
    snapshot("audit-guide.txt", outcome.out)


def test_refusals(beir, tiny, snapshot: Snapshot):
    """Wrong options, and labels of other texts, are refused."""
    file, beir_name = written(texts=True), str(beir)
    texts = {"corpus": str(beir / "corpus.jsonl"), "queries": str(beir / "queries.jsonl")}
    Path("strange.tsv").write_text("q1\td1\t1\n" * 18 + "x1\td1\t1\nq1\tx2\t1\n", "utf-8")
    Path("elsewhere.tsv").write_text("q3\td1\t1\n", "utf-8")
    Path("empty.tsv").write_text("query-id\tcorpus-id\tscore\n", "utf-8")
    two = written("two.jsonl", texts=True, rows=ROWS[:2])
    untitled = written("untitled.jsonl", texts=True, titles=False, rows=[("q1", "d2", ["d4"])])
    bare = Path("bare")
    shutil.copytree(beir, bare, ignore=shutil.ignore_patterns("qrels"))

    def audit(source: str = file, **settings):
        return lambda: api.audit([source], str(tiny), **settings)

    cases = {
        "neither": (audit(), UsageError, None),
        "both": (audit(qrels="strange.tsv", collection=beir_name), UsageError, "--qrels"),
        "a file without texts": (audit(qrels="strange.tsv"), UsageError, "--qrels"),
        "a split of a file": (audit(qrels="strange.tsv", split="test", **texts), UsageError, "--split"),
        "another split": (audit(collection=beir_name, split="dev"), UsageError, "--split"),
        "no such collection": (audit(collection="nowhere"), InputError, "nowhere"),
        "no qrels": (audit(collection="bare"), InputError, "bare"),
        "unknown ids": (audit(qrels="strange.tsv", **texts), InputError, "strange.tsv"),
        "no judgement": (audit(qrels="empty.tsv", **texts), InputError, "empty.tsv"),
        "no query matches": (audit(two, qrels="elsewhere.tsv", **texts), InputError, "elsewhere.tsv"),
        "texts without titles": (audit(untitled, collection=beir_name), InputError, "untitled.jsonl"),
        "no encoder": (lambda: api.audit([file], collection=beir_name), UsageError, None),
    }
    snapshot("audit-refusals.txt", situations({name: refusal(*case) for name, case in cases.items()}))


def test_a_few_unknown_ids_are_counted(beir, tiny):
    rows = "".join(f"{query}\t{key}\t1\n" for query in QUERIES for key in TEXTS) + "x1\td1\t1\nq1\tx2\t1\n"
    Path("few.tsv").write_text(rows, "utf-8")
    texts = {"corpus": str(beir / "corpus.jsonl"), "queries": str(beir / "queries.jsonl")}
    report = api.audit([written(texts=True)], str(tiny), qrels="few.tsv", max_bad_fraction=0.08, **texts)
    assert report.labels.unknown == {"unknown_query": 1, "unknown_passage": 1}


def test_a_source_without_a_judged_query_is_not_evaluated_and_others_are(beir, tiny):
    files = [written(texts=True), written("other.jsonl", texts=True, rows=ROWS[2:])]
    first, second = api.audit(files, str(tiny), collection=str(beir)).sources
    assert first.not_evaluated.get("audit") is None
    assert (second.not_evaluated, second.rules, second.auroc_consistency) == ({"audit": "no_judged_query"}, (), None)
    assert counts(second) == (2, 0, 0, 0, 2)


def test_negatives_that_no_collection_holds_are_counted(beir, tiny):
    rows = [{"query": QUERIES["q1"], "pos": [TEXTS["d1"][1]], "neg": ["A made-up passage on stale bread."]}]
    Path("in.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (source,) = api.audit(["in.jsonl"], str(tiny), collection=str(beir)).sources
    assert (source.n_outside, source.n_unjudged, source.not_evaluated["auroc"]) == (1, 1, "none_relevant")


@pytest.mark.parametrize("kind", ["guide", "guide_reranker"])
def test_a_guide_is_audited_as_its_own_scores_say(beir, tiny, tmp_path, kind):
    """Its rules against loops over scores computed without secid; every negative is scored, each text or pair once."""
    file = written(texts=False, rows=ROWS[:2])
    passages = {key: f"{title} {text}".strip() for key, (title, text) in TEXTS.items()}
    pairs = [(QUERIES[q], passages[key]) for q, p, negatives in ROWS[:2] for key in (p, *negatives)]
    if kind == "guide":
        guide = save_tiny_bert(tmp_path / "second", seed=7)
        model = SentenceTransformer(str(guide), device="cpu")
        rows = [model.encode(list(side), normalize_embeddings=True).astype(float) for side in zip(*pairs, strict=True)]
        scores = (rows[0] * rows[1]).sum(1)
    else:
        guide = save_reranker(tmp_path / "second")
        scores = CrossEncoder(str(guide), device="cpu").predict(pairs, show_progress_bar=False).astype(float)
    s_qn, s_qp = scores.reshape(2, 5)[:, 1:].ravel(), np.repeat(scores.reshape(2, 5)[:, 0], 4)
    own = {"collection": str(beir), kind: str(guide), "cache": True, "cache_dir": str(tmp_path / "cache")}
    report, again = (api.audit([file], str(tiny), guide_sample=100, **own) for _ in range(2))
    (source,) = report.sources
    plain = api.audit([file], str(tiny), collection=str(beir))
    assert (report.guide.name, plain.guide, plain.sources[0].guide_rules) == (str(guide), None, ())
    assert source.rules == plain.sources[0].rules
    relevant = np.array([1, 0, 0, 1, 0, 0, 0, 1], bool)  # d2, d6 as a copy of d1; d3
    rules = {rule.name: rule for rule in source.guide_rules}
    assert list(rules) == ["absolute", "hardness", "maximum"]
    one = np.ones(8)
    for name, score in (("absolute", s_qn - s_qp), ("maximum", s_qn)):
        assert rules[name].auroc == pytest.approx(oracle.auroc(score.round(6), relevant, one))
    flags = oracle.flags(s_qn + 1e-6, s_qp, 0.05)["absolute"]  # d1 and d3 as negatives tie with themselves
    precision, recall = oracle.shares(flags, relevant, one)
    assert (rules["absolute"].n_flagged, rules["absolute"].precision) == (sum(flags), pytest.approx(precision))
    assert rules["absolute"].recall == pytest.approx(recall)
    assert rules["hardness"].threshold == 0.9
    assert 0 < rules["hardness"].n_flagged < 8
    assert again.sources == report.sources
    assert again.timing["guide"]["n_cached"] == (8 if kind == "guide" else 12)


def test_a_guide_equal_to_the_target_is_refused(beir, tiny):
    with pytest.raises(UsageError) as refusal:
        api.audit([written(texts=True)], str(tiny), collection=str(beir), guide=str(tiny))
    assert refusal.value.where == "--guide"
