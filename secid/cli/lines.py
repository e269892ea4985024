"""Writes lines to standard output and standard error through the sanitiser.

`pages.terminal` prints pages, `console` prints notes and progress. A test checks that nothing else writes.
"""

from __future__ import annotations

import sys
from contextlib import suppress


def say(*lines: str) -> None:
    """Print lines to standard output."""
    from secid.pages.sanitize import log_line

    sys.stdout.write("".join(f"{log_line(line)}\n" for line in lines))


def complain(text: str) -> None:
    """Print a text of one or more lines to standard error, which may be closed."""
    from secid.pages.sanitize import log_line

    with suppress(OSError, AttributeError):
        sys.stderr.write("".join(f"{log_line(line)}\n" for line in text.rstrip("\n").split("\n")))
        sys.stderr.flush()


def say_json(text: str) -> None:
    """Print a JSON document to standard output."""
    from secid.pages.sanitize import json_shown

    sys.stdout.write(json_shown(text))
