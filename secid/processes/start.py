"""Processes that take work off this one: started as fresh interpreters, ended with the work whatever happens.

Not forked: this process may have threads of torch. Not multiprocessing's spawn, which runs the caller's
script again. A helper has no part in the terminal: Ctrl-C reaches this process alone, which ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any

from secid.processes.wire import receive, send

HELPER_BYTES = 32 << 20
"""Texts for which one more process is started: its start takes as long as reading or lexing a quarter of that."""
MAX_HELPERS = 7
"""Processes beyond a few wait for the one that joins what they did."""
START = "import sys; sys.path[:] = {path!r}; from {module} import {name} as serve; serve()"


class Helper:
    """Another process, by its standard input and output. Both methods raise OSError or EOFError where it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def tell(self, value: Any) -> None:
        """Sends it a message."""
        if self.process.stdin is None:
            raise EOFError
        send(self.process.stdin, value)

    def answer(self) -> Any:
        """Waits for a message from it."""
        if self.process.stdout is None:
            raise EOFError
        return receive(self.process.stdout)


def worth_starting(n_bytes: int) -> int:
    """Number of processes that are worth their start beside this one; 0 for small inputs, or on one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - 1, MAX_HELPERS, n_bytes // HELPER_BYTES)


def started(serve: Callable[[], None]) -> Helper | None:
    """A new interpreter that calls this function of a module; None where no process is to be had.

    The function reads and writes the `ends` of its process, and returns where what it reads is at its end.
    """
    start = START.format(path=sys.path, module=serve.__module__, name=serve.__name__)
    with suppress(OSError):
        command = [sys.executable, "-c", start]
        pipe = subprocess.PIPE
        return Helper(subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True))
    return None


def ends() -> tuple[IO[bytes], IO[bytes]]:
    """What a helper reads and writes: nothing else is written between its answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers


def stopped(helpers: Iterable[Helper]) -> None:
    """Ends the processes, at whatever they are."""
    processes = [helper.process for helper in helpers]
    for process in processes:
        process.kill()
    for process in processes:
        # Closes the pipes and waits; one of a helper that died may hold a request that cannot be sent.
        with suppress(OSError), process:
            pass
