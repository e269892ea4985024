"""What is wrong with each source, by rule, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from secid.report.foreign import named, plain
from secid.report.numerals import count, listed, percent, plural
from secid.results import Bucket, Run, SourceResult

NOTICED_DEFECT = 0.01
"""Share of negatives from which a structural defect is told: one in a hundred is no accident."""
NOTICED_INVERSIONS = 0.2
"""Share of inversions from which they are told; the mined sources we measured have 1 to 15 %."""
NOTICED_TRUNCATED = 0.1
NOTICED_SKIPPED = 0.01
NOTICED_OVERLAP = 0.9
"""Mean Jaccard overlap from which two sources count as one."""

REMEDIES = {
    "equals_positive": "remove them: training would push relevant passages away",
    "near_copy": "remove them, or check that the copies are not relevant",
    "duplicate_negative": "remove repeats: they take a place and add nothing",
    "truncated": "raise the maximum length, or split long passages: the encoder did not see their ends",
    "query_without_tokens": "look at these queries: their coverage gate is blind",
}
TELLS = {
    "equals_positive": "are labelled positives of their query",
    "near_copy": "are near copies of the positive",
    "duplicate_negative": "stand more than once in their record",
    "truncated": "are longer than the encoder reads",
    "query_without_tokens": "belong to a query without words",
}


@dataclass(frozen=True, order=True)
class Finding:
    """One finding. urgency: 0 is told first; among equals the larger share comes first.

    text is a clause with its numbers, remedy what to do, both without a full stop.
    """

    urgency: int
    minus_share: float
    source: str
    kind: str
    text: str
    remedy: str


def findings(run: Run) -> list[Finding]:
    """All findings of a run, the worst first; the leader's before another's where both are as bad."""
    found = [item for source in run.sources for item in of_source(source)]
    return sorted([*found, *_unstable(run), *_same(run)])


def of_source(source: SourceResult) -> list[Finding]:
    """Findings of one source, the worst first."""
    found = [item for bucket in source.buckets if (item := _defect(source, bucket)) is not None]
    if source.inversion_fraction >= NOTICED_INVERSIONS:
        found.append(
            Finding(
                2,
                -source.inversion_fraction,
                source.name,
                "inversion",
                f"{percent(source.inversion_fraction)} of the negatives of {named(source.name)} outscore the positive",
                (
                    "read the examples: false negatives must go, true ones are what training would correct, and "
                    "this score ignores both"
                ),
            )
        )
    n_skipped = sum(source.skipped.values())
    if source.n_read and n_skipped / source.n_read >= NOTICED_SKIPPED:
        reasons = [plain(reason.replace("_", " ")) for reason in source.skipped]
        found.append(
            Finding(
                3,
                -n_skipped / source.n_read,
                source.name,
                "skipped",
                (
                    f"{plural(n_skipped, 'row')} of {count(source.n_read)} of {named(source.name)} were left out "
                    f"({listed(reasons)})"
                ),
                "mend the file, or be sure that what is left still stands for the source",
            )
        )
    return sorted(found)


URGENCY = {"equals_positive": 0, "near_copy": 0, "truncated": 3, "duplicate_negative": 3, "query_without_tokens": 3}


def _defect(source: SourceResult, bucket: Bucket) -> Finding | None:
    limit = NOTICED_TRUNCATED if bucket.name == "truncated" else NOTICED_DEFECT
    if bucket.name not in TELLS or not bucket.fraction >= limit:
        return None
    return Finding(
        URGENCY[bucket.name],
        -bucket.fraction,
        source.name,
        bucket.name,
        f"{count(bucket.n_triplets)} of {plural(source.n_triplets, 'negative')} of {named(source.name)} "
        f"({percent(bucket.fraction)}) {TELLS[bucket.name]}",
        REMEDIES[bucket.name],
    )


def _unstable(run: Run) -> list[Finding]:
    """The leader's place changes with a setting, or under other weights.

    Samples are left out: intervals speak of those. Other weights are other numbers, so they are told later.
    """
    if not run.sources:
        return []
    leader, found = run.sources[0].name, []
    for is_weight, urgency in ((False, 1), (True, 2)):
        settings, others = [], set()
        for ablation in run.ablations:
            if ablation.name == "sample" or (ablation.name == "weight") is not is_weight:
                continue
            for row in ablation.rows:
                swapped = {name for pair in row.swapped if leader in pair for name in pair} - {leader}
                if swapped:
                    settings.append(plain(f"{ablation.name} {row.setting}"))
                    others |= swapped
        if settings:
            text = (
                f"{named(leader)} changes places with {listed([named(name) for name in sorted(others)])} at "
                f"{listed(settings)}"
            )
            found.append(
                Finding(urgency, -1.0, leader, "weight" if is_weight else "unstable", text, UNSTABLE[is_weight])
            )
    return found


UNSTABLE = {
    False: "do not choose by this rank unless you know which setting is right",
    True: "which weight foretells retrieval is not established, so the rank rests on a choice",
}


def _same(run: Run) -> list[Finding]:
    return [
        Finding(
            2,
            -overlap.negative_jaccard_mean,
            overlap.first,
            "same",
            (
                f"{named(overlap.first)} and {named(overlap.second)} share {percent(overlap.negative_jaccard_mean)} "
                f"of their negatives"
            ),
            "treat them as one source",
        )
        for overlap in run.overlaps
        if overlap.negative_jaccard_mean is not None and overlap.negative_jaccard_mean >= NOTICED_OVERLAP
    ]
