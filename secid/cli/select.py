"""`secid select`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from secid.cli.options import Json, Quiet, RunFolder, flag, takes_settings
from secid.cli.written import OUT_HELP, SCHEMA_HELP, counted, print_lines, written_lines
from secid.scoring.stored import OF_LOADING

if TYPE_CHECKING:
    from secid.export.left_out import Answer, By, Selection
    from secid.export.writer import Schema
    from secid.pages.page import Table

EASIEST = (
    "--by {} keeps the easiest negatives, those that the encoder separates best from the positive; without --by the "
    "hardest are kept."
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
    from secid.pages.numbers import plural
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
    from secid.pages.numbers import count, fraction, percent, score

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
    from secid.export.left_out import RULES
    from secid.results.catalogue import FINDINGS

    before, after = selected.before, selected.after
    ranked = [reason for reason in selected.left_out if reason in RULES]
    if by in ("weight", "influence") and not {"top", "max"}.isdisjoint(ranked):
        yield EASIEST.format(by)
    if selected.budget > 1.0 and before.n_triplets != after.n_triplets:
        yield UNEQUAL.format(before.n_triplets, after.n_triplets)
    if ranked or any(FINDINGS[name].needs == "rows" for name in selected.drop):
        higher = (after.eci_nats or 0.0) > (before.eci_nats or 0.0)
        yield CIRCULAR.format(BY_THE_SCORE if ranked and higher else "")
