"""An OpenAI-compatible endpoint, against a real server on loopback that can misbehave."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from secid.encode import endpoint as endpoint_module
from secid.encode import endpoint as http_module
from secid.encode import load
from secid.encode.endpoint import parse_address
from secid.errors import EncoderError
from secid.pages.encoder_page import fact_lines
from secid.records import Fact
from secid.settings import Settings
from tests.embedding_server import Server, right, running, vector
from tests.notes import Notes
from tests.snapshots import Snapshot, refusal, situations

SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, in seconds, which the tests do not sit through."""
    slept: list[float] = []
    real = http_module.Http.__init__

    def init(self: Any, key: str | None, notify: Any, key_remedy: str) -> None:
        real(self, key, notify, key_remedy, timeout_seconds=0.5, tries=4, sleep=slept.append)

    monkeypatch.setattr(http_module.Http, "__init__", init)
    return slept


def unit(texts: list[str]) -> np.ndarray:
    rows = np.array([vector(text) for text in texts], dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_rows_come_back_in_order(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "TEXTS_PER_REQUEST", 3)
    encoder = load(Settings(encoder=server.url))
    texts = ["x" * (place + 1) for place in range(20)]
    assert np.abs(encoder.encode(texts, "query") - unit(texts)).max() < 1e-6
    assert encoder.encode([], "query").shape == (0, 3)
    assert encoder.info.name == f"{server.url}?model=tiny-model"
    assert max(len(texts) for texts in server.asked) == 3
    assert encoder.info.fingerprint


def test_flags_that_an_endpoint_cannot_follow_are_named(server: Server) -> None:
    facts = load(Settings(encoder=server.url, pooling="cls", query_prefix="q: ")).info.facts
    assert facts[1:] == (Fact("unused_by_endpoint", {"flags": "--set pooling"}),)


def test_prefixes_truncation_and_raw_rows(server: Server) -> None:
    settings = Settings(encoder=f"{server.url}/embeddings?model=intfloat/e5-base", normalize=False, truncate_dim=2)
    encoder = load(settings)
    assert np.array_equal(encoder.encode(["a"], "query"), np.array([vector("query: a")[:2]], dtype=np.float32))
    assert server.asked[-1] == ["query: a"]
    encoder.encode(["a"], "passage")
    assert server.asked[-1] == ["passage: a"]
    assert encoder.info.rules["query_prefix"] == "registry: e5"
    assert load(Settings(encoder=settings.encoder, query_prefix="")).info.query_prefix == ""


@pytest.mark.parametrize("code", [429, 500, 503])
def test_busy_and_broken_servers_are_asked_again(server: Server, waits: list[float], code: int) -> None:
    encoder = load(Settings(encoder=server.url))
    server.script = [lambda texts: (code, {"error": "later"})] * 3
    assert np.abs(encoder.encode(["a", "b"], "query") - unit(["a", "b"])).max() < 1e-6
    assert len(waits) == 3
    assert waits[0] < waits[1] < waits[2]


def test_retry_after_is_honoured_within_bounds(server: Server, waits: list[float]) -> None:
    encoder = load(Settings(encoder=server.url))
    server.error_headers = {"Retry-After": "7"}
    server.script = [lambda texts: (429, {})]
    encoder.encode(["a"], "query")
    server.error_headers = {"Retry-After": "86400"}
    server.script = [lambda texts: (429, {})]
    encoder.encode(["a"], "query")
    assert waits == [7.0, 60.0]


CLOSED = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_an_address_without_a_server_fails_at_once(waits: list[float], host: str) -> None:
    notes = Notes()
    where = f"http://{host}/v1/embeddings"
    refusal(lambda: load(Settings(encoder=f"http://{host}/v1?model=m"), notes), EncoderError, where)
    assert (waits, notes.notes) == ([], [])


def test_a_server_that_restarts_during_a_run_is_waited_for(server: Server, waits: list[float]) -> None:
    encoder = load(Settings(encoder=server.url))
    server.shutdown()
    server.server_close()
    message = refusal(lambda: encoder.encode(["a"], "query"), EncoderError, f"{server.url}/embeddings")
    assert " 4 " in message
    assert len(waits) == 3


def test_waiting_for_a_server_is_noted_once(server: Server, waits: list[float]) -> None:
    patient = Notes()
    encoder = load(Settings(encoder=server.url), patient)
    for _ in range(2):
        server.script = [lambda texts: (503, {"error": "later"})]
        encoder.encode(["a"], "query")
    assert [note.startswith(f"{server.url}/embeddings: HTTP 503") for note in patient.notes] == [True]


def test_a_silent_server_is_reported(server: Server, waits: list[float]) -> None:
    encoder = load(Settings(encoder=server.url))

    def silent(texts: list[str]) -> tuple[int, Any]:
        server.hold.wait(5)
        return right(texts)

    server.script = [silent] * 4
    with pytest.raises(EncoderError, match="timed out"):
        encoder.encode(["a"], "query")
    server.script = [silent]
    server.hold.set()
    assert encoder.encode(["a"], "query").shape == (1, 3)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 307])
def test_refusals_are_not_repeated(server: Server, waits: list[float], code: int) -> None:
    encoder = load(Settings(encoder=server.url))
    before = len(server.asked)
    server.error_headers = {"Location": "http://127.0.0.1:9/elsewhere"}
    server.script = [lambda texts: (code, {"error": "no"})]
    with pytest.raises(EncoderError, match=f"HTTP {code} "):
        encoder.encode(["a"], "query")
    assert len(server.asked) == before + 1
    assert waits == []


WRONG: dict[str, Any] = {
    "a page": b"<html>",
    "no vector": {"data": []},
    "one vector": {"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]},
    "two vectors for the first": {"data": [{"index": 0, "embedding": [1, 2, 3]}] * 2},
    "vectors of different lengths": {"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]},
    "letters": {"data": [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": ["y"]}]},
    "another dimension": {"data": [{"index": place, "embedding": [1.0, 2.0]} for place in range(2)]},
    "no data": {"result": "fine"},
    "a list": [],
    "data that is an object": {"data": {"a": 1}},
    "bytes that are not UTF-8": b'{"data": "caf\xe9"}',
    "nested too deeply": b"[" * 200_000,
    "an index without end": b'{"data": [{"index": Infinity, "embedding": [1]}]}',
    "numbers beyond float": {"data": [{"index": place, "embedding": [10**400, 1, 1]} for place in range(2)]},
    "three vectors": {"data": [{"index": 0, "embedding": [1, 2, 3]}] * 3},
}
CAUSES = re.compile(r"(not JSON \(|equal length: |format \().*?(?=\n|$)")
"""Messages of Python and other libraries, which differ between versions."""


def test_wrong_responses_are_refused(server: Server, waits: list[float], snapshot: Snapshot) -> None:
    encoder = load(Settings(encoder=server.url))
    texts = {}
    for name, response in WRONG.items():
        server.script = [lambda texts, response=response: (200, response)] * 4
        message = refusal(lambda: encoder.encode(["a", "b"], "query"), EncoderError, f"{server.url}/embeddings")
        server.script.clear()
        texts[name] = CAUSES.sub(r"\1…", message.replace(server.url, "URL"))
    assert len(waits) == 3 * sum("not JSON" in text for text in texts.values()) == 9
    snapshot("endpoint-responses.txt", situations(texts))


REFUSED = (400, 401, 404, 307)
ADDRESSES = ("ftp://h", "http://me:pw@h/v1", "http://h/v1?key=x", "http://h/v1#m")


def test_wording(server: Server, waits: list[float], snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    encoder = load(Settings(encoder=server.url, pooling="cls"), notes)
    texts = {"notes": "\n".join(fact_lines(encoder.info.facts))}
    for code in REFUSED:
        server.script = [lambda texts, code=code: (code, {"error": "no"})]
        texts[f"HTTP {code}"] = refusal(
            lambda: encoder.encode(["a"], "query"), EncoderError, f"{server.url}/embeddings"
        )
    server.script = [lambda texts: (503, {"error": "later"})] * 4
    texts["HTTP 503"] = refusal(lambda: encoder.encode(["a"], "query"), EncoderError, f"{server.url}/embeddings")
    texts["the first retry"] = "\n".join(notes.notes)
    server.models = ["a", "b"]
    texts["two models"] = refusal(lambda: load(Settings(encoder=server.url)), EncoderError, server.url)
    for address in ADDRESSES:
        texts[address] = refusal(lambda address=address: parse_address(address), EncoderError, "--encoder")
    monkeypatch.setenv("SECID_API_KEY", SECRET)
    server.models = ["tiny-model"]
    texts["notes with a key"] = "\n".join(fact_lines(load(Settings(encoder=server.url)).info.facts))
    monkeypatch.setenv("SECID_API_KEY", "sk\r1")
    texts["a key of two lines"] = refusal(lambda: load(Settings(encoder=server.url)), EncoderError, None)
    snapshot("endpoint.txt", situations({name: text.replace(server.url, "URL") for name, text in texts.items()}))


@pytest.mark.parametrize("variable", ["SECID_API_KEY", "OPENAI_API_KEY"])
def test_the_key_is_sent_and_never_shown(
    server: Server, waits: list[float], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, SECRET)
    encoder = load(Settings(encoder=server.url))
    assert server.keys[-1] == f"Bearer {SECRET}"
    server.script = [lambda texts: (401, {"error": "x" * 180 + f" invalid key {SECRET}"})]
    with pytest.raises(EncoderError) as caught:
        encoder.encode(["a"], "query")
    server.script = [lambda texts: (500, {"error": SECRET})] * 4
    with pytest.raises(EncoderError) as again:
        encoder.encode(["a"], "query")
    shown = " ".join((str(caught.value), str(again.value), repr(encoder.info), repr(vars(encoder))))
    assert not any(SECRET[: length + 8] in shown for length in range(len(SECRET) - 7))
    assert "***" in str(again.value)
    monkeypatch.delenv(variable)
    assert (*load(Settings(encoder=server.url)).info.facts, Fact("plain_http")) == encoder.info.facts


def test_a_proxy_is_used_only_for_other_hosts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert load(Settings(encoder=server.url)).info.dim == 3
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    answer = http_module.Http(None, print, "").ask("http://models.example/v1/models")
    assert answer["data"] == [{"id": "tiny-model"}]


def test_an_unusable_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:9")
    message = refusal(lambda: load(Settings(encoder=f"{CLOSED}?model=m")), EncoderError, None)
    assert all(part in message for part in ("ftp", "ALL_PROXY"))


@pytest.mark.parametrize("space", ["\r", "\n", " "])
def test_a_key_from_a_file_loses_its_line_end(server: Server, monkeypatch: pytest.MonkeyPatch, space: str) -> None:
    monkeypatch.setenv("SECID_API_KEY", SECRET + space)
    load(Settings(encoder=server.url))
    assert server.keys[-1] == f"Bearer {SECRET}"


@pytest.mark.parametrize("key", [f"{SECRET}\r{SECRET}", f"{SECRET}\u2026", f"\x00{SECRET}"])
def test_a_key_that_no_header_carries_is_not_shown(server: Server, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    if "\x00" not in key:  # no environment holds one
        monkeypatch.setenv("OPENAI_API_KEY", key)
    else:
        monkeypatch.setattr("os.environ", {"OPENAI_API_KEY": key})
    with pytest.raises(EncoderError, match="OPENAI_API_KEY") as caught:
        load(Settings(encoder=server.url))
    assert "sk-" not in "".join(traceback.format_exception(caught.value))
    assert server.asked == []


def test_long_texts_go_in_requests_of_their_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "CHARACTERS_PER_REQUEST", 10)
    encoder = load(Settings(encoder=server.url))
    texts = ["x" * 4, "x" * 6, "x", "x" * 50, "x" * 10, "x"]
    server.asked.clear()
    assert np.abs(encoder.encode(texts, "query") - unit(texts)).max() < 1e-6
    assert sorted(map(len, server.asked)) == [1, 1, 1, 1, 2]


def test_of_two_models_the_one_that_is_named_is_used(server: Server) -> None:
    server.models = ["a", "b"]
    assert load(Settings(encoder=f"{server.url}?model=tiny-model")).info.dim == 3
    with pytest.raises(EncoderError, match="HTTP 404"):
        load(Settings(encoder=f"{server.url}?model=other"))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://h:1", ("http://h:1/v1", None)),
        ("http://h:1/v1/", ("http://h:1/v1", None)),
        ("https://h/v1/embeddings?model=a/b", ("https://h/v1", "a/b")),
        ("https://h/openai/v2?model=m", ("https://h/openai/v2", "m")),
    ],
)
def test_addresses(address: str, expected: tuple[str, str | None]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        *("http://", "http://[::1", "http://h:abc/v1", "http://h:70000/v1", "http://h:0/v1", "http://h/v 1",
            "http://hö/v1"),
    ],
)  # fmt: skip
def test_bad_addresses(address: str) -> None:
    with pytest.raises(EncoderError):
        parse_address(address)
