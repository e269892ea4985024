"""Titles of passages that stand in columns of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from secid.data.schemas.binding import Binding, unnumbered
from secid.data.schemas.head import Head
from secid.data.schemas.patterns import NOUN, TITLES, has_word

TITLE = re.compile(TITLES, re.IGNORECASE)


def with_titles(binding: Binding, head: Head, *, joined: bool) -> Binding:
    """The binding with each passage beside its title; other columns of titles are named as left out.

    joined : whether titles are asked for; the note says it.
    Passages become {"title", "text"}, as those are that hold their title themselves.
    """
    if binding.columns is None or binding.passage_ids or binding.pairs:
        return binding
    columns = binding.columns[1:2] if binding.labelled else () if binding.splits else binding.columns[1:]
    titles = {key: title for key in columns if (title := _title_of(key, head, binding))}
    unread = [
        str(key)
        for key, kind in head.kinds.items()
        if kind in ("text", "texts") and has_word(str(key), TITLE) and key not in {*binding.columns, *titles.values()}
    ]
    left_out = unread if joined else [*titles.values(), *unread]
    said = [f"titles joined: {', '.join(titles.values())}"] if titles and joined else []
    said += [f"titles left out: {', '.join(left_out)}"] if left_out else []
    note = "; ".join(filter(None, (binding.note, *said)))
    if not titles:
        return replace(binding, note=note)
    extract, places = binding.extract, (columns[:1], columns[1:])

    def titled(row: Any) -> tuple[Any, Any, Any]:
        query, *sides = extract(row)
        for at, keys in enumerate(places):
            if titles.keys() & set(keys):
                sides[at] = _joined(sides[at], [row.get(titles.get(key)) for key in keys])
        return query, sides[0], sides[1]

    return replace(binding, extract=titled, note=note, titles=tuple(titles.items()))


def _title_of(key: str, head: Head, binding: Binding) -> str | None:
    """The column of the titles of a column of passages: pos_title of pos_text, negative_1_title of negative_1."""
    if head.kinds.get(key) not in ("text", "texts"):
        return None
    number = key[len(unnumbered(key)) :].strip("_ -")
    whole = _plain(unnumbered(key))
    stems = {whole, whole.removesuffix("s"), re.sub(rf"{NOUN}$", "", whole)} - {""}
    wanted = {f"{stem}title{number}" for stem in stems} | {f"{stem}{number}title" for stem in stems}
    wanted |= {f"title{stem}{number}" for stem in stems} | (
        {"title"} if binding.labelled else set()
    )  # no other passage is there
    kinds = ("text",) if head.kinds[key] == "text" else ("texts", "empty")
    found = (str(name) for name, kind in head.kinds.items() if kind in kinds and name not in (binding.columns or ()))
    return next((name for name in found if _plain(name).removesuffix("s") in wanted or _plain(name) in wanted), None)


def _plain(name: str) -> str:
    return re.sub(r"[_ -]", "", name.lower())


def _joined(passages: Any, titles: Sequence[Any]) -> Any:
    """Cells with a title each, a list with a list of titles, or one passage with one title."""
    if isinstance(passages, tuple):
        return tuple(map(_with_title, passages, titles))
    if not isinstance(passages, list):
        return _with_title(passages, titles[0])
    if not isinstance(titles[0], list):
        return passages
    if len(titles[0]) != len(passages):
        raise TypeError(f"{len(titles[0])} titles for {len(passages)} passages")
    return list(map(_with_title, passages, titles[0]))


def _with_title(passage: Any, title: Any) -> Any:
    return {"title": title, "text": passage} if isinstance(passage, str) else passage
