"""Show how the order depends on the settings: a summary, curves of the score, and a heat table for each setting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest

from secid.analyses.ablations import Ablation, AblationRow
from secid.pages.charts import ablations_chart
from secid.pages.glossary import SETTING_MEANINGS, rank_text, terms
from secid.pages.page import Section, Table, number, text, wrapped
from secid.pages.text import budget, count, fraction, listed, named, nats, plain, plural, shown_interval
from secid.results import Run
from secid.settings import display_name

N_SHADES = 10
WEIGHT, SAMPLE = "weight", "sample"
SHOWN_SETTINGS, MAX_SWAPPED_PAIRS = 3, 3
SAMPLE_NOTE = "document frequencies are those of the whole run"
ENCODERS_NOTE = "only encoders of the target's family allow conclusions about the target"
MAX_ONE_LINE = 8
"""Maximum number of sources whose order is kept on one line."""


def ablations_sentence(run: Run, ablations: Sequence[Ablation]) -> str:
    """Return a sentence on how many other settings keep the order of the ranked sources that differ significantly.

    If none do, it is on the order of all ranked sources. "" with fewer than two of them or without other settings.
    """
    ranked = {source.name for source in run.sources if source.scored.rank is not None}
    tried = [row for item in ablations if item.name != SAMPLE for row in _others(item)]
    rows = [row for row in tried if row.stability is not None]
    if not rows or len(ranked) < 2:
        return ""
    established = {frozenset((pair.first, pair.second)) for pair in run.comparisons if pair.established}
    established = {pair for pair in established if ranked.issuperset(pair)}
    n_kept = sum(not any(_counts(pair, ranked, established) for pair in row.swapped) for row in rows)
    which = "sources that differ significantly" if established else "ranked sources"
    return f"{count(n_kept)} of {count(len(rows))} other settings keep the order of the {which}."


def _counts(pair: tuple[str, str], ranked: Collection[str], established: Collection[frozenset[str]]) -> bool:
    """Return whether a pair that changes places changes the order: a significant one if there is one, else any."""
    return frozenset(pair) in established if established else set(ranked).issuperset(pair)


def ablations_section(run: Run, ablations: Sequence[Ablation]) -> Section:
    """Show a summary with a row for each varied setting, then a table for each."""
    return Section(
        anchor="ablations",
        title="Ablations: how far the order depends on the settings",
        bullets=tuple(filter(None, map(_remark, ablations))),
        tables=(_summary(run, ablations), *(_table(run, item) for item in ablations)),
        charts=tuple(filter(None, [ablations_chart(run, ablations)])),
        terms=_terms(run, ablations),
    )


def _summary(run: Run, ablations: Sequence[Ablation]) -> Table:
    """Return a table with, for each varied setting, how often the order stays, which pairs swap, and score ranges."""
    return Table(
        caption=f"Scores in nats{_at(run)} from the lowest to the highest, and pairs that change places",
        columns=(
            text("varied"),
            number("same order of all"),
            *(wrapped(plain(source.name), is_name=True) for source in run.sources),
            text("pairs that change places"),
        ),
        rows=tuple(
            (
                plain(display_name(item.name)),
                _same_order_count(item),
                *(_range(item, source.name) for source in run.sources),
                _swapped(item),
            )
            for item in ablations
        ),
    )


def _at(run: Run) -> str:
    return "" if run.budget == 1.0 else f" at B = {budget(run.budget)}"


def _others(item: Ablation) -> list[AblationRow]:
    return [row for row in item.rows if row.setting != item.base]


def _same_order_count(item: Ablation) -> str:
    """Format the number of other settings that order all pairs as the run does."""
    known = [row for row in _others(item) if row.stability is not None]
    return f"{count(sum(not row.swapped for row in known))} of {count(len(known))}" if known else "–"


def _swapped(item: Ablation) -> str:
    rows = [row for row in _others(item) if row.swapped]
    if not rows:
        return "–"
    pairs = list(dict.fromkeys(pair for row in rows for pair in row.swapped))
    which = listed([f"{plain(first)} with {plain(second)}" for first, second in pairs], MAX_SWAPPED_PAIRS)
    return f"{which} under {listed([plain(display_name(row.setting)) for row in rows], SHOWN_SETTINGS)}"


def _range(item: Ablation, name: str) -> str:
    """Format the lowest and the highest score of a source; "–" for other weights, whose scores are not comparable."""
    known = [score for row in item.rows if (score := row.scores.get(name)) is not None]
    return "–" if item.name == WEIGHT or not known else f"{nats(min(known))} to {nats(max(known))}"


def _remark(item: Ablation) -> str:
    """Return remarks on a varied setting that the tables lack: noise of samples, other encoders, stability by block."""
    rows = _others(item)
    clauses = []
    if item.name == SAMPLE:
        n_swaps, n_noise = sum(len(row.swapped) for row in rows), sum(len(row.open_swaps) for row in rows)
        clauses += [f"{count(n_noise)} of {plural(n_swaps, 'swap is', 'swaps are')} not significant"] if n_swaps else []
        clauses.append(SAMPLE_NOTE)
    if item.kendall_tau_b:
        taus = {named(name): "undefined" if tau is None else f"{tau:+.2f}" for name, tau in item.kendall_tau_b.items()}
        every = ", ".join(f"{name} {tau}" for name, tau in taus.items())
        clauses += [f"Kendall tau-b with {named(item.base)}: {every}", ENCODERS_NOTE]
    for block in dict.fromkeys(block for row in rows for block in row.block_stability):
        known = [(value, row.setting) for row in rows if (value := row.block_stability.get(block)) is not None]
        if known:
            least, setting = min(known)
            clauses.append(f"least stability within {named(block)}: {fraction(least)} ({plain(display_name(setting))})")
    return f"{plain(display_name(item.name))}: {'; '.join(clauses)}." if clauses else ""


def _terms(run: Run, ablations: Sequence[Ablation]) -> tuple[tuple[str, str], ...]:
    names = [item.name for item in ablations]
    return (
        *(SETTING_MEANINGS[name] for name in names if name in SETTING_MEANINGS),
        *terms("ECI_sem" if run.budget == 1.0 else "ECI_B", "order", "stability", "shade"),
    )


def _table(run: Run, item: Ablation) -> Table:
    names = [source.name for source in run.sources]
    blocks = list(dict.fromkeys(block for row in item.rows for block in row.block_stability))
    sampled = any(row.n_queries for row in item.rows)
    rows = [
        (
            f"{plain(display_name(row.setting))}{' (this run)' if row.setting == item.base else ''}",
            *([count(max(row.n_queries.values(), default=None))] if sampled else []),
            *(_score(row, name) for name in names),
            _order(run, row),
            fraction(row.stability),
            *(fraction(row.block_stability.get(block)) for block in blocks),
        )
        for row in item.rows
    ]
    interval_of = ", with the 95 % CI of the score of all queries" if sampled else ""
    return Table(
        caption=f"Score in nats{_at(run)} by {plain(display_name(item.name))}{interval_of}",
        columns=(
            text(plain(display_name(item.name))),
            *([number("queries, most")] if sampled else []),
            *((wrapped if sampled else number)(plain(name), is_name=True) for name in names),
            text("order"),
            number("stability"),
            *(number(f"stability in {plain(block)}") for block in blocks),
        ),
        rows=tuple(rows),
        shades=_shades(item, sampled, names, rows),
    )


def _shades(
    item: Ablation, sampled: bool, names: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[int | None, ...], ...]:
    """Return a shade for each score relative to its row; None for other cells."""
    shades: list[tuple[int | None, ...]] = []
    for row, cells in zip_longest(item.rows, rows):
        values = [row.scores.get(name) for name in names] if row else []
        known = [value for value in values if value is not None]
        value_shades = [_shade(value, min(known, default=0.0), max(known, default=0.0)) for value in values]
        before = [None] * (1 + sampled)
        shades.append((*before, *value_shades, *[None] * (len(cells) - len(before) - len(value_shades))))
    return tuple(shades)


def _shade(value: float | None, low: float, high: float) -> int | None:
    if value is None:
        return None
    span = high / 2 - low / 2  # halves, because the difference itself may not be finite
    return min(N_SHADES - 1, int(N_SHADES * ((value / 2 - low / 2) / span))) if span > 0 else 0


def _score(row: AblationRow, name: str) -> str:
    """Format a score, with its interval unless all queries were in the sample."""
    ends = row.intervals_95.get(name)
    return nats(row.scores.get(name)) + (f"\n({shown_interval(ends)})" if ends and ends[0] < ends[1] else "")


def _order(run: Run, row: AblationRow) -> str:
    """Format the order of the sources with a setting, highest score first, as their ranks in the run."""
    places = {source.name: rank_text(source) for source in run.sources}
    between = "\u00a0" if len(places) <= MAX_ONE_LINE else " "
    return between.join(places[name] for name in row.order if name in places)
