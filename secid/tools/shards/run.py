"""Score in parts, on any number of machines: `secid score --shard`, `secid merge` and `--on ray` as functions.

Source: METHOD 11, docs/scale.md.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

from secid import errors
from secid.errors import InputError, OutputError, RunNotWrittenError, UsageError
from secid.files import work_folder
from secid.progress import Clock, Progress, Silent
from secid.results.document import refuse_unnamed
from secid.run_folder.write import Recorder, RunFolder
from secid.scoring.encoders import load_noted, refuse_missing, refuse_no_encoder, start_command
from secid.settings import FLAG, SHARD_LOCAL_SETTINGS, Dtype, Resolved, SettingsDict, checked_settings, flag_of, resolve

if TYPE_CHECKING:
    from secid.encode import Encoder, EncoderLike
    from secid.records import Source
    from secid.results import EncoderInfo, Run
    from secid.settings import Resolved
    from secid.tools.shards.shard import Job

# Functions for `secid score --shard` and `secid merge`.

EncoderLoader = Callable[..., "tuple[Encoder, EncoderInfo]"]
"""A function with the parameters of `load_noted`. It lets a process keep its encoder for several shards."""
DTYPE_NAMES = get_args(Dtype)
MERGE_SAMPLE = 20_000
"""Default number of queries of each source that a merge samples."""


@dataclass(frozen=True)
class ShardDone:
    """A finished state.

    skipped : True if the state existed before.   n_done, n_shards : number of finished states, and of all states.
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
    load: EncoderLoader = load_noted,
    **settings: Unpack[SettingsDict],
) -> ShardDone:
    """Score one of N parts of the queries, in the pool of all sources, and write its state.

    An existing state is not computed again, unless `run` names a new folder.

    sources   : as for `score`, but only files.   encoder: as for `score`; not needed with `prepare`.
    state_dir : folder of the states, a path or a URL of fsspec.
    prepare   : only count this shard's part of the texts, for all shards. Without these counts each shard counts all
                texts itself.
    settings  : as for `score`; `shard` is "I/N" for part I of N, from 0.
    run       : run folder for this shard, for example for `select`; none by default.   force: replace it.
    Raises SecidError. Source: METHOD 11.
    """
    resolved, progress = start_command(encoder, settings, progress, in_shards=True)
    values = resolved.values
    from secid.pool.plan import Shard
    from secid.read import open_sources, sources_and_words
    from secid.tools.shards.shard import COUNTS, SHARD, WHOLE_RUN, Job, all_parts, measure_shard, name_of

    job = Job.of(sources, state_dir, resolved, progress)
    if values.shard is None:
        raise UsageError("needs a part of the queries", where="--state-dir", remedy=f"add {flag_of('shard', '0/8')}")
    part = Shard.parse(values.shard)
    if not prepare:
        refuse_no_encoder(encoder, values)
    kind, recorder, clock = COUNTS if prepare else SHARD, Recorder(progress), Clock()
    job.state.check_writable()
    skipped = bool(job.done(kind, [part])) and (run is None or Path(run).exists())
    if not skipped:
        files, _ = sources_and_words(list(sources), recorder)
        with RunFolder(None if run is None else Path(run), force) as folder, work_folder(folder.work) as work:
            if not prepare:
                with open_sources(files, values):
                    refuse_missing(encoder, values, recorder)  # the last check before imports that take seconds
            counts = None if prepare else job.counts()
            if not prepare:  # before the slow counting, because loading may fail
                loaded, _ = load(encoder, values, recorder)
                clock.loaded()
            if counts is None:
                with open_sources(files, values) as readers, clock.stage("count"):
                    (work / "count").mkdir()
                    counts = job.count(readers, part if prepare else WHOLE_RUN, work / "count", recorder)
            if not prepare:
                with open_sources(files, values) as readers:
                    named = None if run is None else fspath(run)
                    scored = measure_shard(job, counts, readers, loaded, work, recorder, clock, named)
                    if scored is not None:
                        folder.write(scored, recorder, clock)
    n_done = len(all_parts(kind, part.of).keys() & job.state.names())
    if prepare and n_done == part.of:
        job.counts()  # adds up the parts for all shards
    return ShardDone(name_of(kind, part), skipped, n_done, part.of)


def merge(
    state_dir: str | PathLike[str],
    encoder: EncoderLike | None = None,
    *,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    sample: int = MERGE_SAMPLE,
    progress: Progress | None = None,
    load: EncoderLoader = load_noted,
    **settings: Unpack[SettingsDict],
) -> Run:
    """Merge the states of all shards into the run that a single process would give.

    state_dir : as for `score_shard`.   run, force : as for `score`.
    encoder   : the shards' encoder by default. States are not trusted, so a local folder or an address must be named
                here, in the environment or in a settings file.
    sample    : number of queries of each source to sample for controls, ablations, separation, batches and hardness.
                All other numbers and the comparisons use all queries. Sampled queries are read again, and encoded again
                unless they are in the cache.
    settings  : settings of the machine (device, cache, threads), permissions (trust_remote_code, allow_pickle), and
                settings of the sample's analyses (controls, ablate, objectives, by). The shards determine all others.
    Raises SecidError. If a shard is missing or belongs to another run, it does so before the encoder is loaded.

    Source: METHOD 2, 8, 11.
    """
    import torch

    from secid.pages.glossary import merged_sentence
    from secid.pool.make import refuse_bad
    from secid.read import open_sources
    from secid.results import InputFile
    from secid.results.run import Merged
    from secid.scoring.run import assemble_run, read_sources
    from secid.scoring.stages import Background, measure
    from secid.tools.shards.merge import merge_states, merged_run, states_of
    from secid.tools.shards.shard import Job, check_encoder, check_files, files_of, shard_states, subset_of_sample
    from secid.tools.shards.state import MAX_SAMPLED
    from secid.tools.shards.store import StateDir

    if not 1 <= sample <= MAX_SAMPLED:
        remedy = f"give a number from 1 to {MAX_SAMPLED:,}"
        raise UsageError(f"{sample:,} is out of range", where="--sample", remedy=remedy)
    state = StateDir(fspath(state_dir))
    headers = shard_states(state)
    first_name, first = next(iter(headers.items()))
    encoder, resolved, progress = _merge_settings(state.url, headers, encoder, settings, progress)
    values = resolved.values
    recorder, clock = Recorder(progress), Clock()
    job = Job(state, first["run"]["sources"], resolved)
    counts = job.counts()
    if counts is None:
        raise UsageError(
            "the counts of the texts are missing",
            where=state.url,
            remedy="remove the state of one shard and run it again",
        )
    with (
        RunFolder(None if run is None else Path(run), force) as folder,
        work_folder(folder.work) as work,
        open_sources(_source_files(job, recorder), values) as readers,
    ):
        loaded, info = load(encoder, values, recorder)
        check_encoder(state, first_name, first, loaded.info)
        clock.loaded()
        with clock.stage("merge", n_shards=len(headers)):
            (work / "rows").mkdir()
            wholes, merged_pairs, tallies = merge_states(
                state, headers, sample, work / "rows", loaded.info.device, getattr(torch, values.sums), recorder
            )
        for source, tally in tallies.items():
            refuse_bad(source, tally, values)
        subset = subset_of_sample(wholes, sample, values.seed)
        n_sampled = None if subset.has is None else sample
        background = Background(frequencies=counts.table("documents"), run_texts=counts.texts())
        of_sample = _sample_settings(resolved, n_sampled, loaded.info.dtype)
        with read_sources(readers, of_sample, subset, background, work, clock, recorder) as read:
            context = measure(read, loaded, None, background, work, clock, recorder)
            named = None if run is None else fspath(run)
            scored = assemble_run(context, read, loaded, background, clock, named)
            check_files("merge", files_of(readers), first_name, first["files"], state.url)
            merged = Merged(
                n_shards=len(headers),
                n_texts=counts.n_texts,
                n_texts_held=sum(header["numbers"]["n_texts"] for header in headers.values()),
                sampled_queries=n_sampled,
            )
            recorder.note(merged_sentence(merged))
            files = {path: InputFile(**file) for path, file in first["files"].items()}  # as in all shards
            done = replace(
                merged_run(scored.run, wholes, merged_pairs, tallies, files, counts, merged, values.seed),
                settings=resolved.changed(shard=None).document(),
                encoder=info,
                one_positive=all(header["numbers"]["one_positive"] for header in headers.values()),
            )
            scored = replace(scored, run=done, states=states_of(done, scored.measured, wholes, merged_pairs))
        try:
            folder.write(scored, recorder, clock)
        except OutputError as error:
            raise RunNotWrittenError(error, done) from error
    return done


def _merge_settings(
    url: str,
    headers: Mapping[str, Mapping[str, Any]],
    encoder: EncoderLike | None,
    settings: SettingsDict,
    progress: Progress | None,
) -> tuple[EncoderLike | None, Resolved, Progress]:
    """Return the encoder, the settings and the progress of a merge. Settings of the caller replace those of the shards.

    url : URL of the states' folder.   headers : headers of the states, by name.
    encoder, settings, progress : as in `merge`. Raises UsageError.
    """
    first = next(iter(headers.values()))
    typed = {name: value for name, value in settings.items() if value is not None}
    for name in typed:
        if name not in SHARD_LOCAL_SETTINGS:
            problem = "cannot be set here: its value comes from the shards"
            raise UsageError(problem, where=flag_of(name), remedy="omit it")
    stored = {name: value for name, value in first["run"]["settings"].items() if name not in SHARD_LOCAL_SETTINGS}
    name = stored.pop("encoder", None)
    typed_settings = resolve({**typed, "encoder": encoder if isinstance(encoder, str) else None})
    if encoder is None:
        encoder = _encoder_of(name, typed_settings, url)
    keywords: Any = {**stored, **typed, "shard": f"0/{len(headers)}"}
    resolved, progress = start_command(encoder, keywords, progress, in_shards=True)
    resolved = resolved.changed(keyless=typed_settings.values.keyless)
    refuse_no_encoder(encoder, resolved.values)
    return encoder, replace(resolved, origin={**resolved.origin, "tokenizer": first["tokenizer_from"]}), progress


def _encoder_of(stored: str | None, resolved: Resolved, where: str) -> str | None:
    """Return the name of the encoder to load: the command's encoder if it names one, otherwise the stored one.

    Raises SettingsError if the name stored at `where` is not text, and EncoderError as in `refuse_unnamed`.
    """
    stored = checked_settings({"encoder": stored}, {"encoder": where}).encoder
    requested = resolved.values.encoder
    if resolved.origin["encoder"] == FLAG or requested == stored:
        return requested
    refuse_unnamed(stored, "encoder", where)
    return stored


def _source_files(job: Job, recorder: Recorder) -> tuple[Source, ...]:
    """Return the files of the shards' sources. Raises InputError if their names are not valid in this folder."""
    from secid.read import sources_and_words

    try:
        return sources_and_words(job.words, recorder)[0]
    except InputError as error:
        error.remedy = "run merge in the folder where the shards were run, since file names are stored as typed"
        raise


def _sample_settings(resolved: Resolved, n_sampled: int | None, dtype: str) -> Resolved:
    """Return the settings for the sample of a merge. n_sampled: None for all queries.   dtype: the encoder's dtype."""
    return resolved.changed(
        shard=None,
        on_bad="skip",
        max_bad_fraction=1.0,
        max_records=n_sampled,
        dtype=dtype if dtype in DTYPE_NAMES else resolved.values.dtype,  # so that no dtype is advised
    )


# Functions for `secid score --on ray`: Ray actors run `score_shard` for the counts and for each shard, then `merge`.
#
# Finished work is in the states, so after a killed run the same command continues. Source: docs/shards.md.

MAX_TRIES = 3
"""Try a part this many times if its worker dies or raises an error that is not a SecidError. Then the run fails."""
MAX_ANSWER_SECONDS, CHECK_INTERVAL_SECONDS = 5.0, 5.0
"""Maximum wait for an address to answer, and time between checks whether the cluster has room for more workers."""
RAY_PREFIX, START = "ray://", "worker"


class _Worker:
    """A Ray actor that loads its encoder once. folder: folder of relative paths, if the actor's machine has it."""

    def __init__(self, folder: str) -> None:
        self._loaded: Any = None
        with suppress(OSError):
            os.chdir(folder)

    def _load(self, *arguments: Any) -> Any:
        self._loaded = self._loaded or load_noted(*arguments)
        return self._loaded

    def run(self, function: Callable[..., Any], words: Any, encoder: Any, keywords: Any) -> tuple[Any, list[str]]:
        """Run a function. Return its result and its notes."""
        log = Recorder(Silent())
        result = function(words, **{**keywords, "encoder": encoder, "load": self._load, "progress": log})
        return result, [line for line in log.lines if not line.startswith("stage ")]


def score_on_ray(
    sources: Sequence[str], encoder: EncoderLike | None = None, *, shards: int, state_dir: str | os.PathLike[str],
    on: str = "ray", run: str | os.PathLike[str] | None = None, force: bool = False, progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Run:  # fmt: skip
    """Score sources in parts on a Ray cluster, and merge the parts.

    sources, encoder, settings : as for `score_shard`. Ray sends an encoder object to the workers.
    shards    : number of parts. If a worker dies, another one takes its part.
    state_dir : as for `score_shard`; all machines must reach it.   run, force : as for `merge`.
    on        : "ray" for the cluster in RAY_ADDRESS, else the cluster that this machine is part of, else a new one on
                this machine. "ray://HOST:PORT" for a cluster over Ray Client.
    Raises SecidError, if possible before Ray starts. Finished states are kept.
    """
    from secid.analyses.registry import to_json
    from secid.pool.plan import Shard
    from secid.tools.shards.shard import COUNTS, SHARD, WHOLE_RUN, Job

    stages = {COUNTS: "count", SHARD: "score"}
    resolved, progress = start_command(encoder, settings, progress)
    if on != "ray" and not on.startswith(RAY_PREFIX):
        remedy = f"use ray, or {RAY_PREFIX}HOST:PORT"
        raise errors.UsageError(f"unknown cluster {on!r}", where="--on", remedy=remedy)
    if shards < 1:
        raise errors.UsageError(f"{shards} is too small", where="--shards", remedy="give at least 1")
    refuse_no_encoder(encoder, resolved.values)
    if resolved.values.encoder in resolved.values.keyless:  # a worker would treat it as an address that the user typed
        address = resolved.values.encoder
        remedy = f"name it on the command line: {flag_of('encoder', address)}"
        raise errors.UsageError("on Ray, the encoder's address cannot come from a settings file", remedy=remedy)
    job = Job.of(sources, state_dir, resolved, progress)
    parts = [Shard(number, shards) for number in range(shards)]
    done = {kind: job.done(kind, (*parts, WHOLE_RUN)) for kind in stages}
    keywords, url = resolved.non_defaults(), job.state.url
    with RunFolder(None if run is None else Path(run), force), _connected(on) as ray:
        hosts = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if "://" not in url and hosts - {ray.util.get_node_ip_address(), "127.0.0.1"}:
            progress.note(f"{url} must be on a disk that all machines of the cluster share, or be a URL such as s3://…")
        has_gpu = resolved.values.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
        encoder_ref = ray.put(encoder or resolved.values.encoder)
        noted: set[str] = set()
        for kind, stage in stages.items():
            options = {**keywords, "state_dir": url, "prepare": kind == COUNTS}
            left = [part for part in parts if not {part, WHOLE_RUN} & done[kind]]
            work = {
                f"{stage} {part}": (score_shard, job.words, encoder_ref, {**options, "shard": str(part)})
                for part in left
            }
            progress.start(stage, shards, "shards")
            progress.advance(shards - len(left))
            _run_parts(ray, work, progress, noted, has_gpu and kind == SHARD)
        progress.start("merge", 1, "report")
        options = {name: value for name, value in keywords.items() if name in SHARD_LOCAL_SETTINGS} | {
            "run": run,
            "force": force,
        }
        result: Run = _run_parts(ray, {"merge": (merge, url, encoder_ref, options)}, progress, noted, has_gpu)["merge"]
    report = Path(run or "", "report.json")
    if run is not None and not (report.is_file() and report.read_text(encoding="utf-8") == to_json(result)):
        error = errors.OutputError(
            "the run folder is on another machine", where=str(run), remedy=f"write one here: secid merge {url}"
        )
        raise errors.RunNotWrittenError(error, result)
    return result


def _run_parts(ray: Any, work: Mapping[str, Any], progress: Progress, noted: set[str], has_gpu: bool) -> dict[str, Any]:
    """Run all parts. Return their results by name. There is one actor for each GPU, or for each CPU without GPUs.

    work : arguments of `_Worker.run` for each part.   noted : notes that workers already gave; they are not repeated.
    """
    actor = ray.remote(num_cpus=0 if has_gpu else 1, num_gpus=int(has_gpu))(_Worker)
    todo, results, failed = deque(work), dict[str, Any](), Counter[str]()
    actors, running = list[Any](), dict[Any, tuple[str, Any]]()
    try:
        while len(results) < len(work):
            places = int(ray.cluster_resources().get("GPU" if has_gpu else "CPU", 0))
            for _ in range(len(actors), min(max(places, 1), len(work) - len(results))):
                actors.append(actor.remote(str(Path.cwd())))
                running[actors[-1].__ray_ready__.remote()] = START, actors[-1]
            for one in [one for one in actors if one not in [busy for _, busy in running.values()]][: len(todo)]:
                name = todo.popleft()
                running[one.run.remote(*work[name])] = name, one
            for ref in ray.wait(list(running), timeout=CHECK_INTERVAL_SECONDS)[0]:
                name, one = running.pop(ref)
                try:
                    outcome = ray.get(ref)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    failed[name] += 1
                    if isinstance(cause, errors.SecidError):
                        raise cause from None
                    if failed[name] == MAX_TRIES:
                        what = f"failed {MAX_TRIES} times on Ray, {type(cause).__name__}: {errors.plain_message(cause)}"
                        remedy = "see Ray's logs; finished parts are kept, and the same command runs the others"
                        raise errors.NotEvaluatedError(what, where=name, remedy=remedy) from None
                    progress.note(f"{name} failed ({type(cause).__name__}); trying again")
                    if not isinstance(error, ray.exceptions.RayTaskError):  # its process has ended
                        actors.remove(one)
                    todo.extendleft([name] if name in work else [])
                    continue
                failed.pop(START, None)
                if name in work:
                    results[name], lines = outcome
                    new = {re.sub(r"\d+", "", line): line for line in lines}  # parts differ only in numbers
                    for line in (line for key, line in new.items() if key not in noted):
                        progress.note(f"{name}: {line}")
                    noted.update(new)
                    progress.advance(1)
        return results
    finally:
        for one in actors:
            ray.kill(one)


@contextmanager
def _connected(on: str) -> Iterator[Any]:
    """Connect to Ray, unless there is a connection. Raises UsageError if Ray is not installed or does not answer."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send reports over the internet
    os.environ.setdefault("RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S", "5")  # Ray tries three times; its default is 30 s each
    try:
        import ray
    except ImportError as error:
        raise errors.UsageError("Ray is not installed", where="--on", remedy=errors.install_command("ray")) from error
    if ray.is_initialized():
        yield ray
        return
    address = on if on != "ray" else os.environ.get("RAY_ADDRESS") or _current()
    terminate = signal.getsignal(signal.SIGTERM)
    with redirect_stdout(None):  # Ray prints to stdout when a worker ends; only the result may go there
        try:
            _ask(address)
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            what = f"Ray does not answer: {errors.plain_message(error)}"
            remedy = "start the cluster, or name its address: --on ray://HOST:PORT"
            raise errors.UsageError(what, where=address, remedy=remedy) from error
        try:
            with suppress(ValueError):  # raised outside the main thread
                signal.signal(signal.SIGTERM, terminate)  # Ray installs a handler with another exit code
            yield ray
        finally:
            ray.shutdown()


def _current() -> str:
    """Return the address of this machine's cluster; "local" if none answers. Ray would wait minutes for a dead one."""
    path = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray", "ray_current_cluster")
    with suppress(OSError):
        _ask(address := path.read_text(encoding="utf-8").strip())
        return address
    return "local"


def _ask(address: str) -> None:
    """Raise OSError if nothing answers at HOST:PORT."""
    host, _, port = address.removeprefix(RAY_PREFIX).rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), MAX_ANSWER_SECONDS).close()
