"""Negatives of a language model, against a real server on loopback that misbehaves in every way that is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from secid.errors import EndpointError, OutputError, UsageError
from secid.results.mine import Usage
from secid.settings import Settings
from secid.tools.mining import answers, llm
from secid.tools.mining.answers import PromptPair, WrittenNegatives
from secid.tools.mining.llm import PROMPT, RESPONSE_FORMATS, Endpoint, llm_negatives, rendered
from secid.tools.mining.methods import Llm, MiningPlan, parse_miners
from tests import llm_server
from tests.kills import ROOT
from tests.llm_server import POSITIVE, Server, completion, right, texts
from tests.notes import Notes
from tests.snapshots import Snapshot, refusal, situations

SECRET = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with llm_server.running() as server:
        yield server


def usage(n: int, n_uncounted: int = 0, cost: float | None = None) -> Usage:
    """Return the usage of n answers, with the server's token counts."""
    n_in, n_out = 100 * (n - n_uncounted), 20 * (n - n_uncounted)
    return Usage(n_answers=n, n_uncounted=n_uncounted, n_tokens_in=n_in, n_tokens_out=n_out, cost=cost)


NOTHING = usage(0)


def pairs_of(n: int) -> list[PromptPair]:
    return [PromptPair(f"{place:032x}", f"question {place}", (POSITIVE,)) for place in range(n)]


OF_METHOD = ("url", "model", "temperature", "price", "thinking")


class Asker:
    """Runs against a server; the journal stays between runs."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.journal = server, folder / ".llm-gpt.jsonl"
        self.progress, self.usage = Notes(), NOTHING

    def __call__(self, pairs: list[PromptPair] | int = 1, **changed: Any) -> list[WrittenNegatives]:
        """changed : options of the method and fields of the plan."""
        pairs = pairs_of(pairs) if isinstance(pairs, int) else pairs
        self.progress, results = Notes(), list[tuple[PromptPair, WrittenNegatives]]()
        own = {name: changed.pop(name) for name in OF_METHOD if name in changed}
        journal = changed.pop("journal", self.journal)
        fields = {"seed": 0, "prompt": llm_server.PROMPT, "concurrency": 2, **changed}
        plan, method = (
            MiningPlan((), fields.pop("n", 3), **fields),
            Llm(**{"url": self.server.url, "model": "m", **own}),
        )
        with closing(Endpoint(method, plan.seed, self.progress)) as endpoint:
            self.usage = llm_negatives(
                lambda: iter(pairs), endpoint, plan, journal, self.progress, lambda *item: results.append(item)
            )
        assert [pair for pair, _ in results] == pairs
        return [written for _, written in results]

    def reasons(self, content: str, pair: PromptPair | None = None, **answer: Any) -> tuple[int, dict[str, int]]:
        """Return the number of negatives in an answer, and the reasons of rejected texts."""
        self.journal.unlink(missing_ok=True)
        self.server.script = [lambda query, n: (200, completion(content, **answer))]
        (written,) = self([pair] if pair else 1)
        return len(written.texts), dict(Counter(reason for reason, _ in written.rejected))


@pytest.fixture
def ask(server: Server, tmp_path: Path) -> Asker:
    return Asker(server, tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow few retries, because the tests have to wait for the client between them."""
    monkeypatch.setattr(llm, "MAX_RETRIES", 1)
    monkeypatch.setattr(llm, "RESPONSE_SECONDS", 1.5)


# what comes back


def test_negatives_come_in_the_order_of_the_pairs_with_their_tokens(ask: Asker) -> None:
    written = ask(5)
    assert [item.texts for item in written] == [tuple(texts(f"question {place}", 3)) for place in range(5)]
    assert {item.rejected for item in written} == {()}
    assert ask.usage == usage(5)
    assert ask.server.bodies[0]["response_format"] == RESPONSE_FORMATS[0]
    assert (ask.server.bodies[0]["seed"], ask.server.bodies[0]["model"]) == (0, "m")
    assert "temperature" not in ask.server.bodies[0]
    assert (ask.progress.total, ask.progress.done) == (5, 5)


def test_order_holds_where_answers_come_in_another(ask: Asker) -> None:
    ask.server.delay = lambda query: 0.3 if query == "question 0" else 0.02
    written = ask(12, concurrency=4)
    assert [item.texts[0] for item in written] == [texts(f"question {place}", 3)[0] for place in range(12)]
    assert ask.server.most_at_once == 4
    assert ask.server.asked.index("question 6") < 10
    lines = [json.loads(line) for line in ask.journal.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["key"] != pairs_of(1)[0].key  # the slow one came later


def test_no_pairs_ask_nothing(ask: Asker) -> None:
    assert ask([]) == []
    assert (ask.server.asked, ask.progress.notes) == ([], [])


def test_a_temperature_is_sent(ask: Asker) -> None:
    ask(3, temperature=0.5)
    assert {body["temperature"] for body in ask.server.bodies} == {0.5}


# every bad answer under a reason

GOOD = json.dumps(texts("q", 3))
ENGLISH = texts("q", 3)
GERMAN = "Die meisten Bäckereien in unserer Stadt öffnen am Sonntag erst gegen neun Uhr und schließen schon mittags."
LONGER = "To repeat it once more for all of us here: " + POSITIVE + " And that is all."
ANSWERS: dict[str, tuple[str, int, dict[str, int]]] = {
    "an object": (json.dumps({"negatives": ENGLISH}), 3, {}),
    "a list": (GOOD, 3, {}),
    "a code fence": (f"```json\n{GOOD}\n```", 3, {}),
    "prose around it": (f"Sure! Here they are [as asked]:\n\n{GOOD}\n\nLet me know {{if}} you need more.", 3, {}),
    "thoughts before it": (f"<think>Maybe [1, 2] or {{}} …</think>{GOOD}", 3, {}),
    "objects with a text each": (json.dumps({"n": 3, "list": [{"id": 1, "text": t} for t in ENGLISH]}), 3, {}),
    "objects with a reason each": (json.dumps({"negatives": [{"reason": "r", "text": t} for t in ENGLISH]}), 3, {}),
    "another list before it": (json.dumps({"aspects": ["yeast", "salt"], "negatives": ENGLISH}), 3, {}),
    "another list and no negatives": (json.dumps({"aspects": ["yeast"], "negatives": []}), 0, {"not_json": 1}),
    "line ends in a string": (GOOD.replace(" also ", "\nalso "), 3, {}),
    "numbered lines": ("\n".join(f"{n}. {text}" for n, text in enumerate(ENGLISH)), 3, {}),
    "nothing": ("", 0, {"not_json": 1}),
    "an empty list": ('{"negatives": []}', 0, {"not_json": 1}),
    "numbers": ("[1, 2, 3]", 0, {"not_json": 1}),
    "brackets without end": ("[" * 20_000, 0, {"not_json": 1}),
    "an excuse": ("I'm sorry, but I can't help with that request.", 0, {"refusal": 1}),
    "an excuse in German": ("Es tut mir leid, aber ich kann dir dabei nicht helfen.", 0, {"refusal": 1}),
    "fewer": (json.dumps(ENGLISH[:2]), 2, {"fewer": 1}),
    "more": (json.dumps(texts("q", 5)), 3, {"surplus": 2}),
    "more after a bad one": (json.dumps(["", *texts("q", 5)]), 3, {"empty": 1, "surplus": 2}),
    "more, and bad ones": (json.dumps([*texts("q", 3), "", POSITIVE, None, "\ud800"]), 3, {"surplus": 4}),
    "a text twice, far apart": (json.dumps(["a baker", "", "", "", "A baker!"]), 1, {"empty": 3, "repeat": 1}),
    "a null and a lone surrogate": ('["a baker bakes", null, "cut \\ud800 here"]', 1, {"not_text": 2}),
    "an emoji in two halves": ('["a \\ud83c\\udf5e baker", "a bakery", "some bakers"]', 3, {}),
    "an empty text": (json.dumps([*ENGLISH[:2], " … "]), 2, {"empty": 1}),
    "a refusal in the list": (json.dumps([*ENGLISH[:2], "I cannot assist with that."]), 2, {"refusal": 1}),
    "a preamble in the list": (json.dumps(["Here are three hard negatives:", *ENGLISH]), 3, {"preamble": 1}),
    "a label": (json.dumps([*ENGLISH[:2], f"Hard negative 3: {ENGLISH[2]}"]), 2, {"preamble": 1}),
    "the positive": (json.dumps([*ENGLISH[:2], POSITIVE.upper()]), 2, {"false_negative": 1}),
    "a near copy of it": (json.dumps([*ENGLISH[:2], LONGER]), 2, {"near_copy": 1}),
    "the query": (json.dumps([*ENGLISH[:2], "Question 0?"]), 2, {"query_echo": 1}),
    "a text twice": (json.dumps([*ENGLISH[:2], ENGLISH[0].upper()]), 2, {"repeat": 1}),
    "another language": (json.dumps([*ENGLISH[:2], GERMAN]), 2, {"other_language": 1}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_read_tolerantly_and_the_rest_is_kept_under_a_reason(ask: Asker, name: str) -> None:
    content, n, reasons = ANSWERS[name]
    assert ask.reasons(content) == (n, reasons)


def test_drafts_in_a_models_thoughts_are_not_taken(ask: Asker) -> None:
    for opening in ("<think>", ""):
        assert ask.reasons(f'{opening}hmm {{"negatives": ["draft"]}}</think>{GOOD}') == (3, {})
    assert ask.reasons(f'{{"negatives": ["draft"]}}</think>{{"negatives": ["draft"]}}</think>{GOOD}') == (3, {})
    assert ask.reasons('{"negatives": ["draft"]}</think>I cannot answer.') == (0, {"not_json": 1})


def test_the_last_list_counts_unless_one_is_named_negatives(ask: Asker) -> None:
    assert ask.reasons(f'first ["draft"], better {GOOD}') == (3, {})
    named = json.dumps({"negatives": ENGLISH})
    assert ask.reasons(f'first {{"negatives": ["draft"]}}, better {named}') == (3, {})
    assert ask.reasons(f'{named}\nThe terms ["yeast", "salt"] were avoided, see {{"notes": ["n"]}}.') == (3, {})
    assert ask.reasons(f'first {{"negatives": []}}, better {GOOD}') == (3, {})


def test_a_long_answer_is_not_read(ask: Asker) -> None:
    assert ask.reasons(json.dumps(["a" * llm.MAX_BYTES])) == (0, {"too_long": 1})


def test_the_search_for_a_list_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    decode = answers.JSON_DECODER.raw_decode
    monkeypatch.setattr(
        answers, "JSON_DECODER", SimpleNamespace(raw_decode=lambda *at: tries.append(at[1]) or decode(*at))
    )
    answer = answers.ServerAnswer('[ "a" ' * 30_000, "", "stop", None, None)
    assert answers.written(answer, pairs_of(1)[0], 3).texts == ()
    assert len(tries) == answers.MAX_SEARCHED_PLACES


def test_a_query_that_is_never_answered_in_the_format_stops_no_run(ask: Asker) -> None:
    def reply(query: str, n: int) -> tuple[int, Any]:
        return (200, {"choices": []}) if query == "question 1" else right(query, n)

    ask.server.usual = reply
    results = ask(3, concurrency=1)
    assert [len(item.texts) for item in results] == [3, 0, 3]
    assert results[1].rejected[0][0] == "not_chat"
    ask.server.asked.clear()
    assert ask(3) == results
    assert ask.server.asked == []


def test_no_more_texts_are_checked_than_it_takes(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    n_checked: list[int] = []
    languages = answers.language_numbers
    monkeypatch.setattr(answers, "language_numbers", lambda texts: n_checked.append(len(texts)) or languages(texts))
    assert ask.reasons(json.dumps(texts("q", 500))) == (3, {"surplus": 497})
    assert n_checked == [3, 1]  # texts, and the positive
    n_checked.clear()
    assert ask.reasons(json.dumps([*[""] * 10, *texts("q", 500)])) == (3, {"empty": 10, "surplus": 497})
    assert n_checked[::2] == [3, 3, 6, 12]  # twice as many at most


def test_what_the_server_says_of_an_answer_counts(ask: Asker) -> None:
    assert ask.reasons("", refusal="I won't.") == (0, {"refusal": 1})
    assert ask.reasons("[", finish_reason="content_filter") == (0, {"refusal": 1})
    assert ask.reasons(GOOD[:-40], finish_reason="length") == (0, {"truncated": 1})
    assert ask.reasons(GOOD, finish_reason="length") == (3, {})
    assert ask.reasons(GOOD[:-40]) == (0, {"not_json": 1})


def test_a_copy_of_any_positive_counts_and_its_language_is_any_positives(ask: Asker) -> None:
    other = "Rye dough stays flat since pentosans keep its gluten from forming a network that holds the gas."
    pair = PromptPair("0", "why does bread rise", (POSITIVE, other, GERMAN))
    assert ask.reasons(json.dumps([ENGLISH[0], other.lower(), GERMAN + " Manche haben auch am Montag zu."]), pair) == (
        1,
        {"false_negative": 1, "near_copy": 1},
    )
    german = (
        "Sauerteig braucht bei Zimmertemperatur etwa zwölf Stunden, bis er deutlich aufgegangen ist und sauer riecht."
    )
    assert ask.reasons(json.dumps([ENGLISH[0], ENGLISH[1], german]), pair) == (3, {})


def test_a_short_positive_is_found_and_has_no_language(ask: Asker) -> None:
    pair = PromptPair("0", "what is the capital of France", ("Paris.",))
    assert ask.reasons(json.dumps(["PARIS", "Lyon", ENGLISH[0]]), pair) == (2, {"false_negative": 1})


def test_bad_answers_are_kept_whole(ask: Asker) -> None:
    ask.server.script = [
        lambda query, n: (200, completion("No list \ud800.")),
        lambda query, n: (200, completion('["a baker"]')),
    ]
    first, second = ask(2, concurrency=1)
    assert first.rejected == (("not_json", "No list ?."),)
    assert second.rejected == (("fewer", '["a baker"]'),)
    assert ask.usage == usage(2)  # paid all the same


# servers without what OpenAI's has


@pytest.mark.parametrize(
    ("refuses", "formats"),
    [
        ((), ["json_schema"]),
        (("json_schema",), ["json_schema", "json_object"]),
        (("response_format",), ["json_schema", "json_object", None]),
        (("seed",), ["json_schema", "json_schema"]),
        (("response_format", "seed"), ["json_schema", "json_object", None, None]),
    ],
)
def test_what_a_server_does_not_support_is_left_out_from_then_on(
    ask: Asker, refuses: tuple[str, ...], formats: list[str | None]
) -> None:
    ask.server.refuses = refuses
    assert len(ask(4, concurrency=1)[0].texts) == 3
    sent = [body.get("response_format", {}).get("type") for body in ask.server.bodies]
    assert sent == formats + [formats[-1]] * 3
    assert ("seed" in ask.server.bodies[-1]) == ("seed" not in refuses)
    assert len([note for note in ask.progress.notes if ask.server.url in note]) == len(formats) - 1


def test_many_threads_leave_it_out_once(ask: Asker) -> None:
    ask.server.refuses = ("response_format",)
    ask.server.delay = lambda query: 0.05
    assert all(len(item.texts) == 3 for item in ask(8, concurrency=8))
    assert len([note for note in ask.progress.notes if ask.server.url in note]) == 2


def test_a_plain_local_server(ask: Asker) -> None:
    """No structured output, no seed, no usage, and an answer with talk around it."""
    ask.server.refuses = ("response_format", "seed")
    ask.server.usual = lambda query, n: (200, completion(f"Here:\n```\n{json.dumps(texts(query, n))}\n```", usage=None))
    written = ask(3)
    assert [len(item.texts) for item in written] == [3] * 3
    assert ask.usage == usage(3, n_uncounted=3)
    assert set(ask.server.keys) == {"Bearer none"}


# servers that fail


def test_retry_after_is_honoured(ask: Asker) -> None:
    ask.server.error_headers = {"Retry-After": "1"}
    ask.server.script = [lambda query, n: (429, {"error": "slow down"})]
    assert len(ask()[0].texts) == 3
    assert ask.server.times[1] - ask.server.times[0] >= 1.0
    assert len([note for note in ask.progress.notes if ask.server.url in note]) == 1


def test_busy_and_broken_servers_are_asked_again(ask: Asker) -> None:
    ask.server.script = [lambda query, n, code=code: (code, {"error": "later"}) for code in (429, 503)]
    assert len(ask()[0].texts) == 3
    first, second, third = ask.server.times
    assert second - first < third - second


def test_a_hanging_server_and_a_cut_answer_are_asked_again(ask: Asker, impatient: None) -> None:
    slow = iter([3.0])
    ask.server.delay = lambda query: next(slow, 0.0)
    assert len(ask()[0].texts) == 3
    assert len(ask.server.asked) == 2
    ask.server.cut = 1
    assert len(ask(2)[1].texts) == 3
    assert len(ask.server.asked) == 4


def test_a_page_instead_of_an_answer_is_asked_for_again_and_then_an_error(ask: Asker) -> None:
    wrong: list[Any] = [b"<html>", {"choices": []}, b"[" * 100_000, {"choices": [{"message": {"content": 1}}]}]
    for document in wrong:
        ask.server.script = [lambda query, n, document=document: (200, document)] * 2
        assert len(ask()[0].texts) == 3
        ask.journal.unlink()
    ask.server.script = [lambda query, n: (200, b"<html>")] * 3
    refusal(ask, EndpointError, ask.server.url)


def test_a_server_that_stays_broken_stops_the_run_and_keeps_what_is_paid(ask: Asker, impatient: None) -> None:
    ask(3)
    ask.server.usual = lambda query, n: (500, {"error": "boom"})
    message = refusal(lambda: ask(6), EndpointError, ask.server.url)
    assert all(part in message for part in (" 2 ", "HTTP 500", "boom"))
    ask.server.usual = right
    ask.server.asked.clear()
    assert [len(item.texts) for item in ask(6)] == [3] * 6
    assert sorted(ask.server.asked) == ["question 3", "question 4", "question 5"]
    assert ask.progress.total == 3


def test_answers_in_flight_are_kept_when_another_fails(ask: Asker) -> None:
    def delay(query: str) -> float:
        end = time.monotonic() + 20
        while query == "question 0" and len(ask.server.asked) < 2 and time.monotonic() < end:
            time.sleep(0.01)  # it fails once another is in flight
        return 0.0 if query == "question 0" else 0.4

    ask.server.delay = delay
    ask.server.script = [lambda query, n: (401, {}), right]
    ask.server.usual = lambda query, n: (401, {}) if query == "question 0" else right(query, n)
    refusal(lambda: ask(4), EndpointError, ask.server.url)
    assert len(ask.journal.read_text(encoding="utf-8").splitlines()) >= 1


@pytest.mark.parametrize("code", [401, 403, 404, 307])
def test_rejections_stop_the_run_at_once(ask: Asker, code: int) -> None:
    ask.server.error_headers = {"Location": "http://127.0.0.1:9/elsewhere"}
    ask.server.usual = lambda query, n: (code, {"error": "no"})
    message = refusal(lambda: ask(50), EndpointError, ask.server.url)
    assert f"HTTP {code} " in message
    assert len(ask.server.asked) < 20


def test_a_query_that_the_server_refuses_is_counted_and_asked_again_by_the_next_run(ask: Asker) -> None:
    ask.server.usual = lambda query, n: (400, {"error": "too long"}) if query == "question 1" else right(query, n)
    written = ask(3)
    assert [len(item.texts) for item in written] == [3, 0, 3]
    ((reason, text),) = written[1].rejected
    assert (reason, "too long" in text) == ("rejected", True)
    ask.server.asked.clear()
    ask(3)
    assert ask.server.asked == ["question 1"]


@pytest.mark.parametrize("n", [2, 40])
def test_a_server_that_refuses_every_query_stops_the_run(ask: Asker, n: int) -> None:
    ask.server.usual = lambda query, n: (400, {"error": "temperature must be 1"})
    message = refusal(lambda: ask(n), EndpointError, ask.server.url)
    assert "temperature must be 1" in message
    assert len(ask.server.asked) < 20


def test_refusals_that_come_before_slow_answers_do_not_stop_the_run(ask: Asker) -> None:
    ask.server.delay = lambda query: 0.5 if query == "question 0" else 0.0
    ask.server.usual = lambda query, n: right(query, n) if query == "question 0" else (400, {"error": "too long"})
    assert [len(item.texts) for item in ask(2 * llm.MAX_FIRST_REFUSALS)] == [3] + [0] * (2 * llm.MAX_FIRST_REFUSALS - 1)


def test_no_server(ask: Asker, impatient: None) -> None:
    message = refusal(lambda: ask(url="http://127.0.0.1:9/v1"), EndpointError, "http://127.0.0.1:9/v1")
    assert "nothing listens there; no answer was kept" in message


def test_a_long_retry_after_is_not_waited_for(ask: Asker) -> None:
    ask.server.error_headers = {"Retry-After": "3600"}
    ask.server.usual = lambda query, n: (429, {"error": "quota"})
    assert " 1 attempt;" in refusal(ask, EndpointError, ask.server.url)


# the journal


def test_a_second_run_asks_nothing_and_gives_the_same(ask: Asker) -> None:
    first = ask(4)
    ask.server.asked.clear()
    assert ask(4) == first
    assert ask.server.asked == []
    assert (ask.progress.total, ask.progress.done) == (0, 0)
    assert ask.progress.notes == ["reusing 4 paid answers from an earlier run"]
    assert ask.usage == usage(4)


@pytest.mark.parametrize(
    "changed",
    [{"prompt": llm_server.PROMPT.replace("Positive", "Answer")}, {"model": "m2"}, {"n": 2}, {"seed": 1},
     {"temperature": 0.0}, {"thinking": False}],
)  # fmt: skip
def test_another_recipe_asks_again_and_says_so(ask: Asker, changed: dict[str, Any]) -> None:
    first = ask(3)
    ask.server.asked.clear()
    ask(3, **changed)
    assert len(ask.server.asked) == 3
    (note,) = [note for note in ask.progress.notes if str(ask.journal) in note]
    assert note.endswith(f": 3 answers of another {next(iter(changed))} will not be used")
    ask.server.asked.clear()
    assert ask(3) == first  # both recipes are in the journal now
    assert ask.server.asked == []


def test_a_new_version_of_the_built_in_prompt_asks_again(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    for prompt in (llm_server.PROMPT, llm_server.PROMPT.replace("Positive", "Answer")):
        monkeypatch.setattr(llm, "PROMPT", prompt)
        ask(3, prompt=None)
    assert len(ask.server.asked) == 6


def test_a_model_is_asked_not_to_think(ask: Asker) -> None:
    for thinking in (True, False):
        ask(1, thinking=thinking)
        expected = None if thinking else {"enable_thinking": False}
        assert ask.server.bodies[-1].get("chat_template_kwargs") == expected
    for text, thinking in (("", True), (",thinking=on", True), (",thinking=off", False)):
        (miner,) = parse_miners(f"gpt=llm:model=m{text}", 1)
        assert miner.method == Llm(model="m", thinking=thinking)


def test_another_positive_asks_again_and_another_address_does_not(ask: Asker) -> None:
    ask([PromptPair("0", "question", ("one positive",))])
    ask([PromptPair("0", "question", ("another positive",))])
    assert len(ask.server.asked) == 2
    with llm_server.running() as other:
        ask([PromptPair("0", "question", ("one positive",))], url=other.url)
        assert other.asked == []


def test_equal_pairs_are_paid_once(ask: Asker) -> None:
    pair = pairs_of(1)[0]
    ask.server.delay = lambda query: 0.1
    first = ask([pair, pair, pair], concurrency=3)
    assert len(ask.server.asked) == 1
    assert (ask.progress.total, ask.progress.done, ask.usage) == (1, 1, usage(1))
    assert ask([pair]) == first[:1]


@pytest.mark.parametrize("damage", [b'{"key": "ab', b"\n\n", b"[" * 10_000 + b"\n", b"\xff\xfe\n", b'{"request": 1}\n'])
def test_damaged_lines_are_not_used_and_spoil_no_other(ask: Asker, damage: bytes) -> None:
    first = ask(2)
    with ask.journal.open("ab") as file:
        file.write(damage)
    assert len(ask(3)) == 3
    ask.server.asked.clear()
    assert ask(3)[:2] == first
    assert ask.server.asked == []


def test_a_cut_last_answer_is_asked_for_again(ask: Asker) -> None:
    ask(3)
    ask.journal.write_bytes(ask.journal.read_bytes()[:-30])
    ask.server.asked.clear()
    assert [len(item.texts) for item in ask(3)] == [3] * 3
    assert len(ask.server.asked) == 1


def test_a_journal_that_cannot_be_written(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refusal(lambda: ask(journal=tmp_path), OutputError, tmp_path)
    refusal(lambda: ask(journal=tmp_path / "file" / "j"), OutputError, tmp_path / "file" / "j")


def child(server: Server, journal: Path, n: int, first: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", first + llm_server.ASK, server.url, str(journal), str(n)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_run_continues_without_paying_twice(ask: Asker) -> None:
    n, server = 40, ask.server
    server.delay = lambda query: 0.05
    killed = child(server, ask.journal, n)
    while len(server.asked) < 12:
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    time.sleep(0.2)  # what was in flight is answered, and lost
    kept = [json.loads(line) for line in ask.journal.read_bytes().split(b"\n")[:-1] if line.endswith(b"}")]
    assert len(kept) >= 9
    paid, before = {entry["key"] for entry in kept}, len(server.asked)
    written = ask(n)
    assert [item.texts for item in written] == [tuple(texts(f"question {place}", 3)) for place in range(n)]
    again = {f"{int(query.removeprefix('question ')):032x}" for query in server.asked[before:]}
    assert len(again) == len(server.asked) - before == n - len(paid)
    assert not again & paid
    assert len(server.asked) <= n + 3  # at most the three in flight at the kill


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX")
def test_a_full_disk_stops_the_run_and_the_next_one_continues(ask: Asker) -> None:
    journal, server = ask.journal, ask.server
    model = "from secid.findings.languages import _model\n_model(None)\n"  # unpacks a file
    limit = f"{model}import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    run = child(server, journal, 20, limit)
    _, err = run.communicate()
    assert run.returncode != 0
    assert f"OutputError: {journal}" in err
    assert err.count("Traceback") == 2  # of the system's error, and of the one that it became
    assert journal.stat().st_size == 5000
    n_kept = journal.read_bytes().count(b"\n")
    server.asked.clear()
    assert [len(item.texts) for item in ask(20)] == [3] * 20
    assert len(server.asked) == 20 - n_kept


# the key


def test_the_key_is_sent_and_never_shown(ask: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET + "\n")
    ask(2)
    assert set(ask.server.keys) == {f"Bearer {SECRET}"}
    assert any("http" in note for note in ask.progress.notes)
    shown = [*ask.progress.notes]
    monkeypatch.setattr(llm, "MAX_RETRIES", 0)
    for code in (401, 400, 500, 429):
        ask.server.usual = lambda query, n, code=code: (code, {"error": "x" * 150 + f" invalid key {SECRET}"})
        with pytest.raises(EndpointError) as caught:
            ask(9, model=f"m{code}")
        shown += ["".join(traceback.format_exception(caught.value)), *ask.progress.notes]
    ask.server.usual = lambda query, n: (200, {"choices": SECRET})
    with pytest.raises(EndpointError) as caught:
        ask(9, model="no completion")
    shown += ["".join(traceback.format_exception(caught.value))]
    shown += [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("***" in text for text in shown)
    assert not any(SECRET[:8] in text for text in shown)


def test_not_even_the_clients_own_log_shows_it(
    ask: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client logs as with OPENAI_LOG=debug."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    for name in ("openai", "httpx"):
        caplog.set_level("DEBUG", name)
    ask(2)
    assert "openai" in {record.name.split(".")[0] for record in caplog.records}
    assert set(ask.server.keys) == {f"Bearer {SECRET}"}
    assert SECRET[:12] not in caplog.text + ask.journal.read_text(encoding="utf-8")


def test_secids_own_key_is_not_sent_to_it(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECID_API_KEY", SECRET)
    ask()
    assert ask.server.keys == ["Bearer none"]


# addresses, prompts, costs


def test_the_address_comes_from_the_option_then_the_environment(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", ask.server.url)
    assert len(ask(url=None)[0].texts) == 3
    monkeypatch.setenv("OPENAI_BASE_URL", "ftp://h")
    ask.journal.unlink()
    assert len(ask()[0].texts) == 3
    refusal(lambda: ask(url=None), EndpointError, "OPENAI_BASE_URL")


def test_loopback_is_reached_through_no_proxy(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert len(ask()[0].texts) == 3


def test_a_prompt_is_filled_in_once_and_keeps_its_other_braces() -> None:
    pair = PromptPair("0", "what is {positive}?", ("a {n} and {query}", "other"))
    assert rendered('{query}|{positive}|{n}|{"negatives": []}', pair, 7) == (
        'what is {positive}?|a {n} and {query}|7|{"negatives": []}'
    )
    for own in (PROMPT, None):
        MiningPlan(parse_miners("gpt=llm:model=m", 1), 1, 0, prompt=own).check(Settings(), False)


def test_the_prompt_fills_every_place() -> None:
    text = rendered(PROMPT, PromptPair("0", "a query", ("a positive",)), 10)
    assert all(part in text for part in ("\na query\n", "\na positive\n", "Write 10 ", "10 strings"))
    assert "JSON" in text  # what OpenAI's json_object asks of a prompt


def test_a_cost_is_known_where_a_price_is_given(ask: Asker) -> None:
    ask(4, price=(1000.0, 5000.0))
    assert ask.usage == usage(4, cost=4 * (100 * 1000 + 20 * 5000) / 1e6)
    ask([], price=(0.0, 0.0))
    assert ask.usage.cost == 0.0


ABSURD: list[Any] = [
    None, "100", [], 7, {}, {"prompt_tokens": 100}, {"completion_tokens": 20},
    *({"prompt_tokens": value, "completion_tokens": 20}
      for value in (-1, 1e300, 100.0, True, "100", None, [100], float("nan"), float("inf"))),
]  # fmt: skip


@pytest.mark.parametrize("absurd", ABSURD, ids=repr)
def test_absurd_token_counts_are_not_counted_and_cost_no_answer(ask: Asker, absurd: Any) -> None:
    def reply(query: str, n: int) -> tuple[int, Any]:
        return 200, {**right(query, n)[1], "usage": absurd}

    ask.server.script = [reply]
    assert [len(item.texts) for item in ask(2, concurrency=1, price=(0.0, 50_000.0))] == [3, 3]
    assert ask.server.asked == ["question 0", "question 1"]
    assert ask.usage == usage(2, n_uncounted=1, cost=1.0)
    ask(2, price=(0.0, 50_000.0))  # from the journal
    assert ask.usage == usage(2, n_uncounted=1, cost=1.0)


# wording


def test_wording(ask: Asker, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    monkeypatch.setattr(llm, "MAX_RETRIES", 1)
    url = ask.server.url
    ask.server.refuses = ("response_format", "seed")
    ask.server.script = [lambda query, n: (503, {"error": "later"}), lambda query, n: (200, completion("", usage=None))]
    ask(2, concurrency=1, price=(1.0, 2.0))
    said = {"notes": "\n".join(ask.progress.notes)}
    ask(3, prompt="{query}\nNumber: {n}", seed=3)
    said["another recipe"] = "\n".join(ask.progress.notes)
    ask(13, prompt="{query}\nNumber: {n}", seed=3, price=(1.0, 2.0))
    said["more pairs"] = "\n".join(ask.progress.notes[:1] + ask.progress.notes[-2:])
    ask.server.refuses = ()
    for code in (400, 401, 404, 307, 503):
        ask.server.usual = lambda query, n, code=code: (code, {"error": "no"})
        said[f"HTTP {code}"] = refusal(lambda: ask(9, model="gpt"), EndpointError, url)
    ask.server.usual = lambda query, n: (200, {"choices": []})
    said["no completion"] = refusal(lambda: ask(9, model="gpt"), EndpointError, url)
    for address in ("ftp://h", "http://me:pw@h/v1", "http://h/v1?model=gpt"):
        said[address] = refusal(lambda address=address: ask(url=address), EndpointError, "url")
    said["a prompt without {query}"] = refusal(
        lambda: MiningPlan(parse_miners("gpt=llm:model=m", 1), 1, 0, prompt="Write").check(Settings(), False),
        UsageError,
        "--prompt",
    )
    said["no key"] = refusal(lambda: ask(url=llm.DEFAULT_URL), EndpointError, llm.DEFAULT_URL)
    monkeypatch.setenv("OPENAI_API_KEY", "sk\r1")
    said["a key of two lines"] = refusal(ask, EndpointError, None)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:9")
    said["a proxy"] = refusal(ask, EndpointError, url).split(": U")[0]
    monkeypatch.setitem(sys.modules, "openai", None)
    said["no openai"] = refusal(ask, UsageError, None)
    shown = {name: text.replace(url, "URL").replace(str(ask.journal), "JOURNAL") for name, text in said.items()}
    snapshot("mine-llm.txt", situations(shown))
