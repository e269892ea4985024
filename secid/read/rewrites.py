"""Shell commands that write a copy of a file which secid reads: printed with the errors that refuse the file."""

from __future__ import annotations

import re
from pathlib import PurePath
from shlex import quote

from secid.read.rows import shorten
from secid.read.stream import STDIN, ByteStream, once_only

ENCODINGS = ("CP1252", "CP1251", "GB18030", "CP932", "CP949")
"""Western European, Cyrillic, Chinese, Japanese and Korean; UTF-16 shows by its first bytes."""

UTF_8 = "write it in UTF-8"
COMMAS = r"""'s/("(?:[^"\\]++|\\.)*+")|,(?=\s*(?:[]}]|$))/$1/g'"""
"""Leaves texts as they are, and takes commas before a closing bracket and at the end."""
SURROGATES = (
    "python -X utf8 -c \"import json, sys; sys.stdout.reconfigure(errors='replace'); "
    '[print(json.dumps(json.loads(line), ensure_ascii=False)) for line in sys.stdin]"'
)
LIST_KEY = re.compile(rb'"(\w+)"\s*:\s*\[\s*\{')
"""The key of a list of objects, in the head of a document."""


def rewrite(path: str, compression: str, command: str, suffix: str = ".jsonl") -> str:
    """The command, fed with the file's bytes as they are when unpacked, writing `records` with this suffix."""
    program = {"gz": "gzip -dc", "zst": "zstd -dc", "": "cat"}[compression]
    source = "" if path == STDIN else f"{program} {quote(path)} | "
    return f"{source}{command} > records{suffix}"


def with_commas(path: str, compression: str, delimiter: str) -> str:
    """The command that writes a table with another delimiter as CSV."""
    code = f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{delimiter}'))"
    command = f'python -X utf8 -c "{code}"'
    return f"write it with commas: {rewrite(path, compression, command, '.csv')}"


def without_commas(path: str, compression: str, *, lines: bool) -> str:
    """The command that takes the trailing commas of each line, or of a document."""
    command = f"perl -pe {COMMAS}" if lines else f"perl -0777 -pe {COMMAS}"
    return f"write it without them: {rewrite(path, compression, command)}"


def without_surrogates(path: str, compression: str) -> str:
    """The command that writes a question mark for each half of a surrogate pair."""
    return f"write a question mark for each: {rewrite(path, compression, SURROGATES)}"


def as_lines(path: str, compression: str, head: bytes) -> str:
    """The command that writes the records of a document, of which `head` is the start, as JSON lines."""
    key = LIST_KEY.search(head) if head.startswith(b"{") else None
    step = f"jq -c '.{key[1].decode() if key else ''}[]'"
    return f"write one record per line: {rewrite(path, compression, step)}"


def in_utf8(path: str, encoding: str = "") -> str:
    """The command that writes a file in UTF-8, with what its first foreign word reads in each encoding that fits it."""
    if once_only(path):
        return UTF_8
    stream = ByteStream(path)
    head, compression = stream.peek(), stream.compression
    stream.close()
    suffix = "".join(PurePath(path).suffixes[-2:]).removesuffix(".gz").removesuffix(".zst")
    readings = {encoding: ""} if encoding else _readings(head)
    commands = [
        f"`{rewrite(path, compression, f'iconv -f {name} -t UTF-8', suffix)}`" + (f" reads {word}" if word else "")
        for name, word in readings.items()
    ]
    return ", or ".join([f"{UTF_8}: {commands[0]}", *commands[1:]]) if commands else UTF_8


def _readings(head: bytes) -> dict[str, str]:
    """What the first word that is not UTF-8 reads in each encoding in which the whole head can be read."""
    head = head[: head.rfind(b"\n") + 1] or head
    try:
        head.decode()
    except UnicodeDecodeError as error:
        first = error.start
    else:
        return {}
    start = max(head.rfind(mark, 0, first) for mark in (b" ", b"\n", b"\t", b",", b'"')) + 1
    readings = {}
    for name in ENCODINGS:
        try:
            head.decode(name)
        except UnicodeDecodeError:
            continue
        text = head[start : start + 200].decode(name, errors="ignore")
        readings[name] = shorten(re.split(r'[\s,"]', text, maxsplit=1)[0], 20)
    return readings
