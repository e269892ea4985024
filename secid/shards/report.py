"""The report of a run in shards: that of a sample of the queries, with what was added up over all of them in its place.

Source: METHOD 2, 7, 8, 11, 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from secid.analyses.overlap import overlap_of
from secid.analyses.ranking import chances, comparisons, rank_groups, score_interval
from secid.findings.inspector import fraction
from secid.findings.rows import SAMPLED as OF_SAMPLE
from secid.findings.shares import FLAGGED
from secid.findings.status import readable, status_of
from secid.findings.summary import among_positives, source_finding
from secid.measure.information import trace
from secid.measure.summary import GateMeans
from secid.pool import Tally
from secid.results import (
    InputFile,
    Overlap,
    Proxies,
    Run,
    SourceFinding,
    SourceResult,
    TripletExample,
    defects_to_drop,
)
from secid.results.catalogue import FINDINGS
from secid.results.run import Merged
from secid.results.sources import WithoutFlagged
from secid.scoring.publish import SHOWN_GATES, repair_of, score_fields
from secid.scoring.run import by_rank
from secid.scoring.warnings import few_queries, unpaired
from secid.shards.counts import Counts
from secid.shards.merge import Between, Whole
from secid.triplets.estimates import Moments
from secid.triplets.measured import Measured

BUDGET = 1.0


def in_rank_order(wholes: Mapping[str, Whole]) -> list[str]:
    """Names of the sources, the highest score first."""
    return sorted(wholes, key=lambda name: (-wholes[name].score.nats, name))


def report(
    sample: Run,
    wholes: Mapping[str, Whole],
    between: Between,
    tallies: Mapping[str, Tally],
    files: Mapping[str, InputFile],
    counts: Counts,
    merged: Merged,
    seed: int,
) -> Run:
    """The run of the whole. sample: the run of the sample, which has every source.   files: by path."""
    order = in_rank_order(wholes)
    nats = {name: wholes[name].score.nats for name in order}
    n_queries = {name: wholes[name].score.n_queries for name in order}
    pairs = list(combinations(order, 2))
    gaps = [between.gap(a, b, nats[a] - nats[b], min(n_queries[a], n_queries[b])) for a, b in pairs]
    compared = comparisons(pairs, gaps, BUDGET)
    groups = rank_groups(order, compared)
    places = between.places(*order)
    first = chances([*nats.values()], between.covariance[np.ix_(places, places)], n_queries.values(), seed)
    of_sample = {source.name: source for source in sample.sources}
    few = {item.source: item for item in few_queries(n_queries)}
    others = [
        few.get(item.source) if item.kind == "few_queries" else item
        for item in sample.warnings
        if item.kind != "few_shared_queries"
    ]
    folder = None if merged.sampled_queries else sample.folder
    return replace(
        sample,
        sources=tuple(
            source_of(
                wholes[name], of_sample[name], tallies[name], files, merged, folder,
                rank=rank, rank_group=groups[name], probability_first=float(chance),
            )
            for rank, (name, chance) in enumerate(zip(order, first, strict=True), 1)
        ),
        comparisons=compared,
        overlaps=tuple(overlap(a, b, n_queries, between, counts) for a, b in pairs),
        **by_rank(order, sample.separation, sample.in_batch, sample.objectives),
        warnings=(*unpaired(compared, n_queries), *filter(None, others)),
        merged=merged,
    )  # fmt: skip


def overlap(a: str, b: str, n_queries: Mapping[str, int], between: Between, counts: Counts) -> Overlap:
    """What two sources share."""
    pair = between.places(a, b)
    n_documents = min(counts.shared[name, name] for name in (a, b))
    n_shared = counts.shared.get((min(a, b), max(a, b)), 0)
    n_shared_queries, jaccard = int(between.n_shared[pair]), float(between.jaccard[pair])
    return overlap_of(a, b, n_shared_queries, jaccard, min(n_queries[a], n_queries[b]), n_shared, n_documents)


def source_of(
    whole: Whole,
    sample: SourceResult,
    tally: Tally,
    files: Mapping[str, InputFile],
    merged: Merged,
    run: str | None,
    **ranked: Any,
) -> SourceResult:
    """One source. What is not added up stays the sample's."""
    score, moments = whole.score, whole.moments()
    findings = tuple(findings_of(whole, sample, moments, tally))
    unknown = moments["unknown_script"].value if "unknown_script" in moments else None
    status = readable(status_of(findings, whole.n_listed("n_left"), whole.n_listed("n_records")), unknown)
    inputs = tuple(files[file.path] for file in sample.paths)
    results = [part.result for part in whole.parts]
    means: dict[str, Any] = {field.name: whole.mean(f"result.{field.name}") for field in fields(GateMeans)}
    proxies = {
        name: whole.mean(f"result.proxies.{name}", "n_groups" if name.endswith("_record") else "result.n_triplets")
        for name in vars(sample.proxies)
    }
    return replace(
        sample,
        **ranked,
        status=status,
        n_flagged=moments[FLAGGED].n,
        flagged_share=moments[FLAGGED].value,
        repair=repair_of(run, sample.name, status, defects_to_drop(findings), inputs),
        without_flagged=without_flagged(whole, sample),
        paths=inputs,
        n_read=tally.n_read,
        n_used=tally.n_used,
        n_records=tally.n_records,
        n_not_sampled=0,
        skipped=tally.skipped,
        dropped_negatives=tally.dropped,
        examples=tally.examples,
        equal_curve=sample.compared_curve if merged.sampled_queries else sample.equal_curve,
        findings=findings,
        finding_overlaps=overlaps_of(whole, sample),
        proxies=Proxies(**proxies),
        gate_histograms={
            name: tuple(map(sum, zip(*(result.gate_histograms[name] for result in results), strict=True)))
            for name in SHOWN_GATES
        },
        n_triplets=whole.n("result.n_triplets"),
        **score_fields(score.eigen.values, trace(score.state.matrix()), score),
        **means,
    )


def without_flagged(whole: Whole, sample: SourceResult) -> WithoutFlagged:
    """The source without its counted defects; its hardness is the sample's."""
    sound = whole.sound
    if not sound.state.n_negatives:
        return WithoutFlagged(n_triplets=0, eci_nats=None, interval_95=None, hardness=None)
    return WithoutFlagged(
        n_triplets=int(sound.state.n_negatives),
        eci_nats=sound.nats,
        interval_95=score_interval(sound.nats, float(sound.standard_errors()[0]), sound.n_queries, BUDGET),
        hardness=sample.without_flagged.hardness,
    )


def findings_of(
    whole: Whole, sample: SourceResult, moments: Mapping[str, Moments], tally: Tally
) -> list[SourceFinding]:
    """Every finding that was evaluated, in the order of the catalogue. Examples are the sample's where it has any."""
    findings, compared = [], whole.compared()
    for name in FINDINGS:
        own = sample.finding(name)
        if name in OF_SAMPLE or name not in moments:
            findings += [] if own is None else [own]
            continue
        examples = own.examples if own is not None and own.examples else examples_of(whole, name)
        weight, information = (fraction(sums[name], sums[""]) for sums in (whole.weights, whole.information))
        share, nats = moments[name], whole.score.nats * information
        finding = source_finding(name, share.n, share, examples, weight, nats)
        positives = among_positives(compared[name]) if name in compared else None
        n_rows = tally.n_repeated_rows if name == "repeat" else None
        findings.append(replace(finding, n_rows=n_rows, positives=positives))
    return findings


def examples_of(whole: Whole, name: str) -> tuple[TripletExample, ...]:
    """Those of the first shard that has any."""
    findings = (part.result.finding(name) for part in whole.parts)
    return next((finding.examples for finding in findings if finding is not None and finding.examples), ())


def overlaps_of(whole: Whole, sample: SourceResult) -> dict[str, dict[str, int]]:
    """How many negatives have two findings at once."""
    overlaps = {first: dict(row) for first, row in sample.finding_overlaps.items()}
    for first, row in overlaps.items():
        for second in row:
            if not {first, second} & OF_SAMPLE:
                parts = (part.result.finding_overlaps for part in whole.parts)
                row[second] = sum(part.get(first, {}).get(second, 0) for part in parts)
    return overlaps


def states_of(sample: Sequence[Measured], wholes: Mapping[str, Whole], merged: Merged) -> tuple[Measured, ...]:
    """What the run folder keeps of each source, in rank order: the whole's sum, and where the sample is not all of the
    queries the whole's influences.
    """
    items, states = {item.name: item for item in sample}, []
    for name in in_rank_order(wholes):
        item, whole = items[name], wholes[name]
        own = replace(item, state=whole.score.state)
        if merged.sampled_queries is not None:
            per_query = np.concatenate(whole.per_query)[:, None]
            effect = replace(item.influence, queries=np.arange(len(per_query)), per_query=per_query)
            own = replace(own, query_keys=np.concatenate(whole.keys), influence=effect)
        states.append(own)
    return tuple(states)
