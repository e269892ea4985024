"""What `secid mine` prints, and every reason in words."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from secid.mining.choose import WHY
from secid.mining.exclusions import EXCLUDED
from secid.pages import mine_text
from secid.results.mine import Mined, MinedSource
from tests.snapshots import Snapshot

SOURCE = MinedSource(
    name="near",
    path="mined/near.jsonl",
    sha256="0" * 64,
    method={"typed": "dense", "method": "dense", "ranks": (1, 200), "pick": "top"},
    n_rows=1042,
    n_missing=67,
    n_dropped=0,
    n_negatives=10394,
    n_filled=26,
    n_short=72,
    short={"margin": 70, "few_candidates": 2},
    excluded={"labelled_positive": 1190, "near_copy": 3},
    s_query_negative=0.453,
    consistency=0.844,
    inverted_share=0.0004,
    n_passages=3753,
    most_used=17,
    not_held={"ids of passages": 1042},
    kept_beside={},
    tokens=None,
)
WRITTEN = replace(
    SOURCE, name="gpt", path="mined/gpt.jsonl", n_rows=1109, n_missing=0, n_dropped=1, n_negatives=11080, n_filled=0,
    n_short=1, short={"few_written": 1}, excluded={}, s_query_negative=None, consistency=None, inverted_share=None,
    n_passages=0, most_used=0, not_held={}, kept_beside={"not_json": 1, "copy_of_positive": 12}, tokens=(110900, 22180),
)  # fmt: skip
MINED = Mined(
    schema_version="1.0",
    secid_version="0.1.0",
    folder="mined",
    encoder=None,
    n_rows=1109,
    n_candidates=5183,
    skipped={"unknown_passage": 2},
    k=10,
    seed=0,
    on_short="keep",
    max_reuse=None,
    schema="st-ntuple",
    settings={},
    sources=(SOURCE, WRITTEN),
    next_command="secid score mined/near.jsonl mined/gpt.jsonl --encoder e5-base",
)


def printed(mined: Mined, width: int = 80) -> str:
    file = io.StringIO()
    mine_text.print_mined(Console(file=file, width=width, highlight=False), mined)
    return file.getvalue()


def test_pages(snapshot: Snapshot):
    snapshot("mine.txt", printed(MINED))


def test_a_name_cannot_control_the_terminal():
    name = "\x1b[31mred\u202e"
    text = printed(replace(MINED, sources=(replace(SOURCE, name=name),)))
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(("names", "words"), [(WHY, mine_text.SHORT), (EXCLUDED, mine_text.EXCLUDED)])
def test_every_reason_is_in_words(names, words):
    assert set(names) == set(words)
