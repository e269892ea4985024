"""Show the result of `secid mine`: the sources, why rows are short, what was excluded, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from secid.measure.false_negatives import Margin
from secid.pages.glossary import HARDNESS_ENDS, lost_lines, reason_list, reason_words, recipe_line
from secid.pages.page import Table, foreign, number
from secid.pages.screen import Line, Screen, bullet, command, screen, strong, warning
from secid.pages.text import NO_BREAK_SPACE, count, fraction, named, percent, plural, short
from secid.results.catalogue import FINDINGS
from secid.results.mine import Mined, MinedSource, MiningRun, Suspects, Sweep, Swept, SweptSource, Usage

SHORT_REASONS = {
    "margin": "the margin rejects most of the window",
    "maximum": "the maximum score rejects most of the window",
    "reused": "--max-reuse is reached",
    "few_candidates": "there are no more candidates",
    "no_common_token": "no other candidate shares a token with the query",
    "parts_ended": "the combined sources have no more negatives",
    "few_written": "the model wrote no more usable texts",
}
NO_MARGIN_ADVICE = "relative=none removes the margin"
LOOSER_TESTS = {"margin": "a smaller margin", "maximum": "a higher maximum"}
"""Test of a dense source -> the change with which it rejects fewer candidates."""
EXCLUSION_TEXTS = {
    "false_negative": "labelled positives",
    "near_copy": "near copies of labelled positives",
    "query_echo": "the query's own text",
    "empty": "empty texts",
    "repeat": "repeats of a candidate",
}


def mined_screen(mined: Mined) -> Screen:
    """Show the sources, what they lack, and the command that scores them."""
    return screen(
        (strong(_headline(mined)), "" if mined.encoder is None else recipe_line(mined.encoder)),
        (_table(mined),),
        (
            *(bullet(f"{named(source.name)}: {line}.") for source in mined.sources for line in _lines(mined, source)),
            _left_out(mined),
            "Next:",
            command(mined.next_command, 2),
        ),
    )


def _headline(mined: Mined) -> str:
    """Return the number of negatives and rows; for each source, if one has no row for part of the input."""
    n = sum(source.n_negatives for source in mined.sources)
    if all(source.n_rows == mined.n_rows for source in mined.sources):
        return f"{plural(len(mined.sources), 'source')}, {plural(n, 'negative')} for {_input(mined)}"
    first, *others = mined.sources
    of = f"of {_whose(mined, mined.n_rows)}"
    parts = (
        f"{named(first.name)}: {plural(first.n_negatives, 'negative')} for {count(first.n_rows)} {of}",
        *(f"{named(each.name)}: {count(each.n_negatives)} for {count(each.n_rows)}" for each in others),
    )
    return f"{'; '.join(parts)}. All from {plural(mined.n_candidates, 'candidate')}"


def _whose(run: MiningRun, n: int) -> str:
    """Format a number of rows; of queries, if each row has another query."""
    return plural(n, "query", "queries") if run.n_rows == run.n_queries else plural(n, "row")


def _left_out(run: MiningRun) -> Line:
    return warning(f"Left out of the input: {reason_list(run.skipped)}." if run.skipped else "")


def _input(run: MiningRun) -> str:
    """Format the number of rows, of queries if it differs, and of candidates."""
    queries = "" if run.n_rows == run.n_queries else f" of {plural(run.n_queries, 'query', 'queries')}"
    return f"{_whose(run, run.n_rows)}{queries} from {plural(run.n_candidates, 'candidate')}"


def _table(mined: Mined) -> Table:
    columns = (
        foreign("source"), number("rows"), number("negatives"), number("short"), number("s_qn"), number("mean π"),
        number("outscoring"), number("passages"), number("most used"),
    )  # fmt: skip
    rows = tuple(
        (
            short(source.name),
            count(source.n_rows),
            count(source.n_negatives),
            count(source.n_short),
            fraction(source.s_query_negative),
            fraction(source.consistency),
            percent(source.inverted_share),
            count(source.n_passages),
            count(source.most_used),
        )
        for source in mined.sources
    )
    return Table(caption="What was mined", columns=columns, rows=rows)


def _lines(mined: Mined, source: MinedSource) -> Iterator[str]:
    """Yield lines on what a source lacks, its margins, and what was passed over."""
    if source.n_rows < mined.n_rows:
        have = "has" if source.n_rows + 1 == mined.n_rows else "have"
        yield f"{_whose(mined, mined.n_rows - source.n_rows)} {have} no negatives in the file"
        if len(mined.sources) > 1:
            yield f"a comparison of all sources covers at most {_whose(mined, source.n_rows)}"
    if source.method["method"] == "dense":
        margins = (f"{name}={source.method[name]:g}" for name in get_args(Margin) if name in source.method)
        yield f"the margin is dense:{','.join(margins) or 'relative=none'}"
    if source.n_short:
        of = f"{plural(source.n_short, 'row')} of {count(mined.n_rows)}"
        yield f"fewer than {mined.k} negatives for {of}: {short_words(source.short)}"
    if source.n_filled:
        yield f"{plural(source.n_filled, 'negative')} drawn at random to fill short rows"
    parts = (
        (source.n_missing, "have no negative"),
        (source.n_dropped, "were dropped by --on-short drop"),
        (source.n_still_short, f"in the file lack {plural(source.n_lacking, 'negative')}"),
    )
    if any(n for n, _ in parts):
        yield "of these rows, " + "; ".join(f"{count(n)} {what}" for n, what in parts if n)
    if tests := [name for name in LOOSER_TESTS if name in source.short]:
        first, last = source.method["ranks"]
        searched_all = first == 1 and last >= mined.n_candidates
        if searched_all:
            looser = " or ".join(LOOSER_TESTS[name] for name in tests)
            remedies = [f"the window has all candidates, so use {looser}, or a smaller -k"]
        else:
            remedies = [f"ranks=1-{mined.n_candidates} searches all candidates"]
        if "margin" in tests and "relative" in source.method:
            remedies.append(NO_MARGIN_ADVICE)
        if mined.on_short != "random" and not searched_all:
            remedies.append("--on-short random draws from those that pass")
        yield "; ".join(remedies)
    if source.excluded:
        yield f"passed over: {_counted(source.excluded, EXCLUSION_TEXTS)}"
    if source.usage is not None:
        yield f"the model's {usage_words(source.usage)}"
    if source.rejected:
        yield f"rejected from its answers: {_counted(source.rejected)}"
    if source.layout == "triplets":
        short_rows = plural(source.n_short, "row is", "rows are")
        yield f"written as triplets because {short_rows} short; --on-short drop writes n-tuples"
    yield from lost_lines(mined.schema, source.n_made_ids, source.not_held)


def short_words(short: Mapping[str, int]) -> str:
    """Return the reasons why rows are short, with counts."""
    return _counted(short, SHORT_REASONS)


def _counted(reasons: Mapping[str, int], words: Mapping[str, str] | None = None) -> str:
    return ", ".join(f"{(words or {}).get(name) or reason_words(name)} ({count(n)})" for name, n in reasons.items())


def usage_words(usage: Usage) -> str:
    """Return the tokens and cost of the answers, in one line."""
    text = f"{plural(usage.n_answers, 'answer')}, {count(usage.n_tokens_in)} tokens in, {count(usage.n_tokens_out)} out"
    parts = [
        text,
        "" if usage.cost is None else f"cost {usage.cost:,.4f}",
        f"{plural(usage.n_uncounted, 'answer')} without token counts" if usage.n_uncounted else "",
    ]
    return "; ".join(filter(None, parts))


def sweep_screen(sweep: Sweep) -> Screen:
    """Show a table for each dense source, explain its columns, and how to write a row to a file."""
    headline = f"Up to {sweep.k} negatives for each of {_input(sweep)}; nothing was written"
    return screen(
        (strong(headline), recipe_line(sweep.encoder)),
        *((_sweep_table(sweep, source),) for source in sweep.sources),
        (*map(bullet, _sweep_lines(sweep)), _left_out(sweep)),
    )


def _sweep_table(sweep: Sweep, source: SweptSource) -> Table:
    columns = (
        foreign(short(source.name)), number("margin"), number("negatives"), number("short"), number("by"),
        number("s_qn"), number("mean π"), number("suspects"),
    )  # fmt: skip
    ranks = "ranks {0[0]}-{0[1]}".format
    rows = [
        ("as named", _margin(source.own), *_sweep_cells(source.own)),
        *((ranks(each.method["ranks"]), _margin(each), *_sweep_cells(each)) for each in source.variants),
        ("random", "", *_sweep_cells(sweep.random)),
    ]
    n = len(columns) - (sweep.guide is None)
    return Table(caption="Ranks and margins", columns=columns[:n], rows=tuple(row[:n] for row in rows))


def _margin(swept: Swept) -> str:
    relative = swept.method.get("relative")
    return "" if relative is None else f"{100 * relative:g}{NO_BREAK_SPACE}%"


def _sweep_cells(swept: Swept) -> tuple[str, ...]:
    return (
        count(swept.n_negatives),
        count(swept.n_short),
        fraction(swept.n_lacking / swept.n_short, 1) if swept.n_short else "–",
        fraction(swept.s_query_negative),
        fraction(swept.consistency),
        _suspect_share(swept.suspects),
    )


def _suspect_share(suspects: Suspects | None) -> str:
    if suspects is None:
        return "–"
    low, high = suspects.interval_95
    return f"{percent(suspects.share)} ({100 * low:.0f} to {100 * high:.0f})"


def _sweep_lines(sweep: Sweep) -> Iterator[str]:
    """Yield explanations of the columns, and how to write a row to a file."""
    name = next(iter(sweep.sources)).name
    yield (
        "margin: minimum distance of s_qn below s_qp, in per cent of s_qp. short: rows with fewer than "
        f"{sweep.k} negatives; by: number that these rows lack on average"
    )
    if sweep.guide is None:
        yield "nothing is known about false negatives; to estimate them, add --guide NAME or --guide-reranker NAME"
    else:
        yield (
            f"suspects: share of the negatives whose hardness under {named(sweep.guide.name)} is at least "
            f"{sweep.guide_min_hardness:g} ({HARDNESS_ENDS}), with its 95 % confidence "
            f"interval; estimated from {count(sweep.guide_sample)} of each row"
        )
        random = sweep.random.suspects
        if random is not None and FINDINGS["suspect"].exceeded_by(random.share):
            yield (
                f"it also suspects {percent(random.share)} of random candidates, so its suspects are unreliable here"
            )
    if sweep.unswept:
        yield f"not dense, so margins do not apply: {', '.join(map(named, sweep.unswept))}"
    yield f"to write a row, use its options with -o FOLDER, such as {named(name)}=dense:ranks=11-50,relative=0.05"
