"""What stands out in a run, and what to do about it. What a finding is, the catalogue says."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from secid.pages.ablation_summary import SHOWN_SETTINGS, open_pairs, pairs_by_setting
from secid.pages.glossary import in_plain_words
from secid.pages.numbers import UNTOLD, count, fraction, is_untold, listed, percent, plural
from secid.pages.sanitize import code, named
from secid.results import Overlap, Run, SourceFinding, SourceResult
from secid.results.catalogue import FINDINGS

NOTICED_SKIPPED = 0.01
SHOWN_NAMES = 2
NOTICED_OVERLAP = 0.9
"""Mean Jaccard overlap of negatives, and shares of the smaller one's queries and documents, from which two sources
count as one."""
EXACT = 1e-5
"""Relative: a share that a page rounded to six digits still is that of a whole number of negatives."""


def limits() -> str:
    """From which shares something stands out, as a sentence."""
    return (
        "Listed first is what stands out: findings above their limit (see the table of rules), sources with at least "
        f"{percent(NOTICED_SKIPPED)} of their rows left out, and two sources that overlap by at least "
        f"{fraction(NOTICED_OVERLAP)} in negatives, queries and documents."
    )


@dataclass(frozen=True, order=True)
class Notice:
    """One thing that stands out. urgency: 0 is shown first; among equals the larger share comes first.

    text is a clause with its numbers, remedy what to do and, after a comma or colon, more of it or why, both without a
    full stop. short_text: the text without its details, where it has some. others: further sources that it concerns.
    command: what acts on it; may be empty.
    """

    urgency: int
    minus_share: float
    source: str
    kind: str
    text: str
    remedy: str
    others: tuple[str, ...] = ()
    short_text: str = ""
    command: str = ""

    @property
    def brief(self) -> str:
        """The notice and what to do, without the reason."""
        remedy = self.remedy.split(":")[0].split(",")[0]
        return f"{self.short_text or self.text}; {remedy}{self._command()}"

    @property
    def whole(self) -> str:
        """The notice, what to do, and why."""
        return f"{self.text}; {self.remedy}{self._command()}"

    def _command(self) -> str:
        return f" ({code(self.command)})" if self.command else ""


def notices(run: Run) -> list[Notice]:
    """All that stands out in a run, the worst first; the leader's before another's where both are as bad."""
    own = [item for source in run.sources for item in of_source(source)]
    return sorted([*own, *_unstable(run), *_same(run)])


def of_source(source: SourceResult) -> list[Notice]:
    """What stands out in one source, the worst first."""
    notes = [item for finding in source.findings if (item := _above_limit(source, finding)) is not None]
    n_skipped = sum(source.skipped.values())
    if source.n_read and n_skipped / source.n_read >= NOTICED_SKIPPED:
        reasons = [in_plain_words(reason) for reason in source.skipped]
        notes.append(
            Notice(
                3,
                -n_skipped / source.n_read,
                source.name,
                "skipped",
                (
                    f"{plural(n_skipped, 'row')} of {count(source.n_read)} of {named(source.name)} "
                    f"{'was' if n_skipped == 1 else 'were'} left out ({listed(reasons)})"
                ),
                "fix the file: the remaining rows may not be representative",
            )
        )
    return sorted(notes)


def _above_limit(source: SourceResult, finding: SourceFinding) -> Notice | None:
    """The finding, where its share is above the limit of the catalogue."""
    entry = FINDINGS.get(finding.name)
    if entry is None or entry.limit is None or not finding.share > entry.limit:
        return None
    return Notice(
        entry.urgency,
        -finding.share,
        source.name,
        entry.name,
        f"{negatives(finding, source.n_triplets)} of {named(source.name)} ({percent(finding.share)}) {entry.says}",
        entry.do,
        command=f"secid explain {entry.name}" if entry.counted else "",
    )


def negatives(finding: SourceFinding, n_scored: int | None = None) -> str:
    """How many negatives have a finding, and of how many where that is a whole number.

    n_scored: of the source; None without an encoder. A sample of queries has no such number of its own.
    """
    n, entry = finding.n_negatives, FINDINGS.get(finding.name)
    total = n_scored
    if finding.share > 0 and entry is not None and entry.needs == "texts":
        total = round(n / finding.share)  # as listed, so more than are scored
    if not total or abs(finding.share * total - n) > EXACT * n:
        return plural(n, "negative")
    return f"{count(n)} of {plural(total, 'negative')}"


def share_interval(finding: SourceFinding) -> str:
    """The 95 % confidence interval of a share; UNTOLD where there are too few queries for one."""
    low, high = finding.interval_95
    return UNTOLD if is_untold((low, high), 1.0) else f"{percent(low)} to {percent(high)}"


def _unstable(run: Run) -> list[Notice]:
    """The leader's place changes with a setting, or under other weights.

    Samples are left out: intervals cover those. Other weights are other numbers, so they come later.
    """
    if not run.sources:
        return []
    leader, swaps = run.sources[0].name, []
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
            swaps.append(Notice(urgency, -1.0, leader, kind, text, UNSTABLE[is_weight], short_text=brief))
    return swaps


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


def _same(run: Run) -> list[Notice]:
    return [
        Notice(
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
