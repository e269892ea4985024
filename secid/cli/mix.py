"""`secid mix`."""

from __future__ import annotations

from collections.abc import Iterator
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

    from secid.export.best_mixture import MixResult
    from secid.export.mixture import Blend
    from secid.export.writer import Schema
    from secid.pages.page import Table
    from secid.results import Run

NOT_RETRIEVAL = "This mixture maximises the score, not retrieval: whether it trains a better encoder is not measured."
OPTIMUM_NATS = 1e-10
"""Gap below which nothing is left to gain."""
COLUMNS = "loss without: nats lost if the source is left out and the others are mixed again."
COSTS = "Below 0 the share that was fixed for it costs nats."
ALONE = "At budget {budget:g} the best mixture is {name} alone, or nearly so."
REMARKS = {
    "only_source": "{name} is the only source of this run: there is nothing to mix it with.",
    "alone": ALONE,
    "alone_by_rule": f"{ALONE} At B = 1 the score is nearly the mean weight, so this is to be expected.",
    "near_alone": "At B = 1 the score is nearly the mean weight of the negatives, so the best mixture lies close to "
    "one source: it holds {gain:.2g} nats more than {name} alone.",
    "same_information": "{first} and {second} hold the same information, so the split between them is arbitrary.",
    "too_few": "{name} has {n:,.0f} negatives, fewer than its share of a budget of {budget:g}.",
    "unequal": "{fewest} has {n_fewest:,.0f} negatives, {most} {n_most:,.0f}. Beyond B = 1 a smaller sample scores too "
    "low, so shares and hybrids favour the larger source. To compare, score samples of equal size "
    f"({flag_of('max_records')}, {flag_of('first_k')}).",
    "control": "The score gives the control {name} a share of {share:.1%}: it does not always prefer mined negatives.",
}
"""What limits the numbers of a mixture, by kind."""


def mix(
    run: RunFolder,
    budget: Annotated[
        float | None,
        flag(
            "--budget",
            of="B",
            text="Number of negatives drawn from the mixture, B in log det(I + B M) [default: the run's].",
        ),
    ] = None,
    max_share: Annotated[float, flag("--max-share", of="S", text="Largest share of any source.")] = 1.0,
    fix: Annotated[
        list[str] | None, flag("--fix", of="NAME=SHARE", text="Set the share of a source, or of a control; repeatable.")
    ] = None,
    with_controls: Annotated[
        bool,
        flag("--with-controls", text="Let controls take a share too, to see how much of them the score would choose."),
    ] = False,
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
    """Find the mixture of a run's sources with the highest score.

    It maximises the score, not retrieval.

    Example: secid mix secid-runs/mine --budget 1000 --max-share 0.7 -o mixed.jsonl
    """
    from dataclasses import asdict
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import print_json
    from secid.results.document import read_run

    if out is not None and with_controls:
        raise UsageError("controls are in no file, so a mixture with them cannot be written", where="--with-controls")
    bounds = parse_shares(fix or [])
    mixture = api.mix(run, budget=budget, max_share=max_share, fixed=bounds, with_controls=with_controls)
    written = None
    if out is not None:
        shares = {part.name: part.share for part in mixture.parts}
        with ConsoleProgress(quiet) as progress:
            written = api.write_mixture(
                run,
                shares,
                out,
                base=base,
                schema=cast("Schema | None", schema),
                seed=seed,
                max_share=max_share,
                fixed=list(bounds),
                progress=progress,
            )
    if json:
        print_json({**asdict(mixture), "written": None if written is None else asdict(written)})
    else:
        _print(stdout(), read_run(run), mixture, written)


def parse_shares(texts: list[str]) -> dict[str, float]:
    """NAME=SHARE texts as numbers by name. Raises UsageError for another form or a name given twice."""
    shares: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not name or not 0.0 <= share <= 1.0:
            raise UsageError(f"{text!r} is not NAME=SHARE with a share between 0 and 1", where="--fix")
        if name in shares:
            raise UsageError(f"{name!r} is given twice", where="--fix")
        shares[name] = share
    return shares


def _print(console: Console, run: Run, mixture: MixResult, written: Blend | None) -> None:
    """Prints the mixture, what is wrong with the sources in it, and the file that was written."""
    from secid.pages.findings import statuses_line
    from secid.pages.sanitize import plain
    from secid.pages.terminal import command, print_table, write

    bounded = mixture.max_share < 1.0 or any(part.fixed for part in mixture.parts)
    equal = "near-equal shares" if bounded else "equal shares"
    within = " within the bounds" if bounded else ""
    best = f"The best mixture{within} scores {mixture.nats:.4f} nats at B = {mixture.budget:g}"
    single = f"{plain(mixture.best_single)} alone {mixture.best_single_nats:.4f}"
    write(console, f"{best}, {single}, {equal} {mixture.equal_nats:.4f}.", "bold")
    if mixture.gap_nats >= OPTIMUM_NATS:
        write(console, f"No allowed mixture scores more than {mixture.gap_nats:.1e} nats above it.")
    taken = {part.name for part in mixture.parts if part.share > 0}
    used = [source for source in run.sources if source.name in taken]
    if used:
        write(console, f"Sources in the mixture. {statuses_line(used)}")
    for source in used:
        command(console, source.repair or "", indent=2)
    write(console, NOT_RETRIEVAL)
    console.print()
    print_table(console, _shares_table(mixture))
    costs = any((part.loss_without_nats or 0.0) < 0.0 for part in mixture.parts)
    write(console, f"{COLUMNS} {COSTS if costs else ''}".rstrip())
    print_lines(console, (words(REMARKS, remark) for remark in mixture.remarks))
    if written is not None:
        print_lines(console, (*written_lines(written, written.path), *_drawing_lines(written, mixture.max_share)))


def _drawing_lines(written: Blend, max_share: float) -> Iterator[str]:
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
    if written.n_cut:
        yield f"{plural(written.n_cut, 'negative')} left out: with them a source would exceed --max-share {max_share:g}"


def _shares_table(mixture: MixResult) -> Table:
    from secid.pages.numbers import percent
    from secid.pages.page import Table, foreign, number
    from secid.pages.sanitize import plain

    rows = []
    for part in mixture.parts:
        loss = "–" if part.loss_without_nats is None else f"{part.loss_without_nats:.4f}"
        share = percent(part.share) + (" fixed" if part.fixed else "")
        rows.append((plain(part.name), share, f"{part.single_nats:.4f}", loss))
    columns = (foreign("source"), *map(number, ("share", "score alone", "loss without")))
    return Table(caption="Shares of the best mixture", columns=columns, rows=tuple(rows))
