"""All settings: name, type, range, default, help text, flag, and the origin of each value.

The command line, the Python API, SECID_* variables and the settings files all go through `resolve`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from secid.errors import SettingsError, suggest_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Tokenizer = Literal["alphanumeric", "alphanumeric2", "whitespace", "trigrams", "multilingual", "wordpieces"]
IdfCorpus = Literal["pooled", "own", "pooled_with_queries", "uniform"]
Pooling = Literal["mean", "cls", "last", "max", "mean_sqrt_len"]
PositivePolicy = Literal["first", "random", "hardest", "easiest", "all"]
Dtype = Literal["auto", "float32", "bf16", "fp16"]
SumsDtype = Literal["float32", "float64"]
OnBad = Literal["skip", "fail"]


GROUPS = ("Input", "Encoder", "Score", "Statistics", "Output")
"""Groups of flags in a command's help. A setting in a group has its own flag; the others are set with --set."""


def setting(default: Any, text: str, group: str = "", metavar: str = "", **limits: float) -> Any:
    """Return a field of Settings. text: its help. group: its flag's group, "" without a flag. limits: its bounds."""
    return field(default=default, metadata={"help": text, "group": group, "metavar": metavar, **limits})


@dataclass(frozen=True)
class Settings:
    """All resolved settings of a run. Every field has a default, a range and a help text."""

    # input
    format: str | None = setting(None, "Schema of the files; auto-detected if not given.", "Input", "NAME")
    query_column: str | None = setting(None, "Column that holds the query.", "Input", "COLUMN")
    positive_column: str | None = setting(None, "Column that holds the positive.", "Input", "COLUMN")
    negative_column: str | None = setting(
        None, "Column of negatives, or the prefix of numbered columns.", "Input", "COLUMN"
    )
    label_column: str | None = setting(None, "Column that labels --positive-column as 0 or 1.", "Input", "COLUMN")
    positive_score: float | None = setting(None, "Minimum label or score of a positive.", "Input")
    source_column: str | None = setting(
        None, "Column that splits a file into sources, named file:value.", "Input", "COLUMN"
    )
    collection: str | None = setting(
        None,
        "BEIR folder or hf://datasets/OWNER/NAME. Corpus and queries resolve ids; qrels are labelled positives.",
        "Input",
        "DIR",
    )
    ranks: str | None = setting(None, "Ranks of a TREC run to take [default: 1-10].", "Input", "FIRST-LAST")
    corpus: str | None = setting(None, "File with the texts of passage ids.")
    queries: str | None = setting(None, "File with the texts of query ids.")
    titles: bool = setting(True, "Put a passage's title before its text.")
    header: bool | None = setting(
        None, "Read the first line of a CSV or TSV as column names; auto-detected if not set."
    )
    on_bad: OnBad = setting("skip", "Skip and count malformed rows, or fail at the first one.")
    max_bad_fraction: float = setting(
        0.05, "Maximum share of malformed rows in a source; more is an error.", ge=0, le=1
    )
    positives: PositivePolicy = setting("first", "Labelled positive of a record to score.")
    first_k: int | None = setting(None, "Score only the first K negatives of a record.", ge=1)

    # encoder
    encoder: str | None = setting(
        None, "Encoder to score with: short name, hub name, folder, vectors file or http endpoint.", "Encoder", "NAME"
    )
    revision: str | None = setting(None, "Revision of a hub encoder.")
    pooling: Pooling | None = setting(None, "Pooling of token vectors; overrides the encoder's own.")
    query_prefix: str | None = setting(None, "Query prefix; overrides the encoder's own.", "Encoder")
    passage_prefix: str | None = setting(None, "Passage prefix; overrides the encoder's own.", "Encoder")
    query_prompt: str | None = setting(None, "Name of the encoder's prompt for queries.", "Encoder", "NAME")
    passage_prompt: str | None = setting(None, "Name of the encoder's prompt for passages.", "Encoder", "NAME")
    max_length: int | None = setting(None, "Maximum tokens per text; longer ones are cut.", "Encoder", ge=1)
    normalize: bool | None = setting(None, "Scale vectors to unit length; the encoder's recipe decides if not set.")
    truncate_dim: int | None = setting(None, "Keep only the first N dimensions of a vector.", ge=1)
    device: str = setting("auto", "auto, cpu, mps, xpu, cuda, or a list such as cuda:0,cuda:1.", "Encoder", "NAME")
    dtype: Dtype = setting("auto", "Number format; auto: float32 on CPU, bf16 on CUDA.", "Encoder")
    batch_tokens: int | None = setting(None, "Padded tokens per encoder batch; depends on the device if not set.", ge=1)
    trust_remote_code: bool = setting(False, "Run Python code from the encoder's repository.", "Encoder")
    allow_pickle: bool = setting(False, "Load weights stored as pickle, which can run code.")
    cache: bool = setting(True, "Read embeddings from the cache on disk, and store new ones there.")
    cache_dir: str | None = setting(None, "Folder of the embedding cache.")
    cache_gb: float | None = setting(
        None, "Size limit of the embedding cache in GB; half of the free disk, at most 200, if not set.", gt=0, le=1e9
    )
    threads: int | None = setting(None, "CPU threads; all cores if not set.", ge=1)

    # guide
    guide: str | None = setting(None, "Second encoder that flags likely false negatives.", "Encoder", "NAME")
    guide_reranker: str | None = setting(
        None, "Cross-encoder for the same purpose: hub name or folder.", "Encoder", "NAME"
    )
    guide_sample: int | None = setting(None, "Negatives per source that the guide scores (≥ 100).", "Encoder", ge=100)
    guide_query_prefix: str | None = setting(None, "Query prefix for the guide; overrides its own.")
    guide_passage_prefix: str | None = setting(None, "Passage prefix for the guide; overrides its own.")

    # score
    temperature: float = setting(0.05, "Softmax temperature of the gates.", "Score", ge=1e-6, le=1e6)
    tokenizer: Tokenizer = setting("alphanumeric", "Splits texts into words for the lexical gate.")
    idf: IdfCorpus = setting("pooled", "Documents from which inverse document frequencies are counted.")
    budget: float = setting(
        1.0, "Number of negatives drawn from a source: B in log det(I + B M). 1 is the paper's score.", gt=0, le=1e12
    )
    sums: SumsDtype = setting(
        "float32",
        "Number format of products within a block. With float64 the parts of a run add up to the whole within 1e-12.",
    )
    valid: float = setting(0.9, "Minimum consistency and locality of a valid negative.", ge=0, le=1)
    far: float = setting(0.1, "Locality below which a valid negative counts as far.", ge=0, le=1)
    high_coverage: float = setting(0.5, "Minimum coverage of a highly covered negative.", ge=0, le=1)

    # statistics
    max_records: int | None = setting(None, "Score a sample of at most N queries per source.", "Statistics", ge=1)
    until_ranked: float | None = setting(
        None,
        "Score growing samples until the order is established at this confidence, such as 0.95.",
        "Statistics",
        gt=0.5,
        le=0.9999,
    )
    tie: float | None = setting(
        None, "With until_ranked: count differences below this many nats as ties. This may take more queries.", gt=0
    )
    shard: str | None = setting(None, "Score part I of N of the queries, from 0 (see merge).", "Statistics", "I/N")
    seed: int = setting(0, "Seed of every sample and draw.", ge=0, le=2**32 - 1)
    controls: str = setting(
        "all",
        "all, none, or a comma-separated list of random, known_positive, shuffled, query_echo, bm25_pool, dense_pool.",
    )
    control_queries: int = setting(1000, "Maximum number of queries that controls use.", ge=2)
    ablate: bool = setting(
        False, "Also score with other temperatures, tokenizers, IDF corpora, weights and samples.", "Statistics"
    )
    objectives: bool = setting(False, "Also report how training losses would distribute their gradient.", "Statistics")
    encode_corpus: bool = setting(
        False, "Encode the whole corpus of the collection, to report how well positives separate from it."
    )
    by: str | None = setting(None, "Also report each value of this column separately.", "Statistics", "COLUMN")
    block: tuple[str, ...] = setting(
        (), "With ablate: also report how stable the order is within NAME=source,source; separate blocks with ;"
    )
    examples: int = setting(3, "Number of example rows per finding.", ge=0)

    keyless: tuple[str, ...] = ()
    """Endpoints that come from a settings file; no API key is sent to them. Not a setting: `resolve` sets it."""


class SettingsDict(TypedDict, total=False):
    """Settings as keyword arguments of the Python API, where `encoder` is a separate parameter."""

    format: str | None
    query_column: str | None
    positive_column: str | None
    negative_column: str | None
    label_column: str | None
    positive_score: float | None
    source_column: str | None
    collection: str | None
    ranks: str | None
    corpus: str | None
    queries: str | None
    titles: bool | None
    header: bool | None
    on_bad: OnBad | None
    max_bad_fraction: float | None
    positives: PositivePolicy | None
    first_k: int | None
    revision: str | None
    pooling: Pooling | None
    query_prefix: str | None
    passage_prefix: str | None
    query_prompt: str | None
    passage_prompt: str | None
    max_length: int | None
    normalize: bool | None
    truncate_dim: int | None
    device: str | None
    dtype: Dtype | None
    batch_tokens: int | None
    trust_remote_code: bool | None
    allow_pickle: bool | None
    cache: bool | None
    cache_dir: str | None
    cache_gb: float | None
    threads: int | None
    guide: str | None
    guide_reranker: str | None
    guide_sample: int | None
    guide_query_prefix: str | None
    guide_passage_prefix: str | None
    temperature: float | None
    tokenizer: Tokenizer | None
    idf: IdfCorpus | None
    budget: float | None
    sums: SumsDtype | None
    valid: float | None
    far: float | None
    high_coverage: float | None
    max_records: int | None
    until_ranked: float | None
    tie: float | None
    shard: str | None
    seed: int | None
    controls: str | None
    control_queries: int | None
    ablate: bool | None
    objectives: bool | None
    encode_corpus: bool | None
    by: str | None
    block: Sequence[str] | None
    examples: int | None


def value_text(value: object) -> str:
    """Return a setting's value as text: members of a list joined by commas, None as "not set"."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


DISPLAY_NAMES = {
    "alphanumeric2": "alphanumeric ≥ 2", "whitespace": "white space", "trigrams": "character trigrams",
    "multilingual": "words of any script", "wordpieces": "word pieces", "pooled": "pooled documents",
    "own": "own documents", "pooled_with_queries": "pooled queries + documents", "uniform": "equal IDF",
    "full": "full weight", "no_consistency": "without consistency", "no_locality": "without locality",
    "no_residual": "without residual", "residual_only": "equal weights", "gradient_weighted": "gradient-weighted",
    "margin_hardness": "margin hardness", "fisher": "Fisher", "idf": "IDF",
}  # fmt: skip


def display_name(name: str) -> str:
    """Return the name that pages show for a setting or value; an unknown name is returned unchanged."""
    return DISPLAY_NAMES.get(name, name)


DEFAULTS = Settings()
FIELDS = {item.name: item for item in fields(Settings) if item.metadata}
TYPES = get_type_hints(Settings)
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
"""Name of a limit -> its words in a message."""
RECIPE_FIELDS = (
    "revision", "pooling", "query_prefix", "passage_prefix", "query_prompt", "passage_prompt", "max_length",
    "normalize", "truncate_dim",
)  # fmt: skip
"""Settings that describe one encoder and do not apply to another. All default to None, the encoder's own value."""
READING_SETTINGS = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "collection", "ranks", "corpus", "queries", "titles", "header", "on_bad", "max_bad_fraction",
)  # fmt: skip
ENCODING_SETTINGS = (
    *RECIPE_FIELDS, "device", "dtype", "batch_tokens", "trust_remote_code", "allow_pickle", "cache", "cache_dir",
    "cache_gb", "threads",
)  # fmt: skip
"""READING_SETTINGS belong to commands that read files, ENCODING_SETTINGS to commands that use an encoder."""
PERMISSIONS = ("trust_remote_code", "allow_pickle")
"""Settings that allow an encoder's files to run code. A settings file cannot set them."""
ENCODERS = ("encoder", "guide", "guide_reranker")
"""Settings that name a model. The name may be the address of a server that texts are sent to."""
MERGE_SETTINGS = ("controls", "ablate", "objectives", "by", "block", "encode_corpus")
"""Settings that shards do not use. `secid merge` computes these parts of the report from a sample."""
SHARD_LOCAL_SETTINGS = (
    "shard", "device", "dtype", "batch_tokens", "cache", "cache_dir", "cache_gb", "threads", "examples",
    *MERGE_SETTINGS, *PERMISSIONS,
)  # fmt: skip
"""Settings that may differ between shards of a run. The encoder's fingerprint ensures that they share one encoder."""


def encoder_kind(name: str) -> Literal["endpoint", "vectors", "model"]:
    """Return the kind of encoder that a name refers to.

    >>> encoder_kind("http://localhost:8080"), encoder_kind("vectors.npz"), encoder_kind("e5-base")
    ('endpoint', 'vectors', 'model')
    """
    if name.startswith(("http://", "https://")):
        return "endpoint"
    return "vectors" if Path(name).suffix in {".npz", ".parquet"} else "model"


def with_encoder(settings: Settings, encoder: str | None) -> Settings:
    """Return the settings for another encoder, without the settings in RECIPE_FIELDS."""
    recipe: dict[str, Any] = dict.fromkeys(RECIPE_FIELDS)
    return replace(settings, encoder=encoder, **recipe)


def with_guide(settings: Settings) -> Settings:
    """Return the settings for the guide: its own recipe, with the guide's prefixes if they are set."""
    model_settings = with_encoder(settings, settings.guide)
    return replace(
        model_settings, query_prefix=settings.guide_query_prefix, passage_prefix=settings.guide_passage_prefix
    )


SETTINGS_FILES = {"secid.toml": None, "pyproject.toml": "secid"}
"""Settings files in the working directory, each with its table under [tool]; None if the whole file holds settings."""
ENVIRONMENT_PREFIX = "SECID_"
TOML_REMEDY = "correct the file at that place; texts need quotes"
SHORT_REPR = Repr()
SHORT_REPR.maxstring = SHORT_REPR.maxother = 200
"""Formatter of a rejected value, which shortens long or deeply nested ones."""
OTHER_TABLES = frozenset({"gate"})
"""Tables of a settings file that hold no settings, because other code reads them."""
OTHER_VARIABLES = frozenset({"SECID_API_KEY"})
"""SECID_* variables that are not settings. A secret must never appear among a report's settings."""
FLAG = "flag"
"""Origin of a value set by a flag, by --set or from Python."""

AUTOMATIC = "automatic"
"""Origin of a value that the user did not set and secid chose to suit the sources."""


def flag_of(name: str, value: object = None) -> str:
    """Return a setting as typed: `--max-length 256`, or `--set valid=0.95` if it has no flag. value: None for none."""
    if not FIELDS[name].metadata["group"]:
        return f"--set {name}" if value is None else f"--set {name}={value_text(value)}"
    flag = f"--{name.replace('_', '-')}"
    return flag if value is None or TYPES[name] is bool else f"{flag} {value_text(value)}"


def assignments(texts: Sequence[str], names: Collection[str]) -> dict[str, Any]:
    """Parse `--set NAME=VALUE` arguments into {name: value as typed}. Raises SettingsError if not one of `names`."""
    values: dict[str, Any] = {}
    for text in texts:
        typed, _, value = text.partition("=")
        name = typed.strip().replace("-", "_")
        if name not in FIELDS:
            raise SettingsError(f"unknown setting {typed!r}", where="--set", remedy=_suggest(name, names))
        if name not in names:
            others = ", ".join(sorted(names))
            raise SettingsError(f"this command does not use {name}", where="--set", remedy=f"its settings are {others}")
        if name in values and name != "block":
            raise SettingsError(f"{name} is set twice", where="--set", remedy="set it once")
        values[name] = f"{values[name]};{value}" if name in values else value
    return values


def allowed(name: str) -> str:
    """Return a sentence that lists a setting's allowed values, and its help text."""
    return f"{value_range(name)}. {FIELDS[name].metadata['help']}"


def value_range(name: str) -> str:
    """Describe a setting's allowed values by its type, choices or limits."""
    if get_origin(TYPES[name]) is tuple:
        return "text"
    kinds = [kind for kind in get_args(TYPES[name]) or (TYPES[name],) if kind is not type(None)]
    choices = [choice for kind in kinds for choice in (get_args(kind) or (kind,)) if isinstance(choice, str)]
    if choices:
        return f"one of {', '.join(choices)}"
    if bool in kinds:
        return "yes or no"
    limits = FIELDS[name].metadata
    bounds = [f"{words} {limits[key]:g}" for key, words in LIMITS.items() if key in limits]
    kind = "a whole number" if int in kinds else "a number" if float in kinds else "text"
    return ", ".join(filter(None, (kind, " and ".join(bounds))))


@dataclass(frozen=True)
class Resolved:
    """Settings, and the layer that set each field ("flag", "SECID_SEED", "secid.toml", "default")."""

    values: Settings
    origin: Mapping[str, str]

    def document(self) -> dict[str, dict[str, Any]]:
        """Return {name: {"value": ..., "from": ...}} for the report."""
        return {name: {"value": getattr(self.values, name), "from": self.origin[name]} for name in FIELDS}

    def non_defaults(self) -> dict[str, Any]:
        """Return {name: value} of all settings whose origin is not "default"."""
        return {name: getattr(self.values, name) for name in FIELDS if self.origin[name] != "default"}

    def automatic(self, **values: Any) -> Resolved:
        """Return the settings with these values, which secid chose; their origin becomes "automatic"."""
        return Resolved(replace(self.values, **values), {**self.origin, **dict.fromkeys(values, AUTOMATIC)})

    def changed(self, **values: Any) -> Resolved:
        """Return the settings with these values; their origin stays the same."""
        return replace(self, values=replace(self.values, **values))


def resolve(
    flags: Mapping[str, Any], *, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> Resolved:
    """Resolve and check settings: flags > SECID_* > secid.toml or [tool.secid] of pyproject.toml > defaults.

    flags       : values set by the caller, by name; None means not set.
    environment : environment variables; by default os.environ. SECID_* names are settings, except OTHER_VARIABLES.
    directory   : folder of secid.toml or pyproject.toml; by default the working directory.
    Raises SettingsError, which names the layer, for an unknown name, a wrong type or a value out of range.
    """
    values: dict[str, Any] = {}
    origin = dict.fromkeys(FIELDS, "default")
    for layer in (
        _from_file(directory or Path.cwd()),
        _from_environment(os.environ if environment is None else environment),
        {name: (value, FLAG) for name, value in flags.items() if value is not None},
    ):
        for name, (value, place) in layer.items():
            if name not in FIELDS:
                raise SettingsError(f"unknown setting {name!r}", where=place, remedy=_suggest(name, FIELDS))
            values[name], origin[name] = value, place
    settings = checked_settings(values, origin)
    addresses = {getattr(settings, name) or "" for name in ENCODERS if origin[name] in SETTINGS_FILES}
    keyless = sorted(address for address in addresses if encoder_kind(address) == "endpoint")
    return Resolved(replace(settings, keyless=tuple(keyless)), origin)


def read_toml(data: bytes, where: str) -> dict[str, Any]:
    """Parse a TOML file. Raises SettingsError."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a number with thousands of digits raises a plain ValueError
        raise SettingsError(f"not valid TOML: {error}", where=where, remedy=TOML_REMEDY) from error


def _from_file(directory: Path) -> dict[str, tuple[Any, str]]:
    for name, section in SETTINGS_FILES.items():
        path = directory / name
        if not path.is_file():
            continue
        table = read_toml(path.read_bytes(), str(path))
        if section is not None:
            for key in ("tool", section):
                table = table.get(key, {}) if isinstance(table, dict) else table
            if not isinstance(table, dict):
                raise SettingsError(f"tool.{section} is not a table", where=str(path), remedy=f"write [tool.{section}]")
        entries = {key.replace("-", "_"): (value, name) for key, value in table.items() if key not in OTHER_TABLES}
        for key in PERMISSIONS:
            if key in entries:
                remedy = f"use {flag_of(key, True)} in the command, or set {ENVIRONMENT_PREFIX}{key.upper()}"
                raise SettingsError(f"a settings file cannot set {key}", where=str(path), remedy=remedy)
        if entries:
            return entries  # after a file with only a gate policy, the next file is still read
    return {}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    return {
        variable.removeprefix(ENVIRONMENT_PREFIX).lower(): (value, variable)
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES
    }


def _suggest(name: str, names: Collection[str]) -> str:
    return suggest_name(name, [*names, *OTHER_TABLES], f"the settings are {', '.join(sorted(names))}")


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter
    from pydantic.fields import FieldInfo

    limits = {key: limit for key, limit in FIELDS[name].metadata.items() if key in LIMITS}
    kind: Any = Annotated[TYPES[name], FieldInfo(**limits)] if limits else TYPES[name]
    return TypeAdapter(kind)


def checked_settings(values: Mapping[str, Any], origin: Mapping[str, str]) -> Settings:
    """Check types and ranges. Raises SettingsError with the value's origin and the allowed values."""
    from pydantic import ValidationError

    accepted: dict[str, Any] = {}
    for name, value in values.items():
        is_list = isinstance(value, str) and get_origin(TYPES[name]) is tuple
        try:
            accepted[name] = _adapter(name).validate_python(value.split(";") if is_list else value)
        except ValidationError:
            raise SettingsError(
                f"{name} = {SHORT_REPR.repr(value)} is not allowed",
                where=flag_of(name) if origin[name] == FLAG else origin[name],
                remedy=f"allowed: {allowed(name)}",
            ) from None
    return Settings(**accepted)
