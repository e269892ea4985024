"""`secid select` makes no source worse, keeps the hardest sound negatives, and drops by a check alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from secid import api
from secid.errors import UsageError
from tests.cli.conftest import FIXTURES, Invoke, rows, score_in, write_rows

HUBS = ["the tide tables of the northern port", "an inventory of lamps kept in the customs house"]
COLUMNS = ["record", "negative", "s_query_positive", "s_query_negative"]


def preambles() -> list[dict[str, Any]]:
    """Two hubs in each record, and a preamble in eight of twelve: without the hubs nothing sound is left."""
    table = list(rows(12, 0))
    for number, row in enumerate(table):
        row["neg"] = [*HUBS, *([f"Here is a hard negative passage for the query: lamp {number}"] * (number < 8))]
    return table


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    return score_in(tmp_path_factory.mktemp("safe"), tiny, {"own": preambles()}, controls="none")


@pytest.fixture
def run(scored_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(scored_once, tmp_path, dirs_exist_ok=True)
    return Path("run")


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def test_a_copy_that_would_be_worse_is_not_written_without_force(run, invoke: Invoke):
    invoke("check", "own.jsonl", "-o", "check.json")
    before = files()
    for given in (run, "check.json"):
        code, out, err = invoke("select", given, "--drop", "hub", "-o", "worse.jsonl")
        assert (code, out, files()) == (2, "", before)
        for text in ("do not use", "repair first", "100.0", "--force"):
            assert text in err
        name = f"forced-{Path(given).stem}.jsonl"
        assert invoke("select", given, "--drop", "hub", "-o", name, "--force").code == 0
        assert api.check([name]).sources[0].status == "unusable"
        before = files()


def test_a_copy_of_the_same_status_has_no_larger_share_of_defects(run, invoke: Invoke):
    table = preambles()
    for number, row in enumerate(table):
        row["neg"].append(f"A sound passage on ship number {number} of the northern fleet")
    write_rows(Path("more.jsonl"), table)
    invoke("check", "more.jsonl", "-o", "more.json")
    before = files()
    code, _, err = invoke("select", "more.json", "--drop", "hub", "-o", "worse.jsonl")
    assert (code, files()) == (2, before)
    assert "“repair first” with 18.2\xa0%" in err
    assert "with 40.0\xa0% defects" in err
    assert invoke("select", "more.json", "--drop", "hub", "-o", "worse.jsonl", "--force").code == 0
    copy, source = api.check(["worse.jsonl"]).sources[0], api.check(["more.jsonl"]).sources[0]
    assert copy.status == source.status == "repair"
    assert copy.flagged_share > source.flagged_share


def wrap(text: str) -> str:
    return json.dumps({"passage": text})


@pytest.mark.parametrize(("every_positive", "widens"), [(2, True), (40, False)])
def test_dropping_a_formal_finding_that_positives_share_is_noted(run, invoke: Invoke, every_positive, widens):
    table = list(rows(40, 2))
    for number, row in enumerate(table):
        row["neg"][0] = wrap(row["neg"][0])
        row["pos"] = [wrap(text) if number % every_positive == 0 else text for text in row["pos"]]
    write_rows(Path("own.jsonl"), table)
    invoke("check", "own.jsonl", "-o", "check.json")
    result = invoke("select", "check.json", "--drop", "wrapper", "-o", "copy.jsonl", "--force")
    assert result.code == 0
    assert ("negatives differ more from positives in the copy" in " ".join(result.out.split())) is widens


@pytest.mark.usefixtures("run")
def test_a_finding_that_goes_with_the_dropped_one_widens_its_difference_too(invoke: Invoke):
    """Each negative with a preamble has tags, and so has every fourth positive: without preambles no tag is left."""
    table = list(rows(40, 2))
    for number, row in enumerate(table):
        row["pos"] = [f"<p>{text}</p>" if number % 4 == 0 else text for text in row["pos"]]
        if number % 5 == 0:
            row["neg"][0] = f"Here is a hard negative passage for the query: <p>{row['neg'][0]}</p>"
    write_rows(Path("own.jsonl"), table)
    invoke("check", "own.jsonl", "-o", "check.json")
    result = invoke("select", "check.json", "--drop", "preamble", "-o", "copy.jsonl", "--force", "--json")
    source, copy = (api.check([name]).sources[0].finding("markup").positives for name in ("own.jsonl", "copy.jsonl"))
    assert copy.difference < source.difference - 0.01
    assert json.loads(result.out)["widened"]["markup"] == pytest.approx((source.difference, copy.difference))


def test_the_printed_copy_of_a_score_is_not_that_of_a_check(run, tiny, invoke: Invoke):
    invoke("check", "own.jsonl", "-o", "check.json")
    (first,) = [source["repair"] for source in json.loads(Path("check.json").read_text())["sources"]]
    assert invoke(*first.split()[1:]).code == 0
    (source,) = api.score(["own.jsonl"], str(tiny), run="again", controls="none").sources
    assert invoke(*source.repair.split()[1:]).code == 0
    assert {"own-clean.jsonl", "own-clean-2.jsonl"} <= files()


def test_a_ranking_drops_every_counted_defect_first(run):
    selected = api.select(run, "sound.jsonl", top=1)
    assert selected.left_out == {"preamble": 8, "top": 12}
    assert (selected.before.status, selected.after.status) == ("repair", "no_defects")


def test_the_hardest_below_the_margin_stay_and_those_above_it_come_last(tmp_path, tiny):
    table = list(rows(10, 5))
    for row in table:
        row["neg"][2] = f"{row['pos'][0]} indeed"
    write_rows(tmp_path / "own.jsonl", table)
    api.score(["own.jsonl"], str(tiny), run="run", controls="none")
    negatives = pq.read_table("run/negatives.parquet", columns=COLUMNS).to_pylist()
    for top in (1, 3, 5):
        api.select("run", f"top{top}.jsonl", top=top, drop="none")
        kept = [json.loads(line)["neg"] for line in Path(f"top{top}.jsonl").read_text().splitlines()]
        for number, row in enumerate(table):
            own = [item for item in negatives if item["record"] == number]
            near = {item["negative"]: item["s_query_negative"] for item in own}
            limit = own[0]["s_query_positive"] - 0.05 * abs(own[0]["s_query_positive"])
            order = sorted(near, key=lambda n: (near[n] >= limit, abs(near[n] - limit)))
            assert set(kept[number]) == {row["neg"][n] for n in order[:top]}


def test_findings_of_the_texts_are_dropped_by_a_check_as_by_a_run(run, invoke: Invoke, monkeypatch):
    invoke("check", "own.jsonl", "-o", "check.json")
    check = json.loads(Path("check.json").read_text())
    (repair,) = [source["repair"] for source in check["sources"]]
    assert (check["save"], repair) == (
        "secid check own.jsonl -o check.json",
        "secid select check.json --source own --drop preamble,trailing_note -o own-clean.jsonl",
    )
    by_run = api.select(run, "by-run.jsonl", drop="preamble")
    monkeypatch.setattr("secid.encode.load", None)  # no encoder from here on
    assert invoke(*repair.split()[1:]).code == 0
    assert Path("own-clean.jsonl").read_bytes() == Path("by-run.jsonl").read_bytes()
    by_check = api.select("check.json", "again.jsonl", drop="preamble")
    assert by_check.left_out == by_run.left_out == {"preamble": 8}
    assert (by_check.before.status, by_check.after.status) == ("repair", "no_defects")
    assert (by_check.after.n_triplets, by_check.after.hardness) == (24, None)


@pytest.mark.parametrize("rule", [{"top": 1}, {"min_weight": 0.1}, {"drop": "inversion"}])
def test_what_needs_an_encoder_cannot_be_selected_by_a_check(run, rule, invoke: Invoke):
    invoke("check", "own.jsonl", "-o", "check.json")
    with pytest.raises(UsageError, match="score"):
        api.select("check.json", "copy.jsonl", **rule)
    assert not Path("copy.jsonl").exists()


def test_qrels_and_other_sources_of_a_check_label_positives(tmp_path, invoke: Invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = [str(FIXTURES / "sources" / name) for name in ("poisoned.jsonl", "dense.parquet")]
    assert invoke("check", *sources, "--collection", FIXTURES / "collection", "-o", "check.json").code == 0
    check = json.loads(Path("check.json").read_text())
    for source in check["sources"]:
        n = {item["name"]: item["n_negatives"] for item in source["findings"]}["false_negative"]
        if n:
            copy = api.select("check.json", f"{source['name']}.jsonl", source=source["name"], drop="false_negative")
            assert copy.left_out == {"false_negative": n}


def test_a_file_that_changed_since_the_check_is_refused(run, invoke: Invoke):
    invoke("check", "own.jsonl", "-o", "check.json")
    text = Path("own.jsonl").read_text()
    Path("own.jsonl").write_text(text.replace("customs", "Customs"))
    code, _, err = invoke("select", "check.json", "--drop", "preamble", "-o", "copy.jsonl")
    assert (code, "changed" in err) == (2, True)
