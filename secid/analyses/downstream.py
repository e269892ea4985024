"""Downstream results of sources, from a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from secid.errors import InputError, plainly
from secid.results.document import read_probe
from secid.results.orders import PROBE_METRIC

LARGEST = 1e100
"""Of a cell: far beyond any metric, and its square is still finite."""
ERROR_SUFFIX = "_se"
SHOWN_NAMES = 3
"""Names shown as examples of those that were not matched."""


@dataclass(frozen=True)
class Outcomes:
    """Downstream numbers by source. errors: their standard errors where the table gives them.

    abstained : why the probe that they are from ranks nothing; None where it does, or they are from no probe.
    is_open   : the probe ties the highest with another source.
    """

    name: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    abstained: str | None = None
    is_open: bool = False


def outcomes_of(path: Path) -> list[Outcomes]:
    """Results of training: the gains of a probe (.json), or those of a CSV file. Raises InputError.

    The errors of a probe of one seed lack what runs differ by, so none are given.
    """
    if path.suffix != ".json":
        return read_outcomes(path)
    probe = read_probe(path)
    if probe is None or not probe.sources:
        raise InputError("a probe that trained on no source, so there is nothing to compare with", where=str(path))
    errors = {item.name: item.standard_error for item in probe.sources if item.interval_95 is not None}
    gains = {item.name: item.gain_ndcg10 for item in probe.sources}
    return [Outcomes(PROBE_METRIC, gains, errors, probe.abstained, bool(probe.tied_with_first))]


def read_outcomes(path: Path) -> list[Outcomes]:
    """Downstream results from a CSV file: a column `source`, then one for each metric, split and run; higher is better.

    A column `<name>_se` holds the standard errors of the column of that name. Empty cells leave a source out.
    Raises InputError with file and line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {plainly(error)}", where=str(path)) from error
    columns = rows[0][1] if rows else []
    if "source" not in columns or len(columns) < 2:
        found = [name[:40] for name in columns if name][:SHOWN_NAMES]
        raise InputError(
            f"needs a column `source` and one a metric, has {', '.join(found) or 'none'}",
            where=str(path),
            remedy="the first line of the file names the columns, such as source,ndcg@10,ndcg@10_se",
        )
    if twice := next((name for name in columns if name and columns.count(name) > 1), None):
        raise InputError(f"column {twice!r} occurs twice", where=f"{path}:{rows[0][0]}")
    table: dict[str, dict[str, float]] = {name: {} for name in columns if name not in ("source", "")}
    names: set[str] = set()
    for line, cells in rows[1:]:
        if len(cells) > len(columns):
            raise InputError(
                f"has {len(cells)} cells under {len(columns)} columns",
                where=f"{path}:{line}",
                remedy="write decimals with a point; put a name with a comma in quotes",
            )
        row = dict(zip(columns, cells, strict=False))
        source = row.get("source", "")
        if source in names:
            raise InputError(f"source {source!r} occurs twice", where=f"{path}:{line}")
        names.add(source)
        for name, known in table.items():
            if row.get(name):
                known[source] = _number(row[name], f"{path}:{line}", name)
    errors = {name: name + ERROR_SUFFIX for name in table if name + ERROR_SUFFIX in table}
    for metric, column in errors.items():
        _refuse_odd_errors(table[metric], table[column], column, path)
    return [
        Outcomes(name, table[name], table.get(errors.get(name, ""), {}))
        for name in table
        if name not in errors.values()
    ]


def _refuse_odd_errors(values: Mapping[str, float], errors: Mapping[str, float], column: str, path: Path) -> None:
    """Raises InputError for a negative standard error, and for a value without one where others have theirs."""
    if negative := next((source for source, error in errors.items() if error < 0), None):
        raise InputError(f"{column} of {negative!r} is negative: {errors[negative]:g}", where=str(path))
    missing = [source for source in values if source not in errors]
    if errors and missing:
        raise InputError(
            f"{column} is empty for {shown_names(missing)}",
            where=str(path),
            remedy="give every value its standard error, or leave the column out",
        )


def _number(text: str, where: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or abs(value) > LARGEST:
        raise InputError(f"{column} = {text!r} is not a number", where=where)
    return value


def shown_names(names: Sequence[str]) -> str:
    """The first few of them in quotes."""
    return ", ".join(map(repr, names[:SHOWN_NAMES])) + (", …" if len(names) > SHOWN_NAMES else "")
