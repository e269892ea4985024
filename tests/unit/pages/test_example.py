"""docs/example-report is what the documented command makes today."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import pytest

from secid.analyses.registry import read_run

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "example-report"


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_example_report", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json"])
def test_the_committed_pages_are_those_of_the_committed_report(make, name):
    assert make.pages(read_run(FOLDER))[name] == (FOLDER / name).read_text(encoding="utf-8")


def test_the_page_of_the_fixtures_is_small():
    assert (FOLDER / "report.html").stat().st_size < 1_000_000


def test_the_numbers_are_those_of_the_fixtures_today(make, monkeypatch):
    for variable in ("SECID_TEMPERATURE", "SECID_ENCODER", "SECID_SEED"):
        monkeypatch.delenv(variable, raising=False)
    assert make.check() == []


def test_the_check_can_fail(make):
    old = json.loads((FOLDER / "report.json").read_text(encoding="utf-8"))
    new = copy.deepcopy(old)
    assert make.differences(new, old) == []
    new["sources"][0]["score"]["nats"] *= 1.02
    new["sources"][1]["rows"]["n_read"] += 1
    new["sources"][2]["name"] = "another"
    del new["encoder"]["dim"]
    assert len(make.differences(new, old)) == 4
