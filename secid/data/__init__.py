"""Files -> a stream of records and defects.

>>> sources = resolve_sources(["negatives/*.parquet"], settings)      # doctest: +SKIP
>>> for item in open_source(sources[0], settings): ...                # doctest: +SKIP
"""

from secid.data.reader import FileContent, FileShape, Reader, ShareStream, open_source
from secid.data.shares import Share
from secid.data.sources import passed_over, resolve_sources
from secid.data.stream import once_only

__all__ = [
    "FileContent",
    "FileShape",
    "Reader",
    "Share",
    "ShareStream",
    "once_only",
    "open_source",
    "passed_over",
    "resolve_sources",
]
