"""Cost of scoring, compared with an epoch of training."""

from __future__ import annotations

from secid.analyses.cost import Cost
from secid.pages.page import Section
from secid.pages.text import percent
from secid.results import Run


def cost_section(_: Run, cost: Cost) -> Section:
    """One sentence."""
    sentence = (
        f"On this machine, scoring all sources took about {percent(cost.epoch_share)} of the time of one training "
        "epoch on each of them (an estimate, from the tokens encoded per second and three forward passes for a step of "
        "training)."
    )
    return Section(anchor="cost", link="Cost", title="What scoring cost", paragraphs=(sentence,))
