"""Files -> a stream of records and defects.

>>> sources = resolve_sources(["negatives/*.parquet"], settings)      # doctest: +SKIP
>>> for item in open_source(sources[0], settings): ...                # doctest: +SKIP
"""

from secid.read.objects import Spec, specs_of, typed
from secid.read.reader import FileContent, FileShape, Reader, open_source
from secid.read.sources import passed_over, resolve_sources
from secid.read.stream import on_disk, once_only

__all__ = [
    "FileContent",
    "FileShape",
    "Reader",
    "Spec",
    "on_disk",
    "once_only",
    "open_source",
    "passed_over",
    "resolve_sources",
    "specs_of",
    "typed",
]
