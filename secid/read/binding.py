"""Where in a row the query, the positives and the negatives are, as names of columns and first rows show it."""

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
"""A text that looks like an id, one short ASCII word with a digit: it needs a collection, or `--format`."""

ASCII_WORD = re.compile(r"[!-~]{1,256}")
MARK = re.compile(r"[_:]")
"""What half of a column's ASCII words have where they are ids: FEVER's (`Fox_Broadcasting`), DBpedia's."""

CELL_WORD = re.compile(r"\S{2,64}")

ID_FRACTION = 0.9
"""Share of such values that makes a column one of ids: a few odd cells must not turn all the others into texts."""

TAG_LENGTH = 24
"""Characters of the longest word that names a class or topic."""

QUERIES_A_TAG = 4
"""Queries that share a tag, on average: passages so short are seldom shared by two."""

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
        """Whether columns have names; else they are positions, counted from 0."""
        return isinstance(self.rows[0], dict)

    def column(self, key: Key) -> list[Any]:
        """Values of a column, without nulls and absent ones."""
        return [value for row in self.rows if (value := cell(row, key)) is not None]

    def typical(self, key: Key) -> list[Any]:
        """Values of a column that are of its commonest kind."""
        return [value for value in self.column(key) if kind_of(value) == self.kinds[key]]

    def is_tag(self, query: Key, key: Key) -> bool:
        """Whether a column holds a few short words for many queries: topics or classes ("entailment"), no passages."""
        pairs = {(cell(row, query), value) for row in self.rows if isinstance(value := cell(row, key), str)
                 if isinstance(cell(row, query), str | int)}  # fmt: skip
        values = {value for _, value in pairs}
        return 0 < len(values) * QUERIES_A_TAG <= len(pairs) and all(len(value) <= TAG_LENGTH for value in values)


def cell(row: Row, key: Key) -> Any:
    """A row's value under a name or position; None where it is absent."""
    if isinstance(row, dict):
        return row.get(key) if isinstance(key, str) else None
    return row[key] if isinstance(key, int) and key < len(row) else None


def make_head(rows: Sequence[Row]) -> Head:
    """Head of the rows that have the commoner form (named or positional). `rows` holds at least one."""
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
    """text, id (an integer), number, flag, struct, bytes, null; texts, ids, structs, lists, numbers, empty (lists)."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        inner = next((item for item in value if item is not None), None)
        if isinstance(inner, list):  # not by recursion: a bad row may be nested without end
            return "lists"
        return "empty" if inner is None else LIST_KINDS.get(kind_of(inner), "lists")
    return SCALAR_KINDS.get(type(value), "other")


SCALAR_KINDS = {bool: "flag", int: "id", float: "number", dict: "struct", bytes: "bytes", type(None): "null"}
LIST_KINDS = {"text": "texts", "id": "ids", "struct": "structs", "number": "numbers", "flag": "ids"}


def look_like_words(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are single short words, as all ids are."""
    n_words = sum(bool(CELL_WORD.fullmatch(str(value))) for value in values)
    return bool(values) and n_words >= ID_FRACTION * len(values)


def look_like_names(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are single ASCII words, and half of these have `_` or `:`."""
    words = [value for value in values if isinstance(value, str) and ASCII_WORD.fullmatch(value)]
    n_marked = sum(bool(MARK.search(word)) for word in words)
    return bool(words) and len(words) >= ID_FRACTION * len(values) and 2 * n_marked >= len(words)


def look_like_ids(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are whole numbers or id-like words."""
    n_ids = sum(bool(ID.fullmatch(value)) if isinstance(value, str) else type(value) is int for value in values)
    return bool(values) and n_ids >= ID_FRACTION * len(values)


# A binding: where in a row the query, the positives and the negatives are.

Labelled = Literal["", "pair", "list"]

Extract = Callable[[Any], tuple[Any, Any, Any]]
"""Row -> (query, positives, negatives), as the row holds them.

positives, negatives: a tuple of single cells, or whatever the one column holds (a list where the
row is right). Raises one of NOT_THE_SHAPE where the row has another one.
"""

NOT_THE_SHAPE = (KeyError, IndexError, TypeError, AttributeError)
"""What an extractor raises on a row of another shape."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How rows of one shape are read.

    query, positives, negatives : where they come from, in words for the user.
    columns    : all that `extract` touches; None for rows without names.
    splits     : negatives are a dict {split: negatives} ("the keys of neg").
    pairs      : texts are [instruction, text] pairs.
    either     : a single text may replace a list.
    labelled   : `extract` gives (query, passage, label), one row a "pair", or (query, passages, labels), a "list".
    query_ids, passage_ids : ids replace the texts.   positive_texts : but those of the positives.
    numbers    : some of these ids are numbers of JSON.
    inner      : the list inside an object of parallel lists that holds the passages ("doc_id"), else "".
    empty_columns : names of the columns of passages that are empty in the first rows and not read.
    known      : names of the other columns of the first rows; empty where rows have no names.
    counted    : roles ("positive", "negative") that no flag settles: columns of theirs that are not read are counted.
    numbered   : name of the columns of negatives but for the number at its end, where each holds one; else "".
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
        """Columns of one negative, numbered as the bound ones are, that this row has and the first rows have not."""
        if not self.known or not self.numbered or not isinstance(row, dict):
            return []
        keys = [key for key in row if key not in self.known and unnumbered(key) == self.numbered]
        return sorted((key for key in keys if not isinstance(row[key], list)), key=number_of)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of all columns of queries and passages, of those too that only later rows fill."""
        return (*(self.columns or ()), *self.empty_columns)

    @property
    def mapping(self) -> str:
        """The mapping in one line: "query=anchor, positive=positive, negatives=negative_1…negative_10"."""
        ids = {(True, True): "ids", (True, False): "query ids", (False, True): "passage ids"}
        notes = [ids.get((self.query_ids, self.passage_ids), ""), self.note]
        tail = "; ".join(note for note in notes if note)
        text = f"query={self.query}, positive={self.positives}, negatives={self.negatives}"
        return f"{text} ({tail})" if tail else text


def extracted(binding: Binding, head: Head) -> Iterator[tuple[Any, Any, Any]]:
    """What the binding extracts of the first rows, without those of another shape."""
    for row in head.rows:
        with suppress(*NOT_THE_SHAPE):
            yield binding.extract(filled(row, binding))


def bind_columns(head: Head, query: Key, positive: Key, negatives: Sequence[Key], **options: Any) -> Binding:
    """Binding of plain columns: a query, a positive, and one or several columns of negatives.

    A column is read as single cells or as lists by its commonest kind, row by row where the first rows
    have only nulls; several columns of negatives are single cells each.
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
    """One itemgetter call a row. cell_p, cell_n: positives, negatives are single cells, which become a tuple."""
    get = itemgetter(query, positive, *negatives)
    if not (cell_p or cell_n):
        return get

    def extract(row: Any) -> tuple[Any, Any, Any]:
        cells = get(row)
        return cells[0], cells[1:2] if cell_p else cells[1], cells[2:] if cell_n else cells[2]

    return extract


def span(keys: Sequence[Key]) -> str:
    """Columns in words: "negative", "negative_1…negative_10"."""
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]}…{keys[-1]}"


def number_of(name: str) -> int:
    """The number a column's name ends on; -1 where there is none, so that `negative` comes before `negative_1`."""
    number = re.search(r"(\d+)$", name)
    return int(number.group(1)) if number else -1


def unnumbered(name: str) -> str:
    """A column's name without the number it ends on."""
    return re.sub(r"[_ -]?\d+$", "", name)


def filled(row: Row, binding: Binding) -> Row:
    """The row with null for each column that the binding touches and the row has not."""
    if isinstance(row, dict) and binding.columns is not None:
        return {**dict.fromkeys(binding.columns), **row}
    return row


# Names that columns go by, and binders made of them.

Bind = Callable[[Head], list[Binding]]
"""All ways a shape can be read from a head; empty where it is another shape."""

Form = Literal["cells", "lists", "any"]
"""Single cells throughout; lists on at least one side; or either, row by row."""

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
"""Tiers of names, the surest first: a later tier counts only where no earlier one is present.

The last tier of each is the commonest names in Chinese, Japanese, Korean and Vietnamese.
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
"""Words of columns that say something of a passage and hold none."""


def has_word(name: str, word: re.Pattern[str]) -> bool:
    """Whether some word of a name is such a word."""
    return any(map(word.fullmatch, WORD.findall(name)))


def columns_named(head: Head, tiers: tuple[str, ...]) -> list[str]:
    """Columns whose whole name fits the first tier that any column fits, ignoring case."""
    for tier in tiers:
        names = [key for key in head.kinds if isinstance(key, str) and fits(key, (tier,))]
        if names:
            return names
    return []


def query_columns(head: Head) -> list[str]:
    """Columns named as queries, else as their ids."""
    return columns_named(head, QUERY) or columns_named(head, QUERY_ID)


def fits(name: str, tiers: tuple[str, ...]) -> bool:
    """Whether a column's whole name fits some tier, ignoring case."""
    return any(re.fullmatch(tier, composed(name), re.IGNORECASE) for tier in tiers)


def composed(name: str) -> str:
    """A name as it looks: macOS writes accents and Korean syllables in pieces (Unicode's NFD)."""
    return normalize("NFC", name)


def says_negative(name: str) -> bool:
    """Whether a column's name says that it holds negatives."""
    return fits(name, NEGATIVE) or (has_word(name, NEGATIVE_WORD) and not has_word(name, ABOUT))


def unread_role(name: str, binding: Binding) -> Literal["", "positive", "negative"]:
    """What a column that the binding does not read holds by its name, unless a flag settles that role.

    A positive is one whose name differs from that of the column of positives in its number alone.
    """
    if binding.numbered and unnumbered(name) == binding.numbered:
        return "negative"
    if says_negative(name):
        return "negative" if "negative" in binding.counted else ""
    same = unnumbered(name) == unnumbered(binding.positives)
    return "positive" if same and "positive" in binding.counted else ""


def negative_groups(head: Head, names: list[str]) -> Iterator[list[Key]]:
    """Columns of negatives that belong together: same name but for the number at its end, in numeric order."""
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
    """Binder of plain columns by their names (patterns of whole names, or tiers of them)."""
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
            # Numbered columns are n-tuples; a lone list on either side makes the row one of lists.
            if form != "lists" or (len(n) == 1 and LISTS & {head.kinds[p], head.kinds[n[0]]})
        ]

    return bind
