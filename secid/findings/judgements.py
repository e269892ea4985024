"""Relevance judgements by the normal forms of their texts, so that they label ids and texts alike.

Ids of rows and of qrels become texts first (`read.collection`): a judgement holds for every copy of its passage and its
query, as a labelled positive does for the finding false_negative. Source: METHOD 10, 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, among, distinct
from secid.errors import InputError, UsageError
from secid.pool.normal_form import CHUNK_TEXTS, EMPTY_FORM, FormKeys, Keys
from secid.pool.texts import Packed
from secid.read.collection import BEIR_FOLDER, Collection, collection_files
from secid.read.evaluation import of_split, read_qrels
from secid.read.sources import data_files
from secid.settings import Settings, flag_of

OTHER_COLLECTION = (
    f"name the collection that the qrels are of: --collection DIR, or --qrels FILE with "
    f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}"
)


def label_files(qrels: str | None, split: str | None, settings: Settings, instead: str | None = None) -> Sequence[str]:
    """The qrels of an audit: the file given, or those of the collection, of one split or of all.

    instead : what a command without --qrels takes in place of a collection's.
    Raises UsageError where neither or both are given, the split is none of the collection's, or nothing names the texts
    that the file's ids stand for; InputError where the collection has no qrels.
    """
    if qrels is None and settings.collection is None:
        raise UsageError(
            "no labels given", remedy=f"--collection DIR (a BEIR folder with qrels), or {instead or '--qrels FILE'}"
        )
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
    remedy = f"--qrels FILE names the judgements, and {texts} the texts"
    remedy = f"{instead} names queries and positives" if instead else remedy
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
        """(T,) grade of each pair; NaN where it is not judged. query, passage: (T,) hashes of normal forms."""
        result = np.full(len(query), np.nan)
        known = np.flatnonzero(among(query, self.queries) & among(passage, self.passages))
        places = np.searchsorted(self.queries, query[known]) * len(self.passages)
        places += np.searchsorted(self.passages, passage[known])
        present = among(places, self.pairs)
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
    rows: Sequence[tuple[str, str, float]], in_queries: Flags, known: Flags, where: str, most_unknown: float,
    remedy: str = OTHER_COLLECTION,
) -> dict[str, int]:  # fmt: skip
    """How many judgements have no text in the collection, by reason. in_queries, known : (n,) whose query, and whose
    query and passage, have one. Raises InputError where none has, or more than the share given have not.
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
            remedy=remedy,
        )
    return unknown


def _forms_of(keys: Sequence[str], text_of: Callable[[str], str | None]) -> Keys:
    """Hash of the normal form behind each id; EMPTY_FORM where there is no text. Each id is looked up once."""
    ids = list(dict.fromkeys(keys))
    of = dict(zip(ids, forms_of(text_of(key) or "" for key in ids).tolist(), strict=True))
    return np.array([of[key] for key in keys], np.uint64)


def forms_of(texts: Iterable[str]) -> Keys:
    """(n,) hashes of the normal forms of these texts, a chunk of them in memory at once."""
    remaining, parts = iter(texts), [np.zeros(0, np.uint64)]
    while chunk := list(islice(remaining, CHUNK_TEXTS)):
        parts.append(FormKeys.of(Packed.of(chunk)).hashes())
    return np.concatenate(parts)


def corpus_forms(collection: Collection) -> Keys:
    """Sorted hashes of the normal forms of all its passages."""
    return distinct(forms_of(collection.passages()))
