"""`secid mix`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.cli.options import Json, Quiet, RunFolder, flag
from secid.cli.written import OUT_HELP, SCHEMA_HELP, print_lines, written_lines
from secid.errors import UsageError
from secid.records import words
from secid.settings import flag_of

if TYPE_CHECKING:
    from rich.console import Console

    from secid.export.mixture import Blend
    from secid.export.mixture_score import MixtureScore
    from secid.export.writer import Schema
    from secid.pages.page import Table
    from secid.results import Run

NOT_RETRIEVAL = "Whether this mixture trains a better encoder is not measured."
REMARKS = {
    "too_few": "{name} has {n:,.0f} negatives, fewer than its share of a budget of {budget:g}.",
    "unequal": "{fewest} has {n_fewest:,.0f} negatives, {most} {n_most:,.0f}. Beyond B = 1 a smaller sample scores too "
    f"low. To compare, score samples of equal size ({flag_of('max_records')}, {flag_of('first_k')}).",
}
"""What limits the numbers of a mixture, by kind."""
SHARE = re.compile(r"(.+?)=([^=,]+)(?:,|$)")
"""One share of many, where a name may hold commas."""


def mix(
    run: RunFolder,
    shares: Annotated[
        str | None,
        flag("--shares", of="NAME=S,…", text="Share of each source in the mixture, as in bm25=0.6,dense=0.4."),
    ] = None,
    budget: Annotated[
        float | None,
        flag(
            "--budget",
            of="B",
            text="Number of negatives drawn from the mixture, B in log det(I + B M) [default: the run's].",
        ),
    ] = None,
    out: Annotated[Path | None, flag("-o", "--out", of="FILE", text=f"Also write the mixed file. {OUT_HELP}")] = None,
    schema: Annotated[str | None, flag("--as", of="SCHEMA", text=SCHEMA_HELP)] = None,
    base: Annotated[
        str | None,
        flag(
            "--base",
            of="SOURCE",
            text="Source whose rows are written [default: the highest-ranked source with a share].",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of the draws [default: the run's].", min=0)
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a mixture of a run's sources, and write it as a file.

    The shares are yours to choose: none are recommended.

    Example: secid mix secid-runs/mine --shares bm25=0.6,dense=0.4 -o mixed.jsonl
    """
    from dataclasses import asdict
    from typing import cast

    from secid import api
    from secid.analyses.report import read_run
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import print_json

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
        _print(stdout(), report, mixture, written)


def no_shares(names: Sequence[str]) -> UsageError:
    """The error where no shares are given. Its remedy is equal shares, to type again or to change."""
    import shlex

    equal = ",".join(f"{name}={1 / len(names):.4g}" for name in names)
    return UsageError("give the share of each source", where="--shares", remedy=f"--shares {shlex.quote(equal)}")


def parse_shares(text: str) -> dict[str, float]:
    """NAME=SHARE,NAME=SHARE as numbers by name. Raises UsageError for another form or a name given twice."""
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
                f"{text[at:]!r} does not begin with NAME=SHARE, a share between 0 and 1",
                where="--shares",
                remedy="write --shares bm25=0.6,dense=0.4",
            )
        if (name := part[1].strip()) in shares:
            raise UsageError(f"{name!r} is given twice", where="--shares")
        shares[name] = share
        at = part.end()
    return shares


def _print(console: Console, run: Run, mixture: MixtureScore, written: Blend | None) -> None:
    """Prints the score, what is wrong with the sources in the mixture, and the file that was written."""
    from secid.pages.findings import statuses_line
    from secid.pages.terminal import command, print_table, write

    write(console, f"The mixture scores {mixture.nats:.4f} nats at B = {mixture.budget:g}.", "bold")
    taken = {part.name for part in mixture.parts}
    used = [source for source in run.sources if source.name in taken]
    write(console, f"Sources in the mixture. {statuses_line(used)}")
    for source in used:
        command(console, source.repair or "", indent=2)
    write(console, NOT_RETRIEVAL)
    console.print()
    print_table(console, _shares_table(mixture))
    print_lines(console, (words(REMARKS, remark) for remark in mixture.remarks))
    if written is not None:
        print_lines(console, (*written_lines(written, written.path), *_drawing_lines(written)))


def _drawing_lines(written: Blend) -> Iterator[str]:
    """Where the negatives come from, and what was short in the drawing."""
    from secid.pages.numbers import plural

    drawn = ", ".join(f"{name} {count:,}" for name, count in written.n_drawn.items())
    yield f"drawn: {drawn}; the origin of each is in {written.provenance_path}"
    if len(written.n_drawn) == 1:
        yield f"{next(iter(written.n_drawn))} has the whole share, so nothing is mixed in"
    elif written.n_alone:
        alone = f"{written.n_alone:,} of {plural(written.n_records, 'record')}"
        yield f"{alone} could draw from one source at most"
    if written.n_false_negative or written.n_near_copy:
        positives = plural(written.n_false_negative, "labelled positive")
        copies = plural(written.n_near_copy, "near copy", "near copies")
        yield f"not drawn: {positives} of their query, {copies} of one"
    if written.n_short:
        yield f"{plural(written.n_short, 'negative')} short of the shares; other sources gave more where they could"


def _shares_table(mixture: MixtureScore) -> Table:
    from secid.pages.numbers import percent
    from secid.pages.page import Table, foreign, number
    from secid.pages.sanitize import plain

    rows = tuple((plain(part.name), percent(part.share), f"{part.single_nats:.4f}") for part in mixture.parts)
    columns = (foreign("source"), number("share"), number("score alone"))
    return Table(caption="Shares of the mixture", columns=columns, rows=rows)
