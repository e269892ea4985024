"""What `secid select` and `secid mix` print of a file they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from secid.export.writer import Written

SCHEMA_HELP = (
    "Schema of the file: st-ntuple, flagembedding, tevatron or nvidia. [default: that of the source where it is one of "
    "these, else flagembedding]"
)
OUT_HELP = "A new file: .jsonl, .jsonl.gz or .parquet."
TRIPLETS = (
    "rows differ in their number of negatives, so each row is one triplet (anchor, positive, negative); an n-tuple "
    "needs the same number in every row"
)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Sentences in lines of the console's width."""
    from secid.pages.sanitize import plain
    from secid.pages.terminal import write

    for line in lines:
        write(console, plain(line))


def counted(reasons: Mapping[str, int]) -> str:
    """ " (top 3, repeat 1)"; nothing where there is none."""
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({counts})" if counts else ""


def written_lines(written: Written, path: str) -> Iterator[str]:
    """The file, its schema, and what the schema does not hold."""
    from secid.pages.glossary import lost_lines
    from secid.pages.numbers import plural

    layout = f" ({written.layout})" if written.layout else ""
    holds = f"{plural(written.n_rows, 'row')}, {plural(written.n_negatives, 'negative')}"
    yield f"wrote {path}: {written.schema}{layout}, {holds}"
    if written.layout == "triplets":
        yield TRIPLETS
    yield from lost_lines(written.schema, written.n_made_ids, written.not_held)
