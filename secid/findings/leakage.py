"""Texts of an evaluation set among the texts of a run, exactly or nearly equal.

Exact: of one normal form (METHOD 14), which is not empty. Near, for queries: the sets of words have a Jaccard
similarity of at least NEAR_QUERY. Near, for passages: of the shorter one's windows of SHINGLE_WORDS words at least
NEAR_PASSAGE occur in the other, which finds chunks, added titles and edits alike. Both are computed exactly for every
pair that can reach the threshold (no sketches, no misses).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index, among, best_first, distinct
from secid.findings.copies import windows
from secid.findings.summary import Case
from secid.pool import Plan, PlannedSource, token_stream
from secid.pool.normal_form import EMPTY_FORM, FormKeys, Keys, text_forms
from secid.pool.texts import Packed, TextStore, pieces
from secid.read.evaluation import EvaluationSet
from secid.read.rows import shorten
from secid.records import Fact
from secid.results import Example

Measure = Literal["jaccard", "overlap"]

CHUNK_TEXTS = 4096
TOKENIZER = "multilingual"
"""Words of any script; in scripts without spaces, pairs of characters."""
NEAR_QUERY = 0.8
NEAR_PASSAGE = 0.8
MIN_QUERY_WORDS = 4
"""Shorter queries are compared exactly only: of three words, one in common says little."""
SHINGLE_WORDS = 5
MIN_SHINGLES = 10
"""Shorter passages are compared exactly only: they may be a phrase that many texts hold."""
SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Matches:
    """For each of n texts the evaluation text it equals, or comes nearest to above the threshold.

    which : (n,) number of the evaluation text, -1 for none.   similarity : (n,) 1.0 for an exact match.
    exact : (n,) of its normal form.
    """

    which: Index
    similarity: Floats
    exact: npt.NDArray[np.bool_]

    def of(self, ids: Index) -> Index:
        """Those of these texts that match."""
        return ids[self.which[ids] >= 0]

    def first_places(self, ids: Index) -> Index:
        """Where each evaluation text is met first in a list of texts, in the order of the list."""
        places = np.flatnonzero(self.which[ids] >= 0)
        return np.sort(places[np.unique(self.which[ids[places]], return_index=True)[1]])


def shingles(texts: Sequence[str], width: int) -> tuple[Keys, Index]:
    """Keys of all windows of `width` words, and the text of each; a text of fewer words has none."""
    return windows(*token_stream(texts, TOKENIZER), width)


class Finder:
    """Evaluation texts of one role, ready to be found among others.

    width : words of a shingle.   smallest : fewer shingles than this are compared exactly only.
    """

    def __init__(self, texts: Mapping[str, str], measure: Measure, width: int, threshold: float, smallest: int) -> None:
        by_text = sorted(texts.items(), key=itemgetter(1, 0))  # of two that match equally the first one counts
        self.ids, self.texts = [name for name, _ in by_text], [text for _, text in by_text]
        self._measure, self._width = measure, width
        self._threshold, self._smallest = threshold, smallest
        self._forms, self._form_text = np.unique(FormKeys.of(Packed.of(self.texts)).hashes(), return_index=True)
        keys, owners = shingles(self.texts, width)
        self._vocabulary, columns = np.unique(keys, return_inverse=True)
        self._rows = _matrix(owners, columns, len(self.texts), len(self._vocabulary))
        self._probe = self._probes(self._rows.indices).T.tocsr()

    def _probes(self, columns: Index) -> Any:
        """The shingles of each text that are enough to meet every text above the threshold.

        Jaccard >= t means that at least t of the own shingles are shared, so any |A| - ceil(t |A|) + 1
        of them meet the other text at least once: the rarest are taken. Overlap bounds nothing of a
        text that may be the longer one: all are taken.
        """
        sizes = _sizes(self._rows)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((np.bincount(columns)[columns], owner))
        rank = np.arange(len(columns)) - self._rows.indptr[:-1][owner]
        n_needed = sizes - np.ceil(self._threshold * sizes - 1e-9) + 1 if self._measure == "jaccard" else sizes
        chosen = (rank < n_needed[owner]) & (sizes >= self._smallest)[owner]
        return _matrix(owner[chosen], columns[order[chosen]], *self._rows.shape)

    def find(self, store: TextStore, tick: Callable[[int], None] = lambda n: None) -> Matches:
        """Matches of the texts of a store."""
        n, forms = len(store), text_forms(store).form
        which, similarity = np.full(n, -1, np.int64), np.zeros(n)
        exact = np.zeros(n, np.bool_)
        if len(self.ids):
            place = np.minimum(np.searchsorted(self._forms, forms), len(self._forms) - 1)
            exact = (self._forms[place] == forms) & (forms != EMPTY_FORM)
            which[exact], similarity[exact] = self._form_text[place[exact]], 1.0
        for start, stop in pieces(n if len(self._vocabulary) else 0, CHUNK_TEXTS, store.lengths):
            owner, other, value = self._near(store.get(start, stop))
            order = best_first(-value, -other)  # the nearest is written last
            owner, other, value = owner[order] + start, other[order], value[order]
            free = ~exact[owner]
            which[owner[free]], similarity[owner[free]] = other[free], value[free]
            tick(stop - start)
        return Matches(which, similarity, exact)

    def _near(self, texts: Sequence[str]) -> tuple[Index, Index, Floats]:
        """(text, evaluation text, similarity) of all pairs above the threshold."""
        keys, owners = shingles(texts, self._width)
        known = among(keys, self._vocabulary)
        rows = _matrix(owners[known], np.searchsorted(self._vocabulary, keys[known]), len(texts), len(self._vocabulary))
        owner, other = (part.astype(np.int64) for part in (rows @ self._probe).nonzero())
        common = np.asarray(rows[owner].multiply(self._rows[other]).sum(axis=1), np.float64).ravel()
        inside = among(owners, distinct(owner))
        numbers = np.unique(keys[inside], return_inverse=True)[1]
        a = _sizes(_matrix(owners[inside], numbers, len(texts), len(numbers)))[owner]
        b = _sizes(self._rows)[other]
        value = common / (np.minimum(a, b) if self._measure == "overlap" else a + b - common)
        near = (value >= self._threshold - 1e-9) & (a >= self._smallest)
        return owner[near], other[near], value[near]


def query_finder(texts: Mapping[str, str]) -> Finder:
    """Finds evaluation queries, by id."""
    return Finder(texts, "jaccard", 1, NEAR_QUERY, MIN_QUERY_WORDS)


def passage_finder(texts: Mapping[str, str]) -> Finder:
    """Finds relevant passages, by id."""
    return Finder(texts, "overlap", SHINGLE_WORDS, NEAR_PASSAGE, MIN_SHINGLES)


def _matrix(rows: Index, columns: Index, n_rows: int, n_columns: int) -> Any:
    """(n_rows, n_columns or 1) sparse: 1 at these places, which may repeat, 0 elsewhere."""
    from scipy import sparse

    ones = np.ones(len(rows), np.float32)
    matrix = sparse.csr_matrix((ones, (rows, columns)), shape=(n_rows, max(1, n_columns)))
    matrix.data[:] = 1.0
    return matrix


def _sizes(matrix: Any) -> Index:
    """(n_rows,) ones of each row."""
    return np.asarray(np.diff(matrix.indptr), np.int64)


class Leaks:
    """Evaluation texts among all texts of a run. tick: called with the number of texts compared."""

    def __init__(self, plan: Plan, evaluation: EvaluationSet, tick: Callable[[int], None]) -> None:
        self._plan = plan
        self._finders = {
            "eval_query": query_finder(evaluation.queries),
            "eval_passage": passage_finder(evaluation.passages),
        }
        self._queries = self._finders["eval_query"].find(plan.queries, tick)
        self._passages = self._finders["eval_passage"].find(plan.passages, tick)

    def cases(self, planned: PlannedSource, n_examples: int) -> dict[str, Case]:
        """Shares of the source's distinct queries and passages that are evaluation texts, by caution."""
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        ids = np.concatenate([planned.positives, planned.negatives])
        file = np.concatenate([planned.file[record], planned.negative_file])
        line = np.concatenate([planned.line[record], planned.negative_line])
        n_positives, n_negatives = (
            len(self._passages.of(distinct(part))) for part in (planned.positives, planned.negatives)
        )
        roles = {"n_positives": n_positives, "n_negatives": n_negatives}
        places = {
            "eval_query": (self._queries, planned.query, planned.file, planned.line, self._plan.queries, {}),
            "eval_passage": (self._passages, ids, file, line, self._plan.passages, roles),
        }
        cases = {}
        for name, (matches, listed, files, lines, store, by_role) in places.items():
            all_ids = distinct(listed)
            leaked = matches.of(all_ids)
            examples = tuple(
                Example(
                    name,
                    planned.source.paths[int(files[place])],
                    int(lines[place]),
                    _example(matches, self._finders[name], store, int(listed[place])),
                )
                for place in matches.first_places(listed)[:n_examples].tolist()
            )
            values = {
                "n_exact": int(matches.exact[leaked].sum()),
                "n_evaluation": len(distinct(matches.which[leaked])),
                "n_evaluation_all": len(self._finders[name].ids),
                **by_role,
            }
            cases[name] = Case(len(leaked), len(leaked) / max(1, len(all_ids)), values, examples)
        return cases


def _example(matches: Matches, finder: Finder, store: TextStore, text_id: int) -> Fact:
    """A text of the run, and the evaluation text that it is."""
    place, text = int(matches.which[text_id]), store.take(np.array([text_id]))[0]
    values: dict[str, str | float] = {"text": shorten(text, SHOWN_CHARACTERS), "id": finder.ids[place]}
    if not matches.exact[text_id]:
        values["similarity"] = float(matches.similarity[text_id])
        values["evaluation_text"] = shorten(finder.texts[place], SHOWN_CHARACTERS)
    return Fact("evaluation_text", values)
