"""Vectors from a file, looked up by text, hash or row order, and everything that may be wrong with it."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.encode import describe, embed, from_callable, load, self_test, smallest_distance
from secid.errors import EncoderError
from secid.pages.encoder_page import encoder_screen, fact_lines
from secid.records import Fact
from secid.results.document import json_of
from secid.settings import Settings
from tests.encrypted import save_encrypted
from tests.snapshots import Snapshot, refusal, situations

from .conftest import embedded

TEXTS = ["one", "two", "drei ü", "東京"]
HASHES = [hashlib.sha256(text.encode()).hexdigest() for text in TEXTS]
ROWS = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)


def encoder(path: Path, **settings: Any) -> Any:
    return load(Settings(encoder=str(path), **settings))


def save(path: Path, layout: str) -> Path:
    """The four vectors in one of the layouts the docstring names."""
    if layout == "npz text_sha256":
        np.savez(path / "v.npz", vectors=UNIT, text_sha256=np.array(HASHES))
    elif layout == "npz text":
        np.savez(path / "v.npz", embeddings=UNIT, text=np.array(TEXTS))
    elif layout == "npz row order":
        np.savez(path / "v.npz", vectors=UNIT)
        lines = [json.dumps(text) if place % 2 else json.dumps({"text": text}) for place, text in enumerate(TEXTS)]
        (path / "v.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif layout == "parquet text_sha256":
        pq.write_table(pa.table({"text_sha256": HASHES, "vector": UNIT.tolist()}), path / "v.parquet")
    else:
        fixed = pa.FixedSizeListArray.from_arrays(UNIT.ravel(), 5)
        pq.write_table(pa.table({"text": TEXTS, "embedding": fixed}), path / "v.parquet", row_group_size=3)
    return path / ("v.npz" if layout.startswith("npz") else "v.parquet")


LAYOUTS = ["npz text_sha256", "npz text", "npz row order", "parquet text_sha256", "parquet fixed text"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_by_text(tmp_path: Path, layout: str) -> None:
    found = encoder(save(tmp_path, layout))
    assert np.abs(found.encode([*TEXTS[::-1], "one"], "query") - UNIT[[3, 2, 1, 0, 0]]).max() < 1e-6
    assert found.encode([], "passage").shape == (0, 5)
    assert (found.info.dim, found.info.normalize, found.info.dtype) == (5, True, "float32")
    assert found.info.weights_sha256


def test_a_file_that_changes_during_the_run_changes_nothing(tmp_path: Path) -> None:
    path = save(tmp_path, "npz text")
    encoder_of_file = encoder(path)
    with path.open("r+b") as file:
        file.truncate(16)
    assert np.abs(encoder_of_file.encode(TEXTS, "query") - UNIT).max() < 1e-6


def test_an_encrypted_parquet_file_is_called_encrypted(tmp_path: Path) -> None:
    path = save_encrypted(tmp_path / "v.parquet", pa.table({"text": TEXTS, "vector": UNIT.tolist()}))
    assert "it is encrypted" in refusal(lambda: encoder(path), EncoderError, path)


def test_roles_tell_two_vectors_of_a_text_apart(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, vectors=UNIT[:2], text=np.array(["same", "same"]), role=np.array(["query", "passage"]))
    found = encoder(path)
    assert np.abs(found.encode(["same"], "query") - UNIT[:1]).max() < 1e-6
    assert np.abs(found.encode(["same"], "passage") - UNIT[1:2]).max() < 1e-6


def test_texts_in_the_neighbouring_file_are_part_of_it(tmp_path: Path) -> None:
    """Rows put into another order give other numbers: the fingerprint says so, and no cache hides it."""
    path = save(tmp_path, "npz row order")
    before = encoder(path)
    (tmp_path / "v.jsonl").write_text("\n".join(map(json.dumps, TEXTS[::-1])), encoding="utf-8")
    after = encoder(path)
    assert before.info.fingerprint != after.info.fingerprint
    out = embedded(after, TEXTS, tmp_path / "work", "query", cache_dir=str(tmp_path / "cache"))
    assert np.abs(out.rows - UNIT[::-1]).max() < 1e-6
    assert not (tmp_path / "cache").exists()


def test_rows_that_are_not_unit(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, vectors=ROWS, text=np.array(TEXTS))
    raw = encoder(path)
    assert not raw.info.normalize
    assert np.array_equal(raw.encode(TEXTS, "query"), ROWS)
    assert raw.info.facts == (Fact("stored_raw_rows"),)
    scaled = encoder(path, normalize=True)
    assert np.abs(scaled.encode(TEXTS, "query") - UNIT).max() < 1e-6
    assert scaled.info.fingerprint != raw.info.fingerprint
    cut = encoder(path, truncate_dim=2)
    assert np.allclose(np.linalg.norm(cut.encode(TEXTS, "query"), axis=1), 1, atol=1e-6)
    assert encoder(path, truncate_dim=5).info.dim == 5


def test_flags_of_a_recipe_that_a_file_cannot_follow_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, "npz text")
    assert encoder(path).info.facts == ()
    found = encoder(path, query_prefix="query: ", max_length=8, pooling="cls", dtype="bf16").info.facts
    assert found == (Fact("unused_by_file", {"flags": "--set pooling, --query-prefix, --max-length, --dtype"}),)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_stored_row_that_cannot_be_used_is_named_where_a_text_needs_it(tmp_path: Path, value: float) -> None:
    damaged = UNIT.astype(np.float16)
    damaged[1] = value
    np.savez(tmp_path / "v.npz", vectors=damaged, text=np.array(TEXTS))
    damaged_file = encoder(tmp_path / "v.npz")
    message = refusal(lambda: damaged_file.encode(TEXTS, "query"), EncoderError, tmp_path / "v.npz")
    assert all(part in message for part in (" row 1 ", f"{TEXTS[1]!r}"))
    assert "--dtype" not in message
    assert len(damaged_file.encode([TEXTS[0], *TEXTS[2:]], "query")) == len(TEXTS) - 1


def test_large_and_small_numbers_are_rows_as_any(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", vectors=UNIT.astype(np.float64) * [[1e30], [1e-30], [1], [1]], text=np.array(TEXTS))
    batches = list(embed(encoder(tmp_path / "v.npz", normalize=False), TEXTS, "query"))
    assert np.abs(np.concatenate([batch.vectors for batch in batches]) - UNIT).max() < 1e-6


def extreme_rows() -> np.ndarray:
    """Return (8, 40) float64: long, short and ordinary rows, and one of mixed magnitudes."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(8, 40))
    rows[0] *= 1e30
    rows[1] *= 1e-30
    rows[2] *= 10.0 ** generator.integers(-3, 4, 40)
    return rows


def unit_reference(rows: np.ndarray) -> np.ndarray:
    """Scale each row to unit length in float64 with `math.hypot`; then convert to float32."""
    return np.array([[value / math.hypot(*row) for value in row] for row in rows.tolist()]).astype(np.float32)


@pytest.mark.parametrize("truncate_dim", [None, 3])
@pytest.mark.parametrize("normalize", [None, True, False])
def test_rows_of_any_length_are_scaled_in_float64(
    tmp_path: Path, normalize: bool | None, truncate_dim: int | None
) -> None:
    rows = extreme_rows()
    texts = [f"text {place}" for place in range(len(rows))]
    np.savez(tmp_path / "v.npz", vectors=rows, text=np.array(texts))
    found = encoder(tmp_path / "v.npz", normalize=normalize, truncate_dim=truncate_dim)
    expected = unit_reference(rows[:, :truncate_dim])
    assert np.array_equal(found.encode(texts, "query"), expected)
    assert np.array_equal(np.concatenate([batch.vectors for batch in embed(found, texts, "query")]), expected)


def test_rows_of_a_function_are_scaled_in_float64() -> None:
    rows = extreme_rows()
    texts = [f"text {place}" for place in range(len(rows))]
    scaled = from_callable(lambda texts, role: rows[: len(texts)], "f")
    assert np.array_equal(scaled.encode(texts, "query"), unit_reference(rows))
    raw = from_callable(lambda texts, role: rows[: len(texts)], "f", normalize=False).encode(texts, "query")
    assert np.array_equal(raw, rows.astype(np.float32))


def test_the_reference_of_float64_rows_notices_float32() -> None:
    rows = extreme_rows()[6:]
    single = rows.astype(np.float32)
    assert not np.array_equal(unit_reference(single), unit_reference(rows))
    assert not np.array_equal(single / np.linalg.norm(single, axis=1, keepdims=True), unit_reference(rows))


def test_half_precision_has_a_wider_noise_limit(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, vectors=UNIT.astype(np.float16), text=np.array(TEXTS))
    half = encoder(path)
    assert half.info.dtype == "fp16"
    assert smallest_distance(half) == pytest.approx(10 / 2**11)
    assert smallest_distance(encoder(save(tmp_path, "parquet fixed text"))) == 1e-3


def test_the_self_test_reads_the_stored_rows(tmp_path: Path) -> None:
    path = save(tmp_path, "npz text")
    assert {check.name: check.outcome for check in self_test(encoder(path))} == dict.fromkeys(
        ("finite", "unit", "texts"), "pass"
    )
    assert describe(encoder(path)).not_asked == ("roles", "batch")
    last = encoder_screen(describe(encoder(path)))[-1][-1].text
    assert (" 3 " in last, last.endswith(": roles, batch")) == (True, True)
    damaged = UNIT.copy()
    damaged[1, 1] = np.nan
    np.savez(path, vectors=damaged, text=np.array(TEXTS))
    assert self_test(encoder(path, normalize=True))[0].outcome == "fail"
    np.savez(path, vectors=UNIT[[1, 1, 1, 1]], text=np.array(TEXTS))
    assert self_test(encoder(path))[2].outcome == "fail"


def test_the_number_of_dimensions_is_reported(tmp_path: Path) -> None:
    path = save(tmp_path, "npz text")
    assert describe(encoder(path)).truncate_dim is None
    cut = describe(encoder(path, truncate_dim=3))
    assert cut.truncate_dim == json.loads(json_of(cut))["truncate_dim"] == 3
    assert any("first 3 dimensions" in row for row in encoder_screen(cut)[1][0].rows)


ARRAYS: dict[str, dict[str, Any]] = {
    "no vectors": {"text": np.array(TEXTS)},
    "no texts": {"vectors": UNIT},
    "vectors under two names": {"vectors": UNIT, "embedding": UNIT, "text": np.array(TEXTS)},
    "fewer vectors than texts": {"vectors": UNIT[:3], "text": np.array(TEXTS)},
    "a single vector": {"vectors": UNIT[0], "text": np.array(TEXTS)},
    "whole numbers": {"vectors": np.ones((4, 2), dtype=np.int64), "text": np.array(TEXTS)},
    "hashes of letters": {"vectors": UNIT, "text_sha256": np.array(["zz"] * 4)},
    "a long hash": {"vectors": UNIT, "text_sha256": np.array([*HASHES[:3], HASHES[3] + "0"])},
    "a hash beyond ASCII": {"vectors": UNIT, "text_sha256": np.array([*HASHES[:3], "é" * 64])},
    "short hashes": {"vectors": UNIT, "text_sha256": np.array(["ab"] * 4)},
    "no rows": {"vectors": UNIT[:0], "text": np.array([], dtype=str)},
    "a table of roles": {"vectors": UNIT, "text": np.array(TEXTS), "role": np.array([["query"]] * 4)},
    "another role": {"vectors": UNIT, "text": np.array(TEXTS), "role": np.array(["q"] * 4)},
    "Python objects": {"vectors": np.array([{}] * 4), "text": np.array(TEXTS)},
    "more roles than vectors": {"vectors": UNIT, "text": np.array(TEXTS), "role": np.array(["query"] * 6)},
    "fewer roles than vectors": {"vectors": UNIT, "text": np.array(TEXTS), "role": np.array(["passage"] * 2)},
    "numbers for texts": {"vectors": UNIT, "text": np.arange(4)},
    "two vectors for a text": {"vectors": UNIT[:2], "text": np.array(["a", "a"])},
}
COLUMNS: dict[str, dict[str, Any]] = {
    "vectors of different lengths": {"text": ["a", "b"], "vector": [[1.0, 2.0], [1.0]]},
    "a missing vector": {"text": ["a", "b"], "vector": [[1.0, 2.0], None]},
    "numbers for vectors": {"text": ["a", "b"], "vector": [1.0, 2.0]},
    "vectors of letters": {"text": ["a", "b"], "vector": [["x"], ["y"]]},
    "a missing text": {"text": ["a", None], "vector": [[1.0], [2.0]]},
    "numbers for texts": {"text": [1, 2], "vector": [[1.0], [2.0]]},
}


def test_files_with_wrong_contents_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    texts = {}
    for name, arrays in ARRAYS.items():
        np.savez(tmp_path / "v.npz", **arrays)
        texts[f"npz: {name}"] = refusal(lambda: encoder(tmp_path / "v.npz"), EncoderError, tmp_path / "v.npz")
    for name, columns in COLUMNS.items():
        pq.write_table(pa.table(columns), tmp_path / "v.parquet")
        texts[f"parquet: {name}"] = refusal(
            lambda: encoder(tmp_path / "v.parquet"), EncoderError, tmp_path / "v.parquet"
        )
    path = save(tmp_path, "npz text")
    unknown = ["one", "unseen", "too"]
    texts["two unknown texts"] = refusal(lambda: encoder(path).encode(unknown, "query"), EncoderError, path)
    texts["too many dimensions"] = refusal(lambda: encoder(path, truncate_dim=6), EncoderError, None)
    texts["no such file"] = refusal(lambda: encoder(tmp_path / "w.npz"), EncoderError, tmp_path / "w.npz")
    np.savez(path, vectors=ROWS, text=np.array(TEXTS))
    texts["notes"] = "\n".join(fact_lines(encoder(path, pooling="cls").info.facts))
    named = {name: re.sub("SHA-256: .*", "SHA-256: …", text) for name, text in texts.items()}
    snapshot("vectors.txt", situations({name: text.replace(str(tmp_path), "WORK") for name, text in named.items()}))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "an array alone", "header"])
def test_damaged_npz_files(tmp_path: Path, damage: str) -> None:
    path = save(tmp_path, "npz text")
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    array = io.BytesIO()
    np.save(array, UNIT)
    damaged = {"empty": b"", "cut": bytes(content[: len(content) // 2]), "flipped": bytes(content)}
    with (
        zipfile.ZipFile(io.BytesIO(path.read_bytes())) as whole,
        zipfile.ZipFile(header := io.BytesIO(), "w") as broken,
    ):
        for name in whole.namelist():
            broken.writestr(name, whole.read(name).replace(b"), }", b"(, (", 1))
    damaged["header"] = header.getvalue()
    path.write_bytes({**damaged, "an array alone": array.getvalue()}[damage])
    with pytest.raises(EncoderError) as caught:
        encoder(path)
    assert caught.value.where == str(path)
    assert caught.value.__cause__ is not None  # reading failed, not a check of what was read


def test_texts_in_the_neighbouring_file_that_are_not_strings(tmp_path: Path) -> None:
    path = save(tmp_path, "npz row order")
    lines = tmp_path / "v.jsonl"
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes())  # a byte order mark is none of the first text
    assert np.abs(encoder(path).encode(TEXTS, "query") - UNIT).max() < 1e-6
    lines.write_bytes(b'"one"\n"caf\xe9"\n')
    refusal(lambda: encoder(path), EncoderError, f"{lines}:2")


def test_large_lists_are_lists(tmp_path: Path) -> None:
    vectors = pa.array(UNIT.tolist(), pa.large_list(pa.float32()))
    pq.write_table(pa.table({"text": TEXTS, "vector": vectors}), tmp_path / "v.parquet")
    assert np.abs(encoder(tmp_path / "v.parquet").encode(TEXTS, "query") - UNIT).max() < 1e-6


@pytest.mark.parametrize("name", ["v.npz", "v.parquet"])
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    refusal(lambda: encoder(tmp_path / name), EncoderError, tmp_path / name)
