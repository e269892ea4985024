"""An evaluation set in BEIR layout: its queries and the passages that are relevant to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from secid.errors import InputError
from secid.read.collection import collection_files, texts_with_ids
from secid.read.containers import rows_of
from secid.read.passages import ID_KEYS
from secid.read.rows import Broken, Row, shorten
from secid.read.sources import stem
from secid.read.stream import HUB, ByteStream

QUERY_KEYS = ("query-id", "query_id", "qid", "query")
SCORE_KEYS = ("score", "label", "relevance", "rel")
FOLDER = "--against-eval takes a BEIR folder (queries, a corpus, qrels), hf://datasets/OWNER/NAME, or mteb:TASK"
WORDS = re.compile(rb"(\S+[ \t]+\S+[ \t]+\S+[ \t]+-?\d+[ \t]*|\S+ +\S+ +-?\d+ *)\r?(\n|\Z)")
"""A judgement as trec_eval reads it (query, iteration, passage, grade), or one of three words with spaces between."""
MOST_BYTES = 1 << 16
"""Of a line of such a file."""
EVALUATION_SPLIT = "test"
"""The split that is evaluated on where a folder has several: BEIR's convention."""
EVALUATED_ELSEWHERE = {"mteb:MSMARCO": "dev"}
"""Tasks of mteb that are evaluated on another split."""


@dataclass(frozen=True)
class EvaluationSet:
    """Queries and relevant passages by id. qrels: files that say which; empty where every query counts.

    A judgement above 0 makes a passage relevant.
    """

    folder: str
    qrels: tuple[str, ...]
    queries: dict[str, str]
    passages: dict[str, str]


def read_evaluation(folder: str, *, titles: bool) -> EvaluationSet:
    """The evaluation set of a collection: a BEIR folder, a data set of the hub, or a task of mteb.

    Only the queries of the test split count where there is one, else those of all qrels, else all queries (then no
    passage is known to be relevant). titles: join a passage's title before its text.
    Raises InputError where the folder or its queries are missing, or a file is not what it should be.
    """
    found = collection_files(folder, FOLDER)
    queries_files = found.required("queries", FOLDER)
    if found.where.startswith(HUB):
        found.required("qrels", "")
    files = of_split(found.qrels, EVALUATED_ELSEWHERE.get(folder, EVALUATION_SPLIT)) or found.qrels
    wanted_queries: set[str] = set()
    wanted_passages: set[str] = set()
    for file in files:
        for query, passage in relevant_pairs(file):
            wanted_queries.add(query)
            wanted_passages.add(passage)
    queries = {
        key: text for key, text in texts_with_ids("queries", queries_files, titles=False)
        if not files or key in wanted_queries
    }  # fmt: skip
    if not queries:
        raise InputError("no query of the qrels is in the queries file", where=folder)
    corpus = found.required("corpus", FOLDER) if wanted_passages else ()
    passages = {
        key: text for key, text in (texts_with_ids("passages", corpus, titles=titles) if corpus else ())
        if key in wanted_passages
    }  # fmt: skip
    return EvaluationSet(found.where, tuple(files), queries, passages)


def read_qrels(path: str) -> Iterator[tuple[str, str, float]]:
    """(query id, passage id, score) of each row: BEIR's three columns, or TREC's four, parted by spaces or tabs;
    with spaces no line names the columns.

    Raises InputError for any other row.
    """
    for line, row in _rows(path):
        cells = _cells(row)
        try:
            query, passage, score = str(cells[0]), str(cells[-2]), _grade(cells[-1])
        except (IndexError, ValueError, TypeError) as error:
            raise InputError(
                f"not a judgement: {shorten(str(row), 80)}",
                where=f"{path}:{line}",
                remedy="rows are query-id, corpus-id, score, separated by tabs",
            ) from error
        yield query, passage, score


def relevant_pairs(path: str) -> Iterator[tuple[str, str]]:
    """(query id, passage id) of each judgement above 0."""
    return ((query, passage) for query, passage, score in read_qrels(path) if score > 0)


def _grade(cell: object) -> float:
    grade = float(str(cell))
    if not isfinite(grade):
        raise ValueError("not a grade")
    return grade


def _rows(path: str) -> Iterator[tuple[int, Row | Broken]]:
    """Rows with their line numbers: of any container, or the lines of a file of WORDS, which are its columns."""
    stream = ByteStream(path)
    try:
        if WORDS.match(stream.peek()):
            for line, text in enumerate(stream.lines(MOST_BYTES), 1):
                if text is None or text.strip():
                    yield line, (text or b"").decode("utf-8-sig", "replace").split()
            return
    finally:
        stream.close()
    yield from rows_of(path)


def _cells(row: Row | Broken) -> list[Any]:
    if isinstance(row, Broken):
        return []
    if isinstance(row, list):
        return row if len(row) in (3, 4) else []
    return [next((row[key] for key in keys if key in row), None) for keys in (QUERY_KEYS, ID_KEYS, SCORE_KEYS)]


def of_split(files: Sequence[str], split: str) -> list[str]:
    """The qrels files of a split: NAME.tsv in a folder qrels, qrels.NAME.tsv, or 0000.parquet in a folder NAME."""
    names = {file: stem(file).removeprefix("qrels").strip("._-") for file in files}
    return [file for file, name in names.items() if split in (name, name.isdecimal() and Path(file).parent.name)]
