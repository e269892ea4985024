"""What holds for all tests, and for the processes that they start."""

from __future__ import annotations

import os

import pytest

from tests import snapshots

# Two workers with a thread pool each get in each other's way; numbers do not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write tests/snapshots anew")


@pytest.fixture
def snapshot(pytestconfig: pytest.Config) -> snapshots.Snapshot:
    """snapshot(name, text): the text is exactly what tests/snapshots/NAME holds."""
    update = bool(pytestconfig.getoption("--update-snapshots"))
    return lambda name, text: snapshots.compare(snapshots.FOLDER / name, text, update)
