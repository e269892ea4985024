"""The files of docs/experiments/dose.py: results of killed runs, repeated cells, missing and malformed files."""

from __future__ import annotations

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).parents[2] / "docs" / "experiments"
LINES = (EXPERIMENTS / "dose.jsonl").read_text("utf-8").splitlines(keepends=True)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dose_experiment", EXPERIMENTS / "dose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def test_a_killed_run_resumes_at_its_incomplete_line(script, results):
    results.write_text("".join(LINES[:3])[:-300], "utf-8")
    lines = script.read(results, resumes=True)
    assert [json.dumps(line, separators=(",", ":")) + "\n" for line in lines] == LINES[:2]
    script.append(results, json.loads(LINES[2]))
    assert results.read_text("utf-8") == "".join(LINES[:3])


def test_nothing_is_done_before_the_first_run(script, results):
    assert script.read(results, resumes=True) == []
    script.append(results, json.loads(LINES[0]))
    assert results.read_text("utf-8") == LINES[0]


def test_the_judge_names_an_incomplete_line(script, results):
    results.write_text("".join(LINES[:3])[:-300], "utf-8")
    with pytest.raises(SystemExit, match=r"results\.jsonl, line 3: expected a result"):
        script.judge(Namespace(results=results))


def test_a_run_stops_at_a_damaged_line_that_is_not_the_last(script, results):
    results.write_text(f"{LINES[0]}{LINES[1][:99]}\n{LINES[2]}", "utf-8")
    with pytest.raises(SystemExit, match=r"results\.jsonl, line 2: expected a result"):
        script.read(results, resumes=True)


def test_the_first_line_of_a_repeated_cell_counts(script, results, capsys):
    other = json.dumps({**json.loads(LINES[0]), "frozen": 1})
    results.write_text("".join([*LINES[:3], other]), "utf-8")
    assert [line["frozen"] for line in script.read(results)] == [json.loads(line)["frozen"] for line in LINES[:3]]
    assert "1 lines repeat a cell" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize("command", ["judge", "chart"])
def test_no_results_are_no_traceback(script, results, content, command):
    if content is not None:
        results.write_text(content, "utf-8")
    with pytest.raises(SystemExit, match=r"results\.jsonl: no results; run .* first"):
        getattr(script, command)(Namespace(results=results, chart=results.with_suffix(".svg")))


def test_the_chart_needs_every_dose(script, results):
    results.write_text("".join(line for line in LINES if '"batch",0.002]' not in line), "utf-8")
    with pytest.raises(SystemExit, match=r"no results of dose batch 0\.002"):
        script.chart(Namespace(results=results, chart=results.with_suffix(".svg")))


def test_the_agreement_needs_cosqa(script, results, capsys):
    results.write_text("".join(line for line in LINES if '"cosqa"' not in line), "utf-8")
    script.judge(Namespace(results=results))
    out = capsys.readouterr().out
    assert "No table of agreement with MiniLM" in out
    assert "| nfcorpus | " in out, "the tables after it are printed"


def test_the_agreement_leaves_out_cells_that_are_not_there(script, results, capsys):
    results.write_text("".join(line for line in LINES if '["cosqa","minilm","own",0.001]' not in line), "utf-8")
    script.print_agreement([script.Cell.of(line) for line in script.read(results)])
    assert "/5 | – | " in capsys.readouterr().out


def write_collection(folder: Path, qrels: str, labels: str) -> None:
    (folder / qrels).parent.mkdir(parents=True, exist_ok=True)
    (folder / qrels).write_text(f"query-id\tcorpus-id\tscore\n{labels}", "utf-8")
    (folder / "corpus.jsonl").write_text('{"_id": "p", "title": "Bread", "text": "Bread rises."}\n', "utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "why does bread rise"}\n', "utf-8")


@pytest.mark.parametrize("qrels", ["qrels.tsv", "qrels/test.tsv"])
def test_labels_are_read_next_to_the_texts_and_in_their_folder(script, tmp_path, qrels):
    write_collection(tmp_path, qrels, "q\tp\t1\n")
    collection = script.read_collection(tmp_path)
    assert (collection.queries, collection.passages) == (["why does bread rise"], ["Bread Bread rises."])
    assert [list(ids) for ids in collection.positives] == [[0]]


def test_a_malformed_collection_is_named_with_file_and_line(script, tmp_path):
    with pytest.raises(SystemExit, match=r"corpus\.jsonl: No such file or directory; expected lines with a JSON"):
        script.read_collection(tmp_path)
    write_collection(tmp_path, "qrels/test.tsv", "q\tp\t1\nx y z\n")
    with pytest.raises(SystemExit, match=r"test\.tsv, line 3: expected query, passage and label, .* got 'x y z'"):
        script.read_collection(tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"_id": "q"}\n', "utf-8")
    with pytest.raises(SystemExit, match=r"queries\.jsonl, line 1: expected a JSON object with _id and text"):
        script.read_collection(tmp_path)


def test_a_loss_that_is_not_finite_is_named_with_its_fold_and_seed(script, monkeypatch):
    def train(vectors: object, relevant: object, fold: str, *given: object) -> None:
        if fold == "second":
            raise script.NotFiniteError(script.SEEDS + 1, 7)

    monkeypatch.setattr(script, "train", train)
    monkeypatch.setattr(script, "rank", lambda *given: np.zeros((2 * script.SEEDS, 1)))
    lists = [{"random": np.zeros((1, 10)), "bm25": np.zeros((1, 10))}] * 2
    with pytest.raises(SystemExit, match=r"^x student own 0\.001, source bm25, fold 2, seed 2: .* at step 7$"):
        script.trained((), (), ["first", "second"], lists, ("x", "student", "own", 1e-3))
