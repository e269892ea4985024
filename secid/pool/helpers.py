"""Helper processes that read shares of the files beside this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from secid.processes import Helper, error_of, started, stopped
from secid.read import Share

WAIT_SECONDS = 0.05
"""Time between two looks at what helpers have done."""


class Job(NamedTuple):
    """A share of the source of this number; all of the source, for this process alone, where share is None."""

    source: int
    share: Share | None


class Helpers:
    """Helper processes, one for each task; `tasks` is what each is started with. Ends them on leaving.

    serve     : what a helper runs.
    result_of : the result of a job, from what a helper sent.
    """

    def __init__(self, serve: Callable[[], None], tasks: Sequence[Any], result_of: Callable[[Any], Any]) -> None:
        self._serve, self._tasks, self._result_of = serve, tasks, result_of
        self._helpers: list[Helper] = []
        self._lock = threading.Lock()
        self._jobs: Sequence[Job] = ()
        self._waiting: list[int] = []
        self._found: dict[int, Any] = {}
        self._finished: list[int] = []

    def __enter__(self) -> Helpers:
        self._helpers = [helper for _ in self._tasks if (helper := started(self._serve))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stopped(self._helpers)

    def run(self, jobs: Sequence[Job], mine: Callable[[Job], Any], passed: Callable[[Job], None]) -> list[Any]:
        """The result of each job, done here by `mine` or by a helper. passed: told of each that is done.

        Raises the error of the first job in order that has one.
        """
        self._jobs, self._waiting = jobs, list(range(len(jobs)))
        threads = [
            threading.Thread(target=self._ask, args=pair, daemon=True)
            for pair in zip(self._helpers, self._tasks, strict=False)
        ]
        for thread in threads:
            thread.start()
        while True:
            number = self._next(helper=False)
            if number is not None:
                try:
                    self._done(number, mine(jobs[number]))
                except Exception as error:
                    self._done(number, error)
            elif any(thread.is_alive() for thread in threads):
                threads[-1].join(WAIT_SECONDS)
                threads.sort(key=threading.Thread.is_alive)
            elif not self._waiting:
                break
            self._tell(passed)
        return [self._found.pop(number) for number in range(len(jobs))]

    def _tell(self, passed: Callable[[Job], None]) -> None:
        """Reports what is done since the last time; raises the first error, once all jobs before it are done."""
        with self._lock:
            finished, self._finished = self._finished, []
            failed = min((n for n, found in self._found.items() if isinstance(found, Exception)), default=None)
            settled = failed is not None and all(n in self._found for n in range(failed))
        if failed is not None and settled:
            raise self._found[failed]
        for number in finished:
            passed(self._jobs[number])

    def _next(self, *, helper: bool) -> int | None:
        """A job to be done now. Jobs behind one that failed are not."""
        with self._lock:
            failed = min(
                (n for n, found in self._found.items() if isinstance(found, Exception)), default=len(self._jobs)
            )
            self._waiting = [n for n in self._waiting if n < failed]
            fit = [n for n in self._waiting if not helper or self._jobs[n].share is not None]
            # What only this process can do comes first here, since helpers would wait for it in the end.
            number = min(fit, key=lambda n: (self._jobs[n].share is not None, n), default=None)
            if number is not None:
                self._waiting.remove(number)
            return number

    def _done(self, number: int, found: Any) -> None:
        with self._lock:
            self._found[number] = found
            self._finished.append(number)

    def _ask(self, helper: Helper, task: Any) -> None:
        """Gives jobs to a helper, one at a time. Where it dies, its job is done here."""
        number = None
        try:
            helper.tell(task)
            while (number := self._next(helper=True)) is not None:
                helper.tell(self._jobs[number])
                answer = helper.answer()
                failed = answer.get("error")
                self._done(number, error_of(failed) if failed else self._result_of(answer["part"]))
        except (OSError, EOFError, ValueError):
            if number is not None:
                with self._lock:
                    self._waiting.append(number)
