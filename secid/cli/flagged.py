"""`secid flagged`."""

from __future__ import annotations

import sys
from typing import Annotated

from secid.cli.options import RunFolder, flag
from secid.cli.written import print_lines


def flagged(
    run: RunFolder,
    finding: Annotated[
        str | None, flag("--finding", of="NAME", text="The finding, such as inversion; `secid explain` lists all.")
    ] = None,
    out: Annotated[str | None, flag("-o", "--out", of="FILE", text="A new .jsonl file, or - for stdout.")] = None,
    source: Annotated[str | None, flag("--source", of="SOURCE", text="Only this source. [default: all]")] = None,
) -> None:
    """Write the negatives that have a finding, with their texts.

    Each is one JSON line, with its place in the file and its numbers.

    Example: secid flagged secid-runs/mine --source bm25 --finding inversion -o rows.jsonl
    """
    from secid import api
    from secid.analyses.report import read_run_folder
    from secid.cli.console import stdout
    from secid.errors import UsageError
    from secid.pages.numbers import plural

    sources = read_run_folder(run)[1].sources
    if finding is None:
        names = dict.fromkeys(item.name for one in sources for item in one.findings if item.n_negatives)
        raise UsageError("name the finding", where="--finding", remedy=f"this run has {', '.join(names) or 'none'}")
    if out is None:
        raise UsageError("no file to write to", where="-o", remedy="-o FILE.jsonl, or -o - for stdout")
    written = api.flagged(run, finding, sys.stdout if out == "-" else out, source=source)
    if out == "-":
        return
    counts = ", ".join(f"{name} {count:,}" for name, count in written.n_rows.items())
    total = plural(sum(written.n_rows.values()), "negative")
    print_lines(stdout(), [f"wrote {written.path}: {total} with {written.finding} ({counts})"])
