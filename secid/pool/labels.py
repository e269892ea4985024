"""The relevance judgements of a collection as labelled positives of the queries that a run has.

They are labels and no more: a query of an evaluation set that is also in the sources is a matter of `check
--against-eval`. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from secid.pool.collect import Collected, Gathered
from secid.read.collection import BEIR_FOLDER, Collection, collection_files, open_collection
from secid.read.evaluation import relevant_pairs
from secid.records import Record, Source
from secid.settings import Settings


def judgement_files(settings: Settings) -> Sequence[str]:
    """The qrels of --collection, of all splits: each labels. None where it has no queries file."""
    if settings.collection is None:
        return ()
    files = collection_files(settings.collection, BEIR_FOLDER).qrels
    return files if files and open_collection(settings).has("queries") else ()


def add_labels(gathered: Gathered, files: Sequence[str], settings: Settings) -> None:
    """Adds the relevant passages (a judgement above 0) of the queries gathered, as records without negatives.

    Judgements of other queries, and of passages that the corpus lacks, add nothing. Raises InputError for a file that
    is no qrels file.
    """
    relevant: dict[str, list[str]] = {}
    for file in files:
        for query, passage in relevant_pairs(file):
            relevant.setdefault(query, []).append(passage)
    labels = Collected(Source("qrels", tuple(files)))
    for record in list(_records(relevant, open_collection(settings), gathered, files[0])):
        labels.add(record, gathered.queries, gathered.passages, {})
        gathered.labels = labels


def _records(relevant: dict[str, list[str]], collection: Collection, gathered: Gathered, path: str) -> Iterator[Record]:
    """A record per query, of line 0: several rows of the file label it."""
    queries = [(text, key) for key in relevant if (text := collection.query(key))]
    for (text, key), held in zip(queries, gathered.queries.holds([text for text, _ in queries]), strict=True):
        if held and (positives := tuple(filter(None, map(collection.passage, relevant[key])))):
            yield Record(text, positives, (), path, 0)
