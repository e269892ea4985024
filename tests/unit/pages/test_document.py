"""report.json: round trip, versions, schema."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from secid.analyses.registry import from_json, read_run, to_json
from secid.errors import InputError, NumericalError
from secid.pages.formats import RUN_FORMATS
from secid.results import Run
from secid.results.document import json_schema
from tests.schemas import disagreements
from tests.snapshots import refusal
from tests.unit.pages import samples


def test_a_run_survives_the_document():
    run = samples.golden()
    assert from_json(to_json(run)) == run


def with_unknown_fields(value):
    """The document with a field that no version knows, in every object whose fields are fixed."""
    if isinstance(value, list):
        return [with_unknown_fields(item) for item in value]
    if isinstance(value, dict):
        return {**{key: with_unknown_fields(item) for key, item in value.items()}, "field_of_tomorrow": {"deep": [1]}}
    return value


FREE = ("settings", "timing", "environment", "not_evaluated", "without_triplets")


ROW_MAPPINGS = ("scores", "block_stability", "n_queries", "intervals_95")


def test_a_newer_minor_version_is_read_and_its_fields_ignored_at_every_level():
    run = samples.sliced(samples.early(samples.golden()))
    document = json.loads(to_json(run))
    newer = {key: item if key in FREE else with_unknown_fields(item) for key, item in document.items()}
    mappings = {("encoder", "rules")}
    newer |= {"schema_version": "1.99", "field_of_tomorrow": 1}
    for outer, inner in mappings:
        newer[outer][inner] = document[outer][inner]
    for old, new in zip(document["encoder"]["facts"], newer["encoder"]["facts"], strict=True):
        new["values"] = old["values"]
    for old, new in zip(document["sources"], newer["sources"], strict=True):
        new["finding_overlaps"] = old["finding_overlaps"]
        new["rows"] |= {name: old["rows"][name] for name in ("skipped", "dropped_negatives")}
        new["score"]["gate_histograms"] = old["score"]["gate_histograms"]
        new["languages"]["shares"] = old["languages"]["shares"]
    for name, part in (("equal_hardness", "unranked"), ("profile", "controls")):
        newer["analyses"][name][part] = document["analyses"][name][part]
    for old, new in zip(document["analyses"]["ablations"], newer["analyses"]["ablations"], strict=True):
        new["kendall_tau_b"] = old["kendall_tau_b"]
        for old_row, new_row in zip(old["rows"], new["rows"], strict=True):
            new_row |= {name: old_row[name] for name in ROW_MAPPINGS}
    for old, new in zip(document["analyses"]["slices"], newer["analyses"]["slices"], strict=True):
        for old_source, new_source in zip(old["sources"], new["sources"], strict=True):
            new_source["finding_shares"] = old_source["finding_shares"]
    assert json.dumps(newer).count("field_of_tomorrow") > 250
    read = from_json(json.dumps(newer))
    assert read.schema_version == "1.99"
    assert to_json(read) == to_json(run)  # its fields are those of this version, so it says so


def test_a_byte_order_mark_is_not_part_of_a_report():
    text = "\ufeff" + to_json(samples.golden())
    assert from_json(text) == from_json(text.encode()) == samples.golden()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_report_that_could_not_be_read_again_is_not_written(number):
    run = samples.golden()
    first, *rest = run.sources
    damaged = replace(run, sources=(samples.changed(first, trace=number), *rest))
    assert "sources.0.score.trace" in refusal(lambda: to_json(damaged), NumericalError, None)
    unknown = replace(run.analyses["overlap"][0], negative_jaccard_mean=None)
    assert from_json(to_json(samples.replaced(run, overlap=(unknown,)))).analyses["overlap"] == (unknown,)


@pytest.mark.parametrize("version", ["2.0", "0.9", "10.0", "x"])
def test_another_major_version_is_refused(version):
    document = json.loads(to_json(samples.golden())) | {"schema_version": version}
    message = refusal(lambda: from_json(json.dumps(document)), InputError, "report.json")
    assert version in message
    assert "1.x" in message


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", "not json", '{"schema_version": null}', '{"schema_version": "1.0"}']
)
def test_a_document_that_is_not_a_report_is_refused(text):
    refusal(lambda: from_json(text, "some.json"), InputError, "some.json")


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_value_that_is_not_a_number_is_refused(value):
    text = to_json(samples.golden())
    made = re.sub(r'"eci_nats": [0-9.e-]+', f'"eci_nats": {value}', text, count=1)
    assert made != text
    assert value in refusal(lambda: from_json(made), InputError, "report.json")


def test_a_missing_folder_is_named(tmp_path):
    refusal(lambda: read_run(tmp_path / "nowhere"), InputError, tmp_path / "nowhere")


def test_schema_and_report_agree():
    """Every field of a report is in the schema, and every field that the schema asks for is in the report."""
    schema = json_schema(Run)
    document = json.loads(to_json(samples.sliced(samples.early(samples.golden()))))
    assert disagreements(document, schema, schema) == []
    del document["sources"][0]["score"]["rank"]
    document["controls"][0]["surplus"] = 1
    document["encoder"]["dim"] = "384"
    assert len(disagreements(document, schema, schema)) == 3


@pytest.mark.parametrize("path", sorted(samples.GOLDEN.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("suffix", sorted(RUN_FORMATS))
def test_golden_reports_of_every_minor_version_are_read_and_rendered(path, suffix):
    run = read_run(path)
    assert run.schema_version == path.stem
    assert run.sources[0].name in RUN_FORMATS[suffix](run)


def test_there_is_a_golden_report_of_this_version():
    from secid.results import SCHEMA_VERSION

    assert (samples.GOLDEN / f"{SCHEMA_VERSION}.json").is_file()
