"""`secid audit`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from secid.cli.options import ENCODING, GUIDE, INPUT, READING, Json, Out, Quiet, Sources, Split, flag, takes_settings

OF_GUIDE = tuple(name for name in GUIDE if name != "guide_sample")


@takes_settings("encoder", *READING, *ENCODING, *OF_GUIDE, "positives", "first_k", "max_records", "seed")
def audit(
    sources: Sources,
    qrels: Annotated[
        str | None,
        flag(
            "--qrels",
            of="FILE",
            text="Relevance judgements, in BEIR's or TREC's layout, instead of those of --collection; --set "
            "corpus=FILE and --set queries=FILE name the texts of their ids.",
            group=INPUT,
        ),
    ] = None,
    split: Split = None,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Count the negatives that relevance judgements call relevant.

    Also measures how well the encoder, and a guide, would have found them. A grade above 0 is relevant. Judgements are
    matched by id, or by text if the sources hold texts.

    Example: secid audit mined/*.jsonl --collection scifact --encoder e5-base
    """
    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.cli.outputs import check_outputs, files_read, print_result, print_verdict
    from secid.files import write_whole
    from secid.pages.audit_page import AUDIT_FORMATS, audit_page
    from secid.pages.terminal import print_page

    files = out or []
    check_outputs(files, AUDIT_FORMATS, chain(files_read(sources, settings), [Path(qrels)] if qrels else []))
    with ConsoleProgress(quiet) as progress:
        result = api.audit(sources, qrels=qrels, split=split, progress=progress, **settings)
    for path in files:
        write_whole(path, AUDIT_FORMATS[path.suffix](result))
    print_result(result, json, lambda console, audited: print_page(console, audit_page(audited)))
    print_verdict(result, quiet)
