"""Other processes that cut passages beside this one change nothing, and are not missed where they end (METHOD 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.pool import Lexicon, coverage, cutting
from secid.pool.texts import TextSpool, TextStore
from secid.processes import start

from .test_lexicon import PAIRS, PASSAGES, QUERIES


def stored(folder: Path, texts: list[str]) -> TextStore:
    """Distinct texts in two files, as several processes write them, so that some chunks lie across both."""
    folder.mkdir(exist_ok=True)
    spools = [TextSpool("passage", folder / name) for name in ("one", "two")]
    for number, text in enumerate(texts):
        spools[number % 3 == 0].add([text])
    spools[0].extend(spools[1].handed_over())
    spools[1].close()
    return spools[0].store()[0]


@pytest.fixture
def passages(tmp_path: Path) -> TextStore:
    return stored(tmp_path, sorted(set(PASSAGES)))


def measured(folder: Path, passages: TextStore, store: TextStore | None) -> tuple[Any, ...]:
    counted = np.arange(len(passages)) % 5 > 0
    n_lexed: list[int] = []
    lexicon = Lexicon(
        "alphanumeric",
        lambda start, stop: QUERIES[start:stop],
        len(QUERIES),
        passages.packed,
        counted,
        folder / "tokens",
        stores=None if store is None else (stored(folder / "q", QUERIES), store),
        lexed=n_lexed.append,
    )
    pooled = lexicon.pooled()
    pairs = PAIRS[0], PAIRS[1] % len(passages)
    found = lexicon.coverage(*pairs, lexicon.idf(pooled)).tolist()
    return pooled.sha256(), found, lexicon.of_passages(np.arange(7)).sha256(), sum(n_lexed)


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two processes help; the answers that they gave."""
    answers: list[Any] = []
    asked = cutting.Cutters._asked

    def noted(self: cutting.Cutters, *arguments: Any) -> Any:
        answers.append(asked(self, *arguments))
        return answers[-1]

    monkeypatch.setattr(cutting.Cutters, "_asked", noted)
    monkeypatch.setattr(cutting, "worth_starting", lambda n_bytes: 2 if n_bytes else 0)
    monkeypatch.setattr(coverage, "CHUNK_TEXTS", 16)
    return answers


def test_processes_change_nothing(passages, tmp_path, helped):
    alone = measured(tmp_path, passages, None)
    assert not helped
    assert measured(tmp_path, passages, passages) == alone
    assert helped
    assert alone[-1] == len(passages) + len(QUERIES)


@pytest.mark.parametrize("said", ["raise SystemExit(1)", "import os; os.close(0); os.write(1, b'half')", "1 +"])
def test_a_process_that_ends_is_not_missed(passages, tmp_path, helped, monkeypatch, said):
    alone = measured(tmp_path, passages, None)
    monkeypatch.setattr(start, "START", said)
    assert measured(tmp_path, passages, passages) == alone
    assert not helped


def test_a_wrong_answer_would_be_noticed(passages, tmp_path, helped, monkeypatch):
    alone = measured(tmp_path, passages, None)
    asked = cutting.Cutters._asked
    monkeypatch.setattr(
        cutting.Cutters, "_asked", lambda self, helper, first, last: asked(self, helper, 0, last - first)
    )
    assert measured(tmp_path, passages, passages) != alone


def test_no_process_is_left(passages, tmp_path, helped, monkeypatch):
    seen: list[Any] = []
    ended = cutting.stopped
    monkeypatch.setattr(cutting, "stopped", lambda helpers: (seen.extend(helpers), ended(helpers)))
    measured(tmp_path, passages, passages)
    assert [helper.process.poll() is None for helper in seen] == [False, False]
