"""Copies are held against the reader, so they use its fixtures."""

from tests.unit.read.conftest import collection, items

__all__ = ["collection", "items"]
