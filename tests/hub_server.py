"""Run a small hub on loopback: data sets in memory, behind the part of the API that huggingface_hub uses."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from tests.loopback_server import LoopbackHandler, LoopbackServer, serving

PATH = re.compile(
    r"/(?:api/)?datasets/(?P<name>[^/]+/[^/]+)(?:/(?P<what>revision|tree|resolve)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?"
)
CONVERTED = "refs/convert/parquet"


def commit_of(name: str, revision: str) -> str:
    """Return the commit of a revision of a data set."""
    return hashlib.sha1(f"{name} {revision}".encode()).hexdigest()


class Hub(LoopbackServer):
    """data : {(OWNER/NAME, revision): {path: bytes}}.   private : data sets that need `token`.

    status : error status for every request.   cut : number of answers to GET that lack their second half.
    """

    path = ""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.data: dict[tuple[str, str], dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.gated: set[str] = set()
        self.token = "hf_right"
        self.status = 0
        self.cut = 0
        self.asked: list[str] = []

    def add(self, name: str, files: dict[str, bytes | str], revision: str = "main") -> str:
        """Add a data set; return its commit."""
        content = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
        commit = commit_of(name, revision)
        self.data[name, revision] = self.data[name, commit] = {".gitattributes": b"", **content}
        return commit


class Handler(LoopbackHandler, BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server
        with hub.lock:
            hub.asked.append(f"{self.command} {self.path}")
        match = PATH.fullmatch(unquote(self.path.split("?")[0]).replace(CONVERTED, "refs%2Fconvert%2Fparquet"))
        if hub.status:
            return self._send(hub.status, {})
        if match is None:
            return self._send(404, {})
        name, revision = match["name"], unquote(match["revision"] or "main")
        allowed = self.headers["Authorization"] == f"Bearer {hub.token}"
        if name in hub.gated and not allowed and match["what"] == "resolve":
            return self._send(403, {}, {"X-Error-Code": "GatedRepo"})
        if name not in {known for known, _ in hub.data} or (name in hub.private and not allowed):
            return self._send(401 if not allowed else 404, {}, {"X-Error-Code": "RepoNotFound"})
        files = hub.data.get((name, revision))
        if files is None:
            return self._send(404, {}, {"X-Error-Code": "RevisionNotFound"})
        commit = revision if re.fullmatch("[0-9a-f]{40}", revision) else commit_of(name, revision)
        if match["what"] in (None, "revision"):
            siblings = [{"rfilename": path} for path in files]
            return self._send(200, {"id": name, "sha": commit, "siblings": siblings})
        if match["what"] == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            return self._send(200, entries)
        data = files.get(match["path"] or "")
        if data is None:
            return self._send(404, {}, {"X-Error-Code": "EntryNotFound"})
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        return self._send(200, data, {"ETag": etag, "X-Repo-Commit": commit})

    def _send(self, code: int, document: Any, headers: dict[str, str] | None = None) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        with self.server.lock:
            cut = isinstance(document, bytes) and self.command == "GET" and self.server.cut > 0
            self.server.cut -= cut
        if cut:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[: len(content) // 2] if cut else content)


def running() -> AbstractContextManager[Hub]:
    """Run a hub until the end of the block."""
    return serving(Hub())
