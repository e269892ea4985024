"""`secid schema`: what it prints is committed, and fits what secid writes and reads."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from secid.cli.encoder import Document
from secid.results.document import json_of, json_schema
from secid.tools.gating.baseline import baseline_from_json, baseline_to_json
from secid.tools.gating.limits import policy_text
from secid.tools.gating.policy import Policy, parse_policy
from tests.cli.conftest import ROOT
from tests.schemas import disagreements
from tests.unit.tools.gating.conftest import baseline_of, check, source_of, verdict


@pytest.mark.parametrize("name", list(Document))
def test_the_committed_schema_is_the_printed_one(invoke, name):
    """Else: secid schema NAME > docs/NAME-schema.json"""
    printed = invoke("schema", name)
    assert printed.code == 0
    assert (ROOT / "docs" / f"{name}-schema.json").read_text(encoding="utf-8") == printed.out


def test_the_report_s_is_printed_by_default(invoke):
    assert invoke("schema").out == invoke("schema", "report").out


def test_an_unknown_document(invoke):
    found = invoke("schema", "gates")
    assert found.code == 2
    assert "'baseline'" in found.err


def printed(invoke: Any, name: str) -> dict[str, Any]:
    return json.loads(invoke("schema", name).out)


def test_a_verdict_fits(invoke):
    schema = printed(invoke, "gate")
    document = json.loads(json_of(verdict(check(), check("drift.close", "undecided"))))
    assert disagreements(document, schema, schema) == []
    document["outcome"] = "maybe"
    del document["sources"][0]["checks"][0]["outcome"]
    document["sources"][0]["surplus"] = 1
    assert len(disagreements(document, schema, schema)) == 3


def test_a_baseline_fits(invoke):
    schema = printed(invoke, "baseline")
    text = baseline_to_json(baseline_of(own=source_of()))
    document = json.loads(text)
    assert disagreements(document, schema, schema) == []
    del document["table_sha256"]
    document["sources"]["own"]["score_nats"] = "much"
    document["encoder"]["surplus"] = 1
    assert len(disagreements(document, schema, schema)) == 3
    assert baseline_from_json(text, "b.json").sources.keys() == {"own"}


def test_a_policy_fits_where_the_program_takes_it(invoke):
    schema = printed(invoke, "policy")
    derived = tomllib.loads(policy_text(baseline_of(own=source_of()), "b.json"))["gate"]
    for table in (
        derived,
        {},
        {"findings": {"empty": "off"}, "allow_undecided": ["hardness"], "names": {"new": "old"}},
    ):
        assert disagreements(table, schema, schema) == []
        assert isinstance(parse_policy(table, "x"), Policy)


@pytest.mark.parametrize(
    "table",
    [
        {"minimum_querie": 5},
        {"findings": {"duplicates": 0.1}},
        {"drift": {"score_nats": "none"}},
        {"new_source": "review"},
        {"minimum_queries": 0},
        {"names": {"new": 3}},
        {"drift": 3},
    ],
)
def test_what_the_program_refuses_does_not_fit(table):
    schema = json_schema(Policy, "validation")
    assert len(disagreements(table, schema, schema)) == 1
