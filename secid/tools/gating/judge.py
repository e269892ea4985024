"""Score sources in the pool of a baseline, and judge them by a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

from secid import __version__
from secid.analyses.guide import GUIDE, NO_GUIDE
from secid.analyses.registry import read_run
from secid.files import work_folder
from secid.pool import Plan, content_of
from secid.pool.plan import QuerySubset
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.results import Run
from secid.results.document import settings_of
from secid.results.gate import VERDICT_SCHEMA_VERSION, CheckExample, GateVerdict, Outcome, SourceVerdict
from secid.scoring.encoders import load_guide
from secid.scoring.run import Scored, assemble_run, read_sources
from secid.scoring.stages import Background, measure
from secid.settings import Resolved, Settings
from secid.tools.gating.baseline import (
    Baseline,
    check_table,
    differences,
    predecessor,
    read_baseline,
    refuse_differences,
)
from secid.tools.gating.checks import MAX_EXAMPLES, NO_GUIDE_BEFORE, Reference, Subject, all_checks
from secid.tools.gating.collect import Sample, file_hashes, folder_samples, measured_sample, read_baseline_table
from secid.tools.gating.limits import known_languages, limits_for, of_policy
from secid.tools.gating.policy import Policy
from secid.triplets.guide import Guide

if TYPE_CHECKING:
    from secid.encode import Encoder, EncoderLike
    from secid.triplets.measure_set import Measured

OTHER_GUIDE = "other_guide"
SCORE_TOLERANCE = 1e-7
"""Tolerance for equal scores; a baseline stores nine digits."""


@dataclass(frozen=True)
class GateReference:
    """The baseline and the policy that sources are judged by.

    samples : sources of the baseline's run, for paired comparisons.   paired : folder of that run; None without one.
    """

    baseline: Baseline
    where: str
    policy: Policy
    policy_from: str
    samples: Mapping[str, Sample]
    paired: str | None


def comparable_guide(
    against: GateReference, settings: Settings, encoder: Encoder, progress: Progress
) -> tuple[Guide | None, str]:
    """Load the guide. Return (guide, ""), (None, "") if none is needed, or (None, reason) if it cannot be compared.

    The reason says why the baseline has no limit for this guide's suspects.
    """
    limit, before = of_policy(against.policy, "findings.suspect"), against.baseline.guide
    if limit == "off":
        return None, ""
    guide = load_guide(settings, encoder, progress)
    if guide is None:
        return None, "" if before is None else NO_GUIDE
    if limit is not None or (before and guide.info.fingerprint == before):
        return guide, ""
    return None, OTHER_GUIDE if before else NO_GUIDE_BEFORE


def prepare(path: Path, policy: Policy, policy_from: str, paired: Path | None) -> GateReference:
    """Read the baseline, and the run for paired comparisons if there is one.

    Raises SecidError, also if the run is not the one that the baseline was made from.
    """
    baseline = read_baseline(path)
    for name in policy.names:
        predecessor(name, baseline.sources, policy.names, policy_from)
    samples: Mapping[str, Sample] = {}
    if paired is not None:
        run = read_run(paired)
        refuse_differences(_run_differences(baseline, run), str(paired))
        samples = {source.name: sample for source, sample in folder_samples(paired, run)}
    return GateReference(baseline, str(path), policy, policy_from, samples, None if paired is None else str(paired))


def _run_differences(baseline: Baseline, run: Run) -> list[str]:
    settings = vars(settings_of(run))
    lines = differences(baseline, settings, run.encoder)
    if run.idf.sha256 != baseline.idf.sha256:
        lines.append(f"IDF table: baseline {baseline.idf.sha256[:12]}, this run {run.idf.sha256[:12]}")
    if run.budget != 1.0:
        lines.append(f"budget: baseline 1, this run {run.budget:g}")
    return lines + _source_differences(baseline, run)


def _source_differences(baseline: Baseline, run: Run) -> list[str]:
    """Return the sources, scores and files that differ. Any difference means that the baseline is from another run."""
    sources = {source.name: source for source in run.sources}
    lines = [f"source {name}: not in this run" for name in baseline.sources if name not in sources]
    lines += [f"source {name}: not in the baseline" for name in sources if name not in baseline.sources]
    for name, known in baseline.sources.items():
        if (source := sources.get(name)) is None:
            continue
        if not isclose(known.score_nats, source.scored.nats, rel_tol=SCORE_TOLERANCE, abs_tol=SCORE_TOLERANCE):
            lines.append(f"score of {name}: baseline {known.score_nats:.9g}, this run {source.scored.nats:.9g}")
        if known.files != (files := file_hashes(source)):
            changed = sorted(set(known.files.items()) ^ set(files.items()))
            lines.append(f"files of {name}, changed: {', '.join(dict.fromkeys(path for path, _ in changed))}")
    return lines


def judge(
    sources: Iterable[Reader],
    against: GateReference,
    resolved: Resolved,
    progress: Progress,
    encoder: EncoderLike | None = None,
) -> GateVerdict:
    """Score each source in the baseline's pool, and judge it by the policy. Other sources do not affect its verdict.

    sources  : opened sources.   resolved : result of `settings_for`.
    encoder  : encoder object; None for the encoder that the settings name.
    Raises SecidError. It is a UsageError with the list of differences if the scores are not comparable.
    """
    from secid.encode import load

    baseline, clock = against.baseline, Clock()
    frequencies, known = read_baseline_table(check_table(Path(against.where), baseline), baseline.idf)
    subset, background = QuerySubset.of(resolved.values), Background(frequencies=frequencies, known=known)
    with work_folder() as work:
        loaded = load(resolved.values, progress, encoder)
        refuse_differences(differences(baseline, vars(resolved.values), loaded.info), against.where)
        guide, why = comparable_guide(against, resolved.values, loaded, progress)
        verdicts = []
        for number, source in enumerate(sorted(sources, key=lambda reader: reader.source.name)):
            folder = work / str(number)
            folder.mkdir()
            with read_sources([source], resolved, subset, background, folder, clock, progress) as read:
                context = measure(read, loaded, guide, background, folder, clock, progress)
                scored = assemble_run(context, read, loaded, background, clock, None)
                with clock.stage("judge"):
                    verdicts.append(source_verdict(scored, read.plan, against, why))
    return GateVerdict(
        schema_version=VERDICT_SCHEMA_VERSION,
        secid_version=__version__,
        outcome=overall_outcome([verdict.outcome for verdict in verdicts]),
        baseline=against.where,
        policy_from=against.policy_from,
        policy=against.policy.model_dump(mode="json"),
        paired=against.paired,
        encoder=loaded.info.name,
        guide=None if guide is None else guide.info.name,
        sources=tuple(verdicts),
        timing=clock.stages,
    )


def source_verdict(scored: Scored, plan: Plan, against: GateReference, no_guide: str) -> SourceVerdict:
    """Return the verdict on a run's only source.

    no_guide : reason why its suspects cannot be checked; "" if they can.
    """
    (item,) = scored.measured
    (report,) = scored.run.sources
    subject = _subject(item, scored, plan, against, no_guide)
    checks = tuple(all_checks(subject))
    fails = [check for check in checks if check.outcome == "fail"]
    blocking = [check for check in checks if check.blocks_pass]
    return SourceVerdict(
        report=report,
        outcome="fail" if fails else "undecided" if blocking else "pass",
        previous=subject.previous.name if subject.previous else None,
        checks=checks,
        left_out=subject.limits.left_out,
    )


def _subject(item: Measured, scored: Scored, plan: Plan, against: GateReference, no_guide: str) -> Subject:
    baseline = against.baseline
    planned, rows = item.table.source, item.triplets
    name = predecessor(item.name, baseline.sources, against.policy.names, against.policy_from)

    def example(triplet: int) -> CheckExample:
        at = int(rows.place[triplet])
        return CheckExample(
            path=planned.source.paths[int(planned.negative_file[at])],
            line=int(planned.negative_line[at]),
            query=plan.queries.take(rows.query[[triplet]])[0],
            negative=plan.passages.take(rows.negative[[triplet]])[0],
        )

    reference, second = scored.reference, GUIDE.of(scored.run)
    without_hardness = scored.run.not_evaluated.get(f"hardness of {item.name}")
    return Subject(
        name=item.name,
        sample=measured_sample(item),
        findings=scored.findings[item.name],
        policy=against.policy,
        limits=limits_for(against.policy, baseline, name),
        known_languages=known_languages(baseline, name),
        previous=None if name is None else Reference(name, baseline.sources[name], against.samples.get(name)),
        hardness=None if reference is None else item.table.hardness(reference),
        missing={
            **scored.run.not_evaluated,
            **({} if without_hardness is None else {"hardness": without_hardness}),
            **({"suspect": no_guide} if no_guide else {}),
        },
        example=example,
        content=content_of(
            plan.passages.keys[rows.negative], plan.passages.keys[rows.positive], plan.queries.keys[rows.query]
        ),
        left_out=tuple(
            CheckExample(path=row.path, line=row.line, query="", negative="", reason=row.reason, fact=row.fact)
            for row in planned.tally.examples[:MAX_EXAMPLES]
        ),
        guide=None if second is None else second.of(item.name),
    )


def overall_outcome(outcomes: list[Outcome]) -> Outcome:
    """Return "fail" if any outcome is "fail", "pass" if all are "pass", otherwise or without outcomes "undecided"."""
    if "fail" in outcomes:
        return "fail"
    return "pass" if outcomes and all(outcome == "pass" for outcome in outcomes) else "undecided"
