"""A made-up subject whose numbers are known, so that every outcome of every check can be provoked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from secid.gating.columns import Columns
from secid.gating.texts import TEXT_BUCKETS, TextFindings

from secid.gating.baseline import METHOD_SETTINGS, Baseline, BaselineSource, Known
from secid.gating.checks import all_checks
from secid.gating.limits import complete
from secid.gating.policy import parse_policy
from secid.gating.subject import Draft, Reference, Subject
from secid.results import EncoderInfo, IdfInfo
from secid.settings import DEFAULTS
from secid.triplets.estimates import Estimate, clustered_mean

N_QUERIES, PER_QUERY = 400, 5
ENCODER = EncoderInfo("tiny", None, "w" * 8, "mean", "", "", 128, True, "float32", "cpu", 32, "f" * 8)


def columns(seed: int = 0, n_queries: int = N_QUERIES, **shift: float) -> Columns:
    """Normal columns around fixed means; shift moves one of them."""
    draw = np.random.default_rng(seed)
    n = n_queries * PER_QUERY
    cluster = np.repeat(np.arange(n_queries), PER_QUERY)
    names = np.array([f"query {i:08d}" for i in range(n_queries)], "S16")

    def around(name: str, mean: float, spread: float) -> np.ndarray:
        return np.clip(mean + shift.get(name, 0.0) + spread * draw.standard_normal(n), -1.0, 1.0)

    values = {
        "consistency": around("consistency", 0.8, 0.1),
        "locality": around("locality", 0.5, 0.1),
        "coverage": around("coverage", 0.2, 0.05),
        "s_query_positive": around("s_query_positive", 0.7, 0.05),
        "s_query_negative": around("s_query_negative", 0.5, 0.05),
        "s_positive_negative": around("s_positive_negative", 0.4, 0.05),
    }
    spread = shift.get("score_spread", 0.05)
    score = Estimate(0.3 + shift.get("score", 0.0), names, spread * draw.standard_normal(n_queries) / n_queries)
    return Columns(names, cluster, None, values, score)


def source_of(found: Columns, **changes: Any) -> BaselineSource:
    """A baseline's source with the numbers of the columns."""
    low, high = found.quantile(0.02), found.quantile(0.98)
    means = {**found.means(), **found.tail(low, high)}
    buckets = found.buckets(0.5, 0.99)
    known = BaselineSource(
        n_records=N_QUERIES,
        n_queries=N_QUERIES,
        n_negatives=N_QUERIES * PER_QUERY,
        score_nats=found.score.value,
        interval_95=(0.0, 1.0),
        standard_error_nats=found.score.standard_error,
        bias_nats=0.0,
        means={name: Known(value=e.value, standard_error=e.standard_error) for name, e in means.items()},
        buckets={name: Known(value=e.value, standard_error=e.standard_error) for name, e in buckets.items()},
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


def findings(found: Columns, **shares: float) -> TextFindings:
    """Texts with the given share of each bucket, spread over all queries."""
    n = len(found.cluster)
    flags = {name: np.arange(n) % PER_QUERY < shares.get(name, 0.0) * PER_QUERY for name in TEXT_BUCKETS}
    return TextFindings(
        n,
        {name: clustered_mean(mask.astype(float), found.cluster, found.queries) for name, mask in flags.items()},
        {name: [("own.jsonl", int(i) + 1, 0) for i in np.flatnonzero(mask)] for name, mask in flags.items()},
        {name: int(mask.sum()) for name, mask in flags.items()},
    )


Make = Callable[..., Subject]


@pytest.fixture
def subject() -> Make:
    def make(
        own: Columns | None = None,
        policy: dict[str, Any] | None = None,
        texts: dict[str, float] | None = None,
        **changes: Any,
    ) -> Subject:
        before = columns(seed=1)
        baseline = baseline_of(own=source_of(before))
        found = columns() if own is None else own
        reference = Reference("own", baseline.sources["own"], None)
        made = Subject(
            name="own",
            n_records=N_QUERIES,
            columns=found,
            texts=findings(found, **(texts or {})),
            policy=complete(parse_policy(policy or {}, "test"), baseline, "own"),
            baseline=baseline,
            reference=reference,
            previous=reference,
            controls={kind: columns(2, s_query_negative=-0.4) for kind in ("random", "shuffled")},
            missing={},
            rank=Estimate(50.0, found.queries, np.full(len(found.queries), 0.05)),
            place=lambda triplet: ("own.jsonl", triplet + 1, 0),
        )
        return replace(made, **changes)

    return make


def outcome(subject: Subject, name: str) -> Draft:
    """The one check of that name."""
    found = [draft for draft in all_checks(subject) if draft.check.name == name]
    assert len(found) == 1
    return found[0]
