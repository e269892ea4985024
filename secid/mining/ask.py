"""The negatives of a source that a language model writes, for all rows of a run, on disk until they are written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secid.arrays import Index
from secid.mining.answers import Pair
from secid.mining.llm import PROMPT, llm_negatives
from secid.mining.methods import Llm
from secid.mining.questions import Questions
from secid.progress import Progress


@dataclass(frozen=True)
class Answers:
    """What a model wrote. counts : (R,) negatives of each row.   reasons : of all else, which `rejected` lists.

    path : a line for each row, its negatives as JSON.   tokens : in and out.
    """

    path: Path
    rejected: Path
    counts: Index
    reasons: dict[str, int]
    tokens: tuple[int, int]

    def texts(self) -> Iterator[list[str]]:
        """The negatives of each row."""
        with self.path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def ask(
    questions: Questions, method: Llm, k: int, seed: int, prompt: str | None, concurrency: int, journal: Path,
    path: Path, progress: Progress,
) -> Answers:  # fmt: skip
    """Asks for k negatives of each row. journal, prompt, concurrency : as in `llm_negatives`; prompt None for its own.

    path : of a new file. Raises what `llm_negatives` raises.
    """
    rejected, counts = path.with_suffix(".rejected"), np.zeros(len(questions.query), np.int64)
    reasons, tokens = Counter[str](), [0, 0]
    answers = llm_negatives(
        _Pairs(questions), url=method.url, model=method.model, prompt=PROMPT if prompt is None else prompt, n=k,
        seed=seed, concurrency=concurrency, temperature=method.temperature, journal=journal, progress=progress,
        price=method.price,
    )  # fmt: skip
    with path.open("w", encoding="utf-8") as texts, rejected.open("w", encoding="utf-8") as beside:
        for row, (pair, written) in enumerate(answers):
            counts[row] = len(written.texts)
            tokens = [tokens[0] + written.tokens_in, tokens[1] + written.tokens_out]
            texts.write(json.dumps(written.texts) + "\n")
            for reason, text in written.kept_beside:
                reasons[reason] += 1
                line = {"query": pair.query, "reason": reason, "text": text}
                beside.write(json.dumps(line, ensure_ascii=False) + "\n")
    return Answers(path, rejected, counts, dict(sorted(reasons.items())), (tokens[0], tokens[1]))


class _Pairs(Collection[Pair]):
    """The rows as pairs, each with all labelled positives of its query, its own first."""

    def __init__(self, questions: Questions) -> None:
        query, passage = questions.labels
        self._questions, self._order = questions, np.argsort(query, kind="stable")
        self._query, self._passage = query[self._order], passage[self._order]

    def __len__(self) -> int:
        return len(self._questions.query)

    def __contains__(self, pair: object) -> bool:
        return any(pair == own for own in self)

    def __iter__(self) -> Iterator[Pair]:
        questions = self._questions
        for row, query in zip(questions.rows(), questions.query.tolist(), strict=True):
            start, stop = np.searchsorted(self._query, [query, query + 1])
            labelled = questions.passages.take(self._passage[start:stop])
            positives = dict.fromkeys([*(passage.text for passage in row.positives), *labelled])
            yield Pair(questions.queries.keys[query].tobytes().hex(), row.query, tuple(positives))
