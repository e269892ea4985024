"""`secid select`, `secid flagged` and `secid mix`: the negatives of a run as files to read or to train on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.options import Json, Quiet, RunFolder, flag, takes_settings
from secid.cli.outputs import OUT_HELP, SCHEMA_HELP, counted, print_lines, written_lines
from secid.errors import UsageError
from secid.records import words
from secid.results.document import OF_LOADING
from secid.settings import flag_of

if TYPE_CHECKING:
    from rich.console import Console

    from secid.pages.page import Table
    from secid.results import Run
    from secid.tools.export.left_out import Answer, By, Selection
    from secid.tools.export.mixture import Blend, MixtureScore
    from secid.write.writer import Schema

# `secid select`.

EASIEST = (
    "--by {} keeps the easiest negatives, those that the encoder separates best from the positive; without --by the "
    "hardest are kept."
)
WIDENED = (
    "{}: the copy differs more from its positives than the source does, by {} instead of {} percentage points. Repair "
    "the texts of negatives and positives alike."
)
DEFAULT_DROP = "a ranking rule also drops {} by default; --drop none keeps them"
UNSCORED = "{} of the copy are outside the scored sample; score, hardness and outscoring below are of the sample alone."
TEXTS_ONLY = "Only in the sample could {} be dropped, which the encoder finds."
SAMPLED_ONLY = (
    "{}: evaluated only for a sample of at most 1,000 queries of each source; negatives of other queries are kept"
)
UNEQUAL = (
    "The scores are of {:,} and {:,} negatives. Beyond B = 1 a smaller sample scores too low, so they do not compare."
)
CIRCULAR = "The same encoder chose and scored these negatives{}. Only training shows whether the selection is better."
BY_THE_SCORE = ", so the higher score proves nothing"


ENCODER_HELP = "The run's encoder, if it is a local folder or an address: these are not taken from a run folder."


@takes_settings("encoder", *OF_LOADING, texts={"encoder": ENCODER_HELP})
def select(
    run: RunFolder,
    out: Annotated[Path, flag("-o", "--out", of="FILE", text=OUT_HELP)],
    source: Annotated[
        str | None, flag("--source", of="SOURCE", text="The source to copy, if the run has several.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        flag(
            "--drop",
            of="NAME,…",
            text="Drop the negatives with these findings, such as false_negative,preamble,repeat; repeatable. "
            "[default: none; with --top, --min-weight or --max the counted defects]",
        ),
    ] = None,
    top: Annotated[int | None, flag("--top", of="K", text="Keep at most K negatives of each record.")] = None,
    min_weight: Annotated[
        float | None, flag("--min-weight", of="W", text="Keep negatives of at least this weight.")
    ] = None,
    max_negatives: Annotated[int | None, flag("--max", of="N", text="Keep at most N negatives in all.")] = None,
    by: Annotated[
        str,
        flag(
            "--by",
            of="NAME",
            text="What --top and --max rank by: similarity (the hardest first, those within 5 % of their positive "
            "last), weight (the easiest first), influence (what raises the score most) or information.",
        ),
    ] = "similarity",
    schema: Annotated[str | None, flag("--as", of="SCHEMA", text=SCHEMA_HELP)] = None,
    force: Annotated[
        bool, flag("--force", text="Write the copy even if its status is worse than the source's.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Write a copy of a source without its flagged negatives.

    RUN may be what `secid check … -o check.json` wrote: findings of the texts are then dropped without an encoder.

    With a ranking rule (--top, --min-weight, --max) the copy holds the negatives that rank best. It is scored again,
    and the answer printed before and after.

    Example: secid select secid-runs/mine --source bm25 --drop false_negative,preamble,repeat -o bm25-clean.jsonl
    """
    from dataclasses import asdict
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.cli.outputs import print_json
    from secid.pages.terminal import print_table

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
            **settings,
        )
    if json:
        print_json(asdict(selected))
        return
    console = stdout()
    print_lines(console, _copy_lines(selected, named=drop is not None))
    print_table(console, _answers(selected))
    print_lines(console, _notes(selected, by))


def _copy_lines(selected: Selection, *, named: bool) -> Iterator[str]:
    """What the copy holds, and what it leaves out. named: whether the findings to drop were."""
    from secid.findings.rows import SAMPLED
    from secid.pages.text import plural
    from secid.results.catalogue import FINDINGS

    yield from written_lines(selected, selected.path)
    n_gone, gone = sum(selected.left_out.values()), counted(selected.left_out)
    yield f"left out: {n_gone:,} of {selected.n_listed:,} listed negatives{gone}; see {selected.left_out_path}"
    kept, lost = selected.n_records_kept, selected.n_records - selected.n_records_kept
    lose = f"; {lost:,} lost all and {'is' if lost == 1 else 'are'} not in the copy" if lost else ""
    yield f"{kept:,} of {plural(selected.n_records, 'record')} {'keeps' if kept == 1 else 'keep'} a negative{lose}"
    if selected.rows_skipped:
        yield f"rows without a record, not in the copy{counted(selected.rows_skipped)}"
    if selected.n_unscored:
        yield UNSCORED.format(plural(selected.n_unscored, "negative"))
        if by_encoder := [name for name in selected.drop if FINDINGS[name].needs != "texts"]:
            yield TEXTS_ONLY.format(", ".join(by_encoder))
    if sampled := [name for name in selected.drop if name in SAMPLED]:
        yield SAMPLED_ONLY.format(", ".join(sampled))
    if selected.drop and not named:
        yield DEFAULT_DROP.format(", ".join(selected.drop))


def _answers(selected: Selection) -> Table:
    """The answer row before and after."""
    from secid.pages.page import Table, foreign, number, status

    numbers = ("score ± CI", "hardness", "outscoring", "defects", "n")
    return Table(
        caption="The source before and after",
        columns=(foreign(selected.source), status("status"), *map(number, numbers)),
        rows=tuple(
            (name, *_cells(answer, selected.budget))
            for name, answer in (("before", selected.before), ("after", selected.after))
        ),
    )


def _cells(answer: Answer, budget: float) -> tuple[str, ...]:
    from secid.pages.findings import STATUS
    from secid.pages.text import count, fraction, percent, score

    return (
        STATUS[answer.status],
        "–" if answer.interval_95 is None else score(answer.eci_nats, answer.interval_95, budget),
        fraction(answer.hardness, 2),
        percent(answer.outscoring),
        percent(answer.flagged_share),
        count(answer.n_triplets),
    )


def _notes(selected: Selection, by: str) -> Iterator[str]:
    """How far before and after compare. Source: METHOD 7."""
    from secid.pages.text import points
    from secid.results.catalogue import FINDINGS
    from secid.tools.export.left_out import RULES

    before, after = selected.before, selected.after
    for name, (of_source, of_copy) in selected.widened.items():
        yield WIDENED.format(name, points(of_copy), points(of_source))
    ranked = [reason for reason in selected.left_out if reason in RULES]
    if by in ("weight", "influence") and not {"top", "max"}.isdisjoint(ranked):
        yield EASIEST.format(by)
    if selected.budget > 1.0 and before.n_triplets != after.n_triplets:
        yield UNEQUAL.format(before.n_triplets, after.n_triplets)
    if ranked or any(FINDINGS[name].needs == "rows" for name in selected.drop):
        higher = (after.eci_nats or 0.0) > (before.eci_nats or 0.0)
        yield CIRCULAR.format(BY_THE_SCORE if ranked and higher else "")


# `secid flagged`.


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
    from secid.analyses.registry import read_run_folder
    from secid.cli.console import stdout
    from secid.pages.text import plural

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


# `secid mix`.

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
    from secid.analyses.registry import read_run
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
    from secid.pages.text import plural

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
    from secid.pages.page import Table, foreign, number
    from secid.pages.text import percent, plain

    rows = tuple((plain(part.name), percent(part.share), f"{part.single_nats:.4f}") for part in mixture.parts)
    columns = (foreign("source"), number("share"), number("score alone"))
    return Table(caption="Shares of the mixture", columns=columns, rows=rows)
