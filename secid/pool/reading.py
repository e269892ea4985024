"""Read sources and judgements into a plan, and report how they were read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from secid.errors import UsageError
from secid.pool import DraftPlan, collect_sources, draft_plan
from secid.pool.collect import Collected, Gathered
from secid.pool.plan import QuerySubset
from secid.pool.texts import TextSpool, unread
from secid.progress import Progress
from secid.read import Reader, open_source
from secid.read.collection import BEIR_FOLDER, collection_files, open_collection
from secid.read.evaluation import relevant_pairs
from secid.records import Record, Source
from secid.settings import Settings, flag_of

# The relevance judgements of a collection become labelled positives of a run's queries.
#
# They are only labels; `check --against-eval` finds evaluation queries in the sources. Source: METHOD 14.

Holds = Callable[[Sequence[str]], Iterable[Any]]


def judgement_files(settings: Settings) -> Sequence[str]:
    """Return the qrels files of all splits of --collection; () without a collection, qrels or a queries file."""
    if settings.collection is None:
        return ()
    files = collection_files(settings.collection, BEIR_FOLDER).qrels
    return files if files and open_collection(settings).has("queries") else ()


def add_labels(gathered: Gathered, files: Sequence[str], settings: Settings) -> None:
    """Add relevant passages (with a judgement above 0) of the gathered queries, as records without negatives.

    Judgements of other queries, or of passages that the corpus lacks, are ignored. Raises InputError if a file is not a
    qrels file.
    """
    labels = Collected(Source("qrels", tuple(files)))
    for record in list(label_records(files, settings, gathered.queries.holds)):
        labels.add(record, gathered.queries, gathered.passages, {})
        gathered.labels = labels


def label_records(
    files: Sequence[str], settings: Settings, holds: Holds = lambda texts: [True] * len(texts)
) -> Iterator[Record]:
    """Yield a record for each query that `holds` flags. Its line is 0, because several rows label the query."""
    relevant: dict[str, list[str]] = {}
    for file in files:
        for query, passage in relevant_pairs(file):
            relevant.setdefault(query, []).append(passage)
    collection = open_collection(settings)
    queries = [(text, key) for key in relevant if (text := collection.query(key))]
    for (text, key), is_wanted in zip(queries, holds([text for text, _ in queries]), strict=True):
        if is_wanted and (positives := tuple(filter(None, map(collection.passage, relevant[key])))):
            yield Record(text, positives, (), files[0], 0)


# Sources become a plan, and notes tell how they were read. No torch here, because `secid check` uses this code too.

IGNORED_FLAGS = {
    flag_of("positive_score"): "no input has labels",
    flag_of("ranks"): "no input is a TREC run",
    flag_of("header", True): "no input is CSV or TSV",
    flag_of("header", False): "no input is CSV or TSV, or has rows without names",
}
"""Flag -> reason why it has no effect on these files."""


def read_draft(
    sources: Sequence[Source | Reader],
    settings: Settings,
    folder: Path,
    progress: Progress,
    *,
    with_positives: bool = False,
    with_echoes: bool = False,
    with_labels: bool = True,
    subset: QuerySubset | None = None,
    written: Callable[[TextSpool], None] = unread,
) -> tuple[DraftPlan, list[Reader]]:
    """Read all sources into a plan, and note how each file was read.

    folder      : empty folder for spool files.   with_positives, with_echoes : as in `draft_plan`.
    with_labels : whether a collection's qrels add labelled positives. If so, an unused collection is an error.
    subset      : queries whose rows to plan; None for the queries that the settings select.
    written     : as in `collect_sources`.
    Raises SecidError if opening or planning fails, and UsageError for a collection that no source needs.
    """
    with ExitStack() as on_error:
        readers = []
        for item in sources:
            readers.append(item if isinstance(item, Reader) else open_source(item, settings))
            on_error.callback(readers[-1].close)
        for reader in readers:
            for shape in reader.files:
                progress.note(f"{reader.source.name}: {shape.path}: {shape.schema} ({shape.mapping})")
        judgements = judgement_files(settings) if with_labels else []
        if with_labels and not judgements:
            refuse_unused_collection(readers, settings)
        on_error.pop_all()
    for flag in sorted(set.intersection(*(reader.unused_flags() for reader in readers))) if readers else ():
        progress.note(f"{flag} is ignored: {IGNORED_FLAGS[flag]}")
    tick = bytes_read_by(readers, progress)
    subset = subset or QuerySubset.of(settings)
    streams = ((reader.source, subset.rows(reader.blocks())) for reader in readers)
    gathered = collect_sources(streams, folder, tick, written)
    try:
        if judgements:
            add_labels(gathered, judgements, settings)
            if gathered.labels is None and subset.has is None:  # with a subset, other queries may have labels
                refuse_unused_collection(readers, settings)
        draft = draft_plan(gathered, settings, with_positives=with_positives, with_echoes=with_echoes)
    except BaseException:
        gathered.close()
        raise
    tick()
    for reader in readers:
        if judged := reader.count_judged():
            counts = " and ".join(f"{n:,} {kind}" for kind, n in sorted(judged.items()))
            note = f"{reader.source.name}: negatives of the run: {counts}"
            progress.note(note if settings.source_column else f"{note} (--source-column judged splits them)")
    if judgements:
        n_of_files, n_of_qrels = draft.plan.n_labelled
        names = ", ".join(map(str, judgements))
        progress.note(f"labelled positives: {n_of_files:,} from the files, {n_of_qrels:,} more from {names}")
    return draft, readers


def bytes_read_by(readers: Collection[Reader], progress: Progress) -> Callable[[], None]:
    """Start the progress display for reading. Return a function that reports the bytes read since its last call."""
    sizes = [reader.n_bytes for reader in readers]
    progress.start("read", None if None in sizes else sum(filter(None, sizes)), "bytes")
    done = 0

    def tick() -> None:
        nonlocal done
        now = sum(reader.bytes_read() for reader in readers)
        progress.advance(now - done)
        done = now

    return tick


def refuse_unused_collection(readers: Sequence[Reader], settings: Settings) -> None:
    """Raise UsageError if a collection is given, but no source holds ids and no qrels label its queries."""
    names = [name for name in ("collection", "corpus", "queries") if getattr(settings, name) is not None]
    flags = [flag_of(name) for name in names]
    if not flags or any(reader.uses_collection for reader in readers):
        return
    shape = readers[0].files[0]
    raise UsageError(
        f"{' and '.join(flags)} would have no effect: all sources were read as texts ({shape.mapping})",
        where=shape.path,
        remedy=f"leave {'them' if len(flags) > 1 else 'it'} out if these are texts; if they are ids, name a collection "
        "that holds them, because this one has no value of the first rows as an id",
    )
