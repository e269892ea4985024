"""Loading, hub cache, devices, out of memory, and what reaches the user when something is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from secid.encoders import load, locate
from secid.encoders.transformer import TransformerEncoder
from secid.errors import EncoderError, UsageError
from secid.settings import Settings

from .conftest import TEXTS, write_json

Tiny = Callable[[str], Path]
SHA = "0123456789abcdef0123456789abcdef01234567"


def tiny_encoder(folder: Path, **settings: Any) -> TransformerEncoder:
    encoder = load(Settings(encoder=str(folder), device="cpu", **settings))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def hub_cache(home: Path, name: str, source: Path) -> Path:
    """A hub cache that holds `source` under `name`, as huggingface_hub lays it out."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(source, repository / "snapshots" / SHA)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(SHA, encoding="utf-8")
    return repository / "snapshots" / SHA


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own: the hub's settings are read once, at import."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=120,
    )


LOAD = """
import json, sys
from secid.encoders import load
from secid.errors import SecidError
from secid.settings import Settings
try:
    encoder = load(Settings(encoder={name!r}, device="cpu"))
except SecidError as error:
    print(error, file=sys.stderr); sys.exit(error.exit_code)
info = encoder.info
rows = encoder.encode(["a b"], "query").tolist()
print(json.dumps([info.name, info.revision, info.query_prefix, info.rules["query_prefix"], rows]))
"""


def test_a_hub_name_comes_from_the_cache_without_network(tiny: Tiny, tmp_path: Path) -> None:
    source = shutil.copytree(tiny("bert"), tmp_path / "plain")
    (source / "config_sentence_transformers.json").unlink()
    hub_cache(tmp_path, "intfloat/e5-base", source)
    done = run(LOAD.format(name="e5-base"), HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # neither bars nor warnings of the libraries
    name, revision, prefix, rule, rows = json.loads(done.stdout)
    assert (name, revision, prefix, rule) == ("intfloat/e5-base", SHA, "query: ", "registry: e5")
    expected = tiny_encoder(source, query_prefix="query: ").encode(["a b"], "query")
    assert np.abs(np.asarray(rows) - expected).max() < 1e-6


@pytest.mark.parametrize("offline", ["0", "1"])
def test_no_network_and_no_cache_is_one_clear_message(tmp_path: Path, offline: str) -> None:
    """A proxy on a closed port stands for an absent network, wherever the tests run."""
    proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    started = time.monotonic()
    done = run(LOAD.format(name="e5-base"), HF_HOME=str(tmp_path), HF_HUB_OFFLINE=offline, NO_PROXY="", **proxy)
    assert time.monotonic() - started < 60
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith("intfloat/e5-base: not in the hub cache, and the hub cannot be reached")
    assert len(lines) == 2
    for remedy in ("local folder", "HF_HOME", "--encoder minilm"):
        assert remedy in lines[1]


def test_a_folder_inside_a_hub_cache_keeps_its_name(tiny: Tiny, tmp_path: Path) -> None:
    folder = hub_cache(tmp_path, "intfloat/e5-base", tiny("bert"))
    info = tiny_encoder(folder).info
    assert (info.name, info.revision) == ("intfloat/e5-base", SHA)


def test_order_batches_and_no_texts(tiny: Tiny) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64)
    together = encoder.encode(TEXTS, "passage")
    alone = np.concatenate([encoder.encode([text], "passage") for text in TEXTS])
    assert together.dtype == np.float32
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(encoder.encode(TEXTS[::-1], "passage")[::-1] - together).max() < 1e-5
    assert encoder.encode([], "query").shape == (0, 32)


def test_every_text_once_and_truncation_seen(tiny: Tiny) -> None:
    encoder = tiny_encoder(tiny("bert"), max_length=8, passage_prefix="")
    batches = list(encoder.batches([*TEXTS, "ice"], "passage"))
    places = np.concatenate([batch.positions for batch in batches])
    truncated = np.concatenate([batch.truncated for batch in batches])[np.argsort(places)]
    assert sorted(places) == list(range(6))
    assert truncated.tolist() == [False, True, True, True, True, False]
    assert sum(batch.n_tokens for batch in batches) == 3 + 4 * 8 + 3


def test_the_fingerprint_tells_what_matters(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("bert")
    base = tiny_encoder(folder).info.fingerprint
    assert tiny_encoder(shutil.copytree(folder, tmp_path / "elsewhere")).info.fingerprint == base
    others = [
        tiny_encoder(folder, pooling="cls"),
        tiny_encoder(folder, query_prefix="x"),
        tiny_encoder(folder, max_length=9),
        tiny_encoder(folder, normalize=False),
        tiny_encoder(folder, truncate_dim=8),
        tiny_encoder(folder, dtype="bf16"),
        tiny_encoder(tiny("mpnet")),
    ]
    changed = shutil.copytree(folder, tmp_path / "changed")
    tokenizer = json.loads((changed / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"] = None
    write_json(changed / "tokenizer.json", tokenizer)
    others.append(tiny_encoder(changed))
    found = {encoder.info.fingerprint for encoder in others}
    assert len(found) == len(others)
    assert base not in found


def test_truncate_dim_keeps_unit_rows(tiny: Tiny) -> None:
    full = tiny_encoder(tiny("bert")).encode(TEXTS, "passage")[:, :8]
    short = tiny_encoder(tiny("bert"), truncate_dim=8)
    assert short.dimension == 8
    expected = full / np.linalg.norm(full, axis=1, keepdims=True)
    assert np.abs(short.encode(TEXTS, "passage") - expected).max() < 1e-6
    with pytest.raises(EncoderError, match="--truncate-dim 33 is more than the 32"):
        tiny_encoder(tiny("bert"), truncate_dim=33)


def test_out_of_memory_halves_the_batch_and_loses_nothing(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=256)
    expected = encoder.encode(TEXTS, "passage")
    monkeypatch.setattr(encoder, "_by_workers", encoder._by_device)  # the way of an accelerator
    real, asked = encoder._forward, []

    def limited(batch: Any, skip: int) -> Any:
        asked.append(batch.ids.size)
        if batch.ids.size > 64:
            raise torch.cuda.OutOfMemoryError("no memory")
        return real(batch, skip)

    monkeypatch.setattr(encoder, "_forward", limited)
    assert np.abs(encoder.encode(TEXTS, "passage") - expected).max() < 1e-5
    assert encoder.batch_tokens == 64
    assert max(asked) > 64
    monkeypatch.setattr(encoder, "_forward", lambda batch, skip: limited(batch._replace(ids=np.zeros((9, 9))), skip))
    with pytest.raises(EncoderError, match="out of memory on cpu with a single text"):
        encoder.encode(TEXTS, "passage")


def test_missing_weights_are_not_made_up(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny("bert"), tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.layer.1.output.dense.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError, match="1 weights of the model are not in its files"):
        tiny_encoder(folder)


def test_pickle_is_loaded_only_when_asked(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = shutil.copytree(tiny("bert"), tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="only pickle") as caught:
        tiny_encoder(folder)
    assert "--allow-pickle" in str(caught.value)
    encoder = tiny_encoder(folder, allow_pickle=True)
    assert "weights loaded from pickle" in encoder.info.notes
    assert np.abs(encoder.encode(TEXTS, "query") - tiny_encoder(tiny("bert")).encode(TEXTS, "query")).max() < 1e-6


def test_safetensors_win_over_pickle(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "both")
    (folder / "pytorch_model.bin").write_bytes(b"not weights")
    expected = tiny_encoder(tiny("bert")).encode(TEXTS, "query")
    assert np.abs(tiny_encoder(folder, allow_pickle=True).encode(TEXTS, "query") - expected).max() < 1e-6


def test_remote_code_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.update(model_type="made-up", auto_map={"AutoConfig": "code.C", "AutoModel": "code.M"})
    write_json(folder / "config.json", config)
    (folder / "code.py").write_text("raise SystemExit('remote code ran')", encoding="utf-8")
    with pytest.raises(EncoderError, match="its own Python code") as caught:
        tiny_encoder(folder)
    assert "--trust-remote-code" in str(caught.value)


@pytest.mark.parametrize("name", ["no-such-alias", "./missing", "a/b/c", ""])
def test_names_that_are_nothing(name: str) -> None:
    with pytest.raises(EncoderError):
        load(Settings(encoder=name))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_an_absent_device_is_said(tiny: Tiny, device: str) -> None:
    with pytest.raises(EncoderError, match=f"{device} is not there: 0 CUDA devices"):
        load(Settings(encoder=str(tiny("bert")), device=device))


def test_an_unknown_device_is_said(tiny: Tiny) -> None:
    with pytest.raises((EncoderError, UsageError), match="'gpu' is not known"):
        load(Settings(encoder=str(tiny("bert")), device="gpu"))


def test_bf16_differs_but_little(tiny: Tiny) -> None:
    exact = tiny_encoder(tiny("bert")).encode(TEXTS, "passage")
    encoder = tiny_encoder(tiny("bert"), dtype="bf16")
    rough = encoder.encode(TEXTS, "passage")
    assert encoder.info.dtype == "bf16"
    assert rough.dtype == np.float32
    assert 1e-6 < np.abs(rough - exact).max() < 0.1


def test_the_offline_weights_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "MINILM_SHA256", "0" * 64)
    with pytest.raises(EncoderError, match="expected 0000"):
        load(Settings(encoder="minilm"))


def test_packed_layers_give_the_same_rows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from secid.encoders import loading, packed

    monkeypatch.setattr(loading, "can_pack", lambda device, dtype: False)
    plain = tiny_encoder(tiny("bert"))
    monkeypatch.undo()
    if not packed.can_pack(torch.device("cpu"), torch.float32):
        pytest.skip("this machine has no packed linear layers")
    fast = tiny_encoder(tiny("bert"))
    assert any(isinstance(module, packed.PackedLinear) for module in fast.model.modules())
    assert not any(isinstance(module, packed.PackedLinear) for module in plain.model.modules())
    assert np.abs(fast.encode(TEXTS, "query") - plain.encode(TEXTS, "query")).max() < 1e-6
