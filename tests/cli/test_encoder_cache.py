"""`secid encoder` and `secid cache`: what they print, what they exit with, what they leave alone."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

import numpy as np
import pytest
from rich.console import Console

from secid import api
from secid.encode import Description, from_callable
from secid.pages.encoder_page import encoder_screen
from secid.pages.screen import print_page
from secid.triplets.embedding import Embedder
from tests.tiny_bert import save_tiny_bert


def test_the_recipe_tells_value_and_rule_of_every_field(tiny, invoke):
    outcome = invoke("encoder", tiny, "--query-prefix", "query: ", "--max-length", 64)
    assert outcome.code == 0
    assert outcome.err == ""
    words = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert 'query_prefix "query: " flag' in words
    assert "max_length 64 tokens flag" in words
    assert "pooling mean default" in words
    assert "dimension 32" in words
    assert "all 5 checks pass" in words
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_the_parameters_are_those_of_the_model(tiny, invoke):
    from transformers import AutoModel

    expected = sum(value.numel() for value in AutoModel.from_pretrained(tiny).parameters())
    assert json.loads(invoke("encoder", tiny, "--json").out)["n_parameters"] == expected


def test_json_is_what_the_api_returns(tiny, invoke):
    printed = json.loads(invoke("encoder", tiny, "--json", "--set", "pooling=cls").out)
    assert printed == json.loads(json.dumps(asdict(api.describe_encoder(str(tiny), pooling="cls"))))
    assert printed["info"]["rules"]["pooling"] == "flag"
    assert printed["truncate_dim"] is None
    assert json.loads(invoke("encoder", tiny, "--json", "--set", "truncate_dim=8").out)["truncate_dim"] == 8


def test_the_encoder_of_the_settings_is_the_default(tiny, invoke, monkeypatch):
    assert invoke("encoder").code == 2
    monkeypatch.setenv("SECID_ENCODER", str(tiny))
    assert invoke("encoder").code == 0


def test_an_encoder_that_fails_its_self_test_exits_3_and_says_which(tmp_path, invoke):
    """This model sees no words, so all texts are the same to it."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = save_tiny_bert(tmp_path / "blind")
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] = torch.zeros_like(weights["embeddings.word_embeddings.weight"])
    weights["embeddings.position_embeddings.weight"] = torch.zeros_like(
        weights["embeddings.position_embeddings.weight"]
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    outcome = invoke("encoder", folder, "--query-prefix", "query: ")
    assert outcome.code == 3
    assert outcome.err.startswith("secid: self-test: texts ")
    assert "pass: texts" in outcome.out


def test_a_long_prefix_and_a_hostile_name_stay_within_the_columns():
    encoder = from_callable(lambda texts, role: np.ones((len(texts), 3)), "a\x1b[31m" * 30)
    found = Description(encoder.info, None, ("dense 3 to 9, Tanh",), ())
    stream = io.StringIO()
    print_page(Console(file=stream, width=80), encoder_screen(found))
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "dense 3 to 9, Tanh" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture
def cached(tiny, source, tmp_path, invoke):
    """Return a cache with one encoder's rows."""
    folder = tmp_path / "cache"
    arguments = ("--encoder", tiny, "--run", tmp_path / "run", "--set", f"cache_dir={folder}", "--set", "controls=none")
    assert invoke("score", source, *arguments).code == 0
    return folder


def test_ctrl_c_says_how_many_texts_the_next_run_need_not_encode(tiny, source, tmp_path, invoke, monkeypatch):
    encode = Embedder._encode

    def queries_alone(self, role, ids):
        if role == "passage":
            raise KeyboardInterrupt
        encode(self, role, ids)

    arguments = ("score", source, "--encoder", tiny, "--json", "--set", f"cache_dir={tmp_path / 'cache'}")
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "_encode", queries_alone)
        interrupted = invoke(*arguments)
    assert interrupted.code == 130
    assert "\n8 encoded texts are in the cache; run the command again to resume\n" in interrupted.err
    assert json.loads(invoke(*arguments).out)["timing"]["encode"]["n_cached"] == 8


def test_info_counts_what_a_run_left(cached, tiny, invoke):
    found = json.loads(invoke("cache", "info", "--set", f"cache_dir={cached}", "--json").out)
    assert sum(use["n_rows"] for use in found["encoders"]) == 8 * 4  # query, positive, two negatives
    assert found["n_damaged"] == 0
    assert [use["name"] for use in found["encoders"]] == [str(tiny)]
    printed = invoke("cache", "info", "--set", f"cache_dir={cached}").out
    assert str(cached) in printed
    assert found["encoders"][0]["fingerprint"][:16] in printed
    assert found["encoders"][0]["name"] in "".join(printed.split())


def test_an_empty_cache_is_not_an_error(tmp_path, invoke):
    for action in (("info",), ("clear", "--yes"), ("verify",)):
        assert invoke("cache", *action, "--set", f"cache_dir={tmp_path / 'none'}").code == 0


def test_a_file_is_not_a_cache_and_a_missing_folder_is_reported(tmp_path, invoke):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    refused = invoke("cache", "info", "--set", f"cache_dir={tmp_path / 'file'}")
    assert refused.code == 2
    assert f"{tmp_path / 'file'} " in refused.err
    assert "(does not exist yet)" in invoke("cache", "info", "--set", f"cache_dir={tmp_path / 'none'}").out


def test_clear_asks_where_it_can_and_else_wants_a_word(cached, invoke, monkeypatch):
    refused = invoke("cache", "clear", "--set", f"cache_dir={cached}")
    assert refused.code == 2
    assert "--yes" in refused.err
    (cached / "mine.txt").write_text("stays", encoding="utf-8")
    freed = json.loads(invoke("cache", "clear", "--yes", "--json", "--set", f"cache_dir={cached}").out)["n_bytes_freed"]
    assert freed > 8 * 4 * 32 * 4
    assert json.loads(invoke("cache", "info", "--set", f"cache_dir={cached}", "--json").out)["encoders"] == []
    assert (cached / "mine.txt").exists()


def test_trainings_of_a_probe_are_counted_and_cleared(tmp_path, invoke):
    training = tmp_path / "probes" / f"{'0a' * 16}.json"
    training.parent.mkdir()
    training.write_text("[[0.5, 0.5, 1.0]]", encoding="utf-8")
    folder = ("--set", f"cache_dir={tmp_path}")
    assert json.loads(invoke("cache", "info", "--json", *folder).out)["n_trainings"] == 1
    assert "training runs   1 of `secid probe`" in invoke("cache", "info", *folder).out
    assert json.loads(invoke("cache", "clear", "--yes", "--json", *folder).out)["n_bytes_freed"] == 17
    assert not training.exists()


def test_verify_sets_a_changed_byte_aside(cached, invoke):
    whole = invoke("cache", "verify", "--set", f"cache_dir={cached}")
    assert whole.code == 0
    rows = next(cached.rglob("rows.bin"))
    data = bytearray(rows.read_bytes())
    data[-1] ^= 1
    rows.write_bytes(data)
    damaged = invoke("cache", "verify", "--set", f"cache_dir={cached}")
    assert damaged.code == 1
    assert "1 damaged" in damaged.out
    assert rows.parent.name in damaged.out
    assert invoke("cache", "verify", "--set", f"cache_dir={cached}").code == 0


def test_a_run_tells_of_a_segment_it_found_damaged(cached, tiny, source, tmp_path, invoke):
    meta = next(cached.rglob("contents.json"))
    meta.write_text("{}", encoding="utf-8")
    arguments = (
        "--encoder",
        tiny,
        "--run",
        tmp_path / "again",
        "--set",
        f"cache_dir={cached}",
        "--set",
        "controls=none",
    )
    outcome = invoke("score", source, *arguments)
    assert outcome.code == 0
    assert outcome.err.count("damaged cache segment") == 1
    assert meta.parent.name in outcome.err
