"""Use OpenAI-compatible /v1/embeddings endpoints as encoders, through an HTTP client."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np

from secid.encode.encoder import (
    MODEL_FIELDS,
    EncodedBatch,
    Float32Rows,
    Role,
    VectorRows,
    as_rows,
    cut_dimension,
    finish_rows,
    in_text_order,
    unused_flags,
)
from secid.encode.locate import family_of
from secid.errors import EncoderError
from secid.parallel import in_order
from secid.progress import Progress
from secid.records import Fact
from secid.results import EncoderInfo
from secid.settings import Settings, flag_of

# JSON over HTTP, with timeouts, and with retries with backoff. The key is never shown.

TIMEOUT_SECONDS = 120.0
"""Maximum wait for a response. A large batch on a busy CPU server takes tens of seconds."""

MAX_REQUEST_TRIES = 6
"""Number of attempts per request. The waits of 0.5, 1, 2, 4 and 8 s between them outlast a restart or a rate limit. A
dead server is reported after 16 s."""

FIRST_WAIT_SECONDS = 0.5
MAX_RETRY_AFTER_SECONDS = 60.0
"""Maximum seconds to wait if the server sends Retry-After."""

SERVER_REMEDY = "name an embedding model with ?model=NAME, on a server with OpenAI's /v1/embeddings"
SERVER_CHECK = "check that the server is running and not overloaded"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts that are never reached through a proxy."""


class Http:
    """HTTP client that sends the key in the Authorization header, and retries if a retry can help.

    notify     : function that receives a note at the first retry.
    Redirects are errors, because following one could send the key to another host.
    """

    def __init__(
        self,
        key: str | None,
        notify: Callable[[str], None],
        key_remedy: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tries: int = MAX_REQUEST_TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key = key
        self._notify = notify
        self._key_remedy = key_remedy
        self._notified = self._answered = False
        self._tries = tries
        self._sleep = sleep
        try:
            self._client = httpx2.Client(
                headers={"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})},
                timeout=timeout_seconds,
                follow_redirects=False,
                mounts={f"all://{host}": None for host in LOOPBACK},
            )
        except (ValueError, ImportError) as error:
            raise EncoderError(
                f"the proxy from the environment cannot be used: {error}",
                remedy="correct or unset HTTPS_PROXY and ALL_PROXY",
            ) from None

    def ask(self, url: str, document: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer to a GET, or to a POST of `document`.

        Raises EncoderError at once if the request is rejected or the first connection fails. Raises it after `tries` if
        the server is busy (429), broken (5xx), unreachable or silent, or if its response is not JSON.
        """
        problem, wait = "", 0.0
        for attempt in range(self._tries):
            if attempt:
                if not self._notified:
                    self._notified = True
                    self._notify(f"{url}: {problem}; retrying up to {self._tries - 1} times; {SERVER_CHECK}")
                self._sleep(wait)
            wait = FIRST_WAIT_SECONDS * 2**attempt * random.uniform(1, 1.25)  # noqa: S311
            try:
                body = None if document is None else json.dumps(document)
                answer = self._client.request("GET" if body is None else "POST", url, content=body)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                problem = self._scrub(str(error) or type(error).__name__)
                if not self._answered and isinstance(error, (httpx2.ConnectError, httpx2.InvalidURL)):
                    raise EncoderError(
                        f"cannot be reached: {problem}",
                        where=url,
                        remedy="check the address, and that a server is running there",
                    ) from None
                continue
            self._answered = True
            if answer.is_success:
                try:
                    return json.loads(answer.content)
                except (ValueError, RecursionError) as error:  # also for invalid UTF-8 and deep nesting
                    problem = f"the response is not JSON ({error})"
                continue
            # Hide the key before cutting, so that no part of it remains.
            problem = f"HTTP {answer.status_code} {self._scrub(' '.join(answer.text.split()))[:200]}".rstrip()
            if answer.status_code != 429 and answer.status_code < 500:
                raise self._rejected(url, answer.status_code, problem)
            wait = max(wait, _retry_after(answer))
        raise EncoderError(
            f"no usable response after {self._tries} attempts; the last: {problem}",
            where=url,
            remedy=f"{SERVER_CHECK}; a new run continues from the cache",
        )

    def _rejected(self, url: str, code: int, problem: str) -> EncoderError:
        remedy = "correct what the server names, such as the model or its maximum text length"
        if code in (401, 403):
            remedy = self._key_remedy
        elif code == 404:
            remedy = "check the address and ?model="
        elif 300 <= code < 400:
            remedy = "use the final address: secid does not follow redirects, which could send the key to another host"
        return EncoderError(f"the endpoint rejected the request: {problem}", where=url, remedy=remedy)

    def _scrub(self, text: str) -> str:
        """Hide the key, which a server may repeat in its message."""
        return text.replace(self._key, "***") if self._key else text


def _retry_after(answer: httpx2.Response) -> float:
    """Return the seconds of a Retry-After header; 0 if there is none or it is a date."""
    try:
        return min(max(float(answer.headers.get("Retry-After", "0")), 0.0), MAX_RETRY_AFTER_SECONDS)
    except ValueError:
        return 0.0


# Any OpenAI-compatible /v1/embeddings endpoint can be an encoder: http://host:port/v1?model=NAME.
#
# The key comes from SECID_API_KEY or OPENAI_API_KEY, and appears in no message, note or result. It is sent to OpenAI
# and to addresses that the user named in the command or the environment, but not to an address from a settings file.

KEY_VARIABLES = ("SECID_API_KEY", "OPENAI_API_KEY")
KEY_REMEDY = f"set {' or '.join(KEY_VARIABLES)} to a valid key"
OPENAI_HOST = "api.openai.com"

FIXED_BY_SERVER = ("revision", "pooling", "query_prompt", "passage_prompt", "max_length", *MODEL_FIELDS)
"""Settings that have no effect, because the server decides them."""

TEXTS_PER_REQUEST = 64
CHARACTERS_PER_REQUEST = 200_000
"""Maximum characters per request; a longer text is sent alone. Hosted services accept 2,048 inputs, 300,000 tokens."""

REQUESTS_AT_ONCE = 4
"""Number of parallel requests: enough to hide the round trip, but too few to hit rate limits."""


class EndpointEncoder:
    """Encoder that sends texts with their prefix in batches, and checks, truncates and scales the returned rows."""

    failures: tuple[str, ...] = ()

    def __init__(self, http: Http, url: str, model: str, info: EncoderInfo, truncate_dim: int | None) -> None:
        self.info = info
        self._http = http
        self._url = url
        self._model = model
        self._truncate_dim = truncate_dim

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32 in the order of the texts; unit rows if `info.normalize`."""
        return in_text_order(self.batches(texts, role), len(texts), self.info.dim)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Yield batches in order, with a few requests in flight at once."""
        prefix = self.info.query_prefix if role == "query" else self.info.passage_prefix
        pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="secid-endpoint")

        def request(part: tuple[int, int]) -> Future[EncodedBatch]:
            return pool.submit(self._request, part[0], [prefix + text for text in texts[slice(*part)]])

        try:
            yield from in_order(request, _parts(texts), REQUESTS_AT_ONCE - 1)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _request(self, start: int, texts: list[str]) -> EncodedBatch:
        rows, n_tokens = request_rows(self._http, self._url, self._model, texts)
        width = rows.shape[1]
        if cut_dimension(width, self._truncate_dim) != self.info.dim:
            raise EncoderError(
                f"got vectors of {width} dimensions, expected {self.info.dim} as in the first response",
                where=self._url,
                remedy="serve a single model at this address",
            )
        rows = finish_rows(rows, self._truncate_dim, self.info.normalize)
        return EncodedBatch(np.arange(start, start + len(rows)), rows, np.zeros(len(rows), dtype=np.bool_), n_tokens)


def _parts(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the range of texts, (start, stop), of each request."""
    start = size = 0
    for place, text in enumerate(texts):
        if place - start == TEXTS_PER_REQUEST or (size + len(text) > CHARACTERS_PER_REQUEST and place > start):
            yield start, place
            start, size = place, 0
        size += len(text)
    if start < len(texts):
        yield start, len(texts)


def environment_key(names: Sequence[str]) -> str | None:
    """Return the key from the first of these environment variables that is set; None if all are unset.

    Spaces and line ends around the key, which come from files and copying, are removed.
    Raises EncoderError, without showing the key, if an HTTP header cannot carry it.
    """
    for name in names:
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            raise EncoderError(f"the key in {name} contains an invalid character", remedy="set it again")
        if key:
            return key
    return None


def load_endpoint(settings: Settings, progress: Progress) -> EndpointEncoder:
    """Return the encoder of the endpoint that `settings.encoder` names. One short request determines its dimension.

    progress : receives a note at the first retry.
    Raises EncoderError if the endpoint cannot be reached, rejects the request, or returns anything but vectors.
    """
    base, model = parse_address(settings.encoder or "")
    address = urllib.parse.urlsplit(base)
    is_openai = (address.scheme, address.netloc.lower()) == ("https", OPENAI_HOST)
    withheld = settings.encoder in settings.keyless and not is_openai
    key = None if withheld else environment_key(KEY_VARIABLES)
    http = Http(key, progress.note, _named_remedy(settings) if withheld else KEY_REMEDY)
    model = model or _only_model(http, base)
    url = f"{base}/embeddings"
    rows, _ = request_rows(http, url, model, ["dimension"])
    family = family_of(model)
    query_prefix = settings.query_prefix if settings.query_prefix is not None else family.query_prefix if family else ""
    passage_prefix = (
        settings.passage_prefix if settings.passage_prefix is not None else family.passage_prefix if family else ""
    )
    normalize = True if settings.normalize is None else settings.normalize
    by_family = f"registry: {family.key}" if family else "default"
    facts = [Fact("unknown_weights"), *unused_flags(settings, "unused_by_endpoint", FIXED_BY_SERVER)]
    if key and base.startswith("http://"):
        facts.append(Fact("plain_http"))
    identity = json.dumps([url, model, query_prefix, passage_prefix, normalize, settings.truncate_dim])
    info = EncoderInfo(
        name=f"{base}?model={model}",
        revision=None,
        weights_sha256=None,
        pooling="unknown",
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        max_length=None,
        normalize=normalize,
        dtype="unknown",
        device="endpoint",
        dim=cut_dimension(rows.shape[1], settings.truncate_dim),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        rules={
            "query_prefix": by_family if settings.query_prefix is None else "flag",
            "passage_prefix": by_family if settings.passage_prefix is None else "flag",
            "normalize": "default" if settings.normalize is None else "flag",
            "truncate_dim": "default" if settings.truncate_dim is None else "flag",
        },
        facts=tuple(facts),
    )
    return EndpointEncoder(http, url, model, info, settings.truncate_dim)


def _named_remedy(settings: Settings) -> str:
    """Return the remedy if a server asks for a key that was withheld because only a settings file has its address."""
    flag = flag_of("guide" if settings.encoder == settings.guide else "encoder", settings.encoder)
    return f"only a settings file names this address, so no key was sent; if you trust it, add {flag}"


def parse_address(address: str) -> tuple[str, str | None]:
    """Split an address into (base URL up to /v1, model or None). Raises EncoderError if invalid or with a password."""
    try:
        parts = urllib.parse.urlsplit(address)
        valid = bool(parts.hostname) and parts.port != 0 and f"{parts.netloc}{parts.path}".isascii()
    except ValueError:  # brackets or port
        parts, valid = urllib.parse.urlsplit(""), False
    if parts.scheme not in {"http", "https"} or not valid or any(map(str.isspace, address)):
        raise EncoderError("not a valid http address", where="--encoder", remedy="write http://host:port/v1?model=NAME")
    if parts.username is not None or parts.password is not None:
        raise EncoderError(
            "an address must not contain a user name or password",
            where="--encoder",
            remedy=f"put the key in {KEY_VARIABLES[0]}",
        )
    query = urllib.parse.parse_qs(parts.query)
    unknown = sorted(set(query) - {"model"})
    if unknown or parts.fragment:
        raise EncoderError(
            f"unknown parameters {unknown or parts.fragment}", where="--encoder", remedy="use ?model= only"
        )
    path = parts.path.rstrip("/").removesuffix("/embeddings") or "/v1"
    model = query.get("model", [None])[0]
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), model


def _only_model(http: Http, base: str) -> str:
    """Return the name of the only model that an endpoint serves. Raises EncoderError for any other number of models."""
    answer = http.ask(f"{base}/models")
    try:
        names = [str(model["id"]) for model in answer["data"]]
    except (KeyError, TypeError) as error:
        raise EncoderError(
            "the endpoint returned no list of models", where=f"{base}/models", remedy="add ?model=NAME"
        ) from error
    if len(names) != 1:
        raise EncoderError(
            f"the endpoint serves {len(names)} models: {', '.join(names[:5])}", where=base, remedy="add ?model=NAME"
        )
    return names[0]


def request_rows(http: Http, url: str, model: str, texts: list[str]) -> tuple[VectorRows, int]:
    """Return (n, d) rows in the order of the texts, and the number of tokens that the endpoint reports, or 0.

    Raises EncoderError if the response is not one vector per text.
    """
    answer = http.ask(url, {"model": model, "input": texts, "encoding_format": "float"})
    try:
        items: list[Any] = sorted(answer["data"], key=lambda item: int(item["index"]))
        places = [int(item["index"]) for item in items]
        vectors = [item["embedding"] for item in items]
        n_tokens = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        message = f"the response is not in OpenAI's format ({error!r})"
        raise EncoderError(message, where=url, remedy=SERVER_REMEDY) from error
    if places != list(range(len(texts))):
        if len(set(places)) < len(places):
            problem = f"got {len(places)} vectors for {len(texts)} texts, several of them for the same text"
        else:
            problem = f"got {len(places)} vectors for {len(texts)} texts"
        raise EncoderError(problem, where=url, remedy=SERVER_REMEDY)
    return as_rows(vectors, len(texts), None, url), n_tokens
