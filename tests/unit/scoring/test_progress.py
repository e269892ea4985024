"""Every long step of a run reports its progress, and ends at the total that it announced."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

import secid
from secid.analyses.registry import ANALYSES, to_json
from secid.pool import workers
from secid.progress import Silent
from secid.scoring import stages
from secid.settings import Settings
from tests.cli.conftest import rows, write_rows
from tests.fake_encoder import HashEncoder
from tests.kills import differences
from tests.notes import Notes
from tests.tiny_bert import save_tiny_bert

ADVANCING = ("read", "encode", "lex ", "controls", "measure", "inspect", "slices")


class RecordedStages(Silent):
    """Keeps each stage with its total and what it advanced."""

    def __init__(self):
        self.stages = []

    def start(self, stage, total, unit):
        self.stages.append([stage, total, 0])

    def advance(self, n):
        self.stages[-1][2] += n


@pytest.mark.parametrize("ablate", [False, True])
def test_every_stage_advances_to_its_total(tmp_path, ablate, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = [
        write_rows(tmp_path / f"{name}.jsonl", [{**row, "kind": number % 2} for number, row in enumerate(rows(n))])
        for name, n in (("small", 9), ("large", 12))
    ]
    recorded = RecordedStages()
    encoder = save_tiny_bert(tmp_path / "tiny")
    start = time.perf_counter()
    run = secid.score(
        sources, str(encoder), ablate=ablate, by="kind", progress=recorded, run=tmp_path / "run", cache=False
    )
    total = sum(stage["seconds"] for stage in run.timing.values())
    stages = [
        "load", "read", "encode", "text rules", "lex", "controls", "measure", "inspect", "publish",
        *(analysis.name for analysis in ANALYSES), "write",
    ]  # fmt: skip
    assert list(run.timing) == stages
    assert total <= time.perf_counter() - start
    assert json.loads((tmp_path / "run" / "report.json").read_text())["timing"] == run.timing
    names = [stage for stage, _, _ in recorded.stages]
    assert all(any(name.startswith(expected) for name in names) for expected in ADVANCING)
    n_lexed = len([name for name in names if name.startswith("lex ")])
    assert n_lexed == (4 if ablate else 1), "ASCII has the same tokens under three of the six tokenizers"
    assert [stage for stage in recorded.stages if stage[1] is not None and stage[1] != stage[2]] == []
    assert [*dict.fromkeys(names)][:3] == ["load libraries", "open files", f"load {encoder}"]
    assert names[-1] == "write"


def test_the_time_left_to_encode_is_of_the_texts_that_the_cache_lacks(tmp_path):
    """Cached rows arrive at once. If they counted as encoded, the estimate for the rest would be too short."""
    encoder = save_tiny_bert(tmp_path / "tiny")
    recorded = []
    for n in (9, 12, 12):
        watcher = RecordedStages()
        source = write_rows(tmp_path / "in.jsonl", rows(n))
        secid.score(source, str(encoder), controls="none", cache_dir=str(tmp_path / "cache"), progress=watcher)
        recorded.append([stage for stage in watcher.stages if stage[0] in ("read the cache", "encode")])
    n_few, n_more = recorded[0][-1][1], sum(n for *_, n in recorded[1])
    assert n_few < n_more
    assert recorded == [
        [["read the cache", None, 0], ["encode", n_few, n_few]],
        [["read the cache", None, n_few], ["encode", n_more - n_few, n_more - n_few]],
        [["read the cache", None, n_more]],
    ]


@pytest.mark.parametrize(
    ("changed", "n_texts", "has", "n_notes"),
    [
        ({}, 5000, True, 1), ({}, 4999, True, 0), ({}, 5000, False, 0), ({"device": "cuda:0"}, 5000, True, 0),
        ({"dtype": "bf16"}, 5000, True, 0),
    ],
)  # fmt: skip
def test_bf16_is_offered_once_where_it_would_help(changed, n_texts, has, n_notes, monkeypatch):
    monkeypatch.setattr(stages, "multiplies_bf16", lambda: has)
    noted = Notes()
    info = SimpleNamespace(**{"device": "cpu", "dtype": "float32", **changed})
    stages.note_bf16(info, n_texts, Settings(), noted)
    assert len(noted.notes) == n_notes
    stages.note_bf16(info, n_texts, Settings(dtype="float32"), noted)  # asked for
    assert len(noted.notes) == n_notes


def test_what_is_not_read_and_flags_that_do_nothing_are_noted(tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir()
    write_rows(folder / "a.jsonl", rows(9))
    (folder / "README.md").write_text("about", encoding="utf-8")
    (tmp_path / "b.csv").write_text("q a,p a,1\nq a,n a,0\n" * 9, encoding="utf-8")

    recorded = Notes()
    secid.check([folder], header=True, positive_score=0.5, progress=recorded)
    assert recorded.notes[0] == f"{folder}: not read: README.md"
    assert [note for note in recorded.notes if "is ignored" in note] == [
        "--positive-score is ignored: no input has labels",
        "--set header=yes is ignored: no input is CSV or TSV",
    ]

    recorded = Notes()
    secid.check([folder, tmp_path / "b.csv"], header=False, positive_score=0.5, progress=recorded)
    assert [note for note in recorded.notes if "is ignored" in note] == []


def test_text_rules_during_encoding_give_the_same_report(tmp_path, monkeypatch):
    source = write_rows(tmp_path / "in.jsonl", rows(12))
    reports = []
    for n_texts in (workers.MIN_TEXTS_FOR_PROCESSES, 0):
        monkeypatch.setattr(workers, "MIN_TEXTS_FOR_PROCESSES", n_texts)
        watcher = RecordedStages()
        run = secid.score(source, HashEncoder(), progress=watcher, threads=8, ablate=True, cache=False)
        names = [name for name, *_ in watcher.stages]
        assert names.index("encode") < names.index("text rules")
        reports.append(json.loads(to_json(run)))
    assert "bm25_pool" in {control.kind for control in run.controls}
    assert differences(*reports) == []
