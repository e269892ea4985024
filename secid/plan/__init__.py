"""Records to a plan: every distinct text once, sources as index arrays (METHOD 1, DESIGN 1)."""

from secid.plan.make import make_plan
from secid.plan.planned import Plan, PlannedSource, Tally
from secid.plan.restrict import sample_order, select

__all__ = ["Plan", "PlannedSource", "Tally", "make_plan", "sample_order", "select"]
