"""The triplet table: columns by plain formulas, findings as bits, some rows of it, and what a triplet costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secid.arrays import narrow
from secid.measure.blocks import Triplets
from secid.results.catalogue import FINDINGS
from secid.scoring.run import Scored
from secid.triplets.table import TripletTable
from tests.unit.scoring.runs import scored

MOST_BYTES = 106
"""Maximum size of a triplet in memory with 10 negatives per record. It takes 102; one more column exceeds this."""


@dataclass(frozen=True)
class Plain:
    """A table written out: everything once a triplet. (T,) each; share None for one each."""

    record: np.ndarray
    positive: np.ndarray
    place: np.ndarray
    cosines: np.ndarray
    share: np.ndarray | None
    mask: np.ndarray

    def table(self, evaluated: frozenset[str] = frozenset()) -> TripletTable:
        """The table, built from scratch. cosines : (5, T) of the columns that are stored."""
        group = np.stack([self.record, self.positive])
        heads = np.flatnonzero(np.append(True, (group[:, 1:] != group[:, :-1]).any(axis=0)))
        return TripletTable(
            triplets=Triplets(
                query=narrow(self.record * 3),
                positive=narrow(self.positive),
                negative=narrow(self.place + 7),
                record_offsets=np.append(heads, len(self.record)),
                record=narrow(self.record),
                place=narrow(self.place),
                share=self.share,
            ),
            planned=None,
            temperature=0.05,
            s_query_positive=self.cosines[0, heads],
            positive_coverage=self.cosines[1, heads],
            s_query_negative=self.cosines[2],
            s_positive_negative=self.cosines[3],
            coverage=self.cosines[4],
            findings=self.mask,
            evaluated=evaluated,
        )

    def rows(self, keep: np.ndarray) -> Plain:
        share = None if self.share is None else self.share[keep]
        rest = (self.record[keep], self.positive[keep], self.place[keep], self.cosines[:, keep])
        return Plain(*rest, share, self.mask[keep])


def plain(seed: int, policy: str, n_records: int = 12) -> Plain:
    """Records of 1 to 5 negatives; under "all" with 1 to 3 positives each, whose pairs share a negative."""
    draw = np.random.default_rng(seed)
    groups, at = [], 0
    for record in range(n_records):
        n_negatives, n_positives = draw.integers(1, 6), draw.integers(1, 4) if policy == "all" else 1
        groups += [(record, 100 * record + number, at, n_negatives, 1 / n_positives) for number in range(n_positives)]
        at += n_negatives
    sizes = [size for *_, size, _ in groups]
    record, positive, share = (np.repeat([group[i] for group in groups], sizes) for i in (0, 1, 4))
    place = np.concatenate([start + np.arange(size) for _, _, start, size, _ in groups])
    cosines = np.stack([np.repeat(draw.uniform(-1, 1, len(groups)), sizes), np.repeat(draw.random(len(groups)), sizes)])
    cosines = np.concatenate([cosines, draw.uniform(-1, 1, (2, len(record))), draw.random((1, len(record)))])
    mask = draw.integers(0, 2 ** len(FINDINGS), len(record)).astype(np.uint32)
    return Plain(record, positive, place, cosines, share if policy == "all" else None, mask)


def same(one: Any, other: Any, path: str = "table") -> None:
    """Fail if two tables differ in a value, a dtype or a missing column."""
    if is_dataclass(one):
        for field in fields(one):
            same(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), path
    else:
        assert one == other, path


@pytest.mark.parametrize("policy", ["first", "all"])
def test_columns_are_the_plain_formulas(policy):
    written = plain(1, policy)
    table, (s_qp, _, s_qn, s_pn, covered) = written.table(), written.cosines
    consistency, locality = (1 / (1 + np.exp(-gap / 0.05)) for gap in (s_qp - s_qn, s_pn - s_qn))
    expected = {
        "s_query_positive": s_qp,
        "s_query_negative": s_qn,
        "s_positive_negative": s_pn,
        "consistency": consistency,
        "locality": locality,
        "coverage": covered,
        "residual": 1 - covered,
        "weight": consistency * locality * (1 - covered),
    }
    assert table.columns().keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(table.columns()[name], values, rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(table.pair_loss().numpy(), np.logaddexp(0.0, (s_qn - s_qp) / 0.05), rtol=1e-9)
    np.testing.assert_allclose(table.dots().squared_distance.numpy(), 2 - 2 * s_pn, rtol=1e-12)
    np.testing.assert_array_equal(table.repeated(table.positive_coverage), written.cosines[1])
    assert len(table) == len(s_qp)


def test_columns_of_a_run_are_those_of_its_rows(tmp_path):
    """The formulas are applied to cosines of the encoder's rows, not to those in the table."""
    rows = [{"query": f"q {n}", "pos": [f"p {n}", f"other {n}"], "neg": [f"a {n}", f"q {n}x"]} for n in range(30)]
    for policy in ("first", "all"):
        run = scored(tmp_path, {"a": rows}, positives=policy)
        (item,) = run.measured
        table, columns = item.table, item.table.columns()
        assert (columns["weight"] >= 0).all()
        assert item.table.triplets.n_negatives == 60
        share = np.ones(len(table)) if table.share is None else table.share
        assert run.run.sources[0].score.weight_mean == pytest.approx(np.average(columns["weight"], weights=share))
        assert len(table.s_query_positive) == len(set(zip(table.triplets.record, table.triplets.positive, strict=True)))


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_kept_as_it_was_given(name):
    table = plain(2, "first").table()
    table = replace(table, findings=np.zeros(len(table), np.uint32))
    draw = np.random.default_rng(3)
    flags = {other: draw.random(len(table)) < 0.5 for other in FINDINGS if other != name}
    own = draw.random(len(table)) < 0.5
    marked = table.with_findings(flags).with_findings({name: own})
    assert marked.evaluated == set(FINDINGS)
    assert marked.has(name).tolist() == own.tolist()
    assert all(marked.has(other).tolist() == flags[other].tolist() for other in flags)
    assert not table.findings.any()  # a table is never changed


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_that_was_not_evaluated_is_not_zero(name):
    table = plain(2, "first").table(frozenset(FINDINGS) - {name})
    with pytest.raises(KeyError, match=name):
        table.has(name)
    assert table.with_findings({name: np.zeros(len(table), np.bool_)}).evaluated == set(FINDINGS)


def test_a_control_has_no_rows_in_a_file():
    with pytest.raises(ValueError, match="control"):
        plain(2, "first").table().source  # noqa: B018


@given(st.integers(0, 999), st.sampled_from(["first", "all"]), st.data())
def test_some_rows_equal_the_table_of_only_these_rows(seed, policy, data):
    written = plain(seed, policy)
    n = len(written.record)
    keep = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    table = written.table(frozenset(FINDINGS))
    same(table.rows(keep), written.rows(keep).table(frozenset(FINDINGS)))


@pytest.mark.parametrize("column", ["s_query_positive", "positive_coverage", "coverage", "findings", "triplets"])
def test_the_comparison_of_tables_notices_a_damaged_column(column):
    table = plain(4, "all").table()
    other = plain(5, "all").table() if column == "triplets" else table
    value = getattr(other, column)
    damaged = replace(table, **{column: value if column == "triplets" else value[::-1]})
    with pytest.raises(AssertionError, match=column):
        same(damaged, table)


def arrays_of(value: Any, seen: set[int]) -> Iterator[tuple[int, int]]:
    """Address and size of each array that a value keeps alive: a slice keeps the whole of what it was cut from."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value.untyped_storage().data_ptr(), value.untyped_storage().nbytes()
    elif isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        yield value.ctypes.data, value.nbytes
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from arrays_of(getattr(value, field.name), seen)
    elif isinstance(value, Mapping):
        yield from (part for item in value.values() for part in arrays_of(item, seen))
    elif isinstance(value, (list, tuple)):
        yield from (part for item in value for part in arrays_of(item, seen))


def n_bytes(value: Any) -> int:
    """Return the bytes of all arrays that a value keeps alive, each counted once."""
    return sum(dict(arrays_of(value, set())).values())


def test_bytes_of_arrays_count_once_and_whole():
    column = np.zeros(100)
    assert n_bytes([column, {"again": column}, (column[:3],)]) == 800
    assert n_bytes(column[::50]) == 800
    tensor = torch.zeros(10, dtype=torch.float64)
    assert n_bytes([tensor, tensor.numpy()]) == 80


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Scored:
    rows = [
        {"query": f"query {n}", "pos": [f"positive {n}"], "neg": [f"negative {n} {k}" for k in range(10)]}
        for n in range(1000)
    ]
    return scored(tmp_path_factory.mktemp("large"), {"a": rows})


def test_a_triplet_takes_few_bytes_and_one_more_column_would_be_noticed(large):
    n_triplets = sum(len(item.table) for item in large.measured)
    assert n_triplets == 10_000
    assert n_bytes(large.measured) <= MOST_BYTES * n_triplets
    assert n_bytes([large.measured, np.zeros(n_triplets)]) > MOST_BYTES * n_triplets
