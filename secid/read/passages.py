"""What one cell holds: a text, or the id of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TEXT_KEYS = ("text", "contents", "content", "passage_text", "document_text", "passage", "document", "body")
ID_KEYS = ("docid", "doc_id", "pid", "psg_id", "passage_id", "corpus_id", "corpus-id", "document_id", "_id", "id")
TITLE_KEY = "title"


def passage_text(passage: Mapping[str, Any]) -> Any:
    """The text of a passage object, whatever its type; None where it has none."""
    return next((passage[key] for key in TEXT_KEYS if key in passage), None)


def passage_id(passage: Mapping[str, Any]) -> Any:
    """The id of a passage object; None where it has none."""
    return next((passage[key] for key in ID_KEYS if key in passage), None)


def join_title(title: Any, text: str) -> str:
    """Title, space, text, as in Tevatron, DPR, E5 and BEIR; only one of them where the other is empty."""
    if not isinstance(title, str) or not title:
        return text
    return f"{title} {text}" if text else title


def leaves(value: Any) -> Iterator[Any]:
    """Every text or id inside a cell, a list, or a dict of lists; for detection only."""
    waiting = [value]  # no recursion: a bad row may be nested arbitrarily deep
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            text = passage_text(value)
            leaf = passage_id(value) if text is None else text
            if leaf is not None:
                yield leaf
            else:
                waiting.extend(inner for inner in value.values() if isinstance(inner, list))
        elif value is not None:
            yield value
