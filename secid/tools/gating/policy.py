"""Read the gate's policy from TOML, and explain its errors. This module loads neither torch nor numpy.

If a key is missing, the limit is derived from the baseline (`secid.tools.gating.limits`); "off" skips the check.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from secid.errors import SettingsError, UsageError, suggest_name
from secid.results.catalogue import DEFECT_LIMIT, FINDINGS
from secid.settings import FIELDS, read_toml

Off = Literal["off"]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0, strict=True)]
Positive = Annotated[float, Field(ge=0.0, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


class PolicyTable(BaseModel):
    """A table of the policy. Unknown keys are errors, and values are frozen. To save time it is built on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


if TYPE_CHECKING:

    class FindingsPolicy(PolicyTable):
        """The [gate.findings] table, with a key for each finding."""

else:
    FindingsPolicy = create_model(
        "FindingsPolicy",
        __base__=PolicyTable,
        __doc__="Maximum share of a source's negatives with each finding.",
        **{
            name: (Fraction | Off | None, Field(None, description=f"{entry.rule}.")) for name, entry in FINDINGS.items()
        },
    )

Tolerance = Positive | Off | None


class DriftPolicy(PolicyTable):
    """Maximum distance of a source from its predecessor in the baseline."""

    score_nats: Tolerance = Field(None, description="Distance of ECI_sem in nats, in either direction.")
    unrelated: Tolerance = Field(
        None,
        description="Increase in the share of unrelated negatives. A negative is unrelated if its relation to the "
        "query (cosine plus coverage) is below that of 98 % of the predecessor's negatives.",
    )


class Policy(PolicyTable):
    """The `[gate]` table."""

    model_config = ConfigDict(title="secid gate policy")

    minimum_queries: Count | None = Field(
        None, description="Minimum distinct queries. A source with fewer is undecided, unless a check fails."
    )
    new_source: Literal["allow", "hold"] = Field(
        "allow", description="Judge a source without a predecessor in the baseline (allow), or hold it for review."
    )
    allow_undecided: tuple[str, ...] = Field(
        (), description="Names of checks that may be undecided. Any other undecided check holds the source (exit 3)."
    )
    defects_maximum: Fraction = Field(
        DEFECT_LIMIT,
        description="Maximum share of the negatives with a counted defect, whatever its share in the baseline. The "
        "[gate.findings] table can set another limit for a single defect.",
    )
    hardness_minimum: Annotated[float, Field(ge=-1.0, le=2.0, strict=True)] | Off | None = Field(
        None,
        description="Minimum hardness. 0 means as far from the query as random passages, 1 as near as the positive.",
    )
    languages_maximum: Fraction | Off | None = Field(
        None, description="Maximum share of the negatives in languages that the baseline does not have."
    )
    names: Mapping[str, str] = Field(
        default_factory=dict, description='New names of the baseline\'s sources: new-name = "name in the baseline".'
    )
    findings: FindingsPolicy = Field(default_factory=FindingsPolicy)
    drift: DriftPolicy = Field(default_factory=DriftPolicy)


POLICY_TABLES: Mapping[str, tuple[str, ...]] = {"secid.toml": ("gate",), "pyproject.toml": ("tool", "secid", "gate")}
"""Settings files that may contain a policy, and the path of its table."""
MIN_KEY_SIMILARITY = 0.85
"""Minimum similarity at which a key counts as a misspelt key of the policy: one wrong letter in seven."""


def read_policy(path: Path | None) -> tuple[Policy, str]:
    """Return the policy and the file that it is from; an empty policy and "" if there is none.

    path : a file with a [gate] table, or with nothing but the policy. None to look in the files of POLICY_TABLES.
    Raises SettingsError that names the key and the nearest known key, UsageError if `path` is not a file.
    """
    if path is not None:
        if not path.is_file():
            message = (
                "is a pipe, a device or a folder, but a policy is read more than once"
                if path.exists()
                else "no such policy file"
            )
            remedy = "use a file" if path.exists() else "secid gate --init writes one"
            raise UsageError(message, where=str(path), remedy=remedy)
        table = _toml(path)
        policy = policy_in(table, path.name, str(path))
        if policy is None and path.name in POLICY_TABLES:
            raise SettingsError(
                f"has no [{'.'.join(POLICY_TABLES[path.name])}] table",
                where=str(path),
                remedy="add one: secid gate --init --policy FILE",
            )
        return policy or parse_policy(table, str(path)), str(path)
    for name in POLICY_TABLES:
        policy = policy_in(_toml(Path(name)), name, name) if Path(name).is_file() else None
        if policy is not None:
            return policy, name
    return Policy(), ""


def table_in(table: Mapping[str, Any], name: str) -> Any:
    """Return the policy's table in a TOML document; None if there is none. name: file name, which decides the table."""
    value: Any = table
    for key in POLICY_TABLES.get(name, ("gate",)):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def policy_in(table: Mapping[str, Any], name: str, where: str) -> Policy | None:
    """Return the policy of a TOML document; None if it has none. name: as in `table_in`. Raises SettingsError."""
    policy_table = table_in(table, name)
    if policy_table is None:
        return None
    _refuse_misplaced(table, name, where)
    return parse_policy(policy_table, where)


def _refuse_misplaced(table: Mapping[str, Any], name: str, where: str) -> None:
    """Raise SettingsError for a key of the policy outside its table, where it would be ignored.

    Keys of other tools and secid's settings are allowed there. One setting has the same name as a table of the policy,
    so it is refused only if its value is a table.
    """
    *above, last = POLICY_TABLES.get(name, ("gate",))
    for key in above:
        table = table[key]
    for key, value in table.items():
        near = difflib.get_close_matches(key, Policy.model_fields, n=1, cutoff=MIN_KEY_SIMILARITY)
        if near and (key not in FIELDS or isinstance(value, Mapping)):
            path = ".".join([*above, key])
            remedy = f"did you mean {'.'.join([*above, last, near[0]])!r}?"
            raise SettingsError(
                f"{path!r} is outside the policy's table and would be ignored", where=where, remedy=remedy
            )


def parse_policy(table: Any, where: str) -> Policy:
    """Parse a policy from a TOML table. Raises SettingsError, with a suggestion for an unknown key."""
    if not isinstance(table, Mapping):
        message = f"the policy must be a table, got {type(table).__name__}"
        raise SettingsError(message, where=where, remedy="write the policy under [gate]")
    try:
        policy = Policy.model_validate(table)
    except ValidationError as error:
        raise _settings_error(error, where) from None
    unknown = [name for name in policy.allow_undecided if name not in CHECK_NAMES]
    if unknown:
        raise SettingsError(
            f"unknown check {unknown[0]!r} in allow_undecided", where=where, remedy=_nearest(unknown[0], CHECK_NAMES)
        )
    return policy


def _toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="name a TOML file with --policy"
        ) from error


def _settings_error(error: ValidationError, where: str) -> SettingsError:
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        known = [*_model_at(place[:-1]).model_fields, *(["gate"] if len(place) == 1 else [])]
        return SettingsError(f"unknown key {'.'.join(place)!r}", where=where, remedy=_nearest(place[-1], known))
    key = ".".join(part for part in place if part in KEYS)
    if problem["type"] == "model_type":
        message = f"{key} must be a table, got {problem['input']!r}"
        return SettingsError(message, where=where, remedy=f'write a [gate.{key}] table; limits in it may be "off"')
    may_be_off = any("'off'" in problem["msg"] for problem in problems)
    return SettingsError(
        f"{key} = {problem['input']!r} is not allowed: {problem['msg'].lower().replace('input', 'it')}",
        where=where,
        remedy='correct it, or use "off" to skip the check' if may_be_off else "correct it",
    )


def _model_at(place: list[str]) -> type[BaseModel]:
    model: type[BaseModel] = Policy
    for part in place:
        kind = model.model_fields[part].annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return model
        model = kind
    return model


def _nearest(name: str, known: Any) -> str:
    return suggest_name(name, known, f"known: {', '.join(known)}")


def tables() -> dict[str, type[PolicyTable]]:
    """Return the tables inside the policy, by name, in order."""
    models = {}
    for name, field in Policy.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, PolicyTable):
            models[name] = kind
    return models


KEYS = {*Policy.model_fields, *(key for table in tables().values() for key in table.model_fields)}
LIMITED_CHECKS = (
    "languages",
    "hardness",
    *(f"findings.{name}" for name in FINDINGS),
    *(f"drift.{name}" for name in DriftPolicy.model_fields),
)
"""Names of the checks that have a limit."""
CHECK_NAMES = ("queries", *LIMITED_CHECKS, "new_source")
"""Names of all checks."""
