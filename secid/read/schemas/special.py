"""Binders of shapes that no list of column names describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import product
from operator import itemgetter
from typing import Any

from secid.read.passages import leaves, passage_id, passage_text
from secid.read.schemas.binding import Binding, bind_columns
from secid.read.schemas.head import LISTS, SCALARS, Head, Key, make_head
from secid.read.schemas.patterns import BESIDE, NEGATIVE, POSITIVE, QUERY, named

FIELD = re.compile(r"(?i)((doc|passage)_?|p)?ids?|(doc|passage)s?|(document|text|content|title|score|label)s?")
"""Keys of an object that holds passages, field by field; those of an object of miners are names of miners."""

PASSAGE = (
    r"passage|document|doc|para(graph)?|text|context|ctx|candidate|corpus|(passage|document|doc)_text",
    r"sentence2|answer",
)
PASSAGE_ID = (r"pid|doc_?id|(passage|document|corpus)[_-]id",)
QUERY_ID = (r"qid|query[_-]id", r"question[_-]id")
POSITIVE_IDS = r"pos(itive)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
NEGATIVE_IDS = r"(hard[_-]?)?neg(ative)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
LABEL = (
    r"labels?|((is|has)_)?(relevant|selected|positive|correct)|has_answer|relevance|rel",
    r"((similarity|relevance)_)?scores?|similarity",
)
LABEL_WORDS = {
    **dict.fromkeys(("relevant", "positive", "pos", "yes"), 1.0),
    **dict.fromkeys(("irrelevant", "not relevant", "non-relevant", "negative", "neg", "no"), 0.0),
}
"""Words that labels go by, in any letter case. Those of other tasks ("entailment") do not say which is positive."""
DOCS = (r"docs|documents|passages|paragraphs|candidates|contexts|ctxs|texts",)


def dpr(head: Head) -> list[Binding]:
    """DPR: random and hard negatives are two sources."""
    found = {
        split: column
        for split, column in (("random", "negative_ctxs"), ("hard", "hard_negative_ctxs"))
        if head.kinds.get(column) in LISTS
    }
    if "positive_ctxs" not in head.kinds or not found:
        return []
    queries = named(head, QUERY)
    if len(found) == 1:
        return [bind_columns(head, query, "positive_ctxs", list(found.values())) for query in queries]

    def extract_for(query: str) -> Callable[[Any], tuple[Any, Any, Any]]:
        return lambda row: (row[query], row["positive_ctxs"], {split: row.get(name) for split, name in found.items()})

    said = " and ".join(f"{split} ({column})" for split, column in found.items())
    touched = ("positive_ctxs", *found.values())
    return [
        Binding(
            *(q, "positive_ctxs", said),
            extract_for(q),
            (q, *touched),
            splits=True,
            split_lists=tuple(found.items()),
            note="one source each",
        )
        for q in queries
    ]


def several_miners(head: Head) -> list[Binding]:
    """A dict of lists, one list a miner: each key is a source."""
    negatives = [key for key in named(head, NEGATIVE) if head.kinds[key] == "struct"]
    negatives = [key for key in negatives if any(isinstance(v, list) for d in head.typical(key) for v in d.values())]
    negatives = [key for key in negatives if are_miners(head, key)]
    positives = [key for key in named(head, POSITIVE) if head.kinds[key] in LISTS | SCALARS]
    queries = named(head, QUERY) or named(head, QUERY_ID)
    return [
        Binding(
            *(query, positive, f"the keys of {negative}"),
            itemgetter(query, positive, negative),
            (query, positive, negative),
            splits=True,
            either=True,
            note="one source each",
        )
        for query, positive, negative in product(queries, positives, negatives)
    ]


def are_miners(head: Head, key: Key) -> bool:
    """Whether the keys of a column of objects may be miners: none is a passage, a field, or a number of one text."""
    values = [value for value in head.typical(key) if isinstance(value, dict)]
    passages = [value for value in values if isinstance(passage_text(value) or passage_id(value), str | int)]
    names = {name for value in values for name in value}
    numbered = all(map(str.isdecimal, names)) and not any(
        isinstance(v, list) for value in values for v in value.values()
    )
    beside = all(map(FIELD.fullmatch, names)) or any(map(BESIDE.fullmatch, names))
    return bool(values) and not (passages or numbered or beside)


def simlm(head: Head) -> list[Binding]:
    """E5 and SimLM: parallel lists of ids and scores inside an object."""
    if head.kinds.get("positives") != "struct" or head.kinds.get("negatives") != "struct":
        return []
    inner = "doc_id" if all("doc_id" in value for value in head.typical("positives")) else "text"
    if not all(inner in value for value in (*head.typical("positives"), *head.typical("negatives"))):
        return []

    def extract_for(query: str) -> Callable[[Any], tuple[Any, Any, Any]]:
        return lambda row: (row[query], row["positives"][inner], row["negatives"][inner])

    columns = ("positives", "negatives")
    return [
        Binding(q, f"positives.{inner}", f"negatives.{inner}", extract_for(q), (q, *columns), inner=inner)
        for q in named(head, QUERY) or named(head, QUERY_ID)
    ]


def ms_swift(head: Head) -> list[Binding]:
    """Chat messages: the query is a conversation's last user turn, a passage its last message."""
    if head.kinds.get("messages") != "structs" or "positive_messages" not in head.kinds:
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        users = [turn for turn in row["messages"] if turn["role"] == "user"]
        negatives = row["negative_messages"]
        return users[-1]["content"], _last(row["positive_messages"]), negatives and _last(negatives)

    return [
        Binding(
            "messages (last user turn)",
            "positive_messages",
            "negative_messages",
            extract,
            ("messages", "positive_messages", "negative_messages"),
        )
    ]


def _last(conversations: list[Any]) -> list[Any]:
    ends = [turns[-1] if isinstance(turns, list) else turns for turns in conversations]
    return [turn if isinstance(turn, str) else turn["content"] for turn in ends]


def nomic(head: Head) -> list[Binding]:
    """nomic: the row's metadata names the columns of the triplet."""
    found = []
    for metadata in head.column("metadata"):
        try:
            query, positive, negative = metadata["objective"]["triplet"][0]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        if all(isinstance(name, str) and name in head.kinds for name in (query, positive, negative)):
            found.append((query, positive, negative))
    return [bind_columns(head, query, positive, [negative]) for query, positive, negative in dict.fromkeys(found)]


def instructor(head: Head) -> list[Binding]:
    """INSTRUCTOR and GritLM: every text is an [instruction, text] pair."""
    names = ("query", "pos", "neg")
    if not set(names) <= set(head.kinds):
        return []
    queries = head.column("query")
    if 2 * sum(map(is_pair, queries)) <= len(queries) or is_transposed(head):
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row["query"], _pairs(row["pos"]), _pairs(row["neg"])

    note = "the second of each [instruction, text] pair"
    return [Binding("query", "pos", "neg", extract, names, pairs=True, note=note)]


def is_transposed(head: Head) -> bool:
    """Whether one row holds a whole table: columns as lists of one length, or columns or rows as objects by number.

    Passages of one [instruction, text] schema share their instruction, columns of two rows do not.
    """
    if len(head.rows) > 1 or not isinstance(head.rows[0], dict):
        return False
    if {"columns", "index", "data"} == set(head.kinds):  # as pandas writes it under orient="split"
        return True
    values = list(head.rows[0].values())
    if values and all(isinstance(value, dict) and value for value in values):
        keys = [tuple(value) for value in values]
        return len(set(keys)) == 1 and (all(map(str.isdecimal, keys[0])) or all(map(str.isdecimal, head.rows[0])))
    lists = len(values) > 2 and all(isinstance(value, list) and len(value) > 1 for value in values)
    if not lists or not named(head, QUERY):
        return False
    passages = [head.rows[0][key][0] for role in (POSITIVE, NEGATIVE) for key in named(head, role)]
    flat = all(type(item) is type(value[0]) and not isinstance(item, list) for value in values for item in value)
    return flat and len({len(value) for value in values}) == 1 and len(set(passages)) == len(passages) > 1


def is_pair(value: Any) -> bool:
    """Whether a value is a list of two texts."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _pairs(value: Any) -> Any:
    return [value] if is_pair(value) else value


def labelled_list(head: Head) -> list[Binding]:
    """A list of passages and a list of their labels, or objects with a passage and its label each."""
    bindings = []
    for query in named(head, QUERY) or named(head, QUERY_ID):
        for docs in named(head, DOCS) or labelled_positives(head):
            if head.kinds[docs] == "struct" and all("is_selected" in value for value in head.typical(docs)):
                extract = _ms_marco_extract(query, docs)
                columns: tuple[str, ...] = (query, docs)
                found = _of_list(query, f"{docs}.passage_text", "is_selected", extract, columns)
                bindings.append(replace(found, inner="passage_text"))
            elif head.kinds[docs] in LISTS:
                labels = [label for label in named(head, LABEL) if head.kinds[label] in LISTS and label != docs]
                lists = [list_binding(query, docs, label) for label in labels]
                bindings.extend(lists or _labelled_objects(head, query, docs))
    return bindings


def labelled_positives(head: Head) -> list[str]:
    """Columns named as positives whose labels, 0 and 1, say otherwise: sentence-transformers keeps the name."""
    known = {0.0, 1.0}  # beside which a single row may have an odd one
    labels = [key for key in named(head, LABEL) if {*map(as_label, leaves(head.column(key)))} - {None} == known]
    return [key for key in named(head, POSITIVE) if key not in labels] if labels and not named(head, NEGATIVE) else []


def _labelled_objects(head: Head, query: str, docs: str) -> list[Binding]:
    """Objects that say of themselves whether they are positive."""
    passages = [item for value in head.typical(docs) for item in value if isinstance(item, dict)]
    if head.kinds[docs] != "structs" or not all(isinstance(passage_text(item), str) for item in passages):
        return []
    label = next(iter(named(make_head(passages), LABEL)), None)

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row[query], row[docs], [passage.get(label) for passage in row[docs]]

    return [] if label is None else [_of_list(query, docs, f"their {label}", extract, (query, docs))]


def _ms_marco_extract(query: str, docs: str) -> Callable[[Any], tuple[Any, Any, Any]]:
    return lambda row: (row[query], row[docs]["passage_text"], row[docs]["is_selected"])


def list_binding(query: Key, docs: Key, label: Key) -> Binding:
    """Binding of a list of passages beside the list of their labels."""
    columns = tuple(map(str, (query, docs, label))) if isinstance(query, str) else None
    return _of_list(str(query), str(docs), str(label), itemgetter(query, docs, label), columns)


def _of_list(query: str, docs: str, label: str, extract: Any, columns: tuple[str, ...] | None) -> Binding:
    return Binding(query, f"{docs} by {label}", f"{docs} by {label}", extract, columns, labelled="list")


def labelled_pair(head: Head) -> list[Binding]:
    """One row a (query, passage, label): rows are grouped by query."""
    if named(head, NEGATIVE):
        return []
    bindings = []
    for query in named(head, QUERY) or named(head, QUERY_ID):
        for passage in named(head, PASSAGE) or named(head, PASSAGE_ID) or labelled_positives(head):
            if head.kinds[passage] not in SCALARS | {"struct"} or head.kinds[query] not in SCALARS:
                continue
            for label in named(head, LABEL):
                values = head.column(label)
                if 2 * sum(as_label(value) is not None for value in values) > len(values):
                    bindings.append(pair_binding(query, passage, label, None))
    return bindings


def pair_binding(query: Key, passage: Key, label: Key, title: Key | None) -> Binding:
    """Binding of labelled pairs; `title` is joined before the passage."""
    get = itemgetter(query, passage, label)

    def with_title(row: Any) -> tuple[Any, Any, Any]:
        query_text, text, value = get(row)
        return query_text, {"title": row[title], "text": text}, value

    keys = (query, passage, label) if title is None else (query, passage, label, title)
    said = f"{passage} by {label}" if title is None else f"{title} + {passage} by {label}"
    return Binding(
        str(query),
        said,
        said,
        get if title is None else with_title,
        tuple(map(str, keys)) if isinstance(query, str) else None,
        labelled="pair",
        note="rows grouped by query",
    )


def are_numbers(head: Head, key: Key) -> bool:
    """Whether a column holds numbers (flags and numbers written as text count), at least one."""
    values = head.column(key)
    return bool(values) and all(as_number(value) is not None for value in values)


def as_label(value: Any) -> float | None:
    """A label as a number: "relevant" is 1, "no" is 0; None where it is none."""
    word = value.strip().lower().replace("_", " ") if isinstance(value, str) else ""
    return LABEL_WORDS.get(word, as_number(value))


def as_number(value: Any) -> float | None:
    """A cell as a number; None where it is none. True is 1, "0.5" is 0.5."""
    if isinstance(value, str):
        value = {"true": "1", "false": "0"}.get(value.strip().lower(), value)
    try:
        return float(value) if isinstance(value, str | int | float | Decimal) else None
    except (ValueError, OverflowError):
        return None
