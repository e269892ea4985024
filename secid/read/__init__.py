"""Read files as a stream of records and defects.

>>> sources = resolve_sources(["negatives/*.parquet"])      # doctest: +SKIP
>>> for item in open_source(sources[0], settings): ...                # doctest: +SKIP
"""

from secid.read.reader import Reader, open_source, open_sources
from secid.read.sources import resolve_sources, sources_and_words
from secid.read.stream import is_read_once, on_disk

__all__ = ["Reader", "is_read_once", "on_disk", "open_source", "open_sources", "resolve_sources", "sources_and_words"]
