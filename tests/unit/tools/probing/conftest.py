"""Provide one tiny encoder and one task for all tests of the probe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from secid.encode.transformer import TransformerEncoder
from secid.tools.probing.task import Task
from tests.tiny_probe import keyed_task, tiny_encoder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: a tiny model is faster so, and sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny encoder."""
    path = tmp_path_factory.mktemp("probing") / "encoder"
    tiny_encoder(path)
    return path


@pytest.fixture(scope="session")
def encoder(folder: Path) -> TransformerEncoder:
    return tiny_encoder(folder)


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return keyed_task(tmp_path_factory.mktemp("task"))
