"""secid ranks sources of hard negatives with the frozen target encoder.

Public names are imported when first used, so that `import secid` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Never

if TYPE_CHECKING:
    from secid.analyses.registry import from_json, read_run, to_json
    from secid.api import (
        audit,
        baseline,
        check,
        describe_encoder,
        flagged,
        gate,
        mix,
        probe,
        score,
        select,
        write_mixture,
    )
    from secid.errors import SecidError
    from secid.results import Run, SourceReport
    from secid.results.gate import GateVerdict
    from secid.results.probe import Probe
    from secid.tools.gating.baseline import Baseline
    from secid.tools.mining.mine import mine, mine_sweep
    from secid.tools.shards.run import merge, score_on_ray, score_shard

__version__ = "0.1.0"

_MODULES = {
    "Baseline": "secid.tools.gating.baseline",
    "GateVerdict": "secid.results.gate",
    "Probe": "secid.results.probe",
    "Run": "secid.results",
    "SecidError": "secid.errors",
    "SourceReport": "secid.results",
    "from_json": "secid.analyses.registry",
    "merge": "secid.tools.shards.run",
    "mine": "secid.tools.mining.mine",
    "mine_sweep": "secid.tools.mining.mine",
    "read_run": "secid.analyses.registry",
    "score_on_ray": "secid.tools.shards.run",
    "score_shard": "secid.tools.shards.run",
    "to_json": "secid.analyses.registry",
}
"""The module of each public name that is not in secid.api."""

__all__ = [
    "Baseline",
    "GateVerdict",
    "Probe",
    "Run",
    "SecidError",
    "SourceReport",
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
    if name not in __all__:
        raise AttributeError(f"module 'secid' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES.get(name, "secid.api")), name)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("secid.tools."):
            raise
        missing = error  # a call raises it, so that only functions of a tool that is not installed fail

    def refuse(*_: Any, **__: Any) -> Never:
        raise missing

    return refuse


def __dir__() -> list[str]:
    return __all__
