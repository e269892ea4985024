"""Load encoders of the transformers library from disk, and run them with one worker per core or device."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.encode.batching import (
    CHUNKS_AHEAD,
    CPU_CHUNK,
    GPU_CHUNK,
    BatchQueue,
    BatchQueueError,
    merged_items,
    token_chunks,
)
from secid.encode.cache_folder import hash_memory
from secid.encode.device import (
    DeviceError,
    Replica,
    choose_devices,
    choose_dtype,
    default_budget,
    n_devices,
    without_cudnn_attention,
)
from secid.encode.encoder import EncodedBatch, Float32Rows, Role, host_rows, in_text_order
from secid.encode.locate import Location, full_name, locate, weight_files
from secid.encode.modules import SAVE_AGAIN, JsonObject, Repository, read_json, read_repository
from secid.encode.parts import EncoderParts, quiet
from secid.encode.recipe import Prefix, Recipe, family_in, resolve_prefixes
from secid.encode.segment import document_sha256, files_sha256
from secid.encode.word_cache import Tokens
from secid.errors import EncoderError, plain_message
from secid.files import work_folder, write_whole
from secid.records import Fact
from secid.results import EncoderInfo
from secid.settings import RECIPE_FIELDS, Settings, flag_of

# From texts to batches to rows, with one worker per core or device. Source: FORMATS 2.

GPU_TOKENISERS = 3
"""Number of chunks to tokenise at once for a GPU. Each takes 20 ms of Python, in which the tokenizer would be idle."""

ENCODED_AHEAD = 8
"""Maximum number of encoded batches per worker that wait for the consumer: 0.4 s of an H200's work."""


class TransformerEncoder:
    """A transformer with its recipe. `info` identifies it, and `parts` are loaded on first use."""

    def __init__(self, parts: EncoderParts, info: EncoderInfo, batch_tokens: int) -> None:
        self.parts = parts
        self.info = info
        self.recipe = parts.recipe
        self.batch_tokens = batch_tokens
        self._replicas: dict[int, Replica] = {}
        self._lost: dict[int, str] = {}

    @property
    def n_parameters(self) -> int:
        """Number of weights in the model and in the heads after pooling."""
        return self.parts.n_parameters

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32 in the order of the texts; unit rows if `info.normalize`."""
        batches = (batch._replace(vectors=host_rows(batch.vectors)) for batch in self.batches(texts, role))
        return in_text_order(batches, len(texts), self.info.dim)

    def reference(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32 from sentence-transformers' encode_query or encode_document, not scaled.

        Texts are encoded one at a time, because `parts.mask` is wrong for left padding, which some tokenizers use.
        """
        model, recipe = self.parts.sentence_transformer, self.recipe.of(role)
        functions = {"query": model.encode_query, "document": model.encode_document}
        encode = functions.get(recipe.task, partial(model.encode, task=recipe.task))
        options = {"prompt": recipe.prefix(role), "truncate_dim": recipe.truncate_dim, "batch_size": 1}
        with quiet():
            rows: Float32Rows = encode(list(texts), show_progress_bar=False, **options)
        return rows

    def word_pieces(self, texts: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the word-piece ids of all texts without prefix and special tokens, and (n,) how many each text has."""
        return self.parts.tokeniser.word_pieces(texts)

    def unknown_shares(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """Return (n,), the share of each text's letters that the tokenizer does not know as part of a word."""
        return self.parts.tokeniser.unknown_shares(texts)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Yield batches of texts of similar length when they are ready, longest texts first within a window.

        texts : sequence of which only the length and slices are used, so that texts can be read when needed.
        Other threads tokenise the next chunks. On a CPU, one core computes a batch, so that cores need not wait for
        each other after every layer and the batch fits the core's cache. Another GPU is used if there is a window of
        texts for it. If a GPU fails, the others encode its batches. Raises EncoderError if all devices fail.
        """
        recipe, tokeniser = self.recipe.of(role), self.parts.tokeniser
        prefix = recipe.prefix(role)
        skip = 0 if recipe.include_prompt else tokeniser.prompt_length(prefix)

        def tokenise(chunk: list[str]) -> Tokens:
            return tokeniser.tokens([prefix + text for text in chunk] if prefix else chunk)

        on_cpu = self.parts.replica.device.type == "cpu"
        chunk, n_tokenisers = (CPU_CHUNK, 1) if on_cpu else (GPU_CHUNK, GPU_TOKENISERS)
        chunks = merged_items(
            [lambda: token_chunks(texts, tokenise, chunk, n_tokenisers)], CHUNKS_AHEAD, "secid-tokenise"
        )
        queue = BatchQueue(chunks, self.batch_tokens, tokeniser.padding)
        threads = torch.get_num_threads()
        numbers = self._device_numbers(len(texts))
        errors: list[DeviceError] = []

        def work(number: int) -> Iterator[EncodedBatch]:
            try:
                yield from self._replica(number).work(queue, recipe, skip)
            except DeviceError as error:
                errors.append(error)
                self._lost[number] = f"{self.parts.devices[number]} failed; the other devices continue: {error}"
                if len(errors) == len(numbers):
                    raise EncoderError(
                        f"encoding failed on {self.parts.devices[number]}: {error}",
                        remedy="see `secid doctor`; --device cpu works without a GPU",
                    ) from error.__cause__

        try:
            with without_cudnn_attention(self.parts.replica.device):
                yield from merged_items(
                    [partial(work, number) for number in numbers], ENCODED_AHEAD * len(numbers), "secid-encode"
                )
        except BatchQueueError as error:
            raise error.__cause__ or error from None
        finally:
            chunks.close()
            self.batch_tokens = queue.budget
            torch.set_num_threads(threads)

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each device that failed."""
        return tuple(self._lost.values())

    def _device_numbers(self, n_texts: int) -> list[int]:
        """Return the device number of each worker: one worker per needed GPU, or one per CPU core."""
        devices = self.parts.devices
        if devices[0].type == "cpu":
            return [*range(len(devices))] * max(torch.get_num_threads() // len(devices), 1)
        usable = [number for number in range(len(devices)) if number not in self._lost] or [0]
        return usable[: n_devices(len(usable), n_texts)]

    def _replica(self, number: int) -> Replica:
        """Return the model on a device, and copy it there on first use. CPU cores share one copy."""
        device, first = self.parts.devices[number], self.parts.replica
        if number == 0 or device.type == "cpu":
            return first
        if number not in self._replicas:
            try:
                self._replicas[number] = first.on(device)
            except RuntimeError as error:
                raise DeviceError(plain_message(error)[:200]) from error
        return self._replicas[number]


# Load a transformer from disk: exactly the encoder that its files describe, or an error that names the problem.
# Source: FORMATS 2, METHOD 11.

RECIPE_VERSION = 3
"""Version of the code that turns token ids into rows. Raise it if rows change, so that cached ones are not mixed."""


def load_transformer(settings: Settings, location: Location | None = None) -> TransformerEncoder:
    """Return the encoder that `settings.encoder` names, or the one in `location`.

    The recipe of an encoder is stored in the cache folder. If this machine has loaded the encoder before with the same
    files, flags and libraries, it is loaded only when a text is not cached. Otherwise it is loaded now, so that errors
    come before any work. Raises EncoderError, with a remedy, if anything is missing or not understood.
    """
    location = location or locate(settings)
    repository = read_repository(location.folder, location.name, settings)
    weights = weight_files(repository.inner, settings.allow_pickle)
    if not weights:
        raise _no_weights(repository.inner)
    prefixes = resolve_prefixes(repository, settings)
    devices = choose_devices(settings.device)
    dtype = choose_dtype(settings.dtype, devices[0])
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    weights_sha256 = files_sha256(weights, hash_memory(settings))
    contents = _contents(repository, weights_sha256, settings, DTYPE_LABELS[dtype])
    memory = _recipe_file(repository, prefixes, contents, settings)
    earlier = _load_recipe(memory, repository.inner)
    parts = EncoderParts(repository, prefixes, settings, devices, dtype, earlier)
    if earlier is None:
        parts.load()
        _store_recipe(memory, parts)
    recipe = parts.recipe
    info = EncoderInfo(
        name=location.name,
        revision=location.revision,
        weights_sha256=weights_sha256,
        pooling=recipe.pooling,
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        max_length=recipe.max_length,
        normalize=recipe.normalize,
        dtype=DTYPE_LABELS[dtype],
        device=",".join(map(str, devices)),
        dim=parts.dimension,
        fingerprint=_fingerprint(recipe, contents),
        rules=dict(recipe.rules),
        facts=_facts(location, recipe, settings, weights),
    )
    return TransformerEncoder(parts, info, settings.batch_tokens or default_budget(devices[0], dtype))


DTYPE_LABELS = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _facts(location: Location, recipe: Recipe, settings: Settings, weights: list[Path]) -> tuple[Fact, ...]:
    facts = [*recipe.facts, *location.facts]
    if settings.trust_remote_code:
        facts.append(Fact("own_code"))
        if _refers_to_other_code(recipe.folder):
            facts.append(Fact("code_elsewhere"))
    if weights[0].suffix == ".bin":
        facts.append(Fact("pickle"))
    return tuple(facts)


def _no_weights(folder: Path) -> EncoderError:
    has_pickle = (folder / "pytorch_model.bin").is_file() or (folder / "pytorch_model.bin.index.json").is_file()
    return EncoderError(
        "no complete safetensors weights" + (", only pickle, which can run code when loaded" if has_pickle else ""),
        where=str(folder),
        remedy=f"use {flag_of('allow_pickle', True)} if you trust the files" if has_pickle else SAVE_AGAIN,
    )


TOKENIZER_FILES = ("tokenizer*.json", "vocab*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json")
VOLATILE_FIELDS = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
"""Fields of config.json that may differ between copies of the same encoder."""


def _contents(repository: Repository, weights_sha256: str, settings: Settings, dtype: str) -> JsonObject:
    """Return the hashes, settings and versions that determine a vector; {} if code of another repository runs."""
    inner = repository.inner
    if settings.trust_remote_code and _refers_to_other_code(inner):
        return {}
    places = [place for place in repository.parts if place != inner]
    later = [path for place in places for path in weight_files(place, settings.allow_pickle)]
    states = [read_json(place / name) for place in places for name in ("config.json", "router_config.json")]
    return {
        "weights": weights_sha256,
        "heads": [files_sha256([path]) for path in later],
        "modules": [str(module["type"]).rsplit(".", 1)[-1] for module in repository.modules],
        "parts": [state for state in states if state is not None],
        "tokenizer": _hash(path for pattern in TOKENIZER_FILES for path in inner.glob(pattern)),
        "config": {name: value for name, value in repository.config.items() if name not in VOLATILE_FIELDS},
        "dtype": dtype,
        "code": _hash(repository.folder.rglob("*.py")) if settings.trust_remote_code else None,
        "versions": [RECIPE_VERSION, ".".join(version("transformers").split(".")[:2])],
    }


def _hash(paths: Iterable[Path]) -> str | None:
    files = set(paths)
    return files_sha256(files) if files else None


def _fingerprint(recipe: Recipe, contents: JsonObject) -> str:
    """Return the SHA-256 of the contents and the recipe, which determine a vector; "" without contents.

    Device and name are excluded, so that copies of an encoder share their cached rows.
    """
    if not contents:
        return ""
    fields = {name: value for name, value in recipe.document().items() if name not in ("rules", "facts")}
    return document_sha256({**contents, "recipe": fields})


def _recipe_file(
    repository: Repository, prefixes: Mapping[Role, Prefix], contents: JsonObject, settings: Settings
) -> Path | None:
    """Return the path that stores the recipe for these files, flags and libraries; None without a cache or contents."""
    weights = hash_memory(settings)
    if weights is None or not contents:
        return None
    family, rule = family_in(repository)
    flags = {name: getattr(settings, name) for name in (*RECIPE_FIELDS, "trust_remote_code", "allow_pickle")}
    tokenizer = read_json(repository.inner / "tokenizer_config.json")
    files = [repository.sentence, repository.prompt_config, tokenizer, repository.own_code]
    rules = {"flags": flags, "prefixes": prefixes, "family": [family and family.key, rule]}
    identity = {**contents, **rules, "files": files, "st": version("sentence-transformers")}
    return weights.parent / "recipes" / f"{document_sha256(identity)[:32]}.json"


def _load_recipe(memory: Path | None, folder: Path) -> tuple[Recipe, int, int] | None:
    if memory is None:
        return None
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        recipe = Recipe.of_document(document["recipe"], folder)
        return recipe, int(document["dimension"]), int(document["n_parameters"])
    except (OSError, ValueError, KeyError, TypeError):  # missing, or not written by `_store_recipe`
        return None


def _store_recipe(memory: Path | None, parts: EncoderParts) -> None:
    if memory is None:
        return
    document = {"recipe": parts.recipe.document(), "dimension": parts.width, "n_parameters": parts.n_parameters}
    with contextlib.suppress(OSError):  # if the folder is read-only, the encoder is loaded again next time
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_whole(memory, json.dumps(document))


def _refers_to_other_code(folder: Path) -> bool:
    """Return whether the model or tokenizer refers to another repository's code, as owner/name--module.Class."""
    documents = [read_json(folder / name) or {} for name in ("config.json", "tokenizer_config.json")]
    return any("--" in json.dumps(document.get("auto_map")) for document in documents)


# A SentenceTransformer in memory is saved to a temporary folder, and loaded from there.
#
# Therefore the recipe follows the same rules as for any folder, the vectors are the same, and the fingerprint matches
# the present weights. The cost is writing and reading the weights once per command, and a second copy in memory.


def load_in_memory(model: Any, settings: Settings) -> TransformerEncoder:
    """Return an encoder with the model's present weights. Its temporary folder exists as long as the encoder does.

    Raises EncoderError if the model cannot be saved, or if the saved folder cannot be loaded.
    """
    origin = _origin(model)
    name = f"{Path(origin).name if Path(origin).is_dir() else origin} (in memory)"
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        try:
            with quiet():
                model.save(str(folder), create_model_card=False)
        except OSError:
            raise
        except Exception as error:
            raise EncoderError(
                f"cannot be saved ({plain_message(error)[:200]})",
                where=name,
                remedy="save it to a folder, and name the folder",
            ) from error
        try:
            encoder = load_transformer(settings, Location(folder, origin, None, (Fact("in_memory"),)))
        except EncoderError as error:
            error.where = error.where and error.where.replace(str(folder), name)
            raise
        encoder.info = replace(encoder.info, name=name)
        weakref.finalize(encoder.parts, stack.pop_all().close)  # weights may be read from the folder again
    return encoder


def _origin(model: Any) -> str:
    """Return the name that the weights were first loaded from. It shows the family, which determines the prefixes."""
    configs = (getattr(part, "config", None) for part in model.modules())
    names = (str(getattr(config, "_name_or_path", None) or "") for config in configs)
    return full_name(next(filter(None, names), "")) or type(model).__name__
