"""The answers of a language model on disk, written before anything is made of them: nothing is paid for twice."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from secid.errors import InputError, SecidError
from secid.export.writer import writing
from secid.mining.answers import Answer
from secid.pages.numbers import plural
from secid.progress import Progress


class Journal:
    """Answers on disk, a line of JSON each, forced to disk one by one; of each request the first counts.

    Answers of another recipe are left there and not used, which a note says. recipe: what an answer depends on besides
    its pair. Raises OutputError.
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
            progress.note(f"{path}: {plural(n, 'answer')} not used, of another {name}")

    def __contains__(self, request: str) -> bool:
        return request in self._places

    def __len__(self) -> int:
        """Answers that can be used."""
        return len(self._places)

    def _read(self) -> dict[str, int]:
        """Finds the answers, and counts those that are not used by what differs."""
        others: dict[str, int] = {}
        line, place = b"\n", 0
        with self._path.open("rb") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                    differ = " and ".join(key for key, value in self._recipe.items() if entry["recipe"][key] != value)
                    request = str(entry["request"])
                    Answer(**entry["answer"])
                except (ValueError, LookupError, TypeError, RecursionError):  # cut where a run was killed
                    differ, request = "", ""
                if differ:
                    others[differ] = others.get(differ, 0) + 1
                elif request:
                    self._places.setdefault(request, (place, len(line)))
                place += len(line)
        if not line.endswith(b"\n"):
            self._file.write(b"\n")
        return others

    def add(self, request: str, key: str, answer: Answer) -> None:
        """Writes an answer. Raises OutputError."""
        entry = {"key": key, "request": request, "recipe": self._recipe, "answer": dataclasses.asdict(answer)}
        line = json.dumps(entry).encode() + b"\n"
        with self._lock, writing(self._path):
            place = self._file.seek(0, os.SEEK_END)
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
            self._places.setdefault(request, (place, len(line)))

    def answer(self, request: str) -> Answer:
        """The answer to a request that the journal holds. Raises OutputError."""
        place, length = self._places[request]
        with self._lock, writing(self._path):
            self._file.seek(place)
            return Answer(**json.loads(self._file.read(length))["answer"])

    def close(self) -> None:
        """Nothing is written or read afterwards. A new journal without an answer, of a full disk too, is removed."""
        self._file.close()
        if self._is_new and not self._places:
            with suppress(OSError):
                self._path.unlink()


@contextmanager
def kept_answers(journals: Sequence[Path], progress: Progress) -> Iterator[None]:
    """Where the block fails or is interrupted, says how many answers the journals hold and how to go on."""
    try:
        yield
    except BaseException as error:
        n = sum(map(_n_lines, journals))
        answers = plural(n, "answer is kept", "answers are kept")
        kept = f"{answers}, already paid for: the same command resumes from them"
        if n and isinstance(error, InputError):  # the same command would meet the same input
            raise
        if n and isinstance(error, SecidError):
            error.remedy = "; ".join(filter(None, (error.remedy, kept)))
        elif n:
            progress.note(kept)
        raise


def _n_lines(path: Path) -> int:
    """Whole answers in a journal, of any recipe."""
    with suppress(OSError), path.open("rb") as lines:
        return sum(line.endswith(b"}\n") for line in lines)
    return 0
