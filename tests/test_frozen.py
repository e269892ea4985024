"""`python -m tests.frozen compare` notices differences, and RENAMED moves the right keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frozen import Key, compared, values_of
from tests.frozen_inputs import write_rows

DOCUMENT = {
    "timing": {"read": 1.0},
    "sources": [
        {"name": "a", "score": 0.25, "p": 1e-8, "sampled": True, "findings": []},
        {"name": "b", "score": None, "p": 0.5, "sampled": False, "findings": [{"n": 3}]},
    ],
}
ROWS = [{"query": "q", "weight": 0.5}, {"query": "r", "weight": None}]


def written(folder: Path, document: Any, rows: list[dict[str, Any]] = ROWS) -> dict[str, dict[Key, Any]]:
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "report.md").write_text("wording\n", encoding="utf-8")
    write_rows(folder / "negatives.parquet", rows)
    return values_of(folder, with_text=False)


def changed(**values: Any) -> dict[str, Any]:
    """Return the document with other values in its first source."""
    return {**DOCUMENT, "sources": [{**DOCUMENT["sources"][0], **values}, DOCUMENT["sources"][1]]}  # type: ignore[index,dict-item]


def test_equal_folders_have_no_difference(tmp_path):
    later = {**changed(score=0.25 * (1 + 1e-11)), "timing": {"read": 2.0}}
    assert compared(written(tmp_path / "old", DOCUMENT), written(tmp_path / "new", later)) == ([], [], [])


@pytest.mark.parametrize(
    ("document", "places"),
    [
        (changed(score=0.25 * (1 + 1e-8)), ["score"]),
        (changed(p=1.1e-8), ["p"]),
        (changed(score=None), ["score"]),
        (changed(score=float("nan")), ["score"]),
        (changed(sampled=1), ["sampled"]),
        (changed(name="A"), ["name"]),
        (changed(findings=[{"n": 0}]), ["findings"]),
    ],
)
def test_a_changed_value_is_a_difference(tmp_path, document, places):
    differences, _, _ = compared(written(tmp_path / "old", DOCUMENT), written(tmp_path / "new", document))
    assert [place[-1] for _, place, _ in differences] == places


def test_a_missing_key_file_row_or_column_is_a_difference(tmp_path):
    old = written(tmp_path / "old", DOCUMENT)
    new = written(tmp_path / "new", {"sources": DOCUMENT["sources"][:1]}, [{"query": "q"}])  # type: ignore[index]
    differences, added, _ = compared(old, new)
    missing = {(file, place[0]) for file, place, _ in differences}
    table = {("negatives.parquet", name) for name in ("n_rows", "query", "weight")}
    assert (missing, added) == ({("report.json", "sources"), *table}, [])
    assert [(file, place) for file, place, _ in compared(old, {})[0]] == [
        ("negatives.parquet", ()),
        ("report.json", ()),
    ]


def test_what_only_the_new_tree_has_is_added(tmp_path):
    new = written(tmp_path / "new", changed(median=1.0))
    added = [("report.json", ("sources", 0, "median"))]
    assert compared(written(tmp_path / "old", DOCUMENT), new) == ([], added, [])


def test_renamed_places_are_compared_at_their_new_place(tmp_path):
    sources = [{**row, "score": {"nats": row["score"]}} for row in DOCUMENT["sources"]]  # type: ignore[attr-defined]
    for row in sources:
        del row["p"]
    old, new = written(tmp_path / "old", DOCUMENT), written(tmp_path / "new", {"analyses": {"sources": sources}})
    renamed = {
        "sources": "analyses.sources",
        "report.json:sources[*].score": "analyses.sources[*].score.nats",
        "sources[*].p": None,
    }
    assert compared(old, new, renamed) == ([], [], [])
    new["report.json"]["analyses", "sources", 0, "score", "nats"] = 0.26
    assert [place for _, place, _ in compared(old, new, renamed)[0]] == [("analyses", "sources", 0, "score", "nats")]
    assert compared(old, new, {**renamed, "check.json:sources": None})[0]


MARGINS = [{"name": "a", "at": 0.1}, {"name": "b", "at": 0.2}]
OLD = {"margins": MARGINS, "guide": None, "crossings": [], "cost": {"epoch_seconds": 1.0, "epoch_tokens": 5}}
MOVED = {
    **{name: f"analyses.{name}" for name in ("margins", "guide", "cost")},
    "crossings": "analyses.budgets.crossings",
}
NEW = {"margins": MARGINS[::-1], "cost": {"epoch_seconds": 2.0, "epoch_tokens": 5}}


def test_analyses_are_compared_where_they_moved(tmp_path):
    old, new = written(tmp_path / "old", OLD), written(tmp_path / "new", {"analyses": NEW})
    assert compared(old, new, MOVED) == ([], [], [("report.json", ("analyses", "margins"))])
    assert compared(old, old, MOVED) == ([], [], [])


@pytest.mark.parametrize(
    ("analyses", "place"),
    [
        ({**NEW, "margins": [{"name": "b", "at": 0.1}, MARGINS[0]]}, ("margins", 0, "at")),
        ({**NEW, "margins": MARGINS[:1]}, ("margins", 1, "name")),
        ({**NEW, "guide": {"n": 1}}, ("guide",)),
        ({**NEW, "cost": {"epoch_tokens": 6}}, ("cost", "epoch_tokens")),
    ],
)
def test_a_changed_analysis_is_a_difference(tmp_path, analyses, place):
    old, new = written(tmp_path / "old", OLD), written(tmp_path / "new", {"analyses": analyses})
    assert ("report.json", ("analyses", *place)) in [found[:2] for found in compared(old, new, MOVED)[0]]
