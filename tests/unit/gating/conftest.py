"""A made-up subject whose numbers are known, so that every outcome of every check can be provoked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secid.findings.status import SourceStatus
from secid.findings.summary import SourceFindings, source_finding
from secid.gating.baseline import METHOD_SETTINGS, Baseline, BaselineSource, Known
from secid.gating.checks import all_checks
from secid.gating.limits import complete
from secid.gating.policy import parse_policy
from secid.gating.sample import Sample
from secid.gating.subject import Reference, Subject
from secid.measure.blocks import Triplets
from secid.results import EncoderInfo, IdfInfo, TripletExample
from secid.results.catalogue import FINDINGS
from secid.results.gate import Check, CheckExample
from secid.settings import DEFAULTS
from secid.triplets.estimates import Estimate, Share
from secid.triplets.table import TripletTable

N_QUERIES, PER_QUERY = 400, 5
TEMPERATURE = 0.05
ENCODER = EncoderInfo("tiny", None, "w" * 8, "mean", "", "", 128, True, "float32", "cpu", 32, "f" * 8)


def sample(seed: int = 0, n_queries: int = N_QUERIES, **shift: float) -> Sample:
    """Triplets, a record each, with gates and cosines around fixed means; shift moves one of them."""
    draw = np.random.default_rng(seed)
    n = n_queries * PER_QUERY

    def around(name: str, mean: float, spread: float, low: float = 0.02, high: float = 0.98) -> np.ndarray:
        return np.clip(mean + shift.get(name, 0.0) + spread * draw.standard_normal(n), low, high)

    consistency, locality = around("consistency", 0.8, 0.1), around("locality", 0.5, 0.1)
    coverage = around("coverage", 0.2, 0.05, 0.0, 1.0)
    near = around("query_similarity", 0.5, 0.05, -1.0, 1.0)
    table = TripletTable(
        triplets=triplets(np.repeat(np.arange(n_queries), PER_QUERY)),
        planned=None,
        temperature=TEMPERATURE,
        s_query_positive=near + TEMPERATURE * np.log(consistency / (1 - consistency)) + shift.get("positive", 0.0),
        positive_coverage=np.ones(n),
        s_query_negative=near,
        s_positive_negative=near + TEMPERATURE * np.log(locality / (1 - locality)),
        coverage=coverage,
        findings=np.zeros(n, np.uint32),
        evaluated=frozenset(),
    )
    names = np.array([f"query {i:08d}" for i in range(n_queries)], "S16")
    spread = shift.get("score_spread", 0.05)
    score = Estimate(0.3 + shift.get("score", 0.0), names, spread * draw.standard_normal(n_queries) / n_queries)
    return Sample(table, names, score)


def triplets(query: np.ndarray, share: np.ndarray | None = None) -> Triplets:
    """A record for each triplet. query: (T,) ids."""
    place = np.arange(len(query))
    return Triplets(query, place, place, np.arange(len(query) + 1), place, place, share)


def source_of(own: Sample, **changes: Any) -> BaselineSource:
    """A baseline's source with the numbers of the sample, and one negative in a hundred that outscores its positive."""
    low, high = np.quantile(own.relation(), (0.02, 0.98)).tolist()
    means = {**own.means(), **own.tails(low, high)}
    known = BaselineSource(
        n_records=N_QUERIES,
        n_queries=N_QUERIES,
        n_negatives=N_QUERIES * PER_QUERY,
        score_nats=own.score.value,
        interval_95=(0.0, 1.0),
        standard_error_nats=own.score.standard_error,
        bias_nats=0.0,
        means={name: Known(value=e.value, standard_error=e.standard_error) for name, e in means.items()},
        findings={"inversion": Known(value=0.01, standard_error=0.005)},
        tails={"low": low, "high": high},
        effective_rank={"10": 5.0, "100": 20.0, "1000": 50.0, "10000": 80.0},
        like_controls=(),
        schema="flagembedding",
        files={"own.jsonl": "0" * 64},
    )
    return replace(known, **changes)


def baseline_of(**sources: BaselineSource) -> Baseline:
    return Baseline(
        schema_version="1.0",
        secid_version="0.1.0",
        encoder=ENCODER,
        idf=IdfInfo("pooled", "alphanumeric", 10, 20, "a" * 64),
        table_sha256="b" * 64,
        settings={name: getattr(DEFAULTS, name) for name in METHOD_SETTINGS},
        sources=sources,
    )


def findings(own: Sample, **shares: float) -> SourceFindings:
    """Every finding of the catalogue with the given share, spread over all queries; `truncated` was not looked for."""
    place = np.arange(len(own.table))
    weight = np.ones(len(place))
    example = TripletExample(path="own.jsonl", line=7, query="q", positive="p", negative="n" * 400)
    found = {
        name: Share.of((place % PER_QUERY < shares.get(name, 0.0) * PER_QUERY) * 1.0, weight, own.cluster, own.queries)
        for name in FINDINGS
        if name != "truncated"
    }
    results = tuple(source_finding(name, share, (example,) * 4 if share.n else ()) for name, share in found.items())
    status = SourceStatus("usable", found["empty"], ())
    return SourceFindings(results, {}, found, status)


Make = Callable[..., Subject]


@pytest.fixture
def subject() -> Make:
    def make(
        own: Sample | None = None,
        policy: dict[str, Any] | None = None,
        shares: dict[str, float] | None = None,
        **changes: Any,
    ) -> Subject:
        baseline = baseline_of(own=source_of(sample(seed=1)))
        own = sample() if own is None else own
        reference = Reference("own", baseline.sources["own"], None)
        made = Subject(
            name="own",
            n_records=N_QUERIES,
            sample=own,
            findings=findings(own, **(shares or {})),
            policy=complete(parse_policy(policy or {}, "test"), baseline, "own"),
            baseline=baseline,
            reference=reference,
            previous=reference,
            controls={kind: sample(2, query_similarity=-0.4) for kind in ("random", "shuffled")},
            missing={"truncated": "it does not say"},
            rank=Estimate(50.0, own.queries, np.full(len(own.queries), 0.05)),
            example=lambda triplet: CheckExample(path="own.jsonl", line=triplet + 1, query="q", negative="n", note=""),
        )
        return replace(made, **changes)

    return make


def outcome(subject: Subject, name: str) -> Check:
    """The one check of that name."""
    (check,) = [check for check in all_checks(subject) if check.name == name]
    return check
