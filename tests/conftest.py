"""Settings and fixtures for all tests, and for the processes that they start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fast, snapshots

# One thread: the thread pools of two test workers slow each other down. No number depends on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
gc.disable()  # until the tests are collected: imported modules stay in memory anyway


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write tests/snapshots anew")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the tests of all workers share one cache, empty at first, instead of the user's; and no certificates."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        of_all = base.parent if base.name.startswith("popen-") else base
        patch.setenv("XDG_CACHE_HOME", str(of_all / "cache"))
        # No test speaks TLS, and every HTTP client reads all certificates of the machine first, for 30 ms or more.
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("no-certificates")))
        yield


@pytest.fixture
def snapshot(pytestconfig: pytest.Config) -> snapshots.Snapshot:
    """Return snapshot(name, text), which asserts that the text equals tests/snapshots/NAME."""
    update = bool(pytestconfig.getoption("--update-snapshots"))
    return lambda name, text: snapshots.compare(snapshots.FOLDER / name, text, update)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip all but the fast test files under `-m fast`: importing every file takes longer than the fast tests do."""
    other = collection_path.suffix == ".py" and not fast.is_fast(collection_path)
    return True if other and config.getoption("markexpr") == "fast" else None


def pytest_collection_finish() -> None:
    """Exclude libraries and tests, which live to the end, from garbage collection."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # the defaults collect ten times as often, and find next to nothing
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of fast files, before `-m` selects by the mark."""
    for item in items:
        if fast.is_fast(item.path):
            item.add_marker("fast")
