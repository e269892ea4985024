"""Names that columns go by, and binders made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Literal
from unicodedata import normalize

from secid.read.schemas.binding import Binding, bind_columns, number_of, unnumbered
from secid.read.schemas.head import LISTS, SCALARS, Head, Key

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


def named(head: Head, tiers: tuple[str, ...]) -> list[str]:
    """Columns whose whole name fits the first tier that any column fits, ignoring case."""
    for tier in tiers:
        names = [key for key in head.kinds if isinstance(key, str) and fits(key, (tier,))]
        if names:
            return names
    return []


def query_columns(head: Head) -> list[str]:
    """Columns named as queries, else as their ids."""
    return named(head, QUERY) or named(head, QUERY_ID)


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
        queries = [key for key in named(head, tiers[0]) if head.kinds[key] in SCALARS]
        positives, negatives = ([key for key in named(head, tier) if head.kinds[key] in kinds] for tier in tiers[1:])
        return [
            bind_columns(head, q, p, n, either=form == "any", **options)
            for q, p, n in product(queries, positives, list(negative_groups(head, negatives)))
            # Numbered columns are n-tuples; a lone list on either side makes the row one of lists.
            if form != "lists" or (len(n) == 1 and LISTS & {head.kinds[p], head.kinds[n[0]]})
        ]

    return bind
