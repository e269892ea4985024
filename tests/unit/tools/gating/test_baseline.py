"""Test the baseline document: writing and reading, refusals, differences and changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from math import inf

import pytest

from secid.errors import InputError, UsageError
from secid.tools.gating.baseline import (
    baseline_from_json,
    baseline_to_json,
    changes,
    check_table,
    differences,
    read_baseline,
    refuse_differences,
    table_path,
)
from tests.snapshots import Snapshot, refusal, situations
from tests.unit.tools.gating.conftest import ENCODER, baseline_of, source_of


@pytest.fixture
def baseline():
    return baseline_of(own=source_of())


def test_there_and_back(baseline):
    text = baseline_to_json(baseline)
    assert baseline_to_json(baseline_from_json(text, "b.json")) == text
    assert text.count("\n") > 50  # a line a number, so that a change is a line of a diff


def test_rounding_noise_makes_no_diff(baseline):
    own = baseline.sources["own"]
    noisy = replace(baseline, sources={"own": replace(own, score_nats=own.score_nats * (1 + 1e-13))})
    assert baseline_to_json(noisy) == baseline_to_json(baseline)
    assert changes(baseline, noisy) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[]", "schema_version"),
        ("not json", "not JSON, or truncated"),
        ('{"schema_version": "2.0", "sour', "not JSON, or truncated"),
        pytest.param("[" * 100_000, "not JSON, or truncated", id="deep"),
        ('{"schema_version": "3.0"}', "version 3.0"),
    ],
)
def test_other_documents_are_refused(text, part):
    message = refusal(lambda: baseline_from_json(text, "b.json"), InputError, "b.json")
    assert part in message
    assert "update" not in message


def test_a_baseline_without_sources(baseline):
    whole = baseline_to_json(replace(baseline, sources={}))
    assert "secid baseline RUN -o b.json" in refusal(lambda: baseline_from_json(whole, "b.json"), InputError, "b.json")


def test_a_newer_minor_version_is_read(baseline):
    document = json.loads(baseline_to_json(baseline)) | {"schema_version": "2.7", "added": 1}
    assert baseline_from_json(json.dumps(document), "b.json").sources.keys() == {"own"}


@pytest.mark.parametrize(
    ("settings", "encoder", "expected"),
    [
        ({"temperature": 0.1}, {}, ["temperature: baseline 0.05, now 0.1"]),
        ({"seed": 1}, {}, ["seed: baseline 0, now 1"]),
        ({}, {"fingerprint": "g", "pooling": "cls"}, ["encoder pooling: baseline 'mean', now 'cls'",
                                                       "encoder fingerprint: baseline 'ffffffff', now 'g'"]),
        ({}, {"fingerprint": "1234" * 16}, ["encoder fingerprint: baseline 'ffffffff', now 123412341234…"]),
        ({"temperature": 1.0}, {"fingerprint": "g"}, ["temperature: baseline 0.05, now 1",
                                                      "encoder fingerprint: baseline 'ffffffff', now 'g'"]),
        ({}, {"device": "cuda"}, []),
    ],
)  # fmt: skip
def test_differences_are_listed_whole(baseline, settings, encoder, expected):
    now = {**baseline.settings, **settings}
    lines = differences(baseline, now, replace(ENCODER, **encoder))
    assert [line.partition(" (")[0] for line in lines] == expected
    if expected:
        message = refusal(lambda: refuse_differences(lines, "b.json"), UsageError, "b.json")
        assert all(line in message for line in [*expected, "secid baseline update RUN"])


def test_changes_are_listed(baseline):
    own = baseline.sources["own"]
    new = replace(baseline, sources={"own": replace(own, n_records=401), "more": own})
    assert changes(baseline, new) == ["source more: added", "sources own n_records: 400 → 401"]
    assert "source more: removed" in changes(new, baseline)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        (("n_queries",), 0, "n_queries"),
        (("score_nats",), inf, "score_nats"),
        (("standard_error_nats",), inf, "standard_error_nats"),
        (("hardness", "standard_error"), inf, "hardness.standard_error"),
        (("findings", "hub", "value"), inf, "findings.hub.value"),
        (("findings", "invented"), {"value": 0.1, "standard_error": 0.1, "n_queries": 9}, "findings.invented"),
        (("interval_95",), [inf, 1.0], "interval_95"),
        (("unrelated", "bound"), inf, "unrelated.bound"),
        (("unrelated", "share", "value"), inf, "unrelated.share.value"),
        (("languages", "en"), inf, "languages.en"),
    ],
)
def test_a_number_that_no_run_gives_is_named(baseline, field, value, path):
    document = json.loads(baseline_to_json(baseline))
    place = document["sources"]["own"]
    for name in field[:-1]:
        place = place[name]
    place[field[-1]] = value
    text = json.dumps(document).replace("Infinity", "1e999")  # a number of JSON that is beyond any double
    message = refusal(lambda: baseline_from_json(text, "b.json"), InputError, "b.json")
    assert f" sources.own.{path} " in message


def test_a_different_fingerprint_of_the_same_parts_is_explained(baseline):
    (line,) = differences(baseline, baseline.settings, replace(ENCODER, fingerprint="f" * 64))
    assert "another version" in line
    lines = differences(baseline, baseline.settings, replace(ENCODER, fingerprint="f" * 64, max_length=7))
    assert not any("another version" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("tokenizer", "nope", "settings.tokenizer = 'nope' "),
        ("temperature", -1.0, "settings.temperature = -1.0 "),
        ("seed", "x", "settings.seed = 'x' "),
        ("idf", None, "settings.idf "),
    ],
)
def test_a_setting_that_no_run_can_have_is_named(baseline, name, value, part):
    document = json.loads(baseline_to_json(baseline))
    document["settings"][name] = value
    if value is None:
        del document["settings"][name]
    assert part in refusal(lambda: baseline_from_json(json.dumps(document), "b.json"), InputError, "b.json")


def test_a_pipe_is_not_a_baseline(tmp_path):
    os.mkfifo(tmp_path / "b.json")
    assert "pipe" in refusal(lambda: read_baseline(tmp_path / "b.json"), InputError, tmp_path / "b.json")


def test_an_unset_value_is_not_shown_as_none(baseline):
    before = replace(baseline, settings={**baseline.settings, "first_k": None})
    assert differences(before, {**before.settings, "first_k": 3}) == ["first_k: baseline not set, now 3"]


def test_baselines_that_are_refused(tmp_path, baseline, snapshot: Snapshot):
    whole, path = baseline_to_json(baseline), tmp_path / "b.json"
    texts = {
        "no version": "{}",
        "an earlier version": '{"schema_version": "1.0"}',
        "another document": '{"schema_version": "2.9"}',
        "a number that is none": whole.replace('"score_nats": 0.3', '"score_nats": NaN'),
    }
    messages = {
        name: refusal(lambda text=text: baseline_from_json(text, "b.json"), InputError, "b.json")
        for name, text in texts.items()
    }
    messages["no file"] = refusal(lambda: read_baseline(path), InputError, path)
    messages["a folder"] = refusal(lambda: read_baseline(tmp_path), InputError, tmp_path)
    messages["no table"] = refusal(lambda: check_table(path, baseline), InputError, table_path(path))
    table_path(path).write_bytes(b"other")
    messages["another table"] = refusal(lambda: check_table(path, baseline), InputError, table_path(path))
    lines = differences(baseline, {**baseline.settings, "seed": 3}, replace(ENCODER, fingerprint="g"))
    messages["another seed"] = refusal(lambda: refuse_differences(lines, "b.json"), UsageError, "b.json")
    snapshot(
        "baseline-refusals.txt",
        situations({name: text.replace(str(tmp_path), "WORK") for name, text in messages.items()}),
    )
