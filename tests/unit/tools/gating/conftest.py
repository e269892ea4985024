"""Make baseline sources and verdicts from chosen numbers, so that tests can reach every limit and page."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

from secid.results import EncoderInfo, IdfInfo, Languages, SourceFinding
from secid.results.catalogue import FINDINGS, FORMAL_FINDINGS
from secid.results.gate import GateCheck, GateVerdict, Outcome, SourceVerdict
from secid.settings import DEFAULTS
from secid.tools.gating.baseline import METHOD_SETTINGS, Baseline, BaselineSource, Measurement, Tail
from tests.unit.pages.samples import changed, golden

N_QUERIES = 400
ENCODER = EncoderInfo("tiny", None, "w" * 8, "mean", "", "", 128, True, "float32", "cpu", 32, "f" * 8)
UNKNOWN = 'a%b\r\n::error::x,y:z \x1b[31m<img src=x> |`@user` ]]> \x00\u202e##[command]"\n[gate]'
"""Hostile name or text."""


def measured(value: float, n: int = N_QUERIES, error: float | None = None) -> Measurement:
    """Return a measured number. Without an error, it is a share of n independent draws."""
    error = sqrt(value * (1.0 - value) / n) if error is None else error
    return Measurement(value=value, standard_error=error, n_queries=n)


def source_of(n: int = N_QUERIES, hardness: float | None = 0.5, **shares: float) -> BaselineSource:
    """Return a source of n queries with shares of some findings. All others are 0, and `truncated` is unknown."""
    return BaselineSource(
        n_records=n,
        n_queries=n,
        n_negatives=5 * n,
        score_nats=0.3,
        interval_95=(0.28, 0.32),
        standard_error_nats=0.2 / sqrt(n),
        hardness=None if hardness is None else measured(hardness, n, 0.2 / sqrt(n)),
        findings={name: measured(shares.get(name, 0.0), n) for name in FINDINGS if name != "truncated"},
        positives=dict.fromkeys(FORMAL_FINDINGS, 0.0),
        unrelated=Tail(bound=0.1, share=measured(0.02, n)),
        languages={"en": 0.98, "fr": 0.005},
        schema="flagembedding",
        files={"own.jsonl": "0" * 64},
    )


def baseline_of(**sources: BaselineSource) -> Baseline:
    return Baseline(
        schema_version="2.0",
        secid_version="0.1.0",
        encoder=ENCODER,
        idf=IdfInfo("pooled", "alphanumeric", 10, 20, "a" * 64),
        table_sha256="b" * 64,
        settings={name: getattr(DEFAULTS, name) for name in METHOD_SETTINGS},
        sources=sources,
    )


def check(name: str = "hardness", outcome: Outcome = "fail", **more: Any) -> GateCheck:
    fields = {
        "unit": "hardness", "measured": 0.31, "interval_95": (0.28, 0.34) if name == "hardness" else None,
        "side": "at least", "limit": 0.43, **more,
    }  # fmt: skip
    return GateCheck(name=name, outcome=outcome, **fields)


def finding(name: str) -> SourceFinding:
    """Return a placeholder finding: pages take a check's numbers from the check."""
    return SourceFinding(name=name, n_negatives=1, share=0.1, interval_95=(0.0, 0.2), standard_error=0.05, examples=())


def verdict(*checks: GateCheck, name: str = "dense-2025-11", outcome: Outcome = "fail", **more: Any) -> GateVerdict:
    """Return the verdict on one source."""
    known = golden().sources[0]
    report = changed(
        known,
        name=name,
        files=(replace(known.files[0], path=f"{name}.jsonl"),),
        n_read=412,
        n_used=400,
        skipped={"no_negatives": 12},
        dropped_negatives={"empty_negative": 3},
        n_not_sampled=2,
        n_records=400,
        n_queries=60,
        n_triplets=2000,
        nats=0.3,
        interval_95=(0.28, 0.32),
        hardness=0.31,
        findings=tuple(finding(each.finding) for each in checks if each.finding),
        languages=Languages(n_texts=1000, shares={"en": 0.96, "de": 0.03, "": 0.01}),
    )
    source = SourceVerdict(
        report=report, outcome=outcome, previous="dense", checks=checks, left_out=("findings.inversion",)
    )
    whole = GateVerdict(
        schema_version="2.0",
        secid_version="0.1.0",
        outcome=outcome,
        baseline="b.json",
        policy_from="secid.toml",
        policy={},
        paired=None,
        encoder="tiny",
        sources=(source,),
        timing={},
    )
    return replace(whole, **more)
