"""What a run was made with: versions and machine, for reports and bug reports."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "bm25s", "typer", "rich", "pydantic")


def environment() -> dict[str, Any]:
    """Python, platform, cores and versions of the packages that numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def package_version(name: str) -> str | None:
    """Version of an installed package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
