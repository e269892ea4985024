"""Results of parallel calls, in the order of their inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Yield the results in the order of the items. Up to `ahead` further items are already submitted.

    The error of a call is raised at the place of its result.
    """
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
