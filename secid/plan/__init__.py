"""Records to a plan: every distinct text once, sources as index arrays (METHOD 1, DESIGN 1)."""

from secid.plan.gathering import gather, gather_shares, n_helpers_for
from secid.plan.make import make_plan, plan_of
from secid.plan.planned import Plan, PlannedSource, Tally
from secid.plan.refuse import malformed
from secid.plan.restrict import sample_order, select

__all__ = [
    "Plan",
    "PlannedSource",
    "Tally",
    "gather",
    "gather_shares",
    "make_plan",
    "malformed",
    "n_helpers_for",
    "plan_of",
    "sample_order",
    "select",
]
