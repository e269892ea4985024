"""Commands that act on the findings of a source, ready to paste into a shell."""

from __future__ import annotations

import shlex

NO_RUN_FOLDER = "RUN"
"""Stands in a command for a run folder that was not written."""
COPY_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Suffixes of the files that `secid select` and `secid mix` write."""


def repair_command(run: str | None, source: str, defects: tuple[str, ...], first_file: str) -> str:
    """The command that writes a copy of a source without its defects.

    run : the run folder; RUN in its place where there is none.

    >>> repair_command("secid-runs/x", "bm25", ("false_negative", "repeat"), "data/bm25.jsonl")
    'secid select secid-runs/x --source bm25 --drop false_negative,repeat -o bm25-clean.jsonl'
    """
    suffix = next((known for known in COPY_SUFFIXES if first_file.endswith(known)), COPY_SUFFIXES[0])
    return _on_source("select", run, source, ("--drop", ",".join(defects)), f"clean{suffix}")


def flagged_command(run: str | None, source: str, finding: str) -> str:
    """The command that writes the rows that have a finding, with their texts.

    >>> flagged_command(None, "-a/b", "hub")
    'secid flagged RUN --source=-a/b --finding hub -o a_b-hub.jsonl'
    """
    return _on_source("flagged", run, source, ("--finding", finding), f"{finding}.jsonl")


def _on_source(command: str, run: str | None, source: str, options: tuple[str, ...], end: str) -> str:
    """A command on one source of a run that writes a file named after both."""
    folder = f"./{run}" if run and run.startswith("-") else run or NO_RUN_FOLDER
    named = (f"--source={source}",) if source.startswith("-") else ("--source", source)
    stem = "".join(char if char.isalnum() or char in "_-." else "_" for char in source).lstrip("-") or "source"
    return shlex.join(["secid", command, folder, *named, *options, "-o", f"{stem}-{end}"])
