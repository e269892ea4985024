"""Files that a command writes: none of those that it reads, and remarks on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def refuse_inputs(outputs: Sequence[Path], specs: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raises UsageError if an output is a source, or a file that the settings name.

    specs, settings : as the command was given them. Without outputs no source is opened.
    """
    if not outputs:
        return
    from secid.pages.pages import check_not_read
    from secid.read import resolve_sources
    from secid.settings import FIELDS, resolve

    values = resolve({name: value for name, value in settings.items() if name in FIELDS}).values
    sources = [path for source in resolve_sources(specs, values) for path in source.paths]
    named: Iterable[str | None] = (values.encoder, values.corpus, values.queries)
    check_not_read(outputs, map(Path, (*sources, *filter(None, named))))
