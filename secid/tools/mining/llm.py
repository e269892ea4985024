"""Ask a language model for negatives, at any OpenAI-compatible /v1/chat/completions endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from secid.arrays import Index
from secid.encode.endpoint import LOOPBACK, MAX_REQUEST_TRIES, OPENAI_HOST, SERVER_CHECK, environment_key, parse_address
from secid.errors import EncoderError, EndpointError, UsageError, install_command
from secid.pages.text import plural
from secid.pool.texts import TextSpool
from secid.progress import Progress
from secid.results.mine import Usage
from secid.tools.mining.answers import (
    MAX_BYTES,
    NOT_CHAT,
    TOO_LONG,
    Journal,
    PromptPair,
    ServerAnswer,
    WrittenNegatives,
    printable,
    written,
)
from secid.tools.mining.methods import Llm, MiningPlan
from secid.tools.mining.questions import Questions

# Results do not depend on the order in which answers arrive. The key comes from OPENAI_API_KEY and never appears in a
# message, note or file.

PROMPT = """\
You write hard negatives to train a search engine: passages that look relevant to a query at first and do not answer it.

Query:
{query}

A passage that answers it:
{positive}

Write {n} hard negatives for this query.
- Each shares the topic of the query, and words or names with it, so that it looks relevant at first.
- Each then omits what the query asks for, or contradicts a condition of the query.
- None gives the answer, in whole, in part or in other words, and none rewrites the passage above.
- Each is plausible, of the kind and about the length of the passage above, and in its language.
- They are varied: no two are about the same aspect of the topic, or miss the answer in the same way.
- Each is the text of a passage alone: no number or title before it, and no word about the query, the passage above or
  this task.

Answer with a JSON object and nothing else: {"negatives": [a list of {n} strings]}
"""
PROMPT_FIELDS = re.compile(r"\{(query|positive|n)\}")

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
DEFAULT_URL = f"https://{OPENAI_HOST}/v1"
NO_KEY = "none"
"""Key to send if none is set. Local servers ignore it, but the client requires one."""
MIN_KEY_CHARACTERS = 16
"""Minimum length of a key that is removed from answers. Shorter keys are placeholders for local servers, such as EMPTY,
and may be words of the texts."""
RESPONSE_SECONDS, CONNECT_SECONDS = 600.0, 10.0
"""Maximum wait for an answer, and for a connection. A server without a GPU takes minutes for ten passages."""
MAX_RETRIES = MAX_REQUEST_TRIES - 1
"""Number of retries. The client waits between them like `Http`, or as long as Retry-After says, up to two minutes."""
RETRY_HEADER = "x-stainless-retry-count"
MAX_UNREADABLE_RESPONSES = 3
"""Send a request up to this many times if the responses are not in OpenAI's format, such as the page of a proxy."""
REFUSAL_STATUS_CODES = frozenset({400, 413, 422})
"""Status codes that refuse one request; the server may accept others."""
RETRIED_STATUS_CODES = frozenset({408, 409, 429})
"""Status codes after which the client tries again, as after 5xx."""
MAX_FIRST_REFUSALS = 5
"""Stop if this many requests are refused before any is answered, because then the queries are not the problem."""
PRICED_TOKENS = 1_000_000

SCHEMA = {
    "type": "object",
    "properties": {"negatives": {"type": "array", "items": {"type": "string"}}},
    "required": ["negatives"],
    "additionalProperties": False,
}
RESPONSE_FORMATS: tuple[dict[str, Any], ...] = (
    {"type": "json_schema", "json_schema": {"name": "negatives", "strict": True, "schema": SCHEMA}},
    {"type": "json_object"},
)
"""Response formats to request, in order of preference. If the server refuses all of them, none is requested."""
NO_THINKING_FIELD = {"chat_template_kwargs": {"enable_thinking": False}}
"""Request field that turns thinking off in vLLM and SGLang.
Source: https://qwen.readthedocs.io/en/stable/deployment/vllm.html."""
FORMAT_COMPLAINT = re.compile(r"response[ _.]?format|json[ _](?:schema|object)|structured output", re.IGNORECASE)
SEED_COMPLAINT = re.compile(r"\bseed\b", re.IGNORECASE)


def llm_negatives(
    pairs: Callable[[], Iterator[PromptPair]], endpoint: Endpoint, plan: MiningPlan, journal: Path, progress: Progress,
    take: Callable[[PromptPair, WrittenNegatives], None],
) -> Usage:  # fmt: skip
    """Ask a language model for k negatives of each pair, with `plan.concurrency` requests at once. Return the usage.

    pairs   : function that returns the same pairs at each call.
    take    : function that is called with each pair and its negatives, in order.
    journal : path of the file of answers. A request with an answer in it is not sent again. The file is created if it
              is missing, and removed at the end if it is empty. Paid answers stay in it after an error.
    Raises EndpointError if the server cannot be reached, rejects the key or the first queries, or keeps answering 429
    or 5xx. Raises OutputError if the journal cannot be written.
    """
    method, prompt, n = endpoint.method, plan.prompt or PROMPT, plan.k
    recipe = {
        "prompt": _hash(prompt), "model": method.model, "n": n, "seed": plan.seed, "temperature": method.temperature,
        "thinking": method.thinking,
    }  # fmt: skip

    def requests() -> Iterator[tuple[PromptPair, str, str]]:
        """Yield each pair with its message and the name of the request, a hash of everything that it depends on."""
        for pair in pairs():
            text = rendered(prompt, pair, n)
            yield pair, text, _hash(json.dumps([text, recipe]))

    tokens: dict[str, tuple[int, int] | None] = {}
    with closing(Journal(journal, recipe, progress)) as answers:
        refusals = _answer_all(requests, answers, endpoint, plan.concurrency, progress)
        for pair, _, name in requests():
            if name in refusals:
                take(pair, WrittenNegatives((), (("rejected", refusals[name]),)))
                continue
            answer = answers.answer(name)
            tokens[name] = answer.tokens
            take(pair, written(answer, pair, n))
    return _usage(tokens.values(), method.price)


def _answer_all(
    requests: Callable[[], Iterator[tuple[PromptPair, str, str]]], journal: Journal, endpoint: Endpoint,
    concurrency: int, progress: Progress,
) -> dict[str, str]:  # fmt: skip
    """Send each distinct request without an answer in the journal. Return the reasons of refused ones, by name."""
    names = {name for _, _, name in requests()}
    new = {name for name in names if name not in journal}
    progress.start(f"negatives by {endpoint.method.model}", len(new), "answers")
    if len(new) < len(names):
        progress.note(f"reusing {plural(len(names) - len(new), 'paid answer')} from an earlier run")
    refusals: dict[str, str] = {}

    def ask(pair: PromptPair, text: str, name: str) -> None:
        """Send a request. Add the answer to the journal, or the server's reason to the refusals."""
        reply = endpoint.ask(text)
        if isinstance(reply, str):
            refusals[name] = reply
        elif reply.finish_reason == NOT_CHAT and not endpoint.answered:
            refusals[name] = reply.content  # the address may be wrong, so the next run asks again
        else:
            journal.add(name, pair.key, reply)

    def wait_for(running: set[Future[None]], most: int) -> set[Future[None]]:
        """Wait until at most `most` requests are running. Return those. Raises the error of a request that failed."""
        while len(running) > most:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            progress.advance(len(done))
        return running

    pool, running = ThreadPoolExecutor(concurrency, thread_name_prefix="secid-llm"), set[Future[None]]()
    try:
        for pair, text, name in requests():
            if name in new:
                new.remove(name)
                running = wait_for(running, concurrency - 1)
                if len(refusals) >= MAX_FIRST_REFUSALS and not journal:
                    running = wait_for(running, 0)  # running requests may still get answers
                    if not journal:
                        break
                running.add(pool.submit(ask, pair, text, name))
        running = wait_for(running, 0)
        if refusals and not journal:
            message = f"the endpoint rejected every request; its last response: {list(refusals.values())[-1]}"
            raise endpoint.error(message, "check the address, and fix the problem that the response names")
    finally:
        if any(future.running() for future in running):
            progress.note("waiting for the answers to requests that were already sent")
        pool.shutdown(wait=True, cancel_futures=True)
    return refusals


def rendered(prompt: str, pair: PromptPair, n: int) -> str:
    """Fill {query}, {positive} and {n} into the prompt. Other braces, and braces in the texts, are unchanged."""
    values = {"query": pair.query, "positive": pair.positives[0], "n": str(n)}
    return PROMPT_FIELDS.sub(lambda match: values[match[1]], prompt)


class Endpoint:
    """Connection to a server. It retries requests, and omits optional fields that the server does not support.

    Raises UsageError if openai is not installed, and EndpointError for an invalid address or key.
    """

    def __init__(self, method: Llm, seed: int, progress: Progress) -> None:
        try:
            import openai
        except ImportError as error:
            raise UsageError("openai is not installed", remedy=install_command("llm")) from error
        self._openai: Any = openai
        self.url, self._key = _address_and_key(method.url)
        self.method, self._progress = method, progress
        self._lock = threading.Lock()
        self._retried = self.answered = False
        self._optional: Mapping[str, Any] = {"response_format": RESPONSE_FORMATS[0], "seed": seed}
        self._fixed: dict[str, Any] = {} if method.temperature is None else {"temperature": method.temperature}
        if not method.thinking:
            self._fixed["extra_body"] = NO_THINKING_FIELD
        try:
            # A redirect could send the key to another host. Loopback addresses need no proxy.
            direct = {f"all://{host}": None for host in LOOPBACK}
            http = openai.DefaultHttpxClient(
                follow_redirects=False, mounts=direct, event_hooks={"request": [self._note_retry]}
            )
        except (ValueError, ImportError) as error:
            remedy = "correct or unset HTTPS_PROXY and ALL_PROXY"
            raise self.error(f"the proxy from the environment cannot be used: {error}", remedy) from None
        self._client = openai.OpenAI(
            api_key=self._key or NO_KEY, base_url=self.url, max_retries=MAX_RETRIES, http_client=http,
            timeout=openai.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS),
        )  # fmt: skip
        if self._key and self.url.startswith("http://"):
            progress.note("the key is sent unencrypted; use an https address if the server has one")

    def error(self, message: str, remedy: str) -> EndpointError:
        return EndpointError(message, where=self.url, remedy=remedy)

    def ask(self, text: str) -> ServerAnswer | str:
        """Return the answer to a message, or the reason why the server refuses it. Raises EndpointError.

        If three responses are not chat completions, or a response is too long, the answer's `finish_reason` says so.
        """
        create: Any = self._client.chat.completions.with_raw_response.create
        message = {"role": "user", "content": text}
        n_read, problem = 0, ""
        while n_read < MAX_UNREADABLE_RESPONSES:
            optional = self._optional
            try:
                raw = create(model=self.method.model, messages=[message], **self._fixed, **optional)
            except self._openai.APIStatusError as error:
                problem = self._shown(error.response.text)
                if self._drop_refused_field(optional, error.response.text):
                    continue
                if error.status_code in REFUSAL_STATUS_CODES:
                    return f"HTTP {error.status_code} {problem}".rstrip()
                if error.status_code in RETRIED_STATUS_CODES or error.status_code >= 500:
                    raise self._failed(error, f"HTTP {error.status_code} {problem}".rstrip()) from None
                raise self._rejected(error.status_code, problem) from None
            except self._openai.APIConnectionError as error:
                problem = self._shown(str(error.__cause__ or error) or type(error).__name__)
                raise self._failed(error, problem) from None
            try:
                content = raw.http_response.content
                if self._key and len(self._key) >= MIN_KEY_CHARACTERS:  # a server may repeat the key
                    content = content.replace(self._key.encode(), b"***")
                if len(content) > MAX_BYTES:
                    return ServerAnswer("", "", TOO_LONG, None, None)
                answer = ServerAnswer.of(json.loads(content))
                self.answered = True
                return answer
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                n_read, problem = n_read + 1, self._shown(content.decode("utf-8", "replace"))
        return ServerAnswer(f"not a response in OpenAI's format: {problem}", "", NOT_CHAT, None, None)

    def _rejected(self, code: int, problem: str) -> EndpointError:
        remedy = f"check the address and the model, {self.method.model}"
        if code in (401, 403):
            remedy = f"set {KEY_VARIABLE} to a valid key"
        elif 300 <= code < 400:
            remedy = "use the final address: secid does not follow redirects, which could send the key to another host"
        return self.error(f"the endpoint rejected the request: HTTP {code} {problem}".rstrip(), remedy)

    def _failed(self, error: Any, problem: str) -> EndpointError:
        """Return the error after the last attempt. The client makes fewer if the server asks it to wait too long."""
        if _is_refused(error):
            kept = "answers so far are kept" if self.answered else "no answer was kept"
            return self.error(f"nothing listens there; {kept}", "start the server, or correct url=")
        n = int(error.request.headers.get(RETRY_HEADER, 0)) + 1
        what = f"no usable response after {n} attempt{'s' * (n > 1)}; the last problem: {problem}"
        return self.error(what, SERVER_CHECK)

    def close(self) -> None:
        self._client.close()

    def _drop_refused_field(self, optional: Mapping[str, Any], text: str) -> bool:
        """Stop sending the optional field that the server's message names. Return True to repeat the request."""
        with self._lock:
            if self._optional is not optional:  # another thread has already dropped one
                return True
            less = dict(optional)
            requested = less.get("response_format")
            if requested and FORMAT_COMPLAINT.search(text):
                del less["response_format"]
                after = RESPONSE_FORMATS[RESPONSE_FORMATS.index(requested) + 1 :]
                less |= {"response_format": after[0]} if after else {}
                instead = after[0]["type"] if after else "only the prompt"
                self._progress.note(f"{self.url} does not support {requested['type']}; using {instead}")
            elif "seed" in less and SEED_COMPLAINT.search(text):
                del less["seed"]
                self._progress.note(f"{self.url} does not support a seed; a repeated request may get another answer")
            else:
                return False
            self._optional = less
        return True

    def _note_retry(self, request: Any) -> None:
        """Add a note the first time that the client repeats a request."""
        if request.headers.get(RETRY_HEADER, "0") != "0" and not self._retried:
            self._retried = True
            self._progress.note(f"{self.url}: repeating requests without a usable answer; {SERVER_CHECK}")

    def _shown(self, text: str) -> str:
        """Return a server's text as one line of up to 200 characters. The key is removed before the text is cut."""
        line = printable(" ".join(text.split()))
        return (line.replace(self._key, "***") if self._key else line)[:200]


def _is_refused(error: BaseException) -> bool:
    """Return True if the connection was refused, because no server listens at the address."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConnectionRefusedError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _address_and_key(url: str | None) -> tuple[str, str | None]:
    """Return the base URL and the key, None if no key is set. Raises EndpointError."""
    where = "url" if url else URL_VARIABLE
    try:
        key = environment_key([KEY_VARIABLE])
    except EncoderError as error:
        raise EndpointError(error.message, remedy=error.remedy) from None
    try:
        base, model = parse_address(url or os.environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL)
    except EncoderError as error:
        remedy = f"use the form http://host:port/v1, and put the key in {KEY_VARIABLE}"
        raise EndpointError(error.message, where=where, remedy=remedy) from None
    if model is not None:
        raise EndpointError("the address names a model", where=where, remedy=f"name it with model={model} instead")
    if key is None and urlsplit(base).hostname == OPENAI_HOST:
        remedy = f"set {KEY_VARIABLE}, or name another server: url=http://host:port/v1"
        raise EndpointError("no key is set", where=base, remedy=remedy)
    return base, key


def _usage(tokens: Collection[tuple[int, int] | None], price: tuple[float, float] | None) -> Usage:
    """Return the usage of all answers.

    tokens : token counts of prompt and answer; None if unknown.   price : price of a million tokens of each.
    """
    n_in, n_out = (sum(pair[side] for pair in tokens if pair) for side in (0, 1))
    return Usage(
        n_answers=len(tokens),
        n_uncounted=sum(pair is None for pair in tokens),
        n_tokens_in=n_in,
        n_tokens_out=n_out,
        cost=None if price is None else (n_in * price[0] + n_out * price[1]) / PRICED_TOKENS,
    )


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# The texts that a language model writes are stored in the same spool format as candidates.


@dataclass(frozen=True)
class Answers:
    """The texts that a language model wrote.

    texts    : (R, m) numbers of each row's negatives in the spool; -1 after the last.
    """

    texts: Index
    rejected: Path
    reasons: dict[str, int]
    usage: Usage


def ask(
    questions: Questions, endpoint: Endpoint, plan: MiningPlan, journal: Path, spool: TextSpool, rejected: Path,
    progress: Progress,
) -> Answers:  # fmt: skip
    """Ask for k negatives of each row, and add them to the spool. rejected: new file for the rejected texts.

    Raises the errors of `llm_negatives`.
    """
    numbers, counts, reasons = array("q"), array("q"), Counter[str]()
    with rejected.open("w", encoding="utf-8") as file:

        def take(pair: PromptPair, written: WrittenNegatives) -> None:
            counts.append(len(written.texts))
            numbers.extend(spool.add(written.texts))
            for reason, text in written.rejected:
                reasons[reason] += 1
                line = {"query": pair.query, "reason": reason, "text": text}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

        usage = llm_negatives(lambda: _pairs(questions), endpoint, plan, journal, progress, take)
    n_texts = np.array(counts, np.int64)
    is_text = np.arange(n_texts.max(initial=0)) < n_texts[:, None]
    texts = np.full(is_text.shape, -1)
    texts[is_text] = numbers
    return Answers(texts, rejected, dict(sorted(reasons.items())), usage)


def _pairs(questions: Questions) -> Iterator[PromptPair]:
    """Yield each row as a pair with all labelled positives of its query. The row's own positives come first."""
    order = np.argsort(questions.labels[0], kind="stable")
    query_of, passage_of = (part[order] for part in questions.labels)
    for row, query in zip(questions.rows(), questions.query.tolist(), strict=True):
        start, stop = np.searchsorted(query_of, [query, query + 1])
        labelled = questions.passages.take(passage_of[start:stop])
        positives = dict.fromkeys([*(passage.text for passage in row.positives), *labelled])
        yield PromptPair(questions.queries.keys[query].tobytes().hex(), row.query, tuple(positives))
