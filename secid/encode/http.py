"""JSON over HTTP with patience: timeouts, retries with backoff, and a key that is never shown."""

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
"""Waits of 0.5, 1, 2, 4 and 8 s between them: a restart or a rate limit passes, a dead server is told in 16 s."""

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
"""Bound on what a server may ask for with Retry-After."""

CHECK = "check that the server runs and has room"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts that no proxy of the environment is asked for."""


class Http:
    """Asks with the key in the Authorization header, and tries again where that can help.

    tell : told once, the first time that something has to be asked for again.
    Redirects are errors: following one could hand the key to another host.
    """

    def __init__(
        self,
        key: str | None,
        tell: Callable[[str], None],
        timeout_seconds: float = TIMEOUT_SECONDS,
        tries: int = TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key = key
        self._tell = tell
        self._told = False
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
                f"the proxy of the environment cannot be used: {error}",
                remedy="correct or unset HTTPS_PROXY, ALL_PROXY",
            ) from None

    def __repr__(self) -> str:
        return f"Http(key={'set' if self._key else 'none'})"

    def ask(self, url: str, document: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a GET, or to a POST of `document`.

        Raises EncoderError: at once where the request is refused, after `tries` where the server is
        busy (429), broken (5xx), unreachable, silent, or answers with something other than JSON.
        """
        trouble, wait = "", 0.0
        for attempt in range(self._tries):
            if attempt:
                self._tell_once(f"{url}: {trouble}; it is asked again, {self._tries - 1} times at most: {CHECK}")
                self._sleep(wait)
            wait = FIRST_WAIT_SECONDS * 2**attempt * random.uniform(1, 1.25)  # noqa: S311
            try:
                body = None if document is None else json.dumps(document)
                answer = self._client.request("GET" if body is None else "POST", url, content=body)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                trouble = self._scrub(str(error) or type(error).__name__)
                continue
            if answer.is_success:
                try:
                    return json.loads(answer.content)
                except (ValueError, RecursionError) as error:  # also not UTF-8, or nested without end
                    trouble = f"the answer is not JSON ({error})"
                continue
            # Cut after hiding the key, so that no part of it stays.
            trouble = f"HTTP {answer.status_code} {self._scrub(' '.join(answer.text.split()))[:200]}".rstrip()
            if answer.status_code != 429 and answer.status_code < 500:
                raise _refused(url, answer.status_code, trouble)
            wait = max(wait, _retry_after(answer))
        raise EncoderError(
            f"no usable answer after {self._tries} tries, the last: {trouble}",
            where=url,
            remedy=f"{CHECK}; the run resumes from the cache",
        )

    def _tell_once(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._tell(text)

    def _scrub(self, text: str) -> str:
        """A server may repeat the key in its message."""
        return text.replace(self._key, "***") if self._key else text


def _refused(url: str, code: int, trouble: str) -> EncoderError:
    remedy = None
    if code in (401, 403):
        remedy = "put a valid key into SECID_API_KEY or OPENAI_API_KEY"
    elif code == 404:
        remedy = "check the address and ?model="
    elif 300 <= code < 400:
        remedy = "redirects are not followed, so that the key goes nowhere else: give the final address"
    return EncoderError(f"the endpoint refuses: {trouble}", where=url, remedy=remedy)


def _retry_after(answer: httpx2.Response) -> float:
    """Seconds of a Retry-After header, 0 where there is none or it is a date."""
    try:
        return min(max(float(answer.headers.get("Retry-After", "0")), 0.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 0.0
