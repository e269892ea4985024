"""Other processes that take work off this one, and what is said to them."""

from secid.processes.start import Helper, ends, started, stopped, worth_starting
from secid.processes.wire import ERRORS, HelperFailedError, error_of, receive, send, told

__all__ = [
    "ERRORS",
    "Helper",
    "HelperFailedError",
    "ends",
    "error_of",
    "receive",
    "send",
    "started",
    "stopped",
    "told",
    "worth_starting",
]
