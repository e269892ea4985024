"""Test that mining does not depend on the order of files and rows, block sizes, other sources, or memory."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import secid
from secid.measure.blocks import Vectors
from secid.tools.mining import choose, find
from secid.tools.mining.choose import DenseRanking
from secid.triplets import search
from secid.triplets.search import dots
from tests.oracle.test_mining import K, Twins, collection, typed

OPTIONS: list[dict[str, Any]] = [{}, {"max_reuse": 2, "on_short": "random"}]


def mine(folder: Path, out: str, specs: list[str] | None = None, **options: Any) -> Path:
    beir = str(folder / "beir")
    given = {"k": K, "collection": beir, "cache": False, "seed": 3, **options}
    secid.mine(specs or typed(), folder / out, Twins(), **given)
    return folder / out


def by_query(folder: Path) -> dict[str, dict[str, Any]]:
    """Return each file's rows by query, without ids and with sorted positives: both depend on the input order."""
    result = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        result[path.name] = {
            row["query_id"]: {**row, "neg_ids": None, "pos_ids": None, "pos": sorted(row["pos"])} for row in rows
        }
    return result


@pytest.fixture(scope="module", params=OPTIONS, ids=["plain", "capped"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("property")
    collection(folder / "beir")
    return folder, mine(folder, "base", **request.param), request.param


@pytest.mark.parametrize("base", [OPTIONS[1]], ids=["capped"], indirect=True)
def test_the_order_of_queries_and_candidates_changes_nothing(base, tmp_path):
    folder, expected, options = base
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    draw = random.Random(5)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        head, *lines = (folder / "beir" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        if not name.startswith("qrels"):
            lines.append(head)
            head = ""
        draw.shuffle(lines)
        (tmp_path / "beir" / name).write_text("".join([head, *lines]), encoding="utf-8")
    assert by_query(mine(tmp_path, "other", **options)) == by_query(expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_on_reuse_does_not_depend_on_the_order_of_rows_of_one_query(tmp_path, seed):
    """Their positives have the least text key in common."""
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": name, "text": f"oven {name}"}) + "\n" for name in ("alpha", "beta", "gamma")),
        "utf-8",
    )
    rows = [{"query": "oven", "pos": [f"shared {seed}", f"own {number}"]} for number in range(2)]
    found = []
    for order in (rows, rows[::-1]):
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in order), "utf-8")
        out = tmp_path / str(len(found))
        given = {"pairs": str(tmp_path / "pairs.jsonl"), "corpus": str(tmp_path / "corpus.jsonl"), "seed": seed}
        secid.mine(["lex=bm25"], out, k=1, max_reuse=1, **given)
        mined = [json.loads(line) for line in (out / "lex.jsonl").read_text("utf-8").splitlines()]
        found.append({row["pos"][1]: row["neg"] for row in mined})
    assert found[0] == found[1]


FEW = [spec for spec in typed() if spec.partition("=")[0] in ("rnd", "lex", "near", "rel", "sim", "mix")]


@pytest.mark.parametrize(
    ("base", "size", "specs"), [(OPTIONS[0], 7, typed()), (OPTIONS[1], 1, FEW)], ids=["7", "1"], indirect=["base"]
)
def test_the_size_of_blocks_changes_no_byte(base, size, specs, monkeypatch):
    folder, expected, options = base
    for module, name in (
        (find, "SEARCHED_ROWS_AT_ONCE"), (find, "WRITTEN_ROWS_AT_ONCE"), (search, "QUERY_BLOCK"),
        (search, "EXACT_PAIRS_AT_ONCE"), (choose, "TEXTS_AT_ONCE"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(search, "WINDOW", 10 * size)
    monkeypatch.setattr(search, "EXTRA_COMPARED", size - 1)
    monkeypatch.setattr(choose, "EXTRA_CANDIDATES", size - 1)
    other = contents(mine(folder, f"blocks-{size}", specs, **options))
    assert len(other) == len(specs) + 1
    del other[".manifest.json"]
    assert other.items() <= contents(expected).items()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("base", [OPTIONS[1]], ids=["capped"], indirect=True)
def test_the_same_input_and_seed_give_the_same_bytes(base):
    folder, expected, options = base
    assert ".manifest.json" in contents(expected)
    assert contents(mine(folder, "again", **options)) == contents(expected)


@pytest.mark.parametrize("base", [OPTIONS[0]], ids=["plain"], indirect=True)
def test_another_seed_draws_others_and_keeps_what_is_not_drawn(base):
    folder, expected, _ = base
    specs = [spec for spec in typed() if spec.partition("=")[0] in ("near", "rnd", "draw", "sim")]
    other, own = by_query(mine(folder, "other", specs, seed=4)), by_query(expected)
    assert other["near.jsonl"] == own["near.jsonl"]
    for name in ("rnd.jsonl", "draw.jsonl", "sim.jsonl"):
        assert other[name] != own[name]


@pytest.mark.parametrize("base", [OPTIONS[1]], ids=["capped"], indirect=True)
def test_a_source_is_the_same_whatever_else_is_mined(base):
    folder, expected, options = base
    for spec in typed()[:5]:
        name = spec.partition("=")[0]
        alone = mine(folder, f"alone-{name}", [spec], **options)
        assert (alone / f"{name}.jsonl").read_bytes() == (expected / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("depth", [1, 9, 40])
def test_the_dense_order_is_exact_where_float32_is_not(depth):
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(1, 64)) + 1e-7 * draw.normal(size=(300, 64))  # which float32 products cannot tell apart
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    query = rows[:3] + np.float32(0.01)
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    ranking = DenseRanking(Vectors(torch.from_numpy(query), torch.from_numpy(rows)), 300)
    exact = query.astype(np.float64) @ rows.T.astype(np.float64)
    units = np.rint(exact * 2**30)
    expected = np.lexsort((np.broadcast_to(np.arange(300), exact.shape), -units))[:, :depth]
    found = ranking.first(np.arange(3), depth)
    assert np.array_equal(found.ids, expected)
    rough = torch.from_numpy(query) @ torch.from_numpy(rows).T
    assert not np.array_equal(rough.argsort(dim=1, descending=True, stable=True)[:, :40].numpy(), expected[:, :40])


def test_a_score_is_the_same_in_any_company():
    draw = np.random.default_rng(1)
    vectors = Vectors(*(torch.from_numpy(draw.normal(size=(n, 48)).astype(np.float32)) for n in (5, 400)))
    queries, passages = draw.integers(5, size=900), draw.integers(400, size=900)
    together = dots(vectors, queries, passages)
    alone = [dots(vectors, queries[place : place + 1], passages[place : place + 1])[0] for place in range(900)]
    assert together.tolist() == alone


def test_a_number_of_negatives_beyond_the_candidates_takes_all_of_them(tmp_path):
    _, corpus = collection(tmp_path / "beir")
    specs = ["any=random", "near=dense:relative=none", "mix=hybrid:any=999999999,near=1"]
    options = {"k": 10**9, "on_short": "random"}
    files = by_query(mine(tmp_path, "out", specs, **options))
    counts = [{len(row["neg"]) for row in rows.values()} for rows in files.values()]
    assert counts[0] == counts[1] == counts[2]
    assert len(corpus) / 2 < min(counts[0])
    assert max(counts[0]) < len(corpus)


def test_a_row_stays_short_where_too_few_draws_pass(tmp_path, monkeypatch):
    collection(tmp_path / "beir")

    def margins(out: str) -> list[float]:
        rows = by_query(mine(tmp_path, out, ["low=dense:maximum=-0.2,ranks=1-9"], on_short="random"))["low.jsonl"]
        return [row["neg_margins"][place] for row in rows.values() for place in range(len(row["neg"]))]

    whole = margins("whole")
    monkeypatch.setattr(choose, "MAX_FILL_DRAWS", 1)
    assert 0 < len(margins("some")) < len(whole)
