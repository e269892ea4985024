"""Bind shapes that column names alone do not describe: labelled passages, toolkits' formats, columns by order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import product
from operator import itemgetter
from typing import Any

from secid.read.binding import (
    ABOUT,
    LABEL_NAMES,
    LISTS,
    NEGATIVE_NAME,
    NEGATIVE_NAMES,
    PASSAGE_ID_NAMES,
    PASSAGE_LIST_NAMES,
    PASSAGE_NAMES,
    POSITIVE_NAMES,
    QUERY_NAMES,
    SCALARS,
    Binding,
    ColumnKey,
    Head,
    bind_columns,
    columns_named,
    has_word,
    look_like_ids,
    look_like_words,
    make_head,
    negative_groups,
    query_columns,
    says_negative,
)
from secid.read.stream import leaves, passage_id, passage_text

# Passages with labels that mark the positives: one pair per row, or a list with its labels.

LABEL_WORDS = {
    **dict.fromkeys(("relevant", "positive", "pos", "yes"), 1.0),
    **dict.fromkeys(("irrelevant", "not relevant", "non-relevant", "negative", "neg", "no"), 0.0),
}
"""Words for labels, in lower case. Words of other tasks ("entailment") do not mark positives."""
BINARY_LABELS = frozenset({0.0, 1.0})


def as_label(value: Any) -> float | None:
    """Return a label as a number: "relevant" is 1, "no" is 0. Return None if it is not a known word or a number."""
    word = value.strip().lower().replace("_", " ") if isinstance(value, str) else ""
    return LABEL_WORDS.get(word, as_number(value))


def as_number(value: Any) -> float | None:
    """Return a cell as a number: True is 1, "0.5" is 0.5. Return None if it is not a number."""
    if isinstance(value, str):
        value = {"true": "1", "false": "0"}.get(value.strip().lower(), value)
    try:
        return float(value) if isinstance(value, str | int | float | Decimal) else None
    except (ValueError, OverflowError):
        return None


def are_numbers(head: Head, key: ColumnKey) -> bool:
    """Tell whether a column holds only numbers, at least one. True, false and numbers written as text count."""
    values = head.column(key)
    return bool(values) and all(as_number(value) is not None for value in values)


def is_score(head: Head, key: ColumnKey) -> bool:
    """Tell whether a column holds only numbers, with at least one fraction."""
    values = head.column(key)
    return are_numbers(head, key) and any(isinstance(v, float) or (isinstance(v, str) and "." in v) for v in values)


def flag_columns(head: Head) -> list[ColumnKey]:
    """Return the columns whose labels are only 0 and 1, or words for them, and include both."""
    return [key for key in head.kinds if {*map(as_label, leaves(head.column(key)))} - {None} == BINARY_LABELS]


def _labelled_positives(head: Head) -> list[str]:
    """Return columns named as positives in rows with labels of 0 and 1, as sentence-transformers writes them."""
    labels = [key for key in columns_named(head, LABEL_NAMES) if key in flag_columns(head)]
    return (
        [key for key in columns_named(head, POSITIVE_NAMES) if key not in labels]
        if labels and not columns_named(head, NEGATIVE_NAMES)
        else []
    )


def labelled_list(head: Head) -> list[Binding]:
    """Bind a list of passages and a list of their labels, or a list of objects with a passage and its label."""
    return [
        binding
        for query in query_columns(head)
        for docs in columns_named(head, PASSAGE_LIST_NAMES) or _labelled_positives(head)
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
    labels = [label for label in columns_named(head, LABEL_NAMES) if head.kinds[label] in LISTS and label != docs]
    if head.kinds[docs] in LISTS and labels:
        yield from (list_binding(query, docs, label) for label in labels)
    elif head.kinds[docs] == "structs":
        passages = [item for value in head.typical(docs) for item in value if isinstance(item, dict)]
        names = columns_named(make_head(passages), LABEL_NAMES)
        if names and all(isinstance(passage_text(item), str) for item in passages):
            yield labelled_objects(query, docs, names[0])


def labelled_objects(query: ColumnKey, docs: ColumnKey, label: str) -> Binding:
    """Return the binding of a list of objects that hold a passage and its label."""
    columns = (str(query), str(docs)) if isinstance(query, str) else None
    return _list(
        str(query), str(docs), f"their {label}", columns,
        lambda row: (row[query], row[docs], [passage.get(label) for passage in row[docs]]),
    )  # fmt: skip


def list_binding(query: ColumnKey, docs: ColumnKey, label: ColumnKey) -> Binding:
    columns = tuple(map(str, (query, docs, label))) if isinstance(query, str) else None
    return _list(str(query), str(docs), str(label), columns, itemgetter(query, docs, label))


def _list(query: str, docs: str, label: str, columns: tuple[str, ...] | None, extract: Any) -> Binding:
    return Binding(query, f"{docs} by {label}", f"{docs} by {label}", extract, columns, labelled="list")


def labelled_pair(head: Head) -> list[Binding]:
    """Bind rows of (query, passage, label). The reader groups them by query."""
    if columns_named(head, NEGATIVE_NAMES):
        return []
    return [
        pair_binding(query, passage, label)
        for query in query_columns(head)
        for passage in columns_named(head, PASSAGE_NAMES)
        or columns_named(head, PASSAGE_ID_NAMES)
        or _labelled_positives(head)
        for label in columns_named(head, LABEL_NAMES)
        if head.kinds[passage] in SCALARS | {"struct"} and head.kinds[query] in SCALARS
        if 2 * sum(as_label(value) is not None for value in head.column(label)) > len(head.column(label))
    ]


def pair_binding(query: ColumnKey, passage: ColumnKey, label: ColumnKey, title: ColumnKey | None = None) -> Binding:
    """Return the binding of labelled pairs; `title` is joined before the passage."""
    get = itemgetter(query, passage, label)

    def with_title(row: Any) -> tuple[Any, Any, Any]:
        query_text, text, value = get(row)
        return query_text, {"title": row[title], "text": text}, value

    both = f"{passage} by {label}" if title is None else f"{title} + {passage} by {label}"
    columns = tuple(map(str, (query, passage, label))) if isinstance(query, str) else None
    extract = get if title is None else with_title
    return Binding(str(query), both, both, extract, columns, labelled="pair", note="rows grouped by query")


# Toolkits' formats, and columns by their order.

FIELD = re.compile(r"(?i)((doc|passage)_?|p)?ids?|(doc|passage)s?|(document|text|content|title|score|label)s?")
"""Pattern of keys in an object that holds passages field by field. In an object of miners, the keys name miners."""
OF_A_MINER = re.compile(rf"(?i)(?!.*[_-]\d+$)(({NEGATIVE_NAME})_[^\W\d][\w.-]*|[^\W\d][\w.-]*_({NEGATIVE_NAME}))")
"""Pattern of a column with one miner's negatives: `neg_bm25`, `bm25_negatives`. `neg_bm25_1` is part of an n-tuple."""

NLI = ["premise", "entailment", "contradiction"]
NO_TEXTS = re.compile(
    r"(?i)(.+[_ -])?(labels?|scores?)|"
    r"_?(id|idx|index|guid|uuid|split|source|type|task|lang|language|category)|(.*_|[qp]|doc)(id|idx)s?"
)
"""Pattern of columns without texts: labels, scores, ids and tags."""


def dpr(head: Head) -> list[Binding]:
    """Bind rows of DPR. If a row has random and hard negatives, they are two sources."""
    both = {"random": "negative_ctxs", "hard": "hard_negative_ctxs"}
    splits = {split: column for split, column in both.items() if head.kinds.get(column) in LISTS}
    if "positive_ctxs" not in head.kinds or not splits:
        return []
    if len(splits) == 1:
        return [
            bind_columns(head, query, "positive_ctxs", list(splits.values()))
            for query in columns_named(head, QUERY_NAMES)
        ]
    return [_split(query, "positive_ctxs", splits) for query in columns_named(head, QUERY_NAMES)]


def _split(query: str, positive: str, splits: dict[str, str], **options: Any) -> Binding:
    """Return the binding of several negative columns, one per source. splits: source -> column."""

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row[query], row[positive], {split: row.get(name) for split, name in splits.items()}

    shown = " and ".join(name if split == name else f"{split} ({name})" for split, name in splits.items())
    names = (query, positive, *splits.values())
    return Binding(query, positive, shown, extract, names, splits=True, note="one source each", **options)


def several_miners(head: Head) -> list[Binding]:
    """Bind rows with one negative column per miner, or an object with one key per miner. Each miner is a source."""
    negatives = [key for key in columns_named(head, NEGATIVE_NAMES) if head.kinds[key] == "struct"]
    negatives = [key for key in negatives if any(isinstance(v, list) for d in head.typical(key) for v in d.values())]
    negatives = [key for key in negatives if are_miners(head, key)]
    positives = [key for key in columns_named(head, POSITIVE_NAMES) if head.kinds[key] in LISTS | SCALARS]
    bindings = [
        Binding(query, positive, f"the keys of {negative}", itemgetter(query, positive, negative),
                (query, positive, negative), splits=True, either=True, note="one source each")
        for query, positive, negative in product(query_columns(head), positives, negatives)
    ]  # fmt: skip
    if columns_named(head, NEGATIVE_NAMES):
        return bindings
    names = [key for key, kind in head.kinds.items() if isinstance(key, str) and kind in LISTS | {"text"}]
    of_miners = [name for name in names if OF_A_MINER.fullmatch(name) and not has_word(name, ABOUT)]
    return bindings + _a_source_each(head, of_miners)


def all_miners(head: Head) -> list[Binding]:
    """Bind as `several_miners` does. If no row fits, bind every negative column as a source, whatever its name."""
    negatives = [str(key) for key in head.kinds if says_negative(str(key)) and head.kinds[key] in LISTS | {"text"}]
    return several_miners(head) or _a_source_each(head, negatives)


def _a_source_each(head: Head, columns: list[str]) -> list[Binding]:
    positives = [
        key for key in columns_named(head, POSITIVE_NAMES) if head.kinds[key] in LISTS | SCALARS and key not in columns
    ]
    splits = {name: name for name in columns}
    both = product(query_columns(head), positives)
    return [_split(query, positive, splits, either=True) for query, positive in both] if splits else []


def are_miners(head: Head, key: ColumnKey) -> bool:
    """Tell whether the keys in a column of objects may name miners.

    Return False if any object is a passage, if all keys are fields of a passage, if numeric keys hold single texts, or
    if any key describes a passage.
    """
    values = [value for value in head.typical(key) if isinstance(value, dict)]
    passages = [value for value in values if isinstance(passage_text(value) or passage_id(value), str | int)]
    names = {name for value in values for name in value}
    listed = any(isinstance(inner, list) for value in values for inner in value.values())
    numbered = all(map(str.isdecimal, names)) and not listed
    fields = all(map(FIELD.fullmatch, names)) or any(map(ABOUT.fullmatch, names))
    return bool(values) and not (passages or numbered or fields)


def simlm(head: Head) -> list[Binding]:
    """Bind rows of E5 and SimLM, which hold parallel lists of ids and scores inside an object."""
    if head.kinds.get("positives") != "struct" or head.kinds.get("negatives") != "struct":
        return []
    objects = [*head.typical("positives"), *head.typical("negatives")]
    inner = next((name for name in ("doc_id", "text") if all(name in value for value in objects)), None)
    if inner is None:
        return []

    def extract_for(query: str) -> Callable[[Any], tuple[Any, Any, Any]]:
        return lambda row: (row[query], row["positives"][inner], row["negatives"][inner])

    return [
        Binding(query, f"positives.{inner}", f"negatives.{inner}", extract_for(query),
                (query, "positives", "negatives"), inner=inner)
        for query in query_columns(head)
    ]  # fmt: skip


def ms_swift(head: Head) -> list[Binding]:
    """Bind chat messages. The query is a conversation's last user turn, a passage its last message."""
    names = ("messages", "positive_messages", "negative_messages")
    if head.kinds.get("messages") != "structs" or "positive_messages" not in head.kinds:
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        users = [turn for turn in row["messages"] if turn["role"] == "user"]
        negatives = row["negative_messages"]
        return users[-1]["content"], _last(row["positive_messages"]), negatives and _last(negatives)

    return [Binding("messages (last user turn)", *names[1:], extract, names)]


def _last(conversations: list[Any]) -> list[Any]:
    ends = [turns[-1] if isinstance(turns, list) else turns for turns in conversations]
    return [turn if isinstance(turn, str) else turn["content"] for turn in ends]


def nomic(head: Head) -> list[Binding]:
    """Bind rows of nomic, whose metadata name the columns of the triplet."""
    triplets = []
    for metadata in head.column("metadata"):
        try:
            query, positive, negative = metadata["objective"]["triplet"][0]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        if all(isinstance(name, str) and name in head.kinds for name in (query, positive, negative)):
            triplets.append((query, positive, negative))
    return [bind_columns(head, query, positive, [negative]) for query, positive, negative in dict.fromkeys(triplets)]


def instructor(head: Head) -> list[Binding]:
    """Bind rows of INSTRUCTOR and GritLM, where every text is an [instruction, text] pair."""
    names = ("query", "pos", "neg")
    if not set(names) <= set(head.kinds):
        return []
    queries = head.column("query")
    if 2 * sum(map(is_pair, queries)) <= len(queries):
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row["query"], *([row[side]] if is_pair(row[side]) else row[side] for side in ("pos", "neg"))

    return [Binding(*names, extract, names, pairs=True, note="the second of each [instruction, text] pair")]


def is_pair(value: Any) -> bool:
    """Tell whether a value is a list of two texts."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def objects(head: Head) -> list[Binding]:
    """Bind passages that are objects with a text. The query may be such an object, too."""
    queries = _with_text(head, columns_named(head, QUERY_NAMES)) or [
        key for key in columns_named(head, QUERY_NAMES) if head.kinds[key] == "text"
    ]
    positives, negatives = (_with_text(head, columns_named(head, names)) for names in (POSITIVE_NAMES, NEGATIVE_NAMES))
    bindings = []
    for query, positive, group in product(queries, positives, list(negative_groups(head, negatives))):
        binding = bind_columns(head, query, positive, group)
        if head.kinds[query] == "struct":
            binding = replace(binding, query=f"the text of {query}", extract=_query_inside(binding.extract))
        if head.kinds[query] in ("struct", "text"):
            bindings.append(binding)
    return bindings


def _with_text(head: Head, names: Iterable[str]) -> list[str]:
    """Return the columns of objects, or lists of objects, in which every value holds a text."""
    keys = [key for key in names if head.kinds[key] in ("struct", "structs")]
    return [key for key in keys if all(isinstance(_first_text(value), str) for value in head.typical(key))]


def _first_text(value: Any) -> Any:
    passages = value if isinstance(value, list) else [value]
    return next((passage_text(passage) for passage in passages if isinstance(passage, dict) and passage), None)


def _query_inside(extract: Callable[[Any], tuple[Any, Any, Any]]) -> Callable[[Any], tuple[Any, Any, Any]]:
    def with_query_text(row: Any) -> tuple[Any, Any, Any]:
        query, positives, negatives = extract(row)
        return _first_text(query), positives, negatives

    return with_query_text


def positional_triplet(head: Head) -> list[Binding]:
    """Bind unnamed rows of three columns, all texts or all ids. A fourth column of scores is ignored."""
    keys = list(head.kinds)
    if len(keys) == 4 and is_score(head, keys[-1]):
        keys.pop()
    if head.named or keys != [0, 1, 2] or head.kinds[0] not in SCALARS or positional_pair(head) or colbert(head):
        return []
    if not ({head.kinds[1], head.kinds[2]} <= SCALARS or {head.kinds[1], head.kinds[2]} <= LISTS - {"numbers"}):
        return []
    scalars = [head.column(key) for key in keys if head.kinds[key] in SCALARS]
    ids = [look_like_ids(values) or are_numbers(head, key) for key, values in enumerate(scalars)]
    if len(set(ids)) > 1 and not all(map(look_like_words, scalars)):
        return []
    if not ids[0] and any(head.is_tag(key) for key in (1, 2)):
        return []
    return [refuse_wider_rows(bind_columns(head, 0, 1, [2]), head)]


def positional_tuple(head: Head) -> list[Binding]:
    """Bind unnamed rows: query, positive, and negatives in all further columns."""
    if head.named or len(head.kinds) < 3 or any(kind not in SCALARS for kind in head.kinds.values()):
        return positional_triplet(head)
    if len(head.kinds) == 3:
        return [refuse_wider_rows(bind_columns(head, 0, 1, [2]), head)]
    return [Binding("0", "1", "2…", lambda row: (row[0], (row[1],), tuple(row[2:])), None)]


def refuse_wider_rows(binding: Binding, head: Head) -> Binding:
    """Return a binding that rejects rows wider than the head, so that they count as defects and are not truncated."""
    extract, width = binding.extract, len(head.kinds)

    def checked(row: Any) -> tuple[Any, Any, Any]:
        if len(row) > width:
            raise IndexError(f"{len(row)} cells, {width} in the first rows")
        return extract(row)

    return replace(binding, extract=checked)


def colbert(head: Head) -> list[Binding]:
    """Bind ColBERT's n-way rows: a query, then passages as [id, score]. The first passage is the positive."""
    if head.named or len(head.kinds) < 3 or any(head.kinds.get(key) not in ("ids", "numbers") for key in (1, 2)):
        return []
    if not all(len(cell) == 2 for row in head.rows for cell in list(row)[1:] if isinstance(cell, list)):
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row[0], (row[1][0],), tuple(passage[0] for passage in row[2:])

    return [Binding("0", "1", "2…", extract, None, note="[id, score] each, the first is positive")]


def positional_pair(head: Head) -> list[Binding]:
    """Bind unnamed rows that end with a label: query, (title,) passage, label."""
    n_columns = len(head.kinds)
    if head.named or n_columns not in (3, 4) or any(head.kinds[key] not in SCALARS for key in range(n_columns - 1)):
        return []
    label = n_columns - 1
    if not are_numbers(head, label) or {*map(as_number, head.column(label))} - BINARY_LABELS:
        return []
    return [refuse_wider_rows(pair_binding(0, 1, 2) if n_columns == 3 else pair_binding(0, 2, 3, 1), head)]


def ordered_columns(head: Head) -> list[Binding]:
    """Bind three text columns: those of NLI, or columns whose names differ only in a final number or letter a to d."""
    texts = [key for key, kind in head.kinds.items() if kind == "text" and not look_like_ids(head.column(key))]
    keys = [str(key) for key in texts if head.named and not NO_TEXTS.fullmatch(str(key))]
    numbered = len({re.sub(r"(?i)(?<![a-z])[a-d]$|\d+$", "", key) for key in keys}) == 1
    if len(keys) != 3 or not (numbered or keys == NLI) or any(map(says_negative, keys)):
        return []
    return [bind_columns(head, keys[0], keys[1], keys[2:], note="by the order of the columns")]
