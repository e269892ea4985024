"""Negatives that a language model writes, from any OpenAI-compatible /v1/chat/completions endpoint.

Every answer goes to a journal before anything is made of it, so that a run that was killed continues without paying
twice, and what is made of an answer does not depend on when it came. The key comes from OPENAI_API_KEY and appears in
no message, note or file.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from secid.encode.endpoint import environment_key, parse_address
from secid.encode.http import CHECK, LOOPBACK, TRIES
from secid.errors import EncoderError, EndpointError, OutputError, UsageError, plainly
from secid.files import make_folder
from secid.mining.answers import Answer, Pair, Written, printable, written
from secid.progress import Progress

PROMPT = """\
You write hard negatives: passages that a search engine learns from, because they look like an answer and are none.

Query:
{query}

A passage that answers it:
{positive}

Write {n} passages that a search engine could take for an answer to the query although they do not answer it.
- Each is about the topic of the query and shares words or names with it.
- None gives the answer, in whole, in part or in other words, and none rewrites the passage above.
- Each is plausible, of the kind and about the length of the passage above, and in its language.
- No two are about the same aspect of the topic.
- Each is the text of a passage alone: no number or title before it, and no word about the query, the passage above or
  this task.

Answer with a JSON object and nothing else: {"negatives": [a list of {n} strings]}
"""
PLACES = re.compile(r"\{(query|positive|n)\}")

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
DEFAULT_URL = "https://api.openai.com/v1"
NO_KEY = "none"
"""Sent where no key is set: local servers ask for none, and the client wants one."""
TIMEOUT_SECONDS, CONNECT_SECONDS = 600.0, 10.0
"""Longest wait for an answer, and for a connection: ten passages take a server without a GPU minutes."""
RETRIES = TRIES - 1
"""With the client's waits, which are those of `Http`, or what Retry-After asks for, up to two minutes."""
RETRY_HEADER = "x-stainless-retry-count"
READS = 3
"""Times that an answer is asked for which is not in OpenAI's format, such as the page of a proxy."""
REFUSED = frozenset({400, 413, 422})
"""Status codes of a server that does not take a request as it is, and may take another one."""
BUSY = frozenset({408, 409, 429})
"""Those that the client asks again after, as after 5xx."""
REFUSED_AT_ONCE = 5
"""Queries refused, with no answer yet, after which the run stops: it is not the queries that are wrong."""
AHEAD = 4
"""Requests that may wait for each one in flight, so that a slow answer holds up no other."""
NOTES = 10
"""Notes on tokens in the course of a run, where it has as many answers."""
PRICED_TOKENS = 1_000_000

SCHEMA = {
    "type": "object",
    "properties": {"negatives": {"type": "array", "items": {"type": "string"}}},
    "required": ["negatives"],
    "additionalProperties": False,
}
FORMATS: tuple[dict[str, Any], ...] = (
    {"type": "json_schema", "json_schema": {"name": "negatives", "strict": True, "schema": SCHEMA}},
    {"type": "json_object"},
)
"""The next one is asked for where a server refuses one; then none."""
OF_FORMAT = re.compile(r"response[ _.]?format|json[ _](?:schema|object)|structured output", re.IGNORECASE)
OF_SEED = re.compile(r"\bseed\b", re.IGNORECASE)

CONTINUES = "run the same command again to continue: answers already paid for are kept"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What an answer depends on besides its pair; the journal keeps it with every answer. prompt: a hash of it."""

    prompt: str
    model: str
    n: int
    seed: int
    temperature: float | None


def llm_negatives(
    pairs: Iterable[Pair], *, url: str | None, model: str, prompt: str, n: int, seed: int, concurrency: int,
    temperature: float | None, journal: Path, progress: Progress, price: tuple[float, float] | None = None,
) -> Iterator[tuple[Pair, Written]]:  # fmt: skip
    """Asks a language model for n negatives of each pair, `concurrency` at once. In the order of the pairs.

    pairs   : where they have a length, time left is shown.
    url     : base URL; None for OPENAI_BASE_URL, else OpenAI's.
    prompt  : with {query}, and {positive} and {n} where they are wanted.
    n       : at least 1.   concurrency : at least 1.   temperature : None for the server's.
    journal : file of all answers so far; those to the same request are used and not asked for again.
    price   : of a million tokens in and out, in any currency.
    Raises UsageError without openai or for a prompt without {query}, EndpointError for an unusable address or key:
    at once. While it runs, EndpointError if the server cannot be reached, rejects the key or the first queries, or
    stays busy (429) or broken (5xx), and OutputError if the journal cannot be written; what was paid stays there.
    """
    check_prompt(prompt)
    endpoint = Endpoint(url, model, seed, temperature, progress)
    recipe = Recipe(_hash(prompt), model, n, seed, temperature)
    return _negatives(pairs, prompt, recipe, endpoint, journal, concurrency, progress, price)


def check_prompt(prompt: str, where: str = "--prompt") -> None:
    """Raises UsageError for a prompt that does not show the query."""
    if "{query}" not in prompt:
        raise UsageError("the prompt does not contain {query}", where=where, remedy="it stands for the query's text")


def rendered(prompt: str, pair: Pair, n: int) -> str:
    """The prompt of a pair: {query}, {positive} and {n} filled in, once, and every other brace left alone."""
    values = {"query": pair.query, "positive": pair.positives[0], "n": str(n)}
    return PLACES.sub(lambda match: values[match[1]], prompt)


def cost(n_in: int, n_out: int, price: tuple[float, float]) -> float:
    """Of so many tokens in and out. price: of a million of each."""
    return (n_in * price[0] + n_out * price[1]) / PRICED_TOKENS


def _negatives(
    pairs: Iterable[Pair], prompt: str, recipe: Recipe, endpoint: Endpoint, path: Path, concurrency: int,
    progress: Progress, price: tuple[float, float] | None,
) -> Iterator[tuple[Pair, Written]]:  # fmt: skip
    """See `llm_negatives`."""
    journal = Journal(path, recipe, progress)

    def request(pair: Pair) -> str:
        return _hash(json.dumps([rendered(prompt, pair, recipe.n), dataclasses.asdict(recipe)]))

    def ask(pair: Pair, name: str) -> str:
        """Asks, and writes the answer to the journal: "", or why the server refuses."""
        reply = endpoint.ask(rendered(prompt, pair, recipe.n))
        if isinstance(reply, str):
            return reply
        journal.add(name, pair.key, reply)
        return ""

    left = sum(request(pair) not in journal for pair in pairs) if isinstance(pairs, Collection) else None
    progress.start(f"negatives by {recipe.model}", left, "answers")
    bill = Bill(price, left, progress)
    source = iter(pairs)
    waiting: deque[tuple[Pair, str, Future[str] | None]] = deque()
    asked: dict[str, Future[str]] = {}
    n_answers, refusals = 0, 0
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="secid-llm")
    try:
        while True:
            for pair in source:
                name = request(pair)
                if name not in journal and name not in asked:
                    asked[name] = pool.submit(ask, pair, name)
                waiting.append((pair, name, asked.get(name)))
                if len(waiting) > AHEAD * concurrency:
                    break
            if not waiting:
                break
            pair, name, future = waiting.popleft()
            refusal = future.result() if future else ""
            new = asked.pop(name, None) is not None
            progress.advance(int(new))
            if refusal:
                refusals += 1
                if not n_answers and (refusals == REFUSED_AT_ONCE or not waiting):
                    raise endpoint.error(
                        f"the endpoint rejected every request; the last: {refusal}", "correct what it names"
                    )
                yield pair, Written((), (("rejected", refusal),), 0, 0)
            else:
                n_answers += 1
                answer = journal.answer(name)
                bill.add(answer, new)
                yield pair, written(answer, pair, recipe.n)
    finally:
        if any(future.running() for future in asked.values()):
            progress.note("waiting for requests that were sent already")
        pool.shutdown(wait=True, cancel_futures=True)
        endpoint.close()
        journal.close()
        bill.close()


class Endpoint:
    """Asks a server for answers, with retries, and learns what of a request it does not support."""

    def __init__(self, url: str | None, model: str, seed: int, temperature: float | None, progress: Progress) -> None:
        try:
            import openai
        except ImportError as error:
            raise UsageError("openai is not installed", remedy="pip install 'secid[llm]'") from error
        self._openai: Any = openai
        self.url, self._key = _address(url), _key()
        self._model, self._progress = model, progress
        self._lock = threading.Lock()
        self._retried = False
        self._optional: Mapping[str, Any] = {"response_format": FORMATS[0], "seed": seed}
        self._fixed = {} if temperature is None else {"temperature": temperature}
        try:
            # Redirects could hand the key to another host; loopback is reached through no proxy.
            direct = {f"all://{host}": None for host in LOOPBACK}
            http = openai.DefaultHttpxClient(
                follow_redirects=False, mounts=direct, event_hooks={"request": [self._note_retry]}
            )
        except (ValueError, ImportError) as error:
            remedy = "correct or unset HTTPS_PROXY and ALL_PROXY"
            raise self.error(f"the proxy from the environment cannot be used: {error}", remedy) from None
        self._client = openai.OpenAI(
            api_key=self._key or NO_KEY, base_url=self.url, max_retries=RETRIES, http_client=http,
            timeout=openai.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
        )  # fmt: skip
        if self._key and self.url.startswith("http://"):
            progress.note("the key is sent over plain http")

    def error(self, message: str, remedy: str) -> EndpointError:
        """An error of this server."""
        return EndpointError(message, where=self.url, remedy=remedy)

    def ask(self, text: str) -> Answer | str:
        """The answer to a message, or why the server does not take it. Raises EndpointError."""
        create: Any = self._client.chat.completions.with_raw_response.create
        message = {"role": "user", "content": text}
        n_read, problem = 0, ""
        while n_read < READS:
            optional = self._optional
            try:
                raw = create(model=self._model, messages=[message], **self._fixed, **optional)
            except self._openai.APIStatusError as error:
                problem = self._shown(error.response.text)
                if self._with_less(optional, error.response.text):
                    continue
                if error.status_code in REFUSED:
                    return f"HTTP {error.status_code} {problem}".rstrip()
                if error.status_code in BUSY or error.status_code >= 500:
                    raise self._failed(error, f"HTTP {error.status_code} {problem}".rstrip()) from None
                raise self._rejected(error.status_code, problem) from None
            except self._openai.APIConnectionError as error:
                problem = self._shown(str(error.__cause__ or error) or type(error).__name__)
                raise self._failed(error, problem) from None
            try:
                return Answer.of(json.loads(raw.http_response.content))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                n_read, problem = n_read + 1, self._shown(repr(error))
        raise self.error(f"the response is not in OpenAI's format ({problem})", f"check the address; {CONTINUES}")

    def _rejected(self, code: int, problem: str) -> EndpointError:
        remedy = f"check the address and the model, {self._model}"
        if code in (401, 403):
            remedy = f"set {KEY_VARIABLE} to a valid key"
        elif 300 <= code < 400:
            remedy = "redirects are not followed, so that the key is not sent to another host: use the final address"
        return self.error(f"the endpoint rejected the request: HTTP {code} {problem}".rstrip(), remedy)

    def _failed(self, error: Any, problem: str) -> EndpointError:
        """The client has tried again, as often as its header says, or was asked to wait too long."""
        n = int(error.request.headers.get(RETRY_HEADER, 0)) + 1
        what = f"no usable response after {n} attempt{'s' * (n > 1)}; the last: {problem}"
        return self.error(what, f"{CHECK}; {CONTINUES}")

    def close(self) -> None:
        """Nothing is asked afterwards."""
        self._client.close()

    def _with_less(self, optional: Mapping[str, Any], text: str) -> bool:
        """Whether to ask again with less: from now on without what the server's message names."""
        with self._lock:
            if self._optional is not optional:  # another thread was told so already
                return True
            less = dict(optional)
            asked = less.get("response_format")
            if asked and OF_FORMAT.search(text):
                del less["response_format"]
                after = FORMATS[FORMATS.index(asked) + 1 :]
                less |= {"response_format": after[0]} if after else {}
                self._progress.note(f"{self.url}: {asked['type']} is not supported; using {_named(after)}")
            elif "seed" in less and OF_SEED.search(text):
                del less["seed"]
                self._progress.note(f"{self.url}: seed is not supported; the same request may get other answers")
            else:
                return False
            self._optional = less
        return True

    def _note_retry(self, request: Any) -> None:
        """Notes the first request that the client sends again, when it does."""
        if request.headers.get(RETRY_HEADER, "0") != "0" and not self._retried:
            self._retried = True
            self._progress.note(f"{self.url}: no usable answer to some requests, which are sent again; {CHECK}")

    def _shown(self, text: str) -> str:
        """One line of what a server says, without the key, which it may repeat. Cut after that: no part remains."""
        line = printable(" ".join(text.split()))
        return (line.replace(self._key, "***") if self._key else line)[:200]


def _named(formats: tuple[dict[str, Any], ...]) -> str:
    return formats[0]["type"] if formats else "the prompt alone"


def _address(url: str | None) -> str:
    """The base URL. Raises EndpointError."""
    variable = os.environ.get(URL_VARIABLE, "").strip()
    where = "url" if url else URL_VARIABLE
    try:
        base, model = parse_address(url or variable or DEFAULT_URL)
    except EncoderError as error:
        remedy = f"http://host:port/v1, and the key in {KEY_VARIABLE}"
        raise EndpointError(error.message, where=where, remedy=remedy) from None
    if model is not None:
        raise EndpointError("the address contains a model", where=where, remedy=f"name it with model={model}")
    return base


def _key() -> str | None:
    try:
        return environment_key([KEY_VARIABLE])
    except EncoderError as error:
        raise EndpointError(error.message, remedy=error.remedy) from None


class Journal:
    """Answers on disk, a line of JSON each, forced to disk one by one; of each request the first counts.

    Answers of another recipe are left there and not used, which a note says.
    """

    def __init__(self, path: Path, recipe: Recipe, progress: Progress) -> None:
        self._path, self._recipe = path, dataclasses.asdict(recipe)
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, int]] = {}
        make_folder(path)
        try:
            self._file = path.open("ab", buffering=0)  # with a buffer, closing after a full disk would fail again
            self._reader = path.open("rb")
            others = self._read()
        except OSError as error:
            raise self._error(error) from error
        for name, n in others.items():
            progress.note(f"{path}: answers not used, since their {name} differ: {n:,}")

    def __contains__(self, request: str) -> bool:
        return request in self._places

    def _read(self) -> dict[str, int]:
        """Finds the answers, and counts those that are not used by what differs."""
        others: dict[str, int] = {}
        line, place = b"\n", 0
        for line in self._reader:
            try:
                entry = json.loads(line)
                differ = [name for name, value in self._recipe.items() if entry["recipe"][name] != value]
                request = str(entry["request"])
                Answer(**entry["answer"])
            except (ValueError, LookupError, TypeError, RecursionError):  # cut where a run was killed
                differ, request = [], ""
            if differ:
                others[", ".join(differ)] = others.get(", ".join(differ), 0) + 1
            elif request:
                self._places.setdefault(request, (place, len(line)))
            place += len(line)
        if not line.endswith(b"\n"):
            self._file.write(b"\n")
        return others

    def add(self, request: str, key: str, answer: Answer) -> None:
        """Writes an answer. Raises OutputError."""
        entry = {"key": key, "request": request, "recipe": self._recipe, "answer": dataclasses.asdict(answer)}
        line = json.dumps(entry).encode() + b"\n"
        with self._lock:
            try:
                place = self._file.seek(0, os.SEEK_END)
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except OSError as error:
                raise self._error(error) from error
            self._places.setdefault(request, (place, len(line)))

    def answer(self, request: str) -> Answer:
        """The answer to a request that the journal holds. Raises OutputError."""
        with self._lock:
            place, length = self._places[request]
            try:
                self._reader.seek(place)
                return Answer(**json.loads(self._reader.read(length))["answer"])
            except OSError as error:
                raise self._error(error) from error

    def close(self) -> None:
        """Nothing is written or read afterwards."""
        self._file.close()
        self._reader.close()

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot be written: {plainly(error)}", where=str(self._path), remedy=CONTINUES)


class Bill:
    """Counts the tokens of a run and notes them: in its course where `total` answers are new, and at its end."""

    def __init__(self, price: tuple[float, float] | None, total: int | None, progress: Progress) -> None:
        self._price, self._progress = price, progress
        self._every = max(1, total // NOTES) if total is not None and total >= NOTES else 0
        self._n = self._n_unmetered = self._n_earlier = 0
        self._in = self._out = 0

    def add(self, answer: Answer, new: bool) -> None:
        """An answer. new: of this run."""
        if not new:
            self._n_earlier += 1
            return
        self._n += 1
        self._in, self._out = self._in + (answer.tokens_in or 0), self._out + (answer.tokens_out or 0)
        self._n_unmetered += answer.tokens_in is None or answer.tokens_out is None
        if self._every and self._n % self._every == 0:
            self._progress.note(self._sum())

    def _sum(self) -> str:
        text = f"answers: {self._n:,}; tokens: {self._in:,} in, {self._out:,} out"
        return text if self._price is None else f"{text}; cost: {cost(self._in, self._out, self._price):,.4f}"

    def close(self) -> None:
        """Notes the sum."""
        if self._n and not (self._every and self._n % self._every == 0):
            self._progress.note(self._sum())
        if self._n_unmetered:
            self._progress.note(f"answers without a token count: {self._n_unmetered:,}")
        if self._n_earlier:
            self._progress.note(f"answers of the journal, not paid for again: {self._n_earlier:,}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
