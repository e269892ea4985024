"""`secid check`."""

from __future__ import annotations

from typing import Annotated, Any

from secid.cli.options import READING, Json, Out, Quiet, Sources, flag, takes_settings
from secid.results.catalogue import CAUTIONS
from secid.results.check import ANY, CHECKED

USED = ("tokenizer", "examples", *(name for name in READING if name != "on_bad"))
"""Without on_bad: a few malformed rows are a caution here, an error with --fail-on malformed_rows=0."""


@takes_settings(*USED)
def check(
    sources: Sources,
    against_eval: Annotated[
        str | None,
        flag(
            "--against-eval",
            of="DIR",
            text="BEIR folder, hf://datasets/OWNER/NAME, or mteb:TASK (such as mteb:SciFact) whose queries and "
            "relevant passages must not occur in the sources.",
            group="Input",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        flag(
            "--fail-on",
            of="NAME[=LIMIT]",
            text="Exit 1 if this finding is above its limit (default: see `secid explain NAME`); repeatable. One "
            f"of {ANY} (all of them), {', '.join((*CHECKED, *CAUTIONS))}.",
        ),
    ] = None,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> int:
    """Find the defects of the texts in seconds, without an encoder.

    Exit codes: 0 pass; 1 a finding of --fail-on is above its limit; 2 wrong usage, a file that cannot be read or
    understood, too many malformed rows, or a source without a triplet.

    Example: secid check negatives/*.jsonl --fail-on false_negative
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.cli.outputs import check_outputs, files_read, print_result, print_verdict
    from secid.files import write_whole
    from secid.pages.check_page import CHECK_FORMATS
    from secid.pages.check_text import print_check

    files = out or []
    check_outputs(files, CHECK_FORMATS, files_read(sources, settings))
    with ConsoleProgress(quiet) as progress:
        result = api.check(sources, against_eval=against_eval, fail_on=fail_on or (), progress=progress, **settings)
    for path in files:
        write_whole(path, CHECK_FORMATS[path.suffix](result))
    print_result(result, json, print_check)
    print_verdict(result, quiet)
    return 1 if result.failed else 0
