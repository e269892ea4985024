"""Files that are made to do harm: each ends in a message or a result, never in a traceback or a file elsewhere."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secid import api, read_run
from tests.cli.conftest import Outcome, invoke_in_process, write_rows
from tests.cli.gate.conftest import items, save_vectors

VALUES = (None, True, -1, 0, 10**30, 1e308, "x", "../../etc/passwd", "\x1b[31m\n::error::", [], {}, [[[]]])
REMOVED = object()


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, its baseline, and a new source."""
    folder = tmp_path_factory.mktemp("attacked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        old, new = items(60), items(40, 1000)
        encoder = save_vectors(folder / "v.npz", old + new)
        write_rows(folder / "new.jsonl", new)
        api.score([write_rows(folder / "used.jsonl", old).name], encoder.name, run="run")
        api.baseline("run", "b.json")
    return folder


@pytest.fixture
def attacked(scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, as the working directory."""
    shutil.copytree(scored, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def places(value: Any, key: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all members of a JSON document, but only of the first two items of a list."""
    children = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, item in children:
        yield (*key, name)
        yield from places(item, (*key, name))


def damaged(document: Any, key: tuple[Any, ...], value: object) -> Any:
    changed = copy.deepcopy(document)
    *above, last = key
    holder = changed
    for name in above:
        holder = holder[name]
    if value is REMOVED:
        del holder[last]
    else:
        holder[last] = value
    return changed


def check_ended(result: Outcome, what: object) -> None:
    """A verdict, a result or a message."""
    assert result.code in {0, 1, 2, 3}, what
    assert "internal error" not in result.err, (what, result.err[-2000:])
    assert "Traceback" not in result.err, what
    assert "Warning" not in result.err, (what, result.err)


MIX = ("mix", "run", "--shares", "used=1")
COMMANDS = {
    "b.json": (("gate", "new.jsonl", "--against", "b.json"), ("gate", "--init", "--against", "b.json")),
    "run/report.json": (
        ("report", "run"), MIX, ("baseline", "run", "-o", "made.json"), (*MIX, "-o", "made.jsonl"),
        ("select", "run", "--top", "2", "-o", "made.jsonl"), ("flagged", "run", "--finding", "repeat", "-o", "-"),
    ),
    "run/state/index.json": (MIX, ("gate", "new.jsonl", "--against", "b.json", "--paired", "run")),
    "run/state/tables.json": (
        ("baseline", "run", "-o", "made.json"), ("select", "run", "--top", "2", "-o", "made.jsonl"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_damaged_documents(attacked, name):
    path, draw = Path(name), random.Random(name)
    document = json.loads(path.read_text())
    keys = list(places(document))
    settings = [key for key in keys if "settings" in key[:1]]
    for number in range(6):
        key = draw.choice(settings if number % 3 == 0 and settings else keys)
        value = draw.choice((*VALUES, REMOVED))
        path.write_text(json.dumps(damaged(document, key, value)))
        for command in COMMANDS[name]:
            check_ended(invoke_in_process(*command), (command, key, value))
            for made in (*Path().glob("made*"), *Path().glob("secid.toml")):
                made.unlink()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "text", ["", "null", "[]", "1", '"x"', "{", "[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "NaN", "\ufeff{}", "\0"]
)
def test_documents_of_another_form(attacked, name, text):
    Path(name).write_text(text)
    command = COMMANDS[name][0]
    result = invoke_in_process(*command)
    check_ended(result, command)
    assert result.code == 2
    assert Path(name).name in result.err


def bombs() -> dict[str, str]:
    """TOML documents that are small, and deep, wide or long."""
    return {
        "nested arrays": f"seed = {'[' * 20_000}{']' * 20_000}",
        "unclosed arrays": f"seed = {'[' * 100_000}",
        "nested inline tables": f"seed = {'{a = ' * 5_000}1{'}' * 5_000}",
        "nested tables": f"[{'.'.join(['seed'] * 2_000)}]\nx = 1\n",
        "dotted keys": f"{'.'.join(['seed'] * 2_000)} = 1\n",
        "digits": f"seed = {'9' * 10_000}",
        "a float without end": f"temperature = 1e{'9' * 400}",
        "a long text": f"encoder = '{'x' * 1_000_000}'",
        "many keys": "".join(f"key{number} = 1\n" for number in range(5_000)),
        "no UTF-8": "seed = '\udcff'",
        "NUL": "seed = '\0'",
        "a table that is none": "tool = 5\ngate = 5\n",
        "a list that is no table": "[[tool]]\n[[gate]]\n",
    }


@pytest.mark.parametrize("bomb", bombs())
@pytest.mark.parametrize("name", ["secid.toml", "pyproject.toml", "policy.toml"])
def test_bombs_in_toml(attacked, name, bomb):
    text = bombs()[bomb]
    if name == "pyproject.toml" and "tool" not in text:
        text = f"[tool.secid]\n{text}" if not text.startswith("[") else f"[tool.secid.{text[1:]}"
    if name == "policy.toml" and "gate" not in text:
        text = f"[gate]\n{text}" if not text.startswith("[") else f"[gate.{text[1:]}"
    Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
    gate = ("gate", "new.jsonl", "--against", "b.json")
    for command in (gate if name != "policy.toml" else (*gate, "--policy", name), ("gate", "--init", *gate[2:])):
        result = invoke_in_process(*command)
        check_ended(result, command)
        assert len(result.err) < 20_000
    if name != "policy.toml":
        assert invoke_in_process("score", "new.jsonl").code == 2


POLICIES = (
    "gate = 1", "[gate]\nfindings = 3", "[gate.findings]\ninversion = nan", "[gate.findings]\ninversion = inf",
    "[gate]\nminimum_queries = -1", "[gate]\nminimum_queries = 99999999999999999999",
    "[gate.names]\n'../../x' = '/etc'",
    "[gate]\nallow_undecided = ['\\u001b::error::']", "[gate.sources.'\\u202e']\nfindings = {inversion = 0.1}",
    "[gate]\n'::error::' = 1", "[gate.drift]\nscore_nats = 'x'", "", "[gate]\n",
)  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_damaged_policies(attacked, policy):
    Path("policy.toml").write_text(policy)
    result = invoke_in_process("gate", "new.jsonl", "--against", "b.json", "--policy", "policy.toml")
    check_ended(result, policy)
    assert not any(line.lstrip().startswith("::") for line in result.err.splitlines())


# paths


def everything(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if "cache" not in path.parts}


TRAVERSAL = ("../../evil", "/evil", "..", "a/../../evil", "..\\..\\evil", "~/evil", "C:evil", "evil\0")


def test_names_of_sources_lead_nowhere(attacked, tmp_path):
    before = everything(tmp_path)
    names = TRAVERSAL[:-1]
    score = ("score", "--encoder", "v.npz", "--run", "made", "--force")
    for name in names:
        if "/" in name:
            assert invoke_in_process(*score, f"{name}=used.jsonl").code == 2
    write_rows(Path("named.jsonl"), [{**row, "source": name} for name in names for row in items(10)])
    flat = [f"{name}=used.jsonl" for name in names if "/" not in name]
    for words in (flat, ("named.jsonl", "--source-column", "source")):
        result = invoke_in_process(*score, *words)
        assert result.code == 0, result.err
        commands = [line for line in result.out.splitlines() if " -o " in line]
        assert not [line for line in commands if {"/", "\\"} & set(line.rsplit(" -o ", 1)[1])]
        sources = read_run(Path("made")).sources
        assert len(sources) == (3 if words is flat else 7)
        for source in sources:
            made = invoke_in_process("select", "made", "--source", source.name, "--top", 1, "-o", "copy.jsonl")
            check_ended(made, source.name)
            for path in (Path("copy.jsonl"), Path("copy.jsonl.left-out.jsonl")):
                path.unlink(missing_ok=True)
    new = everything(tmp_path) - before
    assert new <= {path for path in new if path.parts[:2] in (("copy", "made"), ("copy", "named.jsonl"))}


@pytest.mark.parametrize("name", TRAVERSAL)
def test_an_index_of_states_leads_nowhere(attacked, tmp_path, name):
    (secret,) = Path("run/state").glob("source-*.safetensors")
    shutil.copy(secret, tmp_path / "evil")
    index = Path("run/state/index.json")
    for outside in (name, str(tmp_path / "evil"), "../../../evil"):
        index.write_text(json.dumps([{**json.loads(index.read_text())[0], "file": outside}]))
        result = invoke_in_process(*MIX)
        check_ended(result, outside)
        assert result.code == 2


@pytest.mark.parametrize("name", ["../evil=bm25", "/evil=bm25", "..=bm25", ".manifest.json=bm25", "a/b=bm25", "~=bm25"])
def test_names_of_miners_lead_nowhere(attacked, tmp_path, name):
    before = everything(tmp_path)
    result = invoke_in_process("mine", name, "--pairs", "used.jsonl", "-o", "mined")
    assert result.code == 2
    assert everything(tmp_path) == before


def test_a_manifest_leads_nowhere(attacked, tmp_path):
    (tmp_path / "outside.jsonl").write_text("kept\n")
    names = ("../outside.jsonl", str(tmp_path / "outside.jsonl"), "used.jsonl", "..", "")
    listed = json.dumps({"files": {name: {"sha256": "0" * 64} for name in names}})
    for text in (listed, '{"files": 5}', "[]", '{"files": {"used.jsonl": 1}}', "[" * 100_000):
        Path(".manifest.json").write_text(text)
        check_ended(invoke_in_process("check", "used.jsonl"), text[:50])
    Path("mined").mkdir()
    Path("mined/..manifest.json.0123abcd.partial").write_text(listed)
    check_ended(invoke_in_process("mine", "a=random", "--pairs", "used.jsonl", "-k", 2, "-o", "mined"), "mine")
    assert (tmp_path / "outside.jsonl").read_text() == "kept\n"


def test_paths_in_a_report_are_read_only_where_they_were_scored(attacked, tmp_path):
    """A report cannot have a copy made of a file that it was not made from."""
    (tmp_path / "secret.jsonl").write_text(Path("used.jsonl").read_text().replace("the", "thy"))
    report = Path("run/report.json")
    document = json.loads(report.read_text())
    document["sources"][0]["files"][0] |= {"path": "../secret.jsonl"}
    report.write_text(json.dumps(document))
    for command in COMMANDS["run/report.json"][3:]:
        result = invoke_in_process(*command)
        assert (result.code, result.out) == (2, "")
        assert not list(Path().glob("made*"))


# permissions

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="no umask there")


@needs_posix
def test_what_is_written_follows_the_umask(attacked):
    mask = 0o027
    before = set(Path().rglob("*"))
    mined = ("mine", "a=random", "--pairs", "used.jsonl", "-k", 2, "-o", "mined")
    old = os.umask(mask)
    try:
        for command in (
            ("score", "used.jsonl", "--encoder", "v.npz", "--run", "made", "-o", "page.html", "-o", "page.json"),
            ("check", "used.jsonl", "-o", "check.md"),
            ("baseline", "made", "-o", "made.json"),
            ("select", "made", "--top", 2, "-o", "copy.parquet"),
            ("mix", "made", "--shares", "used=1", "-o", "mixed.jsonl.gz"),
            ("flagged", "made", "--finding", "repeat", "-o", "rows.jsonl"),
            ("gate", "--init", "--against", "b.json"),
            ("gate", "new.jsonl", "--against", "b.json", "-o", "gate.xml"),
            mined,
            ("score", "used.jsonl", "--encoder", "v.npz", "--state-dir", "states", "--shard", "0/1"),
        ):
            result = invoke_in_process(*command)
            assert result.code in {0, 1, 3}, (command, result.err)
    finally:
        os.umask(old)
    new = set(Path().rglob("*")) - before
    assert len(new) > 30
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in new}
    wrong = {
        str(path): oct(mode) for path, mode in modes.items() if mode != (0o777 if path.is_dir() else 0o666) & ~mask
    }
    assert wrong == {}


@needs_posix
def test_temporary_files_are_private(attacked, monkeypatch):
    """The work folder holds texts of the sources while a command runs, so it is private whatever the umask."""
    Path("tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(Path("tmp").resolve()))
    monkeypatch.setattr(tempfile, "tempdir", None)
    seen: dict[str, int] = {}
    real = os.mkdir

    def mkdir(path: Any, mode: int = 0o777, **more: Any) -> None:
        real(path, mode, **more)
        if Path(path).parent == Path("tmp").resolve():
            seen[str(path)] = stat.S_IMODE(Path(path).stat().st_mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    old = os.umask(0)
    try:
        for command in (
            ("check", "used.jsonl"),
            ("score", "used.jsonl", "--encoder", "v.npz", "--quiet"),
            ("select", "run", "--top", 2, "-o", "copy.jsonl"),
            ("gate", "new.jsonl", "--against", "b.json"),
        ):
            assert invoke_in_process(*command).code in {0, 1, 3}
    finally:
        os.umask(old)
    assert len(seen) >= 3
    assert set(seen.values()) == {0o700}
    assert list(Path("tmp").iterdir()) == []


@needs_posix
def test_a_link_in_the_temporary_folder_is_not_followed(attacked, tmp_path, monkeypatch):
    """The name of a work folder is unpredictable, and a folder of another user is not removed."""
    from secid.files import WORK_PREFIX

    work, outside = tmp_path / "tmp", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (outside / "kept").touch()
    (work / f"{WORK_PREFIX}link").symlink_to(outside)
    os.utime(work / f"{WORK_PREFIX}link", (0, 0), follow_symlinks=False)
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    assert invoke_in_process("check", "used.jsonl").code == 0
    assert (outside / "kept").exists()
    assert [path.name for path in work.iterdir()] == [f"{WORK_PREFIX}link"]
