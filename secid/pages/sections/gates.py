"""Where the weight goes: gates by source, and what others rank by."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from secid.pages.charts.shares import SYMBOLS, histograms
from secid.pages.glossary import terms
from secid.pages.numbers import count, fraction, nats, percent
from secid.pages.page import Chart, Part, Section, Table, described, foreign, number, text
from secid.pages.sanitize import named, short
from secid.results import Run

GATES = ("consistency", "locality", "coverage", "weight")
MEANS = (
    ("consistency_mean", "π"),
    ("locality_mean", "ρ"),
    ("coverage_mean", "c"),
    ("positive_coverage_mean", "c of positives"),
    ("weight_mean", "weight"),
)


def gates_section(run: Run) -> Section:
    """Histograms and means of the gates, and the proxies."""
    title = "Distribution of the gates of each source"
    description = described(
        (
            source.name,
            (
                f"mean π {fraction(source.consistency_mean)}, ρ {fraction(source.locality_mean)}, "
                f"c {fraction(source.coverage_mean)}, weight {fraction(source.weight_mean)}"
            ),
        )
        for source in run.sources
    )
    drawn = any(source.gate_histograms for source in run.sources)
    chart = Chart(title=title, description=description, draw=lambda: histograms(run.sources, GATES, title, description))
    means = Table(
        caption="Means of the gates",
        columns=(foreign("source"), *(number(name) for _, name in MEANS), number("P(π < ½)"), number("tr M")),
        rows=tuple(
            (
                short(source.name),
                *(fraction(getattr(source, field)) for field, _ in MEANS),
                percent(source.inversion_fraction),
                nats(source.trace),
            )
            for source in run.sources
        ),
    )
    note = "Bins from 0 to 1; heights of one gate compare across sources, the tick marks the mean." if drawn else ""
    return Section(
        anchor="gates",
        link="Gates",
        title="Where the weight goes",
        parts=(Part(table=means, chart=chart if drawn else None, note=note), *_counts(run), _proxies(run)),
        terms=terms(
            *("π", "ρ", "c", "c of positives", "weight", "P(π < ½)", "tr M"),
            *(["negatives in a bin"] if drawn else []),
            *("pair, record", "gradient energy", "MNRL loss", "ambiguity"),
        ),
    )


def _counts(run: Run) -> tuple[Part, ...]:
    """The numbers behind the histograms, a table a source: narrow enough for a phone."""
    return tuple(
        Part(
            table=Table(
                caption=f"Negatives of {named(source.name)} in each bin of the histograms",
                columns=(text("from"), *(number(SYMBOLS[gate]) for gate in GATES)),
                rows=_bins([source.gate_histograms.get(gate, ()) for gate in GATES]),
                folded=True,
                drawn=True,
            )
        )
        for source in run.sources
        if any(source.gate_histograms.get(gate) for gate in GATES)
    )


def _bins(histograms: Sequence[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
    """A row for each value where a bin begins, a column for each histogram, however many bins each has."""
    found = [{Fraction(place, len(counts)): n for place, n in enumerate(counts)} for counts in histograms]
    starts = sorted(set().union(*found))
    return tuple((f"{float(start):.2f}", *(count(counts.get(start)) for counts in found)) for start in starts)


def _proxies(run: Run) -> Part:
    head = tuple(
        f"{name}, {form}" for name in ("gradient energy", "MNRL loss", "ambiguity") for form in ("pair", "record")
    )
    rows = tuple(
        (
            short(source.name),
            nats(source.proxies.gradient_energy_pair),
            nats(source.proxies.gradient_energy_record),
            nats(source.proxies.mnrl_loss_pair),
            nats(source.proxies.mnrl_loss_record),
            percent(source.proxies.ambiguity_pair),
            percent(source.proxies.ambiguity_record),
        )
        for source in run.sources
    )
    return Part(
        table=Table(
            caption="What others rank by: proxies in pair form and in record form, never this ranking",
            columns=(foreign("source"), *map(number, head)),
            rows=rows,
        )
    )
