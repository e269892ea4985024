"""The mixture of a run's sources that holds the most information, from the saved states alone.

Nothing is encoded or read again: M(alpha) = sum alpha_s M_s is all that a hybrid needs. Source: METHOD 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from torch import Tensor

from secid.arrays import Floats
from secid.errors import UsageError
from secid.measure.information import InformationState, eigenvalues, spectral_nats
from secid.measure.mixture import SLACK, Bounds, Mixture, best_mixture, mixed
from secid.records import Fact
from secid.results import Run
from secid.results.sources import Status
from secid.run_folder.read import read_control_states, read_states
from secid.settings import FIELDS, flag_of
from secid.triplets.measured import CURVE_BUDGETS

MIX_SCHEMA_VERSION = "1.0"
VERTEX_SHARE = 0.99
"""From this share on, a mixture is one source and a trace of others."""
SAME_INFORMATION = 1e-12
"""Largest entry by which two information matrices may differ and still count as equal."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One source, or control, of the mixture.

    share        : its proportion.   fixed : whether the user set it.
    single_nats  : its own score at the budget.
    slope_nats   : what a unit more of it would add; equal over all sources with a share inside the bounds.
    loss_without_nats : what the best mixture loses when the source is left out; None where the
                   bounds allow no mixture of the others.
    status, repair : the run's answer to the source, and the command that repairs it; None for a control, and no command
                   unless it is to be repaired.
    """

    name: str
    control: bool
    share: float
    fixed: bool
    n_negatives: float
    single_nats: float
    slope_nats: float
    loss_without_nats: float | None
    status: Status | None = None
    repair: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """Two sources together at one budget.

    half_nats  : half of the draws from each, M = (M_a + M_b) / 2.
    union_nats : all negatives of both, M = (N_a M_a + N_b M_b) / (N_a + N_b). A negative that both have counts twice:
                 only the files can say which these are.
    """

    first: str
    second: str
    budget: float
    half_nats: float
    union_nats: float


@dataclass(frozen=True, kw_only=True)
class MixResult:
    """The best mixture at a budget, its certificate and what it is compared with. It maximises no more than the score.

    gap_nats  : no mixture within the bounds holds more than nats + gap_nats.
    equal_nats: of shares as equal as the bounds allow.   best_single: the source with the highest score
                of its own, whatever the bounds.
    remarks   : what limits the numbers.
    """

    schema_version: str
    budget: float
    dimension: int
    nats: float
    gap_nats: float
    equal_nats: float
    best_single: str
    best_single_nats: float
    max_share: float
    parts: tuple[Part, ...]
    hybrids: tuple[Hybrid, ...]
    remarks: tuple[Fact, ...]


def mix(
    folder: Path,
    run: Run,
    budget: float,
    max_share: float = 1.0,
    fixed: Mapping[str, float] | None = None,
    with_controls: bool = False,
) -> MixResult:
    """The best mixture of a run folder's sources (and controls) at a budget.

    run : the folder's report.
    max_share : largest share of any source that is not fixed.   fixed : share by name.
    Raises UsageError for an unknown name and for bounds that no mixture fits, InputError for damaged states.
    Source: METHOD 7.
    """
    largest = FIELDS["budget"].metadata["le"]
    for flag, number, most in (("--budget", budget, largest), ("--max-share", max_share, 1.0)):
        if not 0 < number <= most:  # written as "passes if", so that NaN fails
            raise UsageError(f"must be above 0 and at most {most:g}, got {number:g}", where=flag)
    states = read_states(folder, run)
    controls = read_control_states(folder, run) if with_controls else {}
    if with_controls and not controls:
        raise UsageError("this run holds no states of controls", remedy=f"score with {flag_of('controls', 'all')}")
    named = {_apart(label, states): state for label, state in controls.items()}
    mixture = mix_states({**states, **named}, set(named), budget, max_share, fixed or {})
    sources = {source.name: source for source in run.sources}
    answered = (
        part if part.control else replace(part, status=sources[part.name].status, repair=sources[part.name].repair)
        for part in mixture.parts
    )
    return replace(mixture, parts=tuple(answered))


def _apart(label: str, sources: Mapping[str, InformationState]) -> str:
    """A label for a control that no source has."""
    return label if label not in sources else _apart(f"{label} (control)", sources)


def mix_states(
    states: Mapping[str, InformationState],
    controls: set[str],
    budget: float,
    max_share: float,
    fixed: Mapping[str, float],
) -> MixResult:
    """The best mixture of states by name. controls: the names that are controls."""
    names = list(states)
    places = {name: place for place, name in enumerate(names)}
    for name in fixed:
        if name not in places:
            raise UsageError(
                f"no source {name!r} in this run",
                where="--fix",
                remedy=f"one of {', '.join(names)}{'' if controls else '; controls take part with --with-controls'}",
            )
    matrices = [state.matrix() for state in states.values()]
    by_place = {places[name]: share for name, share in fixed.items()}
    bounds = Bounds.of(len(names), max_share, by_place)
    best = best_mixture(matrices, budget, bounds)
    singles = [spectral_nats(_spectrum(matrix), budget) for matrix in matrices]
    sources = [place for place, name in enumerate(names) if name not in controls]
    top = max(sources, key=lambda place: singles[place])
    parts = tuple(
        Part(
            name=name,
            control=name in controls,
            share=float(best.proportions[place]),
            fixed=name in fixed,
            n_negatives=states[name].n_negatives,
            single_nats=singles[place],
            slope_nats=float(best.slopes[place]),
            loss_without_nats=_loss_without(place, matrices, budget, max_share, by_place, best),
        )
        for place, name in enumerate(names)
    )
    equal = spectral_nats(_spectrum(mixed(matrices, bounds.middle())), budget)
    return MixResult(
        schema_version=MIX_SCHEMA_VERSION,
        budget=budget,
        dimension=matrices[0].shape[0],
        nats=best.nats,
        gap_nats=best.gap_nats,
        equal_nats=equal,
        best_single=names[top],
        best_single_nats=singles[top],
        max_share=max_share,
        parts=parts,
        hybrids=hybrids([(names[place], states[names[place]]) for place in sources], budget),
        remarks=tuple(_remarks(parts, matrices, best.nats, parts[top], budget, max_share)),
    )


def _loss_without(
    place: int,
    matrices: Sequence[Tensor],
    budget: float,
    max_share: float,
    fixed: Mapping[int, float],
    best: Mixture,
) -> float | None:
    """Nats lost when one source is left out and the others are mixed again; a share fixed for it becomes free."""
    if best.proportions[place] == 0:
        return 0.0
    others = [matrix for other, matrix in enumerate(matrices) if other != place]
    if not others:
        return None
    rest = {other - (other > place): share for other, share in fixed.items() if other != place}
    try:
        bounds = Bounds.of(len(others), max_share, rest)
    except UsageError:
        return None
    return best.nats - best_mixture(others, budget, bounds).nats


def hybrids(sources: Sequence[tuple[str, InformationState]], budget: float) -> tuple[Hybrid, ...]:
    """Every pair of sources at every budget of the curve, and at the given one. Source: METHOD 7."""
    budgets = sorted({*CURVE_BUDGETS, budget})
    pairs = []
    for (first, a), (second, b) in combinations(sources, 2):
        half, union = _spectrum((a.matrix() + b.matrix()) / 2), _spectrum((a + b).matrix())
        pairs += [
            Hybrid(
                first=first,
                second=second,
                budget=point,
                half_nats=spectral_nats(half, point),
                union_nats=spectral_nats(union, point),
            )
            for point in budgets
        ]
    return tuple(pairs)


def _spectrum(matrix: Tensor) -> Floats:
    """Eigenvalues of a matrix of any number of triplets."""
    return eigenvalues(InformationState(matrix, 1.0), len(matrix))


def _remarks(
    parts: Sequence[Part],
    matrices: Sequence[Tensor],
    nats: float,
    best_single: Part,
    budget: float,
    max_share: float,
) -> Iterator[Fact]:
    if len(parts) == 1:
        yield Fact("only_source", {"name": best_single.name})
        return
    held = {part.name for part in parts if part.fixed or (max_share < 1.0 and part.share >= max_share - SLACK)}
    largest = max(parts, key=lambda part: part.share)
    is_mean = budget == 1.0 and not held
    if largest.share >= VERTEX_SHARE:
        yield Fact("alone_by_rule" if is_mean else "alone", {"name": largest.name, "budget": budget})
    elif is_mean:
        yield Fact("near_alone", {"name": best_single.name, "gain": max(0.0, nats - best_single.single_nats)})
    for (a, first), (b, second) in combinations(zip(parts, matrices, strict=True), 2):
        if held & {a.name, b.name} or not (a.share or b.share) or not first.any():
            continue
        if float((first - second).abs().max()) <= SAME_INFORMATION:
            yield Fact("same_information", {"first": a.name, "second": b.name})
    for part in parts:
        if part.share > SLACK and part.share * budget > part.n_negatives:
            yield Fact("too_few", {"name": part.name, "n": part.n_negatives, "budget": budget})
    by_size = sorted(parts, key=lambda part: part.n_negatives)
    fewest, most = by_size[0], by_size[-1]
    if fewest.n_negatives < most.n_negatives:
        numbers: dict[str, str | float] = {"n_fewest": fewest.n_negatives, "n_most": most.n_negatives}
        yield Fact("unequal", {"fewest": fewest.name, "most": most.name, **numbers})
    for part in parts:
        if part.control and part.share > 0:
            yield Fact("control", {"name": part.name, "share": part.share})
