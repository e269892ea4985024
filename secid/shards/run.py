"""`secid score --shard` and `secid merge` as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

from secid.errors import InputError, OutputError, RunNotWrittenError, UsageError
from secid.files import work_folder
from secid.progress import Progress
from secid.scoring.clock import Clock
from secid.scoring.encoders import begun, load_noted, refuse_missing, refuse_no_encoder
from secid.scoring.stored import encoder_of, refuse_settings
from secid.settings import OF_MACHINE, Dtype, SettingsDict, flag_of, resolve

if TYPE_CHECKING:
    from secid.encode import Encoder, EncoderLike
    from secid.results import EncoderInfo, Run

Load = Callable[..., "tuple[Encoder, EncoderInfo]"]
"""Takes what `load_noted` takes. That of a process that scores several shards can keep the encoder."""
DTYPES = get_args(Dtype)
SAMPLE = 20_000
"""Queries of each source that a merge samples where none are named."""


@dataclass(frozen=True)
class ShardDone:
    """A state that is there. n_done of n_shards states of its kind are.

    skipped : it was there before.
    """

    name: str
    skipped: bool
    n_done: int
    n_shards: int


def score_shard(
    sources: Sequence[str],
    encoder: EncoderLike | None = None,
    *,
    state_dir: str | PathLike[str],
    prepare: bool = False,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    load: Load = load_noted,
    **settings: Unpack[SettingsDict],
) -> ShardDone:
    """Scores one of N parts of the queries of some sources, in the pool of all of them, and writes its state.

    sources   : as for `score`, but files alone.   encoder: as for `score`; not needed with `prepare`.
    state_dir : folder of the states, a path or a URL of fsspec.
    prepare   : count the part of the texts that this shard counts for all of them, and nothing else. Without counts
                of all shards each counts all texts itself.
    settings  : as for `score`; `shard` is "I/N", part I of N from 0.
    run       : folder for the run folder of this shard, to select from; none by default.   force: replace it.
    A state that is there is not made again, unless its run folder is asked for and is not there. Raises SecidError.
    Source: METHOD 11.
    """
    resolved, progress = begun(encoder, settings, progress, in_shards=True)
    values = resolved.values
    from secid.pool.part import Shard
    from secid.read import given_sources, opened
    from secid.run_folder.write import Recorder, RunFolder
    from secid.shards.shard import COUNTS, SHARD, WHOLE, Job, all_parts, name_of, score

    job = Job.of(sources, state_dir, resolved, progress)
    if values.shard is None:
        raise UsageError("name a part of the queries", where="--state-dir", remedy=flag_of("shard", "0/8"))
    part = Shard.parse(values.shard)
    if not prepare:
        refuse_no_encoder(encoder, values)
    kind, recorder, clock = COUNTS if prepare else SHARD, Recorder(progress), Clock()
    job.state.check_writable()
    skipped = job.is_done(kind, part) and (run is None or Path(run).exists())
    if not skipped:
        files, _ = given_sources(list(sources), values, recorder)
        with RunFolder(None if run is None else Path(run), force) as folder, work_folder(folder.work) as work:
            if not prepare:
                with opened(files, values):
                    refuse_missing(encoder, values, recorder)  # the last error before libraries that take seconds
            counts = None if prepare else job.counts()
            if not prepare:  # before texts are counted: it may not load
                loaded, _ = load(encoder, values, recorder)
                clock.loaded()
            if counts is None:
                with opened(files, values) as readers, clock.stage("count"):
                    (work / "count").mkdir()
                    counts = job.count(readers, part if prepare else WHOLE, work / "count", recorder)
            if not prepare:
                with opened(files, values) as readers:
                    named = None if run is None else fspath(run)
                    scored = score(job, counts, readers, loaded, work, recorder, clock, named)
                    if scored is not None:
                        folder.write(scored, recorder, clock)
    n_done = len(all_parts(kind, part.of).keys() & job.state.names())
    if prepare and n_done == part.of:
        job.counts()  # adds them up for all shards
    return ShardDone(name_of(kind, part), skipped, n_done, part.of)


def merge(
    state_dir: str | PathLike[str],
    encoder: EncoderLike | None = None,
    *,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    sample: int = SAMPLE,
    progress: Progress | None = None,
    load: Load = load_noted,
    **settings: Unpack[SettingsDict],
) -> Run:
    """Puts the states of all shards together into the run that one process gives.

    state_dir : as for `score_shard`.   run, force : as for `score`.
    encoder   : the shards' by default; a local folder or an address must be named here, or in the environment or a
                settings file, since states are not trusted.
    sample    : queries of each source that all but the sources' own numbers and their comparisons are measured on:
                controls, ablations, separation, batches, hardness. They are read from the files and encoded once more,
                unless the cache has them.
    settings  : of the machine (device, cache, threads), the permissions trust_remote_code and allow_pickle, and what is
                measured on the sample (controls, ablate, objectives, by); all others are those of the shards.
    Raises SecidError, before the encoder is loaded where a shard is missing or of another run.

    Source: METHOD 2, 8, 11.
    """
    import torch

    from secid.pages.glossary import merged_sentence
    from secid.pool.refuse import refuse_bad
    from secid.read import given_sources, opened
    from secid.results import InputFile
    from secid.results.run import Merged
    from secid.run_folder.write import Recorder, RunFolder
    from secid.scoring.run import scored_plan
    from secid.shards.merge import whole_run
    from secid.shards.report import report, states_of
    from secid.shards.shard import Job, check_encoder, check_files, files_of, keep_of_sample, shard_states
    from secid.shards.state import SAMPLED
    from secid.shards.store import StateDir

    if not 1 <= sample <= SAMPLED:
        raise UsageError(f"between 1 and {SAMPLED:,} queries, got {sample:,}", where="--sample")
    state = StateDir(fspath(state_dir))
    headers = shard_states(state)
    shard_0 = next(iter(headers.items()))
    first = shard_0[1]
    refuse_settings(settings, OF_MACHINE, "the shards")
    typed = {name: value for name, value in settings.items() if value is not None}
    stored = {name: value for name, value in first["run"]["settings"].items() if name not in OF_MACHINE}
    name = stored.pop("encoder", None)
    own = resolve({**typed, "encoder": encoder if isinstance(encoder, str) else None})
    if encoder is None:
        encoder = encoder_of(name, own, state.url)
    given: Any = {**stored, **typed, "shard": f"0/{len(headers)}"}
    resolved, progress = begun(encoder, given, progress, in_shards=True)
    resolved = resolved.changed(keyless=own.values.keyless)
    resolved = replace(resolved, origin={**resolved.origin, "tokenizer": first["tokenizer_from"]})
    values = resolved.values
    refuse_no_encoder(encoder, values)
    recorder, clock = Recorder(progress), Clock()
    job = Job(state, first["run"]["sources"], resolved)
    counts = job.counts()
    if counts is None:
        raise UsageError(
            "no counts of the texts", where=state.url, remedy="remove the state of a shard, and run that shard again"
        )
    with RunFolder(None if run is None else Path(run), force) as folder, work_folder(folder.work) as work:
        try:
            files, _ = given_sources(job.words, values, recorder)
        except InputError as error:
            error.remedy = "the shards name the files as they were typed: merge where these names lead to them"
            raise
        with opened(files, values) as readers:
            loaded, info = load(encoder, values, recorder)
            check_encoder(state, *shard_0, loaded.info)
            clock.loaded()
            with clock.stage("merge", n_shards=len(headers)):
                (work / "rows").mkdir()
                wholes, between, tallies = whole_run(
                    state, headers, sample, work / "rows", loaded.info.device, getattr(torch, values.sums), recorder
                )
            for source, tally in tallies.items():
                refuse_bad(source, tally, values)
            keep = keep_of_sample(wholes, sample, values.seed)
            of_sample = resolved.changed(
                shard=None,
                on_bad="skip",
                max_bad_fraction=1.0,
                max_records=None if keep is None else sample,
                dtype=loaded.info.dtype if loaded.info.dtype in DTYPES else values.dtype,  # so that none is advised
            )
            given_plan = readers, loaded, None, of_sample, work, recorder, counts.table("documents")
            named = None if run is None else fspath(run)
            plans = scored_plan(*given_plan, run_folder=named, clock=clock, keep=keep, run_texts=counts.texts())
            with plans as (scored, _):
                check_files("merge", files_of(readers), shard_0[0], first["files"], state.url)
                read = {path: InputFile(**file) for path, file in first["files"].items()}  # the shards agree on it
                merged = Merged(
                    n_shards=len(headers),
                    n_texts=counts.n_texts,
                    n_texts_held=sum(header["numbers"]["n_texts"] for header in headers.values()),
                    sampled_queries=None if keep is None else sample,
                )
                recorder.note(merged_sentence(merged))
                done = report(scored.run, wholes, between, tallies, read, counts, merged, values.seed)
                done = replace(done, settings=resolved.changed(shard=None).document())
                analyses = {name: found for name, found in done.analyses.items() if name != "cost"}
                one_positive = all(header["numbers"]["one_positive"] for header in headers.values())
                done = replace(done, encoder=info, analyses=analyses, one_positive=one_positive)
                scored = replace(scored, run=done, states=states_of(done, scored.measured, wholes, between))
            try:
                folder.write(scored, recorder, clock)
            except OutputError as error:
                raise RunNotWrittenError(error, done) from error
    return done
