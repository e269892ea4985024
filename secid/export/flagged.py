"""The negatives of a run that have a finding, with their texts and numbers.

Numbers come from negatives.parquet, in batches; texts from the files, which are read as a stream. What is looked up
lies in a temporary database, so memory grows neither with the files nor with the number of findings. What a negative
repeats (`match`, see `secid.results.Match`) takes one more reading of the files.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq

from secid.errors import UsageError
from secid.export.read_again import PLACEHOLDER, check_unchanged, find_source, settings_of
from secid.export.select import refuse_not_evaluated
from secid.export.writer import new_files
from secid.findings.normal_form import normal_form
from secid.read import open_source
from secid.read.grouping import temporary_database
from secid.records import Record, Source, encodable
from secid.results import Match, Run
from secid.results.catalogue import FINDINGS, known_finding
from secid.run_folder.read import whole

NUMBERS = ("s_query_positive", "s_query_negative", "consistency", "locality", "coverage", "weight")
"""s_qp, s_qn, π, ρ, c and w of METHOD 2."""
PLACE = ("source", "path", "line", "ordinal")
SUFFIX = ".jsonl"
MATCHED = frozenset({"false_negative", "repeat", "hub"})
"""Findings whose rows say what they repeat."""
OF_ROW = "SELECT ordinal, facts FROM flagged WHERE source = ? AND path = ? AND line = ? ORDER BY ordinal, rowid"
MET = (
    "UPDATE texts SET n = n + 1, path = coalesce(path, ?), line = coalesce(line, ?), ordinal = coalesce(ordinal, ?) "
    "WHERE owner = ? AND text = ?"
)


@dataclass(frozen=True, kw_only=True)
class Flagged:
    """What was written. n_rows: by source, of those asked for."""

    finding: str
    path: str
    n_rows: dict[str, int]


def write_flagged(run: Run, folder: Path, finding: str, source: str | None, out: Path | TextIO) -> Flagged:
    """Writes a JSON line for each negative with the finding, in the order of the files.

    source : one of the run's, None for all.   out : a new file, or an open one.
    Raises UsageError for an unknown finding or one that was not evaluated, InputError where a file has changed,
    OutputError where the file exists or cannot be written.
    """
    known_finding(finding, "--finding")
    names = [find_source(run, source).name] if source is not None else [item.name for item in run.sources]
    if isinstance(out, Path):
        if not out.name.endswith(SUFFIX):
            raise UsageError(f"the rows are JSON lines: end the name in {SUFFIX}", where=str(out))
        with new_files(out) as (partial,), partial.open("w", encoding="utf-8", newline="\n") as file:
            return Flagged(finding=finding, path=str(out), n_rows=_write(run, folder, finding, names, file))
    return Flagged(finding=finding, path="-", n_rows=_write(run, folder, finding, names, out))


def _write(run: Run, folder: Path, finding: str, names: Sequence[str], file: TextIO) -> dict[str, int]:
    for name in names:
        check_unchanged(find_source(run, name))
    counts = Counter(dict.fromkeys(names, 0))
    with closing(temporary_database()) as database:
        _look_up(run, folder, finding, names, database)
        _look_up_matches(run, finding, names, database)
        for name in names:
            for record, row in _rows(run, name, database):
                if finding in MATCHED:
                    row["match"] = asdict(_match(finding, record, row, database))
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                counts[name] += 1
    return dict(counts)


def _look_up(run: Run, folder: Path, finding: str, names: Sequence[str], database: sqlite3.Connection) -> None:
    """Puts the rows of negatives.parquet that have the finding into the database."""
    flags = {name: entry.column for name, entry in FINDINGS.items()}
    columns = [*PLACE, *NUMBERS, *flags.values()]
    database.execute(f"CREATE TABLE flagged ({', '.join(PLACE)}, facts)")
    path = folder / "negatives.parquet"
    with whole(path, folder), pq.ParquetFile(path, page_checksum_verification=True) as table:
        for batch in table.iter_batches(columns=columns):
            flag, sources = batch.column(flags[finding]), batch.column("source")
            if flag.null_count:
                missing = sources.filter(flag.is_null()).unique().to_pylist()
                refuse_not_evaluated(
                    run, ", ".join(missing), "--finding", [finding] if set(missing) & set(names) else []
                )
            facts = [
                (
                    *(row[column] for column in PLACE),
                    [name for name, column in flags.items() if row[column]],
                    {name: row[name] for name in NUMBERS},
                )
                for row in batch.filter(flag).to_pylist()
                if row["source"] in names
            ]
            rows = ((*place, json.dumps({"findings": own, **numbers})) for *place, own, numbers in facts)
            database.executemany("INSERT INTO flagged VALUES (?, ?, ?, ?, ?)", rows)
    database.execute("CREATE INDEX place ON flagged (source, path, line)")


def _rows(run: Run, name: str, database: sqlite3.Connection) -> Iterator[tuple[Record, dict[str, Any]]]:
    """The rows of one source in the order of its files, each with the record that lists it."""
    first_only = settings_of(run, by=None).positives == "first"
    if database.execute("SELECT 1 FROM flagged WHERE source = ? LIMIT 1", (name,)).fetchone() is None:
        return
    for item in _records(run, name):
        for ordinal, facts in database.execute(OF_ROW, (name, encodable(item.path), item.line)):
            yield (
                item,
                {
                    "source": name,
                    "path": item.path,
                    "line": item.line,
                    "ordinal": ordinal,
                    "query": item.query,
                    # Of several positives the table does not name the one that a policy scored.
                    "positive": item.positives[0] if first_only else None,
                    **({"positives": item.positives} if len(item.positives) > 1 else {}),
                    "negative": item.negatives[ordinal],
                    **json.loads(facts),
                },
            )


def _records(run: Run, name: str) -> Iterator[Record]:
    """The records of one source as its files list them."""
    source = Source(PLACEHOLDER, tuple(file.path for file in find_source(run, name).paths))
    for item in open_source(source, settings_of(run, by=None)):
        if isinstance(item, Record) and (item.split == "" or name.endswith(f":{item.split}")):
            yield item


def _look_up_matches(run: Run, finding: str, names: Sequence[str], database: sqlite3.Connection) -> None:
    """Puts what the flagged negatives repeat into the database, among the rows of the named sources.

    texts: a flagged text by what it may be met under, its query or record, with the first place and the number met.
    """
    if finding not in MATCHED:
        return
    database.execute("CREATE TABLE texts (owner, text, path, line, ordinal, n DEFAULT 0, PRIMARY KEY (owner, text))")
    database.execute("CREATE TABLE served (text, query, PRIMARY KEY (text, query))")
    for name in names:
        for record, row in _rows(run, name, database):
            owner, text = _owner(finding, name, record), _key(normal_form(row["negative"]))
            if finding == "hub":
                database.execute("INSERT OR IGNORE INTO served VALUES (?, ?)", (owner + text, _query_key(record)))
            else:
                database.execute("INSERT OR IGNORE INTO texts (owner, text) VALUES (?, ?)", (owner, text))
    for name in names if finding != "hub" else ():
        for item in _records(run, name):
            owner = _owner(finding, name, item)
            if database.execute("SELECT 1 FROM texts WHERE owner = ? LIMIT 1", (owner,)).fetchone() is None:
                continue
            for ordinal, passage in enumerate(item.positives if finding == "false_negative" else item.negatives):
                database.execute(MET, (encodable(item.path), item.line, ordinal, owner, _key(normal_form(passage))))


def _match(finding: str, record: Record, row: dict[str, Any], database: sqlite3.Connection) -> Match:
    """What a flagged negative repeats."""
    owner = _owner(finding, row["source"], record)
    text = _key(normal_form(row["negative"]))
    if finding == "hub":
        (n,) = database.execute("SELECT count(*) FROM served WHERE text = ?", (owner + text,)).fetchone()
        return Match(kind="queries", n=n)
    place = "SELECT path, line, ordinal, n FROM texts WHERE owner = ? AND text = ?"
    path, line, ordinal, n = database.execute(place, (owner, text)).fetchone()
    if finding == "false_negative":
        return Match(kind="positive", path=path, line=line)
    if (path, line, ordinal) == (encodable(row["path"]), row["line"], row["ordinal"]):
        return Match(kind="copies", n=n)
    return Match(kind="earlier", path=path, line=line, n=ordinal + 1)


def _owner(finding: str, source: str, record: Record) -> bytes:
    """Under what a text is met: a positive under its query, a repeat in its record, a hub in its source."""
    if finding == "false_negative":
        return _query_key(record)
    return _key(source, record.query, record.positives[0]) if finding == "repeat" else _key(source)


def _query_key(record: Record) -> bytes:
    return _key(normal_form(record.query))


def _key(*texts: str) -> bytes:
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).digest()
