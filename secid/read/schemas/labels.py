"""Passages whose labels say which are positives: one pair a row, or a list with its labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import Any

from secid.read.passages import leaves, passage_text
from secid.read.schemas.binding import Binding
from secid.read.schemas.head import LISTS, SCALARS, Head, Key, make_head
from secid.read.schemas.patterns import DOCS, LABEL, NEGATIVE, PASSAGE, PASSAGE_ID, POSITIVE, named, query_columns

LABEL_WORDS = {
    **dict.fromkeys(("relevant", "positive", "pos", "yes"), 1.0),
    **dict.fromkeys(("irrelevant", "not relevant", "non-relevant", "negative", "neg", "no"), 0.0),
}
"""Words that labels go by, in any letter case. Those of other tasks ("entailment") do not say which is positive."""
FLAGS = frozenset({0.0, 1.0})


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


def are_numbers(head: Head, key: Key) -> bool:
    """Whether a column holds numbers (flags and numbers written as text count), at least one."""
    values = head.column(key)
    return bool(values) and all(as_number(value) is not None for value in values)


def is_score(head: Head, key: Key) -> bool:
    """Whether a column holds numbers, a fraction among them."""
    values = head.column(key)
    return are_numbers(head, key) and any(isinstance(v, float) or (isinstance(v, str) and "." in v) for v in values)


def flag_columns(head: Head) -> list[Key]:
    """Columns whose values are 0 and 1, or words for them, both present."""
    return [key for key in head.kinds if {*map(as_label, leaves(head.column(key)))} - {None} == FLAGS]


def _labelled_positives(head: Head) -> list[str]:
    """Columns named as positives whose labels, 0 and 1, say otherwise: sentence-transformers keeps the name."""
    labels = [key for key in named(head, LABEL) if key in flag_columns(head)]
    return [key for key in named(head, POSITIVE) if key not in labels] if labels and not named(head, NEGATIVE) else []


def labelled_list(head: Head) -> list[Binding]:
    """A list of passages and a list of their labels, or objects with a passage and its label each."""
    return [
        binding
        for query in query_columns(head)
        for docs in named(head, DOCS) or _labelled_positives(head)
        for binding in _lists(head, query, docs)
    ]


def _lists(head: Head, query: str, docs: str) -> Iterator[Binding]:
    if head.kinds[docs] == "struct" and all("is_selected" in value for value in head.typical(docs)):
        yield replace(
            _list(query, f"{docs}.passage_text", "is_selected", (query, docs),
                  lambda row: (row[query], row[docs]["passage_text"], row[docs]["is_selected"])),
            inner="passage_text",
        )  # fmt: skip
        return
    labels = [label for label in named(head, LABEL) if head.kinds[label] in LISTS and label != docs]
    if head.kinds[docs] in LISTS and labels:
        yield from (list_binding(query, docs, label) for label in labels)
    elif head.kinds[docs] == "structs":
        passages = [item for value in head.typical(docs) for item in value if isinstance(item, dict)]
        names = named(make_head(passages), LABEL)
        if names and all(isinstance(passage_text(item), str) for item in passages):
            yield own_labels(query, docs, names[0])


def own_labels(query: Key, docs: Key, label: str) -> Binding:
    """Binding of a list of passages that hold their labels themselves."""
    columns = (str(query), str(docs)) if isinstance(query, str) else None
    return _list(
        str(query), str(docs), f"their {label}", columns,
        lambda row: (row[query], row[docs], [passage.get(label) for passage in row[docs]]),
    )  # fmt: skip


def list_binding(query: Key, docs: Key, label: Key) -> Binding:
    """Binding of a list of passages and the list of their labels."""
    columns = tuple(map(str, (query, docs, label))) if isinstance(query, str) else None
    return _list(str(query), str(docs), str(label), columns, itemgetter(query, docs, label))


def _list(query: str, docs: str, label: str, columns: tuple[str, ...] | None, extract: Any) -> Binding:
    return Binding(query, f"{docs} by {label}", f"{docs} by {label}", extract, columns, labelled="list")


def labelled_pair(head: Head) -> list[Binding]:
    """One row a (query, passage, label): rows are grouped by query."""
    if named(head, NEGATIVE):
        return []
    return [
        pair_binding(query, passage, label)
        for query in query_columns(head)
        for passage in named(head, PASSAGE) or named(head, PASSAGE_ID) or _labelled_positives(head)
        for label in named(head, LABEL)
        if head.kinds[passage] in SCALARS | {"struct"} and head.kinds[query] in SCALARS
        if 2 * sum(as_label(value) is not None for value in head.column(label)) > len(head.column(label))
    ]


def pair_binding(query: Key, passage: Key, label: Key, title: Key | None = None) -> Binding:
    """Binding of labelled pairs; `title` is joined before the passage."""
    get = itemgetter(query, passage, label)

    def with_title(row: Any) -> tuple[Any, Any, Any]:
        query_text, text, value = get(row)
        return query_text, {"title": row[title], "text": text}, value

    both = f"{passage} by {label}" if title is None else f"{title} + {passage} by {label}"
    columns = tuple(map(str, (query, passage, label))) if isinstance(query, str) else None
    extract = get if title is None else with_title
    return Binding(str(query), both, both, extract, columns, labelled="pair", note="rows grouped by query")
