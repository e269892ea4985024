"""`secid compare`: what it concludes, and the check that it names."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from secid.pages.evidence import LEAKAGE_ADVICE, ONE_COLUMN_ADVICE
from tests.cli.conftest import FIXTURES
from tests.unit.pages.samples import GOLDEN


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(GOLDEN / "1.0.json", "report.json")
    names = [source["name"] for source in json.loads((GOLDEN / "1.0.json").read_text(encoding="utf-8"))["sources"]]
    rows = [f"{name},0.{place}" for place, name in enumerate(names, 1)]
    (tmp_path / "results.csv").write_text("\n".join(["source,ndcg", *rows]), encoding="utf-8")
    return "results.csv"


def test_a_single_result_for_each_source_begins_with_a_warning(table, invoke):
    outcome = invoke("compare", "report.json", "--against", table)
    assert outcome.code == 0
    assert f"{ONE_COLUMN_ADVICE} {LEAKAGE_ADVICE}" in " ".join(outcome.out.split())
    assert "chance" in outcome.out.partition(":")[0]


def test_json_stays_a_document_and_the_warning_goes_to_standard_error(table, invoke):
    outcome = invoke("compare", "report.json", "--against", table, "--json")
    assert {item["metric"] for item in json.loads(outcome.out)} == {"ndcg"}
    assert f"{ONE_COLUMN_ADVICE} {LEAKAGE_ADVICE}" in " ".join(outcome.err.split())


@pytest.mark.parametrize(("positive", "leaks"), [("bread-01", True), (None, False)])
def test_the_check_it_names_finds_a_passage_shared_by_a_training_and_a_test_query(tmp_path, invoke, positive, leaks):
    """The queries differ; only the relevant passage is the same."""
    corpus = map(json.loads, (FIXTURES / "collection" / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    texts = {row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in corpus}
    own = "Timber frames move with the seasons, so the joints of an old barn are pegged and never glued."
    row = {
        "query": "why are barns pegged",
        "pos": [texts.get(positive, own)],
        "neg": ["Slates are laid from the eaves."],
    }
    training = tmp_path / "training.jsonl"
    training.write_text(json.dumps(row) + "\n", encoding="utf-8")
    words = re.search(r"`secid (check) TRAINING_FILES (--against-eval) EVALUATION_FOLDER`", LEAKAGE_ADVICE)
    outcome = invoke(words[1], training, words[2], FIXTURES / "collection")
    assert outcome.code == 0
    assert ("eval_passage: " in outcome.out, "1 as positives" in outcome.out) == (leaks, leaks)
