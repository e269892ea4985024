"""Sources against a baseline: scored in its pool, judged by its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from secid.errors import SettingsError, UsageError
from secid.files import work_folder
from secid.gating.aside import Looked, look, opener
from secid.gating.baseline import (
    ENCODER_SETTINGS,
    METHOD_SETTINGS,
    Baseline,
    check_table,
    differences,
    read_baseline,
    refuse_differences,
)
from secid.gating.checks import all_checks, excused
from secid.gating.collect import file_hashes, read_table
from secid.gating.columns import Columns, folder_columns, measured_columns
from secid.gating.limits import common, complete, reference_name
from secid.gating.policy import Policy
from secid.gating.subject import EXAMPLES, Draft, Reference, Subject
from secid.gating.texts import LEFT_OUT, Place, TextFindings, fetch
from secid.measure.interval import FEWEST_QUERIES
from secid.progress import Progress
from secid.read import once_only, resolve_sources
from secid.results import Run, control_name
from secid.results.document import read_run
from secid.results.gate import VERDICT_SCHEMA_VERSION, Check, CheckExample, GateVerdict, SourceVerdict, overall
from secid.scoring.clock import Clock
from secid.scoring.run import Scored, score_sources
from secid.settings import FIELDS, Dtype, Resolved, Settings
from secid.triplets.estimates import Estimate, names_of
from secid.version import VERSION

if TYPE_CHECKING:
    from secid.encode import Encoder
    from secid.records import Source
    from secid.triplets.measured import Measured

SAME_SCORE = 1e-7
"""A baseline keeps nine digits."""
JUDGED_HERE = ("empty_negative",)
"""Empty negatives are a bucket of the policy: however many, they are no sign that a file was misread."""
CUT = 300
"""Characters of a text in an example: enough to see what it is."""


@dataclass(frozen=True)
class Against:
    """What sources are judged against. columns: of the baseline run's sources, for a paired comparison."""

    baseline: Baseline
    where: str
    policy: Policy
    policy_from: str
    columns: Mapping[str, Columns]
    paired: str | None


def settings_for(baseline: Baseline, resolved: Resolved, policy: Policy) -> Resolved:
    """The settings to score with: what the user left open is the baseline's, and only the controls that are asked for.

    Raises UsageError with the list of differences where the user set something else.
    """
    values, origin = vars(resolved.values).copy(), dict(resolved.origin)
    for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS):
        if origin[name] == "default" and name in baseline.settings:
            values[name], origin[name] = baseline.settings[name], "baseline"
    made_with = baseline.encoder.dtype  # what "auto" was on that machine: bf16 on CUDA, and the gate may run on a CPU
    if origin["dtype"] == "default" and made_with in get_args(Dtype) and baseline.encoder.pooling != "precomputed":
        values["dtype"], origin["dtype"] = made_with, "baseline"
    values["controls"] = ",".join(policy.controls.differ_from) or "none"
    values["budget"], values["ablate"], values["until_ranked"] = 1.0, False, None
    refuse_differences(differences(baseline, values), "settings")
    return Resolved(Settings(**{name: value for name, value in values.items() if name in FIELDS}), origin)


def prepare(path: Path, policy: Policy, policy_from: str, paired: Path | None) -> Against:
    """The baseline and the policy, complete; the run to pair with, checked to be comparable."""
    baseline = read_baseline(path)
    named = policy.score.named
    if policy.score.against == "named" and named not in baseline.sources:
        raise SettingsError(
            f"score.named = {named!r} is no source of the baseline",
            where=policy_from,
            remedy=f"its sources are {', '.join(baseline.sources)}",
        )
    columns: Mapping[str, Columns] = {}
    if paired is not None:
        run = read_run(paired)
        refuse_differences(_run_differences(baseline, run), str(paired))
        columns = folder_columns(paired, {source.name: source.eci_nats for source in run.sources})
    shown = None if paired is None else str(paired)
    return Against(baseline, str(path), common(policy, baseline), policy_from, columns, shown)


def _run_differences(baseline: Baseline, run: Run) -> list[str]:
    settings = {name: entry["value"] for name, entry in run.settings.items()}
    found = differences(baseline, settings, run.encoder)
    if run.idf.sha256 != baseline.idf.sha256:
        found.append(f"IDF table: baseline {baseline.idf.sha256[:12]}, this run {run.idf.sha256[:12]}")
    if run.budget != 1.0:
        found.append(f"budget: baseline 1, this run {run.budget:g}")
    return found + _source_differences(baseline, run)


def _source_differences(baseline: Baseline, run: Run) -> list[str]:
    """What tells that a run is not the one that the baseline was made of: its sources, their scores and files."""
    sources = {source.name: source for source in run.sources}
    found = [f"source {name}: not in this run" for name in baseline.sources if name not in sources]
    found += [f"source {name}: not in the baseline" for name in sources if name not in baseline.sources]
    for name, known in baseline.sources.items():
        if (source := sources.get(name)) is None:
            continue
        if not isclose(known.score_nats, source.eci_nats, rel_tol=SAME_SCORE, abs_tol=SAME_SCORE):
            found.append(f"score of {name}: baseline {known.score_nats:.9g}, this run {source.eci_nats:.9g}")
        if known.files != (files := file_hashes(source)):
            changed = sorted(set(known.files.items()) ^ set(files.items()))
            found.append(f"files of {name}: {', '.join(dict.fromkeys(path for path, _ in changed))}")
    return found


def judge(
    specs: Sequence[str],
    against: Against,
    resolved: Resolved,
    progress: Progress,
    encoder: Encoder | None = None,
) -> GateVerdict:
    """Scores the sources in the baseline's pool and judges each by the policy.

    resolved : the user's settings; what they leave open is the baseline's.
    encoder  : a loaded one; by default the baseline's, loaded here.
    Raises SecidError: UsageError with the list of differences where scores would not compare.
    """
    baseline, clock = against.baseline, Clock()
    resolved = settings_for(baseline, resolved, against.policy)
    table = check_table(Path(against.where), baseline)
    sources = resolve_sources(specs, resolved.values)
    if any(once_only(path) for source in sources for path in source.paths):
        raise UsageError(
            "the gate reads a source more than once, so not from standard input or a pipe", remedy="name a file"
        )
    frequencies = read_table(table, baseline.idf)
    with work_folder() as work:
        if encoder is None:
            from secid.encode import load

            encoder = load(resolved.values, progress)
        refuse_differences(differences(baseline, vars(resolved.values), encoder.info), against.where)
        scored = score_sources(sources, encoder, resolved, work, progress, frequencies, JUDGED_HERE)
        with clock.stage("texts"):
            texts = look(sources, resolved.values, table)
    with clock.stage("judge"):
        verdicts = [
            _source_verdict(item, scored, texts, against, resolved.values)
            for item in sorted(scored.measured, key=lambda item: item.name)
        ]
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
        timing={**scored.run.timing, **clock.stages},
    )


def _source_verdict(
    item: Measured,
    scored: Scored,
    texts: Looked,
    against: Against,
    settings: Settings,
) -> SourceVerdict:
    planned = item.table.source
    split = item.name.removeprefix(planned.source.name).removeprefix(":")
    subject = _subject(item, scored, texts[planned.source.paths, split], against)
    drafts = [excused(draft, against.policy) for draft in all_checks(subject)]
    checks = _with_examples(drafts, planned.source, split, settings)
    fails = [check for check in checks if check.outcome == "fail"]
    held = [check for check in checks if check.holds_up]
    result = next(source for source in scored.run.sources if source.name == item.name)
    return SourceVerdict(
        name=item.name,
        paths=planned.source.paths,
        outcome="fail" if fails else "not_evaluated" if held or not checks else "pass",
        n_read=result.n_read,
        n_used=result.n_used,
        skipped=dict(result.skipped),
        dropped_negatives=dict(result.dropped_negatives),
        n_not_sampled=result.n_not_sampled,
        n_records=result.n_records,
        n_queries=result.n_queries,
        n_negatives=subject.columns.n_negatives,
        eci_nats=result.eci_nats,
        interval_95=result.interval_95,
        previous=subject.previous.name if subject.previous else None,
        checks=checks,
    )


def _subject(item: Measured, scored: Scored, texts: TextFindings, against: Against) -> Subject:
    baseline, planned = against.baseline, item.table.source
    policy = complete(against.policy, baseline, item.name)
    rows = item.triplets

    def place(triplet: int) -> Place:
        at = int(rows.place[triplet])
        path = planned.source.paths[int(planned.negative_file[at])]
        return path, int(planned.negative_line[at]), int(planned.negative_ordinal[at])

    def reference(name: str) -> Reference:
        return Reference(name, baseline.sources[name], against.columns.get(name))

    reasons: dict[str, str] = {
        kind: reason
        for kind in policy.controls.differ_from
        for label, reason in scored.run.not_evaluated.items()
        if label in (f"control {control_name(kind, of)}" for of in (None, item.name))
    }
    return Subject(
        name=item.name,
        n_records=planned.n_records,
        columns=measured_columns(item),
        texts=texts,
        policy=policy,
        baseline=baseline,
        reference=reference(reference_name(item.name, policy, baseline)),
        previous=reference(item.name) if item.name in baseline.sources else None,
        controls=_controls_of(item, scored),
        missing=reasons,
        rank=effective_rank(item, float(policy.diversity.budget)),
        place=place,
        left_out=tuple(
            ((row.path, row.line, LEFT_OUT), f"left out: {row.detail}") for row in planned.tally.examples[:EXAMPLES]
        ),
    )


def _controls_of(item: Measured, scored: Scored) -> dict[str, Columns]:
    """Controls of one source by kind. One that is drawn for all sources of a call counts on this one's queries alone,
    so that it stands for this source's subjects; its passages are drawn from all that are judged beside it.
    """
    own = names_of(item.query_keys)
    found = {
        control.kind: measured_columns(measured).restricted(own)
        for control, measured in scored.controls
        if control.of in (None, item.name)
    }
    return {kind: columns for kind, columns in found.items() if len(columns.queries) >= FEWEST_QUERIES}


def effective_rank(item: Measured, budget: float) -> Estimate:
    """Effective rank at a budget (collect.rank_at), with its error from the influences at both ends of the slope."""
    influence = item.influence
    last, first = influence.budgets.index(budget), influence.budgets.index(budget / 10.0)
    grown = item.nats(budget) - item.nats(budget / 10.0) + influence.bias_nats[last] - influence.bias_nats[first]
    per_query = influence.per_query[:, last] - influence.per_query[:, first]
    return Estimate(float(grown / np.log(10.0)), names_of(item.query_keys), per_query / np.log(10.0))


def _with_examples(drafts: Sequence[Draft], source: Source, split: str, settings: Settings) -> tuple[Check, ...]:
    """The checks with the texts of their rows; those that pass need none."""
    shown = [draft for draft in drafts if draft.check.outcome != "pass"]
    wanted = {(split, place) for draft in shown for place, _ in draft.rows}
    texts = fetch(opener(source, settings), wanted)
    return tuple(
        replace(
            draft.check,
            examples=tuple(_example(place, note, texts.get((split, place), ("", ""))) for place, note in draft.rows),
        )
        if draft in shown
        else draft.check
        for draft in drafts
    )


def _example(place: Place, note: str, texts: tuple[str, str]) -> CheckExample:
    query, negative = (text if len(text) <= CUT else text[: CUT - 1] + "…" for text in texts)
    return CheckExample(path=place[0], line=place[1], query=query, negative=negative, note=note)
