"""`secid flagged`: the rows of a finding, with their texts and numbers."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from secid import api
from secid.pool.normal_form import normal_form
from secid.tools.export.select import LISTED_NUMBERS
from tests.cli.conftest import listing, rows, score_in, write_rows
from tests.cli.test_select_drop import PLANTED, planted, read_rows


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory, tiny) -> Path:
    tables = {"in": planted(), "other": list(rows(12, 4, "terse"))}
    return score_in(tmp_path_factory.mktemp("flagged"), tiny, tables, controls="none")


@pytest.fixture
def run(scored_once, tmp_path) -> Path:
    shutil.copytree(scored_once, tmp_path, dirs_exist_ok=True)
    return Path("run")


@pytest.mark.parametrize("name", ["false_negative", "near_copy", "preamble", "query_echo", "inversion"])
def test_rows_are_those_of_the_table_with_their_texts(run, name):
    found = api.flagged(run, name, "rows.jsonl")
    written = read_rows("rows.jsonl")
    table = [row for row in pq.read_table(run / "negatives.parquet").to_pylist() if row[f"in_{name}"]]
    assert found.n_rows == {s: sum(row["source"] == s for row in table) for s in found.n_rows}
    expected = {(row["source"], row["path"], row["line"], row["ordinal"]): row for row in table}
    assert len(written) == len(expected) > 0
    originals = {path: read_rows(path) for path in ("in.jsonl", "other.jsonl")}
    for row in written:
        numbers = expected[row["source"], row["path"], row["line"], row["ordinal"]]
        assert {key: row[key] for key in LISTED_NUMBERS} == {key: numbers[key] for key in LISTED_NUMBERS}
        assert name in row["findings"]
        assert row["findings"] == [key[3:] for key, flag in numbers.items() if key.startswith("in_") and flag]
        original = originals[row["path"]][row["line"] - 1]
        assert row["query"] == original["query"]
        assert (row["positive"], row["negative"]) == (original["pos"][0], original["neg"][row["ordinal"]])
    if name in PLANTED:
        assert [(row["line"] - 1, row["ordinal"]) for row in written if row["path"] == "in.jsonl"] == PLANTED[name]


def test_one_source_and_standard_output(run, invoke):
    code, out, _ = invoke("flagged", run, "--finding", "inversion", "--source", "other", "-o", "-")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    both = api.flagged(run, "inversion", io.StringIO()).n_rows
    assert Counter(line["source"] for line in lines) == {"other": both["other"]}
    code, out, _ = invoke("flagged", run, "--finding", "mojibake", "-o", "none.jsonl")
    assert (code, Path("none.jsonl").read_bytes()) == (0, b"")
    assert "0 negatives" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--finding", "inversio"], "'inversion'"),
        (["--finding", "hub", "--source", "no"], "in, other"),
        (["--finding", "hub", "-o", "rows.csv"], "rows.csv"),
        (["--finding", "hub", "-o", "in.jsonl"], "in.jsonl"),
        (["--finding", "hub", "-o", "no/rows.jsonl"], "no"),
    ],
)
def test_wrong_use(run, invoke, arguments, message):
    before = listing(".")
    code, out, err = invoke("flagged", run, "-o", "rows.jsonl", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert listing(".") == before


@pytest.mark.parametrize("command", [("select",), ("flagged", "--finding", "hub")])
def test_without_a_file_to_write_to_one_line_says_so(run, invoke, command):
    code, out, err = invoke(command[0], run, *command[1:])
    assert (code, out) == (2, "")
    assert err.startswith("secid: -o: no file to write to")


def test_a_finding_that_was_not_evaluated_says_why(run, invoke):
    import pyarrow as pa

    table = pq.read_table(run / "negatives.parquet")
    nulls = pa.nulls(len(table), pa.bool_())
    place = table.schema.get_field_index("in_random_like")
    pq.write_table(
        table.set_column(place, "in_random_like", nulls), run / "negatives.parquet", write_page_checksum=True
    )
    report = json.loads((run / "report.json").read_text("utf-8"))
    report["not_evaluated"]["hardness"] = "too few passages"
    (run / "report.json").write_text(json.dumps(report), encoding="utf-8")
    code, _, err = invoke("flagged", run, "--finding", "random_like", "-o", "rows.jsonl")
    assert code == 2
    assert "too few passages" in err
    assert not Path("rows.jsonl").exists()


def test_a_changed_file_is_refused(run, invoke):
    write_rows(Path("other.jsonl"), rows(12, 4, "third"))
    assert invoke("flagged", run, "--finding", "inversion", "-o", "rows.jsonl").code == 2
    assert invoke("flagged", run, "--finding", "inversion", "--source", "in", "-o", "rows.jsonl").code == 0


def test_sources_of_one_file_are_kept_apart(tmp_path, tiny):
    table: list[dict[str, Any]] = [
        {**row, "neg": {"bm25": row["neg"][:2], "dense": [row["pos"][0].upper(), *row["neg"][2:]]}}
        for row in rows(12, 4)
    ]
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")
    assert api.flagged("run", "false_negative", "rows.jsonl").n_rows == {"in:bm25": 0, "in:dense": 12}
    assert all(row["negative"] == row["positive"].upper() for row in read_rows("rows.jsonl"))


@pytest.mark.parametrize("name", ["false_negative", "repeat", "hub"])
def test_rows_say_what_they_repeat(run, name):
    api.flagged(run, name, "rows.jsonl")
    written, table = [row for row in read_rows("rows.jsonl") if row["source"] == "in"], planted()
    for row in written:
        match, own = row["match"], normal_form(row["negative"])
        if name == "false_negative":
            equal = table[match["line"] - 1]
            assert (match["kind"], match["path"], equal["query"]) == ("positive", "in.jsonl", row["query"])
            assert own in map(normal_form, equal["pos"])
        elif match["kind"] == "earlier":
            assert normal_form(table[match["line"] - 1]["neg"][match["n"] - 1]) == own
            assert (match["line"], match["n"] - 1) < (row["line"], row["ordinal"])
    if name == "repeat":
        same = [(row["line"], row["ordinal"], row["match"]["kind"], row["match"]["n"]) for row in written]
        assert same == [(4, 4, "earlier", 2), (5, 4, "earlier", 1), (5, 5, "earlier", 1), (13, 0, "earlier", 3)]
        assert [(line - 1, ordinal) for line, ordinal, _, _ in same] == PLANTED["repeat"]
    assert bool(written) == (name != "hub")


def test_a_hub_says_how_many_queries_it_serves(tmp_path, tiny):
    table = list(rows(12, 4))
    for number, row in enumerate(table[:9]):
        row["neg"].append("One passage for many of these" + "!" * (number % 2))
    write_rows(tmp_path / "hub.jsonl", table)
    api.score(["hub.jsonl"], str(tiny), run="hubs", controls="none")
    api.flagged("hubs", "hub", "rows.jsonl")
    expected = {"kind": "queries", "path": None, "line": None, "n": 9}
    assert [row["match"] for row in read_rows("rows.jsonl")] == [expected] * 9


@pytest.mark.parametrize("sample", [{}, {"max_records": 10}])
def test_rows_of_the_texts_are_those_that_score_counts_and_select_drops(tmp_path, tiny, sample):
    table = [*planted(), *list(rows(40, 4))[14:]]
    for number in range(14, 24):
        table[number]["neg"] += ["One passage for many", ""]
    write_rows(tmp_path / "in.jsonl", table)
    (source,) = api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_bad_fraction=1.0, **sample).sources
    for name in ("repeat", "hub", "false_negative", "empty"):
        assert api.flagged("run", name, f"{name}-rows.jsonl").n_rows == {"in": source.finding(name).n_negatives}
        written = read_rows(f"{name}-rows.jsonl")
        left_out = read_rows(api.select("run", f"{name}.jsonl", drop=name).left_out_path)
        dropped = [(row["line"], row["ordinal"]) for row in left_out if name in row["findings"]]
        assert dropped == [(row["line"], row["ordinal"]) for row in written]
        assert (None in {row["weight"] for row in written}) == (bool(sample) or name == "empty")
        for example in source.finding(name).examples:
            if name == "hub":
                assert example.match.n == written[0]["match"]["n"] == 10
        if name == "empty":
            assert {(row["negative"], row["ordinal"]) for row in written} == {("", None)}
