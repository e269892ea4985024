"""The committed baseline: what is known of the sources that are in use, readable and diffable, and its table beside it.

`NAME.json` holds the numbers; `NAME.idf.safetensors` the document frequencies of the pool, so that a new source is
scored in the same pool, and hashes of the labelled positives and of their runs of words. The first names the second
by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.errors import InputError, SettingsError, UsageError
from secid.records import encodable
from secid.results import EncoderInfo, IdfInfo
from secid.settings import FIELDS, checked, value_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

BASELINE_SCHEMA_VERSION = "1.0"
DEFAULT_NAME = "secid-baseline.json"
MADE_ANEW = "bring it back from version control, or move it away and make it anew: secid baseline RUN -o {name}"
"""`update` reads the file that it renews, so it does not help where that cannot be read."""
METHOD_SETTINGS = (
    "temperature", "tokenizer", "idf", "positives", "first_k", "max_records", "seed", "titles",
    "high_coverage",
)  # fmt: skip
"""Settings that a comparable score must share."""
RECIPE = (
    "name", "revision", "weights_sha256", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize",
    "dim", "dtype", "fingerprint",
)  # fmt: skip
ENCODER_SETTINGS = (
    "encoder", "revision", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize", "truncate_dim",
)  # fmt: skip
"""Settings that load the same encoder again."""
HASH_DIGITS = 64
"""Of SHA-256 in hexadecimal digits."""
TAIL_NAMES = ("low", "high")
MEAN_NAMES = ("consistency", "locality", "coverage", "query_similarity", "unrelated", "close")
RANK_NAMES = ("10", "100", "1000", "10000")
"""What the checks read of a source."""
SHARE, COSINE = (0.0, 1.0), (-1.0, 1.0)
RANGES = {
    "bias_nats": (-inf, inf),
    "means.query_similarity": COSINE,
    "means.positive_similarity": COSINE,
    "tails": (-1.0, 2.0),
    "effective_rank": (-inf, inf),
}
"""What the numbers of a source can be, by name or first part of it; all others are shares, or scores, which reach as
far. The tails are cosine plus coverage. A corrected rank may lie a little below 0."""
SLACK = 0.01
"""For rounding: numbers in bf16 stand 0.008 apart at 1."""
LOW_POINT, HIGH_POINT = 0.02, 0.98
"""Tails of the relation of query and negative (Sample.relation) whose shares a later version is compared on. At
2 % a tenth of a source that loses its relation to its queries makes the lower tail several times as large."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A number of the baseline with its standard error; None where the baseline cannot tell it."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, kw_only=True)
class BaselineSource:
    """One source as the baseline keeps it.

    means, findings : means, and shares of the negatives, by name.   tails: relations of query and negative below and
    above which the lower and the upper tail lie.   effective_rank: by budget.   like_controls: kinds of control that
    its score did not differ from.   files: SHA-256 by name of file.
    """

    n_records: int
    n_queries: int
    n_negatives: int
    score_nats: float
    interval_95: tuple[float, float]
    standard_error_nats: float
    bias_nats: float
    means: Mapping[str, Known]
    findings: Mapping[str, Known]
    tails: Mapping[str, float]
    effective_rank: Mapping[str, float]
    like_controls: tuple[str, ...]
    schema: str
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The document. table_sha256: of the file beside it."""

    schema_version: str
    secid_version: str
    encoder: EncoderInfo
    idf: IdfInfo
    table_sha256: str
    settings: Mapping[str, Any]
    sources: Mapping[str, BaselineSource]


@cache
def _adapter() -> TypeAdapter[Baseline]:
    from pydantic import TypeAdapter

    return TypeAdapter(Baseline)


def to_json(baseline: Baseline) -> str:
    """The baseline as indented JSON, sources by name, ending in a line feed."""
    document = _adapter().dump_python(baseline, mode="json")
    return encodable(json.dumps(_rounded(document), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _rounded(value: Any) -> Any:
    """Nine significant digits: enough for every check, and rounding noise of another machine makes no diff."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def from_json(text: str | bytes, where: str) -> Baseline:
    """The baseline that a file holds. Raises InputError where it is none, or of another major version."""
    from pydantic import ValidationError

    anew = MADE_ANEW.format(name=Path(where).name)
    try:
        version = str(json.loads(text)["schema_version"])
    except (ValueError, RecursionError) as error:
        raise InputError(f"no JSON document, or only part of one: {error}", where=where, remedy=anew) from error
    except (KeyError, TypeError) as error:
        raise InputError(
            "not a secid baseline: no schema_version", where=where, remedy="name the .json that `secid baseline` writes"
        ) from error
    if version.split(".")[0] != BASELINE_SCHEMA_VERSION.split(".")[0]:
        raise InputError(
            f"baseline of schema version {version}; this secid reads version {BASELINE_SCHEMA_VERSION.split('.')[0]}.x",
            where=where,
            remedy=f"gate with the secid that wrote it; or {anew}",
        )
    try:
        baseline = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a valid baseline: {place}: {first['msg']}", where=where, remedy=anew) from error
    if not baseline.sources:
        raise InputError("holds no source", where=where, remedy=anew)
    _check_settings(baseline.settings, where, anew)
    wrong = [f"sources.{name}.{field}" for name, source in baseline.sources.items() for field in _unsound(source)]
    if wrong:
        raise InputError(
            f"not a valid baseline: {wrong[0]} is missing or out of range",
            where=where,
            remedy=f"it is written by `secid baseline`, not by hand: {anew}",
        )
    return baseline


def _check_settings(settings: Mapping[str, Any], where: str, anew: str) -> None:
    """Raises InputError for a setting that is missing or that no run can have had, by its name."""
    missing = [name for name in METHOD_SETTINGS if name not in settings]
    if missing:
        raise InputError(f"not a valid baseline: settings.{missing[0]} is missing", where=where, remedy=anew)
    try:
        checked({name: value for name, value in settings.items() if name in FIELDS}, dict.fromkeys(settings, where))
    except SettingsError as error:
        raise InputError(f"not a valid baseline: settings.{error.message}", where=where, remedy=anew) from None


def _unsound(source: BaselineSource) -> Iterator[str]:
    """Fields of a source that no run can have given."""
    yield from (name for name in ("n_records", "n_queries", "n_negatives") if getattr(source, name) < 1)
    errors = {f"means.{name}": known.standard_error for name, known in source.means.items()}
    errors |= {f"findings.{name}": known.standard_error for name, known in source.findings.items()}
    errors["standard_error_nats"] = source.standard_error_nats
    yield from (name for name, error in errors.items() if error is not None and not 0.0 <= error < inf)
    values = {"score_nats": source.score_nats, "bias_nats": source.bias_nats}
    values |= {f"means.{name}": known.value for name, known in source.means.items()}
    values |= {f"findings.{name}": known.value for name, known in source.findings.items()}
    values |= {f"tails.{name}": value for name, value in source.tails.items()}
    values |= {f"effective_rank.{name}": value for name, value in source.effective_rank.items()}
    for name, value in values.items():
        low, high = RANGES.get(name, RANGES.get(name.split(".")[0], SHARE))
        if not (isfinite(value) and low - SLACK <= value <= high + SLACK):
            yield name
    low, high = source.interval_95
    if not -inf < low <= high < inf:
        yield "interval_95"
    for part, needed in (("tails", TAIL_NAMES), ("means", MEAN_NAMES), ("effective_rank", RANK_NAMES)):
        yield from (f"{part}.{name}" for name in needed if name not in getattr(source, part))


def read_baseline(path: Path) -> Baseline:
    """Reads NAME.json; the table beside it is read where it is needed."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                "is a pipe or a device; a baseline is read more than once", where=str(path), remedy="name a file"
            )
        return from_json(path.read_bytes(), str(path))
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
    """NAME.idf.safetensors beside NAME.json."""
    return path.with_name(f"{path.name.removesuffix('.json')}.idf.safetensors")


def check_table(path: Path, baseline: Baseline) -> Path:
    """The table beside a baseline. Raises InputError where it is missing or is not the one that the baseline names."""
    table = table_path(path)
    try:
        with table.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot read the table beside the baseline: {error.strerror}",
            where=str(table),
            remedy="commit both files that `secid baseline` writes",
        ) from error
    if found != baseline.table_sha256:
        raise InputError(
            f"is not the table that {path.name} names (SHA-256 {found[:12]}…, expected {baseline.table_sha256[:12]}…)",
            where=str(table),
            remedy="commit both files of one `secid baseline` together",
        )
    return table


def differences(baseline: Baseline, settings: Mapping[str, Any], encoder: EncoderInfo | None = None) -> list[str]:
    """What makes a score incomparable with the baseline: one line a setting or recipe field, empty for none.

    settings : plain values by name.   encoder : the loaded one; None compares settings alone.
    """
    found = [
        f"{name}: baseline {_brief(baseline.settings[name])}, now {_brief(settings[name])}"
        for name in METHOD_SETTINGS
        if name in baseline.settings and baseline.settings[name] != settings[name]
    ]
    if encoder is None:
        return found
    same = encoder.fingerprint and encoder.fingerprint == baseline.encoder.fingerprint
    recipe = [
        f"encoder {name}: baseline {_brief(getattr(baseline.encoder, name))}, now {_brief(getattr(encoder, name))}"
        for name in RECIPE
        if getattr(baseline.encoder, name) != getattr(encoder, name)
    ]
    if len(recipe) == 1 and recipe[0].startswith("encoder fingerprint"):
        recipe[0] += " (all parts read the same: another version of secid may have made it)"
    return found if same else found + recipe


def _brief(value: object) -> str:
    """A value of a recipe; of a hash its first digits."""
    if isinstance(value, str):
        return f"{value[:12]}…" if len(value) == HASH_DIGITS else repr(value)
    return value_text(value)


def refuse_differences(found: list[str], where: str) -> None:
    """Raises UsageError with the whole list, where there is one."""
    if found:
        raise UsageError(
            "the baseline was made otherwise, so that scores do not compare:\n  - " + "\n  - ".join(found),
            where=where,
            remedy="gate with the baseline's settings, or score all sources anew and `secid baseline update RUN`",
        )


def changes(old: Baseline, new: Baseline) -> list[str]:
    """What an update changes, a line each, empty for none."""
    before, after = _flat(_adapter().dump_python(old, mode="json")), _flat(_adapter().dump_python(new, mode="json"))
    lines = [f"source {name}: removed" for name in old.sources if name not in new.sources]
    lines += [f"source {name}: added" for name in new.sources if name not in old.sources]
    kept = {name for name in old.sources if name in new.sources}
    for key in dict.fromkeys([*before, *after]):
        if key[0] == "sources" and key[1] not in kept:
            continue
        a, b = _rounded(before.get(key)), _rounded(after.get(key))
        if a != b:
            lines.append(f"{' '.join(key)}: {_shown(a)} → {_shown(b)}")
    return lines


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)


def _flat(value: Any, key: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    return dict(_leaves(value, key))


def _leaves(value: Any, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*key, str(name)))
    else:
        yield key, value


def baseline_schema() -> dict[str, Any]:
    """JSON Schema of the document."""
    schema = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "secid baseline", **schema}
