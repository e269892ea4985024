"""An embedding server on loopback that can misbehave, and that keeps what it was asked and the keys it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(text.encode()) % 97), 1.0]


def right(texts: list[str]) -> tuple[int, Any]:
    """A proper answer, out of order as servers may send it."""
    data = [{"index": place, "embedding": vector(text)} for place, text in enumerate(texts)]
    return 200, {"data": data[::-1], "usage": {"prompt_tokens": 2 * len(texts)}}


class Server(ThreadingHTTPServer):
    """Answers with `script` first, one entry a request, then properly. Records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Callable[[list[str]], tuple[int, Any]]] = []
        self.asked: list[list[str]] = []
        self.keys: list[str | None] = []
        self.models = ["tiny-model"]
        self.hold = threading.Event()
        self.lock = threading.Lock()
        self.headers_of_errors: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *_: Any) -> None:  # a client that went away is what the timeout test is about
        return


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body["input"])
            self.server.keys.append(self.headers["Authorization"])
            answer = self.server.script.pop(0) if self.server.script else right
        if self.path != "/v1/embeddings" or body["model"] not in ("tiny-model", "intfloat/e5-base"):
            self._send(404, {"error": "no such model"})
            return
        self._send(*answer(body["input"]))

    def _send(self, code: int, document: Any) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(code)
        for name, value in self.server.headers_of_errors.items() if code != 200 else ():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running() -> Iterator[Server]:
    """A server until the end of the block."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
