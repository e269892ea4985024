"""The negatives of a run that have a finding, with their texts and numbers.

Numbers come from negatives.parquet, in batches; texts from the files, which are read as a stream. What is looked up
lies in a temporary database, so memory grows neither with the files nor with the number of findings.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq

from secid.errors import UsageError
from secid.export.read_again import PLACEHOLDER, check_unchanged, find_source, settings_of
from secid.export.select import refuse_not_evaluated
from secid.export.writer import new_files
from secid.read import open_source
from secid.read.grouping import temporary_database
from secid.records import Record, Source, encodable
from secid.results import Run
from secid.results.catalogue import FINDINGS, known_finding
from secid.run_folder.read import whole

NUMBERS = ("s_query_positive", "s_query_negative", "consistency", "locality", "coverage", "weight")
"""s_qp, s_qn, π, ρ, c and w of METHOD 2."""
PLACE = ("source", "path", "line", "ordinal")
SUFFIX = ".jsonl"
OF_ROW = "SELECT ordinal, facts FROM flagged WHERE source = ? AND path = ? AND line = ? ORDER BY ordinal, rowid"


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
        for name in names:
            for row in _rows(run, name, database):
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


def _rows(run: Run, name: str, database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """The rows of one source in the order of its files."""
    result, settings = find_source(run, name), settings_of(run, by=None)
    source = Source(PLACEHOLDER, tuple(file.path for file in result.paths))
    if database.execute("SELECT 1 FROM flagged WHERE source = ? LIMIT 1", (name,)).fetchone() is None:
        return
    for item in open_source(source, settings):
        if not isinstance(item, Record) or not (item.split == "" or name.endswith(f":{item.split}")):
            continue
        for ordinal, facts in database.execute(OF_ROW, (name, encodable(item.path), item.line)):
            yield {
                "source": name,
                "path": item.path,
                "line": item.line,
                "ordinal": ordinal,
                "query": item.query,
                # Of several positives the table does not name the one that a policy scored.
                "positive": item.positives[0] if settings.positives == "first" else None,
                **({"positives": item.positives} if len(item.positives) > 1 else {}),
                "negative": item.negatives[ordinal],
                **json.loads(facts),
            }
