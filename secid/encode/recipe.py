"""How token vectors become the vector of a text, read from the files an encoder ships.

A wrong recipe gives wrong numbers without an error, so every field records the rule that set it,
and anything not understood is rejected. No torch here: a recipe can be printed without a model.

Source: FORMATS 2. Priority: flag > the repository's own files > family (presets) > default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secid.encode.max_length import resolve_max_length
from secid.encode.modules import Head, Json, base_name, pooling_modes, read_heads, read_json, read_modules
from secid.encode.presets import Family, family_of
from secid.errors import EncoderError
from secid.settings import Settings


@dataclass(frozen=True)
class Recipe:
    """All that determines a text's vector besides the weights.

    pooling    : modes whose vectors are concatenated, nearly always one.
    heads      : modules after pooling, in order; a final Normalize is in `normalize` instead.
    max_length : tokens, including special ones; None without a limit.
    folder     : of the transformer's own files (modules.json may name a subfolder).
    """

    folder: Path
    pooling: tuple[str, ...]
    include_prompt: bool
    heads: tuple[Head, ...]
    normalize: bool
    max_length: int | None
    query_prefix: str
    passage_prefix: str
    truncate_dim: int | None
    lower_case: bool
    rules: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def prefix(self, role: str) -> str:
        return self.query_prefix if role == "query" else self.passage_prefix


def resolve_recipe(folder: Path, name: str, settings: Settings) -> Recipe:
    """The recipe of the encoder in `folder`, known to the user as `name`.

    Raises EncoderError for an unknown module, pooling mode or activation, and for a maximum
    length that exceeds the model's positions.
    """
    if not folder.is_dir():
        raise EncoderError("no such folder", where=str(folder), remedy="give a folder that contains config.json")
    modules = read_modules(folder)
    inner = folder / str(modules[0].get("path", "")) if modules else folder
    config = read_json(inner / "config.json")
    if config is None:
        raise EncoderError("config.json is missing", where=str(inner), remedy="give a folder saved by transformers")
    rules: dict[str, str] = {}
    notes: list[str] = []
    family, family_rule = _family(name, config)
    if family is not None and family.note:
        notes.append(family.note)
    pooling, include_prompt = _pooling(folder, modules, is_causal(config), settings, rules)
    heads = read_heads(folder, modules)
    normalize = _normalize(bool(modules), heads, family, family_rule, settings, rules)
    if heads and heads[-1].kind == "normalize":
        heads = heads[:-1]
    query_prefix, passage_prefix = _prefixes(folder, family, family_rule, settings, rules)
    sentence = sentence_config(inner)
    max_length = resolve_max_length(inner, config, sentence, settings, rules, notes)
    rules["truncate_dim"] = "default" if settings.truncate_dim is None else "flag"
    if settings.truncate_dim is not None:
        notes.append(f"vectors truncated to their first {settings.truncate_dim} dimensions, then scaled to unit length")
    if not include_prompt:
        notes.append("the prefix's tokens are excluded from pooling (include_prompt of the Pooling module)")
    lower_case = bool((sentence or {}).get("do_lower_case", False))
    if lower_case:
        notes.append("texts are lower-cased first (do_lower_case of sentence_bert_config.json)")
    if not normalize:
        notes.append("this encoder does not normalise; scoring scales its rows to unit length (METHOD 2)")
    return Recipe(
        folder=inner,
        pooling=pooling,
        include_prompt=include_prompt,
        heads=heads,
        normalize=normalize,
        max_length=max_length,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        truncate_dim=settings.truncate_dim,
        lower_case=lower_case,
        rules=rules,
        notes=tuple(dict.fromkeys(notes)),
    )


def is_causal(config: Json) -> bool:
    """Whether each token attends only to earlier ones, according to config.json."""
    if config.get("use_bidirectional_attention"):
        return False
    if config.get("is_decoder"):
        return True
    return any(str(item).endswith(("ForCausalLM", "LMHeadModel")) for item in config.get("architectures") or ())


def _family(name: str, config: Json) -> tuple[Family | None, str]:
    """The family and how it was recognised."""
    by_name = family_of(name)
    if by_name is not None:
        return by_name, f"registry: {by_name.key}"
    origin = str(config.get("_name_or_path") or "")
    by_config = family_of(origin) if origin else None
    if by_config is not None:
        return by_config, f"registry: {by_config.key} (_name_or_path {origin})"
    return None, ""


def _pooling(
    folder: Path, modules: list[dict[str, Any]], causal: bool, settings: Settings, rules: dict[str, str]
) -> tuple[tuple[str, ...], bool]:
    module = next((item for item in modules if base_name(item) == "Pooling"), None)
    path = folder / str((module or {}).get("path", "")) / "config.json"
    config = None if module is None else read_json(path)
    if module is not None and config is None:
        raise EncoderError("the Pooling module has no config.json", where=str(path))
    modes: tuple[str, ...]
    if settings.pooling is not None:
        modes, rule = (settings.pooling,), "flag"
    elif config is not None:
        modes, rule = pooling_modes(config, path), str(path.relative_to(folder))
    elif causal:
        modes, rule = ("last",), "default: causal model"
    else:
        modes, rule = ("mean",), "default"
    rules["pooling"] = rule
    return modes, bool((config or {}).get("include_prompt", True))


def _normalize(
    has_modules: bool,
    heads: tuple[Head, ...],
    family: Family | None,
    family_rule: str,
    settings: Settings,
    rules: dict[str, str],
) -> bool:
    if settings.normalize is not None:
        rules["normalize"] = "flag"
        return settings.normalize
    if has_modules:
        rules["normalize"] = "modules.json"
        return bool(heads) and heads[-1].kind == "normalize"
    if family is not None and family.normalize is not None:
        rules["normalize"] = family_rule
        return family.normalize
    rules["normalize"] = "default"
    return True


def _prefixes(
    folder: Path, family: Family | None, family_rule: str, settings: Settings, rules: dict[str, str]
) -> tuple[str, str]:
    """Query and passage prefix.

    The first key present in the repository's prompts counts, as in sentence-transformers, even if its prompt is empty.
    Only the family overrides an empty prompt: recent sentence-transformers writes empty prompts into every model
    that it saves, whether or not the model was trained with prompts.
    """
    file = "config_sentence_transformers.json"
    config = read_json(folder / file) or {}
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise EncoderError("prompts must map names to strings", where=str(folder / file))
    fallback = config.get("default_prompt_name")
    prefixes = {}
    for role, keys in (("query", ("query",)), ("passage", ("document", "passage", "corpus"))):
        flag = settings.query_prefix if role == "query" else settings.passage_prefix
        key = next((item for item in (*keys, fallback) if item in prompts), None)
        from_family = "" if family is None else (family.query_prefix if role == "query" else family.passage_prefix)
        if flag is not None:
            text, rule = flag, "flag"
        elif from_family and not (key and prompts[key]):
            text, rule = from_family, family_rule
        elif key is not None:
            text, rule = prompts[key] or "", f"{file} prompts.{key}"
        else:
            text, rule = "", "default"
        prefixes[role], rules[f"{role}_prefix"] = text, rule
    return prefixes["query"], prefixes["passage"]


def sentence_config(inner: Path) -> Json | None:
    """sentence_bert_config.json (or its older name per architecture). Raises EncoderError for more than text."""
    for path in sorted(inner.glob("sentence_*_config.json")):
        config: Json = read_json(path) or {}
        task = config.get("transformer_task", "feature-extraction")
        if (
            task != "feature-extraction"
            or config.get("query_expansion")
            or "message" in config.get("modality_config", {})
        ):
            raise EncoderError(
                "needs a chat template, query expansion or a task other than plain text encoding",
                where=str(path),
                remedy="encode the texts yourself and use --encoder vectors.npz",
            )
        return config
    return None
