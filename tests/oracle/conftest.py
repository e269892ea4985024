"""Compare both block plans for triplets with the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from secid.measure.blocks import ACCELERATOR_PLAN, PLANS


@pytest.fixture(scope="module", params=["processor", "device"])
def block_plan(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use the block plan of a CPU, and that of other devices: large blocks, whole products, no threads."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "device":
            patch.setitem(PLANS, "cpu", ACCELERATOR_PLAN)
        yield
