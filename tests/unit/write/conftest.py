"""Copies are compared by reading them, so these tests use the reader's fixtures."""

from tests.unit.read.conftest import collection, items

__all__ = ["collection", "items"]
