"""What the controls say of the sources: one line, and two tables."""

from __future__ import annotations

from dataclasses import dataclass

from secid.pages.glossary import control_title, kind_name, score_name, sources_named, terms
from secid.pages.page import Section, Table, foreign, number, wrapped
from secid.pages.text import capital, count, nats, percent, plain, shown_interval
from secid.results import Against, ControlResult, Run

KINDS = {
    "random": ("random passages", True),
    "known_positive": ("known positives, used as negatives,", True),
    "bm25_pool": ("the bm25 pool, the best BM25 passages of the run,", False),
    "dense_pool": ("the dense pool, the encoder's nearest passages,", False),
}
"""Controls of the line, in its order, and whether each is plural."""
MEANING = (
    "Controls are made from the run's own texts and scored like a source, but never ranked: passages of other queries "
    "drawn at random, other labelled positives of the query used as negatives, each source's negatives assigned to "
    "other queries (shuffled), the query itself, and the best passages of the run's texts by BM25 and by the encoder."
)


@dataclass(frozen=True)
class Outcome:
    """Sources against one control, by the interval of their difference (`Against.placed`).

    above: the control scores above these.   below: it scores below them.   tied: the interval contains 0.
    missing: sources that were not compared with it.
    """

    control: ControlResult
    above: tuple[str, ...]
    below: tuple[str, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of sources of the run."""
        return len(self.above) + len(self.below) + len(self.tied) + len(self.missing)

    @property
    def compares(self) -> bool:
        """True if any source was compared with the control."""
        return len(self.missing) < self.n

    @property
    def not_compared(self) -> str:
        """Name the missing sources; "" for none."""
        return f"not compared with {sources_named(self.missing, self.n)}" if self.missing else ""


def outcome(run: Run, kind: str) -> Outcome | None:
    """What the control of this kind says; None where it was not scored."""
    control = next((control for control in run.controls if control.kind == kind), None)
    if control is None:
        return None
    above, below, tied = (
        tuple(item.source for item in control.against if item.placed == place) for place in ("below", "above", "tied")
    )
    compared = {item.source for item in control.against}
    missing = tuple(source.name for source in run.sources if source.name not in compared)
    return Outcome(control, above, below, tied, missing)


def controls_line(run: Run) -> str:
    """Which sources the controls score above and below, in one sentence."""
    if not run.controls:
        return "No control was scored."
    outcomes = {kind: item for kind in KINDS if (item := outcome(run, kind)) is not None and item.compares}
    clauses = [_placed(*KINDS[kind], item) for kind, item in outcomes.items()]
    shuffled = [item for control in run.controls if control.kind == "shuffled" for item in control.against]
    weak = [item.source for item in shuffled if item.placed != "above"]
    if weak:
        n, do = len(run.sources), "does" if len(weak) == 1 else "do"
        who = "no source scores" if len(weak) == n > 1 else f"{sources_named(weak, n)} {do} not score"
        clauses.append(f"{who} above the same negatives assigned to other queries")
    if not clauses:
        return "No control could be compared with a source."
    at = "" if run.budget == 1.0 else "at B = 1, "
    return f"{capital(f'{at}{clauses[0]}')}. {' '.join(f'{capital(clause)}.' for clause in clauses[1:])}".rstrip()


def _placed(name: str, is_plural: bool, item: Outcome) -> str:
    """Where a control scores among the sources; below all that are not named."""
    score, tied, were = ("score", "are tied with", "were") if is_plural else ("scores", "is tied with", "was")
    places = ((f"{score} above", item.above), (tied, item.tied))
    clauses = [f"{word} {sources_named(names, item.n)}" for word, names in places if names]
    missing = f"; {'they' if is_plural else 'it'} {were} {item.not_compared}" if item.missing else ""
    return f"{name} {' and '.join(clauses) or f'{score} below {sources_named(item.below, item.n)}'}{missing}"


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
