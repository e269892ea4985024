"""Load the parts of an encoder: its tokenizer, and its chain of modules on the first device."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from secid.encode.batching import TokenBatch, Tokeniser, load_tokeniser, longest_first, next_batch
from secid.encode.device import Limits, Replica, is_out_of_memory
from secid.encode.encoder import Role, cut_dimension
from secid.encode.modules import SAVE_AGAIN, VECTORS_REMEDY, Repository, base_name
from secid.encode.recipe import POOLING_NAMES, ROLES, Prefix, Recipe, read_recipe, routes
from secid.errors import EncoderError, plain_message
from secid.measure.blocks import PackedMatrix, can_pack
from secid.settings import Settings

# Attention masks for transformers' models without waiting for the device.
#
# Before transformers makes a mask, it asks the device whether any text is padded. The device must finish all earlier
# batches before it can answer. secid passes a mask only if a text is padded, so the question is unnecessary.

ATTENTION_NAME = "secid_sdpa"


def without_host_waits(model: nn.Module) -> None:
    """Make the transformers models inside `model` that use SDPA build their masks with `mask`."""
    import transformers
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    transformers.AttentionInterface.register(ATTENTION_NAME, sdpa_attention_forward)
    transformers.AttentionMaskInterface.register(ATTENTION_NAME, mask)
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(ATTENTION_NAME)


def mask(attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return transformers' mask for SDPA. If attention is causal, do not mask padding.

    Causal attention never reads padding, because padding is on the right. Without a mask, SDPA uses its fastest kernels
    and does not copy keys and values that several heads share.
    """
    from transformers.masking_utils import sdpa_mask

    if options.get("allow_is_causal_skip", True):
        attention_mask = None
    elif attention_mask is not None:
        options["allow_is_bidirectional_skip"] = False
    full: Tensor | None = sdpa_mask(attention_mask=attention_mask, **options)
    return full


# The loaded parts of an encoder: its tokenizer, and its chain of modules on the first device.
#
# sentence-transformers loads the modules, so that training starts from the same ones. Source: FORMATS 2, METHOD 11.

WEIGHTS_FILE_ERRORS = (SafetensorError, EOFError, OSError)
"""Errors that reading a truncated or damaged weights file raises."""

HEAD_PREFIXES = ("pooler.", "cls.", "lm_head.", "vocab_", "generator_", "discriminator_", "head.", "mlm_head.",
                 "decoder.bias", "embeddings.position_ids")  # fmt: skip
"""Beginnings of the names (after the model's own prefix) of weights left over from pre-training. Text vectors do not
use these weights."""

PROBE_TEXTS = ["tides", "what causes tides"]
"""Texts of different lengths that every encoder encodes once when it is loaded."""


class EncoderParts:
    """Tokenizer and modules of a repository, each loaded on first use.

    earlier          : recipe, width and number of weights from an earlier run; None to read them from the modules.
    width, dimension : length of a text's vector before and after truncation.
    """

    def __init__(
        self,
        repository: Repository,
        prefixes: Mapping[Role, Prefix],
        settings: Settings,
        devices: tuple[torch.device, ...],
        dtype: torch.dtype,
        earlier: tuple[Recipe, int, int] | None = None,
    ) -> None:
        self._repository, self._prefixes, self._settings = repository, prefixes, settings
        self.devices, self._dtype = devices, dtype
        self._earlier = earlier

    @property
    def recipe(self) -> Recipe:
        return (self._earlier or self._loaded[1:])[0]

    @property
    def width(self) -> int:
        return (self._earlier or self._loaded[1:])[1]

    @property
    def dimension(self) -> int:
        return cut_dimension(self.width, self.recipe.truncate_dim)

    @property
    def n_parameters(self) -> int:
        return (self._earlier or self._loaded[1:])[2]

    @cached_property
    def tokeniser(self) -> Tokeniser:
        with quiet():
            return load_tokeniser(self.recipe, self._settings.trust_remote_code)

    @property
    def replica(self) -> Replica:
        """The modules on the first device."""
        return self._loaded[0]

    def load(self) -> None:
        """Load the tokenizer and the modules now. Raises EncoderError if either cannot be loaded."""
        _ = self.tokeniser, self._loaded

    @cached_property
    def sentence_transformer(self) -> Any:
        """The chain of modules as sentence-transformers runs it."""
        if not isinstance(self.replica.model, PlainChain):
            return self.replica.model
        with quiet():
            model = _load_chain(self._repository, self._settings, self._dtype)
            _apply_recipe(model, self.recipe)
        return _to_device(self.devices[0], model).model

    def trainable(self, device: torch.device) -> Replica:
        """Load a trainable copy of the chain: float32, separate weights, no dropout (docs/decisions/probe.md).

        Raises EncoderError if the copy cannot be loaded onto the device.
        """
        with quiet():
            model = _load_chain(self._repository, self._settings, torch.float32)
            _apply_recipe(model, self.recipe)
        return _to_device(device, model)

    @cached_property
    def _loaded(self) -> tuple[Replica, Recipe, int, int]:
        """Chain of modules on the first device, with its recipe, the width of its vectors and its number of weights."""
        settings, repository = self._settings, self._repository
        with quiet():
            known = self._earlier and self._earlier[0]
            plain = known is not None and is_plain(repository, known, settings)
            model = _load_chain(repository, settings, self._dtype, known if plain else None)
            n_parameters = sum(value.numel() for value in model.parameters())
            replica = _to_device(self.devices[0], model)
            if known is None or not plain:
                is_causal = _is_causal(model, replica.device)
                recipe = read_recipe(model, repository, self._prefixes, settings, is_causal)
                _apply_recipe(model, recipe)
            else:
                recipe = known
            tokeniser = load_tokeniser(recipe, settings.trust_remote_code)
            if known is None:
                _check_tokens(model, tokeniser, recipe)
            probes = {role: _probe(tokeniser, recipe, role) for role in ROLES}
            without_host_waits(model)
            dimension = _width(replica, recipe, probes)
            if can_pack(replica.device, self._dtype):
                for backbone in _backbones(model):
                    pack(backbone)
        return replica, recipe, dimension, n_parameters


PLAIN_MODELS = ("bert", "distilbert", "mpnet", "roberta", "xlm-roberta")
"""Model types with the same class, input and output in AutoModel and in sentence-transformers."""
PLAIN_CONFIG = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}
"""Fields of sentence_bert_config.json that do not affect how token ids become vectors."""
PLAIN_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}


def is_plain(repository: Repository, recipe: Recipe, settings: Settings) -> bool:
    """Return True if `PlainChain` gives the same vectors as the repository's modules.

    This is so for a known model with mean or first-token pooling, and without heads, custom code or custom settings.
    """
    kinds = [str(module["type"]) for module in repository.modules]
    names = [base_name(kind) for kind in kinds]
    return (
        names[:2] == ["Transformer", "Pooling"]
        and names[2:] in ([], ["Normalize"])
        and all(kind.startswith("sentence_transformers.") for kind in kinds)
        and not (repository.own_code or settings.trust_remote_code)
        and repository.config.get("model_type") in PLAIN_MODELS
        and not repository.sentence.keys() - PLAIN_CONFIG
        and repository.sentence.get("modality_config", {}).get("text", PLAIN_TEXT) == PLAIN_TEXT
        and recipe.pooling in ("mean", "cls")
        and recipe.include_prompt
        and not recipe.heads
    )


class PlainChain(nn.Module):
    """A model and its pooling without sentence-transformers, whose import takes longer than the rest of the startup.

    It uses the operations of sentence-transformers' `Pooling`, so vectors are equal to the last bit.
    """

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        self.auto_model, self._pooling = model, pooling

    def forward(self, features: dict[str, Tensor], task: str | None = None) -> dict[str, Tensor]:
        """Return vectors (b, d) float32 as `sentence_embedding`.

        features : input_ids (b, t), and attention_mask (b, t) if any text is padded.
        """
        inputs = {name: features[name] for name in ("input_ids", "attention_mask") if name in features}
        states: Tensor = self.auto_model(**inputs, return_dict=True).last_hidden_state.float()
        present = inputs.get("attention_mask")
        present = torch.ones(states.shape[:-1], device=states.device, dtype=torch.int64) if present is None else present
        if self._pooling == "cls":
            first = present.to(torch.int).argmax(dim=1)[:, None, None].expand(-1, 1, states.shape[-1])
            return {"sentence_embedding": states.gather(1, first).squeeze(1)}
        weights = present.unsqueeze(-1).to(states.dtype)
        return {"sentence_embedding": (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)}


def _to_device(device: torch.device, model: Any) -> Replica:
    try:
        model = model.to(device).eval()
    except RuntimeError as error:
        raise _no_room(device, error) from error
    return Replica(model, next(model.parameters()).device)  # threads need the device's index


def _no_room(device: torch.device, error: Exception) -> EncoderError:
    return EncoderError(
        f"the model cannot be loaded to {device}: {plain_message(error)[:200]}",
        remedy="free memory on the device, or use --dtype bf16, a smaller encoder or --device cpu",
    )


class PackedLinear(nn.Module):
    """An nn.Linear for inference with packed weights and equal outputs."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._matrix = PackedMatrix(linear.weight.detach(), None if linear.bias is None else linear.bias.detach())

    def forward(self, values: Tensor) -> Tensor:
        return self._matrix.product(values)


@torch.inference_mode()
def pack(model: nn.Module) -> None:
    """Replace every plain nn.Linear of the model with `PackedLinear`. Leave subclasses unchanged."""
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    for parent, name, child in layers:
        setattr(parent, name, PackedLinear(child))


LoadingReport = tuple[str, dict[str, Any]]
"""Prefix of a model's own weight names, and transformers' loading info."""


@contextlib.contextmanager
def loading_reports() -> Iterator[list[LoadingReport]]:
    """Collect transformers' report on each model loaded in the block. sentence-transformers does not pass it on."""
    from transformers import PreTrainedModel

    original, reports = PreTrainedModel.__dict__["from_pretrained"], list[LoadingReport]()

    def load(kind: Any, *arguments: Any, **options: Any) -> Any:
        model, report = original.__func__(kind, *arguments, **options, output_loading_info=True)
        reports.append((f"{getattr(model, 'base_model_prefix', '')}.", report))
        return model

    setattr(PreTrainedModel, "from_pretrained", classmethod(load))  # noqa: B010 - mypy would reject an assignment
    try:
        yield reports
    finally:
        setattr(PreTrainedModel, "from_pretrained", original)  # noqa: B010


def _check_weights(repository: Repository, reports: list[LoadingReport]) -> None:
    """Raise EncoderError if a model's files lack weights, or have unused weights that belong to no known head."""
    if any(not str(module["type"]).startswith("sentence_transformers.") for module in repository.modules):
        return  # the repository's own code decides which weights it loads
    where = str(repository.inner)
    for prefix, report in reports:
        missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
        if missing:
            raise EncoderError(
                f"weights are missing from the model's files ({len(missing)}): {', '.join(missing[:3])}",
                where=where,
                remedy="check config.json: the files belong to another architecture",
            )
        unused = sorted(
            key for key in report["unexpected_keys"] if not key.removeprefix(prefix).startswith(HEAD_PREFIXES)
        )
        if unused:
            raise EncoderError(
                f"the model does not use some weights in its files ({len(unused)}): {', '.join(unused[:3])}",
                where=where,
                remedy="use another encoder: this one is of another kind (ColBERT, cross-encoder, adapters) or needs "
                "its own code",
            )


def _load_chain(repository: Repository, settings: Settings, dtype: torch.dtype, plain: Recipe | None = None) -> Any:
    """Load the chain of modules on the CPU.

    plain : recipe of the `PlainChain` to load; None to load the repository's modules.
    Raises EncoderError if the chain cannot be loaded, or its weights do not match the model.
    """
    options = {"dtype": dtype, "use_safetensors": not settings.allow_pickle or None}
    try:
        with loading_reports() as reports:
            model: Any = (
                _sentence_transformer(repository, settings, options)
                if plain is None
                else PlainChain(_backbone(repository, options), plain.pooling)
            )
        if dtype != torch.float32:  # sentence-transformers also casts later modules to this format
            for (name, module), entry in zip(list(model.named_children())[1:], repository.modules[1:], strict=False):
                if any(True for _ in module.parameters()):
                    place = {"subfolder": str(entry["path"]), "local_files_only": True}
                    setattr(model, name, type(module).load(str(repository.folder), **place).float())
    except (*WEIGHTS_FILE_ERRORS, ValueError, ImportError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        raise _not_loaded(str(repository.folder), error) from error
    _check_weights(repository, reports)
    return model


def _sentence_transformer(repository: Repository, settings: Settings, options: dict[str, Any]) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        str(repository.folder),
        device="cpu",
        trust_remote_code=settings.trust_remote_code,
        local_files_only=not settings.trust_remote_code,
        model_kwargs=options,
    )


def _backbone(repository: Repository, options: dict[str, Any]) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(str(repository.inner), local_files_only=True, **options)


def _not_loaded(where: str, error: Exception) -> EncoderError:
    if is_out_of_memory(error):
        return _no_room(torch.device("cpu"), error)
    text = " ".join(str(error).split())
    remedy = "check that the installed transformers supports this architecture"
    if isinstance(error, (SafetensorError, EOFError)):
        remedy = SAVE_AGAIN
    if "ignore_mismatched_sizes" in text or "size mismatch" in text:
        text, remedy = "the shapes of the weights do not match config.json", SAVE_AGAIN
    if "trust_remote_code" in text:
        text, remedy = "the repository needs its own Python code", "read that code, then use --trust-remote-code"
    return EncoderError(f"cannot be loaded: {text[:300]}", where=where, remedy=remedy)


def _apply_recipe(model: Any, recipe: Recipe) -> None:
    """Apply the recipe to the modules. Remove a final Normalize, because rows are scaled after truncation."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    if recipe.max_length is not None:
        model.max_seq_length = recipe.max_length
    ends = {id(chain[-1]) for chain in routes(model).values()}
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, Pooling) and recipe.pooling in POOLING_NAMES:
                mode = POOLING_NAMES[recipe.pooling]
                setattr(parent, name, Pooling(module.embedding_dimension, mode, module.include_prompt))
            elif isinstance(module, Normalize) and id(module) in ends:
                setattr(parent, name, nn.Identity())
            elif hasattr(module, "auto_model"):
                module.register_forward_hook(_to_float32)


def _backbones(model: Any) -> list[Any]:
    return [module.auto_model for module in model.modules() if hasattr(module, "auto_model")]


def _to_float32(module: nn.Module, arguments: Any, features: dict[str, Any]) -> None:
    """Convert a 16-bit model's outputs to float32 for pooling and later modules. Source: METHOD 11."""
    for name, value in features.items():
        if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
            features[name] = value.float()


def _check_tokens(model: Any, tokeniser: Tokeniser, recipe: Recipe) -> None:
    """Check that secid's fast tokenisation gives the same ids as sentence-transformers. Raises EncoderError if not."""
    for role in ROLES:
        prefix = recipe.prefix(role)
        for text in PROBE_TEXTS:
            features = model.preprocess([text], prompt=prefix or None, task=recipe.of(role).task)
            expected = features["input_ids"][features["attention_mask"].bool()].tolist()
            if tokeniser.tokens([prefix + text]).ids.tolist() != expected:
                raise EncoderError(
                    f"sentence-transformers and the tokenizer split a {role} into different tokens: {text!r}",
                    where=str(recipe.folder),
                    remedy=VECTORS_REMEDY,
                )


def _is_causal(model: Any, device: torch.device) -> bool:
    """Test whether token vectors are independent of later tokens. Raises EncoderError if the model fails."""
    try:
        pairs = [(_states(backbone, 7, device), _states(backbone, 8, device)) for backbone in _backbones(model)]
    except RuntimeError as error:
        message = f"the model fails on {device}: {plain_message(error)[:200]}"
        raise EncoderError(message, remedy="see `secid doctor`; --device cpu works without a GPU") from error
    return bool(pairs) and all(torch.equal(one[:, :2], other[:, :2]) for one, other in pairs)


@torch.inference_mode()
def _states(backbone: Any, last: int, device: torch.device) -> Tensor:
    """Return (1, 3, d) vectors of three tokens. last: id of the last token."""
    states: Tensor = backbone(input_ids=torch.tensor([[5, 6, last]], device=device)).last_hidden_state
    return states


def _probe(tokeniser: Tokeniser, recipe: Recipe, role: Role) -> tuple[TokenBatch, Recipe, int]:
    """Return `Replica.forward`'s arguments for PROBE_TEXTS: a padded batch, a recipe without truncation, and a length.

    The length is the number of prompt tokens that pooling skips.
    """
    tokens = tokeniser.tokens([recipe.prefix(role) + text for text in PROBE_TEXTS])
    skip = 0 if recipe.include_prompt else tokeniser.prompt_length(recipe.prefix(role))
    batch = next_batch(tokens, longest_first(tokens), 1 << 30, tokeniser.padding)
    return batch, replace(recipe.of(role), truncate_dim=None), skip


def _width(replica: Replica, recipe: Recipe, probes: Mapping[Role, tuple[TokenBatch, Recipe, int]]) -> int:
    """Return the length of the probes' vectors. Raises EncoderError if the modules do not fit together."""
    try:
        for batch, *_ in probes.values():
            Limits.of(replica.model).check(batch)
        widths = [replica.forward(*probe).shape[1] for probe in probes.values()]
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise _no_room(replica.device, error) from error
        raise EncoderError(
            f"the encoder's modules do not fit together: {plain_message(error)[:200]}",
            where=str(recipe.folder),
            remedy=SAVE_AGAIN,
        ) from error
    return widths[0]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' log lines, progress bars and warnings. secid's errors and notes replace them."""
    from transformers.utils import logging as _logging

    logs: Any = _logging  # transformers leaves these functions untyped
    level, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    others = logging.getLogger("sentence_transformers")
    before = others.level
    others.setLevel(logging.ERROR)
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        others.setLevel(before)
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()
