"""Shell commands that write a copy of a file which secid reads: printed with the errors that refuse the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import quote

from secid.read.rows import shorten
from secid.read.stream import ByteStream, on_disk

ENCODINGS = ("CP1252", "CP1251", "GB18030", "CP932", "CP949")
"""Western European, Cyrillic, Chinese, Japanese and Korean; UTF-16 shows by its first bytes."""

UTF_8 = "write it in UTF-8"
PACKED = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".zip")
LIST_KEY = re.compile(rb'"(\w+)"\s*:\s*\[\s*\{')
"""The key of a list of objects, in the head of a document."""


def rewrite(path: str, command: str, suffix: str = ".jsonl") -> str:
    """The command, fed with the file's unpacked bytes, writing `records` with this suffix."""
    output = f"records{suffix}" if Path(path).name != f"records{suffix}" else f"new-records{suffix}"
    path = on_disk(path)
    if not Path(path).is_file():  # standard input, a pipe
        return f"{command} > {output}"
    stream = ByteStream(path)
    program = {"gz": "gzip -dc", "zst": "zstd -dc", "": "cat"}[stream.compression]
    stream.close()
    return f"{program} {quote(path)} | {command} > {output}"


def unpacked(path: str, program: str) -> str:
    """The command by which a program unpacks the file."""
    name = Path(path).name
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return f"unpack it: {program} {quote(path)} > records{Path(name).suffix or '.jsonl'}"


def rows_in_python(path: str) -> str:
    """The Python expression that gives the rows of a file, of standard input but for Parquet; "" for other files."""
    path = on_disk(path)
    if not Path(path).is_file():
        return "map(json.loads, sys.stdin)"
    stream = ByteStream(path)
    head, packed = stream.peek(), stream.compression
    stream.close()
    if head.startswith(b"PAR1"):
        return "" if packed else f"pyarrow.parquet.read_table({literal(path)}).to_pylist()"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[":
        return "json.load(sys.stdin)"
    if text[:1] == b"{":
        try:
            json.loads(text.split(b"\n", 1)[0])
        except ValueError:
            return "" if text[1:2] in b"\r\n " else "map(json.loads, sys.stdin)"
        return "map(json.loads, sys.stdin)"
    tabs = b"\t" in head.split(b"\n", 1)[0]
    return 'csv.DictReader(sys.stdin, delimiter="\\t")' if tabs else "csv.DictReader(sys.stdin)"


def in_python(path: str, value: str, rows: str = "", name: str = "row") -> str:
    """The command that writes a Python value of each row as a JSON line; "" where none is known for such a file.

    rows : the Python expression that gives what is called `name` in the value; the rows of the file by default.
    """
    rows = rows or rows_in_python(path)
    code = f"[print(json.dumps({value}, default=str)) for {name} in {rows}]"
    modules = ("ast", "csv", "json", "pyarrow.parquet", "sys")
    code = f"import {', '.join(module for module in modules if f'{module}.' in code)}; {code}"
    if not rows or not code.isprintable():
        return ""
    command = f"python -X utf8 -c {quote(code)}"
    return f"{command} > records.jsonl" if "read_table" in rows else rewrite(path, command)


def literal(text: str) -> str:
    """A text as Python and JSON write it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def with_commas(path: str, delimiter: str) -> str:
    """The command that writes a table with another delimiter as CSV."""
    code = f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{delimiter}'))"
    command = f'python -X utf8 -c "{code}"'
    return f"write it with commas: {rewrite(path, command, '.csv')}"


def in_order(path: str) -> str:
    """The command that writes the lines of a file sorted by their first word, each word's in their order."""
    return f"sort them by query: {rewrite(path, 'LC_ALL=C sort -s -k 1,1', '.trec')}"


def as_lines(path: str, head: bytes) -> str:
    """The command that writes the records of a document, of which `head` is the start, as JSON lines."""
    key = LIST_KEY.search(head) if head.startswith(b"{") else None
    step = f"jq -c '.{key[1].decode() if key else ''}[]'"
    return f"write one record per line: {rewrite(path, step)}"


def in_utf8(path: str, encoding: str = "") -> str:
    """The command that writes a file in UTF-8, with what its first foreign word reads in each encoding that fits it."""
    if not Path(on_disk(path)).is_file():
        return UTF_8
    stream = ByteStream(path)
    head = stream.peek()
    stream.close()
    suffix = Path(path.removesuffix(".gz").removesuffix(".zst")).suffix
    if not encoding and _is_mostly_utf8(head):
        drop = rewrite(path, "iconv -c -f UTF-8 -t UTF-8", suffix)
        return f"most of it is UTF-8: write that line anew, or leave out the bytes that are not: {drop}"
    readings = {encoding: ""} if encoding else _readings(head)
    commands = {name: rewrite(path, f"iconv -f {name} -t UTF-8", suffix) for name in readings}
    if len(commands) == 1:
        return f"{UTF_8}: {next(iter(commands.values()))}"
    either = ", or ".join(f"`{commands[name]}` reads {word}" for name, word in readings.items())
    return f"{UTF_8}: {either}" if either else UTF_8


def _is_mostly_utf8(head: bytes) -> bool:
    """Whether most lines beyond ASCII are UTF-8: those of another encoding hardly ever are."""
    lines = [line for line in (head[: head.rfind(b"\n") + 1] or head).split(b"\n") if not line.isascii()]
    return 2 * sum(line.decode(errors="ignore").encode() == line for line in lines) > len(lines)


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
