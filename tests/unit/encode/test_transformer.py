"""Loading, hub cache, devices, out of memory, and what reaches the user when something is missing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from secid.encode import device as devices
from secid.encode import embed, load, locate, parts, segment
from secid.encode.device import Limits, Replica, choose_devices, choose_dtype, n_devices
from secid.encode.encoder import host_rows
from secid.encode.modules import SAVE_AGAIN
from secid.encode.transformer import TransformerEncoder
from secid.errors import EncoderError, NonFiniteEmbeddingError, UnreachableError
from secid.progress import download_bars
from secid.records import Fact
from secid.settings import Settings
from tests.snapshots import Snapshot, refusal, situations

from .conftest import SHA, TEXTS, embedded, hub_cache, write_json

Tiny = Callable[[str], Path]


def tiny_encoder(folder: Path, **settings: Any) -> TransformerEncoder:
    encoder = load(Settings(encoder=str(folder), **{"device": "cpu", "cache": False, **settings}))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def test_a_hub_name_comes_from_the_cache_without_network(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source = shutil.copytree(tiny("bert"), tmp_path / "plain")
    (source / "config_sentence_transformers.json").unlink()
    hub_cache(tmp_path, "intfloat/e5-base", source)
    expected = tiny_encoder(source, query_prefix="query: ").encode(["a b"], "query")
    capfd.readouterr()
    encoder = tiny_encoder(Path("e5-base"))
    info = encoder.info
    assert (info.name, info.revision, info.query_prefix) == ("intfloat/e5-base", SHA, "query: ")
    assert info.rules["query_prefix"] == "registry: e5"
    assert np.abs(encoder.encode(["a b"], "query") - expected).max() < 1e-6
    assert capfd.readouterr().err == ""  # neither bars nor warnings of the libraries


class Hub:
    """A hub that holds one repository, and a cache of it that holds some of its files."""

    def __init__(self, full: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.snapshot, self.asked, self.reachable = full, snapshot, 0, True
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.download)
        monkeypatch.setattr("huggingface_hub.HfApi.model_info", self.model_info)

    def model_info(self, name: str, revision: str | None, timeout: float) -> Any:
        self.asked += 1
        if not self.reachable:
            raise ConnectionError("no route to host")
        files = [file.relative_to(self.full).as_posix() for file in self.full.rglob("*") if file.is_file()]
        return SimpleNamespace(sha=SHA, siblings=[SimpleNamespace(rfilename=file) for file in files])

    def download(self, name: str, local_files_only: bool = False, **options: Any) -> str:
        if not local_files_only:
            assert options["tqdm_class"] is download_bars()
            shutil.copytree(self.full, self.snapshot, dirs_exist_ok=True)
        return str(self.snapshot)


@pytest.fixture
def partial_hub(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The cache holds what plain transformers fetches of an encoder that pools its first token."""
    full = shutil.copytree(tiny("bert"), tmp_path / "full")
    write_json(full / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, "pooling_mode": "cls"})
    snapshot = hub_cache(tmp_path, "some/encoder", full)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (snapshot / name).unlink()
    shutil.rmtree(snapshot / "1_Pooling")
    return Hub(full, snapshot, monkeypatch)


def test_a_partial_snapshot_is_completed(partial_hub: Hub) -> None:
    info = tiny_encoder(Path("some/encoder")).info
    assert (info.pooling, info.max_length, info.query_prefix) == ("cls", 40, "search query: ")
    assert (info.revision, partial_hub.asked) == (SHA, 1)
    assert tiny_encoder(Path("some/encoder")).info == info
    assert partial_hub.asked == 1


def test_without_a_network_a_partial_snapshot_warns(partial_hub: Hub) -> None:
    partial_hub.reachable = False
    files = "modules.json, config_sentence_transformers.json, sentence_bert_config.json"
    for name in (Path("some/encoder"), partial_hub.snapshot):
        assert Fact("incomplete", {"files": files}) in tiny_encoder(name).info.facts
    assert partial_hub.asked == 1
    shutil.rmtree(partial_hub.snapshot)
    partial_hub.snapshot.mkdir()
    refusal(lambda: tiny_encoder(Path("some/encoder")), UnreachableError, "some/encoder")


def test_a_repository_without_modules_is_complete(partial_hub: Hub) -> None:
    (partial_hub.full / "modules.json").unlink()
    first = tiny_encoder(Path("some/encoder")).info  # the hub says so, and a marker is stored
    assert tiny_encoder(Path("some/encoder")).info == first
    assert partial_hub.asked == 1
    shutil.rmtree(partial_hub.snapshot.parents[1] / ".no_exist")
    write_json(partial_hub.snapshot.parents[1] / "trees" / f"{SHA}.json", {"files": {"config.json": {}}})
    assert tiny_encoder(Path("some/encoder")).info == first
    assert partial_hub.asked == 1


LOAD = """
import sys
from secid.encode import load
from secid.errors import SecidError
from secid.settings import Settings
load(Settings(encoder=sys.argv[1], device="cpu", cache_dir=sys.argv[2]))
print({"transformers", "sentence_transformers"} & set(sys.modules))
try:
    load(Settings(encoder="e5-base", device="cpu"))
except SecidError as error:
    print(error, file=sys.stderr); sys.exit(error.exit_code)
"""


def test_no_network_and_no_cache_is_one_clear_message(tiny: Tiny, tmp_path: Path) -> None:
    """A proxy on a closed port imitates an absent network, wherever the tests run.

    Before it, in the same process, an encoder whose rows are cached loads no library of models.
    """
    known = str(tmp_path / "rows")
    load(Settings(encoder=str(tiny("bert")), device="cpu", cache_dir=known))
    proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    own = {**proxy, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "NO_PROXY": ""}  # read once, at import
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOAD, tiny("bert"), known], capture_output=True, text=True, env={**os.environ, **own}
    )
    assert time.monotonic() - started < 60
    assert (done.returncode, done.stdout) == (2, "set()\n"), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("intfloat/e5-base: ")
    assert len(lines) == 2
    for remedy in ("HF_HOME", "--encoder minilm", "secid[offline]"):
        assert remedy in lines[1]


def test_what_the_cache_lacks_offline_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EncoderError) as caught:
        load(Settings(encoder="e5-base"))
    assert caught.value.where == "intfloat/e5-base"
    assert all(part in str(caught.value.remedy) for part in ("HF_HOME", "--encoder minilm", "secid[offline]"))
    with pytest.raises(EncoderError) as caught:  # not the remedy to use what was asked for
        load(Settings(encoder="minilm", revision="abc"))
    assert str(caught.value).startswith("sentence-transformers/all-MiniLM-L6-v2: revision 'abc' ")
    assert "without --set revision" in str(caught.value.remedy)


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


def test_the_fingerprint_covers_what_matters(tiny: Tiny, tmp_path: Path) -> None:
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
    config = shutil.copytree(folder, tmp_path / "config")
    document = json.loads((config / "config.json").read_text(encoding="utf-8"))
    write_json(config / "config.json", {**document, "layer_norm_eps": 1e-3})
    others.append(tiny_encoder(config))
    others.append(tiny_encoder(one_weight_changed(shutil.copytree(folder, tmp_path / "weights"))))
    gemma = tiny("gemma3_text")
    dense = shutil.copytree(gemma, tmp_path / "dense")
    one_weight_changed(dense / "2_Dense")
    others += [tiny_encoder(gemma), tiny_encoder(dense)]
    fingerprints = {encoder.info.fingerprint for encoder in others}
    assert len(fingerprints) == len(others)
    assert base not in fingerprints


def one_weight_changed(folder: Path) -> Path:
    """The folder, with one number of its weights changed."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_the_fingerprint_covers_the_code_that_ran(tiny: Tiny, tmp_path: Path) -> None:
    def own(power: float, source: str) -> TransformerEncoder:
        folder = shutil.copytree(tiny("bert"), tmp_path / f"{power}-{source[:5]}")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        write_json(folder / "config.json", {**config, "auto_map": {"AutoModel": source}, "architectures": ["Own"]})
        (folder / "own_code.py").write_text(OWN_CODE.format(power=power), encoding="utf-8")
        return tiny_encoder(folder, trust_remote_code=True)

    one, three = own(1.0, "own_code.Own"), own(3.0, "own_code.Own")
    assert np.abs(one.encode(TEXTS, "query") - three.encode(TEXTS, "query")).max() > 1e-3
    assert one.info.fingerprint != three.info.fingerprint


def test_code_of_another_repository_leaves_no_fingerprint(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "elsewhere")
    document = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    write_json(folder / "tokenizer_config.json", {**document, "auto_map": {"AutoModelForX": "other/one--code.Own"}})
    assert tiny_encoder(folder).info.fingerprint
    plain, info = tiny_encoder(folder).info, tiny_encoder(folder, trust_remote_code=True).info
    assert info.fingerprint == ""
    assert {fact.kind for fact in info.facts} - {fact.kind for fact in plain.facts} == {"own_code", "code_elsewhere"}


OWN_CODE = """
from transformers import BertModel

class Own(BertModel):
    def forward(self, *rest, **named):
        out = super().forward(*rest, **named)
        out.last_hidden_state = out.last_hidden_state.abs() ** {power}
        return out
"""


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_maximum_length_must_leave_room_for_the_text(tiny: Tiny, length: int) -> None:
    assert len(tiny_encoder(tiny("bert")).parts.tokeniser.tokens(["search query: "]).ids) == 5
    message = refusal(lambda: tiny_encoder(tiny("bert"), max_length=length), EncoderError, tiny("bert"))
    assert all(part in message for part in (f" {length} tokens", " 5", "--max-length 6"))
    assert tiny_encoder(tiny("bert"), max_length=6).info.max_length == 6


def test_truncate_dim_keeps_unit_rows(tiny: Tiny) -> None:
    full = tiny_encoder(tiny("bert")).encode(TEXTS, "passage")[:, :8]
    short = tiny_encoder(tiny("bert"), truncate_dim=8)
    assert short.info.dim == 8
    expected = full / np.linalg.norm(full, axis=1, keepdims=True)
    assert np.abs(short.encode(TEXTS, "passage") - expected).max() < 1e-6


def limited_to(
    size: int, monkeypatch: pytest.MonkeyPatch, error: type[Exception] = torch.cuda.OutOfMemoryError, text: str = ""
) -> list[int]:
    """Makes every device run out of memory above `size` padded tokens; returns the sizes that were tried."""
    real, asked = Replica.forward, []

    def forward(replica: Replica, batch: Any, *rest: Any) -> Any:
        asked.append(batch.ids.size)
        if batch.ids.size > size:
            raise error(text)
        return real(replica, batch, *rest)

    monkeypatch.setattr(Replica, "forward", forward)
    return asked


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_out_of_memory_halves_the_batch_and_loses_nothing(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=256, device=device)
    expected = encoder.encode(TEXTS, "passage")
    asked = limited_to(64, monkeypatch)
    assert np.abs(encoder.encode(TEXTS, "passage") - expected).max() < 1e-5
    assert encoder.batch_tokens == 64
    assert max(asked) > 64
    asked.clear()
    encoder.encode(TEXTS, "passage")  # what did not fit is not tried again
    assert max(asked) <= 64
    limited_to(20, monkeypatch)
    message = refusal(lambda: encoder.encode(TEXTS, "passage"), EncoderError, None)
    assert all(part in message for part in ("on cpu", "40 tokens", "--max-length", "--device cpu"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "MPS backend out of memory (MPS allocated: 17.9 GB)",
        "CUDA error: out of memory",
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
    ],
)
def test_running_out_of_memory_elsewhere_halves_the_batch_too(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=256)
    expected = encoder.encode(TEXTS, "passage")
    limited_to(64, monkeypatch, RuntimeError, message)
    assert np.abs(encoder.encode(TEXTS, "passage") - expected).max() < 1e-5
    assert encoder.batch_tokens == 64


def test_a_device_without_room_for_the_model_is_reported(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 90.00 MiB")

    monkeypatch.setattr(torch.nn.Module, "to", refuse)
    message = refusal(lambda: tiny_encoder(tiny("bert")), EncoderError, None)
    assert all(part in message for part in (" cpu: CUDA out", "--dtype bf16", "--device cpu"))


MANY = [f"{text} {number}" for number in range(12) for text in TEXTS]


def test_two_devices_give_the_rows_of_one(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tiny_encoder(tiny("bert"), batch_tokens=128)
    expected = one.encode(MANY, "passage")
    two = tiny_encoder(tiny("bert"), batch_tokens=128, device="cpu,cpu")
    assert (one.info.device, two.info.device) == ("cpu", "cpu,cpu")
    assert one.info.fingerprint == two.info.fingerprint
    done: dict[int, int] = {}
    both, real = threading.Barrier(2), Replica.forward

    def forward(replica: Replica, *rest: Any) -> Any:
        worker = threading.get_ident()
        if worker not in done:
            done[worker] = 0
            both.wait(20)  # neither goes on before the other has work, too
        done[worker] += len(rest[0].positions)
        return real(replica, *rest)

    monkeypatch.setattr(Replica, "forward", forward)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    batches = list(two.batches(MANY, "passage"))
    places = np.concatenate([batch.positions for batch in batches])
    assert sorted(places.tolist()) == list(range(len(MANY)))
    assert len(done) == 2
    assert sum(done.values()) == len(MANY)
    assert np.abs(np.concatenate([batch.vectors for batch in batches])[np.argsort(places)] - expected).max() < 1e-6


def fails_on(monkeypatch: pytest.MonkeyPatch, n_good: int, survivors: int) -> list[int]:
    """Has two workers, of which all but the survivors fail after n_good batches. Returns the batches of those."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    workers: list[int] = []
    real, calls = Replica.forward, []

    def forward(replica: Replica, *rest: Any) -> Any:
        if threading.get_ident() not in workers:
            workers.append(threading.get_ident())
        if workers.index(threading.get_ident()) >= survivors:
            calls.append(len(rest[0].positions))
            if len(calls) > n_good:
                raise RuntimeError("CUDA error: unspecified launch failure")
        time.sleep(0.002)
        return real(replica, *rest)

    monkeypatch.setattr(Replica, "forward", forward)
    return calls


@pytest.mark.parametrize("n_good", [0, 4])
def test_the_others_take_over_from_a_device_that_fails(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, n_good: int
) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device="cpu,cpu")
    expected = encoder.encode(MANY, "passage")
    calls = fails_on(monkeypatch, n_good, survivors=1)
    assert np.abs(encoder.encode(MANY, "passage") - expected).max() < 1e-5  # `gather` checks: each text once
    assert len(calls) == n_good + 1
    assert len(encoder.failures) == 1
    assert not any(thread.name.startswith(("secid-encode", "secid-tokenise")) for thread in threading.enumerate())


def test_rows_that_a_failing_device_has_computed_are_not_lost(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails between computing a batch and handing its rows over: they are on the host before the batch counts."""
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device="cpu,cpu")
    expected = encoder.encode(MANY, "passage")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    failing: list[int] = []

    def rows(vectors: Any) -> Any:
        if threading.get_ident() == (failing or [threading.get_ident()])[0]:
            failing.append(threading.get_ident())
            if len(failing) > 3:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
        time.sleep(0.002)
        return host_rows(vectors)

    monkeypatch.setattr(devices, "host_rows", rows)
    assert np.abs(encoder.encode(MANY, "passage") - expected).max() < 1e-5
    assert len(encoder.failures) == 1


def test_a_failure_is_noted_once(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device="cpu,cpu")
    expected = embedded(encoder, MANY, tmp_path / "one")
    fails_on(monkeypatch, 2, survivors=1)
    rows = embedded(encoder, MANY, tmp_path / "two", cache=False)
    assert np.abs(rows.rows - expected.rows).max() < 1e-5
    assert len(rows.notes) == len(expected.notes) + 1


def test_when_all_devices_fail_it_is_an_error(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device="cpu,cpu")
    fails_on(monkeypatch, 3, survivors=0)
    message = refusal(lambda: encoder.encode(MANY * 20, "passage"), EncoderError, None)
    assert "unspecified launch failure" in message
    assert not any(thread.name.startswith(("secid-encode", "secid-tokenise")) for thread in threading.enumerate())


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_an_error_of_the_tokenizer_is_not_a_failure_of_a_device(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr("secid.encode.transformer.CPU_CHUNK", 8)
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device=device)
    tokenise, calls = encoder.parts.tokeniser.tokens, []

    def fails_later(chunk: list[str]) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("can't start new thread")
        return tokenise(chunk)

    monkeypatch.setattr(encoder.parts.tokeniser, "tokens", fails_later)
    with pytest.raises(RuntimeError, match="new thread"):
        encoder.encode([f"text {number}" for number in range(24)], "passage")
    assert encoder.failures == ()


def test_a_rejected_input_is_not_tried_on_the_next_device(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(tiny("bert"), batch_tokens=64, device="cpu,cpu")
    calls: list[int] = []

    def forward(*_: Any) -> Any:
        calls.append(1)
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Replica, "forward", forward)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert "--device cpu" in refusal(lambda: encoder.encode(["a"], "passage"), EncoderError, None)
    assert len(calls) <= 2


def test_tokens_beyond_the_model_are_refused_before_it_runs(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(tiny("xlm-roberta"), max_length=64)
    assert Limits.of(encoder.parts.replica.model).n_positions == 64
    encoder.parts.tokeniser._core.add_tokens(["zyx"])
    monkeypatch.setattr(Replica, "forward", None)
    message = refusal(lambda: encoder.encode(["zyx"], "passage"), EncoderError, None)
    assert str(Limits.of(encoder.parts.replica.model).n_words) in message


def test_a_copy_of_the_model_shares_nothing_and_is_made_on_its_device(tiny: Tiny) -> None:
    replica = tiny_encoder(tiny("qwen3"), device="cpu", dtype="bf16").parts.replica
    meta = replica.on(torch.device("meta"))
    tensors = [*meta.model.parameters(), *meta.model.buffers()]
    assert tensors
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert {tensor.device.type for tensor in replica.model.parameters()} == {"cpu"}


def test_a_gpu_takes_part_where_there_is_work_for_it(tiny: Tiny) -> None:
    assert [n_devices(8, n) for n in (0, 1, 300, 32_768, 32_769, 100_000, 10**6)] == [1, 1, 1, 1, 2, 4, 8]
    assert n_devices(1, 10**6) == 1


@pytest.mark.parametrize(
    ("device", "capability", "expected"),
    [
        ("cuda", (9, 0), torch.bfloat16), ("cuda:1", (8, 0), torch.bfloat16), ("cuda", (7, 5), torch.float16),
        ("cuda", (6, 1), torch.float32), ("cpu", (9, 0), torch.float32), ("mps", (9, 0), torch.float32),
    ],
)  # fmt: skip
def test_the_number_format_is_one_that_the_hardware_has(
    monkeypatch: pytest.MonkeyPatch, device: str, capability: tuple[int, int], expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_dtype("auto", torch.device(device)) == expected
    assert choose_dtype("bf16", torch.device(device)) == torch.bfloat16


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_a_bad_row_stops_the_run_and_names_its_text(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    encoder, real = tiny_encoder(tiny("bert"), device=device), Replica.forward
    bad = MANY.index("a 9")

    def forward(replica: Replica, batch: Any, *rest: Any) -> Any:
        vectors = real(replica, batch, *rest).clone()
        vectors[torch.from_numpy(batch.positions == bad)] = float("nan")
        return vectors

    monkeypatch.setattr(Replica, "forward", forward)
    with pytest.raises(NonFiniteEmbeddingError, match="'a 9'"):
        list(embed(encoder, MANY, "query"))


def test_auto_takes_all_gpus_and_kinds_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for count, expected in ((1, ["cuda"]), (3, ["cuda:0", "cuda:1", "cuda:2"])):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert list(map(str, choose_devices("auto"))) == expected
    assert list(map(str, choose_devices("cuda:2,cuda:0"))) == ["cuda:2", "cuda:0"]
    assert "'cuda:0,cpu'" in refusal(lambda: choose_devices("cuda:0,cpu"), EncoderError, "--device")
    message = refusal(lambda: choose_devices("cuda:0,cuda:3"), EncoderError, "--device")
    assert all(part in message for part in ("cuda:3", "CUDA devices: 3"))
    assert "''" in refusal(lambda: choose_devices("cuda:0,"), EncoderError, "--device")


def test_texts_in_the_cache_need_no_model(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(encoder: TransformerEncoder, texts: list[str]) -> np.ndarray:
        return embedded(encoder, texts, tmp_path / "work", "query", **settings).rows

    settings = {"cache": True, "cache_dir": str(tmp_path / "cache")}
    first = tiny_encoder(tiny("bert"), **settings)
    expected = rows(first, TEXTS)
    loads, real = [], parts._load_chain
    monkeypatch.setattr(parts, "_load_chain", lambda *rest: loads.append(1) or real(*rest))
    again = tiny_encoder(tiny("bert"), **settings)
    assert again.info == first.info
    assert np.array_equal(rows(again, TEXTS), expected)
    assert loads == []
    assert np.abs(rows(again, [*TEXTS, "new"])[:-1] - expected).max() == 0
    assert loads == [1]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in ("bert", "distilbert", "mpnet")),
        ("xlm-roberta", {"pooling": "cls"}),
        ("bert", {"dtype": "bf16", "normalize": False}),
    ],
)
def test_a_known_plain_encoder_runs_without_sentence_transformers(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, options: dict[str, Any]
) -> None:
    """Vectors are equal to the last bit, with padding and without; the self-test's reference still is the library's."""
    settings = {"cache": True, "cache_dir": str(tmp_path / "cache"), **options}
    first = tiny_encoder(tiny(family), **settings)
    assert not isinstance(first.parts.replica.model, parts.PlainChain)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sentence_transformers", None)  # cannot be imported
        again = tiny_encoder(tiny(family), **settings)
        for role in ("query", "passage"):
            for texts in (TEXTS, TEXTS[:1]):
                assert np.array_equal(again.encode(texts, role), first.encode(texts, role))
        assert isinstance(again.parts.replica.model, parts.PlainChain)
    assert again.info == first.info
    assert np.array_equal(again.reference(TEXTS, "query"), first.reference(TEXTS, "query"))


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        ("1_Pooling/config.json", {"include_prompt": False}),
        ("1_Pooling/config.json", {"pooling_mode": "max"}),
        ("sentence_bert_config.json", {"unpad_inputs": False}),
    ],
)
def test_other_chains_are_sentence_transformers_own(tiny: Tiny, tmp_path: Path, place: str, fields: dict) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "changed")
    document = json.loads((folder / place).read_text(encoding="utf-8"))
    (folder / place).write_text(json.dumps(document | fields), encoding="utf-8")
    settings = {"cache": True, "cache_dir": str(tmp_path / "cache")}
    first, again = (tiny_encoder(folder, **settings) for _ in range(2))
    assert np.array_equal(again.encode(TEXTS, "query"), first.encode(TEXTS, "query"))
    assert not isinstance(again.parts.replica.model, parts.PlainChain)


OWN_MODULE = """
from sentence_transformers.sentence_transformer.modules import Transformer as Base

class Transformer(Base):
    forward_kwargs = {"task"}

    def forward(self, features, task=None, **named):
        features = super().forward(features, **named)
        shift = {"retrieval.query": 1.0, "retrieval.passage": 2.0}[task]
        features["token_embeddings"][..., 0] += 10 * shift
        return features
"""


def test_own_modules_run_with_the_adapter_that_was_chosen(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("bert"), tmp_path / "own")
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    modules[0]["type"] = "custom_st.Transformer"
    write_json(folder / "modules.json", modules)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = ["retrieval.query", "retrieval.passage"]
    write_json(folder / "config.json", {**config, "lora_adaptations": names})
    write_json(folder / "config_sentence_transformers.json", {"prompts": dict.fromkeys(names, "passage: ")})
    (folder / "custom_st.py").write_text(OWN_MODULE, encoding="utf-8")
    assert "--trust-remote-code" in refusal(lambda: tiny_encoder(folder), EncoderError, folder / "modules.json")
    chosen = {"query_prompt": names[0], "passage_prompt": names[1]}
    encoder = tiny_encoder(folder, trust_remote_code=True, **chosen)
    queries, passages = encoder.encode(TEXTS, "query"), encoder.encode(TEXTS, "passage")
    assert np.abs(queries - passages).max() > 1e-3
    assert (queries[:, 0] < passages[:, 0]).all()


def test_hashes_of_unchanged_files_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, memory = tmp_path / "weights", tmp_path / "cache" / "weights.json"
    read: list[Path] = []
    real = segment.sha256_of
    monkeypatch.setattr(segment, "sha256_of", lambda path: read.append(path) or real(path))

    def age(seconds: float) -> None:
        os.utime(weights, (time.time() - seconds,) * 2)

    weights.write_bytes(b"one")
    assert segment.file_sha256(weights, memory) == hashlib.sha256(b"one").hexdigest()
    assert not memory.exists()  # just written: it may change again within the clock's step
    age(100)
    assert len({segment.file_sha256(weights, memory) for _ in range(3)}) == 1
    assert len(read) == 2
    weights.write_bytes(b"two")
    age(90)
    assert segment.file_sha256(weights, memory) == hashlib.sha256(b"two").hexdigest()
    memory.write_bytes(b"[damaged")
    assert segment.files_sha256([weights], memory) == hashlib.sha256(b"two").hexdigest()
    assert len(read) == 4


def one_weight_removed(folder: Path) -> Path:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.layer.1.output.dense.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("file", "share"),
    [("model.safetensors", 0.0), ("model.safetensors", 0.5), ("2_Dense/model.safetensors", 0.0),
     ("3_Dense/model.safetensors", 0.5)],
)  # fmt: skip
def test_cut_weights_are_refused(tiny: Tiny, tmp_path: Path, file: str, share: float) -> None:
    folder = shutil.copytree(tiny("gemma3_text"), tmp_path / "cut")
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(EncoderError) as caught:
        tiny_encoder(folder)
    assert caught.value.where in (str(folder), str(folder / file))
    assert caught.value.remedy == SAVE_AGAIN


def test_a_text_beyond_unknown_positions_is_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secid.encode.recipe.POSITION_TABLES", frozenset())
    encoder = tiny_encoder(tiny("bert"), max_length=99)
    message = refusal(lambda: encoder.encode(["ice " * 200], "passage"), EncoderError, None)
    assert all(part in message for part in ("99 tokens", "--max-length"))


def test_pickle_is_loaded_only_when_asked(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = shutil.copytree(tiny("bert"), tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "--set allow_pickle=yes" in refusal(lambda: tiny_encoder(folder), EncoderError, folder)
    encoder = tiny_encoder(folder, allow_pickle=True)
    assert Fact("pickle") in encoder.info.facts
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
    assert "--trust-remote-code" in refusal(lambda: tiny_encoder(folder), EncoderError, folder)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("name", ["cuda", "cuda:3", "xpu", "xpu:1"])
def test_a_missing_device_is_refused(tiny: Tiny, name: str) -> None:
    message = refusal(lambda: load(Settings(encoder=str(tiny("bert")), device=name)), EncoderError, "--device")
    assert f"{name} is not available" in message
    assert ("CUDA devices: 0" in message) == name.startswith("cuda")


def test_each_kind_of_device_has_its_size_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 1)
    assert list(map(str, choose_devices("xpu:0"))) == ["xpu:0"]
    sizes = [devices.default_budget(torch.device(name)) for name in ("cpu", "xpu", "mps", "cuda")]
    assert sizes == [512, 16_384, 16_384, 131_072]


def test_bf16_differs_little(tiny: Tiny) -> None:
    exact = tiny_encoder(tiny("bert")).encode(TEXTS, "passage")
    encoder = tiny_encoder(tiny("bert"), dtype="bf16")
    rough = encoder.encode(TEXTS, "passage")
    assert encoder.info.dtype == "bf16"
    assert rough.dtype == np.float32
    assert 1e-6 < np.abs(rough - exact).max() < 0.1


NAMES = ("./nothing", "minilmx", "v.npy", "folder/v.npy", "q", "a/b/c", "")


def test_wording(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    bert, gemma = shutil.copytree(tiny("bert"), tmp_path / "bert"), shutil.copytree(tiny("gemma3_text"), tmp_path / "g")
    texts = {name: refusal(lambda name=name: load(Settings(encoder=name)), EncoderError, None) for name in NAMES}
    texts["no encoder"] = refusal(lambda: load(Settings()), EncoderError, None)

    def loading(situation: str, folder: Path, where: Path | str | None, **settings: Any) -> None:
        texts[situation] = refusal(lambda: tiny_encoder(folder, **settings), EncoderError, where)

    def embedding(situation: str, encoder: Any, where: Path | str) -> None:
        texts[situation] = refusal(lambda: list(embed(encoder, ["a"], "query")), NonFiniteEmbeddingError, where)

    loading("an unknown device", bert, "--device", device="gpu")
    loading("no room for the text", bert, bert, max_length=5)
    loading("too many dimensions", bert, None, truncate_dim=33)
    unpadded = shutil.copytree(bert, tmp_path / "unpadded")
    config = json.loads((unpadded / "tokenizer_config.json").read_text("utf-8"))
    write_json(unpadded / "tokenizer_config.json", {**config, "pad_token": None})
    loading("no padding token", unpadded, unpadded)
    with monkeypatch.context() as patch:
        patch.setattr(Replica, "forward", lambda *rest: torch.full((1, 32), float("nan")))
        embedding("NaN in bf16", tiny_encoder(bert, dtype="bf16"), bert)
        embedding("NaN in float32", tiny_encoder(bert), bert)
    encoder = tiny_encoder(bert)
    with monkeypatch.context() as patch:
        limited_to(2, patch)
        texts["out of memory"] = refusal(lambda: encoder.encode(["a"], "query"), EncoderError, None)
    modules = json.loads((gemma / "modules.json").read_text(encoding="utf-8"))
    write_json(gemma / "modules.json", [module for module in modules if module["path"] != "2_Dense"])
    loading("a head of another width", gemma, gemma)
    (gemma / "3_Dense" / "model.safetensors").rename(gemma / "3_Dense" / "pytorch_model.bin")
    loading("a head with pickle alone", gemma, gemma / "3_Dense")
    shutil.copy(bert / "config.json", tmp_path)
    write_json(bert / "config.json", {**json.loads((bert / "config.json").read_text("utf-8")), "vocab_size": 999})
    loading("weights of another shape", bert, bert)
    shutil.copy(tmp_path / "config.json", bert)
    (bert / "tokenizer.json").rename(tmp_path / "words")
    assert "tokenizer" in refusal(lambda: tiny_encoder(bert), EncoderError, bert)  # the rest is transformers'
    (tmp_path / "words").rename(bert / "tokenizer.json")
    one_weight_removed(bert)
    loading("a missing weight", bert, bert)
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    loading("pickle alone", bert, bert)
    (bert / "pytorch_model.bin").unlink()
    loading("no weights", bert, bert)
    write_json(bert / "model.safetensors.index.json", {})
    loading("an index without a map", bert, bert / "model.safetensors.index.json")
    own = {name: text.replace(str(tmp_path), "WORK").replace("mm: mat1", "mat1") for name, text in texts.items()}
    snapshot("encoders.txt", situations(own))  # torch 2.15 begins its message with the operator


def test_the_offline_weights_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "MINILM_SHA256", "0" * 64)
    with pytest.raises(EncoderError, match=r"\b0{64}\b"):
        load(Settings(encoder="minilm"))


def test_packed_layers_give_the_same_rows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "can_pack", lambda device, dtype: False)
    plain = tiny_encoder(tiny("bert"))
    monkeypatch.undo()
    if not parts.can_pack(torch.device("cpu"), torch.float32):
        pytest.skip("this machine has no packed linear layers")
    fast = tiny_encoder(tiny("bert"))
    assert any(isinstance(module, parts.PackedLinear) for module in fast.parts.replica.model.modules())
    assert not any(isinstance(module, parts.PackedLinear) for module in plain.parts.replica.model.modules())
    assert np.abs(fast.encode(TEXTS, "query") - plain.encode(TEXTS, "query")).max() < 1e-6
