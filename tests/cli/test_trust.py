"""Files are data: none makes secid run code, use an encoder that nobody named, or send a key to an address in it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from secid.tools.shards.store import RECORD
from tests.cli.conftest import Invoke, write_rows
from tests.embedding_server import Server, running
from tests.tiny_bert import save_tiny_bert

PERMISSIONS = ("trust_remote_code", "allow_pickle")
KEY = "sk-very-secret-0123456789"
OWN_CODE = """
from pathlib import Path
from transformers import BertModel

Path({mark!r}).touch()


class Own(BertModel):
    pass
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return the file that the code of `runs_code` writes."""
    return tmp_path / "code-ran"


@pytest.fixture
def runs_code(tmp_path: Path, mark: Path) -> Path:
    """Write an encoder whose repository has code."""
    folder = save_tiny_bert(tmp_path / "evil")
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoModel": "own_code.Own"}, "architectures": ["Own"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own_code.py").write_text(OWN_CODE.format(mark=str(mark)))
    return folder


def edited(path: Path, **values: Any) -> None:
    """Puts settings into a report or a baseline."""
    document = json.loads(path.read_text())
    for name, value in values.items():
        wrapped = isinstance(document["settings"]["temperature"], dict)
        document["settings"][name] = {"value": value, "from": "flag"} if wrapped else value
    path.write_text(json.dumps(document))


def typed_flags(message: str) -> list[str]:
    """Return the flag that an error prints, as words."""
    found = re.search(r"(--[a-z-]+ \S+)\s*$", message)
    assert found, message
    return shlex.split(found[1])


@pytest.fixture
def run(source: Path, tiny: Path, invoke: Invoke) -> Path:
    assert invoke("score", source, "--encoder", tiny, "--run", "run", "--quiet").code == 0
    return Path("run")


def test_no_command_on_a_run_folder_loads_its_encoder(run, runs_code, mark, server, key, invoke):
    for encoder in (str(runs_code), server.url):
        edited(run / "report.json", encoder=encoder, trust_remote_code=True, allow_pickle=True)
        for command in (
            ("select", "run", "--top", 1, "-o", "kept.jsonl"),
            ("flagged", "run", "--finding", "repeat", "-o", "rows.jsonl"),
            ("mix", "run", "--shares", "small=1", "-o", "mixed.jsonl"),
        ):
            assert invoke(*command).code == 0
            Path(command[-1]).unlink()
            for log in Path().glob(f"{command[-1]}.*"):
                log.unlink()
    assert not mark.exists()
    assert server.keys == []


def test_the_printed_repair_works_without_the_encoder(source, tiny, tmp_path, invoke):
    shutil.copytree(tiny, tmp_path / "my encoder")
    (first, *others) = map(json.loads, source.read_text().splitlines())
    write_rows(source, [{**first, "neg": [*first["neg"], *first["pos"]]}, *others])
    outcome = invoke("score", source, "--run", "run", "--quiet", "--encoder", "my encoder")
    (line,) = [line for line in outcome.out.splitlines() if "secid select" in line]
    shutil.rmtree(tmp_path / "my encoder")
    repaired = invoke(*shlex.split(line)[1:])
    assert repaired.code == 0, repaired.err


def test_an_address_in_a_baseline_gets_neither_texts_nor_a_key(source, server, key, invoke):
    assert invoke("score", source, "--encoder", server.url, "--run", "run", "--quiet").code == 0
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    server.keys.clear()
    gate = ("gate", source, "--against", "b.json")
    refused = invoke(*gate)
    assert (refused.code, server.keys) == (2, [])
    assert "b.json" in refused.err
    assert invoke(*gate, *typed_flags(refused.err)).code in {0, 1, 3}
    assert set(server.keys) == {f"Bearer {KEY}"}


@pytest.mark.parametrize("name", ["guide", "guide_reranker"])
def test_a_guide_that_only_the_baseline_names_is_named_again(source, tiny, server, invoke, name):
    assert invoke("score", source, "--encoder", "minilm", "--run", "run", "--quiet").code == 0
    assert invoke("baseline", "run", "-o", "b.json").code == 0
    gate = ("gate", source, "--against", "b.json")
    edited(Path("b.json"), **{name: str(tiny)})
    refused = invoke(*gate)
    assert refused.code == 2
    flag, value = refused.err.split("add ")[1].split()[-2:]
    assert (flag.lstrip("-").replace("-", "_").removesuffix("="), value) == (name, str(tiny))


def test_an_address_in_a_settings_file_gets_no_key(source, server, key, invoke):
    Path("secid.toml").write_text(f'encoder = "{server.url}"\nguide = "{server.url}"\n')
    assert invoke("score", source, "--quiet", "--set", "guide=minilm").code == 0
    assert set(server.keys) == {None}
    server.keys.clear()
    assert invoke("score", source, "--encoder", server.url, "--set", "guide=minilm", "--quiet").code == 0
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_guide_in_a_settings_file_gets_no_key(source, server, key, invoke):
    Path("secid.toml").write_text(f'guide = "{server.url}"\n')
    assert invoke("score", source, "--encoder", "minilm", "--quiet").code == 0
    assert set(server.keys) == {None}


def test_an_address_in_the_environment_gets_the_key(source, server, key, invoke, monkeypatch):
    Path("secid.toml").write_text(f'encoder = "{server.url}"\n')
    monkeypatch.setenv("SECID_ENCODER", server.url)
    assert invoke("score", source, "--quiet").code == 0
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_server_that_wants_the_withheld_key_is_explained(source, server, key, invoke):
    server.script = [lambda texts: (401, {"error": "no key"})]
    Path("secid.toml").write_text(f'encoder = "{server.url}"\n')
    refused = invoke("score", source)
    assert refused.code == 2
    assert typed_flags(refused.err) == ["--encoder", server.url]


@pytest.mark.parametrize("name", PERMISSIONS)
@pytest.mark.parametrize("file", ["secid.toml", "pyproject.toml"])
def test_a_settings_file_gives_no_permission(source, runs_code, mark, invoke, monkeypatch, name, file):
    table = "[tool.secid]\n" if file == "pyproject.toml" else ""
    Path(file).write_text(f"{table}encoder = '{runs_code}'\n{name} = true\n")
    refused = invoke("score", source)
    assert (refused.code, mark.exists()) == (2, False)
    assert file in refused.err
    assert f"SECID_{name.upper()}" in refused.err


def test_states_of_shards_give_no_permission(source, runs_code, tiny, mark, invoke):
    score = ("score", source, "--encoder", tiny, "--state-dir", "state", "--shard", "0/1", "--quiet")
    assert invoke(*score).code == 0
    assert invoke(*score, "--prepare").code == 0
    refused = invoke("merge", "state")
    assert refused.code == 2
    assert typed_flags(refused.err) == ["--encoder", str(tiny)]
    assert invoke("merge", "state", *typed_flags(refused.err)).code == 0
    for state in Path("state").glob("*.safetensors"):
        _set_in_header(state, encoder=str(runs_code), trust_remote_code=True)
    assert invoke("merge", "state").code == 2
    assert invoke("merge", "state", "--encoder", runs_code).code == 2
    assert not mark.exists()


def _set_in_header(path: Path, **values: Any) -> None:
    """Puts settings into the header of a state, with the hash that it then has."""
    from hashlib import sha256

    from safetensors.numpy import save_file

    with safe_open(path, "np") as state:
        arrays = {name: state.get_tensor(name) for name in state.keys()}  # noqa: SIM118
        record = json.loads(state.metadata()[RECORD].partition(" ")[2])
    record["header"]["run"]["settings"] |= values
    text = json.dumps(record)
    save_file(arrays, path, {RECORD: f"{sha256(text.encode()).hexdigest()} {text}"})
