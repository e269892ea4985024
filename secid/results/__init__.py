"""Frozen results: what every page shows, with no torch, no encoder and no data behind it.

`secid.results.document` turns these into JSON and back; a field is described once, here.
Fractions lie in [0, 1]; `_nats` are natural-log units; None always comes with a reason.
"""

from secid.results.between import (
    Comparison,
    Crossing,
    EarlyPair,
    EarlyStop,
    EqualNumbers,
    Look,
    Overlap,
    Slice,
    SliceSource,
)
from secid.results.inputs import EncoderInfo, Example, IdfInfo, InputFile, Match, TripletExample
from secid.results.orders import Ablation, AblationRow, Agreement
from secid.results.run import SCHEMA_VERSION, Run, RunWarning
from secid.results.sources import (
    Against,
    BudgetPoint,
    ControlIdentity,
    ControlResult,
    Languages,
    Measurement,
    Proxies,
    SourceFinding,
    SourceIdentity,
    SourceResult,
    Status,
    WithoutFlagged,
    control_name,
)

__all__ = [
    "SCHEMA_VERSION",
    "Ablation",
    "AblationRow",
    "Against",
    "Agreement",
    "BudgetPoint",
    "Comparison",
    "ControlIdentity",
    "ControlResult",
    "Crossing",
    "EarlyPair",
    "EarlyStop",
    "EncoderInfo",
    "EqualNumbers",
    "Example",
    "IdfInfo",
    "InputFile",
    "Languages",
    "Look",
    "Match",
    "Measurement",
    "Overlap",
    "Proxies",
    "Run",
    "RunWarning",
    "Slice",
    "SliceSource",
    "SourceFinding",
    "SourceIdentity",
    "SourceResult",
    "Status",
    "TripletExample",
    "WithoutFlagged",
    "control_name",
]
