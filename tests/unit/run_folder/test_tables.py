"""Tables of a run folder, read again: whole, of the same run, or an error that names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from secid import api
from secid.analyses.registry import read_run
from secid.errors import InputError
from secid.run_folder.tables import POSITIVES, RANDOM_REFERENCE, TABLES, read_positives, read_reference
from tests.fake_encoder import HashEncoder
from tests.snapshots import refusal
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import files_of

READERS: dict[str, Callable[..., object]] = {POSITIVES: read_positives, RANDOM_REFERENCE: read_reference}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two runs over the same files that differ in their seed alone, and one over few passages."""
    made = tmp_path_factory.mktemp("runs")
    settings = {"cache": False, "controls": "none"}
    files = files_of(made, {"own": clean_rows(60)})
    for seed in (0, 1):
        api.score(files, HashEncoder(), run=made / f"seed{seed}", seed=seed, **settings)
    few = files_of(made, {"few": clean_rows(2)})
    api.score(few, HashEncoder(), run=made / "few", **settings)
    return made


def test_the_reference_is_read_as_it_was_measured(folder):
    first, second = (read_reference(folder / name, read_run(folder / name)) for name in ("seed0", "seed1"))
    assert first is not None
    assert second is not None
    assert {name: array.shape for name, array in first.items()} == {
        "keys": (60, 16), "n_passages": (60,), "mean": (60,), "percentile_90": (60,)
    }  # fmt: skip
    assert (first["mean"] < first["percentile_90"]).all()
    assert not np.array_equal(first["mean"], second["mean"])


def test_a_run_of_few_passages_has_no_reference(folder):
    assert read_reference(folder / "few", read_run(folder / "few")) is None


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("files", [(TABLES,), (POSITIVES, RANDOM_REFERENCE), (TABLES, POSITIVES, RANDOM_REFERENCE)])
def test_tables_of_another_run_are_refused(folder, tmp_path, name, files):
    mixed = tmp_path / "mixed"
    shutil.copytree(folder / "seed0", mixed)
    run = read_run(mixed)
    READERS[name](mixed, run)
    for file in files:
        shutil.copy(folder / "seed1" / "state" / file, mixed / "state")
    if name == POSITIVES and TABLES not in files:
        READERS[name](mixed, run)  # they do not depend on the seed: the same bytes
        return
    with pytest.raises(InputError) as caught:
        READERS[name](mixed, run)
    assert caught.value.where in (str(mixed / "state" / name), str(mixed / "state" / TABLES))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("place", [0, 9, -1])
def test_a_changed_byte_is_noticed(folder, tmp_path, name, place):
    copy = tmp_path / "copy"
    shutil.copytree(folder / "seed0", copy)
    path = copy / "state" / name
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))
    refusal(lambda: READERS[name](copy, read_run(copy)), InputError, path)
