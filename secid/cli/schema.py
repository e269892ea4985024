"""`secid schema`."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Annotated, Literal

import typer

from secid.cli.outputs import print_json


class Document(StrEnum):
    """What has a schema."""

    report = "report"
    gate = "gate"
    policy = "policy"
    baseline = "baseline"
    probe = "probe"


KINDS = {
    Document.report: ("secid.analyses.report", "Report"),
    Document.gate: ("secid.results.gate", "GateVerdict"),
    Document.policy: ("secid.gating.policy", "Policy"),
    Document.probe: ("secid.results.probe", "Probe"),
    Document.baseline: ("secid.gating.baseline", "Baseline"),
}
"""The class that each document is, and where it is: only what is asked for is imported."""


def schema(
    document: Annotated[
        Document,
        typer.Argument(help="Of report.json, the gate's verdict, its policy, the baseline, or probe.json."),
    ] = Document.report,
) -> None:
    """Print the JSON Schema of a document that secid writes or reads.

    Example: secid schema baseline
    """
    from secid.results.document import schema_of

    module, name = KINDS[document]
    mode: Literal["serialization", "validation"] = "validation" if document == Document.policy else "serialization"
    print_json(schema_of(getattr(import_module(module), name), mode))
