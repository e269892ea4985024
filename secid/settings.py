"""Every setting once: name, type, range, default, help. Precedence and the record of who won.

Flags > SECID_* environment > secid.toml or [tool.secid] of pyproject.toml > defaults.
The command line, the Python API and the settings files all go through `resolve`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from secid.errors import SettingsError

Tokenizer = Literal["alphanumeric", "alphanumeric2", "whitespace", "trigrams", "multilingual", "wordpieces"]
IdfCorpus = Literal["pooled", "own", "pooled_with_queries", "uniform"]
Pooling = Literal["mean", "cls", "last", "max", "mean_sqrt_len"]
Positives = Literal["first", "random", "hardest", "easiest", "all"]
Dtype = Literal["auto", "float32", "bf16", "fp16"]
Sums = Literal["float32", "float64"]
OnBad = Literal["skip", "fail"]


def setting(default: Any, text: str, **limits: float) -> Any:
    """A dataclass field with its help text and range (ge, gt, le, lt), read by the CLI and by `resolve`."""
    return field(default=default, metadata={"help": text, **limits})


@dataclass(frozen=True)
class Settings:
    """All settings of a run, resolved. Frozen; every field has a default, a range and a help text."""

    # method
    encoder: str | None = setting(None, "Target encoder: alias, hub name, local folder, vectors file or http endpoint.")
    temperature: float = setting(0.05, "Softmax temperature tau of the gates (METHOD 1).", ge=1e-6, le=1e6)
    tokenizer: Tokenizer = setting("alphanumeric", "Tokens of the lexical gate (METHOD 2, 4).")
    idf: IdfCorpus = setting("pooled", "Documents the inverse document frequencies are counted over (METHOD 4).")
    positives: Positives = setting("first", "Which labelled positive of a record is scored (METHOD 9).")
    first_k: int | None = setting(None, "Score only the first K negatives of a record.", ge=1)
    max_records: int | None = setting(None, "Score a seeded sample of at most this many queries per source.", ge=1)
    seed: int = setting(0, "Seed of every sample and draw.", ge=0, le=2**32 - 1)
    sums: Sums = setting(
        "float32",
        "Number format of the sums within a block of 2,048 negatives; with float64 the states of any parts of a source "
        "add up to the whole's to 1e-12 (METHOD 11).",
    )

    # reading
    format: str | None = setting(None, "Schema of the files, if detection is to be overruled.")
    query_column: str | None = setting(None, "Column that holds the query.")
    positive_column: str | None = setting(None, "Column that holds the positive.")
    negative_column: str | None = setting(None, "Column, or prefix of numbered columns, that holds the negatives.")
    label_column: str | None = setting(
        None, "Column of labels or scores: the passages, named by --positive-column, are positives or negatives by it."
    )
    source_column: str | None = setting(None, "Column whose values split a file into sources file:value.")
    titles: bool = setting(True, "Join a passage's title before its text.")
    collection: str | None = setting(None, "BEIR folder that resolves ids to texts (corpus.jsonl, queries.jsonl).")
    corpus: str | None = setting(None, "File that resolves passage ids to texts.")
    queries: str | None = setting(None, "File that resolves query ids to texts.")
    header: bool | None = setting(None, "Whether the first line of a CSV or TSV names its columns; auto-detected.")
    positive_score: float | None = setting(None, "Smallest score or label that makes a scored passage a positive.")
    on_bad: OnBad = setting("skip", "What a malformed record does: skip and count, or fail (--strict).")
    max_bad_fraction: float = setting(0.05, "Largest share of malformed rows a source may have.", ge=0, le=1)

    # encoder
    revision: str | None = setting(None, "Revision of a hub encoder.")
    pooling: Pooling | None = setting(None, "Pooling of token vectors, over the recipe's.")
    query_prefix: str | None = setting(None, "Text before every query, over the recipe's.")
    passage_prefix: str | None = setting(None, "Text before every passage, over the recipe's.")
    max_length: int | None = setting(None, "Longest input in tokens, over the recipe's.", ge=1)
    normalize: bool | None = setting(None, "Scale vectors to unit length, over the recipe's.")
    truncate_dim: int | None = setting(None, "Keep only the first dimensions of a vector.", ge=1)
    device: str = setting("auto", "auto (all CUDA devices, else MPS, else CPU), cpu, mps, cuda, or cuda:0,cuda:1.")
    dtype: Dtype = setting("auto", "Number format of the encoder: auto is float32 on CPU, bf16 on CUDA.")
    batch_tokens: int | None = setting(None, "Padded tokens of one encoder batch; chosen by device when absent.", ge=1)
    trust_remote_code: bool = setting(False, "Run Python code that the encoder's repository ships.")
    allow_pickle: bool = setting(False, "Load weights stored as pickle, which can run code.")
    cache: bool = setting(True, "Keep embeddings on disk for the next run.")
    cache_dir: str | None = setting(None, "Folder of the embedding cache.")
    cache_gb: float = setting(20.0, "Size limit of the embedding cache in GB.", gt=0, le=1e9)
    threads: int | None = setting(None, "CPU threads; all cores when absent.", ge=1)

    # study
    budget: float = setting(1.0, "Budget B of the ranking, log det(I + B M); 1 is the paper's score.", gt=0, le=1e12)
    until_ranked: float | None = setting(
        None,
        "Score growing samples until the order is established with this confidence, such as 0.95. Needs budget 1.",
        gt=0.5,
        le=0.9999,
    )
    tie: float | None = setting(
        None,
        "With --until-ranked: differences below this many nats count as ties. A tie may err too, so clear orders may "
        "take more queries.",
        gt=0,
    )
    controls: str = setting(
        "all",
        "Controls to score: all, none, or a comma-separated list of random, known_positive, shuffled, query_echo, "
        "bm25_pool and dense_pool (spaces do for underscores).",
    )
    control_queries: int = setting(1000, "Queries that controls are sampled on.", ge=2)
    high_coverage: float = setting(0.5, "Coverage at and above which a negative counts as highly covered.", ge=0, le=1)
    ablate: bool = setting(False, "Also score under other temperatures, tokenizers, IDF corpora, weights and samples.")
    by: str | None = setting(None, "Column whose values slice the report: scores and findings are repeated for each.")
    block: tuple[str, ...] = setting((), "NAME=source,source: also report rank stability within these sources.")
    valid: float = setting(0.9, "Consistency and locality from which a negative counts as valid.", ge=0, le=1)
    far: float = setting(0.1, "Locality below which a valid negative counts as far.", ge=0, le=1)
    examples: int = setting(3, "Example rows kept per finding.", ge=0)


def value_text(value: object) -> str:
    """A setting's value in words: a list by its members, absent as "not set"."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


WORDS = {
    "alphanumeric2": "alphanumeric ≥ 2",
    "whitespace": "white space",
    "trigrams": "character trigrams",
    "multilingual": "words of any script",
    "wordpieces": "word pieces",
    "pooled": "pooled documents",
    "own": "own documents",
    "pooled_with_queries": "pooled queries + documents",
    "uniform": "uniform weights",
    "full": "full weight",
    "no_consistency": "without consistency",
    "no_locality": "without locality",
    "no_residual": "without residual",
    "residual_only": "residual only",
    "gradient_weighted": "gradient-weighted",
    "margin_hardness": "margin hardness",
    "fisher": "Fisher",
    "idf": "IDF",
}


def in_words(name: str) -> str:
    """A setting's name or value as pages write it; foreign ones as they are."""
    return WORDS.get(name, name)


DEFAULTS = Settings()
FIELDS = {item.name: item for item in fields(Settings)}
RECIPE_FIELDS = (
    "revision",
    "pooling",
    "query_prefix",
    "passage_prefix",
    "max_length",
    "normalize",
    "truncate_dim",
)
"""Settings that belong to one encoder and not to another. All default to None, the encoder's own."""
ENVIRONMENT_PREFIX = "SECID_"


@dataclass(frozen=True)
class Resolved:
    """Settings and, for each field, which layer set it ("flag", "SECID_SEED", "secid.toml", "default")."""

    values: Settings
    origin: Mapping[str, str]

    def document(self) -> dict[str, dict[str, Any]]:
        """{name: {"value": ..., "from": ...}} for the report."""
        return {name: {"value": value, "from": self.origin[name]} for name, value in asdict(self.values).items()}


def resolve(
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Resolved:
    """Settings from all layers, checked.

    flags       : what the caller set by name; None means not set.
    environment : defaults to os.environ; only SECID_* names that match a field are read.
    directory   : where secid.toml or pyproject.toml is looked for; the working directory by default.
    Raises SettingsError for an unknown key (with the nearest known one), a wrong type or a value
    out of range, naming the layer it came from.
    Source: DESIGN 3.
    """
    values: dict[str, Any] = {}
    origin = dict.fromkeys(FIELDS, "default")
    for layer in (
        _from_file(directory or Path.cwd()),
        _from_environment(os.environ if environment is None else environment),
        {name: (value, "flag") for name, value in flags.items() if value is not None},
    ):
        for name, (value, where) in layer.items():
            if name not in FIELDS:
                raise SettingsError(f"unknown setting {name!r}", where=where, remedy=_suggest(name))
            values[name], origin[name] = value, where
    return Resolved(checked(values, origin), origin)


def _from_file(directory: Path) -> dict[str, tuple[Any, str]]:
    for name, section in (("secid.toml", None), ("pyproject.toml", "secid")):
        path = directory / name
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"not valid TOML: {error}", where=str(path)) from error
        if section is not None:
            table = table.get("tool", {}).get(section)
            if table is None:
                continue
        found = {key.replace("-", "_"): (value, name) for key, value in table.items() if key not in OTHER_TABLES}
        if found:
            return found  # a file that holds a policy alone hides no settings
    return {}


OTHER_TABLES = frozenset({"gate"})
"""Tables of the settings file that belong to another reader."""


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES:
            found[variable.removeprefix(ENVIRONMENT_PREFIX).lower()] = (value, variable)
    return found


OTHER_VARIABLES = frozenset({"SECID_API_KEY"})
"""SECID_* variables that are not settings (a secret never enters the settings of a report)."""


def _suggest(name: str) -> str:
    near = difflib.get_close_matches(name, [*FIELDS, *OTHER_TABLES], n=1)
    return f"did you mean {near[0]!r}?" if near else "`secid score --help` lists the settings"


def checked(values: Mapping[str, Any], origin: Mapping[str, str]) -> Settings:
    """Types and ranges by pydantic, its findings told in our words. Raises SettingsError at the value's origin."""
    from pydantic import TypeAdapter, ValidationError
    from pydantic.fields import FieldInfo

    types = _field_types()
    checked: dict[str, Any] = {}
    for name, value in values.items():
        limits = {key: limit for key, limit in FIELDS[name].metadata.items() if key != "help"}
        adapter: TypeAdapter[Any] = TypeAdapter(_annotated(types[name], FieldInfo(**limits)) if limits else types[name])
        try:
            checked[name] = adapter.validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise SettingsError(
                f"{name} = {value!r} is not allowed: {problem['msg'].lower()}",
                where=origin[name] if origin[name] != "flag" else f"--{name.replace('_', '-')}",
                remedy=FIELDS[name].metadata["help"],
            ) from None
    return Settings(**checked)


def _field_types() -> dict[str, Any]:
    from typing import get_type_hints

    return get_type_hints(Settings)


def _annotated(kind: Any, info: Any) -> Any:
    from typing import Annotated

    return Annotated[kind, info]
