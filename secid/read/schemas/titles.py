"""Titles of passages that stand in columns of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from secid.read.rows import Row
from secid.read.schemas.binding import Binding, unnumbered
from secid.read.schemas.head import LISTS, Head, make_head
from secid.read.schemas.patterns import NOUN, TITLES, has_word

TITLE = re.compile(TITLES, re.IGNORECASE)


LONE = frozenset(("title", "titles"))


def with_titles(binding: Binding, head: Head, *, joined: bool) -> Binding:
    """The binding with each passage beside its title; other columns of titles are named as left out.

    joined : whether titles are asked for; the note says it.
    Passages become {"title", "text"}, as those are that hold their title themselves. They do on both sides or on none:
    titles of one side alone would tell it from the other.
    """
    if binding.columns is None or binding.passage_ids or binding.pairs or binding.inner:
        return binding
    columns = binding.columns[1:2] if binding.labelled else () if binding.splits else binding.columns[1:]
    names = frozenset(LONE if len(columns) == 1 else ()).union(*map(_title_names, columns))
    titles = _titles(columns, head, binding)
    complete = len(titles) == len(columns)
    taken = {*binding.columns, *titles.values()}
    unread = [str(key) for key, kind in head.kinds.items() if key not in taken and _is_title(str(key), kind, names)]
    said = {"titles left out": unread if joined else [*titles.values(), *unread]}
    if joined:
        what = "titles joined" if complete else "titles left out, since some passages have none"
        said = {what: list(titles.values()), **said}
    told = (f"{what}: {', '.join(columns)}" for what, columns in said.items() if columns)
    note = "; ".join(filter(None, (binding.note, *told)))
    binding = replace(binding, note=note, untitled=binding.extract, title_names=names)
    return _joining(binding, columns, titles) if titles and complete else binding


def _is_title(name: str, kind: str, names: frozenset[str]) -> bool:
    """Whether a column that is not read holds titles, which may be of another kind than the passages."""
    if kind in ("text", "texts"):
        return has_word(name, TITLE)
    return kind not in ("null", "empty") and plain(name) in names


def _joining(binding: Binding, columns: Sequence[str], titles: dict[str, str]) -> Binding:
    """The binding that joins these titles: (column of passages, column of titles)."""
    extract = binding.extract
    of_sides = [[titles[key] for key in side] for side in (columns[:1], columns[1:])]

    def titled(row: Any) -> tuple[Any, Any, Any]:
        query, *sides = extract(row)
        for at, names in enumerate(of_sides):
            if names:
                sides[at] = _joined(sides[at], list(map(row.get, names)))
        return query, sides[0], sides[1]

    return replace(binding, extract=titled, titles=tuple(titles.items()))


def of_row(binding: Binding, row: Row) -> Binding:
    """The binding for a row that has columns of titles which the first rows of its file have not."""
    if binding.untitled is None:
        return binding
    return with_titles(replace(binding, extract=binding.untitled, titles=()), make_head([row]), joined=True)


def later_cells(binding: Binding, row: Any) -> list[Any]:
    """The negatives of a row in numbered columns that the first rows of its file have not, with their titles."""
    keys = binding.later(row)
    titles = [_among(row, _title_names(key)) if binding.titles else None for key in keys]
    return [_with_title(row[key], row[title]) if title else row[key] for key, title in zip(keys, titles, strict=True)]


def _titles(columns: Sequence[str], head: Head, binding: Binding) -> dict[str, str]:
    """The columns of the titles of columns of passages; a lone `title` is that of the one that has no other."""
    titles = {}
    for key in columns:
        if title := _among(_of_kind(key, head, binding), _title_names(key)):
            titles[key] = title
    without = [key for key in columns if key not in titles]
    if without and without == [*columns[:1]] and (title := _among(_of_kind(without[0], head, binding), LONE)):
        titles[without[0]] = title
    return titles


def _of_kind(key: str, head: Head, binding: Binding) -> list[str]:
    """The columns that may hold titles of a column's passages: a text for each, or a list for each list."""
    kinds = ("texts", "empty") if head.kinds.get(key) in LISTS else ("text",)
    read = binding.columns or ()
    return [str(name) for name, kind in head.kinds.items() if kind in (*kinds, "null") and name not in read]


def _title_names(key: str) -> frozenset[str]:
    """What titles of a column of passages go by: pos_title of pos_text or positive, negative_1_title of negative_1."""
    number = key[len(unnumbered(key)) :].strip("_ -")
    whole = plain(unnumbered(key))
    stems = {whole, whole.removesuffix("s"), re.sub(rf"{NOUN}$", "", whole)} - {""}
    forms = ((f"{stem}title{number}", f"{stem}{number}title", f"title{stem}{number}") for stem in stems)
    return frozenset(name + end for form in forms for name in form for end in ("", "s"))


def _among(names: Iterable[str], wanted: frozenset[str]) -> str | None:
    return next((name for name in names if plain(name) in wanted), None)


def plain(name: str) -> str:
    """A name in lower case without marks between its words, pos and neg for positive and negative."""
    return re.sub(r"[_ -]", "", name.lower()).replace("positive", "pos").replace("negative", "neg")


def _joined(passages: Any, titles: Sequence[Any]) -> Any:
    """Cells with a title each, a list with a list of titles, or one passage with one title."""
    if isinstance(passages, tuple):
        return tuple(map(_with_title, passages, titles))
    if not isinstance(passages, list):
        return _with_title(passages, titles[0])
    of_each = [None] * len(passages) if titles[0] is None else titles[0]
    if not isinstance(of_each, list):
        raise TypeError(f"a title, where {len(passages)} passages have a list of them")
    if len(of_each) != len(passages):
        raise TypeError(f"{len(of_each)} titles for {len(passages)} passages")
    return list(map(_with_title, passages, of_each))


def _with_title(passage: Any, title: Any) -> Any:
    if title is not None and not isinstance(title, str):
        raise TypeError("a title is no text")
    if isinstance(passage, dict):
        return {"title": title, **passage}
    return {"title": title, "text": passage} if isinstance(passage, str) else passage
