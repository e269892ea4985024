"""The triplet table: a row a (query, positive, negative) that is scored, a column a fact.

Read in this order: table (which positive a negative is scored against, and the lexical column), embedding (the vector
columns), measure_set (the sums over a source), estimates (means and shares with 95 % intervals, queries as clusters),
random_reference (what random passages would reach).

In: one record, "q" with the positive "p" and the negatives "a" and "b". Out: two rows,

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
from secid.pool import SPLITTERS, DocumentFrequencies, Keys, Lexicon, Plan, PlannedSource, content_of
from secid.pool.texts import TextStore, text_key
from secid.progress import Progress, Silent
from secid.results import IdfInfo
from secid.results.catalogue import BITS
from secid.settings import Positives, flag_of
from secid.triplets.estimates import Estimate, Names, Share, clustered_mean
from secid.triplets.guide import GuideScores
from secid.triplets.random_reference import QuerySums, RandomReference, hardness, hardness_sums

# Which (query, positive, negative) rows a planned source is scored on: the positive policies.


def triplets_of(
    planned: PlannedSource, policy: Positives, vectors: Vectors | None = None, passages: TextStore | None = None
) -> Triplets:
    """The triplets of a source under a positive policy.

    first, random : the plan put the one scored first.   hardest, easiest : the one with the
    smallest or largest s_qp, ties broken by text; they need the vectors and passages.   all : one triplet
    for each pair, sharing what the negative counts.
    Source: METHOD 1, 9.
    """
    if policy == "all":
        return _all_pairs(planned)
    chosen = planned.positives[planned.positive_offsets[:-1]]
    if policy in ("hardest", "easiest") and vectors is not None and passages is not None:
        chosen = planned.positives[_extreme(planned, vectors, passages, 1.0 if policy == "hardest" else -1.0)]
    record = planned.triplet_record()
    return Triplets(
        query=narrow(planned.query)[record],
        positive=narrow(chosen)[record],
        negative=planned.negatives,
        record_offsets=planned.negative_offsets,
        record=narrow(record),
        place=narrow(np.arange(planned.n_triplets)),
    )


def positive_cosines(planned: PlannedSource, vectors: Vectors) -> Floats:
    """(P,) s_qp of every positive of the plan, in float64."""
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    places = np.arange(len(record))
    ids = planned.query[record], planned.positives, planned.positives  # any negative does: only s_qp is read
    pairs = Triplets(*ids, record_offsets=np.arange(len(record) + 1), record=places, place=places)
    return sweep(replace(vectors, tick=None), pairs, {}, ()).dots.query_positive.numpy()


def _extreme(planned: PlannedSource, vectors: Vectors, passages: TextStore, sign: float) -> Index:
    """Place of each record's positive with the smallest sign * s_qp."""
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


# Coverage of a run's triplets under any tokenizer and IDF corpus, each lexed once.

Pieces = Callable[[list[str]], tuple[Index, Index]]
"""Token ids of texts, end to end, and (n,) how many each text has."""
WORDPIECES = "wordpieces"
SAME_IN_ASCII = frozenset({"alphanumeric", "multilingual"})
"""Tokenizers that give the same tokens of ASCII texts."""


def piece_stream(pieces: Pieces | None) -> Callable[[Sequence[str]], tuple[Keys, Index]]:
    """The encoder's own pieces of texts: what of a text the encoder sees, up to its maximum length.

    Raises UsageError where the encoder has no tokenizer to ask (vectors from a file, an endpoint).
    """
    if pieces is None:
        raise UsageError(
            "this encoder has no tokenizer of its own",
            where=flag_of("tokenizer", "wordpieces"),
            remedy="use alphanumeric",
        )
    found = pieces

    def lex(texts: Sequence[str]) -> tuple[Keys, Index]:
        ids, counts = found(list(texts))
        return ids.astype(np.uint64), counts

    return lex


class CoverageTables:
    """Lexicons and frequency tables of one run, made when first asked for.

    triplets : the scored triplets of all sources; their distinct documents are the pool (METHOD 2).
    frozen   : saved tables by tokenizer and corpus that take the place of the run's own, so that a new
               source is scored in the pool of an earlier run.
    folder   : where token sets are spooled.
    pieces   : the encoder's own word pieces, for the tokenizer "wordpieces"; None where it has none.
    progress : notified of each lexicon while it is built.
    """

    def __init__(
        self,
        plan: Plan,
        triplets: Sequence[Triplets],
        folder: Path,
        frozen: Mapping[tuple[str, str], DocumentFrequencies] | None = None,
        pieces: Pieces | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress or Silent()
        self._plan = plan
        self._folder = folder
        self._pieces = pieces
        self._counted = np.zeros(len(plan.passages), np.bool_)
        for rows in triplets:
            self._counted[rows.positive] = True
            self._counted[rows.negative] = True
        self._lexicons: dict[str, Lexicon] = {}
        self._tables: dict[tuple[str, str], DocumentFrequencies] = dict(frozen or {})

    def over(self, plan: Plan, triplets: Sequence[Triplets], folder: Path) -> CoverageTables:
        """Return the tables of other texts under the same tokenizers; their pool is their own."""
        return CoverageTables(plan, triplets, folder, pieces=self._pieces)

    def tokenizers(self) -> tuple[str, ...]:
        """Names of all that can be used here: the encoder's own pieces where it has them."""
        return (*SPLITTERS, WORDPIECES) if self._pieces else tuple(SPLITTERS)

    def lexicon(self, tokenizer: str) -> Lexicon:
        """Token sets of all texts of the plan under a tokenizer."""
        same = next((self._lexicons[name] for name in SAME_IN_ASCII & self._lexicons.keys()), None)
        if tokenizer in SAME_IN_ASCII and same is not None and same.is_ascii:
            return same
        if tokenizer not in self._lexicons:
            queries, passages = self._plan.queries, self._plan.passages
            whole = tokenizer == WORDPIECES
            self._progress.start(f"lex {tokenizer}", len(queries) + len(passages), "texts")
            self._lexicons[tokenizer] = Lexicon(
                tokenizer,
                queries.get if whole else queries.packed,
                len(queries),
                passages.get if whole else passages.packed,
                self._counted,
                self._folder / f"{tokenizer}.tokens",
                piece_stream(self._pieces) if whole else None,
                (queries, passages),
                self._progress.advance,
            )
        return self._lexicons[tokenizer]

    def table(self, tokenizer: str, corpus: str) -> DocumentFrequencies:
        """Document frequencies of the pool, or of the pool and the queries. Source: METHOD 4."""
        key = (tokenizer, corpus)
        if key not in self._tables:
            lexicon = self.lexicon(tokenizer)
            table = lexicon.pooled()
            if corpus == "pooled_with_queries":
                table = lexicon.with_queries(table, ~self._queries_among_passages())
            self._tables[key] = table
        return self._tables[key]

    def info(self, tokenizer: str, corpus: str) -> IdfInfo:
        """Return what the report says about the table. For own and uniform weights it names the pool's."""
        table = self.table(tokenizer, corpus)
        return IdfInfo(corpus, tokenizer, table.n_documents, len(table.keys), table.sha256())

    def idf(self, rows: Triplets, tokenizer: str, corpus: str) -> Floats:
        """IDF of the query vocabulary for a set of triplets; "own" counts their own documents."""
        lexicon = self.lexicon(tokenizer)
        if corpus == "uniform":
            return lexicon.idf(None)
        if corpus == "own":
            return lexicon.idf(lexicon.of_passages(distinct(np.concatenate([rows.positive, rows.negative]))))
        return lexicon.idf(self.table(tokenizer, corpus))

    def negatives(self, rows: Triplets, tokenizer: str, corpora: Sequence[str]) -> Floats:
        """(n, T) coverage of each negative by the IDF of each corpus. Source: METHOD 2.3."""
        idf = np.stack([self.idf(rows, tokenizer, corpus) for corpus in corpora])
        return self.lexicon(tokenizer).coverage(rows.query, rows.negative, idf)

    def positives(self, rows: Triplets, tokenizer: str, corpus: str) -> Floats:
        """(G,) coverage of the scored positive of each record."""
        heads = rows.record_offsets[:-1]
        idf = self.idf(rows, tokenizer, corpus)
        return self.lexicon(tokenizer).coverage(rows.query[heads], rows.positive[heads], idf)

    def _queries_among_passages(self) -> npt.NDArray[np.bool_]:
        """(n_queries,) True where a query's text is also a document of the pool, so that it counts once."""
        plan = self._plan
        documents = set(map(bytes, plan.passages.keys[self._counted]))
        texts = plan.queries.get(0, len(plan.queries))
        return np.array([text_key("passage", text) in documents for text in texts], np.bool_)


# The triplet table: a row a triplet, a column a fact.
#
# A column is stored once, at the smallest size that holds it: ids as int32, what belongs to the positive once a record,
# findings as bits of one mask. Gates follow from the dot products in a few operations, so they are computed when asked
# for. `negatives.parquet` is this table on disk. Source: METHOD 1, 2, 14.

Mask = npt.NDArray[np.uint32]

GATES = ("consistency", "locality", "coverage", "residual", "weight")
DOTS = ("s_query_positive", "s_query_negative", "s_positive_negative")


@dataclass(frozen=True)
class TripletTable:
    """The triplets of one source or control, T rows in G groups of (record, scored positive).

    triplets          : ids, records and shares.   planned : where its rows come from; None for a control.
    temperature       : > 0, of the gates.
    s_query_positive  : (G,) cosine of the scored positive.   positive_coverage : (G,) its lexical coverage.
    s_query_negative, s_positive_negative, coverage : (T,) of the negative.
    findings          : (T,) bit i says that the negative has the i-th finding of the catalogue.
    evaluated         : names of the findings that were evaluated.
    guide             : scores of a guide; None without one.
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
        """Return the source of the rows. Raises ValueError for a control, whose triplets are in no file."""
        if self.planned is None:
            raise ValueError("a control has no rows in a file")
        return self.planned

    @property
    def share(self) -> Floats | None:
        """(T,) what each triplet counts; None for one each."""
        return self.triplets.share

    def average(self, values: Floats | Flags) -> float:
        """Mean of a (T,) column over the negatives."""
        return float(np.average(values, weights=self.share))

    def mean(self, values: Floats, names: Names) -> Estimate:
        """Return the mean with its error, clustered by query. names: (Q,) of the distinct queries, by rising id."""
        return clustered_mean(values, self.cluster(), names, self.share)

    def cluster(self) -> Index:
        """(T,) place of each triplet's query among the distinct ones."""
        return np.unique(self.triplets.query, return_inverse=True)[1]

    def share_of(self, flags: Flags, names: Names, among: Flags | None = None) -> Share:
        """The share of the flagged negatives. flags : (T,).   names : as in `mean`.

        among : (T,) the triplets that were evaluated, at least one; all where None.
        """
        weight: Floats = np.ones(len(self)) if self.share is None else self.share
        cluster = self.cluster()
        if among is not None:
            present, cluster = np.unique(cluster[among], return_inverse=True)
            weight, flags, names = weight[among], flags[among], names[present]
        return Share.of(flags * weight, weight, cluster, names)

    def in_slice(self, number: int) -> Index:
        """Places of the rows of one value of --by. Raises ValueError for a control."""
        return np.flatnonzero(self.source.slice[self.triplets.record] == number)

    def repeated(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(T,) a column of the groups, for each of their triplets."""
        return np.repeat(per_group, np.diff(self.triplets.record_offsets))

    def dots(self) -> Dots:
        """Dot products of all triplets, and ||n - p||^2."""
        positive_negative = torch.from_numpy(self.s_positive_negative)
        return Dots(
            torch.from_numpy(self.repeated(self.s_query_positive)),
            torch.from_numpy(self.s_query_negative),
            positive_negative,
            squared_distance(positive_negative),
        )

    def gates(self) -> Gates:
        """Gates of all triplets at the table's temperature."""
        return gates(self.dots(), torch.from_numpy(self.coverage), self.temperature)

    def pair_loss(self) -> Tensor:
        """(T,) -log consistency."""
        return pair_loss_nats(self.dots(), self.temperature)

    def columns(self) -> Mapping[str, Floats]:
        """Dot products and gates by the names that they have in negatives.parquet, (T,) each."""
        dots, gates = self.dots(), self.gates()
        return {
            "s_query_positive": dots.query_positive.numpy(),
            "s_query_negative": self.s_query_negative,
            "s_positive_negative": self.s_positive_negative,
            **{name: getattr(gates, name).numpy() for name in GATES},
        }

    def has(self, finding: str) -> Flags:
        """(T,) which negatives have a finding. Raises KeyError where it was not evaluated."""
        if finding not in self.evaluated:
            raise KeyError(finding)
        flags: Flags = (self.findings >> np.uint32(BITS[finding])) & np.uint32(1) != 0
        return flags

    def names_of(self, row: int) -> tuple[str, ...]:
        """Names of the findings of one negative, in the order of the catalogue."""
        return tuple(name for name, bit in BITS.items() if int(self.findings[row]) >> bit & 1)

    def with_findings(self, flags: Mapping[str, Flags]) -> TripletTable:
        """The table with further findings. flags: (T,) by name."""
        mask = self.findings.copy()
        for name, flag in flags.items():
            mask |= flag.astype(np.uint32) << np.uint32(BITS[name])
        return replace(self, findings=mask, evaluated=self.evaluated | flags.keys())

    def hardness(self, reference: RandomReference) -> Estimate | None:
        """Return where the negatives lie between random passages (0) and the positives (1). Source: METHOD 10."""
        best = self.repeated(self.s_query_positive)
        return hardness(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def hardness_sums(self, reference: RandomReference) -> QuerySums:
        """Return the sums by query from which the hardness on any queries follows."""
        best = self.repeated(self.s_query_positive)
        return hardness_sums(self.triplets.query, self.s_query_negative, best, self.share, reference)

    def rows(self, keep: Index) -> TripletTable:
        """Some rows of the table: a filter, or one group of a group-by. keep: rising places of them."""
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
    """||n - p||^2 of unit vectors; 0 where n counts as p, since the sweep sets their dot product to 1."""
    return (2.0 - 2.0 * positive_negative).clamp_min(0.0)
