"""Compare the cost of scoring with an epoch of training."""

from __future__ import annotations

from secid.analyses.cost import Cost
from secid.pages.page import Section
from secid.pages.text import percent
from secid.results import Run


def cost_section(_: Run, cost: Cost) -> Section:
    sentence = (
        f"On this machine, scoring all sources took about {percent(cost.epoch_share)} of the time of one training "
        "epoch on each of them. This is an estimate from the tokens encoded per second; a training step is assumed to "
        "cost three forward passes."
    )
    return Section(anchor="cost", title="What scoring cost", paragraphs=(sentence,))
