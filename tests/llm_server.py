"""Run a small OpenAI-compatible chat server on loopback that misbehaves on request, and programs that query it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback_server import LoopbackHandler, LoopbackServer, serving

PROMPT = "Query: {query}\nPositive: {positive}\nNumber: {n}"
"""Prompt from which the server can read the query back."""
POSITIVE = "Bread rises because yeast turns the sugar of the flour into carbon dioxide, which the gluten holds."
TOPICS = ("rye starter", "oven steam", "gluten network", "malt flour", "cold proofing", "baking stone", "salt ratio")


def texts(query: str, n: int) -> list[str]:
    """Return n different passages for a query."""
    topics = [f"{TOPICS[place % len(TOPICS)]} number {place}" for place in range(n)]
    return [f"Bakers who read about {query} also ask how {topic} behaves in a home kitchen." for topic in topics]


def completion(content: str | None, **changed: Any) -> dict[str, Any]:
    """Return a chat completion. changed : finish_reason, refusal, usage, model."""
    message = {"role": "assistant", "content": content, "refusal": changed.get("refusal")}
    choice = {"index": 0, "message": message, "finish_reason": changed.get("finish_reason", "stop")}
    usage = changed.get("usage", {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
    document = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return {name: value for name, value in document.items() if value is not None}


def right(query: str, n: int) -> tuple[int, Any]:
    """Return a correct answer."""
    return 200, completion(json.dumps({"negatives": texts(query, n)}))


Reply = Callable[[str, int], tuple[int, Any]]
"""Function from query and number of negatives to status and document. Bytes are sent unchanged."""


class Server(LoopbackServer):
    """Answer the first requests from `script`, one entry each, and later ones with `usual`. Record the requests.

    refuses : words in a request's body that get a 400 naming them.
    cut     : number of answers that lack their last bytes.
    delay   : seconds from a request to its answer, by its query.
    """

    def __init__(self) -> None:
        super().__init__(Handler)
        self.script: list[Reply] = []
        self.usual: Reply = right
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.refuses: tuple[str, ...] = ()
        self.cut = 0
        self.delay: Callable[[str], float] = lambda query: 0.0
        self.at_once = self.most_at_once = 0
        self.times: list[float] = []


class Handler(LoopbackHandler, BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.body()
        prompt = body["messages"][0]["content"]
        query, n = prompt.split("\n")[0].removeprefix("Query: "), int(prompt.rpartition("Number: ")[2])
        with self.server.lock:
            self.server.times.append(time.monotonic())
            self.server.keys.append(self.headers["Authorization"])
            self.server.bodies.append(body)
            unknown = next((word for word in self.server.refuses if word in json.dumps(body)), None)
            if unknown is None:
                self.server.asked.append(query)
                reply = self.server.script.pop(0) if self.server.script else self.server.usual
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        time.sleep(self.server.delay(query))
        with self.server.lock:
            self.server.at_once -= 1
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": {"message": f"no such path: {self.path}"}})
        elif unknown is not None:
            self._send(400, {"error": {"message": f"{'see the manual, ' * 30} {unknown} is not supported"}})
        else:
            self._send(*reply(query, n))

    def _send(self, code: int, document: Any) -> None:
        with self.server.lock:
            cut = code == 200 and self.server.cut > 0
            self.server.cut -= cut
        self.send(code, document, cut=cut)


def running() -> AbstractContextManager[Server]:
    """Run a server until the end of the block."""
    return serving(Server())


ASK = """
import sys
from pathlib import Path
from secid.tools.mining.answers import PromptPair
from secid.tools.mining.llm import Endpoint, llm_negatives
from secid.tools.mining.methods import Llm, MiningPlan
from secid.progress import Silent
from tests.llm_server import POSITIVE, PROMPT

class Loud(Silent):
    def note(self, text):
        print(text, file=sys.stderr)

url, journal, n = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
positives = (POSITIVE,)
pairs = [PromptPair(f"{place:032x}", f"question {place}", positives) for place in range(n)]
plan = MiningPlan((), 3, 0, prompt=PROMPT, concurrency=3)
endpoint = Endpoint(Llm(url=url, model="m"), plan.seed, Loud())
llm_negatives(
    lambda: iter(pairs), endpoint, plan, journal, Loud(),
    lambda pair, result: print(pair.query, *result.texts, sep="|", flush=True),
)
"""
"""Program with three arguments: URL, journal, number of pairs."""
