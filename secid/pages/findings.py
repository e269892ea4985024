"""Show the findings of each source of a run, the commands that act on them, and examples.

The catalogue defines the findings.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from operator import itemgetter

from secid.analyses.guide import GUIDE
from secid.pages.glossary import reason_list
from secid.pages.page import (
    ExampleRow,
    Item,
    ShownFindings,
    Table,
    foreign,
    number,
    showing_equal_positive,
    text,
)
from secid.pages.statuses import REPAIR_FIRST, REPAIR_STATUSES, above_limit, status_line, too_rare, urgency
from secid.pages.text import (
    UNKNOWN_INTERVAL,
    capital,
    code,
    count,
    is_unknown,
    named,
    percent,
    plain,
    plural,
    points,
)
from secid.results import Overlap, Run, SourceFinding, SourceReport, TripletExample, defects_to_drop
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.commands import flagged_command, no_command

MIN_SHOWN_SKIPPED_SHARE = 0.01
"""Minimum share of left-out rows that is shown as a finding."""
MIN_SAME_NEGATIVES_OVERLAP = 0.9
"""Minimum overlap at which two sources count as one. It applies to the mean Jaccard overlap of their negatives, and to
the shares of the smaller source's queries and documents that the other one also has."""
MAX_SAME_PAIRS = 3
"""Maximum number of pairs of sources with the same negatives on the first screen."""
NO_COMMAND = "no command"
"""Name of the item that says why the findings of a source have no command."""
FIX_THE_FILE = "Fix the file: the remaining rows may not be representative."
SHADE_LIMITS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Minimum share of each shade, 0 to 9. Shares differ by orders of magnitude."""

Ranked = tuple[tuple[float, float], Item]
"""A finding with its sort key from `urgency`."""


def findings_of(run: Run) -> tuple[ShownFindings, ...]:
    """Return the findings above their limit by source, sources to repair first. Sources without one are left out."""
    sources = sorted(run.sources, key=lambda source: REPAIR_FIRST.index(source.status))
    grouped = ((source, tuple(item for _, item in ranked(run, source))) for source in sources)
    return tuple(
        ShownFindings(
            source=plain(source.name), status=status_line(run, source), items=items, command=plain(source.repair or "")
        )
        for source, items in grouped
        if items
    )


def heat_table(sources: Sequence[SourceReport]) -> Table | None:
    """Return a table of shares by source and finding, for present findings with a limit. None if there are none."""
    present = [name for name in present_names(sources) if name not in FINDINGS or FINDINGS[name].limit is not None]
    if not present:
        return None
    shares = [{item.name: item.share for item in source.findings} for source in sources]
    return Table(
        caption="Share of each source's negatives by failure bucket",
        columns=(foreign("source"), *(number(plain(name)) for name in present)),
        rows=tuple(
            (plain(source.name), *(percent(by_finding.get(name)) for name in present))
            for source, by_finding in zip(sources, shares, strict=True)
        ),
        shades=tuple((None, *(_shade(by_finding.get(name, 0.0)) for name in present)) for by_finding in shares),
    )


def _shade(share: float) -> int | None:
    return bisect_right(SHADE_LIMITS, share) - 1 if share > 0 else None


def present_names(sources: Sequence[SourceReport]) -> list[str]:
    """Return the findings that any source has, in the order of the catalogue."""
    names = dict.fromkeys(item.name for source in sources for item in source.findings if item.n_negatives)
    return [*(name for name in FINDINGS if name in names), *(name for name in names if name not in FINDINGS)]


def most_urgent(run: Run, limit: int) -> tuple[tuple[ShownFindings, ...], int]:
    """Return the `limit` most urgent findings of the run by source, and the number of the others.

    The most urgent finding of each source with status “repair first” or “do not use” comes before all other findings.
    Traits of a source with “do not use” come last. If all findings of such a source are beyond the limit, it is
    returned with only its command. If it has no command, the reason is returned even beyond the limit.
    """
    every = [
        (
            bool(number) or source.status not in REPAIR_STATUSES,
            source.status == "unusable" and item.name not in DEFECTS,
            place,
            source,
            item,
        )
        for source in run.sources
        for number, (place, item) in enumerate(ranked(run, source))
    ]
    every.sort(key=lambda entry: entry[:3])
    groups = []
    for name in dict.fromkeys(source.name for *_, source, _ in every):
        source = next(source for *_, source, _ in every if source.name == name)
        of_source = [(place, item) for place, (*_, owner, item) in enumerate(every) if owner is source]
        must_say_why = source.status in REPAIR_STATUSES and not source.repair
        items = tuple(item for n, item in of_source if n < limit or (must_say_why and item.name == NO_COMMAND))
        command = plain(source.repair or "") or ("" if items else of_source[0][1].command)
        if items or source.status in REPAIR_STATUSES:
            status = status_line(run, source)
            groups.append((source, ShownFindings(source=plain(name), status=status, items=items, command=command)))
    groups.sort(key=lambda group: REPAIR_FIRST.index(group[0].status))
    return tuple(group for _, group in groups), len(every) - sum(len(group.items) for _, group in groups)


def ranked(run: Run, source: SourceReport) -> list[Ranked]:
    """List the findings of one source that stand out, the most urgent first."""
    entries = [entry for finding in source.findings if (entry := _above_limit(run, source, finding)) is not None]
    entries.sort(key=itemgetter(0))
    items = with_drop_count([item for _, item in entries], source)
    entries = [(place, item) for (place, _), item in zip(entries, items, strict=True)]
    return sorted([*entries, *_no_command(source, entries), *_skipped(source)], key=itemgetter(0))


def with_drop_count(items: Sequence[Item], source: SourceReport) -> list[Item]:
    """Add the number of negatives that the repair drops to the first finding that it drops."""
    words = drops(source)
    first = next((item for item in items if source.repair and item.n_negatives and not item.command), None)
    return [replace(item, sentence=f"{item.sentence} {words}") if words and item is first else item for item in items]


def drops(source: SourceReport, subject: str = "The repair") -> str:
    """Return a sentence on the number of negatives that a repair drops; "" if it drops fewer than two defects."""
    names = defects_to_drop(source.findings)
    others = [item.name for item in source.findings if item.name in DEFECTS and item.n_negatives]
    if len(names) < 2:
        return ""
    n = plural(source.n_flagged, "negative") if set(names) == set(others) else "negatives"
    return f"{subject} drops {n} with {' or '.join(names)}."


def _no_command(source: SourceReport, entries: Sequence[Ranked]) -> list[Ranked]:
    """Return an item with the reason why the findings of a source have no command; empty if they have one."""
    text = no_command(source.name, source.files)
    if not entries or not text:
        return []
    item = Item(name=NO_COMMAND, sentence=text, command="", examples=(), n_negatives=0)
    return [(max(key for key, _ in entries), item)]


def compared(finding: SourceFinding) -> str:
    """Return the share of positives with a formal finding, as "against" clause; "" for any other finding."""
    positives = finding.positives
    return "" if positives is None else f"against {percent(positives.share)} of the positives"


def advice(finding: SourceFinding) -> str:
    """Return advice about a finding. Dropping does not help if positives have it about as often, or more often."""
    if finding.positives is None or (finding.dropping_helps and not too_rare(finding)):
        return f"{capital(FINDINGS[finding.name].do)}."
    return "Repair the texts of both negatives and positives; dropping these negatives would widen the difference."


def form_table(sources: Sequence[SourceReport]) -> Table:
    """Return a table of formal findings of the positives, and how far the share of negatives differs.

    It is empty if neither has any. `heat_table` has the shares of the negatives.
    """
    rows = tuple(
        (
            plain(source.name),
            item.name,
            percent(item.positives.share),
            points(item.positives.difference),
            " to ".join(map(points, item.positives.interval_95)),
        )
        for source in sources
        for item in source.findings
        if item.positives is not None and (item.n_negatives or item.positives.n_positives)
    )
    heads = ("positives", "difference (points)", "95 % CI")
    columns = (foreign("source"), text("failure bucket"), *map(number, heads))
    caption = "Form of the positives, and the share of the negatives minus theirs"
    return Table(caption=caption, columns=columns, rows=rows)


def sentence(finding: SourceFinding, n_sampled: int | None = None, queries: str = "") -> str:
    """Return sentences about a finding: the number of negatives, and what to do.

    n_sampled : number of negatives that the share is estimated from; None if all were evaluated.
    queries : the queries that the share covers, if this must be said.
    """
    n, notes = count(finding.n_negatives), [percent(finding.share), queries, compared(finding)]
    if n_sampled is not None:
        n = f"{n} of {count(n_sampled)} sampled"
        notes = [f"estimated {percent(finding.share)} of all", f"95 % CI {share_interval(finding)}"]
    counted = f"Negatives that {FINDINGS[finding.name].says}: {n} ({', '.join(filter(None, notes))})."
    return " ".join(filter(None, (counted, repeated_rows(finding.n_rows or 0), advice(finding))))


def repeated_rows(n: int) -> str:
    """Return a sentence on the number of rows that repeat earlier rows; "" if there are none."""
    return f"Rows that repeat an earlier row: {count(n)}." if n else ""


def _above_limit(run: Run, source: SourceReport, finding: SourceFinding) -> Ranked | None:
    if not above_limit(finding):
        return None
    entry = FINDINGS[finding.name]
    repaired = entry.counted and finding.dropping_helps and source.repair is not None
    rows = "" if no_command(source.name, source.files) else flagged_command(run.rows_folder, source.name, entry.name)
    said = sentence(finding, _n_sampled(run, source.name, finding), _queries(source, finding))
    item = Item(
        name=entry.name,
        sentence=said + (_unused_checks(run) if entry.name == "inversion" else ""),
        command="" if repaired else rows,
        rows=rows if repaired else "",
        examples=tuple(map(showing_equal_positive, finding.examples)),
        n_negatives=finding.n_negatives,
    )
    return urgency(finding), item


def has_collection(run: Run) -> bool:
    """Return True if the run had labels of a collection in addition to those of its sources."""
    return "collection" in run.settings and bool(run.settings["collection"]["value"])


def _unused_checks(run: Run) -> str:
    """Return a sentence with the flags for finding false negatives that the run did not use; "" if it used all."""
    ways = {"--collection DIR": has_collection(run), "--guide NAME": GUIDE.of(run) is not None}
    unused = [code(flag) for flag, used in ways.items() if not used]
    return f" To find them, add {' or '.join(unused)}." if unused else ""


def _queries(source: SourceReport, finding: SourceFinding) -> str:
    """Return the queries that a share covers, if the table has the same share for other queries; "" otherwise."""
    if finding.name != "inversion" or source.scored.on_shared is None:
        return ""
    return f"over all {plural(source.n_queries, 'query', 'queries')} of the source"


def _n_sampled(run: Run, name: str, finding: SourceFinding) -> int | None:
    """Return the number of negatives that a finding is estimated from; None if it covers all."""
    guide = GUIDE.of(run)
    if guide is None or finding.name != "suspect" or not guide.is_sampled:
        return None
    return next((item.n_scored for item in guide.sources if item.name == name), None)


def _skipped(source: SourceReport) -> list[Ranked]:
    n = sum(source.rows.skipped.values())
    if not source.rows.n_read or n / source.rows.n_read < MIN_SHOWN_SKIPPED_SHARE:
        return []
    paths = [file.path for file in source.files[:1] if plain(file.path) == file.path and not file.read_once]
    item = Item(
        name="rows left out",
        sentence=f"Left out of {plural(source.rows.n_read, 'row')}: {reason_list(source.rows.skipped)}. {FIX_THE_FILE}",
        command=shlex.join(["secid", "check", *paths]) if paths else "",
        examples=(),
        n_negatives=0,
    )
    return [((3, -n / source.rows.n_read), item)]


def same_lines(run: Run) -> list[str]:
    """Return a sentence for each pair of sources with nearly the same negatives, for at most MAX_SAME_PAIRS pairs."""
    n_queries = {source.name: source.n_queries for source in run.sources}
    pairs = [
        overlap
        for overlaps in run.overlaps_by_first.values()
        for overlap in overlaps
        if min(overlap.negative_jaccard_mean or 0.0, overlap.shared_query_fraction, overlap.shared_document_fraction)
        >= MIN_SAME_NEGATIVES_OVERLAP
    ]
    n_more = plural(len(pairs) - MAX_SAME_PAIRS, "more pair")
    more = f"{n_more} of sources with the same negatives: see “What the sources share”."
    return [_same_negatives(pair, n_queries) for pair in pairs[:MAX_SAME_PAIRS]] + [more] * (
        len(pairs) > MAX_SAME_PAIRS
    )


def _same_negatives(overlap: Overlap, n_queries: Mapping[str, int]) -> str:
    """Return a sentence on two sources with nearly the same negatives, and on what follows from it."""
    smaller, larger = sorted((overlap.first, overlap.second), key=n_queries.__getitem__)
    n_larger, n_shared = n_queries[larger], round(overlap.shared_query_fraction * n_queries[smaller])
    if n_shared >= MIN_SAME_NEGATIVES_OVERLAP * n_larger:
        return (
            f"{named(overlap.first)} and {named(overlap.second)} have nearly the same negatives: treat them as one "
            "source, whatever their ranks."
        )
    return (
        f"{named(smaller)} adds little to {named(larger)}, which has nearly the same negatives on their "
        f"{plural(n_shared, 'shared query', 'shared queries')}, and {count(n_larger - n_shared)} more queries."
    )


def share_interval(finding: SourceFinding) -> str:
    """Format the 95 % confidence interval of a share; UNKNOWN_INTERVAL with too few queries."""
    low, high = finding.interval_95
    return UNKNOWN_INTERVAL if is_unknown((low, high)) else f"{percent(low)} to {percent(high)}"


def example_rows(run: Run) -> tuple[ExampleRow, ...]:
    """Return every example of the run once: the first example of all findings, then the second, and so on."""
    findings_of: dict[tuple[str, str, int, str, str], list[tuple[str, TripletExample]]] = {}
    parts = [(source.name, finding) for source in run.sources for finding in source.findings]
    for place in range(max((len(finding.examples) for _, finding in parts), default=0)):
        for name, finding in parts:
            for example in finding.examples[place : place + 1]:
                key = (name, example.path, example.line, example.positive, example.negative)
                findings_of.setdefault(key, []).append((finding.name, example))
    rows = []
    for (name, *_), listed_as in findings_of.items():
        example = max((one for _, one in listed_as), key=lambda one: (_margin(one) is not None, one.match is not None))
        shown = showing_equal_positive(example)
        names = dict.fromkeys(map(plain, (*(name for name, _ in listed_as), *example.findings)))
        rows.append(ExampleRow(source=plain(name), findings=tuple(names), example=shown, margin=_margin(shown)))
    return tuple(rows)


def _margin(example: TripletExample) -> float | None:
    positive, negative = example.s_query_positive, example.s_query_negative
    if positive is None or negative is None or not isfinite(positive - negative):
        return None
    return positive - negative


def rows_note(run: Run) -> str:
    """Return a note that the rows are examples, and how to keep more of them."""
    n = run.settings["examples"]["value"] if "examples" in run.settings else None
    more = f"{code('--set examples=N')} keeps more."
    if isinstance(n, int):
        return f"The run keeps at most {plural(n, 'example')} of each finding in a source; {more}"
    return f"The run keeps some examples of each finding in a source; {more}"
