"""What a language model answered: negatives, and everything else under a reason.

Every rule on texts is the catalogue's (METHOD 14). The reasons, of which the first that applies counts:

    of an answer    rejected          the server did not take the request (too long, filtered)
                    refusal           the model declined
                    truncated         cut at the limit of tokens, before its list was complete
                    not_json          no JSON list of texts in it
                    fewer             fewer texts than asked for; those that there are count
    of a text       not_text          a number, null, or characters that no UTF-8 file holds
                    empty, refusal, preamble, query_echo, copy_of_positive, repeat, wrong_language
                    more              good ones beyond the number asked for
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.findings.copies import near_copies, run_sets
from secid.findings.languages import UNDECIDED, language_numbers
from secid.findings.normal_form import FormKeys, is_empty, normal_form
from secid.findings.preambles import is_refusal, phrase
from secid.pool.texts import Packed

CUT, FILTERED = "length", "content_filter"
"""The `finish_reason` of an answer that reached the limit of tokens, and of one that a filter took away."""
OPENING = re.compile(r"[\[{]")
JSON = json.JSONDecoder(strict=False)
"""Accepts line ends within strings, which models write."""


@dataclass(frozen=True)
class Pair:
    """A query that negatives are written for. key: hex of its text key. The prompt gets the first positive, and the
    negatives are compared with all; at least one.
    """

    key: str
    query: str
    positives: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """An answer as the server sent it; "" for what it did not send. tokens_in, tokens_out: None without `usage`."""

    content: str
    refusal: str
    finish_reason: str
    tokens_in: int | None
    tokens_out: int | None

    @staticmethod
    def of(document: Any) -> Answer:
        """From a chat completion. Raises KeyError, IndexError, TypeError or ValueError if it is none."""
        choice = document["choices"][0]
        message, usage = choice["message"], document.get("usage") or {}
        tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
        return Answer(
            content=_text(message.get("content")),
            refusal=_text(message.get("refusal")),
            finish_reason=_text(choice.get("finish_reason")),
            tokens_in=None if tokens[0] is None else int(tokens[0]),
            tokens_out=None if tokens[1] is None else int(tokens[1]),
        )


@dataclass(frozen=True)
class Written:
    """What came of one pair. texts: negatives, distinct and in the order of the answer. kept_beside: (reason, text) of
    all else. tokens_in, tokens_out: as the server reports them, 0 where it does not.
    """

    texts: tuple[str, ...]
    kept_beside: tuple[tuple[str, str], ...]
    tokens_in: int
    tokens_out: int


def _text(value: object) -> str:
    """Raises TypeError for anything but a text or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value or ""


def written(answer: Answer, pair: Pair, n: int) -> Written:
    """The negatives of an answer to a request for n of them; at most n."""
    tokens = answer.tokens_in or 0, answer.tokens_out or 0
    reason, items = _items(answer)
    if reason:
        return Written((), ((reason, printable(answer.content or answer.refusal)),), *tokens)
    texts = [item.strip() for item in items if isinstance(item, str) and printable(item) == item]
    beside = [("not_text", json.dumps(item)) for item in items if not isinstance(item, str) or printable(item) != item]
    good: list[str] = []
    for text, fault in zip(texts, _faults(texts, pair), strict=True):
        if fault is None and len(good) < n:
            good.append(text)
        else:
            beside.append((fault or "more", text))
    if len(items) < n:
        beside.append(("fewer", printable(answer.content)))
    return Written(tuple(good), tuple(beside), *tokens)


def _items(answer: Answer) -> tuple[str, list[object]]:
    """Why an answer has no list, else "", and its list."""
    if answer.refusal or answer.finish_reason == FILTERED:
        return "refusal", []
    items = next(filter(None, map(_list_of, _values(answer.content))), None)
    if items is not None:
        return "", items
    if answer.finish_reason == CUT:
        return "truncated", []
    return "refusal" if is_refusal(answer.content) else "not_json", []


def _values(text: str) -> Iterator[Any]:
    """The JSON lists and objects in a text, whatever is written around them."""
    start = OPENING.search(text)
    while start:
        try:
            value, end = JSON.raw_decode(text, start.start())
            yield value
        except RecursionError:  # no list of texts is nested so deeply
            return
        except ValueError:
            end = start.end()
        start = OPENING.search(text, end)


def _list_of(value: Any) -> list[object] | None:
    """The list that a JSON value is or holds, with a text in it; an item may be an object with one text.

    >>> _list_of({"negatives": [{"id": 1, "text": "a"}, "b"]}), _list_of([1, 2])
    (['a', 'b'], None)
    """
    if isinstance(value, dict):
        value = next((part for part in value.values() if isinstance(part, list)), None)
    if not isinstance(value, list):
        return None
    items = [_only_text(item) if isinstance(item, dict) else item for item in value]
    return items if any(isinstance(item, str) for item in items) else None


def _only_text(item: dict[str, object]) -> object:
    texts = [part for part in item.values() if isinstance(part, str)]
    return texts[0] if len(texts) == 1 else item


def printable(text: str) -> str:
    """A text with a question mark for every lone surrogate, which JSON can spell and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _faults(texts: Sequence[str], pair: Pair) -> Iterator[str | None]:
    """The first reason that each text is none of the query's negatives; None for a good one."""
    if not texts:
        return
    forms, positives = list(map(normal_form, texts)), set(map(normal_form, pair.positives))
    query, near, foreign = normal_form(pair.query), _near_copies(texts, pair.positives), _foreign(texts, pair.positives)
    for place, (text, form) in enumerate(zip(texts, forms, strict=True)):
        if is_empty(form):
            yield "empty"
        elif phrase(text) is not None:
            yield "refusal" if is_refusal(text) else "preamble"
        elif form == query:
            yield "query_echo"
        elif form in positives or near[place]:
            yield "copy_of_positive"
        elif form in forms[:place]:
            yield "repeat"
        else:
            yield "wrong_language" if foreign[place] else None


def _near_copies(texts: Sequence[str], positives: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(n,) the text is a near copy of a positive."""
    own, known = (run_sets(FormKeys.of(Packed.of(part))) for part in (texts, positives))
    places = np.repeat(np.arange(len(texts)), len(positives)), np.tile(np.arange(len(positives)), len(texts))
    near = near_copies(own.take(places[0]), known.take(places[1]))
    return np.asarray(near.reshape(len(texts), len(positives)).any(axis=1))


def _foreign(texts: Sequence[str], positives: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(n,) the text's language is decided, so is a positive's, and no positive has it."""
    own = language_numbers(texts)
    known = np.setdiff1d(language_numbers(positives), [UNDECIDED])
    return np.asarray((own != UNDECIDED) & (len(known) > 0) & ~np.isin(own, known))
