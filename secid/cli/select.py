"""`secid select`, `secid flagged` and `secid mix`: write negatives of a run to files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.cli.command import Json, Quiet, RunArgument, flag, print_json, print_screen
from secid.errors import UsageError

if TYPE_CHECKING:
    from secid.tools.export.left_out import By
    from secid.write.writer import Schema

# `secid select`.

SCHEMA_HELP = (
    "Schema of the file: st-ntuple, flagembedding, tevatron or nvidia. [default: that of the source if it is one of "
    "these, else flagembedding]"
)
OUT_HELP = "New file: .jsonl, .jsonl.gz or .parquet."


def select(
    run: RunArgument,
    out: Annotated[Path | None, flag("-o", "--out", metavar="FILE", text=f"{OUT_HELP} [required]")] = None,
    source: Annotated[
        str | None, flag("--source", metavar="SOURCE", text="Source to copy, if the run has several.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        flag(
            "--drop",
            metavar="NAME,…",
            text="Drop negatives with these findings, such as false_negative,preamble,repeat; repeatable. "
            "[default: none; with --top, --min-weight or --max, the counted defects]",
        ),
    ] = None,
    top: Annotated[int | None, flag("--top", metavar="K", text="Keep at most K negatives of each record.")] = None,
    min_weight: Annotated[
        float | None, flag("--min-weight", metavar="W", text="Keep negatives with at least this weight.")
    ] = None,
    max_negatives: Annotated[
        int | None, flag("--max", metavar="N", text="Keep at most N negatives of the whole source.")
    ] = None,
    by: Annotated[
        str,
        flag(
            "--by",
            metavar="NAME",
            text="Ranking for --top and --max: similarity (hardest first, but negatives within 5 % of their positive "
            "last), weight (easiest first), influence (those that raise the score most first) or information.",
        ),
    ] = "similarity",
    schema: Annotated[str | None, flag("--as", metavar="SCHEMA", text=SCHEMA_HELP)] = None,
    force: Annotated[
        bool, flag("--force", text="Write the copy even if its status is worse than the source's.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a copy of a source without its flagged negatives.

    RUN may also be the check.json of `secid check … -o check.json`. Then only findings that need no encoder can be
    dropped.

    With a ranking rule (--top, --min-weight, --max) the copy has the negatives that rank best. Nothing is encoded. The
    numbers before and after come from the run folder.

    Example: secid select secid-runs/mine --source bm25 --drop false_negative,preamble,repeat -o bm25-clean.jsonl
    """
    from dataclasses import asdict
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress
    from secid.tools.export.screens import selection_screen

    if out is None:
        raise UsageError("no file to write to", where="-o", remedy="use -o FILE.jsonl")
    with ConsoleProgress(quiet) as progress:
        selected = api.select(
            run,
            out,
            source=source,
            drop=drop,
            top=top,
            min_weight=min_weight,
            max_negatives=max_negatives,
            by=cast("By", by),
            schema=cast("Schema | None", schema),
            force=force,
            progress=progress,
        )
    if json:
        print_json(asdict(selected))
    else:
        print_screen(selection_screen(selected, by, named=drop is not None))


# `secid flagged`.


def flagged(
    run: RunArgument,
    finding: Annotated[
        str | None, flag("--finding", metavar="NAME", text="A finding, such as inversion; `secid explain` lists all.")
    ] = None,
    out: Annotated[str | None, flag("-o", "--out", metavar="FILE", text="New .jsonl file, or - for stdout.")] = None,
    source: Annotated[
        str | None, flag("--source", metavar="SOURCE", text="Write negatives of only this source. [default: all]")
    ] = None,
) -> None:
    """Write the negatives that have a finding, with their texts.

    Each negative is one JSON line with its place in the file and its numbers.

    Example: secid flagged secid-runs/mine --source bm25 --finding inversion -o rows.jsonl
    """
    from secid import api
    from secid.analyses.registry import read_run_folder
    from secid.tools.export.screens import flagged_screen

    sources = read_run_folder(run)[1].sources
    if finding is None:
        names = dict.fromkeys(item.name for one in sources for item in one.findings if item.n_negatives)
        remedy = f"use one of this run: {', '.join(names)}" if names else "this run has no findings"
        raise UsageError("no finding named", where="--finding", remedy=remedy)
    if out is None:
        raise UsageError("no file to write to", where="-o", remedy="use -o FILE.jsonl, or -o - for stdout")
    written = api.flagged(run, finding, sys.stdout if out == "-" else out, source=source)
    if out != "-":
        print_screen(flagged_screen(written))


# `secid mix`.

SHARE = re.compile(r"(.+?)=([^=,]+)(?:,|$)")
"""One NAME=SHARE of a list. A name may contain commas."""


def mix(
    run: RunArgument,
    shares: Annotated[
        str | None,
        flag("--shares", metavar="NAME=S,…", text="Share of each source in the mixture, such as bm25=0.6,dense=0.4."),
    ] = None,
    budget: Annotated[
        float | None,
        flag(
            "--budget",
            metavar="B",
            text="Budget B in log det(I + B M), the number of negatives drawn from the mixture [default: the run's].",
        ),
    ] = None,
    out: Annotated[
        Path | None, flag("-o", "--out", metavar="FILE", text=f"Also write the mixed file. {OUT_HELP}")
    ] = None,
    schema: Annotated[str | None, flag("--as", metavar="SCHEMA", text=SCHEMA_HELP)] = None,
    base: Annotated[
        str | None,
        flag(
            "--base",
            metavar="SOURCE",
            text="Source whose rows the file has [default: the source with a share that ranks first].",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of the draws [default: the run's].", min=0)
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a mixture of a run's sources, and write it to a file.

    You choose the shares; secid does not recommend any.

    Example: secid mix secid-runs/mine --shares bm25=0.6,dense=0.4 -o mixed.jsonl
    """
    from dataclasses import asdict
    from typing import cast

    from secid import api
    from secid.analyses.registry import read_run
    from secid.cli.console import ConsoleProgress
    from secid.tools.export.screens import mixture_screen

    report = read_run(run)
    if shares is None:
        raise no_shares([source.name for source in report.sources])
    by_source = parse_shares(shares)
    mixture = api.mix(run, by_source, budget=budget)
    written = None
    if out is not None:
        with ConsoleProgress(quiet) as progress:
            written = api.write_mixture(
                run, by_source, out, base=base, schema=cast("Schema | None", schema), seed=seed, progress=progress
            )
    if json:
        print_json({**asdict(mixture), "written": None if written is None else asdict(written)})
    else:
        print_screen(mixture_screen(report, mixture, written))


def no_shares(names: Sequence[str]) -> UsageError:
    """Return the error for missing shares. Its remedy has equal shares, which the user can edit."""
    import shlex

    equal = ",".join(f"{name}={1 / len(names):.4g}" for name in names)
    return UsageError("no shares named", where="--shares", remedy=f"use, for example, --shares {shlex.quote(equal)}")


def parse_shares(text: str) -> dict[str, float]:
    """Parse NAME=SHARE,NAME=SHARE into shares by name. Raises UsageError for another form or a repeated name."""
    shares: dict[str, float] = {}
    at = 0
    while at < len(text) or not shares:
        part = SHARE.match(text, at)
        try:
            share = float(part[2]) if part else -1.0
        except ValueError:
            share = -1.0
        if part is None or not 0.0 <= share <= 1.0:
            raise UsageError(
                f"{text[at:]!r} does not begin with NAME=SHARE and a share between 0 and 1",
                where="--shares",
                remedy="write, for example, --shares bm25=0.6,dense=0.4",
            )
        if (name := part[1].strip()) in shares:
            raise UsageError(f"{name!r} is repeated", where="--shares", remedy="name each source once")
        shares[name] = share
        at = part.end()
    return shares
