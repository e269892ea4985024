"""The progress bars of huggingface_hub, for downloads of models and data sets. Imported only when a download begins."""

from __future__ import annotations

import sys
from typing import Any

from huggingface_hub.utils.tqdm import tqdm


class Bars(tqdm):
    """Bars that only a terminal shows. Unprintable characters of a file's name, such as escapes, become U+FFFD."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "disable": not sys.stderr.isatty() or options.get("disable")})  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return "".join(char if char.isprintable() else "\ufffd" for char in super().__str__())
