"""Read, check and compare the committed baseline, and find the source in it that a new file follows."""

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
from secid.results.catalogue import DEFECTS, FINDINGS, FORMAL_FINDINGS
from secid.results.document import adapter_of, parse_document, refuse_unnamed
from secid.settings import ENCODERS, FIELDS, RECIPE_FIELDS, Dtype, Resolved, Settings, checked_settings, value_text

if TYPE_CHECKING:
    from secid.encode import EncoderLike

# A baseline is two committed files.
#
# `NAME.json` holds the numbers of the sources in use, in a form that people can read and diff. The table
# `NAME.idf.safetensors` holds the document frequencies of the pool, so that a new source is scored in the same pool. It
# also holds hashes of the labelled positives and of their word runs. The JSON file names the table's SHA-256.

BASELINE_SCHEMA_VERSION = "2.0"
DEFAULT_NAME = "secid-baseline.json"
REBUILD_REMEDY = "restore it from version control, or remove it and make it again: secid baseline RUN -o {name}"
"""Remedy for an unreadable baseline. `secid baseline update` would have to read it first."""
METHOD_SETTINGS = (
    "temperature", "tokenizer", "idf", "positives", "first_k", "max_records", "seed", "titles",
    "high_coverage",
)  # fmt: skip
"""Settings that change a score. They must equal the baseline's."""
RECORDED_RECIPE = (
    "name", "revision", "weights_sha256", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize",
    "dim", "dtype", "fingerprint",
)  # fmt: skip
ENCODER_SETTINGS = ("encoder", *RECIPE_FIELDS)
"""Settings that identify the encoder."""
GUIDE_NAME_SETTINGS = ("guide", "guide_reranker")
MAX_NUMBER = 1e3
"""Upper bound of scores and hardness in a valid baseline."""
HASH_DIGITS = 64
"""Number of hexadecimal digits of a SHA-256."""
UNRELATED_QUANTILE = 0.02
"""Quantile of Sample.relation in the baseline below which a negative counts as unrelated to its query."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A number of the baseline, with its standard error over `n_queries` distinct queries."""

    value: float
    standard_error: float
    n_queries: int


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The unrelated negatives. bound : upper bound of their relation to the query.   share : share below it."""

    bound: float
    share: Measurement


@dataclass(frozen=True, kw_only=True)
class BaselineSource:
    """A source of the baseline.

    hardness  : hardness of the source; None if the run could not compute it.
    findings  : share of the negatives with each finding, by name; for a formal finding, minus that of the positives.
    positives : share of the positives with each formal finding, by name.
    languages : share of each language in a sample of the negatives, by ISO 639-1 code.
    files     : SHA-256 of each file, by file name.
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
        """Return ECI_sem with its standard error."""
        return Measurement(value=self.score_nats, standard_error=self.standard_error_nats, n_queries=self.n_queries)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The content of NAME.json.

    table_sha256 : hash of the baseline's table.   guide : fingerprint of its guide; None without one.
    settings : settings of the method, the encoder and the guide.
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
    """Return the baseline as indented JSON that ends with a line feed."""
    document = adapter_of(Baseline).dump_python(baseline, mode="json")
    return encodable(json.dumps(_rounded(document), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _rounded(value: Any) -> Any:
    """Round to nine significant digits. This is enough for every check, and another machine gives the same file."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def baseline_from_json(text: str | bytes, where: str) -> Baseline:
    """Parse a baseline. Raises InputError if the text is not one, or has another major version."""
    rebuild = REBUILD_REMEDY.format(name=Path(where).name)
    baseline: Baseline = parse_document(Baseline, text, where, BASELINE_SCHEMA_VERSION, "baseline", rebuild)
    if not baseline.sources:
        raise InputError("the baseline has no source", where=where, remedy=rebuild)
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
    """Check that every setting has a valid value. Raises InputError that names the setting."""
    missing = [name for name in METHOD_SETTINGS if name not in settings]
    if missing:
        raise InputError(f"not a valid baseline: settings.{missing[0]} is missing", where=where, remedy=remedy)
    try:
        checked_settings(
            {name: value for name, value in settings.items() if name in FIELDS}, dict.fromkeys(settings, where)
        )
    except SettingsError as error:
        raise InputError(f"not a valid baseline: settings.{error.message}", where=where, remedy=remedy) from None


def _invalid_fields(source: BaselineSource) -> Iterator[str]:
    """Yield the names of fields of a source that are missing or hold an invalid number."""
    yield from (name for name in ("n_records", "n_queries", "n_negatives") if getattr(source, name) < 1)
    for key, value in _leaves(asdict(source)):
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, float) and not isfinite(number) for number in numbers):
            yield ".".join(key)
    shares = {f"findings.{name}": share for name, share in source.findings.items()}
    shares["unrelated.share"] = source.unrelated.share
    known: dict[str, Measurement | None] = {**shares, "hardness": source.hardness, "score_nats": source.score()}
    for name, measurement in known.items():
        if measurement and not (
            0.0 <= measurement.standard_error < MAX_NUMBER
            and measurement.n_queries >= 1
            and abs(measurement.value) < MAX_NUMBER
        ):
            yield name
    lowest = {f"findings.{name}": -1.0 for name in FORMAL_FINDINGS}
    yield from (name for name, share in shares.items() if not lowest.get(name, 0.0) <= share.value <= 1.0)
    yield from (
        f"positives.{name}" for name in FORMAL_FINDINGS if name in source.findings and name not in source.positives
    )
    texts = {**source.languages, **source.positives}
    yield from (name for name, share in texts.items() if not 0.0 <= share <= 1.0)
    yield from (f"findings.{name}" for name in DEFECTS if name not in source.findings)
    yield from (f"findings.{name}" for name in source.findings if name not in FINDINGS)


def read_baseline(path: Path) -> Baseline:
    """Read NAME.json; its table is read later. Raises InputError."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                "is a pipe or a device, but a baseline is read more than once", where=str(path), remedy="use a file"
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
    """Return the path of NAME.idf.safetensors, in the folder of NAME.json."""
    return path.with_name(f"{path.name.removesuffix('.json')}.idf.safetensors")


def check_table(path: Path, baseline: Baseline) -> Path:
    """Return the path of a baseline's table. Raises InputError if it is missing or has another hash."""
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
            f"does not belong to {path.name} (its SHA-256 is {sha256[:12]}…, expected {baseline.table_sha256[:12]}…)",
            where=str(table),
            remedy="commit both files that one run of `secid baseline` writes",
        )
    return table


def differences(baseline: Baseline, settings: Mapping[str, Any], encoder: EncoderInfo | None = None) -> list[str]:
    """Return the differences that make scores incomparable with the baseline, a line for each; [] if there are none.

    settings : values by name.   encoder : the loaded encoder; None to compare only settings.
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
        for name in RECORDED_RECIPE
        if getattr(baseline.encoder, name) != getattr(encoder, name)
    ]
    if len(recipe) == 1 and recipe[0].startswith("encoder fingerprint"):
        recipe[0] += " (all other fields are equal; another version of secid may have computed the fingerprint)"
    return lines if same else lines + recipe


def _brief(value: object) -> str:
    if isinstance(value, str):
        return f"{value[:12]}…" if len(value) == HASH_DIGITS else repr(value)
    return value_text(value)


def refuse_differences(lines: list[str], where: str) -> None:
    """Raise UsageError with the list of differences, unless it is empty."""
    if lines:
        raise UsageError(
            "the scores are not comparable with the baseline:\n  - " + "\n  - ".join(lines),
            where=where,
            remedy="use the baseline's settings, or score all sources again and run `secid baseline update RUN`",
        )


def changes(old: Baseline, new: Baseline) -> list[str]:
    """Return the changes that an update makes, a line for each; [] without changes."""
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


# A new file follows the source of the baseline that has the same name without dates, versions and shard numbers. These
# all follow `dense`:
#
#     dense-2025-11.jsonl   dense_20251103.parquet   dense-v2   dense.part-00003-of-00010

SEPARATOR = r"[-_. ]"
DATE_ENDING = r"20[12]\d(?:[-_.]?(?:0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12]\d|3[01]))?|[-_.]?[wq]\d{1,2})?"
VERSION_WORD = r"v\d+(?:\.\d+)*"
SHARD_ENDING = r"(?:part|shard)[-_.]?\d+(?:[-_.]of[-_.]\d+)?|\d+[-_.]of[-_.]\d+"
NAME_ENDING = re.compile(rf"{SEPARATOR}+(?:{DATE_ENDING}|{VERSION_WORD}|{SHARD_ENDING})$", re.IGNORECASE)
"""A date (2025, 2025-11, 20251103, 2025-w45), a version (v2, v1.3) or a shard (part-3, 00003-of-00010) at the end of a
name. A bare number does not match, so dense_rank_20_30 does not follow dense_rank_10_20."""
DIGITS = re.compile(r"(\d+)")


def undated_name(name: str) -> str:
    """Remove dates, versions and shard numbers from the end of a name. A name that is only one of these stays.

    >>> undated_name("dense-2025-11-v2"), undated_name("bm25.part-00003-of-00010"), undated_name("dense_rank_10_20")
    ('dense', 'bm25', 'dense_rank_10_20')
    """
    while (shorter := NAME_ENDING.sub("", name)) and shorter != name:
        name = shorter
    return name


def predecessor(name: str, known: Iterable[str], names: Mapping[str, str], where: str) -> str | None:
    """Return the source of the baseline that `name` follows; None for a new source.

    If several sources have the same undated name, the latest one is returned; numbers in names are compared as numbers.

    known : names of the baseline's sources.   where : origin of the policy, for messages.
    names : the policy's [gate.names]. It maps a name, or an undated name, to a source of the baseline.
    Raises SettingsError if the policy names a source that the baseline does not have.
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
    """Return a sort key that compares numbers as numbers, so that v10 comes after v9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in DIGITS.split(name)]


# Sources are scored with the baseline's settings unless the user set others. No heavy module is imported here.


def settings_for(baseline: Baseline, resolved: Resolved) -> Resolved:
    """Return the settings to score with: the user's, and the baseline's for all others. Controls are off.

    Raises UsageError with the list of differences if the user's settings are not comparable with the baseline's.
    """
    values, origin = vars(resolved.values).copy(), dict(resolved.origin)
    guides = GUIDE_NAME_SETTINGS if all(origin[name] == "default" for name in GUIDE_NAME_SETTINGS) else ()
    for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS, *guides, "guide_sample"):
        if origin[name] == "default" and name in baseline.settings:
            values[name], origin[name] = baseline.settings[name], "baseline"
    dtype = baseline.encoder.dtype  # "auto" may have meant bf16 on the baseline's GPU; the gate may run on a CPU
    if origin["dtype"] == "default" and dtype in get_args(Dtype) and baseline.encoder.pooling != "precomputed":
        values["dtype"], origin["dtype"] = dtype, "baseline"
    values |= {"controls": "none", "budget": 1.0, "ablate": False, "objectives": False, "until_ranked": None}
    refuse_differences(differences(baseline, values), "settings")
    return Resolved(Settings(**values), origin)


def refuse_encoders_of_baseline(resolved: Resolved, encoder: EncoderLike | None, where: str) -> None:
    """Raise EncoderError for a local or remote encoder or guide that only the baseline names, not the user.

    resolved : result of `settings_for`.   encoder : object to use as the encoder, if any.   where : baseline's path.
    """
    for name in ENCODERS if encoder is None or isinstance(encoder, str) else GUIDE_NAME_SETTINGS:
        if resolved.origin[name] == "baseline":
            refuse_unnamed(getattr(resolved.values, name), name, where)
