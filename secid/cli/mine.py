"""`secid mine`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.options import ENCODING, GUIDE, READING, Json, Quiet, Split, takes_settings

if TYPE_CHECKING:
    from secid.export.writer import Schema
    from secid.mining.methods import OnShort

MINING = "Mining"
AS_OF_SCORE = (
    "format", "query_column", "positive_column", "negative_column", "label_column", "positive_score", "source_column",
    "query_prompt", "passage_prompt", "dtype", "tokenizer", "temperature",
)  # fmt: skip
"""Flags that work as those of `secid score` do, and that few need here."""


@takes_settings("encoder", *READING, *ENCODING, *GUIDE, "tokenizer", "temperature", "seed", hidden=AS_OF_SCORE)
def mine(
    miners: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=METHOD",
            help="Sources to mine: random; bm25; dense; hybrid:NAME=5,NAME=5; llm:model=NAME,url=URL; or a preset "
            "(nv-retriever-95, simans, rank-10-210, rank-50-100, qwen-0.1). Options after a colon: ranks=11-20 (bm25, "
            "dense); relative=0.05, absolute=0.1, maximum=0.8, pick=top|random|simans (dense).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="A new folder for NAME.jsonl.")
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="K", help="Negatives of each row.", rich_help_panel=MINING)] = 10,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="SOURCE",
            help="Take queries and positives from this source, not from qrels.",
            rich_help_panel=MINING,
        ),
    ] = None,
    split: Split = None,
    on_short: Annotated[
        str,
        typer.Option(
            "--on-short",
            metavar="NAME",
            help="Rows with fewer than K: keep, drop, or random (fill up).",
            rich_help_panel=MINING,
        ),
    ] = "keep",
    max_reuse: Annotated[
        int | None,
        typer.Option(
            "--max-reuse",
            metavar="N",
            help="Most rows of a source that a passage may be a negative in.",
            rich_help_panel=MINING,
        ),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            "--prompt",
            metavar="FILE",
            help="The prompt of llm, with {query}, {positive} and {n}.",
            rich_help_panel=MINING,
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="Requests that llm sends at once.", rich_help_panel=MINING)
    ] = 8,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Write nothing, but show what other ranks and margins give; with --guide, suspects too.",
            rich_help_panel=MINING,
        ),
    ] = False,
    schema: Annotated[
        str,
        typer.Option(
            "--as", metavar="SCHEMA", help="st-ntuple, flagembedding, tevatron or nvidia.", rich_help_panel="Output"
        ),
    ] = "flagembedding",
    parquet: Annotated[bool, typer.Option("--parquet", help="Write Parquet.", rich_help_panel="Output")] = False,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Mine hard negatives by several methods in one pass.

    No labelled positive of a query, nor a near copy of one, becomes its negative. Flags of files and of the encoder
    are those of `secid score`.

    Example: secid mine bm25=bm25 near=dense:relative=0.05 --collection scifact --encoder e5-base -o mined
    """
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.cli.outputs import print_result
    from secid.pages.mine_text import print_mined, print_sweep

    if sweep:
        others = {
            "--on-short": on_short != "keep",
            "--as": schema != "flagembedding",
            "--concurrency": concurrency != 8,
        }
        _refuse_output({"--out": out, "--parquet": parquet, "--prompt": prompt, **others})
        with ConsoleProgress(quiet) as progress:
            table = api.mine_sweep(
                miners, k=k, pairs=pairs, split=split, max_reuse=max_reuse, progress=progress, **settings
            )
        print_result(table, json, print_sweep)
        return
    folder = _folder(out, settings)
    with ConsoleProgress(quiet) as progress:
        result = api.mine(
            miners,
            folder,
            k=k,
            pairs=pairs,
            split=split,
            on_short=cast("OnShort", on_short),
            max_reuse=max_reuse,
            schema=cast("Schema", schema),
            parquet=parquet,
            prompt=None if prompt is None else _text_of(prompt),
            concurrency=concurrency,
            progress=progress,
            **settings,
        )
    print_result(result, json, print_mined)


def _refuse_output(given: Mapping[str, object]) -> None:
    """Raises UsageError for a flag of the files that --sweep does not write."""
    from secid.errors import UsageError

    for flag, value in given.items():
        if value:
            raise UsageError("has no effect with --sweep, which writes nothing", where=flag)


def _folder(out: Path | None, settings: Mapping[str, object]) -> Path:
    """Raises UsageError without a folder, or for a guide, which only --sweep asks."""
    from secid.errors import UsageError
    from secid.settings import flag_of

    for name in GUIDE:
        if settings.get(name) is not None:
            raise UsageError("has no effect without --sweep", where=flag_of(name))
    if out is None:
        raise UsageError("no folder to write to", remedy="-o FOLDER, or --sweep to write nothing")
    return out


def _text_of(path: Path) -> str:
    from secid.errors import InputError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
