"""What scoring took, against an epoch of training."""

from __future__ import annotations

from secid.analyses.cost import Cost
from secid.pages.page import Section
from secid.pages.text import count, percent
from secid.results import Run


def cost_section(run: Run, cost: Cost) -> Section:
    """One sentence."""
    n_sources = len(run.sources)
    what, where = ("the source", "it") if n_sources == 1 else (f"{count(n_sources)} sources", "each of them")
    sentence = (
        f"On this machine, scoring {what} took about {percent(cost.epoch_share)} of the time of one training epoch on "
        f"{where} (an estimate, from the tokens encoded per second and three forward passes for a step of training)."
    )
    return Section(anchor="cost", link="Cost", title="What scoring cost", paragraphs=(sentence,))
