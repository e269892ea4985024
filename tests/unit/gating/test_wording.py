"""The wording of verdicts and refusals, word for word, in tests/snapshots."""

from __future__ import annotations

import io
import re
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from secid.errors import InputError, SettingsError, UsageError
from secid.gating.baseline import (
    check_table,
    differences,
    from_json,
    read_baseline,
    refuse_differences,
    table_path,
    to_json,
)
from secid.gating.checks import all_checks
from secid.gating.init import policy_text, write_policy
from secid.gating.policy import read_policy
from secid.gating.subject import Subject
from secid.pages.gate_page import GATE_FORMATS, gate_page
from secid.pages.terminal import print_page
from secid.results.gate import GateVerdict, SourceVerdict, overall
from tests.snapshots import Snapshot, refusal, situations
from tests.unit.gating.conftest import Make, baseline_of, sample, source_of

FEW = ("minimum_records", "score", "findings.inversion", "controls.random", "drift.score_nats")


def verdict_on(subject: Subject, names: Container[str] | None = None) -> GateVerdict:
    """The verdict on one source by all its checks, or by those of these names."""
    checks = tuple(check for check in all_checks(subject) if names is None or check.name in names)
    outcomes = ["fail" if check.outcome == "fail" else "not_evaluated" for check in checks if check.holds_up]
    outcome = overall(outcomes or ["pass"])
    source = SourceVerdict(
        name="own",
        paths=("own.jsonl",),
        outcome=outcome,
        n_read=412,
        n_used=400,
        skipped={"no_negatives": 12},
        dropped_negatives={"empty_negative": 3},
        n_not_sampled=0,
        n_records=subject.n_records,
        n_queries=len(subject.sample.queries),
        n_negatives=subject.sample.n_negatives,
        eci_nats=subject.sample.score.value,
        interval_95=(0.28, 0.32),
        previous="own",
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
        sources=(source,),
        notes=(),
        timing={},
    )


def printed(verdict: GateVerdict) -> str:
    console = Console(file=io.StringIO(), width=400, highlight=False)
    print_page(console, gate_page(verdict))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def verdicts(subject: Make) -> dict[str, GateVerdict]:
    policy = {"findings": {"inversion": 0.1, "truncated": "off"}}
    return {
        "pass": verdict_on(subject(policy=policy)),
        "fail": verdict_on(subject(sample(score=-0.2, query_similarity=0.1), policy, {"inversion": 0.4})),
        "undecided": verdict_on(subject(sample(n_queries=4), {**policy, "minimum_queries": 2}), FEW),
    }


def test_a_verdict_on_the_terminal(verdicts: dict[str, GateVerdict], snapshot: Snapshot):
    assert [verdict.exit_code for verdict in verdicts.values()] == [0, 1, 3]
    snapshot("gate.txt", situations({name: printed(verdict) for name, verdict in verdicts.items()}))


def test_a_verdict_in_markdown(verdicts: dict[str, GateVerdict], snapshot: Snapshot):
    snapshot("gate.md", GATE_FORMATS[".md"](verdicts["fail"]))


POLICIES = {
    "secid.toml without a table": ("secid.toml", "seed = 1\n"),
    "a table with letters swapped": ("p.toml", "[gaet]\nminimum_records = 9\n"),
    "a limit outside the policy": ("p.toml", "[gate]\n[findings]\nempty = 0.0\n"),
    "an unknown finding": ("p.toml", "[gate.findings]\npreambles = 0.1\n"),
    "a named source that is not used": ("p.toml", '[gate.score]\nnamed = "bm25"\nagainst = "own"\n'),
    "off where a number is needed": ("p.toml", '[gate]\nminimum_records = "off"\n'),
    "a share above 1": ("p.toml", "[gate.findings]\nempty = 1.5\n"),
    "off for a table": ("p.toml", '[gate]\nscore = "off"\n'),
    "a table that is a number": ("p.toml", "gate = 3\n"),
    "an unknown check": ("p.toml", '[gate]\nallow_not_evaluated = ["scor"]\n'),
    "a control listed twice": ("p.toml", '[gate.controls]\ndiffer_from = ["random", "random"]\n'),
    "no named source": ("p.toml", '[gate.score]\nagainst = "named"\n'),
}


def test_policies_that_are_refused(tmp_path: Path, snapshot: Snapshot):
    texts = {}
    for name, (file, text) in POLICIES.items():
        path = tmp_path / file
        path.write_text(text, encoding="utf-8")
        texts[name] = refusal(lambda path=path: read_policy(path), SettingsError, path)
    path = tmp_path / "used.toml"
    texts["a missing file"] = refusal(lambda: read_policy(path), UsageError, path)
    baseline = baseline_of(own=source_of(sample()))
    write_policy(baseline, "b.json", path)
    texts["a second policy"] = refusal(lambda: write_policy(baseline, "b.json", path), UsageError, path)
    (tmp_path / "pyproject.toml").write_text("[[tool.secid]]\nseed = 3\n", encoding="utf-8")
    path = tmp_path / "pyproject.toml"
    texts["no place for a policy"] = refusal(lambda: write_policy(baseline, "b.json", path), UsageError, path)
    snapshot(
        "policy-refusals.txt", situations({name: text.replace(str(tmp_path), "WORK") for name, text in texts.items()})
    )


def test_a_written_policy(snapshot: Snapshot):
    like = source_of(sample(), like_controls=("random",))
    text = policy_text(baseline_of(own=source_of(sample()), other=like), "b.json")
    findings = re.compile(r"(?<=\[gate.findings\]\n).*?\n\n", re.DOTALL)  # the catalogue's rules
    snapshot("policy.toml", re.sub(r"\d*\.\d+|\b\d+\b", "N", findings.sub("…\n\n", text)))


def test_baselines_that_are_refused(tmp_path: Path, snapshot: Snapshot):
    whole = to_json(baseline_of(own=source_of(sample())))
    score = '"score_nats": 0.3'
    assert whole.count(score) == 1
    texts = {
        "no version": "{}",
        "a later version": '{"schema_version": "2.0"}',
        "another document": '{"schema_version": "1.9"}',
        "a number that is none": whole.replace(score, '"score_nats": NaN'),
    }
    messages = {
        name: refusal(lambda text=text: from_json(text, "b.json"), InputError, "b.json") for name, text in texts.items()
    }
    baseline, path = from_json(whole, "b.json"), tmp_path / "b.json"
    messages["no file"] = refusal(lambda: read_baseline(path), InputError, path)
    messages["a folder"] = refusal(lambda: read_baseline(tmp_path), InputError, tmp_path)
    messages["no table"] = refusal(lambda: check_table(path, baseline), InputError, table_path(path))
    table_path(path).write_bytes(b"other")
    messages["another table"] = refusal(lambda: check_table(path, baseline), InputError, table_path(path))
    lines = differences(baseline, {**baseline.settings, "seed": 3}, replace(baseline.encoder, fingerprint="g"))
    messages["another seed"] = refusal(lambda: refuse_differences(lines, "b.json"), UsageError, "b.json")
    clean = {name: text.replace(str(tmp_path), "WORK") for name, text in messages.items()}
    snapshot("baseline-refusals.txt", situations(clean))
