"""Run an embedding server on loopback that can misbehave, and that records requests and keys."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback_server import LoopbackHandler, LoopbackServer, serving


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(text.encode()) % 97), 1.0]


def right(texts: list[str]) -> tuple[int, Any]:
    """Return a correct answer, with its vectors out of order, as servers may send them."""
    data = [{"index": place, "embedding": vector(text)} for place, text in enumerate(texts)]
    return 200, {"data": data[::-1], "usage": {"prompt_tokens": 2 * len(texts)}}


class Server(LoopbackServer):
    """Answer the first requests from `script`, one entry each, and all later ones correctly. Record the requests."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.script: list[Callable[[list[str]], tuple[int, Any]]] = []
        self.asked: list[list[str]] = []
        self.models = ["tiny-model"]


class Handler(LoopbackHandler, BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        body = self.body()
        with self.server.lock:
            self.server.asked.append(body["input"])
            self.server.keys.append(self.headers["Authorization"])
            answer = self.server.script.pop(0) if self.server.script else right
        if self.path != "/v1/embeddings" or body["model"] not in ("tiny-model", "intfloat/e5-base"):
            self.send(404, {"error": "no such model"})
            return
        self.send(*answer(body["input"]))


def running() -> AbstractContextManager[Server]:
    """Run a server until the end of the block."""
    return serving(Server())
