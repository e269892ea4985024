"""Test the probe's folds on any sources: no relevant text is on both sides, and no order matters."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from secid.tools.probing.task import NegativeSource, Task, folds
from tests.oracle import probe as reference
from tests.tiny_probe import Row, task_of

VOCABULARY = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmn"]


def rows_with_copies(seed: int) -> list[Row]:
    """60 rows over 40 passages, some of them near copies: other case, one word more or less, a longer text around."""
    draws = random.Random(seed)
    texts = [" ".join(draws.choices(VOCABULARY, k=draws.randint(8, 16))) for _ in range(25)]
    for text in texts[:15]:
        words = text.split()
        texts.append(
            draws.choice([text.upper(), f"{text}!", f"{text} {draws.choice(VOCABULARY)}", " ".join(words[:-1])])
        )
    rows = []
    for number in range(60):
        positives = draws.sample(texts, draws.choice([1, 1, 1, 2]))
        negatives = [text for text in draws.sample(texts, 6) if text not in positives][:4]
        rows.append((f"question {number} about {draws.choice(VOCABULARY)}", positives, negatives))
    return rows


def leaks(task: Task, fold: np.ndarray) -> int:
    """Pairs of rows in different folds of which a relevant passage of one nearly copies one of the other."""
    texts = [task.passages.take(task.positives.of(row)) for row in range(len(task.query))]
    return sum(
        any(reference.near_copy(one.rstrip("!"), other.rstrip("!")) for one in texts[a] for other in texts[b])
        for a in range(len(texts))
        for b in range(a)
        if fold[a] != fold[b]
    )


@pytest.mark.parametrize("seed", range(6))
def test_no_fold_shares_a_relevant_text_or_a_near_copy_of_one(seed: int, tmp_path: Path) -> None:
    task = task_of(tmp_path, {"one": rows_with_copies(seed)}, seed=seed)
    assert leaks(task, task.fold) == 0
    by_query = folds(np.arange(len(task.query)), task.queries, task.query, 3, seed)
    assert leaks(task, by_query) > 10, "folds by query are noticed"


def described(task: Task) -> dict[str, tuple[int, list[str], list[str], list[str]]]:
    """Return each query's fold, positives, and negatives of source one and of the random control."""
    lists = (task.positives, task.sources[NegativeSource("one")], task.sources[NegativeSource("random", control=True)])
    return {
        query: (int(task.fold[row]), *(task.passages.take(own.of(row)) for own in lists))
        for row, query in enumerate(task.queries.take(task.query))
    }


@pytest.mark.parametrize("seed", range(3))
def test_order_of_files_and_of_their_rows_changes_no_tie_and_no_draw(seed: int, tmp_path: Path) -> None:
    """One row for each negative, so that the rows of a query come in any order, too."""
    rows: list[Row] = [(query, pos, [text]) for query, pos, negatives in rows_with_copies(seed) for text in negatives]
    more = [(query, pos, [f"{text} again"]) for query, pos, (text,) in rows]
    shuffled = random.Random(seed).sample(rows, len(rows))
    one = task_of(tmp_path / "one", {"one": rows, "two": more})
    two = task_of(tmp_path / "two", {"two": more[::-1], "one": shuffled})
    expected = described(one)
    assert list(described(two).items()) == list(expected.items())
    assert one.passages.take(one.candidates) == two.passages.take(two.candidates), "which passage comes first of equals"
    assert len({fold for fold, *_ in expected.values()}) == 3
    elsewhere = described(task_of(tmp_path / "three", {"one": rows, "two": more}, seed=seed + 1))
    assert [own[0] for own in elsewhere.values()] != [own[0] for own in expected.values()]


def test_a_row_that_is_new_moves_no_other_group(tmp_path: Path) -> None:
    rows = rows_with_copies(0)
    few = described(task_of(tmp_path / "few", {"one": rows}))
    new: Row = (
        "a question of its own",
        ["a text that no other one is like in any way"],
        ["nothing of the kind at all"],
    )
    more = described(task_of(tmp_path / "more", {"one": [*rows, new]}))
    assert {query: own[0] for query, own in more.items() if query != new[0]} == {q: own[0] for q, own in few.items()}
