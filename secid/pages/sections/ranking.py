"""Show scores, significant differences, controls, gates, directions, and an early stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from secid.pages.glossary import (
    control_title,
    equal_numbers_text,
    kind_name,
    listing,
    on_own_queries,
    rank_text,
    sources_listed,
    terms,
)
from secid.pages.page import MAX_PAIRS, Section, Table, foreign, number, text, wrapped
from secid.pages.text import (
    UNKNOWN_INTERVAL,
    budget,
    code,
    count,
    fraction,
    listed,
    named,
    nats,
    percent,
    plain,
    points,
    probability,
    shown_interval,
    span,
    with_interval,
)
from secid.results import Against, ControlResult, EarlyStop, Run, SourceReport
from secid.results.run import PairedDifference
from secid.results.sources import TableNumbers

# Scores in full, and which differences between sources are significant.

UNTESTED_NOTE = (
    f"How far the order depends on temperature, tokenizer, IDF corpus, weights and sample size was not tried: "
    f"{code('secid score … --ablate')} tries it."
)
MAX_SHOWN_QUERIES = 1_000_000
"""Maximum number of needed queries to show. Larger ones are shown as "more than" this, because nobody has as many."""


def queries(run: Run, source: SourceReport) -> str:
    """Return the number of queries of a row.

    "35/120" : all sources share 35 of its 120.   "120*" : the rows of the table are of different queries.
    """
    n_queries = count(source.n_queries)
    if source.scored.on_shared is not None:
        return f"{count(source.scored.on_shared.n_queries)}/{n_queries}"
    return f"{n_queries}*" if on_own_queries(run) else n_queries


def ranking_section(run: Run) -> Section:
    """Show what the answer table lacks: rank, chance of the highest score, interval of the hardness, and diversity."""
    rows = tuple(
        (
            plain(source.name),
            rank_text(source),
            percent(source.scored.probability_first),
            _hardness_interval(source.in_table(run.budget)),
            percent(source.scored.diversity_fraction),
        )
        for source in run.sources
    )
    columns = (foreign("source"), *map(number, ("rank", "P(first)", "hardness, 95 % CI", "diversity fraction")))
    numbers = equal_numbers_text(run) if run.budget > 1.0 else ""
    on_equal = f"Scores, intervals, ranks and pairs are on {numbers}: beyond B = 1 a larger sample scores higher."
    return Section(
        anchor="scores",
        title="Scores",
        paragraphs=tuple(
            filter(None, (on_equal if numbers else "", "" if "ablations" in run.analyses else UNTESTED_NOTE))
        ),
        tables=(Table(caption=listing(run), columns=columns, rows=rows),),
        terms=terms(
            *("ECI_sem" if run.budget == 1.0 else "ECI_B", "95 % CI", "P(first)", "hardness", "diversity fraction")
        ),
    )


def _hardness_interval(shown: TableNumbers) -> str:
    if shown.hardness is None:
        return "–"
    ends = shown.hardness.interval_95
    return UNKNOWN_INTERVAL if ends is None else f"{fraction(ends[0], 2)} to {fraction(ends[1], 2)}"


def pairs_section(run: Run) -> Section | None:
    """Show the pairs of sources; if there are more than MAX_PAIRS, only neighbors in the ranking."""
    if not run.comparisons:
        return None
    following = {(first.name, second.name) for first, second in pairwise(run.sources)}
    whole = len(run.comparisons) <= MAX_PAIRS
    rows = tuple(
        (
            f"{named(pair.first)} over {named(pair.second)}",
            f"{nats(pair.difference_nats, signed=True)}{'' if pair.number == 'score' else ' (tr M)'}",
            shown_interval(pair.interval_95, run.budget),
            probability(pair.p_holm),
            "yes" if pair.established else "no",
            _needed(pair.queries_needed_80),
            _paired(pair.hardness, partial(fraction, decimals=2)),
            _paired(pair.outscoring, points),
            count(pair.n_shared_queries),
        )
        for pair in run.comparisons
        if whole or (pair.first, pair.second) in following
    )
    caption = "Pairs of sources, the higher score first"
    if not whole:
        n_pairs = count(len(run.comparisons))
        caption = f"Neighbors in the ranking, the higher score first; report.json has all {n_pairs} pairs"
    heads = ("difference (nats)", "95 % CI", "Holm p")
    columns = (
        foreign("pair"),
        *map(number, heads),
        text("significant"),
        number("queries for 80 %"),
        wrapped("hardness"),
        wrapped("outscoring"),
        number("shared queries"),
    )
    return Section(
        anchor="pairs",
        title="Differences between sources",
        paragraphs=(pairs_sentence(run),),
        tables=(Table(caption=caption, columns=columns, rows=rows),),
        terms=terms("difference", "95 % CI", "Holm p", "queries for 80 %", "hardness, outscoring of a pair"),
    )


def _paired(item: PairedDifference | None, write: Callable[[float | None], str]) -> str:
    return "–" if item is None else with_interval(item.value, item.interval_95, write)


def pairs_sentence(run: Run) -> str:
    """Return sentences on the number of significant differences, and the queries that the others would need."""
    tied = [pair for pair in run.comparisons if not pair.established]
    n = len(run.comparisons)
    first = f"Significant differences: {count(n - len(tied))} of {count(n)} (Holm)."
    needed = [pair.queries_needed_80 for pair in tied if pair.queries_needed_80 is not None]
    if not needed:
        return first
    return f"{first} Queries to find the others with 80 % power: about {span(needed, _needed)}."


def _needed(number: float | None) -> str:
    """Format an estimate, rounded up to two significant digits."""
    if number is None:
        return "–"
    step = 10 ** max(0, len(f"{number:.0f}") - 2)
    return f"over {count(MAX_SHOWN_QUERIES)}" if number > MAX_SHOWN_QUERIES else count(-(-number // step) * step)


# What the controls show about the sources: one line and two tables.

CONTROL_NAMES = {
    "random": "Random passages",
    "known_positive": "Known positives, used as negatives",
    "bm25_pool": "The bm25 pool, the best BM25 passages of the run",
    "dense_pool": "The dense pool, the encoder's nearest passages",
    "shuffled": "The same negatives assigned to other queries",
}
"""Kinds of controls in `controls_line`, in order."""
CONTROLS_MEANING = (
    "Controls are made from the run's own texts and scored like a source, but never ranked: passages of other queries "
    "drawn at random, other labelled positives of the query used as negatives, each source's negatives assigned to "
    "other queries (shuffled), the query itself, and the best passages of the run's texts by BM25 and by the encoder."
)


@dataclass(frozen=True)
class ControlComparison:
    """Comparison of sources with the controls of one kind, by the interval of their difference (`Against.placed`).

    above: the control scores above these.   below: it scores below them.   tied: the interval contains 0.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def compares(self) -> bool:
        """Return True if any source was compared with the control."""
        return bool(self.above or self.below or self.tied)


def outcome(run: Run, kind: str) -> ControlComparison:
    """Return how sources compare with the controls of a kind. If no control was scored, all sources are missing."""
    against = [item for control in run.controls if control.kind == kind for item in control.against]
    above, below, tied = (
        tuple(item.source for item in against if item.placed == place) for place in ("below", "above", "tied")
    )
    missing = tuple(source.name for source in run.sources if source.name not in {*above, *below, *tied})
    return ControlComparison(above, below, tied, missing)


def controls_line(run: Run) -> str:
    """Return a sentence for each kind of control, on the sources that score below it and those that tie with it."""
    if not run.controls:
        return "No control was scored."
    outcomes = {name: outcome(run, kind) for kind, name in CONTROL_NAMES.items()}
    lines = [f"{name}: {_placed(item)}." for name, item in outcomes.items() if item.compares]
    at = "" if run.budget == 1.0 else "At B = 1. "
    return f"{at}{' '.join(lines)}" if lines else "No control could be compared with a source."


def _placed(item: ControlComparison) -> str:
    """Return words on where a control scores. Sources that are not named score above it."""
    places = {"above": item.above, "tied with": item.tied} if item.above or item.tied else {"below": item.below}
    places["not compared with"] = item.missing
    return "; ".join(f"{place} {sources_listed(names)}" for place, names in places.items() if names)


def controls_section(run: Run) -> Section | None:
    """Show the controls with their scores, and each source's difference from them."""
    if not run.controls:
        return None
    return Section(
        anchor="control-scores",
        title="Controls",
        paragraphs=(CONTROLS_MEANING, controls_line(run)),
        tables=(_controls_table(run), _scores(run)),
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


def _controls_table(run: Run) -> Table:
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
    at = () if run.budget == 1.0 else (wrapped(f"ECI at B = {budget(run.budget)} (nats)"),)
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


# Coverage, and other scores.

PROXIES = ("gradient energy", "MNRL loss", "ambiguity")


def gates_section(run: Run) -> Section:
    """Show the coverage of negatives and positives, and scores that other methods rank by."""
    means = Table(
        caption="Mean lexical coverage",
        columns=(foreign("source"), *map(number, ("c", "c of positives"))),
        rows=tuple(
            (plain(source.name), fraction(source.scored.coverage_mean), fraction(source.scored.positive_coverage_mean))
            for source in run.sources
        ),
    )
    return Section(
        anchor="gates",
        title="Coverage and other scores",
        tables=(means, _proxies(run)),
        terms=terms("c", "c of positives", "pair, record", *PROXIES),
    )


def _proxies(run: Run) -> Table:
    fields = ("gradient_energy", "mnrl_loss", "ambiguity")
    rows = tuple(
        (
            plain(source.name),
            *(
                (percent if field == "ambiguity" else nats)(getattr(source.scored.proxies, f"{field}_{form}"))
                for field in fields
                for form in ("pair", "record")
            ),
        )
        for source in run.sources
    )
    heads = (number(f"{name}, {form}") for name in PROXIES for form in ("pair", "record"))
    return Table(caption="Other scores (not used for the rank)", columns=(foreign("source"), *heads), rows=rows)


def directions_section(run: Run) -> Section:
    """Show the spectrum of M."""
    longest = max((len(source.scored.top_eigenvalue_shares) for source in run.sources), default=0)
    rows = tuple(
        (
            plain(source.name),
            nats(source.scored.effective_rank),
            fraction(source.scored.frobenius),
            *(percent(share) for share in source.scored.top_eigenvalue_shares),
            *["–"] * (longest - len(source.scored.top_eigenvalue_shares)),
        )
        for source in run.sources
    )
    head = ("effective rank", "‖M‖", *(f"eigenvalue {count(place)}" for place in range(1, longest + 1)))
    table = Table(caption="Directions of the residuals", columns=(foreign("source"), *map(number, head)), rows=rows)
    return Section(
        anchor="directions",
        title="Diversity of the negatives",
        tables=(table,),
        terms=terms("effective rank", "‖M‖", "eigenvalue share", "weight"),
    )


# How a run that stopped once its order was clear went.

MAX_UNDECIDED_PAIRS = 8


def early_sentences(stop: EarlyStop) -> list[str]:
    """Return sentences on the number of texts that the looks needed, and on which orders are and are not decided."""
    pairs = [f"{named(first)} and {named(second)}" for first, second in stop.undecided]
    decided = f"With {percent(stop.confidence)} confidence, decided orders hold for all queries of these files."
    return [
        f"Scoring stopped after {count(stop.n_texts_encoded)} of {count(stop.n_texts)} distinct texts, cached or not.",
        f"{decided} Over other queries they may be ties.",
        f"Undecided: {listed(pairs, MAX_UNDECIDED_PAIRS)}." if pairs else "Every pair is decided.",
    ]


def early_section(run: Run) -> Section | None:
    """Show the looks and the decided pairs. None for a run that read everything at once."""
    stop = run.early_stop
    if stop is None:
        return None
    looks = tuple(
        (count(look.n_queries), count(look.n_texts_encoded), f"{look.alpha:.4f}", count(look.n_decided))
        for look in stop.looks
    )
    pairs = tuple(
        (
            f"{named(pair.first)}, {named(pair.second)}",
            plain(pair.outcome),
            count(pair.n_queries),
            nats(pair.difference_nats, signed=True),
        )
        for pair in stop.pairs
    )
    decided = "Decided pairs"
    if stop.tie_nats is not None:
        decided = f"Decided pairs; differences below {nats(stop.tie_nats)} nats count as ties"
    look_columns = tuple(map(number, ("queries", "texts needed", "error spent", "pairs decided")))
    pair_columns = (foreign("pair"), text("outcome"), number("queries"), number("difference (nats)"))
    return Section(
        anchor="early",
        title="Stopped once the order was clear",
        paragraphs=tuple(early_sentences(stop)),
        tables=(
            Table(caption="Looks", columns=look_columns, rows=looks),
            Table(caption=decided, columns=pair_columns, rows=pairs),
        ),
        terms=(
            *terms("queries", "difference"),
            ("error spent", "chance of a wrong order that the looks may have used, from 0 to 1 − confidence."),
        ),
    )
