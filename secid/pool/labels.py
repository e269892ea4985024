"""The relevance judgements of a collection as labelled positives of the queries that a run has.

They are labels and no more: a query of an evaluation set that is also in the sources is a matter of `check
--against-eval`. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from secid.pool.collect import Collected, Gathered
from secid.read.collection import BEIR_FOLDER, collection_files, open_collection
from secid.read.evaluation import relevant_pairs
from secid.records import Record, Source
from secid.settings import Settings

Holds = Callable[[Sequence[str]], Iterable[Any]]


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
    labels = Collected(Source("qrels", tuple(files)))
    for record in list(label_records(files, settings, gathered.queries.holds)):
        labels.add(record, gathered.queries, gathered.passages, {})
        gathered.labels = labels


def label_records(
    files: Sequence[str], settings: Settings, holds: Holds = lambda texts: [True] * len(texts)
) -> Iterator[Record]:
    """A record per query, of line 0: several rows of the file label it. holds: (n,) which of these queries count."""
    relevant: dict[str, list[str]] = {}
    for file in files:
        for query, passage in relevant_pairs(file):
            relevant.setdefault(query, []).append(passage)
    collection = open_collection(settings)
    queries = [(text, key) for key in relevant if (text := collection.query(key))]
    for (text, key), held in zip(queries, holds([text for text, _ in queries]), strict=True):
        if held and (positives := tuple(filter(None, map(collection.passage, relevant[key])))):
            yield Record(text, positives, (), files[0], 0)
