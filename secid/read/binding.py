"""Find the cells of a row that hold the query, positives and negatives, from column names and first rows."""

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

ColumnKey = str | int

ID = re.compile(r"(?=[^ ]*\d)[A-Za-z0-9_.:/#@+-]{1,64}")
"""Pattern of an id: one short ASCII word with a digit. A column of such words needs a collection, or `--format`."""

ASCII_WORD = re.compile(r"[!-~]{1,256}")
ID_SEPARATOR = re.compile(r"[_:]")
"""Characters that mark a name used as an id, as in FEVER (`Fox_Broadcasting`) and DBpedia. A column of such ids has one
of them in at least half of its ASCII words."""

CELL_WORD = re.compile(r"\S{2,64}")

MIN_ID_FRACTION = 0.9
"""Minimum share of id-like values in a column of ids. A few odd cells must not turn all the others into texts."""

MAX_TAG_CHARS = 24
"""Maximum length of a word that names a class or topic."""

MIN_QUERIES_PER_TAG = 4
"""Minimum number of queries per tag, on average. Two queries seldom share such a short passage."""

LISTS = frozenset({"texts", "ids", "structs", "lists", "numbers", "empty"})
SCALARS = frozenset({"text", "id"})


@dataclass(frozen=True, slots=True)
class Head:
    """Parsed rows from the start of a file: at least one, and either all dicts or all lists.

    kinds : the commonest kind of value in each column (`kind_of`), in order of first appearance.
    """

    rows: tuple[Row, ...]
    kinds: Mapping[ColumnKey, str]

    @property
    def named(self) -> bool:
        """Tell whether columns have names; otherwise they are positions, counted from 0."""
        return isinstance(self.rows[0], dict)

    def column(self, key: ColumnKey) -> list[Any]:
        """Return the values of a column, without nulls and missing cells."""
        return [value for row in self.rows if (value := cell(row, key)) is not None]

    def typical(self, key: ColumnKey) -> list[Any]:
        """Return the values of a column that have its commonest kind."""
        return [value for value in self.column(key) if kind_of(value) == self.kinds[key]]

    def is_tag(self, key: int) -> bool:
        """Tell whether column 0 holds many queries for a few short words of a column, such as "entailment"."""
        pairs = {(cell(row, 0), value) for row in self.rows if isinstance(value := cell(row, key), str)
                 if isinstance(cell(row, 0), str | int)}  # fmt: skip
        values = {value for _, value in pairs}
        return 0 < len(values) * MIN_QUERIES_PER_TAG <= len(pairs) and all(
            len(value) <= MAX_TAG_CHARS for value in values
        )


def cell(row: Row, key: ColumnKey) -> Any:
    """Return a row's value under a name or position; None if it is absent."""
    if isinstance(row, dict):
        return row.get(key) if isinstance(key, str) else None
    return row[key] if isinstance(key, int) and key < len(row) else None


def make_head(rows: Sequence[Row]) -> Head:
    """Return the head of the rows that have the commoner form, named or positional. `rows` holds at least one row."""
    named = [row for row in rows if isinstance(row, dict)]
    alike: Sequence[Row] = named if 2 * len(named) >= len(rows) else [row for row in rows if isinstance(row, list)]
    counts: dict[ColumnKey, Counter[str]] = {}
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
        if isinstance(inner, list):  # no recursion, because a bad row may be nested to any depth
            return "lists"
        return "empty" if inner is None else LIST_KINDS.get(kind_of(inner), "lists")
    return SCALAR_KINDS.get(type(value), "other")


SCALAR_KINDS = {bool: "flag", int: "id", float: "number", dict: "struct", bytes: "bytes", type(None): "null"}
LIST_KINDS = {"text": "texts", "id": "ids", "struct": "structs", "number": "numbers", "flag": "ids"}


def look_like_words(values: Sequence[Any]) -> bool:
    """Tell whether MIN_ID_FRACTION of the values are single short words, as all ids are; False without values."""
    n_words = sum(bool(CELL_WORD.fullmatch(str(value))) for value in values)
    return bool(values) and n_words >= MIN_ID_FRACTION * len(values)


def look_like_names(values: Sequence[Any]) -> bool:
    """Tell whether MIN_ID_FRACTION of the values are single ASCII words, at least half of them with `_` or `:`."""
    words = [value for value in values if isinstance(value, str) and ASCII_WORD.fullmatch(value)]
    n_marked = sum(bool(ID_SEPARATOR.search(word)) for word in words)
    return bool(words) and len(words) >= MIN_ID_FRACTION * len(values) and 2 * n_marked >= len(words)


def look_like_ids(values: Sequence[Any]) -> bool:
    """Tell whether MIN_ID_FRACTION of the values are whole numbers or id-like words; False without values."""
    n_ids = sum(bool(ID.fullmatch(value)) if isinstance(value, str) else type(value) is int for value in values)
    return bool(values) and n_ids >= MIN_ID_FRACTION * len(values)


# A binding: the cells of a row that hold the query, the positives and the negatives.

Labelled = Literal["", "pair", "list"]

Extract = Callable[[Any], tuple[Any, Any, Any]]
"""Function that takes a row and returns its cells (query, positives, negatives) unchanged.

positives, negatives : a tuple of single cells, or the value of one column (a list if the row is valid).
Raises one of NOT_THE_SHAPE for a row of another shape.
"""

NOT_THE_SHAPE = (KeyError, IndexError, TypeError, AttributeError)
"""Errors that an extractor raises for a row of another shape."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A way to read rows of one shape.

    query, positives, negatives : names of their columns, as shown to the user.
    columns        : all columns that `extract` touches; None for rows without names.
    splits         : whether negatives are a dict {split: negatives} ("the keys of neg").
    either         : whether a single text may replace a list.
    labelled       : "pair" if `extract` returns (query, passage, label), "list" for (query, passages, labels), else "".
    query_ids, passage_ids : whether rows hold ids in place of these texts.
    positive_texts : whether positives are texts even if `passage_ids` is set.
    numbers        : whether some of these ids are JSON numbers.
    inner          : key of the passages in an object of parallel lists ("doc_id"), else "".
    empty_columns  : names of passage columns that are empty in the first rows; they are not read.
    head_columns   : names of the other columns of the first rows; empty if rows have no names.
    open_roles     : roles ("positive", "negative") that no flag settles; unread columns of these roles are counted.
    numbered_name  : common name of numbered columns that hold one negative each, without the number; else "".
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
    head_columns: frozenset[str] = frozenset()
    open_roles: frozenset[str] = frozenset(("positive", "negative"))
    numbered_name: str = ""

    def late_negatives(self, row: Row) -> list[str]:
        """Return numbered columns of single negatives that this row has and the first rows lack."""
        if not self.head_columns or not self.numbered_name or not isinstance(row, dict):
            return []
        keys = [key for key in row if key not in self.head_columns and unnumbered(key) == self.numbered_name]
        return sorted((key for key in keys if not isinstance(row[key], list)), key=number_of)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the names of all query and passage columns, including those that only later rows fill."""
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
    """Yield (query, positives, negatives) of each of the first rows, and leave out rows of another shape."""
    for row in head.rows:
        with suppress(*NOT_THE_SHAPE):
            yield binding.extract(with_nulls(row, binding))


def bind_columns(
    head: Head, query: ColumnKey, positive: ColumnKey, negatives: Sequence[ColumnKey], **options: Any
) -> Binding:
    """Return the binding of plain columns: one query column, one positive column, and one or more negative columns.

    A column is read as single cells or as lists, whichever is commoner in it. If the first rows have only nulls,
    each row decides. Several negative columns hold one cell each.
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
        numbered_name=unnumbered(str(negatives[0])) if head.named and scalar_negative else "",
        **options,
    )


def column_extract(
    query: ColumnKey, positive: ColumnKey, negatives: Sequence[ColumnKey], cell_p: bool, cell_n: bool
) -> Extract:
    """Return an extractor that calls itemgetter once per row.

    cell_p, cell_n : whether positives and negatives are single cells; these become a tuple.
    """
    get = itemgetter(query, positive, *negatives)
    if not (cell_p or cell_n):
        return get

    def extract(row: Any) -> tuple[Any, Any, Any]:
        cells = get(row)
        return cells[0], cells[1:2] if cell_p else cells[1], cells[2:] if cell_n else cells[2]

    return extract


def span(keys: Sequence[ColumnKey]) -> str:
    """Return the names of columns as one text: "negative", "negative_1…negative_10"."""
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]}…{keys[-1]}"


def number_of(name: str) -> int:
    """Return the number that ends a column's name; -1 if none does, so that `negative` sorts before `negative_1`."""
    number = re.search(r"(\d+)$", name)
    return int(number.group(1)) if number else -1


def unnumbered(name: str) -> str:
    """Return a column's name without the number at its end."""
    return re.sub(r"[_ -]?\d+$", "", name)


def with_nulls(row: Row, binding: Binding) -> Row:
    """Return a copy of the row in which missing columns of the binding are null."""
    if isinstance(row, dict) and binding.columns is not None:
        return {**dict.fromkeys(binding.columns), **row}
    return row


# Usual column names, and binders made from them.

Bind = Callable[[Head], list[Binding]]
"""Function that lists the bindings of one shape that fit a head; empty if the head has another shape."""

Form = Literal["cells", "lists", "any"]
"""Form of positives and negatives. cells: single cells. lists: a list on at least one side. any: each row decides."""

VIETNAMESE = "((đoạn|đoạn[_ ]văn|văn[_ ]bản|tài[_ ]liệu|câu)[_ ])?"
CJK_NOUN = "([_ ]?(文档|文本|文書|段落|문서|지문|단락|텍스트))?"
NOUN = "(passage|text|doc|document|ctx|context|example|answer|sentence)s?"
NEGATIVE_NAME = rf"(hard[_ -]?)?neg(ative)?s?([_ -]?{NOUN})?|irrelevant([_ -]?{NOUN})?|distractors?"
QUERY_NAMES = (
    r"((user|search)[_ -]?)?query([_ -]?text)?|anchor",
    r"question([_ -]?text)?",
    r"q|sentence1?|sent0|search_term|claim",
    r"queries|questions|anchors",
    r"查[询詢]|[问問][题題]|質問|クエリ|질문|질의|쿼리|câu[_ ]hỏi|truy[_ ]vấn",
)
POSITIVE_NAMES = (
    rf"pos(itive)?s?([_ -]?{NOUN})?|(gold|relevant|correct)([_ -]?{NOUN})?",
    r"(passage|document|doc|answer|context)([_ -]?text)?|sentence2|sent1",
    rf"(正(例|样本|樣本|解)|정답|긍정|{VIETNAMESE}đúng|dương[_ ]tính){CJK_NOUN}",
)
NEGATIVE_NAMES = (
    rf"({NEGATIVE_NAME})([_ -]?\d+)?",
    rf"(wrong|bad|incorrect|false)([_ -]?{NOUN})?([_ -]?\d+)?",
    rf"(([难難]|困[難难])?[负負](例|样本|樣本)|不正解|오답|부정|{VIETNAMESE}sai|âm[_ ]tính){CJK_NOUN}([_ -]?\d+)?",
)
"""Patterns of column names in tiers, the most certain first. A tier counts only if no column fits an earlier tier.

The last tier of each role holds the commonest names in Chinese, Japanese, Korean and Vietnamese.
"""
QUERY_ID_NAMES = (r"qid|query[_-]id", r"question[_-]id")
PASSAGE_NAMES = (
    r"passage|document|doc|para(graph)?|text|context|ctx|candidate|corpus|(passage|document|doc)_text",
    r"sentence2|answer",
)
PASSAGE_ID_NAMES = (r"pid|doc_?id|(passage|document|corpus)[_-]id",)
POSITIVE_IDS = r"pos(itive)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
NEGATIVE_IDS = r"(hard[_-]?)?neg(ative)?s?[_-]?((passage|document|doc|corpus|ans(wer)?|p)[_-]?)?ids?"
PASSAGE_LIST_NAMES = (r"docs|documents|passages|paragraphs|candidates|contexts|ctxs|texts",)
LABEL_NAMES = (
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
"""Pattern of words that mark a column as a description of passages, not the passages themselves."""


def has_word(name: str, word: re.Pattern[str]) -> bool:
    """Tell whether any word of a column's name matches a pattern."""
    return any(map(word.fullmatch, WORD.findall(name)))


def columns_named(head: Head, tiers: tuple[str, ...]) -> list[str]:
    """Return the columns that fit the first matching tier; [] if none fit. Whole names are compared, ignoring case."""
    for tier in tiers:
        names = [key for key in head.kinds if isinstance(key, str) and fits(key, (tier,))]
        if names:
            return names
    return []


def query_columns(head: Head) -> list[str]:
    """Return the columns named as queries; if there are none, those named as query ids."""
    return columns_named(head, QUERY_NAMES) or columns_named(head, QUERY_ID_NAMES)


def fits(name: str, tiers: tuple[str, ...]) -> bool:
    """Tell whether a column's whole name fits one of the tiers, ignoring case."""
    return any(re.fullmatch(tier, composed(name), re.IGNORECASE) for tier in tiers)


def composed(name: str) -> str:
    """Return a name in Unicode's composed form (NFC). macOS decomposes accents and Korean syllables (NFD)."""
    return normalize("NFC", name)


def says_negative(name: str) -> bool:
    """Tell whether a column's name says that it holds negatives."""
    return fits(name, NEGATIVE_NAMES) or (has_word(name, NEGATIVE_WORD) and not has_word(name, ABOUT))


def unread_role(name: str, binding: Binding) -> Literal["", "positive", "negative"]:
    """Return the role that an unread column has by its name; "" if it has none, or if a flag settles that role.

    A column is a positive if its name differs from the bound positive column only in its final number.
    """
    if binding.numbered_name and unnumbered(name) == binding.numbered_name:
        return "negative"
    if says_negative(name):
        return "negative" if "negative" in binding.open_roles else ""
    same = unnumbered(name) == unnumbered(binding.positives)
    return "positive" if same and "positive" in binding.open_roles else ""


def negative_groups(head: Head, names: list[str]) -> Iterator[list[ColumnKey]]:
    """Yield groups of negative columns whose names differ only in their final number, sorted by that number.

    A numbered column of lists is a group by itself.
    """
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
    """Return a binder of plain columns. query, positive, negative : pattern of whole column names, or tiers of them."""
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
            # Numbered columns form an n-tuple. A list on either side makes the shape "lists".
            if form != "lists" or (len(n) == 1 and LISTS & {head.kinds[p], head.kinds[n[0]]})
        ]

    return bind
