"""The negatives of a source that a language model writes, for all rows of a run, on disk until they are written."""

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
from secid.progress import Progress
from secid.results.mine import Usage


@dataclass(frozen=True)
class Answers:
    """What a model wrote. counts : (R,) negatives of each row.   reasons : of all else, which `rejected` lists.

    path : a line for each row, its negatives as JSON.   usage : of all answers.
    """

    path: Path
    rejected: Path
    counts: Index
    reasons: dict[str, int]
    usage: Usage

    def texts(self) -> Iterator[list[str]]:
        """The negatives of each row."""
        with self.path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def ask(
    questions: Questions, endpoint: Endpoint, plan: MiningPlan, journal: Path, path: Path, progress: Progress
) -> Answers:
    """Asks for k negatives of each row. path : of a new file. Raises what `llm_negatives` raises."""
    rejected, counts, reasons = path.with_suffix(".rejected"), array("q"), Counter[str]()
    with path.open("w", encoding="utf-8") as texts, rejected.open("w", encoding="utf-8") as others:

        def take(pair: Pair, written: Written) -> None:
            counts.append(len(written.texts))
            texts.write(json.dumps(written.texts) + "\n")
            for reason, text in written.kept_beside:
                reasons[reason] += 1
                line = {"query": pair.query, "reason": reason, "text": text}
                others.write(json.dumps(line, ensure_ascii=False) + "\n")

        usage = llm_negatives(lambda: _pairs(questions), endpoint, plan, journal, progress, take)
    return Answers(path, rejected, np.array(counts, np.int64), dict(sorted(reasons.items())), usage)


def _pairs(questions: Questions) -> Iterator[Pair]:
    """The rows as pairs, each with all labelled positives of its query, its own first."""
    order = np.argsort(questions.labels[0], kind="stable")
    query_of, passage_of = (part[order] for part in questions.labels)
    for row, query in zip(questions.rows(), questions.query.tolist(), strict=True):
        start, stop = np.searchsorted(query_of, [query, query + 1])
        labelled = questions.passages.take(passage_of[start:stop])
        positives = dict.fromkeys([*(passage.text for passage in row.positives), *labelled])
        yield Pair(questions.queries.keys[query].tobytes().hex(), row.query, tuple(positives))
