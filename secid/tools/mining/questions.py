"""Read the queries to mine negatives for, their labelled positives, and the candidates."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import Index
from secid.errors import InputError, NothingToScoreError, UsageError
from secid.findings.judgements import label_files, unknown_of
from secid.pool import key_ranks
from secid.pool.make import left_out_text, refuse_bad
from secid.pool.normal_form import normal_form
from secid.pool.plan import Tally
from secid.pool.reading import bytes_read_by, judgement_files
from secid.pool.texts import TextSpool, TextStore
from secid.progress import Progress
from secid.read import Reader, open_source, resolve_sources
from secid.read.collection import Collection, open_noting_bad_rows
from secid.read.evaluation import read_qrels
from secid.results import Example
from secid.settings import Settings
from secid.tools.mining.methods import MiningPlan
from secid.write.rows import CopyRow, Passage, RowsOnDisk

RowReader = Callable[[], Iterator[CopyRow]]
TEXTS_AT_ONCE = 4_096


@dataclass(frozen=True)
class Questions:
    """R rows, each a query with labelled positives, and the candidates for their negatives.

    rows     : yields the rows to write, without negatives; the same at each call.
    query    : (R,) id of each row's query in `queries`.
    sorting  : (R,) sum of the text keys of each row's positives, to order rows with the same query.
    first    : (R,) id of each row's first positive. `secid score` compares the row's negatives with it.
    labels   : (L,) query ids and (L,) passage ids of all labelled positives, including those of other splits.
    passages : the candidates in text-key order, then other positives, then texts of language models.
    ids      : returns the names that the files give to candidates; "" without one. Its argument is sorted.
    skipped  : number of unused rows, judgements or passages of the collection, by reason.
    """

    rows: RowReader
    queries: TextStore
    passages: TextStore
    n_candidates: int
    query: Index
    sorting: npt.NDArray[np.uint64]
    first: Index
    labels: tuple[Index, Index]
    ids: Callable[[Index], list[str]]
    skipped: Mapping[str, int]

    def with_texts(self, spool: TextSpool) -> tuple[Questions, Index]:
        """Append texts to the passages. Return the new `Questions` and (n,) the id of each text of the spool."""
        others, ids = spool.store()
        with closing(others):
            passages, place = self.passages.joined(others)
        return replace(self, passages=passages), place[ids]

    def close(self) -> None:
        self.queries.close()
        self.passages.close()


def questions_of_collection(
    collection: Collection, files: Sequence[str], labels: Sequence[str], folder: Path, max_unknown: float
) -> Questions:
    """Read the queries in qrels files. Their positives are the passages with a grade above 0.

    files  : qrels of the queries to mine for.   labels : qrels of all splits, whose positives are never negatives.
    max_unknown : as in `read_judgements`.
    Raises InputError if no grade is above 0, if too many judgements have no text, or if the corpus has no text.
    """
    judgements = [row for file in files for row in read_qrels(file) if row[2] > 0]
    where = ", ".join(files)
    if not judgements:
        raise InputError(
            "has no judgement above 0", where=where, remedy="give positives a grade above 0, or use other qrels"
        )
    queries = dict.fromkeys(row[0] for row in judgements)
    with_text = {key for key in queries if _has_text(collection.query(key))}
    in_queries = np.array([row[0] in with_text for row in judgements])
    passages = {key for key in {row[1] for row in judgements} if _has_text(collection.passage(key))}
    known = in_queries & np.array([row[1] in passages for row in judgements])
    unknown = unknown_of(judgements, in_queries, known, where, max_unknown)
    relevant: dict[str, dict[str, None]] = {}
    for query, passage, _ in (row for row, flag in zip(judgements, known.tolist(), strict=True) if flag):
        relevant.setdefault(query, {})[passage] = None

    def rows() -> Iterator[CopyRow]:
        for key, positives in relevant.items():
            passages_of_query = [Passage(collection.passage(docid) or "", docid) for docid in positives]
            yield CopyRow(collection.query(key) or "", passages_of_query, (), key)

    return _questions(rows, collection, labels, folder, unknown)


def questions_of_pairs(
    readers: Sequence[Reader], collection: Collection | None, settings: Settings, folder: Path, tick: Callable[[], None]
) -> Questions:
    """Read the rows of a source. Without a collection, its own positives and negatives are the candidates.

    readers : readers opened with `keep` and `without_negatives`.   tick : called while rows are read.
    Raises BadRecordsError if too many rows are malformed, NothingToScoreError if no row can be used.
    """
    on_disk = [RowsOnDisk(folder / f"{number}.rows") for number in range(len(readers))]
    for reader, rows_on_disk in zip(readers, on_disk, strict=True):
        for _ in rows_on_disk.watch(reader.blocks()):
            tick()
    n_used, skipped, first = 0, Counter[str](), dict[str, Example]()
    for place, row in (item for rows_on_disk in on_disk for item in rows_on_disk.rows(None)):
        if row is None:
            skipped[place.reason] += 1
            first.setdefault(place.reason, Example(place.reason, place.path, place.line, None))
        n_used += row is not None
    where = ", ".join(path for reader in readers for path in reader.source.paths[:3])
    tally = Tally(n_used + skipped.total(), n_used, n_used, dict(skipped), {}, tuple(first.values()))
    refuse_bad(where, tally, settings)
    if not n_used:
        raise NothingToScoreError(
            f"no row has a query and a positive ({left_out_text(tally)})",
            where=where,
            remedy="add rows with a query and at least one positive",
        )

    def rows() -> Iterator[CopyRow]:
        return (row for rows_on_disk in on_disk for _, row in rows_on_disk.rows(None) if row is not None)

    return _questions(rows, collection, judgement_files(settings), folder, skipped)


def _questions(
    rows: RowReader, collection: Collection | None, labels: Sequence[str], folder: Path, skipped: Mapping[str, int]
) -> Questions:
    spools = TextSpool("query", folder / "queries.txt"), TextSpool("passage", folder / "passages.txt")
    query, starts, forms = array("q"), array("q"), set[int]()
    label_query, label_passage, listed = array("q"), array("q"), array("q")
    own_ids: dict[int, str] = {}
    for row in rows():
        query.extend(spools[0].add([row.query]))
        numbers = spools[1].add([passage.text for passage in row.positives])
        starts.append(len(label_passage))
        forms.add(hash(normal_form(row.query)))  # a hash collision only adds an unneeded label
        label_query.extend(query[-1:] * len(numbers))
        label_passage.extend(numbers)
        if collection is None:
            numbers += spools[1].add([passage.text for passage in row.negatives])
            listed.extend(numbers)
            for number, passage in zip(numbers, (*row.positives, *row.negatives), strict=True):
                if passage.id:
                    own_ids.setdefault(number, passage.id)
    places, n_own, n_empty = array("q"), len(label_passage), 0
    if collection is not None:
        for texts in _labelled(labels, collection, forms):
            label_query.extend(spools[0].add(texts[:1]))
            label_passage.extend(spools[1].add(texts[1:]))
        passages = enumerate(collection.passages())
        while part := list(islice(passages, TEXTS_AT_ONCE)):
            with_text = [(place, text) for place, text in part if text.strip()]
            n_empty += len(part) - len(with_text)
            places.extend(place for place, _ in with_text)
            listed.extend(spools[1].add([text for _, text in with_text]))
    if not listed:
        for spool in spools:
            spool.close()
        raise InputError(
            "the corpus has no passage with text",
            remedy="use a --collection whose passages have text; they are candidates",
        )
    (queries, query_ids), (passages_read, passage_ids) = (spool.store() for spool in spools)
    first, place_of = np.unique(passage_ids[np.array(listed, np.int64)], return_index=True)
    is_candidate = np.zeros(len(passages_read), np.bool_)
    is_candidate[first] = True
    order = np.lexsort((key_ranks(passages_read.keys), ~is_candidate))
    new_id = np.empty(len(order), np.int64)
    new_id[order] = np.arange(len(order))
    ids_known = {int(new_id[passage_ids[number]]): name for number, name in reversed(own_ids.items())}
    place_of = place_of[np.searchsorted(first, order[: len(first)])]
    in_file = np.array(places, np.int64)
    if collection is not None:
        skipped = {**skipped, "empty_passages": n_empty, "repeated_passages": len(places) - len(first)}
        skipped |= {f"unreadable_{role}": len(bad) for role, bad in collection.bad.items()}
    keys = np.ascontiguousarray(passages_read.keys[:, :8]).view(np.uint64).ravel()
    own_keys = keys[passage_ids[np.array(label_passage[:n_own], np.int64)]]
    labelled = new_id[passage_ids[np.array(label_passage, np.int64)]]

    def ids(numbers: Index) -> list[str]:
        if collection is None:
            return [ids_known.get(number, "") for number in numbers.tolist()]
        return collection.passage_ids(in_file[place_of[numbers]].tolist())

    return Questions(
        rows=rows,
        queries=queries,
        passages=passages_read.only(order),
        n_candidates=len(first),
        query=query_ids[np.array(query, np.int64)],
        first=labelled[np.array(starts, np.int64)],
        sorting=np.add.reduceat(own_keys, np.array(starts, np.int64)),
        labels=(query_ids[np.array(label_query, np.int64)], labelled),
        ids=ids,
        skipped={reason: n for reason, n in skipped.items() if n},
    )


def _labelled(files: Sequence[str], collection: Collection, forms: Set[int]) -> Iterator[tuple[str, str]]:
    """Yield the texts of relevant pairs in qrels. forms: hashes of the normal forms of the queries to include."""
    for key, name, _ in (row for file in files for row in read_qrels(file) if row[2] > 0):
        query = collection.query(key)
        if query and hash(normal_form(query)) in forms:
            passage = collection.passage(name)
            if passage and passage.strip():
                yield query, passage


def _has_text(text: str | None) -> bool:
    return bool(text and text.strip())


# No heavy module is imported here, so that errors in the files are reported first.


def read_questions(
    plan: MiningPlan, settings: Settings, work: Path, progress: Progress, refuse: Callable[[], None]
) -> Questions:
    """Read rows and candidates. The caller closes the result. Raises InputError, also if there is no candidate.

    refuse : function that raises EncoderError if the encoder is missing. It is called before the opened files are read.
    """
    if plan.pairs is None:
        if settings.collection is None:
            raise UsageError(
                "no queries named", remedy="use --collection DIR (a BEIR folder with qrels), or --pairs SOURCE"
            )
        files, labels = (label_files(None, name, settings) for name in (plan.split, None))
        refuse()
        progress.start("read", None, "")
        judged = open_noting_bad_rows(settings, progress)
        return questions_of_collection(judged, files, labels, work, settings.max_bad_fraction)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(closing(open_source(source, settings, keep=True, without_negatives=True)))
            for source in resolve_sources([plan.pairs])
        ]
        refuse()
        has_collection = settings.collection or settings.corpus
        collection = open_noting_bad_rows(settings, progress) if has_collection else None
        tick = bytes_read_by(readers, progress)
        return questions_of_pairs(readers, collection, settings, work, tick)
