"""Test what `secid mine` prints, with every reason in words."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from secid.pages import mine_text
from secid.pages.screen import print_page
from secid.results.mine import Mined, MinedSource, Suspects, Sweep, Swept, SweptSource, Usage
from secid.tools.mining.choose import EXCLUSION_REASONS, SHORT_ROW_REASONS
from tests.fake_encoder import HashEncoder
from tests.snapshots import Snapshot

SOURCE = MinedSource(
    name="near",
    path="mined/near.jsonl",
    sha256="0" * 64,
    method={"typed": "dense", "method": "dense", "ranks": (1, 200), "relative": 0.05, "pick": "top"},
    n_rows=1042,
    layout="",
    n_missing=67,
    n_dropped=0,
    n_negatives=10394,
    n_filled=26,
    n_short=72,
    n_still_short=3,
    n_lacking=26,
    short={"margin": 70, "few_candidates": 2},
    excluded={"false_negative": 1190, "near_copy": 3},
    s_query_negative=0.453,
    consistency=0.844,
    inverted_share=0.0004,
    n_passages=3753,
    most_used=17,
    n_made_ids=5,
    not_held={"ids of passages": 1042},
    rejected={},
    usage=None,
)
WRITTEN = replace(
    SOURCE, name="gpt", path="mined/gpt.jsonl", method={"typed": "llm:model=m", "method": "llm"},
    n_rows=1109, n_missing=0, n_dropped=1, n_negatives=11080, n_filled=0,
    n_short=1, n_still_short=0, n_lacking=0, short={"few_written": 1}, excluded={},
    s_query_negative=None, consistency=None, inverted_share=None,
    n_passages=0, most_used=0, n_made_ids=0, not_held={}, rejected={"not_json": 1, "false_negative": 12},
    usage=Usage(n_answers=1109, n_uncounted=3, n_tokens_in=110600, n_tokens_out=22120, cost=1.2345),
)  # fmt: skip
MINED = Mined(
    schema_version="1.0",
    secid_version="0.1.0",
    folder="mined",
    encoder=None,
    n_rows=1109,
    n_queries=1109,
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
    print_page(Console(file=file, width=width, highlight=False), mine_text.mined_screen(mined))
    return file.getvalue()


def test_pages(snapshot: Snapshot):
    snapshot("mine.txt", printed(MINED))


def test_a_source_without_a_margin_says_so():
    free = replace(SOURCE, method={"method": "dense", "ranks": (1, 200), "pick": "top"})
    both = replace(SOURCE, method={"method": "dense", "ranks": (1, 200), "absolute": 0.1, "maximum": 0.8})
    text = " ".join(printed(replace(MINED, sources=(free, both))).split())
    assert "near: the margin is dense:relative=none." in text
    assert "near: the margin is dense:absolute=0.1,maximum=0.8." in text
    assert "relative=none removes" not in text


def test_a_window_of_all_candidates_is_not_to_be_widened():
    method = {**SOURCE.method, "ranks": (1, 5183)}
    whole = replace(SOURCE, method=method)
    text = " ".join(printed(replace(MINED, sources=(whole,))).split())
    assert "so use a smaller margin, or a smaller -k; relative=none removes the margin." in text
    assert "ranks=1-" not in text
    assert "--on-short random" not in text
    both = replace(whole, short={"margin": 1, "maximum": 1})
    text = " ".join(printed(replace(MINED, sources=(both,))).split())
    assert "so use a smaller margin or a higher maximum, or a smaller -k;" in text
    later = replace(SOURCE, method={**method, "ranks": (2, 5183)})
    assert "ranks=1-5183 searches all" in printed(replace(MINED, sources=(later,)), 200)


def test_a_name_cannot_control_the_terminal():
    name = "\x1b[31mred\u202e"
    text = printed(replace(MINED, sources=(replace(SOURCE, name=name),)))
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("names", "words"), [(SHORT_ROW_REASONS, mine_text.SHORT_REASONS), (EXCLUSION_REASONS, mine_text.EXCLUSION_TEXTS)]
)
def test_every_reason_is_in_words(names, words):
    assert set(names) == set(words)


def swept(relative: float | None, ranks: tuple[int, int], n: int, suspects: Suspects | None) -> Swept:
    return Swept(
        method={"method": "dense", "ranks": ranks, "relative": relative, "pick": "top"}, n_negatives=n,
        n_short=11090 - n, n_lacking=2 * (11090 - n), n_missing=3, s_query_negative=0.413 if n else None,
        consistency=0.875 if n else None, inverted_share=0.01 if n else None, suspects=suspects,
    )  # fmt: skip


ENCODER = HashEncoder().info
SUSPECTS = Suspects(n_scored=300, share=0.0321, interval_95=(0.0151, 0.062))
SWEEP = Sweep(
    schema_version="1.0", secid_version="0.1.0", encoder=ENCODER, n_rows=1109, n_queries=1109,
    n_candidates=5183, skipped={}, k=10, seed=0, max_reuse=None,
    settings={}, guide=replace(ENCODER, name="guide"), guide_min_hardness=0.9, guide_sample=300,
    random=swept(None, (1, 10), 11090, replace(SUSPECTS, share=0.312, interval_95=(0.25, 0.37))),
    sources=(
        SweptSource(
            name="near",
            own=swept(0.05, (1, 200), 11090, SUSPECTS),
            variants=(swept(0.0, (1, 200), 11090, SUSPECTS), swept(0.025, (51, 100), 0, None)),
        ),
    ),
    unswept=("lex", "any"),
)  # fmt: skip


def printed_sweep(sweep: Sweep, width: int = 80) -> str:
    file = io.StringIO()
    print_page(Console(file=file, width=width, highlight=False), mine_text.sweep_screen(sweep))
    return file.getvalue()


def test_pages_of_a_sweep(snapshot: Snapshot):
    snapshot("mine-sweep.txt", printed_sweep(SWEEP))


def test_without_a_guide_no_column_is_empty():
    text = printed_sweep(replace(SWEEP, guide=None))
    (head,) = [line for line in text.splitlines() if line.startswith("near ")]
    assert head.split()[-1] == "π"


def test_a_guide_that_flags_few_random_candidates_is_not_doubted():
    few = replace(SWEEP, random=swept(None, (1, 10), 11090, replace(SUSPECTS, share=0.01)))
    assert len(printed_sweep(few).splitlines()) < len(printed_sweep(SWEEP).splitlines())
