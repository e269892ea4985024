"""--by where rows of one record differ, and where a source has not the column."""

from __future__ import annotations

import json
from pathlib import Path

from secid.data import open_source, resolve_sources
from secid.plan import Plan, make_plan
from secid.settings import Settings
from secid.study.cautions import odd_slices

BY_KIND = Settings(by="kind")


def planned(folder: Path, rows: dict[str, list[tuple[str, str | None]]], settings: Settings = BY_KIND) -> Plan:
    """A plan of sources whose rows are (query, kind); each row has a negative of its own."""
    for name, given in rows.items():
        lines = [
            {"query": query, "positive": "p", "negative": f"{name} {n}"} | ({} if kind is None else {"kind": kind})
            for n, (query, kind) in enumerate(given)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    sources = resolve_sources([str(folder / f"{name}.jsonl") for name in rows], settings)
    plan = make_plan([(source, open_source(source, settings).blocks()) for source in sources], settings, folder)
    plan.close()
    return plan


def test_rows_of_a_record_that_differ_are_told_and_the_first_counts(tmp_path):
    plan = planned(tmp_path, {"a": [("q", "x"), ("q", "y"), ("r", "y"), ("r", "y"), ("q", "x")]})
    assert [plan.slices[number] for number in plan.sources[0].slice] == ["x", "y"]
    (said,) = odd_slices(plan, BY_KIND)
    assert "a: rows of 1 record differ in 'kind'" in said


def test_a_source_without_the_column_is_told(tmp_path):
    plan = planned(tmp_path, {"a": [("q", "x"), ("r", None)], "b": [("q", None), ("r", None)]})
    assert odd_slices(plan, BY_KIND) == ("b: no row has a value of 'kind'; all stand in the slice without one",)


def test_nothing_is_said_without_the_option_or_where_all_is_well(tmp_path):
    rows = {"a": [("q", "x"), ("q", "x"), ("r", "y")]}
    assert odd_slices(planned(tmp_path, rows), BY_KIND) == ()
    assert odd_slices(planned(tmp_path, {"a": [("q", None)]}, Settings()), Settings()) == ()
