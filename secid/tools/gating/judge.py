"""A run folder to a baseline, and sources against a baseline: scored in its pool, judged by its policy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from secid.analyses.guide import GUIDE, NO_GUIDE
from secid.analyses.registry import read_run
from secid.arrays import Floats, Index
from secid.errors import InputError, UsageError
from secid.files import work_folder, write_together
from secid.findings.copies import Positives, restored
from secid.measure.interval import reach_95
from secid.pool import DocumentFrequencies, Plan, content_of
from secid.pool.plan import QuerySubset
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.results import IdfInfo, Run, SourceReport
from secid.results.document import settings_of
from secid.results.gate import VERDICT_SCHEMA_VERSION, CheckExample, GateVerdict, SourceVerdict, overall
from secid.run_folder.tables import (
    QUERY_INFLUENCE,
    QUERY_KEYS,
    read_frequencies,
    read_positives,
    read_table,
    read_tensors,
    source_entries,
)
from secid.scoring.encoders import load_guide
from secid.scoring.run import Scored, finished, read_sources
from secid.scoring.stages import Background, measure
from secid.settings import ENCODERS, RECIPE_FIELDS, Resolved, Settings, flag_of
from secid.tools.gating.baseline import (
    BASELINE_SCHEMA_VERSION,
    LOW_POINT,
    METHOD_SETTINGS,
    Baseline,
    BaselineSource,
    Measurement,
    Tail,
    baseline_to_json,
    check_table,
    differences,
    predecessor,
    read_baseline,
    refuse_differences,
    table_path,
)
from secid.tools.gating.checks import EXAMPLES, NO_GUIDE_BEFORE, Reference, Subject, all_checks
from secid.tools.gating.limits import known_languages, limits_for, of_policy
from secid.tools.gating.policy import Policy
from secid.triplets.estimates import Estimate, Names, comparable_keys
from secid.triplets.guide import Guide
from secid.triplets.measure_set import Measured
from secid.triplets.table import TripletTable
from secid.version import VERSION

if TYPE_CHECKING:
    from secid.encode import Encoder, EncoderLike
    from secid.triplets.measure_set import Measured


# A source or a control as the checks compare it: its triplet table, the names of its queries, and its score.
#
# The same for a source that has just been measured and for one read from a run folder.


@dataclass(frozen=True)
class Sample:
    """Triplets with the queries that they were drawn for.

    queries : (Q,) names of the table's distinct queries, rising by query id.
    score   : ECI_sem with the influence of each query.
    """

    table: TripletTable
    queries: Names
    score: Estimate

    @cached_property
    def columns(self) -> Mapping[str, Floats]:
        """Dot products and gates, (T,) each."""
        return self.table.columns()

    @cached_property
    def cluster(self) -> Index:
        """(T,) place of each triplet's query among the names."""
        return self.table.cluster()

    @property
    def n_negatives(self) -> int:
        """Negatives, each once however many positives it was scored against."""
        return round(self.table.triplets.n_negatives)

    def mean(self, values: Floats) -> Estimate:
        """Mean of a (T,) column."""
        return self.table.mean(values, self.queries)

    def relation(self) -> Floats:
        """(T,) cosine of query and negative plus lexical coverage: how closely a negative is related to its query.

        Dense miners select by the first and lexical miners by the second; without either, a negative was not mined
        for the query. Of SciFact's BM25 negatives assigned to other queries 77 % are below the 2 % point of this sum,
        33 % below that of the cosine; of dense ones 83 % and 90 % (docs/experiments/gate.md).
        """
        return self.table.s_query_negative + self.table.coverage

    def unrelated(self, bound: float) -> Estimate:
        """Share of negatives whose relation is below the bound."""
        return self.mean((self.relation() < bound).astype(np.float64))


def measured_sample(item: Measured) -> Sample:
    """A source or control that has just been measured."""
    names = comparable_keys(item.query_keys)
    per_query = item.influence.per_query[:, item.influence.column(1.0)]
    return Sample(item.table, names, Estimate(item.nats(1.0), names, per_query))


def folder_samples(folder: Path, run: Run) -> Iterator[tuple[SourceReport, Sample]]:
    """Every source of a run folder. Raises InputError if a table of it is missing, damaged or of another run."""
    entries = {entry.name: entry for entry in source_entries(folder)}
    for source in run.sources:
        if source.name not in entries:
            where = str(folder / "state" / "index.json")
            raise InputError(f"does not belong to report.json: source {source.name} is missing", where=where)
        keys, influence = read_tensors(folder, entries[source.name], (QUERY_KEYS, QUERY_INFLUENCE))
        names = comparable_keys(keys.numpy())
        table = read_table(folder, source.name, settings_of(run).temperature)
        yield source, Sample(table, names, Estimate(source.scored.nats, names, influence.numpy()))


# A run folder to a baseline: its numbers, and its table of document frequencies and labelled positives.


def collect_baseline(folder: Path) -> tuple[Baseline, dict[str, npt.NDArray[Any]]]:
    """The baseline of a run folder, its table's hash still empty, and the arrays of the table.

    Raises InputError if the folder is incomplete, UsageError for a run at a budget other than 1.
    """
    run = read_run(folder)
    if run.budget != 1.0:
        raise UsageError(
            f"a baseline needs scores at budget 1; this run was ranked at {run.budget:g}",
            where=str(folder),
            remedy=f"score again without {flag_of('budget')}",
        )
    if run.has_rows_elsewhere:
        raise UsageError(
            "a baseline needs the rows of a run; this one was merged from shards",
            where=str(folder),
            remedy=f"score a sample of the queries, such as with {flag_of('max_records', 20_000)}",
        )
    frequencies = read_frequencies(folder, run)
    tables = {"keys": frequencies.keys, "counts": frequencies.counts, **read_positives(folder, run)}
    guide = GUIDE.of(run)
    sources = {source.name: _source(source, sample) for source, sample in folder_samples(folder, run)}
    own = settings_of(run)
    settings = {name: getattr(own, name) for name in (*METHOD_SETTINGS, *RECIPE_FIELDS, "guide_sample")}
    settings |= {name: run.settings[name]["value"] for name in ENCODERS if name in run.settings}
    baseline = Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        secid_version=VERSION,
        encoder=run.encoder,
        idf=run.idf,
        table_sha256="",
        settings=settings,
        sources={name: sources[name] for name in sorted(sources)},
        guide=None if guide is None else guide.encoder.fingerprint,
    )
    return baseline, tables


def write_baseline(baseline: Baseline, arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> Baseline:
    """Writes the table and the document with the table's hash, both or neither. Returns the document."""
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    document = replace(baseline, table_sha256=hashlib.sha256(data).hexdigest())
    write_together({table_path(path): data, path: baseline_to_json(document).encode("utf-8")})
    return document


def read_baseline_table(path: Path, idf: IdfInfo) -> tuple[DocumentFrequencies, Positives]:
    """Document frequencies and labelled positives. Raises InputError if the table is not the baseline's."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
        frequencies, known = DocumentFrequencies(arrays["keys"], arrays["counts"], idf.n_texts), restored(arrays)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise InputError(f"not the table of a baseline: {error}", where=str(path)) from error
    if frequencies.sha256() != idf.sha256:
        raise InputError(
            f"the IDF table has SHA-256 {frequencies.sha256()[:12]}…, the baseline expects {idf.sha256[:12]}…",
            where=str(path),
            remedy="make the baseline again with `secid baseline update RUN`",
        )
    return frequencies, known


def _source(source: SourceReport, sample: Sample) -> BaselineSource:
    low = float(np.quantile(sample.relation(), LOW_POINT))
    n_queries = source.n_queries
    return BaselineSource(
        n_records=source.rows.n_records,
        n_queries=n_queries,
        n_negatives=sample.n_negatives,
        score_nats=source.scored.nats,
        interval_95=source.scored.interval_95,
        standard_error_nats=source.scored.standard_error_nats,
        hardness=_hardness(source),
        findings={
            finding.name: Measurement(
                value=finding.share if finding.positives is None else finding.positives.difference,
                standard_error=(finding.positives or finding).standard_error,
                n_queries=finding.n_queries or n_queries,
            )
            for finding in source.findings
        },
        positives={item.name: item.positives.share for item in source.findings if item.positives is not None},
        unrelated=Tail(bound=low, share=_measurement(sample.unrelated(low))),
        languages={code: share for code, share in source.languages.shares.items() if code},
        schema=source.schema,
        files=file_hashes(source),
    )


def _measurement(estimate: Estimate) -> Measurement:
    return Measurement(value=estimate.value, standard_error=estimate.standard_error, n_queries=len(estimate.queries))


def _hardness(source: SourceReport) -> Measurement | None:
    """With the error that its interval shows; None without either."""
    hardness = source.hardness
    if hardness is None or hardness.interval_95 is None:
        return None
    low, high = hardness.interval_95
    error = (high - low) / (2.0 * reach_95(hardness.n_queries))
    return Measurement(value=hardness.value, standard_error=error, n_queries=hardness.n_queries)


def file_hashes(source: SourceReport) -> dict[str, str]:
    """SHA-256 by file name."""
    return {Path(file.path).name: file.sha256 for file in source.files}


OTHER_GUIDE = "other_guide"
SAME_SCORE = 1e-7
"""A baseline stores nine digits."""


@dataclass(frozen=True)
class GateReference:
    """What sources are judged against. samples: the baseline run's sources, for a paired comparison."""

    baseline: Baseline
    where: str
    policy: Policy
    policy_from: str
    samples: Mapping[str, Sample]
    paired: str | None


def comparable_guide(
    against: GateReference, settings: Settings, encoder: Encoder, progress: Progress
) -> tuple[Guide | None, str]:
    """The guide whose suspects have a limit, or None and the kind of reason why there is none; "" where none is asked.

    It is loaded and scores nothing yet.
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
    """The baseline, the policy, and the run to pair with, which must be comparable."""
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
    """Signs that the baseline was not made from this run: other sources, scores or files."""
    sources = {source.name: source for source in run.sources}
    lines = [f"source {name}: not in this run" for name in baseline.sources if name not in sources]
    lines += [f"source {name}: not in the baseline" for name in sources if name not in baseline.sources]
    for name, known in baseline.sources.items():
        if (source := sources.get(name)) is None:
            continue
        if not isclose(known.score_nats, source.scored.nats, rel_tol=SAME_SCORE, abs_tol=SAME_SCORE):
            lines.append(f"score of {name}: baseline {known.score_nats:.9g}, this run {source.scored.nats:.9g}")
        if known.files != (files := file_hashes(source)):
            changed = sorted(set(known.files.items()) ^ set(files.items()))
            lines.append(f"files of {name}: {', '.join(dict.fromkeys(path for path, _ in changed))}")
    return lines


def judge(
    sources: Iterable[Reader],
    against: GateReference,
    resolved: Resolved,
    progress: Progress,
    encoder: EncoderLike | None = None,
) -> GateVerdict:
    """Scores each source alone in the baseline's pool and judges it by the policy: a verdict depends on no other file.

    sources  : opened.   resolved : from `settings_for`.
    encoder  : an object; by default the one that the settings name.
    Raises SecidError: UsageError with the list of differences if scores are not comparable.
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
                scored = finished(context, read, loaded, background, clock, None)
                with clock.stage("judge"):
                    verdicts.append(source_verdict(scored, read.plan, against, why))
    return GateVerdict(
        schema_version=VERDICT_SCHEMA_VERSION,
        secid_version=VERSION,
        outcome=overall([verdict.outcome for verdict in verdicts]),
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
    """The verdict on the only source of a run. no_guide: why its suspects cannot be checked; "" where they can."""
    (item,) = scored.measured
    (report,) = scored.run.sources
    subject = _subject(item, scored, plan, against, no_guide)
    checks = tuple(all_checks(subject))
    fails = [check for check in checks if check.outcome == "fail"]
    blocking = [check for check in checks if check.holds_up]
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
            **_hardness_missing(scored.run.not_evaluated, item.name),
            **({"suspect": no_guide} if no_guide else {}),
        },
        example=example,
        content=content_of(
            plan.passages.keys[rows.negative], plan.passages.keys[rows.positive], plan.queries.keys[rows.query]
        ),
        left_out=tuple(
            CheckExample(path=row.path, line=row.line, query="", negative="", reason=row.reason, fact=row.fact)
            for row in planned.tally.examples[:EXAMPLES]
        ),
        guide=None if second is None else second.of(item.name),
    )


def _hardness_missing(not_evaluated: Mapping[str, str], name: str) -> dict[str, str]:
    """Why the source has no hardness, which the run says of all sources or of this one."""
    reason = not_evaluated.get(f"hardness of {name}")
    return {} if reason is None else {"hardness": reason}
