"""The triplet table: one row per scored (query, positive, negative), and one column per fact.

Read the modules in this order: table (the positive that a negative is scored against, and lexical coverage), embedding
(vectors), measure_set (sums over a source), estimates (means and shares with 95 % intervals), random_reference
(comparison with random passages).

Example: a record of query "q", positive "p" and negatives "a" and "b" becomes two rows,

    query  positive  negative  consistency  locality  coverage  weight
    q      p         a         0.9          0.8       0.5       0.9 * 0.8 * (1 - 0.5) = 0.36
    q      p         b         0.4          0.8       0.0       0.4 * 0.8 * (1 - 0.0) = 0.32

so that the source's mean consistency is 0.65, and 1 of its 2 negatives (b, below 0.5) is an inversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Flags, Floats, Index, best_first, distinct, narrow
from secid.errors import UsageError
from secid.measure.blocks import Triplets, Vectors
from secid.measure.gates import Dots, Gates, gates, pair_loss_nats
from secid.measure.sweep import sweep
from secid.pool import SPLITTERS, DocumentFrequencies, Keys, Lexicon, Plan, PlannedSource, content_of, term_keys
from secid.pool.coverage import Stream
from secid.pool.texts import TextStore, text_key
from secid.progress import Progress, Silent
from secid.results import IdfInfo
from secid.results.catalogue import BITS
from secid.settings import PositivePolicy, flag_of
from secid.triplets.estimates import Estimate, Names, Share, clustered_mean
from secid.triplets.guide import GuideScores
from secid.triplets.random_reference import QuerySums, RandomReference, hardness, hardness_sums

# Positive policies: the choice of (query, positive, negative) rows on which a source is scored.


def triplets_of(
    planned: PlannedSource, policy: PositivePolicy, vectors: Vectors | None = None, passages: TextStore | None = None
) -> Triplets:
    """Return the triplets of a source under a positive policy. Source: METHOD 1, 9.

    policy : "first" and "random" use the first positive in the plan, which has already applied the policy. "hardest"
             and "easiest" use the positive with the smallest or largest s_qp, with ties broken by text; they need
             `vectors` and `passages`. "all" makes one triplet for each pair of a positive and a negative; the triplets
             of a negative share a weight of one.
    """
    if policy == "all":
        return _all_pairs(planned)
    passage = planned.positives[planned.positive_offsets[:-1]]
    if policy in ("hardest", "easiest") and vectors is not None and passages is not None:
        passage = planned.positives[_extreme(planned, vectors, passages, 1.0 if policy == "hardest" else -1.0)]
    record = planned.triplet_record()
    return Triplets(
        query=narrow(planned.query)[record],
        positive=narrow(passage)[record],
        negative=planned.negatives,
        record_offsets=planned.negative_offsets,
        record=narrow(record),
        place=narrow(np.arange(planned.n_triplets)),
    )


def positive_cosines(planned: PlannedSource, vectors: Vectors) -> Floats:
    """Return (P,) float64 s_qp of every labelled positive in a source's records."""
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    places = np.arange(len(record))
    ids = planned.query[record], planned.positives, planned.positives  # any negative will do, since only s_qp is read
    pairs = Triplets(*ids, record_offsets=np.arange(len(record) + 1), record=places, place=places)
    return sweep(replace(vectors, tick=None), pairs, {}, ()).dots.query_positive.numpy()


def _extreme(planned: PlannedSource, vectors: Vectors, passages: TextStore, sign: float) -> Index:
    """Return the index of each record's positive with the smallest sign * s_qp."""
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    order = best_first(-sign * positive_cosines(planned, vectors), content_of(passages.keys[planned.positives]), record)
    return order[np.searchsorted(record[order], np.arange(planned.n_records))]


def _all_pairs(planned: PlannedSource) -> Triplets:
    n_positives = np.diff(planned.positive_offsets)
    pair_record = np.repeat(np.arange(planned.n_records), n_positives)
    n_negatives = np.diff(planned.negative_offsets)[pair_record]
    offsets = np.concatenate([[0], np.cumsum(n_negatives)])
    record = np.repeat(pair_record, n_negatives)
    within = np.arange(len(record)) - np.repeat(offsets[:-1], n_negatives)
    place = planned.negative_offsets[record] + within
    return Triplets(
        query=narrow(planned.query)[record],
        positive=np.repeat(narrow(planned.positives), n_negatives),
        negative=planned.negatives[place],
        record_offsets=offsets,
        record=narrow(record),
        place=narrow(place),
        share=1.0 / n_positives[record],
    )


# Coverage of a run's triplets under any tokenizer and IDF corpus. Texts are tokenized once per tokenizer.

Pieces = Callable[[list[str]], tuple[Index, Index]]
"""Token ids of texts, end to end, and (n,) how many each text has."""
WORDPIECES = "wordpieces"
SAME_IN_ASCII = frozenset({"alphanumeric", "multilingual"})
"""Tokenizers that give the same tokens for ASCII texts."""
SHARING_IN_ASCII = SAME_IN_ASCII | {"alphanumeric2"}
"""These tokenizers, and the one that leaves out tokens of one character."""
ONE_CHARACTER = [*"0123456789abcdefghijklmnopqrstuvwxyz"]


def piece_stream(pieces: Pieces | None) -> Callable[[Sequence[str]], tuple[Keys, Index]]:
    """Return a function that splits texts into the encoder's word pieces, up to its maximum length.

    Raises UsageError if the encoder has no tokenizer (a vectors file or an endpoint).
    """
    if pieces is None:
        raise UsageError(
            "this encoder has no tokenizer", where=flag_of("tokenizer", "wordpieces"), remedy="use alphanumeric"
        )
    split = pieces

    def lex(texts: Sequence[str]) -> tuple[Keys, Index]:
        ids, counts = split(list(texts))
        return ids.astype(np.uint64), counts

    return lex


def pool_flags(plan: Plan, triplets: Sequence[Triplets]) -> Flags:
    """Return (n_passages,) flags of the passages that the triplets refer to: the documents that IDF counts."""
    counted = np.zeros(len(plan.passages), np.bool_)
    for rows in triplets:
        counted[rows.positive] = counted[rows.negative] = True
    return counted


def lexicon_of(
    tokenizer: str,
    queries: TextStore,
    passages: TextStore,
    counted: Flags,
    folder: Path,
    pieces: Stream | None = None,
    lexed: Callable[[int], None] = lambda n: None,
    *,
    with_others: bool = True,
) -> Lexicon:
    """Return the token sets of all texts under a tokenizer.

    counted, lexed, with_others : as in `Lexicon`.   folder : folder for the spool.   pieces : the encoder's word
    pieces, for "wordpieces".
    """
    texts = (queries.packed, passages.packed) if pieces is None else (queries.get, passages.get)
    spool = folder / f"{tokenizer}.tokens"
    of_texts = texts[0], len(queries), texts[1], counted, spool, pieces, (queries, passages), lexed
    return Lexicon(tokenizer, *of_texts, with_others=with_others)


def lexicons_of(
    tokenizers: Sequence[str], queries: TextStore, passages: TextStore, counted: Flags, folder: Path, main: str
) -> dict[str, Lexicon]:
    """Return lexicons by tokenizer, with document frequencies counted, so that another process can use them.

    tokenizers : names in SPLITTERS.   counted, folder : as in `lexicon_of`.
    main : the run's tokenizer, the only one with the frequencies of tokens that no query has.
    """
    lexicons: dict[str, Lexicon] = {}
    for tokenizer in tokenizers:
        if same_in_ascii(tokenizer, lexicons) is None:
            made = lexicon_of(tokenizer, queries, passages, counted, folder, with_others=tokenizer == main)
            made.pooled()
            lexicons[tokenizer] = made
    return lexicons


def grouped_tokenizers(tokenizers: Sequence[str]) -> list[list[str]]:
    """Return groups of tokenizers for `lexicons_of`. Only tokenizers of one group may share a lexicon."""
    alike = [name for name in tokenizers if name in SHARING_IN_ASCII]
    others = [[name] for name in tokenizers if name not in alike]
    return [alike, *others] if alike else others


def same_in_ascii(tokenizer: str, lexicons: Mapping[str, Lexicon]) -> Lexicon | None:
    """Return a lexicon with at least this tokenizer's tokens, because all texts are ASCII; None if there is none."""
    same = next((lexicons[name] for name in SAME_IN_ASCII & lexicons.keys()), None)
    return same if tokenizer in SHARING_IN_ASCII and same is not None and same.is_ascii else None


class CoverageTables:
    """Lexicons and document frequencies of a run, computed when first needed.

    triplets : scored triplets of all sources. Their distinct documents are the pool (METHOD 2).
    frozen   : saved document frequencies by tokenizer and corpus, used instead of the run's own, so that a new source
               is scored in the pool of an earlier run.
    pieces   : function that splits texts into the encoder's word pieces, for the tokenizer "wordpieces"; None if the
               encoder has no tokenizer.
    lexicons : lexicons that exist already, by tokenizer, for the same texts and pool.
    """

    def __init__(
        self,
        plan: Plan,
        triplets: Sequence[Triplets],
        folder: Path,
        frozen: Mapping[tuple[str, str], DocumentFrequencies] | None = None,
        pieces: Pieces | None = None,
        progress: Progress | None = None,
        lexicons: Mapping[str, Lexicon] | None = None,
    ) -> None:
        self._progress = progress or Silent()
        self._plan = plan
        self._folder = folder
        self._pieces = pieces
        self._counted = pool_flags(plan, triplets)
        self._lexicons: dict[str, Lexicon] = dict(lexicons or {})
        self._tables: dict[tuple[str, str], DocumentFrequencies] = dict(frozen or {})

    def for_texts(self, plan: Plan, triplets: Sequence[Triplets], folder: Path) -> CoverageTables:
        """Return tables for other texts, with the same tokenizers. The pool consists of these texts only."""
        return CoverageTables(plan, triplets, folder, pieces=self._pieces)

    def tokenizers(self) -> tuple[str, ...]:
        """Return the names of all available tokenizers, including "wordpieces" if the encoder has a tokenizer."""
        return (*SPLITTERS, WORDPIECES) if self._pieces else tuple(SPLITTERS)

    def lexicon(self, tokenizer: str, *, with_others: bool = True) -> Lexicon:
        """Return the token sets of all texts in the plan under a tokenizer.

        They may be those of another tokenizer with more tokens, to which `idf` gives the weight 0.
        with_others : as in `Lexicon`.
        """
        if tokenizer not in self._lexicons:
            same = same_in_ascii(tokenizer, self._lexicons)
            if same is not None:
                return same
            queries, passages = self._plan.queries, self._plan.passages
            self._progress.start(f"lex {tokenizer}", len(queries) + len(passages), "texts")
            pieces = piece_stream(self._pieces) if tokenizer == WORDPIECES else None
            made_from = queries, passages, self._counted, self._folder, pieces, self._progress.advance
            self._lexicons[tokenizer] = lexicon_of(tokenizer, *made_from, with_others=with_others)
        return self._lexicons[tokenizer]

    def table(self, tokenizer: str, corpus: str) -> DocumentFrequencies:
        """Return the document frequencies of the pool, or of pool and queries. Source: METHOD 4."""
        key = (tokenizer, corpus)
        if key not in self._tables:
            lexicon = self.lexicon(tokenizer)
            table = lexicon.pooled()
            if corpus == "pooled_with_queries":
                table = lexicon.with_queries(table, ~self._queries_among_passages())
            self._tables[key] = table
        return self._tables[key]

    def info(self, tokenizer: str, corpus: str) -> IdfInfo:
        """Return the report's facts about the IDF table. For "own" and "uniform" they describe the pool's table."""
        table = self.table(tokenizer, corpus)
        return IdfInfo(corpus, tokenizer, table.n_documents, len(table.keys), table.sha256())

    def idf(self, rows: Triplets, tokenizer: str, corpus: str) -> Floats:
        """Return the IDF of the query vocabulary. For the corpus "own" only documents of these triplets count."""
        lexicon = self.lexicon(tokenizer)
        if corpus == "uniform":
            idf = lexicon.idf(None)
        elif corpus == "own":
            idf = lexicon.idf(lexicon.of_passages(distinct(np.concatenate([rows.positive, rows.negative]))))
        else:
            idf = lexicon.idf(self.table(tokenizer, corpus))
        if tokenizer == "alphanumeric2" != lexicon.tokenizer:
            idf[np.isin(lexicon.vocabulary, term_keys(ONE_CHARACTER, lexicon.tokenizer))] = 0.0
        return idf

    def negatives(self, rows: Triplets, names: Sequence[tuple[str, str]]) -> list[Floats]:
        """Return (T,) coverage of each negative by each (tokenizer, corpus). Source: METHOD 2.3.

        Names with the same token sets share one comparison of texts.
        """
        by_lexicon: dict[Lexicon, list[tuple[str, str]]] = {}
        for name in names:
            by_lexicon.setdefault(self.lexicon(name[0]), []).append(name)
        coverage: dict[tuple[str, str], Floats] = {}
        for lexicon, group in by_lexicon.items():
            idf = np.stack([self.idf(rows, *name) for name in group])
            coverage.update(zip(group, lexicon.coverage(rows.query, rows.negative, idf), strict=True))
        return [coverage[name] for name in names]

    def positives(self, rows: Triplets, tokenizer: str, corpus: str) -> Floats:
        """Return (G,) coverage of each (record, scored positive)."""
        heads = rows.record_offsets[:-1]
        idf = self.idf(rows, tokenizer, corpus)
        return self.lexicon(tokenizer).coverage(rows.query[heads], rows.positive[heads], idf)

    def _queries_among_passages(self) -> npt.NDArray[np.bool_]:
        """Return (n_queries,) flags of queries whose text is also a document of the pool, so that it counts once."""
        plan = self._plan
        documents = set(map(bytes, plan.passages.keys[self._counted]))
        texts = plan.queries.get(0, len(plan.queries))
        return np.array([text_key("passage", text) in documents for text in texts], np.bool_)


# The triplet table: one row per triplet, and one column per fact.
#
# Columns are stored compactly: ids as int32, facts about the positive once per record, and findings as bits of a mask.
# Gates are not stored, since they are quickly computed from the dot products. `negatives.parquet` is this table on
# disk. Source: METHOD 1, 2, 14.

Mask = npt.NDArray[np.uint32]

GATE_COLUMNS = ("consistency", "locality", "coverage", "residual", "weight")
DOT_COLUMNS = ("s_query_positive", "s_query_negative", "s_positive_negative")


@dataclass(frozen=True)
class TripletTable:
    """The triplets of one source or control: T rows in G groups, one for each (record, scored positive).

    triplets          : ids, records and shares.   planned : source of the rows; None for a control.
    temperature       : temperature of the gates, > 0.
    s_query_positive  : (G,) cosine of query and scored positive.
    positive_coverage : (G,) lexical coverage of the scored positive.
    s_query_negative, s_positive_negative, coverage : (T,) cosines and lexical coverage of the negative.
    findings          : (T,) bit mask. Bit i is set if the negative has finding number i of the catalogue.
    guide             : scores of the guide; None without a guide.
    """

    triplets: Triplets
    planned: PlannedSource | None
    temperature: float
    s_query_positive: Floats
    positive_coverage: Floats
    s_query_negative: Floats
    s_positive_negative: Floats
    coverage: Floats
    findings: Mask
    evaluated: frozenset[str]
    guide: GuideScores | None = None

    def __len__(self) -> int:
        return len(self.triplets)

    @property
    def source(self) -> PlannedSource:
        """Source of the rows. Raises ValueError for a control."""
        if self.planned is None:
            raise ValueError("a control has no rows in a file")
        return self.planned

    @property
    def share(self) -> Floats | None:
        """(T,) share of each triplet; None if each counts as one."""
        return self.triplets.share

    def average(self, values: Floats | Flags) -> float:
        """Return the mean of a (T,) column over the negatives."""
        return float(np.average(values, weights=self.share))

    def mean(self, values: Floats, names: Names) -> Estimate:
        """Return the mean of a (T,) column, clustered by query. names: (Q,) names of the distinct queries, by id."""
        return clustered_mean(values, self.cluster(), names, self.share)

    def cluster(self) -> Index:
        """Return (T,) number of each triplet's query among the distinct queries."""
        return np.unique(self.triplets.query, return_inverse=True)[1]

    def share_of(self, flags: Flags, names: Names, evaluated: Flags | None = None) -> Share:
        """Return the number and share of flagged negatives. flags: (T,).   names: as in `mean`.

        evaluated : (T,) flags of the triplets that were evaluated, at least one; None for all.
        """
        weight: Floats = np.ones(len(self)) if self.share is None else self.share
        cluster = self.cluster()
        if evaluated is not None:
            present, cluster = np.unique(cluster[evaluated], return_inverse=True)
            weight, flags, names = weight[evaluated], flags[evaluated], names[present]
        return Share.of(flags * weight, weight, cluster, names)

    def in_slice(self, number: int) -> Index:
        """Return the indices of the rows in a slice (one value of --by). Raises ValueError for a control."""
        return np.flatnonzero(self.source.slice[self.triplets.record] == number)

    def repeated(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return (T,) values of a (G,) column, repeated for each triplet of the group."""
        return np.repeat(per_group, np.diff(self.triplets.record_offsets))

    def dots(self) -> Dots:
        """Return the dot products of all triplets, and ||n - p||^2."""
        positive_negative = torch.from_numpy(self.s_positive_negative)
        return Dots(
            torch.from_numpy(self.repeated(self.s_query_positive)),
            torch.from_numpy(self.s_query_negative),
            positive_negative,
            squared_distance(positive_negative),
        )

    def gates(self) -> Gates:
        return gates(self.dots(), torch.from_numpy(self.coverage), self.temperature)

    def pair_loss(self) -> Tensor:
        """Return (T,) -log consistency."""
        return pair_loss_nats(self.dots(), self.temperature)

    def columns(self) -> Mapping[str, Floats]:
        """Return (T,) dot products and gates, by their column names in negatives.parquet."""
        dots, gates = self.dots(), self.gates()
        return {
            "s_query_positive": dots.query_positive.numpy(),
            "s_query_negative": self.s_query_negative,
            "s_positive_negative": self.s_positive_negative,
            **{name: getattr(gates, name).numpy() for name in GATE_COLUMNS},
        }

    def has(self, finding: str) -> Flags:
        """Return (T,) flags of the negatives with a finding. Raises KeyError if it was not evaluated."""
        if finding not in self.evaluated:
            raise KeyError(finding)
        flags: Flags = (self.findings >> np.uint32(BITS[finding])) & np.uint32(1) != 0
        return flags

    def names_of(self, row: int) -> tuple[str, ...]:
        """Return the names of a negative's findings, in the order of the catalogue. row: number of its row."""
        return tuple(name for name, bit in BITS.items() if int(self.findings[row]) >> bit & 1)

    def with_findings(self, flags: Mapping[str, Flags]) -> TripletTable:
        """Return the table with further findings. flags: (T,) flags by name of the finding."""
        mask = self.findings.copy()
        for name, flag in flags.items():
            mask |= flag.astype(np.uint32) << np.uint32(BITS[name])
        return replace(self, findings=mask, evaluated=self.evaluated | flags.keys())

    def hardness(self, reference: RandomReference) -> Estimate | None:
        """Return the hardness: 0 is as close to the query as random passages, 1 as the positives. Source: METHOD 10."""
        best = self.repeated(self.s_query_positive)
        return hardness(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def hardness_sums(self, reference: RandomReference) -> QuerySums:
        """Return the sums by query from which the hardness on any queries can be computed."""
        best = self.repeated(self.s_query_positive)
        return hardness_sums(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def rows(self, keep: Index) -> TripletTable:
        """Return some rows of the table. keep: ascending indices of the rows."""
        triplets = self.triplets.take(keep)
        groups = np.searchsorted(self.triplets.record_offsets, keep, side="right") - 1
        heads = groups[triplets.record_offsets[:-1]]
        return replace(
            self,
            triplets=triplets,
            s_query_positive=self.s_query_positive[heads],
            positive_coverage=self.positive_coverage[heads],
            **{name: getattr(self, name)[keep] for name in ("s_query_negative", "s_positive_negative", "coverage")},
            findings=self.findings[keep],
            guide=None if self.guide is None else self.guide.rows(keep),
        )


def squared_distance(positive_negative: Tensor) -> Tensor:
    """Return ||n - p||^2 of unit vectors. It is 0 if n counts as equal to p: the sweep sets their dot product to 1."""
    return (2.0 - 2.0 * positive_negative).clamp_min(0.0)
