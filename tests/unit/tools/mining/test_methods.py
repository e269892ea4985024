"""NAME=METHOD:option=value,… to methods, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secid.errors import UsageError
from secid.pages.explain import explained
from secid.results.mine import PRESETS
from secid.tools.mining.choose import passing
from secid.tools.mining.find import options_of
from secid.tools.mining.methods import METHODS, Dense, Hybrid, parse_miners
from tests.snapshots import Snapshot, situations

ROOT = Path(__file__).resolve().parents[4]


def test_options_and_defaults():
    near, far = parse_miners(["near=dense", "far=dense:ranks=11-20,relative=0.1,pick=random"], 10)
    assert (near.method.ranks, near.window) == ((1, 200), (1, 200))
    assert (far.method, far.window) == (Dense(ranks=(11, 20), relative=0.1, pick="random"), (11, 20))


@pytest.mark.parametrize(
    ("typed", "relative"),
    [
        ("dense", 0.05), ("dense:ranks=11-20", 0.05), ("dense:pick=simans", 0.05), ("dense:relative=none", None),
        ("dense:absolute=0.1", None), ("dense:maximum=0.8", None), ("dense:relative=0.0", 0.0),
        ("simans", None), ("rank-10-210", None), ("rank-50-100", None), ("qwen-0.1", None),
        ("nv-retriever-95", 0.05), ("nv-retriever-95:relative=none", None), ("simans:relative=0.1", 0.1),
    ],
)  # fmt: skip
def test_a_dense_source_stays_below_95_percent_by_default_and_presets_follow_their_papers(typed, relative):
    (miner,) = parse_miners(f"near={typed}", 10)
    assert isinstance(miner.method, Dense)
    assert miner.method.relative == relative
    assert options_of(miner.method).get("relative") == relative


def test_a_candidate_at_a_margin_or_at_the_maximum_does_not_pass():
    method = Dense(ranks=(1, 9), absolute=0.25, maximum=0.5)
    near, below = passing(method, np.array([0.25, 0.5, 0.75]), np.array(1.0))
    assert near.tolist() == [True, True, False]
    assert below.tolist() == [True, False, False]


def test_the_default_window_holds_k():
    (miner,) = parse_miners(["r=bm25"], 300)
    assert miner.window == (1, 300)


@pytest.mark.parametrize("digits", ["9" * 10, "9" * 30])
def test_no_rank_is_too_high(digits):
    (miner,) = parse_miners([f"r=bm25:ranks=1-{digits}"], 300)
    assert miner.window == (1, 2**31 - 1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_method_whose_options_can_be_changed(name):
    own, other = parse_miners([f"own={name}", f"other={name}:ranks=2-9"], 5)
    assert isinstance(own.method, Dense)
    assert isinstance(other.method, Dense)
    assert other.window == (2, 9)
    assert (other.method.relative, other.method.absolute) == (own.method.relative, own.method.absolute)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_explained_as_what_it_is(name):
    facts = explained(name)[name]
    assert PRESETS[name].source == facts["from"]
    typed = facts["is"].partition(";")[0]
    own, other = parse_miners([f"own={typed}", f"other={name}"], 5)
    assert own.method == other.method
    assert facts["command"].startswith(f"secid mine SOURCE={name} ")
    assert f"| `{name}` | `{typed}` |" in (ROOT / facts["docs"]).read_text(encoding="utf-8")


def test_only_a_random_source_may_have_the_name_of_what_fills_up():
    assert parse_miners(["random=random"], 5)[0].name == "random"


def test_shares_of_a_hybrid_are_counts():
    *_, mix = parse_miners(["a=bm25", "b=dense", "mix=hybrid:a=3,b=7"], 10)
    assert mix.method == Hybrid(parts=(("a", 3), ("b", 7)))


REFUSED = [
    [], ["bm25"], ["a="], ["a/b=bm25"], [".a=bm25"], ["a=bm52"], ["a=bm25", "A=dense"], ["a=bm25:relative=0.1"],
    ["a=random:ranks=1-5"], ["a=dense:ranks=0-5"], ["a=dense:ranks=20-11"], ["a=dense:ranks=5"], ["a=dense:ranks=1-2"],
    ["a=dense:relative=much"], ["a=dense:relative=nan"], ["a=dense:relative=5"], ["a=dense:relative=1"],
    ["a=dense:relative=-0.1"], ["a=dense:relativ=0.1"], ["a=qwen-01"], ["a=dense:relative"],
    ["a=dense:relative=0.1,relative=0.2"], ["a=dense:pick=best"], ["a=dense:a=1"], ["a=simans:a=-1"], ["a=hybrid:b=10"],
    ["b=bm25", "a=hybrid:b=ten"], ["b=bm25", "a=hybrid:b=5"], ["b=bm25", "a=hybrid:b=10", "c=hybrid:a=10"],
    ["random=dense"], ["a=llm"], ["a=llm:model=m,price=1"], ["a=llm:model=m,price=1/-1"],
]  # fmt: skip


@pytest.mark.parametrize("k", [0, 10**30])
def test_a_number_of_negatives_that_cannot_be_is_refused(k):
    with pytest.raises(UsageError) as error:
        parse_miners(["a=bm25"], k)
    assert error.value.where == "-k"


def test_an_unknown_method_is_answered_with_all_there_are():
    with pytest.raises(UsageError) as error:
        parse_miners(["a=???"], 10)
    assert all(name in str(error.value) for name in (*METHODS, *PRESETS))


def test_refusals(snapshot: Snapshot):
    texts: dict[str, str] = {}
    for specs in REFUSED:
        with pytest.raises(UsageError) as error:
            parse_miners(specs, 10)
        texts[" ".join(specs) or "nothing"] = str(error.value)
    snapshot("mine-refusals.txt", situations(texts))


@pytest.mark.parametrize("typed", ["random=random", "a=bm25", "a=dense", "a=dense:relative=0.05"])
def test_a_manifest_names_the_method_as_it_is_typed(typed: str) -> None:
    (miner,) = parse_miners(typed, 5)
    assert options_of(miner.method)["method"] == typed.partition("=")[2].partition(":")[0]
