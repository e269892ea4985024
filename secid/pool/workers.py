"""Run a function on many parts of the texts, in child processes if there are many texts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Thread, current_thread, main_thread
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from secid.errors import NotEvaluatedError
from secid.parallel import in_order

MIN_TEXTS_FOR_PROCESSES = 100_000
"""Minimum number of texts for child processes. The rules take 5 s for this many texts. A process starts in 1.2 s, and
two processes on shared cores are a tenth slower than one."""
MAX_WORKERS = 16
PARTS_PER_WORKER = 2
"""Number of parts to queue per worker: enough to keep it busy, but few enough that few results wait."""
CORES_PER_CALL = 4
"""Number of cores for each call of `child_processes`, because tokenizing uses up to four threads."""
NICENESS = 10
"""Added to the niceness of processes that work during encoding, so that the threads that feed a GPU come first. On two
cores, a simulated GPU is busy 78 % of the time instead of 63 %."""
Part = TypeVar("Part")
Result = TypeVar("Result")
Call = Callable[..., Callable[[], Any]]


class _Process(SpawnProcess):
    """A child process that does not run its parent's script again, and leaves Ctrl-C to the parent."""

    def start(self) -> None:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Context(SpawnContext):
    """A multiprocessing context that tracks its processes. children: all processes that it created."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[_Process] = []

    def Process(self, *arguments: Any, **options: Any) -> _Process:  # type: ignore[override]  # noqa: N802
        self.children.append(_Process(*arguments, **options))
        return self.children[-1]

    def terminate(self) -> None:
        """End all processes that were started."""
        for child in self.children:
            if child.pid is not None:
                child.terminate()


class Workers:
    """Child processes for n_texts texts. With few texts, no child process is used.

    threads : maximum number of processes, as in the setting `threads`; None for one per core.
    n       : number of workers; 1 without child processes.
    The results do not depend on the number of workers.
    """

    def __init__(self, n_texts: int, threads: int | None = None) -> None:
        n, self._context = n_workers(n_texts, threads), _Context()
        self._pool = None if n < 2 else _pool_of(n, self._context)
        self.n = 1 if self._pool is None else n

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:  # also Ctrl-C: a second one must not interrupt a wait for unfinished parts
            self._context.terminate()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def start(self, function: Callable[[Part], Result], part: Part) -> Callable[[], Result]:
        """Call a function of a module in a child process, and return a function that waits for its result.

        Without child processes, the first wait calls the function. Waiting raises as `map` does.
        """
        if self._pool is None:
            return cache(partial(function, part))
        with _deaths():
            return partial(_result_of, _submitted(self._pool, function, part))

    def map(self, function: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
        """Yield the results for the parts in order. function: function of a module, so that children can import it.

        Raises NotEvaluatedError if a worker dies.
        """
        if self._pool is None:
            yield from map(function, parts)
            return
        with _deaths():
            yield from in_order(partial(_submitted, self._pool, function), parts, PARTS_PER_WORKER * self.n)


@contextmanager
def in_child_process(
    n_texts: int, threads: int | None, function: Callable[..., Result], *arguments: Any
) -> Iterator[Callable[[], Result]]:
    """Call a function in a child process during the block. Yield a function that waits for its result."""
    with child_processes(1, n_texts, threads) as call:
        yield call(function, *arguments)


@contextmanager
def child_processes(n_calls: int, n_texts: int, threads: int | None) -> Iterator[Call]:
    """Yield a function that starts a module's function in a child process and returns a function that waits for its
    result.

    n_calls : number of calls. With CORES_PER_CALL cores for each, they run at once; otherwise some wait for others.
    n_texts, threads : as in `Workers`.
    Without a child process, the first wait calls the function. Child processes end with the block, even if they have
    not finished. Waiting raises NotEvaluatedError if one died.
    """
    context = _Context()
    n = max(1, min(n_calls, n_cores(threads) // CORES_PER_CALL))
    pool = None if n_workers(n_texts, threads) < 2 else _pool_of(n, context, NICENESS)

    def call(function: Callable[..., Result], *arguments: Any) -> Callable[[], Result]:
        if pool is not None:
            with suppress(OSError):  # no room for a process
                return partial(_result_of, _submitted(pool, function, *arguments))
        return cache(partial(function, *arguments))

    try:
        yield call
    finally:
        context.terminate()
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    with _signals_later():
        return pool.submit(_run, function, *arguments)


def _run(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a child process. SIGTERM ends the process, not only the call, as the pool would do."""
    try:
        return function(*arguments)
    except SystemExit:  # from `_prepare_child`; blocks of the function have ended its own children
        os._exit(1)


def _result_of(call: Future[Result]) -> Result:
    with _deaths():
        return call.result()


@contextmanager
def _deaths() -> Iterator[None]:
    """Raise NotEvaluatedError if a child process died."""
    try:
        yield
    except BrokenProcessPool as error:
        raise NotEvaluatedError(
            "a worker process ended before its texts were done, perhaps because memory ran out",
            remedy="use --set threads=1, which needs no worker processes",
        ) from error


@contextmanager
def _signals_later() -> Iterator[None]:
    """Delay signals that end the program, because an executor interrupted while starting a process waits forever."""
    if current_thread() is not main_thread():  # handlers run in the main thread
        yield
        return
    numbers: list[int] = []
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handlers = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: numbers.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in numbers:
            signal.raise_signal(number)


def _pool_of(n: int, context: _Context, niceness: int = 0) -> ProcessPoolExecutor | None:
    """Return a pool of n processes; None on systems without the necessary locks or shared memory."""
    try:
        return ProcessPoolExecutor(n, context, _prepare_child, (niceness,))
    except (OSError, ImportError, NotImplementedError):
        return None


def n_workers(n_texts: int, threads: int | None) -> int:
    """Return the number of workers for n_texts; with 1 there is no child process. threads : as in `Workers`."""
    few = n_texts < MIN_TEXTS_FOR_PROCESSES or current_process().daemon  # daemons may not have children
    return 1 if few else min(MAX_WORKERS, n_cores(threads))


def n_cores(threads: int | None) -> int:
    """Return the setting `threads`, or if it is None, the number of cores that this process may use."""
    if threads is not None:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _prepare_child(niceness: int) -> None:
    """Lower a child's priority, and make it end when its parent ends, for whatever reason, its own children first.

    niceness : added to the child's niceness, where the system has one.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if niceness and hasattr(os, "nice"):  # not on Windows
        os.nice(niceness)
    Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
