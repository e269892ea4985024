"""Compare the overlap of sources with numbers computed by Python sets."""

from __future__ import annotations

import numpy as np
import pytest

from secid.analyses.overlap import SourceNegatives, overlaps


def listed(name: str, pairs: list[tuple[int, int]]) -> SourceNegatives:
    query, negative = np.array(pairs, np.int64).T
    return SourceNegatives(name, query, negative)


def test_against_sets():
    draw = np.random.default_rng(3)
    first = [(int(q), int(n)) for q, n in zip(draw.integers(0, 9, 60), draw.integers(0, 30, 60), strict=True)]
    second = [(int(q), int(n)) for q, n in zip(draw.integers(4, 12, 40), draw.integers(10, 50, 40), strict=True)]
    (found,) = overlaps([listed("a", first), listed("b", second)])
    queries = [{q for q, _ in pairs} for pairs in (first, second)]
    documents = [{n for _, n in pairs} for pairs in (first, second)]
    both = queries[0] & queries[1]
    ratios = []
    for query in both:
        a, b = ({n for q, n in pairs if q == query} for pairs in (first, second))
        ratios.append(len(a & b) / len(a | b))
    assert 0 < np.mean(ratios) < 1
    assert found.negative_jaccard_mean == pytest.approx(np.mean(ratios))
    assert found.shared_query_fraction == pytest.approx(len(both) / min(map(len, queries)))
    assert found.shared_document_fraction == pytest.approx(len(documents[0] & documents[1]) / min(map(len, documents)))


def test_no_shared_query_gives_no_jaccard():
    (found,) = overlaps([listed("a", [(0, 1)]), listed("b", [(1, 1)])])
    assert (found.shared_query_fraction, found.negative_jaccard_mean, found.shared_document_fraction) == (0, None, 1)


def test_one_source_has_no_pair_and_three_have_three():
    one = listed("a", [(0, 1)])
    assert overlaps([one]) == ()
    assert [(item.first, item.second) for item in overlaps([one, one, one])] == [("a", "a")] * 3


def test_many_sources_share_what_each_pair_of_them_shares():
    """All are compared in one pass; a pair alone is the same."""
    draw = np.random.default_rng(5)
    sources = [
        listed(f"s{place}", list(zip(draw.integers(place, place + 6, 40), draw.integers(0, 25, 40), strict=True)))
        for place in range(7)
    ]
    found = overlaps(sources)
    assert len(found) == 21
    names = {source.name: source for source in sources}
    for shared in found:
        assert (shared,) == overlaps([names[shared.first], names[shared.second]])
