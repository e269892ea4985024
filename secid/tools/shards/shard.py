"""Score one shard, a part of the queries, in the pool of the whole run, and write its state.

Modules that need torch or scipy are imported inside functions, so that wrong input is reported before they load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secid import __version__
from secid.encode import smallest_distance
from secid.errors import InputError, UsageError
from secid.pool import sample_order
from secid.pool.plan import EmptyShardError, QuerySubset, Shard
from secid.pool.texts import text_key
from secid.progress import Clock, Progress, Silent
from secid.read import Reader, is_read_once, open_sources, sources_and_words
from secid.read.stream import HUB_PREFIX
from secid.records import Record
from secid.results import EncoderInfo
from secid.settings import DEFAULTS, FIELDS, MERGE_SETTINGS, SHARD_LOCAL_SETTINGS, Resolved, Settings, flag_of
from secid.tools.shards.store import StateDir

if TYPE_CHECKING:
    from secid.encode import Encoder
    from secid.scoring.run import Scored
    from secid.tools.shards.counts import Counts
    from secid.tools.shards.merge import MergedSource
    from secid.tools.shards.state import ShardNumbers

Header = dict[str, Any]
"""Header of a state.

run : see `Job.run`.   files : files that were read, by path.   tokenizer_from : origin of a shard's tokenizer.
Other entries depend on the kind of state.
"""
COUNTS, SHARD = "counts", "shard"
ROWS = "rows"
WHOLE_RUN = Shard(0, 1)
REFUSED_SETTINGS = {
    "first_k": "a shard does not see how many negatives the records of other shards have",
    "max_records": "a sample needs no shards",
    "until_ranked": "a sample needs no shards",
    "guide": "a guide scores a sample; to use it, score a sample of the queries without shards",
    "guide_reranker": "a guide scores a sample; to use it, score a sample of the queries without shards",
}
"""Settings that cannot be used in shards, with the reason."""
REQUIRED_SETTINGS = {"positives": "first", "idf": "pooled", "budget": 1.0}
"""Settings with only one allowed value in shards."""


def refuse_in_shards(settings: Settings, words: Sequence[str]) -> None:
    """Raise UsageError for settings that shards do not support, and for sources that can be read only once."""
    for word in words:
        path = str(word).rpartition("=")[2] if isinstance(word, str | PathLike) else None
        if path is None or (is_read_once(path) and not Path(path).is_dir()):
            raise UsageError(
                "can be read only once, but a shard reads all rows twice", where=path or "sources", remedy="name files"
            )
    for name, why in REFUSED_SETTINGS.items():
        if getattr(settings, name) is not None:
            raise UsageError(
                f"cannot be used with {flag_of('shard')}: {why}", where=flag_of(name), remedy=f"remove {flag_of(name)}"
            )
    for name, value in REQUIRED_SETTINGS.items():
        if getattr(settings, name) != value:
            needed = flag_of(name, value)
            raise UsageError(f"shards support only {needed}", where=flag_of(name), remedy=f"use {needed}")
    if settings.tokenizer == "wordpieces":
        raise UsageError(
            "shards do not support word pieces",
            where=flag_of("tokenizer", "wordpieces"),
            remedy="use another tokenizer",
        )


def name_of(kind: str, shard: Shard) -> str:
    return f"{kind}-{shard.number:05d}-of-{shard.of:05d}"


def all_parts(kind: str, of: int) -> dict[str, Shard]:
    """Return the names of a run's states, each with its part, in order."""
    return {name_of(kind, shard): shard for shard in (Shard(number, of) for number in range(of))}


def check_same(state: StateDir, headers: Mapping[str, Header], run: Mapping[str, Any], place: str = "here") -> None:
    """Raise InputError unless all states belong to this run and have read the same files.

    headers : headers of the states, by name.   run : see `Job.run`.   place : where the run's values are from, for
    messages.
    """
    for name, header in headers.items():
        _check_run(f"{state.url}/{name}", header["run"], run, place)
        first = next(iter(headers))
        check_files(name, header["files"], first, headers[first]["files"], state.url)


def _check_run(where: str, run_of_state: Mapping[str, Any], run: Mapping[str, Any], place: str) -> None:
    """Raise InputError with the first difference if a state belongs to another run."""
    for key, value in run.items():
        other = run_of_state.get(key)
        if other == value:
            continue
        what = key
        if isinstance(value, dict) and isinstance(other, dict):
            what = next(item for item in sorted({*value, *other}) if value.get(item) != other.get(item))
            value, other = value.get(what, "the default"), other.get(what, "the default")
        elif isinstance(value, list) and isinstance(other, list):
            same = len(value) == len(other)
            what = f"one of the {key}" if same else f"the number of {key}"
            pairs = zip(value, other, strict=True) if same else [(len(value), len(other))]
            value, other = next((a, b) for a, b in pairs if a != b)
        raise InputError(
            f"belongs to another run: {what} is {other} in it, but {value} {place}",
            where=where,
            remedy="use the same value (settings also come from SECID_* and secid.toml), or name another state folder"
            if place == "here"
            else "remove the wrong state, and run its shard again",
        )


def _with_one_tokenizer(readers: Sequence[Reader], resolved: Resolved, progress: Progress) -> Resolved:
    """Choose one tokenizer for all shards, as `choose_tokenizer` does, by the first rows of each source.

    A default that fits is also recorded as an automatic choice, so that no shard chooses again by its own rows.
    """
    from secid.findings.lexical_gate import READ_CHARACTERS, SAMPLE_TEXTS, WORD_TOKENIZERS, Misread
    from secid.pool import SPLITTERS
    from secid.scoring.encoders import with_better_tokenizer

    split, fits = SPLITTERS[WORD_TOKENIZERS[resolved.values.tokenizer]], []
    for reader in readers:
        records = islice((item for item in reader if isinstance(item, Record)), SAMPLE_TEXTS)
        texts = (text[:READ_CHARACTERS] for record in records for text in (record.query, *record.positives[:1]))
        fits.append((Misread.of(texts, split), reader.source.name))
    with_tokenizer = with_better_tokenizer(resolved, fits, progress)
    return with_tokenizer.automatic(tokenizer=with_tokenizer.values.tokenizer)


@dataclass(frozen=True)
class Job:
    """The folder, sources and settings that the shards of a run share. words : sources as the user typed them."""

    state: StateDir
    words: Sequence[str]
    resolved: Resolved

    @staticmethod
    def of(sources: Sequence[str], state_dir: str | PathLike[str], resolved: Resolved, progress: Progress) -> Job:
        """Return the job, with a tokenizer that is the same for all shards.

        Raises UsageError; see `refuse_in_shards`.
        """
        refuse_in_shards(resolved.values, sources)
        if resolved.origin["tokenizer"] == "default":
            files, _ = sources_and_words(list(sources), Silent())
            with open_sources(files, resolved.values) as readers:
                resolved = _with_one_tokenizer(readers, resolved, progress)
        return Job(StateDir(fspath(state_dir)), tuple(map(str, sources)), resolved)

    @property
    def shard(self) -> Shard:
        return Shard.parse(self.resolved.values.shard or "")

    @property
    def run(self) -> dict[str, Any]:
        """Return the version, the sources and the changed settings of the run, for a header."""
        values = {name: getattr(self.resolved.values, name) for name in FIELDS if name not in SHARD_LOCAL_SETTINGS}
        changed = {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
        return {"secid": __version__, "sources": list(self.words), "settings": changed}

    def done(self, kind: str, parts: Iterable[Shard]) -> set[Shard]:
        """Return the parts whose states exist. Raises InputError for a state of another run."""
        existing = set(self.state.names())
        finished = {name: part for part in parts if (name := name_of(kind, part)) in existing}
        check_same(self.state, {name: self.state.header(name) for name in finished}, self.run)
        return set(finished.values())

    def count(self, readers: Sequence[Reader], shard: Shard, folder: Path, progress: Progress) -> Counts:
        from secid.tools.shards.counts import count_part, summed_counts

        counts = count_part(readers, self.resolved.values, shard, folder, progress)
        return self._written(
            summed_counts(lambda: [counts]) if shard == WHOLE_RUN else counts, shard, files_of(readers)
        )

    def _written(self, counts: Counts, shard: Shard, files: Mapping[str, Any]) -> Counts:
        from secid.tools.shards.state import state_of_counts

        header, arrays = state_of_counts(counts)
        self.state.write(name_of(COUNTS, shard), {"run": self.run, "files": files, **header}, arrays)
        return counts

    def counts(self) -> Counts | None:
        """Return the sum of the counts of all parts; None if no part was counted. The sum is written for all shards.

        Raises UsageError if only some parts were counted.
        """
        from secid.tools.shards.counts import summed_counts
        from secid.tools.shards.state import counts_of_state

        if self.done(COUNTS, [WHOLE_RUN]):
            return counts_of_state(self.state, name_of(COUNTS, WHOLE_RUN))
        existing = set(self.state.names())
        parts = all_parts(COUNTS, self.shard.of)
        missing = [str(part) for name, part in parts.items() if name not in existing]
        if len(missing) == len(parts):
            return None
        if missing:
            raise UsageError(
                f"the counts of shard{'s' if len(missing) > 1 else ''} {', '.join(missing)} are missing",
                where=self.state.url,
                remedy=f"run secid score --prepare {flag_of('shard', missing[0])} too, or name another --state-dir",
            )
        headers = {name: self.state.header(name) for name in parts}
        check_same(self.state, headers, self.run)
        counts = summed_counts(lambda: (counts_of_state(self.state, name) for name in headers))
        return self._written(counts, WHOLE_RUN, next(iter(headers.values()))["files"])


def files_of(readers: Sequence[Reader]) -> dict[str, Any]:
    """Return the fields of `InputFile` for each file that was read, by path."""
    return {file.path: asdict(file) for reader in readers for file in reader.content()}


def measure_shard(
    job: Job, counts: Counts, readers: Sequence[Reader], encoder: Encoder, work: Path, progress: Progress, clock: Clock,
    run_folder: str | None,
) -> Scored | None:  # fmt: skip
    """Score the shard and write its state. Return None for a shard without a triplet; its state then has no source.

    work : an empty folder for temporary files.
    """
    from secid.scoring.run import assemble_run, read_sources
    from secid.scoring.stages import Background, measure
    from secid.tools.shards.state import ShardNumbers, numbers_without_triplets, state_of, write_vectors

    name = name_of(SHARD, job.shard)
    resolved = job.resolved.changed(**{**{key: getattr(DEFAULTS, key) for key in MERGE_SETTINGS}, "controls": "none"})

    def header(numbers: ShardNumbers, files: Mapping[str, Any]) -> Header:
        run = {**job.run, "dtype": encoder.info.dtype, "encoder": encoder.info.fingerprint}
        origin = {"run": run, "tokenizer_from": job.resolved.origin["tokenizer"]}
        return {**origin, "numbers": asdict(numbers), "files": files, "timing": clock.stages}

    try:
        background = Background(frequencies=counts.table("documents"), run_texts=counts.texts())
        subset = QuerySubset.of(resolved.values)
        with read_sources(readers, resolved, subset, background, work, clock, progress) as read:
            context = measure(read, encoder, None, background, work, clock, progress)
            scored = assemble_run(context, read, encoder, background, clock, run_folder)
            files = files_of(readers)
            counted = name_of(COUNTS, WHOLE_RUN)
            check_files(name, files, counted, job.state.header(counted)["files"], job.state.url)
            numbers, arrays = state_of(scored, read.plan, smallest_distance(encoder), resolved.values)
            with clock.stage("write"):
                write_vectors(scored.vectors, read.plan, work / ROWS)
                progress.start("write", None, "files")
                job.state.write(name, header(numbers, files), arrays, {ROWS: work / ROWS})
            return scored
    except EmptyShardError as error:
        job.state.write(
            name,
            header(ShardNumbers(error.tallies, numbers_without_triplets(error.without_triplets)), files_of(readers)),
            {},
        )
        return None


def shard_states(state: StateDir) -> dict[str, Header]:
    """Return the headers of all shards' states by name, in order.

    Raises UsageError if there are none or one is missing, InputError if they belong to several runs.
    """
    names = [name for name in state.names() if re.fullmatch(rf"{SHARD}-\d{{5}}-of-\d{{5}}", name)]
    if not names:
        raise UsageError(
            "has no finished shard",
            where=state.url,
            remedy=f"run secid score … {flag_of('shard', '0/8')} --state-dir {state.url}",
        )
    headers = {name: state.header(name) for name in names}
    of = {int(name.rsplit("-", 1)[1]) for name in names}
    if len(of) > 1:
        raise InputError(
            f"has shards of different runs, which were split into {' and '.join(map(str, sorted(of)))} parts",
            where=state.url,
            remedy="remove the states of all runs but one",
        )
    parts = all_parts(SHARD, *of)
    missing = [str(part) for name, part in parts.items() if name not in headers]
    if missing:
        raise UsageError(
            f"shards {', '.join(missing)} of {len(parts)} are missing"
            if len(missing) > 1
            else f"shard {missing[0]} is missing",
            where=state.url,
            remedy=f"run secid score … {flag_of('shard', missing[0])} --state-dir {state.url}",
        )
    first, header = next(iter(headers.items()))
    check_same(state, headers, header["run"], f"in {first}")
    if state.has(counts := name_of(COUNTS, WHOLE_RUN)):
        check_files(counts, state.header(counts)["files"], first, header["files"], state.url)
    return headers


def check_files(name: str, listed: Mapping[str, Any], first: str, files: Mapping[str, Any], url: str) -> None:
    """Raise InputError unless a state has read the same files as the first one."""
    for path in sorted({*listed, *files}):
        if listed.get(path, {}).get("sha256") == files.get(path, {}).get("sha256"):
            continue
        remedy = f"remove the states in {url} and run all shards again"
        raise InputError(
            f"has changed between {first} and {name}"
            if path in listed and path in files
            else f"was read by {first if path in files else name} but not by {name if path in files else first}",
            where=path,
            remedy=f"{remedy}, and name the commit: {HUB_PREFIX}datasets/OWNER/NAME@COMMIT"
            if path.startswith(HUB_PREFIX)
            else f"put the file back, or {remedy}",
        )


def check_encoder(state: StateDir, name: str, header: Mapping[str, Any], info: EncoderInfo) -> None:
    """Raise InputError unless a shard was scored with this encoder."""
    if header["run"]["encoder"] == info.fingerprint:
        return
    dtype = header["run"]["dtype"]
    raise InputError(
        f"was scored with dtype {dtype}, but this merge has {info.dtype}"
        if dtype != info.dtype
        else "was scored with another encoder",
        where=f"{state.url}/{name}",
        remedy=f"use {flag_of('dtype', dtype)}"
        if dtype != info.dtype
        else "merge with the same weights and recipe as the shards",
    )


def subset_of_sample(wholes: Mapping[str, MergedSource], sample: int, seed: int) -> QuerySubset:
    """Return the queries that are in the sample of any source; all queries if no source has more than `sample`."""
    if all(whole.score.n_queries <= sample for whole in wholes.values()):
        return QuerySubset()
    last = max(int(whole.priorities[:sample][-1]) for whole in wholes.values())

    def has(queries: Sequence[str]) -> list[bool]:
        keys = np.frombuffer(b"".join(text_key("query", query) for query in queries), np.uint8).reshape(-1, 16)
        flags: list[bool] = (sample_order(keys, seed) <= np.uint64(last)).tolist()
        return flags

    return QuerySubset(has)
