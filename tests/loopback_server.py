"""Base of the tests' HTTP servers, which answer on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar


class LoopbackServer(ThreadingHTTPServer):
    """Serve HTTP on loopback, and record the keys of requests.

    path          : end of the address.
    error_headers : headers of error answers.   hold : event that an answer may wait for; set at the end.
    """

    daemon_threads = True
    path = "/v1"

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.keys: list[str | None] = []
        self.error_headers: dict[str, str] = {}
        self.hold = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.path}"

    def handle_error(self, *_: Any) -> None:  # the timeout test has a client that disconnects
        return


class LoopbackHandler(BaseHTTPRequestHandler):
    server: LoopbackServer

    def log_message(self, *_: Any) -> None:
        return

    def body(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return document

    def send(self, code: int, document: Any, *, cut: bool = False) -> None:
        """Send a document as JSON, or bytes unchanged. cut : leave out the second half."""
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(code)
        for name, value in self.server.error_headers.items() if code != 200 else ():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)


AnyServer = TypeVar("AnyServer", bound=LoopbackServer)


@contextmanager
def serving(server: AnyServer) -> Iterator[AnyServer]:
    """Run the server until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
