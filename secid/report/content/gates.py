"""Where the weight goes: gates by source, and what others rank by."""

from __future__ import annotations

from secid.report.charts.shares import histograms
from secid.report.foreign import short
from secid.report.numerals import fraction, nats, percent
from secid.report.page import Chart, Part, Section, Table, foreign, number
from secid.report.words import terms
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
    description = "; ".join(
        f"{short(source.name, 30)}: mean π {fraction(source.consistency_mean)}, ρ {fraction(source.locality_mean)}, "
        f"c {fraction(source.coverage_mean)}, weight {fraction(source.weight_mean)}"
        for source in run.sources[:20]
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
    note = (
        "Twenty bins from 0 to 1; heights of one gate compare across sources, the tick marks the mean." if drawn else ""
    )
    return Section(
        anchor="gates",
        link="Gates",
        title="Where the weight goes",
        parts=(Part(table=means, chart=chart if drawn else None, note=note), *_counts(run), _proxies(run)),
        terms=terms(
            "π", "ρ", "c", "c of positives", "weight", "P(π < ½)", "tr M", "gradient energy", "MNRL loss", "ambiguity"
        ),
    )


def _counts(run: Run) -> tuple[Part, ...]:
    rows = tuple(
        (short(source.name), gate, *(str(value) for value in source.gate_histograms[gate]))
        for source in run.sources
        for gate in GATES
        if gate in source.gate_histograms
    )
    if not rows:
        return ()
    bins = max(len(row) for row in rows) - 2
    head = [number(f"from {place / bins:.2f}") for place in range(bins)]
    table = Table(
        caption="Negatives in each bin of the histograms",
        columns=(foreign("source"), foreign("gate"), *head),
        rows=rows,
        folded=True,
    )
    return (Part(table=table),)


def _proxies(run: Run) -> Part:
    head = ("gradient energy, pair", "record", "MNRL loss, pair", "record", "ambiguity, pair", "record")
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
