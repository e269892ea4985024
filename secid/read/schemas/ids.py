"""Whether a file holds ids or texts: the collection decides, else the columns' names and the values' looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from secid.errors import InputError
from secid.read.collection import open_collection
from secid.read.passages import leaves, passage_id, passage_text
from secid.read.schemas.binding import Binding, extracted
from secid.read.schemas.head import Head, Key, look_like_ids, look_like_names, look_like_words
from secid.read.schemas.patterns import NEGATIVE_IDS, PASSAGE_ID, POSITIVE_IDS, QUERY_ID, fits
from secid.settings import Settings, flag_of

RESOLVED = 0.1
"""Share of a column's values in the collection that makes them ids: a small corpus lacks many, and a text is no id."""

ASKED = 2000
"""Values that are asked for: enough for a share, and milliseconds."""

LONGEST = 512
"""Characters of the longest value that is asked for as an id."""

ID_COLUMN = (r"(.*[_-])?ids?|[qp]ids?|doc_?ids?", *PASSAGE_ID, *QUERY_ID, POSITIVE_IDS, NEGATIVE_IDS)
"""Names of columns that never hold texts."""

AS_TEXTS = {"ids": "triplet", "id-rows": "rows", "columns": "triplet"}
IDS_ALONE = frozenset({"id-columns", "text-and-ids", "tevatron-ids", "colbert"})
"""Schemas that read the same columns as texts, and those whose columns hold ids alone."""


def with_ids(binding: Binding, head: Head, settings: Settings, path: str, *, texts: bool) -> Binding:
    """The binding with `query_ids` and `passage_ids`: whether ids replace the texts.

    With a collection, values that it holds are ids, and single words are asked about; without one, whole numbers and
    words with a digit, `_` or `:` are ids, and words next to ids of queries. A column named as ids never holds texts.
    texts : the user says by `--format` that words are texts. Raises InputError where the collection holds none.
    """
    if binding.pairs:
        return binding
    if binding.positive_texts:
        positives = [value for cells in extracted(binding, head) for value in leaves(cells[1])]
        if _are_ids([value for value in positives if isinstance(value, str | int)], settings):
            binding = replace(binding, positive_texts=False)
    queries, passages = _cells(binding, head)
    columns = (*(binding.columns or ())[1:], binding.inner)
    columns = columns[:1] if binding.labelled else columns
    named = any(fits(name, ID_COLUMN) for name in columns) or _are_references(passages)
    values = [value for value in leaves(passages) if isinstance(value, str | int)][:ASKED]
    given = settings.collection or settings.corpus or settings.queries
    query_named = fits(binding.query, ID_COLUMN)
    whole = bool(queries) and all(type(query) is int or str(query).isdecimal() for query in queries)
    collection = open_collection(settings) if given and (values or queries) else None
    if collection is not None and collection.has("passages"):
        n = _n_resolved(values, collection.passage)
        looks = look_like_ids(values) or look_like_words(values)
        passage_ids = named or n >= RESOLVED * max(1, len(values)) or (looks and not texts)
        if passage_ids and values and not n:
            raise _unresolved("passage", values, binding, path, certain=named)
    else:
        looks = look_like_ids(values) or look_like_names(values)
        looks = looks or ((query_named or whole) and look_like_words(values))
        passage_ids = named or (looks and not texts)
    query_ids = query_named or (whole and not texts)
    if collection is not None and collection.has("queries"):
        n = _n_resolved(queries, collection.query)
        query_ids = query_ids or n >= RESOLVED * max(1, len(queries))
        if query_ids and queries and not n:
            raise _unresolved("query", queries, binding, path, certain=query_named)
    elif passage_ids and not texts:
        query_ids = query_ids or look_like_ids(queries)
    numbers = [*(values if passage_ids else ()), *(queries if query_ids else ())]
    return replace(
        binding, passage_ids=passage_ids, query_ids=query_ids, numbers=any(type(value) is int for value in numbers)
    )


def _are_ids(values: list[str | int], settings: Settings) -> bool:
    """Whether values are ids: the collection holds some of them, or they look like ids."""
    values = values[:ASKED]
    given = settings.collection or settings.corpus
    known = _n_resolved(values, open_collection(settings).passage) if given else 0
    return known >= RESOLVED * max(1, len(values)) or look_like_ids(values) or look_like_names(values)


def columns_of_ids(head: Head, settings: Settings) -> list[Key]:
    """The columns of texts whose values the collection holds; none where none is given."""
    if not (settings.collection or settings.corpus):
        return []
    lookup = open_collection(settings).passage
    columns = {key: [v for v in leaves(head.column(key)) if isinstance(v, str)][:ASKED] for key in head.kinds}
    return [key for key, values in columns.items() if values and _n_resolved(values, lookup) >= RESOLVED * len(values)]


def _cells(binding: Binding, head: Head) -> tuple[list[Any], list[Any]]:
    """The queries of the rows and the cells of their passages."""
    queries: list[Any] = []
    passages: list[Any] = []
    for query, *cells in extracted(binding, head):
        queries.append(query)
        passages.extend(cells[:1] if binding.labelled else cells[1:] if binding.positive_texts else cells)
    return [query for query in queries if isinstance(query, str | int)], passages


def _are_references(passages: Sequence[Any]) -> bool:
    """Whether passages are objects that name an id and no text."""
    lists = (cell for cell in passages if isinstance(cell, list | tuple))
    objects = [item for items in (passages, *lists) for item in items if isinstance(item, dict)]
    references = [item for item in objects if passage_text(item) is None and passage_id(item) is not None]
    return bool(objects) and 2 * len(references) > len(objects)


def _n_resolved(values: Sequence[Any], lookup: Callable[[str], str | None]) -> int:
    known: dict[str, bool] = {}
    for text in map(str, values):
        if text not in known:
            known[text] = len(text) <= LONGEST and lookup(text) is not None
    return sum(known[text] for text in map(str, values))


def _unresolved(what: str, values: Sequence[Any], binding: Binding, path: str, *, certain: bool) -> InputError:
    file = flag_of("corpus" if what == "passage" else "queries", "FILE")
    alone = certain or binding.schema in IDS_ALONE
    texts = "" if alone else f"where they are texts, {remedy_of_texts(binding)}; "
    return InputError(
        f"the collection has no {what} for any id of the first rows, such as {str(values[0])[:60]!r}",
        where=path,
        remedy=f"{texts}{file} where another file holds them",
    )


def remedy_of_texts(binding: Binding) -> str:
    """What reads the same columns as texts."""
    if binding.numbers:
        return "write them as texts, in quotation marks"
    return f"--format {AS_TEXTS.get(binding.schema, binding.schema)}"
