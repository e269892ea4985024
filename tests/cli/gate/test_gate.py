"""`secid baseline` and `secid gate`: from a run folder to an exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import secid
from secid.encode import load
from secid.results.catalogue import TEXT_FINDINGS
from secid.settings import Settings
from tests.cli.conftest import child_environment, run_child, write_rows
from tests.cli.gate.conftest import fresh, items, save_vectors


def outcomes(out: str) -> dict[str, str]:
    (source,) = json.loads(out)["sources"]
    return {check["name"]: check["outcome"] for check in source["checks"]}


def test_the_baseline_is_readable(prepared):
    document = json.loads(prepared.baseline.read_text(encoding="utf-8"))
    report = json.loads((prepared.run / "report.json").read_text(encoding="utf-8"))
    own = document["sources"]["used"]
    assert own["score_nats"] == pytest.approx(report["sources"][0]["eci_nats"], rel=1e-8)
    assert own["findings"]["false_negative"] == {"value": 0.0, "standard_error": 0.0}
    assert prepared.baseline.with_name("b.idf.safetensors").is_file()


def test_an_equal_source_may_enter(prepared, tmp_path, invoke):
    found = invoke("gate", fresh(tmp_path), "--against", prepared.baseline)
    assert found.code == 0, found.out + found.err
    assert "may enter" in found.out
    assert "policy derived from the baseline" in found.out


@pytest.mark.parametrize("page", [[], ["--json"], ["--annotations", "github"]])
@pytest.mark.parametrize(("damage", "code"), [({}, 0), ({"known": 2}, 1)])
def test_a_reader_that_has_gone_changes_no_verdict(prepared, tmp_path, page, damage, code):
    source = fresh(tmp_path, **damage)
    words = ["gate", str(source), "--against", str(prepared.baseline), "--out", str(tmp_path / "v.json"), *page]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "secid", *words], stdout=writing, stderr=subprocess.PIPE, env=child_environment()
    )
    os.close(writing)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "v.json").is_file()


@pytest.mark.parametrize(
    ("damage", "name"),
    [("known", "findings.false_negative"), ("preamble", "findings.preamble"), ("duplicate", "findings.repeat")],
)
def test_a_poisoned_source_may_not(prepared, tmp_path, invoke, damage, name):
    found = invoke("gate", fresh(tmp_path, **{damage: 2}), "--against", prepared.baseline, "--json")
    assert found.code == 1
    assert outcomes(found.out)[name] == "fail"
    (source,) = json.loads(found.out)["sources"]
    check = next(check for check in source["checks"] if check["name"] == name)
    assert len(check["examples"]) == 3
    assert all(example["negative"] and example["query"] for example in check["examples"])
    assert found.out.endswith("}\n")


def test_negatives_of_other_queries_are_seen(prepared, tmp_path, invoke):
    rows = items(140, 1000)
    lists = [row["neg"] for row in rows]
    dealt = [{**row, "neg": lists[(n + 11) % len(rows)]} for n, row in enumerate(rows)]
    found = invoke("gate", write_rows(tmp_path / "used.jsonl", dealt), "--against", prepared.baseline, "--json")
    assert found.code == 1
    assert outcomes(found.out)["controls.shuffled"] == "fail"
    assert outcomes(found.out)["drift.unrelated"] == "fail"


def without_times(text: str) -> dict[str, Any]:
    document = json.loads(text)
    assert document.pop("timing")
    return document


def test_the_functions_return_what_the_commands_print(prepared, tmp_path, invoke):
    source, policy = fresh(tmp_path, known=2), {"minimum_records": 9, "drift": {"close": "off"}}
    (tmp_path / "p.toml").write_text('minimum_records = 9\ndrift.close = "off"\n', encoding="utf-8")
    printed = invoke("gate", source, "--against", prepared.baseline, "--policy", "p.toml", "--json")
    named = secid.gate([source], prepared.baseline, policy="p.toml")
    assert without_times(secid.verdict_json(named)) == without_times(printed.out)
    assert named.exit_code == printed.code == 1
    given = secid.gate([source], prepared.baseline, policy=policy, encoder=str(prepared.encoder))
    assert given.policy == named.policy
    assert given.sources == named.sources
    loaded = load(Settings(encoder=str(prepared.encoder)))
    given = secid.gate([source], prepared.baseline, policy=policy, encoder=loaded, batch_tokens=512)
    assert given.notes[-1].endswith(": --set batch_tokens")
    paired = secid.gate([source], prepared.baseline, paired=prepared.run)
    assert paired.paired == str(prepared.run)
    written = secid.baseline(prepared.run, tmp_path / "b.json")
    assert (tmp_path / "b.json").read_bytes() == prepared.baseline.read_bytes()
    assert secid.baseline(prepared.run, tmp_path / "b.json", update=True) == written
    with pytest.raises(secid.SecidError, match="already exists"):
        secid.baseline(prepared.run, tmp_path / "b.json")
    with pytest.raises(secid.SecidError, match="cannot read"):
        secid.baseline(prepared.run, tmp_path / "none.json", update=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"policy": {"bucket": {}}}, "unknown key 'bucket'"),
        ({"policy": "none.toml"}, "no such policy file"),
        ({"against": "none.json"}, "cannot read the baseline"),
        ({"sources": []}, "no source"),
        ({"sources": ["none.jsonl"]}, "none.jsonl"),
        ({"temperature": 0.1}, "temperature: baseline 0.05, now 0.1"),
        ({"seeds": 1}, "seeds"),
    ],
)
def test_wrong_use_of_the_function(prepared, tmp_path, arguments, told):
    given = {"sources": [fresh(tmp_path)], "against": prepared.baseline} | arguments
    with pytest.raises(secid.SecidError) as caught:
        secid.gate(**given)
    assert told in str(caught.value)


def test_undecided_is_three_and_may_be_excused(prepared, tmp_path, invoke):
    source = fresh(tmp_path, "new")
    Path("secid.toml").write_text("[gate.score]\ntolerance_nats = 0.0\n", encoding="utf-8")
    found = invoke("gate", source, "--against", prepared.baseline, "--json")
    assert found.code == 3, found.out
    assert outcomes(found.out)["score"] == "not_evaluated"
    assert invoke("gate", source, "--against", prepared.baseline, "--exit-zero").code == 0
    Path("secid.toml").write_text(
        '[gate]\nallow_not_evaluated = ["score"]\n[gate.score]\ntolerance_nats = 0.0\n', encoding="utf-8"
    )
    assert invoke("gate", source, "--against", prepared.baseline).code == 0


def test_a_new_source_is_held_where_the_policy_says_so(prepared, tmp_path, invoke):
    policy = tmp_path / "p.toml"
    policy.write_text('drift.new_source = "hold"\n', encoding="utf-8")
    source = fresh(tmp_path, "new")
    assert invoke("gate", source, "--against", prepared.baseline).code == 0
    assert invoke("gate", source, "--against", prepared.baseline, "--policy", policy).code == 3


def test_exit_zero_does_not_hide_wrong_use(prepared, tmp_path, invoke):
    found = invoke("gate", "nowhere*.jsonl", "--against", prepared.baseline, "--exit-zero")
    assert found.code == 2


def test_the_same_file_paired_with_its_own_run_differs_by_nothing(prepared, invoke):
    source = prepared.folder / "used.jsonl"
    found = invoke("gate", source, "--against", prepared.baseline, "--paired", prepared.run, "--json")
    assert found.code == 0, found.err
    (verdict,) = json.loads(found.out)["sources"]
    checks = {check["name"]: check for check in verdict["checks"]}
    for name in ("score", "drift.score_nats", "drift.coverage", "drift.unrelated"):
        assert "paired over 160" in checks[name]["message"]
        assert checks[name]["measured"] == pytest.approx(0.0, abs=1e-8)
        assert checks[name]["interval_95"] == pytest.approx([0.0, 0.0], abs=1e-8)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--temperature", "0.1"), "temperature: baseline 0.05, now 0.1"),
        (("--seed", "4", "--tokenizer", "whitespace"), "tokenizer: baseline 'alphanumeric', now 'whitespace'"),
        (("--set", "idf=uniform"), "idf: baseline 'pooled', now 'uniform'"),
    ],
)
def test_another_recipe_is_refused(prepared, tmp_path, invoke, flags, told):
    found = invoke("gate", fresh(tmp_path), "--against", prepared.baseline, *flags)
    assert found.code == 2
    assert told in found.err


def test_another_encoder_is_refused_with_the_list(prepared, tmp_path, invoke):
    other = save_vectors(tmp_path / "other.npz", items(3))
    found = invoke("gate", fresh(tmp_path), "--against", prepared.baseline, "--encoder", other)
    assert found.code == 2
    for field in ("name", "fingerprint"):
        assert f"encoder {field}: baseline" in found.err


def test_a_damaged_table_is_refused(prepared, tmp_path, invoke):
    for name in ("b.json", "b.idf.safetensors"):
        shutil.copy(prepared.folder / name, tmp_path / name)
    table = tmp_path / "b.idf.safetensors"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    found = invoke("gate", fresh(tmp_path), "--against", tmp_path / "b.json")
    assert found.code == 2
    assert "b.idf.safetensors: " in found.err
    table.unlink()
    assert invoke("gate", fresh(tmp_path), "--against", tmp_path / "b.json").code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("gate", "x.jsonl"), "no baseline"),
        (("gate", "--against", "b.json"), "no source"),
        (("gate", "x.jsonl", "--against", "none.json"), "none.json: cannot read"),
        (("gate", "x.jsonl", "--against", "b.json", "--out", "x.pdf"), "suffix '.pdf'"),
        (("gate", "--init", "x.jsonl", "--against", "b.json"), "--init takes"),
        (("baseline", "update"), ", got 0"),
        (("baseline", "a", "b"), ", got 2"),
        (("baseline", "a", "-o", "x.yaml"), ".json file"),
        (("baseline", "nowhere"), "nowhere: cannot read"),
        (("baseline", "update", "nowhere"), "cannot read"),
    ],
)
def test_wrong_use(prepared, invoke, arguments, told):
    found = invoke(*(argument.format(baseline=prepared.baseline) for argument in arguments))
    assert found.code == 2
    assert told in found.err


def test_init_writes_a_policy_that_gate_reads(prepared, tmp_path, invoke):
    assert invoke("gate", "--init", "--against", prepared.baseline).code == 0
    assert Path("secid.toml").read_text(encoding="utf-8").startswith("# Policy")
    found = invoke("gate", fresh(tmp_path), "--against", prepared.baseline)
    assert found.code == 0, found.err
    assert "policy secid.toml" in found.out
    assert invoke("gate", "--init", "--against", prepared.baseline).code == 2


def test_only_update_changes_a_baseline(prepared, tmp_path, invoke):
    out = tmp_path / "b.json"
    assert invoke("baseline", prepared.run, "-o", out).code == 0
    before = out.read_bytes()
    assert before == prepared.baseline.read_bytes()
    refused = invoke("baseline", prepared.run, "-o", out)
    assert refused.code == 2
    assert "baseline update" in refused.err
    same = invoke("baseline", "update", prepared.run, "-o", out)
    assert "nothing changed" in same.out
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


def test_a_baseline_needs_the_run_folder_alone(tmp_path, invoke):
    """From any folder, whatever has become of the files: every share is the report's, nothing is read again."""
    rows = items(60, known=5, duplicate=3)
    source, encoder = write_rows(tmp_path / "used.jsonl", rows), save_vectors(tmp_path / "v.npz", rows)
    assert invoke("score", source, "--encoder", encoder, "--run", "run", "--quiet").code == 0
    source.unlink()
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    (own,) = json.loads(Path("run/report.json").read_text(encoding="utf-8"))["sources"]
    findings = json.loads(Path("b.json").read_text(encoding="utf-8"))["sources"]["used"]["findings"]
    assert {name: known["value"] for name, known in findings.items()} == pytest.approx(
        {finding["name"]: finding["share"] for finding in own["findings"]}, abs=1e-8
    )
    assert findings["false_negative"]["value"] == pytest.approx(8 / 300)  # every fifth record, but for every fifteenth
    (Path("run") / "state" / "positives.safetensors").unlink()
    refused = invoke("baseline", "run", "-o", "new.json")
    assert refused.code == 2
    assert "positives.safetensors: " in refused.err
    assert not Path("new.json").exists()


def test_pages_annotations_and_summary(prepared, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    found = invoke(
        "gate", fresh(tmp_path, known=2), "--against", prepared.baseline, "--annotations", "github",
        "--out", tmp_path / "v.json", "--out", tmp_path / "v.md", "--out", tmp_path / "v.xml",
    )  # fmt: skip
    assert found.code == 1
    commands = [line for line in found.out.splitlines() if line.startswith("::")]
    assert any(line.startswith("::error ") and "findings.false_negative" in line for line in commands)
    assert json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["outcome"] == "fail"
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == (tmp_path / "v.md").read_text(encoding="utf-8")
    assert int(ElementTree.parse(tmp_path / "v.xml").getroot().get("failures", "0")) > 0


def test_help_and_policy_errors_need_no_torch(prepared, tmp_path):
    (tmp_path / "secid.toml").write_text("[gate.findings]\npreambles = 0.1\n", encoding="utf-8")
    code = (
        "import sys\nfrom secid.cli.app import main\n"
        "codes = [main(['gate', '--help']), main(['baseline', '--help']),"
        f" main(['gate', 'x.jsonl', '--against', {str(prepared.baseline)!r}])]\n"
        "print(codes, [name for name in ('torch', 'numpy', 'pyarrow', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=child_environment()
    )
    assert done.stdout.strip().splitlines()[-1] == "[0, 0, 2] []"
    assert "did you mean 'preamble'?" in done.stderr


def test_the_exit_code_reaches_the_shell(prepared, tmp_path):
    fresh(tmp_path, duplicate=2)
    found = run_child("gate", "used.jsonl", "--against", str(prepared.baseline), cwd=tmp_path)
    assert found.code == 1
    assert "Traceback" not in found.err


@pytest.mark.parametrize("name", ["b.json", "new.json", "link.json", "run/report.json"])
def test_nothing_that_is_read_is_overwritten(prepared, tmp_path, invoke, name):
    for file in ("b.json", "b.idf.safetensors"):
        shutil.copy(prepared.folder / file, tmp_path / file)
    shutil.copytree(prepared.run, tmp_path / "run")
    (tmp_path / "new.json").write_text(json.dumps(items(140, 1000)), encoding="utf-8")
    (tmp_path / "link.json").symlink_to("b.json")
    before = (tmp_path / name).read_bytes()
    found = invoke("gate", "new.json", "--against", "b.json", "--paired", "run", "--out", "v.md", "--out", name)
    assert found.code == 2, found.out
    assert f"{name}: would be overwritten" in found.err
    assert (tmp_path / name).read_bytes() == before
    assert not (tmp_path / "v.md").exists()


def test_score_overwrites_no_source(prepared, tmp_path, invoke):
    (tmp_path / "new.json").write_text(json.dumps(items(20)), encoding="utf-8")
    found = invoke("score", "new.json", "--encoder", prepared.encoder, "--out", "new.json")
    assert found.code == 2
    assert "new.json: would be overwritten" in found.err


def test_a_failed_update_leaves_the_old_pair(prepared, tmp_path, invoke, monkeypatch):
    """The document cannot be written, as on a full disk: the table beside it stays the one that it names."""
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
        found = invoke("baseline", "update", "again", "-o", out)
    assert found.code == 2
    assert "No space" in found.err
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []
    assert invoke("gate", fresh(tmp_path), "--against", out).code == 0


def test_a_run_that_the_baseline_was_not_made_of_is_not_paired(prepared, tmp_path, invoke):
    """The same pool, with other files under the names: paired, their scores would be the other source's."""
    write_rows(tmp_path / "x.jsonl", items(80))
    write_rows(tmp_path / "y.jsonl", items(80, 80))
    for run, first, second in (("xy", "x", "y"), ("yx", "y", "x")):
        sources = (f"x={first}.jsonl", f"y={second}.jsonl")
        assert invoke("score", *sources, "--encoder", prepared.encoder, "--run", run, "--quiet").code == 0
    assert invoke("baseline", "xy", "-o", "b.json").code == 0
    common = ("gate", "x=x.jsonl", "--against", "b.json", "--quiet", "--paired")
    assert invoke(*common, "xy").code == 0
    found = invoke(*common, "yx")
    assert found.code == 2
    assert "score of x: baseline" in found.err
    assert "files of y: x.jsonl, y.jsonl" in found.err


def test_rows_without_a_negative_are_told(prepared, tmp_path, invoke):
    rows = [*items(140, 1000), *({**row, "neg": []} for row in items(300, 20_000))]
    found = invoke("gate", write_rows(tmp_path / "used.jsonl", rows), "--against", prepared.baseline)
    assert all(n in found.out for n in ("440 rows", "300 left out", "140 records"))


def test_a_summary_that_cannot_be_written_hides_no_verdict(prepared, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "summary.md"))
    found = invoke("gate", fresh(tmp_path), "--against", prepared.baseline)
    assert found.code == 2
    assert "may enter" in found.out
    assert "$GITHUB_STEP_SUMMARY" in found.err


def test_empty_negatives_are_judged_by_the_policy(prepared, tmp_path, invoke):
    rows = items(140, 1000)
    for row in rows[::2]:
        row["neg"][0] = " "
    source = write_rows(tmp_path / "used.jsonl", rows)
    found = invoke("gate", source, "--against", prepared.baseline, "--json")
    assert found.code == 1, found.err
    assert outcomes(found.out)["findings.empty"] == "fail"
    rows[1] = {**rows[1], "neg": [""] * 5}
    (told,) = json.loads(invoke("gate", write_rows(source, rows), "--against", prepared.baseline, "--json").out)[
        "sources"
    ]
    (empty,) = [check for check in told["checks"] if check["name"] == "findings.empty"]
    assert empty["measured"] == pytest.approx((70 + 5) / 700)
    assert [row["line"] for row in empty["examples"]] == [1, 2, 3]
    rows[:20] = [{**row, "query": ""} for row in rows[:20]]
    found = invoke("gate", write_rows(source, rows), "--against", prepared.baseline)
    assert found.code == 2
    assert "20 of 140 rows" in found.err


def test_false_negatives_are_those_of_the_run_and_of_the_baseline(prepared, tmp_path, invoke):
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


def test_the_verdict_and_the_report_have_the_same_findings(prepared, tmp_path, invoke):
    source = fresh(tmp_path, known=2)
    (told,) = json.loads(invoke("gate", source, "--against", prepared.baseline, "--json").out)["sources"]
    scored = invoke("score", source, "--encoder", prepared.encoder, "--run", "run", "--json")
    (reported,) = json.loads(scored.out)["sources"]
    (checked,) = json.loads(invoke("check", source, "--json").out)["sources"]

    def numbers(source: dict[str, Any], names: Sequence[str]) -> list[list[Any]]:
        fields = ("name", "n_negatives", "share", "interval_95", "standard_error")
        return [[finding[field] for field in fields] for finding in source["findings"] if finding["name"] in names]

    assert numbers(told, TEXT_FINDINGS) == numbers(reported, TEXT_FINDINGS) == numbers(checked, TEXT_FINDINGS)
    of_rows = ("inversion", "low_locality", "random_like")  # the others ask for the document frequencies of the pool
    assert len(numbers(told, of_rows)) == 3
    assert numbers(told, of_rows) == numbers(reported, of_rows)
    check = next(check for check in told["checks"] if check["name"] == "findings.false_negative")
    assert check["measured"] == pytest.approx(70 / 700)


def test_a_source_is_read_once(prepared, tmp_path):
    """So a pipe will do."""
    rows = write_rows(tmp_path / "used.jsonl", items(140, 1000)).read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "secid", "gate", "used=-", "--against", str(prepared.baseline)],
        input=rows,
        capture_output=True,
        env=child_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert b"may enter" in done.stdout


@pytest.mark.parametrize("command", ["score", "check", "gate"])
def test_a_file_s_name_need_not_be_utf_8(prepared, tmp_path, command):
    name = os.fsdecode(b"ne\xffw.jsonl")
    write_rows(tmp_path / name, items(140, 1000))
    words = {
        "score": ("--encoder", prepared.encoder, "--run", "run"),
        "check": (),
        "gate": ("--against", prepared.baseline, "--out", "v.json", "--out", "v.md", "--out", "v.xml"),
    }[command]
    found = run_child(command, name, "--json", *words, cwd=tmp_path, PYTHONIOENCODING="utf-8:strict")
    assert found.code == 0, found.err
    assert json.loads(found.out)["sources"][0]["name"] == "ne\ufffdw"
