"""Test that missing or changed files of a run folder are named with a remedy, and nothing is computed from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from secid import api
from tests.cli.conftest import rows, write_rows

COMMANDS = {
    "mix": ("mix", "run", "--shares", "plain=0.5,terse=0.5"),
    "select": ("select", "run", "--source", "plain", "--top", 1, "-o", "kept.jsonl"),
    "report": ("report", "run", "-o", "page.html"),
    "baseline": ("baseline", "run", "--out", "base.json"),
}
READ_BY = {
    "report.json": ("mix", "select", "report", "baseline"),
    "negatives.parquet": ("select", "baseline"),
    "state/idf.safetensors": ("baseline",),
    "state/tables.json": ("baseline",),
    "state/positives.safetensors": ("baseline",),
    "state/index.json": ("mix", "baseline"),
    "state/source-0001.safetensors": ("mix", "baseline"),
}


def removed(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(bytes(place * 37 % 251 for place in range(path.stat().st_size)))


def specks(path: Path) -> None:
    """Flip single bits throughout the file, except near its ends. Only a checksum detects this."""
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 4, len(data) * 3 // 4, 16):
        data[place] ^= 0x01
    path.write_bytes(bytes(data))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny) -> Path:
    """Return a folder with a run of two sources over the same queries."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for style in ("plain", "terse"):
            write_rows(folder / f"{style}.jsonl", rows(12, 4, style))
        api.score(["plain.jsonl", "terse.jsonl"], str(tiny), run="run")
    return folder


HARMS = [(name, harm) for harm in (removed, specks) for name in READ_BY]
HARMS += [("report.json", cut), ("negatives.parquet", emptied), ("state/source-0001.safetensors", noise)]


@pytest.mark.parametrize(("name", "harm"), HARMS)
def test_the_file_is_named_with_what_to_do(whole, tmp_path, monkeypatch, invoke, name, harm):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    harm(Path("run") / name)
    for command in READ_BY[name]:
        before = set(Path().iterdir())
        code, _, err = invoke(*COMMANDS[command])
        assert code == 2, (command, err)
        assert f"{Path('run') / name}: " in err
        assert "with --run" in err
        assert set(Path().iterdir()) == before


def test_an_undamaged_run_serves_all(whole, tmp_path, monkeypatch, invoke):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    for command in COMMANDS.values():
        code, _, err = invoke(*command)
        assert code == 0, err


def fewer(entries: list) -> None:
    entries[0]["n_negatives"] /= 2


def swapped(entries: list) -> None:
    for key in ("file", "sha256"):
        entries[0][key], entries[1][key] = entries[1][key], entries[0][key]


@pytest.mark.parametrize("change", [fewer, swapped, list.clear, list.pop, lambda entries: entries.append(entries[0])])
def test_an_index_that_is_not_the_report_s_is_named(whole, tmp_path, monkeypatch, invoke, change):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    path = Path("run/state/index.json")
    entries = json.loads(path.read_text("utf-8"))
    change(entries)
    path.write_text(json.dumps(entries), "utf-8")
    code, _, err = invoke(*COMMANDS["mix"])
    assert (code, f"{path}: is damaged" in err, "report.json" in err) == (2, True, True), err
