"""The committed baseline, the settings it was scored with, and the source of it that a new file follows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from secid.errors import InputError, SettingsError, UsageError
from secid.files import sha256_of
from secid.records import encodable
from secid.results import EncoderInfo, IdfInfo
from secid.results.catalogue import DEFECTS, FINDINGS, FORMAL
from secid.results.document import adapter_of, refuse_unnamed, validated
from secid.settings import ENCODERS, FIELDS, RECIPE_FIELDS, Dtype, Resolved, Settings, checked, value_text

if TYPE_CHECKING:
    from secid.encode import EncoderLike

# The committed baseline: the numbers of the sources in use, readable and diffable, and the table that goes with them.
#
# `NAME.json` holds the numbers; `NAME.idf.safetensors` the document frequencies of the pool, so that a new source is
# scored in the same pool, and hashes of the labelled positives and of their word runs. The JSON file identifies the
# table by its hash.

BASELINE_SCHEMA_VERSION = "2.0"
DEFAULT_NAME = "secid-baseline.json"
REBUILD = "restore it from version control, or move it away and make it again: secid baseline RUN -o {name}"
"""`update` reads the file that it replaces, so it does not help if that cannot be read."""
METHOD_SETTINGS = (
    "temperature", "tokenizer", "idf", "positives", "first_k", "max_records", "seed", "titles",
    "high_coverage",
)  # fmt: skip
"""Settings that a comparable score must share."""
RECIPE = (
    "name", "revision", "weights_sha256", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize",
    "dim", "dtype", "fingerprint",
)  # fmt: skip
ENCODER_SETTINGS = ("encoder", *RECIPE_FIELDS)
"""Settings that load the same encoder again."""
GUIDES = ("guide", "guide_reranker")
LARGEST = 1e3
"""Beyond every score and every hardness."""
HASH_DIGITS = 64
"""Hexadecimal digits of a SHA-256."""
LOW_POINT = 0.02
"""Quantile of the relation of query and negative (Sample.relation); a later version is compared by its share below it.
If a tenth of a source loses its relation to its queries, the share grows to several times 2 %."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A number of the baseline, with its standard error over n_queries distinct queries."""

    value: float
    standard_error: float
    n_queries: int


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The lower tail of the relation of query and negative: its bound, and the share of the negatives below it."""

    bound: float
    share: Measurement


@dataclass(frozen=True, kw_only=True)
class BaselineSource:
    """One source of the baseline.

    hardness : None where the run could not compute it.   findings: shares of the negatives, by name; of formal ones
               the difference from the share of the positives.   positives: of these findings, the positives' shares.
    languages : shares of a sample of its negatives, by ISO 639-1 code.
    files    : SHA-256 by file name.
    """

    n_records: int
    n_queries: int
    n_negatives: int
    score_nats: float
    interval_95: tuple[float, float]
    standard_error_nats: float
    hardness: Measurement | None
    findings: Mapping[str, Measurement]
    positives: Mapping[str, float]
    unrelated: Tail
    languages: Mapping[str, float]
    schema: str
    files: Mapping[str, str]

    def score(self) -> Measurement:
        """ECI_sem."""
        return Measurement(value=self.score_nats, standard_error=self.standard_error_nats, n_queries=self.n_queries)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The document. table_sha256: of the table that goes with it. guide: fingerprint of its guide; None for none.

    settings : those of the method, of the encoder and of the guide.
    """

    schema_version: str
    secid_version: str
    encoder: EncoderInfo
    idf: IdfInfo
    table_sha256: str
    settings: Mapping[str, Any]
    sources: Mapping[str, BaselineSource]
    guide: str | None = None


def baseline_to_json(baseline: Baseline) -> str:
    """The baseline as indented JSON, sources by name, ending in a line feed."""
    document = adapter_of(Baseline).dump_python(baseline, mode="json")
    return encodable(json.dumps(_rounded(document), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _rounded(value: Any) -> Any:
    """Nine significant digits: enough for every check, so that rounding noise of another machine causes no diff."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def baseline_from_json(text: str | bytes, where: str) -> Baseline:
    """The baseline in a file. Raises InputError if it is not one, or of another major version."""
    rebuild = REBUILD.format(name=Path(where).name)
    baseline: Baseline = validated(Baseline, text, where, BASELINE_SCHEMA_VERSION, "baseline", rebuild)
    if not baseline.sources:
        raise InputError("contains no source", where=where, remedy=rebuild)
    _check_settings(baseline.settings, where, rebuild)
    wrong = [
        f"sources.{name}.{field}" for name, source in baseline.sources.items() for field in _invalid_fields(source)
    ]
    if wrong:
        raise InputError(
            f"not a valid baseline: {wrong[0]} is missing or not a valid number",
            where=where,
            remedy=f"do not edit it by hand; {rebuild}",
        )
    return baseline


def _check_settings(settings: Mapping[str, Any], where: str, remedy: str) -> None:
    """Raises InputError naming a setting that is missing or has a value that no run can have."""
    missing = [name for name in METHOD_SETTINGS if name not in settings]
    if missing:
        raise InputError(f"not a valid baseline: settings.{missing[0]} is missing", where=where, remedy=remedy)
    try:
        checked({name: value for name, value in settings.items() if name in FIELDS}, dict.fromkeys(settings, where))
    except SettingsError as error:
        raise InputError(f"not a valid baseline: settings.{error.message}", where=where, remedy=remedy) from None


def _invalid_fields(source: BaselineSource) -> Iterator[str]:
    """Fields of a source that are missing, or whose numbers are none."""
    yield from (name for name in ("n_records", "n_queries", "n_negatives") if getattr(source, name) < 1)
    for key, value in _leaves(asdict(source)):
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, float) and not isfinite(number) for number in numbers):
            yield ".".join(key)
    shares = {f"findings.{name}": share for name, share in source.findings.items()}
    shares["unrelated.share"] = source.unrelated.share
    known: dict[str, Measurement | None] = {**shares, "hardness": source.hardness, "score_nats": source.score()}
    for name, own in known.items():
        if own and not (0.0 <= own.standard_error < LARGEST and own.n_queries >= 1 and abs(own.value) < LARGEST):
            yield name
    lowest = {f"findings.{name}": -1.0 for name in FORMAL}
    yield from (name for name, share in shares.items() if not lowest.get(name, 0.0) <= share.value <= 1.0)
    yield from (f"positives.{name}" for name in FORMAL if name in source.findings and name not in source.positives)
    texts = {**source.languages, **source.positives}
    yield from (name for name, share in texts.items() if not 0.0 <= share <= 1.0)
    yield from (f"findings.{name}" for name in DEFECTS if name not in source.findings)
    yield from (f"findings.{name}" for name in source.findings if name not in FINDINGS)


def read_baseline(path: Path) -> Baseline:
    """Reads NAME.json; its table is read when it is needed."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                "is a pipe or a device; a baseline is read more than once", where=str(path), remedy="use a file"
            )
        return baseline_from_json(path.read_bytes(), str(path))
    except IsADirectoryError as error:
        raise InputError(
            "is a folder, not a baseline",
            where=str(path),
            remedy=f"if it is a run folder, make its baseline: secid baseline {path} -o {DEFAULT_NAME}",
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot read the baseline: {error.strerror}",
            where=str(path),
            remedy=f"make one with `secid baseline RUN -o {path.name}`",
        ) from error


def table_path(path: Path) -> Path:
    """NAME.idf.safetensors in the folder of NAME.json."""
    return path.with_name(f"{path.name.removesuffix('.json')}.idf.safetensors")


def check_table(path: Path, baseline: Baseline) -> Path:
    """A baseline's table. Raises InputError if it is missing or its hash is not the one in the baseline."""
    table = table_path(path)
    try:
        sha256 = sha256_of(table)
    except OSError as error:
        raise InputError(
            f"cannot read the baseline's table: {error.strerror}",
            where=str(table),
            remedy="commit both files that `secid baseline` writes",
        ) from error
    if sha256 != baseline.table_sha256:
        raise InputError(
            f"does not belong to {path.name} (SHA-256 {sha256[:12]}…, expected {baseline.table_sha256[:12]}…)",
            where=str(table),
            remedy="commit both files of the same `secid baseline` together",
        )
    return table


def differences(baseline: Baseline, settings: Mapping[str, Any], encoder: EncoderInfo | None = None) -> list[str]:
    """What makes a score incomparable with the baseline: one line per setting or recipe field, empty if nothing.

    settings : plain values by name.   encoder : the loaded one; None compares settings alone.
    """
    lines = [
        f"{name}: baseline {_brief(baseline.settings[name])}, now {_brief(settings[name])}"
        for name in METHOD_SETTINGS
        if name in baseline.settings and baseline.settings[name] != settings[name]
    ]
    if encoder is None:
        return lines
    same = encoder.fingerprint and encoder.fingerprint == baseline.encoder.fingerprint
    recipe = [
        f"encoder {name}: baseline {_brief(getattr(baseline.encoder, name))}, now {_brief(getattr(encoder, name))}"
        for name in RECIPE
        if getattr(baseline.encoder, name) != getattr(encoder, name)
    ]
    if len(recipe) == 1 and recipe[0].startswith("encoder fingerprint"):
        recipe[0] += " (all other fields are equal: another version of secid may have computed it)"
    return lines if same else lines + recipe


def _brief(value: object) -> str:
    """A value as text; of a hash its first digits."""
    if isinstance(value, str):
        return f"{value[:12]}…" if len(value) == HASH_DIGITS else repr(value)
    return value_text(value)


def refuse_differences(lines: list[str], where: str) -> None:
    """Raises UsageError with the whole list, if it is not empty."""
    if lines:
        raise UsageError(
            "the scores are not comparable with the baseline:\n  - " + "\n  - ".join(lines),
            where=where,
            remedy="use the baseline's settings, or score all sources again and run `secid baseline update RUN`",
        )


def changes(old: Baseline, new: Baseline) -> list[str]:
    """What an update changes, one line each, empty if nothing."""
    before, after = (dict(_leaves(adapter_of(Baseline).dump_python(item, mode="json"))) for item in (old, new))
    lines = [f"source {name}: removed" for name in old.sources if name not in new.sources]
    lines += [f"source {name}: added" for name in new.sources if name not in old.sources]
    common = {name for name in old.sources if name in new.sources}
    for key in dict.fromkeys([*before, *after]):
        if key[0] == "sources" and key[1] not in common:
            continue
        a, b = _rounded(before.get(key)), _rounded(after.get(key))
        if a != b:
            lines.append(f"{' '.join(key)}: {_leaf_text(a)} → {_leaf_text(b)}")
    return lines


def _leaf_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)


def _leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*key, str(name)))
    else:
        yield key, value


# Which source of the baseline a new file follows: the same name, once dates, versions and shard numbers are left out.
#
# dense-2025-11.jsonl, dense_20251103.parquet, dense-v2, dense.part-00003-of-00010   all follow dense

SEPARATOR = r"[-_. ]"
DATE = r"20[12]\d(?:[-_.]?(?:0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12]\d|3[01]))?|[-_.]?[wq]\d{1,2})?"
VERSION = r"v\d+(?:\.\d+)*"
SHARD = r"(?:part|shard)[-_.]?\d+(?:[-_.]of[-_.]\d+)?|\d+[-_.]of[-_.]\d+"
PART = re.compile(rf"{SEPARATOR}+(?:{DATE}|{VERSION}|{SHARD})$", re.IGNORECASE)
"""A date (2025, 2025-11, 20251103, 2025-w45), a version (v2, v1.3) or a shard (part-3, 00003-of-00010) at the end.
A bare number is none of them: dense_rank_20_30 does not follow dense_rank_10_20."""
NUMBERS = re.compile(r"(\d+)")


def undated_name(name: str) -> str:
    """The name without dates, versions and shard numbers at its end; a name of nothing else stays as it is.

    >>> stem("dense-2025-11-v2"), stem("bm25.part-00003-of-00010"), stem("dense_rank_10_20")
    ('dense', 'bm25', 'dense_rank_10_20')
    """
    while (shorter := PART.sub("", name)) and shorter != name:
        name = shorter
    return name


def predecessor(name: str, known: Iterable[str], names: Mapping[str, str], where: str) -> str | None:
    """The source of the baseline that `name` follows; None for a new one.

    known : the baseline's sources.   names : the policy's [gate.names]: a name, or its stem, to a source of the
    baseline.   where: the policy's origin.
    Of several with the same stem the latest, in the order in which people count. Raises SettingsError where the policy
    names a source that the baseline does not have.
    """
    sources = list(known)
    for key in (name, undated_name(name)):
        if name in sources and name not in names:
            return name
        if key in names:
            if names[key] not in sources:
                raise SettingsError(
                    f"names.{key} = {names[key]!r} is not a source of the baseline",
                    where=where,
                    remedy=f"its sources are {', '.join(sources)}",
                )
            return names[key]
    return max((other for other in sources if undated_name(other) == undated_name(name)), key=_counting, default=None)


def _counting(name: str) -> list[tuple[int, str]]:
    """v10 after v9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]


# The settings that sources are scored with: the baseline's, unless the user set others. Imports nothing heavy.


def settings_for(baseline: Baseline, resolved: Resolved) -> Resolved:
    """The settings to score with: the baseline's unless the user set them, and no controls.

    Raises UsageError with the list of differences if the user set something else.
    """
    values, origin = vars(resolved.values).copy(), dict(resolved.origin)
    guides = GUIDES if all(origin[name] == "default" for name in GUIDES) else ()
    for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS, *guides, "guide_sample"):
        if origin[name] == "default" and name in baseline.settings:
            values[name], origin[name] = baseline.settings[name], "baseline"
    dtype = baseline.encoder.dtype  # what "auto" was on that machine: bf16 on CUDA, and the gate may run on a CPU
    if origin["dtype"] == "default" and dtype in get_args(Dtype) and baseline.encoder.pooling != "precomputed":
        values["dtype"], origin["dtype"] = dtype, "baseline"
    values |= {"controls": "none", "budget": 1.0, "ablate": False, "objectives": False, "until_ranked": None}
    refuse_differences(differences(baseline, values), "settings")
    return Resolved(Settings(**values), origin)


def refuse_encoders_of_baseline(resolved: Resolved, encoder: EncoderLike | None, where: str) -> None:
    """Raises EncoderError for an encoder or guide in a folder or at an address that only the baseline names.

    resolved : from `settings_for`.   encoder : an object in place of the encoder.   where : of the baseline.
    """
    from secid.encode import is_encoder_object

    for name in GUIDES if is_encoder_object(encoder) else ENCODERS:
        if resolved.origin[name] == "baseline":
            refuse_unnamed(getattr(resolved.values, name), name, where)
