"""secid ranks sources of hard negatives with the frozen target encoder.

Public names are imported when first used, so that `import secid` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from secid.version import VERSION

if TYPE_CHECKING:
    from secid.analyses.registry import from_json, read_run, to_json
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
    from secid.results import Run, SourceResult
    from secid.results.gate import GateVerdict
    from secid.results.probe import Probe
    from secid.tools.gating.baseline import Baseline

__version__ = VERSION

_MODULES = {
    "Baseline": "secid.tools.gating.baseline",
    "GateVerdict": "secid.results.gate",
    "Probe": "secid.results.probe",
    "Run": "secid.results",
    "SecidError": "secid.errors",
    "SourceResult": "secid.results",
    "from_json": "secid.analyses.registry",
    "read_run": "secid.analyses.registry",
    "to_json": "secid.analyses.registry",
}
"""Where the public names are that are not in secid.api."""

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
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "secid.api")), name)
    raise AttributeError(f"module 'secid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
