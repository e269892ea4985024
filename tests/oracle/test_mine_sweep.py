"""Compare `secid.mine_sweep` with the reference of mining, method by method. The comparison notices damage."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secid
from secid.results.mine import Sweep, Swept
from secid.tools.mining.mine import SWEEP_MARGINS, SWEEP_WINDOWS
from tests.fake_encoder import HashEncoder
from tests.oracle.closeness import assert_close
from tests.oracle.guide import is_suspect
from tests.oracle.mining import Rules
from tests.oracle.test_mining import Twins, collection

K, TEMPERATURE, SAMPLE = 8, 0.1, 100
SOURCES = {
    "near": ("dense", {}),
    "far": (
        "dense:ranks=3-30,absolute=0.2,maximum=0.5,pick=random",
        {"ranks": (3, 30), "absolute": 0.2, "maximum": 0.5, "pick": "random"},
    ),
    "rel": ("dense:relative=0.05", {"relative": 0.05}),
}


def case(folder: Path, sample: int | None = None) -> tuple[Sweep, Callable[..., dict[str, Any]]]:
    """Return a sweep with another encoder as guide, and a function from rules to its reference."""
    queries, corpus = collection(folder / "beir")
    guide = HashEncoder(dimension=8, name="guide")
    texts = list(dict.fromkeys([*(query for query, _ in queries.values()), *corpus.values()]))
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    rows = guide.encode(texts, "passage")
    np.savez(folder / "guide.npz", vectors=rows, text_sha256=np.array(keys))
    vectors = dict(zip(texts, rows.astype(np.float64), strict=True))
    sweep = secid.mine_sweep(
        [f"{name}={method}" for name, (method, _) in SOURCES.items()] + ["lex=bm25"],
        Twins(), k=K, collection=str(folder / "beir"), cache=False, seed=3, temperature=TEMPERATURE,
        guide=str(folder / "guide.npz"), guide_sample=sample or 10_000,
    )  # fmt: skip

    @cache
    def reference(kind: type[Rules] = Rules) -> dict[str, Any]:
        rules = kind(queries, corpus, Twins(), k=K, seed=3)
        level = random_level(rules, vectors)
        result: dict[str, Any] = {"random": expected(rules, vectors, level, "random", {"ranks": (1, K)})}
        for name, (_, own) in SOURCES.items():
            kept = {option: value for option, value in own.items() if option in ("maximum", "pick")}
            windows = dict.fromkeys([own.get("ranks", (1, 200)), (1, K), *SWEEP_WINDOWS])
            result[name] = expected(rules, vectors, level, "dense", own)
            for ranks in windows:
                for relative in SWEEP_MARGINS:
                    options = {**kept, "ranks": ranks, "relative": relative}
                    result[f"{name} {ranks} {relative}"] = expected(rules, vectors, level, "dense", options)
        return result

    return sweep, reference


def random_level(rules: Rules, vectors: dict[str, Any]) -> float:
    """Return the mean of the guide's scores of the random candidates."""
    text_of = {key: text for text, key in rules.ids.items()}
    mined = rules.mine("any", "random", ranks=(1, K)).negatives
    scores = [vectors[rules.queries[key][0]] @ vectors[text_of[each.id]] for key, own in mined.items() for each in own]
    return float(sum(scores) / len(scores))


def expected(
    rules: Rules, vectors: dict[str, Any], level: float, method: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the numbers of one method, negative by negative."""
    mined = rules.mine("any", method, **options).negatives
    text_of = {key: text for text, key in rules.ids.items()}
    margins, scores, flags = [], [], []
    for key, negatives in mined.items():
        query, positives = rules.queries[key]
        lowest = min(positives, key=lambda text: rules.s(query, text))
        best = float(vectors[query] @ vectors[lowest])
        for negative in negatives:
            scores.append(rules.s_qp(key) - negative.margin)
            margins.append(rules.s(query, positives[0]) - scores[-1])
            flags.append(is_suspect(best, float(vectors[query] @ vectors[text_of[negative.id]]), level))
    counts = [len(mined.get(key, ())) for key in rules.queries]
    n = len(margins)
    return {
        "n_negatives": n,
        "n_short": sum(own < K for own in counts),
        "n_lacking": sum(K - own for own in counts),
        "n_missing": counts.count(0),
        "s_query_negative": sum(scores) / n if n else None,
        "consistency": sum(1 / (1 + math.exp(-margin / TEMPERATURE)) for margin in margins) / n if n else None,
        "inverted_share": sum(margin < 0 for margin in margins) / n if n else None,
        "suspects": sum(flags) / n if n else None,
    }


def numbers(swept: Swept) -> dict[str, Any]:
    values = asdict(swept)
    del values["method"]
    return values | {"suspects": None if swept.suspects is None else swept.suspects.share}


def of_sweep(sweep: Sweep) -> dict[str, Any]:
    result = {"random": numbers(sweep.random)}
    for source in sweep.sources:
        result[source.name] = numbers(source.own)
        for each in source.variants:
            result[f"{source.name} {each.method['ranks']} {each.method['relative']}"] = numbers(each)
    return result


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return case(tmp_path_factory.mktemp("sweep"))


def test_each_method_gives_what_the_rules_say(swept):
    sweep, reference = swept
    assert_close(of_sweep(sweep), reference(), rel=1e-5)
    assert sweep.unswept == ("lex",)
    variants = [each for source in sweep.sources for each in (source.own, *source.variants)]
    assert len(variants) == len(SOURCES) * (1 + len(SWEEP_MARGINS) * (2 + len(SWEEP_WINDOWS)))
    assert any(each.n_missing for each in variants)
    assert any(0 < each.n_missing < each.n_short < sweep.n_rows for each in variants)
    shares = [each.suspects.share for each in variants if each.suspects]
    assert min(shares) < max(shares)
    assert all(each.suspects.n_scored == each.n_negatives for each in variants if each.suspects)


def test_a_sample_estimates_what_the_guide_says_of_all(swept, tmp_path):
    whole, _ = swept
    sampled, _ = case(tmp_path, SAMPLE)
    covered = []
    for source, other in zip(whole.sources, sampled.sources, strict=True):
        for each, part in zip((source.own, *source.variants), (other.own, *other.variants), strict=True):
            if each.suspects is None or part.suspects is None:
                assert each.n_negatives == part.n_negatives == 0
                continue
            assert part.suspects.n_scored == min(SAMPLE, each.n_negatives)
            low, high = part.suspects.interval_95
            covered.append(low <= each.suspects.share <= high)
    assert sum(covered) >= 0.9 * len(covered)


class Loose(Rules):
    def passes(self, options, s_qn, s_qp):
        return super().passes({**options, "relative": options.get("relative", 0) / 2}, s_qn, s_qp)


class NothingExcluded(Rules):
    """Rules whose ranks also count excluded candidates."""

    def reason(self, key, text, before):
        return ""


@pytest.mark.parametrize("kind", [Loose, NothingExcluded])
def test_a_reference_with_another_rule_disagrees(swept, kind):
    sweep, reference = swept
    with pytest.raises(AssertionError):
        assert_close(of_sweep(sweep), reference(kind), rel=1e-5)


@pytest.mark.parametrize(
    "name", ["n_negatives", "n_lacking", "s_query_negative", "consistency", "inverted_share", "suspects"]
)
def test_damage_is_noticed(swept, name):
    sweep, reference = swept
    damaged = deepcopy(reference())
    damaged["near"][name] += 0.01
    with pytest.raises(AssertionError):
        assert_close(of_sweep(sweep), damaged, rel=1e-5)
