"""What a verdict says on the terminal and in Markdown, word for word, in tests/snapshots."""

from __future__ import annotations

import io
from collections.abc import Container

import pytest
from rich.console import Console

from secid.gating.checks import all_checks
from secid.gating.subject import Subject
from secid.pages.verdict_pages import print_verdict, verdict_markdown
from secid.results.gate import GateVerdict, SourceVerdict, overall
from tests.snapshots import Snapshot, situations
from tests.unit.gating.conftest import Make, sample

FEW = ("minimum_records", "score", "findings.inversion", "controls.random", "drift.score_nats")


def judged(subject: Subject, names: Container[str] | None = None) -> GateVerdict:
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
    print_verdict(console, verdict)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def verdicts(subject: Make) -> dict[str, GateVerdict]:
    policy = {"findings": {"inversion": 0.1, "truncated": "off"}}
    return {
        "pass": judged(subject(policy=policy)),
        "fail": judged(subject(sample(score=-0.2, query_similarity=0.1), policy, {"inversion": 0.4})),
        "undecided": judged(subject(sample(n_queries=4), {**policy, "minimum_queries": 2}), FEW),
    }


def test_a_verdict_on_the_terminal(verdicts: dict[str, GateVerdict], snapshot: Snapshot):
    assert [verdict.exit_code for verdict in verdicts.values()] == [0, 1, 3]
    snapshot("gate.txt", situations({name: printed(verdict) for name, verdict in verdicts.items()}))


def test_a_verdict_in_markdown(verdicts: dict[str, GateVerdict], snapshot: Snapshot):
    snapshot("gate.md", verdict_markdown(verdicts["fail"]))
