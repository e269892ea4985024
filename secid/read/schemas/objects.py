"""Binder of rows whose cells are objects with a text each; the query may be one, too."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from secid.read.passages import passage_text
from secid.read.schemas.binding import Binding, Extract, bind_columns
from secid.read.schemas.head import Head
from secid.read.schemas.patterns import NEGATIVE, POSITIVE, QUERY, named, negative_groups


def objects(head: Head) -> list[Binding]:
    """Objects that hold a text each; the query may be one, too."""

    def with_text(names: tuple[str, ...]) -> list[str]:
        found = [key for key in named(head, names) if head.kinds[key] in ("struct", "structs")]
        return [key for key in found if all(isinstance(text, str) for text in map(_first_text, head.typical(key)))]

    bindings = []
    negatives = negative_groups(head, with_text(NEGATIVE))
    queries = with_text(QUERY) or [key for key in named(head, QUERY) if head.kinds[key] == "text"]
    for query, positive, group in product(queries, with_text(POSITIVE), negatives):
        found = bind_columns(head, query, positive, group)
        if head.kinds[query] == "struct":
            found = replace(found, query=f"the text of {query}", extract=_query_inside(found.extract))
        if head.kinds[query] in ("struct", "text"):
            bindings.append(found)
    return bindings


def _first_text(value: Any) -> Any:
    passages = value if isinstance(value, list) else [value]
    return next((passage_text(passage) for passage in passages if isinstance(passage, dict) and passage), None)


def _query_inside(extract: Extract) -> Extract:
    def with_query_text(row: Any) -> tuple[Any, Any, Any]:
        query, positives, negatives = extract(row)
        return _first_text(query), positives, negatives

    return with_query_text
