"""The texts that a language model writes for all rows of a run, among those of the candidates."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secid.arrays import Index
from secid.mining.answers import Pair, Written
from secid.mining.llm import Endpoint, llm_negatives
from secid.mining.methods import MiningPlan
from secid.mining.questions import Questions
from secid.pool.texts import TextSpool
from secid.progress import Progress
from secid.results.mine import Usage


@dataclass(frozen=True)
class Answers:
    """What a model wrote.   texts : (R, m) numbers in the spool of the negatives of each row, -1 behind the last.

    reasons : of all else, which `rejected` lists.   usage : of all answers.
    """

    texts: Index
    rejected: Path
    reasons: dict[str, int]
    usage: Usage


def ask(
    questions: Questions, endpoint: Endpoint, plan: MiningPlan, journal: Path, spool: TextSpool, rejected: Path,
    progress: Progress,
) -> Answers:  # fmt: skip
    """Asks for k negatives of each row, whose texts go to the spool. rejected : of a new file.

    Raises what `llm_negatives` raises.
    """
    numbers, counts, reasons = array("q"), array("q"), Counter[str]()
    with rejected.open("w", encoding="utf-8") as file:

        def take(pair: Pair, written: Written) -> None:
            counts.append(len(written.texts))
            numbers.extend(spool.add(written.texts))
            for reason, text in written.kept_beside:
                reasons[reason] += 1
                line = {"query": pair.query, "reason": reason, "text": text}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

        usage = llm_negatives(lambda: _pairs(questions), endpoint, plan, journal, progress, take)
    n_texts = np.array(counts, np.int64)
    is_text = np.arange(n_texts.max(initial=0)) < n_texts[:, None]
    texts = np.full(is_text.shape, -1)
    texts[is_text] = numbers
    return Answers(texts, rejected, dict(sorted(reasons.items())), usage)


def _pairs(questions: Questions) -> Iterator[Pair]:
    """The rows as pairs, each with all labelled positives of its query, its own first."""
    order = np.argsort(questions.labels[0], kind="stable")
    query_of, passage_of = (part[order] for part in questions.labels)
    for row, query in zip(questions.rows(), questions.query.tolist(), strict=True):
        start, stop = np.searchsorted(query_of, [query, query + 1])
        labelled = questions.passages.take(passage_of[start:stop])
        positives = dict.fromkeys([*(passage.text for passage in row.positives), *labelled])
        yield Pair(questions.queries.keys[query].tobytes().hex(), row.query, tuple(positives))
