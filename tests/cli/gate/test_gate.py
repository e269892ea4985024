"""`secid baseline` and `secid gate`: from a run folder to an exit code."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

import secid
from secid.encode import load
from secid.errors import InputError, NothingToScoreError, SettingsError, UsageError
from secid.settings import Settings
from tests.cli.conftest import FIXTURES, Invoke, invoke_for_a_reader_that_has_gone, write_rows
from tests.cli.gate.conftest import Prepared, fresh, items, save_vectors, variant
from tests.snapshots import refusal, situations


def test_the_baseline_is_readable(prepared):
    document = json.loads(prepared.baseline.read_text(encoding="utf-8"))
    (source,) = json.loads((prepared.run / "report.json").read_text(encoding="utf-8"))["sources"]
    own = document["sources"]["used"]
    assert own["score_nats"] == pytest.approx(source["score"]["nats"], rel=1e-8)
    assert own["hardness"]["value"] == pytest.approx(source["hardness"]["value"], rel=1e-8)
    assert own["findings"]["false_negative"] == {"value": 0.0, "standard_error": 0.0, "n_queries": 160}
    assert own["languages"] == {"en": 1.0}
    assert prepared.baseline.with_name("b.idf.safetensors").is_file()


def test_an_equal_source_is_accepted_and_its_html_page_has_every_check(prepared, tmp_path, invoke):
    page = tmp_path / "v.html"
    result = invoke("gate", fresh(tmp_path), "--against", prepared.baseline, "-o", page, "-o", tmp_path / "v.json")
    assert result.code == 0, result.out + result.err
    assert "accepted" in result.out
    (source,) = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["sources"]
    text = page.read_text(encoding="utf-8")
    plain = text.replace("<wbr>", "")
    assert all(f">{check['name']}</th>" in plain for check in source["checks"])


@pytest.mark.parametrize(
    ("page", "damage", "code"),
    [(("--json",), {}, 0), ((), {"known": 2}, 1), (("--annotations", "github"), {"known": 2}, 1)],
)
def test_a_reader_that_has_gone_changes_no_verdict(prepared, tmp_path, page, damage, code):
    words = ("gate", fresh(tmp_path, **damage), "--against", prepared.baseline, "--out", tmp_path / "v.json", *page)
    found, err = invoke_for_a_reader_that_has_gone(*words)
    assert found == code, err
    assert "Traceback" not in err
    assert (tmp_path / "v.json").is_file()


Checks = dict[str, dict[str, Any]]


def gated(prepared: Prepared, invoke: Invoke, path: Path, *flags: object) -> tuple[int, Checks]:
    """Exit code, and the checks by name."""
    return judged(prepared, invoke, path, *flags)[:2]


def judged(prepared: Prepared, invoke: Invoke, path: Path, *flags: object) -> tuple[int, Checks, str]:
    """Judge as above, and return the output as one line."""
    result = invoke("gate", path, "--against", prepared.baseline, "-o", "judged.json", *flags)
    assert result.code != 2, result.err
    (source,) = json.loads(Path("judged.json").read_text(encoding="utf-8"))["sources"]
    return result.code, {check["name"]: check for check in source["checks"]}, " ".join(result.out.split())


@pytest.mark.parametrize(
    ("which", "name", "failed"),
    [
        ("known", "used", {"findings.false_negative"}),
        ("preamble", "new", {"findings.preamble"}),
        ("duplicate", "used", {"findings.repeat"}),
        ("5 % known, 40 queries", "new", {"findings.false_negative"}),
        ("30 % random", "new", {"hardness", "findings.random_like"}),
        ("German negatives", "new", {"languages"}),
        ("misread negatives", "new", {"findings.mojibake"}),
    ],
)
def test_a_damaged_source_fails_under_any_name(prepared, tmp_path, invoke, which, name, failed):
    code, checks = gated(prepared, invoke, variant(tmp_path, which, name))
    assert code == 1
    assert failed <= {name for name, check in checks.items() if check["outcome"] == "fail"}
    for name in failed - {"languages"}:
        examples = checks[name]["examples"]
        assert len(examples) == 3
        assert all(example["negative"] and example["query"] for example in examples)
        cosines = [example[key] for example in examples for key in ("s_query_negative", "s_query_positive")]
        assert all(-1.0 <= value <= 1.0 + 1e-6 for value in cosines)
        assert not any(example["reason"] for example in examples)


def test_damage_that_the_positives_share_fails_nothing_and_is_named(prepared, tmp_path, invoke):
    _, checks, printed = judged(prepared, invoke, variant(tmp_path, "misread", "new"))
    assert [name for name, check in checks.items() if check["outcome"] == "fail"] in ([], ["languages"])
    assert "positives of new are damaged" in printed


def test_no_repair_is_printed_that_widens_the_difference_from_the_positives(prepared, tmp_path, invoke):
    _, checks, printed = judged(prepared, invoke, variant(tmp_path, "misread, mostly", "new"))
    assert checks["findings.mojibake"]["outcome"] == "fail"
    assert "--drop" not in printed
    assert "epair the texts of both negatives and positives" in printed
    assert "--drop mojibake" in judged(prepared, invoke, variant(tmp_path, "misread negatives", "new"))[2]


def test_what_a_damaged_source_fails_is_what_is_wrong_with_it(prepared, tmp_path, invoke):
    """It fails nothing else, except `languages` for an entirely German source."""
    _, checks = gated(prepared, invoke, variant(tmp_path, "German", "new"))
    assert [name for name, check in checks.items() if check["outcome"] != "pass"] == ["languages"]
    assert (checks["languages"]["measured"], checks["languages"]["limit"]) == (1.0, 0.05)


def test_a_harder_miner_passes_with_notices(prepared, tmp_path, invoke):
    code, checks = gated(prepared, invoke, variant(tmp_path, "harder", "new"))
    assert code == 0
    assert [name for name, check in checks.items() if check["notice"]] == ["findings.inversion"]
    code, checks = gated(prepared, invoke, variant(tmp_path, "harder", "used-2025-11"))
    assert (code, checks["findings.inversion"]["outcome"]) == (1, "fail")


def test_a_dated_name_is_compared_with_its_predecessor(prepared, tmp_path, invoke):
    for name, n_drift in (("used-2025-11", 2), ("used2", 0)):
        _, checks = gated(prepared, invoke, variant(tmp_path, "fresh", name))
        assert sum(check.startswith("drift.") for check in checks) == n_drift, name
    Path("secid.toml").write_text('[gate.names]\nmined = "used"\n', encoding="utf-8")
    _, checks = gated(prepared, invoke, variant(tmp_path, "fresh", "mined"))
    assert checks["drift.unrelated"]["reference"] == "used"
    Path("secid.toml").write_text('[gate.names]\nother = "nothing"\n', encoding="utf-8")
    result = invoke("gate", "mined.jsonl", "--against", prepared.baseline)
    assert result.code == 2
    assert "names.other = 'nothing' " in result.err


def test_a_small_sound_sample_is_undecided_and_says_so_once(prepared, tmp_path, invoke):
    code, checks, printed = judged(prepared, invoke, variant(tmp_path, "few", "new"))
    assert code == 3
    assert {check["outcome"] for check in checks.values()} == {"pass", "undecided"}
    assert [checks["queries"][field] for field in ("outcome", "measured", "limit", "n_queries_needed")] == [
        "undecided", 30.0, 100.0, 100,
    ]  # fmt: skip
    assert printed.count("too few") == 1
    assert printed.count("would be enough") == 1


@pytest.mark.parametrize(("n", "name"), [(1, "used"), (4, "new")])
def test_fewer_queries_than_an_interval_needs_are_undecided_and_other_sources_get_their_verdict(
    prepared, tmp_path, invoke, n, name
):
    few = write_rows(tmp_path / f"{name}.jsonl", items(n, 3000))
    result = invoke("gate", few, variant(tmp_path, "preamble", "large"), "--against", prepared.baseline, "--json")
    outcomes = {source["report"]["name"]: source["outcome"] for source in json.loads(result.out)["sources"]}
    assert (result.code, outcomes) == (1, {name: "undecided", "large": "fail"})


def test_negatives_of_other_queries_fail_by_drift(prepared, tmp_path, invoke):
    rows = items(140, 1000)
    lists = [row["neg"] for row in rows]
    shifted = [{**row, "neg": lists[(n + 11) % len(rows)]} for n, row in enumerate(rows)]
    code, checks = gated(prepared, invoke, write_rows(tmp_path / "used.jsonl", shifted))
    assert (code, checks["drift.unrelated"]["outcome"], checks["hardness"]["outcome"]) == (1, "fail", "fail")


def without_times(text: str) -> dict[str, Any]:
    document = json.loads(text)
    assert document.pop("timing")
    return document


def test_the_functions_return_what_the_commands_print(prepared, tmp_path, invoke):
    source, policy = fresh(tmp_path, known=2), {"minimum_queries": 9, "drift": {"unrelated": "off"}}
    (tmp_path / "p.toml").write_text('minimum_queries = 9\ndrift.unrelated = "off"\n', encoding="utf-8")
    printed = invoke("gate", source, "--against", prepared.baseline, "--policy", "p.toml", "--json")
    named = secid.gate([source], prepared.baseline, policy="p.toml")
    assert without_times(secid.to_json(named)) == without_times(printed.out)
    assert named.exit_code == printed.code == 1
    loaded = load(Settings(encoder=str(prepared.encoder)))
    verdict = secid.gate([source], prepared.baseline, policy=policy, encoder=loaded)
    assert verdict.policy == named.policy
    assert verdict.sources == named.sources
    paired = secid.gate([source], prepared.baseline, paired=prepared.run)
    assert paired.paired == str(prepared.run)
    written = secid.baseline(prepared.run, tmp_path / "b.json")
    assert (tmp_path / "b.json").read_bytes() == prepared.baseline.read_bytes()
    assert secid.baseline(prepared.run, tmp_path / "b.json", update=True) == written
    path = tmp_path / "b.json"
    assert "update" in refusal(lambda: secid.baseline(prepared.run, path), UsageError, path)
    path = tmp_path / "none.json"
    assert "none.json" in refusal(lambda: secid.baseline(prepared.run, path, update=True), InputError, path)


WRONG_CALLS = {
    "no source": ({"sources": []}, NothingToScoreError, "no source"),
    "a missing source": ({"sources": ["none.jsonl"]}, InputError, "none.jsonl: "),
    "an unknown setting": ({"seeds": 1}, SettingsError, "seeds"),
}


@pytest.mark.parametrize(("arguments", "kind", "part"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_wrong_use_of_the_function(prepared, tmp_path, arguments, kind, part):
    arguments = {"sources": [fresh(tmp_path)], "against": prepared.baseline} | arguments
    with pytest.raises(secid.SecidError) as caught:
        secid.gate(**arguments)
    assert type(caught.value) is kind
    assert part in str(caught.value)


def test_a_new_source_whose_hardness_this_baseline_cannot_check_is_undecided(prepared, tmp_path, invoke):
    document = json.loads(prepared.baseline.read_text(encoding="utf-8"))
    document["sources"]["used"]["hardness"]["standard_error"] = 2.0  # no limit of it would notice anything
    weak = tmp_path / "weak.json"
    weak.write_text(json.dumps(document), encoding="utf-8")
    shutil.copy(prepared.baseline.with_name("b.idf.safetensors"), tmp_path / "weak.idf.safetensors")
    for name, code in (("new", 3), ("used", 0)):
        result = invoke("gate", variant(tmp_path, "fresh", name), "--against", weak, "--json")
        (source,) = json.loads(result.out)["sources"]
        assert (name, result.code, "hardness" in source["left_out"]) == (name, code, True)
        undecided = [check["name"] for check in source["checks"] if check["outcome"] == "undecided"]
        assert undecided == (["hardness"] if name == "new" else [])


def test_undecided_is_three_and_may_be_excused(prepared, tmp_path, invoke):
    source = variant(tmp_path, "fresh", "new")
    Path("secid.toml").write_text("[gate]\nhardness_minimum = 0.5\n", encoding="utf-8")
    code, checks = gated(prepared, invoke, source)
    assert (code, checks["hardness"]["outcome"], checks["hardness"]["basis"]) == (3, "undecided", "policy")
    assert invoke("gate", source, "--against", prepared.baseline, "--exit-zero").code == 0
    text = '[gate]\nhardness_minimum = 0.5\nallow_undecided = ["hardness"]\n'
    Path("secid.toml").write_text(text, encoding="utf-8")
    code, checks = gated(prepared, invoke, source)
    assert (code, checks["hardness"]["excused"]) == (0, True)


def test_a_finding_that_was_not_evaluated_is_undecided_with_the_reason(prepared, tmp_path, invoke):
    (tmp_path / "p.toml").write_text("findings.truncated = 0.1\n", encoding="utf-8")
    source = variant(tmp_path, "fresh")
    code, checks, printed = judged(prepared, invoke, source, "--policy", "p.toml")
    assert (code, checks["findings.truncated"]["outcome"]) == (3, "undecided")
    assert checks["findings.truncated"]["reason"]
    assert "too few" not in printed


def test_a_new_source_is_held_where_the_policy_says_so(prepared, tmp_path, invoke):
    (tmp_path / "p.toml").write_text('new_source = "hold"\n', encoding="utf-8")
    for name, expected in (("new", 3), ("used", 0)):
        code, checks = gated(prepared, invoke, variant(tmp_path, "fresh", name), "--policy", "p.toml")
        assert (code, "new_source" in checks) == (expected, expected == 3)


def test_exit_zero_does_not_hide_wrong_use(prepared, tmp_path, invoke):
    result = invoke("gate", "nowhere*.jsonl", "--against", prepared.baseline, "--exit-zero")
    assert result.code == 2


def test_the_same_file_paired_with_its_own_run_differs_by_nothing(prepared, invoke):
    source = prepared.folder / "used.jsonl"
    code, checks = gated(prepared, invoke, source, "--paired", prepared.run)
    assert code == 0
    for name in ("drift.score_nats", "drift.unrelated"):
        assert checks[name]["n_shared"] == 160
        assert checks[name]["measured"] == pytest.approx(0.0, abs=1e-8)
        assert checks[name]["interval_95"] == pytest.approx([0.0, 0.0], abs=1e-8)


def test_another_recipe_is_refused(prepared, tmp_path, invoke):
    flags = ("--temperature", "0.1", "--set", "tokenizer=whitespace")
    result = invoke("gate", fresh(tmp_path), "--against", prepared.baseline, *flags)
    assert result.code == 2
    for line in ("temperature: baseline 0.05, now 0.1", "tokenizer: baseline 'alphanumeric', now 'whitespace'"):
        assert line in result.err


def test_another_encoder_is_refused_with_the_list(prepared, tmp_path, invoke):
    other = save_vectors(tmp_path / "other.npz", items(3))
    result = invoke("gate", fresh(tmp_path), "--against", prepared.baseline, "--encoder", other)
    assert result.code == 2
    for field in ("name", "fingerprint"):
        assert f"encoder {field}: baseline" in result.err


def test_a_damaged_table_is_refused(prepared, tmp_path, invoke):
    for name in ("b.json", "b.idf.safetensors"):
        shutil.copy(prepared.folder / name, tmp_path / name)
    table = tmp_path / "b.idf.safetensors"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    result = invoke("gate", fresh(tmp_path), "--against", tmp_path / "b.json")
    assert result.code == 2
    assert "b.idf.safetensors: " in result.err
    table.unlink()
    assert invoke("gate", fresh(tmp_path), "--against", tmp_path / "b.json").code == 2


WRONG_USE = (
    "gate x.jsonl",
    "gate --against b.json",
    "gate x.jsonl --against none.json",
    "gate x.jsonl --against .",
    "gate x.jsonl --against old.json",
    "gate x.jsonl --against b.json --out x.pdf",
    "gate --init x.jsonl --against b.json",
    "baseline update",
    "baseline a b",
    "baseline a -o x.yaml",
    "baseline nowhere",
    "baseline update nowhere",
)


def test_wrong_use(invoke, snapshot):
    Path("old.json").write_text('{"schema_version": "1.0"}', encoding="utf-8")
    texts = {}
    for line in WRONG_USE:
        result = invoke(*line.split())
        assert (result.code, result.out) == (2, ""), line
        texts[f"secid {line}"] = result.err
    snapshot("gate-refusals.txt", situations(texts))


def test_init_writes_a_policy_that_gate_reads(prepared, tmp_path, invoke):
    assert invoke("gate", "--init", "--against", prepared.baseline).code == 0
    assert Path("secid.toml").read_text(encoding="utf-8").startswith("# Policy")
    result = invoke("gate", fresh(tmp_path), "--against", prepared.baseline)
    assert result.code == 0, result.err
    assert "secid.toml" in result.out
    assert invoke("gate", "--init", "--against", prepared.baseline).code == 2


def test_an_undecided_source_is_a_warning_for_services(prepared, tmp_path, invoke):
    Path("secid.toml").write_text("[gate]\nminimum_queries = 1000\n", encoding="utf-8")
    flags = ("--annotations", "github", "-o", "v.xml")
    result = invoke("gate", variant(tmp_path, "fresh"), "--against", prepared.baseline, *flags)
    assert result.code == 3
    assert [line.split(" ")[0] for line in result.out.splitlines() if line.startswith("::")] == ["::warning"]
    cases = ElementTree.parse("v.xml").getroot().iter("testcase")
    assert "queries" in {case.get("name") for case in cases if case.find("error") is not None}


def test_only_update_changes_a_baseline(prepared, tmp_path, invoke):
    out = tmp_path / "b.json"
    assert invoke("baseline", prepared.run, "-o", out).code == 0
    before = out.read_bytes()
    assert before == prepared.baseline.read_bytes()
    refused = invoke("baseline", prepared.run, "-o", out)
    assert refused.code == 2
    assert "baseline update" in refused.err
    same = invoke("baseline", "update", prepared.run, "-o", out)
    assert "→" not in same.out
    assert out.read_bytes() == before
    source = write_rows(tmp_path / "used.jsonl", items(150))
    assert invoke("score", source, "--encoder", prepared.encoder, "--run", "update", "--quiet").code == 0
    changed = invoke("baseline", "update", "./update", "-o", out)
    assert changed.code == 0
    assert "sources used n_records: 160 → 150" in changed.out
    assert out.read_bytes() != before
    out.rename(tmp_path / "real.json")
    out.symlink_to("real.json")
    assert invoke("baseline", "update", prepared.run, "-o", out).code == 0
    assert out.is_symlink()
    assert (tmp_path / "real.json").read_bytes() == before


def test_a_baseline_needs_only_the_run_folder(tmp_path, invoke):
    """It works from any folder, even without the files: shares come from the report, and nothing is read again."""
    rows = items(60, known=5, duplicate=3)
    source, encoder = write_rows(tmp_path / "used.jsonl", rows), save_vectors(tmp_path / "v.npz", rows)
    assert invoke("score", source, "--encoder", encoder, "--run", "run", "--quiet").code == 0
    source.unlink()
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    (own,) = json.loads(Path("run/report.json").read_text(encoding="utf-8"))["sources"]
    findings = json.loads(Path("b.json").read_text(encoding="utf-8"))["sources"]["used"]["findings"]
    assert {name: known["value"] for name, known in findings.items()} == pytest.approx(
        {item["name"]: (item["positives"] or {}).get("difference", item["share"]) for item in own["findings"]},
        abs=1e-8,
    )
    assert findings["false_negative"]["value"] == pytest.approx(8 / 300)  # every fifth record, but for every fifteenth
    (Path("run") / "state" / "positives.safetensors").unlink()
    refused = invoke("baseline", "run", "-o", "new.json")
    assert refused.code == 2
    assert "positives.safetensors: " in refused.err
    assert not Path("new.json").exists()


def test_pages_annotations_and_summary(prepared, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    result = invoke(
        "gate", fresh(tmp_path, known=2), "--against", prepared.baseline, "--annotations", "github",
        "--out", tmp_path / "v.json", "--out", tmp_path / "v.md", "--out", tmp_path / "v.xml",
    )  # fmt: skip
    assert result.code == 1
    commands = [line for line in result.out.splitlines() if line.startswith("::")]
    assert any(line.startswith("::error ") and "findings.false_negative" in line for line in commands)
    assert json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["outcome"] == "fail"
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == (tmp_path / "v.md").read_text(encoding="utf-8")
    assert int(ElementTree.parse(tmp_path / "v.xml").getroot().get("failures", "0")) > 0


@pytest.mark.parametrize("name", ["b.json", "new.json", "link.json", "run/report.json"])
def test_nothing_that_is_read_is_overwritten(prepared, tmp_path, invoke, name):
    for file in ("b.json", "b.idf.safetensors"):
        shutil.copy(prepared.folder / file, tmp_path / file)
    shutil.copytree(prepared.run, tmp_path / "run")
    (tmp_path / "new.json").write_text(json.dumps(items(140, 1000)), encoding="utf-8")
    (tmp_path / "link.json").symlink_to("b.json")
    before = (tmp_path / name).read_bytes()
    result = invoke("gate", "new.json", "--against", "b.json", "--paired", "run", "--out", "v.md", "--out", name)
    assert result.code == 2, result.out
    assert f"{name}: " in result.err
    assert (tmp_path / name).read_bytes() == before
    assert not (tmp_path / "v.md").exists()


def test_score_overwrites_no_source(prepared, tmp_path, invoke):
    (tmp_path / "new.json").write_text(json.dumps(items(20)), encoding="utf-8")
    result = invoke("score", "new.json", "--encoder", prepared.encoder, "--out", "new.json")
    assert result.code == 2
    assert "new.json: " in result.err


def test_a_failed_update_leaves_the_old_pair(prepared, tmp_path, invoke, monkeypatch):
    """If the document cannot be written, as on a full disk, its table stays, too."""
    out = tmp_path / "b.json"
    assert invoke("baseline", prepared.run, "-o", out).code == 0
    source = write_rows(tmp_path / "used.jsonl", items(150))
    assert invoke("score", source, "--encoder", prepared.encoder, "--run", "again", "--quiet").code == 0
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name.startswith(".b.json"):
            raise OSError(28, "No space left on device")
        return write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        result = invoke("baseline", "update", "again", "-o", out)
    assert result.code == 2
    assert "No space" in result.err
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []
    assert invoke("gate", fresh(tmp_path), "--against", out).code == 0


def test_only_the_baseline_s_own_run_is_paired(prepared, tmp_path, invoke):
    """Two files with swapped names have the same pool. If they were paired, each would get the other's scores."""
    write_rows(tmp_path / "x.jsonl", items(80))
    write_rows(tmp_path / "y.jsonl", items(80, 80))
    for run, first, second in (("xy", "x", "y"), ("yx", "y", "x")):
        sources = (f"x={first}.jsonl", f"y={second}.jsonl")
        assert invoke("score", *sources, "--encoder", prepared.encoder, "--run", run, "--quiet").code == 0
    assert invoke("baseline", "xy", "-o", "b.json").code == 0
    common = ("gate", "x=x.jsonl", "--against", "b.json", "--quiet", "--paired")
    assert invoke(*common, "xy").code == 0
    result = invoke(*common, "yx")
    assert result.code == 2
    assert "score of x: baseline" in result.err
    assert "files of y, changed: x.jsonl, y.jsonl" in result.err


def test_rows_without_a_negative_are_counted(prepared, tmp_path, invoke):
    rows = [*items(140, 1000), *({**row, "neg": []} for row in items(300, 20_000))]
    result = invoke("gate", write_rows(tmp_path / "used.jsonl", rows), "--against", prepared.baseline)
    printed = " ".join(result.out.split())
    assert all(n in printed for n in ("Rows read: 440;", "records: 140;", "300 × no negatives"))


def test_a_summary_that_cannot_be_written_hides_no_verdict(prepared, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "summary.md"))
    result = invoke("gate", fresh(tmp_path), "--against", prepared.baseline)
    assert result.code == 2
    assert "accepted" in result.out
    assert "$GITHUB_STEP_SUMMARY" in result.err


def test_empty_negatives_are_checked_by_the_policy(prepared, tmp_path, invoke):
    rows = items(140, 1000)
    for row in rows[::2]:
        row["neg"][0] = " "
    source = write_rows(tmp_path / "used.jsonl", rows)
    code, checks = gated(prepared, invoke, source)
    assert (code, checks["findings.empty"]["outcome"]) == (1, "fail")
    rows[1] = {**rows[1], "neg": [""] * 5}
    _, checks = gated(prepared, invoke, write_rows(source, rows))
    assert checks["findings.empty"]["measured"] == pytest.approx((70 + 5) / 700)
    assert [row["line"] for row in checks["findings.empty"]["examples"]] == [1, 2, 3]
    rows[:20] = [{**row, "query": ""} for row in rows[:20]]
    result = invoke("gate", write_rows(source, rows), "--against", prepared.baseline)
    assert result.code == 2
    assert "20 of 140 " in result.err


def test_false_negatives_are_the_run_s_and_the_baseline_s(prepared, tmp_path, invoke):
    """One source lists a positive of each query, the other lists it as a negative: neither file alone shows it."""
    rows = items(60)
    other = [{**row, "neg": [row["pos"][0].upper(), *row["neg"][1:]], "pos": row["neg"][:1]} for row in rows]
    encoder = save_vectors(tmp_path / "v.npz", [*rows, *other])
    write_rows(tmp_path / "one.jsonl", other)
    write_rows(tmp_path / "two.jsonl", rows)
    scored = invoke("score", "one.jsonl", "two.jsonl", "--encoder", encoder, "--run", "run", "--quiet")
    assert scored.code == 0, scored.err
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    known = json.loads(Path("b.json").read_text(encoding="utf-8"))["sources"]["one"]["findings"]["false_negative"]
    (source,) = json.loads(invoke("gate", "one.jsonl", "--against", "b.json", "--json").out)["sources"]
    measured = next(check["measured"] for check in source["checks"] if check["name"] == "findings.false_negative")
    assert known["value"] == pytest.approx(0.2)
    assert measured == pytest.approx(known["value"])


def test_a_source_is_read_once(prepared, tmp_path, invoke, monkeypatch):
    """A source may therefore be a pipe."""
    rows = write_rows(tmp_path / "used.jsonl", items(140, 1000)).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rows)))
    result = invoke("gate", "used=-", "--against", prepared.baseline)
    assert result.code == 0, result.err
    assert "accepted" in result.out


@pytest.mark.parametrize("command", ["score", "check", "gate"])
def test_a_file_s_name_need_not_be_utf_8(prepared, tmp_path, command, invoke):
    """The output is UTF-8 even if the name is not."""
    name = os.fsdecode(b"ne\xffw.jsonl")
    write_rows(tmp_path / name, items(140, 1000))
    words = {
        "score": ("--encoder", prepared.encoder, "--run", "run"),
        "check": (),
        "gate": ("--against", prepared.baseline, "--out", "v.json", "--out", "v.md", "--out", "v.xml"),
    }[command]
    result = invoke(command, name, "--json", *words)
    (result.out + result.err).encode("utf-8")
    assert result.code == 0, result.err
    (source,) = json.loads(result.out)["sources"]
    assert source.get("report", source)["name"] == "ne\ufffdw"


def halves(path: Path) -> list[list[dict[str, Any]]]:
    """The rows of every second query of a fixture, and the others."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        data = path.read_bytes()
        rows = [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]
    queries = list(dict.fromkeys(str(row.get("query", row.get("anchor"))) for row in rows))
    return [[row for row in rows if queries.index(str(row.get("query", row.get("anchor")))) % 2 == k] for k in (0, 1)]


def test_the_fixtures_pass_the_gate_that_they_are_the_baseline_of(fixture_run, tiny, invoke):
    """Not the poisoned one: its defects fail whatever the baseline has."""
    listed = invoke("baseline", fixture_run.folder, "-o", "b.json")
    assert listed.code == 0
    (poisoned,) = [line for line in listed.out.splitlines() if line.startswith("poisoned: ")]
    assert re.search(r"false_negative \d+\.\d % \(", poisoned)
    sources = sorted((FIXTURES / "sources").iterdir())
    result = invoke("gate", *sources, "--against", "b.json", "--json", "--encoder", tiny)
    assert result.code == 1, result.out + result.err
    verdicts = {source["report"]["name"]: source for source in json.loads(result.out)["sources"]}
    assert verdicts.keys() == {"bm25", "counterfactual", "dense", "poisoned", "random"}
    outcomes = {name: source["outcome"] for name, source in verdicts.items()}
    assert outcomes == {**dict.fromkeys(verdicts, "pass"), "poisoned": "fail"}
    assert all(name == source["previous"] for name, source in verdicts.items())


def test_fresh_halves_of_the_fixtures_never_fail(tiny, tmp_path, invoke):
    for name in ("bm25.jsonl.gz", "dense.parquet", "counterfactual.jsonl", "random.jsonl"):
        for number, rows in enumerate(halves(FIXTURES / "sources" / name)):
            write_rows(tmp_path / str(number) / f"{name.split('.')[0]}.jsonl", rows)
    scored = invoke("score", *Path("0").iterdir(), "--encoder", tiny, "--run", "run", "--quiet")
    assert scored.code == 0, scored.err
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    result = invoke("gate", *Path("1").iterdir(), "--against", "b.json", "--json", "--encoder", tiny)
    assert result.code in (0, 3), result.out + result.err
    assert len(json.loads(result.out)["sources"]) == 4
