"""`secid select --drop`: which negatives go, and that no other does."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid import api, read_run
from secid.errors import InputError
from secid.read import reader
from secid.read.stream import ByteStream
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.settings import Settings
from secid.tools.export.left_out import UNSCORED_REASON
from secid.write.writer import SCHEMAS
from tests.cli.conftest import rows, score_in, write_rows

TITLE = "The harbour of Esbjerg."
BODY = (
    "Trawlers landed herring and plaice on the eastern quay until the last fish auction closed its doors, and the "
    "sheds were let to builders of wind turbines"
)
PREAMBLE = "Here is a hard negative passage for the query: lighthouses were painted in bands of red and white"
LIGHT = "Lamps of the old pier burned rape oil"
PLANTED = {
    "false_negative": [(0, 4)],
    "near_copy": [(1, 4)],
    "preamble": [(2, 0)],
    "query_echo": [(6, 2)],
    "repeat": [(3, 4), (4, 4), (4, 5), (12, 0)],
}
"""(row, place) of the negatives that have each finding, and of the further copies of a negative."""


def planted() -> list[dict[str, Any]]:
    """12 records of four unlike negatives and some planted ones; the last row belongs to the record of row 3."""
    table = list(rows(12, 4))
    table[0]["pos"].append("A second answer, of other words")
    table[0]["neg"].append("a second  answer of OTHER words!")
    table[1]["pos"] = [f"{TITLE} {BODY}"]
    table[1]["neg"].append(BODY)
    table[2]["neg"].insert(0, PREAMBLE)
    table[3]["neg"].append(table[3]["neg"][1])
    table[4]["neg"] += [table[4]["neg"][0].upper(), table[4]["neg"][0].upper()]
    table[6]["neg"].insert(2, table[6]["query"].upper())
    return [*table, {**table[3], "neg": [table[3]["neg"][2], LIGHT]}]


def without(table: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """The rows without the planted negatives of these names; a row without any negative left goes."""
    gone = {place for name in names for place in PLANTED[name]}
    kept = [
        {**row, "neg": [text for place, text in enumerate(row["neg"]) if (number, place) not in gone]}
        for number, row in enumerate(table)
    ]
    return [row for row in kept if row["neg"]]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory, tiny) -> Path:
    return score_in(tmp_path_factory.mktemp("planted"), tiny, {"in": planted()}, controls="none")


@pytest.fixture
def run(scored_once, tmp_path) -> Path:
    shutil.copytree(scored_once, tmp_path, dirs_exist_ok=True)
    return Path("run")


def gone_from(found: Any) -> set[tuple[int, int]]:
    """(row, place) of what the left-out file lists."""
    return {(entry["line"] - 1, entry["ordinal"]) for entry in read_rows(found.left_out_path)}


@pytest.mark.parametrize("name", PLANTED)
def test_a_single_finding_drops_exactly_its_own(run, name):
    found = api.select(run, "out.jsonl", drop=(name,))
    assert read_rows("out.jsonl") == without(planted(), name)
    assert gone_from(found) == set(PLANTED[name])
    assert found.left_out == {name: len(PLANTED[name])}
    assert found.n_listed == sum(len(row["neg"]) for row in planted()) == found.n_negatives + len(PLANTED[name])


def test_a_finding_drops_what_score_and_check_count(run):
    (source,) = read_run(run).sources
    counts = {finding.name: finding.n_negatives for finding in source.findings if finding.n_negatives}
    for name in PLANTED:
        assert counts[name] == len(PLANTED[name])
    table = pq.read_table(run / "negatives.parquet").to_pylist()
    for name in (name for name, entry in FINDINGS.items() if entry.needs == "rows" and counts.get(name)):
        flagged = {(row["line"] - 1, row["ordinal"]) for row in table if row[f"in_{name}"]}
        found = api.select(run, f"{name}.jsonl", drop=name, force=True)  # its defects stay
        first = {place for place in gone_from(found) if place not in {(3, 4), (4, 5), (12, 0)}}  # further copies
        assert first == flagged


def test_several_findings_drop_exactly_theirs(run, invoke):
    names = ("false_negative", "preamble", "repeat")
    code, out, _ = invoke("select", run, "--drop", "repeat, preamble", "--drop", "false_negative", "-o", "out.jsonl")
    assert code == 0
    assert read_rows("out.jsonl") == without(planted(), *names)
    assert "left out: 6 of 57 listed negatives (false_negative 1, preamble 1, repeat 4)" in " ".join(out.split())
    entries = read_rows("out.jsonl.left-out.jsonl")
    assert all(entry["findings"] == [entry["reason"]] and entry["weight"] is not None for entry in entries)
    again = api.select(run, "again.jsonl", drop=names)
    assert Path("again.jsonl").read_bytes() == Path("out.jsonl").read_bytes()
    assert again.drop == ("false_negative", "preamble", "repeat")
    assert again.after.n_triplets == again.before.n_triplets - 3  # one of the repeats is written otherwise


def test_the_copy_has_none_of_what_was_dropped(run, tiny):
    api.select(run, "out.jsonl", drop=tuple(PLANTED))
    (source,) = api.score(["out.jsonl"], str(tiny), controls="none").sources
    counts = {finding.name: finding.n_negatives for finding in source.findings}
    assert [counts[name] for name in PLANTED] == [0] * len(PLANTED)


def test_of_several_findings_the_catalogue_s_first_is_the_reason(tmp_path, tiny):
    table = planted()
    table[2]["neg"].append(PREAMBLE.upper())
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")
    found = api.select("run", "out.jsonl", drop=("repeat", "preamble"))
    assert found.left_out == {"preamble": 2, "repeat": 4}
    (both,) = [entry for entry in read_rows(found.left_out_path) if len(entry["findings"]) == 2]
    assert (both["line"], both["reason"], both["findings"]) == (3, "preamble", ["preamble", "repeat"])


def test_a_further_copy_is_a_repeat_unless_an_earlier_finding_takes_it(tmp_path, tiny):
    table = planted()
    table[2]["neg"].append(PREAMBLE)  # preamble precedes repeat in the catalogue,
    table[6]["neg"].append(table[6]["neg"][2])  # query_echo follows it
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")
    found = api.select("run", "out.jsonl", drop=("query_echo", "repeat", "preamble"))
    assert found.left_out == {"preamble": 2, "repeat": 5, "query_echo": 1}
    last = next(entry for entry in read_rows(found.left_out_path) if (entry["line"], entry["ordinal"]) == (7, 5))
    assert (last["reason"], last["findings"]) == ("repeat", ["repeat", "query_echo"])


def test_a_ranking_rule_drops_by_default_and_says_so(run, invoke):
    code, out, _ = invoke("select", run, "--min-weight", 0, "-o", "out.jsonl")
    flat = " ".join(out.split())
    assert code == 0
    assert read_rows("out.jsonl") == without(planted(), *PLANTED)
    usual = [name for name in DEFECTS if not FINDINGS[name].formal]
    assert f"{', '.join(usual)} by default; --drop none" in flat
    assert "easiest" not in flat  # nothing was left out by its rank
    api.select(run, "named.jsonl", min_weight=0.0, drop=usual)
    assert Path("named.jsonl").read_bytes() == Path("out.jsonl").read_bytes()


def test_drop_none_keeps_all_copies_too(run, invoke):
    code, out, _ = invoke("select", run, "--min-weight", 0, "--drop", "none", "-o", "out.jsonl")
    assert code == 0
    assert Path("out.jsonl").read_bytes() == Path("in.jsonl").read_bytes()
    assert "by default" not in out
    found = api.select(run, "again.jsonl", min_weight=0.0, drop=())
    assert found.n_negatives == found.n_listed == found.before.n_triplets + 3 == 57
    assert found.left_out == {}


def test_copies_stay_or_go_with_their_negative(run):
    """Without `repeat` the rank of a negative decides over all its copies."""
    found = api.select(run, "out.jsonl", top=1, by="weight", drop="none", force=True)
    best: dict[str, tuple[float, str]] = {}
    table = planted()
    for row in pq.read_table(run / "negatives.parquet").to_pylist():
        place = table[row["line"] - 1]
        best[place["query"]] = max(best.get(place["query"], (-1.0, "")), (row["weight"], place["neg"][row["ordinal"]]))
    expected = Counter((row["query"], text) for row in table for text in row["neg"] if text == best[row["query"]][1])
    assert Counter((row["query"], text) for row in read_rows("out.jsonl") for text in row["neg"]) == expected
    assert found.n_negatives == expected.total()
    assert set(found.left_out) == {"top"}


def test_findings_go_before_the_ranking(run):
    found = api.select(run, "out.jsonl", top=4, drop=tuple(PLANTED))
    assert found.left_out == {**{name: len(places) for name, places in PLANTED.items()}, "top": 1}
    assert all(len(row["neg"]) == 4 for row in read_rows("out.jsonl")[:3])


def test_a_ranking_that_keeps_the_easiest_says_so(run, invoke):
    for by, expected in (("weight", True), ("influence", True), ("similarity", False)):
        _, out, _ = invoke("select", run, "--top", 2, "--by", by, "-o", f"{by}.jsonl")
        assert ("easiest" in out) == expected


def test_what_another_source_labels_is_dropped_from_this_one(tmp_path, tiny):
    labels, miner = list(rows(12, 2, "plain")), list(rows(12, 2, "terse"))
    labels[0]["pos"].append("a second answer")
    miner[0]["neg"].append("a second answer")
    for name, table in (("labels", labels), ("miner", miner)):
        write_rows(tmp_path / f"{name}.jsonl", table)
    api.score(["labels.jsonl", "miner.jsonl"], str(tiny), run="run", controls="none")
    assert api.select("run", "out.jsonl", source="miner", drop="false_negative").left_out == {"false_negative": 1}
    assert api.select("run", "ranked.jsonl", source="miner", min_weight=0.0).left_out == {"false_negative": 1}


def test_blank_negatives_are_in_no_copy_and_counted_as_empty(tmp_path, tiny):
    table = planted()
    table[5]["neg"] = ["", *table[5]["neg"], " "]
    table[7]["neg"].append("n/a")
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_bad_fraction=0.2)
    for drop, n in (("empty", 3), ("preamble", 2)):
        found = api.select("run", f"{drop}.jsonl", drop=drop)
        assert found.left_out["empty"] == n
        assert found.n_listed == found.n_negatives + sum(found.left_out.values()) == 60
        blank = [entry for entry in read_rows(found.left_out_path) if entry["ordinal"] is None]
        assert [(entry["line"], entry["reason"]) for entry in blank] == [(6, "empty")] * 2
    (source,) = read_run(Path("run")).sources
    assert next(f.n_negatives for f in source.findings if f.name == "empty") == 3


def test_counts_add_up_and_rows_without_a_record_are_counted_apart(tmp_path, tiny, invoke):
    table = [*planted(), {"query": "no positive", "pos": [], "neg": ["x", "y"]}]
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_bad_fraction=0.2)
    found = api.select("run", "out.jsonl", top=2)
    assert (
        found.n_listed == sum(len(row["neg"]) for row in planted()) == found.n_negatives + sum(found.left_out.values())
    )
    assert found.n_negatives == sum(len(row["neg"]) for row in read_rows("out.jsonl")) == found.after.n_triplets == 24
    assert found.rows_skipped == {"no_positive": 1}
    reasons = Counter(entry["reason"] for entry in read_rows(found.left_out_path))
    assert reasons == {**found.left_out, "not scored: no_positive": 1}
    _, out, _ = invoke("select", "run", "--top", 2, "-o", "again.jsonl")
    flat = " ".join(out.split())
    assert "left out: 33 of 57 listed negatives (false_negative 1, near_copy 1, preamble 1, query_echo 1" in flat
    assert "(no_positive 1)" in flat


@pytest.mark.parametrize("sample", [{}, {"first_k": 2}])
def test_defects_of_the_texts_are_dropped_from_every_row_of_the_file(tmp_path, tiny, sample, invoke):
    """120 rows; the first 13 hold the planted defects."""
    table = [*planted(), *list(rows(121, 4))[14:]]
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", **sample)
    found = api.select("run", "out.jsonl", drop=DEFECTS)
    expected = {(row, place) for places in PLANTED.values() for row, place in places}
    assert (len(table), gone_from(found)) == (120, expected)
    assert found.left_out == {name: len(places) for name, places in PLANTED.items()}
    assert read_rows("out.jsonl") == without(table, *PLANTED)
    n_scored = found.n_negatives if not sample else sum(1 for row in scored_rows() if place_of(row) not in expected)
    assert (found.after.n_triplets, found.n_unscored) == (n_scored, found.n_negatives - n_scored)
    assert found.before.n_triplets == len(scored_rows())
    assert found.after.flagged_share == 0.0
    _, out, _ = invoke("select", "run", "--drop", "preamble", "-o", "again.jsonl")
    assert ("cover only the scored sample" in " ".join(out.split())) == bool(sample)


@pytest.mark.parametrize("sample", [{}, {"max_records": 10}, {"first_k": 1}])
def test_the_repair_names_the_defects_of_all_rows(tmp_path, tiny, sample):
    table = [{**row, "neg": [*row["neg"], *row["pos"]]} for row in rows(20)]
    table[15]["neg"].append(table[15]["neg"][0])
    write_rows(tmp_path / "in.jsonl", table)
    (source,) = api.score(["in.jsonl"], str(tiny), run="run", controls="none", **sample).sources
    assert source.repair == "secid select run --source in --drop false_negative,repeat -o in-clean.jsonl"


def scored_rows() -> list[dict[str, Any]]:
    return list(pq.read_table("run/negatives.parquet").to_pylist())


def place_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["line"] - 1, row["ordinal"]


def test_findings_of_the_encoder_are_dropped_only_from_scored_rows(tmp_path, tiny, invoke):
    write_rows(tmp_path / "in.jsonl", list(rows(40, 4)))
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_records=20)
    for name in ("near_positive", "inversion"):
        flagged = {place_of(row) for row in scored_rows() if row[f"in_{name}"]}
        found = api.select("run", f"{name}.jsonl", drop=name)
        assert 0 < len(flagged) < 80
        assert (gone_from(found), found.n_unscored) == (flagged, 80)
    unscored = [entry for entry in read_rows("inversion.jsonl") if len(entry["neg"]) == 4]
    assert len(unscored) >= 20
    ranked = api.select("run", "ranked.jsonl", top=1)
    assert (ranked.n_negatives, ranked.n_unscored, ranked.left_out[UNSCORED_REASON]) == (20, 0, 80)
    entries = [entry for entry in read_rows(ranked.left_out_path) if entry["reason"] == UNSCORED_REASON]
    assert {(entry["weight"], entry["influence"]) for entry in entries} == {(None, None)}


def test_findings_of_sampled_queries_say_so(run, invoke):
    _, out, _ = invoke("select", run, "--drop", "random_like", "--drop", "preamble", "-o", "out.jsonl", "--force")
    flat = " ".join(out.split())
    assert "random_like: evaluated for" in flat
    _, out, _ = invoke("select", run, "--drop", "preamble", "-o", "again.jsonl")
    assert "sampled" not in out


def as_tuples(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first four negatives of each row, a column each."""
    return [
        {
            "q": row["query"],
            "p": row["pos"][0],
            **{f"n{k}": text for k, text in enumerate(row["neg"][:4], 1)},
            "score": 1,
        }
        for row in table[:12]
    ]


@pytest.mark.parametrize(("drop", "layout", "n_rows"), [("preamble", "triplets", 47), ("mojibake", "n-tuple", 12)])
def test_rows_of_unequal_numbers_become_triplets(tmp_path, tiny, invoke, drop, layout, n_rows):
    """No column of sentence-transformers may be empty, and none is filled up."""
    columns = {"q": "query", "p": "positive"} | {f"n{k}": f"negative_{k}" for k in range(1, 5)} | {"score": "score"}
    table = [{columns[key]: value for key, value in row.items()} for row in as_tuples(planted())]
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")
    code, out, _ = invoke("select", "run", "--drop", drop, "-o", "out.jsonl", "--json")
    found = json.loads(out)
    assert (code, found["schema"], found["layout"], found["n_rows"]) == (0, "st-ntuple", layout, n_rows)
    assert found["n_negatives"] == found["after"]["n_triplets"] == 48 - (drop == "preamble")
    assert found["not_held"] == {"score": 12}
    names = ["negative"] if layout == "triplets" else [f"negative_{k}" for k in range(1, 5)]
    assert all(list(row) == ["anchor", "positive", *names] for row in read_rows("out.jsonl"))
    _, out, _ = invoke("select", "run", "--drop", drop, "-o", "again.jsonl")
    assert ("triplet" in out) == (layout == "triplets")


@pytest.fixture(scope="module")
def two_once(tmp_path_factory, tiny) -> Path:
    labels = list(rows(12, 2, "terse"))
    labels[5]["pos"].append(planted()[5]["neg"][0])
    tables = {"in": planted(), "labels": labels}
    return score_in(tmp_path_factory.mktemp("two"), tiny, tables, controls="none")


@pytest.fixture
def two(two_once, tmp_path) -> Path:
    """A run of a spoiled source and another one that labels one of its negatives as a positive."""
    shutil.copytree(two_once, tmp_path, dirs_exist_ok=True)
    return Path("run")


def test_without_its_counted_defects_the_copy_is_what_the_report_says(two):
    before = next(source for source in read_run(two).sources if source.name == "in")
    expected = before.score.without_flagged
    found = api.select(two, "out.jsonl", source="in", drop=DEFECTS)
    after = found.after
    assert (found.before.status, found.before.flagged_share) == (before.status, before.flagged_share)
    assert (after.status, after.flagged_share, before.status) == ("no_defects", 0.0, "repair")
    assert after.n_triplets == expected.n_triplets == before.n_triplets - 6
    assert after.hardness == pytest.approx(expected.hardness, rel=1e-9) != found.before.hardness


@pytest.mark.parametrize(("schema", "suffix"), zip(SCHEMAS, cycle([".jsonl.gz", ".parquet"])))
def test_the_written_file_holds_the_selection(two, schema, suffix):
    found = api.select(two, f"out{suffix}", source="in", drop="preamble,near_copy", schema=schema)
    (again,) = api.check([f"out{suffix}"]).sources
    assert again.schema == {"st-ntuple": "triplet"}.get(schema, schema)
    assert again.n_triplets == found.after.n_triplets


def test_each_file_is_opened_and_understood_once(two, monkeypatch):
    opened: list[str] = []
    detected: list[str] = []
    before = ByteStream.__init__, reader.detect

    def open_stream(self: ByteStream, path: str, *arguments: Any) -> None:
        opened.append(path)
        before[0](self, path, *arguments)

    def detect(rows: Any, settings: Settings, path: str, **options: Any) -> Any:
        detected.append(path)
        return before[1](rows, settings, path, **options)

    monkeypatch.setattr(ByteStream, "__init__", open_stream)
    monkeypatch.setattr(reader, "detect", detect)
    api.select(two, "out.jsonl", source="in", drop="preamble")
    assert detected == ["in.jsonl"]
    assert len(opened) <= 2  # the head, from which it is understood, and the rows


def test_a_mixture_holds_no_copy_of_a_positive(tmp_path, tiny, invoke):
    plain, other = list(rows(12, 1, "plain")), planted()
    other[1]["neg"] = [BODY]
    plain[1]["pos"] = [f"{TITLE} {BODY}"]
    write_rows(tmp_path / "plain.jsonl", plain)
    write_rows(tmp_path / "other.jsonl", other)
    api.score(["plain.jsonl", "other.jsonl"], str(tiny), run="run", controls="none")
    code, out, _ = invoke("mix", "run", "--shares", "other=1", "--base", "other", "-o", "mixed.jsonl", "--json")
    written = json.loads(out)["written"]
    assert (code, written["n_false_negative"], written["n_near_copy"]) == (0, 1, 1)
    texts = [text for row in read_rows("mixed.jsonl") for text in row["neg"]]
    assert BODY not in texts
    assert not any("OTHER words" in text for text in texts)
    assert written["n_short"] > 0


def changed_table(run: Path, change: Any) -> None:
    table = pq.read_table(run / "negatives.parquet")
    pq.write_table(change(table), run / "negatives.parquet", write_page_checksum=True)


def test_a_finding_that_was_not_evaluated_is_refused(run, invoke):
    def nulled(table: pa.Table) -> pa.Table:
        return table.set_column(
            table.schema.get_field_index("in_truncated"), "in_truncated", pa.nulls(len(table), pa.bool_())
        )

    changed_table(run, nulled)
    code, _, err = invoke("select", run, "--drop", "truncated,preamble", "-o", "out.jsonl")
    assert code == 2
    assert "--drop: " in err
    assert "truncated for in" in err
    assert not list(Path().glob("out.jsonl*"))
    assert api.select(run, "out.jsonl", drop="preamble").left_out == {"preamble": 1}
    changed_table(run, lambda table: table.drop_columns("in_truncated"))
    with pytest.raises(InputError, match="in_truncated"):
        api.select(run, "again.jsonl", drop="truncated")


@pytest.mark.parametrize("arguments", [["--drop", ""], []])
def test_a_copy_without_a_rule_is_refused(run, invoke, arguments):
    code, _, err = invoke("select", run, *arguments, "-o", "out.jsonl")
    assert code == 2
    assert "nothing to drop" in err
    assert not Path("out.jsonl").exists()


def test_a_source_of_only_flagged_negatives_leaves_nothing(tmp_path, tiny, invoke):
    table = [{**row, "neg": [row["pos"][0].upper()]} for row in rows(12, 1)]
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none")
    code, _, err = invoke("select", "run", "--drop", "false_negative", "-o", "out.jsonl")
    assert code == 2
    assert "(false_negative 12)" in err
