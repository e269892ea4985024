"""Sources against a baseline: scored in its pool, judged by its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from secid.errors import SettingsError
from secid.files import work_folder
from secid.gating.baseline import (
    ENCODER_SETTINGS,
    METHOD_SETTINGS,
    Baseline,
    check_table,
    differences,
    read_baseline,
    refuse_differences,
)
from secid.gating.checks import all_checks, cut
from secid.gating.collect import file_hashes, read_table
from secid.gating.limits import common, complete, reference_name
from secid.gating.policy import Policy
from secid.gating.sample import Sample, folder_samples, measured_sample
from secid.gating.subject import EXAMPLES, Reference, Subject
from secid.measure.interval import FEWEST_QUERIES
from secid.pages.glossary import why_not
from secid.pool import Plan
from secid.progress import Progress
from secid.read import resolve_sources
from secid.results import Run, control_name
from secid.results.document import read_run
from secid.results.gate import VERDICT_SCHEMA_VERSION, CheckExample, GateVerdict, SourceVerdict, overall
from secid.scoring.clock import Clock
from secid.scoring.run import Scored, scored_plan
from secid.settings import FIELDS, Dtype, Resolved, Settings
from secid.triplets.estimates import Estimate, names_of
from secid.version import VERSION

if TYPE_CHECKING:
    from secid.encode import Encoder
    from secid.triplets.measured import Measured

SAME_SCORE = 1e-7
"""A baseline stores nine digits."""
REASON_NAMES: Mapping[str, str] = {"truncated": "truncated", "random_like": "hardness", "weak_positive": "hardness"}
"""Findings that a run may not evaluate, and the name under which it gives the reason."""


@dataclass(frozen=True)
class Against:
    """What sources are judged against. samples: the baseline run's sources, for a paired comparison."""

    baseline: Baseline
    where: str
    policy: Policy
    policy_from: str
    samples: Mapping[str, Sample]
    paired: str | None


def settings_for(baseline: Baseline, resolved: Resolved, policy: Policy) -> Resolved:
    """The settings to score with: the baseline's unless the user set them, and only the controls of the policy.

    Raises UsageError with the list of differences if the user set something else.
    """
    values, origin = vars(resolved.values).copy(), dict(resolved.origin)
    for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS):
        if origin[name] == "default" and name in baseline.settings:
            values[name], origin[name] = baseline.settings[name], "baseline"
    dtype = baseline.encoder.dtype  # what "auto" was on that machine: bf16 on CUDA, and the gate may run on a CPU
    if origin["dtype"] == "default" and dtype in get_args(Dtype) and baseline.encoder.pooling != "precomputed":
        values["dtype"], origin["dtype"] = dtype, "baseline"
    values["controls"] = ",".join(policy.controls.differ_from) or "none"
    values |= {"budget": 1.0, "ablate": False, "objectives": False, "until_ranked": None}
    refuse_differences(differences(baseline, values), "settings")
    return Resolved(Settings(**{name: value for name, value in values.items() if name in FIELDS}), origin)


def prepare(path: Path, policy: Policy, policy_from: str, paired: Path | None) -> Against:
    """The baseline, the policy with its limits, and the run to pair with, which must be comparable."""
    baseline = read_baseline(path)
    name = policy.score.named
    if policy.score.against == "named" and name not in baseline.sources:
        raise SettingsError(
            f"score.named = {name!r} is not a source of the baseline",
            where=policy_from,
            remedy=f"its sources are {', '.join(baseline.sources)}",
        )
    samples: Mapping[str, Sample] = {}
    if paired is not None:
        run = read_run(paired)
        refuse_differences(_run_differences(baseline, run), str(paired))
        samples = {source.name: sample for source, sample in folder_samples(paired, run)}
    paired_with = None if paired is None else str(paired)
    return Against(baseline, str(path), common(policy, baseline), policy_from, samples, paired_with)


def _run_differences(baseline: Baseline, run: Run) -> list[str]:
    settings = {name: entry["value"] for name, entry in run.settings.items()}
    lines = differences(baseline, settings, run.encoder)
    if run.idf.sha256 != baseline.idf.sha256:
        lines.append(f"IDF table: baseline {baseline.idf.sha256[:12]}, this run {run.idf.sha256[:12]}")
    if run.budget != 1.0:
        lines.append(f"budget: baseline 1, this run {run.budget:g}")
    return lines + _source_differences(baseline, run)


def _source_differences(baseline: Baseline, run: Run) -> list[str]:
    """Signs that the baseline was not made from this run: other sources, scores or files."""
    sources = {source.name: source for source in run.sources}
    lines = [f"source {name}: not in this run" for name in baseline.sources if name not in sources]
    lines += [f"source {name}: not in the baseline" for name in sources if name not in baseline.sources]
    for name, known in baseline.sources.items():
        if (source := sources.get(name)) is None:
            continue
        if not isclose(known.score_nats, source.eci_nats, rel_tol=SAME_SCORE, abs_tol=SAME_SCORE):
            lines.append(f"score of {name}: baseline {known.score_nats:.9g}, this run {source.eci_nats:.9g}")
        if known.files != (files := file_hashes(source)):
            changed = sorted(set(known.files.items()) ^ set(files.items()))
            lines.append(f"files of {name}: {', '.join(dict.fromkeys(path for path, _ in changed))}")
    return lines


def judge(
    specs: Sequence[str],
    against: Against,
    resolved: Resolved,
    progress: Progress,
    encoder: Encoder | None = None,
) -> GateVerdict:
    """Scores the sources in the baseline's pool and judges each by the policy.

    resolved : the user's settings; others are the baseline's.
    encoder  : a loaded one; by default the baseline's is loaded.
    Raises SecidError: UsageError with the list of differences if scores are not comparable.
    """
    baseline, clock = against.baseline, Clock()
    resolved = settings_for(baseline, resolved, against.policy)
    frequencies, known = read_table(check_table(Path(against.where), baseline), baseline.idf)
    sources = resolve_sources(specs, resolved.values)
    with work_folder() as work:
        if encoder is None:
            from secid.encode import load

            encoder = load(resolved.values, progress)
        refuse_differences(differences(baseline, vars(resolved.values), encoder.info), against.where)
        with scored_plan(sources, encoder, resolved, work, progress, frequencies, known) as (scored, plan):
            timing = dict(scored.run.timing)
            with clock.stage("judge"):
                items = sorted(scored.measured, key=lambda item: item.name)
                verdicts = [_source_verdict(item, scored, plan, against) for item in items]
    return GateVerdict(
        schema_version=VERDICT_SCHEMA_VERSION,
        secid_version=VERSION,
        outcome=overall([verdict.outcome for verdict in verdicts]),
        baseline=against.where,
        policy_from=against.policy_from,
        policy=against.policy.model_dump(mode="json"),
        paired=against.paired,
        encoder=encoder.info.name,
        sources=tuple(verdicts),
        notes=(),
        timing={**timing, **clock.stages},
    )


def _source_verdict(item: Measured, scored: Scored, plan: Plan, against: Against) -> SourceVerdict:
    planned = item.table.source
    subject = _subject(item, scored, plan, against)
    checks = tuple(all_checks(subject))
    fails = [check for check in checks if check.outcome == "fail"]
    blocking = [check for check in checks if check.holds_up]
    result = next(source for source in scored.run.sources if source.name == item.name)
    return SourceVerdict(
        name=item.name,
        paths=planned.source.paths,
        outcome="fail" if fails else "not_evaluated" if blocking or not checks else "pass",
        n_read=result.n_read,
        n_used=result.n_used,
        skipped=dict(result.skipped),
        dropped_negatives=dict(result.dropped_negatives),
        n_not_sampled=result.n_not_sampled,
        n_records=result.n_records,
        n_queries=result.n_queries,
        n_negatives=subject.sample.n_negatives,
        eci_nats=result.eci_nats,
        interval_95=result.interval_95,
        previous=subject.previous.name if subject.previous else None,
        findings=result.findings,
        checks=checks,
    )


def _subject(item: Measured, scored: Scored, plan: Plan, against: Against) -> Subject:
    baseline, planned, rows = against.baseline, item.table.source, item.triplets
    policy = complete(against.policy, baseline, item.name)

    def example(triplet: int) -> CheckExample:
        at = int(rows.place[triplet])
        return CheckExample(
            path=planned.source.paths[int(planned.negative_file[at])],
            line=int(planned.negative_line[at]),
            query=cut(plan.queries.take(rows.query[[triplet]])[0]),
            negative=cut(plan.passages.take(rows.negative[[triplet]])[0]),
            note="",
        )

    def reference(name: str) -> Reference:
        return Reference(name, baseline.sources[name], against.samples.get(name))

    reasons: dict[str, str] = {
        kind: why_not(why)
        for kind in policy.controls.differ_from
        for label, why in scored.run.not_evaluated.items()
        if label in (f"control {control_name(kind, of)}" for of in (None, item.name))
    }
    unavailable = {name: scored.run.not_evaluated.get(label) for name, label in REASON_NAMES.items()}
    return Subject(
        name=item.name,
        n_records=planned.n_records,
        sample=measured_sample(item),
        findings=scored.findings[item.name],
        policy=policy,
        baseline=baseline,
        reference=reference(reference_name(item.name, policy, baseline)),
        previous=reference(item.name) if item.name in baseline.sources else None,
        controls=_controls_of(item, scored),
        missing=reasons | {name: why_not(why) for name, why in unavailable.items() if why is not None},
        rank=effective_rank(item, float(policy.diversity.budget)),
        example=example,
        left_out=tuple(
            CheckExample(path=row.path, line=row.line, query="", negative="", note=f"left out: {row.detail}")
            for row in planned.tally.examples[:EXAMPLES]
        ),
    )


def _controls_of(item: Measured, scored: Scored) -> dict[str, Sample]:
    """Controls of one source by kind. A control drawn for all sources of a call is restricted to this source's queries,
    so that it covers the same topics; its passages come from all sources of the call.
    """
    own = names_of(item.query_keys)
    samples = {
        control.kind: measured_sample(measured).restricted(own)
        for control, measured in scored.controls
        if control.of in (None, item.name)
    }
    return {kind: sample for kind, sample in samples.items() if len(sample.queries) >= FEWEST_QUERIES}


def effective_rank(item: Measured, budget: float) -> Estimate:
    """Effective rank at a budget (collect.rank_at), with its error from the influences at both ends of the slope."""
    influence = item.influence
    last, first = influence.budgets.index(budget), influence.budgets.index(budget / 10.0)
    growth = item.nats(budget) - item.nats(budget / 10.0) + influence.bias_nats[last] - influence.bias_nats[first]
    per_query = influence.per_query[:, last] - influence.per_query[:, first]
    return Estimate(float(growth / np.log(10.0)), names_of(item.query_keys), per_query / np.log(10.0))
