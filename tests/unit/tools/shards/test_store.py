"""State files are whole or absent; a damaged, cut, foreign or missing one is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations
from safetensors.numpy import save

from secid.errors import InputError, OutputError, UsageError
from secid.tools.shards.store import StateDir

TYPES = ["uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "bool"]
HEADER = {"shard": 3, "of": 8, "score": 0.1 + 0.2, "sources": ["ünicode", None]}
ROWS = bytes(range(256)) * 100


class Recording(MemoryFileSystem):
    """Notes how many bytes each request returned."""

    protocol = "recording"
    n_bytes: list[int] = []  # noqa: RUF012

    def cat_file(self, path, start=None, end=None, **kwargs):
        data = super().cat_file(path, start, end, **kwargs)
        self.n_bytes.append(len(data))
        return data


class Unreachable(MemoryFileSystem):
    """File system whose calls fail with an error that is not an OSError."""

    protocol = "unreachable"

    def _fail(self, *words, **options):
        raise RuntimeError("no credentials")

    ls = info = cat_file = get_file = put_file = _fail


@pytest.fixture(params=["local", "file", "memory"])
def url(request, tmp_path):
    """Return the URL of a folder that does not exist."""
    local = tmp_path / "a" / "states"
    return {"local": str(local), "file": local.as_uri(), "memory": f"memory://{uuid.uuid4()}/states"}[request.param]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(ROWS)
    return path


def arrays():
    """Return arrays of all types, and of odd shapes and layouts."""
    odd = {
        "scalar": np.array(2.5),
        "transposed": np.arange(6).reshape(2, 3).T,
        "strided": np.arange(10, dtype=np.int32)[::3],
        "big-endian": np.arange(4).astype(">f8"),
        "extreme": np.array([np.nan, -np.inf, -0.0, 5e-324]),
    }
    plain = {name: np.arange(5).astype(name) for name in TYPES}
    return {**odd, **plain, **{f"empty {name}": np.zeros((0, 16), name) for name in TYPES}}


def is_remote(url):
    return "://" in url and not url.startswith("file:")


def raw(url, file):
    with fsspec.open(f"{url}/{file}", "rb") as opened:
        return opened.read()


def put(url, file, data):
    with fsspec.open(f"{url}/{file}", "wb", auto_mkdir=True) as opened:
        opened.write(data)


def refused(url, file, call, *words):
    """Return the error of a call, which must name the file."""
    with pytest.raises(InputError) as caught:
        call(*words)
    assert caught.value.where == f"{url}/{file}"
    return caught.value


def test_a_state_comes_back_as_it_was_written(url, rows, tmp_path):
    states = StateDir(url)
    assert states.url == url
    assert (states.names(), states.has("b-2")) == ([], False)
    states.write("b-2", HEADER, arrays(), {"rows": rows})
    states.write("a", {}, {})
    assert StateDir(url).names() == ["a", "b-2"]
    assert (states.has("b-2"), states.has("b"), states.read("a"), states.header("a")) == (True, False, {}, {})
    assert states.header("b-2") == HEADER
    found = states.read("b-2")
    assert found.keys() == arrays().keys()
    for name, array in arrays().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype.newbyteorder("="), array.shape), name
        np.testing.assert_array_equal(found[name], array, name)
        assert np.array_equal(np.signbit(found[name]), np.signbit(array)) if array.dtype.kind == "f" else True
    folder = tmp_path / "downloads"
    folder.mkdir()
    path = states.file("b-2", "rows", folder)
    assert path.read_bytes() == ROWS
    assert (path.parent == folder) == is_remote(url)


def test_a_second_write_replaces_the_first(url, rows, tmp_path):
    states = StateDir(url)
    states.write("a", {"n": 1}, {"x": np.zeros(9)}, {"rows": rows})
    rows.write_bytes(b"other")
    states.write("a", {"n": 2}, {"y": np.ones(1)}, {"rows": rows})
    assert (states.names(), states.header("a"), list(states.read("a"))) == (["a"], {"n": 2}, ["y"])
    assert states.file("a", "rows", tmp_path).read_bytes() == b"other"


def test_every_changed_byte_is_noticed(url):
    states = StateDir(url)
    states.write("a", HEADER, {"x": np.arange(3), "y": np.zeros(0, np.uint8)})
    data = raw(url, "a.safetensors")
    n_refused, refusals = 0, set()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        put(url, "a.safetensors", changed)
        try:
            header, read = states.header("a"), states.read("a")
        except InputError as error:
            refusals.add((error.where, error.remedy))
            n_refused += 1
        else:  # such as white space after the JSON
            assert header == HEADER
            assert {name: array.tolist() for name, array in read.items()} == {"x": [0, 1, 2], "y": []}
    assert refusals == {(f"{url}/a.safetensors", "remove it and run the shard again")}
    assert n_refused > len(data) - 8


def test_every_cut_is_noticed(url):
    states = StateDir(url)
    states.write("a", HEADER, {"x": np.arange(3)})
    data = raw(url, "a.safetensors")
    for n_bytes in range(0, len(data), 7):
        put(url, "a.safetensors", data[:n_bytes])
        refused(url, "a.safetensors", states.read, "a")
    if not is_remote(url):  # there, only the header is read
        refused(url, "a.safetensors", states.header, "a")


@pytest.mark.parametrize(
    "data",
    [
        save({"weight": np.zeros(3)}, {"format": "pt"}), save({"weight": np.zeros(3)}), b"PK\x03\x04" * 50,
        b"\xff" * 90_000, b"\x02\0\0\0\0\0\0\0[]", b"",
    ],
    ids=["safetensors", "no metadata", "zip", "endless header", "a list", "empty"],
)  # fmt: skip
def test_the_file_of_another_program_is_refused(url, data):
    put(url, "a.safetensors", data)
    put(url, "Model_1.safetensors", data)
    states = StateDir(url)
    assert states.names() == ["a"]
    refused(url, "a.safetensors", states.header, "a")
    assert refused(url, "a.safetensors", states.read, "a").remedy == "remove it and run the shard again"


def test_what_is_missing_is_named(url, rows, tmp_path):
    states = StateDir(url)
    assert refused(url, "a.safetensors", states.header, "a").remedy == "run the shard again"
    refused(url, "a.safetensors", states.read, "a")
    states.write("a", {}, {}, {"rows": rows})
    refused(url, "a.columns", states.file, "a", "columns", tmp_path)
    filesystem, path = fsspec.url_to_fs(f"{url}/a.rows")
    filesystem.rm_file(path)
    refusal = refused(url, "a.rows", states.file, "a", "rows", tmp_path)
    remedy = f"remove {url}/a.safetensors and run the shard again"  # which would be skipped otherwise
    assert (refusal.message, refusal.remedy) == ("not found", remedy)


def test_a_damaged_large_file_is_refused(url, rows, tmp_path):
    states = StateDir(url)
    states.write("a", {}, {}, {"rows": rows})
    put(url, "a.rows", ROWS[:-1])
    refusal = refused(url, "a.rows", states.file, "a", "rows", tmp_path)
    assert "25599 bytes" in refusal.message
    assert refusal.remedy == f"remove {url}/a.safetensors and run the shard again"
    put(url, "a.rows", ROWS[:-1] + b"x")
    assert "SHA-256" in refused(url, "a.rows", states.file, "a", "rows", tmp_path).message


def test_a_large_file_of_another_run_is_refused(tmp_path):
    """Samples of a local file are compared."""
    states, path = StateDir(str(tmp_path / "states")), tmp_path / "rows"
    path.write_bytes(bytes(5 << 20))
    states.write("a", {}, {}, {"rows": path})
    assert states.file("a", "rows", tmp_path).stat().st_size == 5 << 20
    put(states.url, "a.rows", b"\1" * (5 << 20))
    refused(states.url, "a.rows", states.file, "a", "rows", tmp_path)


def test_two_processes_replace_a_state_at_once(url, rows, tmp_path, monkeypatch):
    states = StateDir(url)
    states.write("a", {"n": 1}, {}, {"rows": rows})
    filesystem, path = fsspec.url_to_fs(f"{url}/a.safetensors")
    monkeypatch.setattr(states, "has", lambda name: filesystem.rm_file(path) is None)  # the other one removes it then
    states.write("a", {"n": 2}, {}, {"rows": rows})
    assert states.header("a") == {"n": 2}


KILLED = """
import shutil, sys, time
from pathlib import Path
import numpy as np
from secid.tools.shards.store import StateDir

url, source, victim = sys.argv[1:]
real = shutil.copyfile

def half(path, target):
    if not Path(target).name.startswith(f".a.{victim}."):
        return real(path, target)
    Path(target).write_bytes(Path(path).read_bytes()[:100])
    print("half", flush=True)
    time.sleep(600)

shutil.copyfile = half
files = {"rows": Path(source)} if source else {}
StateDir(url).write("a", {"n": 2}, {"x": np.arange(1000)}, files)
"""


@pytest.mark.parametrize("replaces", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("victim", ["rows", "safetensors", "alone"])
def test_a_killed_write_leaves_nothing_that_counts(tmp_path, rows, victim, replaces):
    """victim : the file that is half written; alone: a state without large files."""
    url, source = str(tmp_path / "states"), "" if victim == "alone" else str(rows)
    states = StateDir(url)
    if replaces:
        states.write("a", {"n": 1}, {"x": np.arange(3)}, {"rows": rows} if source else {})
    words = [sys.executable, "-c", KILLED, url, source, "rows" if victim == "rows" else "safetensors"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "half\n"
        child.kill()
    kept = replaces and not source
    assert states.names() == (["a"] if kept else [])
    if kept:
        assert (states.header("a"), states.read("a")["x"].tolist()) == ({"n": 1}, [0, 1, 2])
    states.write("a", {"n": 3}, {"x": np.arange(2)}, {"rows": rows})
    assert (states.names(), states.read("a")["x"].tolist()) == (["a"], [0, 1])
    assert states.file("a", "rows", tmp_path).read_bytes() == ROWS


def test_a_header_is_read_without_the_arrays():
    fsspec.register_implementation("recording", Recording, clobber=True)
    states = StateDir("recording://states")
    states.write("short", {"text": "x"}, {"x": np.zeros(1 << 20)})
    states.write("long", {"text": "x" * 100_000}, {"x": np.zeros(1 << 20)})
    Recording.n_bytes.clear()
    assert states.header("short") == {"text": "x"}
    assert Recording.n_bytes == [65536]
    assert states.header("long") == {"text": "x" * 100_000}
    assert len(Recording.n_bytes) == 3
    assert 100_000 < Recording.n_bytes[-1] < 101_000


def test_a_store_that_fails_is_not_taken_for_an_empty_one(rows):
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    states = StateDir("unreachable://user:secret@host/states")
    calls = [(states.names,), (states.has, "a"), (states.header, "a"), (states.read, "a")]
    for call, *words in [*calls, (states.write, "a", {}, {})]:
        with pytest.raises(OutputError if call == states.write else InputError) as caught:
            call(*words)
        assert caught.value.where.startswith("unreachable://host/states")
        assert "remove" not in caught.value.remedy
        assert "no credentials" in str(caught.value)


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    states = StateDir(str(tmp_path / "file"))
    with pytest.raises(InputError, match="Not a directory"):
        states.names()
    with pytest.raises(OutputError, match="cannot create its directory") as caught:
        states.write("a", {}, {})
    assert caught.value.where == f"{states.url}/a.safetensors"


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.b", "a\n", "../a", "ä"])
def test_names_lead_nowhere_else(tmp_path, name):
    states = StateDir(str(tmp_path))
    calls = [
        (states.header, name), (states.read, name), (states.write, name, {}, {}), (states.file, "a", name, tmp_path),
    ]  # fmt: skip
    for call, *words in calls:
        with pytest.raises(ValueError, match="only a-z"):
            call(*words)
    assert not states.has(name)


def test_urls_that_cannot_be_opened(monkeypatch):
    monkeypatch.setitem(known_implementations, "absent", {"class": "absent_store.Store", "err": "Install it"})
    with pytest.raises(UsageError, match="absent_store") as caught:
        StateDir("absent://user:secret@host/x")
    assert (caught.value.where, caught.value.remedy) == ("absent://host/x", "install it: pip install absent_store")
    with pytest.raises(UsageError, match="nope"):
        StateDir("nope://x")
    with pytest.raises(UsageError, match="the folder's name is empty"):  # such as "$STATES", which is not set
        StateDir("")


def test_a_path_needs_no_fsspec(tmp_path):
    code = (
        "import sys, numpy\nfrom secid.tools.shards.store import StateDir\nstates = StateDir(sys.argv[1])\n"
        "states.write('a', {}, {'x': numpy.zeros(3)})\nstates.read('a')\nassert 'fsspec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_the_record_is_json_in_the_metadata(tmp_path):
    """Other tools can therefore read a state, and nothing in it can run."""
    StateDir(str(tmp_path)).write("a", HEADER, {"x": np.arange(3)})
    data = (tmp_path / "a.safetensors").read_bytes()
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(head["__metadata__"]["secid_state"].partition(" ")[2])["header"] == HEADER
