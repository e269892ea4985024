"""Limits below which a difference of numbers is the rounding of their format."""

from __future__ import annotations

FLOAT32_DISTANCE = 1e-3
"""||n - p|| at and below which a float32 difference is rounding noise, not a direction. Source: METHOD 2.6."""
