"""The cells of a row that hold the query, the positives and the negatives, from column names and first rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any, Literal
from unicodedata import normalize

from secid.read.stream import Row

# The first rows of a file, as detection sees them.

Key = str | int

ID = re.compile(r"(?=[^ ]*\d)[A-Za-z0-9_.:/#@+-]{1,64}")
"""A text that looks like an id: one short ASCII word with a digit. It needs a collection, or `--format`."""

ASCII_WORD = re.compile(r"[!-~]{1,256}")
MARK = re.compile(r"[_:]")
"""Marks that at least half of a column's ASCII words have if they are ids: FEVER's (`Fox_Broadcasting`), DBpedia's."""

CELL_WORD = re.compile(r"\S{2,64}")

ID_FRACTION = 0.9
"""Share of id-like values that makes a column one of ids. A few odd cells must not turn all the others into texts."""

TAG_LENGTH = 24
"""Characters of the longest word that names a class or topic."""

QUERIES_A_TAG = 4
"""Least queries per tag, on average. Two queries seldom share so short a passage."""

LISTS = frozenset({"texts", "ids", "structs", "lists", "numbers", "empty"})
SCALARS = frozenset({"text", "id"})


@dataclass(frozen=True, slots=True)
class Head:
    """Good rows from a file's start, at least one, all dicts or all lists.

    kinds: each column's commonest kind of value (`kind_of`), in order of first appearance.
    """

    rows: tuple[Row, ...]
    kinds: Mapping[Key, str]

    @property
    def named(self) -> bool:
        """Tell whether columns have names; otherwise they are positions, counted from 0."""
        return isinstance(self.rows[0], dict)

    def column(self, key: Key) -> list[Any]:
        """Return the values of a column, without nulls and absent ones."""
        return [value for row in self.rows if (value := cell(row, key)) is not None]

    def typical(self, key: Key) -> list[Any]:
        """Return the values of a column that are of its commonest kind."""
        return [value for value in self.column(key) if kind_of(value) == self.kinds[key]]

    def is_tag(self, query: Key, key: Key) -> bool:
        """Tell whether a column holds a few short words for many queries: topics or classes, such as "entailment"."""
        pairs = {(cell(row, query), value) for row in self.rows if isinstance(value := cell(row, key), str)
                 if isinstance(cell(row, query), str | int)}  # fmt: skip
        values = {value for _, value in pairs}
        return 0 < len(values) * QUERIES_A_TAG <= len(pairs) and all(len(value) <= TAG_LENGTH for value in values)


def cell(row: Row, key: Key) -> Any:
    """Return a row's value under a name or position; None if it is absent."""
    if isinstance(row, dict):
        return row.get(key) if isinstance(key, str) else None
    return row[key] if isinstance(key, int) and key < len(row) else None


def make_head(rows: Sequence[Row]) -> Head:
    """Return the head of the rows in the commoner form (named or positional). `rows` holds at least one."""
    named = [row for row in rows if isinstance(row, dict)]
    alike: Sequence[Row] = named if 2 * len(named) >= len(rows) else [row for row in rows if isinstance(row, list)]
    counts: dict[Key, Counter[str]] = {}
    for row in alike:
        for key, value in row.items() if isinstance(row, dict) else enumerate(row):
            counts.setdefault(key, Counter())[kind_of(value)] += 1
    return Head(tuple(alike), {key: _commonest(kinds) for key, kinds in counts.items()})


def _commonest(kinds: Counter[str]) -> str:
    filled = [(n, kind) for kind, n in kinds.items() if kind not in ("null", "empty")]
    if filled:
        return max(filled, key=lambda pair: pair[0])[1]
    return "empty" if "empty" in kinds else "null"


def kind_of(value: Any) -> str:
    """Return the kind of a value: text, id (an integer), number, flag, struct, bytes, null or other.

    A list is of kind texts, ids, structs, lists, numbers or empty.
    """
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        inner = next((item for item in value if item is not None), None)
        if isinstance(inner, list):  # no recursion: a bad row may be nested without end
            return "lists"
        return "empty" if inner is None else LIST_KINDS.get(kind_of(inner), "lists")
    return SCALAR_KINDS.get(type(value), "other")


SCALAR_KINDS = {bool: "flag", int: "id", float: "number", dict: "struct", bytes: "bytes", type(None): "null"}
LIST_KINDS = {"text": "texts", "id": "ids", "struct": "structs", "number": "numbers", "flag": "ids"}


def look_like_words(values: Sequence[Any]) -> bool:
    """Tell whether ID_FRACTION of the values are single short words, as all ids are; False without values."""
    n_words = sum(bool(CELL_WORD.fullmatch(str(value))) for value in values)
    return bool(values) and n_words >= ID_FRACTION * len(values)


def look_like_names(values: Sequence[Any]) -> bool:
    """Tell whether ID_FRACTION of the values are single ASCII words, and half of these have `_` or `:`."""
    words = [value for value in values if isinstance(value, str) and ASCII_WORD.fullmatch(value)]
    n_marked = sum(bool(MARK.search(word)) for word in words)
    return bool(words) and len(words) >= ID_FRACTION * len(values) and 2 * n_marked >= len(words)


def look_like_ids(values: Sequence[Any]) -> bool:
    """Tell whether ID_FRACTION of the values are whole numbers or id-like words; False without values."""
    n_ids = sum(bool(ID.fullmatch(value)) if isinstance(value, str) else type(value) is int for value in values)
    return bool(values) and n_ids >= ID_FRACTION * len(values)


# A binding: which cells of a row hold the query, the positives and the negatives.

Labelled = Literal["", "pair", "list"]

Extract = Callable[[Any], tuple[Any, Any, Any]]
"""Function from a row to (query, positives, negatives), as the row holds them.

positives, negatives: a tuple of single cells, or the value of the one column (a list, in a good row).
Raises one of NOT_THE_SHAPE for a row of another shape.
"""

NOT_THE_SHAPE = (KeyError, IndexError, TypeError, AttributeError)
"""Errors that an extractor raises for a row of another shape."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A way to read rows of one shape.

    query, positives, negatives : their columns, in words for the user.
    columns    : all columns that `extract` touches; None for rows without names.
    splits     : negatives are a dict {split: negatives} ("the keys of neg").
    pairs      : texts are [instruction, text] pairs.
    either     : a single text may replace a list.
    labelled   : `extract` gives (query, passage, label), one row a "pair", or (query, passages, labels), a "list".
    query_ids, passage_ids : ids replace the texts.   positive_texts : except the texts of positives.
    numbers    : some of these ids are JSON numbers.
    inner      : the list inside an object of parallel lists that holds the passages ("doc_id"), else "".
    empty_columns : names of columns of passages that are empty in the first rows; they are not read.
    known      : names of the other columns of the first rows; empty if rows have no names.
    counted    : roles ("positive", "negative") that no flag settles; unread columns of these roles are counted.
    numbered   : name of the columns of negatives without its final number, if each holds one negative; else "".
    """

    query: str
    positives: str
    negatives: str
    extract: Extract
    columns: tuple[str, ...] | None
    schema: str = ""
    note: str = ""
    splits: bool = False
    pairs: bool = False
    either: bool = False
    labelled: Labelled = ""
    query_ids: bool = False
    passage_ids: bool = False
    positive_texts: bool = False
    numbers: bool = False
    inner: str = ""
    empty_columns: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset(("positive", "negative"))
    numbered: str = ""

    def later(self, row: Row) -> list[str]:
        """Return columns of one negative, numbered like the bound ones, that this row has and the first rows lack."""
        if not self.known or not self.numbered or not isinstance(row, dict):
            return []
        keys = [key for key in row if key not in self.known and unnumbered(key) == self.numbered]
        return sorted((key for key in keys if not isinstance(row[key], list)), key=number_of)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the names of all columns of queries and passages, including those that only later rows fill."""
        return (*(self.columns or ()), *self.empty_columns)

    @property
    def mapping(self) -> str:
        """Return the mapping in one line: "query=anchor, positive=positive, negatives=negative_1…negative_10"."""
        ids = {(True, True): "ids", (True, False): "query ids", (False, True): "passage ids"}
        notes = [ids.get((self.query_ids, self.passage_ids), ""), self.note]
        tail = "; ".join(note for note in notes if note)
        text = f"query={self.query}, positive={self.positives}, negatives={self.negatives}"
        return f"{text} ({tail})" if tail else text


def extract_rows(binding: Binding, head: Head) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what the binding extracts from each of the first rows, without rows of another shape."""
    for row in head.rows:
        with suppress(*NOT_THE_SHAPE):
            yield binding.extract(with_nulls(row, binding))


def bind_columns(head: Head, query: Key, positive: Key, negatives: Sequence[Key], **options: Any) -> Binding:
    """Return the binding of plain columns: a query, a positive, and one or several columns of negatives.

    The commonest kind of a column decides whether it is read as single cells or as lists. If the first rows have
    only nulls, each row decides. Several columns of negatives hold one cell each.
    """
    kinds = head.kinds
    unknown = "null" in (kinds[positive], kinds[negatives[0]]) and len(negatives) == 1
    options["either"] = options.get("either") or unknown
    scalar_positive = kinds[positive] not in LISTS and not options["either"]
    scalar_negative = len(negatives) > 1 or (kinds[negatives[0]] not in LISTS and not options["either"])
    return Binding(
        query=str(query),
        positives=str(positive),
        negatives=span(negatives),
        extract=column_extract(query, positive, negatives, scalar_positive, scalar_negative),
        columns=tuple(map(str, (query, positive, *negatives))) if head.named else None,
        numbered=unnumbered(str(negatives[0])) if head.named and scalar_negative else "",
        **options,
    )


def column_extract(query: Key, positive: Key, negatives: Sequence[Key], cell_p: bool, cell_n: bool) -> Extract:
    """Return an extractor that makes one itemgetter call per row.

    cell_p, cell_n: whether positives, negatives are single cells, which become a tuple.
    """
    get = itemgetter(query, positive, *negatives)
    if not (cell_p or cell_n):
        return get

    def extract(row: Any) -> tuple[Any, Any, Any]:
        cells = get(row)
        return cells[0], cells[1:2] if cell_p else cells[1], cells[2:] if cell_n else cells[2]

    return extract


def span(keys: Sequence[Key]) -> str:
    """Return columns in words: "negative", "negative_1…negative_10"."""
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]}…{keys[-1]}"


def number_of(name: str) -> int:
    """Return the number at the end of a column's name; -1 without one, so that `negative` sorts before `negative_1`."""
    number = re.search(r"(\d+)$", name)
    return int(number.group(1)) if number else -1


def unnumbered(name: str) -> str:
    """Return a column's name without the number at its end."""
    return re.sub(r"[_ -]?\d+$", "", name)


def with_nulls(row: Row, binding: Binding) -> Row:
    """Return the row, with null for each column that the binding touches and the row lacks."""
    if isinstance(row, dict) and binding.columns is not None:
        return {**dict.fromkeys(binding.columns), **row}
    return row


# Usual names of columns, and binders made from them.

Bind = Callable[[Head], list[Binding]]
"""Function from a head to all its readings in one shape; empty if it has another shape."""

Form = Literal["cells", "lists", "any"]
"""cells: single cells throughout. lists: lists on at least one side. any: each row decides."""

VIETNAMESE = "((đoạn|đoạn[_ ]văn|văn[_ ]bản|tài[_ ]liệu|câu)[_ ])?"
TEXTS = "([_ ]?(文档|文本|文書|段落|문서|지문|단락|텍스트))?"
NOUN = "(passage|text|doc|document|ctx|context|example|answer|sentence)s?"
NEGATIVES = rf"(hard[_ -]?)?neg(ative)?s?([_ -]?{NOUN})?|irrelevant([_ -]?{NOUN})?|distractors?"
QUERY = (
    r"((user|search)[_ -]?)?query([_ -]?text)?|anchor",
    r"question([_ -]?text)?",
    r"q|sentence1?|sent0|search_term|claim",
    r"queries|questions|anchors",
    r"查[询詢]|[问問][题題]|質問|クエリ|질문|질의|쿼리|câu[_ ]hỏi|truy[_ ]vấn",
)
POSITIVE = (
    rf"pos(itive)?s?([_ -]?{NOUN})?|(gold|relevant|correct)([_ -]?{NOUN})?",
    r"(passage|document|doc|answer|context)([_ -]?text)?|sentence2|sent1",
    rf"(正(例|样本|樣本|解)|정답|긍정|{VIETNAMESE}đúng|dương[_ ]tính){TEXTS}",
)
NEGATIVE = (
    rf"({NEGATIVES})([_ -]?\d+)?",
    rf"(wrong|bad|incorrect|false)([_ -]?{NOUN})?([_ -]?\d+)?",
    rf"(([难難]|困[難难])?[负負](例|样本|樣本)|不正解|오답|부정|{VIETNAMESE}sai|âm[_ ]tính){TEXTS}([_ -]?\d+)?",
)
"""Tiers of names, the surest first. A tier counts only if no column has a name of an earlier one.

The last tier of each holds the commonest names in Chinese, Japanese, Korean and Vietnamese.
"""
QUERY_ID = (r"qid|query[_-]id", r"question[_-]id")
PASSAGE = (
    r"passage|document|doc|para(graph)?|text|context|ctx|candidate|corpus|(passage|document|doc)_text",
    r"sentence2|answer",
)
PASSAGE_ID = (r"pid|doc_?id|(passage|document|corpus)[_-]id",)
POSITIVE_IDS = r"pos(itive)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
NEGATIVE_IDS = r"(hard[_-]?)?neg(ative)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
DOCS = (r"docs|documents|passages|paragraphs|candidates|contexts|ctxs|texts",)
LABEL = (
    r"labels?|((is|has)_?)?(relevant|selected|positive|correct|gold)|has_?answer|relevance|rel",
    r"((similarity|relevance)_)?scores?|similarity",
)

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
NEGATIVE_WORD = re.compile(r"neg(ative)?s?|irrelevant|wrong|incorrect|bad|false|rejected|distractors?", re.IGNORECASE)
ABOUT = re.compile(
    r"(?i)titles?|headings?|summar(y|ies)|headlines?|reason(s|ing)?|rationales?|explanations?|expansions?|keywords?|"
    r"urls?|authors?|dates?|categor(y|ies)|topics?|domains?|difficult(y|ies)|genres?|stages?|(p|doc|q)?ids?|idx|"
    r"ind(ex|exes|ices)|refs?|scores?|sim(ilarity|ilarities)?|ranks?|margins?|labels?|num(ber)?|count|len(gth)?s?|types?|sources?|"
    r"miners?|models?|methods?|splits?|lang(uage)?s?|prompts?|meta(data)?|extra|tokens?|embeddings?|vectors?"
)
"""Words in the names of columns that describe a passage but hold none."""


def has_word(name: str, word: re.Pattern[str]) -> bool:
    """Tell whether some word of a name matches a pattern."""
    return any(map(word.fullmatch, WORD.findall(name)))


def columns_named(head: Head, tiers: tuple[str, ...]) -> list[str]:
    """Return the columns whose whole name fits the first tier that any column fits, ignoring case."""
    for tier in tiers:
        names = [key for key in head.kinds if isinstance(key, str) and fits(key, (tier,))]
        if names:
            return names
    return []


def query_columns(head: Head) -> list[str]:
    """Return the columns named as queries, else those named as their ids."""
    return columns_named(head, QUERY) or columns_named(head, QUERY_ID)


def fits(name: str, tiers: tuple[str, ...]) -> bool:
    """Tell whether a column's whole name fits some tier, ignoring case."""
    return any(re.fullmatch(tier, composed(name), re.IGNORECASE) for tier in tiers)


def composed(name: str) -> str:
    """Return a name in Unicode's NFC. macOS writes accents and Korean syllables in pieces (NFD)."""
    return normalize("NFC", name)


def says_negative(name: str) -> bool:
    """Tell whether a column's name says that it holds negatives."""
    return fits(name, NEGATIVE) or (has_word(name, NEGATIVE_WORD) and not has_word(name, ABOUT))


def unread_role(name: str, binding: Binding) -> Literal["", "positive", "negative"]:
    """Return the role that the name of an unread column gives it; "" without one, or if a flag settles that role.

    It is a positive if its name differs from that of the column of positives only in the number at the end.
    """
    if binding.numbered and unnumbered(name) == binding.numbered:
        return "negative"
    if says_negative(name):
        return "negative" if "negative" in binding.counted else ""
    same = unnumbered(name) == unnumbered(binding.positives)
    return "positive" if same and "positive" in binding.counted else ""


def negative_groups(head: Head, names: list[str]) -> Iterator[list[Key]]:
    """Yield columns of negatives that belong together: names that differ only in their final number, in its order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if number_of(name) >= 0 and head.kinds[name] in LISTS:
            groups[name] = [name]
        else:
            groups.setdefault(unnumbered(name), []).append(name)
    for group in groups.values():
        yield [*sorted(group, key=number_of)]


def columns(
    query: str | tuple[str, ...],
    positive: str | tuple[str, ...],
    negative: str | tuple[str, ...],
    form: Form,
    **options: Any,
) -> Bind:
    """Return a binder of plain columns by their names (patterns of whole names, or tiers of them)."""
    tiers = [(names,) if isinstance(names, str) else names for names in (query, positive, negative)]
    kinds = {"cells": SCALARS, "lists": SCALARS | LISTS, "any": SCALARS | LISTS | {"struct"}}[form] | {"null"}

    def bind(head: Head) -> list[Binding]:
        queries = [key for key in columns_named(head, tiers[0]) if head.kinds[key] in SCALARS]
        positives, negatives = (
            [key for key in columns_named(head, tier) if head.kinds[key] in kinds] for tier in tiers[1:]
        )
        return [
            bind_columns(head, q, p, n, either=form == "any", **options)
            for q, p, n in product(queries, positives, list(negative_groups(head, negatives)))
            # Numbered columns are n-tuples; a single list on either side makes the row one of lists.
            if form != "lists" or (len(n) == 1 and LISTS & {head.kinds[p], head.kinds[n[0]]})
        ]

    return bind
