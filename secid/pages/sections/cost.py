"""What scoring took, against an epoch of training."""

from __future__ import annotations

from secid.analyses.cost import COST
from secid.pages.page import Section
from secid.pages.text import count, percent
from secid.results import Run


def section(run: Run) -> Section | None:
    """One sentence; None for a run that took texts from the cache or a sample."""
    cost, n_sources = COST.of(run), len(run.sources)
    if cost is None:
        return None
    what, where = ("the source", "it") if n_sources == 1 else (f"{count(n_sources)} sources", "each of them")
    sentence = (
        f"On this machine, scoring {what} took about {percent(cost.epoch_share)} of the time of one training epoch on "
        f"{where} (an estimate, from the tokens encoded per second and three forward passes for a step of training)."
    )
    return Section(anchor="cost", link="Cost", title="What scoring cost", paragraphs=(sentence,))
