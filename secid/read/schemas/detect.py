"""From the first rows of a file to its binding, or to an error that says what decides."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from secid.errors import SchemaError
from secid.read.passages import leaves
from secid.read.rows import Row, shorten, shown
from secid.read.schemas.advice import column_flags, negative_flag, seen
from secid.read.schemas.binding import NOT_THE_SHAPE, Binding, bind_columns, filled, number_of, unnumbered
from secid.read.schemas.doubts import (
    refuse_guesses,
    refuse_lists_in_lists,
    refuse_names,
    refuse_textless,
    refuse_unread,
    refuse_words,
)
from secid.read.schemas.head import LISTS, Head, Key, look_like_ids, make_head
from secid.read.schemas.joined import refuse_joined
from secid.read.schemas.order import by_order, no_wider
from secid.read.schemas.patterns import NEGATIVE, POSITIVE, QUERY, composed, fits, named, negative_groups
from secid.read.schemas.refusals import REFUSALS
from secid.read.schemas.special import (
    DOCS,
    PASSAGE,
    QUERY_ID,
    are_miners,
    as_label,
    list_binding,
    pair_binding,
)
from secid.read.schemas.table import SHAPES, Shape
from secid.read.schemas.titles import with_titles
from secid.settings import Settings

SCALAR = r"(?:-?\d[\d.eE+-]{0,20}|None|null|[Tt]rue|[Ff]alse|nan|NaN)"
LIST_BEGINS = re.compile(rf"""array\(|\{{\s*["']|[\[(]\s*(?:["']|{SCALAR}\s*,)|\[\s*(?:[\[({{]|array\()""")
LIST_ENDS = re.compile(rf"""(?:["'\])}}]|,|[,:]\s*{SCALAR})\s*[\])}}]$|dtype=[^()]+\)$""")
WRITTEN_NUMBERS = re.compile(r"\[[\s\d.,-]*\]")
"""What a list, tuple, array or object begins and ends with where Python, numpy or JSON has printed it."""

LAST = 64
"""Characters in which its end is looked for, so that long texts cost nothing."""


def detect(rows: Sequence[Row], settings: Settings, path: str) -> Binding:
    """The one binding that fits the first rows of a file.

    rows : at least one good row.
    Raises SchemaError where no shape fits or several do, listing the candidates, the columns seen
    and the flags that decide.
    """
    head = make_head(rows)
    if not head.named and settings.header is None:
        refuse_names(head, path)
    if settings.source_column is not None and settings.source_column not in head.kinds:
        raise _undecided(head, f"--source-column {settings.source_column!r} is not there", [], path)
    if settings.query_column or settings.positive_column or settings.negative_column or settings.label_column:
        binding = _with_ids(_overruled(head, settings, path), head, settings)
        if settings.format and not (settings.collection or settings.corpus or settings.queries):
            binding = replace(binding, passage_ids=False, query_ids=False)
        note = "; ".join(filter(None, (binding.note, _passed_over(binding, head))))
        binding = replace(binding, schema="columns", title="columns named by flags", note=note)
    else:
        binding = _detected(head, settings, path)
    binding = replace(with_titles(binding, head, joined=settings.titles), counted=_unsettled(binding, settings))
    beside = refuse_unread(binding, head, settings.source_column, path)
    _check_labels(binding, head, settings, path)
    _refuse_written_lists(binding, head, path)
    refuse_lists_in_lists(binding, head, path)
    refuse_textless(binding, head, path)
    if not settings.format:
        refuse_joined(binding, head, path)
    if not head.named:
        return binding
    if (
        settings.negative_column and _named_so(head, settings.negative_column) is not None
    ):  # named in full it is the only one that is asked for
        binding = replace(binding, numbered="")
    return replace(binding, beside=beside, known=frozenset(map(str, head.kinds)).difference(beside))


def _passed_over(binding: Binding, head: Head) -> str:
    """The columns that differ from one that is read in their number alone, in words; "" where there is none."""
    columns = binding.columns or ()
    stems = {unnumbered(name) for name in columns[1:]}
    left = [str(key) for key in head.kinds if key not in columns and unnumbered(str(key)) in stems]
    return f"left out: {', '.join(left)}" if left else ""


def _unsettled(binding: Binding, settings: Settings) -> frozenset[str]:
    """The roles whose columns no flag of the user settles."""
    if binding.labelled and (settings.format or settings.label_column):
        return frozenset()
    named = {"positive": settings.positive_column, "negative": settings.negative_column}
    return frozenset(role for role, column in named.items() if not column)


def _detected(head: Head, settings: Settings, path: str) -> Binding:
    if not settings.format:
        _refuse_early(head, path)
    found = _best_readings(_chosen(settings.format, path) if settings.format else SHAPES, head, settings)
    if len(found) == 1:
        if not settings.format:
            refuse_guesses(found[0], head, path)
        return found[0]
    if found:
        raise SchemaError(
            "several readings fit:\n"
            + "\n".join(f"    {binding.schema}: {binding.mapping}" for binding in found)
            + f"{seen(head)}",
            where=path,
            remedy=column_flags(head),
        )
    raise _unknown(head, settings, path)


def _best_readings(shapes: Sequence[Shape], head: Head, settings: Settings) -> list[Binding]:
    """The readings of the lowest rank among those that fit the head's rows; one for each set of columns.

    A reading that fits less than half as many rows as the best one rests on columns of a few odd
    rows, so it does not count.
    """
    found: dict[tuple[str, str, str], tuple[int, int, Binding]] = {}
    for shape in sorted(shapes, key=lambda shape: shape.rank):
        for binding in _bindings(shape, head, settings):
            key = (binding.query, binding.positives, binding.negatives)
            if key not in found:
                found[key] = (shape.rank, _n_fitting(binding, head), binding)
    most = max((n_fitting for _, n_fitting, _ in found.values()), default=0)
    fitting = [(rank, binding) for rank, n_fitting, binding in found.values() if 2 * n_fitting >= most]
    lowest = min((rank for rank, _ in fitting), default=0)
    return [binding for rank, binding in fitting if rank == lowest]


def _n_fitting(binding: Binding, head: Head) -> int:
    """Rows in which the binding finds a query, a positive and a negative, none of them null or an empty list."""
    n_fitting = 0
    for row in head.rows:
        try:
            cells = binding.extract(filled(row, binding))
        except NOT_THE_SHAPE:
            continue
        n_fitting += all(_is_there(cell) for cell in cells)
    return n_fitting


def _is_there(cell: Any) -> bool:
    return any(map(_is_there, cell)) if isinstance(cell, tuple) else cell is not None and cell != []


def _bindings(shape: Shape, head: Head, settings: Settings) -> list[Binding]:
    """A shape's readings of a head.

    Where the user named the schema, words that look like ids are texts, unless the schema is one
    of ids or a collection was given.
    """
    bindings = [_with_ids(binding, head, settings) for binding in shape.bind(head)]
    if settings.format and not (shape.ids or (shape.ids is None and (settings.collection or settings.corpus))):
        bindings = [replace(binding, passage_ids=False, query_ids=False) for binding in bindings]
    return [
        replace(binding, schema=shape.name, title=shape.title)
        for binding in bindings
        if shape.ids is None or shape.ids == binding.passage_ids
    ]


def _with_ids(binding: Binding, head: Head, settings: Settings) -> Binding:
    """The binding with `query_ids` and `passage_ids` set from what the head holds."""
    queries: list[Any] = []
    passages: list[Any] = []
    for row in head.rows:
        try:
            query, *cells = binding.extract(filled(row, binding))
        except NOT_THE_SHAPE:
            continue
        queries.append(query)
        passages.extend(leaves(cells[:1] if binding.labelled else cells))
    if binding.pairs:
        return binding
    passage_ids = look_like_ids(passages)
    whole = bool(queries) and all(type(query) is int or str(query).isdecimal() for query in queries)
    # A word with a digit may be a query, unless its column or a file of queries says otherwise.
    told = passage_ids or fits(binding.query, QUERY_ID) or settings.collection or settings.queries
    return replace(binding, passage_ids=passage_ids, query_ids=whole or bool(told and look_like_ids(queries)))


def _refuse_early(head: Head, path: str) -> None:
    """The shapes that would else be taken for something they are not."""
    for refusal in REFUSALS:
        if not refusal.late and refusal.fits(head):
            raise SchemaError(refusal.message, where=path, remedy=refusal.remedy)


def _unknown(head: Head, settings: Settings, path: str) -> SchemaError:
    if settings.format:
        example = _chosen(settings.format, path)[0].example
        return SchemaError(
            f"the file has not the shape of --format {settings.format}{seen(head)}",
            where=path,
            remedy=f"a row of that schema: {shorten(json.dumps(example[0]), 400)}",
        )
    if "bytes" in head.kinds.values():
        return SchemaError(
            f"columns of bytes, where texts are expected{seen(head)}", where=path, remedy="make them text (UTF-8) first"
        )
    labels = named(head, ("(.+[_ -])?labels?|relevance",))
    refuse_words([value for key in labels for value in leaves(head.column(key))], path)
    for refusal in REFUSALS:
        if refusal.late and refusal.fits(head):
            remedy = f"{negative_flag(head)}; {refusal.remedy}" if refusal is REFUSALS[-1] else refusal.remedy
            return SchemaError(f"{refusal.message}{seen(head)}", where=path, remedy=remedy)
    remedy = column_flags(head)
    return SchemaError(f"no known schema of records with negatives{seen(head)}", where=path, remedy=remedy)


def _chosen(name: str, path: str) -> tuple[Shape, ...]:
    for shape in SHAPES:
        if shape.name == name:
            return (shape,)
    near = difflib.get_close_matches(name, [shape.name for shape in SHAPES], n=1)
    raise SchemaError(
        f"--format {name!r} is unknown" + (f"; did you mean {near[0]!r}?" if near else ""),
        where=path,
        remedy="known: " + ", ".join(shape.name for shape in SHAPES),
    )


def _overruled(head: Head, settings: Settings, path: str) -> Binding:
    """Columns named by flags; a role without a flag is found by its name."""
    query = _column(head, settings.query_column, QUERY, "--query-column", path)
    if settings.label_column:
        return _labelled(head, query, settings, path)
    positive = _column(head, settings.positive_column, POSITIVE, "--positive-column", path)
    if settings.negative_column:
        negatives = _negative_columns(head, settings.negative_column, path)
    else:
        groups = list(negative_groups(head, named(head, NEGATIVE)))
        if len(groups) != 1:
            raise _undecided(head, "--negative-column", [str(key) for group in groups for key in group], path)
        negatives = groups[0]
    splits = len(negatives) == 1 and head.kinds[negatives[0]] == "struct" and are_miners(head, negatives[0])
    binding = bind_columns(head, query, positive, negatives, splits=splits, either=splits)
    return binding if head.named else no_wider(binding, head)


def _labelled(head: Head, query: Key, settings: Settings, path: str) -> Binding:
    """A passage and its label a row, or a list of either."""
    if settings.negative_column:
        raise _undecided(head, "--label-column makes the negatives, --negative-column names others", [], path)
    label = _column(head, settings.label_column, (), "--label-column", path)
    passage = _column(head, settings.positive_column, (*PASSAGE, *DOCS, *POSITIVE), "--positive-column", path)
    if head.kinds[passage] in LISTS:
        return list_binding(query, passage, label)
    return pair_binding(query, passage, label, None)


def _column(head: Head, given: str | None, tiers: tuple[str, ...], flag: str, path: str) -> Key:
    if given is not None:
        key = _named_so(head, given)
        if key is not None:
            return key
        raise _undecided(head, f"{flag} {given!r} is not there", [], path)
    found = named(head, tiers)
    if len(found) != 1:
        raise _undecided(head, flag, found, path)
    return found[0]


def _named_so(head: Head, given: str) -> Key | None:
    """The column of that name, however its letters are composed, or at that position; None where there is none."""
    if not head.named:
        return int(given) if given.isdecimal() and int(given) in head.kinds else None
    if given in head.kinds:
        return given
    return next((key for key in head.kinds if composed(str(key)) == composed(given)), None)


def _negative_columns(head: Head, given: str, path: str) -> list[Key]:
    key = _named_so(head, given)
    if key is not None:
        return [key]
    pattern = re.escape(composed(given)) + r"[_ -]?\d+"
    numbered = [name for name in head.kinds if re.fullmatch(pattern, composed(str(name)))]
    if not numbered:
        raise _undecided(head, f"--negative-column {given!r} is not there", [], path)
    return sorted(numbered, key=lambda name: number_of(str(name)))


def _undecided(head: Head, flag: str, found: list[str], path: str) -> SchemaError:
    message = flag if " " in flag else f"{flag} is needed too: " + (
        f"{', '.join(found)} all fit" if found else "no column's name says it"
    )  # fmt: skip
    return SchemaError(f"{message}{seen(head)}", where=path, remedy=column_flags(head))


def _refuse_written_lists(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where lists stand as text: read as they are, brackets and all would be one passage."""
    keys: Sequence[Key] = binding.columns if binding.columns is not None else list(head.kinds)
    for key in keys:
        texts = [value for value in head.column(key) if isinstance(value, str)]
        if texts and 2 * sum(map(_is_written, texts)) > len(texts):
            raise SchemaError(
                f"the column {key} holds lists written as text: {shorten(texts[0], 60)}",
                where=path,
                remedy="write them as lists: in pandas `to_json(path, orient='records', lines=True)`",
            )


def _is_written(text: str) -> bool:
    text = text.strip()
    ends = LIST_BEGINS.match(text) and LIST_ENDS.search(text[-LAST:])
    return bool(ends or WRITTEN_NUMBERS.fullmatch(text))


def _check_labels(binding: Binding, head: Head, settings: Settings, path: str) -> None:
    """Scores are thresholded only when the user says how; single odd labels are left to be counted."""
    if not binding.labelled or settings.positive_score is not None:
        return
    labels: list[object] = []
    for row in head.rows:
        try:
            found = binding.extract(row)[2]
        except NOT_THE_SHAPE:
            continue
        labels.extend(found if isinstance(found, list) else [found])
    # `secid check` takes any number of bad rows, but what the labels mean must be said there too.
    single = settings.max_bad_fraction if math.isfinite(settings.max_bad_fraction) else Settings().max_bad_fraction
    refuse_words(labels, path, min(single, 0.5))
    if binding.labelled == "pair" and not settings.format and len(set(map(shown, labels))) == 1 and by_order(head):
        raise SchemaError(
            f"labelled pairs ({binding.mapping}), or three columns of text in order (query, positive, negative)? "
            "The label is the same in all rows seen",
            where=path,
            remedy="--format labelled-pair or --format ordered-triplet decides",
        )
    odd = [number for label in labels if (number := as_label(label)) not in (None, 0.0, 1.0)]
    if len(odd) > single * len(labels):
        some = ", ".join(f"{number:g}" for number in list(dict.fromkeys(odd))[:6])
        raise SchemaError(
            f"labels other than 0 and 1 ({some}): which of them are positives?",
            where=path,
            remedy="--positive-score X makes passages scored X or more the positives and the others the negatives",
        )
