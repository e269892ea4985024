"""Pages of a verdict: hostile names and texts do nothing, limits of the services are kept."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from secid.errors import UsageError
from secid.gating.policy import CHECK_NAMES
from secid.pages.annotations import PER_LEVEL, SUMMARY_BYTES, append_step_summary, github_annotations
from secid.pages.explain import explained
from secid.pages.gate_page import GATE_FORMATS, gate_page, verdict_json
from secid.pages.junit import to_junit
from secid.pages.terminal import print_page
from secid.results.gate import Check, CheckExample, GateVerdict, SourceVerdict, overall

HOSTILE = "a%b\r\n::error::x,y:z \x1b[31m<img src=x> |`@user` ]]> \x00\u202e##[command]"


def check(name: str = "score", outcome: str = "fail", **more) -> Check:
    row = CheckExample(path=f"{HOSTILE}.jsonl", line=3, query=HOSTILE, negative=HOSTILE, note=HOSTILE)
    fields = {"message": f"measured {HOSTILE}", "what_to_do": HOSTILE, "examples": (row,) * 3, **more}
    return Check(name=name, outcome=outcome, unit="nats", measured=0.1, interval_95=(0.0, 0.2), limit=0.3, **fields)


def verdict(*checks: Check, name: str = HOSTILE, outcome: str = "fail", n: int = 1) -> GateVerdict:
    source = SourceVerdict(
        name=name,
        paths=(f"{name}.jsonl",),
        outcome=outcome,
        n_read=12,
        n_used=8,
        skipped={"no_negatives": 4},
        dropped_negatives={"empty_negative": 3},
        n_not_sampled=2,
        n_records=5,
        n_queries=5,
        n_negatives=25,
        eci_nats=0.3,
        interval_95=(0.2, 0.4),
        previous=None,
        findings=(),
        checks=checks,
    )
    return GateVerdict(
        schema_version="1.0",
        secid_version="0.1.0",
        outcome=outcome,
        baseline="b.json",
        policy_from="secid.toml",
        policy={},
        paired=None,
        encoder="tiny",
        sources=(source,) * n,
        notes=(HOSTILE,),
        timing={},
    )


def test_annotations_are_one_line_each_and_escaped():
    lines = github_annotations(verdict(check(), check("drift.close", "not_evaluated")))
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    for line in lines:
        assert not set("\r\n\x1b\x00\u202e") & set(line)
        head, _, message = line.removeprefix("::").partition("::")
        assert "%25" in head
        assert "%3A" in head
        assert "%2C" in head
        assert "line=3" in head
        assert "%0A" in message
        assert "%" not in message.replace("%25", "").replace("%0A", "").replace("%0D", "")


def test_annotations_keep_within_ten_a_level_and_say_so():
    lines = github_annotations(verdict(*[check(f"check {n}") for n in range(25)]))
    assert len(lines) == PER_LEVEL
    assert "16 more" in lines[-1]
    assert len(github_annotations(verdict(*[check(f"check {n}") for n in range(10)]))) == 10


def test_a_pass_is_a_notice_and_an_excused_check_is_silent():
    lines = github_annotations(
        verdict(check(outcome="pass"), check("drift", "not_evaluated", excused=True), outcome="pass")
    )
    assert len(lines) == 1
    assert lines[0].startswith("::notice ")


def test_a_long_message_is_cut():
    (line,) = github_annotations(verdict(check(message="é" * 10_000)))
    assert len(line.encode()) < 6000


def test_junit_is_well_formed_and_counts():
    checks = (check(), check("b", "not_evaluated"), check("c", "not_evaluated", excused=True), check("d", "pass"))
    root = ElementTree.fromstring(to_junit(verdict(*checks)))
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("skipped")) == ("4", "1", "1", "1")
    assert len(root.findall(".//testcase/failure")) == 1
    text = to_junit(verdict(*checks))
    assert not set("\x00\x1b\u202e") & set(text)
    assert "<img" not in text


def test_markdown_cannot_be_broken_by_a_name():
    page = GATE_FORMATS[".md"](verdict(check(), check("b", "pass")))
    assert "<img" not in page
    assert "@user" not in page
    assert "\x1b" not in page
    for line in page.splitlines():
        assert not line.startswith("::")
        if line.startswith("| score"):
            assert line.count("|") - line.count("\\|") == 6


def test_no_line_of_the_terminal_is_a_command_for_the_log():
    out = io.StringIO()
    print_page(
        Console(file=out, width=60, highlight=False), gate_page(verdict(check(), check("b", "not_evaluated"), n=2))
    )
    text = out.getvalue()
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert "##[" not in text
    assert "\x1b" not in text


def test_json_holds_the_verdict():
    document = json.loads(verdict_json(verdict(check())))
    assert document["sources"][0]["name"] == HOSTILE
    assert document["sources"][0]["checks"][0]["outcome"] == "fail"


def test_the_step_summary_is_appended_and_fits(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    assert append_step_summary(verdict(check()), {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text(encoding="utf-8").startswith("before\n# Gate")
    big = verdict(*[check(f"check {n}") for n in range(2000)])
    assert append_step_summary(big, {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.stat().st_size <= SUMMARY_BYTES
    assert path.read_text(encoding="utf-8").rstrip().endswith("has it.")
    assert not append_step_summary(big, {})


@pytest.mark.parametrize(
    ("outcomes", "expected", "code"),
    [
        (["pass", "pass"], "pass", 0),
        (["pass", "not_evaluated"], "not_evaluated", 3),
        (["not_evaluated", "fail"], "fail", 1),
        ([], "not_evaluated", 3),
    ],
)
def test_exit_codes(outcomes, expected, code):
    assert overall(outcomes) == expected
    assert replace(verdict(), outcome=overall(outcomes)).exit_code == code


def test_every_page_tells_what_was_left_out():
    found = verdict(check(outcome="pass"), outcome="pass")
    console = Console(file=io.StringIO(), width=400)
    print_page(console, gate_page(found))
    told = "left out 4 rows (no negatives 4); left out 3 negatives (empty negative 3); 2 records not sampled"
    assert told in console.file.getvalue()
    assert told in GATE_FORMATS[".md"](found)
    assert told in to_junit(found)
    assert any(told in line for line in github_annotations(found))
    (source,) = json.loads(verdict_json(found))["sources"]
    assert (source["n_read"], source["skipped"], source["n_not_sampled"]) == (12, {"no_negatives": 4}, 2)


@pytest.mark.parametrize("width", [60, 80, 400])
def test_no_number_of_the_table_is_cut(width):
    wide = check("findings.a_name_of_a_check_that_is_long", limit_text="within ±0.0123456 (any)")
    wide = replace(wide, interval_95=(-12.0, 99.5))
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_page(console, gate_page(verdict(wide, check("b", "not_evaluated", message="m", what_to_do="w", examples=()))))
    text = console.file.getvalue()
    for cell in (wide.name, "within ±0.0123456 (any)", "0.1000", "−12.00 to 99.50", "undecided"):
        assert cell in text


def test_a_row_that_was_left_out_has_its_reason():
    row = CheckExample(path="a.jsonl", line=3, query="", negative="", note="left out: no positive")
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_page(console, gate_page(verdict(check(examples=(row,)))))
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("    a.jsonl:3: ")]
    assert "left out: no positive" in line


def test_names_of_checks_are_explained():
    for name in CHECK_NAMES:
        assert len(*explained(name).values()) > 1
    with pytest.raises(UsageError):
        explained("findings.nothing")


def test_every_page_marks_a_trial_period_and_vacuous_limits():
    trial = replace(verdict(check(outcome="pass", vacuous=True), outcome="fail"), exit_zero=True)
    assert (trial.exit_code, replace(trial, exit_zero=False).exit_code) == (0, 1)
    console = Console(file=io.StringIO(), width=300, highlight=False)
    print_page(console, gate_page(trial))
    for page in (console.file.getvalue(), GATE_FORMATS[".md"](trial), to_junit(trial)):
        assert "--exit-zero" in page
    assert "--exit-zero" not in to_junit(replace(trial, exit_zero=False))
    assert json.loads(verdict_json(trial))["exit_zero"] is True
    assert "1 with a limit that nothing can fail" in console.file.getvalue()


def test_a_name_that_is_not_utf_8_is_written():
    named = verdict(check(), name=os.fsdecode(b"ne\xffw"))
    assert json.loads(verdict_json(named).encode())["sources"][0]["name"] == "ne\ufffdw"
    for page in (to_junit(named), GATE_FORMATS[".md"](named), *github_annotations(named)):
        assert b"ne\xef\xbf\xbdw" in page.encode()
