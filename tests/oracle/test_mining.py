"""Compare every method, exclusion and shortfall of `secid.mine` with the reference. The comparison notices damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secid
from secid.encode import Role
from secid.results.mine import Mined
from secid.tools.mining.choose import EXCLUSION_REASONS, SHORT_ROW_REASONS
from tests.fake_encoder import HashEncoder
from tests.oracle.closeness import assert_close
from tests.oracle.mining import Expected, Negative, Rules

K = 4
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rnd": ("random", "random", {}),
    "lex": ("bm25", "bm25", {}),
    "low": ("bm25:ranks=3-6", "bm25", {"ranks": (3, 6)}),
    "near": ("dense", "dense", {}),
    "every": ("dense:relative=none", "dense", {"relative": None}),
    "far": ("dense:ranks=6-9", "dense", {"ranks": (6, 9)}),
    "slim": ("dense:ranks=2-5", "dense", {"ranks": (2, 5)}),
    "rel": ("nv-retriever-95:ranks=1-30", "dense", {"relative": 0.05, "ranks": (1, 30)}),
    "wide": ("dense:relative=0.9,ranks=1-150", "dense", {"relative": 0.9, "ranks": (1, 150)}),
    "abs": ("dense:absolute=0.2,ranks=1-40", "dense", {"absolute": 0.2, "ranks": (1, 40)}),
    "loose": ("qwen-0.1", "dense", {"absolute": -0.1}),
    "max": ("dense:maximum=0.6,ranks=1-15", "dense", {"maximum": 0.6, "ranks": (1, 15)}),
    "both": ("dense:relative=0.1,maximum=0.5,ranks=1-25", "dense", {"relative": 0.1, "maximum": 0.5, "ranks": (1, 25)}),
    "draw": ("rank-10-210:ranks=5-20", "dense", {"relative": None, "ranks": (5, 20), "pick": "random"}),
    "sim": (
        "simans:a=20,b=-0.1,ranks=1-40",
        "dense",
        {"relative": None, "ranks": (1, 40), "pick": "simans", "a": 20.0, "b": -0.1},
    ),
}
HYBRIDS = {"mix": (("lex", 2), ("near", 2)), "thin": (("slim", 1), ("low", 3))}
SHORT_THROUGHOUT = ("slim", "thin", "rel", "wide", "abs", "max", "both")
"""Sources of which --on-short drop leaves nothing."""


class Twins(HashEncoder):
    """Encoder that gives texts equal up to the word "twin" the same row, so their scores tie."""

    def row(self, text: str, role: Role) -> np.ndarray:
        return super().row(text.partition(" twin")[0], role)


def collection(folder: Path, seed: int = 0) -> tuple[dict[str, tuple[str, list[str]]], dict[str, str]]:
    """Write a BEIR folder of 24 queries in which each exclusion occurs; return queries with positives, and passages."""
    draw = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(60)]
    topics = ["oak", "tin", "sea", "sun"]

    def text(topic: str, n: int) -> str:
        return " ".join([topic, *draw.choice(words, n)])

    corpus = {f"d{number}": text(topics[number % 4], 12) for number in range(90)}
    queries: dict[str, tuple[str, list[str]]] = {}
    relevant: dict[str, list[str]] = {}
    for number in range(24):
        topic = topics[number % 4]
        positive = f"d{4 * number % 88 + (number % 4 if number % 5 else (number + 1) % 4)}"
        relevant[f"q{number}"] = [positive, *([f"d{(number * 7) % 90}"] if number % 3 == 0 else [])]
        relevant[f"q{number}"] = list(dict.fromkeys(relevant[f"q{number}"]))
        query = " ".join([topic, *corpus[positive].split()[2:5], f"ask{number}"])
        queries[f"q{number}"] = query if number != 23 else "zebra"  # which shares no token with any passage
    for number in range(0, 24, 2):
        own = corpus[relevant[f"q{number}"][0]]
        corpus[f"copy{number}"] = f"{own.upper()}!"
        corpus[f"near{number}"] = f"{own} and one more"
        corpus[f"echo{number}"] = f"{queries[f'q{number}']}?"
    for number in range(0, 90, 9):
        corpus[f"again{number}"] = f"{corpus[f'd{number}'].title()}."
        corpus[f"same{number}"] = corpus[f"d{number}"]
        for name in "ab":
            corpus[f"twin{number}{name}"] = f"{corpus[f'd{number}'].replace('w', 'v')} twin {name}{number}"
    corpus |= {"none": "N/A", "dots": "...", "blank": "  "}
    _write(folder / "corpus.jsonl", ({"_id": key, "title": "", "text": value} for key, value in corpus.items()))
    _write(folder / "queries.jsonl", ({"_id": key, "text": value} for key, value in queries.items()))
    lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t1" for q, ds in relevant.items() for d in ds), "q1\td5\t0"]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {key: (query, [corpus[d] for d in relevant[key]]) for key, query in queries.items()}, corpus


def _write(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def typed(left_out: Sequence[str] = ()) -> list[str]:
    hybrids = {name: f"hybrid:{','.join(f'{part}={n}' for part, n in parts)}" for name, parts in HYBRIDS.items()}
    methods = {name: text for name, (text, _, _) in METHODS.items()}
    return [f"{name}={text}" for name, text in {**methods, **hybrids}.items() if name not in left_out]


def expected(rules: Rules) -> dict[str, Expected]:
    whole = type(rules).__new__(type(rules))
    whole.__dict__ = {**rules.__dict__, "on_short": "keep"}
    alone = {name: rules.mine(name, method, **options) for name, (_, method, options) in METHODS.items()}
    parts = {
        name: whole.mine(name, *METHODS[name][1:2], **METHODS[name][2]) for own in HYBRIDS.values() for name, _ in own
    }
    return alone | {name: rules.hybrid([(part, n, parts[part]) for part, n in own]) for name, own in HYBRIDS.items()}


def written(mined: Mined) -> dict[str, dict[str, list[Negative]]]:
    """Return the negatives of each file by query id."""
    result = {}
    for source in mined.sources:
        result[source.name] = {}
        for line in Path(source.path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            scores = row.get("neg_scores", [None] * len(row["neg"]))
            columns = row["neg_ids"], row["neg_ranks"], scores, row["neg_margins"], row["neg_miners"]
            result[source.name][row["query_id"]] = [Negative(*cells) for cells in zip(*columns, strict=True)]
    return result


def compare(mined: Mined, reference: dict[str, Expected]) -> None:
    """Raise AssertionError if a negative, its provenance or a count differs."""
    rows = written(mined)
    assert rows.keys() == reference.keys()
    for source in mined.sources:
        own = reference[source.name]
        assert_close(rows[source.name], own.negatives, rel=1e-4, abs=1e-6, path=source.name)
        assert source.short == dict(own.short), source.name
        assert source.n_short == own.short.total(), source.name
        assert source.excluded == dict(own.excluded), source.name
        counts = [len(negatives) for negatives in own.negatives.values()]
        assert (source.n_rows, source.n_negatives) == (len(counts), sum(counts)), source.name


def case(folder: Path, **options: Any) -> tuple[Mined, Callable[..., dict[str, Expected]]]:
    """Return a run, and a function from rules to the reference of its sources."""
    queries, corpus = collection(folder / "beir")
    given = typed(SHORT_THROUGHOUT if options.get("on_short") == "drop" else ())
    mined = secid.mine(
        given, folder / "out", Twins(), k=K, collection=str(folder / "beir"), cache=False, seed=3, **options
    )

    @cache
    def reference(kind: type[Rules] = Rules) -> dict[str, Expected]:
        reuse, on_short = options.get("max_reuse"), options.get("on_short", "keep")
        rules = expected(kind(queries, corpus, Twins(), k=K, seed=3, reuse=reuse, on_short=on_short))
        return {source.name: rules[source.name] for source in mined.sources}

    return mined, reference


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return case(tmp_path_factory.mktemp("mining"))


@pytest.mark.parametrize(
    "options", [{"max_reuse": 2}, {"max_reuse": 3, "on_short": "random"}, {"on_short": "drop"}], ids=str
)
def test_caps_and_short_rows_are_treated_as_the_rules_say(tmp_path, options):
    mined, reference = case(tmp_path, **options)
    compare(mined, reference())
    short = {name for source in mined.sources for name in source.short}
    assert ("reused" in short) == ("max_reuse" in options)
    assert (sum(source.n_filled for source in mined.sources) > 0) == (options.get("on_short") == "random")
    assert (sum(source.n_dropped for source in mined.sources) > 0) == (options.get("on_short") == "drop")
    assert max(source.most_used for source in mined.sources) <= options.get("max_reuse", 99)


def test_what_is_mined_is_what_the_rules_say(plain):
    mined, reference = plain
    compare(mined, reference())


def test_each_exclusion_and_each_shortfall_occurs(plain):
    mined, _ = plain
    assert {name for source in mined.sources for name in source.excluded} == set(EXCLUSION_REASONS)
    assert {name for source in mined.sources for name in source.short} == set(SHORT_ROW_REASONS) - {
        "reused",
        "few_candidates",
        "few_written",
    }
    margins = [item.margin for rows in written(mined).values() for negatives in rows.values() for item in negatives]
    assert min(margins) < -0.1
    assert max(margins) > 0.1


def test_some_positive_scores_are_negative_and_some_scores_are_tied(tmp_path):
    reference = Rules(*collection(tmp_path), Twins(), k=K, seed=3)
    s_qp = [reference.s_qp(key) for key in reference.queries]
    assert min(s_qp) < -0.05
    taken = reference.mine("near", "dense").negatives.values()
    scores = [item.score for negatives in taken for item in negatives]
    assert len(scores) > len(set(scores))


class WithoutAbs(Rules):
    def passes(self, options, s_qn, s_qp):
        fails = options.get("relative") is not None and not s_qn < s_qp - options["relative"] * s_qp
        others = {name: value for name, value in options.items() if name != "relative"}
        return "margin" if fails else super().passes(others, s_qn, s_qp)


class NoDefault(Rules):
    def with_margin(self, options):
        return options


class FirstPositive(Rules):
    def s_qp(self, key):
        query, positives = self.queries[key]
        return self.s(query, positives[0])


class ExactCopiesAlone(Rules):
    @staticmethod
    def near(negative, positive):
        return False


class NoEcho(Rules):
    def reason(self, key, text, before):
        reason = super().reason(key, text, before)
        return "" if reason == "query_echo" else reason


class Repeats(Rules):
    def reason(self, key, text, before):
        return super().reason(key, text, set())


class TiesByFile(Rules):
    def dense(self, key):
        return sorted(super().dense(key), key=lambda pair: (-pair[1], self.ids[pair[0]]))


class WordTiesByFile(Rules):
    def bm25(self, key):
        return sorted(super().bm25(key), key=lambda pair: (-pair[1], self.ids[pair[0]]))


class FlatDraws(Rules):
    def preference(self, options, key, text, s_qn, s_qp):
        return super().preference({**options, "pick": "random"}, key, text, s_qn, s_qp)


@pytest.mark.parametrize(
    "kind",
    [WithoutAbs, NoDefault, FirstPositive, ExactCopiesAlone, NoEcho, Repeats, TiesByFile, WordTiesByFile, FlatDraws],
)
def test_a_reference_with_another_rule_disagrees(plain, kind):
    mined, reference = plain
    with pytest.raises(AssertionError):
        compare(mined, reference(kind))


@pytest.mark.parametrize("damage", ["swap", "rank", "margin", "count", "positive"])
def test_damage_is_noticed(plain, damage):
    mined, reference = plain
    reference = deepcopy(reference())
    negatives = reference["near"].negatives["q4"]
    if damage == "swap":
        negatives[0], negatives[1] = negatives[1], negatives[0]
    elif damage == "rank":
        negatives[2] = negatives[2]._replace(rank=negatives[2].rank + 1)
    elif damage == "margin":
        negatives[1] = negatives[1]._replace(margin=-negatives[1].margin)
    elif damage == "positive":
        negatives[0] = negatives[0]._replace(id="d16")
    else:
        source = replace(mined.sources[1], short={**mined.sources[1].short, "margin": 1})
        mined = replace(mined, sources=(mined.sources[0], source, *mined.sources[2:]))
    with pytest.raises(AssertionError):
        compare(mined, reference)
