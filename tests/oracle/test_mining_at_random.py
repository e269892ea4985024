"""Compare mining of small random collections with the reference. The comparison notices a changed rule.

Cases: ties between scores and with margins, copies and repeats, queries with one normal form, several positives and
splits, few candidates and caps, every way to pick and to treat short queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secid
from secid.encode import Role
from tests.fake_encoder import HashEncoder
from tests.oracle.mining import Expected, Rules, text_key
from tests.oracle.test_mining import compare

Source = tuple[str, dict[str, Any]]


class Grid(HashEncoder):
    """Encoder with rows of four halves: scores are exact, and often equal to each other and to a limit."""

    def row(self, text: str, role: Role) -> np.ndarray:
        draw = np.random.default_rng(int.from_bytes(text_key(role, text)[:8], "little"))
        row = np.zeros(self.dimension)
        row[draw.permutation(self.dimension)[:4]] = draw.choice([-0.5, 0.5, 0.5], 4)
        return row


@dataclass(frozen=True)
class Case:
    """Input of mining. judged : by split, (query, passage) of a grade above 0.   sources : method, options by name."""

    corpus: Mapping[str, str]
    queries: Mapping[str, str]
    judged: Mapping[str, Sequence[tuple[str, str]]]
    split: str | None
    encoder: HashEncoder
    sources: Mapping[str, Source]
    options: Mapping[str, Any]


def written_otherwise(draw: Random, text: str) -> str:
    return draw.choice([text, text.upper(), f"  {text} !", text.replace(" ", " - "), text.replace(" ", "&nbsp;", 1)])


def drawn(number: int) -> Case:
    draw = Random(number)
    words = [f"w{n}" for n in range(draw.choice([8, 15, 40]))]

    def text(least: int, most: int) -> str:
        return " ".join(draw.choices(words, k=draw.randint(least, most)))

    queries = [text(1, 5) for _ in range(draw.choice([2, 5, 9]))]
    queries += [written_otherwise(draw, query) for query in queries[::2]]
    corpus = [text(1, 12) for _ in range(draw.choice([3, 12, 40]))]
    corpus += [written_otherwise(draw, text) for text in (*corpus[::4], *queries[::3])]
    corpus += [f"{text} {draw.choice(words)}" for text in corpus[::5]]
    corpus += draw.sample(["N/A", "...", "x", " ", "7"], 2)
    named = {f"d{n}": text for n, text in enumerate(corpus)}
    judged: dict[str, list[tuple[str, str]]] = {"test": [], "train": []}
    with_text = [key for key, text in named.items() if text.strip()]
    for n in range(len(queries)):
        judged["test"] += [(f"q{n}", d) for d in draw.sample(with_text, draw.choice([1, 1, 2, 3]))]
        judged["train"] += [(f"q{n}", d) for d in draw.sample(with_text, draw.choice([0, 1]))]
    k = draw.choice([1, 2, 4, 10])
    sources = {f"s{n}": _source(draw, k) for n in range(3)}
    if k > 1:
        n = draw.randint(1, k - 1)
        sources["mix"] = "hybrid", {"s0": n, "s2": k - n}
    options = {
        "k": k,
        "seed": draw.choice([0, 7]),
        "max_reuse": draw.choice([None, 1, 2, 5]),
        "on_short": draw.choice(["keep", "drop", "random", "random"]),
    }
    encoder = draw.choice([Grid(8), Grid(16), HashEncoder(8)])
    asked = {f"q{n}": query for n, query in enumerate(queries)}
    return Case(named, asked, judged, draw.choice([None, "test"]), encoder, sources, options)


def _source(draw: Random, k: int) -> Source:
    method, first = draw.choice(["random", "bm25", "dense", "dense", "dense"]), draw.choice([1, 1, 2, 5])
    options: dict[str, Any] = {}
    if method != "random" and draw.random() < 0.6:
        options["ranks"] = first, first + k - 1 + draw.choice([0, 1, 5, 30])
    if method == "dense":
        limits = {"relative": [0.0, 0.05, 0.5, 0.02, None], "absolute": [0.0, 0.25, -0.25], "maximum": [0.5, 0.25, 0.0]}
        options |= {name: draw.choice(values) for name, values in limits.items() if draw.random() < 0.4}
        options["pick"] = draw.choice(["top", "top", "random", "simans"])
        options |= {"a": draw.choice([0.0, 20.0]), "b": draw.choice([0.0, -0.1])} if options["pick"] == "simans" else {}
    return method, options


def typed(name: str, source: Source) -> str:
    method, options = source
    values = {key: "-".join(map(str, value)) if key == "ranks" else value for key, value in options.items()}
    if values.get("relative", 0) is None:
        values["relative"] = "none"
    return f"{name}={method}:{','.join(f'{key}={value}' for key, value in values.items())}"


def expected(case: Case, kind: type[Rules] = Rules) -> dict[str, Expected]:
    """Return the reference of all sources. kind : rules."""
    rows: dict[str, dict[str, None]] = {}
    labels: dict[str, set[str]] = {}
    for split, pairs in case.judged.items():
        for query, passage in pairs:
            labels.setdefault(case.queries[query], set()).add(case.corpus[passage])
            if case.split in (None, split):
                rows.setdefault(query, {})[case.corpus[passage]] = None
    queries = {key: (case.queries[key], list(positives)) for key, positives in rows.items()}
    given = {name: case.options[name] for name in ("k", "seed")} | {"reuse": case.options["max_reuse"]}
    whole = kind(queries, case.corpus, case.encoder, labels=labels, **given)
    rules = kind(queries, case.corpus, case.encoder, labels=labels, on_short=case.options["on_short"], **given)
    alone = {name: source for name, source in case.sources.items() if source[0] != "hybrid"}
    parts = {name: whole.mine(name, method, **options) for name, (method, options) in alone.items()}
    result = {name: rules.mine(name, method, **options) for name, (method, options) in alone.items()}
    for name, (_, shares) in case.sources.items():
        if name not in alone:
            result[name] = rules.hybrid([(part, n, parts[part]) for part, n in shares.items()])
    return result


def check(case: Case, kind: type[Rules] = Rules) -> None:
    """Raise AssertionError if mining differs from the rules. Sources without a negative are left out."""
    reference = expected(case, kind)
    kept = {name for name, own in expected(case).items() if own.negatives}
    kept -= {name for name, (method, parts) in case.sources.items() if method == "hybrid" and not kept >= parts.keys()}
    if not kept:
        return
    with TemporaryDirectory() as folder:
        beir = Path(folder) / "beir"
        (beir / "qrels").mkdir(parents=True)
        for name, texts in (("corpus", case.corpus), ("queries", case.queries)):
            lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()]
            (beir / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        for split, pairs in case.judged.items():
            lines = ["query-id\tcorpus-id\tscore\n", *(f"{query}\t{passage}\t1\n" for query, passage in pairs)]
            (beir / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
        mined = secid.mine(
            [typed(name, source) for name, source in case.sources.items() if name in kept],
            Path(folder) / "out", case.encoder, collection=str(beir), split=case.split, cache=False, **case.options,
        )  # fmt: skip
        compare(mined, {name: own for name, own in reference.items() if name in kept})


def check_all(numbers: Iterable[int], kind: type[Rules]) -> None:
    for number in numbers:
        check(drawn(number), kind)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_what_is_mined_of_a_random_collection_is_what_the_rules_say(number):
    check(drawn(number))


class LabelsByText(Rules):
    """Rules whose margins ignore labels of queries with the same normal form."""

    def s_qp(self, key):
        query, _ = self.queries[key]
        return min(self.s(query, text) for text in self.own[query])


class AtTheLimit(Rules):
    """Rules under which scores equal to the limit pass."""

    def passes(self, options, s_qn, s_qp):
        return super().passes(options, s_qn - 1e-9, s_qp)


class FillsWithAnything(Rules):
    def finish(self, result, used, options):
        super().finish(result, used, {})


class OneMore(Rules):
    def __init__(self, *args, reuse, **options):
        super().__init__(*args, reuse=reuse and reuse + 1, **options)


@pytest.mark.parametrize("kind", [LabelsByText, AtTheLimit, FillsWithAnything, OneMore])
def test_another_rule_is_noticed(kind):
    with pytest.raises(AssertionError):
        check_all(range(40), kind)
