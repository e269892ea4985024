"""Both ways of going through triplets are held against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from secid.measure.blocks import ACCELERATOR_PLAN, PLANS


@pytest.fixture(scope="module", params=["processor", "device"])
def block_plan(request: pytest.FixtureRequest) -> Iterator[None]:
    """Blocks as a CPU takes them, and as any other device does: large, products whole, no threads."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "device":
            patch.setitem(PLANS, "cpu", ACCELERATOR_PLAN)
        yield
