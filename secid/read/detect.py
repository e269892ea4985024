"""List the known shapes of rows, and choose a file's binding from its first rows, or name the flags that decide."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from secid.errors import InputError, SchemaError, suggest_name
from secid.read import toolkits
from secid.read.binding import (
    LABEL_NAMES,
    LISTS,
    NEGATIVE_IDS,
    NEGATIVE_NAMES,
    PASSAGE_LIST_NAMES,
    PASSAGE_NAMES,
    POSITIVE_IDS,
    POSITIVE_NAMES,
    QUERY_ID_NAMES,
    QUERY_NAMES,
    Bind,
    Binding,
    ColumnKey,
    Head,
    bind_columns,
    columns,
    columns_named,
    composed,
    extract_rows,
    make_head,
    negative_groups,
    number_of,
    unnumbered,
)
from secid.read.collection import with_ids
from secid.read.columns import list_columns, pair_flags, ready_flags
from secid.read.refusals import (
    REFUSALS,
    refuse_labels,
    refuse_names,
    refuse_odd_lists,
    refuse_textless,
    refuse_titles,
    refuse_unread,
    refuse_words,
    undecided,
)
from secid.read.stream import Row, leaves, shorten
from secid.read.toolkits import are_miners, labelled_objects, list_binding, pair_binding, refuse_wider_rows
from secid.settings import Settings

# The table of shapes has one entry per family, each with an example that a test reads.
#
# To add a family, add an entry. Within a rank, the order decides only which name is shown if two entries read the same
# columns: the first one's. If two entries read different columns, detection refuses the file and lists both.


@dataclass(frozen=True, slots=True)
class Shape:
    """A family of record formats.

    example : rows that the shape reads as query "q", positive "p" (title "T"), negatives "n", "m", "h"; as ids,
              query 11, positives 1 and d1, negatives 2, 3 and d2.
    ids     : True if passages must be ids, False if they must be texts, None for either.
    rank    : 0 for specific column names, 1 for general names, 2 for a last resort. Shapes count only if no shape of
              lower rank fits.
    by_name : the binder for `--format` with this name, if it accepts more rows than detection; else None.
    """

    name: str
    title: str
    bind: Bind
    example: tuple[Row, ...]
    ids: bool | None = None
    rank: int = 0
    by_name: Bind | None = None


def _passage(text: str) -> dict[str, str]:
    return {"docid": "7", "title": "T", "text": text}


SHAPES = (
    Shape("tevatron", "Tevatron v1, RLHN", columns(QUERY_NAMES, "positive_passages", "negative_passages", "lists"),
          ({"query": "q", "positive_passages": [_passage("p")], "negative_passages": [_passage("n")]},)),
    Shape("tevatron-ids", "Tevatron v2",
          columns(QUERY_NAMES, "positive_document_ids", "negative_document_ids", "lists"),
          ({"query_id": "1", "query_text": "q", "positive_document_ids": ["d1"], "negative_document_ids": ["d2"]},),
          ids=True),
    Shape("instructor", "INSTRUCTOR, GritLM", toolkits.instructor,
          ({"query": ["find it", "q"], "pos": ["find it", "p"], "neg": [["find it", "n"]]},)),
    Shape("flagembedding", "FlagEmbedding", columns("query", "pos", "neg", "lists"),
          ({"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [0.9], "neg_scores": [0.2], "prompt": "x"},)),
    Shape("dpr", "DPR, Contriever", toolkits.dpr,
          ({"question": "q", "answers": ["a"], "positive_ctxs": [_passage("p")], "negative_ctxs": [_passage("n")],
          "hard_negative_ctxs": [_passage("h")]},)),
    Shape("ms-swift", "ms-swift", toolkits.ms_swift, ({"messages": [{"role": "user", "content": "q"}],
          "positive_messages": [[{"role": "user", "content": "p"}]],
          "negative_messages": [[{"role": "user", "content": "n"}]]},)),
    Shape("nomic", "nomic", toolkits.nomic, ({"query": "q", "document": "p", "negatives": ["n"],
          "metadata": {"objective": {"self": [], "paired": [], "triplet": [["query", "document", "negatives"]]}}},),
          ids=False),
    Shape("simlm", "E5, SimLM", toolkits.simlm,
          ({"query_id": "1", "query": "q", "positives": {"doc_id": ["d1"], "score": [1.0]},
          "negatives": {"doc_id": ["d2"], "score": [0.5]}},)),
    Shape("miners", "several miners in one row", toolkits.several_miners,
          ({"qid": 11, "pos": [1], "neg": {"bm25": [2], "tas-b": [{"pid": 3, "ce-score": -1.5}]}},),
          by_name=toolkits.all_miners),
    Shape("e5-mistral", "E5-mistral synthetic",
          columns("user_query", "positive_document", "hard_negative_document", "cells"),
          ({"user_query": "q", "positive_document": "p", "hard_negative_document": "n"},), ids=False),
    Shape("cohere", "Cohere", columns("query", "relevant_passages", "hard_negatives", "lists"),
          ({"query": "q", "relevant_passages": ["p"], "hard_negatives": ["n"]},)),
    Shape("nvidia", "NVIDIA", columns("query|question", "pos_doc", "neg_doc", "any"),
          ({"query": "q", "pos_doc": {"text": "p"}, "neg_doc": ["n"]},)),
    Shape("hotchpotch", "hotchpotch", columns("query", "pos_text", "negs_text", "lists"),
          ({"query": "q", "pos_text": "p", "negs_text": ["n"], "pos_score": 0.9, "negs_score": [0.2]},)),
    Shape("simcse", "SimCSE", columns("sent0", "sent1", "hard_neg", "cells"),
          ({"sent0": "q", "sent1": "p", "hard_neg": "n"},), ids=False),
    Shape("gpt-table", "GPT-made table", columns("query_text", "gold_passage", r"(hard_)?negative(_\d+)?", "cells"),
          ({"query_text": "q", "gold_passage": "p", "hard_negative": "n"},), ids=False),
    Shape("labelled-list", "labelled list", toolkits.labelled_list,
          ({"query": "q", "docs": ["p", "n"], "labels": [1, 0]},)),
    Shape("rocketqa", "RocketQA, rows that end on a label", toolkits.positional_pair,
          (["q", "T", "p", "1"], ["q", "T", "n", "0"])),
    Shape("labelled-pair", "labelled pair", toolkits.labelled_pair,
          ({"query": "q", "passage": "p", "label": 1}, {"query": "q", "passage": "n", "label": 0}), rank=1),
    Shape("colbert", "ColBERT n-way", toolkits.colbert, ([11, [1, 0.9], [2, 0.1]],), ids=True),
    Shape("id-rows", "rows of ids (MS MARCO, ColBERT, GPL)", toolkits.positional_triplet, ([11, 1, 2],), ids=True),
    Shape("rows", "rows without names (JSON arrays, MS MARCO triples)", toolkits.positional_triplet, (["q", "p", "n"],),
          ids=False, by_name=toolkits.positional_tuple),
    Shape("ids", "ids and a corpus", columns((*QUERY_NAMES, *QUERY_ID_NAMES), POSITIVE_NAMES, NEGATIVE_NAMES, "cells"),
          ({"query": 11, "positive": 1, "negative": 2},), ids=True, rank=1),
    Shape("triplet", "sentence-transformers triplet or n-tuple",
          columns((*QUERY_NAMES, *QUERY_ID_NAMES), POSITIVE_NAMES, NEGATIVE_NAMES, "cells"),
          ({"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m"},), ids=False, rank=1),
    Shape("lists", "lists of positives and negatives (reranking)",
          columns((*QUERY_NAMES, *QUERY_ID_NAMES), POSITIVE_NAMES, NEGATIVE_NAMES, "lists"),
          ({"query": "q", "positive": ["p"], "negative": ["n"]},), rank=1),
    Shape("objects", "objects with one text each", toolkits.objects,
          ({"query": {"text": "q"}, "positive": {"title": "T", "text": "p"}, "negative": {"text": "n"}},),
          ids=False, rank=1),
    Shape("text-and-ids", "texts of positives, ids of negatives",
          columns((*QUERY_NAMES, *QUERY_ID_NAMES), POSITIVE_NAMES, NEGATIVE_IDS, "any", positive_texts=True),
          ({"query": "q", "positive": "p", "negative_ids": ["d2"]},), ids=True, rank=2),
    Shape("id-columns", "columns named as ids",
          columns((*QUERY_NAMES, *QUERY_ID_NAMES), POSITIVE_IDS, NEGATIVE_IDS, "any"),
          ({"query_id": "11", "positive_id": "d1", "negative_ids": ["d2"]},), ids=True, rank=2),
    Shape("ordered-triplet", "three columns of text, by their order", toolkits.ordered_columns,
          ({"premise": "q", "entailment": "p", "contradiction": "n"},), ids=False, rank=2),
)  # fmt: skip

RUN = "trec"
"""Name of the format of runs. `read.evaluation` makes rows from their lines."""
FORMAT_TITLES = {**{shape.name: shape.title for shape in SHAPES}, RUN: "TREC run, with the judgements of a collection"}
"""Values of `--format` -> titles."""


# The binding of a file from its first rows, or an error that names the flags that decide.


def detect(rows: Sequence[Row], settings: Settings, path: str, *, without_negatives: bool = False) -> Binding:
    """Return the only binding that fits the first rows of a file.

    rows              : first rows that could be parsed, at least one.
    Raises SchemaError if no shape fits, or several do, and lists the candidates, the columns and the flags that
    decide. Raises InputError if the collection resolves none of the ids.
    """
    head = make_head(rows)
    if not head.named and settings.header is None:
        refuse_names(head, path)
    if settings.source_column is not None and settings.source_column not in head.kinds:
        raise _no_column(head, "--source-column", settings.source_column, path)
    if without_negatives and (pair := _pair(head, settings, path)):
        binding = pair
    elif settings.query_column or settings.positive_column or settings.negative_column or settings.label_column:
        binding = replace(_by_flags(head, settings, path), schema="columns")
        binding = with_ids(binding, head, settings, path, texts=bool(settings.format))
        note = "; ".join(filter(None, (binding.note, _note_on_unread(binding, head))))
        binding = replace(binding, note=note)
    else:
        binding = _detected(head, settings, path, pairs=without_negatives and not columns_named(head, NEGATIVE_NAMES))
    binding = replace(binding, open_roles=_open_roles(binding, settings))
    if settings.titles:
        refuse_titles(binding, head, path)
    empty = refuse_unread(binding, head, settings.source_column, path)
    refuse_labels(binding, head, settings, path)
    refuse_odd_lists(binding, head, path)
    refuse_textless(binding, head, path)
    if not head.named:
        return binding
    if settings.negative_column and _column_named(head, settings.negative_column) is not None:
        binding = replace(binding, numbered_name="")  # --negative-column with a full name selects only this column
    return replace(binding, empty_columns=empty, head_columns=frozenset(map(str, head.kinds)).difference(empty))


def _note_on_unread(binding: Binding, head: Head) -> str:
    """Return a note that lists unread columns named like a bound one but with another number; "" if there are none."""
    columns = binding.columns or ()
    stems = {unnumbered(name) for name in columns[1:]}
    left = [str(key) for key in head.kinds if key not in columns and unnumbered(str(key)) in stems]
    return f"left out: {', '.join(left)}" if left else ""


def _open_roles(binding: Binding, settings: Settings) -> frozenset[str]:
    if binding.labelled and (settings.format or settings.label_column):
        return frozenset()
    flags = {"positive": settings.positive_column, "negative": settings.negative_column}
    return frozenset(role for role, column in flags.items() if not column)


def _detected(head: Head, settings: Settings, path: str, *, pairs: bool) -> Binding:
    if not settings.format:
        for refusal in REFUSALS:
            if not refusal.late and refusal.fits(head):
                raise refusal.error(head, path)
    shapes = _shapes(settings.format, path) if settings.format else SHAPES
    readings = _best_readings(shapes, head, settings, path)
    if len(readings) > 1:
        listed = "\n".join(f"    {binding.schema}: {binding.mapping}" for binding in readings)
        choices = " or ".join(dict.fromkeys(_deciding_flag(binding, readings) for binding in readings))
        raise SchemaError(f"several readings fit:\n{listed}{list_columns(head)}", where=path, remedy=f"use {choices}")
    if not readings:
        raise _unknown(head, settings, path, pairs=pairs)
    return readings[0]


def _deciding_flag(binding: Binding, readings: Sequence[Binding]) -> str:
    """Return the flag that selects this reading: its format, or the column that differs from the other readings."""
    if len({reading.schema for reading in readings}) == len(readings):
        return f"--format {binding.schema}"
    roles = {"negative": "negatives", "positive": "positives", "query": "query"}
    values = {role: [getattr(reading, name) for reading in readings] for role, name in roles.items()}
    role = next((role for role in roles if len(set(values[role])) == len(readings)), "negative")
    return f"--{role}-column {unnumbered(getattr(binding, roles[role]).partition('…')[0])}"


def _best_readings(shapes: Sequence[Shape], head: Head, settings: Settings, path: str) -> list[Binding]:
    """Return the fitting readings of the lowest rank, one for each set of columns.

    A reading counts only if it fits at least half as many rows as the best one. Otherwise it depends on the columns
    of a few odd rows.
    """
    readings: dict[tuple[str, str, str], tuple[int, int, Binding]] = {}
    unresolved: InputError | None = None
    for shape in sorted(shapes, key=lambda shape: shape.rank):
        bind = shape.by_name if settings.format and shape.by_name else shape.bind
        for binding in bind(head):
            key = (binding.query, binding.positives, binding.negatives)
            if key in readings:
                continue
            binding = replace(binding, schema=shape.name)
            try:
                binding = with_ids(binding, head, settings, path, texts=bool(settings.format) and shape.ids is not True)
            except InputError as error:
                unresolved = unresolved or error
                continue
            if shape.ids is None or shape.ids == binding.passage_ids:
                n_fitting = sum(all(map(_is_filled, cells)) for cells in extract_rows(binding, head))
                readings[key] = (shape.rank, n_fitting, binding)
    if unresolved and not readings:
        raise unresolved
    most = max((n_fitting for _, n_fitting, _ in readings.values()), default=0)
    fitting = [(rank, binding) for rank, n_fitting, binding in readings.values() if 2 * n_fitting >= most]
    lowest = min((rank for rank, _ in fitting), default=0)
    return [binding for rank, binding in fitting if rank == lowest]


def _is_filled(cell: Any) -> bool:
    return any(map(_is_filled, cell)) if isinstance(cell, tuple) else cell is not None and cell != []


def _unknown(head: Head, settings: Settings, path: str, *, pairs: bool) -> SchemaError:
    """Return the error for rows that no shape fits. pairs: whether queries and positives would be enough."""
    if settings.format:
        row = _shapes(settings.format, path)[0].example[0]
        in_table = isinstance(row, list) and {".csv", ".tsv"} & set(PurePath(path).suffixes)
        example = " <tab> ".join(map(str, row)) if in_table else shorten(json.dumps(row), 400)
        message = f"does not match --format {settings.format}{list_columns(head)}"
        return SchemaError(message, where=path, remedy=f"a row of that schema: {example}")
    if "bytes" in head.kinds.values():
        message = f"columns hold bytes, expected texts{list_columns(head)}"
        return SchemaError(message, where=path, remedy="decode them to UTF-8 text first")
    labels = columns_named(head, ("(.+[_ -])?labels?|relevance",))
    refuse_words([value for key in labels for value in leaves(head.column(key))], path)
    if pairs:
        message = f"no clear query column or positive column{list_columns(head)}"
        return SchemaError(message, where=path, remedy=pair_flags(head))
    for refusal in REFUSALS:
        if refusal.late and refusal.fits(head):
            return refusal.error(head, path)
    return SchemaError(
        f"no known schema of records with negatives{list_columns(head)}", where=path, remedy=ready_flags(head)
    )


def _shapes(name: str, path: str) -> tuple[Shape, ...]:
    shapes = tuple(shape for shape in SHAPES if shape.name == name)
    if shapes:
        return shapes
    known = "known: " + ", ".join(FORMAT_TITLES)
    raise SchemaError(f"--format {name!r} is unknown", where=path, remedy=suggest_name(name, FORMAT_TITLES, known))


def _by_flags(head: Head, settings: Settings, path: str) -> Binding:
    """Return the binding of the columns that flags name. A role without a flag is bound by its usual column names."""
    query = _column(head, settings.query_column, QUERY_NAMES, "--query-column", path)
    if settings.label_column:
        return _labelled(head, query, settings, path)
    positive = _column(head, settings.positive_column, POSITIVE_NAMES, "--positive-column", path)
    if settings.negative_column:
        negatives = _negative_columns(head, settings.negative_column, path)
    else:
        groups = list(negative_groups(head, columns_named(head, NEGATIVE_NAMES)))
        if len(groups) != 1:
            keys = [key for group in groups for key in group]
            raise undecided(head, keys, "--negative-column is needed too", path, ready_flags(head))
        negatives = groups[0]
    splits = len(negatives) == 1 and head.kinds[negatives[0]] == "struct" and are_miners(head, negatives[0])
    binding = bind_columns(head, query, positive, negatives, splits=splits, either=splits)
    return binding if head.named else refuse_wider_rows(binding, head)


def _pair(head: Head, settings: Settings, path: str) -> Binding | None:
    """Return the binding of queries and positives; None if either column is unclear.

    Return None also if there are columns of negatives or labels, or with --format, --negative-column or
    --label-column.
    """
    if settings.format or settings.negative_column or settings.label_column or columns_named(head, NEGATIVE_NAMES):
        return None
    try:
        query = _column(head, settings.query_column, QUERY_NAMES, "--query-column", path)
        positive = _column(head, settings.positive_column, POSITIVE_NAMES, "--positive-column", path)
    except SchemaError:
        return None
    if set(columns_named(head, LABEL_NAMES)) - {positive}:
        return None
    binding = bind_columns(head, query, positive, [positive])
    bound = binding.extract
    columns = None if binding.columns is None else binding.columns[:2]
    binding = replace(
        binding,
        schema="pairs",
        negatives="none",
        columns=columns,
        numbered_name="",
        extract=lambda row: (*bound(row)[:2], ()),
    )
    return with_ids(binding, head, settings, path, texts=False)


def _labelled(head: Head, query: ColumnKey, settings: Settings, path: str) -> Binding:
    """Return the binding of rows with a passage and its label, or with a list of passages and their labels."""
    if settings.negative_column:
        message = "--label-column and --negative-column both set the negatives"
        raise undecided(head, [], message, path, "use only one of them")
    passage = _column(
        head,
        settings.positive_column,
        (*PASSAGE_NAMES, *PASSAGE_LIST_NAMES, *POSITIVE_NAMES),
        "--positive-column",
        path,
    )
    label_key = settings.label_column or ""
    objects = head.typical(passage) if head.kinds[passage] == "structs" else []
    if any(isinstance(item, dict) and label_key in item for items in objects for item in items):
        return labelled_objects(query, passage, label_key)
    label = _column(head, settings.label_column, (), "--label-column", path)
    if head.kinds[passage] in LISTS:
        return list_binding(query, passage, label)
    return pair_binding(query, passage, label)


def _column(head: Head, name: str | None, tiers: tuple[str, ...], flag: str, path: str) -> ColumnKey:
    if name is not None:
        key = _column_named(head, name)
        if key is None:
            raise _no_column(head, flag, name, path)
        return key
    keys = columns_named(head, tiers)
    if len(keys) != 1:
        raise undecided(head, keys, f"{flag} is needed too", path, ready_flags(head))
    return keys[0]


def _no_column(head: Head, flag: str, name: str, path: str) -> SchemaError:
    near = difflib.get_close_matches(name, list(map(str, head.kinds)), n=1)
    return undecided(head, [], f"{flag} {name!r}: no such column", path, f"{flag} {near[0] if near else 'NAME'}")


def _column_named(head: Head, name: str) -> ColumnKey | None:
    """Return the column with that name (in any Unicode composition) or position; None without one."""
    if not head.named:
        return int(name) if name.isdecimal() and int(name) in head.kinds else None
    if name in head.kinds:
        return name
    return next((key for key in head.kinds if composed(str(key)) == composed(name)), None)


def _negative_columns(head: Head, prefix: str, path: str) -> list[ColumnKey]:
    key = _column_named(head, prefix)
    if key is not None:
        return [key]
    pattern = re.escape(composed(prefix)) + r"[_ -]?\d+"
    numbered = [name for name in head.kinds if re.fullmatch(pattern, composed(str(name)))]
    if not numbered:
        raise _no_column(head, "--negative-column", prefix, path)
    return sorted(numbered, key=lambda name: number_of(str(name)))
