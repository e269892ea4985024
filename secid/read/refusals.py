"""Refuse files that hold no records with negatives, and files whose only fitting binding has a fault."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from secid.errors import InputError, SchemaError
from secid.read.binding import (
    LISTS,
    NEGATIVE_NAMES,
    POSITIVE_NAMES,
    QUERY_NAMES,
    SCALARS,
    Binding,
    ColumnKey,
    Head,
    cell,
    columns_named,
    extract_rows,
    has_word,
    look_like_ids,
    unread_role,
)
from secid.read.columns import MINE_FIRST, TEXT_KINDS, header_of, list_columns, ready_flags
from secid.read.stream import TEXT_KEYS, passage_text, shorten, shown
from secid.read.toolkits import BINARY_LABELS, LABEL_WORDS, as_label, as_number, is_score
from secid.settings import Settings, flag_of

COLLECTION = (
    f"name it with --collection (the folder), or {flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}, "
    "next to a file of records"
)
RUN_LINE = "301 Q0 d7 1 12.5 bm25"
AS_RUN = f"a run has six columns, such as `{RUN_LINE}`, or three, of which the last is the rank"
IDS_THIRD = "--format id-rows if the third column holds ids of negatives"
QRELS = "relevance judgements (qrels), not records with negatives"
QRELS_REMEDY = f"score a run with --collection DIR and these judgements in DIR/qrels; or {MINE_FIRST}"
BY_GRADE = (
    "to use passages judged below X as negatives: --query-column 0 --positive-column 1 --label-column 2 "
    f"--positive-score X --collection DIR; or {MINE_FIRST}; {IDS_THIRD}"
)

GRADE_RANGE = range(-2, 11)
"""Range of relevance grades in common use. TREC judges spam as -2."""

MAX_DISTINCT_GRADES = 5
"""Maximum number of different grades in one file."""

WRITTEN_LIST = re.compile(
    r"""(?s)(\[\s*(["'\[{]|None|null|array\()|\{\s*["']|\(\s*["']|array\().*[\])}]|\[[\s\d.,-]*\]"""
)
"""Pattern of a list, tuple, array or object as Python, numpy or JSON prints it."""

TITLE_WORD = re.compile(r"(?i)titles?")

MAX_HEADER_ROWS = 20
"""Maximum number of rows to inspect for a first row with column names."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A shape that secid cannot score.

    fits : test of a file's head.   message, remedy : parts of the error.   late : refuse only if no schema fits.
    """

    fits: Callable[[Head], bool]
    message: str
    remedy: str | Callable[[Head], str]
    late: bool = False

    def error(self, head: Head, path: str) -> SchemaError:
        remedy = self.remedy if isinstance(self.remedy, str) else self.remedy(head)
        return SchemaError(f"{self.message}{list_columns(head)}", where=path, remedy=remedy)


def _has(*names: str) -> Callable[[Head], bool]:
    return lambda head: set(names) <= set(head.kinds)


def _is_collection(head: Head) -> bool:
    ids, texts = {"_id", "docid", "doc_id", "pid", "id", "qid"}, {"text", "contents", "document_text"}
    labelled = {"label", "score"} & set(head.kinds) or columns_named(head, QUERY_NAMES)
    return bool(ids & set(head.kinds) and texts & set(head.kinds)) and not labelled


def _is_qrels(head: Head) -> bool:
    return not head.named and len(head.kinds) == 4 and {*map(shown, head.column(1))} in ({"0"}, {"Q0"})


def _is_graded(head: Head) -> bool:
    """Tell whether rows are (query id, passage id, grade), where grades are a few small whole numbers that repeat."""
    if head.named or len(head.kinds) != 3 or not all(look_like_ids(head.column(key)) for key in (0, 1)):
        return False
    grades = [as_number(value) for value in head.column(2)]
    distinct = set(grades)
    few = 0 < len(distinct) < len(grades) and len(distinct) <= MAX_DISTINCT_GRADES
    return few and all(grade in GRADE_RANGE for grade in distinct)


def is_run(head: Head) -> bool:
    """Tell whether rows form a run: query id, passage id, and a score or a rank that starts at 0 or 1 per query."""
    if head.named or len(head.kinds) not in (3, 4) or {*map(as_number, head.column(2))} <= BINARY_LABELS:
        return False
    if len(head.kinds) == 3 and is_score(head, 2):
        return all(look_like_ids(head.column(key)) for key in (0, 1))
    ranked: dict[str, list[tuple[str, str]]] = {}
    for row in head.rows:
        query, passage, rank = (shown(cell(row, place)) for place in range(3))
        ranked.setdefault(query, []).append((rank, passage))
    return any(len(rows) > 1 for rows in ranked.values()) and all(map(_are_ranked, ranked.values()))


def _are_ranked(rows: list[tuple[str, str]]) -> bool:
    """Tell whether distinct passages have the ranks 1, 2, 3, ... or 0, 1, 2, ... in any order."""
    n, ranks = len(rows), {rank for rank, _ in rows}
    return len({passage for _, passage in rows}) == n and ranks in ({*map(str, range(n))}, {*map(str, range(1, n + 1))})


def _is_by_columns(head: Head) -> bool:
    """Tell whether one row holds a whole table: each column as an object keyed by row number, as pandas writes it."""
    if len(head.rows) > 1 or not isinstance(head.rows[0], dict):
        return False
    return all(isinstance(value, dict) and value and all(map(str.isdecimal, value)) for value in head.rows[0].values())


def _is_chat(head: Head) -> bool:
    kinds = head.kinds
    spoken = kinds.get("messages") == "structs" or kinds.get("conversations") in LISTS
    return spoken and "positive_messages" not in kinds and not columns_named(head, POSITIVE_NAMES[:1])


def _has_several_queries(head: Head) -> bool:
    queries = columns_named(head, QUERY_NAMES)
    return (
        bool(queries)
        and all(head.kinds[key] == "texts" for key in queries)
        and bool(columns_named(head, NEGATIVE_NAMES))
    )


def _are_keyed(head: Head) -> bool:
    values = [
        value
        for key in columns_named(head, NEGATIVE_NAMES)
        if head.kinds[key] == "struct"
        for value in head.typical(key)
    ]
    return (
        bool(columns_named(head, QUERY_NAMES)) and bool(values) and all(passage_text(value) is None for value in values)
    )


def _has_no_negatives(head: Head) -> bool:
    return (
        bool(columns_named(head, QUERY_NAMES))
        and bool(columns_named(head, POSITIVE_NAMES))
        and not columns_named(head, NEGATIVE_NAMES)
    )


REFUSALS = (
    Refusal(_has("queries", "corpus", "relevant_docs"), "a LlamaIndex data set: it has no negatives", MINE_FIRST),
    Refusal(_is_by_columns, "one object holds a whole table, column by column",
            "write it row by row; in pandas: to_json(path, orient=\"records\", lines=True)"),
    Refusal(_has("query-id", "corpus-id"), QRELS, QRELS_REMEDY),
    Refusal(_is_qrels, QRELS, QRELS_REMEDY),
    Refusal(is_run, "a run (query, passage, rank or score), not triples of ids",
            f"{AS_RUN}; {IDS_THIRD}"),
    Refusal(_is_graded, QRELS, BY_GRADE),
    Refusal(_is_chat, "conversations without positives and negatives",
            f"add positive_messages and negative_messages, as in ms-swift; or {MINE_FIRST}"),
    Refusal(_is_collection, "a collection of texts, not records with negatives", COLLECTION),
    Refusal(_has_several_queries, "lists of queries, where one text is expected",
            "write one query text per row; --format instructor reads [instruction, text] pairs",
            late=True),
    Refusal(_are_keyed, "negatives are objects without a known key for the text",
            'write them as a list of texts, or as a list for each miner (`{"bm25": [...]}`)', late=True),
    Refusal(_has_no_negatives, "a query and positives but no column of negatives", ready_flags, late=True),
)  # fmt: skip


def refuse_unread(binding: Binding, head: Head, source_column: str | None, path: str) -> tuple[str, ...]:
    """Return unread columns named like passages but empty in the first rows. Raises SchemaError if they have values."""
    if binding.columns is None:
        return ()
    others = [key for key in map(str, head.kinds) if key not in binding.columns and key != source_column]
    others = [key for key in others if unread_role(key, binding)]
    # A value in only one of many rows says nothing about the column.
    empty = [key for key in others if sum(map(bool, head.column(key))) < min(2, len(head.rows))]
    kinds = SCALARS | LISTS if binding.passage_ids else TEXT_KINDS
    for role, read in (("negative", binding.negatives), ("positive", binding.positives)):
        unread = [key for key in others if key not in empty and unread_role(key, binding) == role]
        unread = [key for key in unread if head.kinds[key] in kinds]
        if unread:
            more = "to read all of them, write them as one list"
            if role == "negative" and not binding.labelled:
                more = "use --format miners to read each as a source"
            column = read.partition("…")[0]
            flag = f"--format {binding.schema}" if binding.labelled or binding.splits else f"--{role}-column {column}"
            raise SchemaError(
                f"several readings fit: the {role}s may be in {read}, or in {', '.join(unread)}{list_columns(head)}",
                where=path,
                remedy=f"use {flag} to leave out {', '.join(unread)}; {more}",
            )
    return tuple(empty)


def refuse_textless(binding: Binding, head: Head, path: str) -> None:
    """Refuse passages if most are objects without a known key for the text. Raises SchemaError."""
    if binding.passage_ids or binding.splits:
        return
    for side in (1,) if binding.labelled else (1, 2):
        passages: list[Any] = []
        for cells in extract_rows(binding, head):
            passages.extend(cells[side] if isinstance(cells[side], list | tuple) else (cells[side],))
        textless = [value for value in passages if isinstance(value, dict) and passage_text(value) is None]
        if 2 * len(textless) > len(passages):
            keys = ", ".join(dict.fromkeys(str(key) for value in textless for key in value))
            raise SchemaError(
                f"passages are objects without a known key for the text: {shorten(keys, 200)}{list_columns(head)}",
                where=path,
                remedy=f"name it `text`, or write passages as a list of texts; known keys are {', '.join(TEXT_KEYS)}",
            )


def refuse_odd_lists(binding: Binding, head: Head, path: str) -> None:
    """Refuse nested lists of passages, and lists written as text with their brackets. Raises SchemaError."""
    keys = binding.columns if binding.columns is not None else list(head.kinds)
    for key in keys:
        texts = [value.strip() for value in head.column(key) if isinstance(value, str)]
        if texts and 2 * sum(bool(WRITTEN_LIST.fullmatch(text)) for text in texts) > len(texts):
            raise SchemaError(
                f"the column {key} holds lists written as text: {shorten(texts[0], 60)}",
                where=path,
                remedy="write them as lists, in JSON lines or Parquet",
            )
    for key in keys:
        if head.kinds.get(key) == "lists" and not binding.pairs and binding.schema != "ms-swift":
            raise SchemaError(
                f"the column {key} holds lists in lists: {shown(head.typical(key)[0], 60)}",
                where=path,
                remedy="write one flat list; each passage is a text, or an object with the key `text`",
            )


def refuse_labels(binding: Binding, head: Head, settings: Settings, path: str) -> None:
    """Raise SchemaError for labels that are words, or scores without a threshold. A few odd labels count as defects."""
    if not binding.labelled or settings.positive_score is not None:
        return
    labels: list[object] = []
    for *_, value in extract_rows(binding, head):
        labels.extend(value if isinstance(value, list) else [value])
    # `secid check` accepts any number of bad rows, but even there the labels must have a clear meaning.
    single = settings.max_bad_fraction if math.isfinite(settings.max_bad_fraction) else Settings().max_bad_fraction
    refuse_words(labels, path, min(single, 0.5))
    odd = [number for label in labels if (number := as_label(label)) is not None and number not in BINARY_LABELS]
    if len(odd) > single * len(labels):
        examples = ", ".join(f"{number:g}" for number in list(dict.fromkeys(odd))[:6])
        raise SchemaError(
            f"labels other than 0 and 1 ({examples}) do not show which passages are positives",
            where=path,
            remedy="use --positive-score X to take passages labelled X or more as positives, others as negatives",
        )


def refuse_words(labels: Sequence[Any], path: str, limit: float = 0.5) -> None:
    """Raise SchemaError if more than the share `limit` of the labels are words that do not mark positives."""
    words = [label for label in labels if isinstance(label, str) and as_label(label) is None]
    if len(words) > limit * len(labels):
        examples = ", ".join(shorten(word, 30) for word in list(dict.fromkeys(words))[:6])
        raise SchemaError(
            f"labels in unknown words ({examples}) do not show which passages are positives",
            where=path,
            remedy=f"write 1 and 0, known words ({', '.join(LABEL_WORDS)}), or scores with --positive-score X",
        )


def refuse_names(head: Head, path: str) -> None:
    """Refuse rows without names if the first row may be a header. Raises SchemaError."""
    rows = [[*map(shown, row)] for row in head.rows[:MAX_HEADER_ROWS] if len(row) == len(head.rows[0])]
    try:
        names = header_of(rows, None, path)
    except InputError:
        names = tuple(rows[0])
    if names:
        raise SchemaError(
            f"the first row may be column names or data: {shorten(', '.join(names), 100)}",
            where=path,
            remedy=f"use {flag_of('header', False)} to read it as data; if it is names, write each row as an object",
        )


def refuse_titles(binding: Binding, head: Head, path: str) -> None:
    """Refuse columns of titles next to passages that are texts. Raises SchemaError.

    The column `title` is ignored if a row has several passages, because the title may belong to any of them.
    """
    if binding.columns is None or binding.passage_ids or head.kinds.get(binding.columns[1]) not in ("text", "texts"):
        return
    titles = [str(key) for key, kind in head.kinds.items() if kind in ("text", "texts") and key not in binding.columns]
    titles = [
        name for name in titles if has_word(name, TITLE_WORD) and (binding.labelled or not TITLE_WORD.fullmatch(name))
    ]
    if titles:
        raise SchemaError(
            f"titles in separate columns: {shorten(', '.join(titles))}{list_columns(head)}",
            where=path,
            remedy=f"use {flag_of('titles', False)} to omit them; to join them, write each passage as an object: "
            '{"title": "...", "text": "..."}',
        )


def undecided(head: Head, keys: Sequence[ColumnKey], message: str, path: str, remedy: str) -> SchemaError:
    """Return an error that shows all columns. keys: columns among which the user must choose, or none."""
    fit = f": {', '.join(map(str, keys))} all fit" if keys else ""
    return SchemaError(f"{message}{fit}{list_columns(head)}", where=path, remedy=remedy)
