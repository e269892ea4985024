"""Where the weight goes: gates by source, and other scores."""

from __future__ import annotations

from secid.pages.glossary import terms
from secid.pages.numbers import count, fraction, nats, percent
from secid.pages.page import Section, Table, foreign, number
from secid.pages.sanitize import plain
from secid.results import Run

MEANS = (
    ("consistency_mean", "π"),
    ("locality_mean", "ρ"),
    ("coverage_mean", "c"),
    ("positive_coverage_mean", "c of positives"),
    ("weight_mean", "weight"),
)
PROXIES = ("gradient energy", "MNRL loss", "ambiguity")


def gates_section(run: Run) -> Section:
    """Means of the gates, and scores that others rank by."""
    means = Table(
        caption="Means of the gates",
        columns=(foreign("source"), *(number(name) for _, name in MEANS), number("tr M")),
        rows=tuple(
            (
                plain(source.name),
                *(fraction(getattr(source, field)) for field, _ in MEANS),
                nats(source.trace),
            )
            for source in run.sources
        ),
    )
    return Section(
        anchor="gates",
        link="Gates",
        title="Where the weight goes",
        tables=(means, _proxies(run)),
        terms=terms("π", "ρ", "c", "c of positives", "weight", "tr M", "pair, record", *PROXIES),
    )


def _proxies(run: Run) -> Table:
    fields = ("gradient_energy", "mnrl_loss", "ambiguity")
    rows = tuple(
        (
            plain(source.name),
            *(
                (percent if field == "ambiguity" else nats)(getattr(source.proxies, f"{field}_{form}"))
                for field in fields
                for form in ("pair", "record")
            ),
        )
        for source in run.sources
    )
    heads = (number(f"{name}, {form}") for name in PROXIES for form in ("pair", "record"))
    return Table(caption="Other scores (not used for the rank)", columns=(foreign("source"), *heads), rows=rows)


def directions_section(run: Run) -> Section:
    """The spectrum of M."""
    longest = max((len(source.top_eigenvalue_shares) for source in run.sources), default=0)
    rows = tuple(
        (
            plain(source.name),
            nats(source.effective_rank),
            fraction(source.frobenius),
            *(percent(share) for share in source.top_eigenvalue_shares),
            *["–"] * (longest - len(source.top_eigenvalue_shares)),
        )
        for source in run.sources
    )
    head = ("effective rank", "‖M‖", *(f"share {count(place)}" for place in range(1, longest + 1)))
    table = Table(caption="Directions of the residuals", columns=(foreign("source"), *map(number, head)), rows=rows)
    return Section(
        anchor="directions",
        link="Variety",
        title="Diversity of the negatives",
        tables=(table,),
        terms=terms("effective rank", "‖M‖", "eigenvalue share", "tr M"),
    )
