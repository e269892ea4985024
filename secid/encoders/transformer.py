"""Encoders of the transformers library: loading, and the loop from batches to rows.

Source: FORMATS 2 (recipes), METHOD 11 (precision).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secid.encoders.batching import AHEAD, TokenBatch, Tokens, ahead, in_parallel, longest_first, next_batch, tokenised
from secid.encoders.device import choose_device, choose_dtype, default_budget
from secid.encoders.locate import Located, files_sha256, locate, weight_files
from secid.encoders.packed import can_pack, pack
from secid.encoders.pooling import build_heads, pool
from secid.encoders.protocol import EncodedBatch, Float32Rows, Role, gather
from secid.encoders.recipe import Recipe, resolve_recipe
from secid.encoders.tokens import Tokeniser, load_tokeniser
from secid.errors import EncoderError
from secid.results import EncoderInfo
from secid.settings import Settings

Places = NDArray[np.int64]


class TransformerEncoder:
    """A transformer with its recipe on one device. `info` says exactly which."""

    def __init__(
        self,
        model: nn.Module,
        heads: nn.Module,
        tokeniser: Tokeniser,
        recipe: Recipe,
        info: EncoderInfo,
        batch_tokens: int,
    ) -> None:
        self.info = info
        self.recipe = recipe
        self.model = model
        self._heads = heads
        self._tokeniser = tokeniser
        self._device = torch.device(info.device)
        self.batch_tokens = batch_tokens
        self._skip = {
            role: 0 if recipe.include_prompt else tokeniser.prompt_length(recipe.prefix(role))
            for role in ("query", "passage")
        }

    @property
    def dimension(self) -> int:
        return self.info.dim

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, dimension) float32 in the order of the texts; unit rows where `info.normalize`."""
        return gather(self.batches(texts, role), len(texts), self.dimension)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Batches of similar length, longest first, tokenised in a thread ahead."""
        prefix, skip = self.recipe.prefix(role), self._skip[role]

        def tokenise(chunk: list[str]) -> Tokens:
            return self._tokeniser.tokens([prefix + text for text in chunk] if prefix else chunk)

        chunks = ahead(tokenised(texts, tokenise), AHEAD)
        if self._device.type == "cpu":
            yield from self._by_workers(chunks, skip)
            return
        yield from self._by_device(chunks, skip)

    def _by_workers(self, chunks: Iterable[tuple[Places, Tokens]], skip: int) -> Iterator[EncodedBatch]:
        """One batch a core, each core alone: no barrier after every layer, and batches that fit its cache."""
        threads = torch.get_num_threads()
        try:
            yield from in_parallel(
                lambda batch: _fetched(batch, self._forward(batch, skip)),
                self._token_batches(chunks),
                threads,
                prepare=lambda: torch.set_num_threads(1),
            )
        finally:
            torch.set_num_threads(threads)

    def _token_batches(self, chunks: Iterable[tuple[Places, Tokens]]) -> Iterator[TokenBatch]:
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.batch_tokens, self._tokeniser.padding)
                yield batch._replace(positions=positions[batch.positions])
                order = order[len(batch.positions) :]

    def _by_device(self, chunks: Iterable[tuple[Places, Tokens]], skip: int) -> Iterator[EncodedBatch]:
        """Batches one after the other on an accelerator, the next under way before the last is fetched.

        Out of memory, the batch is halved and tried again.
        """
        waiting: tuple[TokenBatch, Tensor] | None = None
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.batch_tokens, self._tokeniser.padding)
                try:
                    vectors = self._forward(batch, skip)
                except torch.cuda.OutOfMemoryError as error:
                    self._halve_budget(int(batch.lengths[0]), error)
                    continue
                if waiting is not None:
                    yield _fetched(*waiting)
                waiting = batch._replace(positions=positions[batch.positions]), vectors
                order = order[len(batch.positions) :]
        if waiting is not None:
            yield _fetched(*waiting)

    def _halve_budget(self, longest: int, error: Exception) -> None:
        """Half the batch after the device ran out of memory; what is encoded stays encoded."""
        if self.batch_tokens <= longest:
            raise EncoderError(
                f"out of memory on {self.info.device} with a single text of {longest} tokens",
                remedy="give --max-length, a smaller encoder or --device cpu",
            ) from error
        self.batch_tokens = max(self.batch_tokens // 2, 1)
        torch.cuda.empty_cache()

    @torch.inference_mode()
    def _forward(self, batch: TokenBatch, skip: int) -> Tensor:
        """Vectors (b, d) float32, still on the device."""
        ids = self._to_device(batch.ids)
        lengths = self._to_device(batch.lengths)
        mask = (torch.arange(ids.shape[1], device=self._device) < lengths[:, None]).long()
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors: Tensor = self._heads(pool(hidden, lengths, self.recipe.pooling, skip))
        if self.recipe.truncate_dim is not None:
            vectors = vectors[:, : self.recipe.truncate_dim]
        if self.recipe.normalize:
            vectors = nn.functional.normalize(vectors, dim=1)
        return vectors

    def _to_device(self, array: NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type == "cuda":
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor.to(self._device)


def _fetched(batch: TokenBatch, vectors: Tensor) -> EncodedBatch:
    return EncodedBatch(batch.positions, vectors.cpu().numpy(), batch.truncated, int(batch.lengths.sum()))


def load_transformer(settings: Settings, located: Located | None = None) -> TransformerEncoder:
    """The encoder `settings.encoder` names, on its device, ready.

    Raises EncoderError with what to do where anything of it is missing or not understood.
    """
    located = located or locate(settings)
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
    notes = [*recipe.notes]
    if located.note:
        notes.append(located.note)
    if settings.trust_remote_code:
        notes.append("the repository's own Python code was allowed to run")
    if weights[0].suffix == ".bin":
        notes.append("weights loaded from pickle")
    weights_sha256 = files_sha256(weights)
    dtype_name = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    info = EncoderInfo(
        name=located.name,
        revision=located.revision,
        weights_sha256=weights_sha256,
        pooling="+".join(recipe.pooling),
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        max_length=recipe.max_length,
        normalize=recipe.normalize,
        dtype=dtype_name,
        device=str(device),
        dim=dimension,
        fingerprint=_fingerprint(recipe, weights_sha256, head_files, dtype_name),
        rules=dict(recipe.rules),
        notes=tuple(notes),
    )
    model = model.to(device).eval()
    if can_pack(device, dtype):
        pack(model)
    return TransformerEncoder(
        model, heads.to(device).eval(), tokeniser, recipe, info, settings.batch_tokens or default_budget(device)
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
    dimension = width * len(recipe.pooling)
    for head in recipe.heads:
        if head.kind == "normalize":
            continue
        if head.in_features != dimension:
            raise EncoderError(
                f"{head.kind} takes {head.in_features} numbers, {dimension} come in", where=str(head.folder)
            )
        dimension = head.out_features
    if recipe.truncate_dim is not None:
        if recipe.truncate_dim > dimension:
            raise EncoderError(
                f"--truncate-dim {recipe.truncate_dim} is more than the {dimension} dimensions of the encoder",
                remedy=f"give {dimension} or less",
            )
        dimension = recipe.truncate_dim
    return dimension


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
