"""Compare what commands print with tests/snapshots, for the fixtures or for results with made-up numbers."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secid.records import Fact
from secid.results.sources import BudgetPoint
from secid.tools.export.left_out import Answer, Selection
from secid.tools.export.mixture import Blend, MixturePart, MixtureScore
from tests.cli.conftest import ROOT, Invoke, Outcome
from tests.snapshots import Snapshot, situations
from tests.unit.pages.samples import GOLDEN


def whole(outcome: Outcome) -> str:
    """Return the whole output of a command that exits with 0, without its time."""
    assert outcome.code == 0, outcome.err
    return re.sub(r"\b\d+\.\d s;", "0.0 s;", outcome.out)


def test_check_of_a_planted_source(invoke: Invoke, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    poisoned = "fixtures/sources/poisoned.jsonl"
    snapshot("check.txt", whole(invoke("check", poisoned, "fixtures/sources/bm25.jsonl.gz", "--quiet")))
    evaluation = invoke("check", poisoned, "--against-eval", "fixtures/collection", "--quiet")
    snapshot("check-evaluation.txt", whole(evaluation))


def test_explain(invoke: Invoke, snapshot: Snapshot):
    snapshot("explain-list.txt", whole(invoke("explain")))
    snapshot("explain-false-negative.txt", whole(invoke("explain", "false_negative")))


def test_compare_with_one_and_with_several_results(invoke: Invoke, snapshot: Snapshot):
    shutil.copy(GOLDEN / "1.0.json", "report.json")
    names = ("random", "bm25", "dense", "poisoned", "counterfactual")
    for name, n in (("compare-one.txt", 1), ("compare-several.txt", 2)):
        rows = [",".join([source, *[f"0.{place}"] * n]) for place, source in enumerate(names, 1)]
        head = ",".join(["source", *(f"ndcg{number}" for number in range(n))])
        Path("results.csv").write_text("\n".join([head, *rows]), encoding="utf-8")
        snapshot(name, whole(invoke("compare", "report.json", "--against", "results.csv")))


WRITTEN = {"schema": "st-ntuple", "layout": "n-tuple", "n_rows": 250, "n_made_ids": 0, "not_held": {}}
BEFORE = Answer(
    status="repair",
    flagged_share=0.04,
    n_triplets=1230,
    score=BudgetPoint(budget=1.0, nats=0.41, interval_95=(0.4, 0.42), bias_nats=0.0),
    hardness=0.58,
    outscoring=0.141,
)
AFTER = replace(
    BEFORE, status="no_defects", flagged_share=0.0, n_triplets=1000, score=None, hardness=0.53, outscoring=0.12
)
SELECTED = Selection(
    widened={},
    **WRITTEN,
    n_negatives=1000,
    source="own",
    encoder="minilm",
    path="out.jsonl",
    left_out_path="out.jsonl.left-out.jsonl",
    drop=("false_negative", "near_copy", "repeat"),
    n_listed=1250,
    n_unscored=0,
    left_out={"false_negative": 30, "repeat": 20, "top": 200},
    n_records=250,
    n_records_kept=250,
    rows_skipped={},
    before=BEFORE,
    after=AFTER,
)
SELECTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "--top 4": (("--top", "4"), {}),
    "--top 4 --by influence": (("--top", "4", "--by", "influence"), {}),
    "--drop repeat, rows of unequal numbers": (
        ("--drop", "repeat"),
        {"drop": ("repeat",), "left_out": {"repeat": 20}, "n_negatives": 1230, "n_rows": 1230, "layout": "triplets"},
    ),
    "--drop preamble, which no negative has": (("--drop", "preamble"), {"drop": ("preamble",), "left_out": {}}),
    "--drop random_like of a sample, with rows skipped, to another schema": (
        ("--drop", "random_like"),
        {
            "schema": "tevatron",
            "layout": "",
            "n_made_ids": 250,
            "not_held": {"answers": 250, "scores of passages": 12},
            "drop": ("random_like",),
            "left_out": {"random_like": 250},
            "n_unscored": 7,
            "n_records_kept": 166,
            "rows_skipped": {"no_positive": 2},
        },
    ),
}


def test_select(invoke: Invoke, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch):
    outputs = {}
    for name, (flags, changes) in SELECTIONS.items():
        monkeypatch.setattr("secid.api.select", lambda *_, changed=changes, **__: replace(SELECTED, **changed))
        outputs[name] = whole(invoke("select", "run", *flags, "-o", "out.jsonl"))
    snapshot("select.txt", situations(outputs))


MIXTURE = MixtureScore(
    schema_version="2.0",
    budget=100.0,
    nats=0.52,
    parts=(
        MixturePart(name="poisoned", share=0.4, n_negatives=330.0, single_nats=0.45, status="repair", repair=None),
        MixturePart(name="dense", share=0.6, n_negatives=20.0, single_nats=0.4, status="no_defects", repair=None),
    ),
    remarks=(
        Fact("too_few", {"name": "dense", "n": 20.0, "budget": 100.0}),
        Fact("unequal", {"fewest": "dense", "most": "poisoned", "n_fewest": 20.0, "n_most": 330.0}),
    ),
)
BLEND = Blend(
    base="bm25",
    path="mixed.jsonl",
    provenance_path="mixed.jsonl.provenance.jsonl",
    n_records=66,
    **{**WRITTEN, "n_rows": 66},
    n_negatives=330,
    n_drawn={"bm25": 231, "dense": 99},
    requested={"bm25": 0.7, "dense": 0.3},
    n_short=4,
    n_alone=3,
    n_false_negative=5,
    n_near_copy=1,
)


def test_mix(invoke: Invoke, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("secid.api.mix", lambda *_, **__: MIXTURE)
    monkeypatch.setattr("secid.api.write_mixture", lambda *_, **__: BLEND)
    shutil.copy(GOLDEN / "1.0.json", "report.json")
    snapshot("mix.txt", whole(invoke("mix", "report.json", "--shares", "poisoned=0.4,dense=0.6", "-o", "mixed.jsonl")))


REFUSED = (
    "score small.jsonl",
    "score small.jsonl --encoder no/such --out small.jsonl/a.json",
    "score small.jsonl --encoder no/such --out small.jsonl",
    "score small.jsonl --encoder no/such --out page.pdf",
    "score small.jsonl --set vald=0.9",
    "score small.jsonl --set valid=2",
    "score small.jsonl --set idf=words",
    "score small.jsonl --max-records 1 --set max_records=2",
    "score small.jsonl --pooling mean",
    "score small.jsonl --encoder no/such --set tie=0.1",
    "check small.jsonl --set idf=own",
    "check small.jsonl --fail-on false_negatives",
    "check small.jsonl --format neg --format=negatives",
    "explain false_negatives",
    "report nowhere -o a.html",
    "select . -o out.jsonl",
    "select nowhere --drop none -o out.jsonl",
    "select nowhere --drop false_negativ -o out.jsonl",
    "select nowhere --drop none,repeat -o out.jsonl",
    "select report.json --drop repeat -o out.jsonl",
    "mix report.json",
    "mix nowhere --shares bm25",
    "mix report.json --shares bm25=0.5,dense=0.5",
    "cache info --set cache_dir=small.jsonl",
)


def test_wrong_use_and_what_to_do(invoke: Invoke, snapshot: Snapshot, source: Path):
    shutil.copy(GOLDEN / "1.0.json", "report.json")
    said = {}
    for line in REFUSED:
        outcome = invoke(*line.split())
        assert (outcome.code, outcome.out) == (2, ""), line
        said[f"secid {line}"] = outcome.err.replace(str(Path.cwd()), "WORK")
    snapshot("refusals.txt", situations(said))
