"""Write a complete run folder or none, and describe the versions and machine of a run."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from secid import __version__
from secid.errors import OutputError, SecidError
from secid.files import write_error, write_together
from secid.pages.text import log_line
from secid.progress import Progress
from secid.results import Run
from secid.results.document import PROBE_NAME, json_of
from secid.results.probe import Probe
from secid.settings import resolve, value_text

if TYPE_CHECKING:
    from secid.progress import Clock
    from secid.scoring.run import Scored

# Versions and machine of a run, for reports and bug reports.

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "typer", "rich", "pydantic")
SECRETS = ("HF_TOKEN", "SECID_API_KEY", "OPENAI_API_KEY")
"""Environment variables whose values never enter a report. A report shows only whether they are set, which explains
many failures."""


def environment() -> dict[str, Any]:
    """Return the Python version, platform, number of cores and versions of the packages on which numbers depend."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


@cache
def package_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def diagnosis() -> dict[str, dict[str, Any]]:
    """Return the facts for a bug report by section: versions, devices, caches and changed settings.

    An error in the settings is part of the result, so that the command works even if no other command does. Secrets
    are shown as set or not set.
    """
    facts = environment()
    return {
        "secid": {"version": __version__, **{name: facts[name] for name in ("python", "platform", "processors")}},
        "packages": {name: value or "not installed" for name, value in facts["packages"].items()},
        "devices": _devices(),
        "encoders": _encoders(),
        **_settings(),
    }


def _devices() -> dict[str, Any]:
    import torch

    devices: dict[str, Any] = {"cpu": f"{torch.get_num_threads()} threads"}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        devices[f"cuda:{number}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.version.cuda is None:
        devices["cuda"] = "not in this build of torch"
    elif not torch.cuda.is_available():
        devices["cuda"] = f"no device found (torch is built for CUDA {torch.version.cuda})"
    devices["mps"] = "yes" if torch.backends.mps.is_available() else "no"
    devices["xpu"] = "yes" if torch.xpu.is_available() else "no"
    return devices


def _encoders() -> dict[str, Any]:
    from huggingface_hub import constants

    from secid.encode.locate import offline_minilm

    try:
        offline = "installed, weights as published" if offline_minilm() else "not installed"
    except SecidError as error:
        offline = str(error)
    return {
        "offline minilm": offline,
        "hub cache": constants.HF_HUB_CACHE,
        "hub offline": "yes" if constants.HF_HUB_OFFLINE else "no",
        **{name: "set" if os.environ.get(name) else "not set" for name in SECRETS},
    }


def _settings() -> dict[str, dict[str, Any]]:
    from secid.encode import CacheFolder

    try:
        resolved = resolve({})
        cache = CacheFolder.of(resolved.values).info()
    except SecidError as error:
        return {"settings": {"error": str(error)}}
    rows = sum(use.n_rows for use in cache.encoders)
    return {
        "cache": {
            "folder": cache.folder,
            "size": f"{cache.n_bytes / 1e9:.3f} of {cache.limit_bytes / 1e9:g} GB",
            "content": f"embeddings: {rows:,}, encoders: {len(cache.encoders)}, damaged segments: {cache.n_damaged}",
        },
        "settings": {
            name: f"{value_text(entry['value'])} from {entry['from']}"
            for name, entry in resolved.document().items()
            if entry["from"] != "default"
        }
        or {"changed": "none"},
    }


# The run folder is written under a temporary name and then renamed, so that it is complete or absent.

PARTIAL_PREFIX = f".partial-{platform.node()}."
"""Prefix of temporary folders, followed by the process id. It names the machine, because a process cannot be checked
from another machine that shares the disk."""


class Recorder:
    """A Progress that forwards all calls, and records stages and notes for log.txt."""

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
    """Context manager for the output of one run. If path is None, nothing is written.

    work : folder for the run's temporary files, on the run folder's disk; None for the system's temporary folder. It is
           removed when the run ends, even if the run fails.
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
        is_run = (self.path / "report.json").is_file() or (self.path.is_dir() and not any(self.path.iterdir()))
        if self.path.exists() and not is_run:
            raise OutputError(
                "is not a run folder, so --force does not replace it",
                where=str(self.path),
                remedy="name another folder with --run",
            )
        try:
            self._made = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.path.parent)
            self._partial = self.path.parent / f"{PARTIAL_PREFIX}{os.getpid()}-{self.path.name}"
            self._partial.mkdir()
        except OSError as error:
            raise write_error(error, self.path) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
        with suppress(OSError):  # a folder that is not empty stays
            for folder in self._made:
                folder.rmdir()

    def write(self, scored: Scored, recorder: Recorder, clock: Clock) -> None:
        """Write all tables and pages, then rename the folder. Raises OutputError. clock: measures the stage "write"."""
        if self.path is None or self._partial is None:
            return
        from secid.pages.formats import RUN_FORMATS
        from secid.run_folder.tables import (
            POSITIVES,
            RANDOM_REFERENCE,
            RUN_TEXTS,
            write_frequencies,
            write_negatives,
            write_state,
            write_tables,
        )

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
            for suffix, page in RUN_FORMATS.items():  # last, because pages report the time of each stage
                (ready / f"report{suffix}").write_text(page(scored.run), encoding="utf-8")
            lines = [*recorder.lines, *_timing_lines(scored)]
            (ready / "log.txt").write_text("".join(f"{log_line(line)}\n" for line in lines), encoding="utf-8")
            if self.path.exists() and not self._force:
                raise OutputError("appeared during the run", where=str(self.path), remedy="score again")
            if self.path.exists():
                self.path.rename(self._partial / "replaced")
            ready.rename(self.path)
        except OSError as error:
            raise write_error(error, self.path) from error


def add_probe(folder: Path, run: Run, probe: Probe) -> None:
    """Add a probe to a run folder, and render its pages. All files are written, or none. Raises OutputError."""
    from secid.pages.formats import run_formats

    pages = {f"report{suffix}": page(run) for suffix, page in run_formats(probe).items() if suffix != ".json"}
    files = {PROBE_NAME: json_of(probe), **pages}
    write_together({folder / name: text.encode() for name, text in files.items()})


def _timing_lines(scored: Scored) -> list[str]:
    return [
        f"{stage}: " + ", ".join(f"{name} {value:g}" for name, value in entry.items())
        for stage, entry in scored.run.timing.items()
    ]


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of killed runs. Folders of running processes stay."""
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
