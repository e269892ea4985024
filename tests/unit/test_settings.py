"""Settings: one table for the command line, Python, the environment and files."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from secid.errors import SettingsError
from secid.settings import (
    DEFAULTS,
    FIELDS,
    GROUPS,
    TYPES,
    SettingsDict,
    allowed,
    assignments,
    flag_of,
    resolve,
)


def plain_type(kind: Any) -> Any:
    """A type without None, sequences by their member."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [plain_type(part) for part in get_args(kind) if part is not type(None)]
        return kinds[0] if len(kinds) == 1 else set(kinds)
    if get_origin(kind) is not None and get_origin(kind) is not Literal:
        return (get_args(kind)[0],)
    return kind


def test_the_keyword_arguments_of_python_are_the_settings():
    keywords = get_type_hints(SettingsDict)
    assert {name: plain_type(kind) for name, kind in keywords.items()} == {
        name: plain_type(kind) for name, kind in TYPES.items() if name in FIELDS.keys() - {"encoder"}
    }


def test_each_setting_has_a_help_text_and_a_known_group():
    for name, field in FIELDS.items():
        assert field.metadata["help"].endswith((".", ";")), name
        assert "METHOD" not in field.metadata["help"], name
        assert field.metadata["group"] in ("", *GROUPS), name
        assert not (field.metadata["group"] and field.default is True), f"{name}: a flag cannot switch it off"


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (("temperature", 0.1), "--temperature 0.1"),
        (("max_length", 256), "--max-length 256"),
        (("max_length",), "--max-length"),
        (("cache", False), "--set cache=no"),
        (("ablate",), "--ablate"),
        (("valid", 0.95), "--set valid=0.95"),
        (("header", False), "--set header=no"),
        (("corpus", "FILE"), "--set corpus=FILE"),
        (("tie",), "--set tie"),
    ],
)
def test_a_setting_is_named_as_it_is_typed(given, typed):
    assert flag_of(*given) == typed


def test_assignments_are_checked_as_all_settings_are():
    values = assignments(["first-k=3", "titles=no", "tie=0.01", "block=a=x,y", "block=b=x,z", "idf=own"], FIELDS)
    settings = resolve(values, environment={}).values
    assert (settings.first_k, settings.titles, settings.tie, settings.idf) == (3, False, 0.01, "own")
    assert settings.block == ("a=x,y", "b=x,z")
    assert resolve({}, environment={"SECID_BLOCK": "a=x,y;b=x,z"}).values.block == settings.block


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["vald=1"], ("'vald'", "'valid'")),
        (["nothing=1"], ("'nothing'", "first_k")),
        (["valid=1", "valid=1"], ("set twice",)),
        (["temperature=1"], ("temperature", "this command does not use")),
    ],
)
def test_a_wrong_assignment_is_refused(texts, words):
    with pytest.raises(SettingsError) as caught:
        assignments(texts, ("valid", "first_k"))
    assert caught.value.where == "--set"
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", FIELDS)
def test_a_bad_value_shows_what_is_allowed(name):
    with pytest.raises(SettingsError) as caught:
        resolve({name: [1]}, environment={})
    assert (caught.value.where, caught.value.remedy) == (flag_of(name), f"allowed: {allowed(name)}")


def test_a_default_is_allowed():
    values = {name: getattr(DEFAULTS, name) for name in FIELDS}
    assert resolve(values, environment={}).values == DEFAULTS
