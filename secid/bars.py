"""The progress bars of huggingface_hub, for downloads of models and data sets. Imported only when a download begins."""

from __future__ import annotations

import sys
from typing import Any

from huggingface_hub.utils.tqdm import tqdm


class Bars(tqdm):
    """Progress bars that show only on a terminal. Unprintable characters in a file name become U+FFFD."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "disable": not sys.stderr.isatty() or options.get("disable")})  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return "".join(char if char.isprintable() else "\ufffd" for char in super().__str__())
