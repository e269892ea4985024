"""Ranking, controls, and which differences are established."""

from __future__ import annotations

from secid.pages.charts.scores import scores
from secid.pages.controls_text import controls_told
from secid.pages.glossary import (
    CONTROL_MEANINGS,
    equal_numbers,
    hardness_text,
    kind_name,
    missing_lines,
    score_name,
    score_point,
    terms,
    told_control,
)
from secid.pages.numbers import SPACE, count, interval, nats, percent, plural, probability
from secid.pages.page import Chart, Part, Section, Table, described, foreign, number, text, wrapped
from secid.pages.sanitize import named, short
from secid.results import Against, Comparison, ControlResult, Run


def ranking_section(run: Run) -> Section:
    """The score of each source with its interval and rank group, and the controls as reference lines."""
    rows = []
    for source in run.sources:
        point = score_point(source, run.budget)
        rows.append(
            (
                short(source.name),
                f"{count(source.rank)} ({count(source.rank_group)})",
                f"{nats(point.nats)}\n({interval(point.interval_95, budget=run.budget)})",
                percent(source.probability_first),
                hardness_text(source),
                percent(source.diversity_fraction),
                count(source.n_queries),
                count(source.n_triplets),
            )
        )
    numbers = ("P(first)", HARDNESS, "diversity fraction", "queries", "negatives")
    score = f"{score_name(run)} (nats)"
    columns = (
        wrapped(name) if name in (score, HARDNESS) else number(name) for name in ("rank (group)", score, *numbers)
    )
    title = "Scores of the sources with 95 % intervals, controls below"
    description = described(
        (source.name, f"{nats(point.nats)}, interval {within}, rank group {source.rank_group}")
        for source in run.sources
        for point in [score_point(source, run.budget)]
        for within in [interval(point.interval_95, budget=run.budget)]
    )
    dashed = (
        " Dashed lines: controls. Hollow diamonds: the source's own negatives shuffled. Their numbers stand in the "
        f"table “{NOT_RANKED}”."
        if run.controls
        else ""
    )
    chart = Chart(title=title, description=description, draw=lambda: scores(run, title, description))
    return Section(
        anchor="ranking",
        link="Ranking",
        title="Ranking",
        paragraphs=_on_equal_numbers(run),
        bullets=tuple(missing_lines(run, HARDNESS)),
        parts=(
            Part(
                table=Table(
                    caption="Sources by score",
                    columns=(foreign("source"), *columns),
                    rows=tuple(rows),
                ),
                chart=chart,
                note=f"Shaded bands and the numbers at the left mark rank groups.{dashed}",
            ),
        ),
        terms=terms(
            "ECI_sem" if run.budget == 1.0 else "ECI_B",
            *("95 % interval", "rank", "rank group"),
            *numbers,
        ),
    )


NOT_RANKED = "Controls, not ranked"
HARDNESS = "hardness"
"""Part of a run that is shown in the ranking, and so is the reason where there is none."""


def _on_equal_numbers(run: Run) -> tuple[str, ...]:
    """What beyond budget 1 is not of all negatives."""
    numbers = equal_numbers(run)
    if run.budget <= 1.0 or not numbers:
        return ()
    told = f"Scores, intervals, ranks, P(first) and pairs are on {numbers}: beyond B = 1 a larger sample scores higher."
    return (f"{told} Counts, diversity fractions and controls are of all.",)


def controls_section(run: Run) -> Section:
    """The controls apart from the sources, and each source's difference from them."""
    kinds = list(dict.fromkeys(control.kind for control in run.controls))
    return Section(
        anchor="controls",
        link="Controls",
        title="Controls",
        paragraphs=(
            (
                "Controls are made from the run's own texts and scored like a source, but never ranked. They show what "
                f"a score is worth here.{'' if run.budget == 1.0 else ' Differences from them are at B = 1.'}"
            ),
        ),
        bullets=(
            *controls_told(run),
            *(f"{kind_name(kind)}: {CONTROL_MEANINGS[kind]}" for kind in kinds if kind in CONTROL_MEANINGS),
            *missing_lines(run, besides=HARDNESS),
        ),
        parts=(_against(run), _controls(run)) if run.controls else (),
        terms=terms("ECI_sem", "difference", "queries", "negatives", "new texts") if run.controls else (),
    )


def _controls(run: Run) -> Part:
    """Numbers of the controls: those at B = 1, and those that the chart of the ranking draws."""
    at = () if run.budget == 1.0 else (wrapped(f"{score_name(run)} (nats)"),)
    rows = tuple(
        (
            told_control(control),
            *(_at_budget(control, run.budget) for _ in at),
            nats(control.eci_nats),
            interval(control.interval_95),
            percent(control.diversity_fraction),
            count(control.n_queries),
            count(control.n_triplets),
            count(control.n_new_texts),
        )
        for control in run.controls
    )
    head = ("ECI_sem (nats)", "95 % interval", "diversity fraction", "queries", "negatives", "new texts")
    return Part(
        table=Table(caption=NOT_RANKED, columns=(foreign("control"), *at, *map(number, head)), rows=rows, folded=True)
    )


def _at_budget(control: ControlResult, budget: float) -> str:
    point = score_point(control, budget)
    return f"{nats(point.nats)}\n({interval(point.interval_95, ' ', budget)})" if point.budget == budget else "–"


def _against(run: Run) -> Part:
    kinds = list(dict.fromkeys(control.kind for control in run.controls))
    found: dict[tuple[str, str], Against] = {
        (item.source, control.kind): item for control in run.controls for item in control.against
    }
    rows = tuple(
        (short(source.name), *(_difference(found.get((source.name, kind))) for kind in kinds)) for source in run.sources
    )
    return Part(
        table=Table(
            caption="Each source minus each control, with 95 % interval (nats)",
            columns=(foreign("source"), *(wrapped(short(kind_name(kind))) for kind in kinds)),
            rows=rows,
        ),
        note="Above and below: the source scores higher, or lower, than the control, its interval without 0. "
        "Level: the interval holds 0, so neither is shown.",
    )


def _difference(item: Against | None) -> str:
    if item is None:
        return "–"
    return f"{item.placed}{SPACE}{nats(item.difference_nats, signed=True)}\n({interval(item.interval_95, ' ')})"


MANY_QUERIES = 1_000_000
"""Beyond this a needed number of queries is as good as never."""


def _needed(pair: Comparison) -> str:
    """What it would take to tell an open pair apart."""
    who = f"{named(pair.first)} and {named(pair.second)}: {nats(pair.difference_nats)} nats apart"
    if pair.queries_needed_80 is None:
        return f"{who}."
    if pair.queries_needed_80 > MANY_QUERIES:
        return f"{who}, too little for any number of queries to tell apart."
    return (
        f"{who}, which would take about {plural(_rounded(pair.queries_needed_80), 'query', 'queries')} to tell apart."
    )


def _rounded(number: int) -> int:
    """Two significant digits: an estimate is no more exact than that."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def pairs_section(run: Run) -> Section | None:
    """All pairs of sources."""
    if not run.comparisons:
        return None
    rows = tuple(
        (
            f"{named(pair.first, 40)} over {named(pair.second, 40)}",
            nats(pair.difference_nats, signed=True),
            interval(pair.interval_95, budget=run.budget),
            probability(pair.p_holm),
            "established" if pair.established else "open",
            count(pair.queries_needed_80),
            count(pair.n_shared_queries),
        )
        for pair in run.comparisons
    )
    n_open = sum(not pair.established for pair in run.comparisons)
    told = (
        "Every order is established."
        if not n_open
        else f"The order of {n_open} of {len(run.comparisons)} pairs is open."
    )
    columns = (
        foreign("pair"),
        number("difference (nats)"),
        number("95 % interval"),
        number("Holm p"),
        text("order"),
        number("queries for 80 %"),
        number("queries shared"),
    )
    return Section(
        anchor="pairs",
        link="Pairs",
        title="Which differences are established",
        paragraphs=(told,),
        bullets=tuple(_needed(pair) for pair in run.comparisons if not pair.established),
        parts=(Part(table=Table(caption="Pairs of sources, the higher-scored first", columns=columns, rows=rows)),),
        terms=terms("difference", "95 % interval", "Holm p", "queries for 80 %", "queries shared"),
    )
