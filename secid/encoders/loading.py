"""Transformers from the disk: exactly the encoder its files describe, or an error that says what is missing.

Source: FORMATS 2, METHOD 11.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from secid.encoders.device import choose_device, choose_dtype, default_budget
from secid.encoders.locate import Located, files_sha256, locate, weight_files
from secid.encoders.packed import can_pack, pack
from secid.encoders.pooling import build_heads
from secid.encoders.recipe import Recipe, resolve_recipe
from secid.encoders.rows import cut_dimension
from secid.encoders.tokens import load_tokeniser
from secid.encoders.transformer import TransformerEncoder
from secid.errors import EncoderError
from secid.results import EncoderInfo
from secid.settings import Settings


def load_transformer(settings: Settings) -> TransformerEncoder:
    """The encoder `settings.encoder` names, on its device, ready.

    Raises EncoderError with what to do where anything of it is missing or not understood.
    """
    located = locate(settings)
    recipe = resolve_recipe(located.folder, located.name, settings)
    weights = weight_files(recipe.folder, settings.allow_pickle)
    if not weights:
        raise _no_weights(recipe.folder)
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    with quiet():
        tokeniser = load_tokeniser(recipe, settings.trust_remote_code)
        model = _load_model(recipe, settings, dtype)
    heads, head_files = build_heads(recipe.heads, settings.allow_pickle)
    width = int(getattr(model.config, "hidden_size", 0) or model.config.dim)
    dimension = _dimension(recipe, width)
    info = _info(located, recipe, settings, weights, head_files, dimension, (dtype, device))
    model = model.to(device).eval()
    n_parameters = sum(value.numel() for part in (model, heads) for value in part.parameters())
    if can_pack(device, dtype):
        pack(model)
    return TransformerEncoder(
        model,
        heads.to(device).eval(),
        tokeniser,
        recipe,
        info,
        settings.batch_tokens or default_budget(device),
        n_parameters,
    )


DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _info(
    located: Located,
    recipe: Recipe,
    settings: Settings,
    weights: list[Path],
    head_files: list[Path],
    dimension: int,
    place: tuple[torch.dtype, torch.device],
) -> EncoderInfo:
    notes = [*recipe.notes]
    if located.note:
        notes.append(located.note)
    if settings.trust_remote_code:
        notes.append("the repository's own Python code was allowed to run")
    if weights[0].suffix == ".bin":
        notes.append("weights loaded from pickle")
    weights_sha256 = files_sha256(weights)
    dtype_name = DTYPE_NAMES[place[0]]
    return EncoderInfo(
        name=located.name,
        revision=located.revision,
        weights_sha256=weights_sha256,
        pooling="+".join(recipe.pooling),
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        max_length=recipe.max_length,
        normalize=recipe.normalize,
        dtype=dtype_name,
        device=str(place[1]),
        dim=dimension,
        fingerprint=_fingerprint(recipe, weights_sha256, head_files, dtype_name),
        rules=dict(recipe.rules),
        notes=tuple(notes),
    )


def _load_model(recipe: Recipe, settings: Settings, dtype: torch.dtype) -> Any:
    """The bare transformer in `dtype`. Every weight it uses must come from the files."""
    import transformers

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    common = {
        ("dtype" if version >= (4, 56) else "torch_dtype"): dtype,
        "trust_remote_code": settings.trust_remote_code,
        "use_safetensors": not settings.allow_pickle or None,
        "local_files_only": not settings.trust_remote_code,
        "output_loading_info": True,
    }
    try:
        try:
            model, report = transformers.AutoModel.from_pretrained(recipe.folder, attn_implementation="sdpa", **common)
        except ValueError as error:
            if "scaled_dot_product_attention" not in str(error):
                raise
            model, report = transformers.AutoModel.from_pretrained(recipe.folder, **common)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise _not_loaded(recipe.folder, error) from error
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise EncoderError(
            f"{len(missing)} weights of the model are not in its files ({', '.join(sorted(missing)[:3])} ...)",
            where=str(recipe.folder),
            remedy="the files belong to another architecture: check config.json",
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise EncoderError("encoder-decoder models are not supported", where=str(recipe.folder))
    return model


def _not_loaded(folder: Path, error: Exception) -> EncoderError:
    text = " ".join(str(error).split())
    remedy = "check that the installed transformers knows this architecture"
    if "trust_remote_code" in text:
        text, remedy = "the repository needs its own Python code to run", "--trust-remote-code, after reading that code"
    return EncoderError(f"cannot be loaded: {text[:300]}", where=str(folder), remedy=remedy)


def _no_weights(folder: Path) -> EncoderError:
    pickled = (folder / "pytorch_model.bin").is_file() or (folder / "pytorch_model.bin.index.json").is_file()
    return EncoderError(
        "no complete safetensors weights" + (", only pickle, which can run code when loaded" if pickled else ""),
        where=str(folder),
        remedy="--allow-pickle, if you trust the files" if pickled else "download the encoder again",
    )


def _dimension(recipe: Recipe, width: int) -> int:
    """Numbers of a text's vector. Raises EncoderError where a head does not fit what comes before it."""
    dimension = width * len(recipe.pooling)
    for head in recipe.heads:
        if head.kind == "normalize":
            continue
        if head.in_features != dimension:
            raise EncoderError(
                f"{head.kind} takes {head.in_features} numbers, {dimension} come in", where=str(head.folder)
            )
        dimension = head.out_features
    return cut_dimension(dimension, recipe.truncate_dim)


TOKENIZER_FILES = ("tokenizer*.json", "vocab*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json")


def _fingerprint(recipe: Recipe, weights_sha256: str, head_files: list[Path], dtype: str) -> str:
    """SHA-256 over what decides a vector: weights, tokenizer, model and head configs, recipe, dtype.

    Neither device nor name: the same encoder elsewhere finds the same cached rows.
    """
    tokenizer = sorted({path for pattern in TOKENIZER_FILES for path in recipe.folder.glob(pattern)})
    config = json.loads((recipe.folder / "config.json").read_text(encoding="utf-8"))
    for name in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        config.pop(name, None)
    stated = asdict(recipe)
    for name in ("folder", "rules", "notes"):
        stated.pop(name)
    for head in stated["heads"]:
        head.pop("folder")
    document = {
        "weights": weights_sha256,
        "heads": [files_sha256([path]) for path in head_files],
        "tokenizer": files_sha256(tokenizer) if tokenizer else None,
        "config": config,
        "recipe": stated,
        "dtype": dtype,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers' own log lines, bars and warnings off: what matters is in our errors and notes."""
    from transformers.utils import logging as _logging

    logging: Any = _logging  # transformers leaves these functions untyped
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
