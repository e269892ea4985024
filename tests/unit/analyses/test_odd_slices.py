"""--by if rows of one record differ, and if a source lacks the column."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.pool import Plan
from secid.pool.collect import slice_value
from secid.read import open_source, resolve_sources
from secid.results import RunWarning
from secid.scoring.publish import slice_warnings
from secid.settings import Settings
from tests.planning import make_plan

BY_KIND = Settings(by="kind")


def planned(folder: Path, rows: dict[str, list[tuple[str, str | None]]], settings: Settings = BY_KIND) -> Plan:
    """A plan of sources whose rows are (query, kind); each row has a negative of its own."""
    for name, given in rows.items():
        lines = [
            {"query": query, "positive": "p", "negative": f"{name} {n}"} | ({} if kind is None else {"kind": kind})
            for n, (query, kind) in enumerate(given)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    sources = resolve_sources([str(folder / f"{name}.jsonl") for name in rows])
    plan = make_plan([(source, open_source(source, settings).blocks()) for source in sources], settings, folder)
    plan.close()
    return plan


def test_rows_of_a_record_that_differ_are_reported_and_the_first_counts(tmp_path):
    plan = planned(tmp_path, {"a": [("q", "x"), ("q", "y"), ("r", "y"), ("r", "y"), ("q", "x")]})
    assert [plan.slices[number] for number in plan.sources[0].slice] == ["x", "y"]
    (note,) = slice_warnings(plan, BY_KIND)
    assert note == RunWarning(kind="mixed_slice_values", source="a", values={"column": "kind", "n_records": 1})


def test_a_source_without_the_column_is_told(tmp_path):
    plan = planned(tmp_path, {"a": [("q", "x"), ("r", None)], "b": [("q", None), ("r", None)]})
    (note,) = slice_warnings(plan, BY_KIND)
    assert (note.kind, note.source, note.values["column"]) == ("no_slice_value", "b", "kind")


def test_nothing_is_said_without_the_option_or_where_all_is_well(tmp_path):
    rows = {"a": [("q", "x"), ("q", "x"), ("r", "y")]}
    assert slice_warnings(planned(tmp_path, rows), BY_KIND) == ()
    assert slice_warnings(planned(tmp_path, {"a": [("q", None)]}, Settings()), Settings()) == ()


def test_sources_whose_values_no_other_has_are_told(tmp_path):
    plan = planned(tmp_path, {"a": [("q", "de"), ("r", "en")], "b": [("q", "DE")], "c": [("q", "en")]})
    (note,) = slice_warnings(plan, BY_KIND)
    assert note == RunWarning(kind="no_common_slice_value", values={"column": "kind", "sources": {"b": ["DE"]}})
    assert slice_warnings(planned(tmp_path, {"a": [("q", "de")]}), BY_KIND) == ()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (2020, "2020"), (2020.0, "2020"), ("2020", "2020"), (-0.0, "0"), (0.5, "0.5"), (1e300, "1e+300"),
        (float("nan"), ""), (None, ""), (True, "true"), ("False", "false"), ("007", "007"), ("1.0", "1.0"),
    ],
)  # fmt: skip
def test_a_value_is_the_same_from_every_container(given, value):
    assert slice_value(given) == value


def test_whole_numbers_and_truth_values_of_json_parquet_and_csv_meet_in_one_slice(tmp_path):
    rows = [{"query": f"q{n}", "positive": "p", "negative": f"n{n}", "kind": n % 2} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    table = pa.table({**pa.Table.from_pylist(rows).to_pydict(), "kind": pa.array([0.0, 1.0, 0.0, 1.0])})
    pq.write_table(table, tmp_path / "b.parquet")
    lines = ["query,positive,negative,kind", *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "c.csv").write_text("\n".join(lines), encoding="utf-8")
    sources = resolve_sources([str(tmp_path / name) for name in ("a.jsonl", "b.parquet", "c.csv")])
    plan = make_plan([(source, open_source(source, BY_KIND).blocks()) for source in sources], BY_KIND, tmp_path)
    plan.close()
    assert plan.slices == ("0", "1")
    assert slice_warnings(plan, BY_KIND) == ()
