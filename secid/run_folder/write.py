"""The run folder: written under a temporary name, then renamed, so that it is whole or absent."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from secid.errors import OutputError
from secid.files import write_together
from secid.pages.sanitize import log_line
from secid.progress import Progress
from secid.results import Run
from secid.results.document import PROBE_NAME, json_of
from secid.results.probe import Probe

if TYPE_CHECKING:
    from secid.scoring.clock import Clock
    from secid.scoring.run import Scored

PARTIAL_PREFIX = f".partial-{platform.node()}."
"""Followed by the process id: on a shared disk another machine's processes cannot be asked for."""


class Recorder:
    """Passes progress on and keeps its notes for log.txt."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self.lines: list[str] = []

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self.lines.append(f"stage {stage}" if total is None else f"stage {stage}: {total} {unit}")
        self._inner.start(stage, total, unit)

    def advance(self, n: int) -> None:
        self._inner.advance(n)

    def at(self, place: str, total: int) -> None:
        self._inner.at(place, total)

    def note(self, text: str) -> None:
        self.lines.append(text)
        self._inner.note(text)


class RunFolder:
    """Context manager around one run's output. With path None nothing is written.

    work : where temporary files of the run go (None: the system's temporary folder). It is on the
           run folder's own disk and disappears with the run, finished or not.
    """

    def __init__(self, path: Path | None, force: bool = False) -> None:
        self.path = path
        self._force = force
        self._partial: Path | None = None
        self._made: list[Path] = []

    @property
    def work(self) -> Path | None:
        return self._partial

    def __enter__(self) -> RunFolder:
        if self.path is None:
            return self
        if self.path.exists() and not self._force:
            raise OutputError("already exists", where=str(self.path), remedy="name another --run, or add --force")
        if self.path.exists() and not (self.path.is_dir() and _is_run(self.path)):
            raise OutputError("is not a run folder, so --force does not replace it", where=str(self.path))
        try:
            self._made = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.path.parent)
            self._partial = self.path.parent / f"{PARTIAL_PREFIX}{os.getpid()}-{self.path.name}"
            self._partial.mkdir()
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(self.path)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
        with suppress(OSError):  # a folder that holds something stays
            for folder in self._made:
                folder.rmdir()

    def write(self, scored: Scored, recorder: Recorder, clock: Clock) -> None:
        """Writes all tables and pages, then puts the folder in its place at once. clock: that of the run's timing."""
        if self.path is None or self._partial is None:
            return
        from secid.pages.formats import FORMATS
        from secid.run_folder.read import POSITIVES, RANDOM_REFERENCE, RUN_TEXTS
        from secid.run_folder.tables import write_frequencies, write_negatives, write_state, write_tables

        recorder.start("write", None, "files")
        ready = self._partial / "ready"
        try:
            ready.mkdir()
            with clock.stage("write"):
                write_state(scored.states, ready / "state")
                write_frequencies(scored.frequencies, scored.run.idf, ready / "state" / "idf.safetensors")
                if not scored.run.has_rows_elsewhere:
                    write_negatives(scored.measured, ready / "negatives.parquet")
                    tables: dict[str, dict[str, Any]] = {POSITIVES: dict(scored.positives)}
                    if scored.reference is not None:
                        tables[RANDOM_REFERENCE] = scored.reference.stored()
                    if scored.run_texts is not None:
                        tables[RUN_TEXTS] = scored.run_texts.stored([source.name for source in scored.run.sources])
                    write_tables(scored.run, tables, ready / "state")
            for suffix, page in FORMATS.items():  # last, since they name what the stages took
                (ready / f"report{suffix}").write_text(page(scored.run), encoding="utf-8")
            lines = [*recorder.lines, *_timing_lines(scored)]
            (ready / "log.txt").write_text("".join(f"{log_line(line)}\n" for line in lines), encoding="utf-8")
            if self.path.exists() and not self._force:
                raise OutputError("appeared while the run was under way", where=str(self.path), remedy="score again")
            if self.path.exists():
                self.path.rename(self._partial / "replaced")
            ready.rename(self.path)
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(self.path)) from error


def add_probe(folder: Path, run: Run, probe: Probe) -> None:
    """Puts a probe into a run folder, and renders the pages of the run with it: all of the files or none.

    Raises OutputError.
    """
    from secid.pages.formats import run_formats

    pages = {f"report{suffix}": page(run) for suffix, page in run_formats(probe).items() if suffix != ".json"}
    files = {PROBE_NAME: json_of(probe), **pages}
    write_together({folder / name: text.encode() for name, text in files.items()})


def _timing_lines(scored: Scored) -> list[str]:
    return [
        f"{stage}: " + ", ".join(f"{name} {value:g}" for name, value in entry.items())
        for stage, entry in scored.run.timing.items()
    ]


def _is_run(path: Path) -> bool:
    return (path / "report.json").is_file() or not any(path.iterdir())


def _remove_abandoned(parent: Path) -> None:
    """Clears what a killed run left; a running one is known by its living process."""
    for path in parent.iterdir():
        number = path.name.removeprefix(PARTIAL_PREFIX).split("-")[0] if path.name.startswith(PARTIAL_PREFIX) else ""
        if number.isdigit() and not _alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
