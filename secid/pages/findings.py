"""What is wrong with each source, by rule, and what to do about it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from secid.pages.ablation_summary import SHOWN_SETTINGS, open_pairs, pairs_by_setting
from secid.pages.glossary import in_plain_words
from secid.pages.numbers import count, fraction, listed, percent, plural
from secid.pages.sanitize import named
from secid.results import Bucket, Overlap, Run, SourceResult

NOTICED_DEFECT = 0.01
"""Share of negatives from which a structural defect is told: one in a hundred is no accident."""
NOTICED_INVERSIONS = 0.2
"""Share of inversions from which they are told; the mined sources we measured have 1 to 15 %."""
NOTICED_TRUNCATED = 0.1
NOTICED_SKIPPED = 0.01
SHOWN_NAMES = 2
NOTICED_OVERLAP = 0.9
"""Mean Jaccard overlap of negatives, and shares of the smaller one's queries and documents, from which two sources
count as one."""


def limits() -> str:
    """From where on findings are told, as a sentence without a full stop."""
    return (
        f"a finding is told from these shares of a source on: {percent(NOTICED_DEFECT)} of its negatives that are "
        "labelled positives, near copies, repeats, or of a query without words; "
        f"{percent(NOTICED_TRUNCATED)} truncated; {percent(NOTICED_INVERSIONS)} inversions; "
        f"{percent(NOTICED_SKIPPED)} of its rows left out; and of two sources from an overlap of "
        f"{fraction(NOTICED_OVERLAP)} in negatives, queries and documents"
    )


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

    text is a clause with its numbers, remedy what to do and, after a colon, why, both without a full stop. short_text:
    the text without its details, where it has some. others: further sources that it concerns.
    """

    urgency: int
    minus_share: float
    source: str
    kind: str
    text: str
    remedy: str
    others: tuple[str, ...] = ()
    short_text: str = ""

    @property
    def brief(self) -> str:
        """The finding and what to do, without the reason."""
        return f"{self.short_text or self.text}; {self.remedy.split(':')[0]}"


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
        reasons = [in_plain_words(reason) for reason in source.skipped]
        found.append(
            Finding(
                3,
                -n_skipped / source.n_read,
                source.name,
                "skipped",
                (
                    f"{plural(n_skipped, 'row')} of {count(source.n_read)} of {named(source.name)} "
                    f"{'was' if n_skipped == 1 else 'were'} left out ({listed(reasons)})"
                ),
                "mend the file: what is left may not stand for the source",
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
    rivals = frozenset(name for pair in open_pairs(run) if leader in pair for name in pair)
    for is_weight, urgency in ((False, 1), (True, 2)):
        kept = [item for item in run.ablations if item.name != "sample" and (item.name == "weight") is is_weight]
        met = {
            first if second == leader else second: settings
            for (first, second), settings in pairs_by_setting(kept).items()
            if leader in (first, second)
        }
        if met:
            text = f"{named(leader)} changes places with {_by_settings(met, rivals, is_weight)}"
            others = listed([named(name) for name in met], SHOWN_NAMES)
            brief = f"{named(leader)} changes places with {others} under other {'weights' if is_weight else 'settings'}"
            kind = "weight" if is_weight else "unstable"
            found.append(Finding(urgency, -1.0, leader, kind, text, UNSTABLE[is_weight], short_text=brief))
    return found


def _by_settings(met: Mapping[str, Sequence[str]], rivals: Container[str], is_weight: bool) -> str:
    """Sources with the settings at which the leader met them; those of the same settings together.

    rivals: sources whose order with the leader is open without any other setting.
    """
    place = "under the weights " if is_weight else "at "
    alike: dict[tuple[str, str], list[str]] = {}
    for name, settings in met.items():
        remark = "; order open" if name in rivals else ""
        own = [item.removeprefix("weight ") if is_weight else item for item in settings]
        alike.setdefault((listed(own, SHOWN_SETTINGS), remark), []).append(named(name))
    return listed([f"{listed(names)} ({place}{settings}{remark})" for (settings, remark), names in alike.items()])


UNSTABLE = {
    False: "choose by this rank only if you know the right setting",
    True: "no weight is known to foretell retrieval: the rank rests on a choice",
}


def _same(run: Run) -> list[Finding]:
    return [
        Finding(
            2,
            -overlap.negative_jaccard_mean,
            overlap.first,
            "same",
            (
                f"{_nearly(overlap)} (mean Jaccard {fraction(overlap.negative_jaccard_mean)}; shared are "
                f"{percent(overlap.shared_query_fraction)} of the smaller one's queries and "
                f"{percent(overlap.shared_document_fraction)} of its documents)"
            ),
            "treat them as one source",
            (overlap.second,),
            f"{_nearly(overlap)} (mean Jaccard {fraction(overlap.negative_jaccard_mean)})",
        )
        for overlap in run.overlaps
        if overlap.negative_jaccard_mean is not None
        and overlap.negative_jaccard_mean >= NOTICED_OVERLAP
        and overlap.shared_query_fraction >= NOTICED_OVERLAP
        and overlap.shared_document_fraction >= NOTICED_OVERLAP
    ]


def _nearly(overlap: Overlap) -> str:
    return f"{named(overlap.first)} and {named(overlap.second)} give shared queries nearly the same negatives"
