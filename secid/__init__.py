"""secid ranks sources of hard negatives with the frozen target encoder.

Public names are imported when first used, so that `import secid` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secid.api import score
    from secid.errors import SecidError
    from secid.report.document import from_json, read_run, to_json
    from secid.results import Run, SourceResult

__version__ = "0.1.0"

_PUBLIC = {
    "Run": "secid.results",
    "SecidError": "secid.errors",
    "SourceResult": "secid.results",
    "from_json": "secid.report.document",
    "read_run": "secid.report.document",
    "score": "secid.api",
    "to_json": "secid.report.document",
}

__all__ = ["Run", "SecidError", "SourceResult", "__version__", "from_json", "read_run", "score", "to_json"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'secid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
