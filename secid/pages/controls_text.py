"""What each control says of the sources, in whole sentences with their intervals."""

from __future__ import annotations

from dataclasses import dataclass

from secid.pages.numbers import interval, listed, nats, plural
from secid.pages.sanitize import named
from secid.results import Against, ControlResult, Run


@dataclass(frozen=True)
class Outcome:
    """Sources against one control, by the interval of their difference (`Against.placed`).

    above: the control outscores these.   below: these outscore it.   level: the interval holds 0.
    known: whether any difference has an interval of its own, not one for want of queries.
    """

    control: ControlResult
    above: tuple[str, ...]
    below: tuple[str, ...]
    level: tuple[str, ...]

    @property
    def against(self) -> tuple[Against, ...]:
        return self.control.against

    @property
    def n(self) -> int:
        return len(self.against)

    @property
    def known(self) -> bool:
        return any(item.z is not None for item in self.against)

    @property
    def score(self) -> str:
        return f"{nats(self.control.eci_nats)}, interval {interval(self.control.interval_95)}"


def outcome(run: Run, kind: str) -> Outcome | None:
    """What the control of this kind says; None where it was not scored."""
    control = next((control for control in run.controls if control.kind == kind), None)
    if control is None:
        return None
    above, below, level = (
        tuple(item.source for item in control.against if item.placed == place) for place in ("below", "above", "level")
    )
    return Outcome(control, above, below, level)


def controls_told(run: Run) -> list[str]:
    """A sentence for each control that says something of the sources."""
    clauses = (_random(run), _known_positive(run), *_pool(run), _shuffled(run))
    return [f"{clause[0].upper()}{clause[1:]}." for clause in clauses if clause]


def _names(names: tuple[str, ...]) -> str:
    return listed([named(name) for name in names])


def _random(run: Run) -> str:
    found = outcome(run, "random")
    if found is None or not found.n:
        return ""
    score = f"the random control ({found.score})"
    if found.above:
        level = f" and cannot be told from {_names(found.level)}" if found.level else ""
        below = f"; {_names(found.below)} score above it" if found.below else ""
        return (
            f"{score} outscores {_names(found.above)}{level}{below}: with this encoder the score rewards easy "
            "negatives here, so do not choose by rank alone, and see the budget curve"
        )
    if not found.below:
        return f"{score} cannot be told from any source: none is shown to score higher than passages drawn at random"
    if not found.level:
        least = min(found.against, key=lambda item: item.difference_nats)
        return f"every source outscores the random control, by {_gap(least)} or more"
    return f"{score} is outscored by {_names(found.below)} and cannot be told from {_names(found.level)}"


def _known_positive(run: Run) -> str:
    found = outcome(run, "known_positive")
    if found is None:
        return ""
    n_queries = found.control.n_queries
    score = f"({found.score}; of only the {plural(n_queries, 'query', 'queries')} with two or more labelled positives)"
    if found.above:
        return (
            f"relevant passages passed off as negatives {score} outscore {_names(found.above)}: the score does not "
            "see false negatives"
        )
    if found.level and not found.known:
        return (
            f"queries with a further labelled positive are too few ({n_queries}) to say whether the score sees "
            "false negatives"
        )
    if found.level:
        return (
            f"relevant passages passed off as negatives {score} cannot be told from {_names(found.level)}: nothing "
            "here shows that the score sees false negatives"
        )
    return ""


def _pool(run: Run) -> list[str]:
    """Which sources differ from what anyone gets from the same texts."""
    told = []
    for kind, name in (("bm25_pool", "BM25 of the run's own texts"), ("dense_pool", "the encoder's own nearest texts")):
        found = outcome(run, kind)
        if found is None or not found.n:
            continue
        clauses = [
            f"{_names(names)} score{'s' if len(names) == 1 else ''} {how}"
            for names, how in ((found.below, "higher"), (found.above, "lower"))
            if names
        ]
        if found.level:
            gaps = [_gap(item) for item in found.against if item.source in found.level]
            differs = "difference" if len(gaps) == 1 else "differences"
            clauses.append(f"{_names(found.level)} cannot be told from it ({differs} {listed(gaps)})")
        told.append(f"against {name}, which cost nothing, {', '.join(clauses)}")
    return told


def _shuffled(run: Run) -> str:
    controls = [control for control in run.controls if control.kind == "shuffled"]
    against = [item for control in controls for item in control.against]
    found = tuple(item.source for item in against if item.placed != "above")
    if not found:
        return ""
    if len(found) == len(run.sources):
        return "no source is shown to score higher than its own negatives dealt to other queries"
    are = "is" if len(found) == 1 else "are"
    return f"{_names(found)} {are} not shown to score higher than the same negatives dealt to other queries"


def _gap(item: Against) -> str:
    return f"{nats(item.difference_nats)} nats (interval {interval(item.interval_95)})"
