"""`secid select`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secid.cli.outputs import repeats_told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from secid.export.rescore import Selected
    from secid.export.select import By

EASIEST = (
    "--by weight keeps the easiest negatives, those that the encoder separates best from the positive; --by influence "
    "keeps those that raise the score most"
)
DEFAULT_DROP = "dropped by default with a ranking rule: {}; --drop none keeps them"
UNCHECKED = "{} outside the sample or the first K: not scored, so not checked, and kept"
SAMPLED_ONLY = (
    "{}: evaluated only for the queries that were sampled for random passages, at most 1,000 of each source; negatives "
    "of other queries are kept"
)
CIRCULAR = (
    "Selecting and scoring with the same encoder is circular{}. Only training shows whether the selection is better."
)
BY_THE_SCORE = ": the score rises because it is what was selected by"


def select(
    run: Annotated[Path, typer.Argument(help="Run folder of `secid score`.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="The filtered copy; a new file.", show_default=False)],
    source: Annotated[str | None, typer.Option("--source", help="Which source, where the run has several.")] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            metavar="NAME,…",
            help="Findings whose negatives go, such as false_negative,preamble,repeat; repeatable. No ranking rule is "
            "needed. Blank negatives are in no copy. "
            "[default: none; with a ranking rule false_negative,near_copy,repeat]",
        ),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", help="Keep at most K negatives of each record.")] = None,
    min_weight: Annotated[float | None, typer.Option("--min-weight", help="Keep negatives of at least this w.")] = None,
    max_negatives: Annotated[int | None, typer.Option("--max", help="Keep at most N negatives in all.")] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="What --top and --max rank by: weight (keeps the easiest negatives), influence (those that raise the "
            "score most) or information.",
        ),
    ] = "weight",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
) -> None:
    """Write a copy of a source without its flagged negatives, or with its best ranked ones, and score it again.

    Example: secid select secid-runs/mine --source bm25 --drop false_negative,preamble,repeat -o bm25-clean.jsonl
    """
    from dataclasses import asdict
    from json import dumps
    from typing import cast

    from secid import api
    from secid.cli.console import ConsoleProgress, stdout
    from secid.pages.sanitize import plain

    with ConsoleProgress(quiet) as progress:
        selected = api.select(
            run,
            out,
            source=source,
            top=top,
            min_weight=min_weight,
            max_negatives=max_negatives,
            by=cast("By", by),
            drop=drop,
            progress=progress,
        )
    if json:
        sys.stdout.write(dumps(asdict(selected), indent=2, ensure_ascii=False) + "\n")
        return
    notes = (
        *((DEFAULT_DROP.format(", ".join(selected.drop)),) if drop is None else ()),
        *((EASIEST,) if by == "weight" and not {"top", "max"}.isdisjoint(selected.left_out) else ()),
    )
    for line in (*_copy_lines(selected), *notes, *_score_lines(selected)):
        stdout().print(plain(line), markup=False)


def _copy_lines(selected: Selected) -> tuple[str, ...]:
    """What the copy holds, and what it leaves out."""
    from secid.findings.rows import SAMPLED
    from secid.pages.numbers import plural

    n_gone, skipped = sum(selected.left_out.values()), selected.rows_skipped
    kept, rows = f"{selected.n_after:,} of {selected.n_listed:,} listed negatives", plural(selected.n_rows, "row")
    sampled = [name for name in selected.drop if name in SAMPLED]
    return (
        f"wrote {selected.path}: {kept}, {rows}",
        *repeats_told(selected.n_repeated),
        f"left out: {n_gone:,}{_counted(selected.left_out)}; which and why: {selected.left_out_path}",
        *((f"rows without a record, not in the copy{_counted(skipped)}",) if skipped else ()),
        *((UNCHECKED.format(plural(selected.n_unchecked, "negative")),) if selected.n_unchecked else ()),
        *((SAMPLED_ONLY.format(", ".join(sampled)),) if sampled else ()),
    )


def _score_lines(selected: Selected) -> tuple[str, ...]:
    """The score before and after, and how far the two compare. Source: METHOD 7."""
    from secid.export.select import RULES
    from secid.results.catalogue import FINDINGS

    n_before, n_after = selected.before_n_triplets, selected.after_n_triplets
    unequal = (
        f"Before and after are of {n_before:,} and {n_after:,} negatives: beyond B = 1 only equal numbers compare, "
        "because a smaller sample scores too low, so the difference is not of the selection alone."
    )
    ranked = any(reason in RULES for reason in selected.left_out)
    by_encoder = ranked or any(FINDINGS[name].needs == "rows" for name in selected.drop)
    rises = ranked and selected.after_nats > selected.before_nats
    before, after = f"{selected.before_nats:.4f} nats before", f"{selected.after_nats:.4f} after"
    scores = (
        f"ECI at budget {selected.budget:g} in the pool of the run: {before} (of {n_before:,} distinct negatives), "
        f"{after} (of {n_after:,})"
    )
    return (
        scores,
        *((unequal,) if selected.budget > 1.0 and n_before != n_after else ()),
        *((CIRCULAR.format(BY_THE_SCORE if rises else ""),) if by_encoder else ()),
    )


def _counted(reasons: Mapping[str, int]) -> str:
    """ " (top 3, repeat 1)"; nothing where there is none."""
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({counts})" if counts else ""
