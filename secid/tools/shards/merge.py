"""Merge the states of all shards into the report that a single process would give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.analyses.equal_hardness import EQUAL_HARDNESS
from secid.analyses.overlap import OVERLAP, overlap_of
from secid.analyses.ranking import comparisons, probabilities_first, score_interval, tie_letters
from secid.analyses.registry import reordered
from secid.arrays import Floats
from secid.encode.device import gpu_of
from secid.findings.rows import AGAINST_PASSAGES, part_of_total
from secid.findings.status import FLAGGED, readable, status_of
from secid.findings.summary import among_positives, source_finding
from secid.measure.blocks import Vectors
from secid.measure.gates import GateMeans
from secid.measure.information import InformationState, trace
from secid.measure.uncertainty import Influence
from secid.pool import Tally
from secid.pool.collect import EXAMPLES_PER_REASON, place_of
from secid.pool.plan import unassigned_of
from secid.progress import Progress
from secid.results import (
    BudgetPoint,
    Comparison,
    Example,
    InputFile,
    Overlap,
    Proxies,
    Run,
    SourceFinding,
    SourceReport,
    SourceScore,
    TripletExample,
    defects_to_drop,
)
from secid.results.catalogue import BITS, FINDINGS
from secid.results.document import adapter_of
from secid.results.run import Merged
from secid.results.sources import TableNumbers, WithoutFlagged
from secid.scoring.publish import SHOWN_GATES, comparison_warnings, few_query_warnings, repair_of, score_fields
from secid.tools.shards.between import EMPTY_STATE, MergedPairs, MergedScore, ShardPart
from secid.tools.shards.counts import Counts
from secid.tools.shards.shard import ROWS
from secid.tools.shards.state import Arrays, ListedNumbers, ShardNumbers, SourceNumbers, StoredSet, stored_vectors
from secid.tools.shards.store import StateDir
from secid.triplets.estimates import GapMoments, Moments
from secid.triplets.measure_set import Measured, curve_budgets

# Add up the sums of all shards in order, then their influence. One shard is in memory at a time.
# Source: METHOD 2, 8, 11, 14.


@dataclass
class SourceSums:
    """Sums of one source in the first pass.

    parts : numbers of the source in each shard where it has triplets, in order.
    total, sound : sums over all its triplets, and over those without a counted defect.
    priorities : smallest sample hashes of its queries. A query sample takes the queries with the smallest hashes.
    """

    parts: list[SourceNumbers] = field(default_factory=list)
    total: InformationState = EMPTY_STATE
    sound: InformationState = EMPTY_STATE
    priorities: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, part: SourceNumbers, arrays: Arrays, number: int, sample: int) -> None:
        """Add the sums of a shard. number: the source's number in the shard.   sample: number of queries to sample."""
        n, n_sound = part.result.n_triplets, part.result.scored.without_flagged.n_triplets
        self.parts.append(part)
        self.total += InformationState(torch.from_numpy(arrays[f"{number}.total"]), float(n))
        self.sound += InformationState(torch.from_numpy(arrays[f"{number}.sound"]), float(n_sound))
        self.priorities = np.sort(np.append(self.priorities, arrays[f"{number}.priorities"]))[: sample + 1]


class MergedSource:
    """One source, added up over shards.

    parts    : numbers of the source in each shard where it has triplets, in order.
    sound    : score of the triplets without a counted defect; the same object as `score` if none has a defect.
    weights, information : sums over the triplets with each finding, by name; under "" over all triplets.
    keys, per_query : for each shard, the keys of its queries and their influence at the first budget.
    """

    def __init__(self, sums: SourceSums, without_triplets: list[ListedNumbers], device: torch.device | None) -> None:
        n = int(sums.total.n_negatives)
        self.parts, self.without_triplets, self.priorities = sums.parts, without_triplets, sums.priorities
        self.score = self.sound = MergedScore.of(sums.total, curve_budgets(1.0, n), device)
        if sums.sound.n_negatives < n:
            self.sound = MergedScore.of(sums.sound, (1.0,), device)
        self.weights, self.information = defaultdict[str, float](float), defaultdict[str, float](float)
        self.keys: list[npt.NDArray[np.uint8]] = []
        self.per_query: list[Floats] = []

    def n(self, name: str) -> int:
        """Return the sum of a number over all parts. name: attribute of a part, such as "result.n_triplets"."""
        return sum(map(attrgetter(name), self.parts))

    def n_listed(self, name: str) -> int:
        """Return the sum of a number over all shards, including those without a triplet of the source."""
        return self.n(name) + sum(int(getattr(part, name)) for part in self.without_triplets)

    def mean(self, name: str, weight: str = "result.n_triplets") -> float:
        """Return the weighted mean of a number over all parts. name, weight: attributes of a part."""
        return float(np.average([*map(attrgetter(name), self.parts)], weights=[*map(attrgetter(weight), self.parts)]))

    def moments(self) -> dict[str, Moments]:
        """Return the moments of each share, summed over the shards that evaluated it."""
        sums: dict[str, Moments] = {}
        for part in (*self.parts, *self.without_triplets):
            for name, moments in part.moments.items():
                sums[name] = sums[name].plus(moments) if name in sums else moments
        return sums

    def compared(self) -> dict[str, GapMoments]:
        """Return the moments of each formal finding, summed over all shards."""
        first, *others = (part.compared for part in (*self.parts, *self.without_triplets))
        sums = dict(first)
        for other in others:
            sums = {name: moments.plus(other[name]) for name, moments in sums.items()}
        return sums

    def add(self, vectors: Vectors, arrays: Arrays, number: int, distance: float, dtype: torch.dtype) -> Influence:
        """Add the influence of a shard's triplets, and return it. number: the source's number in the shard."""
        stored = StoredSet.of(arrays, number)
        effect = self.score.add(vectors, stored, distance, dtype)
        self.keys.append(arrays[f"{number}.keys"])
        self.per_query.append(effect.per_query[:, 0])
        flags = {"": np.ones(len(stored.weight), np.bool_)}
        flags |= {name: stored.findings >> np.uint32(bit) & np.uint32(1) != 0 for name, bit in BITS.items()}
        for name, inside in flags.items():
            self.weights[name] += float(stored.weight[inside].sum())
            self.information[name] += float(effect.information[inside].sum())
        if self.sound is not self.score and stored.is_sound.any():
            self.sound.add(vectors, stored.sound(), distance, dtype)
        return effect


def merge_states(
    state: StateDir,
    headers: Mapping[str, Mapping[str, Any]],
    sample: int,
    folder: Path,
    device: str,
    dtype: torch.dtype,
    progress: Progress,
) -> tuple[dict[str, MergedSource], MergedPairs, dict[str, Tally]]:
    """Merge the shards of a run. Return the merged sources by name, their comparisons, and their tallies by name.

    headers : headers of the states, in order.   sample : number of queries of each source to sample.
    folder  : an empty folder for downloaded rows.   device, dtype : device and dtype of the influence pass.
    """
    shards = {name: adapter_of(ShardNumbers).validate_python(header["numbers"]) for name, header in headers.items()}
    sums: defaultdict[str, SourceSums] = defaultdict(SourceSums)
    tallies: dict[str, Tally] = {}
    between = MergedPairs(tuple(sorted({part.result.name for state in shards.values() for part in state.sources})))
    progress.start("merge", 2 * len(shards), "shards")
    for numbers, arrays, _ in _shards(state, shards, folder, rows=False):
        for number, part in enumerate(numbers.sources):
            sums[part.result.name].add(part, arrays, number, sample)
        for name, tally in numbers.tallies.items():
            tallies[name] = _added(tallies[name], tally) if name in tallies else tally
        if numbers.sources:
            between.count(ShardPart.of(numbers, arrays, between.names), numbers)
        del arrays  # free the memory before the next shard is read
        progress.advance(1)
    gpu = gpu_of(device)
    without_triplets = {
        name: [s.without_triplets[name] for s in shards.values() if name in s.without_triplets] for name in sums
    }
    wholes = {name: MergedSource(part, without_triplets[name], gpu) for name, part in sums.items()}
    tallies = {name: _added(tallies[name], tallies[unassigned_of(part.parts[0].file)]) for name, part in sums.items()}
    between.settle()
    for numbers, arrays, path in _shards(state, shards, folder, rows=True) if between.members else ():
        if numbers.sources:
            part_of_shard = ShardPart.of(numbers, arrays, between.names)
            between.sum(part_of_shard, stored_vectors(path, numbers.dimension, gpu), dtype)
        del arrays
    between.score(gpu)
    for numbers, arrays, path in _shards(state, shards, folder, rows=True):
        effects = {}
        for number, part in enumerate(numbers.sources):
            vectors = stored_vectors(path, numbers.dimension, gpu)
            name = part.result.name
            effects[name] = wholes[name].add(vectors, arrays, number, numbers.smallest_distance, dtype)
        if effects:
            between.add(ShardPart.of(numbers, arrays, between.names), effects, vectors, dtype)
        del arrays
        progress.advance(1)
    return wholes, between, tallies


def _shards(
    state: StateDir, shards: Mapping[str, ShardNumbers], folder: Path, *, rows: bool
) -> Iterator[tuple[ShardNumbers, Arrays, Path]]:
    for name, numbers in shards.items():
        path = state.file(name, ROWS, folder) if rows and numbers.sources else folder
        yield numbers, state.read(name), path
        if path.is_relative_to(folder) and path != folder:
            path.unlink()


def _added(before: Tally, tally: Tally) -> Tally:
    """Add the tally of one more shard. Keep the first examples of each reason."""
    shown: list[Example] = []
    for example in sorted([*before.examples, *tally.examples], key=place_of):
        if sum(other.reason == example.reason for other in shown) < EXAMPLES_PER_REASON:
            shown.append(example)
    return Tally(
        n_read=before.n_read + tally.n_read,
        n_used=before.n_used + tally.n_used,
        n_records=before.n_records + tally.n_records,
        skipped=dict(sorted((Counter(before.skipped) + Counter(tally.skipped)).items())),
        dropped=dict(sorted((Counter(before.dropped) + Counter(tally.dropped)).items())),
        examples=tuple(shown),
        n_mixed_slices=before.n_mixed_slices + tally.n_mixed_slices,
        n_repeated_rows=before.n_repeated_rows + tally.n_repeated_rows,
    )


# A sample of the queries is scored again. In its report, the merged numbers over all queries replace the sample's.
# Source: METHOD 2, 7, 8, 11, 14.

BUDGET = 1.0
PAIR_WARNINGS = ("few_shared_queries", "own_queries", "traces_compared")
"""Warnings that are computed again from the pairs over all queries."""


def merged_run(
    sample: Run,
    wholes: Mapping[str, MergedSource],
    between: MergedPairs,
    tallies: Mapping[str, Tally],
    files: Mapping[str, InputFile],
    counts: Counts,
    merged: Merged,
    seed: int,
) -> Run:
    """Return the merged run.

    sample : run of the query sample; it has every source.   files : input files by path.
    """
    names, counts_shared = between.names, between.counts
    sets = {between.key_of_all(place): wholes[name].score for place, name in enumerate(names)} | between.sets
    table = {name: sets[between.table_key(place)] for place, name in enumerate(names)}
    pairs = between.pairs(lambda key: sets[key].nats)
    by_score = pairs.order({name: score.nats for name, score in table.items()}, same_queries=counts_shared.one_set)
    order, ranked, analyses = by_score, by_score, sample.analyses
    equal = EQUAL_HARDNESS.of(sample)
    if equal is not None:
        equal = equal.with_gaps(by_score, pairs.gaps)
        order, ranked = equal.listed(by_score), equal.ranked(by_score)
        analyses = {**analyses, EQUAL_HARDNESS.name: equal}
    n_queries = {name: wholes[name].score.n_queries for name in order}
    compared = with_hardness(comparisons(pairs.sorted_by(order), BUDGET), sample.comparisons)
    ranks, ties = {name: rank for rank, name in enumerate(ranked, 1)}, tie_letters(ranked, compared)
    first: dict[str, float] = {}
    if counts_shared.one_set:
        places = between.places(*ranked)
        nats, n = [table[name].nats for name in ranked], [table[name].n_queries for name in ranked]
        chance = probabilities_first(nats, between.covariance[np.ix_(places, places)], n, seed)
        first = dict(zip(ranked, chance.tolist(), strict=True))
    sampled = {source.name: source for source in sample.sources}
    few = {item.source: item for item in few_query_warnings(n_queries)}
    others = [
        few.get(item.source) if item.kind == "few_queries" else item
        for item in sample.warnings
        if item.kind not in PAIR_WARNINGS
    ]
    folder = None if merged.sampled_queries else sample.folder
    return replace(
        sample,
        sources=tuple(
            source_of(
                wholes[name], sampled[name], tallies[name], files, merged, folder, rank=ranks.get(name),
                tie=ties.get(name), probability_first=first.get(name),
                on_shared=on_shared(between, name, sampled[name]),
            )
            for name in order
        ),
        comparisons=compared,
        analyses={
            **{name: value for name, value in reordered(analyses, order).items() if name != "cost"},
            OVERLAP.name: tuple(overlap(a, b, n_queries, between, counts) for a, b in combinations(order, 2)),
        },
        warnings=(*comparison_warnings(pairs, counts_shared), *filter(None, others)),
        merged=merged,
    )  # fmt: skip


def with_hardness(compared: Sequence[Comparison], sample: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return `compared` with the hardness differences that the same pairs have in `sample`."""
    known = {(pair.first, pair.second): pair.hardness for pair in sample}
    negated = {(b, a): gap and gap.negated() for (a, b), gap in known.items()}
    every = known | negated
    return tuple(replace(pair, hardness=every.get((pair.first, pair.second))) for pair in compared)


def on_shared(between: MergedPairs, name: str, sample: SourceReport) -> TableNumbers | None:
    """Return a source's numbers on shared queries; None if the table uses all its queries. Hardness is the sample's."""
    key = between.table_key(*between.places(name))
    if key not in between.sets:
        return None
    score, n = between.sets[key], round(between.sets[key].state.n_negatives)
    error, shared = float(score.standard_errors()[0]), sample.scored.on_shared
    ends = score_interval(score.nats, error, score.n_queries, BUDGET)
    return TableNumbers(
        n_queries=score.n_queries,
        n_triplets=n,
        score=BudgetPoint(budget=BUDGET, nats=score.nats, interval_95=ends, bias_nats=float(score.bias_nats[0])),
        trace=trace(score.state.matrix()),
        hardness=None if shared is None else shared.hardness,
        inversion_fraction=between.n_inverted[key] / n,
    )


def overlap(a: str, b: str, n_queries: Mapping[str, int], between: MergedPairs, counts: Counts) -> Overlap:
    """Return the overlap of two sources."""
    pair = between.places(a, b)
    n_documents = min(counts.shared[name, name] for name in (a, b))
    n_shared = counts.shared.get((min(a, b), max(a, b)), 0)
    n_shared_queries, jaccard = between.counts.of(*pair).n, float(between.jaccard[pair])
    return overlap_of(a, b, n_shared_queries, jaccard, min(n_queries[a], n_queries[b]), n_shared, n_documents)


def source_of(
    whole: MergedSource,
    sample: SourceReport,
    tally: Tally,
    files: Mapping[str, InputFile],
    merged: Merged,
    run: str | None,
    **ranked: Any,
) -> SourceReport:
    """Return the report of one source. Numbers that cannot be added up over shards are those of the sample."""
    score, moments = whole.score, whole.moments()
    findings = tuple(merged_findings(whole, sample, moments, tally))
    unknown = moments["unknown_script"].value if "unknown_script" in moments else None
    status = readable(status_of(findings, whole.n_listed("n_left"), whole.n_listed("n_records")), unknown)
    inputs = tuple(files[file.path] for file in sample.files)
    results = [part.result for part in whole.parts]
    means: dict[str, Any] = {field.name: whole.mean(f"result.score.{field.name}") for field in fields(GateMeans)}
    proxies = {
        name: whole.mean(
            f"result.score.proxies.{name}", "n_groups" if name.endswith("_record") else "result.n_triplets"
        )
        for name in vars(sample.scored.proxies)
    }
    return replace(
        sample,
        status=status,
        n_flagged=moments[FLAGGED].n,
        flagged_share=moments[FLAGGED].value,
        repair=repair_of(run, sample.name, status, defects_to_drop(findings), inputs),
        files=inputs,
        rows=tally.row_counts(tally.n_records),
        n_queries=score.n_queries,
        n_triplets=whole.n("result.n_triplets"),
        findings=findings,
        finding_overlaps=merged_overlaps(whole, sample),
        score=replace(
            sample.scored,
            without_flagged=merged_without_flagged(whole, sample.scored),
            proxies=Proxies(**proxies),
            gate_histograms={
                name: tuple(map(sum, zip(*(result.scored.gate_histograms[name] for result in results), strict=True)))
                for name in SHOWN_GATES
            },
            equal_curve=sample.scored.compared_curve if merged.sampled_queries else sample.scored.equal_curve,
            **score_fields(score.eigen.values, trace(score.state.matrix()), score),
            **means,
            **ranked,
        ),
    )


def merged_without_flagged(whole: MergedSource, sample: SourceScore) -> WithoutFlagged:
    """Return the score of a source without its counted defects. Hardness is that of the sample."""
    sound = whole.sound
    if not sound.state.n_negatives:
        return WithoutFlagged(n_triplets=0, eci_nats=None, interval_95=None, hardness=None)
    return WithoutFlagged(
        n_triplets=int(sound.state.n_negatives),
        eci_nats=sound.nats,
        interval_95=score_interval(sound.nats, float(sound.standard_errors()[0]), sound.n_queries, BUDGET),
        hardness=sample.without_flagged.hardness,
    )


def merged_findings(
    whole: MergedSource, sample: SourceReport, moments: Mapping[str, Moments], tally: Tally
) -> list[SourceFinding]:
    """Return every finding that was evaluated, in the order of the catalogue.

    The examples come from the sample, or from the first shard with examples if the sample has none.
    """
    findings, compared = [], whole.compared()
    for name in FINDINGS:
        stored = sample.finding(name)
        if name in AGAINST_PASSAGES or name not in moments:
            findings += [] if stored is None else [stored]
            continue
        examples = stored.examples if stored is not None and stored.examples else examples_of(whole, name)
        weight, information = (part_of_total(sums[name], sums[""]) for sums in (whole.weights, whole.information))
        share, nats = moments[name], whole.score.nats * information
        finding = source_finding(name, share.n, share, examples, weight, nats)
        positives = among_positives(compared[name]) if name in compared else None
        n_rows = tally.n_repeated_rows if name == "repeat" else None
        findings.append(replace(finding, n_rows=n_rows, positives=positives))
    return findings


def examples_of(whole: MergedSource, name: str) -> tuple[TripletExample, ...]:
    """Return the examples of the first shard that has any; () if no shard has."""
    findings = (part.result.finding(name) for part in whole.parts)
    return next((finding.examples for finding in findings if finding is not None and finding.examples), ())


def merged_overlaps(whole: MergedSource, sample: SourceReport) -> dict[str, dict[str, int]]:
    """Return the number of negatives that have both of two findings, for each pair."""
    overlaps = {first: dict(row) for first, row in sample.finding_overlaps.items()}
    for first, row in overlaps.items():
        for second in row:
            if not {first, second} & AGAINST_PASSAGES:
                parts = (part.result.finding_overlaps for part in whole.parts)
                row[second] = sum(part.get(first, {}).get(second, 0) for part in parts)
    return overlaps


def states_of(
    run: Run, sample: Sequence[Measured], wholes: Mapping[str, MergedSource], between: MergedPairs
) -> tuple[Measured, ...]:
    """Return the state of each source for the run folder, in rank order.

    It has the sums over the queries of the table. If the sample lacks queries, it has the influence of all queries.
    """
    items, states, merged = {item.name: item for item in sample}, [], run.merged
    for name in (source.name for source in run.sources):
        item, whole = items[name], wholes[name]
        table = between.sets.get(between.table_key(*between.places(name)), whole.score)
        state = replace(item, state=table.state)
        if merged is not None and merged.sampled_queries is not None:
            per_query = np.concatenate(whole.per_query)[:, None]
            effect = replace(item.influence, queries=np.arange(len(per_query)), per_query=per_query)
            state = replace(state, query_keys=np.concatenate(whole.keys), influence=effect)
        states.append(state)
    return tuple(states)
