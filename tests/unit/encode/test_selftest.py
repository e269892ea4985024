"""The self-test passes on sound encoders, and each of its checks can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import secid
from secid.encode import batch_noise, describe, from_callable, load, self_test, smallest_distance
from secid.encode.encoder import EncodedBatch, in_text_order
from secid.errors import EncoderError
from secid.pages.formats import RUN_FORMATS
from secid.records import Fact
from secid.settings import Settings
from tests.snapshots import refusal

from .conftest import text_keys

Tiny = Callable[[str], Path]


def rows(texts: list[str], role: str) -> np.ndarray:
    return np.array([[len(text), len(set(text)), 1.0 + (role == "query")] for text in texts], dtype=np.float32)


def outcomes(encoder: Any) -> dict[str, str]:
    return {check.name: check.outcome for check in self_test(encoder)}


def as_float32(encoder: Any, **changes: Any) -> Any:
    encoder.info = replace(encoder.info, dtype="float32", **changes)
    return encoder


def test_a_sound_encoder_passes(tiny: Tiny) -> None:
    encoder = load(Settings(encoder=str(tiny("bert")), device="cpu"))
    assert set(outcomes(encoder).values()) == {"pass"}
    assert batch_noise(encoder) < 1e-5
    assert smallest_distance(encoder) == 1e-3


def test_noise_sets_the_limit_of_other_formats(tiny: Tiny) -> None:
    encoder = load(Settings(encoder=str(tiny("bert")), device="cpu", dtype="bf16"))
    assert smallest_distance(encoder) == max(10 * batch_noise(encoder), 1e-3)
    assert outcomes(encoder)["batch"] == "pass"


def test_noise_that_drowns_near_copies_fails() -> None:
    def noisy(texts: list[str], role: str) -> np.ndarray:
        return rows(texts, role) * (1.0 + 0.05 * np.array([len(texts) > 1, 0.0, 0.0]))

    encoder = from_callable(noisy, "x")
    assert batch_noise(encoder) > 0.015
    assert outcomes(encoder)["batch"] == "fail"


def test_noise_that_drowns_near_copies_is_a_warning_of_the_run() -> None:
    def hashed(texts: list[str], role: str) -> np.ndarray:
        keys = text_keys(texts, "passage").astype(np.float32) - 127.5
        return keys * (1.0 if role == "query" or len(texts) == 1 else NOISE[:16])

    run = secid.score([SOURCE], from_callable(hashed, "x"), controls="none", cache=False)
    quiet = secid.score([SOURCE], from_callable(rows, "x"), controls="none", cache=False)
    batch = [check for check in self_test(from_callable(hashed, "x")) if check.name == "batch"]
    assert [check.outcome for check in batch] == ["fail"]
    assert [w.kind for w in run.warnings if w not in quiet.warnings] == ["noisy_encoder"]


def test_cuts_that_are_unknown_are_no_zeros(tmp_path: Path) -> None:
    run = secid.score([SOURCE], from_callable(rows, "x"), run=tmp_path / "run", controls="none", cache=False)
    assert run.not_evaluated["truncated"]
    assert run.sources[0].finding("truncated") is None
    assert "truncated" not in run.sources[0].finding_overlaps
    assert "n_truncated" not in run.timing["encode"]
    column = pq.read_table(tmp_path / "run" / "negatives.parquet")["in_truncated"]
    assert column.null_count == len(column) > 0
    assert "| truncated | 0.0 %" not in RUN_FORMATS[".md"](run)


def test_settings_that_an_encoder_object_does_not_follow_are_named() -> None:
    ignored = (Fact("unused_by_object", {"flags": "--set pooling, --max-length, --dtype"}),)
    given = {"pooling": "cls", "max_length": 8, "dtype": "bf16", "temperature": 0.1}
    encoder = from_callable(rows, "x", fingerprint="x")
    run = secid.score([SOURCE], encoder, controls="none", cache=False, **given)
    for facts in (run.encoder.facts, secid.describe_encoder(encoder, **given).info.facts):
        assert facts == ignored
    assert secid.score([SOURCE], encoder, controls="none", cache=False).encoder.facts == ()


def test_threads_are_set_for_any_encoder() -> None:
    before, counts = torch.get_num_threads(), set()

    def threads(texts: list[str], role: str) -> np.ndarray:
        counts.add(torch.get_num_threads())
        return rows(texts, role)

    encoder = from_callable(threads, "x")
    counts.clear()
    try:
        secid.score([SOURCE], encoder, controls="none", cache=False, threads=before + 1)
    finally:
        torch.set_num_threads(before)
    assert counts == {before + 1}


NOISE = np.random.default_rng(0).normal(1.0, 0.1, 16).astype(np.float32)
SOURCE = str(Path(__file__).parents[3] / "fixtures" / "sources" / "random.jsonl")


def test_non_finite_rows_fail() -> None:
    def broken(texts: list[str], role: str) -> np.ndarray:
        values = rows(texts, role)
        values[0, 0] = np.nan
        return values

    encoder = as_float32(from_callable(broken, "x"))
    assert outcomes(encoder) == {"finite": "fail"}  # one cause is named once
    assert describe(encoder).unsettled == ("finite",)


@pytest.mark.filterwarnings("error")
def test_rows_of_zeros_fail_and_nothing_else_is_asked_of_them() -> None:
    encoder = from_callable(rows, "x")
    encoder.encode = lambda texts, role: np.zeros((len(texts), 3), dtype=np.float32)
    assert outcomes(encoder) == {"finite": "pass", "unit": "fail"}


def test_rows_that_are_not_unit_fail() -> None:
    encoder = as_float32(from_callable(rows, "x", normalize=False))
    assert outcomes(encoder)["unit"] == "pass"  # any length will do, zero excepted
    nothing = from_callable(lambda texts, role: np.zeros((len(texts), 3)), "x", normalize=False)
    with np.errstate(invalid="ignore"):
        assert outcomes(as_float32(nothing))["unit"] == "fail"
    assert outcomes(as_float32(encoder, normalize=True))["unit"] == "pass"  # it now scales, as its info says
    encoder.encode = rows
    assert outcomes(encoder)["unit"] == "fail"


def test_texts_that_get_one_row_fail() -> None:
    alike = from_callable(lambda texts, role: np.ones((len(texts), 3)), "x")
    assert outcomes(alike)["texts"] == "fail"
    assert outcomes(from_callable(rows, "x"))["texts"] == "pass"


def test_roles_that_are_the_same_fail() -> None:
    encoder = as_float32(from_callable(lambda texts, role: rows(texts, "query"), "x"), query_prefix="query: ")
    assert outcomes(encoder)["roles"] == "fail"
    assert outcomes(as_float32(from_callable(rows, "x"), query_prefix="query: "))["roles"] == "pass"
    assert outcomes(as_float32(from_callable(rows, "x")))["roles"] == "not evaluated"


def test_roles_that_differ_without_a_prefix_fail(tiny: Tiny) -> None:
    encoder = as_float32(from_callable(rows, "x"), rules={"query_prefix": "default"})
    assert outcomes(encoder)["roles"] == "fail"
    plain = load(Settings(encoder=str(tiny("bert")), device="cpu", query_prefix="", passage_prefix=""))
    assert outcomes(plain)["roles"] == "pass"


def test_rows_that_depend_on_their_company_fail() -> None:
    def sociable(texts: list[str], role: str) -> np.ndarray:
        return rows(texts, role) + 0.1 * len(texts)

    encoder = as_float32(from_callable(sociable, "x"))
    assert outcomes(encoder)["batch"] == "fail"
    assert batch_noise(encoder) > 1e-3


@pytest.mark.parametrize(
    "bad",
    [lambda t, r: [1.0], lambda t, r: [["x"]], lambda t, r: np.ones((2, 3)), lambda t, r: [[]], lambda t, r: None],
)
def test_functions_that_return_something_else(bad: Any) -> None:
    with pytest.raises(EncoderError):
        from_callable(bad, "bad")


def test_a_function_whose_dimension_changes() -> None:
    encoder = from_callable(lambda texts, role: np.ones((len(texts), len(texts) + 1)), "x")
    message = refusal(lambda: encoder.encode(["a", "b"], "query"), EncoderError, "x")
    assert all(part in message for part in ("(2, 3)", "(2, 2)"))
    assert "from_callable(" in refusal(lambda: from_callable(rows, ""), EncoderError, None)
    assert encoder.encode([], "query").shape == (0, 2)


def test_gather_notices_lost_and_doubled_texts() -> None:
    def batch(*places: int) -> EncodedBatch:
        count = len(places)
        return EncodedBatch(np.array(places), np.ones((count, 2), np.float32), np.zeros(count, np.bool_), 0)

    assert in_text_order([batch(1), batch(0, 2)], 3, 2).shape == (3, 2)
    for batches in ([batch(0, 1)], [batch(0, 1, 2), batch(2)]):
        with pytest.raises(ValueError, match="1 of 3"):
            in_text_order(batches, 3, 2)


def test_an_error_of_a_function_names_its_texts_and_the_probe():
    table = {"dimension": [1.0, 2.0]}

    def looked_up(texts: list[str], role: str) -> list[list[float]]:
        return [table[text] for text in texts]

    encoder = from_callable(looked_up, "my table")
    message = refusal(lambda: encoder.encode(["tides", "moon"], "passage"), EncoderError, "my table")
    assert all(part in message for part in ("2 passage", "KeyError: 'tides'", "'dimension'"))
    del table["dimension"]
    message = refusal(lambda: from_callable(looked_up, "my table"), EncoderError, "my table")
    assert all(part in message for part in ("1 passage", "KeyError: 'dimension'"))


@pytest.mark.parametrize("kind", ["grad", "bf16", "list"])
def test_a_function_may_return_tensors_of_any_kind(kind):
    def encode(texts: list[str], role: str) -> Any:
        values = torch.from_numpy(rows(texts, role))
        if kind == "list":
            return list(values.requires_grad_())
        return values.bfloat16() if kind == "bf16" else values.requires_grad_()

    result = from_callable(encode, "tensors").encode(["a", "abc"], "query")
    expected = rows(["a", "abc"], "query")
    np.testing.assert_allclose(result, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
