"""Shell commands that write a copy of a file which secid reads: printed with the errors that refuse the file."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from secid.read.rows import shorten
from secid.read.stream import ByteStream

ENCODINGS = ("CP1252", "CP1251", "GB18030", "CP932", "CP949")
"""Western European, Cyrillic, Chinese, Japanese and Korean; UTF-16 shows by its first bytes."""

UTF_8 = "write it in UTF-8"
LIST_KEY = re.compile(rb'"(\w+)"\s*:\s*\[\s*\{')
"""The key of a list of objects, in the head of a document."""


def rewrite(path: str, command: str, suffix: str = ".jsonl") -> str:
    """The command, fed with the file's unpacked bytes, writing `records` with this suffix."""
    output = f"records{suffix}" if Path(path).name != f"records{suffix}" else f"new-records{suffix}"
    if not Path(path).is_file():  # standard input, a pipe
        return f"{command} > {output}"
    stream = ByteStream(path)
    program = {"gz": "gzip -dc", "zst": "zstd -dc", "": "cat"}[stream.compression]
    stream.close()
    return f"{program} {quote(path)} | {command} > {output}"


def with_commas(path: str, delimiter: str) -> str:
    """The command that writes a table with another delimiter as CSV."""
    code = f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{delimiter}'))"
    command = f'python -X utf8 -c "{code}"'
    return f"write it with commas: {rewrite(path, command, '.csv')}"


def as_lines(path: str, head: bytes) -> str:
    """The command that writes the records of a document, of which `head` is the start, as JSON lines."""
    key = LIST_KEY.search(head) if head.startswith(b"{") else None
    step = f"jq -c '.{key[1].decode() if key else ''}[]'"
    return f"write one record per line: {rewrite(path, step)}"


def in_utf8(path: str, encoding: str = "") -> str:
    """The command that writes a file in UTF-8, with what its first foreign word reads in each encoding that fits it."""
    if not Path(path).is_file():
        return UTF_8
    stream = ByteStream(path)
    readings = {encoding: ""} if encoding else _readings(stream.peek())
    stream.close()
    suffix = Path(path.removesuffix(".gz").removesuffix(".zst")).suffix
    commands = {name: rewrite(path, f"iconv -f {name} -t UTF-8", suffix) for name in readings}
    if len(commands) == 1:
        return f"{UTF_8}: {next(iter(commands.values()))}"
    either = ", or ".join(f"`{commands[name]}` reads {word}" for name, word in readings.items())
    return f"{UTF_8}: {either}" if either else UTF_8


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
        word = shorten(re.split(r'[\s,"]', text, maxsplit=1)[0], 20)
        if word.isprintable():
            readings[name] = word
    return readings
