"""Where the negatives of a row lie, as single cells that can be kept, left out or replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from secid.errors import SchemaError
from secid.read.passages import ID_KEYS, TEXT_KEYS, TITLE_KEY
from secid.read.rows import Row
from secid.read.schemas.binding import Binding, unnumbered

Key = str | int
Path = tuple[Key, ...]
"""Keys and positions that lead from a row to a value inside it."""

AnyKey = TypeVar("AnyKey", bound=Key)
ASIDE = r"(scores?|ids?|labels?|titles?|doc_?ids?|pids?|logits?|indices|ranks?|urls?)"
PARALLEL = re.compile(rf"(?i)(neg(ative)?s?|hard_neg(ative)?s?)_{ASIDE}")
"""Columns that say something of each negative and go with it, where they are lists of the same length."""


class Chosen(NamedTuple):
    """One cell of the copy. place: of the row's own cell it is; None for another source's."""

    place: int | None
    value: Any


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a file that hold negatives of one source.

    keys : one column (a list, an object of lists, or a cell), or several columns of one cell each.
    rest : rows without names whose negatives are all that follows the positive.
    inner: the list inside an object of parallel lists ("doc_id"), else "".
    miner: row -> name of the source's list inside an object of miners; None where there is no such object.
    apart: lists of other sources stand in other columns of the row.
    whole: a row is one labelled passage.
    pairs: cells are [instruction, text].   ids: cells hold ids, not texts.
    later: columns of a row that are like `keys` and were not in the file's first rows.
    titles: (column, column of its titles).   beside: columns of lists that go along with a labelled one.
    names: of the columns of the file's first row.
    """

    keys: tuple[Key, ...]
    rest: bool = False
    inner: str = ""
    miner: Callable[[Row], str] | None = field(default=None, compare=False)
    apart: bool = False
    whole: bool = False
    pairs: bool = False
    ids: bool = False
    later: Callable[[Row], Sequence[str]] = field(default=lambda row: (), compare=False)
    titles: tuple[tuple[str, str], ...] = ()
    beside: tuple[Key, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def of_row(self, row: Row) -> tuple[Key, ...]:
        """The keys of this row: some rows have more than others."""
        return tuple(range(2, len(row))) if self.rest else (*self.keys, *self.later(row))

    def path(self, row: Row) -> Path | None:
        """Where the negatives of this row lie; None where each has a column of its own."""
        keys = self.of_row(row)
        if len(keys) != 1 or self.rest:
            return None
        return (*keys, self.miner(row)) if self.miner else (*keys, self.inner) if self.inner else keys

    def list_path(self, row: Row) -> Path | None:
        """Where the list of this row's negatives lies; None where there is none."""
        path = self.path(row)
        return path if path and _is_list(value_at(row, path), self.pairs) else None


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of a row. All else stays.

    lists   : paths of lists, with the cells that each holds in the copy; places are those in the list. What is no list
              (a lone negative, left out) becomes null.
    columns : columns of one cell each that are alike, with the cells of the first of them; the others go. Places are
              those in the columns, None is a column that is not there.
    n_repeated : cells that repeat a negative of the row, since trainers take no empty one.
    """

    lists: Sequence[tuple[Path, Sequence[Chosen]]] = ()
    columns: Sequence[tuple[Sequence[Key | None], Sequence[Chosen]]] = ()
    n_repeated: int = 0


def layout_of(binding: Binding, head: Sequence[Row], split: str, source_column: str | None) -> Layout:
    """The layout of a file's negatives of one source.

    head : the file's first good rows.   split : as in Record.   source_column : as in Settings.
    """
    if binding.labelled == "pair":
        return Layout((), whole=True)
    ids, columns = binding.passage_ids, binding.columns
    if binding.labelled:
        own: Sequence[Key] = columns[1:] if columns else tuple(map(int, binding.negatives.split(" by ")))
        return Layout((own[0],), inner=binding.inner, ids=ids, beside=() if binding.inner else _as_long(head, own))
    if columns is None:
        first, _, last = binding.negatives.partition("…")
        if "…" in binding.negatives and not last:
            return Layout((), rest=True, ids=ids)
        return Layout(tuple(range(int(first), int(last or first) + 1)), ids=ids)

    def miner(row: Row) -> str:
        prefix = f"{value_at(row, (source_column,))}:" if source_column else ""
        return split.removeprefix(prefix)

    if binding.split_lists:
        lists = [column for name, column in binding.split_lists if split == name or split.endswith(f":{name}")]
        return Layout(tuple(lists), apart=True, ids=ids)  # none where a shard of another schema gave the source
    return Layout(
        columns[2:],
        inner=binding.inner,
        miner=miner if binding.splits else None,
        apart=binding.splits,
        pairs=binding.pairs,
        ids=ids,
        later=binding.later,
        titles=binding.titles,
        names=tuple(map(str, head[0])),
    )


def _as_long(head: Sequence[Row], columns: Sequence[Key]) -> tuple[Key, ...]:
    """The other columns whose lists are as long as those of `columns`, wherever the first rows have one."""
    found: dict[Key, bool] = {}
    for row in head:
        lengths = {_length(value_at(row, (name,))) for name in columns}
        if len(lengths) > 1 or None in lengths:
            continue
        for name, value in row.items() if isinstance(row, dict) else enumerate(row):
            if value is not None:
                found[name] = found.get(name, True) and _length(value) in lengths
    return tuple(name for name, fits in found.items() if fits and name != columns[0])


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None


def cells_of(row: Row, layout: Layout) -> list[Any]:
    """All cells of a row's negatives (of all its labelled passages), usable or not, in the order of the reader."""
    path = layout.list_path(row)
    return list(value_at(row, path)) if path else [value_at(row, (key,)) for key in layout.of_row(row)]


def edit_of(row: Row, layout: Layout, chosen: Sequence[Chosen], width: int | None) -> Edit:
    """The edit by which a row holds the chosen cells in place of its own, and what goes along with them.

    chosen : empty only where other sources' negatives stand in the row.   width : as in `rewrite`.
    """
    path = layout.list_path(row) if chosen else layout.path(row)
    if path:
        others = _beside(row, layout, path)
        return Edit(lists=[(path, chosen), *((other, _along(chosen, str(other[-1]))) for other in others)])
    keys = layout.of_row(row)
    n_kept = len(chosen) if layout.rest else len(keys_kept(keys, width))
    kept = [chosen[place % len(chosen)] for place in range(n_kept)]
    names = tuple(dict.fromkeys((*layout.names, *row))) if isinstance(row, dict) else ()
    families = companions(keys, names, layout.titles)
    along = [(family, _along(kept, str(next(filter(None, family))))) for family in families]
    n_repeated = max(0, n_kept - len(chosen)) if len(keys) > 1 and not layout.rest else 0
    return Edit(columns=[(keys, kept), *along], n_repeated=n_repeated)


def _along(chosen: Sequence[Chosen], name: str) -> list[Chosen]:
    """The same places elsewhere. For a negative of another source nothing is known; its text holds its title."""
    unknown = "" if "title" in name.lower() else None
    return [Chosen(cell.place, unknown) for cell in chosen]


def _beside(row: Row, layout: Layout, path: Path) -> list[Path]:
    """Paths of the row's other lists that hold one value for each cell of the list under a path."""
    found: list[Path] = [(other,) for other in layout.beside]
    n_cells = _length(value_at(row, path))
    if isinstance(row, dict):
        name = str(path[0])
        found += [(name, inner) for inner in row[name] if inner != path[1]] if layout.inner else []
        tail = path[1:] if layout.miner else ()
        found += [(other, *tail) for other in row if other not in layout.beside and _goes_along(other, name, layout)]
    return [at for at in found if n_cells is not None and _length(value_at(row, at)) == n_cells]


def _goes_along(other: str, name: str, layout: Layout) -> bool:
    if other == name:
        return False
    if layout.apart and not layout.miner and other.lower().startswith("hard") != name.lower().startswith("hard"):
        return False  # of the other list of negatives
    named = PARALLEL.fullmatch(other) or re.fullmatch(rf"(?i){re.escape(name)}_{ASIDE}", other)
    return bool(named) or (name, other) in layout.titles


@lru_cache(maxsize=64)
def companions(
    keys: tuple[Key, ...], names: tuple[str, ...], titles: tuple[tuple[str, str], ...]
) -> tuple[tuple[Key | None, ...], ...]:
    """Columns that say something of the negative in each of `keys`, as "negative_2_score" does of "negative_2".

    One family a kind, each with a name (or None) for each of the keys.
    """
    families: dict[str, dict[Key, Key]] = {}
    for key in map(str, keys if names else ()):
        stem = unnumbered(key)
        number = key[len(stem) :]
        at = re.escape(number)
        pattern = re.compile(rf"(?i){re.escape(stem)}({at}[_ -]?{ASIDE}|[_ -]?{ASIDE}{at})")
        for name in names:
            if name not in keys and pattern.fullmatch(name):
                families.setdefault(name.replace(number, "", 1), {})[key] = name
    known = {name for family in families.values() for name in family.values()}
    own_titles: dict[Key, Key] = {key: title for key, title in titles if key in keys and title not in known}
    found = [*families.values(), *([own_titles] if own_titles else [])]
    return tuple(tuple(family.get(key) for key in keys) for family in found)


def keys_kept(keys: Sequence[AnyKey], width: int | None) -> Sequence[AnyKey]:
    """The first columns of negatives that the copy keeps."""
    return keys if width is None else keys[:width]


def columns_gone(layout: Layout, names: Sequence[str], width: int | None) -> set[Key]:
    """Columns among `names` that the copy of a table has no more."""
    families = (layout.keys, *companions(layout.keys, tuple(names), layout.titles))
    kept = len(keys_kept(layout.keys, width))
    return {key for family in families for key in family[kept:] if key is not None}


def foreign_cell(text: str, like: Any, layout: Layout, where: str) -> Any:
    """A cell of the same make as `like` that holds another text.

    In a passage object the title is empty, since the text has it already, and all else is null.
    Raises SchemaError where the make is not one that holds a text.
    """
    if isinstance(like, str) and not layout.ids:
        return text
    if layout.pairs and isinstance(like, list):
        return [like[0], text]
    key = next((name for name in TEXT_KEYS if isinstance(like, Mapping) and name in like), None)
    if key is None or layout.ids:
        raise SchemaError(
            "this schema has no room for the text of another source's negative",
            where=where,
            remedy="--base NAME writes in the schema of another source, one whose rows hold texts",
        )
    empty = {TITLE_KEY: "", **{name: "" for name in ID_KEYS if isinstance(like.get(name), str)}, key: text}
    return {name: empty.get(name) for name in like}


def value_at(row: Any, path: Sequence[Any]) -> Any:
    """The value under a path; None where there is none."""
    for key in path:
        if isinstance(row, dict):
            row = row.get(key)
        else:
            row = row[key] if isinstance(row, list) and isinstance(key, int) and key < len(row) else None
    return row


def _is_list(value: Any, pairs: bool) -> bool:
    """Whether a column's value is a list of negatives, not a lone [instruction, text] pair."""
    lone_pair = pairs and isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value)
    return isinstance(value, list) and not lone_pair
