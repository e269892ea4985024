"""Reference for mining, query by query and candidate by candidate, in plain Python: the rows that a run must write."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tests.fake_encoder import HashEncoder
from tests.unit.findings.slow_texts import form as normal_form
from tests.unit.findings.slow_texts import is_empty, is_near

MASK = 2**64 - 1


def text_key(role: str, text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16, person=role.encode()).digest()


def split_alphanumeric(text: str) -> list[str]:
    """Source: METHOD 2."""
    return re.findall(r"[^\W_]+", text.lower())


class Negative(NamedTuple):
    id: str
    rank: int | None
    score: float | None
    margin: float
    miner: str


@dataclass
class Expected:
    """Expected negatives of one source by query id, and counts."""

    negatives: dict[str, list[Negative]] = field(default_factory=dict)
    short: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)


class Rules:
    """Rules of mining, one method each, so that a test can break one. labels : texts of positives by query text."""

    def __init__(
        self,
        queries: Mapping[str, tuple[str, Sequence[str]]],
        corpus: Mapping[str, str],
        encoder: HashEncoder,
        *,
        k: int,
        seed: int,
        reuse: int | None = None,
        on_short: str = "keep",
        labels: Mapping[str, set[str]] | None = None,
    ) -> None:
        self.queries, self.k, self.seed, self.reuse, self.on_short = queries, k, seed, reuse, on_short
        self._orders: dict[tuple[str, str], list[tuple[str, float | None]]] = {}
        self._dots: dict[tuple[str, str], float] = {}
        self._faults: dict[tuple[str, str], str] = {}
        texts: dict[str, str] = {}
        for key, text in corpus.items():
            if text.strip():
                texts.setdefault(text, key)
        self.ids = texts
        self.candidates = sorted(texts, key=lambda text: text_key("passage", text))
        self.own = dict(labels or {})
        for query, positives in queries.values():
            self.own[query] = self.own.get(query, set()) | set(positives)
        forms = {key: normal_form(query) for key, (query, _) in queries.items()}
        self.labels = {
            key: set[str]().union(*(texts for query, texts in self.own.items() if normal_form(query) == form))
            for key, form in forms.items()
        }
        passages = [*self.candidates, *(text for key in queries for text in sorted(self.labels[key]))]
        self._passages = self._rows(encoder, passages, "passage")
        self._queries = self._rows(encoder, [query for query, _ in queries.values()], "query")
        self.documents = [split_alphanumeric(text) for text in self.candidates]

    @staticmethod
    def _rows(encoder: HashEncoder, texts: Sequence[str], role: Any) -> dict[str, list[float]]:
        rows = encoder.encode(list(dict.fromkeys(texts)), role).astype(np.float32)
        return dict(zip(dict.fromkeys(texts), rows.astype(np.float64).tolist(), strict=True))

    def s(self, query: str, passage: str) -> float:
        if (query, passage) not in self._dots:
            pairs = zip(self._queries[query], self._passages[passage], strict=True)
            self._dots[query, passage] = math.fsum(a * b for a, b in pairs)
        return self._dots[query, passage]

    def s_qp(self, key: str) -> float:
        return min(self.s(self.queries[key][0], text) for text in self.labels[key])

    # texts that must never be negatives
    def reason(self, key: str, text: str, before: set[str]) -> str:
        if (key, text) not in self._faults:
            self._faults[key, text] = self.fault(key, text)
        return self._faults[key, text] or ("repeat" if normal_form(text) in before else "")

    def fault(self, key: str, text: str) -> str:
        form = normal_form(text)
        positives = [normal_form(positive) for positive in self.labels[key]]
        if form and form in positives:
            return "false_negative"
        if any(self.near(form, positive) for positive in positives):
            return "near_copy"
        if form and form == normal_form(self.queries[key][0]):
            return "query_echo"
        return "empty" if is_empty(form) else ""

    @staticmethod
    def near(negative: str, positive: str) -> bool:
        return is_near(negative, positive)

    # orders of candidates
    def order(self, method: str, key: str) -> list[tuple[str, float | None]]:
        if (method, key) not in self._orders:
            self._orders[method, key] = getattr(self, method)(key)
        return self._orders[method, key]

    def dense(self, key: str) -> list[tuple[str, float | None]]:
        query = self.queries[key][0]
        scores = [self.s(query, text) for text in self.candidates]
        order = sorted(range(len(scores)), key=lambda place: (-self.units(scores[place]), place))
        return [(self.candidates[place], scores[place]) for place in order]

    @staticmethod
    def units(score: float) -> int:
        """Return a score in whole units, for comparisons. Source: METHOD 11."""
        return round(score * 2**30)

    def bm25(self, key: str) -> list[tuple[str, float | None]]:
        query = split_alphanumeric(self.queries[key][0])
        n, mean = len(self.documents), sum(map(len, self.documents)) / len(self.documents)
        scores = [0.0] * n
        for token in query:
            having = sum(token in document for document in self.documents)
            idf = math.log(1 + (n - having + 0.5) / (having + 0.5))
            for place, document in enumerate(self.documents):
                count, length = document.count(token), len(document) / mean
                scores[place] += idf * (count / (1.5 * ((1 - 0.75) + 0.75 * length) + count))
        having_score = (place for place in range(n) if scores[place] > 0)
        order = sorted(having_score, key=lambda place: (-self.units(scores[place]), place))
        return [(self.candidates[place], scores[place]) for place in order]

    def random(self, key: str) -> list[tuple[str, float | None]]:
        numbers = np.frombuffer(text_key("query", self.queries[key][0]), "<u4").tolist()
        generator = np.random.default_rng([self.seed, 4, *numbers])
        seen: dict[int, None] = {}
        while len(seen) < len(self.candidates):
            seen.setdefault(int(generator.integers(len(self.candidates))))
        return [(self.candidates[place], None) for place in seen]

    # choosing among them
    @staticmethod
    def mixed(value: int, seed: int) -> int:
        value = (value + seed * 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
        return value ^ value >> 31

    @staticmethod
    def half(role: Any, text: str) -> int:
        return int.from_bytes(text_key(role, text)[:8], "little")

    def with_margin(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options of a dense source, with relative = 0.05 if they set no margin. None is set, but no margin."""
        limits = [name for name in ("relative", "absolute", "maximum") if name in options]
        return options if limits else {**options, "relative": 0.05}

    def passes(self, options: Mapping[str, Any], s_qn: float, s_qp: float) -> str:
        if options.get("relative") is not None and not s_qn < s_qp - options["relative"] * abs(s_qp):
            return "margin"
        if "absolute" in options and not s_qn < s_qp - options["absolute"]:
            return "margin"
        return "maximum" if "maximum" in options and not s_qn < options["maximum"] else ""

    def preference(self, options: Mapping[str, Any], key: str, text: str, s_qn: float, s_qp: float) -> float:
        query = self.queries[key][0]
        number = self.mixed(self.half("query", query) ^ self.half("passage", text), self.seed)
        value = -math.log(-math.log(((number >> 11) + 0.5) / 2**53))
        if options["pick"] == "simans":
            value -= options.get("a", 0.5) * (s_qn - s_qp - options.get("b", 0.0)) ** 2
        return value

    def order_of_rows(self) -> list[str]:
        """Return row ids by the hash of the query; rows with the same query by the sum of their positives' keys."""

        def place(key: str) -> tuple[int, int]:
            query, positives = self.queries[key]
            of_positives = sum(self.half("passage", text) for text in positives) % 2**64
            return self.mixed(self.half("query", query), self.seed), of_positives

        return sorted(self.queries, key=place)

    def mine(self, name: str, method: str, **options: Any) -> Expected:
        """Mine one source. options : ranks, relative, absolute, maximum, pick, a, b."""
        result, used = Expected(), Counter[str]()
        limits = self.with_margin(options) if method == "dense" else {}
        every = len(self.candidates) if method == "random" else 200
        low, high = options.get("ranks", (1, max(every, self.k)))
        pick = options.get("pick", "top")
        for key in self.order_of_rows():
            s_qp = self.s_qp(key)
            order = self.order(method, key)
            before: set[str] = set()
            window: list[tuple[str, int, float | None, int]] = []
            reasons: list[str] = []
            rank = 0
            for text, score in order:
                if rank == high:
                    break
                reasons.append(self.reason(key, text, before))
                before.add(normal_form(text))
                if reasons[-1]:
                    continue
                rank += 1
                if rank >= low:
                    window.append((text, rank, score, len(reasons)))
            failed, passing = Counter[str](), []
            for item in window:
                why = self.passes(limits, item[2] or 0.0, s_qp)
                failed[why] += 1
                if not why:
                    passing.append(item)
            if pick != "top":
                passing.sort(key=lambda item: -self.preference(options, key, item[0], item[2] or 0.0, s_qp))
            free = [item for item in passing if self.reuse is None or used[item[0]] < self.reuse]
            taken = free[: self.k]
            failed["reused"] = len(passing) - len(free)
            if len(taken) < self.k:
                result.short[self.why(len(window), len(order), failed)] += 1
                searched = reasons
            else:
                searched = reasons[: taken[-1][3]] if pick == "top" else reasons
            result.excluded.update(filter(None, searched))
            used.update(text for text, *_ in taken)
            result.negatives[key] = [
                self.negative(key, text, None if method == "random" else rank, score, name)
                for text, rank, score, _ in taken
            ]
        self.finish(result, used, limits)
        return result

    def why(self, n_window: int, n_listed: int, failed: Mapping[str, int]) -> str:
        if n_window < self.k:
            return "few_candidates" if n_listed == len(self.candidates) else "no_common_token"
        return max(("margin", "maximum", "reused"), key=lambda name: failed.get(name, 0))

    def negative(self, key: str, text: str, rank: int | None, score: float | None, miner: str) -> Negative:
        s_qn = self.s(self.queries[key][0], text)
        return Negative(self.ids[text], rank, score, self.s_qp(key) - s_qn, miner)

    def hybrid(self, parts: Sequence[tuple[str, int, Expected]]) -> Expected:
        """Take the first n new negatives of each part."""
        result, used = Expected(), Counter[str]()
        result.excluded.update(sum((part.excluded for *_, part in parts), Counter()))
        text_of = {key: text for text, key in self.ids.items()}
        for key in self.order_of_rows():
            taken: list[Negative] = []
            skipped = 0
            for _, n, part in parts:
                own = full = 0
                for negative in part.negatives.get(key, []):
                    forms = {normal_form(text_of[item.id]) for item in taken}
                    if own == n or normal_form(text_of[negative.id]) in forms:
                        continue
                    if self.reuse is not None and used[text_of[negative.id]] >= self.reuse:
                        full += 1
                        continue
                    taken.append(negative)
                    used[text_of[negative.id]] += 1
                    own += 1
                skipped += full if own < n else 0
            if len(taken) < self.k:
                result.short["reused" if skipped else "parts_ended"] += 1
            result.negatives[key] = taken
        self.finish(result, used, {})
        return result

    def finish(self, result: Expected, used: Counter[str], options: Mapping[str, Any]) -> None:
        """Fill up or drop short rows. Negatives that fill them up must pass the margins, too."""
        text_of = {key: text for text, key in self.ids.items()}
        for key in self.order_of_rows():
            taken = result.negatives[key]
            if self.on_short == "random" and len(taken) < self.k:
                before: set[str] = set()
                own = {normal_form(text_of[item.id]) for item in taken}
                for text, _ in self.order("random", key):
                    reason, form = self.reason(key, text, before), normal_form(text)
                    before.add(form)
                    full = self.reuse is not None and used[text] >= self.reuse
                    free = len(taken) < self.k and not reason and form not in own and not full
                    if free and not self.passes(options, self.s(self.queries[key][0], text), self.s_qp(key)):
                        taken.append(self.negative(key, text, None, None, "random"))
                        used[text] += 1
            if not taken or (self.on_short == "drop" and len(taken) < self.k):
                del result.negatives[key]
