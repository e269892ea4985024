"""The gate's policy: its limits, its files and its errors. This module loads neither torch nor numpy.

A missing key takes the limit derived from the baseline (`secid.tools.gating.limits`); "off" skips a check.
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
    """A table of the policy. Unknown keys are errors, values never change. It is built on first use, to save time."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


if TYPE_CHECKING:

    class FindingsPolicy(PolicyTable):
        """A key for each finding."""

else:
    FindingsPolicy = create_model(
        "FindingsPolicy",
        __base__=PolicyTable,
        __doc__="Largest share of a source's negatives that may have a finding.",
        **{
            name: (Fraction | Off | None, Field(None, description=f"{entry.rule}.")) for name, entry in FINDINGS.items()
        },
    )

Tolerance = Positive | Off | None


class DriftPolicy(PolicyTable):
    """Largest distance of a source from its predecessor in the baseline, in either direction."""

    score_nats: Tolerance = Field(None, description="ECI_sem, in nats.")
    unrelated: Tolerance = Field(
        None,
        description="Share of negatives less related to their query (cosine plus coverage) than 98 % of the "
        "predecessor's.",
    )


class Policy(PolicyTable):
    """The `[gate]` table."""

    model_config = ConfigDict(title="secid gate policy")

    minimum_queries: Count | None = Field(
        None, description="Distinct queries below which a source that does not fail is undecided."
    )
    new_source: Literal["allow", "hold"] = Field(
        "allow", description="A source without a predecessor in the baseline: judge it, or hold it for review."
    )
    allow_undecided: tuple[str, ...] = Field(
        (), description="Names of checks that may stay undecided; any other undecided check holds the source (exit 3)."
    )
    defects_maximum: Fraction = Field(
        DEFECT_LIMIT,
        description="Largest share of the negatives that may have a counted defect, whatever the baseline has; the "
        "[gate.findings] table can give one of them another limit.",
    )
    hardness_minimum: Annotated[float, Field(ge=-1.0, le=2.0, strict=True)] | Off | None = Field(
        None, description="Least hardness: 0 as easy as random passages, 1 as near to the query as the positive."
    )
    languages_maximum: Fraction | Off | None = Field(
        None, description="Largest share of the negatives in languages that the baseline does not have."
    )
    names: Mapping[str, str] = Field(
        default_factory=dict, description='New names of sources of the baseline: new = "known".'
    )
    findings: FindingsPolicy = Field(default_factory=FindingsPolicy)
    drift: DriftPolicy = Field(default_factory=DriftPolicy)


KEYS_IN: Mapping[str, tuple[str, ...]] = {"secid.toml": ("gate",), "pyproject.toml": ("tool", "secid", "gate")}
"""Settings files that may contain a policy, and the path of its table."""
MISSPELT = 0.85
"""Least similarity of a misspelt key of the policy: one wrong letter in seven. Tables of other tools are below it."""


def read_policy(path: Path | None, directory: Path | None = None) -> tuple[Policy, str]:
    """Return the policy and its file; an empty policy and "" if there is none.

    path : a file of the user, with a [gate] table or only the policy. If it is None, the files of KEYS_IN in
           `directory` are read, by default those in the working directory.
    Raises SettingsError that names the key and the nearest known key, UsageError if `path` is not a file.
    """
    base = directory or Path.cwd()
    if path is not None:
        if not path.is_file():
            message = (
                "is a pipe, a device or a folder; a policy is read more than once"
                if path.exists()
                else "no such policy file"
            )
            remedy = "use a file" if path.exists() else "secid gate --init writes one"
            raise UsageError(message, where=str(path), remedy=remedy)
        table = _toml(path)
        policy = policy_in(table, path.name, str(path))
        if policy is None and path.name in KEYS_IN:
            raise SettingsError(
                f"has no [{'.'.join(KEYS_IN[path.name])}] table",
                where=str(path),
                remedy="secid gate --init --policy FILE adds one",
            )
        return policy or parse_policy(table, str(path)), str(path)
    for name in KEYS_IN:
        policy = policy_in(_toml(base / name), name, name) if (base / name).is_file() else None
        if policy is not None:
            return policy, name
    return Policy(), ""


def table_in(table: Mapping[str, Any], name: str) -> Any:
    """Return the policy's table in a TOML document, by the name of its file; None if there is none."""
    value: Any = table
    for key in KEYS_IN.get(name, ("gate",)):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def policy_in(table: Mapping[str, Any], name: str, where: str) -> Policy | None:
    """Return the policy of a TOML document, by the name of its file; None if it has none. Raises SettingsError."""
    policy_table = table_in(table, name)
    if policy_table is None:
        return None
    _refuse_misplaced(table, name, where)
    return parse_policy(policy_table, where)


def _refuse_misplaced(table: Mapping[str, Any], name: str, where: str) -> None:
    """Refuse a limit outside the policy's table, which nothing would read. Raises SettingsError.

    Tables of other tools are allowed there, and so are secid's settings, one of which has the name of a policy table.
    """
    *above, last = KEYS_IN.get(name, ("gate",))
    for key in above:
        table = table[key]
    for key, value in table.items():
        near = difflib.get_close_matches(key, Policy.model_fields, n=1, cutoff=MISSPELT)
        if near and (key not in FIELDS or isinstance(value, Mapping)):
            path = ".".join([*above, key])
            remedy = f"did you mean {'.'.join([*above, last, near[0]])!r}?"
            raise SettingsError(f"{path!r} is outside the policy's table", where=where, remedy=remedy)


def parse_policy(table: Any, where: str) -> Policy:
    """Parse a policy from a TOML table. Raises SettingsError, one line, with a suggestion for an unknown key."""
    if not isinstance(table, Mapping):
        raise SettingsError(f"the policy is {type(table).__name__}, expected a table", where=where)
    try:
        policy = Policy.model_validate(table)
    except ValidationError as error:
        raise _explained(error, where) from None
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
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _explained(error: ValidationError, where: str) -> SettingsError:
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    place = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        known = [*_model_at(place[:-1]).model_fields, *(["gate"] if len(place) == 1 else [])]
        return SettingsError(f"unknown key {'.'.join(place)!r}", where=where, remedy=_nearest(place[-1], known))
    key = ".".join(part for part in place if part in KEYS)
    if problem["type"] == "model_type":
        message = f"{key} = {problem['input']!r} is not allowed: it is a table"
        return SettingsError(message, where=where, remedy=f'write a [gate.{key}] table; limits in it may be "off"')
    may_be_off = any("'off'" in problem["msg"] for problem in problems)
    return SettingsError(
        f"{key} = {problem['input']!r} is not allowed: {problem['msg'].lower()}",
        where=where,
        remedy='give a value in range, or "off" to skip the check' if may_be_off else None,
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
"""Checks that have a limit."""
CHECK_NAMES = ("queries", *LIMITED_CHECKS, "new_source")
"""Names of all checks."""
