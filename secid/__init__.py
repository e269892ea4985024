"""secid ranks sources of hard negatives with the frozen target encoder.

Public names are imported when first used, so that `import secid` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from secid.version import VERSION

if TYPE_CHECKING:
    from secid.api import (
        audit,
        baseline,
        check,
        describe_encoder,
        flagged,
        gate,
        merge,
        mine,
        mine_sweep,
        mix,
        probe,
        score,
        score_on_ray,
        score_shard,
        select,
        write_mixture,
    )
    from secid.errors import SecidError
    from secid.gating.baseline import Baseline
    from secid.results import Run, SourceResult
    from secid.results.document import from_json, read_run, to_json
    from secid.results.gate import GateVerdict
    from secid.results.probe import Probe

__version__ = VERSION

_PUBLIC = {
    "Baseline": "secid.gating.baseline",
    "GateVerdict": "secid.results.gate",
    "Probe": "secid.results.probe",
    "Run": "secid.results",
    "SecidError": "secid.errors",
    "SourceResult": "secid.results",
    "audit": "secid.api",
    "baseline": "secid.api",
    "check": "secid.api",
    "describe_encoder": "secid.api",
    "flagged": "secid.api",
    "from_json": "secid.results.document",
    "gate": "secid.api",
    "merge": "secid.api",
    "mine": "secid.api",
    "mine_sweep": "secid.api",
    "mix": "secid.api",
    "probe": "secid.api",
    "read_run": "secid.results.document",
    "score": "secid.api",
    "score_on_ray": "secid.api",
    "score_shard": "secid.api",
    "select": "secid.api",
    "to_json": "secid.results.document",
    "write_mixture": "secid.api",
}

__all__ = [
    "Baseline",
    "GateVerdict",
    "Probe",
    "Run",
    "SecidError",
    "SourceResult",
    "__version__",
    "audit",
    "baseline",
    "check",
    "describe_encoder",
    "flagged",
    "from_json",
    "gate",
    "merge",
    "mine",
    "mine_sweep",
    "mix",
    "probe",
    "read_run",
    "score",
    "score_on_ray",
    "score_shard",
    "select",
    "to_json",
    "write_mixture",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'secid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
