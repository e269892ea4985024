"""Cross-encoders: what is refused, parity with sentence-transformers, and that a second run costs nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import BertConfig, BertForSequenceClassification

from secid.encode.reranker import Reranker, load_reranker, pair_keys
from secid.errors import EncoderError
from secid.settings import Settings
from tests.tiny_bert import save_tiny_bert

PAIRS = [(f"query {n} of red{n % 3}", f"passage {n} about red{n % 3} " * (n % 5 + 1)) for n in range(40)]


def save_reranker(folder: Path, labels: int = 1) -> Path:
    save_tiny_bert(folder)
    config = BertConfig.from_pretrained(folder, num_labels=labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


def settings(folder: Path, **more: object) -> Settings:
    return Settings(device="cpu", dtype="float32", cache_dir=str(folder), **more)  # type: ignore[arg-type]


def scores(reranker: Reranker, order: list[int]) -> np.ndarray:
    keys = np.random.default_rng(0).integers(0, 256, (2, len(PAIRS), 16), dtype=np.uint8)
    texts = [PAIRS[n] for n in order]
    return reranker.scores(
        pair_keys(*(part[order] for part in keys)), lambda at: [texts[n] for n in at], lambda _: None
    )


def test_scores_are_those_of_sentence_transformers(folder, tmp_path):
    expected = CrossEncoder(str(folder), device="cpu").predict(PAIRS, show_progress_bar=False)
    reranker = load_reranker(str(folder), settings(tmp_path))
    assert reranker.predict(PAIRS) == pytest.approx(expected.astype(float), abs=1e-6)
    assert np.ptp(expected) > 1e-2
    assert reranker.info.pooling == "cross-encoder"


def test_a_saved_cross_encoder_is_read_too(folder, tmp_path):
    model = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    model.save_pretrained(str(tmp_path / "saved"))
    expected = model.predict(PAIRS, show_progress_bar=False)
    reranker = load_reranker(str(tmp_path / "saved"), settings(tmp_path))
    assert reranker.predict(PAIRS) == pytest.approx(expected.astype(float), abs=1e-5)


def test_a_second_run_scores_only_new_pairs(folder, tmp_path):
    first = load_reranker(str(folder), settings(tmp_path))
    some = scores(first, list(range(30)))
    second = load_reranker(str(folder), settings(tmp_path))
    every = scores(second, list(range(40))[::-1])[::-1]
    assert (first.n_cached, first.n_scored) == (0, 30)
    assert (second.n_cached, second.n_scored) == (30, 10)
    assert every[:30].tolist() == some.tolist()
    third = load_reranker(str(folder), settings(tmp_path, cache=False))
    assert scores(third, list(range(40))) == pytest.approx(every, abs=1e-6)
    assert third.n_cached == 0


def test_the_fingerprint_is_of_files_not_of_names(folder, tmp_path):
    copy = save_reranker(tmp_path / "copy")
    same, other = (load_reranker(str(path), settings(tmp_path)).info for path in (folder, copy))
    assert same.fingerprint == other.fingerprint
    config = json.loads((copy / "tokenizer_config.json").read_text(encoding="utf-8"))
    (copy / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 16}), encoding="utf-8")
    assert load_reranker(str(copy), settings(tmp_path)).info.fingerprint != same.fingerprint


@pytest.mark.parametrize("case", ["encoder", "no weights", "labels", "code", "module", "damaged", "no head"])
def test_a_model_that_is_not_a_reranker_is_refused(case, tmp_path):
    folder = tmp_path / "model"
    if case == "encoder":  # the library would make up a head
        save_tiny_bert(folder)
    else:
        save_reranker(folder, 2 if case == "labels" else 1)
    weights, config = folder / "model.safetensors", folder / "config.json"
    if case == "no weights":
        weights.rename(folder / "pytorch_model.bin")
    elif case == "damaged":
        weights.write_bytes(weights.read_bytes()[:200])
    elif case == "no head":  # the library would draw one at random
        tensors = {name: rows for name, rows in load_file(weights).items() if not name.startswith("classifier")}
        save_file(tensors, weights, {"format": "pt"})
    elif case == "code":
        document = {**json.loads(config.read_text(encoding="utf-8")), "auto_map": {"AutoModel": "model.Own"}}
        config.write_text(json.dumps(document), encoding="utf-8")
    elif case == "module":
        modules = [{"idx": 0, "name": "0", "path": "", "type": "os.Own"}]
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(EncoderError) as refusal:
        load_reranker(str(folder), settings(tmp_path))
    assert "model" in str(refusal.value)


def test_a_reranker_shows_no_progress_of_the_libraries(folder, tmp_path, capfd):
    load_reranker(str(folder), settings(tmp_path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("dtype", ["float32", "fp16"])
def test_a_score_that_is_not_finite_is_refused(folder, tmp_path, dtype, monkeypatch):
    reranker = load_reranker(str(folder), settings(tmp_path))
    reranker.info = replace(reranker.info, dtype=dtype)
    monkeypatch.setattr(reranker._model, "predict", lambda *_, **__: np.array([0.5, np.nan]))
    with pytest.raises(EncoderError) as refusal:
        reranker.predict(PAIRS[:2])
    assert ("float32" in refusal.value.remedy) == (dtype != "float32")


def test_an_unknown_name_lists_no_dense_encoders(tmp_path):
    with pytest.raises(EncoderError) as refusal:
        load_reranker("nosuch", settings(tmp_path))
    assert "aliases" not in str(refusal.value)
    assert refusal.value.where == "--guide-reranker"
