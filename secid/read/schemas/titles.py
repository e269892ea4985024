"""Titles of passages in columns of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from secid.read.schemas.binding import Binding, unnumbered
from secid.read.schemas.head import LISTS, Head
from secid.read.schemas.patterns import NOUN, has_word

TITLE = re.compile(r"(?i)titles?")


def with_titles(binding: Binding, head: Head, *, joined: bool) -> Binding:
    """The binding with each passage's title before it, where every column of passages has a column of titles.

    joined : whether titles are asked for. Columns of titles that are not joined are named in the note.
    """
    if binding.columns is None or binding.passage_ids or binding.pairs or binding.inner:
        return binding
    columns = binding.columns[1:2] if binding.labelled else () if binding.splits else binding.columns[1:]
    titles = {key: title for key in columns if (title := title_among(_alike(key, head, binding), key))}
    if binding.labelled and not titles:
        titles = {key: name for key in columns for name in ("title", "titles") if name in _alike(key, head, binding)}
    complete = joined and bool(titles) and len(titles) == len(columns)
    taken = {*binding.columns, *(titles.values() if complete else ())}
    left = [str(key) for key, kind in head.kinds.items() if kind in ("text", "texts") and key not in taken]
    left = [key for key in left if has_word(key, TITLE)]
    notes = (f"titles joined: {', '.join(titles.values())}" if complete else "",
             f"titles left out: {', '.join(left)}" if left else "")  # fmt: skip
    binding = replace(binding, note="; ".join(filter(None, (binding.note, *notes))))
    return _joining(binding, columns, titles) if complete else binding


def _alike(key: str, head: Head, binding: Binding) -> list[str]:
    """The columns that may hold titles of a column's passages: a text for each, or a list for each list."""
    kinds = ("texts", "empty", "null") if head.kinds.get(key) in LISTS else ("text", "null")
    return [str(name) for name, kind in head.kinds.items() if kind in kinds and name not in (binding.columns or ())]


def title_among(names: Iterable[str], key: str) -> str | None:
    """The titles of a column of passages: pos_title of pos_text or positive, negative_1_title of negative_1."""
    number = key[len(unnumbered(key)) :].strip("_ -")
    whole = _plain(unnumbered(key))
    stems = {whole, whole.removesuffix("s"), re.sub(rf"{NOUN}$", "", whole)} - {""}
    forms = {form for s in stems for form in (f"{s}title{number}", f"{s}{number}title", f"title{s}{number}")}
    return next((name for name in names if {_plain(name), _plain(name).removesuffix("s")} & forms), None)


def _plain(name: str) -> str:
    """A name in lower case without marks between its words, pos and neg for positive and negative."""
    return re.sub(r"[_ -]", "", name.lower()).replace("positive", "pos").replace("negative", "neg")


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


def _joined(passages: Any, titles: Sequence[Any]) -> Any:
    """Cells with a title each, a list with a list of titles, or one passage with one title."""
    if isinstance(passages, tuple):
        return tuple(map(with_title, passages, titles))
    if not isinstance(passages, list):
        return with_title(passages, titles[0])
    of_each = [None] * len(passages) if titles[0] is None else titles[0]
    if not isinstance(of_each, list) or len(of_each) != len(passages):
        n_titles = len(of_each) if isinstance(of_each, list) else 1
        raise TypeError(f"{n_titles} titles for {len(passages)} passages")
    return list(map(with_title, passages, of_each))


def with_title(passage: Any, title: Any) -> Any:
    """A passage as an object with its title. Raises TypeError where the title is no text."""
    if title is not None and not isinstance(title, str):
        raise TypeError("a title is no text")
    if isinstance(passage, dict):
        return {"title": title, **passage}
    return {"title": title, "text": passage} if isinstance(passage, str) else passage
