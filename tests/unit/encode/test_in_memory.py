"""A SentenceTransformer object is the encoder that its folder would be."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder

import secid
from secid.encode import load
from secid.errors import EncoderError, SecidError
from secid.settings import Settings
from tests.cli.conftest import rows
from tests.tiny_bert import save_in_hub_cache, save_tiny_bert
from tests.unit.encode.conftest import Notes

TEXTS = ["tides", "what causes tides, and why are there two of them a day"]
RECIPE = ("pooling", "query_prefix", "passage_prefix", "max_length", "normalize", "dim", "dtype")


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Return the folder that holds temporary folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def vectors(encoder):
    return np.stack([encoder.encode(TEXTS, role) for role in ("query", "passage")])


@pytest.mark.parametrize("family", ["bert", "qwen3", "gemma3_text"])
def test_vectors_and_recipe_are_those_of_the_folder(tiny, family):
    folder = load(Settings(encoder=str(tiny(family))))
    memory = load(Settings(), encoder=SentenceTransformer(str(tiny(family)), device="cpu"))
    assert np.array_equal(vectors(memory), vectors(folder))
    assert [getattr(memory.info, name) for name in RECIPE] == [getattr(folder.info, name) for name in RECIPE]
    assert memory.info.name == f"{family} (in memory)"
    assert "in_memory" in [fact.kind for fact in memory.info.facts]


def test_changes_of_the_object_count_and_settings_take_precedence(tiny):
    model = SentenceTransformer(str(tiny("bert")), device="cpu")
    before = load(Settings(), encoder=model)
    assert load(Settings(), encoder=model).info.fingerprint == before.info.fingerprint
    model.max_seq_length, model.prompts, model.truncate_dim = 12, {"query": "q: ", "document": "d: "}, 8
    with torch.no_grad():
        next(model[0].auto_model.parameters()).mul_(1.5)
    after = load(Settings(), encoder=model)
    assert (after.info.max_length, after.info.query_prefix, after.info.passage_prefix, after.info.dim) == (
        12, "q: ", "d: ", 8,
    )  # fmt: skip
    assert after.info.fingerprint != before.info.fingerprint
    assert after.info.weights_sha256 != before.info.weights_sha256
    own = [model.encode(TEXTS, prompt=prompt, normalize_embeddings=True) for prompt in ("q: ", "d: ")]
    assert np.allclose(vectors(after), own, atol=1e-6)
    assert load(Settings(max_length=9, pooling="cls"), encoder=model).info.max_length == 9


def test_prefixes_of_a_family_are_known_by_the_name_it_was_loaded_from(tmp_path):
    folder = save_in_hub_cache(tmp_path, "intfloat/e5-base")
    info = load(Settings(), encoder=SentenceTransformer(str(folder), device="cpu")).info
    assert (info.name, info.query_prefix) == ("intfloat/e5-base (in memory)", "query: ")


def test_its_folder_stays_while_it_is_used(tiny, temporary):
    encoder = load(Settings(), encoder=SentenceTransformer(str(tiny("bert")), device="cpu"))
    (folder,) = temporary.glob("secid-*")
    assert (folder / "model.safetensors").is_file()
    del encoder
    gc.collect()
    assert not folder.exists()


def test_a_score_takes_its_vectors_from_the_cache_the_second_time(tiny, tmp_path):
    model, sources = SentenceTransformer(str(tiny("bert")), device="cpu"), [("x", [*rows(12)])]
    settings = {"controls": "none", "cache_dir": str(tmp_path / "cache")}
    folder = secid.score(sources, str(tiny("bert")), **settings)
    run = secid.score(sources, model, **settings)
    again = secid.score(sources, model, other_encoders=[str(tiny("bert"))], run=tmp_path / "run", **settings)
    assert [source.score.nats for source in run.sources] == [source.score.nats for source in folder.sources]
    assert run.timing["encode"]["n_encoded"] > again.timing["encode"]["n_encoded"] == 0
    assert len(again.analyses["ablations"][-1].rows) == 2
    with pytest.raises(SecidError, match="cannot be read again"):
        secid.select(tmp_path / "run", tmp_path / "x.jsonl", top=1)
    secid.baseline(tmp_path / "run", tmp_path / "b.json")
    verdict = secid.gate(sources, tmp_path / "b.json", encoder=model, **settings)
    assert verdict.encoder == "bert (in memory)"


@pytest.mark.parametrize("kind", [CrossEncoder, SparseEncoder])
def test_other_models_of_the_library_are_refused_as_their_folders_are(kind, tmp_path):
    model = kind(str(save_tiny_bert(tmp_path / "tiny")), device="cpu")
    with pytest.raises(EncoderError) as caught:
        load(Settings(), encoder=model)
    assert "secid scores dense encoders" in str(caught.value)
    assert "tiny (in memory)" in str(caught.value)
    assert list(tmp_path.glob("secid-*")) == []


@pytest.mark.parametrize("what", [3, Path("folder"), len])
def test_an_object_that_is_not_an_encoder_is_an_error_before_anything_is_read(what):
    for call in (secid.score, secid.audit, secid.probe):
        with pytest.raises(EncoderError, match="not an encoder: ") as caught:
            call(["no-such-file.jsonl"], what)
        assert "a SentenceTransformer" in str(caught.value)
    with pytest.raises(EncoderError, match="not an encoder: "):
        secid.describe_encoder(what, progress=Notes())
