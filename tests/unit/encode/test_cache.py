"""The cache gives back what was put in, survives damage, kills and full disks, and stays under its limit."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.encode import Cache, CacheFolder, EncodedBatch, from_callable
from secid.encode import cache as cache_module
from secid.encode import segment as segment_module
from secid.encode.cache_folder import DAMAGED_PREFIX, REMOVAL_PREFIX, readable_segments
from secid.encode.segment import DamagedSegmentError, Segment, SegmentWriter, find_keys, key_words
from secid.errors import NonFiniteEmbeddingError
from secid.settings import Settings, flag_of
from tests.kills import forked

from .conftest import embedded, embedder, text_keys

FINGERPRINT = "f" * 64
ROW_BYTES = 16 * 4 + 17


def rows_of(texts: Sequence[str], role: str = "passage") -> np.ndarray:
    """A row that depends on the text and role alone."""
    keys = text_keys(list(texts), role).astype(np.float32) + 1
    return keys / np.linalg.norm(keys, axis=1, keepdims=True)


class Counting:
    """An encoder function that records the texts of its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str], role: str) -> np.ndarray:
        if texts != ["dimension"]:
            self.asked.extend(texts)
        return rows_of(texts, role)


def run(folder: Path, texts: list[str], *, limit: float = 10**9, role: str = "passage", cache: bool = True) -> Any:
    """Rows, counts and notes of a run, and the texts that were encoded. folder: of the cache."""
    function = Counting()
    encoder = from_callable(function, "counting", fingerprint=FINGERPRINT)
    work = folder.with_name(f"{folder.name}.work")
    outcome = embedded(encoder, texts, work, role, cache_dir=str(folder), cache_gb=limit / 1e9, cache=cache)
    outcome.asked = function.asked
    assert len(texts) == outcome.n_texts == outcome.n_cached + outcome.n_encoded
    assert np.allclose(outcome.rows, rows_of(texts, role), atol=1e-6)
    return outcome


def in_parts(folder: Path, cleared_at: int | None = None) -> Any:
    """A closed embedder that has encoded TEXTS in parts. cleared_at: the part after which the cache is cleared."""
    encoder = from_callable(Counting(), "counting", fingerprint=FINGERPRINT)
    own = embedder(encoder, TEXTS, folder.with_name("work"), cache_dir=str(folder))
    for start in range(0, 700, 100):
        own.passages(np.arange(start, start + 100))
        if start == cleared_at:
            own._cache.flush()
            assert CacheFolder(folder, 10**9).clear().n_bytes_freed > 0
    own.close()
    return own


def segments(folder: Path) -> list[Path]:
    return readable_segments(folder / FINGERPRINT)


def cached_rows(
    folder: Path, keys: np.ndarray, dimension: int = 16
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Cache]:
    """Return the cached keys, their rows and marks, read by a new cache."""
    cache = Cache(CacheFolder(folder, 10**9), FINGERPRINT)
    rows, marks = np.full((len(keys), dimension), -1, np.float32), np.zeros(len(keys), np.bool_)

    def put(positions: np.ndarray, values: np.ndarray, truncated: np.ndarray) -> None:
        rows[positions], marks[positions] = values, truncated

    return cache.lookup(keys, dimension, put), rows, marks, cache


TEXTS = [f"text {number}" for number in range(700)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of ten rows, read one after another; segments of 256 rows, which is a call of the encoder."""
    monkeypatch.setattr(segment_module, "CHECKSUM_BLOCK_BYTES", 640)
    monkeypatch.setattr(segment_module, "N_READERS", 1)
    monkeypatch.setattr(cache_module, "SEAL_BYTES", 256 * ROW_BYTES)


def test_the_second_run_encodes_nothing(folder: Path) -> None:
    first, second = run(folder, TEXTS), run(folder, TEXTS[::-1])
    assert (first.n_encoded, second.n_encoded, second.n_cached, second.asked) == (700, 0, 700, [])
    assert np.array_equal(first.rows[::-1], second.rows)


def test_only_new_texts_are_encoded(folder: Path, small_blocks: None) -> None:
    run(folder, TEXTS[:300])
    outcome = run(folder, TEXTS[100:400])
    assert (outcome.n_cached, outcome.asked) == (200, TEXTS[300:400])


def test_roles_are_kept_apart(folder: Path) -> None:
    run(folder, TEXTS)
    assert run(folder, TEXTS, role="query").n_cached == 0


def test_no_texts_and_no_cache(folder: Path) -> None:
    assert run(folder, []).n_texts == 0
    unnamed = from_callable(Counting(), "unnamed")  # without a fingerprint nothing may be kept
    assert embedded(unnamed, ["a", "b"], folder.with_name("work"), cache_dir=str(folder)).n_encoded == 2
    assert run(folder, ["a", "b"], cache=False).n_encoded == 2
    assert not folder.exists()


@pytest.mark.parametrize("file", ["rows.bin", "keys.bin", "contents.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_segment_is_quarantined_and_encoded_again(folder: Path, file: str, damage: str) -> None:
    run(folder, TEXTS[:350])
    run(folder, TEXTS)
    victim = segments(folder)[0] / file
    content = bytearray(victim.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0x04
        victim.write_bytes(bytes(content))
    elif damage == "cut":
        victim.write_bytes(bytes(content[: len(content) // 2]))
    else:
        victim.unlink()
    outcome = run(folder, TEXTS)
    assert (outcome.n_cached, outcome.asked) == (350, TEXTS[:350])
    n_damaged = 0 if (file, damage) == ("contents.json", "gone") else 1  # it looks like one that was never sealed
    assert CacheFolder(folder, 10**9).info().n_damaged == len(outcome.notes) == n_damaged
    assert run(folder, TEXTS).n_cached == 700


def test_only_the_blocks_that_are_needed_are_read(folder: Path, small_blocks: None) -> None:
    run(folder, TEXTS[:256])
    rows = segments(folder)[0] / "rows.bin"
    content = bytearray(rows.read_bytes())
    content[15 * 64] ^= 1  # in the second block
    rows.write_bytes(content)
    assert run(folder, [*TEXTS[:10], *TEXTS[20:256]]).n_cached == 246
    outcome = run(folder, TEXTS[:256])
    assert (outcome.n_cached, outcome.asked) == (10, TEXTS[10:256])


@pytest.mark.parametrize("name", ["n", "dimension", "keys", "block_rows", "format"])
def test_a_changed_number_in_a_segment_s_contents_is_noticed(folder: Path, name: str) -> None:
    run(folder, TEXTS)
    victim = segments(folder)[0] / "contents.json"
    meta = json.loads(victim.read_text(encoding="utf-8"))
    meta[name] = "0" if name == "keys" else meta[name] + 4
    victim.write_text(json.dumps(meta), encoding="utf-8")
    assert run(folder, TEXTS).n_cached == 0
    assert run(folder, TEXTS).n_cached == 700
    assert CacheFolder(folder, 10**9).verify().n_whole == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_a_segment_that_cannot_be_read_now_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The segment may be intact: this run works without it, with one note, and the next run uses it."""
    for part in (TEXTS[:200], TEXTS[:400], TEXTS):
        run(folder, part)

    def fails(*_: Any) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "_read", fails)
        outcome = run(folder, TEXTS)
        check = CacheFolder(folder, 10**9).verify()
    assert (outcome.n_cached, len(outcome.notes)) == (0, 1)
    assert (check.n_whole, check.damaged, len(check.unreadable)) == (0, (), 4)
    assert CacheFolder(folder, 10**9).info().n_damaged == 0
    assert run(folder, TEXTS).n_cached == 700


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX")
def test_more_segments_than_files_may_be_open(folder: Path) -> None:
    import resource

    for number in range(120):
        write(folder, TEXTS[5 * number : 5 * number + 5])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 30, hard))
    try:
        outcome = run(folder, TEXTS[:600])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (outcome.n_cached, outcome.notes) == (600, [])
    assert CacheFolder(folder, 10**9).info().n_damaged == 0


@pytest.mark.parametrize("change", ["unlinked", "truncated", "removed"])
def test_files_may_change_while_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None, change: str
) -> None:
    """A map of them would end the process by SIGBUS, without a message, if another host removes them."""
    run(folder, TEXTS[:256])
    home, real, n_read = segments(folder)[0], Segment._part, []

    def changing(segment: Segment, places: np.ndarray) -> Any:
        part = real(segment, places)
        n_read.append(len(places))
        if len(n_read) == 3 and change == "removed":
            shutil.rmtree(home)
        elif len(n_read) == 3 and change == "unlinked":
            (home / "rows.bin").unlink()
        elif len(n_read) == 3:
            os.truncate(home / "rows.bin", 1000)
        return part

    monkeypatch.setattr(Segment, "_part", changing)
    outcome = run(folder, TEXTS[:256])
    assert (outcome.n_cached, outcome.n_encoded) == (30, 226)
    assert len(outcome.notes) == (0 if change == "removed" else 1)


@pytest.mark.parametrize("fingerprint", ["model/v1", "../outside", "CON", "x" * 300])
def test_a_fingerprint_is_not_a_path(tmp_path: Path, fingerprint: str) -> None:
    folder = CacheFolder(tmp_path / "cache", 10**9)
    cache = Cache(folder, fingerprint)
    cache.expect(700, 16)
    cache.add(text_keys(TEXTS, "query"), rows_of(TEXTS), np.zeros(700, dtype=np.bool_))
    cache.close()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert [use.n_rows for use in folder.info().encoders] == [700]
    assert folder.clear().n_bytes_freed > 0


def test_rows_of_another_dimension_stay(folder: Path) -> None:
    run(folder, TEXTS)
    cached, _, _, cache = cached_rows(folder, text_keys(TEXTS, "passage"), 3)
    assert not cached.any()
    assert cache.notes == []
    assert run(folder, TEXTS).n_cached == 700


def write(folder: Path, texts: list[str], *, seal: bool = True) -> SegmentWriter:
    """A segment of these texts, not closed if it is not to be sealed."""
    writer = SegmentWriter(folder / FINGERPRINT, 16, "float32", "")
    keys = np.concatenate([np.frombuffer(key_of(text), np.uint8) for text in texts]).reshape(-1, 16)
    writer.add(keys, rows_of(texts), np.zeros(len(texts), np.bool_))
    if seal:
        writer.seal()
        writer.close()
    return writer


def key_of(text: str) -> bytes:
    from secid.pool.texts import text_key

    return text_key("passage", text)


def test_a_segment_grows_and_readers_see_whole_rows(folder: Path, small_blocks: None) -> None:
    writer = write(folder, TEXTS[:25], seal=False)
    assert segments(folder) == []
    writer.seal()
    early = Segment(writer.folder)
    assert early.meta["n"] == 25
    writer.add(np.full((7, 16), 3, np.uint8), rows_of(TEXTS[:7]), np.ones(7, np.bool_))
    assert (Segment(writer.folder).meta["n"], len(early.keys()[0])) == (25, 25)
    writer.seal()
    for segment, n in ((early, 25), (Segment(writer.folder), 32)):
        segment.verify()
        rows = np.concatenate([part for _, part in segment.rows(np.arange(n))])
        assert np.array_equal(rows, np.concatenate([rows_of(TEXTS[:25]), rows_of(TEXTS[:7])])[:n])
        assert segment.keys()[1].sum() == n - 25
    writer.add(np.full((9, 16), 4, np.uint8), rows_of(TEXTS[:9]), np.ones(9, np.bool_))
    writer.close()
    assert (writer.folder / "rows.bin").stat().st_size == 32 * 64
    Segment(writer.folder).verify()


def test_one_run_leaves_one_segment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SEAL_SECONDS", 0.0)
    own = in_parts(folder)
    assert own._progress.notes == []
    assert len(segments(folder)) == 1
    assert run(folder, TEXTS).n_cached == 700


def test_clear_leaves_what_is_not_sealed(folder: Path) -> None:
    run(folder, TEXTS)
    writer = write(folder, ["new"], seal=False)
    own = CacheFolder(folder, 10**9)
    cleared = own.clear()
    assert cleared.n_bytes_freed > 0
    assert (cleared.n_unsealed, cleared.n_bytes_unsealed) == (1, 16 * 4 + 17)
    assert segments(folder) == []
    writer.seal()
    assert [use.n_rows for use in own.info().encoders] == [1]


def test_a_segment_that_is_cleared_while_it_grows_ends_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SEAL_SECONDS", 0.0)
    own = in_parts(folder, cleared_at=300)
    assert own._progress.notes == []
    assert run(folder, TEXTS).n_cached in (200, 300)


OLD, YOUNG = "00000000000000000001-0123abcd", "00000000000000000002-0123abcd"


def test_leftovers_of_killed_runs_go(folder: Path) -> None:
    run(folder, TEXTS[:5])
    home = folder / FINGERPRINT
    for name, age in ((OLD, 7200), (YOUNG, 60), (f"{REMOVAL_PREFIX}{OLD}", 1)):
        (home / name).mkdir()
        (home / name / "rows.bin").write_bytes(b"x" * 1000)
        os.utime(home / name, (time.time() - age,) * 2)
    CacheFolder(folder, 10**9).shrink()
    assert {path.name for path in home.iterdir()} == {YOUNG, segments(folder)[0].name}


def test_verify_finds_what_no_run_touched(folder: Path) -> None:
    run(folder, TEXTS[:350])
    run(folder, TEXTS)
    own = CacheFolder(folder, 10**9)
    assert (own.verify().n_whole, own.verify().damaged) == (2, ())
    victim = segments(folder)[0]
    (victim / "rows.bin").write_bytes(b"other")
    assert own.verify().damaged == (f"{FINGERPRINT}/{victim.name}",)
    assert own.verify().n_whole == 1


def test_info_and_clear(folder: Path) -> None:
    own = CacheFolder(folder, 123)
    assert own.info().encoders == ()
    run(folder, TEXTS)
    info = own.info()
    assert (info.limit_bytes, info.n_damaged) == (123, 0)
    assert [(use.fingerprint, use.n_segments, use.n_rows) for use in info.encoders] == [(FINGERPRINT, 1, 700)]
    assert info.n_bytes == info.encoders[0].n_bytes > 700 * ROW_BYTES
    assert own.clear().n_bytes_freed == info.n_bytes
    assert own.info().n_bytes == 0


def test_files_that_the_cache_did_not_make_are_kept(tmp_path: Path) -> None:
    (tmp_path / "letters" / "2026").mkdir(parents=True)
    (tmp_path / "letters" / "2026" / "one.txt").write_text("dear", encoding="utf-8")
    write(tmp_path, ["a", "b"])
    mine = tmp_path / FINGERPRINT / "notes"
    mine.mkdir()
    (mine / "two.txt").write_text("x" * 10_000, encoding="utf-8")
    folder = CacheFolder(tmp_path, 1)
    assert folder.info().n_bytes < 10_000
    folder.shrink()
    assert folder.clear().n_bytes_freed == 0  # the segment went by the limit
    assert (mine / "two.txt").exists()
    assert (tmp_path / "letters" / "2026" / "one.txt").exists()


def test_the_least_recently_used_segments_go(folder: Path) -> None:
    for part in (TEXTS[:200], TEXTS[200:400], TEXTS[400:600]):
        run(folder, part)
    before = segments(folder)
    for age, segment in zip((300, 200, 100), before, strict=True):
        os.utime(segment / "contents.json", (time.time() - age,) * 2)
    run(folder, TEXTS[:200])  # the oldest becomes the youngest
    CacheFolder(folder, CacheFolder(folder, 1).info().n_bytes - 1).shrink()
    assert segments(folder) == [before[0], before[2]]
    assert run(folder, TEXTS[:600]).n_cached == 400


def test_damaged_segments_go_first_when_space_is_short(folder: Path) -> None:
    run(folder, TEXTS[:350])
    run(folder, TEXTS)
    victim = segments(folder)[1]
    victim.rename(victim.with_name(DAMAGED_PREFIX + victim.name))
    CacheFolder(folder, CacheFolder(folder, 1).info().n_bytes - 1).shrink()
    assert CacheFolder(folder, 1).info().n_damaged == 0
    assert run(folder, TEXTS).n_cached == 350


@pytest.mark.parametrize("share", [0.9, 0.65, 0.4])
def test_a_run_larger_than_the_limit_keeps_what_fits(folder: Path, small_blocks: None, share: float) -> None:
    """Runs read in one order, the worst case for removing what was used longest ago: nothing would ever be cached."""
    texts = [f"long {number}" for number in range(5000)]
    limit = int(share * 5000 * ROW_BYTES)
    first = run(folder, texts, limit=limit)
    kept = [run(folder, texts, limit=limit).n_cached for _ in range(3)]
    assert len(first.notes) == 1
    assert flag_of("cache_gb", "N") in first.notes[0]
    assert CacheFolder(folder, limit).info().n_bytes <= limit * 1.1  # checksums of blocks this small are no trifle
    assert kept[0] == kept[2] > (share - 0.1) * 5000


def test_a_run_makes_room_by_removing_what_others_left(folder: Path, small_blocks: None) -> None:
    limit = 1000 * ROW_BYTES
    run(folder, TEXTS, limit=limit)
    others = [f"other {text}" for text in TEXTS]
    assert run(folder, others, limit=limit).notes == []
    assert run(folder, others, limit=limit).n_cached == 700
    assert run(folder, TEXTS, limit=limit).n_cached < 700


def test_no_room_at_all(folder: Path) -> None:
    outcome = run(folder, TEXTS, limit=10)
    assert len(outcome.notes) == 1
    assert CacheFolder(folder, 10).info().n_bytes == 0


def test_a_full_disk_is_not_blamed_on_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6, 0))
    cache = Cache(CacheFolder(folder, None), FINGERPRINT)
    cache.expect(700, 16)
    (note,) = cache.notes
    assert (" 0 of 700 " in note, flag_of("cache_gb") in note, flag_of("cache_dir") in note) == (True, False, True)


def test_the_default_limit_follows_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    for free, expected in ((10**9, 600_000_000), (10**13, 200 * 10**9)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(2 * free, free, free))
        assert CacheFolder.of(Settings(cache_dir=str(folder))).limit(200_000_000) == expected
    assert CacheFolder.of(Settings(cache_dir=str(folder), cache_gb=0.5)).limit(0) == 500_000_000


def test_the_folder_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CacheFolder.of(Settings(cache_dir=str(tmp_path))).folder == tmp_path
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert CacheFolder.of(Settings()).folder == tmp_path / "secid" / "embeddings"


@pytest.mark.parametrize("where", ["a file", "a folder in a file", "no permission"])
def test_a_cache_that_cannot_be_written_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = tmp_path / "cache"
    if where == "no permission":
        real = Path.mkdir

        def refuse(path: Path, *rest: Any, **more: Any) -> None:
            if folder in path.parents:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            real(path, *rest, **more)

        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        folder.write_text("x", encoding="utf-8")
        folder = folder / "inside" if where == "a folder in a file" else folder
    function = Counting()
    encoder = from_callable(function, "counting", fingerprint=FINGERPRINT)
    outcome = embedded(encoder, TEXTS, tmp_path / "work", cache_dir=str(folder))
    assert (outcome.n_encoded, len(outcome.notes)) == (700, 1)
    assert all(part in outcome.notes[0] for part in (str(folder), flag_of("cache_dir", "DIR")))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), MemoryError("no memory")])
def test_a_write_that_fails_ends_no_run_and_what_was_sealed_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(cache_module, "SEAL_SECONDS", 0.0)
    real, calls = SegmentWriter.add, []

    def full(writer: SegmentWriter, *rest: Any) -> None:
        real(writer, *rest)
        calls.append(1)
        if len(calls) == 2:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "add", full)
        outcome = run(folder, TEXTS)
    assert (outcome.n_encoded, len(outcome.notes), len(calls)) == (700, 1, 2)
    assert (getattr(error, "strerror", None) or str(error)) in outcome.notes[0]
    assert (segments(folder)[0] / "rows.bin").stat().st_size == 256 * 64  # the rest was given back
    assert run(folder, TEXTS).n_cached == 256


def test_folders_that_cannot_be_synced_are_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path).is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert run(folder, TEXTS).notes == []
    assert run(folder, TEXTS).n_cached == 700


def test_encoding_does_not_wait_for_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, go, threads = SegmentWriter.add, threading.Event(), set()

    def slow(writer: SegmentWriter, *rest: Any) -> None:
        threads.add(threading.get_ident())
        assert go.wait(30)
        real(writer, *rest)

    monkeypatch.setattr(SegmentWriter, "add", slow)
    encoder = from_callable(Counting(), "counting", fingerprint=FINGERPRINT)
    own = embedder(encoder, TEXTS, folder.with_name("work"), cache_dir=str(folder))
    own.everything()  # returns although nothing is written
    assert own.counts["n_encoded"] == 700
    assert segments(folder) == []
    go.set()
    own.close()
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert run(folder, TEXTS).n_cached == 700


def test_rows_that_wait_for_the_disk_are_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "PENDING_BYTES", 256 * 64)
    real, waiting, most = SegmentWriter.add, [], []

    def slow(writer: SegmentWriter, *rest: Any) -> None:
        time.sleep(0.01)
        most.append(own._cache._pending_bytes)
        real(writer, *rest)

    monkeypatch.setattr(SegmentWriter, "add", slow)
    encoder = from_callable(Counting(), "counting", fingerprint=FINGERPRINT)
    own = embedder(encoder, TEXTS, folder.with_name("work"), cache_dir=str(folder))
    own.everything()
    own.close()
    assert max(most) <= 2 * 256 * 64
    assert waiting == []


class Halves:
    """An encoder that computes in 16 bits and yields torch tensors in a stream."""

    failures = ()

    def __init__(self, dtype: str) -> None:
        encoder = from_callable(Counting(), "halves", fingerprint=FINGERPRINT)
        self.info = replace(encoder.info, dtype=dtype, pooling="mean")

    def batches(self, texts: Sequence[str], role: str) -> Iterator[EncodedBatch]:
        import torch

        for start in range(0, len(texts), 100):
            part = texts[start : start + 100]
            rows = torch.from_numpy(rows_of(part, role))
            yield EncodedBatch(np.arange(start, start + len(part)), rows, np.zeros(len(part), np.bool_), 5)


@pytest.mark.parametrize(("dtype", "n_bytes"), [("bf16", 2), ("fp16", 2), ("float32", 4)])
def test_rows_of_16_bits_take_half_the_space(folder: Path, dtype: str, n_bytes: int) -> None:
    first = embedded(Halves(dtype), TEXTS, folder.with_name("work"), cache_dir=str(folder))
    assert (segments(folder)[0] / "rows.bin").stat().st_size == 700 * 16 * n_bytes
    second = embedded(Halves(dtype), TEXTS, folder.with_name("again"), cache_dir=str(folder))
    assert (first.n_tokens, second.n_cached) == (35, 700)
    assert np.abs(np.linalg.norm(second.rows.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert np.abs(second.rows - first.rows).max() < (2.0**-11 if n_bytes == 2 else 1e-12)


def test_another_run_may_remove_what_is_looked_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(folder, TEXTS)
    real = Segment.keys

    def clear(segment: Segment) -> Any:
        CacheFolder(folder, 10**9).clear()
        return real(segment)

    monkeypatch.setattr(Segment, "keys", clear)
    cached, _, _, cache = cached_rows(folder, text_keys(TEXTS, "passage"))
    assert not cached.any()
    assert cache.notes == []


def test_keys_are_compared_on_all_bytes(folder: Path) -> None:
    keys = np.zeros((6, 16), dtype=np.uint8)
    keys[:, 15] = [5, 3, 1, 4, 2, 0]  # equal in the first eight bytes, and one key of zeros alone
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    writer = SegmentWriter(folder / FINGERPRINT, 2, "float32", "")
    writer.add(keys, rows, np.array([True] + [False] * 5))
    writer.seal()
    asked = np.zeros((8, 16), dtype=np.uint8)
    asked[:6] = keys
    asked[6, 15], asked[7, 0] = 9, 255
    cached, out, marks, _ = cached_rows(folder, asked[::-1], 2)
    assert cached.tolist() == [False] * 2 + [True] * 6
    assert np.array_equal(out[:1:-1], rows)
    assert (out[:2] == -1).all()
    assert marks.tolist() == [False] * 7 + [True]


def test_find_agrees_with_a_dictionary() -> None:
    generator = np.random.default_rng(3)
    stored = np.unique(generator.integers(0, 3, (400, 16), dtype=np.uint8), axis=0)
    asked = np.concatenate([stored[::3], generator.integers(0, 3, (300, 16), dtype=np.uint8)])
    places = {bytes(key): place for place, key in enumerate(stored)}
    positions = find_keys(*key_words(asked), *key_words(stored))
    assert positions.tolist() == [places.get(bytes(key), -1) for key in asked]


def test_long_runs_go_to_several_segments(folder: Path, small_blocks: None) -> None:
    run(folder, TEXTS)
    assert len(segments(folder)) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_an_unusable_row_stops_the_run_and_keeps_what_was_done(folder: Path, bad: float) -> None:
    def function(texts: list[str], role: str) -> np.ndarray:
        rows = rows_of(texts)
        rows[[place for place, text in enumerate(texts) if text == "text 400"]] = bad
        return rows

    encoder = from_callable(function, "broken", fingerprint=FINGERPRINT)
    with pytest.raises(NonFiniteEmbeddingError, match="'text 400'"):
        embedded(encoder, TEXTS, folder.with_name("work"), cache_dir=str(folder))
    assert run(folder, TEXTS).n_cached == 256


def test_an_interrupted_run_keeps_what_was_done(folder: Path) -> None:
    def function(texts: list[str], role: str) -> np.ndarray:
        if "text 600" in texts:
            raise KeyboardInterrupt
        return rows_of(texts)

    encoder = from_callable(function, "interrupted", fingerprint=FINGERPRINT)
    own = embedder(encoder, TEXTS, folder.with_name("work"), cache_dir=str(folder))
    with pytest.raises(KeyboardInterrupt):
        own.everything()
    (note,) = own._progress.notes
    assert note.startswith("512 ")
    assert run(folder, TEXTS).n_cached == 512


def test_a_row_file_of_the_wrong_length_is_damage(folder: Path) -> None:
    writer = write(folder, TEXTS[:5])
    os.truncate(writer.folder / "rows.bin", 64 * 4)
    with pytest.raises(DamagedSegmentError):
        Segment(writer.folder).verify()


def work(folder: Path, n_texts: int, name: str, said: Any) -> None:
    """A run in a process of its own: tells when it begins, and then how many texts were cached."""
    import torch

    def rows(texts: list[str], role: str) -> np.ndarray:
        time.sleep(0.002)
        return rows_of(texts)

    torch.set_num_threads(1)
    cache_module.SEAL_SECONDS = 0.0
    texts = [f"text {number}" for number in range(n_texts)]
    encoder = from_callable(rows, "worker", fingerprint=FINGERPRINT)
    own = embedder(encoder, texts, folder.with_name(name), cache_dir=str(folder))
    said.send("ready")
    own.everything()
    own.close()
    some = np.arange(0, n_texts, 50)
    stored = own.vectors.passages[some]
    assert np.allclose(stored.numpy(), rows_of([texts[place] for place in some]), atol=1e-6)
    said.send(int(own.counts["n_cached"]))


def worker(folder: Path, n_texts: int, name: str) -> tuple[Any, Any]:
    """A child and where it tells."""
    heard, said = multiprocessing.Pipe(duplex=False)
    process = forked(work, folder, n_texts, name, said)
    said.close()
    return process, heard


def n_rows(folder: Path) -> int:
    return sum(use.n_rows for use in CacheFolder(folder, 10**9).info().encoders)


def wait_for_more_than(folder: Path, n: int) -> None:
    end = time.monotonic() + 120
    while n_rows(folder) <= n:
        assert time.monotonic() < end, "nothing was sealed"
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")
def test_killed_runs_resume_and_repeat_nothing_that_was_sealed(folder: Path) -> None:
    """Kills at random moments; what was sealed is never encoded again.

    Each run has 2,000 texts more than the one before, so each finds some that are not sealed, even
    where a slow machine let the run before it finish.
    """
    generator = random.Random(5)
    sealed = 0
    for number in range(5):
        process, heard = worker(folder, 2000 * (number + 1), f"work {number}")
        assert heard.recv() == "ready"
        if number % 2:  # however slow the machine is, some kills come after a seal
            wait_for_more_than(folder, sealed)
        time.sleep(generator.uniform(0, 0.06))
        process.kill()
        process.join()
        assert n_rows(folder) >= sealed
        sealed = n_rows(folder)
    assert CacheFolder(folder, 10**9).verify().damaged == ()
    assert 0 < sealed <= 10_000  # no text twice: a resumed run skips sealed ones
    last, heard = worker(folder, 10_000, "last")
    assert [heard.recv(), heard.recv()] == ["ready", sealed]
    last.join()
    assert last.exitcode == 0


def test_two_runs_at_once_are_both_right(folder: Path) -> None:
    workers = [worker(folder, 5000, f"work {number}") for number in range(2)]
    for process, heard in workers:
        assert heard.recv() == "ready"
        process.join()
    assert [process.exitcode for process, _ in workers] == [0, 0]
    assert CacheFolder(folder, 10**9).verify().damaged == ()
    assert run(folder, TEXTS).n_cached == 700
