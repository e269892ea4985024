"""Transformers from the disk: exactly the encoder that its files describe, or an error that says what is missing.

Source: FORMATS 2, METHOD 11.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch

from secid.encode.cache import Cache
from secid.encode.cache_folder import hash_memory
from secid.encode.device import choose_devices, choose_dtype, default_budget
from secid.encode.hashes import files_sha256
from secid.encode.locate import Located, locate, weight_files
from secid.encode.modules import AGAIN, read_json
from secid.encode.parts import Parts
from secid.encode.pooling import head_files
from secid.encode.recipe import Recipe, resolve_recipe
from secid.encode.transformer import TransformerEncoder
from secid.errors import EncoderError
from secid.results import EncoderInfo
from secid.settings import Settings, flag_of


def load_transformer(settings: Settings) -> TransformerEncoder:
    """The encoder that `settings.encoder` names, ready on its devices.

    An encoder with rows in the cache has been loaded on this machine before: its model is loaded only if some text
    is not cached. Any other model is loaded now, so that errors come before any work.
    Raises EncoderError, with a remedy, if anything is missing or not understood.
    """
    located = locate(settings)
    recipe = resolve_recipe(located.folder, located.name, settings)
    weights = weight_files(recipe.folder, settings.allow_pickle)
    if not weights:
        raise _no_weights(recipe.folder)
    devices = choose_devices(settings.device)
    dtype = choose_dtype(settings.dtype, devices[0])
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    weights_sha256 = files_sha256(weights, hash_memory(settings))
    fingerprint = _fingerprint(recipe, weights_sha256, settings, DTYPE_NAMES[dtype])
    parts = Parts(recipe, settings, devices, dtype)
    dimension = Cache.open(settings, fingerprint).dimension if settings.cache and fingerprint else None
    if dimension is None:
        parts.load()
        dimension = parts.dimension
    info = EncoderInfo(
        name=located.name,
        revision=located.revision,
        weights_sha256=weights_sha256,
        pooling="+".join(recipe.pooling),
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        max_length=recipe.max_length,
        normalize=recipe.normalize,
        dtype=DTYPE_NAMES[dtype],
        device=",".join(map(str, devices)),
        dim=dimension,
        fingerprint=fingerprint,
        rules=dict(recipe.rules),
        notes=_notes(located, recipe, settings, weights),
    )
    return TransformerEncoder(parts, info, settings.batch_tokens or default_budget(devices[0], dtype))


DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _notes(located: Located, recipe: Recipe, settings: Settings, weights: list[Path]) -> tuple[str, ...]:
    notes = [*recipe.notes]
    if located.note:
        notes.append(located.note)
    if settings.trust_remote_code:
        notes.append("the repository's own Python code was allowed to run")
        if _code_elsewhere(recipe.folder):
            notes.append("some of that code is from another repository, which no hash covers: rows are not cached")
    if weights[0].suffix == ".bin":
        notes.append("weights loaded from pickle")
    return tuple(notes)


def _no_weights(folder: Path) -> EncoderError:
    has_pickle = (folder / "pytorch_model.bin").is_file() or (folder / "pytorch_model.bin.index.json").is_file()
    return EncoderError(
        "no complete safetensors weights" + (", only pickle, which can run code when loaded" if has_pickle else ""),
        where=str(folder),
        remedy=f"use {flag_of('allow_pickle', True)} if you trust the files" if has_pickle else AGAIN,
    )


TOKENIZER_FILES = ("tokenizer*.json", "vocab*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json")


def _fingerprint(recipe: Recipe, weights_sha256: str, settings: Settings, dtype: str) -> str:
    """SHA-256 of all that determines a vector: weights, tokenizer, model and head configs, own code, recipe, dtype.

    Device and name are left out: copies of an encoder share their cached rows. "" if it runs code from elsewhere.
    """
    if settings.trust_remote_code and _code_elsewhere(recipe.folder):
        return ""
    tokenizer = sorted({path for pattern in TOKENIZER_FILES for path in recipe.folder.glob(pattern)})
    config = read_json(recipe.folder / "config.json") or {}
    for name in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        config.pop(name, None)
    fields = asdict(recipe)
    for name in ("folder", "rules", "notes"):
        fields.pop(name)
    for head in fields["heads"]:
        head.pop("folder")
    document = {
        "weights": weights_sha256,
        "heads": [files_sha256([path]) for path in head_files(recipe.heads, settings.allow_pickle)],
        "tokenizer": files_sha256(tokenizer) if tokenizer else None,
        "config": config,
        "recipe": fields,
        "dtype": dtype,
        "code": files_sha256(recipe.folder.rglob("*.py")) if settings.trust_remote_code else None,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _code_elsewhere(folder: Path) -> bool:
    """Whether model or tokenizer refer to code of another repository, as owner/name--module.Class."""
    documents = [read_json(folder / name) or {} for name in ("config.json", "tokenizer_config.json")]
    return any("--" in json.dumps(document.get("auto_map")) for document in documents)
