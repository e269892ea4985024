"""Rows of texts: one stream a role, in a reserved file or on a device, and the same whichever it is."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from secid.encode import EncodedBatch, from_callable
from secid.encode.device import gpu_with_room
from secid.errors import EncoderError, NonFiniteEmbeddingError, OutputError
from secid.pool.texts import StoredTexts, TextSpool
from secid.progress import Silent
from secid.settings import Settings
from secid.triplets import embedding
from secid.triplets import embedding as module
from secid.triplets.embedding import DeviceRows, Embedder, FileRows
from tests.fake_encoder import HashEncoder

D = 16
usage = namedtuple("usage", "total used free")


class Streaming(HashEncoder):
    """Yields batches in an order of its own. asked: the sequences that it was given, by role."""

    failures = ()

    def __init__(self, kind: str = "array", scale: float = 1.0) -> None:
        super().__init__(D)
        self.kind, self.scale = kind, scale
        self.asked: list[tuple[str, Any]] = []

    def batches(self, texts: Sequence[str], role: Any) -> Iterator[EncodedBatch]:
        self.asked.append((role, texts))
        for start in range(0, len(texts), 30):
            order = np.arange(start, min(start + 30, len(texts)))[::-1]
            rows = self.encode([texts[place] for place in order.tolist()], role) * np.float32(self.scale)
            values: Any = torch.from_numpy(rows) if self.kind == "tensor" else rows
            yield EncodedBatch(order, values, order % 7 == 0, len(order))


def stores_of(folder: Path, n_queries: int = 70, n_passages: int = 200) -> list[Any]:
    stores = []
    for role, n in (("query", n_queries), ("passage", n_passages)):
        spool = TextSpool(role, folder / f"{role}.texts")
        spool.add([f"{role} {number} {'word ' * (number % 9)}" for number in range(n)])
        stores.append(spool.store()[0])
    return stores


def embedder(tmp_path: Path, encoder: Any, **settings: Any) -> Embedder:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    own = Settings(**{"cache": False, "cache_dir": str(tmp_path / "cache"), **settings})
    return Embedder(*stores_of(work), encoder, own, work, Silent())


def rows_of(own: Embedder, role: Any, ids: np.ndarray) -> np.ndarray:
    """Rows by rising ids, wherever they are."""
    if own.vectors.gather is None:
        return (own.vectors.queries if role == "query" else own.vectors.passages).numpy()[ids]
    out = torch.empty((len(ids), D))
    own.vectors.gather(role, ids, out)
    return out.numpy()


def expected(own: Embedder, role: Any) -> np.ndarray:
    store = own._stores[role]
    return HashEncoder(D).encode(store.get(0, len(store)), role)


def test_a_share_of_further_texts_may_be_added(tmp_path: Path) -> None:
    own = embedder(tmp_path, Streaming("array"))
    n = sum(map(len, own._stores.values()))
    assert [own.may_add(n_texts, 0.5) for n_texts in (0, n // 2, n // 2 + 1)] == [True, True, False]
    own.close()


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("cache", [False, True])
def test_rows_are_those_of_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool, kind: str, cache: bool
) -> None:
    monkeypatch.setattr(module, "ROWS_IN_MEMORY_BYTES", 270 * 4 * D - (not in_memory))
    for n_cached in (0, 180 if cache else 0):
        encoder = Streaming(kind)
        own = embedder(tmp_path, encoder, cache=cache)
        own.need(np.array([5, 3, 5, 60]), np.arange(100, dtype=np.int32)[::-1])
        own.need(np.arange(70), np.arange(0, 200, 2))
        own.need(np.arange(70), np.arange(0, 200, 2))
        own.close()
        assert (own.vectors.gather is None) == in_memory
        needed = np.unique(np.concatenate([np.arange(100), np.arange(0, 200, 2)]))
        np.testing.assert_allclose(rows_of(own, "query", np.arange(70)), expected(own, "query"), atol=1e-6)
        np.testing.assert_allclose(rows_of(own, "passage", needed), expected(own, "passage")[needed], atol=1e-6)
        assert own.counts["n_texts"] == 70 + len(needed)
        assert own.counts["n_cached"] == (own.counts["n_texts"] if n_cached else 0)
        assert own.truncated is not None
        if not in_memory:
            with pytest.raises(IndexError):
                rows_of(own, "passage", np.array([101]))


def test_a_fault_of_the_device_that_holds_the_rows_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is simulated by the host's memory; what was encoded before the fault is in the cache."""

    def fails(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    own = embedder(tmp_path, Streaming(), cache=True)
    own.need(np.arange(70), np.arange(0))
    with monkeypatch.context() as broken:
        broken.setattr(embedding, "to_device", fails)
        with pytest.raises(EncoderError, match="stored vectors"):
            own.everything()
    own.close()
    again = embedder(tmp_path, Streaming(), cache=True)
    again.everything()
    assert again.counts["n_cached"] >= 70


def test_each_role_is_one_stream_of_texts_that_are_read_as_they_are_needed(tmp_path: Path) -> None:
    encoder = Streaming()
    own = embedder(tmp_path, encoder)
    own.everything()
    assert [(role, len(texts)) for role, texts in encoder.asked] == [("query", 70), ("passage", 200)]
    assert all(isinstance(texts, StoredTexts) for _, texts in encoder.asked)
    n_bytes = sum(len(text.encode()) for _, texts in encoder.asked for text in texts)
    assert own.counts == {
        "n_texts": 270, "n_cached": 0, "n_encoded": 270, "n_bytes": n_bytes, "n_tokens": 270, "n_truncated": 39,
    }  # fmt: skip
    own.everything()
    assert len(encoder.asked) == 2


def test_stored_texts_are_a_sequence(tmp_path: Path) -> None:
    store = stores_of(tmp_path)[1]
    texts = StoredTexts(store, np.array([7, 3, 150, 3]))
    expected_texts = [store.get(place, place + 1)[0] for place in (7, 3, 150, 3)]
    assert list(texts) == expected_texts
    assert (texts[1:3], texts[-1], texts[4:]) == (expected_texts[1:3], expected_texts[3], [])
    with pytest.raises(IndexError):
        texts[4]


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("scale", [1.0, 3.0, 1e-20, 1e19, 1.001])
def test_rows_have_length_1_whatever_the_encoder_gives(tmp_path: Path, kind: str, scale: float) -> None:
    own = embedder(tmp_path, Streaming(kind, scale))
    own.everything()
    rows = rows_of(own, "passage", np.arange(200))
    assert np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1).max() < 1e-6
    np.testing.assert_allclose(rows, expected(own, "passage"), atol=1e-6)


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_rows_without_a_direction_are_refused(tmp_path: Path, kind: str, scale: float) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(NonFiniteEmbeddingError):
        embedder(tmp_path, Streaming(kind, scale)).everything()


def test_rows_go_to_the_gpu_while_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 2 * 10**9))
    for name in ("cpu", "mps", "file", "endpoint"):
        assert gpu_with_room(name, 1) is None
    assert gpu_with_room("cuda:1,cuda:0", 4 * 10**8) == torch.device("cuda:1")
    assert gpu_with_room("cuda:1,cuda:0", 4 * 10**8 + 1) is None


def test_rows_of_a_file_are_copied_to_the_device_of_the_target(tmp_path: Path) -> None:
    rows = FileRows(tmp_path / "rows", 10, D)
    rows.writer(np.arange(3))(np.arange(3), np.zeros((3, D), np.float32))
    rows.take(np.arange(3), torch.empty((3, D), device="meta"))
    put = DeviceRows(torch.device("meta"), 10, D).writer(np.arange(2, 9))
    put(np.arange(3), np.zeros((3, D), np.float32))
    put(np.arange(3), torch.zeros((3, D), device="meta"))


@pytest.mark.parametrize("part", [1, 7, 10**6])
def test_rows_arrive_in_any_order_and_are_read_by_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(module, "COPIED_BYTES_AT_ONCE", part * 4 * D)
    generator = np.random.default_rng(part)
    values = generator.standard_normal((500, D)).astype(np.float32)
    ids = np.sort(generator.choice(500, 430, replace=False))
    rows = FileRows(tmp_path / "rows", 500, D)
    order = generator.permutation(430)
    put = rows.writer(ids)
    for start in range(0, 430, 30):
        put(order[start : start + 30], values[ids[order[start : start + 30]]])
    for some in (ids, ids[::3], ids[:0], ids[-1:]):
        out = torch.empty((len(some), D))
        rows.take(some, out)
        rows.release()
        assert np.array_equal(out.numpy(), values[some])


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_room_is_reserved_only_for_the_rows_to_come(tmp_path: Path) -> None:
    rows = FileRows(tmp_path / "rows", 100_000, D)
    sizes = []
    for n in (0, 1000, 2000):
        rows.reserve(n)
        sizes.append((tmp_path / "rows").stat().st_blocks * 512)
    assert sizes[0] < 1000 * D * 4 <= sizes[1] < 2000 * D * 4 <= sizes[2] < 100_000 * D * 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_without_room_for_the_rows_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "ROWS_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    encoder = Streaming()
    with pytest.raises(OutputError) as caught:
        embedder(tmp_path, encoder).everything()
    assert os.strerror(number) in caught.value.message
    assert caught.value.remedy
    assert encoder.asked == []


@pytest.mark.parametrize("how", ["no call", "not supported"])
def test_where_space_cannot_be_reserved_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(module, "ROWS_IN_MEMORY_BYTES", 0)

    def unsupported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if how == "no call":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    embedder(tmp_path, Streaming()).everything()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6, 270 * D * 4 - 1))
    encoder = Streaming()
    with pytest.raises(OutputError):
        embedder(tmp_path, encoder).everything()
    assert encoder.asked == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX")
def test_a_limit_on_the_size_of_files_is_an_error_and_no_signal(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OutputError):
            FileRows(tmp_path / "rows", 100_000, 16)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_function_with_a_fingerprint_is_cached_and_one_without_is_not(tmp_path: Path) -> None:
    for fingerprint, n_cached in (("mine", 270), ("", 0)):
        for expected_count in (0, n_cached):
            encoder = from_callable(
                lambda texts, role: HashEncoder(D).encode(texts, role), "f", fingerprint=fingerprint or None
            )
            own = embedder(tmp_path, encoder, cache=True)
            own.everything()
            own.close()
            assert own.counts["n_cached"] == expected_count
            assert own.truncated is None
