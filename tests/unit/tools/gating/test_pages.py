"""Pages of a verdict: word for word, with hostile names and texts, and within the limits of the services."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from secid.analyses.registry import to_json
from secid.pages.gate_ci import (
    GATE_FORMATS,
    MAX_ANNOTATIONS,
    SUMMARY_BYTES,
    append_step_summary,
    github_annotations,
    to_junit,
)
from secid.pages.gate_page import gate_page
from secid.pages.screen import print_page, screen_of
from secid.results.gate import CheckExample, GateCheck, GateVerdict
from secid.tools.gating.judge import overall_outcome
from tests.snapshots import Snapshot, situations
from tests.unit.tools.gating.conftest import UNKNOWN, check, verdict

ROW = CheckExample(
    path="new/dense-2025-11.jsonl",
    line=7,
    query="how to bake",
    negative="Knead it.",
    s_query_positive=0.85,
    s_query_negative=0.912,
)
QUERIES = check(
    "queries", "undecided", unit="count", measured=60.0, interval_95=None, limit=100.0, n=60, n_queries_needed=100
)
SHARE = {"unit": "share", "side": "at most", "n": 2000, "reference": "dense"}
NOTICE = check(
    "findings.hub",
    "pass",
    measured=0.08,
    interval_95=(0.06, 0.1),
    limit=0.05,
    before=0.02,
    notice=True,
    basis="extreme",
    **SHARE,
)
EXCUSED = check(
    "findings.truncated",
    "undecided",
    measured=None,
    interval_95=None,
    limit=0.1,
    reason="too many texts",
    excused=True,
    **SHARE,
)
CHECKS = (
    QUERIES,
    check(basis="extreme", reference="bm25", before=0.5, examples=(ROW,) * 2),
    check("languages", measured=0.3, interval_95=None, limit=0.05, basis="source", **SHARE),
    check(
        "findings.false_negative", measured=0.05, interval_95=None, limit=0.01, before=0.0, basis="policy", **SHARE
    ),
    NOTICE,
    check(
        "findings.weak_positive", "undecided", measured=0.03, interval_95=(0.01, 0.08), limit=0.04,
        n_queries_needed=150, before=0.01, basis="extreme", **SHARE,
    ),
    EXCUSED,
    check("findings.query_without_tokens", "undecided", measured=None, limit=0.1, reason="no tokenizer", **SHARE),
    check(
        "drift.score_nats", unit="nats", measured=-0.2, interval_95=(-0.22, -0.18), limit=0.035, reference="dense",
        before=0.5, basis="source", side="within ±",
    ),
    check(
        "drift.unrelated", "undecided", unit="share", measured=0.04, interval_95=(0.01, 0.07), limit=0.042, n_shared=55,
        reference="dense", before=0.02, basis="source", side="within ±",
    ),
    check("new_source", "undecided", unit="", measured=None, interval_95=None, side="", limit=None),
)  # fmt: skip
VERDICT = verdict(*CHECKS)


def printed(shown: GateVerdict, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_page(console, screen_of(gate_page(shown)))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 60])
def test_a_verdict_on_the_terminal(width: int, snapshot: Snapshot):
    pages = {
        "rejected": VERDICT,
        "undecided": verdict(
            QUERIES, check("languages", "pass", measured=0.0, limit=0.05, **SHARE), outcome="undecided"
        ),
        "accepted": verdict(NOTICE, EXCUSED, outcome="pass", exit_zero=True, paired="run"),
    }
    text = situations({name: printed(page, width) for name, page in pages.items()})
    assert max(len(line) for line in text.splitlines() if "secid select" not in line) <= width + 2  # a command is whole
    snapshot("gate-80.txt" if width == 80 else "gate-60.txt", text)


def test_a_verdict_in_markdown(snapshot: Snapshot):
    snapshot("gate.md", GATE_FORMATS[".md"](VERDICT))


def test_a_verdict_for_services(snapshot: Snapshot):
    snapshot("gate.xml", to_junit(VERDICT))
    snapshot("gate-annotations.txt", "\n".join(github_annotations(VERDICT)) + "\n")


HOSTILE_ROW = CheckExample(path=f"{UNKNOWN}.jsonl", line=3, query=UNKNOWN, negative=UNKNOWN, reason=UNKNOWN)


def hostile(outcome: str = "fail", n: int = 1) -> GateVerdict:
    """Return a verdict in which every text from outside is hostile."""
    fields = {"reference": UNKNOWN, "before": 0.5, "basis": "every", "examples": (HOSTILE_ROW,) * 3}
    checks = (
        check(**fields),
        check("findings.inversion", "undecided", reason=UNKNOWN, **{**fields, **SHARE}),
        check("drift.score_nats", **{**fields, "unit": "nats"}),
    )
    whole = verdict(*checks, name=UNKNOWN, outcome=outcome, baseline=UNKNOWN, policy_from=UNKNOWN, encoder=UNKNOWN)
    source = replace(whole.sources[0], previous=UNKNOWN)
    return replace(whole, sources=(source,) * n)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


def test_hostile_texts_do_nothing_on_a_page():
    page = Tags()
    page.feed(GATE_FORMATS[".html"](hostile()))
    assert "img" not in page.tags
    assert page.tags.count("html") == 1
    for text in (GATE_FORMATS[".md"](hostile()), printed(hostile(n=2), 60), to_junit(hostile())):
        assert not set("\x00\x1b\u202e") & set(text)
        assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    for text in (GATE_FORMATS[".md"](hostile()), to_junit(hostile())):
        assert "<img" not in text
    markdown = GATE_FORMATS[".md"](hostile())
    assert "@user" not in markdown
    assert "##[" not in printed(hostile(), 80)
    rows = [line for line in markdown.splitlines() if line.startswith("| hardness")]
    assert [line.count("|") - line.count("\\|") for line in rows] == [7]
    assert json.loads(to_json(hostile()))["sources"][0]["report"]["name"] == UNKNOWN


def test_annotations_are_one_line_each_and_escaped():
    lines = github_annotations(hostile())
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::warning"]
    for line in lines:
        assert not set("\r\n\x1b\x00\u202e") & set(line)
        head, _, message = line.removeprefix("::").partition("::")
        assert all(part in head for part in ("%25", "%3A", "%2C", "line=3"))
        assert "%0A" in message
        assert "%" not in message.replace("%25", "").replace("%0A", "").replace("%0D", "")


def test_annotations_keep_within_ten_a_level_and_say_so():
    lines = github_annotations(verdict(*[check()] * 25))
    assert len(lines) == MAX_ANNOTATIONS
    assert "16 more" in lines[-1]
    assert ".." not in lines[-1]
    assert len(github_annotations(verdict(*[check()] * 10))) == 10


def test_annotations_have_a_level_for_each_outcome():
    levels = [line.split(" ")[0] for line in github_annotations(VERDICT)]
    assert levels == ["::error"] * 4 + ["::warning"] * 3 + ["::notice"]
    accepted = github_annotations(verdict(check(outcome="pass"), EXCUSED, outcome="pass"))
    assert [line.split(" ")[0] for line in accepted] == ["::notice"]


def test_a_long_message_is_cut():
    (line,) = github_annotations(
        verdict(check("drift.score_nats", unit="nats", reference="é" * 10_000, before=1.0, basis="source"))
    )
    assert len(line.encode()) < 6000


def test_junit_is_well_formed_and_counts():
    for text in (to_junit(VERDICT), to_junit(hostile())):
        ElementTree.fromstring(text)
    root = ElementTree.fromstring(to_junit(VERDICT))
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["11", "4", "5", "1"]
    assert len(root.findall(".//testcase/failure")) == 4


def test_too_few_queries_are_said_once_on_every_page():
    for text in (printed(VERDICT, 400), GATE_FORMATS[".md"](VERDICT), "\n".join(github_annotations(VERDICT))):
        assert text.count("too few for") == 1


def test_the_step_summary_is_appended_and_fits(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    path.write_text("before\n", encoding="utf-8")
    append_step_summary(VERDICT)
    assert path.read_text(encoding="utf-8").startswith("before\n# Gate")
    big = verdict(*[check(examples=(ROW,) * 3)] * 3000)
    append_step_summary(big)
    assert path.stat().st_size <= SUMMARY_BYTES
    assert path.read_text(encoding="utf-8").rstrip().endswith("has all of it.")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    append_step_summary(big)  # nowhere


@pytest.mark.parametrize(
    ("outcomes", "expected", "code"),
    [
        (["pass", "pass"], "pass", 0),
        (["pass", "undecided"], "undecided", 3),
        (["undecided", "fail"], "fail", 1),
        ([], "undecided", 3),
    ],
)
def test_exit_codes(outcomes, expected, code):
    assert overall_outcome(outcomes) == expected
    assert replace(VERDICT, outcome=overall_outcome(outcomes)).exit_code == code
    assert replace(VERDICT, outcome=overall_outcome(outcomes), exit_zero=True).exit_code == 0


@pytest.mark.parametrize(
    ("outcome", "excused", "holds"),
    [("fail", False, True), ("undecided", False, True), ("undecided", True, False), ("pass", False, False)],
)
def test_what_keeps_a_source_from_passing(outcome, excused, holds):
    assert GateCheck(name="hardness", outcome=outcome, excused=excused).blocks_pass is holds


def test_every_page_says_what_was_left_out():
    accepted = verdict(check(outcome="pass"), outcome="pass")
    left_out = "not sampled: 2; queries: 60; negatives: 2,000. Left out: 12 × no negatives, 3 × empty negative."
    for page in (
        printed(accepted, 400),
        GATE_FORMATS[".md"](accepted),
        to_junit(accepted),
        *github_annotations(accepted),
    ):
        assert left_out in page


@pytest.mark.parametrize("width", [60, 80, 400])
def test_no_number_of_the_table_is_cut(width):
    wide = check("findings.query_without_tokens", interval_95=(-12.0, 99.5), side="within ±", limit=0.0123456)
    text = printed(verdict(wide, QUERIES), width)
    for cell in (wide.name, "within ±0.0123456", "0.31", "−12.00 to 99.50", "undecided"):
        assert cell in text


def test_a_row_that_was_left_out_has_its_reason():
    row = CheckExample(path="a.jsonl", line=3, query="", negative="", reason="no_positive")
    (line,) = [
        line for line in printed(verdict(replace(QUERIES, examples=(row,))), 200).splitlines() if "a.jsonl:3: " in line
    ]
    assert "left out: no positive" in line


def test_every_page_marks_a_trial_period():
    trial = replace(VERDICT, exit_zero=True)
    for page in (printed(trial, 300), GATE_FORMATS[".md"](trial), to_junit(trial)):
        assert "--exit-zero" in page
    assert "--exit-zero" not in to_junit(VERDICT)
    assert json.loads(to_json(trial))["exit_zero"] is True


def test_a_name_that_is_not_utf_8_is_written():
    named = verdict(check(), name=os.fsdecode(b"ne\xffw"))
    assert json.loads(to_json(named).encode())["sources"][0]["report"]["name"] == "ne\ufffdw"
    for page in (to_junit(named), GATE_FORMATS[".md"](named), *github_annotations(named)):
        assert b"ne\xef\xbf\xbdw" in page.encode()


def test_a_formal_finding_is_a_difference_in_points():
    formal = check(
        "findings.mojibake",
        measured=0.0214,
        interval_95=(0.012, 0.03),
        limit=0.01,
        before=-0.002,
        basis="source",
        **SHARE,
    )
    text = printed(verdict(formal), 400)
    assert "+2.14 points of 2,000 (95 % CI +1.20 to +3.00); limit: at most 1 points." in text
    assert "−0.20 (dense)" in text
    assert "minus the share of such positives" in text
