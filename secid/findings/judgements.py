"""Relevance judgements by the normal forms of their texts, and texts of an evaluation set among those of a run."""

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
from secid.pool.texts import Packed, TextStore, pieces
from secid.read.collection import BEIR_FOLDER, Collection, collection_files
from secid.read.evaluation import EvaluationSet, of_split, read_qrels
from secid.read.sources import data_files
from secid.read.stream import shorten
from secid.records import Fact
from secid.results import Example
from secid.settings import Settings, flag_of

# Relevance judgements by the normal forms of their texts, so that they label ids and texts alike.
#
# Ids of rows and of qrels become texts first (`read.collection`): a judgement holds for every copy of its passage and
# its query, as a labelled positive does for the finding false_negative. Source: METHOD 10, 14.

OTHER_COLLECTION = "name queries, a corpus and qrels of one collection"


def label_files(qrels: str | None, split: str | None, settings: Settings) -> Sequence[str]:
    """The qrels of an audit: the file given, or those of the collection, of one split or of all.

    Raises UsageError if neither or both are given, if the collection has no such split, or if nothing names the texts
    of the file's ids; InputError if the collection has no qrels.
    """
    if qrels is None and settings.collection is None:
        raise UsageError("no labels given", remedy="--collection DIR (a BEIR folder with qrels), or --qrels FILE")
    texts = f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}"
    if qrels is not None:
        if settings.collection is not None:
            remedy = f"leave out one; with --qrels, {texts} name the texts"
            raise UsageError("--collection has qrels of its own", where="--qrels", remedy=remedy)
        if split is not None:
            raise UsageError("has no effect on a single file: --collection DIR has splits", where="--split")
        if settings.corpus is None or settings.queries is None:
            remedy = f"{texts} name their texts, or --collection DIR does"
            raise UsageError("judges ids, and no texts of these ids were given", where="--qrels", remedy=remedy)
        return data_files(qrels)
    remedy = f"secid audit also takes --qrels FILE (and {texts}), secid mine --pairs SOURCE"
    files = collection_files(settings.collection or "", BEIR_FOLDER).required("qrels", remedy)
    if split is not None and not of_split(files, split):
        names = ", ".join(Path(file).name for file in files)
        raise UsageError(f"no qrels of a split {split!r}", where="--split", remedy=f"the collection has {names}")
    return files if split is None else of_split(files, split)


@dataclass(frozen=True)
class Judgements:
    """Grades of (query, passage) pairs, N >= 1 of them.

    queries, passages : (Q,), (P,) sorted hashes of the normal forms.   pairs : (N,) sorted, query place * P + passage
    place.   grade : (N,) the highest that copies of the pair have; above 0 is relevant.
    n_distinct, n_relevant : distinct pairs of ids, each with its highest grade, and those above 0.
    unknown : of them those without a text in the collection, by reason.
    """

    queries: Keys
    passages: Keys
    pairs: npt.NDArray[np.int64]
    grade: Floats
    n_distinct: int
    n_relevant: int
    unknown: Mapping[str, int]

    def grades(self, query: Keys, passage: Keys) -> Floats:
        """Return (T,) the grade of each pair; NaN if it is not judged. query, passage: (T,) hashes of normal forms."""
        result = np.full(len(query), np.nan)
        known = np.flatnonzero(is_known(query, self.queries) & is_known(passage, self.passages))
        places = np.searchsorted(self.queries, query[known]) * len(self.passages)
        places += np.searchsorted(self.passages, passage[known])
        present = is_known(places, self.pairs)
        result[known[present]] = self.grade[np.searchsorted(self.pairs, places[present])]
        return result


def read_judgements(files: Sequence[str], collection: Collection, most_unknown: float) -> Judgements:
    """The judgements of some qrels files. most_unknown: largest share without a text in the collection.

    Raises InputError for a file that is no qrels file, and where more of them are without a text.
    """
    highest: dict[tuple[str, str], float] = {}
    for file in files:
        for *pair, own in read_qrels(file):
            key = pair[0], pair[1]
            highest[key] = max(own, highest.get(key, own))
    rows = [(*key, own) for key, own in highest.items()]
    where = ", ".join(files)
    if not rows:
        raise InputError("holds no judgement", where=where)
    grade = np.array([row[2] for row in rows])
    query, passage = _forms_of([row[0] for row in rows], collection.query), np.zeros(len(rows), np.uint64)
    in_queries = query != EMPTY_FORM
    places = np.flatnonzero(in_queries)
    passage[places] = _forms_of([rows[place][1] for place in places.tolist()], collection.passage)
    known = in_queries & (passage != EMPTY_FORM)
    unknown = unknown_of(rows, in_queries, known, where, most_unknown)
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
    rows: Sequence[tuple[str, str, float]], in_queries: Flags, known: Flags, where: str, most_unknown: float
) -> dict[str, int]:
    """Count the judgements without a text in the collection, by reason.

    in_queries, known : (n,) whether the query, and whether both query and passage, have a text. Raises InputError if no
    judgement has one, or more than the given share lack it.
    """
    unknown = {"unknown_query": int((~in_queries).sum()), "unknown_passage": int((in_queries & ~known).sum())}
    if not known.any() or not sum(unknown.values()) <= most_unknown * len(rows):
        without = {0: ~in_queries, 1: in_queries & ~known}
        examples = [rows[int(np.argmax(flags))][column] for column, flags in without.items() if flags.any()]
        raise InputError(
            f"{sum(unknown.values()):,} of {len(rows):,} judgements have no text in the collection (its queries lack "
            f"{unknown['unknown_query']:,}, its corpus {unknown['unknown_passage']:,}; at most "
            f"{100 * most_unknown:g} % may), such as {', '.join(map(repr, examples))}",
            where=where,
            remedy=OTHER_COLLECTION,
        )
    return unknown


def _forms_of(keys: Sequence[str], text_of: Callable[[str], str | None]) -> Keys:
    """Hash of the normal form behind each id; EMPTY_FORM where there is no text. Each id is looked up once."""
    ids = list(dict.fromkeys(keys))
    of = dict(zip(ids, forms_of(text_of(key) or "" for key in ids).tolist(), strict=True))
    return np.array([of[key] for key in keys], np.uint64)


def forms_of(texts: Iterable[str]) -> Keys:
    """Return (n,) hashes of the texts' normal forms; only a chunk of the texts is in memory."""
    remaining, parts = iter(texts), [np.zeros(0, np.uint64)]
    while chunk := list(islice(remaining, FORMS_AT_ONCE)):
        parts.append(FormKeys.of(Packed.of(chunk)).hashes())
    return np.concatenate(parts)


# Texts of an evaluation set among the texts of a run, exactly or nearly equal.
#
# Exact: of one normal form (METHOD 14), which is not empty. Near, for queries: the sets of words have a Jaccard
# similarity of at least NEAR_QUERY. Near, for passages: of the shorter one's windows of SHINGLE_WORDS words at least
# NEAR_PASSAGE occur in the other, which finds chunks, added titles and edits alike. Both are computed exactly for every
# pair that can reach the threshold (no sketches, no misses).

Measure = Literal["jaccard", "overlap"]

LEAKAGE_CHUNK = 4096
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
        """Return the texts among these that match."""
        return ids[self.which[ids] >= 0]

    def first_places(self, ids: Index) -> Index:
        """Return the place at which each evaluation text first occurs in a list of texts, in the order of the list."""
        places = np.flatnonzero(self.which[ids] >= 0)
        return np.sort(places[np.unique(self.which[ids[places]], return_index=True)[1]])


def shingles(texts: Sequence[str], width: int) -> tuple[Keys, Index]:
    """Return keys of all windows of `width` words, and the text of each; a text of fewer words has none."""
    return key_windows(*token_stream(texts, TOKENIZER), width)


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
        for start, stop in pieces(n if len(self._vocabulary) else 0, LEAKAGE_CHUNK, store.lengths):
            owner, other, value = self._near(store.get(start, stop))
            order = best_first(-value, -other)  # the nearest is written last
            owner, other, value = owner[order] + start, other[order], value[order]
            free = ~exact[owner]
            which[owner[free]], similarity[owner[free]] = other[free], value[free]
            tick(stop - start)
        return Matches(which, similarity, exact)

    def _near(self, texts: Sequence[str]) -> tuple[Index, Index, Floats]:
        """Return (text, evaluation text, similarity) of all pairs above the threshold."""
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

    def cases(self, planned: PlannedSource, n_examples: int) -> dict[str, CautionEvidence]:
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
            cases[name] = CautionEvidence(len(leaked), len(leaked) / max(1, len(all_ids)), values, examples)
        return cases


def _example(matches: Matches, finder: Finder, store: TextStore, text_id: int) -> Fact:
    """A text of the run, and the evaluation text that it is."""
    place, text = int(matches.which[text_id]), store.take(np.array([text_id]))[0]
    values: dict[str, str | float] = {"text": shorten(text, SHOWN_CHARACTERS), "id": finder.ids[place]}
    if not matches.exact[text_id]:
        values["similarity"] = float(matches.similarity[text_id])
        values["evaluation_text"] = shorten(finder.texts[place], SHOWN_CHARACTERS)
    return Fact("evaluation_text", values)
