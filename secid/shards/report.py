"""The report of a run in shards: that of a sample of the queries, with what was added up over all of them in its place.

Source: METHOD 2, 7, 8, 11, 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from secid.analyses.overlap import OVERLAP, overlap_of
from secid.analyses.ranking import chances, comparisons, score_interval, tie_groups
from secid.analyses.registry import reordered
from secid.findings.inspector import fraction
from secid.findings.rows import SAMPLED as OF_SAMPLE
from secid.findings.shares import FLAGGED
from secid.findings.status import readable, status_of
from secid.findings.summary import among_positives, source_finding
from secid.measure.information import trace
from secid.measure.summary import GateMeans
from secid.pool import Tally
from secid.results import (
    BudgetPoint,
    Comparison,
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
from secid.results.sources import TableNumbers, WithoutFlagged
from secid.scoring.publish import SHOWN_GATES, repair_of, score_fields
from secid.scoring.warnings import few_queries, unlike
from secid.shards.between import Between
from secid.shards.counts import Counts
from secid.shards.merge import Whole
from secid.triplets.estimates import Moments
from secid.triplets.measured import Measured

BUDGET = 1.0
OF_PAIRS = ("few_shared_queries", "own_queries", "traces_compared")
"""Warnings that are made again from the pairs of the whole run."""


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
    """Return the run of the whole. sample : the run of the sample, which has every source.   files : by path."""
    names, counts_shared = between.names, between.counts
    sets = {between.whole(place): wholes[name].score for place, name in enumerate(names)} | between.sets
    table = {name: sets[between.in_table(place)] for place, name in enumerate(names)}
    pairs = between.pairs(lambda key: sets[key].nats)
    order = pairs.order({name: score.nats for name, score in table.items()}, same_queries=counts_shared.one_set)
    n_queries = {name: wholes[name].score.n_queries for name in order}
    compared = with_hardness(comparisons(pairs.in_order(order), BUDGET), sample.comparisons)
    groups = tie_groups(order, compared)
    first: list[float | None] = [None] * len(order)
    if counts_shared.one_set:
        places = between.places(*order)
        nats, n = [table[name].nats for name in order], [table[name].n_queries for name in order]
        first = chances(nats, between.covariance[np.ix_(places, places)], n, seed).tolist()
    of_sample = {source.name: source for source in sample.sources}
    few = {item.source: item for item in few_queries(n_queries)}
    others = [
        few.get(item.source) if item.kind == "few_queries" else item
        for item in sample.warnings
        if item.kind not in OF_PAIRS
    ]
    folder = None if merged.sampled_queries else sample.folder
    settings = {name: entry["value"] for name, entry in sample.settings.items()}
    return replace(
        sample,
        sources=tuple(
            source_of(
                wholes[name], of_sample[name], tallies[name], files, merged, folder, settings,
                rank=rank, rank_group=groups[name], probability_first=chance,
                on_shared=on_shared(between, name, of_sample[name]),
            )
            for rank, (name, chance) in enumerate(zip(order, first, strict=True), 1)
        ),
        comparisons=compared,
        analyses={
            **reordered(sample.analyses, order),
            OVERLAP.name: tuple(overlap(a, b, n_queries, between, counts) for a, b in combinations(order, 2)),
        },
        warnings=(*unlike(pairs, counts_shared), *filter(None, others)),
        merged=merged,
    )  # fmt: skip


def with_hardness(compared: Sequence[Comparison], sample: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Take the differences of hardness from the sample's pairs."""
    known = {(pair.first, pair.second): pair.hardness for pair in sample}
    turned = {(b, a): own and own.turned() for (a, b), own in known.items()}
    every = known | turned
    return tuple(replace(pair, hardness=every.get((pair.first, pair.second))) for pair in compared)


def on_shared(between: Between, name: str, sample: SourceResult) -> TableNumbers | None:
    """Return a source's columns of the table, None if they use all its queries. The hardness is the sample's."""
    key = between.in_table(*between.places(name))
    if key not in between.sets:
        return None
    score, n = between.sets[key], round(between.sets[key].state.n_negatives)
    error, own = float(score.standard_errors()[0]), sample.on_shared
    ends = score_interval(score.nats, error, score.n_queries, BUDGET)
    return TableNumbers(
        n_queries=score.n_queries,
        n_triplets=n,
        score=BudgetPoint(budget=BUDGET, nats=score.nats, interval_95=ends, bias_nats=float(score.bias_nats[0])),
        trace=trace(score.state.matrix()),
        hardness=None if own is None else own.hardness,
        hardness_interval_95=None if own is None else own.hardness_interval_95,
        inversion_fraction=between.n_inverted[key] / n,
    )


def overlap(a: str, b: str, n_queries: Mapping[str, int], between: Between, counts: Counts) -> Overlap:
    """Return what two sources share."""
    pair = between.places(a, b)
    n_documents = min(counts.shared[name, name] for name in (a, b))
    n_shared = counts.shared.get((min(a, b), max(a, b)), 0)
    n_shared_queries, jaccard = between.counts.of(*pair).n, float(between.jaccard[pair])
    return overlap_of(a, b, n_shared_queries, jaccard, min(n_queries[a], n_queries[b]), n_shared, n_documents)


def source_of(
    whole: Whole,
    sample: SourceResult,
    tally: Tally,
    files: Mapping[str, InputFile],
    merged: Merged,
    run: str | None,
    settings: Mapping[str, Any],
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
        repair=repair_of(run, sample.name, status, defects_to_drop(findings), inputs, settings),
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


def states_of(
    run: Run, sample: Sequence[Measured], wholes: Mapping[str, Whole], between: Between
) -> tuple[Measured, ...]:
    """Return what the run folder keeps of each source, in rank order.

    That is the sum over the table's queries, and the influence of all queries if the sample lacks some.
    """
    items, states, merged = {item.name: item for item in sample}, [], run.merged
    for name in (source.name for source in run.sources):
        item, whole = items[name], wholes[name]
        table = between.sets.get(between.in_table(*between.places(name)), whole.score)
        own = replace(item, state=table.state)
        if merged is not None and merged.sampled_queries is not None:
            per_query = np.concatenate(whole.per_query)[:, None]
            effect = replace(item.influence, queries=np.arange(len(per_query)), per_query=per_query)
            own = replace(own, query_keys=np.concatenate(whole.keys), influence=effect)
        states.append(own)
    return tuple(states)
