"""An analysis: a name, the type of its result, and a function that computes the result from a measured run.

Each analysis has its own file. `registry.ANALYSES` lists them all, and the section of the report has the same name.
These files are imported to read a report, so torch, SciPy and modules that load them are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from secid.analyses.controls import Control
    from secid.analyses.equal_hardness import EqualHardness
    from secid.analyses.shared_queries import SourcePairs
    from secid.findings.summary import SourceFindings
    from secid.measure.false_negatives import Conflicts
    from secid.measure.interval import Difference
    from secid.pool import Plan
    from secid.progress import Progress
    from secid.read.collection import Collection
    from secid.results import EarlyStop, EncoderInfo, Run, RunWarning, WithoutFlagged
    from secid.settings import Settings
    from secid.triplets.embedding import Embedder
    from secid.triplets.estimates import Estimate
    from secid.triplets.measure_set import Aspect, Measured, Measurer
    from secid.triplets.random_reference import RandomReference


R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A measured run. Every list has the sources in rank order, with unranked sources at the end.

    items : sources with all of their queries.
    table : sources restricted to the queries that all sources share, if the results table uses only these queries;
            otherwise the same as `items`.
    equal_size : `table` cut to equal size, for budgets beyond 1; None if that is impossible.
    ranked : sets of triplets used for ranking: `equal_size` for a budget beyond 1 if it exists, otherwise `table`.
    pairs : all pairs of sources, at the run's budget.
    equal_hardness : the same pairs at equal hardness, and the sources that are not ranked.
    control_gaps : for each control, each source's score minus the control's score, by name of the source.
    guide : the second scorer, whose scores are columns of the items' tables; None without one.
    collection : None without --collection.   batch_rows : conflicts over all rows of a source's files, by source.
    suite : the aspects that --ablate varies; their scores are in `ranked`.
    stages : seconds and counts of each stage so far.
    not_evaluated : by name of each part that could not be computed, the kind of reason.
    """

    plan: Plan
    settings: Settings
    items: Sequence[Measured]
    table: Sequence[Measured]
    equal_size: Sequence[Measured] | None
    ranked: Sequence[Measured]
    pairs: SourcePairs
    equal_hardness: EqualHardness
    controls: Sequence[tuple[Control, Measured]]
    control_gaps: Sequence[Mapping[str, Difference]]
    findings: Mapping[str, SourceFindings]
    hardness: Mapping[str, Estimate]
    without_flagged: Mapping[str, WithoutFlagged]
    reference: RandomReference | None
    guide: EncoderInfo | None
    collection: Collection | None
    batch_rows: Mapping[str, Conflicts]
    suite: Sequence[Aspect]
    early_stop: EarlyStop | None
    warnings: tuple[RunWarning, ...]
    not_evaluated: Mapping[str, str]
    embedder: Embedder
    measurer: Measurer
    stages: Mapping[str, Mapping[str, float]]
    progress: Progress


@dataclass(frozen=True)
class AnalysisResult(Generic[R]):
    """Outcome of an analysis. result: None if the analysis was not requested or could not be computed.

    not_evaluated : by name of each part that could not be computed, the kind of reason.
    """

    result: R | None = None
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis(Generic[R]):
    """An analysis. name: key of its result in `Run.analyses`, and name of its section.   kind: type of the result."""

    name: str
    kind: type[R]
    compute: Callable[[Context], AnalysisResult[R]]

    def of(self, run: Run) -> R | None:
        """Return this analysis's result in a run; None if there is none."""
        return run.analyses.get(self.name)
