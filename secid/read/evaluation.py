"""Read evaluation sets in BEIR layout, and TREC runs as rows.

A row of a run holds the relevant passages of a query, and the passages in a window of ranks that are not relevant.

>>> run = RetrievalRun(6, (1, 2), {"q1": {"d1": 1.0, "d2": 0.0}})
>>> lines = (b"q1 Q0 d1 1 9.5 bm25", b"q1 Q0 d3 2 7.5 bm25", b"q1 Q0 d2 3 8.5 bm25")
>>> [row] = [row for part in run.rows(enumerate(lines, 1), "run.trec") for row in part.rows]
>>> row["positives"], [cell["docid"] for cell in row["negatives"] if isinstance(cell, dict)]
(['d1'], ['d2'])
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, islice
from math import isfinite
from operator import itemgetter
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

from secid.errors import InputError, UsageError
from secid.read.binding import Binding, make_head
from secid.read.collection import BEIR_FOLDER, collection_files, stamp, texts_with_ids
from secid.read.containers import Container, read_rows
from secid.read.detect import RUN
from secid.read.refusals import RUN_LINE, is_run
from secid.read.sources import stem
from secid.read.stream import (
    CHUNK_BYTES,
    HUB_PREFIX,
    ID_KEYS,
    ROW_LIMIT,
    Broken,
    ByteStream,
    PartIterator,
    Row,
    in_parts,
    shorten,
    too_large,
    wrong_type,
)
from secid.read.textrows import BOM, SNIFFED_LINES
from secid.read.toolkits import is_score
from secid.records import Fact
from secid.settings import Settings, flag_of

# An evaluation set in BEIR layout: queries and the passages that are relevant to them.

QRELS_QUERY_KEYS = ("query-id", "query_id", "qid", "query")
SCORE_KEYS = ("score", "label", "relevance", "rel")
FOLDER_HELP = "--against-eval takes a BEIR folder (queries, a corpus, qrels), hf://datasets/OWNER/NAME, or mteb:TASK"
JUDGED_ROW = re.compile(rb"(\S+[ \t]+\S+[ \t]+\S+[ \t]+-?\d+[ \t]*|\S+ +\S+ +-?\d+ *)\r?(\n|\Z)")
"""Pattern of a judgement in trec_eval's format (query, iteration, passage, grade), or of (query, passage, grade)
separated by spaces."""
MAX_LINE_BYTES = 1 << 16
"""Maximum length of a line of judgements in bytes."""
EVALUATION_SPLIT = "test"
"""Name of the evaluation split in a folder with several splits, by BEIR's convention."""
EVALUATED_ELSEWHERE = {"mteb:MSMARCO": "dev"}
"""Task of mteb -> its evaluation split, for tasks that do not use EVALUATION_SPLIT."""


@dataclass(frozen=True)
class EvaluationSet:
    """Queries and relevant passages by id. A judgement above 0 makes a passage relevant.

    folder : the folder, or the address with its commit.   qrels : files of judgements; empty if every query counts.
    """

    folder: str
    qrels: tuple[str, ...]
    queries: dict[str, str]
    passages: dict[str, str]


def read_evaluation(folder: str, *, titles: bool) -> EvaluationSet:
    """Return the evaluation set of a collection.

    folder : a BEIR folder, the address of a data set on the hub, or an mteb task.
    titles : whether to join each passage's title before its text.
    Only queries of the evaluation split count. Without such a split, the queries of all qrels count. Without qrels,
    all queries count, and no passage is known to be relevant.
    Raises InputError if the folder or its queries are missing, or a file has an unexpected format.
    """
    files_by_role = collection_files(folder, FOLDER_HELP)
    queries_files = files_by_role.required("queries", FOLDER_HELP)
    if files_by_role.where.startswith(HUB_PREFIX):
        files_by_role.required("qrels", "")
    files = of_split(files_by_role.qrels, EVALUATED_ELSEWHERE.get(folder, EVALUATION_SPLIT)) or files_by_role.qrels
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
        raise InputError(
            "the queries file holds none of the query ids in the qrels", where=folder,
            remedy="use queries and qrels of the same data set",
        )  # fmt: skip
    corpus = files_by_role.required("corpus", FOLDER_HELP) if wanted_passages else ()
    passages = {
        key: text for key, text in (texts_with_ids("passages", corpus, titles=titles) if corpus else ())
        if key in wanted_passages
    }  # fmt: skip
    return EvaluationSet(files_by_role.where, tuple(files), queries, passages)


def read_qrels(path: str) -> Iterator[tuple[str, str, float]]:
    """Yield (query id, passage id, score) of each row of qrels. Raises InputError for any other row.

    Rows have BEIR's three columns or TREC's four, separated by tabs or spaces. A file with spaces has no header.
    """
    for line, row in _rows(path):
        cells = _cells(row)
        try:
            query, passage, score = str(cells[0]), str(cells[-2]), float(str(cells[-1]))
            if not isfinite(score):
                raise ValueError
        except (IndexError, ValueError, TypeError) as error:
            raise InputError(
                f"not a judgement: {shorten(str(row), 80)}",
                where=f"{path}:{line}",
                remedy="rows are query-id, corpus-id, score, separated by tabs",
            ) from error
        yield query, passage, score


def relevant_pairs(path: str) -> Iterator[tuple[str, str]]:
    """Iterate over (query id, passage id) of each judgement above 0."""
    return ((query, passage) for query, passage, score in read_qrels(path) if score > 0)


def _rows(path: str) -> Iterator[tuple[int, Row | Broken]]:
    """Yield (line number, row) of a file in any format. If line 1 matches JUDGED_ROW, each line is split into words."""
    stream = ByteStream(path)
    try:
        if JUDGED_ROW.match(stream.peek()):
            for line, text in enumerate(stream.lines(MAX_LINE_BYTES), 1):
                if text is None or text.strip():
                    yield line, (text or b"").decode("utf-8-sig", "replace").split()
            return
    finally:
        stream.close()
    yield from read_rows(path)


def _cells(row: Row | Broken) -> list[Any]:
    if isinstance(row, Broken):
        return []
    if isinstance(row, list):
        return row if len(row) in (3, 4) else []
    return [next((row[key] for key in keys if key in row), None) for keys in (QRELS_QUERY_KEYS, ID_KEYS, SCORE_KEYS)]


def of_split(files: Sequence[str], split: str) -> list[str]:
    """Return the qrels files of a split NAME: qrels/NAME.tsv, qrels.NAME.tsv, or 0000.parquet in a folder NAME."""
    names = {file: stem(file).removeprefix("qrels").strip("._-") for file in files}
    return [file for file, name in names.items() if split in (name, name.isdecimal() and Path(file).parent.name)]


DEFAULT_LAST_RANK = 10
"""Last rank of the default window: the number of passages that `secid mine` searches for."""
WIDTHS = {3: "query, passage, rank", 4: "query, passage, rank, score", 6: "query, Q0, passage, rank, score, tag"}
"""Number of columns -> columns, for the runs of MS MARCO, ColBERT and TREC."""
TREC_LINE = re.compile(rb"\s*\S+\s+[Qq]?0\s+\S+\s+-?\d+\s")
JUDGED, JUDGED_WORDS = "judged", {True: "nonrelevant", False: "unjudged"}
"""Column that a flag adds to tell whether the negatives of a row are judged, and its values."""


class _Line(NamedTuple):
    """One line of a run.

    number : line number, from 1.   key : sort key that rises with the rank.   score, tag : None without one.
    """

    number: int
    passage: str
    key: float
    score: float | None
    tag: str | None


@dataclass(frozen=True, slots=True)
class RetrievalRun:
    """Settings for reading a run.

    width        : number of columns, a key of WIDTHS.
    ranks        : first and last rank of the window, from 1.
    grades       : query -> passage -> grade; a grade above 0 is relevant.
    by_judgement : whether a query gives two rows, one with judged and one with unjudged negatives.
    counts       : number of negatives in the rows read so far, by the values of JUDGED_WORDS.
    """

    width: int
    ranks: tuple[int, int]
    grades: Mapping[str, Mapping[str, float]]
    by_judgement: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def binding(self) -> Binding:
        names = ("query_id", "positives", "negatives")
        window = f"the others at ranks {self.ranks[0]}-{self.ranks[1]}"
        return Binding(
            "query id", "relevant by the qrels", window, itemgetter(*names), names, RUN,
            query_ids=True, passage_ids=True,
        )  # fmt: skip

    def parts(self, stream: ByteStream) -> PartIterator:
        """Return the rows of a run file. Each row is numbered by the first line of its query."""
        self.counts.clear()
        return self.rows(enumerate(stream.lines(ROW_LIMIT), 1), stream.path)

    def rows(self, lines: Iterable[tuple[int, bytes | None]], path: str) -> PartIterator:
        """Return the rows of a run from its numbered lines (number, line); a line is None if it is too long.

        Memory grows with the number of queries and with the lines per query.

        Raises InputError if the lines of a query are not contiguous.
        """
        return in_parts((number, row, _size(row)) for number, row in self._rows(lines, path))

    def _rows(self, lines: Iterable[tuple[int, bytes | None]], path: str) -> Iterator[tuple[int, Row | Broken]]:
        done: set[str] = set()
        query, query_lines = "", list[_Line]()
        for number, text in lines:
            parsed = _parsed(self.width, number, text)
            if isinstance(parsed, Broken):
                yield number, parsed
            elif parsed is not None:
                if parsed[0] != query:
                    yield from self._of_query(query, query_lines)
                    done.add(query)
                    query, query_lines = parsed[0], []
                    if query in done:
                        what = f"the lines of query {query[:60]!r} are not contiguous"
                        remedy = "sort the file by query: sort -s -k 1,1"
                        raise InputError(what, where=f"{path}:{number}", remedy=remedy)
                query_lines.append(parsed[1])
        yield from self._of_query(query, query_lines)

    def _of_query(self, query: str, lines: list[_Line]) -> Iterator[tuple[int, Row | Broken]]:
        if not lines:
            return
        start, best = lines[0].number, dict[str, _Line]()
        if self.width > 3:  # as trec_eval does: by score, ties by passage id, both descending
            lines.sort(key=itemgetter(1), reverse=True)
        lines.sort(key=itemgetter(2))
        for line in lines:
            if best.setdefault(line.passage, line) is not line:
                yield line.number, Broken("repeated_passage", _named("passage", line.passage))
        grades = self.grades.get(query, {})
        relevant = sorted((key for key, grade in grades.items() if grade > 0), key=lambda key: -grades[key])
        if not relevant:
            yield start, Broken("none_relevant", _named("query", query))
            return
        first, last = self.ranks
        cells = [_cell(line, rank, grades) for rank, line in islice(enumerate(best.values(), 1), first - 1, last)]
        judged = [isinstance(cell, dict) and cell["docid"] in grades for cell in cells]
        self.counts.update(
            JUDGED_WORDS[flag] for flag, cell in zip(judged, cells, strict=True) if isinstance(cell, dict)
        )
        if not self.by_judgement:
            yield start, {"query_id": query, "positives": relevant, "negatives": cells}
            return
        for kind, word in JUDGED_WORDS.items():
            negatives = [*compress(cells, (flag is kind for flag in judged))]
            if negatives or not (kind or cells):  # at least one row
                yield start, {"query_id": query, "positives": relevant, "negatives": negatives, JUDGED: word}


def _parsed(width: int, number: int, text: bytes | None) -> tuple[str, _Line] | Broken | None:
    """Split a line into its query id and the rest. Return None for an empty line, Broken for one that is not valid."""
    if text is None:
        return too_large("line")
    try:
        cells = [word.decode() for word in text.removeprefix(BOM).split(None, 5)]  # a tag may have several words
    except UnicodeDecodeError:
        return Broken("broken_line", Fact("not_utf8"))
    if not cells:
        return None
    if len(cells) != width:
        return Broken("extra_columns", Fact("field_count", {"n": len(cells), "expected": width}))
    passage, of = cells[1 if width < 6 else 2], "rank" if width == 3 else "score"
    try:
        value = float(cells[2 if width == 3 else -2 if width == 6 else -1])
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        return Broken("wrong_type", wrong_type("", of, "number"))
    if width == 3:
        return cells[0], _Line(number, passage, value, None, None)
    return cells[0], _Line(number, passage, -value, value, cells[5].strip() if width == 6 else None)


def _cell(line: _Line, rank: int, grades: Mapping[str, float]) -> dict[str, Any] | Broken:
    """Return a negative as an object with its rank, score and tag; Broken if the passage is relevant."""
    if grades.get(line.passage, 0) > 0:
        return Broken("judged_relevant", _named("passage", line.passage))
    fields = {"rank": rank, "score": line.score, "miner": line.tag}
    return {"docid": line.passage, **{name: value for name, value in fields.items() if value is not None}}


def _named(of: str, key: str) -> Fact:
    return Fact("id", {"of": of, "id": shorten(key, 60)})


def _size(row: Row | Broken) -> int:
    """Estimate the bytes that the negatives of a row take in memory."""
    return 256 * len(row["negatives"]) if isinstance(row, dict) else 256


def run_of(stream: ByteStream, settings: Settings) -> Container | None:
    """Return the container of a run, recognised from its first lines; None for any other file.

    The stream is not consumed. Raises InputError for a run without judgements, or if --format asks for a run and the
    file has another format. Raises UsageError for flags that runs do not support.
    """
    if settings.format not in (None, RUN):
        return None
    head = stream.peek()
    lines = (head if len(head) < CHUNK_BYTES // 2 else head[: head.rfind(b"\n") + 1]).removeprefix(BOM).split(b"\n")
    lines = [line for line in lines[:SNIFFED_LINES] if line.strip()]
    if not lines:
        return None
    width = mode(len(line.split(None, 5)) for line in lines)
    n_parsed = sum(isinstance(_parsed(width, 1, line), tuple) for line in lines) if width in WIDTHS else 0
    fits = 2 * n_parsed > len(lines)
    if settings.format is None and not (fits and _looks_like_run(lines, width)):
        return None
    if not fits:
        what = f"does not match --format {RUN}: {shorten(lines[0].decode(errors='replace'), 60)!r}"
        raise InputError(what, where=f"{stream.path}:1", remedy=f"a line of a run: {RUN_LINE}")
    if settings.source_column not in (None, JUDGED):
        what = f"{settings.source_column!r}: a run has no such column"
        raise UsageError(what, where="--source-column", remedy=f"use --source-column {JUDGED}, or omit it")
    by_judgement = JUDGED in (settings.by, settings.source_column)
    run = RetrievalRun(width, window_of(settings.ranks), _grades(settings, stream.path), by_judgement)
    return Container("run", stream.compression, run=run)


def _looks_like_run(lines: list[bytes], width: int) -> bool:
    """Tell whether lines look like a run: most have TREC's six columns, or column 3 ranks each query's passages."""
    if width == 6:
        return 2 * sum(bool(TREC_LINE.match(line)) for line in lines) > len(lines)
    head = make_head([line.decode(errors="replace").split() for line in lines])
    return all(len(row) == width for row in head.rows) and is_run(head) and not is_score(head, 2)


def window_of(ranks: str | None) -> tuple[int, int]:
    """Return (first, last) of ranks such as "11-20"; (1, DEFAULT_LAST_RANK) for None. Raises UsageError otherwise."""
    window = re.fullmatch(r"(\d{1,9})-(\d{1,9})", ranks or f"1-{DEFAULT_LAST_RANK}")
    first, last = map(int, window.groups()) if window else (0, 0)
    if not 1 <= first <= last:
        raise UsageError(
            f"{ranks!r} is not a window of ranks", where=flag_of("ranks"), remedy="write it as 1-10 or 11-20"
        )
    return first, last


def _grades(settings: Settings, path: str) -> Mapping[str, Mapping[str, float]]:
    """Return the judgements of all splits of --collection. Raises InputError if there are none."""
    files = () if settings.collection is None else collection_files(settings.collection, BEIR_FOLDER).qrels
    if not files:
        missing = "no collection is given" if settings.collection is None else f"{settings.collection} has none"
        raise InputError(
            f"a run takes its positives from judgements (qrels), but {missing}",
            where=path,
            remedy=f"add --collection DIR, a BEIR folder with a corpus, queries, and judgements in DIR/qrels "
            f"({flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')} replace the first two)",
        )
    return _read_grades(tuple((file, stamp(file)) for file in files))


@lru_cache(maxsize=1)
def _read_grades(stamps: tuple[tuple[str, object], ...]) -> Mapping[str, Mapping[str, float]]:
    """Return query -> passage -> its highest grade. The result is cached because several runs share judgements."""
    grades: dict[str, dict[str, float]] = {}
    for file, _ in stamps:
        for query, passage, grade in read_qrels(file):
            of_query = grades.setdefault(query, {})
            of_query[passage] = max(grade, of_query.get(passage, grade))
    return grades
