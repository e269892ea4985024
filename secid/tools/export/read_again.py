"""Read the files of a run's sources again, as a plan and as rows to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from secid.errors import InputError, UsageError
from secid.findings.copies import LabelledPositives, restored
from secid.findings.texts import restored_texts, text_rules
from secid.pool import Plan, PlannedSource, collect_sources, draft_plan
from secid.pool.plan import QuerySubset, TextFindings
from secid.pool.reading import add_labels, bytes_read_by, judgement_files
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.read import Reader, is_read_once, on_disk, open_source
from secid.records import Source
from secid.results import InputFile, Run, SourceReport
from secid.results.check import Check
from secid.run_folder.tables import POSITIVES, damage_named, read_positives, read_run_texts
from secid.settings import Settings
from secid.write.rows import CopyRow, Place, RowsOnDisk

RELATIVE_PATH_REMEDY = "the path is relative to the folder where `secid score` was run; run this command there too"
RESTORE_REMEDY = "put the file back, or score it at its new place"
CHANGED_REMEDY = "score it again, or restore the file that was scored"

TextRules = Callable[[TextStore, TextStore, Sequence[PlannedSource]], Sequence[TextFindings]]
"""A function of queries, passages and sources that returns the text findings of each source."""


@dataclass(frozen=True)
class Original:
    """A source of a run that was read again. name : its name in the run."""

    name: str
    planned: PlannedSource
    on_disk: RowsOnDisk

    def rows(self) -> Iterator[tuple[Place, CopyRow | None, slice]]:
        """Yield each row with its place in the files, and the slice of its negatives in `planned.listed`.

        The row is None if it gives no record.
        """
        stop = 0
        for place, row in self.on_disk.rows(self.planned.split):
            start, stop = stop, stop + (0 if row is None else len(row.negatives))
            yield place, row, slice(start, stop)


def refuse_merged(run: Run) -> None:
    """Raise UsageError for a merged run, whose folder has no rows."""
    if run.has_rows_elsewhere:
        raise UsageError(
            "this run was merged from shards, so its folder has no rows",
            remedy="score each shard with --run DIR, and select from those folders",
        )


def read_labels(folder: Path, run: Run) -> LabelledPositives:
    """Read the labelled positives of a run from its folder. Raises InputError if they are missing or damaged.

    Raises UsageError for a merged run, whose folder has none.
    """
    refuse_merged(run)
    with damage_named(folder / "state" / POSITIVES, folder):
        return restored(read_positives(folder, run))


def text_rules_of(folder: Path, run: Run) -> TextRules:
    """Return text rules that reproduce the run's findings. Raises InputError if the folder lacks their data.

    They use the positives of all sources of the run. For a shard they also use counts over all shards.
    """
    known, counted = read_labels(folder, run), read_run_texts(folder, run)
    if counted is None:
        return partial(text_rules, known=known)

    def rules(queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource]) -> Sequence[TextFindings]:
        names = {(planned.source.paths, planned.split): planned.name for planned in sources}
        new_names = [names.get((_paths(result), result.split), result.name) for result in run.sources]
        return text_rules(queries, passages, sources, known, run=restored_texts(counted, new_names))

    return rules


def _paths(source: SourceReport) -> tuple[str, ...]:
    return tuple(file.path for file in source.files)


def find_source(run: Run | Check, name: str | None) -> SourceReport:
    """Return the source with this name, or the only source if the name is None. Raises UsageError."""
    names = ", ".join(source.name for source in run.sources)
    if name is None and len(run.sources) > 1:
        raise UsageError("this run has several sources", remedy=f"name one with --source: {names}")
    for source in run.sources:
        if name in (None, source.name):
            return source
    raise UsageError(f"no source {name!r} in this run", remedy=f"its sources are {names}")


def check_present(source: SourceReport) -> None:
    """Raise InputError if a file of the source is missing or has another size than when it was scored."""
    for file in source.files:
        if is_read_once(file.path):
            raise InputError(
                "cannot be read again because it is not a file",
                where=file.path,
                remedy="save it to a file, and score that file",
            )
        try:
            n_bytes = Path(on_disk(file.path)).stat().st_size
        except OSError as error:
            remedy = RESTORE_REMEDY if Path(file.path).is_absolute() else RELATIVE_PATH_REMEDY
            raise InputError(f"cannot be read again ({error.strerror})", where=file.path, remedy=remedy) from error
        if n_bytes != file.n_bytes:
            raise _changed(file.path)


def _changed(path: str) -> InputError:
    return InputError("has changed since it was scored", where=path, remedy=CHANGED_REMEDY)


@contextmanager
def plan_again(
    run: Run | Check,
    names: Sequence[str],
    settings: Settings,
    folder: Path,
    progress: Progress,
    text_rules: TextRules | None,
    *,
    with_labels: bool = False,
) -> Iterator[tuple[Plan, dict[str, Original]]]:
    """Read the named sources of a run again. Yield the plan, and each source by name.

    folder : an empty folder for spool files.   text_rules : rules that find defects in the texts; None for no rules.
    with_labels : add labelled positives from the collection's qrels. A run folder already has them.
    Raises InputError if a file has changed or no longer has the source.
    """
    results = [find_source(run, name) for name in names]
    for result in results:
        check_present(result)
    readers: dict[tuple[str, ...], Reader] = {}
    for result in results:
        paths = _paths(result)
        if paths not in readers:
            readers[paths] = open_source(Source(f"source{len(readers)}", paths), settings, keep=True)
    on_disk = {reader.source: RowsOnDisk(folder / f"{reader.source.name}.rows") for reader in readers.values()}
    subset = QuerySubset.of(settings)
    streams = [
        (reader.source, on_disk[reader.source].watch(subset.rows(reader.blocks()))) for reader in readers.values()
    ]
    gathered = collect_sources(streams, folder, bytes_read_by(readers.values(), progress))
    if with_labels and (judgements := judgement_files(settings)):
        add_labels(gathered, judgements, settings)
    draft = draft_plan(gathered, settings)
    try:
        if text_rules is not None:
            draft = draft.with_text_findings(text_rules(*draft.texts))
        plan = draft.plan
        originals, every = {}, {(planned.source.paths, planned.split): planned for planned in plan.sources}
        for result in results:
            paths = _paths(result)
            _compare(readers[paths].content(), result)
            planned = every.get((paths, result.split))
            if planned is None:
                raise InputError(f"no longer has the source {result.name!r}", where=paths[0], remedy="score it again")
            originals[result.name] = Original(result.name, planned, on_disk[planned.source])
        yield plan, originals
    finally:
        draft.close()


def _compare(content: Iterable[InputFile], result: SourceReport) -> None:
    hashes = {file.path: file.sha256 for file in result.files}
    for file in content:
        if file.sha256 != hashes[file.path]:
            raise _changed(file.path)
