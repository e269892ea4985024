"""The cache gives back what was put in, survives damage and kills, and stays under its limit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.encode import Cache, CacheFolder, embed, from_callable
from secid.encode import cache as cache_module
from secid.encode import segment as segment_module
from secid.encode.keys import find, key_words
from secid.encode.segment import DAMAGED, TEMPORARY, write_segment
from secid.errors import NonFiniteEmbeddingError, OutputError
from secid.settings import Settings, flag_of
from tests.snapshots import refusal

from .conftest import ListTexts, text_keys

FINGERPRINT = "f" * 64


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


def run(
    folder: Path, texts: list[str], *, limit: int = 10**9, role: Any = "passage"
) -> tuple[Any, np.ndarray, list[str]]:
    function = Counting()
    encoder = from_callable(function, "counting", fingerprint=FINGERPRINT)
    out = np.zeros((len(texts), 16), dtype=np.float32)
    cache = Cache(CacheFolder(folder, limit), FINGERPRINT)
    done: list[int] = []
    counts = embed(encoder, ListTexts(texts), text_keys(texts, role), role, out, cache=cache, progress=done.append)
    assert sum(done) == len(texts) == counts.n_cached + counts.n_encoded
    assert np.allclose(out, rows_of(texts, role), atol=1e-6)
    return counts, out, function.asked


TEXTS = [f"text {number}" for number in range(700)]


def test_the_second_run_encodes_nothing(tmp_path: Path) -> None:
    first, rows, _ = run(tmp_path, TEXTS)
    second, again, asked = run(tmp_path, TEXTS[::-1])
    assert (first.n_encoded, second.n_encoded, second.n_cached, asked) == (700, 0, 700, [])
    assert np.array_equal(rows[::-1], again)


def test_only_new_texts_are_encoded(tmp_path: Path) -> None:
    run(tmp_path, TEXTS[:300])
    counts, _, asked = run(tmp_path, TEXTS[100:400])
    assert (counts.n_cached, asked) == (200, TEXTS[300:400])


def test_roles_are_kept_apart(tmp_path: Path) -> None:
    run(tmp_path, TEXTS)
    assert run(tmp_path, TEXTS, role="query")[0].n_cached == 0


def test_no_texts_and_no_cache(tmp_path: Path) -> None:
    assert run(tmp_path, [])[0].n_texts == 0
    encoder = from_callable(Counting(), "unnamed")  # without a fingerprint nothing may be kept
    out = np.zeros((2, 16), dtype=np.float32)
    for cache in (None, Cache(CacheFolder(tmp_path / "none", 10**9), "x")):
        counts = embed(
            encoder, ListTexts(["a", "b"]), text_keys(["a", "b"], "query"), "query", out, cache=cache, progress=abs
        )
        assert counts.n_encoded == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("file", ["rows.npy", "keys.npy", "truncated.npy", "segment.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_segment_is_quarantined_and_encoded_again(tmp_path: Path, file: str, damage: str) -> None:
    run(tmp_path, TEXTS[:350])
    run(tmp_path, TEXTS)
    victim = min((tmp_path / FINGERPRINT).iterdir()) / file
    content = bytearray(victim.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0x04
        victim.write_bytes(bytes(content))
    elif damage == "cut":
        victim.write_bytes(bytes(content[: len(content) // 2]))
    else:
        victim.unlink()
    counts, _, asked = run(tmp_path, TEXTS)
    assert asked == TEXTS[:350]
    assert counts.n_cached == 350
    assert CacheFolder(tmp_path, 10**9).info().n_damaged == 1
    assert run(tmp_path, TEXTS)[0].n_cached == 700


@pytest.mark.parametrize("name", ["n", "dimension", "sha256"])
def test_a_changed_number_in_segment_json_is_noticed(tmp_path: Path, name: str) -> None:
    run(tmp_path, TEXTS)
    victim = min((tmp_path / FINGERPRINT).iterdir()) / "segment.json"
    meta = json.loads(victim.read_text(encoding="utf-8"))
    meta[name] = {**meta[name], "keys.npy": "0"} if name == "sha256" else meta[name] + 4
    victim.write_text(json.dumps(meta), encoding="utf-8")
    cache = Cache(CacheFolder(tmp_path, 10**9), FINGERPRINT)
    assert cache.dimension is None
    assert run(tmp_path, TEXTS)[0].n_cached == 0
    assert run(tmp_path, TEXTS)[0].n_cached == 700
    assert CacheFolder(tmp_path, 10**9).verify().n_whole == 1


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), PermissionError(13, "Permission denied")])
def test_a_segment_that_cannot_be_read_is_encoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    run(tmp_path, TEXTS)
    real = segment_module.file_sha256

    def failing(path: Path, *rest: Any) -> str:
        if path.name == "rows.npy" and first in path.parents:
            raise error
        return real(path, *rest)

    first = min((tmp_path / FINGERPRINT).iterdir())
    monkeypatch.setattr(segment_module, "file_sha256", failing)
    assert run(tmp_path, TEXTS)[2] == TEXTS
    assert CacheFolder(tmp_path, 10**9).info().n_damaged == 1
    other = min(path for path in (tmp_path / FINGERPRINT).iterdir() if path.name[0] != ".")
    first = other
    assert CacheFolder(tmp_path, 10**9).verify().damaged == (f"{FINGERPRINT}/{other.name}",)


@pytest.mark.parametrize("fingerprint", ["model/v1", "../outside", "CON", "x" * 300])
def test_a_fingerprint_is_no_path(tmp_path: Path, fingerprint: str) -> None:
    folder = CacheFolder(tmp_path / "cache", 10**9)
    cache = Cache(folder, fingerprint)
    cache.add(text_keys(TEXTS, "query"), rows_of(TEXTS), np.zeros(700, dtype=np.bool_))
    cache.seal()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert [use.n_rows for use in folder.info().encoders] == [700]
    assert Cache(folder, fingerprint).dimension == 16
    assert Cache(folder, fingerprint + "x").dimension is None
    assert folder.clear() > 0


def test_rows_of_another_dimension_stay(tmp_path: Path) -> None:
    run(tmp_path, TEXTS)
    cache = Cache(CacheFolder(tmp_path, 10**9), FINGERPRINT)
    out, marks = np.zeros((700, 3), dtype=np.float32), np.zeros(700, dtype=np.bool_)
    assert not cache.lookup(text_keys(TEXTS, "passage"), out, marks).any()
    assert cache.damaged == []
    assert run(tmp_path, TEXTS)[0].n_cached == 700


def test_clear_leaves_what_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, TEXTS)
    folder, real = CacheFolder(tmp_path, 10**9), segment_module.file_sha256

    def clear_meanwhile(path: Path, *rest: Any) -> str:
        if path.parent.name.startswith(TEMPORARY):
            folder.clear()
        return real(path, *rest)

    monkeypatch.setattr(segment_module, "file_sha256", clear_meanwhile)
    assert run(tmp_path, [f"other {text}" for text in TEXTS])[0].n_encoded == 700
    assert [use.n_rows for use in folder.info().encoders] == [700]
    real_sync = segment_module._sync_folder
    monkeypatch.setattr(segment_module, "_sync_folder", lambda parent: folder.clear() and real_sync(parent))
    run(tmp_path, TEXTS)


def test_what_a_killed_removal_left_is_seen_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, left = CacheFolder(tmp_path, 10**9), tmp_path / FINGERPRINT / f"{TEMPORARY}{OLD}"
    left.mkdir(parents=True)
    (left / "rows.npy").write_bytes(b"x" * 1000)
    os.utime(left, (1, 1))
    monkeypatch.setattr("shutil.rmtree", lambda *rest, **more: None)  # killed here, once and again
    folder.shrink()
    folder.shrink()
    monkeypatch.undo()
    assert folder.info().n_bytes == 1000
    assert folder.clear() == 1000
    assert list((tmp_path / FINGERPRINT).iterdir()) == []


def test_verify_finds_what_no_run_touched(tmp_path: Path) -> None:
    run(tmp_path, TEXTS[:350])
    run(tmp_path, TEXTS)
    folder = CacheFolder(tmp_path, 10**9)
    assert (folder.verify().n_whole, folder.verify().damaged) == (2, ())
    victim = min((tmp_path / FINGERPRINT).iterdir())
    (victim / "rows.npy").write_bytes(b"other")
    assert folder.verify().damaged == (f"{FINGERPRINT}/{victim.name}",)
    assert folder.verify().n_whole == 1


def test_info_and_clear(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache", 123)
    assert folder.info().encoders == ()
    run(tmp_path / "cache", TEXTS)
    info = folder.info()
    assert (info.limit_bytes, info.n_damaged) == (123, 0)
    assert [(use.fingerprint, use.n_segments, use.n_rows) for use in info.encoders] == [(FINGERPRINT, 1, 700)]
    assert info.n_bytes == info.encoders[0].n_bytes > 700 * (16 * 4 + 16)
    assert folder.clear() == info.n_bytes
    assert folder.info().n_bytes == 0


def test_what_the_cache_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters" / "2026").mkdir(parents=True)
    (tmp_path / "letters" / "2026" / "one.txt").write_text("dear", encoding="utf-8")
    run(tmp_path, ["a", "b"])
    mine = tmp_path / FINGERPRINT / "notes"
    mine.mkdir()
    (mine / "two.txt").write_text("x" * 10_000, encoding="utf-8")
    folder = CacheFolder(tmp_path, 1)
    assert folder.info().n_bytes < 10_000
    folder.shrink()
    assert folder.clear() == 0  # the segment went by the limit
    assert (mine / "two.txt").exists()
    assert (tmp_path / "letters" / "2026" / "one.txt").exists()


def test_the_least_recently_used_segments_go(tmp_path: Path) -> None:
    for part in (TEXTS[:200], TEXTS[200:400], TEXTS[400:600]):
        run(tmp_path, part)
    segments = sorted((tmp_path / FINGERPRINT).iterdir())
    for age, segment in zip((300, 200, 100), segments, strict=True):
        os.utime(segment / "segment.json", (time.time() - age,) * 2)
    run(tmp_path, TEXTS[:200])  # the oldest becomes the youngest
    size = CacheFolder(tmp_path, 1).info().n_bytes
    CacheFolder(tmp_path, size - 1).shrink()
    assert sorted((tmp_path / FINGERPRINT).iterdir()) == [segments[0], segments[2]]
    assert run(tmp_path, TEXTS[:600])[0].n_cached == 400


def test_a_limit_smaller_than_the_run_is_kept(tmp_path: Path) -> None:
    run(tmp_path, TEXTS, limit=10)
    assert CacheFolder(tmp_path, 10).info().n_bytes == 0


OLD, YOUNG = "00000000000000000001-0123abcd", "00000000000000000002-0123abcd"


def test_leftovers_of_killed_writers_go(tmp_path: Path) -> None:
    run(tmp_path, TEXTS[:5])
    for name, age in ((OLD, 7200), (YOUNG, 60)):
        left = tmp_path / FINGERPRINT / f"{TEMPORARY}{name}"
        left.mkdir()
        os.utime(left, (time.time() - age,) * 2)
    CacheFolder(tmp_path, 10**9).shrink()
    names = {path.name for path in (tmp_path / FINGERPRINT).iterdir()}
    assert f"{TEMPORARY}{YOUNG}" in names
    assert f"{TEMPORARY}{OLD}" not in names


def test_another_run_may_remove_what_is_open(tmp_path: Path) -> None:
    run(tmp_path, TEXTS)
    cache = Cache(CacheFolder(tmp_path, 10**9), FINGERPRINT)
    CacheFolder(tmp_path, 10**9).clear()
    out, marks = np.zeros((700, 16), dtype=np.float32), np.zeros(700, dtype=np.bool_)
    assert not cache.lookup(text_keys(TEXTS, "passage"), out, marks).any()
    assert cache.damaged == []


def test_keys_are_compared_on_all_bytes(tmp_path: Path) -> None:
    keys = np.zeros((6, 16), dtype=np.uint8)
    keys[:, 15] = [5, 3, 1, 4, 2, 0]  # equal in the first eight bytes, and one key of zeros alone
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    write_segment(tmp_path / FINGERPRINT, keys, rows, np.array([True] + [False] * 5))
    asked = np.zeros((8, 16), dtype=np.uint8)
    asked[:6] = keys
    asked[6, 15], asked[7, 0] = 9, 255
    out, marks = np.full((8, 2), -1, dtype=np.float32), np.zeros(8, dtype=np.bool_)
    cached = Cache(CacheFolder(tmp_path, 10**9), FINGERPRINT).lookup(asked, out, marks)
    assert cached.tolist() == [True] * 6 + [False] * 2
    assert np.array_equal(out[:6], rows)
    assert (out[6:] == -1).all()
    assert marks.tolist() == [True] + [False] * 7


def test_find_agrees_with_a_dictionary() -> None:
    generator = np.random.default_rng(3)
    stored = np.unique(generator.integers(0, 3, (400, 16), dtype=np.uint8), axis=0)
    asked = np.concatenate([stored[::3], generator.integers(0, 3, (300, 16), dtype=np.uint8)])
    places = {bytes(key): place for place, key in enumerate(stored)}
    positions = find(*key_words(asked), *key_words(stored))
    assert positions.tolist() == [places.get(bytes(key), -1) for key in asked]


def test_long_runs_are_sealed_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SEAL_BYTES", 256 * 64)
    run(tmp_path, TEXTS)
    assert len(list((tmp_path / FINGERPRINT).iterdir())) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_an_unusable_row_stops_the_run_and_keeps_what_was_done(tmp_path: Path, bad: float) -> None:
    def function(texts: list[str], role: str) -> np.ndarray:
        rows = rows_of(texts)
        for place, text in enumerate(texts):
            if text == "text 400":
                rows[place] = bad
        return rows

    encoder = from_callable(function, "broken", fingerprint=FINGERPRINT)
    out = np.zeros((700, 16), dtype=np.float32)
    cache = Cache(CacheFolder(tmp_path, 10**9), FINGERPRINT)
    with pytest.raises(NonFiniteEmbeddingError, match="'text 400'"):
        embed(encoder, ListTexts(TEXTS), text_keys(TEXTS, "passage"), "passage", out, cache=cache, progress=abs)
    assert run(tmp_path, TEXTS)[0].n_cached == 256


FULL = "No space left on device"


def test_a_full_disk_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, FULL)

    monkeypatch.setattr(cache_module, "write_segment", refuse)
    message = refusal(lambda: run(tmp_path, TEXTS), OutputError, tmp_path / FINGERPRINT)
    assert all(part in message for part in (FULL, flag_of("cache_dir", "DIR"), flag_of("cache", False)))
    encoder = from_callable(
        lambda texts, role: rows_of(texts) * (1 if len(texts) == 1 else np.nan), "x", fingerprint="x"
    )
    out, cache = np.zeros((700, 16), dtype=np.float32), Cache(CacheFolder(tmp_path, 10**9), "x")
    cache.add(text_keys(["a"], "query"), rows_of(["a"]), np.zeros(1, dtype=np.bool_))
    with pytest.raises(NonFiniteEmbeddingError, match="'text 0'"):  # the error that stopped the run, not a later one
        embed(encoder, ListTexts(TEXTS), text_keys(TEXTS, "passage"), "passage", out, cache=cache, progress=abs)


def test_the_folder_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder.of(Settings(cache_dir=str(tmp_path), cache_gb=0.5))
    assert (folder.folder, folder.limit_bytes) == (tmp_path, 500_000_000)
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert CacheFolder.of(Settings()).folder == tmp_path / "secid" / "embeddings"


WORKER = """
import sys, time
from pathlib import Path
import numpy as np
from secid.encode import Cache, CacheFolder, embed, from_callable
from secid.encode import cache as cache_module
cache_module.SEAL_BYTES = 256 * 64
import hashlib

def keys(texts):
    digests = b"".join(hashlib.blake2b(("passage\\0" + text).encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, 16)

def rows(texts, role):
    time.sleep(0.002)
    values = keys(texts).astype(np.float32) + 1
    return values / np.linalg.norm(values, axis=1, keepdims=True)

class Texts(list):
    def get(self, start, stop):
        return self[start:stop]

texts = Texts(f"text {number}" for number in range(int(sys.argv[2])))
encoder = from_callable(rows, "worker", fingerprint="f" * 64)
out = np.zeros((len(texts), 16), dtype=np.float32)
cache = Cache(CacheFolder(Path(sys.argv[1]), 10**9), "f" * 64)
print("ready", flush=True)
counts = embed(encoder, texts, keys(texts), "passage", out, cache=cache, progress=abs)
assert np.allclose(out, rows(texts, "passage"), atol=1e-6)
print(counts.n_cached, flush=True)
"""


def worker(folder: Path, n_texts: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(n_texts)], stdout=subprocess.PIPE, text=True
    )


def n_rows(folder: Path) -> int:
    return sum(use.n_rows for use in CacheFolder(folder, 10**9).info().encoders)


def wait_for_more_than(folder: Path, n: int) -> None:
    end = time.monotonic() + 30
    while n_rows(folder) <= n:
        assert time.monotonic() < end, "no segment came"
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")
def test_killed_runs_resume_and_repeat_no_finished_segment(tmp_path: Path) -> None:
    """Eight kills at random moments; what a finished segment holds is never encoded again."""
    generator = random.Random(5)
    n_texts, finished = 20_000, 0
    for number in range(8):
        process = worker(tmp_path, n_texts)
        assert process.stdout is not None
        process.stdout.readline()
        if number % 2:  # however slow the machine is, some kills come after a segment
            wait_for_more_than(tmp_path, finished)
        time.sleep(generator.uniform(0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        rows = n_rows(tmp_path)
        assert CacheFolder(tmp_path, 10**9).info().n_damaged == 0
        assert rows >= finished
        finished = rows
    assert finished <= n_texts  # no text twice: a resumed run skips finished ones
    last = worker(tmp_path, n_texts)
    output = last.communicate()[0].split()
    assert last.returncode == 0
    assert output == ["ready", str(finished)]
    assert finished > 0


def test_two_runs_at_once_are_both_right(tmp_path: Path) -> None:
    processes = [worker(tmp_path, 5000) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert CacheFolder(tmp_path, 10**9).verify().damaged == ()
    assert run(tmp_path, TEXTS)[0].n_cached == 700


def test_damaged_segments_go_first_when_space_is_short(tmp_path: Path) -> None:
    run(tmp_path, TEXTS[:350])
    run(tmp_path, TEXTS)
    victim = sorted((tmp_path / FINGERPRINT).iterdir())[1]
    victim.rename(victim.with_name(DAMAGED + victim.name))
    size = CacheFolder(tmp_path, 1).info().n_bytes
    CacheFolder(tmp_path, size - 1).shrink()
    assert CacheFolder(tmp_path, 1).info().n_damaged == 0
    assert run(tmp_path, TEXTS)[0].n_cached == 350
