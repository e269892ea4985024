"""The report of a run in shards: that of a sample of the queries, with what was added up over all of them in its place.

Source: METHOD 2, 7, 8, 11, 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from secid.analyses.ranking import comparisons, rank_groups
from secid.findings.rows import SAMPLED as OF_SAMPLE
from secid.findings.shares import FLAGGED
from secid.findings.status import defects_of, status_of
from secid.measure.information import spectral_nats, trace
from secid.measure.interval import FEWEST_QUERIES
from secid.measure.spectrum import spectrum
from secid.measure.uncertainty import probability_first
from secid.pool import Tally
from secid.results import BudgetPoint, InputFile, Overlap, Proxies, Run, SourceFinding, SourceResult, TripletExample
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.commands import no_command, repair_command
from secid.results.document import adapter_of
from secid.results.run import Merged
from secid.results.sources import WithoutFlagged
from secid.scoring.publish import SHOWN_GATES
from secid.scoring.run import in_order
from secid.scoring.warnings import few_queries, unpaired
from secid.shards.counts import Counts
from secid.shards.merge import Between, Whole
from secid.shards.state import MEANS
from secid.triplets.estimates import interval, share_interval
from secid.triplets.measured import Measured

BUDGET = 1.0


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
    nats = {name: spectral_nats(values_of(whole)) for name, whole in wholes.items()}
    order = sorted(wholes, key=lambda name: (-nats[name], name))
    n_queries = {name: wholes[name].n("n_queries") for name in order}
    pairs = list(combinations(order, 2))
    gaps = [between.gap(a, b, nats[a] - nats[b], min(n_queries[a], n_queries[b])) for a, b in pairs]
    compared = comparisons(pairs, gaps, BUDGET)
    groups = rank_groups(order, compared)
    chances = _chances(order, nats, n_queries, between, seed)
    of_sample = {source.name: source for source in sample.sources}
    place = {name: rank for rank, name in enumerate(order)}
    few = {item.source: item for item in few_queries(n_queries)}
    others = [
        few.get(item.source) if item.kind == "few_queries" else item
        for item in sample.warnings
        if item.kind != "few_shared_queries"
    ]
    lens = sample.objectives
    return replace(
        sample,
        sources=tuple(
            source_of(
                wholes[name], of_sample[name], tallies[name], files, merged, sample.folder,
                rank=rank, rank_group=groups[name], probability_first=chances[name],
            )
            for rank, name in enumerate(order, 1)
        ),
        comparisons=compared,
        overlaps=tuple(overlap_of(a, b, n_queries, between, counts) for a, b in pairs),
        separation=in_order(sample.separation, place),
        in_batch=in_order(sample.in_batch, place),
        objectives=None
        if lens is None
        else replace(
            lens,
            objectives=in_order(lens.objectives, place),
            sizes=in_order(lens.sizes, place),
            narrowing=in_order(lens.narrowing, place),
        ),
        warnings=(*unpaired(compared, n_queries), *filter(None, others)),
        merged=merged,
    )  # fmt: skip


def values_of(whole: Whole) -> Any:
    """Eigenvalues of M."""
    assert whole.eigen is not None
    return whole.eigen.values


def _chances(
    order: Sequence[str], nats: Mapping[str, float], n_queries: Mapping[str, int], between: Between, seed: int
) -> dict[str, float]:
    if min(n_queries.values()) < FEWEST_QUERIES:
        return dict.fromkeys(order, 1.0 / len(order))
    places = [between.names.index(name) for name in order]
    scores = np.array([nats[name] for name in order])
    chances = probability_first(scores, between.covariance[np.ix_(places, places)], seed)
    return dict(zip(order, map(float, chances), strict=True))


def overlap_of(a: str, b: str, n_queries: Mapping[str, int], between: Between, counts: Counts) -> Overlap:
    """What two sources share."""
    low, high = sorted((a, b))
    n, jaccard = between.jaccard.get((low, high), (0, 0.0))
    own = min(counts.shared[name, name] for name in (a, b))
    return Overlap(
        first=a,
        second=b,
        shared_query_fraction=n / min(n_queries[a], n_queries[b]),
        negative_jaccard_mean=jaccard / n if n else None,
        shared_document_fraction=counts.shared[low, high] / own,
    )


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
    assert whole.total is not None
    values, n_queries = values_of(whole), whole.n("n_queries")
    means: dict[str, Any] = {name: whole.mean("means", name) for name in MEANS}
    points = [
        BudgetPoint(
            budget=budget,
            nats=(nats := spectral_nats(values, budget)),
            interval_95=interval(nats, float(np.sqrt(square)), n_queries, (0.0, budget)),
            bias_nats=float(bias),
        )
        for budget, square, bias in zip(whole.budgets, whole.squares, whole.bias, strict=True)
    ]
    score = points[0]
    moments = whole.moments()
    shares = {name: moments[name].value for name in DEFECTS}
    status = status_of(shares, whole.n("n_left"), whole.n("n_records"))
    flagged, inputs = moments[FLAGGED], tuple(files[file.path] for file in sample.paths)
    repairs = status == "repair" and merged.sampled_queries is None
    repairs = repairs and not no_command(sample.name, read_once=any(file.read_once for file in inputs))
    return replace(
        sample,
        **ranked,
        status=status,
        n_flagged=flagged.n,
        flagged_share=flagged.value,
        repair=repair_command(run, sample.name, defects_of(shares), inputs[0].path) if repairs else None,
        without_flagged=without_flagged(whole, sample, score),
        paths=inputs,
        n_read=tally.n_read,
        n_used=tally.n_used,
        n_records=tally.n_records,
        n_not_sampled=0,
        skipped=tally.skipped,
        dropped_negatives=tally.dropped,
        examples=tally.examples,
        equal_curve=sample.compared_curve if merged.sampled_queries else sample.equal_curve,
        findings=tuple(findings_of(whole, sample, moments, score.nats, tally)),
        finding_overlaps=overlaps_of(whole, sample),
        proxies=Proxies(
            **{
                name: whole.mean("proxies", name, "n_groups" if name.endswith("_record") else "n_triplets")
                for name in vars(sample.proxies)
            }
        ),
        gate_histograms={
            name: tuple(map(sum, zip(*(header["histograms"][name] for header in whole.headers), strict=True)))
            for name in SHOWN_GATES
        },
        n_queries=n_queries,
        n_triplets=whole.n("n_triplets"),
        eci_nats=score.nats,
        eci_per_dimension=score.nats / len(values),
        standard_error_nats=whole.error,
        interval_95=score.interval_95,
        bias_nats=score.bias_nats,
        trace=trace(whole.total.matrix()),
        **vars(spectrum(values)),
        budget_curve=tuple(sorted(points, key=lambda point: point.budget)),
        **means,
    )


def without_flagged(whole: Whole, sample: SourceResult, score: BudgetPoint) -> WithoutFlagged:
    """The source without its counted defects; its hardness is the sample's."""
    n_sound, hardness = whole.n("n_sound"), sample.without_flagged.hardness
    if n_sound == whole.n("n_triplets"):
        return WithoutFlagged(n_triplets=n_sound, eci_nats=score.nats, interval_95=score.interval_95, hardness=hardness)
    if whole.eigen_sound is None:
        return WithoutFlagged(n_triplets=0, eci_nats=None, interval_95=None, hardness=None)
    nats = spectral_nats(whole.eigen_sound.values)
    error = float(np.sqrt(whole.square_sound))
    return WithoutFlagged(
        n_triplets=n_sound,
        eci_nats=nats,
        interval_95=interval(nats, error, whole.n_queries_sound, (0.0, BUDGET)),
        hardness=hardness,
    )


def findings_of(
    whole: Whole, sample: SourceResult, moments: Mapping[str, Any], nats: float, tally: Tally
) -> list[SourceFinding]:
    """Every finding that was evaluated, in the order of the catalogue. Examples are the sample's where it has any."""
    of_sample = {finding.name: finding for finding in sample.findings}
    found = []
    for name in FINDINGS:
        own = of_sample.get(name)
        if name in OF_SAMPLE or name not in moments:
            found += [] if own is None else [own]
            continue
        share = moments[name]
        found.append(
            SourceFinding(
                name=name,
                n_negatives=share.n,
                share=share.value,
                interval_95=share_interval(share),
                standard_error=share.standard_error,
                weight_fraction=_fraction(whole.weights, name),
                score_nats=nats * _fraction(whole.information, name),
                n_queries=share.n_queries,
                n_rows=tally.n_repeated_rows if name == "repeat" else None,
                examples=own.examples if own is not None and own.examples else examples_of(whole, name),
            )
        )
    return found


def _fraction(amounts: Mapping[str, float], name: str) -> float:
    return amounts[name] / amounts[""] if amounts[""] > 0 else 0.0


def examples_of(whole: Whole, name: str) -> tuple[TripletExample, ...]:
    """Those of the first shard that has any."""
    some: Sequence[Mapping[str, Any]] = next(
        (header["examples"][name] for header in whole.headers if header["examples"].get(name)), []
    )
    return tuple(adapter_of(TripletExample).validate_python(example) for example in some)


def overlaps_of(whole: Whole, sample: SourceResult) -> dict[str, dict[str, int]]:
    """How many negatives have two findings at once."""
    overlaps = {first: dict(row) for first, row in sample.finding_overlaps.items()}
    for first, row in overlaps.items():
        for second in row:
            if not {first, second} & OF_SAMPLE:
                row[second] = sum(header["overlaps"].get(first, {}).get(second, 0) for header in whole.headers)
    return overlaps


def states_of(sample: Sequence[Measured], wholes: Mapping[str, Whole], merged: Merged) -> tuple[Measured, ...]:
    """What the run folder keeps of each source, in rank order: the whole's sum, and where the sample is not all of the
    queries the whole's influences.
    """
    states = []
    for item in sample:
        whole = wholes[item.name]
        assert whole.total is not None
        own = replace(item, state=whole.total)
        if merged.sampled_queries is not None:
            per_query = np.concatenate(whole.per_query)[:, None]
            effect = replace(item.influence, queries=np.arange(len(per_query)), per_query=per_query)
            own = replace(own, query_keys=np.concatenate(whole.keys), influence=effect)
        states.append(own)
    return tuple(sorted(states, key=lambda item: (-spectral_nats(values_of(wholes[item.name])), item.name)))
