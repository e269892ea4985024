"""Read the recipe that turns token vectors into a text's vector from the loaded modules and their files.

A wrong recipe gives wrong numbers without an error, so every field records the rule that set it. The module is imported
without torch.

Source: FORMATS 2. Priority: flag > the repository's own files > family (presets) > default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from secid.encode.encoder import Role
from secid.encode.locate import Family, family_of
from secid.encode.modules import PROMPT_FILE, Repository, read_json
from secid.errors import EncoderError
from secid.records import Fact
from secid.settings import Settings, flag_of

POOLING_NAMES: Mapping[str, str] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
    "last": "lasttoken",
}
"""secid's name for a pooling mode -> sentence-transformers' name."""

POSITION_TABLES = frozenset({"position_embeddings", "embed_positions", "wpe"})
"""Names of learned position tables in transformers. A text longer than the table fails inside the model."""

ROLES: tuple[Role, Role] = ("query", "passage")
PLURALS: Mapping[Role, str] = {"query": "queries", "passage": "passages"}
PROMPT_NAMES: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "passage": ("document", "passage", "corpus")}


@dataclass(frozen=True)
class Recipe:
    """Everything except the weights that determines a text's vector.

    folder         : folder with the transformer's own files (modules.json may name a subfolder).
    pooling        : pooling mode, or several joined by +; "own" if the repository's code pools. If the routes of a
                     router differ, this field and `heads` name each route: "query: mean; document: cls".
    include_prompt : whether the tokens of the prefix are pooled.
    heads          : description of each module after pooling, such as "dense 768 to 3072". A final Normalize is in
                     `normalize` instead.
    max_length     : maximum number of tokens, including special ones; None without a limit.
    query_task, passage_task : route or adapter of each role, as sentence-transformers names it.
    rules          : field -> rule that set it.   facts : notes for the report.
    task           : route or adapter of the role that is being encoded.
    """

    folder: Path
    pooling: str
    include_prompt: bool
    heads: tuple[str, ...]
    normalize: bool
    max_length: int | None
    query_prefix: str
    passage_prefix: str
    query_task: str
    passage_task: str
    truncate_dim: int | None
    lower_case: bool
    rules: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    task: str = ""

    def prefix(self, role: str) -> str:
        return self.query_prefix if role == "query" else self.passage_prefix

    def of(self, role: str) -> Recipe:
        """Return the recipe with the task of one role."""
        return replace(self, task=self.query_task if role == "query" else self.passage_task)

    def document(self) -> dict[str, Any]:
        """Return all fields except folder and task as JSON."""
        return {name: value for name, value in asdict(self).items() if name not in ("folder", "task")}

    @classmethod
    def of_document(cls, document: Mapping[str, Any], folder: Path) -> Recipe:
        facts = tuple(Fact(**fact) for fact in document["facts"])
        values = {**document, "heads": tuple(document["heads"]), "facts": facts}
        return cls(folder=folder, **values)


class Prefix(NamedTuple):
    """Text in front of each text of a role. rule: origin of the prefix.   task: route or adapter for the role."""

    text: str
    rule: str
    task: str


def resolve_prefixes(repository: Repository, settings: Settings) -> Mapping[Role, Prefix]:
    """Return the prefix of each role. Raises EncoderError if the user must name a prompt or adapter but did not.

    The first of PROMPT_NAMES in the repository's prompts counts. `default_prompt_name` is ignored, because
    sentence-transformers uses it in neither `encode_query` nor `encode_document`. A family replaces missing and empty
    prompts, because recent sentence-transformers writes empty prompts into every model that it saves.
    """
    prefixes = {role: _prefix(role, repository, settings) for role in ROLES}
    open_roles = [role for role in ROLES if prefixes[role] is None]
    if open_roles:
        raise _missing_prompt_error(open_roles, repository)
    return {role: prefix for role, prefix in prefixes.items() if prefix is not None}


def _prefix(role: Role, repository: Repository, settings: Settings) -> Prefix | None:
    """Return the prefix of a role; None if the flags must name one."""
    prompts, adapters = repository.prompts, _adapters(repository)
    text, name = getattr(settings, f"{role}_prefix"), getattr(settings, f"{role}_prompt")
    task = "query" if role == "query" else "document"
    if name is not None:
        if text is not None:
            raise EncoderError(
                f"{flag_of(f'{role}_prompt')} and {flag_of(f'{role}_prefix')} cannot be used together",
                remedy="use only one of them",
            )
        if name not in prompts and name not in adapters:
            where = str(repository.folder / PROMPT_FILE)
            raise EncoderError(
                f"no prompt {name!r}", where=where, remedy=f"the encoder has {_prompt_names(repository)}"
            )
        return Prefix(prompts.get(name, ""), f"flag: {PROMPT_FILE} prompts.{name}", name if adapters else task)
    if adapters:
        return None
    if text is not None:
        return Prefix(text, "flag", task)
    family, family_rule = family_in(repository)
    key = next((item for item in PROMPT_NAMES[role] if item in prompts), None)
    from_family = "" if family is None else (family.query_prefix if role == "query" else family.passage_prefix)
    if from_family and not (key and prompts[key]):
        return Prefix(from_family, family_rule, task)
    usual = [item for names in PROMPT_NAMES.values() for item in names]
    if family is None and any(prompts.values()) and not any(prompts.get(item) for item in usual):
        return None
    if key is not None:
        return Prefix(prompts[key], f"{PROMPT_FILE} prompts.{key}", task)
    return Prefix("", "default", task)


def _adapters(repository: Repository) -> list[str]:
    """Return the names of the adapters that config.json lists. Each text is encoded by one of them."""
    return [str(item) for item in repository.config.get("lora_adaptations") or ()]


def _prompt_names(repository: Repository) -> str:
    """List all names that a flag may choose, as text; "no prompts" without any."""
    names = dict.fromkeys([*repository.prompts, *_adapters(repository)])
    empty = [name for name, text in repository.prompts.items() if not text and name not in _adapters(repository)]
    return ", ".join(f"{name} (empty)" if name in empty else name for name in names) or "no prompts"


def _missing_prompt_error(roles: list[Role], repository: Repository) -> EncoderError:
    names = [name for name, text in repository.prompts.items() if text] or _adapters(repository)
    flags = []
    for role in roles:
        near = next((name for name in names if any(word in name for word in PROMPT_NAMES[role])), None)
        flags.append(f"{flag_of(f'{role}_prefix')} ''" if near is None else flag_of(f"{role}_prompt", near))
    kind = "adapter" if _adapters(repository) else "prompt"
    return EncoderError(
        f"name the {kind} that training will use for {' and '.join(PLURALS[role] for role in roles)}: "
        f"{_prompt_names(repository)}",
        where=str(repository.folder / PROMPT_FILE),
        remedy=f"for example {' '.join(flags)}",
    )


def family_in(repository: Repository) -> tuple[Family | None, str]:
    """Return (family, rule that recognised it); (None, "") for an unknown family."""
    by_name = family_of(repository.name)
    if by_name is not None:
        return by_name, f"registry: {by_name.key}"
    origin = str(repository.config.get("_name_or_path") or "")
    by_config = family_of(origin) if origin else None
    if by_config is not None:
        return by_config, f"registry: {by_config.key} (_name_or_path {origin})"
    return None, ""


def read_recipe(
    model: Any, repository: Repository, prefixes: Mapping[Role, Prefix], settings: Settings, is_causal: bool
) -> Recipe:
    """Return the recipe of a loaded chain of modules (`SentenceTransformer`). `parts._apply_recipe` applies it."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    family, family_rule = family_in(repository)
    rules = {f"{role}_prefix": prefixes[role].rule for role in ROLES}
    facts = [Fact(family.fact)] if family is not None and family.fact else []
    chains = routes(model)
    poolings = {route: [part for part in chain if isinstance(part, Pooling)] for route, chain in chains.items()}
    ends = all(isinstance(chain[-1], Normalize) for chain in chains.values())
    transformer = next(iter(chains.values()))[0]
    max_length = _max_length(transformer, repository, settings, rules, facts)
    truncate_dim = settings.truncate_dim or model.truncate_dim
    rules["truncate_dim"] = (
        "flag" if settings.truncate_dim else "default" if truncate_dim is None else f"{PROMPT_FILE} truncate_dim"
    )
    rules["pooling"], pooling = _pooling(poolings, repository, settings, is_causal)
    if rules["pooling"].startswith("default") and (saved := _modes(poolings[""])) not in (pooling, "own"):
        facts.append(Fact("other_pooling", {"pooling": saved}))
    rules["normalize"], normalize = _normalize(ends, repository, family, family_rule, settings)
    after = {
        route: chain[chain.index(poolings[route][-1]) + 1 :] if poolings[route] else []
        for route, chain in chains.items()
    }
    heads = {route: tuple(map(_module_words, parts[:-1] if ends else parts)) for route, parts in after.items()}
    include_prompt = all(part.include_prompt for parts in poolings.values() for part in parts)
    lower_case = bool(getattr(transformer, "do_lower_case", False))
    if truncate_dim is not None:
        facts.append(Fact("truncated", {"n": truncate_dim}))
    if not include_prompt:
        facts.append(Fact("prefix_not_pooled"))
    if lower_case:
        facts.append(Fact("lower_case"))
    if not normalize:
        facts.append(Fact("raw_rows"))
    facts += _repository_facts(repository, settings)
    decides = any(prefix.text or prefix.rule.startswith("flag") for prefix in prefixes.values())
    if family is None and not decides and not is_causal:
        facts.append(Fact("no_prefix"))
    return Recipe(
        folder=repository.inner,
        pooling=pooling,
        include_prompt=include_prompt,
        heads=_by_route(heads),
        normalize=normalize,
        max_length=max_length,
        query_prefix=prefixes["query"].text,
        passage_prefix=prefixes["passage"].text,
        query_task=prefixes["query"].task,
        passage_task=prefixes["passage"].task,
        truncate_dim=truncate_dim,
        lower_case=lower_case,
        rules=rules,
        facts=tuple(facts),
    )


def routes(model: Any) -> dict[str, list[Any]]:
    """Return route -> modules that a text passes through, in order. Without a router, the only route is ""."""
    first, *later = model.children()
    starts = getattr(first, "sub_modules", {"": [first]})
    return {route: [*start, *later] for route, start in starts.items()}


def _by_route(words: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the words of one route if all routes have the same; else return all words, each after its route."""
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return tuple(f"{route}: {word}" for route, route_words in words.items() for word in route_words)


def _modes(poolings: Sequence[Any]) -> str:
    """Return secid's names for the pooling modes of one route, joined by +; "own" if the repository's code pools."""
    names = {library_name: name for name, library_name in POOLING_NAMES.items()}
    modes = [[pool.pooling_mode] if isinstance(pool.pooling_mode, str) else pool.pooling_mode for pool in poolings]
    return "+".join(names[mode] for module in modes for mode in module) or "own"


def _repository_facts(repository: Repository, settings: Settings) -> Iterator[Fact]:
    models = [item for item in repository.config.get("architectures") or () if str(item).endswith("ForMaskedLM")]
    if models and not repository.modules:
        yield Fact("architecture", {"architecture": str(models[0])})
    if "AutoModel" in repository.own_code and not settings.trust_remote_code:
        yield Fact("own_code_unused")


def _pooling(
    poolings: Mapping[str, Sequence[Any]], repository: Repository, settings: Settings, is_causal: bool
) -> tuple[str, str]:
    """Return (rule, pooling modes). In a causal model, only the last token sees the whole text (FORMATS 2)."""
    if settings.pooling is not None:
        return "flag", settings.pooling
    if not repository.modules:
        return ("default: causal model", "last") if is_causal else ("default", "mean")
    places = [path for path in repository.parts if (path / "config.json").is_file() and "Pool" in path.name]
    rule = "; ".join(str((place / "config.json").relative_to(repository.folder)) for place in places) or "modules.json"
    return rule, "; ".join(_by_route({route: (_modes(parts),) for route, parts in poolings.items()}))


def _normalize(
    ends: bool, repository: Repository, family: Family | None, family_rule: str, settings: Settings
) -> tuple[str, bool]:
    """Return (rule, True if rows are scaled). ends: True if the chain ends with a Normalize module."""
    if settings.normalize is not None:
        return "flag", settings.normalize
    if repository.modules:
        return "modules.json", ends
    if family is not None and family.normalize is not None:
        return family_rule, family.normalize
    return "default", True


def _max_length(
    transformer: Any, repository: Repository, settings: Settings, rules: dict[str, str], facts: list[Fact]
) -> int | None:
    """Return the maximum length of an input in tokens; None without a limit.

    The flag decides, or else the loaded tokenizer. The length is at most the model's number of positions. Raises
    EncoderError if the flag exceeds this number.
    """
    room = position_room(transformer)
    if settings.max_length is not None:
        if room is not None and settings.max_length > room:
            raise EncoderError(
                f"--max-length {settings.max_length} exceeds the model's {room} positions",
                where=str(repository.inner),
                remedy=f"use --max-length {room} or less",
            )
        rules["max_length"] = "flag"
        return settings.max_length
    length = getattr(transformer, "max_seq_length", None)
    length = None if length is None or length >= 10**9 else int(length)  # int(1e30): no limit
    tokenizer = read_json(repository.inner / "tokenizer_config.json") or {}
    if length is not None and repository.sentence.get("max_seq_length") == length:
        rule = "sentence_bert_config.json max_seq_length"
    elif length is not None and tokenizer.get("model_max_length") == length:
        rule = "tokenizer_config.json model_max_length"
    else:
        rule = "default" if length is None else "config.json max_position_embeddings"
    if room is not None and (length is None or length > room):
        if length is not None:
            facts.append(Fact("length_reduced", {"length": length, "rule": rule, "positions": room}))
        length, rule = room, "config.json max_position_embeddings"
    rules["max_length"] = rule
    return length


def position_room(transformer: Any) -> int | None:
    """Return the number of positions for a text in the model's learned tables; None without a table."""
    from torch import nn

    # RoBERTa and related models start after the position of padding, OPT at an offset.
    rooms = [
        int(module.num_embeddings - getattr(module, "offset", 0 if (pad := module.padding_idx) is None else pad + 1))
        for name, module in transformer.named_modules()
        if isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in POSITION_TABLES
    ]
    return min(rooms, default=None)


def _module_words(module: Any) -> str:
    """Return a description of a module after pooling, such as "dense 768 to 3072, Tanh"."""
    name = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(module).__name__).strip()
    if not hasattr(module, "in_features"):
        return name
    activation = type(module.activation_function).__name__
    return (
        f"{name} {module.in_features} to {module.out_features}"
        f"{'' if activation == 'Identity' else f', {activation}'}{', residual' if module.use_residual else ''}"
    )
