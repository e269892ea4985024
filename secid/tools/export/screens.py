"""Screens that `secid select`, `secid flagged` and `secid mix` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from secid.findings.rows import SAMPLED_FINDINGS
from secid.pages.glossary import lost_lines
from secid.pages.page import Table, foreign, number, status
from secid.pages.screen import Line, Screen, command, screen, strong
from secid.pages.statuses import STATUS, statuses_line
from secid.pages.text import count, fraction, percent, plain, plural, points, score_text
from secid.records import fact_sentence
from secid.results import Run
from secid.results.catalogue import FINDINGS
from secid.results.commands import score_command
from secid.settings import flag_of

if TYPE_CHECKING:
    from secid.tools.export.left_out import Answer, Selection
    from secid.tools.export.mixture import Blend, MixtureScore
    from secid.tools.export.select import Flagged
    from secid.write.writer import WrittenFile

TRIPLETS_NOTE = (
    "rows have different numbers of negatives, so each row is one triplet (anchor, positive, negative); an n-tuple "
    "needs the same number in every row"
)
EASIEST_NOTE = (
    "--by {} keeps the easiest negatives, those that the encoder separates best from the positive. Without --by, the "
    "hardest are kept."
)
WIDENED_NOTE = (
    "{}: negatives differ more from positives in the copy ({} percentage points) than in the source ({}). Repair the "
    "texts of both negatives and positives."
)
DEFAULT_DROP_NOTE = "a ranking rule also drops {} by default; --drop none keeps them"
UNSCORED_NOTE = "{} in the copy were not scored. Score, hardness and outscoring below cover only the scored sample."
TEXTS_ONLY_NOTE = "{} needs the encoder, so it was dropped only in the scored sample."
SAMPLED_ONLY_NOTE = (
    "{}: evaluated for at most 1,000 sampled queries of each source; negatives of other queries are kept"
)
NOT_SCORED_NOTE = "The copy is not scored yet. To score it:"
NAME_AN_ENCODER_NOTE = (
    "The copy is not scored yet. To score it, put the name of an encoder in place of ENCODER, such as minilm:"
)
"""In place of NOT_SCORED_NOTE after `secid check`, or if the encoder is a Python object."""
SCORE_LIMIT_NOTE = "The score does not show whether training on this mixture gives a better encoder."
REMARK_TEXTS = {
    "too_few": "{name} has {n:,.0f} negatives, fewer than its share of a budget of {budget:g}.",
    "unequal": "{fewest} has {n_fewest:,.0f} negatives and {most} has {n_most:,.0f}. Above B = 1, the score of a "
    "smaller sample is too low. To compare them, score samples of equal size "
    f"({flag_of('max_records')}, {flag_of('first_k')}).",
}
"""Remarks on the numbers of a mixture, by kind."""


def selection_screen(selected: Selection, by: str, named: bool) -> Screen:
    """Show the copy, the negatives left out, and the source before and after.

    by : number that the rule ranked by.   named : the user named the findings to drop.
    """
    return screen(_copy(selected, named), (_answers(selected),), _notes(selected, by))


def flagged_screen(written: Flagged) -> Screen:
    """Show the file of rows, with the number of rows of each source."""
    counts = ", ".join(f"{name} {n:,}" for name, n in written.n_rows.items())
    total = plural(sum(written.n_rows.values()), "negative")
    return screen((f"wrote {written.path}: {total} with {written.finding} ({counts})",))


def mixture_screen(run: Run, mixture: MixtureScore, written: Blend | None) -> Screen:
    """Show the score, the status of the sources in the mixture, and the file that was written."""
    names = {part.name for part in mixture.parts}
    used = [source for source in run.sources if source.name in names]
    return screen(
        (
            strong(f"The mixture scores {mixture.nats:.4f} nats at B = {mixture.budget:g}."),
            f"Sources in the mixture. {statuses_line(used)}",
            *(command(source.repair or "", 2) for source in used),
            SCORE_LIMIT_NOTE,
        ),
        (_shares(mixture),),
        (
            *(fact_sentence(REMARK_TEXTS, remark) for remark in mixture.remarks),
            *(() if written is None else (*_file(written, written.path), *_drawing(written))),
        ),
    )


def _file(written: WrittenFile, path: str) -> Iterator[str]:
    """Yield lines about the file, its schema, and the fields that the schema cannot hold."""
    layout = f" ({written.layout})" if written.layout else ""
    holds = f"{plural(written.n_rows, 'row')}, {plural(written.n_negatives, 'negative')}"
    yield f"wrote {path}: {written.schema}{layout}, {holds}"
    if written.layout == "triplets":
        yield TRIPLETS_NOTE
    yield from lost_lines(written.schema, written.n_made_ids, written.not_held)


def _copy(selected: Selection, named: bool) -> Iterator[str]:
    """Yield lines about the negatives in the copy and those that were left out."""
    yield from _file(selected, selected.path)
    n_left_out, reasons = sum(selected.left_out.values()), _counted(selected.left_out)
    log = f"; see {selected.left_out_path}" if n_left_out or selected.rows_skipped else ""
    yield f"left out: {n_left_out:,} of {selected.n_listed:,} listed negatives{reasons}{log}"
    n_kept, n_lost = selected.n_records_kept, selected.n_records - selected.n_records_kept
    if n_lost:
        yield f"records in the copy: {n_kept:,} of {selected.n_records:,}; {n_lost:,} lost all negatives"
    else:
        yield f"records in the copy: {n_kept:,} of {selected.n_records:,}"
    if selected.rows_skipped:
        yield f"rows that were skipped and are not in the copy{_counted(selected.rows_skipped)}"
    if selected.n_unscored:
        yield UNSCORED_NOTE.format(plural(selected.n_unscored, "negative"))
        if by_encoder := [name for name in selected.drop if FINDINGS[name].needs != "texts"]:
            yield TEXTS_ONLY_NOTE.format(", ".join(by_encoder))
    if sampled := [name for name in selected.drop if name in SAMPLED_FINDINGS]:
        yield SAMPLED_ONLY_NOTE.format(", ".join(sampled))
    if selected.drop and not named:
        yield DEFAULT_DROP_NOTE.format(", ".join(selected.drop))


def _counted(reasons: Mapping[str, int]) -> str:
    """Format counts as " (top 3, repeat 1)"; "" without counts."""
    counts = ", ".join(f"{reason} {n:,}" for reason, n in reasons.items())
    return f" ({counts})" if counts else ""


def _answers(selected: Selection) -> Table:
    numbers = ("score ± CI", "hardness", "outscoring", "defects", "n")
    return Table(
        caption="The source before and after",
        columns=(foreign(selected.source, is_name=True), status("status"), *map(number, numbers)),
        rows=(("before", *_cells(selected.before)), ("after", *_cells(selected.after))),
    )


def _cells(answer: Answer) -> tuple[str, ...]:
    point = answer.score
    return (
        STATUS[answer.status],
        "–" if point is None else score_text(point.nats, point.interval_95, point.budget),
        fraction(answer.hardness, 2),
        "–" if answer.outscoring is None else percent(answer.outscoring),
        percent(answer.flagged_share),
        count(answer.n_triplets),
    )


def _notes(selected: Selection, by: str) -> Iterator[str | Line]:
    """Yield findings that are worse in the copy, a warning if the easiest negatives were kept, and the next command."""
    for name, (of_source, of_copy) in selected.widened.items():
        yield WIDENED_NOTE.format(name, points(of_copy), points(of_source))
    if by in ("weight", "influence") and not {"top", "max"}.isdisjoint(selected.left_out):
        yield EASIEST_NOTE.format(by)
    yield NOT_SCORED_NOTE if selected.encoder else NAME_AN_ENCODER_NOTE
    yield command(score_command([selected.path], selected.encoder or "ENCODER", None, ()), 2)


def _shares(mixture: MixtureScore) -> Table:
    rows = tuple((plain(part.name), percent(part.share), f"{part.single_nats:.4f}") for part in mixture.parts)
    columns = (foreign("source"), number("share"), number("score alone"))
    return Table(caption="Shares of the mixture", columns=columns, rows=rows)


def _drawing(written: Blend) -> Iterator[str]:
    """Yield lines about the negatives that were drawn from each source, and those that could not be drawn."""
    drawn = ", ".join(f"{name} {n:,}" for name, n in written.n_drawn.items())
    yield f"drawn: {drawn}; the origin of each is in {written.provenance_path}"
    if len(written.n_drawn) == 1:
        yield f"all negatives are from {next(iter(written.n_drawn))}, so nothing is mixed"
    elif written.n_alone:
        yield f"records with candidates from fewer than two sources: {written.n_alone:,} of {written.n_records:,}"
    if written.n_false_negative or written.n_near_copy:
        positives = plural(written.n_false_negative, "labelled positive")
        copies = plural(written.n_near_copy, "near copy of a positive", "near copies of a positive")
        yield f"candidates not drawn: {positives} of the query, {copies}"
    if written.n_short:
        yield f"could not draw {plural(written.n_short, 'negative')}; filled from other sources if possible"
