"""Our vectors equal sentence-transformers' on every family, and a damaged recipe is noticed."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.encode import load
from secid.settings import Settings

from .conftest import TEXTS, write_json

Tiny = Callable[[str], Path]

TOLERANCE = 1e-5
NOTICED = 1e-3


def oracle(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Query and passage rows of sentence-transformers, in other batches than ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        queries = model.encode_query(TEXTS, batch_size=2, show_progress_bar=False)
        passages = model.encode_document(TEXTS, batch_size=2, show_progress_bar=False)
    return np.asarray(queries), np.asarray(passages)


def ours(folder: Path, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    encoder = load(Settings(encoder=str(folder), device="cpu", **settings))
    return encoder.encode(TEXTS, "query"), encoder.encode(TEXTS, "passage")


def distance(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("family", ["distilbert", "mpnet", "modernbert"])
def test_equals_sentence_transformers_and_damage_shows(tiny: Tiny, family: str) -> None:
    """Backbones that no repository of `test_families` has, and damage to every prefix."""
    folder = tiny(family)
    expected = oracle(folder)
    rows = ours(folder)
    assert distance(rows, expected) <= TOLERANCE
    assert np.allclose(np.linalg.norm(rows[0], axis=1), 1, atol=1e-6)
    other = "cls" if family != "modernbert" else "mean"
    assert distance(ours(folder, pooling=other), expected) > NOTICED
    assert distance(ours(folder, query_prefix="")[:1], expected[:1]) > NOTICED
    assert distance(ours(folder, passage_prefix="")[1:], expected[1:]) > NOTICED


@pytest.mark.parametrize("damage", ["dropped", "activation", "weights"])
def test_a_damaged_dense_layer_shows(tiny: Tiny, tmp_path: Path, damage: str) -> None:
    from safetensors.torch import load_file, save_file

    expected = oracle(tiny("gemma3_text"))
    folder = shutil.copytree(tiny("gemma3_text"), tmp_path / "damaged")
    if damage == "dropped":
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        write_json(folder / "modules.json", [module for module in modules if not module["type"].endswith("Dense")])
    elif damage == "activation":
        config = json.loads((folder / "2_Dense" / "config.json").read_text(encoding="utf-8"))
        config["activation_function"] = "torch.nn.modules.linear.Identity"
        write_json(folder / "2_Dense" / "config.json", config)
    else:
        weights = load_file(folder / "2_Dense" / "model.safetensors")
        save_file({"linear.weight": weights["linear.weight"] + 0.05}, folder / "2_Dense" / "model.safetensors")
    assert distance(ours(folder), expected) > NOTICED


def test_prompt_tokens_are_left_out_of_the_pool(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "instructor")
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "include_prompt": False},
    )
    expected = oracle(folder)
    assert distance(ours(folder), expected) <= TOLERANCE
    assert distance(ours(tiny("bert")), expected) > NOTICED


@pytest.mark.parametrize(
    "key", ["pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"]
)
def test_rarer_poolings(tiny: Tiny, tmp_path: Path, key: str) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "pooled")
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, key: True}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **modes})
    rows = ours(folder)
    assert rows[0].shape == (len(TEXTS), 64)
    assert distance(rows, oracle(folder)) <= TOLERANCE


def test_layer_norm_residual_and_lower_case(tiny: Tiny, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from sentence_transformers.models import Dense

    if "use_residual" not in signature(Dense).parameters:
        pytest.skip("this sentence-transformers has no residual")
    folder = shutil.copytree(tiny("mpnet"), tmp_path / "heads")
    kind = "sentence_transformers.models"
    names = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_LayerNorm", "LayerNorm")]
    write_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": f"{kind}.{name}"} for i, (path, name) in enumerate(names)],
    )
    dense = {"in_features": 32, "out_features": 16, "bias": True, "use_residual": True}
    write_json(
        folder / "2_Dense" / "config.json",
        {**dense, "activation_function": "torch.nn.modules.activation.GELU"},
    )
    torch.manual_seed(1)
    save_file(
        {"linear.weight": torch.randn(16, 32), "linear.bias": torch.randn(16), "residual.weight": torch.randn(16, 32)},
        folder / "2_Dense" / "model.safetensors",
    )
    write_json(folder / "3_LayerNorm" / "config.json", {"dimension": 16})
    norm = {"norm.weight": torch.rand(16), "norm.bias": torch.rand(16)}
    save_file(norm, folder / "3_LayerNorm" / "model.safetensors")
    rows = ours(folder)
    assert distance(rows, oracle(folder)) <= TOLERANCE
    assert np.abs(np.linalg.norm(rows[0], axis=1) - 1).max() > NOTICED  # nothing normalises here


def test_minilm_equals_sentence_transformers() -> None:
    from secid.encode.locate import offline_minilm

    folder = offline_minilm()
    assert folder is not None, "the test extra needs the offline extra"
    texts = [*TEXTS, "word " * 400, "Überraschung, naïve café — 東京"]
    encoder = load(Settings(encoder="minilm", device="cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        expected = SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)
    assert encoder.info.max_length == 256
    assert encoder.info.name == "sentence-transformers/all-MiniLM-L6-v2"
    assert np.abs(encoder.encode(texts, "passage") - expected).max() <= TOLERANCE
