"""Split the answers of a language model into negatives and rejected texts, and keep the answers in a journal."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.errors import InputError, SecidError
from secid.findings.copies import near_copies, run_sets
from secid.findings.languages import UNCERTAIN_LANGUAGE, language_numbers
from secid.findings.phrases import is_refusal, phrase
from secid.pages.text import plural
from secid.pool.normal_form import FormKeys, is_empty, normal_form
from secid.pool.texts import Packed
from secid.progress import Progress
from secid.write.writer import writing

# Every text in an answer is a negative or is rejected for a reason.
#
# Text rules are those of the catalogue (METHOD 14). The first reason that applies counts:
#
#     for an answer   rejected          the server refused the request (too long, filtered)
#                     refusal           the model declined
#                     truncated         cut at the limit of tokens, before its list was complete
#                     not_json          has no list of texts
#                     not_chat          the response is not a chat completion
#                     too_long          the response is larger than MAX_BYTES
#                     fewer             fewer texts than requested; its texts are still used
#     for a text      not_text          a number, null, or characters that no UTF-8 file holds
#                     empty, refusal, preamble, query_echo, false_negative, near_copy, repeat, other_language
#                     surplus           comes after the requested number of good texts; it is not checked

CUT, FILTERED = "length", "content_filter"
"""Values of `finish_reason` if the token limit was reached, and if a filter removed the answer."""
NOT_CHAT, TOO_LONG = "not_chat", "too_long"
"""Values of `finish_reason` that secid sets if a response cannot be used."""
MAX_BYTES = 1 << 20
"""Maximum size of a response in bytes, enough for a hundred passages of 2,000 words."""
MAX_SEARCHED_PLACES = 1_000
"""Maximum number of places in a text that are searched for a list. Each search may read the whole text."""
THOUGHT_END = "</think>"
"""End of a model's reasoning, which may hold drafts of a list."""
LIST_KEY, TEXT_KEY = "negatives", "text"
"""Key of the list that the prompt asks for, and of the text in an object that also has other texts."""
NUMBERED_LINE = re.compile(r"^[ \t]*\d+[.)][ \t]+(\S.*)$", re.MULTILINE)
JSON_START = re.compile(r"[\[{]")
JSON_DECODER = json.JSONDecoder(strict=False)
"""Decoder that accepts line ends within strings, since models write them."""


@dataclass(frozen=True)
class PromptPair:
    """A query that a model writes negatives for.

    key : the query's text key in hex.
    positives : at least one. The prompt contains the first; negatives are compared with all of them.
    """

    key: str
    query: str
    positives: tuple[str, ...]


@dataclass(frozen=True)
class ServerAnswer:
    """A server's answer. Text fields that it did not send are "".

    tokens_in, tokens_out : token counts, 0 or more; None if the server sent anything else.
    """

    content: str
    refusal: str
    finish_reason: str
    tokens_in: int | None
    tokens_out: int | None

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Return the token counts of prompt and answer; None unless both are known."""
        return None if self.tokens_in is None or self.tokens_out is None else (self.tokens_in, self.tokens_out)

    @staticmethod
    def of(document: Any) -> ServerAnswer:
        """Read a chat completion. Raises KeyError, IndexError, TypeError or ValueError if the document is not one."""
        choice = document["choices"][0]
        message, usage = choice["message"], document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return ServerAnswer(
            content=_text(message.get("content")),
            refusal=_text(message.get("refusal")),
            finish_reason=_text(choice.get("finish_reason")),
            tokens_in=_tokens(usage.get("prompt_tokens")),
            tokens_out=_tokens(usage.get("completion_tokens")),
        )


@dataclass(frozen=True)
class WrittenNegatives:
    """Negatives of one pair.

    texts    : distinct negatives, in the order of the answer.
    rejected : (reason, text) for each text that was rejected.
    """

    texts: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]


def _text(value: object) -> str:
    """Return a text, "" for None. Raises TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value or ""


def _tokens(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def written(answer: ServerAnswer, pair: PromptPair, n: int) -> WrittenNegatives:
    """Return the negatives of an answer, at most n, and the rejected texts. n: number requested."""
    reason, items = _items(answer)
    if reason:
        return WrittenNegatives((), ((reason, printable(answer.content or answer.refusal)),))
    good: list[str] = []
    rejected: list[tuple[str, str]] = []
    forms: set[str] = set()
    start, stop = 0, n
    while start < len(items) and len(good) < n:
        part, start, stop = items[start:stop], stop, 2 * stop
        for item, fault in zip(part, _faults(part, pair, forms), strict=True):
            if fault is None and len(good) < n:
                good.append(_shown(item))
            else:
                rejected.append(("surplus" if len(good) == n else fault or "", _shown(item)))
    rejected += [("surplus", _shown(item)) for item in items[start:]]
    if len(items) < n:
        rejected.append(("fewer", printable(answer.content)))
    return WrittenNegatives(tuple(good), tuple(rejected))


def _items(answer: ServerAnswer) -> tuple[str, list[object]]:
    """Return ("", list) for an answer, or (reason, []) if it has no list."""
    if answer.refusal or answer.finish_reason == FILTERED:
        return "refusal", []
    if answer.finish_reason in (NOT_CHAT, TOO_LONG):
        return answer.finish_reason, []
    content = answer.content.rpartition(THOUGHT_END)[2]
    values = sorted(_values(content), key=lambda value: isinstance(value, dict) and LIST_KEY in value)
    lists = list(filter(None, map(_list_of, values)))
    if lists:
        return "", lists[-1]
    if answer.finish_reason == CUT:
        return "truncated", []
    if is_refusal(content):
        return "refusal", []
    numbered = NUMBERED_LINE.findall(content)
    return ("", numbered) if len(numbered) > 1 else ("not_json", [])


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON lists and objects in a text. Text around them is ignored."""
    start, n_read = JSON_START.search(text), 0
    while start and n_read < MAX_SEARCHED_PLACES:
        n_read += 1
        try:
            value, end = JSON_DECODER.raw_decode(text, start.start())
            yield value
        except RecursionError:  # no list of texts is nested so deeply
            return
        except ValueError:
            end = start.end()
        start = JSON_START.search(text, end)


def _list_of(value: Any) -> list[object] | None:
    """Return the list in a JSON value, or the value itself if it is a list. Return None if no item is a text.

    The list is the one called `negatives`, or else the first. An object counts as its `text`, or as its only text.

    >>> _list_of({"negatives": [{"id": 1, "text": "a"}, "b"]}), _list_of([1, 2])
    (['a', 'b'], None)
    """
    if isinstance(value, dict):
        value = next((part for part in (value.get(LIST_KEY), *value.values()) if isinstance(part, list)), None)
    if not isinstance(value, list):
        return None
    items = [_only_text(item) if isinstance(item, dict) else item for item in value]
    return items if any(isinstance(item, str) for item in items) else None


def _only_text(item: dict[str, object]) -> object:
    if isinstance(item.get(TEXT_KEY), str):
        return item[TEXT_KEY]
    texts = [part for part in item.values() if isinstance(part, str)]
    return texts[0] if len(texts) == 1 else item


def printable(text: str) -> str:
    """Replace every lone surrogate with a question mark. JSON can contain lone surrogates, but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _shown(item: object) -> str:
    return item.strip() if isinstance(item, str) and printable(item) == item else json.dumps(item)


def _faults(items: Sequence[object], pair: PromptPair, forms: set[str]) -> Iterator[str | None]:
    """Yield the first fault of each item; None for a valid negative. Normal forms of the items are added to `forms`."""
    texts, positives = list(map(_shown, items)), set(map(normal_form, pair.positives))
    query, near, foreign = normal_form(pair.query), _near_copies(texts, pair.positives), _foreign(texts, pair.positives)
    for place, (item, text) in enumerate(zip(items, texts, strict=True)):
        form = normal_form(text)
        if not isinstance(item, str) or printable(item) != item:
            yield "not_text"
        elif is_empty(form):
            yield "empty"
        elif phrase(text) is not None:
            yield "refusal" if is_refusal(text) else "preamble"
        elif form == query:
            yield "query_echo"
        elif form in positives:
            yield "false_negative"
        elif near[place]:
            yield "near_copy"
        elif form in forms:
            yield "repeat"
        else:
            yield "other_language" if foreign[place] else None
        forms.add(form)


def _near_copies(texts: Sequence[str], positives: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return flags of texts that are a near copy of a positive, (n,)."""
    negative_runs, known = (run_sets(FormKeys.of(Packed.of(part))) for part in (texts, positives))
    places = np.repeat(np.arange(len(texts)), len(positives)), np.tile(np.arange(len(positives)), len(texts))
    near = near_copies(negative_runs.take(places[0]), known.take(places[1]))
    return np.asarray(near.reshape(len(texts), len(positives)).any(axis=1))


def _foreign(texts: Sequence[str], positives: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return (n,) flags of texts in another language than all positives. An undecided language flags nothing."""
    language = language_numbers(Packed.of(texts))
    known = np.setdiff1d(language_numbers(Packed.of(positives)), [UNCERTAIN_LANGUAGE])
    return np.asarray((language != UNCERTAIN_LANGUAGE) & (len(known) > 0) & ~np.isin(language, known))


# Answers are written to disk before they are used, so that no answer is paid for twice.


class Journal:
    """File of answers, a line of JSON each. Each answer is synced to disk. The first answer to a request counts.

    Answers of another recipe are kept but not used, and a note reports them.
    recipe : everything except its pair that an answer depends on. Raises OutputError.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any], progress: Progress) -> None:
        self._path, self._recipe = path, recipe
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, int]] = {}
        self._is_new = not path.exists()
        with writing(self._path):
            self._file = path.open("a+b", buffering=0)  # with a buffer, closing after a full disk would fail again
            others = self._read()
        for name, n in others.items():
            progress.note(f"{path}: {plural(n, 'answer')} of another {name} will not be used")

    def __contains__(self, request: str) -> bool:
        return request in self._places

    def __len__(self) -> int:
        return len(self._places)

    def _read(self) -> dict[str, int]:
        """Find the answers, and count the unused ones by the part of the recipe that differs."""
        others: dict[str, int] = {}
        line, place = b"\n", 0
        with self._path.open("rb") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                    differ = " and ".join(key for key, value in self._recipe.items() if entry["recipe"][key] != value)
                    request = str(entry["request"])
                    ServerAnswer(**entry["answer"])
                except (ValueError, LookupError, TypeError, RecursionError):  # incomplete, since a run was killed
                    differ, request = "", ""
                if differ:
                    others[differ] = others.get(differ, 0) + 1
                elif request:
                    self._places.setdefault(request, (place, len(line)))
                place += len(line)
        if not line.endswith(b"\n"):
            self._file.write(b"\n")
        return others

    def add(self, request: str, key: str, answer: ServerAnswer) -> None:
        """Write an answer. Raises OutputError."""
        entry = {"key": key, "request": request, "recipe": self._recipe, "answer": dataclasses.asdict(answer)}
        line = json.dumps(entry).encode() + b"\n"
        with self._lock, writing(self._path):
            place = self._file.seek(0, os.SEEK_END)
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
            self._places.setdefault(request, (place, len(line)))

    def answer(self, request: str) -> ServerAnswer:
        """Return the answer to a request in the journal. Raises OutputError."""
        place, length = self._places[request]
        with self._lock, writing(self._path):
            self._file.seek(place)
            return ServerAnswer(**json.loads(self._file.read(length))["answer"])

    def close(self) -> None:
        """Close the file. A new journal without answers is removed, for example after a full disk."""
        self._file.close()
        if self._is_new and not self._places:
            with suppress(OSError):
                self._path.unlink()


@contextmanager
def resume_hint(journals: Sequence[Path], progress: Progress) -> Iterator[None]:
    """If the block fails or is interrupted, report how many answers the journals have and how to resume."""
    try:
        yield
    except BaseException as error:
        n = sum(map(_n_lines, journals))
        answers = plural(n, "paid answer is kept", "paid answers are kept")
        hint = f"{answers}; the same command reuses them"
        if n and isinstance(error, InputError):  # the same command would fail again
            raise
        if n and isinstance(error, SecidError):
            error.remedy = "; ".join(filter(None, (error.remedy, hint)))
        elif n:
            progress.note(hint)
        raise


def _n_lines(path: Path) -> int:
    with suppress(OSError), path.open("rb") as lines:
        return sum(line.endswith(b"}\n") for line in lines)
    return 0
