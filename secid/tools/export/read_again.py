"""The files of a run's sources, read once more: a plan that knows the place of every negative, and the rows to copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from secid.errors import InputError, UsageError
from secid.findings.copies import Positives, restored
from secid.findings.texts import restored_texts, text_rules
from secid.pool import Plan, PlannedSource, collect_sources, plan_of
from secid.pool.make import TextRules
from secid.pool.plan import QuerySubset, TextFindings
from secid.pool.reading import add_labels, bytes_read_by, judgement_files
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.read import Reader, on_disk, once_only, open_source
from secid.records import Source
from secid.results import InputFile, Run, SourceReport
from secid.results.check import Check
from secid.run_folder.tables import POSITIVES, read_positives, read_run_texts, whole
from secid.settings import Settings
from secid.write.rows import Place, Row, RowsOnDisk

PLACEHOLDER = "source"
"""Name a source is planned under: its own may end in the split that the plan adds to it."""
MOVED = "this path is relative to the folder in which `secid score` was run: run secid there, with the file in place"
RESTORE = "put the file back, or score it where it is now"
CHANGED = "score it again, or restore the file that was scored"


@dataclass(frozen=True)
class Original:
    """One source of a run, planned again. split: which source of its files it is; "" where they hold one."""

    name: str
    split: str
    planned: PlannedSource
    on_disk: RowsOnDisk

    def rows(self) -> Iterator[tuple[Place, Row | None, slice]]:
        """Its rows, None where they give no record, and where in `planned.listed` the negatives of each are."""
        done = 0
        for place, row in self.on_disk.rows(self.split):
            start, done = done, done + (0 if row is None else len(row.negatives))
            yield place, row, slice(start, done)


def refuse_merged(run: Run) -> None:
    """Raises UsageError for a run folder without rows."""
    if run.has_rows_elsewhere:
        raise UsageError(
            "this run was merged from shards, and its rows are in theirs",
            remedy="score each shard with --run DIR, too, and select from these folders",
        )


def read_labels(folder: Path, run: Run) -> Positives:
    """Labelled positives of a run, as its folder keeps them. Raises InputError where they are missing or damaged, and
    UsageError for a merged run, whose folder has none.
    """
    refuse_merged(run)
    with whole(folder / "state" / POSITIVES, folder):
        return restored(read_positives(folder, run))


def text_rules_of(folder: Path, run: Run) -> TextRules:
    """The findings of the texts as the run had them: with the positives of all its sources, and of a shard with what
    was counted over the whole run. Raises InputError where the folder lacks them.
    """
    known, counted = read_labels(folder, run), read_run_texts(folder, run)
    if counted is None:
        return partial(text_rules, known=known)

    def rules(queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource]) -> Sequence[TextFindings]:
        names = {_name_in(run, planned): planned.name for planned in sources}
        now = [names.get(result.name, result.name) for result in run.sources]
        return text_rules(queries, passages, sources, known, run=restored_texts(counted, now))

    return rules


def _name_in(run: Run, planned: PlannedSource) -> str:
    """The name that a planned source had in the run."""
    split = planned.name.removeprefix(planned.source.name)
    names = [r.name for r in run.sources if tuple(file.path for file in r.files) == planned.source.paths]
    return next(name for name in names if name.endswith(split))


def find_source(run: Run | Check, name: str | None) -> SourceReport:
    """The source of that name; the only one where none is named. Raises UsageError."""
    names = ", ".join(source.name for source in run.sources)
    if name is None and len(run.sources) > 1:
        raise UsageError("this run has several sources", remedy=f"--source NAME, one of {names}")
    for source in run.sources:
        if name in (None, source.name):
            return source
    raise UsageError(f"no source {name!r} in this run", remedy=f"its sources are {names}")


def check_present(source: SourceReport) -> None:
    """Raises InputError where a file of the source is missing, or not as long as the one that was scored."""
    for file in source.files:
        if once_only(file.path):
            raise InputError("cannot be read again", where=file.path, remedy="save it to a file and score that")
        try:
            n_bytes = Path(on_disk(file.path)).stat().st_size
        except OSError as error:
            remedy = RESTORE if Path(file.path).is_absolute() else MOVED
            raise InputError(f"cannot be read again ({error.strerror})", where=file.path, remedy=remedy) from error
        if n_bytes != file.n_bytes:
            raise _changed(file.path)


def _changed(path: str) -> InputError:
    return InputError("has changed since it was scored (another SHA-256)", where=path, remedy=CHANGED)


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
    """The named sources of a run, planned as they were. Each file is opened once.

    folder : an empty folder for spool files.   text_rules : as in `plan_of`; only the named sources are read.
    with_labels : whether the collection's qrels add labelled positives; a run folder keeps them.
    Raises InputError where a file has changed or no longer gives the source.
    """
    results = [find_source(run, name) for name in names]
    for result in results:
        check_present(result)
    readers: dict[tuple[str, ...], Reader] = {}
    for result in results:
        paths = tuple(file.path for file in result.files)
        if paths not in readers:
            readers[paths] = open_source(Source(f"{PLACEHOLDER}{len(readers)}", paths), settings, keep=True)
    on_disk = {reader.source: RowsOnDisk(folder / f"{reader.source.name}.rows") for reader in readers.values()}
    subset = QuerySubset.of(settings)
    streams = [
        (reader.source, on_disk[reader.source].watch(subset.rows(reader.blocks()))) for reader in readers.values()
    ]
    gathered = collect_sources(streams, folder, bytes_read_by(readers.values(), progress))
    if with_labels and (judgements := judgement_files(settings)):
        add_labels(gathered, judgements, settings)
    plan = plan_of(gathered, settings, text_rules=text_rules)
    try:
        originals = {}
        for result in results:
            reader = readers[tuple(file.path for file in result.files)]
            _compare(reader.content(), result)
            planned, split = _matching(result.name, reader.source, plan)
            originals[result.name] = Original(result.name, split, planned, on_disk[reader.source])
        yield plan, originals
    finally:
        plan.close()


def _compare(content: Iterable[InputFile], result: SourceReport) -> None:
    hashes = {file.path: file.sha256 for file in result.files}
    for file in content:
        if file.sha256 != hashes[file.path]:
            raise _changed(file.path)


def _matching(name: str, source: Source, plan: Plan) -> tuple[PlannedSource, str]:
    """The planned source that had this name, and its split."""
    splits = {
        planned.name.removeprefix(source.name).removeprefix(":"): planned
        for planned in plan.sources
        if planned.source is source
    }
    split = split_of(name, splits, source.paths[0])
    return splits[split], split


def split_of(name: str, splits: Iterable[str], path: str) -> str:
    """The split that a source's name ends in: the longest that fits.

    Raises InputError where the file under `path` gives none that fits.
    """
    fitting = [split for split in splits if not split or name.endswith(f":{split}")]
    if not fitting:
        raise InputError(f"no longer gives the source {name!r}", where=path, remedy="score it again")
    return max(fitting, key=len)
