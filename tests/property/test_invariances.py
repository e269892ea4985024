"""Test what must not change a ranking, through the public API. Source: METHOD 2, its last lines."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import secid
from secid.analyses.registry import to_json
from secid.encode import from_callable
from secid.measure.blocks import PLANS

DIMENSION = 16
RELATIVE = 1e-9
"""Sums in another order; each block's product is float32, so this is far below what one changed triplet moves."""
FLOAT32_RELATIVE = 1e-6

Row = dict[str, Any]


def unit_rows(texts: list[str], seed: int = 0) -> np.ndarray:
    """Rows that depend on the text alone: noise around a direction that its subject gives, so that gates vary."""
    rows = []
    for text in texts:
        own = _noise(f"{seed} {text}")
        subject = _noise(f"{seed} subject {text.split()[-1]}")
        row = own + 1.5 * subject
        rows.append(row / np.linalg.norm(row))
    return np.array(rows, np.float32).reshape(len(texts), DIMENSION)


@lru_cache(maxsize=20_000)
def _noise(key: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(DIMENSION)


def encoder(rotation: np.ndarray | None = None) -> Any:
    def encode(texts: list[str], role: str) -> np.ndarray:
        rows = unit_rows(texts)
        return rows if rotation is None else (rows.astype(np.float64) @ rotation).astype(np.float32)

    return from_callable(encode, "hashed")


def make_rows(n_queries: int, style: str, seed: int = 0) -> list[Row]:
    """FlagEmbedding rows. Some queries have two positives, some negatives are positives or occur twice."""
    draw = random.Random(f"{style} {seed}")
    found = []
    for number in range(n_queries):
        subject = f"s{number % 6}"
        positives = [f"answer {number} {rank} on {subject}" for rank in range(1 + number % 2)]
        negatives = [
            f"{style} passage {draw.randrange(40)} on {draw.choice([subject, 's1', 's2'])}"
            for _ in range(1 + draw.randrange(5))
        ]
        if number % 7 == 0:
            negatives += [negatives[0], positives[0]]
        found.append({"query": f"query {number} on {subject}", "pos": positives, "neg": negatives})
    return found


SOURCES = {"one": make_rows(30, "lexical"), "two": make_rows(24, "dense"), "three": make_rows(30, "mixed", 3)}


def as_jsonl(path: Path, rows: list[Row]) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_gzip(path: Path, rows: list[Row]) -> Path:
    path = path.with_suffix(".jsonl.gz")
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def as_parquet(path: Path, rows: list[Row]) -> Path:
    path = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    return path


def as_tevatron(path: Path, rows: list[Row]) -> Path:
    def passages(texts: list[str]) -> list[dict[str, str]]:
        return [{"docid": text, "title": "", "text": text} for text in texts]

    return as_jsonl(
        path,
        [
            {"query_id": row["query"], "query": row["query"], "positive_passages": passages(row["pos"]),
             "negative_passages": passages(row["neg"])}
            for row in rows
        ],
    )  # fmt: skip


def as_triplets(path: Path, rows: list[Row]) -> Path:
    """One row a negative; only the first positive fits."""
    return as_jsonl(
        path,
        [{"anchor": row["query"], "positive": row["pos"][0], "negative": text} for row in rows for text in row["neg"]],
    )


Writer = Callable[[Path, list[Row]], Path]


def score(folder: Path, sources: dict[str, list[Row]], write: Writer = as_jsonl, **options: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [write(folder / name, rows) for name, rows in sources.items()]
    return secid.score(paths, encoder=options.pop("encoder", None) or encoder(), controls="none", **options)


def numbers(run: Any) -> Iterator[tuple[str, dict[str, float]]]:
    for source in run.sources:
        hardness = source.hardness and source.hardness.value
        yield (
            source.name,
            {name: value for name, value in {**vars(source), **vars(source.score),
                "hardness": hardness}.items() if isinstance(value, float) and name != "probability_first"},
        )  # fmt: skip


def assert_same(found: Any, expected: Any, relative: float = RELATIVE, leave_out: tuple[str, ...] = ()) -> None:
    """Assert that sources, their order and all their numbers are the same. No test can forget a field."""
    assert [source.name for source in found.sources] == [source.name for source in expected.sources]
    for (name, left), (_, right) in zip(numbers(found), numbers(expected), strict=True):
        assert len(left) >= 18
        for field, value in left.items():
            if field not in leave_out:
                assert value == pytest.approx(right[field], rel=relative, abs=relative * 1e-3), f"{name} {field}"


OF_PLACE = {"examples", "files", "timing", "environment", "settings", "cost", "folder"}
"""Fields of a report that describe files, rows and the machine."""


def everything(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and name of a report with its place."""
    if isinstance(value, dict):
        for key in sorted(value.keys() - OF_PLACE):
            yield from everything(value[key], f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from everything(item, f"{place}[{number}]")
    else:
        yield place, value


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return score(tmp_path_factory.mktemp("base"), SOURCES)


def test_the_sources_of_these_tests_differ(base):
    """Otherwise no test below could fail."""
    scores = [source.score.nats for source in base.sources]
    assert all(a - b > 1e-3 for a, b in pairwise(scores))
    assert any(source.rows.dropped_negatives for source in base.sources)


def test_a_changed_negative_would_be_noticed(base, tmp_path):
    changed = {**SOURCES, "one": [dict(SOURCES["one"][0], neg=["another passage on s0"]), *SOURCES["one"][1:]]}
    with pytest.raises(AssertionError):
        assert_same(score(tmp_path / "changed", changed), base)


def test_the_order_of_rows_and_files_changes_nothing(base, tmp_path):
    draw = random.Random(1)
    names = draw.sample(sorted(SOURCES), len(SOURCES))
    shuffled = {name: draw.sample(SOURCES[name], len(SOURCES[name])) for name in names}
    assert_same(score(tmp_path / "shuffled", shuffled), base, FLOAT32_RELATIVE)


@pytest.mark.parametrize("budget", [1.0, 1000.0])
def test_the_order_of_rows_and_of_their_negatives_changes_no_number_of_the_report(tmp_path, budget):
    """This holds even if sources are cut to equal numbers, or negatives are assigned to other queries."""
    draw = random.Random(5)
    shuffled = {
        name: [{**row, "neg": draw.sample(row["neg"], len(row["neg"]))} for row in draw.sample(rows, len(rows))]
        for name, rows in SOURCES.items()
    }
    reports = []
    for number, sources in enumerate((SOURCES, shuffled)):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        paths = [as_jsonl(folder / name, rows) for name, rows in sources.items()]
        run = secid.score(paths, encoder=encoder(), budget=budget, controls="all", ablate=True, sums="float64")
        reports.append(dict(everything(json.loads(to_json(run)))))
    one, other = reports
    assert one.keys() == other.keys()
    assert sum("equal_curve" in name for name in one) > 10
    assert sum(name.startswith(".controls") for name in one) > 100
    for name, value in one.items():
        assert other[name] == (pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value), name


@pytest.mark.parametrize("write", [as_gzip, as_parquet, as_tevatron])
def test_the_file_format_changes_nothing(base, tmp_path, write):
    assert_same(score(tmp_path / "written", SOURCES, write), base)


def test_one_row_a_negative_is_the_same_record(tmp_path):
    first_positive = {name: [dict(row, pos=row["pos"][:1]) for row in rows] for name, rows in SOURCES.items()}
    lists = score(tmp_path / "lists", first_positive)
    triplets = score(tmp_path / "triplets", first_positive, as_triplets)
    assert_same(triplets, lists)
    for one, other in zip(lists.sources, triplets.sources, strict=True):
        assert one.rows.n_records == other.rows.n_records
        assert one.rows.n_read < other.rows.n_read


def test_a_rotation_of_all_vectors_changes_nothing(base, tmp_path):
    rotation, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((DIMENSION, DIMENSION)))
    turned = score(tmp_path / "turned", SOURCES, encoder=encoder(rotation))
    assert_same(turned, base, 1e-4)  # the vectors themselves are rounded to float32 after the rotation
    for found, expected in zip(turned.sources, base.sources, strict=True):
        assert found.score.nats == pytest.approx(expected.score.nats, rel=3e-6)


def test_the_number_of_threads_changes_nothing(base, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if before > 1 else 3)
        assert_same(score(tmp_path / "threads", SOURCES), base, FLOAT32_RELATIVE)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("block", [1, 5])
def test_the_size_of_a_block_changes_nothing(base, tmp_path, block, monkeypatch):
    monkeypatch.setitem(PLANS, "cpu", replace(PLANS["cpu"], n_triplets=block))
    assert_same(score(tmp_path / "blocks", SOURCES), base, FLOAT32_RELATIVE)


def test_a_source_scores_the_same_next_to_its_own_copy(base, tmp_path):
    """The pool of documents stays the same, so the coverage does."""
    doubled = score(tmp_path / "doubled", {**SOURCES, "copy": SOURCES["one"]})
    by_name = {source.name: source.score.nats for source in doubled.sources}
    assert (
        by_name["copy"]
        == by_name["one"]
        == pytest.approx(next(source.score.nats for source in base.sources if source.name == "one"), rel=RELATIVE)
    )


def test_bounds_hold_and_the_information_matrix_is_psd(tmp_path):
    run = score(tmp_path / "files", SOURCES, run="run")
    index = json.loads(Path("run/state/index.json").read_text(encoding="utf-8"))
    assert [entry["source"] for entry in index] == [source.name for source in run.sources]
    for source, entry in zip(run.sources, index, strict=True):
        matrix = load_file(f"run/state/{entry['file']}")["information_total"] / entry["n_negatives"]
        assert 0.0 < source.score.nats <= source.score.trace <= 1.0
        assert float(torch.trace(matrix)) == pytest.approx(source.score.trace, rel=RELATIVE)
        assert torch.equal(matrix, matrix.T)
        assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-12
        assert float(torch.linalg.slogdet(torch.eye(DIMENSION) + matrix).logabsdet) == pytest.approx(
            source.score.nats, rel=1e-9
        )


def plane(texts: list[str], role: str) -> np.ndarray:
    """ "p" on the first axis, "east" and "north" at equal distance from it in other directions, the query between."""
    places = {"p": (1, 0, 0), "east": (0, 1, 0), "north": (0, 0, 1)}
    return np.array([places.get(text.split()[0], (1, 1, 1)) for text in texts], np.float64)


def test_two_directions_hold_more_than_one_of_the_same_weight(tmp_path):
    def negatives(names: list[str]) -> list[Row]:
        return [
            {"query": f"q {number}", "pos": ["p"], "neg": [f"{name} x{number}"]} for number, name in enumerate(names)
        ]

    sources = {"single": negatives(["east"] * 6), "double": negatives(["east", "north"] * 3)}
    run = score(tmp_path / "planes", sources, encoder=from_callable(plane, "plane"), temperature=1.0)
    found = {source.name: source for source in run.sources}
    assert found["single"].score.trace == pytest.approx(found["double"].score.trace, rel=RELATIVE)
    assert found["single"].score.nats == pytest.approx(np.log1p(found["single"].score.trace), rel=1e-9)
    assert found["double"].score.nats > found["single"].score.nats * 1.01
    # The two directions meet at 60 degrees, so M has the eigenvalues 3/4 and 1/4 of its trace
    shares = np.array([0.75, 0.25]) * found["double"].score.trace
    assert found["double"].score.nats == pytest.approx(np.log1p(shares).sum(), rel=1e-6)


texts = st.text(alphabet="abc .é", min_size=0, max_size=6)
rows_of_texts = st.lists(
    st.fixed_dictionaries({"query": texts, "pos": st.lists(texts, max_size=2), "neg": st.lists(texts, max_size=3)}),
    min_size=3,
    max_size=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_texts)
def test_rows_read_are_used_or_skipped_whatever_they_hold(rows, tmp_path):
    sound = {"query": "a sound row", "pos": ["b positive"], "neg": ["c negative"]}
    whole = [sound, *rows]
    path = as_jsonl(tmp_path / "any", whole)
    run = secid.score(
        [path],
        encoder=from_callable(lambda items, role: np.stack([_noise(item) for item in items]), "hashed"),
        controls="none",
        max_bad_fraction=1.0,
    )
    (source,) = run.sources
    assert source.rows.n_read == len(whole)
    assert source.rows.n_read == source.rows.n_used + sum(source.rows.skipped.values())
    usable = [
        row
        for row in whole
        if row["query"].strip() and any(map(str.strip, row["pos"])) and any(map(str.strip, row["neg"]))
    ]
    assert source.rows.n_used == len(usable)
    assert 0.0 <= source.score.nats <= source.score.trace <= 1.0
