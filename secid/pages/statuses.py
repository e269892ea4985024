"""State faults of a run in words: the status of each source, which ones to repair or to check, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from secid.pages.glossary import not_ranked
from secid.pages.text import count, fraction, listed, named, percent, plain, plural
from secid.results import Run, SourceFinding, SourceReport, Status
from secid.results.catalogue import DAMAGE_FINDINGS, DEFECTS, FINDINGS
from secid.settings import flag_of

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


# Warnings of a run as sentences.

MAX_WARNED_NAMES = 4
MISREADS: Mapping[str, str] = {
    "cut": "splits words at vowel signs and other marks",
    "fused": "makes one word of a whole sentence in scripts without spaces",
    "decomposed": "takes decomposed letters (NFD) for other letters than composed ones",
}
"""Damage that a tokenizer does to words, by the kind of a warning or caution."""


def warning_sentences(run: Run) -> tuple[str, ...]:
    """Return the warnings of a run as sentences, in order. Kinds from a newer version of secid are left out."""
    of_run = [
        WARNING_SENTENCES[item.kind](item.source or "", item.values)
        for item in run.warnings
        if item.kind in WARNING_SENTENCES
    ]
    return (*merged_sentences(run), *of_run, *damaged_positives(run.sources))


def merged_sentences(run: Run) -> tuple[str, ...]:
    """Return sentences on the parts of a merged run that cover only a sample of the queries."""
    if run.merged is None or run.merged.sampled_queries is None:
        return ()
    sentence = (
        f"Merged from {plural(run.merged.n_shards, 'shard')}: the table, its intervals and comparisons, the findings "
        "and the overlap of sources cover all rows; hardness (and so which sources are ranked), languages, "
        "random_like, weak_positive and the other parts cover a sample of "
        f"{count(run.merged.sampled_queries)} queries of each source. In a command, RUN is the run folder of a shard."
    )
    return (sentence,)


def _filled(kind: str, source: str, values: Mapping[str, Any]) -> str:
    return TEMPLATES[kind].format(source=named(source), **{name: _written(value) for name, value in values.items()})


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        clauses = [f"{named(name)} has {listed([named(each) for each in of])}" for name, of in value.items()]
        return listed(clauses, MAX_WARNED_NAMES)
    if isinstance(value, str):
        return named(value)
    return count(value) if isinstance(value, int) else f"{value:.2g}"


TEMPLATES: Mapping[str, str] = {
    "noisy_encoder": "The encoder is not batch-invariant: positive and negative closer than {distance} count as the "
    "same (limit {limit}), so scores and ranks mean little.",
    "few_queries": "{source} has too few queries for an interval ({n_queries}), so its order is not established.",
    "few_shared_queries": "{n_apart} of {n_pairs} pairs share too few queries to be compared, such as {first} and "
    "{second} ({n_shared_queries} shared). Score sources with the same queries.",
    "own_queries": "Queries in every source: {n_common}; the largest source has {n_largest}. So each row of the table, "
    "marked *, covers that source's own queries. Compare sources by their pairs, not by these rows.",
    "traces_compared": "{n_traces} of {n_pairs} pairs are compared by tr M, because there are too many different sets "
    "of shared queries to score each.",
    "unequal_sizes": f"The sources differ in size, and with {flag_of('positives', 'all')} they are not cut to equal "
    "numbers. So the order above B = 1 favours larger sources. Rank at B = 1, or use "
    f"{flag_of('positives', 'first')}.",
    "no_slice_value": "No row of {source} has a value in {column}, so all its rows are in the slice without a value.",
    "mixed_slice_values": "Records of {source} whose rows differ in {column}: {n_records}. Each counts under the value "
    "of its first row, so the order of rows matters.",
    "no_common_slice_value": "Some sources have no slice in common. Write the values of {column} the same way in all "
    "sources ({sources}).",
    "inactive_lexical_gate": "The lexical gate is inactive for {source}: under {tokenizer} the labelled positives "
    "cover {coverage} of their queries on average.",
}
"""Sentences of warnings by kind, with their values by name."""


def _inactive(source: str, values: Mapping[str, Any]) -> str:
    low = _filled("inactive_lexical_gate", source, values)
    best, positives = values["best"], fraction(values["best_positives"], 2)
    if not values["helps"]:
        return f"{low} No tokenizer that leaves words whole helps (most: {plain(best)}, {positives})."
    apart = "" if values["for_all"] else " in a separate run"
    negatives = fraction(values["best_negatives"], 2)
    return f"{low} Use {flag_of('tokenizer', best)}{apart}: positives then cover {positives}, negatives {negatives}."


def _misread(_: str, values: Mapping[str, Any]) -> str:
    shares = [f"{percent(share)} of the texts of {named(name)}" for name, share in values["sources"].items()]
    does = MISREADS.get(values["effect"], "misreads words")
    where = listed(shares, MAX_WARNED_NAMES)
    return f"Use {flag_of('tokenizer', values['best'])}: {plain(values['tokenizer'])} {does} ({where})."


def _chosen(_: str, values: Mapping[str, Any]) -> str:
    apart = sorted(values["sources"].items(), key=lambda item: -abs(item[1][1] - item[1][2]))
    parts = [
        f"{named(name)} has {count(n)} of the {count(values['n_queries'])} queries (hardness of the other sources: "
        f"{fraction(on_them, 2)} on these, {fraction(on_rest, 2)} on the rest)"
        for name, (n, on_them, on_rest) in apart
    ]
    return f"{listed(parts, MAX_WARNED_NAMES)}."


WARNING_SENTENCES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    **{kind: partial(_filled, kind) for kind in TEMPLATES},
    "inactive_lexical_gate": _inactive,
    "misread_words": _misread,
    "chosen_queries": _chosen,
}


def damaged_positives(sources: Iterable[SourceReport]) -> list[str]:
    """Return a sentence about each source whose labelled positives have defects."""
    sentences = []
    for source in sources:
        shares = {
            item.name: item.positives.share
            for item in source.findings
            if item.positives and item.name in DAMAGE_FINDINGS
        }
        damaged = [f"{percent(share)} {name}" for name, share in shares.items() if FINDINGS[name].exceeded_by(share)]
        if damaged:
            sentences.append(
                f"The positives of {named(source.name)} are damaged, too: {', '.join(damaged)}. Repair them."
            )
    return sentences
