"""Processes that take work off this one: started as fresh interpreters, ended with the work whatever happens.

Not forked: this process may have threads of torch. Not multiprocessing's spawn, which runs the caller's
script again. A helper has no part in the terminal: Ctrl-C reaches this process alone, which ends it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from secid.data import Share
from secid.plan.wire import error_of, receive, send

WAIT_SECONDS = 0.05
"""Time between two looks at what helpers have done."""


class Job(NamedTuple):
    """A share of the source of this number; all of the source, for this process alone, where share is None."""

    source: int
    share: Share | None


class Helpers:
    """Helper processes, one for each task; `tasks` is what each is started with. Ends them on leaving.

    result_of: the result of a job, from what a helper sent.
    """

    def __init__(self, tasks: Sequence[Any], result_of: Callable[[Any], Any]) -> None:
        self._tasks, self._result_of = tasks, result_of
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._jobs: Sequence[Job] = ()
        self._waiting: list[int] = []
        self._found: dict[int, Any] = {}
        self._finished: list[int] = []

    def __enter__(self) -> Helpers:
        start = f"import sys; sys.path[:] = {sys.path!r}; from secid.plan.gathering import serve; serve()"
        for _ in self._tasks:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", start],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError:  # no process to be had: this one does the work
                break
            self._processes.append(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            # Closes the pipes and waits; one of a helper that died may hold a request that cannot be sent.
            with suppress(OSError), process:
                pass

    def run(self, jobs: Sequence[Job], mine: Callable[[Job], Any], passed: Callable[[Job], None]) -> list[Any]:
        """The result of each job, done here by `mine` or by a helper. passed: told of each that is done.

        Raises the error of the first job in order that has one.
        """
        self._jobs, self._waiting = jobs, list(range(len(jobs)))
        threads = [
            threading.Thread(target=self._ask, args=pair, daemon=True)
            for pair in zip(self._processes, self._tasks, strict=False)
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

    def _ask(self, process: subprocess.Popen[bytes], task: Any) -> None:
        """Gives jobs to a helper, one at a time. Where it dies, its job is done here."""
        requests, answers = process.stdin, process.stdout
        if requests is None or answers is None:
            return
        number = None
        try:
            send(requests, task)
            while (number := self._next(helper=True)) is not None:
                send(requests, self._jobs[number])
                answer = receive(answers)
                failed = answer.get("error")
                self._done(number, error_of(failed) if failed else self._result_of(answer["part"]))
        except (OSError, EOFError, ValueError):
            if number is not None:
                with self._lock:
                    self._waiting.append(number)
