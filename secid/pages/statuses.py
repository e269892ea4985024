"""Say the status of a source in words, and name the sources to repair, to leave out or to check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from secid.pages.glossary import not_ranked
from secid.pages.text import listed, named, percent
from secid.results import Run, SourceFinding, SourceReport, Status
from secid.results.catalogue import DEFECTS, FINDINGS

STATUS: Mapping[Status, str] = {
    "no_defects": "no defects",
    "no_verdict": "no verdict",
    "repair": "repair first",
    "unusable": "do not use",
}
"""Words for the status of a source."""
REPAIR_FIRST: tuple[Status, ...] = ("repair", "unusable", "no_verdict", "no_defects")
REPAIR_STATUSES = REPAIR_FIRST[:2]
"""Statuses that are caused by a defect."""
NOT_RANKED = "not ranked"
"""Status that replaces "no defects" for a source that is not ranked, so that it does not look approved."""
DOUBTFUL_FINDINGS = tuple(name for name, entry in FINDINGS.items() if not entry.counted and entry.limit is not None)
"""Findings that are not defects but should be checked before training."""
MIN_MAJORITY_SHARE = 0.5
"""Share of inversions or truncated negatives above which the first screen must show it."""


def urgency(finding: SourceFinding) -> tuple[float, float]:
    """Return the sort key of a finding: its urgency in the catalogue, then minus its share.

    Inversion comes before all other findings that are not defects, if most negatives score above their positive.
    Findings that the positives have more often come last.
    """
    place: float = FINDINGS[finding.name].urgency
    if finding.name == "inversion" and finding.share > MIN_MAJORITY_SHARE:
        place -= 0.5
    return (len(FINDINGS) if too_rare(finding) else place, -finding.share)


def above_limits(source: SourceReport) -> list[SourceFinding]:
    """Return the findings of a source above their limit, the most urgent first."""
    return sorted(filter(above_limit, source.findings), key=urgency)


def status_of(run: Run, source: SourceReport) -> str:
    if source.status == "no_defects" and source.name in not_ranked(run):
        return NOT_RANKED
    return STATUS[source.status]


def status_and_problem(run: Run, source: SourceReport) -> str:
    """Return the status of a source. After "no defects", a second line names the most urgent finding above its limit.

    Without that line, "no defects" would look like approval.
    """
    word, problems = status_of(run, source), above_limits(source)
    return f"{word};\n{problems[0].name}" if problems and word == STATUS["no_defects"] else word


def status_line(run: Run, source: SourceReport) -> str:
    """Return the status with its most urgent finding on one line."""
    return status_and_problem(run, source).replace("\n", " ")


def statuses_line(sources: Sequence[SourceReport]) -> str:
    """Return sentences on the sources to repair or not to use, and on those to check before training."""
    return f"{statuses(sources)}. {doubts(sources)}".rstrip()


def statuses(sources: Sequence[SourceReport], one_label: bool = False) -> str:
    """Return a clause on the sources to repair or not to use, each with its most urgent defect.

    If there are none, it names the sources without defects. It has no full stop.
    one_label : True if false negatives were checked against one label per query only.
    """
    of = {status: [source for source in sources if source.status == status] for status in STATUS}
    left, repaired = (listed(_with_first(of[status], DEFECTS)) for status in ("unusable", "repair"))
    if left:
        return f"Do not use {left}, and repair {repaired} first" if repaired else f"Do not use {left}"
    if repaired:
        return f"Repair {repaired} first"
    if not of["no_defects"]:
        return f"No verdict on {listed(_with_first(of['no_verdict'], ('unknown_script',)))}"
    within = any(any(_shares(source, DEFECTS, above=False)) for source in of["no_defects"])
    which = listed([named(source.name) for source in of["no_defects"]])
    if one_label:
        return f"No defects {'above their limits' if within else 'found'} with one label per query in {which}"
    return f"No defects {'above their limits' if within else 'found'} in {which}"


def doubts(sources: Sequence[SourceReport]) -> str:
    """Return sentences on sources that the encoder cannot read and sources to check before training; "" if none."""
    unread = [source for source in sources if source.status == "no_verdict"]
    check = [source for source in sources if source.status == "no_defects" and any(_shares(source, DOUBTFUL_FINDINGS))]
    unread = unread if len(unread) < len(sources) else []
    return " ".join(
        [f"No verdict on {listed(_with_first(unread, ('unknown_script',)))}."] * bool(unread)
        + [f"Check {listed(_with_first(check, DOUBTFUL_FINDINGS))} before training."] * bool(check)
    )


def _shares(source: SourceReport, names: Sequence[str], *, above: bool = True) -> Iterator[tuple[float, str]]:
    """Yield (share, name) of the named findings that a source has.

    above : only findings above their limits, the most urgent first.
    """
    for item in above_limits(source) if above else source.findings:
        if item.name in names and (not too_rare(item) if above else item.share > 0):
            yield item.share, item.name


def _with_first(sources: Sequence[SourceReport], names: Sequence[str]) -> list[str]:
    """Format each source with the most urgent of the named findings. Sources with the most urgent ones come first."""
    first = {source.name: next(_shares(source, names), (0.0, "")) for source in sources}
    places = {name: FINDINGS[of].urgency if of else len(FINDINGS) for name, (_, of) in first.items()}
    ordered = sorted(first.items(), key=lambda item: (places[item[0]], -item[1][0]))
    return [f"{named(name)} ({percent(share)} {of})" if of else named(name) for name, (share, of) in ordered]


def above_limit(finding: SourceFinding) -> bool:
    """Return True if its share is above the limit of the catalogue.

    For a formal finding, the whole interval of the difference from the positives must be beyond the limit, in either
    direction.
    """
    entry = FINDINGS.get(finding.name)
    return entry is not None and (entry.exceeded_by(finding.counted_share) or too_rare(finding))


def too_rare(finding: SourceFinding) -> bool:
    """Return True if positives have a formal finding more often than negatives, by more than its limit."""
    limit = FINDINGS[finding.name].limit
    return limit is not None and finding.positives is not None and finding.positives.interval_95[1] < -limit
