"""Results in an interactive session."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest

from secid import notebook
from secid.api import check
from secid.pages.comparison import compare
from secid.results.inputs import Displayable
from tests.cli.conftest import FIXTURES
from tests.unit.pages import samples
from tests.unit.tools.gating.test_pages import verdict

RUN = samples.golden()
FRAME = re.compile(r'<iframe(?: [a-z]+="[^"<>]*"){4} srcdoc="([^"<>]*)"><pre>([^<>]*)</pre></iframe>')


def results():
    yield RUN
    yield samples.hostile(RUN)
    yield check([FIXTURES / "sources" / "poisoned.jsonl"])
    yield verdict()
    yield compare([("monday", RUN), ("friday", samples.hostile(RUN))])


def test_every_result_with_a_page_shows_it():
    assert {*notebook.PAGES, *notebook.SCREENS} == {
        kind for kind in every_kind(Displayable) if kind.__name__ not in ("MiningRun", "Report")
    }


def every_kind(kind):
    return {inner for own in kind.__subclasses__() for inner in (own, *every_kind(own))}


def test_a_result_is_a_few_lines_and_a_frame_without_a_character_of_markup_from_outside():
    for result in results():
        lines = repr(result).split("\n")
        assert 3 <= len(lines) <= 30
        assert max(map(len, lines)) <= 80
        match = FRAME.fullmatch(result._repr_html_())
        assert match
        page = unescape(match[1])
        assert page.startswith("<!DOCTYPE html>")
        assert page.rstrip().endswith("</html>")
        assert unescape(match[2]) == repr(result)
        assert "<nav" not in page


def test_the_lines_of_a_run(snapshot):
    snapshot("run-repr.txt", f"{RUN!r}\n")


def test_the_table_has_the_numbers_of_the_json():
    hardness = replace(RUN.sources[0], hardness=None, findings=RUN.sources[0].findings[1:])
    run = replace(RUN, sources=(hardness, *RUN.sources[1:]))
    table = run.to_arrow().to_pylist()
    assert [row["name"] for row in table] == [source.name for source in run.sources]
    for row, source in zip(table, run.sources, strict=True):
        hardness = source.hardness or SimpleNamespace(value=None, interval_95=None, n_queries=None)
        values = {**vars(source), **vars(source.rows), **vars(source.score), "schema": source.schema}
        values |= {"eci_nats": values.pop("nats"), "eci_per_dimension": values.pop("per_dimension")}
        values |= {"hardness": hardness.value, "hardness_interval_95": hardness.interval_95}
        values["hardness_queries"] = hardness.n_queries
        del values["split"]  # files may hold it, the table does not
        for name, value in values.items():
            if isinstance(value, str | int | float):
                assert row.pop(name) == value
            elif "interval_95" in name:
                assert (row.pop(f"{name}_low"), row.pop(f"{name}_high")) == (value or (None, None))
        shares = {f"findings.{item.name}": item.share for item in source.findings}
        assert {name: value for name, value in row.items() if value is not None} == shares


def test_pandas_is_imported_only_on_request():
    code = "import sys, secid; secid.read_run; secid.check; print({'pandas', 'secid.notebook'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_frame_of_the_sources():
    pytest.importorskip("pandas")
    frame = RUN.to_pandas()
    assert list(frame["eci_nats"]) == [source.score.nats for source in RUN.sources]
