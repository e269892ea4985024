"""Match relevance judgements by the normal forms of their texts, and find texts of an evaluation set in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, best_first, distinct, is_known
from secid.errors import InputError, UsageError
from secid.findings.copies import key_windows
from secid.findings.summary import CautionEvidence
from secid.pool import Plan, PlannedSource, token_stream
from secid.pool.normal_form import EMPTY_FORM, FORMS_AT_ONCE, FormKeys, Keys, text_forms
from secid.pool.texts import Packed, TextStore, batch_ranges
from secid.read.collection import BEIR_FOLDER, Collection, collection_files
from secid.read.evaluation import EvaluationSet, of_split, read_qrels
from secid.read.sources import data_files
from secid.read.stream import shorten
from secid.records import Fact
from secid.results import Example
from secid.settings import Settings, flag_of

# Relevance judgements by the normal forms of their texts, so that they apply to sources of ids and of texts.
#
# Ids of rows and qrels are first resolved to texts (`read.collection`). A judgement applies to all copies of its
# passage and its query, as a labelled positive does in the finding false_negative. Source: METHOD 10, 14.

OTHER_COLLECTION = "name queries, a corpus and qrels of the same collection"


def label_files(qrels: str | None, split: str | None, settings: Settings) -> Sequence[str]:
    """Return the qrels files of an audit: the user's file, or those of the collection.

    qrels : the user's file, or None.   split : split of the collection's qrels to read; None for all.
    Raises UsageError unless exactly one of file and collection is given. A file needs the settings corpus and queries,
    and allows no split; a collection must have the split. Raises InputError if the collection has no qrels.
    """
    if qrels is None and settings.collection is None:
        raise UsageError(
            "no labels given", remedy="name them with --collection DIR (a BEIR folder with qrels) or --qrels FILE"
        )
    texts = f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}"
    if qrels is not None:
        if settings.collection is not None:
            remedy = f"use only one of them; with --qrels, name the texts with {texts}"
            raise UsageError("--collection and --qrels both name qrels", where="--qrels", remedy=remedy)
        if split is not None:
            raise UsageError("has no effect on --qrels FILE", where="--split", remedy="use it with --collection DIR")
        if settings.corpus is None or settings.queries is None:
            remedy = f"name the texts with {texts}, or with --collection DIR"
            raise UsageError("the texts of the judged ids are not given", where="--qrels", remedy=remedy)
        return data_files(qrels)
    remedy = f"for secid audit, add --qrels FILE (and {texts}); for secid mine, use --pairs SOURCE"
    files = collection_files(settings.collection or "", BEIR_FOLDER).required("qrels", remedy)
    if split is not None and not of_split(files, split):
        names = ", ".join(Path(file).name for file in files)
        raise UsageError(
            f"no qrels for the split {split!r}", where="--split", remedy=f"use a split of the collection: {names}"
        )
    return files if split is None else of_split(files, split)


@dataclass(frozen=True)
class Judgements:
    """Grades of N >= 1 (query, passage) pairs. Pairs are distinct by the normal forms of their texts.

    queries, passages : (Q,) and (P,) sorted hashes of the normal forms.
    pairs             : (N,) sorted pair numbers, place in `queries` * P + place in `passages`.
    grade             : (N,) highest grade of each pair; above 0 is relevant.
    n_distinct        : number of distinct pairs of ids.   n_relevant : number of these pairs judged relevant.
    unknown           : reason -> number of pairs of ids without a text in the collection.
    """

    queries: Keys
    passages: Keys
    pairs: npt.NDArray[np.int64]
    grade: Floats
    n_distinct: int
    n_relevant: int
    unknown: Mapping[str, int]

    def grades(self, query: Keys, passage: Keys) -> Floats:
        """Return the grade of each pair, (T,); NaN if it is not judged.

        query, passage : hashes of the normal forms, (T,) each.
        """
        result = np.full(len(query), np.nan)
        known = np.flatnonzero(is_known(query, self.queries) & is_known(passage, self.passages))
        places = np.searchsorted(self.queries, query[known]) * len(self.passages)
        places += np.searchsorted(self.passages, passage[known])
        present = is_known(places, self.pairs)
        result[known[present]] = self.grade[np.searchsorted(self.pairs, places[present])]
        return result


def read_judgements(files: Sequence[str], collection: Collection, max_unknown: float) -> Judgements:
    """Return the judgements of these qrels files.

    max_unknown : maximum share of judgements without a text in the collection.
    Raises InputError if a file is not a qrels file, if there is no judgement, or if the share is above its maximum.
    """
    highest: dict[tuple[str, str], float] = {}
    for file in files:
        for *pair, value in read_qrels(file):
            key = pair[0], pair[1]
            highest[key] = max(value, highest.get(key, value))
    rows = [(*key, grade) for key, grade in highest.items()]
    where = ", ".join(files)
    if not rows:
        raise InputError("holds no judgement", where=where, remedy="name a qrels file that is not empty")
    grade = np.array([row[2] for row in rows])
    query, passage = _forms_of([row[0] for row in rows], collection.query), np.zeros(len(rows), np.uint64)
    in_queries = query != EMPTY_FORM
    places = np.flatnonzero(in_queries)
    passage[places] = _forms_of([rows[place][1] for place in places.tolist()], collection.passage)
    known = in_queries & (passage != EMPTY_FORM)
    unknown = unknown_of(rows, in_queries, known, where, max_unknown)
    queries, query_place = np.unique(query[known], return_inverse=True)
    passages, passage_place = np.unique(passage[known], return_inverse=True)
    pairs = query_place * len(passages) + passage_place
    order = np.lexsort((-grade[known], pairs))
    pairs = pairs[order]
    first = np.diff(pairs, prepend=-1) != 0
    return Judgements(
        queries, passages, pairs[first], grade[known][order][first], len(rows), int((grade > 0).sum()), unknown
    )


def unknown_of(
    rows: Sequence[tuple[str, str, float]], in_queries: Flags, known: Flags, where: str, max_unknown: float
) -> dict[str, int]:
    """Count the judgements without a text in the collection, by reason.

    in_queries : (n,) flags of judgements whose query has a text.
    known      : (n,) flags of judgements whose query and passage have texts.
    Raises InputError if no judgement is known, or if the share of unknown ones is above `max_unknown`.
    """
    unknown = {"unknown_query": int((~in_queries).sum()), "unknown_passage": int((in_queries & ~known).sum())}
    if not known.any() or not sum(unknown.values()) <= max_unknown * len(rows):
        without = {0: ~in_queries, 1: in_queries & ~known}
        examples = [rows[int(np.argmax(flags))][column] for column, flags in without.items() if flags.any()]
        raise InputError(
            f"{sum(unknown.values()):,} of {len(rows):,} judgements have no text in the collection, such as "
            f"{', '.join(map(repr, examples))} (no query: {unknown['unknown_query']:,}, no passage: "
            f"{unknown['unknown_passage']:,}; limit: {100 * max_unknown:g} %)",
            where=where,
            remedy=OTHER_COLLECTION,
        )
    return unknown


def _forms_of(keys: Sequence[str], text_of: Callable[[str], str | None]) -> Keys:
    """Look up the text of each id, and return the hashes of the normal forms, (n,); EMPTY_FORM if there is no text."""
    ids = list(dict.fromkeys(keys))
    of = dict(zip(ids, forms_of(text_of(key) or "" for key in ids).tolist(), strict=True))
    return np.array([of[key] for key in keys], np.uint64)


def forms_of(texts: Iterable[str]) -> Keys:
    """Return (n,) hashes of the texts' normal forms. Only a chunk of the texts is in memory at a time."""
    remaining, parts = iter(texts), [np.zeros(0, np.uint64)]
    while chunk := list(islice(remaining, FORMS_AT_ONCE)):
        parts.append(FormKeys.of(Packed.of(chunk)).hashes())
    return np.concatenate(parts)


# Texts of an evaluation set that are exactly or nearly equal to texts of a run.
#
# Exact: both have the same non-empty normal form (METHOD 14). Near, for queries: the sets of words have a Jaccard
# similarity of at least NEAR_QUERY. Near, for passages: at least NEAR_PASSAGE of the shorter passage's windows of
# SHINGLE_WORDS words occur in the other, which finds chunks, added titles and edits. Both are computed exactly for each
# pair that can reach the threshold (no sketches, no misses).

Measure = Literal["jaccard", "overlap"]

LEAKAGE_CHUNK = 4096
TOKENIZER = "multilingual"
"""Name of the tokenizer. It splits any script into words, and scripts without spaces into pairs of characters."""
NEAR_QUERY = 0.8
NEAR_PASSAGE = 0.8
MIN_QUERY_WORDS = 4
"""Minimum number of words in a query to look for near matches. One shared word out of three is weak evidence."""
SHINGLE_WORDS = 5
MIN_SHINGLES = 10
"""Minimum number of shingles in a passage to look for near matches. A shorter passage may be a common phrase."""
JUDGED_TEXT_CHARACTERS = 80


@dataclass(frozen=True)
class Matches:
    """The evaluation text that matches each of n texts: an equal one, or else the nearest one above the threshold.

    number     : (n,) number of the matching evaluation text; -1 if none matches.
    similarity : (n,) similarity to that text; 1.0 for an exact match, 0.0 without a match.
    exact      : (n,) flags of texts whose match has the same normal form.
    """

    number: Index
    similarity: Floats
    exact: npt.NDArray[np.bool_]

    def of(self, ids: Index) -> Index:
        """Return those of the ids whose texts match an evaluation text."""
        return ids[self.number[ids] >= 0]

    def first_places(self, ids: Index) -> Index:
        """Return the sorted places of the first match of each evaluation text. ids: text ids in reading order."""
        places = np.flatnonzero(self.number[ids] >= 0)
        return np.sort(places[np.unique(self.number[ids[places]], return_index=True)[1]])


def shingles(texts: Sequence[str], width: int) -> tuple[Keys, Index]:
    """Return the keys of all windows of `width` words, and the text number of each. Shorter texts have no window."""
    return key_windows(*token_stream(texts, TOKENIZER), width)


class Finder:
    """Index of evaluation texts of one role, which finds them among other texts.

    width        : number of words in a shingle.
    threshold    : minimum similarity of a near match.
    min_shingles : minimum number of shingles for a near match. Shorter texts match only exactly.
    """

    def __init__(
        self, texts: Mapping[str, str], measure: Measure, width: int, threshold: float, min_shingles: int
    ) -> None:
        by_text = sorted(texts.items(), key=itemgetter(1, 0))  # of two that match equally the first one counts
        self.ids, self.texts = [name for name, _ in by_text], [text for _, text in by_text]
        self._measure, self._width = measure, width
        self._threshold, self._min_shingles = threshold, min_shingles
        self._forms, self._form_text = np.unique(FormKeys.of(Packed.of(self.texts)).hashes(), return_index=True)
        keys, owners = shingles(self.texts, width)
        self._vocabulary, columns = np.unique(keys, return_inverse=True)
        self._rows = _matrix(owners, columns, len(self.texts), len(self._vocabulary))
        self._probe = self._probes(self._rows.indices).T.tocsr()

    def _probes(self, columns: Index) -> Any:
        """Return the shingles of each text that are enough to find every text above the threshold.

        Jaccard >= t means that the other text shares at least t of this text's shingles, so it shares at least one of
        any |A| - ceil(t |A|) + 1 shingles. The rarest ones are used. For overlap, all shingles are used, because the
        other text may be shorter.
        """
        sizes = _sizes(self._rows)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((np.bincount(columns)[columns], owner))
        rank = np.arange(len(columns)) - self._rows.indptr[:-1][owner]
        n_needed = sizes - np.ceil(self._threshold * sizes - 1e-9) + 1 if self._measure == "jaccard" else sizes
        is_probe = (rank < n_needed[owner]) & (sizes >= self._min_shingles)[owner]
        return _matrix(owner[is_probe], columns[order[is_probe]], *self._rows.shape)

    def find(self, store: TextStore, tick: Callable[[int], None] = lambda n: None) -> Matches:
        """Return the matches of all texts of a store. tick: called with the number of texts compared."""
        n, forms = len(store), text_forms(store).form
        number, similarity = np.full(n, -1, np.int64), np.zeros(n)
        exact = np.zeros(n, np.bool_)
        if len(self.ids):
            place = np.minimum(np.searchsorted(self._forms, forms), len(self._forms) - 1)
            exact = (self._forms[place] == forms) & (forms != EMPTY_FORM)
            number[exact], similarity[exact] = self._form_text[place[exact]], 1.0
        for start, stop in batch_ranges(n if len(self._vocabulary) else 0, LEAKAGE_CHUNK, store.lengths):
            owner, other, value = self._near(store.get(start, stop))
            order = best_first(-value, -other)  # the nearest is written last
            owner, other, value = owner[order] + start, other[order], value[order]
            free = ~exact[owner]
            number[owner[free]], similarity[owner[free]] = other[free], value[free]
            tick(stop - start)
        return Matches(number, similarity, exact)

    def _near(self, texts: Sequence[str]) -> tuple[Index, Index, Floats]:
        keys, owners = shingles(texts, self._width)
        known = is_known(keys, self._vocabulary)
        rows = _matrix(owners[known], np.searchsorted(self._vocabulary, keys[known]), len(texts), len(self._vocabulary))
        owner, other = (part.astype(np.int64) for part in (rows @ self._probe).nonzero())
        common = np.asarray(rows[owner].multiply(self._rows[other]).sum(axis=1), np.float64).ravel()
        inside = is_known(owners, distinct(owner))
        numbers = np.unique(keys[inside], return_inverse=True)[1]
        a = _sizes(_matrix(owners[inside], numbers, len(texts), len(numbers)))[owner]
        b = _sizes(self._rows)[other]
        value = common / (np.minimum(a, b) if self._measure == "overlap" else a + b - common)
        near = (value >= self._threshold - 1e-9) & (a >= self._min_shingles)
        return owner[near], other[near], value[near]


def query_finder(texts: Mapping[str, str]) -> Finder:
    """Return a finder of evaluation queries. texts: id -> text."""
    return Finder(texts, "jaccard", 1, NEAR_QUERY, MIN_QUERY_WORDS)


def passage_finder(texts: Mapping[str, str]) -> Finder:
    """Return a finder of relevant passages. texts: id -> text."""
    return Finder(texts, "overlap", SHINGLE_WORDS, NEAR_PASSAGE, MIN_SHINGLES)


def _matrix(rows: Index, columns: Index, n_rows: int, n_columns: int) -> Any:
    """Return a sparse matrix (n_rows, max(1, n_columns)) with 1 at the given places, which may repeat."""
    from scipy import sparse

    ones = np.ones(len(rows), np.float32)
    matrix = sparse.csr_matrix((ones, (rows, columns)), shape=(n_rows, max(1, n_columns)))
    matrix.data[:] = 1.0
    return matrix


def _sizes(matrix: Any) -> Index:
    """Return (n_rows,), the number of ones in each row."""
    return np.asarray(np.diff(matrix.indptr), np.int64)


class Leaks:
    """Evaluation texts found among all texts of a run. tick: called with the number of texts compared."""

    def __init__(self, plan: Plan, evaluation: EvaluationSet, tick: Callable[[int], None]) -> None:
        self._plan = plan
        self._finders = {
            "eval_query": query_finder(evaluation.queries),
            "eval_passage": passage_finder(evaluation.passages),
        }
        self._queries = self._finders["eval_query"].find(plan.queries, tick)
        self._passages = self._finders["eval_passage"].find(plan.passages, tick)

    def cases(self, planned: PlannedSource, n_examples: int) -> dict[str, CautionEvidence]:
        """Return caution -> evidence: which of a source's distinct queries and passages are evaluation texts."""
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
                "n_evaluation": len(distinct(matches.number[leaked])),
                "n_evaluation_all": len(self._finders[name].ids),
                **by_role,
            }
            cases[name] = CautionEvidence(len(leaked), len(leaked) / max(1, len(all_ids)), values, examples)
        return cases


def _example(matches: Matches, finder: Finder, store: TextStore, text_id: int) -> Fact:
    """Return a fact with a text of the run and the evaluation text that it matches."""
    place, text = int(matches.number[text_id]), store.take(np.array([text_id]))[0]
    values: dict[str, str | float] = {"text": shorten(text, JUDGED_TEXT_CHARACTERS), "id": finder.ids[place]}
    if not matches.exact[text_id]:
        values["similarity"] = float(matches.similarity[text_id])
        values["evaluation_text"] = shorten(finder.texts[place], JUDGED_TEXT_CHARACTERS)
    return Fact("evaluation_text", values)
