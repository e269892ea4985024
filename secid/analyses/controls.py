"""Controls: sets of triplets made from the run's own texts so that their score is known or meaningless.

Controls are scored like sources but never ranked. All draws depend only on text keys and the seed, so the order of
files and rows does not matter. Source: METHOD 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.analyses.shared_queries import MIN_SHARED_QUERIES
from secid.arrays import Index, distinct, first_in_row, is_known, narrow, pairs
from secid.errors import UsageError
from secid.measure.blocks import Triplets, Vectors
from secid.measure.interval import Difference
from secid.measure.uncertainty import difference
from secid.pool import SPLITTERS, Plan, first_sampled, key_ranks, sample_order
from secid.pool.texts import batch_ranges
from secid.progress import Progress
from secid.results import control_name
from secid.settings import Settings, flag_of
from secid.triplets.measure_set import Measured, Measurer
from secid.triplets.random_reference import passage_pool
from secid.triplets.search import Bm25Index, nearest_passages

CONTROL_KINDS = ("random", "known_positive", "shuffled", "query_echo", "bm25_pool", "dense_pool")
TOO_FEW = "too_few_queries"
CANDIDATES = 100_000
"""Maximum number of documents that the controls bm25_pool and dense_pool search. A larger pool is sampled.
Source: METHOD 6."""
TEXTS_AT_ONCE = 4_096
"""Number of documents whose tokens are read at a time for BM25."""


def chosen_kinds(text: str) -> tuple[str, ...]:
    """Parse the setting `controls` into kinds, in the order of CONTROL_KINDS. Raises UsageError for an unknown kind."""
    if text in ("all", "none"):
        return CONTROL_KINDS if text == "all" else ()
    names = ["_".join(part.replace("-", " ").split()) for part in text.split(",")]  # pages show names with spaces
    for name in names:
        if name not in CONTROL_KINDS:
            problem = (
                f"{name!r} cannot be combined, got {text!r}" if name in ("all", "none") else f"unknown control {name!r}"
            )
            raise UsageError(
                problem, where=flag_of("controls"), remedy=f"use all, none, or some of {', '.join(CONTROL_KINDS)}"
            )
    return tuple(kind for kind in CONTROL_KINDS if kind in names)


@dataclass(frozen=True)
class Control:
    """Triplets of a control.

    of : name of the source whose negatives were shuffled; None for other kinds.
    n_candidates : number of documents that negatives were drawn or retrieved from; None for other kinds.
    """

    kind: str
    of: str | None
    triplets: Triplets
    n_candidates: int | None = None


@dataclass(frozen=True)
class Base:
    """Sampled (query, scored positive) pairs of a run, and the documents and labels needed for controls.

    query, positive    : (R,) ids, in the order of the sample.
    rank               : (n_passages,) rank of each passage by its text key.
    pool               : documents of the scored triplets, sorted by text key.
    candidates         : part of `pool` to search.
    known              : sorted query * n_passages + passage of every labelled positive.
    labelled_or_scored : sorted query * n_passages + passage of every labelled positive and scored negative.
    per_query          : number of negatives to draw per pair: the median over the records of all sources.
    """

    query: Index
    positive: Index
    rank: Index
    pool: Index
    candidates: Index
    known: Index
    labelled_or_scored: Index
    n_passages: int
    per_query: int


def base_of(plan: Plan, triplets: Sequence[Triplets], settings: Settings) -> Base:
    """Return one pair for each of the first control_queries queries: its scored positive with the smallest text key."""
    n_passages = len(plan.passages)
    rank = key_ranks(plan.passages.keys)
    query = np.concatenate([rows.query[rows.record_offsets[:-1]] for rows in triplets])
    positive = np.concatenate([rows.positive[rows.record_offsets[:-1]] for rows in triplets])
    by_key = np.lexsort((rank[positive], query))
    query, positive = query[by_key], positive[by_key]
    _, first = np.unique(query, return_index=True)
    query, positive = query[first], positive[first]
    order = first_sampled(np.arange(len(query)), plan.queries.keys[query], settings.seed, settings.control_queries)
    pool = passage_pool(plan, triplets)
    negative_pairs = [pairs(rows.query, rows.negative, n_passages) for rows in triplets]
    counts = np.concatenate([np.diff(planned.negative_offsets) for planned in plan.sources])
    return Base(
        query=query[order],
        positive=positive[order],
        rank=rank,
        pool=pool,
        candidates=_candidates(plan, pool, settings.seed),
        known=plan.known_positives,
        labelled_or_scored=distinct(np.concatenate([plan.known_positives, *negative_pairs])),
        n_passages=n_passages,
        per_query=max(1, int(np.median(counts))),
    )


def _candidates(plan: Plan, pool: Index, seed: int) -> Index:
    """Return the first CANDIDATES documents of the pool in sampling order, sorted as in the pool.

    The sample depends on the texts, the seed and the pool, but not on how many sources list a document.
    """
    if len(pool) <= CANDIDATES:
        return pool
    sample = first_sampled(pool, plan.passages.keys, seed, CANDIDATES)
    return pool[is_known(pool, np.sort(sample))]


def make_controls(
    plan: Plan,
    triplets: Sequence[Triplets],
    vectors: Vectors,
    settings: Settings,
    progress: Progress,
    wait_for_bm25: Callable[[], Triplets | str] | None = None,
) -> tuple[list[Control], dict[str, str]]:
    """Make the controls that the settings select. Return them, and why each missing one could not be made, by kind.

    wait_for_bm25 : waits for the result of `bm25_control` with the same arguments; None to search here.
    """
    kinds = chosen_kinds(settings.controls)
    controls: list[Control] = []
    missing: dict[str, str] = {}
    if not kinds:
        return controls, missing
    base = base_of(plan, triplets, settings)
    makers: Mapping[str, Callable[[], Triplets | str]] = {
        "random": lambda: _random(base, settings.seed),
        "known_positive": lambda: _known_positive(base),
        "query_echo": lambda: _query_echo(base, plan, settings.tokenizer),
        "bm25_pool": wait_for_bm25 or (lambda: _bm25(base, plan)),
        "dense_pool": lambda: _dense(base, vectors),
    }
    searched = {"random": base.pool, "bm25_pool": base.candidates, "dense_pool": base.candidates}
    progress.start("controls", len(kinds), "kinds")
    for kind in kinds:
        if kind == "shuffled":
            for planned, rows in zip(plan.sources, triplets, strict=True):
                shuffled = _shuffled(rows, base, plan, settings)
                if isinstance(shuffled, str):
                    missing[f"control {control_name(kind, planned.name)}"] = shuffled
                else:
                    controls.append(Control(kind, planned.name, shuffled))
        elif isinstance(rows_or_reason := makers[kind](), str):
            missing[f"control {control_name(kind, None)}"] = rows_or_reason
        else:
            controls.append(Control(kind, None, rows_or_reason, len(searched[kind]) if kind in searched else None))
        progress.advance(1)
    return controls, missing


def bm25_control(plan: Plan, triplets: Sequence[Triplets], settings: Settings) -> Triplets | str:
    """Return the triplets of the control bm25_pool, or the reason why it could not be made."""
    return _bm25(base_of(plan, triplets, settings), plan)


def triplets_from(
    pair: Index, query: Index, positive: Index, negative: Index, share: npt.NDArray[np.float64] | None = None
) -> Triplets:
    """Build triplets from flat arrays. pair: (T,) number of each triplet's (query, positive) pair, ascending."""
    counts = np.bincount(pair)
    counts = counts[counts > 0]
    return Triplets(
        query=narrow(query),
        positive=narrow(positive),
        negative=narrow(negative),
        record_offsets=np.concatenate([[0], np.cumsum(counts)]),
        record=narrow(np.repeat(np.arange(len(counts)), counts)),
        place=narrow(np.arange(len(negative))),
        share=share,
    )


def _from_table(base: Base, table: Index, eligible: npt.NDArray[np.bool_]) -> Triplets | str:
    """Build triplets from an (R, m) table of candidates. Each row gives its first per_query `eligible` candidates."""
    keep = eligible & (np.cumsum(eligible, axis=1) <= base.per_query)
    pair = np.repeat(np.arange(len(table)), keep.sum(axis=1))
    if not len(pair):
        return "no_document"
    return triplets_from(pair, base.query[pair], base.positive[pair], table[keep])


def _random(base: Base, seed: int) -> Triplets | str:
    """Draw documents uniformly, except documents in records of the query and its labelled positives."""
    if len(base.query) < 2:
        return TOO_FEW
    generator = np.random.default_rng([seed, 1])
    # Draw more than twice as many as needed, since excluded documents and repeats are removed
    table = base.pool[generator.integers(len(base.pool), size=(len(base.query), 2 * base.per_query + 8))]
    keep = ~is_known(pairs(base.query[:, None], table, base.n_passages), base.labelled_or_scored) & first_in_row(table)
    return _from_table(base, table, keep)


def _known_positive(base: Base) -> Triplets | str:
    """Use the other labelled positives of a query as its negatives."""
    query, passage = base.known // base.n_passages, base.known % base.n_passages
    place = {int(q): number for number, q in enumerate(base.query)}
    pair = np.array([place.get(int(q), -1) for q in query], np.int64)
    keep = pair >= 0
    keep[keep] = passage[keep] != base.positive[pair[keep]]
    if not keep.any():
        return "no_second_positive"
    order = np.argsort(pair[keep], kind="stable")
    pair, passage = pair[keep][order], passage[keep][order]
    return triplets_from(pair, base.query[pair], base.positive[pair], passage)


def _query_echo(base: Base, plan: Plan, tokenizer: str) -> Triplets | str:
    """Use the query's own text as the negative, so that the coverage is 1 and the weight 0.

    Queries without tokens are left out. So are queries whose text is not among the run's passages, because of sampling.
    """
    split = SPLITTERS.get(tokenizer, SPLITTERS["alphanumeric"])
    texts = plan.queries.take(base.query)
    usable = np.array([bool(split(text)) for text in texts], np.bool_) & (plan.echoes[base.query] >= 0)
    if not usable.any():
        return "no_query_token"
    pair = np.flatnonzero(usable)
    return triplets_from(pair, base.query[pair], base.positive[pair], plan.echoes[base.query[pair]])


def _shuffled(rows: Triplets, base: Base, plan: Plan, settings: Settings) -> Triplets | str:
    """Assign a source's negatives to other queries. They keep the source's style but are unrelated to the query.

    Triplets are sorted in the order of the sample, so neighbours are unrelated. They are then shifted by at least the
    largest number of negatives of one query, which moves every negative to another query.
    """
    priority = sample_order(plan.queries.keys[rows.query], settings.seed)
    order = np.lexsort((base.rank[rows.negative], base.rank[rows.positive], rows.query, priority))
    _, counts = np.unique(rows.query, return_counts=True)
    largest = int(counts.max())
    if len(rows) < 2 * largest:
        return "one_large_query"
    shift = int(np.random.default_rng([settings.seed, 2]).integers(largest, len(rows) - largest + 1))
    negative = rows.negative[order][(np.arange(len(rows)) + shift) % len(rows)]
    query, positive, record = rows.query[order], rows.positive[order], rows.record[order]
    sampled = np.isin(query, base.query)
    keep = sampled & ~is_known(pairs(query, negative, base.n_passages), base.labelled_or_scored)
    if not keep.any():
        return "same_negatives"
    group = pairs(record[keep], positive[keep], base.n_passages)
    new = np.concatenate([[True], group[1:] != group[:-1]])
    share = None if rows.share is None else rows.share[order][keep]
    return triplets_from(np.cumsum(new) - 1, query[keep], positive[keep], negative[keep], share)


def _bm25(base: Base, plan: Plan) -> Triplets | str:
    """Take the best candidates for each query by BM25 over words of any script, except its labelled positives."""
    passages, candidates = plan.passages, base.candidates
    documents = (
        passages.packed_of(candidates[start:stop])
        for start, stop in batch_ranges(len(candidates), TEXTS_AT_ONCE, passages.lengths[candidates])
    )
    index = Bm25Index(plan.queries.packed_of(base.query), documents, "multilingual")
    if not index.n_query_tokens:
        return "no_query_token"
    if not index.n_document_tokens:
        return "no_document_token"
    places, _ = index.best(np.arange(len(base.query)), min(len(candidates), base.per_query + _max_positives(base)))
    table, keep = _unlabelled(base, places)
    return _from_table(base, table, keep) if keep.any() else "no_shared_token"


def _dense(base: Base, vectors: Vectors) -> Triplets | str:
    """Take the candidates nearest to each query by the encoder, except its labelled positives."""
    k = base.per_query + _max_positives(base)
    return _from_table(base, *_unlabelled(base, nearest_passages(vectors, base.query, base.candidates, k)[0]))


def _unlabelled(base: Base, places: Index) -> tuple[Index, npt.NDArray[np.bool_]]:
    """Return the (R, k) candidates at these places, and flags: False for a labelled positive or a missing one (-1)."""
    table = base.candidates[places]
    return table, (places >= 0) & ~is_known(pairs(base.query[:, None], table, base.n_passages), base.known)


def _max_positives(base: Base) -> int:
    """Return the largest number of labelled positives that a query has. All may be among the query's best documents."""
    query = base.known // base.n_passages
    return int(np.bincount(query).max(initial=1)) if len(query) else 1


def control_gaps(
    control: Measured, of: str | None, table: Sequence[Measured], measurer: Measurer, *, same_queries: bool
) -> dict[str, Difference]:
    """Return each source's score minus the control's score at budget 1, by name of the source.

    of : name of the only source to compare; None for all.
    same_queries : True if all sources have the same queries. If not, the control is restricted to each source's
                   queries. A source is skipped if this removes some of the control's queries and leaves fewer than
                   MIN_SHARED_QUERIES.
    """
    gaps, parts = {}, {b"": (control.influence, control.nats(1.0))}
    for source in table:
        if of not in (None, source.name):
            continue
        keep = is_known(control.triplets.query, source.influence.queries)
        key = b"" if same_queries or keep.all() else np.packbits(keep).tobytes()
        if key and len(distinct(control.triplets.query[keep])) < MIN_SHARED_QUERIES:
            continue
        if key not in parts:
            parts[key] = measurer.score_of(control, np.flatnonzero(keep), 1.0)
        effect, nats = parts[key]
        gaps[source.name] = difference(source.influence, effect, source.nats(1.0) - nats, 1.0)
    return gaps
