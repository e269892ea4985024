"""Read the description of an encoder in its repository: JSON files, modules and kind. No weights are read.

Only dense text encoders pass. Models that would give plausible but wrong vectors are refused by name.
Source: FORMATS 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secid.errors import EncoderError
from secid.settings import Settings, flag_of

JsonObject = Mapping[str, Any]

SAVE_AGAIN = "save or download the encoder again"
PROMPT_FILE = "config_sentence_transformers.json"
ROUTERS = frozenset({"Router", "Asym"})
INPUT_MODULES = ROUTERS | {"Transformer"}
LATER_MODULES = frozenset({"Pooling", "Dense", "Normalize", "LayerNorm", "WeightedLayerPooling", "Dropout"})
"""Modules of sentence-transformers that work on batches of token ids. Others need words, images or sparse vectors."""

UNSUPPORTED_MODELS = {
    "CrossEncoder": "a cross-encoder, which scores pairs of texts",
    "SparseEncoder": "a sparse encoder (SPLADE)",
    "MultiVectorEncoder": "a multi-vector encoder (ColBERT), with a vector for each token",
}
CUSTOM_ATTENTION = re.compile(r"gritlm|llm2vec|modeling_\w+_encoder\.|bidirectional", re.IGNORECASE)
"""Pattern of repositories whose code makes a causal model bidirectional, although config.json does not say so."""

FILE_REMEDY = "correct the file; training reads it too"
VECTORS_REMEDY = "encode the texts yourself and use --encoder vectors.npz"


@dataclass(frozen=True)
class Repository:
    """The files of one encoder.

    folder        : the located folder, with modules.json if it exists.   name : name of the encoder.
    parts         : folder of each module, including modules inside a router; empty without modules.json.
    inner         : folder with the transformer's own files.
    config        : config.json of the transformer.   sentence : sentence_bert_config.json, or {}.
    prompt_config : config_sentence_transformers.json, or {}.
    """

    folder: Path
    name: str
    modules: tuple[JsonObject, ...]
    parts: tuple[Path, ...]
    inner: Path
    config: JsonObject
    sentence: JsonObject
    prompt_config: JsonObject

    @property
    def prompts(self) -> dict[str, str]:
        """Name -> prompt. An empty prompt is "", even if the file has null instead."""
        return {name: text or "" for name, text in (self.prompt_config.get("prompts") or {}).items()}

    @property
    def own_code(self) -> JsonObject:
        """The auto_map of config.json: classes in the repository's own code that replace transformers' classes."""
        return dict(self.config.get("auto_map") or {})


def read_repository(folder: Path, name: str, settings: Settings) -> Repository:
    """Read the repository of the encoder `name` in `folder`. Raises EncoderError if it is not a dense encoder."""
    if not folder.is_dir():
        raise EncoderError("no such folder", where=str(folder), remedy="give a folder that contains config.json")
    prompt_config = read_json(folder / PROMPT_FILE) or {}
    prompts = prompt_config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        message = f"prompts must map names to strings, got {str(prompts)[:80]}"
        raise EncoderError(message, where=str(folder / PROMPT_FILE), remedy=FILE_REMEDY)
    kind = prompt_config.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise refusal(UNSUPPORTED_MODELS.get(kind, f"model_type {kind!r}"), folder / PROMPT_FILE)
    modules, parts, inner = _modules(folder, settings)
    if adapters := sorted(folder.rglob("adapter_config.json")):
        raise EncoderError(
            "the adapter (LoRA) is not merged into its model",
            where=str(adapters[0]),
            remedy="merge the adapter that training starts from (peft: merge_and_unload), and save the merged model",
        )
    config = read_json(inner / "config.json")
    if config is None:
        raise EncoderError("config.json is missing", where=str(inner), remedy="give a folder saved by transformers")
    repository = Repository(folder, name, modules, parts, inner, config, _sentence_config(inner), prompt_config)
    _check_architecture(repository, settings)
    return repository


def _check_architecture(repository: Repository, settings: Settings) -> None:
    architectures = [str(item) for item in repository.config.get("architectures") or ()]
    where = repository.inner / "config.json"
    if "HF_ColBERT" in architectures or (repository.folder / "artifact.metadata").is_file():
        raise refusal(UNSUPPORTED_MODELS["MultiVectorEncoder"], where)
    if not repository.modules and any(item.endswith("ForSequenceClassification") for item in architectures):
        raise refusal(UNSUPPORTED_MODELS["CrossEncoder"], where)
    code = json.dumps(repository.own_code)
    if not settings.trust_remote_code and repository.own_code and CUSTOM_ATTENTION.search(f"{repository.name} {code}"):
        raise EncoderError(
            "the repository's own code changes this model's attention, so without that code all vectors are wrong",
            where=str(where),
            remedy=f"read that code, then use {flag_of('trust_remote_code')}",
        )


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None without a file. Raises EncoderError if the file holds anything else."""
    document = parse_json(path)
    if document is not None and not isinstance(document, dict):
        raise EncoderError("expected a JSON object", where=str(path), remedy=SAVE_AGAIN)
    return document


def parse_json(path: Path) -> Any:
    """Return the content of a JSON file; None without a file. Raises EncoderError if it is not valid JSON."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # JSON or UTF-8
        raise EncoderError(f"not valid JSON: {error}", where=str(path), remedy=SAVE_AGAIN) from error


def _modules(folder: Path, settings: Settings) -> tuple[tuple[JsonObject, ...], tuple[Path, ...], Path]:
    """Return the entries of modules.json in order, the folder of every module, and the first transformer's folder."""
    path = folder / "modules.json"
    try:
        modules = sorted(parse_json(path) or [], key=lambda module: int(module["idx"]))
        classes = list(_classes(folder, modules))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        message = "expected a list of modules, each with idx, type and path"
        raise EncoderError(message, where=str(path), remedy=SAVE_AGAIN) from error
    inner = folder
    for position, (name, place) in enumerate(classes):
        _check_class(name, position == 0, path, settings)
        if base_name(name) == "Transformer" and (inner == folder or position == 0):
            inner = place
        elif not settings.allow_pickle and _only_pickle(place):
            remedy = f"use {flag_of('allow_pickle', True)} to load pytorch_model.bin"
            raise EncoderError("model.safetensors is missing", where=str(place), remedy=remedy)
    return tuple(modules), tuple(place for _, place in classes), inner


def _only_pickle(folder: Path) -> bool:
    return (folder / "pytorch_model.bin").is_file() and not (folder / "model.safetensors").is_file()


def _classes(folder: Path, modules: list[Any]) -> Iterator[tuple[str, Path]]:
    """Yield (class path, folder) of every module. A router is followed by the modules of its routes."""
    for module in modules:
        name, place = str(module["type"]), _inside(folder, module["path"])
        yield name, place
        if base_name(name) in ROUTERS:
            routes = read_json(place / "router_config.json") or read_json(place / "config.json") or {}
            for part, kind in routes["types"].items():
                yield str(kind), _inside(place, part)


def _inside(folder: Path, path: str) -> Path:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError(path)
    return folder / path


def _check_class(name: str, is_first: bool, path: Path, settings: Settings) -> None:
    """Raise EncoderError for a module class that is not known to work on token ids. path: path of modules.json."""
    if name.startswith("pylate.") or ".multi_vector_encoder." in name:
        raise refusal(UNSUPPORTED_MODELS["MultiVectorEncoder"], path)
    if ".sparse_encoder." in name or base_name(name) in ("SpladePooling", "MLMTransformer"):
        raise refusal(UNSUPPORTED_MODELS["SparseEncoder"], path)
    is_custom = not name.startswith("sentence_transformers.")
    if is_custom and settings.trust_remote_code:
        return
    classes = INPUT_MODULES if is_first else LATER_MODULES | {"Transformer"}
    if is_custom or base_name(name) not in classes or ".cross_encoder." in name:
        remedy = f"secid supports {', '.join(sorted(classes))} of sentence_transformers; or {VECTORS_REMEDY}"
        if is_custom:
            remedy = f"read the repository's own code, then use {flag_of('trust_remote_code')}; or {VECTORS_REMEDY}"
        raise EncoderError(f"the module {name!r} is not supported", where=str(path), remedy=remedy)


def base_name(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def refusal(kind: str, where: Path) -> EncoderError:
    return EncoderError(
        f"this is {kind}; secid scores dense encoders, which give each text one vector",
        where=str(where),
        remedy="score with the dense encoder that will be fine-tuned",
    )


def _sentence_config(inner: Path) -> JsonObject:
    """Return sentence_bert_config.json, or the file under its older name (one per architecture); {} without either.

    Raises EncoderError if the model needs more than plain text.
    """
    for path in sorted(inner.glob("sentence_*_config.json")):
        config = read_json(path) or {}
        length, texts = config.get("max_seq_length"), config.get("modality_config", {"text": {}})
        if length is not None and (not isinstance(length, int) or length < 1):
            raise EncoderError(
                f"max_seq_length is {length!r}, expected a number of tokens", where=str(path), remedy=FILE_REMEDY
            )
        plain = config.get("transformer_task", "feature-extraction") == "feature-extraction" and "text" in texts
        if not plain or config.get("query_expansion"):
            raise EncoderError(
                "needs a chat template, query expansion or a task other than plain text encoding",
                where=str(path),
                remedy=VECTORS_REMEDY,
            )
        return config
    return {}
