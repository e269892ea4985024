"""JSON over HTTP, with timeouts, retries with backoff, and a key that is never shown."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from secid.errors import EncoderError

TIMEOUT_SECONDS = 120.0
"""Longest wait for an answer: a large batch on a busy CPU server takes tens of seconds."""

TRIES = 6
"""Waits of 0.5, 1, 2, 4 and 8 s between them outlast a restart or a rate limit; a dead server is reported in 16 s."""

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
"""Bound on what a server may ask for with Retry-After."""

CHECK = "check that the server is running and not overloaded"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts that are never reached through a proxy."""


class Http:
    """Sends requests with the key in the Authorization header, and retries where that can help.

    notify : called with a note at the first retry, once.   key_remedy : what to do about a rejected or missing key.
    Redirects are errors: following one could hand the key to another host.
    """

    def __init__(
        self,
        key: str | None,
        notify: Callable[[str], None],
        key_remedy: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tries: int = TRIES,
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

    def __repr__(self) -> str:
        return f"Http(key={'set' if self._key else 'none'})"

    def ask(self, url: str, document: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a GET, or to a POST of `document`.

        Raises EncoderError: at once if the request is rejected, or the first connection refused; after `tries` if the
        server is busy (429), broken (5xx), unreachable or silent, or if its response is not JSON.
        """
        problem, wait = "", 0.0
        for attempt in range(self._tries):
            if attempt:
                self._notify_once(f"{url}: {problem}; retrying up to {self._tries - 1} times; {CHECK}")
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
                        remedy="check the address and that a server runs there",
                    ) from None
                continue
            self._answered = True
            if answer.is_success:
                try:
                    return json.loads(answer.content)
                except (ValueError, RecursionError) as error:  # or not UTF-8, or nested too deeply
                    problem = f"the response is not JSON ({error})"
                continue
            # Cut after the key is hidden, so that no part of it remains.
            problem = f"HTTP {answer.status_code} {self._scrub(' '.join(answer.text.split()))[:200]}".rstrip()
            if answer.status_code != 429 and answer.status_code < 500:
                raise self._rejected(url, answer.status_code, problem)
            wait = max(wait, _retry_after(answer))
        raise EncoderError(
            f"no usable response after {self._tries} attempts; the last: {problem}",
            where=url,
            remedy=f"{CHECK}; a new run continues from the cache",
        )

    def _rejected(self, url: str, code: int, problem: str) -> EncoderError:
        remedy = None
        if code in (401, 403):
            remedy = self._key_remedy
        elif code == 404:
            remedy = "check the address and ?model="
        elif 300 <= code < 400:
            remedy = "redirects are not followed, so that the key is not sent to another host: use the final address"
        return EncoderError(f"the endpoint rejected the request: {problem}", where=url, remedy=remedy)

    def _notify_once(self, text: str) -> None:
        if not self._notified:
            self._notified = True
            self._notify(text)

    def _scrub(self, text: str) -> str:
        """Hides the key, which a server may repeat in its message."""
        return text.replace(self._key, "***") if self._key else text


def _retry_after(answer: httpx2.Response) -> float:
    """Seconds of a Retry-After header; 0 if there is none or it is a date."""
    try:
        return min(max(float(answer.headers.get("Retry-After", "0")), 0.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 0.0
