"""The error tree: every error that secid raises on purpose is a `SecidError`.

A message says where (file:line), what is wrong, got against expected, and what to do next.
`exit_code` of a class is the exit code of the command that raises it.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secid.results import Run


BUG_REMEDY = "please report it with your settings and the output of `secid doctor`"
"""Remedy for an error of secid itself, which the user cannot mend."""


class SecidError(Exception):
    """Base class of all errors that secid raises on purpose.

    message : what went wrong, got against expected.
    where   : file, file:line, setting or text with the fault; printed first.
    remedy  : what the user can do; printed last.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return f"{where}{self.message}{remedy}"


class UsageError(SecidError):
    """A wrong flag, a wrong name, or a wrong combination of flags or names."""


class SettingsError(UsageError):
    """A setting that is unknown, has the wrong type or is out of range, wherever it was set."""


class InputError(SecidError):
    """An input file that cannot be read or understood as a whole."""


class SchemaError(InputError):
    """The shape of a file is unknown, or fits several schemas."""


class BadRecordsError(InputError):
    """Too many malformed rows, or a single one with on_bad = fail."""


class NothingToScoreError(InputError):
    """There is no source, or a source has no triplets."""


class EncoderError(SecidError):
    """The encoder cannot be found, loaded or trusted."""


class UnreachableError(EncoderError):
    """The hub with the encoder's files cannot be reached."""


class EndpointError(SecidError):
    """The server of a language model cannot be reached, or rejects a request."""


class OutputError(SecidError):
    """A result cannot be written where the user asked."""


class RunNotWrittenError(OutputError):
    """A run was scored, but its folder could not be written. The attribute `run` holds the result."""

    def __init__(self, error: OutputError, run: Run) -> None:
        super().__init__(error.message, where=error.where, remedy=error.remedy)
        self.run = run

    def __reduce__(self) -> tuple[type[RunNotWrittenError], tuple[OutputError, Run]]:
        """Pickle the error, so that a child process can hand it to its parent."""
        return type(self), (OutputError(self.message, where=self.where, remedy=self.remedy), self.run)


class NotEvaluatedError(SecidError):
    """A number could not be computed, so it supports no conclusion."""

    exit_code = 3


class NumericalError(NotEvaluatedError):
    """A number is outside the range in which the result is meaningful."""


class NonFiniteEmbeddingError(NumericalError):
    """The encoder returned NaN or infinity for a text (METHOD 11)."""


def plain_message(error: Exception) -> str:
    """Return the message of a system or library error, without its number or type."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or "no reason given"


def is_encryption_error(error: Exception) -> bool:
    """Return True if pyarrow failed on a Parquet file because the file or a column is encrypted."""
    return "decrypt" in str(error)


def suggest_name(name: str, names: Collection[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return the remedy for an unknown name: suggest the most similar known name, or return `otherwise`.

    cutoff : minimum similarity of a suggestion, 0 to 1, as in difflib.
    """
    near = get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise


def install_command(extra: str) -> str:
    return f"pip install 'secid[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
