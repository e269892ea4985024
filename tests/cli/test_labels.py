"""Qrels of a collection as labelled positives: what they add, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import secid
from secid import api
from secid.errors import UsageError
from secid.pages.check_page import verdict as check_verdict
from secid.pages.sections.verdict import cautions, notes

QRELS = {
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t2\n",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq2\td3\t1\nq2\td4\t0\nother\td1\t1\nq2\tunknown\t1\n",
}
TEXTS = {
    "d1": "Rye bread keeps for a week.",
    "d2": "Sourdough rises overnight in a cool room.",
    "d3": "The bolt of a crank turns left.",
    "d4": "Spokes are trued with a small key.",
    "d5": "Ferns like shade and wet soil.",
}
QUERIES = {"q1": "how long does bread keep", "q2": "which way does a crank bolt turn", "other": "not in the file"}


@pytest.fixture
def collection(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", TEXTS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in rows.items()]
        (tmp_path / "beir" / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    for name, text in QRELS.items():
        (tmp_path / "beir" / name).write_text(text, "utf-8")
    return Path("beir")


def written(name: str, rows: list[tuple[str, str, list[str]]], *, texts: bool) -> str:
    """A file of (query, positive, negatives), given by id, as texts or as ids."""
    whole = {**TEXTS, **QUERIES}
    named = [(q, p, n) if not texts else (whole[q], whole[p], [whole[key] for key in n]) for q, p, n in rows]
    lines = [json.dumps({"query": q, "pos": [p], "neg": n}) for q, p, n in named]
    Path(name).write_text("\n".join(lines), "utf-8")
    return name


ROWS = [("q1", "d1", ["d2", "d5"]), ("q2", "d3", ["d4", "d1"])]


def of_labels(source):
    """Return the findings of a source, except `length`, because the source has few texts."""
    return {f.name: f.n_negatives for f in source.findings if f.n_negatives and f.name != "length"}


@pytest.mark.parametrize("texts", [True, False])
def test_a_negative_that_the_qrels_call_relevant_is_a_false_negative(collection, texts):
    """d2 is relevant to q1 by the train split; d4 has grade 0, and d1 is relevant to other queries alone."""
    file = written("in.jsonl", ROWS, texts=texts)
    report = api.check([file], collection=str(collection))
    assert (report.n_of_qrels, report.one_positive) == (1, False)
    assert of_labels(report.sources[0]) == {"false_negative": 1}
    if texts:
        plain = api.check([file])
        assert not of_labels(plain.sources[0])
        assert (plain.sources[0].rows.n_records, plain.texts["in"].n_positives) == (2, 2)
    assert (report.sources[0].rows.n_records, report.texts["in"].n_positives) == (2, 2)


@pytest.mark.parametrize("controls", ["none", "all"])
def test_one_label_per_query_is_said_whatever_the_controls(collection, tiny, controls):
    file = written("in.jsonl", ROWS, texts=True)
    second = written("second.jsonl", [*ROWS, ("q1", "d2", ["d5"])], texts=True)
    said = {}
    for name, sources, more in (
        ("alone", [file], {}),
        ("qrels", [file], {"collection": str(collection)}),
        ("second", [second], {}),
        ("sample", [second], {"max_records": 1, "seed": 1}),
    ):
        run = api.score(sources, str(tiny), controls=controls, **more)
        said[name] = (run.one_positive, "one label per query" in " ".join(cautions(run)))
        assert run.one_positive == api.check(sources, **more).one_positive
    assert said == {"alone": (True, True), **dict.fromkeys(("qrels", "second", "sample"), (False, False))}


LONG = " ".join(f"Step {number}: knead the dough, then let it rest under a cloth for a while." for number in range(9))


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (LONG[:200], True),
        (LONG.upper(), True),
        (f"{LONG} One more sentence.", True),
        (f"{LONG[:60]} – yet the rest is about bicycles and how their wheels are built and trued.", False),
        ("Another passage altogether.", False),
    ],
    ids=["shortened", "upper case", "longer", "same beginning", "another"],
)
def test_a_copy_of_the_positive_shortened_or_not_is_not_a_second_label(tmp_path, monkeypatch, tiny, second, expected):
    """Rows often hold a positive cut to a length, and another file or a collection holds it in full."""
    monkeypatch.chdir(tmp_path)
    rows = [{"query": query, "pos": [LONG], "neg": [TEXTS["d3"], TEXTS["d4"]]} for query in QUERIES.values()]
    others = [{**rows[0], "pos": [second]}, *rows[1:]]
    for name, own in (("a.jsonl", rows), ("b.jsonl", others)):
        Path(name).write_text("\n".join(map(json.dumps, own)), "utf-8")
    assert api.check(["a.jsonl", "b.jsonl"]).one_positive is expected
    assert api.score(["a.jsonl", "b.jsonl"], str(tiny), controls="none").one_positive is expected


def test_queries_that_differ_in_case_share_their_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    query = QUERIES["q1"]
    rows = [
        {"query": text, "pos": [TEXTS[key]], "neg": [TEXTS["d5"]]}
        for text, key in ((query, "d1"), (query.upper(), "d2"))
    ]
    for own, expected in ((rows[:1], True), (rows, False)):
        Path("in.jsonl").write_text("\n".join(map(json.dumps, own)), "utf-8")
        assert api.check(["in.jsonl"]).one_positive is expected


def test_what_is_given_already_is_not_advised(collection, tiny):
    file = written("in.jsonl", ROWS, texts=True)
    for more in ({}, {"collection": str(collection)}):
        run = api.score([file], str(tiny), controls="none", **more)
        assert "--guide NAME" in " ".join(notes(run))
        for page in map(" ".join, (check_verdict(api.check([file], **more)), notes(run))):
            assert ("--collection DIR" in page) is not bool(more)


def test_a_merged_run_knows_the_labels_of_all_queries_not_of_its_sample(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    rows = [{"query": f"question {n}", "pos": [f"answer {n} of many"], "neg": [TEXTS["d3"]]} for n in range(30)]
    for second in (False, True):
        own = [*rows, {**rows[-1], "pos": ["quite another passage"]}] if second else rows
        Path("in.jsonl").write_text("\n".join(map(json.dumps, own)), "utf-8")
        state = f"state-{second}"
        for number in range(2):
            secid.score_shard(["in.jsonl"], str(tiny), shard=f"{number}/2", state_dir=state)
        assert secid.merge(state, str(tiny), sample=2).one_positive is not second


def test_the_run_counts_and_keeps_them_and_select_drops_by_them(collection, tiny):
    file = written("in.jsonl", ROWS, texts=True)
    run = api.score([file], str(tiny), run="run", controls="none", collection=str(collection))
    assert [f.n_negatives for f in run.sources[0].findings if f.name == "false_negative"] == [1]
    log = Path("run/log.txt").read_text("utf-8")
    assert "labelled positives: 2 from the files, 1 more" in log
    found = api.select("run", "out.jsonl", drop="false_negative")
    assert found.left_out == {"false_negative": 1}
    assert TEXTS["d2"] not in Path("out.jsonl").read_text("utf-8")


def test_a_collection_that_neither_resolves_nor_labels_is_an_error(collection):
    for text in QRELS:
        (collection / text).write_text("query-id\tcorpus-id\tscore\nother\td1\t1\n", "utf-8")
    with pytest.raises(UsageError, match="--collection"):
        api.check([written("in.jsonl", ROWS, texts=True)], collection=str(collection))
