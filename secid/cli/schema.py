"""`secid schema`."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

from secid.cli.outputs import print_json


class Document(StrEnum):
    """What has a schema."""

    report = "report"
    gate = "gate"
    policy = "policy"
    baseline = "baseline"


SCHEMAS = {
    Document.report: ("secid.results.document", "json_schema"),
    Document.gate: ("secid.pages.gate_page", "verdict_schema"),
    Document.policy: ("secid.gating.policy", "policy_schema"),
    Document.baseline: ("secid.gating.baseline", "baseline_schema"),
}
"""The function that makes each schema, and where it is: nothing is imported that is not asked for."""


def schema(
    document: Annotated[
        Document,
        typer.Argument(help="Of report.json, the gate's verdict, its policy, or the baseline."),
    ] = Document.report,
) -> None:
    """Print the JSON Schema of a document that secid writes or reads.

    Example: secid schema baseline
    """
    module, function = SCHEMAS[document]
    print_json(getattr(import_module(module), function)())
