"""Test the line for scripts: every word, values that survive a shell's quoting, and the page that lists both."""

from __future__ import annotations

import dataclasses
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from secid import api
from secid.pages.formats import verdict_line
from secid.pages.statuses import status_of
from secid.results import Run, Status
from secid.results.check import AUDIT_SCHEMA_VERSION, Audit, AuditedSource, Labels
from tests.snapshots import situations
from tests.unit.pages import probes
from tests.unit.pages.samples import golden, reported
from tests.unit.tools.gating.conftest import UNKNOWN, verdict

ROOT = Path(__file__).resolve().parents[3]


def run(*statuses: Any, folder: str | None = "runs/a") -> Run:
    whole = golden()
    sources = tuple(replace(whole.sources[0], name=f"s{place}", status=own) for place, own in enumerate(statuses))
    return replace(whole, sources=sources, folder=folder)


def audit(n_relevant: int, n_other: int) -> Audit:
    blank: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(AuditedSource)), 0)
    own = {"n_labelled_relevant": n_relevant, "n_labelled_non_relevant": n_other, "rules": (), "guide_rules": ()}
    source = AuditedSource(**{**blank, **own})
    labels = Labels(files=(), split=None, n_judgements=1, n_relevant=1, n_queries=1, unknown={})
    return Audit(
        schema_version=AUDIT_SCHEMA_VERSION, secid_version="0", encoder=golden().encoder, guide=None,
        positives="first", labels=labels, sources=(source, source), timing={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    checked = api.check([ROOT / "fixtures" / "sources" / "poisoned.jsonl"])
    results = {
        "score, no defects": run("no_defects", "no_defects"),
        "score, one without a verdict": run("no_verdict", "no_defects"),
        "score, one to repair": run("no_defects", "repair", folder=None),
        "score, one unusable": run("repair", "unusable", "no_defects", folder="my runs/it's"),
        **{
            f"check, {status}": replace(checked, sources=(replace(checked.sources[0], status=status),))
            for status in get_args(Status)
        },
        "check --fail-on": replace(checked, failed=("poisoned: repeat", "poisoned: false_negative")),
        "gate, accepted": verdict(outcome="pass"),
        "gate, rejected": verdict(outcome="fail"),
        "gate, undecided": verdict(outcome="undecided"),
        "gate, trial period": replace(verdict(outcome="fail"), exit_zero=True),
        "audit, some relevant": audit(3, 40),
        "audit, none relevant": audit(0, 40),
        "audit, none judged": audit(0, 0),
        **{f"probe, {name}": probe for name, probe in probes.SITUATIONS.items()},
        "probe, hostile": probes.probe((UNKNOWN, "a b=c", "d")),
    }
    return {name: verdict_line(result) for name, result in results.items()}


def test_lines(lines, snapshot):
    snapshot("verdict-lines.txt", situations(lines))


def test_every_word_and_value_is_on_the_page_and_no_other(lines):
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([a-z, ]+) \| (.+?) \| .+? \| .+? \| (.+?) \|$", page, re.MULTILINE)
    listed = {(command, word) for commands, words, _ in table for command in commands.split(", ")
              for word in re.findall(r"`(\w+)`", words)}  # fmt: skip
    given = [shlex.split(line.removeprefix("VERDICT: ")) for line in lines.values()]
    values = [dict(fact.split("=", 1) for fact in facts) for _, *facts in given]
    assert listed == {(own["command"], word) for own, (word, *_) in zip(values, given, strict=True)}
    named = {name for *_, names in table for name in re.findall(r"`(\w+)`", names)} - {"not_evaluated"}
    assert named | {"command"} == {name for own in values for name in own}


def test_names_are_one_value_on_one_line(lines):
    word, *facts = shlex.split(lines["probe, hostile"].removeprefix("VERDICT: "))
    assert word == "best"
    assert lines["probe, hostile"].isprintable()
    assert [fact.split("=")[0] for fact in facts] == ["command", "n_sources", "n_best", "first"]
    assert "run=my runs/it's" in shlex.split(lines["score, one unusable"])


def test_a_source_that_is_not_ranked_is_not_counted_as_without_defects():
    run = reported()
    line = verdict_line(run)
    n_shown = sum(status_of(run, source) == "no defects" for source in run.sources)
    assert f" n_no_defects={n_shown} " in line
    assert line.endswith(" n_not_ranked=1")
