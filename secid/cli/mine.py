"""`secid mine`: mine hard negatives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.command import (
    ENCODING_SETTINGS,
    GUIDE_SETTINGS,
    OUTPUT,
    READING_SETTINGS,
    Json,
    Quiet,
    Split,
    flag,
    print_result,
    takes_settings,
)
from secid.settings import flag_of

if TYPE_CHECKING:
    from secid.tools.mining.methods import OnShort
    from secid.write.writer import Schema

mining = partial(flag, group="Mining")
HIDDEN_MINE_FLAGS = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "query_prompt", "passage_prompt", "dtype", "tokenizer", "temperature",
)  # fmt: skip
"""Flags that work as in `secid score`. They are not in the help, since few users need them here."""


@takes_settings(
    "encoder",
    *READING_SETTINGS,
    *ENCODING_SETTINGS,
    *GUIDE_SETTINGS,
    "tokenizer",
    "temperature",
    "seed",
    hidden=HIDDEN_MINE_FLAGS,
)
def mine(
    miners: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=METHOD",
            help="Sources to mine: random; bm25; dense; hybrid:NAME=5,NAME=5; llm:model=NAME,url=URL; or a preset "
            "(nv-retriever-95, simans, rank-10-210, rank-50-100, qwen-0.1). Options after a colon: ranks=11-20 (bm25, "
            "dense); relative=0.05 (the default) or none, absolute=0.1, maximum=0.8, pick=top|random|simans (dense).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, flag("-o", "--out", metavar="FOLDER", text="New folder for the files NAME.jsonl.")
    ] = None,
    k: Annotated[int, mining("-k", metavar="K", text="Negatives per row.")] = 10,
    pairs: Annotated[
        str | None,
        mining("--pairs", metavar="SOURCE", text="Take queries and positives from this source instead of qrels."),
    ] = None,
    split: Split = None,
    on_short: Annotated[
        str,
        mining(
            "--on-short",
            metavar="NAME",
            text="Rows with fewer than K negatives: keep, drop, or random (fill with random passages).",
        ),
    ] = "keep",
    max_reuse: Annotated[
        int | None, mining("--max-reuse", metavar="N", text="Use a passage in at most N rows of a source.")
    ] = None,
    prompt: Annotated[
        Path | None, mining("--prompt", metavar="FILE", text="Prompt for llm, with {query}, {positive} and {n}.")
    ] = None,
    concurrency: Annotated[
        int, mining("--concurrency", metavar="N", text="Maximum requests that llm sends at once.")
    ] = 8,
    sweep: Annotated[
        bool,
        mining(
            "--sweep", text="Only show results of other ranks and margins, with --guide also suspects. Write no file."
        ),
    ] = False,
    schema: Annotated[
        str,
        flag(
            "--as",
            metavar="SCHEMA",
            text="Schema of the files: st-ntuple, flagembedding, tevatron or nvidia.",
            group=OUTPUT,
        ),
    ] = "flagembedding",
    parquet: Annotated[bool, flag("--parquet", text="Write Parquet instead of JSON lines.", group=OUTPUT)] = False,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Mine hard negatives by several methods in one pass.

    Labelled positives of a query, and near copies of them, never become its negatives. Flags for files and for the
    encoder work as in `secid score`.

    Example: secid mine bm25=bm25 near=dense --collection scifact --encoder e5-base -o mined
    """
    from typing import cast

    import secid
    from secid.cli.console import ConsoleProgress
    from secid.errors import UsageError
    from secid.pages.mine_text import mined_screen, sweep_screen

    common = {"k": k, "pairs": pairs, "split": split, "max_reuse": max_reuse, **settings}
    if sweep:
        output = {"--out": out, "--parquet": parquet, "--prompt": prompt, "--on-short": on_short != "keep",
                  "--as": schema != "flagembedding", "--concurrency": concurrency != 8}  # fmt: skip
        _refuse(output, "has no effect with --sweep, which writes nothing")
        with ConsoleProgress(quiet) as progress:
            table = secid.mine_sweep(miners, progress=progress, **common)
        print_result(table, json, sweep_screen)
        return
    _refuse({flag_of(name): settings.get(name) for name in GUIDE_SETTINGS}, "has no effect without --sweep")
    if out is None:
        raise UsageError("no folder to write to", remedy="use -o FOLDER, or --sweep to write nothing")
    with ConsoleProgress(quiet) as progress:
        result = secid.mine(
            miners,
            out,
            on_short=cast("OnShort", on_short),
            schema=cast("Schema", schema),
            parquet=parquet,
            prompt=None if prompt is None else _text_of(prompt),
            concurrency=concurrency,
            progress=progress,
            **common,
        )
    print_result(result, json, mined_screen)


def _refuse(flags: Mapping[str, object], why: str) -> None:
    """Raise UsageError for the first flag that is set. flags: values by flag.   why: message."""
    from secid.errors import UsageError

    for name, value in flags.items():
        if value not in (None, False):
            raise UsageError(why, where=name, remedy="remove it")


def _text_of(path: Path) -> str:
    from secid.errors import InputError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), remedy="name a text file in UTF-8") from error
