"""Immutable results, which pages can show without torch, an encoder or the data.

`secid.results.document` converts them to JSON and back. Every field is described in these modules.
Fractions lie in [0, 1], and `_nats` are natural-log units. If a value is None, the reason is given elsewhere.
"""

from secid.results.inputs import EncoderInfo, Example, IdfInfo, InputFile, Match, TripletExample
from secid.results.run import (
    SCHEMA_VERSION,
    Agreement,
    Comparison,
    EarlyPair,
    EarlyStop,
    Look,
    Merged,
    Overlap,
    Run,
    RunWarning,
)
from secid.results.sources import (
    Against,
    AmongPositives,
    BudgetPoint,
    ControlResult,
    Hardness,
    Languages,
    Proxies,
    RowCounts,
    Score,
    SourceFinding,
    SourceReport,
    SourceScore,
    Status,
    WithoutFlagged,
    control_name,
    defects_to_drop,
)

__all__ = [
    "SCHEMA_VERSION",
    "Against",
    "Agreement",
    "AmongPositives",
    "BudgetPoint",
    "Comparison",
    "ControlResult",
    "EarlyPair",
    "EarlyStop",
    "EncoderInfo",
    "Example",
    "Hardness",
    "IdfInfo",
    "InputFile",
    "Languages",
    "Look",
    "Match",
    "Merged",
    "Overlap",
    "Proxies",
    "RowCounts",
    "Run",
    "RunWarning",
    "Score",
    "SourceFinding",
    "SourceReport",
    "SourceScore",
    "Status",
    "TripletExample",
    "WithoutFlagged",
    "control_name",
    "defects_to_drop",
]
