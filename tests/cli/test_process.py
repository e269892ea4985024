"""Test what needs a process: signals, closed pipes, exit codes, colours."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import secid
from secid.cli.app import code_of_ending
from secid.triplets import embedding
from tests.cli.conftest import FIXTURES, child_environment, listing, rows, start, write_rows
from tests.kills import Child, Forked, fork, run_program
from tests.tiny_bert import save_tiny_bert

PATIENCE_SECONDS = 90.0
"""Longest wait for a child to begin encoding: importing torch takes seconds, more on a busy machine."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """An encoder and a source that keep a core busy for a while, so that a signal arrives while they work."""
    folder = tmp_path_factory.mktemp("slow")
    words = "many words that an encoder has to read letter by letter before it is done with them "
    write_rows(folder / "big.jsonl", rows(400, n_negatives=4, style=words))
    return save_tiny_bert(folder / "encoder", width=128, layers=2), folder / "big.jsonl"


def wait_for(pattern: str, child: Child, folder: Path) -> None:
    """Wait until the child has made a file."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not list(folder.glob(pattern)):
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < end, f"no {pattern}"
        time.sleep(0.005)


def run_with_a_file(arguments: list[str]) -> None:
    """Run a command that keeps its rows in a file, which shows that encoding has begun."""
    embedding.ROWS_IN_MEMORY_BYTES = 0
    run_program(arguments)


def start_encoding(slow, folder: Path) -> Forked:
    """A child that is in the middle of encoding, in the folder `here`."""
    encoder, source = slow
    (folder / "here").mkdir()
    words = ["score", source, "--encoder", encoder, "--set", "cache=no", "--set", "controls=none", "--run", "runs/one"]
    child = fork(words, folder / "here", folder / "said", run_with_a_file)
    wait_for("here/runs/.partial-*/*/rows.f32", child, folder)
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing(slow, tmp_path, number, code):
    child = start_encoding(slow, tmp_path)
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == code, err
    assert out == ""
    assert "Traceback" not in err
    assert ("interrupted" in err) == (number == signal.SIGINT)
    assert listing(tmp_path / "here") == []


def test_a_miner_that_is_ended_while_it_writes_leaves_nothing(tmp_path):
    write_rows(tmp_path / "pairs.jsonl", rows(1000))
    (tmp_path / "here").mkdir()
    words = ["mine", "one=random", "two=random", "--pairs", tmp_path / "pairs.jsonl", "-k", 100, "-o", "out"]
    child = fork(words, tmp_path / "here", tmp_path / "said")
    wait_for("here/out/*.partial", child, tmp_path)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 143, err
    assert out == ""
    assert "Traceback" not in err
    assert listing(tmp_path / "here") == []


def test_an_error_at_exit_is_not_reported_as_ours():
    def broken_off(first):
        try:
            try:
                raise first
            finally:
                raise RuntimeError("closed")
        except RuntimeError as error:
            return error

    assert code_of_ending(broken_off(SystemExit(143))) == 143
    assert code_of_ending(broken_off(KeyboardInterrupt())) == 130
    assert code_of_ending(broken_off(SystemExit(1))) is None
    assert code_of_ending(broken_off(ValueError("ours"))) is None


def test_a_reader_that_leaves_early_is_not_an_error(tmp_path):
    """More JSON than a pipe holds, and a reader that closes it after the first line."""
    with start("schema", "report", cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "{\n"
        child.stdout.close()
        assert child.stderr.read() == ""
    assert child.returncode in (0, -signal.SIGPIPE)


def test_no_output_at_all_is_read(tmp_path):
    with start("explain", cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == ""
    assert child.returncode == 0


def test_the_version_and_usage_through_the_module():
    done = subprocess.run(
        [sys.executable, "-m", "secid", "--version"], capture_output=True, text=True, env=child_environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"secid {secid.__version__}\n", "")


def test_an_uncaught_exception_of_the_process_exits_3_not_1(tmp_path):
    code = (
        "import sys, secid.api, secid.cli.app\n"
        "def broken(*args, **kwargs): raise RuntimeError('planted')\n"
        "secid.api.score = broken\n"
        "sys.argv = ['secid', 'score', 'x', '--encoder', 'y']\n"
        "secid.cli.app.entry()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment(), cwd=tmp_path
    )
    assert done.returncode == 3
    assert "RuntimeError: planted" in done.stderr


def test_quiet_prints_only_the_table(tiny, source, invoke):
    outcome = invoke("score", source, "--encoder", tiny, "--quiet", "--run", "run")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "small" in outcome.out


def test_colours_are_for_terminals_that_want_them(tmp_path, tiny, source, monkeypatch, invoke):
    """FORCE_COLOR makes rich treat the pipe as a terminal; NO_COLOR wins over it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in invoke("score", source, "--encoder", tiny, "--run", "one").out
    monkeypatch.setenv("NO_COLOR", "1")
    plain = invoke("score", source, "--encoder", tiny, "--run", "two").out
    assert "\x1b[3" not in plain
    assert "\x1b[9" not in plain


def test_doctor_tells_what_a_bug_report_needs(invoke, monkeypatch):
    monkeypatch.setenv("SECID_SEED", "3")
    monkeypatch.setenv("HF_TOKEN", "hf_a_secret")
    outcome = invoke("doctor", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["secid"]["version"] == secid.__version__
    assert found["packages"]["torch"][0].isdigit()
    assert found["settings"] == {"seed": "3 from SECID_SEED"}
    assert found["encoders"]["HF_TOKEN"] == "set"
    text = invoke("doctor").out
    assert all(f"{section}:\n" in text for section in found)
    assert "hf_a_secret" not in outcome.out + text


def test_doctor_shows_settings_in_words(tmp_path, invoke):
    (tmp_path / "secid.toml").write_text('block = ["m=a,b", "n=a,c"]\ntitles = false\n', encoding="utf-8")
    found = json.loads(invoke("doctor", "--json").out)["settings"]
    assert found == {"titles": "no from secid.toml", "block": "m=a,b, n=a,c from secid.toml"}


def test_doctor_works_when_the_settings_do_not(tmp_path, invoke):
    (tmp_path / "secid.toml").write_text("sed = 1", encoding="utf-8")
    outcome = invoke("doctor")
    assert outcome.code == 0
    assert "did you mean 'seed'?" in outcome.out


def test_without_a_command_the_help_is_shown(invoke):
    outcome = invoke()
    assert outcome.code == 2
    assert "score" in outcome.out + outcome.err


HEAVY = ("torch", "transformers", "sentence_transformers", "scipy")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """A folder with base.json and its table, of an encoder named minilm."""
    folder = tmp_path_factory.mktemp("baseline")
    source = write_rows(folder / "in.jsonl", rows(30))
    secid.score([source], "minilm", run=folder / "run", controls="none")
    secid.baseline(folder / "run", folder / "base.json")
    return folder


REFUSED = [
    ("score columns.jsonl --encoder minilm", "--query-column"),
    ("score in.jsonl --encoder e5-bse", "did you mean 'e5-base'"),
    ("score in.jsonl --encoder minilm --encoder e5-bse", "did you mean 'e5-base'"),
    ("score in.jsonl --encoder minilm --guide e5-bse", "did you mean 'e5-base'"),
    ("score in.jsonl --encoder minilm --guide minilm", "is the target encoder"),
    ("score in.jsonl --encoder minilm --guide owner/none", "the guide must not be the target encoder"),
    ("score in.jsonl --encoder minilm --guide-reranker ./none", "check the path"),
    ("score in.jsonl --encoder owner/none", "not in the hub cache"),
    ("score in.jsonl --encoder none.npz", "no such file"),
    ("check columns.jsonl", "--query-column"),
    ("probe columns.jsonl --encoder minilm", "--query-column"),
    ("probe in.jsonl --encoder e5-bse", "did you mean 'e5-base'"),
    ("audit in.jsonl --encoder minilm", "no labels given"),
    ("audit columns.jsonl --encoder minilm --collection beir", "--query-column"),
    ("audit in.jsonl --encoder e5-bse --collection beir", "did you mean 'e5-base'"),
    ("score columns.jsonl --encoder minilm --shard 0/2 --state-dir states", "--query-column"),
    (
        "score columns.jsonl --encoder minilm --shard 0/2 --state-dir states --set tokenizer=whitespace",
        "--query-column",
    ),
    ("score in.jsonl --encoder e5-bse --shard 0/2 --state-dir states", "did you mean 'e5-base'"),
    ("score in.jsonl --encoder none.npz --shard 0/2 --state-dir states", "no such file"),
    ("mine near=dense --encoder minilm --pairs columns.jsonl -o out", "--query-column"),
    ("mine near=dense --encoder e5-bse --pairs in.jsonl -o out", "did you mean 'e5-base'"),
    ("mine near=dense --encoder none.npz --collection beir -o out", "no such file"),
    ("mine near=dense --pairs in.jsonl -o out", "needs an encoder"),
    ("mine near=dense --encoder e5-bse --pairs in.jsonl --sweep", "did you mean 'e5-base'"),
    ("mine near=dense --encoder minilm --guide e5-bse --pairs in.jsonl --sweep", "did you mean 'e5-base'"),
    ("gate columns.jsonl --against base.json", "--query-column"),
    ("gate in.jsonl --against base.json --encoder ./none", "check the path"),
    ("gate in.jsonl --against base.json --guide e5-bse", "did you mean 'e5-base'"),
    ("gate in.jsonl --against base.json --policy wrong.toml", "did you mean 'preamble'?"),
]
PROGRAM = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from secid.cli.app import main

ended = []
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(words)
    loaded = sorted(sys.modules.keys() & {set(HEAVY)!r})
    ended.append([code, out.getvalue(), loaded, err.getvalue()])
print(json.dumps(ended))
"""


def test_wrong_columns_and_a_missing_encoder_are_errors_before_libraries_load(tmp_path, baseline):
    """One process for all commands, none of which loads a library."""
    write_rows(tmp_path / "in.jsonl", rows(5))
    (tmp_path / "columns.jsonl").write_text('{"foo": "x", "bar": ["y"]}\n' * 5, encoding="utf-8")
    shutil.copytree(FIXTURES / "collection", tmp_path / "beir")
    for path in baseline.glob("base.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "wrong.toml").write_text("[gate.findings]\npreambles = 0.1\n", encoding="utf-8")
    commands = json.dumps([words.split() for words, _ in REFUSED])
    child = [sys.executable, "-c", PROGRAM, commands]
    done = subprocess.run(child, capture_output=True, text=True, env=child_environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for (words, said), (code, out, loaded, err) in zip(REFUSED, json.loads(done.stdout), strict=True):
        assert (code, out, loaded) == (2, "", []), words
        assert said in " ".join(err.split()), words


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(monkeypatch, given, found):
    """OpenMP reads the variable when torch is loaded."""
    from secid.cli import app

    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    seen = []
    monkeypatch.setattr(app, "main", lambda arguments: seen.append(os.environ["OMP_WAIT_POLICY"]) or 0)
    with pytest.raises(SystemExit):
        app.entry()
    assert seen == [found]
