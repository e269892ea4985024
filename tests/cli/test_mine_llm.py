"""`secid mine` with a language model that fails, is stopped, or says too much: what is kept, said and never shown."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import secid
from secid import api
from secid.encode.precomputed import PrecomputedEncoder
from secid.errors import EndpointError, InputError, OutputError, SecidError
from secid.tools.mining import find, llm
from secid.tools.mining import questions as module
from tests import llm_server
from tests.cli.conftest import listing
from tests.cli.test_mine import FIXTURES, lines
from tests.fake_encoder import HashEncoder
from tests.kills import fork
from tests.llm_server import Server
from tests.notes import Notes

SECRET = "sk-very-secret-0123456789"
N = 12
"""Queries of the collection."""
OPTIONS = ["--collection", "../beir", "-k", 3, "--prompt", "prompt.txt", "-o", "out"]
KEPT = "the same command reuses them"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """Serve a model that writes negatives for the first N queries of the fixtures in the folder `beir`."""
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    shutil.copy(FIXTURES / "corpus.jsonl", beir)
    queries = (FIXTURES / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:N]
    (beir / "queries.jsonl").write_text("".join(queries), encoding="utf-8")
    own = tuple(f"{json.loads(line)['_id']}\t" for line in queries)
    head, *qrels = (FIXTURES / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [head, *(line for line in qrels if line.startswith(own))]
    (beir / "qrels" / "test.tsv").write_text("".join(kept), encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setattr(llm, "MAX_RETRIES", 0)
    Path("prompt.txt").write_text(llm_server.PROMPT, encoding="utf-8")
    with llm_server.running() as server:
        yield server


def ask(server: Server, out: str = "out", specs: Sequence[str] = (), **options: Any) -> Any:
    given = {"collection": "../beir", "k": 3, "prompt": llm_server.PROMPT, **options}
    return secid.mine([f"gpt=llm:model=m,url={server.url}", *specs], out, HashEncoder(), **given)


def failure(call: Any) -> SecidError:
    with pytest.raises(SecidError) as caught:
        call()
    return caught.value


def test_tokens_and_cost_are_in_the_result_the_summary_and_the_manifest(invoke, server):
    code, out, err = invoke("mine", f"gpt=llm:model=m,url={server.url},price=1/5", *OPTIONS, "--json")
    assert code == 0, err
    expected = {"n_answers": N, "n_uncounted": 0, "n_tokens_in": 1200, "n_tokens_out": 240, "cost": 0.0024}
    assert json.loads(out)["sources"][0]["usage"] == expected
    manifest = json.loads(Path("out/.manifest.json").read_text(encoding="utf-8"))
    assert manifest["files"]["gpt.jsonl"]["usage"] == expected
    Path("out/gpt.jsonl").rename("gpt.jsonl")
    for name in (".manifest.json", ".gpt.rejected.jsonl"):
        Path("out", name).unlink()
    code, out, _ = invoke("mine", f"gpt=llm:model=m,url={server.url},price=1/5", *OPTIONS)
    assert " ".join(out.split()).count("the model's 12 answers, 1,200 tokens in, 240 out; cost 0.0024.") == 1
    assert json.loads(Path("out/.manifest.json").read_text(encoding="utf-8")) == manifest
    assert len(server.asked) == N


def test_the_manifest_has_the_hash_of_the_prompt(server, monkeypatch):
    built_in = llm_server.PROMPT.replace("Positive", "Answer")
    for module_with_prompt in (llm, find):
        monkeypatch.setattr(module_with_prompt, "PROMPT", built_in)
    for out, prompt in (("own", llm_server.PROMPT), ("built-in", None)):
        ask(server, out, prompt=prompt)
        manifest = json.loads(Path(out, ".manifest.json").read_text(encoding="utf-8"))
        assert manifest["prompt_sha256"] == sha256((prompt or built_in).encode()).hexdigest()


def test_openai_without_a_key_is_refused_before_anything_is_read(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(module, "open_noting_bad_rows", None)
    for option in ("", ",url=https://api.openai.com/v1", ",url=http://API.openai.com:443"):
        error = failure(lambda: secid.mine([f"gpt=llm:model=m{option}"], "out", collection=str(FIXTURES)))  # noqa: B023
        assert isinstance(error, EndpointError)
        assert "OPENAI_API_KEY" in str(error.remedy)
    assert listing(".") == []


def test_a_run_without_an_answer_leaves_nothing(server):
    for code in (401, 404, 500, 400):
        server.usual = lambda query, n, code=code: (code, {"error": "no"})
        error = failure(lambda: ask(server, "deep/down/out"))
        assert isinstance(error, EndpointError)
        assert KEPT not in str(error)
        assert listing(".") == ["prompt.txt"]


def test_a_full_disk_at_the_first_answer_leaves_nothing(server, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("secid.tools.mining.answers.os.fsync", Mock(side_effect=full))
    error = failure(lambda: ask(server, concurrency=1))
    assert (type(error), error.where) == (OutputError, "out/.llm-gpt.jsonl")
    assert listing(".") == ["prompt.txt"]


def test_a_journal_that_could_not_be_written_is_noticed_before_anything_is_asked(server):
    Path("file").write_text("", encoding="utf-8")
    assert isinstance(failure(lambda: ask(server, "file/out")), OutputError)
    assert server.asked == []


def test_an_error_says_how_many_answers_are_kept(server):
    server.usual = lambda query, n: (401, {}) if len(server.asked) > 5 else llm_server.right(query, n)
    error = failure(lambda: ask(server, concurrency=1))
    assert str(error.remedy) == f"set OPENAI_API_KEY to a valid key; 5 paid answers are kept; {KEPT}"
    assert listing("out") == [".llm-gpt.jsonl"]
    server.usual = llm_server.right
    server.asked.clear()
    assert ask(server).sources[0].usage.n_answers == N
    assert len(server.asked) == N - 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_what_was_paid_is_kept_where_the_run_ends_at_any_later_time(server, monkeypatch, error):
    progress = Notes()
    with monkeypatch.context() as patch:
        patch.setattr("secid.tools.mining.find.write_rows", Mock(side_effect=error))
        with pytest.raises((KeyboardInterrupt, OutputError)) as caught:
            ask(server, progress=progress)
    kept = f"{N} paid answers are kept; {KEPT}"
    assert (getattr(caught.value, "remedy", None) or progress.notes[-1]).endswith(kept)
    assert listing("out") == [".gpt.rejected.jsonl", ".llm-gpt.jsonl"]
    ask(server)
    assert len(server.asked) == N


def test_ctrl_c_says_how_many_answers_are_kept(server, tmp_path):
    server.delay = lambda query: 0.1
    words = ["mine", f"gpt=llm:model=m,url={server.url}", *OPTIONS, "--concurrency", 2]
    run = fork(words, Path.cwd(), tmp_path.with_name("said"), OPENAI_API_KEY=SECRET)
    while len(server.asked) < 4:
        assert run.poll() is None
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert listing("out") == [".llm-gpt.jsonl"]
    n = len(lines("out/.llm-gpt.jsonl"))
    assert n == len(server.asked) < N  # those in flight too
    assert err.count(f"{n} paid answers are kept; {KEPT}\n") == 1
    assert SECRET not in err
    server.delay = lambda query: 0.0
    resumed = ask(server).sources[0]
    assert len(server.asked) == N
    whole = ask(server, "whole").sources[0]
    assert (resumed.usage, resumed.sha256) == (whole.usage, whole.sha256)


def test_the_key_is_in_no_output_even_where_the_server_repeats_it(invoke, server):
    """The key is in an answer, in an item that is not a text, in token counts, and in refusals of the server."""

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
    assert ask(server).sources[0].n_negatives == 3 * N
    assert server.keys == ["Bearer a"] * N
    assert not any("*" in text for row in lines("out/gpt.jsonl") for text in row["neg"])


def test_a_language_model_writes_negatives_next_to_other_sources(server):
    mined = ask(server, specs=["near=dense:relative=none"])
    gpt, near = mined.sources
    assert (gpt.n_rows, gpt.n_negatives, gpt.n_short) == (N, 3 * N, 0)
    assert (gpt.usage.n_answers, gpt.usage.n_tokens_in, gpt.usage.n_tokens_out) == (N, N * 100, N * 20)
    assert near.n_negatives == 3 * N
    rows = lines("out/gpt.jsonl")
    assert all(row["neg"] == llm_server.texts(row["query"], 3) for row in rows)
    assert all(row["neg_miners"] == ["gpt"] * 3 for row in rows)
    assert sorted(path.name for path in Path("out").glob("*")) == [
        ".gpt.rejected.jsonl", ".llm-gpt.jsonl", ".manifest.json", "gpt.jsonl", "near.jsonl",
    ]  # fmt: skip
    assert SECRET not in "".join(path.read_text(encoding="utf-8") for path in Path("out").iterdir())
    assert len(api.check(["out/gpt.jsonl"]).sources) == 1


def test_what_a_model_writes_has_margins_and_is_part_of_a_hybrid(server):
    """Its third text is the nearest candidate of the query, which the hybrid has already."""
    near = {row["query"]: row["neg"] for row in _nearest()}

    def answer(query: str, n: int) -> tuple[int, Any]:
        written = [*llm_server.texts(query, n - 1), near[query][0]]
        return 200, llm_server.completion(json.dumps([written[0], written[-1], *written[1:-1]]))

    server.usual = answer
    gpt, _, mix = ask(server, specs=["near=dense:relative=none", "mix=hybrid:near=2,gpt=2"], k=4).sources
    assert (gpt.n_negatives, mix.n_negatives, mix.n_short) == (4 * N, 4 * N, 0)
    assert mix.usage is None
    encoder = HashEncoder()
    for row, mixed in zip(lines("out/gpt.jsonl"), lines("out/mix.jsonl"), strict=True):
        first, second, third, _ = row["neg"]
        assert mixed["neg"] == [*near[row["query"]][:2], first, third]
        assert second == near[row["query"]][0]
        assert mixed["neg_miners"] == ["near", "near", "gpt", "gpt"]
        assert row["neg_ranks"] == [None] * 4
        query = encoder.encode([row["query"]], "query")[0]
        positives, negatives = (encoder.encode(row[name], "passage") @ query for name in ("pos", "neg"))
        np.testing.assert_allclose(row["neg_margins"], positives.min() - negatives, atol=1e-6)
    assert gpt.s_query_negative is not None


def test_a_text_equal_to_a_passage_does_not_have_its_id(server):
    passage = lines(FIXTURES / "corpus.jsonl")[40]
    server.usual = lambda query, n: (200, llm_server.completion(json.dumps([passage["text"]])))
    ask(server, k=1, titles=False)
    ids = {key for row in lines("out/gpt.jsonl") for key in row["neg_ids"]}
    assert len(ids) == 1
    assert passage["_id"] not in ids


def test_vectors_are_refused_before_anything_is_asked(server):
    given = {"collection": "../beir", "k": 3, "prompt": llm_server.PROMPT}
    encoder = Mock(spec=PrecomputedEncoder, info=HashEncoder().info)
    error = failure(lambda: secid.mine([f"gpt=llm:model=m,url={server.url}"], "out", encoder, **given))
    assert error.where == "--encoder"
    assert server.asked == []


def _nearest() -> list[Any]:
    secid.mine(["near=dense:relative=none"], "nearest", HashEncoder(), collection="../beir", k=4)
    return lines("nearest/near.jsonl")


def test_what_a_model_does_not_write_is_counted_kept_and_filled_up(server):
    copy = lines(FIXTURES / "corpus.jsonl")[0]["text"]
    server.usual = lambda query, n: (200, llm_server.completion(json.dumps([f"Bakers know that {query}", "", copy])))
    gpt = ask(server, on_short="random").sources[0]
    assert gpt.short == {"few_written": N}
    assert gpt.rejected["empty"] == N
    rejected = lines("out/.gpt.rejected.jsonl")
    assert len(rejected) == sum(gpt.rejected.values())
    assert gpt.n_negatives == 3 * N
    assert gpt.n_filled == 3 * N - sum(row["neg_miners"].count("gpt") for row in lines("out/gpt.jsonl"))
    assert gpt.n_filled > 0


def test_answers_without_a_negative_are_kept_with_their_reasons(server):
    server.usual = lambda query, n: (200, llm_server.completion("none"))
    with pytest.raises(InputError, match=f"{N} × not json") as caught:
        ask(server)
    assert "same command" not in str(caught.value)
    assert len(lines("out/.gpt.rejected.jsonl")) == N
    server.usual = llm_server.right
    assert ask(server, seed=1).sources[0].n_negatives == 3 * N


def test_a_run_killed_before_its_manifest_continues_from_what_was_paid(server):
    ask(server)
    asked, files = len(server.asked), listing("out")
    Path("out/.manifest.json").rename("out/..manifest.json.0123abcd.partial")
    ask(server)
    assert (len(server.asked), listing("out")) == (asked, files)
