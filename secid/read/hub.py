"""Fetch data sets from the model hub: list the files that an address names, and keep copies on disk.

`hf://datasets/OWNER/NAME[@REVISION][/PATH]` names a file, a folder, or the data files that a pattern matches (`*` and
`?` in a folder, `**` across folders). `OWNER/NAME[@REVISION]:CONFIG:SPLIT` names the files of one split. The revision
is first resolved to a commit. A file's path is its address with that commit, so that any machine can read it again; its
bytes are in the hub's cache. HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE work as in huggingface_hub. This module
is imported only if a source is an address.
"""

from __future__ import annotations

import glob
import logging
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import islice, takewhile
from typing import Any

from huggingface_hub import (
    HfApi,
    constants,
    get_cached_repo_tree,
    get_token,
    hf_hub_download,
    metadata_load,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.hf_api import RepoFile

from secid.errors import InputError, UsageError, plain_message, suggest_name
from secid.files import NO_ROOM
from secid.progress import download_bars
from secid.read.sources import SPLIT, is_data
from secid.settings import flag_of

ADDRESS = re.compile(
    r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(@(?P<revision>refs/(convert/[^/]+|pr/\d+)|[^/]+))?(/(?P<path>.*))?"
)
ADDRESS_FORM = "hf://datasets/OWNER/NAME, with @REVISION and /PATH where needed"
CONVERTED_BRANCH = "refs/convert/parquet"
"""Branch with the hub's Parquet copy of a data set."""
CONVERTED_FILE = re.compile(r"(?P<config>[^/]+)/(?P<split>[^/]+)/\d{4}\.parquet")
BRANCHES = {"~parquet": CONVERTED_BRANCH}
README = "README.md"
MAX_PATTERNS = 100_000
"""Maximum number of patterns in a README. Large data sets have 6,000; YAML references can multiply without limit."""
MAX_LISTED = 8
NAME_FILES_REMEDY = "name files: hf://datasets/{}/PATH"
PASSAGE_CONFIGS = ("corpus", "documents")
"""Names of the config that holds the passages, or first words of its file names."""
TASKS = {
    "ArguAna": "arguana", "ClimateFEVER": "climate-fever", "DBPedia": "dbpedia", "FEVER": "fever", "FiQA2018": "fiqa",
    "HotpotQA": "hotpotqa", "MSMARCO": "msmarco", "NFCorpus": "nfcorpus", "NQ": "nq", "QuoraRetrieval": "quora",
    "SCIDOCS": "scidocs", "SciFact": "scifact", "TRECCOVID": "trec-covid", "Touche2020": "touche2020",
    "Touche2020Retrieval.v3": "webis-touche2020-v3", "CQADupstackAndroidRetrieval": "CQADupstackAndroidRetrieval",
    **{f"CQADupstack{name}Retrieval": f"cqadupstack-{name.lower()}" for name in (
        "English", "Gaming", "Gis", "Mathematica", "Physics", "Programmers", "Stats", "Tex", "Unix", "Webmasters",
        "Wordpress")},
    **{f"{name}HardNegatives": f"{name}_test_top_250_only_w_correct-v2" for name in (
        "ClimateFEVER", "FEVER", "HotpotQA")},
    **{f"Nano{name}Retrieval": f"Nano{name}Retrieval" for name in (
        "ArguAna", "ClimateFever", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO", "NFCorpus", "NQ", "Quora",
        "SCIDOCS", "SciFact", "Touche2020")},
}  # fmt: skip
"""Retrieval tasks of BEIR, MTEB(eng, v2) and NanoBEIR -> the data sets under mteb/ that mteb 2.26 reads for them."""


@dataclass(frozen=True)
class HubFiles:
    """Files that an address names.

    files : addresses with the commit, sorted.
    name  : name of a source with all these files; None if the address names files, whose names are used instead.
    """

    files: tuple[str, ...]
    name: str | None
    note: str = ""


@dataclass(frozen=True)
class _Repository:
    """A data set at one commit. files: sorted paths of all its files."""

    name: str
    commit: str
    files: tuple[str, ...]

    def fetch(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Fetch these files into the cache, and return their addresses."""
        address = f"hf://datasets/{self.name}@{self.commit}"
        missing = [path for path in paths if not self._is_cached(path)]
        if missing:
            options: dict[str, Any] = {"repo_type": "dataset", "revision": self.commit, "tqdm_class": download_bars()}
            with _errors(address):
                snapshot_download(self.name, allow_patterns=[README], **options)  # keeps the list of files
                for path in missing:  # one by one, because Ctrl-C would wait for the threads of a snapshot
                    hf_hub_download(self.name, path, **options)
        return tuple(f"{address}/{path}" for path in paths)

    def _is_cached(self, path: str) -> bool:
        cached = try_to_load_from_cache(self.name, path, repo_type="dataset", revision=self.commit)
        return isinstance(cached, str)

    def data(self, folder: str = "") -> list[str]:
        """Return the data files under a folder, at any depth."""
        return [path for path in self.files if path.startswith(folder) and is_data(path.rpartition("/")[2])]

    def listed(self) -> str:
        return f"it holds {_listing(self.files)}"

    def splits(self) -> dict[tuple[str, str], list[str]]:
        """Return (config, split) -> data files, from the README or the names in a Parquet conversion; else {}."""
        if README in self.files and (listed := self._listed_splits()):
            return listed
        splits: dict[tuple[str, str], list[str]] = {}
        for file in filter(None, map(CONVERTED_FILE.fullmatch, self.files)):
            splits.setdefault((file["config"], file["split"]), []).append(file[0])
        return splits

    def _listed_splits(self) -> dict[tuple[str, str], list[str]]:
        (readme,) = self.fetch([README])
        splits, n_patterns = {}, 0
        try:
            for config in (metadata_load(local(readme)) or {}).get("configs") or ():
                listed = config.get("data_files") or ()
                for entry in [{"split": "train", "path": listed}] if _patterns(listed) else listed:
                    patterns = _patterns(entry["path"])
                    n_patterns += max(1, len(patterns))
                    if n_patterns > MAX_PATTERNS:
                        raise ValueError(f"more than {MAX_PATTERNS} patterns")
                    files = sorted({file for pattern in patterns for file in self._matching(pattern)})
                    splits[_name(config["config_name"]), _name(entry["split"])] = files
        except InputError:
            raise
        except Exception as error:  # the header may hold anything, and the YAML parser has its own errors
            remedy, what = (
                NAME_FILES_REMEDY.format(self.name),
                "the README's header does not list configs and their files",
            )
            raise InputError(what, where=readme, remedy=remedy) from error
        return {key: files for key, files in splits.items() if files}

    def _matching(self, pattern: str) -> Iterator[str]:
        """Return the files that a pattern matches.

        A pattern is compared only with files that share its literal prefix, because a README may have a pattern for
        each of a thousand languages.
        """
        start = re.split(r"[*?[]", pattern.removeprefix("./"), maxsplit=1)[0]
        following = islice(self.files, bisect_left(self.files, start), None)
        return (file for file in takewhile(lambda file: file.startswith(start), following) if _matches(file, pattern))


class _NoRevisionError(InputError):
    """The data set has no such revision."""


@lru_cache(maxsize=64)
def fetch_files(word: str) -> HubFiles:
    """Fetch the files that an address names into the hub's cache, and return them.

    If a data set has no data file, its Parquet conversion is read, and the note says so.
    Raises InputError if the data set cannot be read or no file matches. Raises UsageError for an unknown config or
    split, or if the address names a data set with several configs.
    """
    if split := SPLIT.fullmatch(word):
        return _split(word, **split.groupdict())
    name, revision, path = _parts(word)
    repository = _repository(name, revision)
    if path in repository.files:
        return HubFiles(repository.fetch([path]), None)
    if glob.has_magic(path):
        matching = [file for file in repository.data() if _matches(file, path)]
        if not matching:
            raise InputError("matches no data file", where=word, remedy=repository.listed())
        return HubFiles(repository.fetch(matching), None)
    note = ""
    if not path:
        if not repository.data() and revision is None:
            repository, note = _conversion(repository, word, "the data set itself has no data file")
        _refuse_several_configs(repository, revision, word)
    files = repository.data(path and f"{path}/")
    if not files:
        problem = "no such file or folder in the data set" if path else "holds no data file that secid reads"
        raise InputError(problem, where=word, remedy=repository.listed())
    return HubFiles(repository.fetch(files), (path or name).rpartition("/")[2], note)


@lru_cache(maxsize=64)
def collection(word: str) -> tuple[dict[str, tuple[str, ...]], str]:
    """Fetch the files of a collection, and return them by role (corpus, queries, qrels) with a note as in `HubFiles`.

    A role's files are those of the config with its name (for qrels, `default` or `qrels`). If there are no such
    configs, the files under the address are used if they are named as in a BEIR folder, else the Parquet conversion.
    A role may have no files. Raises InputError if the data set cannot be read, or has neither corpus nor queries.
    """
    name, revision, path = _parts(word)
    repository, folder, note = _repository(name, revision), path and f"{path}/", ""
    roles = {} if path else _roles(_by_config(repository))
    if not roles:
        by_word: dict[str, list[str]] = {}
        for file in repository.data(folder):
            by_word.setdefault(re.split(r"[/.]", file.removeprefix(folder))[0], []).append(file)
        roles = _roles(by_word)
    if not roles and not path and revision is None:
        repository, note = _conversion(repository, word, "the data set itself has no corpus and no queries")
        roles = _roles(_by_config(repository))
    if not roles:
        single = f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')} take addresses of single files"
        raise InputError("holds no corpus and no queries", where=word, remedy=f"{repository.listed()}; {single}")
    repository.fetch([file for files in roles.values() for file in files])
    return {role: repository.fetch(files) for role, files in roles.items()}, note


def pinned(word: str, files: Sequence[str]) -> str:
    """Return an address with the commit of its fetched files."""
    match = SPLIT.fullmatch(word) or ADDRESS.fullmatch(word)
    read = ADDRESS.fullmatch(files[0])
    if match is None or read is None:
        return word
    return f"{word[: match.end('name')]}@{read['revision']}{word[max(match.end('name'), match.end('revision')) :]}"


def task(name: str) -> str:
    """Return the address of an mteb task. Raises UsageError for an unknown one."""
    if name not in TASKS:
        remedy = f"secid knows {', '.join(TASKS)}; name another by its data set: hf://datasets/mteb/NAME"
        raise UsageError("unknown mteb task", where=f"mteb:{name}", remedy=suggest_name(name, TASKS, remedy))
    return f"hf://datasets/mteb/{TASKS[name]}"


def local(address: str) -> str:
    """Return the path on disk of an address from `fetch_files` or `collection`. Fetch it again if the cache lost it."""
    name, commit, path = _parts(address)
    with _errors(address):
        return hf_hub_download(name, path, repo_type="dataset", revision=commit)


def _parts(word: str) -> tuple[str, str | None, str]:
    match = ADDRESS.fullmatch(word)
    if match is None:
        raise InputError("not the address of a data set", where=word, remedy=f"write {ADDRESS_FORM}")
    return match["name"], match["revision"], (match["path"] or "").strip("/")


@lru_cache(maxsize=64)
def _repository(name: str, revision: str | None) -> _Repository:
    where = f"hf://datasets/{name}" + (f"@{revision}" if revision else "")
    with _errors(where):
        branch = BRANCHES.get(revision, revision) if revision else None
        resolved = HfApi().resolve_revision(
            name, repo_type="dataset", revision=branch, local_files_only=constants.HF_HUB_OFFLINE
        )
        commit = resolved.resolved
        try:
            tree = get_cached_repo_tree(name, repo_type="dataset", revision=commit)
        except CachedRepoTreeNotFoundError:
            entries = HfApi().list_repo_tree(name, recursive=True, revision=commit, repo_type="dataset")
            tree = [entry for entry in entries if isinstance(entry, RepoFile)]
    paths = sorted(entry.path for entry in tree)
    return _Repository(name, commit, tuple(path for path in paths if not {"", ".."} & {*path.split("/")}))


def _conversion(repository: _Repository, word: str, lacks: str) -> tuple[_Repository, str]:
    """Return the Parquet conversion and a note, or the data set itself and "". lacks: part that the data set lacks."""
    try:
        converted = _repository(repository.name, CONVERTED_BRANCH)
    except _NoRevisionError:
        return repository, ""
    return converted, f"{word}: read from its Parquet conversion on the hub (@~parquet), because {lacks}"


def _split(word: str, name: str, revision: str | None, config: str, split: str) -> HubFiles:
    repository, note = _repository(name, revision), ""
    if not repository.splits() and revision is None:
        repository, note = _conversion(repository, word, "its README lists no configs")
    splits = repository.splits()
    if (config, split) not in splits:
        known = [f"{config}:{split}" for config, split in splits]
        remedy = f"it has {_listing(known)}" if known else f"no config is known; {NAME_FILES_REMEDY.format(name)}"
        raise UsageError(f"no config {config!r} with a split {split!r}", where=word, remedy=remedy)
    dataset = name.rpartition("/")[2]
    return HubFiles(repository.fetch(splits[config, split]), dataset if config == "default" else config, note)


def _listing(words: Sequence[str]) -> str:
    return ", ".join([*words[:MAX_LISTED], *["…"][: len(words) > MAX_LISTED]]) or "nothing"


def _name(value: Any) -> str:
    """Return a name as text, because YAML may read it as a number. Raises ValueError for a list or a table."""
    if isinstance(value, list | dict):
        raise ValueError("not a name")
    return str(value)


def _patterns(value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else list(value)
    return values if all(isinstance(item, str) for item in values) else []


def _matches(path: str, pattern: str) -> bool:
    """Match a path with a pattern as `fnmatch` does; `**` is any number of folders. It never takes exponential time."""
    names, parts = path.split("/"), pattern.removeprefix("./").split("/")

    @cache
    def rest(at: int, place: int) -> bool:
        if place == len(parts):
            return at == len(names)
        if parts[place] == "**":
            return rest(at, place + 1) or (at < len(names) and rest(at + 1, place))
        return at < len(names) and fnmatchcase(names[at], parts[place]) and rest(at + 1, place + 1)

    return rest(0, 0)


def _by_config(repository: _Repository) -> dict[str, list[str]]:
    configs: dict[str, list[str]] = {}
    for (config, _), files in repository.splits().items():
        configs.setdefault(config, []).extend(file for file in files if file not in configs.get(config, ()))
    return configs


def _roles(named: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return role -> files; {} if there is neither a corpus nor queries."""
    corpus = next((named[name] for name in PASSAGE_CONFIGS if name in named), [])
    queries = named.get("queries") or named.get("query") or []
    qrels = named.get("default") or [file for name in named if name.startswith("qrels") for file in named[name]]
    return {"corpus": corpus, "queries": queries, "qrels": qrels} if corpus or queries else {}


def _refuse_several_configs(repository: _Repository, revision: str | None, word: str) -> None:
    """Refuse a data set with several configs, because they hold different data. Raises UsageError."""
    configs = _by_config(repository)
    if len(configs) > 1:
        at = f"@{revision}" if revision else ""
        words = [f"{repository.name}{at}:{config}:{split}" for config, split in repository.splits()]
        ids = f"; --collection {word} resolves the ids of one" if _roles(configs) else ""
        raise UsageError(
            "has several configs; secid reads one at a time", where=word, remedy=f"name one: {_listing(words)}{ids}"
        )


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Raise errors of the hub's client as InputError, with a plain message.

    No message shows a token or a URL, which may be signed. The client's warnings do, so they are suppressed.
    """
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    except HFValidationError as error:
        raise InputError("not the address of a data set", where=where, remedy=f"write {ADDRESS_FORM}") from error
    except (OSError, RevisionResolutionError) as error:
        if getattr(error, "errno", None) in NO_ROOM:
            raise
        raise _input_error(error, where) from error
    except Exception as error:  # errors of the HTTP client, by version of huggingface_hub
        if type(error).__module__.split(".")[0] not in {"httpx", "httpx2", "httpcore", "httpcore2"}:
            raise
        raise _input_error(error, where) from error
    finally:
        log.setLevel(level)


def _input_error(error: Exception, where: str) -> InputError:
    causes = (error, error.__cause__, error.__context__)
    answer = next((cause for cause in causes if isinstance(cause, HfHubHTTPError)), None)
    token = "HF_TOKEN to a token with access" + ("; the current one may lack it" if get_token() else "")
    if isinstance(answer, GatedRepoError):
        remedy = f"accept them on its page, then set {token}"
        return InputError("the data set has terms that you must accept first", where=where, remedy=remedy)
    if isinstance(answer, RevisionNotFoundError):
        return _NoRevisionError("the data set has no such revision", where=where, remedy="check its branches and tags")
    if isinstance(answer, RepositoryNotFoundError):
        remedy = f"check OWNER/NAME; for a private data set, set {token}"
        return InputError("the hub has no such public data set", where=where, remedy=remedy)
    status = None if answer is None else answer.response.status_code
    if status in (401, 403):
        return InputError(f"the hub refuses access (HTTP {status})", where=where, remedy=f"set {token}")
    if status == 429:
        remedy = "wait a few minutes" + ("" if get_token() else ", or set HF_TOKEN: the hub allows more with a token")
        return InputError("the hub refuses further requests for now (HTTP 429)", where=where, remedy=remedy)
    if status is not None:
        return InputError(f"the hub answers with an error (HTTP {status})", where=where, remedy="try again later")
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else plain_message(cause)
    return InputError(
        f"not in the hub cache, and cannot be fetched ({why})",
        where=where,
        remedy="connect to the network and try again (finished downloads are kept), or set HF_HOME to a cache with it",
    )
