"""The score of a mixture of a run's sources at given shares, from the saved states alone.

Nothing is encoded or read again: M(alpha) = sum alpha_s M_s is all that a hybrid needs. No shares are recommended: at
B = 1 the score is nearly the mean weight, so the best would be nearly the source of the easiest negatives alone.
Source: METHOD 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from secid.errors import UsageError
from secid.measure.information import InformationState, eigenvalues, mixed, spectral_nats
from secid.records import Fact
from secid.results import Run
from secid.results.sources import Status
from secid.run_folder.read import read_states
from secid.settings import FIELDS

MIX_SCHEMA_VERSION = "2.0"
SUM_SLACK = 0.015
"""By which a sum of shares may miss 1: three shares, each rounded to two decimals, miss it by no more."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One source of a mixture.

    share       : its proportion.   n_negatives : how many of its negatives the score is of.
    single_nats : its own score at the budget.
    status, repair : the run's answer to the source, and the command that repairs it if it is to be repaired.
    """

    name: str
    share: float
    n_negatives: float
    single_nats: float
    status: Status
    repair: str | None


@dataclass(frozen=True, kw_only=True)
class MixtureScore:
    """The score of a mixture at a budget.

    nats  : log det(I + B M(alpha)).   parts : sources with a share, in the order of the run.
    remarks : what limits the numbers.
    """

    schema_version: str
    budget: float
    nats: float
    parts: tuple[Part, ...]
    remarks: tuple[Fact, ...]


def score_of_mixture(folder: Path, run: Run, shares: Mapping[str, float], budget: float) -> MixtureScore:
    """The score of a run's sources mixed in these shares, at a budget.

    run : the folder's report.   shares : by source, as for `normalized`.
    Raises UsageError for an unknown name, wrong shares or a wrong budget, InputError for damaged states.
    Source: METHOD 7.
    """
    most = FIELDS["budget"].metadata["le"]
    if not 0 < budget <= most:  # written as "passes if", so that NaN fails
        raise UsageError(f"must be above 0 and at most {most:g}, got {budget:g}", where="--budget")
    whole = normalized(run, shares)
    states = read_states(folder, run)
    parts = tuple(
        Part(
            name=source.name,
            share=whole[source.name],
            n_negatives=states[source.name].n_negatives,
            single_nats=_nats(states[source.name], budget),
            status=source.status,
            repair=source.repair,
        )
        for source in run.sources
        if source.name in whole
    )
    mixture = mixed([states[part.name] for part in parts], [part.share for part in parts])
    return MixtureScore(
        schema_version=MIX_SCHEMA_VERSION,
        budget=budget,
        nats=_nats(mixture, budget),
        parts=parts,
        remarks=tuple(_remarks(parts, budget)),
    )


def normalized(run: Run, shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of sources that have one, by name, divided by their sum.

    shares : by source, 0 or more, adding up to 1 but for rounding. A source without one is not in the mixture.
    Raises UsageError for an unknown name, and for other shares.
    """
    names = [source.name for source in run.sources]
    for name in shares:
        if name not in names:
            raise UsageError(f"no source {name!r} in this run", where="--shares", remedy=f"one of {', '.join(names)}")
    total = sum(shares.values())
    # Written as "passes if", so that NaN fails
    if not (all(share >= 0.0 for share in shares.values()) and abs(total - 1.0) <= SUM_SLACK):
        given = ", ".join(f"{name} {share:g}" for name, share in shares.items()) or "none given"
        raise UsageError(f"shares must be at least 0 and add up to 1: {given}", where="--shares")
    return {name: share / total for name, share in shares.items() if share > 0.0}


def _nats(state: InformationState, budget: float) -> float:
    """The score of a matrix of any number of triplets."""
    return spectral_nats(eigenvalues(state, len(state.total)), budget)


def _remarks(parts: Sequence[Part], budget: float) -> Iterator[Fact]:
    for part in parts:
        if part.share * budget > part.n_negatives:
            yield Fact("too_few", {"name": part.name, "n": part.n_negatives, "budget": budget})
    by_size = sorted(parts, key=lambda part: part.n_negatives)
    fewest, most = by_size[0], by_size[-1]
    if budget > 1.0 and fewest.n_negatives < most.n_negatives:
        numbers: dict[str, str | float] = {"n_fewest": fewest.n_negatives, "n_most": most.n_negatives}
        yield Fact("unequal", {"fewest": fewest.name, "most": most.name, **numbers})
