"""Coverage of a run's triplets under any tokenizer and IDF corpus, each lexed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index, distinct
from secid.errors import UsageError
from secid.measure.blocks import Triplets
from secid.pool import SPLITTERS, DocumentFrequencies, Keys, Lexicon, Plan
from secid.pool.texts import text_key
from secid.progress import Progress, Silent
from secid.results import IdfInfo
from secid.settings import flag_of

Pieces = Callable[[list[str]], list[list[int]]]
WORDPIECES = "wordpieces"


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
        lists = found(list(texts))
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        return np.fromiter(chain.from_iterable(lists), np.uint64, int(counts.sum())), counts

    return lex


class CoverageBench:
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

    def over(self, plan: Plan, triplets: Sequence[Triplets], folder: Path) -> CoverageBench:
        """A bench of other texts, with the same tokenizers; its pool is its own."""
        return CoverageBench(plan, triplets, folder, pieces=self._pieces)

    def tokenizers(self) -> tuple[str, ...]:
        """Names of all that can be used here: the encoder's own pieces where it has them."""
        return (*SPLITTERS, WORDPIECES) if self._pieces else tuple(SPLITTERS)

    def lexicon(self, tokenizer: str) -> Lexicon:
        """Token sets of all texts of the plan under a tokenizer."""
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
        """What the report says of the table. For own and uniform weights the pool's is named."""
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

    def negatives(self, rows: Triplets, tokenizer: str, corpus: str) -> Floats:
        """(T,) coverage of each negative. Source: METHOD 2.3."""
        return self.lexicon(tokenizer).coverage(rows.query, rows.negative, self.idf(rows, tokenizer, corpus))

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
