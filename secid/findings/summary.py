"""Summarise the texts of each source: lengths, findings that need no encoder, and examples with their matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, best_first
from secid.findings.copies import LabelledPositives, has_one_positive, stored_positives
from secid.findings.languages import damage_start, languages_of
from secid.findings.status import ListedNegatives, SourceStatus, source_status
from secid.findings.texts import RunTexts, text_rules
from secid.pool import DraftPlan, Plan, PlannedSource, content_of, labels_of, sample_order
from secid.pool.normal_form import FormKeys, Keys, text_forms
from secid.pool.plan import TextFindings
from secid.pool.texts import TextStore, batch_ranges
from secid.pool.workers import n_cores
from secid.results import AmongPositives, Example, Languages, Match, SourceFinding, TripletExample
from secid.results.catalogue import FORMAL_FINDINGS
from secid.results.check import Lengths, Spread
from secid.settings import Settings
from secid.triplets.estimates import GapMoments, HasError, Share, comparable_keys, wilson_interval

# Lengths of queries, positives and negatives, which `secid check` shows. They are computed from bytes.

LENGTHS_AT_ONCE = 4096
TOKENS_BY = "bytes"
"""Name of the method by which tokens are counted: a key of pages.check_page.TOKEN_NOTES."""
ASCII_PER_TOKEN, TWO_BYTE_PER_TOKEN = 4.5, 2.0
"""Number of characters per token, for ASCII and for characters of two bytes in UTF-8. WordPiece makes one token of 4.4
to 5.2 ASCII characters on English abstracts and short articles. Characters of two bytes are accented, Greek, Cyrillic,
Hebrew or Arabic. Longer ones are mostly in scripts without spaces, where WordPiece makes each character a token."""
CONTINUES, TWO_BYTES, THREE_BYTES, BYTES = 0x80, 0xC0, 0xE0, 0x100
"""Lowest byte in UTF-8 that continues a character, that starts a character of two bytes, and that starts a longer one;
and the number of byte values."""


@dataclass(frozen=True)
class TextLengths:
    """Lengths of n texts: number of characters and estimated number of tokens without special tokens, (n,) each."""

    characters: Index
    tokens: Index


def text_lengths(store: TextStore, tick: Callable[[int], None] = lambda n: None) -> TextLengths:
    """Return the lengths of all texts. tick: called with the number of texts done."""
    characters, tokens = np.zeros(len(store), np.int64), np.zeros(len(store), np.int64)
    for start, stop in batch_ranges(len(store), LENGTHS_AT_ONCE, store.lengths):
        chunk = store.packed(start, stop)
        n_beyond = chunk.n_bytes(CONTINUES, BYTES)
        n_two, n_more = chunk.n_bytes(TWO_BYTES, THREE_BYTES), chunk.n_bytes(THREE_BYTES, BYTES)
        n_ascii = chunk.lengths - n_beyond
        characters[start:stop] = n_ascii + n_two + n_more
        tokens[start:stop] = np.ceil(n_ascii / ASCII_PER_TOKEN + n_two / TWO_BYTE_PER_TOKEN + n_more)
        tick(stop - start)
    return TextLengths(characters, tokens)


def spread(values: Index) -> Spread:
    """Return the minimum, median, 95th percentile and maximum of at least one value."""
    low, middle, high, top = np.percentile(values, [0, 50, 95, 100]).tolist()
    return Spread(minimum=low, median=middle, p95=high, maximum=top)


def lengths_of(lengths: TextLengths, ids: Index) -> Lengths:
    """Return the lengths of at least one distinct text. ids: distinct text ids."""
    return Lengths(n_texts=len(ids), characters=spread(lengths.characters[ids]), tokens=spread(lengths.tokens[ids]))


# Matches of an example: the labelled positive, the earlier place in its record, or the number of its queries.
#
# They are looked up only for the few negatives that are shown as examples. Source: METHOD 14.


class Matcher:
    """Finder of the text or row that an example's negative matches. It needs the plan's texts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def of(self, name: str, planned: PlannedSource, place: int) -> Match | None:
        """Return what the negative at `place` matches under a finding; None for a finding without matches."""
        if name == "false_negative":
            return self._positive(planned, place)
        if name == "repeat":
            return self.copies(planned, place) or self.earlier(planned, place)
        return self._queries_with(planned, place) if name == "hub" else None

    def _positive(self, planned: PlannedSource, place: int) -> Match:
        """Return the row that first labels the text as a positive of the query; only the kind if no row is known."""
        plan = self._plan
        form = self._forms(planned.negatives[[place]])[0]
        queries = np.flatnonzero(self._queries == self._queries[planned.query[_record(planned, place)]])
        known = labels_of(plan, queries)[1]
        same = known[self._forms(plan.known_positives[known] % len(plan.passages)) == form]
        if not len(same):
            return Match(kind="positive")
        first = same[0]
        return Match(
            kind="positive",
            path=plan.label_paths[plan.label_path[first]],
            line=int(plan.label_line[first]) or None,
            text=cut(plan.passages.take(plan.known_positives[[first]] % len(plan.passages))[0]),
        )

    def copies(self, planned: PlannedSource, place: int) -> Match | None:
        """Return how often the record lists the text; None if `place` is not its first listing."""
        same = self._same(planned, place)
        return Match(kind="copies", n=int(planned.copies[same].sum())) if same[0] == place else None

    def earlier(self, planned: PlannedSource, place: int) -> Match:
        """Return the place where the record lists the text first."""
        first = self._same(planned, place)[0]
        return Match(
            kind="earlier",
            path=planned.source.paths[int(planned.negative_file[first])],
            line=int(planned.negative_line[first]),
            n=int(planned.negative_ordinal[first]) + 1,
        )

    def _same(self, planned: PlannedSource, place: int) -> Index:
        record = _record(planned, place)
        low, high = planned.negative_offsets[record : record + 2]
        forms = self._forms(planned.negatives[low:high])
        return np.asarray(low + np.flatnonzero(forms == forms[place - low]))

    def _queries_with(self, planned: PlannedSource, place: int) -> Match:
        """Return the number of queries for which the text is a negative. Only negatives flagged as hubs are counted."""
        places = np.flatnonzero(planned.has("hub"))
        ids, id_place = np.unique(planned.negatives[places], return_inverse=True)
        same = places[(self._forms(ids) == self._forms(planned.negatives[[place]])[0])[id_place]]
        queries = planned.query[planned.triplet_record()[same]]
        return Match(kind="queries", n=len(np.unique(self._queries[queries])))

    @cached_property
    def _queries(self) -> Keys:
        return text_forms(self._plan.queries).form

    def _forms(self, ids: Index) -> Keys:
        return FormKeys.of(self._plan.passages.packed_of(ids)).hashes()


def _record(planned: PlannedSource, place: int) -> int:
    return int(np.searchsorted(planned.negative_offsets, place, side="right")) - 1


# Findings that need no encoder, with shares and examples, for each source.

RowPlace = tuple[int, int, int]

STORED_EXAMPLE_CHARACTERS = 600
"""Maximum length of a passage in the report: enough to judge it, but small enough for a page."""
BEFORE_CHARACTERS = 20
"""Number of characters to show before the place to which a finding refers."""
SEVERITY_UNIT = 2.0**-17
"""Severities that differ by less than about 1e-5 are ties. Copies of a text differ by 1e-7, depending on the batch."""


@dataclass(frozen=True)
class CautionEvidence:
    """Evidence for a caution of the catalogue.

    n : number of affected items.   fraction : their share in [0, 1].   values : as in SourceCaution.
    """

    n: int
    fraction: float
    values: Mapping[str, float | str] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class SourceFindings:
    """Findings of one source.

    overlaps  : finding -> finding -> number of negatives with both.   shares : finding -> share.
    status    : status by the counted defects.   languages : languages of a sample of negatives.
    compared  : formal finding -> comparison of negatives with labelled positives.
    """

    findings: tuple[SourceFinding, ...]
    overlaps: Mapping[str, Mapping[str, int]]
    shares: Mapping[str, Share]
    status: SourceStatus
    languages: Languages
    places: Mapping[str, Sequence[RowPlace]] = field(default_factory=dict)
    compared: Mapping[str, GapMoments] = field(default_factory=dict)


class RunTextFindings(NamedTuple):
    """Text findings in all rows of a run.

    of_read      : text findings of each source read, in order, including sources with only labels.
    positives    : labelled positives as arrays for a baseline.
    one_positive : whether every query has at most one labelled positive.
    """

    of_read: Sequence[TextFindings]
    of_sources: Mapping[str, SourceFindings]
    positives: Mapping[str, npt.NDArray[Any]]
    one_positive: bool


def judge_texts(
    draft: DraftPlan, settings: Settings, known: LabelledPositives | None, run: RunTexts | None
) -> RunTextFindings:
    """Apply the text rules to all rows read, on all cores but one.

    known, run : as in `text_rules`.
    """
    of_read = text_rules(*draft.texts, known, run, max(1, n_cores(settings.threads) - 1))
    whole = draft.with_text_findings(of_read).full_plan
    return RunTextFindings(
        of_read, text_findings_of(whole, settings), stored_positives(*draft.texts), has_one_positive(whole)
    )


def text_findings_of(plan: Plan, settings: Settings) -> dict[str, SourceFindings]:
    matcher = Matcher(plan)
    return {planned.name: text_findings(plan, planned, matcher, settings) for planned in plan.sources}


def text_findings(plan: Plan, planned: PlannedSource, matcher: Matcher, settings: Settings) -> SourceFindings:
    """Return the text findings of one source while the plan's texts are available. matcher: matcher of the plan."""
    listed = ListedNegatives(planned, plan.queries.keys)
    shares, compared = listed.shares(), {name: listed.compared(name) for name in FORMAL_FINDINGS}
    places = {name: _examples(plan, planned, planned.has(name), settings) for name in shares}

    def shown(name: str) -> tuple[TripletExample, ...]:
        examples = [
            replace(
                text_example(plan, planned, place, damage_start if name == "mojibake" else None),
                match=matcher.of(name, planned, place),
            )
            for place in places[name]
        ]
        return tuple([*examples, *(_blanks(planned) if name == "empty" else ())][: settings.examples])

    findings = tuple(
        replace(
            source_finding(name, share.n, share.estimate, shown(name)),
            n_rows=planned.tally.n_repeated_rows if name == "repeat" else None,
            positives=among_positives(compared[name]) if name in compared else None,
        )
        for name, share in shares.items()
    )
    return SourceFindings(
        findings,
        overlaps_of({name: planned.has(name) for name in shares}, None),
        shares,
        source_status(planned, findings, listed.flagged()),
        languages_of(plan.passages, planned.negatives, settings.seed),
        {name: [row_place(planned, place) for place in source_places] for name, source_places in places.items()},
        compared,
    )


def row_place(planned: PlannedSource, place: int) -> RowPlace:
    """Return (file, line, place in the row) of the first listing of the negative at `place`."""
    file, line, ordinal = planned.negative_file, planned.negative_line, planned.negative_ordinal
    return int(file[place]), int(line[place]), int(ordinal[place])


def wordless_finding(plan: Plan, planned: PlannedSource, wordless: Flags, settings: Settings) -> SourceFinding:
    """Return the finding of negatives whose query has no token. wordless: (n_queries,) flags."""
    query = planned.query[planned.triplet_record()]
    ids, cluster = np.unique(query, return_inverse=True)
    flags = wordless[query].astype(np.float64)
    share = Share.of(flags, np.ones(len(flags)), cluster, comparable_keys(plan.queries.keys[ids]))
    examples = tuple(text_example(plan, planned, place) for place in _examples(plan, planned, flags > 0, settings))
    return source_finding("query_without_tokens", share.n, share.estimate, examples)


def source_finding(
    name: str,
    n: int,
    share: HasError,
    examples: tuple[TripletExample, ...],
    weight_fraction: float | None = None,
    score_nats: float | None = None,
) -> SourceFinding:
    """Return a finding with its interval. n, share: number and share of negatives with the finding."""
    return SourceFinding(
        name=name,
        n_negatives=n,
        share=share.value,
        interval_95=wilson_interval(share),
        standard_error=share.standard_error,
        n_queries=share.n_queries,
        weight_fraction=weight_fraction,
        score_nats=score_nats,
        examples=examples,
    )


def among_positives(moments: GapMoments) -> AmongPositives:
    """Return a formal finding among the labelled positives, of which there is at least one."""
    return AmongPositives(
        n_positives=moments.positives.n,
        n_labelled=moments.positives.all,
        share=moments.positives.value,
        difference=moments.value,
        standard_error=moments.standard_error,
        interval_95=moments.interval,
        excess=moments.excess,
    )


def overlaps_of(flags: Mapping[str, Flags], share: Floats | None) -> dict[str, dict[str, int]]:
    """Return finding -> finding -> number of negatives with both."""
    return {first: {second: count_of(a & b, share) for second, b in flags.items()} for first, a in flags.items()}


def count_of(flags: Flags, share: Floats | None) -> int:
    """Count the flagged negatives by their shares. The count is at least 1 if any is flagged."""
    if share is None or not flags.any():
        return int(flags.sum())
    return max(1, round(float(share[flags].sum())))


def text_example(
    plan: Plan, planned: PlannedSource, place: int, start_of: Callable[[str], int] | None = None
) -> TripletExample:
    """Return an example: a negative with its query and the first positive of its record.

    start_of : function that returns the place in a negative to which the finding refers; None for the beginning.
    """
    record = int(np.searchsorted(planned.negative_offsets, place, side="right")) - 1
    ids = np.array([planned.positives[planned.positive_offsets[record]], planned.negatives[place]])
    positive, negative = plan.passages.take(ids)
    return TripletExample(
        path=planned.source.paths[int(planned.negative_file[place])],
        line=int(planned.negative_line[place]),
        query=cut(plan.queries.take(planned.query[[record]])[0]),
        positive=cut(positive),
        negative=cut(negative, start_of(negative) if start_of else 0),
        findings=planned.findings_at(place),
    )


def _blanks(planned: PlannedSource) -> list[TripletExample]:
    """Return an example for each row that lists negatives without text."""
    return [
        TripletExample(path=planned.source.paths[file], line=line, query="", positive="", negative="")
        for file, line, _ in planned.blanks
    ]


def one_per_query(
    plan: Plan, query: Index, positive: Index, negative: Index, severity: Floats, settings: Settings
) -> Index:
    """Return the places of the worst rows, one per query. Ties are in the seeded order of queries, then by content.

    query, positive, negative : (n,) ids of the rows' texts.
    """
    priority = sample_order(plan.queries.keys[query], settings.seed)
    seeded = np.lexsort((content_of(plan.passages.keys[negative], plan.passages.keys[positive]), priority))
    order = seeded[best_first(severity[seeded], np.arange(len(seeded)), unit=SEVERITY_UNIT)]
    _, first = np.unique(query[order], return_index=True)
    return order[np.sort(first)][: settings.examples]


def _examples(plan: Plan, planned: PlannedSource, flags: Flags, settings: Settings) -> list[int]:
    """Return the places of the flagged negatives to show, one per query, in the seeded order of queries."""
    places = np.flatnonzero(flags)
    record = planned.triplet_record()[places]
    ids = planned.query[record], planned.positives[planned.positive_offsets[record]], planned.negatives[places]
    shown: list[int] = places[one_per_query(plan, *ids, np.zeros(len(places)), settings)].tolist()
    return shown


def cut(text: str, at: int = 0) -> str:
    """Return a text cut for an example. It starts shortly before `at`, so that shorter cuts on pages show it too."""
    if at > BEFORE_CHARACTERS:
        text = f"…{text[at - BEFORE_CHARACTERS :]}"
    return text if len(text) <= STORED_EXAMPLE_CHARACTERS else text[: STORED_EXAMPLE_CHARACTERS - 1] + "…"
