"""What the controls say of the sources: one line, and two tables."""

from __future__ import annotations

from dataclasses import dataclass

from secid.pages.glossary import control_title, kind_name, score_name, sources_listed, terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import count, nats, percent, plain, shown_interval
from secid.results import Against, ControlResult, Run

KINDS = {
    "random": "Random passages",
    "known_positive": "Known positives, used as negatives",
    "bm25_pool": "The bm25 pool, the best BM25 passages of the run",
    "dense_pool": "The dense pool, the encoder's nearest passages",
    "shuffled": "The same negatives assigned to other queries",
}
"""Controls of the line, in its order."""
MEANING = (
    "Controls are made from the run's own texts and scored like a source, but never ranked: passages of other queries "
    "drawn at random, other labelled positives of the query used as negatives, each source's negatives assigned to "
    "other queries (shuffled), the query itself, and the best passages of the run's texts by BM25 and by the encoder."
)


@dataclass(frozen=True)
class Outcome:
    """Sources against the controls of one kind, by the interval of their difference (`Against.placed`).

    above: the control scores above these.   below: it scores below them.   tied: the interval contains 0.
    missing: sources that were not compared with it.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def compares(self) -> bool:
        """True if any source was compared with the control."""
        return bool(self.above or self.below or self.tied)


def outcome(run: Run, kind: str) -> Outcome:
    """What the controls of this kind say; all sources are missing where none was scored."""
    against = [item for control in run.controls if control.kind == kind for item in control.against]
    above, below, tied = (
        tuple(item.source for item in against if item.placed == place) for place in ("below", "above", "tied")
    )
    missing = tuple(source.name for source in run.sources if source.name not in {*above, *below, *tied})
    return Outcome(above, below, tied, missing)


def controls_line(run: Run) -> str:
    """A sentence for each kind of control: the sources that it scores above and is tied with, else those below it."""
    if not run.controls:
        return "No control was scored."
    found = {name: outcome(run, kind) for kind, name in KINDS.items()}
    lines = [f"{name}: {_placed(item)}." for name, item in found.items() if item.compares]
    at = "" if run.budget == 1.0 else "At B = 1. "
    return f"{at}{' '.join(lines)}" if lines else "No control could be compared with a source."


def _placed(item: Outcome) -> str:
    """Where a control scores; all sources that are not named score above it."""
    places = {"above": item.above, "tied with": item.tied} if item.above or item.tied else {"below": item.below}
    places["not compared with"] = item.missing
    return "; ".join(f"{place} {sources_listed(names)}" for place, names in places.items() if names)


def controls_section(run: Run) -> Section | None:
    """The controls with their scores, and each source's difference from them."""
    if not run.controls:
        return None
    return Section(
        anchor="control-scores",
        link="Controls",
        title="Controls",
        paragraphs=(MEANING,),
        tables=(_against(run), _scores(run)),
        terms=terms(
            "source minus control",
            "ECI_sem",
            "95 % CI",
            "diversity fraction",
            "queries",
            "negatives",
            "candidates",
            "new texts",
        ),
    )


def _against(run: Run) -> Table:
    kinds = list(dict.fromkeys(control.kind for control in run.controls))
    cells = {(item.source, control.kind): item for control in run.controls for item in control.against}
    rows = tuple(
        (plain(source.name), *(_difference(cells.get((source.name, kind))) for kind in kinds)) for source in run.sources
    )
    columns = (foreign("source"), *(wrapped(kind_name(kind)) for kind in kinds))
    caption = "Source minus control in nats, with 95 % CI; tied: the interval contains 0"
    return Table(caption=caption, columns=columns, rows=rows)


def _difference(item: Against | None) -> str:
    if item is None:
        return "–"
    return f"{item.placed} {nats(item.difference_nats, signed=True)}\n({shown_interval(item.interval_95)})"


def _scores(run: Run) -> Table:
    at = () if run.budget == 1.0 else (wrapped(f"{score_name(run)} (nats)"),)
    rows = tuple(
        (
            control_title(control),
            *(_at_budget(control, run.budget) for _ in at),
            nats(control.score.nats),
            shown_interval(control.score.interval_95),
            percent(control.score.diversity_fraction),
            count(control.n_queries),
            count(control.n_triplets),
            "–" if control.n_candidates is None else count(control.n_candidates),
            count(control.n_new_texts),
        )
        for control in run.controls
    )
    head = ("ECI_sem (nats)", "95 % CI", "diversity fraction", "queries", "negatives", "candidates", "new texts")
    columns = (foreign("control"), *at, *map(number, head))
    return Table(caption="Scores of the controls", columns=columns, rows=rows)


def _at_budget(control: ControlResult, budget: float) -> str:
    point = control.score.at(budget)
    return f"{nats(point.nats)}\n({shown_interval(point.interval_95, budget)})" if point.budget == budget else "–"
