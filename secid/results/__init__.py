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
from secid.results.cost import Cost
from secid.results.in_batch import BatchSize, InBatch
from secid.results.inputs import EncoderInfo, Example, IdfInfo, InputFile, Match, TripletExample
from secid.results.objectives import Narrowing, ObjectiveLens, ObjectiveResult, RecordSize
from secid.results.orders import Ablation, AblationRow, Agreement
from secid.results.run import SCHEMA_VERSION, Merged, Run, RunWarning
from secid.results.separation import CorpusSeparation, Separated, SourceSeparation
from secid.results.sources import (
    Against,
    AmongPositives,
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
    defects_to_drop,
)

__all__ = [
    "SCHEMA_VERSION",
    "Ablation",
    "AblationRow",
    "Against",
    "Agreement",
    "AmongPositives",
    "BatchSize",
    "BudgetPoint",
    "Comparison",
    "ControlIdentity",
    "ControlResult",
    "CorpusSeparation",
    "Cost",
    "Crossing",
    "EarlyPair",
    "EarlyStop",
    "EncoderInfo",
    "EqualNumbers",
    "Example",
    "IdfInfo",
    "InBatch",
    "InputFile",
    "Languages",
    "Look",
    "Match",
    "Measurement",
    "Merged",
    "Narrowing",
    "ObjectiveLens",
    "ObjectiveResult",
    "Overlap",
    "Proxies",
    "RecordSize",
    "Run",
    "RunWarning",
    "Separated",
    "Slice",
    "SliceSource",
    "SourceFinding",
    "SourceIdentity",
    "SourceResult",
    "SourceSeparation",
    "Status",
    "TripletExample",
    "WithoutFlagged",
    "control_name",
    "defects_to_drop",
]
