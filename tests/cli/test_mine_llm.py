"""`secid mine` with a language model that fails, is stopped, or says too much: what is kept, said and never shown."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secid import api
from secid.errors import EndpointError, OutputError, SecidError
from secid.mining import find as module
from secid.mining import llm
from secid.progress import Silent
from tests import llm_server
from tests.cli.conftest import listing, start
from tests.cli.test_mine import FIXTURES, ask, lines
from tests.llm_server import Server

SECRET = "sk-very-secret-0123456789"
OPTIONS = ["--collection", FIXTURES, "-k", 3, "--prompt", "prompt.txt", "-o", "out"]
KEPT = "already paid for: the same command resumes from them"


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setattr(llm, "RETRIES", 0)
    Path("prompt.txt").write_text(llm_server.PROMPT, encoding="utf-8")
    with llm_server.running() as server:
        yield server


def failure(call: Any) -> SecidError:
    with pytest.raises(SecidError) as caught:
        call()
    return caught.value


def test_tokens_and_cost_are_in_the_result_the_summary_and_the_manifest(invoke, server):
    code, out, err = invoke("mine", f"gpt=llm:model=m,url={server.url},price=1/5", *OPTIONS, "--json")
    assert code == 0, err
    expected = {"n_answers": 66, "n_uncounted": 0, "n_tokens_in": 6600, "n_tokens_out": 1320, "cost": 0.0132}
    assert json.loads(out)["sources"][0]["usage"] == expected
    manifest = json.loads(Path("out/.manifest.json").read_text(encoding="utf-8"))
    assert manifest["files"]["gpt.jsonl"]["usage"] == expected
    Path("out/gpt.jsonl").rename("gpt.jsonl")
    for name in (".manifest.json", ".gpt.rejected.jsonl"):
        Path("out", name).unlink()
    code, out, _ = invoke("mine", f"gpt=llm:model=m,url={server.url},price=1/5", *OPTIONS)
    assert " ".join(out.split()).count("the model's 66 answers, 6,600 tokens in, 1,320 out, cost 0.0132.") == 1
    assert json.loads(Path("out/.manifest.json").read_text(encoding="utf-8")) == manifest
    assert len(server.asked) == 66


def test_without_a_language_model_there_is_no_usage():
    mined = api.mine(["lex=bm25"], "out", collection=str(FIXTURES), k=3)
    assert mined.sources[0].usage is None


def test_openai_without_a_key_is_refused_before_anything_is_read(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(module, "noted_collection", None)
    for option in ("", ",url=https://api.openai.com/v1", ",url=http://API.openai.com:443"):
        error = failure(lambda: api.mine([f"gpt=llm:model=m{option}"], "out", collection=str(FIXTURES)))  # noqa: B023
        assert isinstance(error, EndpointError)
        assert "OPENAI_API_KEY" in str(error.remedy)
    assert listing(".") == []


@pytest.mark.parametrize("out", ["out", "deep/down/out"])
def test_a_run_without_an_answer_leaves_nothing(server, out):
    for code in (401, 404, 500, 400):
        server.usual = lambda query, n, code=code: (code, {"error": "no"})
        error = failure(lambda: ask(server, out))
        assert isinstance(error, EndpointError)
        assert KEPT not in str(error)
        assert listing(".") == ["prompt.txt"]


def test_an_existing_folder_stays(server):
    Path("out").mkdir()
    server.usual = lambda query, n: (401, {})
    failure(lambda: ask(server))
    assert listing("out") == []


def test_a_full_disk_at_the_first_answer_leaves_nothing(server, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("secid.mining.journal.os.fsync", full)
        error = failure(lambda: ask(server, concurrency=1))
    assert (type(error), error.where) == (OutputError, "out/.llm-gpt.jsonl")
    assert listing(".") == ["prompt.txt"]


def test_a_journal_that_could_not_be_written_is_noticed_before_anything_is_asked(server):
    Path("file").write_text("", encoding="utf-8")
    assert isinstance(failure(lambda: ask(server, "file/out")), OutputError)
    assert server.asked == []


def test_an_error_says_how_many_answers_are_kept(server):
    server.usual = lambda query, n: (401, {}) if len(server.asked) > 10 else llm_server.right(query, n)
    error = failure(lambda: ask(server, concurrency=1))
    assert str(error.remedy) == f"set OPENAI_API_KEY to a valid key; 10 answers are kept, {KEPT}"
    assert listing("out") == [".llm-gpt.jsonl"]
    server.usual = llm_server.right
    server.asked.clear()
    assert ask(server).sources[0].usage.n_answers == 66
    assert len(server.asked) == 56


def test_so_does_an_interruption_at_any_later_time(server, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("secid.mining.write.write_rows", stop)
    progress = Notes()
    with pytest.raises(KeyboardInterrupt):
        ask(server, progress=progress)
    assert progress.notes[-1] == f"66 answers are kept, {KEPT}"


def test_ctrl_c_says_how_many_answers_are_kept(server):
    server.delay = lambda query: 0.1
    run = start("mine", f"gpt=llm:model=m,url={server.url}", *OPTIONS, "--concurrency", 2, cwd=Path.cwd())
    while len(server.asked) < 8:
        assert run.poll() is None
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert listing("out") == [".llm-gpt.jsonl"]
    n = len(lines("out/.llm-gpt.jsonl"))
    assert n >= 6
    assert err.count(f"{n} answers are kept, {KEPT}\n") == 1
    assert SECRET not in err
    asked = len(server.asked)
    server.delay = lambda query: 0.0
    resumed = ask(server).sources[0]
    assert len(server.asked) - asked == 66 - n
    whole = ask(server, "whole").sources[0]
    assert (resumed.usage, resumed.sha256) == (whole.usage, whole.sha256)


def test_the_key_is_in_no_output_even_where_the_server_repeats_it(invoke, server):
    """In an answer, a text that is none, token counts, and refusals of the server."""

    def reply(query: str, n: int) -> tuple[int, Any]:
        if len(server.asked) % 3 == 0:
            return 413, {"error": f"your key {SECRET} allows less"}
        content = json.dumps([f"The key {SECRET} of {query}", f"Here is your key: {SECRET}", {SECRET: 1}])
        return 200, llm_server.completion(content, usage={"prompt_tokens": SECRET, SECRET: 1})

    server.usual = reply
    words = ["mine", f"gpt=llm:model=m,url={server.url}", "any=random", *OPTIONS]
    printed = [*invoke(*words)[1:]]
    Path("out").rename("first")
    printed += invoke(*words, "--json")[1:]
    Path("out").rename("second")
    server.usual = lambda query, n: (401, {"error": SECRET})
    printed += invoke(*words)[1:]
    files = [path.read_text(encoding="utf-8") for path in Path().rglob("*") if path.is_file()]
    assert len(files) >= 11
    assert sum("***" in text for text in files) >= 4  # the test sees what is hidden
    assert not [text for text in [*printed, *files] if SECRET[:10] in text]


def test_a_placeholder_for_a_key_is_not_hidden_in_texts(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a")
    assert ask(server).sources[0].n_negatives == 198
    assert server.keys == ["Bearer a"] * 66
    assert not any("*" in text for row in lines("out/gpt.jsonl") for text in row["neg"])
