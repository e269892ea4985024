"""Which triplets of a source have which fault, by array arithmetic on ids and facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secid.arrays import among, distinct
from secid.findings.facts import HAN_NUMBER, KANA_NUMBER, Facts
from secid.findings.forms import Flags, Forms, Index, normal_form, opening_of
from secid.pool import Plan, PlannedSource
from secid.pool.texts import TextStore, pieces

SHORT_TOKENS = 3
"""A negative of at most this many tokens says nothing that a query could ask for: "N/A", "No answer found"."""
MIN_SHARED_OPENINGS = 5
"""Texts that must share an opening before it is called shared: among fewer, chance is enough."""
MIN_OPENING_QUERIES = 3
"""Queries whose negatives must share it: one query's own subject opens many passages alike."""
SHARED_OPENING_FRACTION = 0.01
HUB_FRACTION = 0.1
MIN_HUB_QUERIES = 5
"""Queries that must list a negative before it is called a hub, so that tiny files have none by chance."""
ECHO_TOKENS = 4
"""Shorter queries are repeated by many passages on their subject, and that is no fault."""
CLOSING_MARKS = 3
"""Characters by which an echo may be shorter than its query: a question mark, a space, white space collapsed."""
CLOSERS = "?.! ？。．！…؟।"
"""Marks that close a query: ASCII, full-width, Arabic and Devanagari."""
CHUNK_TRIPLETS = 4096
SHOWN_OPENINGS = 3


@dataclass(frozen=True)
class Flagged:
    """n of n_all things are at fault.

    triplets : (T,) the triplets to show as examples.   detail : the cases in words.
    share    : stands in for n / n_all where what is shared out is no count.
    """

    n: int
    n_all: int
    triplets: Flags
    detail: str = ""
    share: float | None = None

    @property
    def fraction(self) -> float:
        """Share at fault; 0.0 where there is nothing."""
        if self.share is not None:
            return self.share
        return self.n / self.n_all if self.n_all else 0.0

    @staticmethod
    def of(flags: Flags, detail: str = "") -> Flagged:
        """Each triplet counts once."""
        return Flagged(int(flags.sum()), len(flags), flags, detail)


class Lines:
    """The texts of a run in numbers that are equal where the texts' normal forms are.

    query, passage : (n,) number of each query's and each passage's normal form.
    """

    def __init__(self, plan: Plan, queries: Facts, passages: Facts) -> None:
        self.queries, self.passages = queries, passages
        _, self.query = np.unique(queries.normal, return_inverse=True)
        _, self.passage = np.unique(passages.normal, return_inverse=True)
        self.n_passages = int(self.passage.max(initial=-1)) + 1
        self._plan = plan
        keys = [self._positive_keys(planned) for planned in plan.sources]
        self._known, self._known_at = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_index=True)
        self._ends = np.cumsum([len(part) for part in keys])

    def _positive_keys(self, planned: PlannedSource) -> Index:
        query = np.repeat(planned.query, np.diff(planned.positive_offsets))
        return self.query[query] * self.n_passages + self.passage[planned.positives]

    def labelled_at(self, planned: PlannedSource, places: Index) -> list[str]:
        """file:line of the first record that labels these triplets' negatives as positives of their query."""
        found = []
        for key in self.pairs(planned)[places].tolist():
            at = int(self._known_at[np.searchsorted(self._known, key)])
            number = int(np.searchsorted(self._ends, at, side="right"))
            other = self._plan.sources[number]
            inside = at - (int(self._ends[number - 1]) if number else 0)
            record = int(np.searchsorted(other.positive_offsets, inside, side="right")) - 1
            found.append(f"{other.source.paths[int(other.file[record])]}:{int(other.line[record])}")
        return found

    def positive_in_record(self, planned: PlannedSource) -> Flags:
        """(T,) the negative is a positive of its record."""
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        own = record * self.n_passages + self.passage[planned.positives]
        return among(planned.triplet_record() * self.n_passages + self.passage[planned.negatives], distinct(own))

    def positive_in_run(self, planned: PlannedSource) -> Flags:
        """(T,) the negative is a positive of its query in some record of the run."""
        return among(self.pairs(planned), self._known)

    def pairs(self, planned: PlannedSource) -> Index:
        """(T,) number of each triplet's query and negative."""
        return self.query[planned.query[planned.triplet_record()]] * self.n_passages + self.passage[planned.negatives]


def structure(planned: PlannedSource, lines: Lines) -> dict[str, Flagged]:
    """Faults that follow from which texts are equal."""
    inside = lines.positive_in_record(planned)
    exact = _exact_positive(planned)
    variants = (
        f"{int((inside & ~exact).sum())} of them differ in case, spaces or composed letters"
        if (inside & ~exact).any()
        else ""
    )
    return {
        "negative_equals_positive": Flagged.of(inside, variants),
        "negative_is_other_positive": Flagged.of(lines.positive_in_run(planned) & ~inside),
        **_repetition(planned, lines),
        "hub_negative": hubs(planned, lines),
    }


def _exact_positive(planned: PlannedSource) -> Flags:
    top = int(max(planned.negatives.max(initial=0), planned.positives.max(initial=0))) + 1
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    return among(planned.triplet_record() * top + planned.negatives, distinct(record * top + planned.positives))


def _repetition(planned: PlannedSource, lines: Lines) -> dict[str, Flagged]:
    """Copies of a negative within a record, and again in another record of the query."""
    within = planned.triplet_record() * lines.n_passages + lines.passage[planned.negatives]
    _, first = np.unique(within, return_index=True)
    head = np.zeros(len(within), np.bool_)
    head[first] = True
    n_listed = int(planned.copies.sum())
    pairs = lines.pairs(planned)
    _, again = np.unique(pairs[head], return_index=True)
    repeated = head.copy()
    repeated[np.flatnonzero(head)[again]] = False
    return {
        "duplicate_negative": Flagged(n_listed - len(first), n_listed, ~head | (planned.copies > 1)),
        "repeated_negative": Flagged(int(repeated.sum()), len(first), repeated),
    }


def hubs(planned: PlannedSource, lines: Lines) -> Flagged:
    """Negatives that many distinct queries list; the first triplet of each is shown."""
    pairs = distinct(lines.pairs(planned))
    queries_of = np.bincount(pairs % lines.n_passages, minlength=lines.n_passages)
    n_queries = len(distinct(pairs // lines.n_passages))
    hub = (queries_of > HUB_FRACTION * n_queries) & (queries_of >= MIN_HUB_QUERIES)
    numbers = lines.passage[planned.negatives]
    flags = hub[numbers]
    _, first = np.unique(numbers, return_index=True)
    shown = np.zeros_like(flags)
    shown[first] = flags[first]
    detail = ""
    if hub.any():
        n, most = int(hub.sum()), queries_of.max() / n_queries
        detail = f"{n} passage{'' if n == 1 else 's'}; the commonest stands in {most:.0%} of the queries"
    return Flagged(int(flags.sum()), len(flags), shown, detail)


def style(planned: PlannedSource, plan: Plan, lines: Lines, n_empty: int) -> dict[str, Flagged]:
    """Faults of the negatives' texts. n_empty: negatives that the reader left out as empty."""
    facts, negatives = lines.passages, planned.negatives
    short = facts.tokens[negatives] <= SHORT_TOKENS
    positive = planned.positives[planned.positive_offsets[:-1]]
    script = np.where(facts.script == KANA_NUMBER, HAN_NUMBER, facts.script)  # Japanese is written in both
    own, other = script[negatives], script[positive][planned.triplet_record()]
    return {
        "short_negative": Flagged(
            int(short.sum()) + n_empty, len(short) + n_empty, short, f"{n_empty} of them empty" if n_empty else ""
        ),
        "known_preamble": Flagged.of(facts.preamble[negatives]),
        "shared_opening": shared_openings(planned, plan, facts),
        "other_script": Flagged.of((own != other) & (own > 0) & (other > 0)),
    }


def shared_openings(planned: PlannedSource, plan: Plan, facts: Facts) -> Flagged:
    """Negatives whose opening many distinct negatives of several queries share, and fewer of the positives.

    What positives open with as often is the collection's style and tells nothing apart.
    """
    ids = _distinct_forms(planned.negatives, facts)
    openings, first, counts = np.unique(facts.opening[ids], return_index=True, return_counts=True)
    common = (counts > SHARED_OPENING_FRACTION * len(ids)) & (counts >= MIN_SHARED_OPENINGS)
    own = facts.opening[planned.negatives]
    asked = planned.query[planned.triplet_record()]
    positives = facts.opening[_distinct_forms(planned.positives, facts)]
    shared, told = [], []
    for place in np.flatnonzero(common)[np.lexsort((first[common], -counts[common]))].tolist():
        share, among_positives = counts[place] / len(ids), float((positives == openings[place]).mean())
        many = len(distinct(asked[own == openings[place]])) >= MIN_OPENING_QUERIES
        if share > among_positives and many:
            shared.append(openings[place])
            at = ids[first[place]]
            start = opening_of(normal_form(plan.passages.take(ids[[first[place]]])[0]), bool(facts.unspaced[at]))
            told.append(f'"{start} …" {share:.1%} (of the positives {among_positives:.1%})')
    return Flagged.of(np.isin(own, np.array(shared, np.int64)), "; ".join(told[:SHOWN_OPENINGS]))


def _distinct_forms(ids: Index, facts: Facts) -> Index:
    """The smallest passage id of each distinct normal form among these, sorted."""
    ids = distinct(ids)
    _, first = np.unique(facts.normal[ids], return_index=True)
    return np.sort(ids[first])


def echoes(planned: PlannedSource, plan: Plan, lines: Lines) -> Flagged:
    """Negatives that hold the whole query, word for word but for case, white space and a closing mark."""
    query = planned.query[planned.triplet_record()]
    long_enough = lines.queries.tokens[query] >= ECHO_TOKENS
    room = lines.passages.characters[planned.negatives] + CLOSING_MARKS >= lines.queries.characters[query]
    candidates = np.flatnonzero(long_enough & room)
    candidates = candidates[np.argsort(planned.negatives[candidates], kind="stable")]
    flags = np.zeros(planned.n_triplets, np.bool_)
    for start, stop in pieces(
        len(candidates), CHUNK_TRIPLETS, lines.passages.characters[planned.negatives[candidates]]
    ):
        part = candidates[start:stop]
        asked, of_query = _forms(plan.queries, query[part])
        given, of_passage = _forms(plan.passages, planned.negatives[part])
        asked = [form.decode().rstrip(CLOSERS).encode() for form in asked]
        flags[part] = [asked[a] in given[b] for a, b in zip(of_query, of_passage, strict=True)]
    return Flagged.of(flags)


def _forms(store: TextStore, ids: Index) -> tuple[list[bytes], list[int]]:
    """Normal forms of the distinct texts among these, and which of them each is."""
    first, inverse = np.unique(ids, return_inverse=True)
    return Forms.of(store.packed_of(first)).encoded(), inverse.tolist()
