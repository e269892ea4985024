"""Reference for the probe in plain Python: groups, near copies, measures, and the error of a mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def groups(
    n_queries: int, labelled: Iterable[tuple[int, int]], copies: Iterable[tuple[int, int]]
) -> set[frozenset[int]]:
    """Return the queries of each group, merged one by one until nothing changes."""
    parent = {("q", query): ("q", query) for query in range(n_queries)}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        parent.setdefault(node, node)
        while parent[node] != node:
            node = parent[node]
        return node

    for first, second in [
        *((("q", query), ("p", passage)) for query, passage in labelled),
        *((("p", one), ("p", other)) for one, other in copies),
    ]:
        parent[root(first)] = root(second)
    members: dict[tuple[str, int], set[int]] = {}
    for query in range(n_queries):
        members.setdefault(root(("q", query)), set()).add(query)
    return {frozenset(own) for own in members.values()}


def runs(text: str) -> set[tuple[str, ...]]:
    """Return the five-word windows of a text of plain words."""
    words = text.lower().split()
    return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}


def near_copy(first: str, second: str) -> bool:
    """Return whether the texts are equal, or one has 80 % of the other's runs."""
    if first.lower().split() == second.lower().split():
        return True
    left, right = runs(first), runs(second)
    common = len(left & right)
    return any(len(own) >= 2 and 5 * common >= 4 * len(own) for own in (left, right))


def measures(
    queries: Sequence[Sequence[float]], candidates: Sequence[Sequence[float]], relevant: Sequence[set[int]]
) -> list[list[float]]:
    """Return nDCG@10, MRR@10 and recall@100 of each query. Of equal scores the earlier candidate comes first."""
    out = []
    for query, wanted in zip(queries, relevant, strict=True):
        scores = [sum(a * b for a, b in zip(query, candidate, strict=True)) for candidate in candidates]
        ranked = sorted(range(len(candidates)), key=lambda place: (-scores[place], place))
        gain = sum(1 / math.log2(rank + 2) for rank, place in enumerate(ranked[:10]) if place in wanted)
        ideal = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(wanted))))
        first = next((rank for rank, place in enumerate(ranked[:10]) if place in wanted), None)
        recall = sum(place in wanted for place in ranked[:100]) / len(wanted)
        out.append([gain / ideal, 0.0 if first is None else 1 / (first + 1), recall])
    return out
