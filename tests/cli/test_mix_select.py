"""`secid mix` and `secid select`: what they print, write and refuse."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from secid import api, read_run
from secid.cli.select import parse_shares
from secid.errors import UsageError
from secid.read import open_source, resolve_sources
from secid.records import Record
from secid.run_folder.tables import read_states
from secid.settings import Settings
from tests.cli.conftest import rows, score_in, write_rows

STYLES = ("plain", "terse")


def records(path: Path | str) -> list[Record]:
    (source,) = resolve_sources([str(path)])
    return [item for item in open_source(source, Settings()) if isinstance(item, Record)]


def listed(path: Path | str) -> set[tuple[str, str]]:
    """Return (query, negative) for every negative in a file."""
    return {(record.query, text) for record in records(path) for text in record.negatives}


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory, tiny) -> Path:
    return score_in(tmp_path_factory.mktemp("scored"), tiny, {style: list(rows(12, 4, style)) for style in STYLES})


@pytest.fixture
def scored(scored_once, tmp_path) -> Path:
    """Score two sources with the same queries, in the working directory."""
    shutil.copytree(scored_once, tmp_path, dirs_exist_ok=True)
    return Path("run")


HALF = {"plain": 0.5, "terse": 0.5}


def test_mix_without_shares_recommends_none(scored, invoke):
    """At B = 1 the best mixture would be only the source with the easiest negatives."""
    code, out, err = invoke("mix", scored)
    assert (code, out) == (2, "")
    remedy = shlex.split(err.splitlines()[-1].partition("example, ")[2])
    assert remedy[0] == "--shares"
    assert invoke("mix", scored, *remedy).code == 0
    assert api.mix(scored, parse_shares(remedy[1])) == api.mix(scored, HALF)


def test_mix_prints_the_score_at_the_shares(scored, invoke):
    code, out, _ = invoke("mix", scored, "--shares", "plain=0.25,terse=0.75", "--budget", 100)
    assert code == 0
    assert not any(line.endswith(" ") for line in out.splitlines())
    mixture = api.mix(scored, {"plain": 0.25, "terse": 0.75}, budget=100)
    numbers = (mixture.nats, *(part.single_nats for part in mixture.parts))
    for text in ("25.0 %", "75.0 %", *(f"{nats:.4f}" for nats in numbers)):
        assert text in out
    assert "best" not in out


def test_mix_json_is_that_of_the_api(scored, invoke):
    code, out, _ = invoke("mix", scored, "--shares", "plain=0.3,terse=0.7", "--budget", 100, "--json")
    assert code == 0
    found = json.loads(out)
    assert found.pop("written") is None
    expected = api.mix(scored, {"plain": 0.3, "terse": 0.7}, budget=100)
    assert found == json.loads(json.dumps(asdict(expected)))
    assert {part["name"]: part["share"] for part in found["parts"]} == pytest.approx({"plain": 0.3, "terse": 0.7})


def test_the_default_budget_is_the_runs_and_a_whole_share_is_the_source(scored):
    assert api.mix(scored, HALF).budget == 1.0
    for budget in (1.0, 1000.0):
        for source in read_run(scored).sources:
            found = api.mix(scored, {source.name: 1.0}, budget=budget)
            point = next(p for p in source.score.budget_curve if p.budget == budget)
            assert found.nats == found.parts[0].single_nats == pytest.approx(point.nats, rel=1e-7)


def test_a_mixture_by_number_scores_what_a_source_of_all_its_negatives_does(tmp_path, tiny):
    """Nothing is encoded again, and the score is that of scoring the union of the negatives of each record."""
    plain, terse = list(rows(12, 4, "plain")), list(rows(12, 2, "terse"))
    both = [{**first, "neg": [*first["neg"], *second["neg"]]} for first, second in zip(plain, terse, strict=True)]
    for name, table in (("plain", plain), ("terse", terse), ("both", both)):
        write_rows(tmp_path / f"{name}.jsonl", table)
    run = api.score(["plain.jsonl", "terse.jsonl", "both.jsonl"], str(tiny), run="run", controls="none")
    whole = next(source for source in run.sources if source.name == "both")
    for point in whole.score.budget_curve:
        found = api.mix("run", {"plain": 48 / 72, "terse": 24 / 72}, budget=point.budget)
        assert found.nats == pytest.approx(point.nats, rel=1e-5)


def test_what_limits_the_score_is_told(tmp_path, tiny):
    write_rows(tmp_path / "plain.jsonl", rows(12, 4, "plain"))
    write_rows(tmp_path / "terse.jsonl", rows(12, 2, "terse"))
    api.score(["plain.jsonl", "terse.jsonl"], str(tiny), run="run", controls="none")
    remarks = {
        budget: {fact.kind: dict(fact.values) for fact in api.mix("run", HALF, budget=budget).remarks}
        for budget in (1.0, 40.0, 60.0)
    }
    unequal = {"fewest": "terse", "most": "plain", "n_fewest": 24.0, "n_most": 48.0}
    assert remarks[1.0] == {}
    assert remarks[40.0] == {"unequal": unequal}
    assert remarks[60.0] == {"too_few": {"name": "terse", "n": 24.0, "budget": 60.0}, "unequal": unequal}


def test_a_source_to_repair_comes_with_its_command(tmp_path, tiny, invoke):
    spoiled = [{**row, "neg": [row["pos"][0].upper(), *row["neg"]]} for row in rows(12, 2)]
    write_rows(tmp_path / "spoiled.jsonl", spoiled)
    write_rows(tmp_path / "sound.jsonl", list(rows(12, 2, "terse")))
    run = api.score(["spoiled.jsonl", "sound.jsonl"], str(tiny), run="run", controls="random")
    found = api.mix("run", {"spoiled": 0.5, "sound": 0.5})
    answers = {part.name: (part.status, part.repair) for part in found.parts}
    assert answers == {source.name: (source.status, source.repair) for source in run.sources}
    repair = "secid select run --source spoiled --drop false_negative -o spoiled-clean.jsonl"
    assert answers == {"spoiled": ("repair", repair), "sound": ("no_defects", None)}
    for shares, printed in (("spoiled=0.5,sound=0.5", True), ("spoiled=0,sound=1", False)):
        _, out, _ = invoke("mix", "run", "--shares", shares)
        assert (repair in out) == printed


def test_a_mixture_needs_only_the_files_of_its_own_sources(tmp_path, tiny):
    """The run folder has the labels of sources outside the mixture."""
    labels, miner = list(rows(12, 2, "plain")), list(rows(12, 2, "terse"))
    labels[0]["pos"].append(miner[0]["neg"][0])
    for name, table in (("labels", labels), ("miner", miner)):
        write_rows(tmp_path / f"{name}.jsonl", table)
    api.score(["labels.jsonl", "miner.jsonl"], str(tiny), run="run", controls="none")
    Path("labels.jsonl").unlink()
    written = api.write_mixture("run", {"miner": 1.0}, "mixed.jsonl")
    assert (written.n_false_negative, written.n_negatives) == (1, 23)


def test_shortfalls_in_a_mixed_file_are_reported(scored, invoke):
    """One source with the whole share has no candidates of others, though all sources know all queries."""
    _, out, _ = invoke("mix", scored, "--shares", "plain=1", "-o", "alone.jsonl")
    flat = " ".join(out.split())
    assert "one source at most" not in flat
    assert api.write_mixture(scored, {"plain": 1.0}, "again.jsonl").n_alone == 0
    _, out, _ = invoke("mix", scored, "--shares", "plain=0.5,terse=0.5", "-o", "both.jsonl")
    assert "one source at most" not in " ".join(out.split())


def test_names_of_sources_may_hold_commas():
    assert parse_shares("a,b=0.25,c=0.75") == {"a,b": 0.25, "c": 0.75}
    assert parse_shares("a=1e-1, b=.9") == {"a": 0.1, "b": 0.9}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shares", "plain=0.9,terse=0.9"], "add up to 1"),
        (["--shares", "plain=0.5"], "add up to 1"),
        (["--shares", "none=0.5,plain=0.5"], "no source 'none'"),
        (["--shares", "plain"], "NAME=SHARE"),
        (["--shares", ""], "NAME=SHARE"),
        (["--shares", "plain=2"], "NAME=SHARE"),
        (["--shares", "plain=nan"], "NAME=SHARE"),
        (["--shares", "plain=0.5,terse"], "'terse' does not begin"),
        (["--shares", "plain=0.5,plain=0.5"], "is repeated"),
        (["--shares", "plain=1", "--budget", "0"], "above 0"),
        (["--shares", "plain=1", "--budget", "nan"], "above 0"),
        (["--shares", "plain=1", "--budget", "1e200"], "at most 1e+12"),
        (["--shares", "control random=1"], "no source 'control random'"),
    ],
)
def test_wrong_questions_are_refused(scored, invoke, arguments, message):
    code, _, err = invoke("mix", scored, *arguments)
    assert code == 2
    assert message in err


def test_a_file_of_a_run_is_not_a_run(scored, invoke):
    for command in (["mix", "--shares", "plain=1"], ["select", "-o", "out.jsonl", "--source", "plain", "--top", 1]):
        code, _, err = invoke(*command[:1], scored / "report.json", *command[1:])
        assert code == 2
        assert "report.json: " in err
        assert err.endswith("folder run\n")


def test_the_mixed_file_has_the_shares_and_tells_where_each_negative_is_from(scored, invoke):
    code, out, _ = invoke(
        "mix", scored, "--shares", "plain=0.35,terse=0.65", "-o", "mixed.jsonl", "--base", "plain", "--json"
    )
    assert code == 0
    written = json.loads(out)["written"]
    assert written["n_rows"] == written["n_records"] == 12
    assert sum(written["n_drawn"].values()) == written["n_negatives"] == 48
    assert written["n_drawn"]["plain"] == pytest.approx(0.35 * 48, abs=6)
    mixed = records("mixed.jsonl")
    assert [record.query for record in mixed] == [record.query for record in records("plain.jsonl")]
    logged = [json.loads(line) for line in Path("mixed.jsonl.provenance.jsonl").read_text("utf-8").splitlines()]
    originals = {style: {record.line: record for record in records(f"{style}.jsonl")} for style in STYLES}
    for number, (record, line) in enumerate(zip(mixed, logged, strict=True), 1):
        assert line["row"] == number
        found = [originals[n["source"]][n["line"]].negatives[n["ordinal"]] for n in line["negatives"]]
        assert list(record.negatives) == found
        assert len(set(found)) == 4
    assert Counter(n["source"] for line in logged for n in line["negatives"]) == written["n_drawn"]


def test_the_provenance_of_rows_of_unequal_numbers_joins_on_the_rows_of_the_file(tmp_path, tiny, scored):
    """Five queries list fewer negatives, so each negative has a separate row."""
    lines = [json.loads(line) for line in Path("plain.jsonl").read_text("utf-8").splitlines()]
    for line in lines[:5]:
        line["neg"] = line["neg"][:2]
    write_rows(tmp_path / "ragged.jsonl", lines)
    api.score(["ragged.jsonl", "terse.jsonl"], str(tiny), run="both", controls="none")
    blend = api.write_mixture("both", {"ragged": 0.5, "terse": 0.5}, "t.jsonl", base="ragged", schema="st-ntuple")
    logged = [json.loads(line) for line in Path("t.jsonl.provenance.jsonl").read_text("utf-8").splitlines()]
    originals = {name: {record.line: record for record in records(f"{name}.jsonl")} for name in ("ragged", "terse")}
    assert (blend.layout, blend.n_rows) == ("triplets", 5 * 2 + 7 * 4)
    assert [line["row"] for line in logged] == list(range(1, blend.n_rows + 1))
    for record, line in zip(records("t.jsonl"), logged, strict=True):
        (origin,) = line["negatives"]
        original = originals[origin["source"]][origin["line"]]
        assert (record.query, record.negatives) == (original.query, (original.negatives[origin["ordinal"]],))


def test_mixing_is_seeded_and_shares_hold_on_average(scored):
    first = api.write_mixture(scored, {"plain": 0.1, "terse": 0.9}, "a.jsonl", base="plain", seed=1)
    api.write_mixture(scored, {"plain": 0.1, "terse": 0.9}, "b.jsonl", base="plain", seed=1)
    api.write_mixture(scored, {"plain": 0.1, "terse": 0.9}, "c.jsonl", base="plain", seed=2)
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes() != Path("c.jsonl").read_bytes()
    # Rounding each record to the nearest whole number would give none
    assert first.n_drawn["plain"] == pytest.approx(4.8, abs=4)
    assert first.n_drawn["plain"] > 0
    alone = api.write_mixture(scored, {"plain": 1.0}, "d.jsonl", seed=1)
    assert listed("d.jsonl") == listed("plain.jsonl")
    assert alone.n_short == 0


def test_the_order_of_shares_changes_nothing(scored):
    api.write_mixture(scored, {"plain": 0.4, "terse": 0.6}, "a.jsonl", base="plain")
    api.write_mixture(scored, {"terse": 0.6, "plain": 0.4}, "b.jsonl", base="plain")
    for end in ("", ".provenance.jsonl"):
        assert Path(f"a.jsonl{end}").read_bytes() == Path(f"b.jsonl{end}").read_bytes()


@pytest.mark.parametrize(
    "shares",
    [
        {"plain": float("nan"), "terse": 1.0},
        {"plain": float("inf"), "terse": 0.0},
        {"plain": -0.5, "terse": 1.5},
        {"plain": 0.5, "terse": 0.4},
        {},
    ],
)
def test_shares_that_are_none_are_refused(scored, shares):
    with pytest.raises(UsageError, match="add up to 1"):
        api.write_mixture(scored, shares, "mixed.jsonl")
    assert not Path("mixed.jsonl").exists()


def test_rounded_shares_are_divided_by_their_sum(scored):
    written = api.write_mixture(scored, {"plain": 0.33, "terse": 0.66}, "mixed.jsonl")
    assert written.requested == pytest.approx({"plain": 1 / 3, "terse": 2 / 3})
    assert api.mix(scored, {"plain": 0.33, "terse": 0.66}).nats == api.mix(scored, written.requested).nats


@pytest.mark.parametrize(("n_known", "n_each", "n_terse"), [(6, 4, 24), (6, 1, 6), (12, 4, 48)])
def test_what_a_source_lacks_the_others_make_up(tmp_path, tiny, n_known, n_each, n_terse):
    """plain has 48 negatives for 12 queries; terse has n_each for n_known of them."""
    write_rows(tmp_path / "plain.jsonl", rows(12, 4, "plain"))
    write_rows(tmp_path / "terse.jsonl", rows(n_known, n_each, "terse"))
    api.score(["plain.jsonl", "terse.jsonl"], str(tiny), run="run", controls="none")
    written = api.write_mixture("run", {"terse": 1.0}, "mixed.jsonl", base="plain")
    assert (written.n_drawn, written.n_short) == ({"terse": n_terse}, 48 - n_terse)
    written = api.write_mixture("run", {"plain": 0.25, "terse": 0.75}, "both.jsonl", base="plain")
    assert (written.n_negatives, sum(written.n_drawn.values())) == (48, 48)
    assert (written.n_short > 0) == (n_known < 12)


def test_changed_or_missing_inputs_are_refused(scored, invoke):
    write_rows(Path("plain.jsonl"), rows(12, 4, "other"))
    for arguments in (
        ["mix", scored, "--shares", "plain=0.5,terse=0.5"],
        ["select", scored, "--source", "plain", "--top", 1],
    ):
        code, _, err = invoke(*arguments, "-o", "m.jsonl")
        assert code == 2
        assert "has changed" in err
        assert not Path("m.jsonl").exists()
    Path("plain.jsonl").unlink()
    code, _, err = invoke("select", scored, "--source", "plain", "--top", 1, "-o", "m.jsonl")
    assert code == 2
    assert "cannot be read" in err


def numbers_of(run: Path, name: str) -> list[dict[str, Any]]:
    table = pq.read_table(run / "negatives.parquet").to_pylist()
    return [row for row in table if row["source"] == name]


def test_information_is_the_first_order_part_of_the_score(scored):
    for source in read_run(scored).sources:
        parts = [row["information"] for row in numbers_of(scored, source.name)]
        matrix = read_states(scored, read_run(scored))[source.name].matrix()
        expected = float(torch.trace(torch.linalg.solve(torch.eye(len(matrix), dtype=torch.float64) + matrix, matrix)))
        assert sum(parts) == pytest.approx(expected, rel=1e-5)
        assert min(parts) >= 0.0


def test_the_table_names_the_row_and_place_of_each_negative(scored):
    originals = {record.line: record for record in records("plain.jsonl")}
    for row in numbers_of(scored, "plain"):
        assert row["ordinal"] < len(originals[row["line"]].negatives)
    assert len({(row["line"], row["ordinal"]) for row in numbers_of(scored, "plain")}) == 48


def test_select_keeps_the_best_of_each_record(scored, invoke):
    before = Path("plain.jsonl").read_bytes()
    code, _, _ = invoke("select", scored, "--source", "plain", "--top", 2, "--by", "weight", "-o", "kept.jsonl")
    assert code == 0
    assert Path("plain.jsonl").read_bytes() == before
    originals = {record.line: record for record in records("plain.jsonl")}
    by_line: dict[int, list[tuple[float, str]]] = {}
    for row in numbers_of(scored, "plain"):
        text = originals[row["line"]].negatives[row["ordinal"]]
        by_line.setdefault(row["line"], []).append((row["weight"], text))
    best = {(originals[line].query, text) for line, found in by_line.items() for _, text in sorted(found)[-2:]}
    assert listed("kept.jsonl") == best
    logged = [json.loads(line) for line in Path("kept.jsonl.left-out.jsonl").read_text("utf-8").splitlines()]
    gone = {(originals[t["line"]].query, originals[t["line"]].negatives[t["ordinal"]]) for t in logged}
    assert gone == listed("plain.jsonl") - best
    assert {t["reason"] for t in logged} == {"top"}
    assert all(t["path"] == "plain.jsonl" and t["weight"] is not None for t in logged)


def test_the_row_before_is_the_report_s_and_the_copy_has_no_score(scored, invoke):
    (source,) = [source for source in read_run(scored).sources if source.name == "plain"]
    found = api.select(scored, "kept.jsonl", source="plain", min_weight=0.0)
    assert found.n_negatives == found.before.n_triplets == found.after.n_triplets == 48
    assert Path("kept.jsonl").read_bytes() == Path("plain.jsonl").read_bytes()
    assert found.before.score == source.score.at(1.0)
    assert (found.before.hardness, found.before.outscoring) == (source.hardness.value, source.score.inversion_fraction)
    # Nothing left out, so the same row, but for the score
    assert found.after == replace(
        found.before,
        score=None,
        hardness=pytest.approx(found.before.hardness, rel=1e-9),
        outscoring=pytest.approx(found.before.outscoring, rel=1e-9),
    )
    _, out, _ = invoke("select", scored, "--source", "plain", "--top", 2, "-o", "two.jsonl")
    encoder = read_run(scored).settings["encoder"]["value"]
    assert f"\n  secid score two.jsonl --encoder {encoder}\n" in out


def test_select_json_is_that_of_the_api(scored, invoke):
    rule = ("--max", 20, "--by", "information")
    code, out, _ = invoke("select", scored, "--source", "terse", *rule, "-o", "a.jsonl", "--json")
    expected = asdict(api.select(scored, "b.jsonl", source="terse", max_negatives=20, by="information"))
    assert code == 0
    found = json.loads(out)
    for document in (found, expected):
        document["path"] = document["left_out_path"] = None
    assert found == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "plain"], "nothing to drop"),
        (["--top", 2], "several sources"),
        (["--source", "none", "--top", 2], "no source 'none'"),
        (["--source", "plain", "--top", 0], "at least 1"),
        (["--source", "plain", "--min-weight", 1.5], "--min-weight: 1.5"),
        (["--source", "plain", "--min-weight", 1.0], "no negative is left (min_weight 48)"),
        (["--source", "plain", "--top", 1, "--by", "beauty"], "unknown column"),
    ],
)
def test_wrong_rules_are_refused(scored, invoke, arguments, message):
    code, _, err = invoke("select", scored, *arguments, "-o", "kept.jsonl")
    assert code == 2
    assert message in err
    assert not Path("kept.jsonl").exists()


def test_select_never_writes_in_place(scored, invoke):
    code, _, err = invoke("select", scored, "--source", "plain", "--top", 1, "-o", "plain.jsonl")
    assert code == 2
    assert "already exists" in err
    assert len(listed("plain.jsonl")) == 48


def as_triplets(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"anchor": i["query"], "positive": i["pos"][0], "negative": text} for i in items for text in i["neg"]]


def as_tuples(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"query": i["query"], "positive": i["pos"][0], **{f"negative_{n}": text for n, text in enumerate(i["neg"])}}
        for i in items
    ]


def as_tevatron(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def passages(texts):
        return [{"docid": str(n), "title": "", "text": text} for n, text in enumerate(texts)]

    return [
        {"query": i["query"], "positive_passages": passages(i["pos"]), "negative_passages": passages(i["neg"])}
        for i in items
    ]


SHAPES = {"triplets": as_triplets, "tuples": as_tuples, "tevatron": as_tevatron}


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [
        ("triplets", ".parquet"),
        ("tuples", ".jsonl"),
        ("tevatron", ".jsonl.gz"),
    ],
)
def test_select_round_trips(tmp_path, tiny, shape, suffix):
    """Whatever the schema and container: the copy reads back as the original without what was left out."""
    import gzip

    table = SHAPES[shape](list(rows(6, 4)))
    path = tmp_path / f"in{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    else:
        data = "".join(json.dumps(row) + "\n" for row in table).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    api.score([path], str(tiny), run="run", controls="none")
    out = tmp_path / f"out{suffix}"
    found = api.select("run", out, max_negatives=13, by="weight")
    logged = [json.loads(line) for line in Path(found.left_out_path).read_text("utf-8").splitlines()]
    originals = {record.line: record for record in records(path)}
    gone = {(originals[t["line"]].query, originals[t["line"]].negatives[t["ordinal"]]) for t in logged}
    assert len(gone) == 11
    assert listed(out) == listed(path) - gone
    assert {r.schema for r in api.score([out], str(tiny), controls="none").sources} == {
        read_run(Path("run")).sources[0].schema
    }
    weights = sorted((row["weight"] for row in numbers_of(Path("run"), "in")), reverse=True)
    assert np.allclose(sorted((t["weight"] for t in logged), reverse=True), weights[13:])


Items = list[dict[str, Any]]


def as_pairs(tables: dict[str, Items]) -> Items:
    """Labelled pairs; positives come last and name no source."""
    found = []
    for style, items in tables.items():
        found += [{"query": i["query"], "passage": text, "label": 0, "by": style} for i in items for text in i["neg"]]
    positives = {(i["query"], text) for items in tables.values() for i in items for text in i["pos"]}
    return [*found, *({"query": q, "passage": text, "label": 1, "by": None} for q, text in sorted(positives))]


def as_labelled_lists(tables: dict[str, Items]) -> Items:
    return [
        {
            "query": i["query"],
            "docs": [*i["neg"], *i["pos"]],
            "labels": [0] * len(i["neg"]) + [1] * len(i["pos"]),
            "by": by,
        }
        for by, items in tables.items()
        for i in items
    ]


def as_miners(tables: dict[str, Items]) -> Items:
    rows_of = zip(*tables.values(), strict=True)
    return [{**same[0], "neg": {by: i["neg"] for by, i in zip(tables, same, strict=True)}} for same in rows_of]


def as_dpr(tables: dict[str, Items]) -> Items:
    def contexts(texts):
        return [{"title": "", "text": text} for text in texts]

    columns = ("hard_negative_ctxs", "negative_ctxs")
    return [
        {
            "question": same[0]["query"],
            "positive_ctxs": contexts(same[0]["pos"]),
            **{column: contexts(i["neg"]) for column, i in zip(columns, same, strict=True)},
        }
        for same in zip(*tables.values(), strict=True)
    ]


def as_lists(tables: dict[str, Items]) -> Items:
    return [{**i, "by": by} for by, items in tables.items() for i in items]


SEVERAL = {
    "pairs": (as_pairs, "plain"),
    "labelled lists": (as_labelled_lists, "plain"),
    "miners": (as_miners, "plain"),
    "dpr": (as_dpr, "hard"),
    "lists": (as_lists, "plain"),
}


@pytest.mark.parametrize("shape", SEVERAL)
def test_select_from_one_of_several_sources_of_a_file(tmp_path, tiny, shape, scored):
    """Numbers and negatives equal those of one file per source, and the copy holds only the selected source."""
    make, name = SEVERAL[shape]
    tables = {style: list(rows(12, 4, style)) for style in STYLES}
    column = {} if shape in ("miners", "dpr") else {"source_column": "by"}
    write_rows(tmp_path / "all.jsonl", make(tables))
    api.score(["all.jsonl"], str(tiny), run="several", **column)
    found = api.select("several", "out.jsonl", source=f"all:{name}", max_negatives=17)
    expected = api.select(scored, "plain-out.jsonl", source="plain", max_negatives=17)
    assert (found.n_listed, found.before.n_triplets, found.n_negatives, found.after.n_triplets) == (48, 48, 17, 17)
    assert found.left_out == expected.left_out == {"max": 31}
    assert found.before.score.nats == pytest.approx(expected.before.score.nats, rel=1e-9)
    assert found.after.hardness == pytest.approx(expected.after.hardness, rel=1e-9)
    assert found.schema == "flagembedding"
    assert listed("out.jsonl") == listed("plain-out.jsonl")
    left_out = [json.loads(line) for line in Path(found.left_out_path).read_text("utf-8").splitlines()]
    assert {(entry["query"], entry["negative"]) for entry in left_out} == listed("plain.jsonl") - listed("out.jsonl")


@pytest.mark.parametrize("shape", ["pairs", "labelled lists"])
def test_select_from_labelled_data_of_one_source(tmp_path, tiny, shape, invoke):
    write_rows(tmp_path / "in.jsonl", SEVERAL[shape][0]({"plain": list(rows(12, 4))}))
    write_rows(tmp_path / "lists.jsonl", rows(12, 4))
    for name in ("in", "lists"):
        api.score([f"{name}.jsonl"], str(tiny), run=name, controls="none")
    found, expected = (api.select(name, f"{name}-out.jsonl", top=2) for name in ("in", "lists"))
    assert listed("in-out.jsonl") == listed("lists-out.jsonl")
    assert found.after.hardness == pytest.approx(expected.after.hardness, rel=1e-9)
    assert invoke("mix", "in", "--shares", "in=1", "-o", "mixed.jsonl").code == 0
    assert listed("mixed.jsonl") == listed("lists.jsonl")


def test_defects_duplicates_and_dropped_cells_do_not_shift_the_selection(tmp_path, tiny):
    table = list(rows(30, 4))
    table[1]["neg"] = ["", table[1]["neg"][0], table[1]["neg"][1], table[1]["neg"][0]]
    table[3] = {"query": "no positive", "pos": [], "neg": ["x"]}
    table.append({**table[4], "neg": [table[4]["neg"][3], "one more passage"]})
    write_rows(tmp_path / "in.jsonl", table)
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_bad_fraction=0.2)
    found = api.select("run", "out.jsonl", top=1, by="weight")
    assert found.n_negatives == 29
    assert found.rows_skipped == {"no_positive": 1}
    assert found.left_out["repeat"] == 2
    kept = records("out.jsonl")
    assert len({record.query for record in kept}) == 29
    assert all(len(set(record.negatives)) == 1 for record in kept)
    best = {}
    originals = {record.line: record for record in records("in.jsonl")}
    for row in sorted(numbers_of(Path("run"), "in"), key=lambda row: row["weight"]):
        record = originals[row["line"]]
        best[record.query] = record.negatives[row["ordinal"]]
    assert {record.query: record.negatives[0] for record in kept} == best


def test_a_sampled_run_selects_among_what_it_scored(tmp_path, tiny):
    write_rows(tmp_path / "in.jsonl", rows(20, 4))
    api.score(["in.jsonl"], str(tiny), run="run", controls="none", max_records=8, first_k=3)
    found = api.select("run", "out.jsonl", min_weight=0.0)
    assert found.n_negatives == found.before.n_triplets == len(listed("out.jsonl")) == 24
    assert found.left_out == {"not scored: outside the sample or the first K": 56}
    assert found.n_unscored == 0


def test_a_run_that_stopped_early_is_refused(tmp_path, tiny, invoke):
    for style in STYLES:
        write_rows(tmp_path / f"{style}.jsonl", rows(40, 2, style))
    api.score(["plain.jsonl", "terse.jsonl"], str(tiny), run="run", controls="none", until_ranked=0.9)
    code, _, err = invoke("select", "run", "--source", "plain", "--top", 1, "-o", "kept.jsonl")
    assert code == 2
    assert "stopped early" in err
    assert api.write_mixture("run", {"plain": 0.5, "terse": 0.5}, "mixed.jsonl").n_records == 40


def test_mixing_fills_triplets_and_leaves_labelled_positives_out(tmp_path, tiny):
    first, second = list(rows(6, 3, "plain")), list(rows(6, 3, "terse"))
    second[0]["neg"] = [first[0]["pos"][0], "terse one", "terse two"]
    write_rows(tmp_path / "triplets.jsonl", as_triplets(first))
    write_rows(tmp_path / "lists.jsonl", second)
    api.score(["triplets.jsonl", "lists.jsonl"], str(tiny), run="run", controls="none")
    written = api.write_mixture("run", {"triplets": 0.0, "lists": 1.0}, "mixed.jsonl", base="triplets")
    assert written.n_false_negative == 1
    assert written.n_short == 1
    assert written.n_rows == 17
    assert listed("mixed.jsonl") == listed("lists.jsonl") - {(first[0]["query"], first[0]["pos"][0])}


def test_a_source_without_a_share_still_labels_positives(tmp_path, tiny):
    """A negative that another source labels as a positive is never drawn, whatever the shares."""
    labels, miner = list(rows(8, 2, "plain")), list(rows(8, 2, "terse"))
    for i in range(6):
        labels[i]["pos"].append(f"second answer {i}")
        miner[i]["neg"].append(f"second answer {i}")
    base = [{**row, "neg": [f"base {row['query']} {k}" for k in range(3)]} for row in rows(4, 2, "plain")]
    for name, table in (("labels", labels), ("miner", miner), ("base", base)):
        write_rows(tmp_path / f"{name}.jsonl", table)
    api.score(["labels.jsonl", "miner.jsonl", "base.jsonl"], str(tiny), run="run", controls="none")
    for number, shares in enumerate([{"miner": 1.0, "labels": 0.0}, {"miner": 0.5, "base": 0.5}]):
        written = api.write_mixture("run", shares, f"mixed{number}.jsonl", base="base")
        assert written.n_false_negative == 4  # of the base's queries; the miner's others are not candidates
        assert "second answer" not in Path(written.path).read_text("utf-8")
